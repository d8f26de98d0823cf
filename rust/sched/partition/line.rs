// SPDX-License-Identifier: GPL-2.0-only

//! The slots of a target, and the partitions that wait for them.
//!
//! # Vocabulary
//!
//! - *Waiting*: a partition that has queued requests.
//! - *Ready*: a partition with eligible requests, as far as it knows; throttled requests do not
//!   count.
//! - *Urgent*: a ready partition with high-priority requests among them.
//! - *Turn*: the ready partition with the smallest tag goes next ([`crate::sched::turns`]).
//!
//! ```text
//!             a request is queued, or eligible again: starts at the clock
//!   idle ─────────────────────────────────────────────────────────────────▶ ready ──▶ dispatches, tag advances
//!     ▲                                                                       │
//!     └───────────── nothing is queued, or all of it is throttled ◀───────────┘
//! ```
//!
//! All of a partition's own state changes under its lock; others read it without. Tags that are
//! read while they change cost a partition a turn, at most one for each CPU that dispatches at the
//! time.
//!
//! A partition that has the target to itself keeps no state here but that it waits.
//!
//! # Why no wake-up is lost
//!
//! Who queues a request, or makes a throttled one eligible, first marks its partition waiting and
//! ready and then looks for a free slot; who frees a slot first gives it back and then looks for a
//! ready partition. All of that is in one total order ([`crate::sched::atomic`]), so at least one
//! of them sees the other. A partition's marks change under its lock.
//!
//! # Stocks
//!
//! While no partition waits, a slot goes from request to request of a CPU by its stock
//! ([`super::stock`]). A slot of a stock may serve as long as all slots in use, those of stocks
//! among them, are within the limits; beyond that, and before a slot is found missing, all stocks
//! are emptied into the pool.
//!
//! Whoever marks a partition waiting then empties all stocks, and then looks for a free slot.
//! Whoever puts slots into a stock then looks whether a partition waits; if so, empties that stock
//! again and looks for a ready partition. So at least one of them sees the other, as above. Whoever
//! empties stocks frees slots, and looks for a ready partition as well: another one may have found
//! no stock listed meanwhile.
//!
//! `rust/host/nrs-model` runs this code for two and three CPUs in every order in which few of them
//! are interrupted.
//!
//! # The slot that is kept for high priority
//!
//! While high-priority requests come, regular ones leave one slot free, so that one that arrives
//! alone does not wait for another to end. When none has come for [`LENT_MS`], regular requests use
//! that slot, too. The timer of one partition that waits for it, the *lender*, expires by then. Who
//! finds that slot free and no lender has a partition become it; a lender whose timer expires stops
//! being it before it looks for a slot, so that one of both sees the other.

use super::stock::Stocks;
use crate::sched::{
    atomic::{Hint, Word},
    attr::Priority,
    cpus::Apart,
    slots::{Limits, Pool},
    turns,
};

/// Partitions of one target, at most.
pub const PARTITIONS_MAX: usize = 64;

/// For how long without a high-priority request a slot is kept for the next one, ms.
const LENT_MS: u64 = 1000;

/// Returns the bit of partition `index` in a set of partitions.
pub const fn bit(index: u16) -> u64 {
    1u64.wrapping_shl(index as u32)
}

/// A set of up to 64 partitions that many change at once.
struct Set(Word);

impl Set {
    const fn new() -> Self {
        Self(Word::new(0))
    }

    /// Makes the partition of `bit` a member if `new` says so and `old` does not, and the other way
    /// round.
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

/// What other CPUs know of a partition without its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Queued requests exist.
    pub waiting: bool,
    /// Eligible requests exist.
    pub ready: bool,
    /// Eligible high-priority requests exist.
    pub urgent: bool,
}

/// A partition whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Index of the partition.
    pub index: u16,
    /// No other partition may have the slot.
    pub alone: bool,
}

/// What came of a look for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A slot was taken.
    pub slot: bool,
    /// Slots of stocks were given back: others may have missed them.
    pub others: bool,
}

/// One partition.
struct Place {
    share: Hint,
    tag: Hint,
}

impl Place {
    const fn new() -> Self {
        Self {
            share: Hint::new(0),
            tag: Hint::new(0),
        }
    }
}

/// The slots of a target, and its partitions.
pub struct Line {
    /// There is only one partition.
    alone: bool,
    /// The slots in use, those of stocks among them, a [`Pool`].
    pool: Apart<Word>,
    stocks: Stocks,
    /// Slots of one stock, at most.
    stock_max: Hint,
    /// Slots in effect.
    limit: Word,
    /// When a high-priority request came last, ms of the coarse clock.
    urgent_ms: Hint,
    /// Index of the lender plus one; 0: none.
    lender: Word,
    waiting: Set,
    /// 1: no partition waited for a moment.
    calmed: Hint,
    ready: Set,
    urgent: Set,
    /// The largest tag of all that had a turn.
    clock: Hint,
    places: [Place; PARTITIONS_MAX],
}

impl Line {
    /// Creates the line of a target with `slots` slots and `partitions` partitions, none of them
    /// ready, and without stocks.
    pub fn new(partitions: u16, slots: u32) -> Self {
        Self::with_stocks(partitions, slots, Stocks::none())
    }

    /// Creates the same line with `stocks`.
    pub fn with_stocks(partitions: u16, slots: u32, stocks: Stocks) -> Self {
        Self {
            alone: partitions <= 1,
            pool: Apart(Word::new(Pool::EMPTY.bits())),
            stock_max: Hint::new(stocks.most(slots).into()),
            stocks,
            limit: Word::new(slots.into()),
            urgent_ms: Hint::new(0),
            lender: Word::new(0),
            waiting: Set::new(),
            calmed: Hint::new(0),
            ready: Set::new(),
            urgent: Set::new(),
            clock: Hint::new(0),
            places: [const { Place::new() }; PARTITIONS_MAX],
        }
    }

    /// Returns the slots in effect.
    pub fn slots(&self) -> u32 {
        self.limit.get() as u32
    }

    /// Sets the slots in effect.
    pub fn set_slots(&self, slots: u32) {
        self.limit.set(slots.into());
        self.stock_max.set(self.stocks.most(slots).into());
    }

    /// Returns the slots in use, those of stocks among them.
    pub(super) fn pool(&self) -> Pool {
        Pool::from_bits(self.pool.0.get())
    }

    /// Returns the slots that requests have.
    pub fn used(&self) -> Pool {
        self.pool().without(self.stocks.sum())
    }

    /// Returns what bounds the slots at `now_ms` of the coarse clock, with `ratio` high-priority
    /// requests in a row.
    pub fn limits(&self, ratio: u32, now_ms: u64) -> Limits {
        Limits {
            slots: self.slots(),
            high_priority: now_ms.saturating_sub(self.urgent_ms.get()) < LENT_MS,
            ratio,
        }
    }

    /// Takes a slot if a request of `priority` may have one.
    pub fn take(&self, priority: Priority, limits: &Limits) -> bool {
        let take = |pool| Some(Pool::from_bits(pool).take(priority, limits)?.bits());
        self.pool.0.change(take)
    }

    /// Gives back a slot that was taken for a request of `priority`.
    pub fn put(&self, priority: Priority) {
        self.pool.0.sub(Pool::one(priority).bits());
    }

    /// Takes a slot for a request of `priority` that passes on `cpu`, if it may have one.
    #[inline]
    pub fn take_on(&self, cpu: u32, priority: Priority, limits: &Limits) -> Found {
        let stocked = priority == Priority::Regular && self.pool().is_within(limits);
        if stocked && self.stocks.take(cpu) {
            return Found {
                slot: true,
                others: false,
            };
        }
        self.take_several(cpu, priority, limits)
    }

    /// Does the same with an empty stock, which gets some of what is free; if nothing is, what is
    /// in stocks is given back first.
    #[inline(never)]
    fn take_several(&self, cpu: u32, priority: Priority, limits: &Limits) -> Found {
        let most = match priority {
            Priority::Regular => self.stock_max.get() as u32,
            Priority::High => 0,
        };
        let mut taken = 0;
        let any = self.pool.0.change(|pool| {
            let (pool, count) = Pool::from_bits(pool).take_up_to(most / 2, priority, limits)?;
            taken = count;
            Some(pool.bits())
        });
        if !any {
            let others = self.give_all();
            return Found {
                slot: others && self.take(priority, limits),
                others,
            };
        }
        Found {
            slot: true,
            others: taken > 1 && self.stock(cpu, taken.wrapping_sub(1), most),
        }
    }

    /// Gives back a slot that was taken for a request of `priority` which has ended on `cpu`.
    /// Whoever calls this then looks for a ready partition, unless the line is calm.
    #[inline]
    pub fn put_on(&self, cpu: u32, priority: Priority) {
        if !self.is_calm() {
            return self.put(priority);
        }
        let most = match priority {
            Priority::Regular => self.stock_max.get() as u32,
            Priority::High => 0,
        };
        if self.stocks.put_one(cpu, most) {
            self.look_again(cpu);
        } else if most > 0 {
            self.stock(cpu, 1, most);
        } else {
            self.put(priority);
        }
    }

    /// Puts `slots` slots into the stock of `cpu`, which is to hold `most` at most; returns whether
    /// they went to the pool at once, since a partition waits.
    #[inline(never)]
    fn stock(&self, cpu: u32, slots: u32, most: u32) -> bool {
        let left = self.stocks.put(cpu, slots, most);
        if left > 0 {
            self.give(left);
        }
        self.look_again(cpu)
    }

    /// Empties the stock of `cpu`, which got slots, if a partition waits; returns whether one does.
    #[inline]
    fn look_again(&self, cpu: u32) -> bool {
        let calm = self.is_calm();
        if !calm {
            self.give(self.stocks.empty(cpu));
        }
        !calm
    }

    /// Gives back `slots` slots of regular requests.
    #[cold]
    fn give(&self, slots: u32) {
        self.pool.0.sub(slots.into());
    }

    /// Gives back what is in stocks; returns whether there was something.
    fn give_all(&self) -> bool {
        let slots = self.stocks.empty_all();
        if slots > 0 {
            self.give(slots);
        }
        slots > 0
    }

    /// Notes that a high-priority request came at `now_ms` of the coarse clock.
    pub fn note_urgent(&self, now_ms: u64) {
        if self.urgent_ms.get() != now_ms {
            self.urgent_ms.set(now_ms);
        }
    }

    /// Returns when a regular request may have the slot that is kept for high priority, ms of the
    /// coarse clock, if that slot is free and the last one.
    pub fn lent_at(&self, limits: &Limits) -> Option<u64> {
        let lent = Limits {
            high_priority: false,
            ..*limits
        };
        let pool = self.pool();
        let kept = !pool.allows(Priority::Regular, limits) && pool.allows(Priority::Regular, &lent);
        kept.then(|| self.urgent_ms.get().saturating_add(LENT_MS))
    }

    /// Makes the partition at `index`, whose timer is armed for that, the lender.
    pub fn lend(&self, index: u16) {
        let lender = u64::from(index).wrapping_add(1);
        if !self.alone && self.lender.get() != lender {
            self.lender.set(lender);
        }
    }

    /// Notes that the timer of the partition at `index` has expired.
    pub fn stop_lending(&self, index: u16) {
        if self.lender.get() == u64::from(index).wrapping_add(1) {
            self.lender.set(0);
        }
    }

    /// Returns whether no partition waits for a slot.
    pub fn is_calm(&self) -> bool {
        self.waiting.members() == 0
    }

    /// Returns whether some partition has waited ever since the last call. Called by one task.
    pub fn stayed_busy(&self) -> bool {
        let calm = self.is_calm() || self.calmed.get() != 0;
        self.calmed.set(0);
        !calm
    }

    /// Returns whether partitions other than that at `index` are ready.
    pub fn others_ready(&self, index: u16) -> bool {
        !self.alone && self.ready.members() & !bit(index) != 0
    }

    /// Returns whether partitions take turns.
    pub const fn has_turns(&self) -> bool {
        !self.alone
    }

    /// Changes the mark of the partition at `index` from `old` to `new`. Called with the lock of
    /// the partition held. Whoever calls this then looks for a ready partition.
    pub fn mark(&self, index: u16, old: Mark, new: Mark) {
        self.waiting.change(bit(index), old.waiting, new.waiting);
        if !self.alone {
            self.mark_ready(index, old, new);
        }
        if new.waiting && !old.waiting {
            self.give_all();
        }
        if old.waiting && self.is_calm() {
            self.calmed.set(1);
        }
    }

    /// Does the same for all but that the partition waits, if partitions take turns.
    fn mark_ready(&self, index: u16, old: Mark, new: Mark) {
        let bit = bit(index);
        if new.ready && !old.ready {
            if let Some(place) = self.places.get(usize::from(index)) {
                place
                    .tag
                    .set(turns::start(place.tag.get(), self.clock.get()));
            }
        }
        self.urgent.change(bit, old.urgent, new.urgent);
        self.ready.change(bit, old.ready, new.ready);
    }

    /// Returns the partitions other than `asked` that may have a slot that is free, or become the
    /// lender, as bits.
    fn candidates(&self, asked: u64, limits: impl FnOnce() -> Limits) -> u64 {
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
                0 if self.lender.get() == 0 && self.lent_at(&limits).is_some() => ready,
                urgent => urgent,
            }
        }
    }

    /// Returns the partition whose turn it is, other than `asked`, bits; `None` if no slot is free
    /// within `limits`, or no partition is ready for it.
    ///
    /// Partitions take turns, whichever partition's request freed the slot: with own-first a
    /// partition that is always busy would keep all slots to itself.
    pub fn next(&self, asked: u64, limits: impl FnOnce() -> Limits) -> Option<Next> {
        let candidates = self.candidates(asked, limits);
        let alone = candidates.is_power_of_two();
        let index = if alone {
            candidates.trailing_zeros()
        } else {
            let tagged = |(index, place): (u32, &Place)| (index, place.tag.get());
            turns::first(self.places_of(candidates).map(tagged))?
        };
        Some(Next {
            index: index as u16,
            alone,
        })
    }

    /// Charges the partition at `index` for a request that costs `cost`, in the units of its
    /// policy. Called with the lock of the partition held, if partitions take turns.
    pub fn charge(&self, index: u16, cost: u32) {
        let Some(place) = self.places.get(usize::from(index)) else {
            return;
        };
        let tag = place.tag.get();
        let clock = self.clock.get();
        if turns::is_before(clock, tag) {
            self.clock.set(tag);
            if turns::is_far(clock, tag) {
                self.keep_up(tag);
            }
        }
        let share = match place.share.get() {
            0 => {
                let ready = self.places_of(self.ready.members());
                turns::mean(ready.map(|(_, place)| place.share.get()))
            }
            share => share,
        };
        place.tag.set(turns::advance(tag, turns::pace(share), cost));
    }

    /// Has partitions that are not ready follow the clock. One that becomes ready meanwhile sets its tag itself, to the
    /// same or a later one; should it have been charged already, that request counts for nothing.
    #[cold]
    fn keep_up(&self, clock: u64) {
        for (_, place) in self.places_of(!self.ready.members()) {
            place.tag.set(turns::start(place.tag.get(), clock));
        }
    }

    /// Sets the shares of the partitions, in units of 2^-32, from the next requests on; 0: not
    /// known.
    pub fn set_shares(&self, shares: &[u64]) {
        for (place, share) in self.places.iter().zip(shares) {
            place.share.set(*share);
        }
    }

    /// Returns the partitions of a set, bits, with their indices.
    fn places_of(&self, partitions: u64) -> impl Iterator<Item = (u32, &Place)> {
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

    /// Marks of partitions, slots taken, who was asked; whose turn it is.
    #[test]
    fn partitions_have_turns() {
        let mark = |urgent| Mark {
            waiting: true,
            ready: true,
            urgent,
        };
        let (idle, ready, urgent) = (Mark::default(), mark(false), mark(true));
        let line = Line::new(3, 2);
        line.note_urgent(5000);
        let limits = || line.limits(10, 5001);
        let next = |asked| {
            line.next(asked, limits)
                .map(|next| (next.index, next.alone))
        };
        assert_eq!(next(0), None);
        line.mark(2, idle, ready);
        assert_eq!(next(0), Some((2, true)));
        line.mark(0, idle, ready);
        assert_eq!(next(0), Some((0, false)));
        line.charge(0, 1);
        assert_eq!(next(0), Some((2, false)));
        line.set_shares(&[1 << 31, 0, 1 << 31]);
        line.charge(2, 4);
        // It starts where the others are.
        line.mark(1, idle, urgent);
        assert_eq!(next(0), Some((1, false)));
        assert!(line.others_ready(0) && line.others_ready(1));
        // What is left is kept for high priority.
        assert!(line.take(Priority::Regular, &limits()));
        assert_eq!(next(0), Some((1, true)));
        // One partition is to lend it.
        assert_eq!(next(0b010), Some((0, false)));
        line.lend(2);
        assert_eq!(next(0b010), None);
        line.stop_lending(0);
        assert_eq!(next(0b010), None);
        line.stop_lending(2);
        assert_eq!(next(0b110), Some((0, true)));
        line.lend(0);
        assert_eq!(line.lent_at(&limits()), Some(6000));
        assert!(line.take(Priority::High, &limits()));
        assert_eq!((next(0), line.lent_at(&limits())), (None, None));
        line.put(Priority::High);
        line.put(Priority::Regular);
        for (index, old) in [(0, ready), (1, urgent), (2, ready)] {
            line.mark(index, old, idle);
        }
        assert!(line.is_calm());
    }

    /// Slots go through stocks of at most four each; what requests have is told without them.
    #[test]
    fn stocks_keep_slots() {
        let line = Line::with_stocks(1, 16, Stocks::new(2).unwrap());
        let limits = || line.limits(10, 5000);
        let take = |cpu| {
            let found = line.take_on(cpu, Priority::Regular, &limits());
            assert!(!found.others);
            found.slot
        };
        // Two more than it needs.
        assert!(take(0));
        assert_eq!((line.pool().active(), line.used().active()), (3, 1));
        assert!(take(0) && take(0));
        assert_eq!((line.pool().active(), line.used().active()), (3, 3));
        // A stock that would be above four keeps two.
        assert!((0..4).all(|_| take(1)));
        (0..5).for_each(|_| line.put_on(1, Priority::Regular));
        assert_eq!((line.pool().active(), line.used().active()), (6, 2));
        (0..2).for_each(|_| line.put_on(0, Priority::Regular));
        assert_eq!((line.pool().active(), line.used().active()), (6, 0));
        // All sixteen are to be had, whoever has some in stock.
        (0..10).for_each(|_| assert!(line.take(Priority::Regular, &limits())));
        assert!((0..4).all(|_| take(1)));
        let found = line.take_on(1, Priority::Regular, &limits());
        assert!(found.slot && found.others);
        assert!(take(1));
        let none = line.take_on(1, Priority::Regular, &limits());
        assert_eq!(none, Found::default());
        assert_eq!((line.pool().active(), line.used().active()), (16, 16));
    }

    /// A stock gives nothing beyond the limits: fewer slots, one that is kept for high priority.
    #[test]
    fn stocks_are_within_limits() {
        let high = Priority::High;
        for (slots, urgent) in [(12, false), (16, true)] {
            let line = Line::with_stocks(1, 16, Stocks::new(2).unwrap());
            let limits = || line.limits(10, 5000);
            (0..16).for_each(|_| assert!(line.take_on(0, Priority::Regular, &limits()).slot));
            (0..4).for_each(|_| line.put_on(0, Priority::Regular));
            line.set_slots(slots);
            if urgent {
                line.note_urgent(5000);
                (0..3).for_each(|_| assert!(line.take_on(0, Priority::Regular, &limits()).slot));
            }
            assert!(!line.take_on(0, Priority::Regular, &limits()).slot);
            assert_eq!(line.take_on(1, high, &limits()).slot, urgent);
            assert_eq!(line.used().active(), if urgent { 16 } else { 12 });
        }
    }

    /// A partition that waits has what is in stocks, and nothing goes into stocks while it does.
    #[test]
    fn stocks_are_empty_while_a_partition_waits() {
        let waits = Mark {
            waiting: true,
            ready: true,
            urgent: false,
        };
        let line = Line::with_stocks(1, 16, Stocks::new(2).unwrap());
        assert!(line.take_on(0, Priority::Regular, &line.limits(10, 0)).slot);
        line.mark(0, Mark::default(), waits);
        assert_eq!(line.pool().active(), 1);
        line.put_on(1, Priority::Regular);
        assert_eq!(line.pool().active(), 0);
    }

    /// Tags wrap, and a partition that was idle for any time does not lose its turn by that.
    #[test]
    fn a_partition_that_was_idle_has_its_turn() {
        let (idle, ready) = (
            Mark::default(),
            Mark {
                waiting: true,
                ready: true,
                urgent: false,
            },
        );
        // Charges of a whole share, of 2^49 each: some before, in and after the half of the range.
        for charges in [1_000, 16_000, 20_000, 30_000, 32_760, 33_000, 52_000] {
            let line = Line::new(2, 4);
            let next = || line.next(0, || line.limits(2, 0)).map(|next| next.index);
            line.mark(0, idle, ready);
            for _ in 0..charges {
                line.charge(0, turns::COST_MAX);
            }
            line.mark(1, idle, ready);
            assert_eq!(next(), Some(1), "{charges}");
            line.charge(1, turns::COST_MAX);
            line.charge(1, turns::COST_MAX);
            assert_eq!(next(), Some(0), "{charges}");
        }
    }
}
