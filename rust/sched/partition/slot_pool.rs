// SPDX-License-Identifier: GPL-2.0-only

//! Slots of a target, and the partitions that compete for them.
//!
//! # Terms
//!
//! - *Waiting*: a backlogged partition, with queued requests.
//! - *Ready*: a partition with eligible requests, as far as it knows.
//! - *Urgent*: a ready partition with eligible high-priority requests.
//! - *Turn*: the ready partition with the smallest tag dispatches next
//!   ([`crate::sched::start_tags`]).
//!
//! ```text
//!           a request is queued or becomes eligible: starts at the clock
//!   idle ────────────────────────────────────────────────────────────────▶ ready ─▶ dispatches,
//!     ▲                                                                      │       tag advances
//!     └───────────── no request is queued, or all are throttled ◀────────────┘
//! ```
//!
//! The state of a partition changes under its lock and is read by others without it. A tag that is
//! read while it changes costs a partition a turn, at most one per CPU that dispatches at that
//! time.
//!
//! The only partition of a target publishes only whether it is backlogged.
//!
//! # Why no wake-up is lost
//!
//! A CPU that queues a request, or makes one eligible, first marks its partition waiting and ready,
//! and then looks for a free slot. A CPU that frees a slot first returns the slot, and then looks
//! for a ready partition. All these operations are in one total order ([`crate::sched::atomic`]),
//! so at least one CPU sees the other's change. The marks of a partition change under its lock.
//!
//! # Slot caches
//!
//! While no partition is backlogged, the slot cache of a CPU passes a slot from request to request
//! ([`super::slot_cache`]). A cached slot may be used while all slots in use, including cached
//! slots, are within the limits. Beyond that, and before a search for a slot fails, all caches are
//! emptied into the pool.
//!
//! A CPU that marks a partition waiting then empties all caches, and then looks for a free slot. A
//! CPU that puts slots into a cache then checks for a backlogged partition. If there is one, the
//! CPU empties the cache again and looks for a ready partition. So at least one CPU sees the
//! other's change, as above. A CPU that empties caches frees slots, and looks for a ready partition
//! as well, because another CPU may have found no listed cache meanwhile.
//!
//! `rust/host/nrs-model` runs this code for two and three CPUs in every interleaving with few
//! preemptions.
//!
//! # The reserved slot for high priority
//!
//! While high-priority requests arrive, regular requests leave one slot free, so that a single
//! high-priority request is dispatched immediately. After [`LENT_MS`] without a high-priority
//! request, regular requests use the reserved slot as well. One partition that needs the slot is
//! the *lender*: its timer expires at this time. A CPU that finds the slot free and no lender makes
//! a partition the lender. A lender whose timer expires gives up this role before it looks for a
//! slot, so that at least one CPU sees the other's change.

use super::slot_cache::SlotCaches;
use crate::sched::{
    atomic::{AtomicWord, Hint},
    attr::Priority,
    cpus::CacheAligned,
    slots::{Pool, SlotLimits},
    start_tags,
};

/// Maximum number of CPTs of a service.
pub const CPTS_MAX: u32 = 63;

/// Maximum partitions per target.
pub const PARTITIONS_MAX: usize = 64;

/// Time after the last high-priority request for which a slot stays reserved, ms.
const LENT_MS: u64 = 1000;

/// Returns the bit of partition `index` in a set of partitions.
pub const fn bit(index: u16) -> u64 {
    1u64.wrapping_shl(index as u32)
}

/// Atomic set of up to 64 partitions.
struct PartitionSet(AtomicWord);

impl PartitionSet {
    const fn new() -> Self {
        Self(AtomicWord::new(0))
    }

    /// Adds the partition of `bit` if only `new` is true; removes it if only `old` is true.
    fn change(&self, bit: u64, old: bool, new: bool) {
        match (old, new) {
            (false, true) => self.0.set_bits(bit),
            (true, false) => self.0.clear_bits(bit),
            _ => {}
        }
    }

    /// Returns the members, as bits.
    fn members(&self) -> u64 {
        self.0.get()
    }
}

/// State of a partition that other CPUs read without its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionMark {
    /// True if requests are queued.
    pub waiting: bool,
    /// True if requests are eligible.
    pub ready: bool,
    /// True if high-priority requests are eligible.
    pub urgent: bool,
}

/// Partition whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPartition {
    /// Index of the partition.
    pub index: u16,
    /// True if no other partition may use the slot.
    pub alone: bool,
}

/// Result of a search for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSearch {
    /// True if a slot was taken.
    pub slot: bool,
    /// True if cached slots were returned: other CPUs may have missed them.
    pub others: bool,
}

/// Returns the limits of `slots` slots, of which `held` are kept free: from the lowest bit on, the
/// slots for all partitions, at least one; 16 bits for `slots`; 16 bits for `held`.
const fn limit_of(slots: u32, held: u32) -> u64 {
    let free = slots.saturating_sub(held);
    let free = if free == 0 && slots > 0 { 1 } else { free };
    let (slots, held) = (slots as u16 as u64, held as u16 as u64);
    (held << 48) | (slots << 32) | free as u64
}

/// Returns the number of slots of `limit`.
const fn slots_of(limit: u64) -> u32 {
    (limit >> 32) as u16 as u32
}

/// Returns the number of slots of `limit` that are kept free.
const fn held_of(limit: u64) -> u32 {
    (limit >> 48) as u32
}

/// Share and tag of a partition.
struct PartitionEntry {
    share: Hint,
    tag: Hint,
}

impl PartitionEntry {
    const fn new() -> Self {
        Self {
            share: Hint::new(0),
            tag: Hint::new(0),
        }
    }
}

/// Slots of a target, and its partitions.
pub struct SlotPool {
    /// True if there is only one partition.
    alone: bool,
    /// Slots in use, including cached slots, as a [`Pool`].
    pool: CacheAligned<AtomicWord>,
    caches: SlotCaches,
    /// Maximum slots of one slot cache.
    cache_max: Hint,
    /// Effective number of slots without those that partitions keep free, and above it, the number
    /// of all.
    limit: AtomicWord,
    /// Time of the last high-priority request, ms of the coarse clock.
    urgent_ms: Hint,
    /// Index of the lender plus one; 0: none.
    lender: AtomicWord,
    waiting: PartitionSet,
    /// 1 if no partition was ready at some time since the last call of
    /// [`SlotPool::was_always_contended`].
    uncontended_seen: Hint,
    /// 1 while the only partition is backlogged, and not ready.
    throttled: Hint,
    ready: PartitionSet,
    urgent: PartitionSet,
    /// Virtual time: the largest tag of a partition that had a turn.
    clock: Hint,
    places: [PartitionEntry; PARTITIONS_MAX],
}

impl SlotPool {
    /// Creates the pool of a target with `slots` slots and `partitions` partitions, none ready, and
    /// without slot caches.
    #[cfg(not(MODULE))]
    pub fn new(partitions: u16, slots: u32) -> Self {
        Self::with_caches(partitions, slots, SlotCaches::none())
    }

    /// Creates a pool as [`SlotPool::new`] does, with `caches`.
    pub fn with_caches(partitions: u16, slots: u32, caches: SlotCaches) -> Self {
        Self {
            alone: partitions <= 1,
            pool: CacheAligned(AtomicWord::new(Pool::EMPTY.bits())),
            cache_max: Hint::new(caches.most(slots).into()),
            caches,
            limit: AtomicWord::new(limit_of(slots, 0)),
            urgent_ms: Hint::new(0),
            lender: AtomicWord::new(0),
            waiting: PartitionSet::new(),
            uncontended_seen: Hint::new(0),
            throttled: Hint::new(0),
            ready: PartitionSet::new(),
            urgent: PartitionSet::new(),
            clock: Hint::new(0),
            places: [const { PartitionEntry::new() }; PARTITIONS_MAX],
        }
    }

    /// Returns the effective number of slots.
    pub fn slots(&self) -> u32 {
        slots_of(self.limit.get())
    }

    /// Sets the effective number of slots.
    pub fn set_slots(&self, slots: u32) {
        let set = |limit| Some(limit_of(slots, held_of(limit)));
        self.limit.change(set);
        self.cache_max.set(self.caches.most(slots).into());
    }

    /// Changes the number of slots that a partition keeps free from `old` to `new`. Other
    /// partitions do not take these slots.
    #[cold]
    pub(super) fn change_held(&self, old: u32, new: u32) {
        self.limit.change(|limit| {
            let held = held_of(limit).saturating_sub(old).saturating_add(new);
            Some(limit_of(slots_of(limit), held))
        });
    }

    /// Returns the slots in use, including cached slots.
    pub(super) fn pool(&self) -> Pool {
        Pool::from_bits(self.pool.0.get())
    }

    /// Returns true if no slot is free, reserved or not.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.pool().active() >= self.slots().max(1)
    }

    /// Returns the slots in use by requests.
    pub fn used(&self) -> Pool {
        self.pool().without(self.caches.sum())
    }

    /// Returns the limits of the slots at `now_ms` of the coarse clock, with at most `ratio`
    /// high-priority requests in a row.
    pub fn limits(&self, ratio: u32, now_ms: u64) -> SlotLimits {
        let limit = self.limit.get();
        SlotLimits {
            slots: limit as u32,
            all: slots_of(limit),
            high_priority: now_ms.saturating_sub(self.urgent_ms.get()) < LENT_MS,
            ratio,
        }
    }

    /// Takes a slot for a request of `priority`; returns true if one was available.
    pub fn take(&self, priority: Priority, limits: &SlotLimits) -> bool {
        let take = |pool| Some(Pool::from_bits(pool).take(priority, limits)?.bits());
        self.pool.0.change(take)
    }

    /// Releases a slot that was taken for a request of `priority`.
    pub fn put(&self, priority: Priority) {
        self.pool.0.sub(Pool::one(priority).bits());
    }

    /// Takes a slot for a request of `priority` on `cpu`, from its slot cache if possible.
    #[inline]
    pub fn take_on(&self, cpu: u32, priority: Priority, limits: &SlotLimits) -> SlotSearch {
        let cached = priority == Priority::Regular && self.pool().is_within(limits);
        if cached && self.caches.take(cpu) {
            return SlotSearch {
                slot: true,
                others: false,
            };
        }
        self.take_several(cpu, priority, limits)
    }

    /// Takes a slot from the pool, and more for the empty slot cache of `cpu`. If none is free,
    /// empties all slot caches into the pool and retries.
    #[inline(never)]
    fn take_several(&self, cpu: u32, priority: Priority, limits: &SlotLimits) -> SlotSearch {
        let most = match priority {
            Priority::Regular => self.cache_max.get() as u32,
            Priority::High => 0,
        };
        let mut taken = 0;
        let any = self.pool.0.change(|pool| {
            let (pool, count) = Pool::from_bits(pool).take_up_to(most / 2, priority, limits)?;
            taken = count;
            Some(pool.bits())
        });
        if !any {
            let others = self.flush_caches();
            return SlotSearch {
                slot: others && self.take(priority, limits),
                others,
            };
        }
        SlotSearch {
            slot: true,
            others: taken > 1 && self.cache(cpu, taken.wrapping_sub(1), most),
        }
    }

    /// Releases a slot after a request of `priority` ended on `cpu`. The caller then looks for a
    /// ready partition, unless [`Self::is_uncontended`].
    #[inline]
    pub fn put_on(&self, cpu: u32, priority: Priority) {
        if !self.is_uncontended() {
            return self.put(priority);
        }
        let most = match priority {
            Priority::Regular => self.cache_max.get() as u32,
            Priority::High => 0,
        };
        if self.caches.put_one(cpu, most) {
            self.retry_decisions(cpu);
        } else if most > 0 {
            self.cache(cpu, 1, most);
        } else {
            self.put(priority);
        }
    }

    /// Puts `slots` slots into the slot cache of `cpu`, up to `most` in all. Returns true if they
    /// went to the pool, because a partition is backlogged.
    #[inline(never)]
    fn cache(&self, cpu: u32, slots: u32, most: u32) -> bool {
        let left = self.caches.put(cpu, slots, most);
        if left > 0 {
            self.give(left);
        }
        self.retry_decisions(cpu)
    }

    /// Empties the slot cache of `cpu` after it received slots, if a partition is backlogged;
    /// returns true if so.
    #[inline]
    fn retry_decisions(&self, cpu: u32) -> bool {
        let is_contended = !self.is_uncontended();
        if is_contended {
            self.give(self.caches.empty(cpu));
        }
        is_contended
    }

    /// Releases `slots` slots of regular requests into the pool.
    #[cold]
    fn give(&self, slots: u32) {
        self.pool.0.sub(slots.into());
    }

    /// Empties all slot caches into the pool; returns true if they had slots.
    fn flush_caches(&self) -> bool {
        let slots = self.caches.flush_all();
        if slots > 0 {
            self.give(slots);
        }
        slots > 0
    }

    /// Records the arrival of a high-priority request at `now_ms` of the coarse clock.
    pub fn note_high_priority(&self, now_ms: u64) {
        if self.urgent_ms.get() != now_ms {
            self.urgent_ms.set(now_ms);
        }
    }

    /// Returns the time, ms of the coarse clock, at which a regular request may use the reserved
    /// slot, if only that slot is free.
    pub fn reserve_expiry_ms(&self, limits: &SlotLimits) -> Option<u64> {
        let lent = SlotLimits {
            high_priority: false,
            ..*limits
        };
        let pool = self.pool();
        let kept = !pool.allows(Priority::Regular, limits) && pool.allows(Priority::Regular, &lent);
        kept.then(|| self.urgent_ms.get().saturating_add(LENT_MS))
    }

    /// Makes the partition at `index` the lender; the lender's timer is armed for
    /// [`Self::reserve_expiry_ms`].
    pub fn set_reserve_timer(&self, index: u16) {
        let lender = u64::from(index).wrapping_add(1);
        if !self.alone && self.lender.get() != lender {
            self.lender.set(lender);
        }
    }

    /// Ends the role of the partition at `index` as the lender, after its timer expired.
    pub fn clear_reserve_timer(&self, index: u16) {
        if self.lender.get() == u64::from(index).wrapping_add(1) {
            self.lender.set(0);
        }
    }

    /// Returns true if no partition is backlogged.
    pub fn is_uncontended(&self) -> bool {
        self.waiting.members() == 0
    }

    /// Returns true if some partition was ready at all times since the last call: while all queued
    /// requests are throttled, their limits determine the rate of the device. Called by one task.
    pub fn was_always_contended(&self) -> bool {
        let is_throttled = match self.alone {
            true => self.throttled.get() != 0,
            false => self.ready.members() == 0,
        };
        let is_uncontended = self.is_uncontended() || is_throttled;
        let was_uncontended = is_uncontended || self.uncontended_seen.get() != 0;
        self.uncontended_seen.set(0);
        !was_uncontended
    }

    /// Returns true if a partition other than `index` is ready.
    pub fn other_ready(&self, index: u16) -> bool {
        !self.alone && self.ready.members() & !bit(index) != 0
    }

    /// Returns true if partitions take turns.
    pub const fn has_several_partitions(&self) -> bool {
        !self.alone
    }

    /// Changes the mark of the partition at `index` from `old` to `new`. The caller must hold the
    /// lock of the partition, and then looks for a ready partition.
    pub fn mark(&self, index: u16, old: PartitionMark, new: PartitionMark) {
        self.waiting.change(bit(index), old.waiting, new.waiting);
        if !self.alone {
            self.mark_ready(index, old, new);
        }
        if new.waiting && !old.waiting {
            self.flush_caches();
        }
        let is_throttled = old.ready && !new.ready && (self.alone || self.ready.members() == 0);
        if is_throttled || old.waiting && self.is_uncontended() {
            self.uncontended_seen.set(1);
        }
        if self.alone && old.ready != new.ready && old.waiting | new.waiting {
            self.throttled.set((new.waiting && !new.ready).into());
        }
    }

    /// Changes the `ready` and `urgent` marks, if partitions take turns. A partition that becomes
    /// ready starts at the virtual time.
    fn mark_ready(&self, index: u16, old: PartitionMark, new: PartitionMark) {
        let bit = bit(index);
        if new.ready && !old.ready {
            if let Some(place) = self.places.get(usize::from(index)) {
                place
                    .tag
                    .set(start_tags::start(place.tag.get(), self.clock.get()));
            }
        }
        self.urgent.change(bit, old.urgent, new.urgent);
        self.ready.change(bit, old.ready, new.ready);
    }

    /// Returns the partitions, as bits, that are not in `asked` and may use a free slot or become
    /// the lender.
    fn candidates(&self, asked: u64, limits: impl FnOnce() -> SlotLimits) -> u64 {
        let ready = if self.alone {
            self.waiting.members()
        } else {
            self.ready.members()
        };
        let ready = ready & !asked;
        if ready == 0 {
            return 0;
        }
        let (pool, limits) = (self.pool(), limits());
        if pool.allows(Priority::Regular, &limits) {
            ready
        } else if !pool.allows(Priority::High, &limits) {
            0
        } else if self.alone {
            ready
        } else {
            match ready & self.urgent.members() {
                0 if self.lender.get() == 0 && self.reserve_expiry_ms(&limits).is_some() => ready,
                urgent => urgent,
            }
        }
    }

    /// Returns the partition whose turn it is, except those in `asked` (bits). Returns `None` if no
    /// slot is free within `limits`, or no partition is ready for the slot.
    ///
    /// A freed slot does not go to the partition of the ended request first: a partition that is
    /// always busy would then occupy all slots.
    pub fn next(&self, asked: u64, limits: impl FnOnce() -> SlotLimits) -> Option<NextPartition> {
        let candidates = self.candidates(asked, limits);
        let alone = candidates.is_power_of_two();
        let index = if alone {
            candidates.trailing_zeros()
        } else {
            let tagged = |(index, place): (u32, &PartitionEntry)| (index, place.tag.get());
            start_tags::first(self.places_of(candidates).map(tagged))?
        };
        Some(NextPartition {
            index: index as u16,
            alone,
        })
    }

    /// Charges the partition at `index` for a request of `cost`, in the units of its policy. The
    /// caller must hold the lock of the partition, if partitions take turns.
    pub fn charge(&self, index: u16, cost: u32) {
        let Some(place) = self.places.get(usize::from(index)) else {
            return;
        };
        let tag = place.tag.get();
        let clock = self.clock.get();
        if start_tags::is_before(clock, tag) {
            self.clock.set(tag);
            if start_tags::entered_next_eighth(clock, tag) {
                self.advance_idle_tags(tag);
            }
        }
        let share = match place.share.get() {
            0 => {
                let ready = self.places_of(self.ready.members());
                start_tags::mean(ready.map(|(_, place)| place.share.get()))
            }
            share => share,
        };
        place
            .tag
            .set(start_tags::advance(tag, start_tags::pace(share), cost));
    }

    /// Advances the tags of partitions that are not ready to the virtual time. A partition that
    /// becomes ready concurrently sets its own tag to the same or a later value. If it has already
    /// been charged, the charge of that request is lost.
    #[cold]
    fn advance_idle_tags(&self, clock: u64) {
        for (_, place) in self.places_of(!self.ready.members()) {
            place.tag.set(start_tags::start(place.tag.get(), clock));
        }
    }

    /// Sets the shares of the partitions, in units of 2^-32, for subsequent requests; 0 if unknown.
    pub fn set_shares(&self, shares: &[u64]) {
        for (place, share) in self.places.iter().zip(shares) {
            place.share.set(*share);
        }
    }

    /// Returns the partitions of a set (bits) with their indices.
    fn places_of(&self, partitions: u64) -> impl Iterator<Item = (u32, &PartitionEntry)> {
        let mut left = partitions;
        core::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            Some((index, self.places.get(index as usize)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the partition that is next for marks, slots taken, and partitions already queried.
    #[test]
    fn partitions_have_turns() {
        let mark = |urgent| PartitionMark {
            waiting: true,
            ready: true,
            urgent,
        };
        let (idle, ready, urgent) = (PartitionMark::default(), mark(false), mark(true));
        let pool = SlotPool::new(3, 2);
        pool.note_high_priority(5000);
        let limits = || pool.limits(10, 5001);
        let next = |asked| {
            pool.next(asked, limits)
                .map(|next| (next.index, next.alone))
        };
        assert_eq!(next(0), None);
        pool.mark(2, idle, ready);
        assert_eq!(next(0), Some((2, true)));
        pool.mark(0, idle, ready);
        assert_eq!(next(0), Some((0, false)));
        pool.charge(0, 1);
        assert_eq!(next(0), Some((2, false)));
        pool.set_shares(&[1 << 31, 0, 1 << 31]);
        pool.charge(2, 4);
        // Partition 1 starts at the virtual time.
        pool.mark(1, idle, urgent);
        assert_eq!(next(0), Some((1, false)));
        assert!(pool.other_ready(0) && pool.other_ready(1));
        // The remaining slot is reserved for high priority.
        assert!(pool.take(Priority::Regular, &limits()));
        assert_eq!(next(0), Some((1, true)));
        // One partition becomes the lender.
        assert_eq!(next(0b010), Some((0, false)));
        pool.set_reserve_timer(2);
        assert_eq!(next(0b010), None);
        pool.clear_reserve_timer(0);
        assert_eq!(next(0b010), None);
        pool.clear_reserve_timer(2);
        assert_eq!(next(0b110), Some((0, true)));
        pool.set_reserve_timer(0);
        assert_eq!(pool.reserve_expiry_ms(&limits()), Some(6000));
        assert!(pool.take(Priority::High, &limits()));
        assert_eq!((next(0), pool.reserve_expiry_ms(&limits())), (None, None));
        pool.put(Priority::High);
        pool.put(Priority::Regular);
        for (index, old) in [(0, ready), (1, urgent), (2, ready)] {
            pool.mark(index, old, idle);
        }
        assert!(pool.is_uncontended());
    }

    /// Verifies that a pool counts as contended while a partition is ready, and not while all that
    /// are backlogged are throttled.
    #[test]
    fn throttled_partitions_do_not_contend() {
        let mark = |waiting, ready| PartitionMark {
            waiting,
            ready,
            urgent: false,
        };
        let (idle, throttled, ready) = (mark(false, false), mark(true, false), mark(true, true));
        for partitions in [1, 2] {
            let pool = SlotPool::new(partitions, 2);
            assert!(!pool.was_always_contended());
            pool.mark(0, idle, ready);
            assert!(pool.was_always_contended());
            if partitions > 1 {
                pool.mark(1, idle, ready);
                pool.mark(1, ready, throttled);
                assert!(pool.was_always_contended());
            }
            pool.mark(0, ready, throttled);
            assert!(!pool.was_always_contended() && !pool.was_always_contended());
            pool.mark(0, throttled, ready);
            assert!(pool.was_always_contended() && !pool.is_uncontended());
        }
    }

    /// Checks that slots are taken through slot caches of at most four, and that `used` does not
    /// count slot caches.
    #[test]
    fn caches_keep_slots() {
        let pool = SlotPool::with_caches(1, 16, SlotCaches::new(2).unwrap());
        let limits = || pool.limits(10, 5000);
        let take = |cpu| {
            let found = pool.take_on(cpu, Priority::Regular, &limits());
            assert!(!found.others);
            found.slot
        };
        // Two slots more than needed.
        assert!(take(0));
        assert_eq!((pool.pool().active(), pool.used().active()), (3, 1));
        assert!(take(0) && take(0));
        assert_eq!((pool.pool().active(), pool.used().active()), (3, 3));
        // A slot cache above four keeps two.
        assert!((0..4).all(|_| take(1)));
        (0..5).for_each(|_| pool.put_on(1, Priority::Regular));
        assert_eq!((pool.pool().active(), pool.used().active()), (6, 2));
        (0..2).for_each(|_| pool.put_on(0, Priority::Regular));
        assert_eq!((pool.pool().active(), pool.used().active()), (6, 0));
        // All sixteen slots can be taken, including those in other slot caches.
        (0..10).for_each(|_| assert!(pool.take(Priority::Regular, &limits())));
        assert!((0..4).all(|_| take(1)));
        let found = pool.take_on(1, Priority::Regular, &limits());
        assert!(found.slot && found.others);
        assert!(take(1));
        let none = pool.take_on(1, Priority::Regular, &limits());
        assert_eq!(none, SlotSearch::default());
        assert_eq!((pool.pool().active(), pool.used().active()), (16, 16));
    }

    /// Checks that slot caches stay within the limits: fewer slots, and the reserved slot.
    #[test]
    fn caches_are_within_limits() {
        let high = Priority::High;
        for (slots, urgent) in [(12, false), (16, true)] {
            let pool = SlotPool::with_caches(1, 16, SlotCaches::new(2).unwrap());
            let limits = || pool.limits(10, 5000);
            (0..16).for_each(|_| assert!(pool.take_on(0, Priority::Regular, &limits()).slot));
            (0..4).for_each(|_| pool.put_on(0, Priority::Regular));
            pool.set_slots(slots);
            if urgent {
                pool.note_high_priority(5000);
                (0..3).for_each(|_| assert!(pool.take_on(0, Priority::Regular, &limits()).slot));
            }
            assert!(!pool.take_on(0, Priority::Regular, &limits()).slot);
            assert_eq!(pool.take_on(1, high, &limits()).slot, urgent);
            assert_eq!(pool.used().active(), if urgent { 16 } else { 12 });
        }
    }

    /// Checks that slot caches are emptied and stay empty while a partition is backlogged.
    #[test]
    fn caches_are_empty_while_a_partition_waits() {
        let waits = PartitionMark {
            waiting: true,
            ready: true,
            urgent: false,
        };
        let pool = SlotPool::with_caches(1, 16, SlotCaches::new(2).unwrap());
        assert!(pool.take_on(0, Priority::Regular, &pool.limits(10, 0)).slot);
        pool.mark(0, PartitionMark::default(), waits);
        assert_eq!(pool.pool().active(), 1);
        pool.put_on(1, Priority::Regular);
        assert_eq!(pool.pool().active(), 0);
    }

    /// Checks that a partition keeps its turn after any idle time, although tags wrap.
    #[test]
    fn a_partition_that_was_idle_has_its_turn() {
        let (idle, ready) = (
            PartitionMark::default(),
            PartitionMark {
                waiting: true,
                ready: true,
                urgent: false,
            },
        );
        // Charges of 2^49 each at a whole share: counts before, in and after the middle of the
        // range.
        for charges in [1_000, 16_000, 20_000, 30_000, 32_760, 33_000, 52_000] {
            let pool = SlotPool::new(2, 4);
            let next = || pool.next(0, || pool.limits(2, 0)).map(|next| next.index);
            pool.mark(0, idle, ready);
            for _ in 0..charges {
                pool.charge(0, start_tags::COST_MAX);
            }
            pool.mark(1, idle, ready);
            assert_eq!(next(), Some(1), "{charges}");
            pool.charge(1, start_tags::COST_MAX);
            pool.charge(1, start_tags::COST_MAX);
            assert_eq!(next(), Some(0), "{charges}");
        }
    }
}
