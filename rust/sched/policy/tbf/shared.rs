// SPDX-License-Identifier: GPL-2.0-only

//! Buckets that the parts of one head share, without a lock.
//!
//! # Vocabulary
//!
//! - *Place*: a tag and a level, one word each, in a table of fixed size.
//! - *Tag*: 46 bits of a keyed hash of whose bucket it is, its unit to 7 bits, and 6 bits for the logarithm
//!   of its window; 0 if it is nobody's ([`Tag`]).
//! - *Block*: 8 places side by side; a tag can be in the block that its hash names.
//! - *Seat*: a tag and where it was last ([`Seat`]); who uses it looks whether the tag is still there.
//!
//! ```text
//!            claimed (CAS of the tag)                  claimed by another tag
//!  nobody's ─────────────────────────► somebody's ──────────────────────────────► somebody else's
//!      ▲                                   │  ▲       only when full again,
//!      └───────────────────────────────────┘  │       so that nothing is forgotten
//!        the same tag was claimed twice       └── takes: CAS of the level
//! ```
//!
//! A bucket that is full again carries no state: its level says the same as that of a new one. So the
//! table needs no list of what is in use, and whoever comes back after long finds a full bucket, its own or
//! another.
//!
//! # Changes of a rule
//!
//! A rule that has changed keeps its buckets: parts that are not told yet, and those that are, take from the same one. A
//! part that finds another unit ([`super::plan::Meter::unit`]) in a tag puts its own there, and leaves as many units in the bucket. Until the last
//! part was told, that is as often as parts take turns; nobody gains by it.
//!
//! # Two claims of one tag
//!
//! Two parts that look for a tag at a time can claim two places of its block. Each looks through the block
//! again after its claim; as claims are in one order (`SeqCst`), one of them at least sees both. The lower
//! place stays, the higher one is given up, and who claimed that finds the tag gone when it uses it next.
//!
//! # What is not exact
//!
//! Between a look at the tag and the take, the place can change hands if the bucket is full. One request
//! is then charged to a stranger; nobody is charged less. A change of the unit is exact to a hundredth. One part at a
//! time makes it, and the tag says so: a request that comes just then is not charged.

use super::plan::DEBT_MAX;
use crate::sched::{
    bucket::{scale, Charge, Level},
    key::{Hashed, Hasher},
    mem::{Bulk, NoMemory},
};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Places of a block.
const BLOCK: usize = 8;

/// Bits of a tag that say how long the window is.
const WINDOW_BITS: u32 = 6;

/// How often one request looks for a bucket whose unit others change each time.
const SEEKS: u32 = 2;

/// In place of the logarithm of the window: the level does not follow the unit yet. Nobody takes such a place.
const CHANGING: u64 = (1 << WINDOW_BITS) - 1;

/// Bits of a tag that say its unit, those of a fraction among them.
const UNIT_BITS: u32 = 12;
const FRACTION_BITS: u32 = 6;

/// Bits of a tag that are not of the hash.
const TERMS_BITS: u32 = WINDOW_BITS + UNIT_BITS;

/// No place of the table.
const NOWHERE: u32 = u32::MAX;

/// Whose bucket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    /// The tag of what has `hash`, of whose bucket credit counts up to `window`, in units of `unit`, both ticks.
    pub const fn new(hash: u64, window: u64, unit: u64) -> Self {
        // The window is below 2^(log - 1), so a bucket that was just filled is not yet anybody's.
        let log = u64::BITS
            .wrapping_sub(window.leading_zeros())
            .wrapping_add(1);
        let log = if log > 62 { 62 } else { log };
        let word = unit | 1;
        let zeros = word.leading_zeros();
        // Without the first bit, which is 1.
        let fraction = word.wrapping_shl(zeros).wrapping_shl(1) >> (u64::BITS - FRACTION_BITS);
        let exponent = (u64::BITS - 1).wrapping_sub(zeros) as u64;
        let unit = (exponent << FRACTION_BITS) | fraction;
        // Never 0, since the logarithm is not.
        Self(((hash >> TERMS_BITS) << TERMS_BITS) | (unit << WINDOW_BITS) | log as u64)
    }

    /// Whether both are tags of the same bucket, whatever its window and unit.
    const fn is_of(self, other: Self) -> bool {
        (self.0 ^ other.0) >> TERMS_BITS == 0
    }

    /// The same while the level does not follow the unit yet.
    const fn changing(self) -> Self {
        Self(self.0 | CHANGING)
    }

    /// Its unit, ticks, to seven bits.
    const fn unit(self) -> u64 {
        let unit = (self.0 >> WINDOW_BITS) & ((1 << UNIT_BITS) - 1);
        let fraction = (1 << FRACTION_BITS) | (unit & ((1 << FRACTION_BITS) - 1));
        let exponent = (unit >> FRACTION_BITS) as u32;
        (fraction << (u64::BITS - 1 - FRACTION_BITS))
            .wrapping_shr((u64::BITS - 1).wrapping_sub(exponent))
    }
}

/// Where a bucket is, or was.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    tag: Tag,
    place: u32,
}

impl Seat {
    /// The seat of `tag`, not looked for yet.
    pub const fn new(tag: Tag) -> Self {
        Self {
            tag,
            place: NOWHERE,
        }
    }

    /// Nobody's.
    pub const NONE: Self = Self::new(Tag(0));

    /// The same bucket as that of `was`, after a change of its rule.
    pub const fn after(self, was: Self) -> Self {
        Self {
            place: was.place,
            ..self
        }
    }
}

/// A level that many change at once.
struct Place {
    tag: AtomicU64,
    level: AtomicU64,
}

impl Place {
    /// Whether `tag`, which is in the place, may be replaced at `now`.
    fn is_free(&self, tag: u64, now: u64) -> bool {
        let log = (tag & ((1 << WINDOW_BITS) - 1)) as u32;
        let window = 1u64.checked_shl(log).unwrap_or(u64::MAX);
        tag == 0 || self.level.load(SeqCst).saturating_add(window) <= now
    }
}

/// A table of buckets.
///
/// # Invariants
///
/// There are a power of two places, at least one block, and as many as `mask` says.
pub struct Buckets {
    places: Bulk<Place>,
    /// Of each place, [`Level::forced`].
    forced: Bulk<AtomicU64>,
    mask: usize,
    hasher: Hasher,
    full: AtomicU64,
    salts: AtomicU64,
}

impl Buckets {
    /// A table for `count` buckets in use at a time, half empty then; sleeps.
    pub fn new(count: usize, seed: u64) -> Result<Self, NoMemory> {
        let size = count.saturating_mul(2).max(BLOCK);
        let size = size.checked_next_power_of_two().ok_or(NoMemory)?;
        let places = Bulk::filled(size, || Place {
            tag: AtomicU64::new(0),
            level: AtomicU64::new(Level::FULL.0),
        })?;
        Ok(Self {
            places,
            forced: Bulk::filled(size, || AtomicU64::new(Level::FULL.0))?,
            mask: size.wrapping_sub(1),
            hasher: Hasher::new(seed),
            full: AtomicU64::new(0),
            salts: AtomicU64::new(1),
        })
    }

    /// A number that was not given out before and is not 0.
    pub fn salt(&self) -> u64 {
        self.salts.fetch_add(1, Relaxed)
    }

    /// The hash of `key` under the secret of the table.
    pub fn hash(&self, key: &impl Hashed) -> u64 {
        self.hasher.wide(key)
    }

    /// Returns how often no place was left for a bucket.
    pub fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }

    /// The place of a seat, found anew if it moved; none as [`Buckets::seek`] says.
    #[inline]
    fn place(&self, seat: &mut Seat, window: u64, now: u64) -> Option<&Place> {
        let place = self.places.get(seat.place as usize);
        match place.filter(|place| place.tag.load(SeqCst) == seat.tag.0) {
            Some(place) => Some(place),
            None => self.seek(seat, window, now),
        }
    }

    /// Finds the place of a seat; none if its block is full, or if another part just changes its unit.
    #[cold]
    fn seek(&self, seat: &mut Seat, window: u64, now: u64) -> Option<&Place> {
        if seat.tag == Seat::NONE.tag {
            return None;
        }
        let found = self.find(seat.tag, window, now);
        seat.place = found.unwrap_or(NOWHERE);
        self.places.get(found? as usize)
    }

    /// Replaces the level of a bucket by what `change` makes of it; returns what it was, none as [`Buckets::seek`] says.
    ///
    /// The tag is read after the level: if the level has not changed when it is replaced, it is one in the unit of the seat.
    fn change(
        &self,
        seat: &mut Seat,
        window: u64,
        now: u64,
        change: impl Fn(Level) -> Level,
    ) -> Option<Level> {
        let mut seeks = 0;
        loop {
            if let Some(place) = self.places.get(seat.place as usize) {
                let level = Level(place.level.load(SeqCst));
                if place.tag.load(SeqCst) == seat.tag.0 {
                    if place.replace(level, change(level)) {
                        return Some(level);
                    }
                    continue;
                }
            }
            seeks = u32::wrapping_add(seeks, 1);
            if seeks > SEEKS {
                return None;
            }
            self.seek(seat, window, now)?;
        }
    }

    /// Index of the place of `tag`; claims one if there is none.
    fn find(&self, tag: Tag, window: u64, now: u64) -> Option<u32> {
        let base = (tag.0 >> TERMS_BITS) as usize & self.mask & !(BLOCK - 1);
        let block = self.places.run(base, BLOCK);
        for _ in 0..BLOCK {
            let mut free = None;
            for (index, place) in block.iter().enumerate() {
                let there = place.tag.load(SeqCst);
                if tag.is_of(Tag(there)) {
                    let index = base.wrapping_add(index);
                    let followed = self.follow(index, Tag(there), tag, now);
                    return followed.then_some(index as u32);
                }
                if place.is_free(there, now) {
                    // Nobody's place before one that may be wanted again.
                    match free {
                        Some((_, 0)) => {}
                        Some(_) if there != 0 => {}
                        _ => free = Some((index, there)),
                    }
                }
            }
            let Some((index, there)) = free else {
                break;
            };
            let place = block.get(index)?;
            if place
                .tag
                .compare_exchange(there, tag.0, SeqCst, SeqCst)
                .is_ok()
            {
                place.level.fetch_max(now.saturating_sub(window), SeqCst);
                let index = settle(block, index, tag);
                return Some(base.wrapping_add(index) as u32);
            }
        }
        self.full.fetch_add(1, Relaxed);
        None
    }

    /// Has the bucket at `index`, whose tag was `old`, follow `new`; false if another part just changes its unit.
    fn follow(&self, index: usize, old: Tag, new: Tag, now: u64) -> bool {
        let Some((place, forced)) = self.places.get(index).zip(self.forced.get(index)) else {
            return false;
        };
        place.follow(old, new, now, forced)
    }

    /// When the bucket will have enough for `charge`; none if it has no place.
    pub fn ready(&self, seat: &mut Seat, window: u64, charge: Charge, now: u64) -> Option<u64> {
        let place = self.place(seat, window, now)?;
        let level = Level(place.level.load(SeqCst));
        Some(level.ready(now.saturating_sub(window), charge))
    }

    /// Takes `charge` from the bucket, now or ahead of time; returns when the tokens are there.
    pub fn take(&self, seat: &mut Seat, window: u64, charge: Charge, now: u64) -> Option<u64> {
        let floor = now.saturating_sub(window);
        let before = self.change(seat, window, now, |level| level.take(floor, charge))?;
        Some(before.ready(floor, charge))
    }

    /// Takes `charge` regardless, without moving the level beyond `bound`; returns the level before and after.
    pub fn force(
        &self,
        seat: &mut Seat,
        window: u64,
        charge: Charge,
        bound: u64,
        now: u64,
    ) -> Option<(Level, Level)> {
        let force = |level: Level| level.force(now.saturating_sub(window), charge, bound);
        let before = self.change(seat, window, now, force)?;
        Some((before, force(before)))
    }

    /// The same from a bucket whose unit may change: a debt that this makes gets no longer by that than [`DEBT_MAX`].
    pub fn owe(&self, seat: &mut Seat, window: u64, charge: Charge, bound: u64, now: u64) {
        let moved = self.force(seat, window, charge, bound, now);
        let owed = moved.filter(|(_, after)| after.0 > now);
        if let Some(((before, after), forced)) = owed.zip(self.forced.get(seat.place as usize)) {
            let more = |forced| Some(Level(forced).forced(before, after, now).0);
            let _ = forced.fetch_update(SeqCst, SeqCst, more);
        }
    }

    /// The place of a bucket that is there, its level, and the tag that says in which unit that is.
    fn there(&self, seat: &Seat) -> Option<(&Place, Level, Tag)> {
        let place = self.places.get(seat.place as usize)?;
        let level = Level(place.level.load(SeqCst));
        let tag = Tag(place.tag.load(SeqCst));
        tag.is_of(seat.tag).then_some((place, level, tag))
    }

    /// Gives back what was taken from the bucket; nothing if it moved, since it was full then, or if another part just
    /// changes its unit.
    pub fn refund(&self, seat: &Seat, span: u64) {
        while let Some((place, level, tag)) = self.there(seat) {
            let span = scale(span, seat.tag.unit(), tag.unit());
            if tag == tag.changing() || place.replace(level, level.refund(span)) {
                break;
            }
        }
    }

    /// The level of a bucket that is there.
    pub fn level(&self, seat: &Seat) -> Option<Level> {
        self.there(seat).map(|(_, level, _)| level)
    }

    /// Takes from a bucket that was full for long, with all the credit that `window` allows, what is beyond
    /// its `depth`, ticks: nobody has used it, so that is not lateness.
    pub fn calm(&self, seat: &mut Seat, window: u64, depth: u64, now: u64) {
        if let Some(place) = self.place(seat, window, now) {
            if place.level.load(SeqCst) <= now.saturating_sub(window) {
                place.level.fetch_max(now.saturating_sub(depth), SeqCst);
            }
        }
    }
}

impl Place {
    /// Has the bucket, whose tag was `old`, follow `new`; false if another part just changes its unit.
    fn follow(&self, old: Tag, new: Tag, now: u64, forced: &AtomicU64) -> bool {
        if old == old.changing() {
            return false;
        }
        if old.unit() == new.unit() {
            self.retag(old, new);
        } else if self.retag(old, new.changing()) {
            self.rescale(old, new, now, forced);
            self.retag(new.changing(), new);
        }
        true
    }

    /// Leaves as many units of `new` in the bucket as there are of `old`.
    fn rescale(&self, old: Tag, new: Tag, now: u64, forced: &AtomicU64) {
        let part = Level(forced.load(SeqCst));
        let rescale = |level: Level| level.rescale(part, now, old.unit(), new.unit(), DEBT_MAX);
        loop {
            let level = Level(self.level.load(SeqCst));
            if self.replace(level, rescale(level)) {
                break;
            }
        }
        forced.store(rescale(part).0, SeqCst);
    }

    /// Replaces the tag; whether it was `old`.
    fn retag(&self, old: Tag, new: Tag) -> bool {
        let done = self.tag.compare_exchange(old.0, new.0, SeqCst, SeqCst);
        done.is_ok()
    }

    /// Replaces the level; whether it was `old`, but for a failure now and then.
    #[inline]
    fn replace(&self, old: Level, new: Level) -> bool {
        let done = self
            .level
            .compare_exchange_weak(old.0, new.0, SeqCst, SeqCst);
        done.is_ok()
    }
}

/// After a claim of `tag` at `index`, leaves it in one place of `block` only; returns which.
fn settle(block: &[Place], index: usize, tag: Tag) -> usize {
    let Some(claimed) = block.get(index) else {
        return index;
    };
    for (other, place) in block.iter().enumerate() {
        if other == index || !tag.is_of(Tag(place.tag.load(SeqCst))) {
            continue;
        }
        let (stays, goes) = if other < index {
            (place, claimed)
        } else {
            (claimed, place)
        };
        stays.level.fetch_max(goes.level.load(SeqCst), SeqCst);
        // Whoever fails here finds that the other one did it, or that the tag has another unit now.
        let given_up = |there| tag.is_of(Tag(there)).then_some(0);
        let _ = goes.tag.fetch_update(SeqCst, SeqCst, given_up);
        if other < index {
            return other;
        }
    }
    index
}

#[cfg(test)]
mod tests;
