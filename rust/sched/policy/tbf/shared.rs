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

use super::plan::{debt_max, DEBT_MAX};
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
    /// Of each place, the level to which forced requests moved it.
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
        let debt_max = debt_max(forced.load(SeqCst) > now);
        let followed = place.follow(old, new, now, debt_max);
        if debt_max == DEBT_MAX {
            forced.fetch_max(place.level.load(SeqCst), SeqCst);
        }
        followed
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

    /// Takes `charge` regardless, without moving the level beyond `bound`; returns the level.
    pub fn force(
        &self,
        seat: &mut Seat,
        window: u64,
        charge: Charge,
        bound: u64,
        now: u64,
    ) -> Option<Level> {
        let force = |level: Level| level.force(now.saturating_sub(window), charge, bound);
        self.change(seat, window, now, force).map(force)
    }

    /// The same from a bucket whose unit may change: a debt that this makes gets no longer by that than [`DEBT_MAX`].
    pub fn owe(&self, seat: &mut Seat, window: u64, charge: Charge, bound: u64, now: u64) {
        let level = self.force(seat, window, charge, bound, now);
        let debt = level.filter(|level| level.0 > now);
        if let Some((level, forced)) = debt.zip(self.forced.get(seat.place as usize)) {
            forced.fetch_max(level.0, SeqCst);
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
    fn follow(&self, old: Tag, new: Tag, now: u64, debt_max: u64) -> bool {
        if old == old.changing() {
            return false;
        }
        if old.unit() == new.unit() {
            self.retag(old, new);
        } else if self.retag(old, new.changing()) {
            self.rescale(old, new, now, debt_max);
            self.retag(new.changing(), new);
        }
        true
    }

    /// Leaves as many units of `new` in the bucket as there are of `old`.
    fn rescale(&self, old: Tag, new: Tag, now: u64, debt_max: u64) {
        loop {
            let level = Level(self.level.load(SeqCst));
            let scaled = level.rescale(now, old.unit(), new.unit(), debt_max);
            if self.replace(level, scaled) {
                break;
            }
        }
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
mod tests {
    use super::*;
    use crate::sched::{
        bucket::{instant, Pace, SPAN_MAX},
        key::Key,
    };

    const NOW: u64 = instant(1_000_000_000);

    fn tag(buckets: &Buckets, uid: u32, window: u64) -> Tag {
        Tag::new(buckets.hash(&Key::Uid(uid)), window, window)
    }

    #[test]
    fn one_tag_is_one_bucket() {
        let buckets = Buckets::new(100, 1).unwrap();
        let pace = Pace::new(1000);
        let window = pace.span(3);
        let charge = Charge::new(pace, 1, window);
        let mut seats = [(); 2].map(|()| Seat::new(tag(&buckets, 7, window)));
        let mut other = Seat::new(tag(&buckets, 8, window));
        // Three at once, whoever takes them, then one per millisecond.
        for i in 0..5u64 {
            let seat = &mut seats[i as usize % 2];
            let early = buckets.ready(seat, window, charge, NOW);
            let ready = buckets.take(seat, window, charge, NOW);
            assert_eq!(ready, early);
            assert_eq!(ready, Some(NOW - window + (i + 1) * charge.span));
        }
        assert!(buckets.ready(&mut other, window, charge, NOW).unwrap() <= NOW);
        buckets.refund(&seats[0], 5 * charge.span);
        assert_eq!(buckets.level(&seats[1]), Some(Level(NOW - window)));
        assert_eq!(buckets.full(), 0);
    }

    /// The table holds what it was made for, also if all are of one rule, which has one unit.
    #[test]
    fn buckets_of_one_rule_are_all_over_the_table() {
        let buckets = Buckets::new(4000, 1).unwrap();
        let pace = Pace::new(10);
        let window = pace.span(1);
        let charge = Charge::new(pace, 1, window);
        for uid in 0..4000 {
            let mut seat = Seat::new(tag(&buckets, uid, window));
            buckets.take(&mut seat, window, charge, NOW);
        }
        assert!(buckets.full() < 40, "{}", buckets.full());
    }

    /// Another unit is the same bucket, with as many units used up.
    #[test]
    fn another_unit_is_the_same_bucket() {
        let buckets = Buckets::new(100, 1).unwrap();
        let hash = buckets.hash(&Key::Uid(7));
        let [slow, fast] = [10, 1000].map(|rate| Pace::new(rate).span(1));
        let [mut old, mut new] = [slow, fast].map(|unit| Seat::new(Tag::new(hash, 3 * unit, unit)));
        let charge = Charge::new(Pace::new(10), 2, 3 * slow);
        buckets.take(&mut old, 3 * slow, charge, NOW);
        let charge = Charge::new(Pace::new(1000), 1, 3 * fast);
        let ready = buckets.ready(&mut new, 3 * fast, charge, NOW).unwrap();
        assert!(ready.abs_diff(NOW) < fast / 32, "{}", ready.abs_diff(NOW));
        let left = NOW - buckets.level(&new).unwrap().0;
        assert!(left.abs_diff(fast) < fast / 32, "{left} for {fast}");
        assert_eq!(old.place, new.place);
    }

    /// A part that takes one request after the other: the steps of [`Buckets::change`], and of [`Place::follow`].
    #[derive(Clone, Copy)]
    struct Taker {
        tag: Tag,
        step: Step,
        left: u32,
        seeks: u32,
        /// Requests that were charged, and those that were not.
        charged: u32,
        missed: u32,
    }

    #[derive(Clone, Copy)]
    enum Step {
        Level,
        Tag(Level),
        Take(Level),
        Follow(Tag),
        Rescale(Tag),
        Followed,
    }

    impl Taker {
        fn end(&mut self, charged: bool) -> Step {
            self.left -= 1;
            self.seeks = 0;
            self.charged += u32::from(charged);
            self.missed += u32::from(!charged);
            Step::Level
        }

        fn step(&mut self, place: &Place) {
            let own = self.tag;
            self.step = match self.step {
                Step::Level => Step::Tag(Level(place.level.load(SeqCst))),
                Step::Tag(level) => match Tag(place.tag.load(SeqCst)) {
                    there if there == own => Step::Take(level),
                    there if there == there.changing() || self.seeks == SEEKS => self.end(false),
                    there => {
                        self.seeks += 1;
                        Step::Follow(there)
                    }
                },
                Step::Take(level) if place.level.load(SeqCst) != level.0 => Step::Level,
                Step::Take(level) => {
                    place.level.store(level.0 + own.unit(), SeqCst);
                    self.end(true)
                }
                Step::Follow(there) => match place.retag(there, own.changing()) {
                    true => Step::Rescale(there),
                    false => Step::Level,
                },
                Step::Rescale(there) => {
                    place.rescale(there, own, NOW, SPAN_MAX);
                    Step::Followed
                }
                Step::Followed => {
                    assert!(place.retag(own.changing(), own));
                    Step::Level
                }
            };
        }
    }

    /// Runs `takers` to their ends in all orders of their steps; returns the number of orders.
    fn interleave(place: &Place, takers: [Taker; 2], end: &impl Fn(&Place, [Taker; 2])) -> u64 {
        let (tag, level) = (place.tag.load(SeqCst), place.level.load(SeqCst));
        let mut orders = 0;
        for index in 0..2 {
            if takers[index].left > 0 {
                let mut after = takers;
                after[index].step(place);
                orders += interleave(place, after, end);
                place.tag.store(tag, SeqCst);
                place.level.store(level, SeqCst);
            }
        }
        if orders == 0 {
            end(place, takers);
            orders = 1;
        }
        orders
    }

    /// Two parts that change the unit of a bucket in opposite directions at once leave in it what was there, less what they
    /// were charged; a change under way lets few requests pass that are not.
    #[test]
    fn opposite_changes_of_a_unit_lose_nothing() {
        // Units that a tag holds exactly.
        let tags = [1 << 12, 1 << 9].map(|unit| Tag::new(77 << TERMS_BITS, 1 << 20, unit));
        let mut orders = 0;
        for (was, tokens) in [(0, -1000), (1, -1000), (0, 3), (1, 3), (0, 30), (1, 30)] {
            let unit = |tag: Tag| tag.unit() as i64;
            let level = NOW as i64 - tokens * unit(tags[was]);
            let place = Place {
                tag: AtomicU64::new(tags[was].0),
                level: AtomicU64::new(level as u64),
            };
            let takers = tags.map(|tag| Taker {
                tag,
                step: Step::Level,
                left: 1,
                seeks: 0,
                charged: 0,
                missed: 0,
            });
            orders += interleave(&place, takers, &|place, takers| {
                let tag = Tag(place.tag.load(SeqCst));
                assert_ne!(tag, tag.changing());
                let sum = |of: fn(&Taker) -> u32| takers.iter().map(of).sum::<u32>();
                let (charged, missed) = (sum(|t| t.charged), sum(|t| t.missed));
                let left = NOW as i64 - place.level.load(SeqCst) as i64;
                let want = (tokens - i64::from(charged)) * unit(tag);
                assert!(left.abs_diff(want) <= 8, "{tokens}: {left} for {want}");
                assert!(charged + missed == 2 && missed <= 1, "{missed}");
            });
        }
        assert!(orders > 1_000, "{orders}");
    }

    /// Only buckets that are full again make room for others.
    #[test]
    fn what_is_in_use_stays() {
        let buckets = Buckets::new(4, 1).unwrap();
        let pace = Pace::new(10);
        let window = pace.span(1);
        let charge = Charge::new(pace, 1, window);
        let mut seats: Vec<Seat> = (0..12)
            .map(|uid| Seat::new(tag(&buckets, uid, window)))
            .collect();
        for (i, seat) in seats.iter_mut().enumerate() {
            let taken = buckets.take(seat, window, charge, NOW);
            assert_eq!(taken.is_some(), i < 8, "{i}");
        }
        assert_eq!(buckets.full(), 4);
        // Full again, and not young any more: others may have the places.
        let later = NOW + 8 * window;
        assert!(buckets.take(&mut seats[9], window, charge, later).is_some());
        let there = seats[..8]
            .iter()
            .filter(|seat| buckets.level(seat).is_some());
        assert_eq!(there.count(), 7);
        // Who lost its place finds another, with a full bucket.
        for seat in &mut seats[..8] {
            let ready = buckets.take(seat, window, charge, later);
            assert!(ready.is_none_or(|ready| ready <= later));
        }
    }

    /// Two claims of one tag end in one place, whichever was first.
    #[test]
    fn a_second_claim_is_given_up() {
        for (first, second) in [(3, 5), (5, 3)] {
            let buckets = Buckets::new(4, 1).unwrap();
            let block = buckets.places.run(0, BLOCK);
            let tag = Tag::new(77 << TERMS_BITS, 1, 1);
            for index in [first, second] {
                block[index].tag.store(tag.0, SeqCst);
                block[index].level.store(100 + index as u64, SeqCst);
            }
            assert_eq!(settle(block, second, tag), 3);
            let tags: Vec<usize> = (0..BLOCK)
                .filter(|&i| block[i].tag.load(SeqCst) == tag.0)
                .collect();
            assert_eq!(tags, [3]);
            assert_eq!(block[3].level.load(SeqCst), 105);
        }
    }

    #[test]
    fn tags_are_never_nobodys() {
        for window in [0, 1, 1 << 20, 1 << 55, u64::MAX] {
            for hash in [0, 1, u64::MAX] {
                let tag = Tag::new(hash, window, window);
                assert_ne!(tag, Seat::NONE.tag);
                let (unit, wanted) = (tag.unit(), window | 1);
                assert!(unit <= wanted && wanted - unit <= wanted / 64, "{window}");
                assert!(
                    tag.is_of(Tag::new(hash, 7, 9)) && !tag.is_of(Tag::new(!hash, window, window))
                );
            }
        }
    }
}
