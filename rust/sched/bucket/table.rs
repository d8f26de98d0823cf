// SPDX-License-Identifier: GPL-2.0-only

//! Lock-free buckets that the parts of one head share.
//!
//! - A place of the table ([`crate::sched::tagged_table`]) is a tag and a level, one word each.
//! - A [`BucketTag`] has 46 bits of a keyed hash of the bucket's owner. 12 bits are the unit, exact
//!   to 7 bits, and 6 bits are the logarithm of the window.
//! - A [`BucketRef`] is a tag and its last known place; each use checks that the tag is still
//!   there.
//!
//! ```text
//!        claim (CAS of the tag)           claim by another tag
//!  free ───────────────────────► in use ──────────────────────► in use by the other
//!    ▲                            │  ▲    only when full again,
//!    └────────────────────────────┘  │    so that no state is lost
//!     the same tag was claimed twice └── take: CAS of the level
//! ```
//!
//! A bucket that is full again carries no state: its level is equivalent to that of a new bucket.
//! So the table needs no list of buckets in use. A class that returns after a long time finds a
//! full bucket, its previous one or another.
//!
//! # Changes of a rule
//!
//! A rule that has changed keeps its buckets: parts with the old plan and parts with the new plan
//! take from the same bucket. A part that finds another unit ([`super::rate::RateDepth::unit`]) in
//! a tag stores its own unit there, and leaves as many units in the bucket. Until the last part has
//! the new plan, this happens whenever the parts alternate; it grants no tokens.
//!
//! # Two claims of one tag
//!
//! Each part searches the block again after its claim, and releases the higher of two places. The
//! part that claimed the higher place finds the tag missing at its next use.
//!
//! # Inexactness
//!
//! Between the check of the tag and the take, a place with a full bucket can be claimed for another
//! tag. One request is then charged to the other bucket, which is never charged less than is due.
//!
//! A change of the unit is exact to 1 %. One part at a time makes the change and marks it in the
//! tag; a request at that moment is not charged.

use super::{scale, BucketLevel, Charge, DEBT_MAX};
use crate::sched::{
    atomic::{AtomicWord, Counter, RelaxedWord},
    key::{Hashed, Hasher},
    mem::{Bulk, NoMemory},
    tagged_table::{search, TaggedTable, BLOCK},
};

/// Number of bits in a tag for the length of the window.
const WINDOW_BITS: u32 = 6;

/// Maximum number of searches by one request for a bucket whose unit other parts change each time.
const SEARCHES_MAX: u32 = 2;

/// Value in place of the logarithm of the window while the level is not converted to the new unit.
/// Such a place is never claimed.
const CHANGING: u64 = (1 << WINDOW_BITS) - 1;

/// Number of bits in a tag for the unit, including the fraction.
const UNIT_BITS: u32 = 12;
const FRACTION_BITS: u32 = 6;

/// Number of bits in a tag that are not part of the hash.
const TERMS_BITS: u32 = WINDOW_BITS + UNIT_BITS;

/// Index that is not in the table.
const NOWHERE: u32 = u32::MAX;

/// Identity of a bucket, with its unit and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTag(u64);

impl BucketTag {
    /// Returns the tag for `hash` of a bucket with maximum credit `window` and unit `unit`, both in
    /// ticks.
    pub const fn new(hash: u64, window: u64, unit: u64) -> Self {
        // The window is below 2^(log - 1), so a bucket that has just become full is not free yet.
        let log = u64::BITS
            .wrapping_sub(window.leading_zeros())
            .wrapping_add(1);
        let log = if log > 62 { 62 } else { log };
        let word = unit | 1;
        let zeros = word.leading_zeros();
        // The first bit is 1 and is omitted.
        let fraction = word.wrapping_shl(zeros).wrapping_shl(1) >> (u64::BITS - FRACTION_BITS);
        let exponent = (u64::BITS - 1).wrapping_sub(zeros) as u64;
        let unit = (exponent << FRACTION_BITS) | fraction;
        // The tag is never 0, because the logarithm is not.
        Self(((hash >> TERMS_BITS) << TERMS_BITS) | (unit << WINDOW_BITS) | log as u64)
    }

    /// Returns the tag for another `hash`, with the same window and unit.
    #[inline]
    pub const fn with_hash(self, hash: u64) -> Self {
        Self(((hash >> TERMS_BITS) << TERMS_BITS) | (self.0 & ((1 << TERMS_BITS) - 1)))
    }

    /// Returns the number of the block, which no bit of the terms selects.
    const fn block(self) -> u64 {
        self.0 >> TERMS_BITS >> BLOCK.ilog2()
    }

    /// Returns true if both tags are of the same bucket, regardless of window and unit.
    const fn is_of(self, other: Self) -> bool {
        (self.0 ^ other.0) >> TERMS_BITS == 0
    }

    /// Returns the same tag, marked as not yet converted to the unit.
    const fn changing(self) -> Self {
        Self(self.0 | CHANGING)
    }

    /// Returns the unit, ticks, to seven bits.
    const fn unit(self) -> u64 {
        let unit = (self.0 >> WINDOW_BITS) & ((1 << UNIT_BITS) - 1);
        let fraction = (1 << FRACTION_BITS) | (unit & ((1 << FRACTION_BITS) - 1));
        let exponent = (unit >> FRACTION_BITS) as u32;
        (fraction << (u64::BITS - 1 - FRACTION_BITS))
            .wrapping_shr((u64::BITS - 1).wrapping_sub(exponent))
    }
}

/// Tag of a bucket and its last known index.
#[derive(Clone, Copy, Debug)]
pub struct BucketRef {
    tag: BucketTag,
    idx: u32,
}

impl BucketRef {
    /// Returns the reference to the bucket of `tag` before any search.
    pub const fn new(tag: BucketTag) -> Self {
        Self { tag, idx: NOWHERE }
    }

    /// Returns the reference to the bucket of `tag`, last seen at `idx`.
    pub const fn at(tag: BucketTag, idx: u32) -> Self {
        Self { tag, idx }
    }

    /// Returns the last known index in the table.
    pub const fn idx(&self) -> u32 {
        self.idx
    }

    /// Reference to no bucket.
    pub const NONE: Self = Self::new(BucketTag(0));

    /// Returns the reference to the place of `was`, for the same bucket after a change of its rule.
    pub const fn after(self, was: Self) -> Self {
        Self {
            idx: was.idx,
            ..self
        }
    }
}

/// Tag and level of one bucket, which many parts change concurrently.
struct SharedLevel {
    tag: AtomicWord,
    level: AtomicWord,
}

impl SharedLevel {
    /// Returns true if `tag`, the tag of the place, may be replaced at `now`.
    fn is_free(&self, tag: u64, now: u64) -> bool {
        let log = (tag & ((1 << WINDOW_BITS) - 1)) as u32;
        let window = 1u64.checked_shl(log).unwrap_or(u64::MAX);
        self.level.get().saturating_add(window) <= now
    }
}

/// Table of buckets.
pub struct BucketTable {
    places: TaggedTable<SharedLevel>,
    /// Value of [`BucketLevel::forced`] for each place.
    forced: Bulk<AtomicWord>,
    hasher: Hasher,
    full: Counter,
    salts: RelaxedWord,
}

impl BucketTable {
    /// Creates a table that is half empty with `count` buckets in use; may sleep.
    pub fn new(count: usize, seed: u64) -> Result<Self, NoMemory> {
        let places = TaggedTable::new(count.saturating_mul(2), || SharedLevel {
            tag: AtomicWord::new(0),
            level: AtomicWord::new(BucketLevel::FULL.0),
        })?;
        Ok(Self {
            forced: Bulk::filled(places.len(), || AtomicWord::new(BucketLevel::FULL.0))?,
            places,
            hasher: Hasher::new(seed),
            full: Counter::new(),
            salts: RelaxedWord::new(1),
        })
    }

    /// Returns a unique number other than 0.
    pub fn salt(&self) -> u64 {
        self.salts.add(1)
    }

    /// Returns the hash of `key` under the secret of the table.
    pub fn hash(&self, key: &impl Hashed) -> u64 {
        self.hasher.wide(key)
    }

    /// Returns the number of times that no place was left for a bucket.
    pub fn full(&self) -> u64 {
        self.full.get()
    }

    /// Returns the place of a reference, after a new search if the bucket moved; `None` under the
    /// conditions of [`BucketTable::seek`].
    #[inline]
    fn locate(&self, bucket: &mut BucketRef, window: u64, now: u64) -> Option<&SharedLevel> {
        let place = self.places.get(bucket.idx);
        match place.filter(|place| place.tag.get() == bucket.tag.0) {
            Some(place) => Some(place),
            None => self.seek(bucket, window, now),
        }
    }

    /// Finds the place of a reference; `None` if its block is full, or if another part is changing
    /// the unit.
    #[cold]
    fn seek(&self, bucket: &mut BucketRef, window: u64, now: u64) -> Option<&SharedLevel> {
        if bucket.tag == BucketRef::NONE.tag {
            return None;
        }
        let found = self.find(bucket.tag, window, now);
        bucket.idx = found.unwrap_or(NOWHERE);
        self.places.get(found?)
    }

    /// Replaces the level of a bucket by the result of `change`; returns the previous level, or
    /// `None` under the conditions of [`BucketTable::seek`].
    ///
    /// The tag is read after the level: if the level is still the same when it is replaced, its
    /// unit is that of the reference.
    fn change(
        &self,
        bucket: &mut BucketRef,
        window: u64,
        now: u64,
        change: impl Fn(BucketLevel) -> BucketLevel,
    ) -> Option<BucketLevel> {
        let mut seeks = 0;
        loop {
            if let Some(place) = self.places.get(bucket.idx) {
                let level = BucketLevel(place.level.get());
                if place.tag.get() == bucket.tag.0 {
                    if place.replace(level, change(level)) {
                        return Some(level);
                    }
                    continue;
                }
            }
            seeks = u32::wrapping_add(seeks, 1);
            if seeks > SEARCHES_MAX {
                return None;
            }
            self.seek(bucket, window, now)?;
        }
    }

    /// Returns the index of the place of `tag`; claims a place if there is none.
    fn find(&self, tag: BucketTag, window: u64, now: u64) -> Option<u32> {
        for _ in 0..BLOCK {
            let found = search(
                self.places.places(tag.block()),
                |place| place.tag.get(),
                |there| tag.is_of(BucketTag(there)),
                |place, there| place.is_free(there, now),
            );
            match found {
                Ok((index, place, there)) => {
                    let forced = self.forced.get(index as usize)?;
                    let followed = place.convert(BucketTag(there), tag, now, forced);
                    return followed.then_some(index);
                }
                Err(Some((index, place, there))) => {
                    if place.retag(BucketTag(there), tag) {
                        place.level.raise(now.saturating_sub(window));
                        return Some(self.keep_lowest((index, place), tag));
                    }
                }
                Err(None) => break,
            }
        }
        self.full.count(1);
        None
    }

    /// Keeps `tag`, claimed at `index`, in only one place of its block; returns the index of that
    /// place.
    fn keep_lowest(&self, (index, claimed): (u32, &SharedLevel), tag: BucketTag) -> u32 {
        for (other, place) in self.places.places(tag.block()) {
            if other == index || !tag.is_of(BucketTag(place.tag.get())) {
                continue;
            }
            let (stays, goes) = if other < index {
                (place, claimed)
            } else {
                (claimed, place)
            };
            stays.level.raise(goes.level.get());
            // A failure means that the other part has released the place, or that the tag has
            // another unit now.
            let given_up = |there| tag.is_of(BucketTag(there)).then_some(0);
            goes.tag.change(given_up);
            if other < index {
                return other;
            }
        }
        index
    }

    /// Returns the instant at which the bucket has enough for `charge`; `None` if the bucket has no
    /// place.
    pub fn ready(
        &self,
        bucket: &mut BucketRef,
        window: u64,
        charge: Charge,
        now: u64,
    ) -> Option<u64> {
        let place = self.locate(bucket, window, now)?;
        let level = BucketLevel(place.level.get());
        Some(level.ready(now.saturating_sub(window), charge))
    }

    /// Takes `charge` from the bucket, possibly ahead of time; returns the instant at which the
    /// tokens exist.
    pub fn take(
        &self,
        bucket: &mut BucketRef,
        window: u64,
        charge: Charge,
        now: u64,
    ) -> Option<u64> {
        let floor = now.saturating_sub(window);
        let before = self.change(bucket, window, now, |level| level.take(floor, charge))?;
        Some(before.ready(floor, charge))
    }

    /// Takes `charge` unconditionally, without moving the level beyond `bound`; returns the level
    /// before and after.
    pub fn force(
        &self,
        bucket: &mut BucketRef,
        window: u64,
        charge: Charge,
        bound: u64,
        now: u64,
    ) -> Option<(BucketLevel, BucketLevel)> {
        let force = |level: BucketLevel| level.force(now.saturating_sub(window), charge, bound);
        let before = self.change(bucket, window, now, force)?;
        Some((before, force(before)))
    }

    /// Takes `charge` as [`BucketTable::force`] does, from a bucket whose unit may change. A change
    /// does not extend the resulting debt beyond [`DEBT_MAX`].
    pub fn owe(&self, bucket: &mut BucketRef, window: u64, charge: Charge, bound: u64, now: u64) {
        let moved = self.force(bucket, window, charge, bound, now);
        let owed = moved.filter(|(_, after)| after.0 > now);
        if let Some(((before, after), forced)) = owed.zip(self.forced.get(bucket.idx as usize)) {
            let more = |forced| Some(BucketLevel(forced).forced(before, after, now).0);
            forced.change(more);
        }
    }

    /// Returns the place of a bucket that still exists, its level, and the tag with the unit of the
    /// level.
    fn there(&self, bucket: &BucketRef) -> Option<(&SharedLevel, BucketLevel, BucketTag)> {
        let place = self.places.get(bucket.idx)?;
        let level = BucketLevel(place.level.get());
        let tag = BucketTag(place.tag.get());
        tag.is_of(bucket.tag).then_some((place, level, tag))
    }

    /// Returns `span` to the bucket. Does nothing if the bucket moved, because it was full then, or
    /// if another part is changing its unit.
    pub fn refund(&self, bucket: &BucketRef, span: u64) {
        while let Some((place, level, tag)) = self.there(bucket) {
            let span = scale(span, bucket.tag.unit(), tag.unit());
            if tag == tag.changing() || place.replace(level, level.refund(span)) {
                break;
            }
        }
    }

    /// Returns the level of a bucket that still exists.
    pub fn level(&self, bucket: &BucketRef) -> Option<BucketLevel> {
        self.there(bucket).map(|(_, level, _)| level)
    }

    /// Limits the credit of a bucket to `depth`, ticks, if the bucket has been full for long, with
    /// all the credit that `window` allows. Unused credit is not lateness.
    pub fn drop_lateness(&self, bucket: &mut BucketRef, window: u64, depth: u64, now: u64) {
        if let Some(place) = self.locate(bucket, window, now) {
            if place.level.get() <= now.saturating_sub(window) {
                place.level.raise(now.saturating_sub(depth));
            }
        }
    }
}

impl SharedLevel {
    /// Converts the bucket from tag `old` to `new`; returns false if another part is changing the
    /// unit.
    fn convert(&self, old: BucketTag, new: BucketTag, now: u64, forced: &AtomicWord) -> bool {
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

    /// Rescales the level so that the bucket contains as many units of `new` as it did of `old`.
    fn rescale(&self, old: BucketTag, new: BucketTag, now: u64, forced: &AtomicWord) {
        let part = BucketLevel(forced.get());
        let rescale =
            |level: BucketLevel| level.rescale(part, now, old.unit(), new.unit(), DEBT_MAX);
        loop {
            let level = BucketLevel(self.level.get());
            if self.replace(level, rescale(level)) {
                break;
            }
        }
        forced.set(rescale(part).0);
    }

    /// Replaces the tag; returns true if it was `old`.
    fn retag(&self, old: BucketTag, new: BucketTag) -> bool {
        self.tag.replace(old.0, new.0)
    }

    /// Replaces the level; returns true if it was `old`. Can fail spuriously.
    #[inline]
    fn replace(&self, old: BucketLevel, new: BucketLevel) -> bool {
        self.level.replace_weak(old.0, new.0).is_ok()
    }
}

#[cfg(test)]
mod tests;
