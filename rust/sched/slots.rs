// SPDX-License-Identifier: GPL-2.0-only

//! Dispatch slots of a target, and the order between the two heads of a partition.
//!
//! # Terms
//!
//! - *Slot*: the right to have one request in flight. A target has [`SlotLimits::slots`] slots in
//!   one [`Pool`], shared by all its partitions.
//! - *Reserved slot*: regular requests leave one slot free, so that a single high-priority request
//!   never waits for the end of a regular one.
//! - *Turn*: the choice of a partition between its high-priority and its regular head
//!   ([`HeadTurn`]).
//! - *Pending*: a head with an eligible request. A throttled head is not pending: it neither delays
//!   the other head nor reserves a turn.
//!
//! # Rules
//!
//! The rules follow those of Lustre service threads. A is the number of requests in flight, H of
//! them with high priority. S is the number of slots. C is the number of high-priority requests
//! chosen in a row:
//!
//! | takes a slot | if |
//! |---|---|
//! | high priority | A < S |
//! | regular, no high-priority head or S = 1 | A < S |
//! | regular otherwise | A < S − 1, or A < S and H > 0 |
//!
//! | both heads are pending | first |
//! |---|---|
//! | S > 1 | high if H = 0 or C < ratio, else regular |
//! | S = 1 | high if C < max(ratio, 1), else regular |
//!
//! So regular requests use at most S − 1 slots, and while H = 0 one slot is free for high priority.
//! With one slot, H is 0 at each decision, so H cannot protect the regular head; only the ratio
//! decides.

use core::fmt;

use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    policy::params::{line, number, ParameterValue},
};

number! {
    /// Number of slots.
    Count, "slots": "requests, ", 1..=65_535 = 64
}

/// Configured slots of each target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// Number that keeps the device busy ([`crate::sched::knee`]).
    Auto,
    /// Fixed number.
    Fixed(Count),
}

impl Slots {
    /// Text of [`Self::Auto`].
    const AUTO: &'static str = "auto";

    /// Returns `count` slots; `None` if `count` is outside the limits.
    pub fn new(count: u32) -> Option<Self> {
        Count::new(count).map(Self::Fixed)
    }

    /// Returns the number of slots; the default number for [`Self::Auto`].
    pub fn count(self) -> u32 {
        match self {
            Self::Auto => Count::default().get(),
            Self::Fixed(count) => count.get(),
        }
    }

    /// Returns the value as a number to store in an atomic.
    pub fn bits(self) -> u64 {
        match self {
            Self::Auto => 0,
            Self::Fixed(count) => count.get().into(),
        }
    }

    /// Returns the value that [`Self::bits`] encoded.
    pub fn from_bits(bits: u64) -> Self {
        Self::new(bits as u32).unwrap_or(Self::Auto)
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::Fixed(Count::default())
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad(Self::AUTO),
            Self::Fixed(count) => fmt::Display::fmt(count, f),
        }
    }
}

impl ParameterValue for Slots {
    const TAKES: &'static str = "requests, 1 to 65535, or auto";

    fn parse(text: &str) -> Result<Self> {
        if line(text) == Self::AUTO {
            return Ok(Self::Auto);
        }
        let refused = Error::invalid("slots is not a number from 1 to 65535, or auto");
        Count::parse(text).map(Self::Fixed).map_err(|_| refused)
    }
}

/// Limits of the slots of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Number of slots for regular requests; 0 counts as 1.
    pub slots: u32,
    /// Number of slots, with those that partitions keep free from regular requests.
    pub all: u32,
    /// True if one slot is reserved for high priority.
    pub high_priority: bool,
    /// Maximum high-priority requests in a row while a regular request is pending. With 0, high
    /// priority goes first only while none is in flight; with one slot, the heads then alternate.
    pub ratio: u32,
}

/// Slots in use of one target; a value that the caller exchanges atomically.
///
/// # Invariants
///
/// The low half counts requests in flight, the high half counts the high-priority ones of these. So
/// the high half is at most the low half.
///
/// # Examples
///
/// ```
/// use nrs_sched::{attr::Priority::{High, Regular}, slots::{Pool, SlotLimits}};
///
/// let limits = SlotLimits { slots: 2, all: 2, high_priority: true, ratio: 10 };
/// // The last slot is reserved until a high-priority request is in flight.
/// let regular = Pool::EMPTY.take(Regular, &limits).unwrap();
/// assert_eq!(regular.take(Regular, &limits), None);
/// assert!(regular.take(High, &limits).is_some());
/// let high = Pool::EMPTY.take(High, &limits).unwrap();
/// assert!(high.take(Regular, &limits).is_some());
/// // A single slot is not reserved.
/// assert!(Pool::EMPTY.allows(Regular, &SlotLimits { slots: 1, all: 1, ..limits }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(u64);

impl Pool {
    /// Pool with all slots free.
    pub const EMPTY: Self = Self(0);

    /// Creates a pool from the result of [`Pool::bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the pool as a number to store in an atomic.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns a pool with one request of `priority` in flight: the amount that taking a slot adds
    /// and returning it subtracts.
    ///
    /// A caller may add and subtract atomically. The invariants hold as long as each subtraction
    /// follows its addition.
    pub const fn one(priority: Priority) -> Self {
        Self::EMPTY.charge(priority)
    }

    const fn pack(active: u32, high: u32) -> Self {
        Self(active as u64 | ((high as u64) << 32))
    }

    /// Returns the number of requests in flight.
    pub const fn active(self) -> u32 {
        self.0 as u32
    }

    /// Returns the number of high-priority requests in flight.
    pub const fn active_high(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the number of slots in use below which a request of `priority` may take a slot.
    const fn bound(self, priority: Priority, limits: &SlotLimits) -> u32 {
        let slots = match priority {
            Priority::Regular => limits.slots,
            Priority::High => limits.all,
        };
        let slots = if slots == 0 { 1 } else { slots };
        let kept = match priority {
            Priority::Regular if limits.high_priority && slots > 1 && self.active_high() == 0 => 1,
            _ => 0,
        };
        slots.saturating_sub(kept)
    }

    /// Returns true if a request of `priority` may take a slot.
    pub const fn allows(self, priority: Priority, limits: &SlotLimits) -> bool {
        self.active() < self.bound(priority, limits)
    }

    /// Returns the number of slots that regular requests may take.
    pub const fn free(self, limits: &SlotLimits) -> u32 {
        self.bound(Priority::Regular, limits)
            .saturating_sub(self.active())
    }

    /// Returns true if the slots in use do not exceed the limit of regular requests.
    pub const fn is_within(self, limits: &SlotLimits) -> bool {
        self.active() <= self.bound(Priority::Regular, limits)
    }

    /// Returns the pool after a request of `priority` took a slot; `None` if no slot is available.
    pub const fn take(self, priority: Priority, limits: &SlotLimits) -> Option<Self> {
        if self.allows(priority, limits) {
            Some(self.charge(priority))
        } else {
            None
        }
    }

    /// Returns the pool after a request of `priority` took a slot and up to `more` free regular
    /// slots, and the number taken. Returns `None` if no slot is available.
    pub const fn take_up_to(
        self,
        more: u32,
        priority: Priority,
        limits: &SlotLimits,
    ) -> Option<(Self, u32)> {
        let Some(one) = self.take(priority, limits) else {
            return None;
        };
        let free = one.free(limits);
        let more = if more < free { more } else { free };
        let active = one.active().saturating_add(more);
        Some((
            Self::pack(active, one.active_high()),
            more.saturating_add(1),
        ))
    }

    /// Returns the pool without `slots` slots of regular requests.
    pub const fn without(self, slots: u32) -> Self {
        let regular = self.active().saturating_sub(self.active_high());
        let slots = if slots < regular { slots } else { regular };
        Self(self.0.wrapping_sub(slots as u64))
    }

    /// Returns the pool with one more request of `priority` in flight.
    const fn charge(self, priority: Priority) -> Self {
        let active = self.active().saturating_add(1);
        // INVARIANT: both halves saturate at the same number, the low half first.
        match priority {
            Priority::Regular => Self::pack(active, self.active_high()),
            Priority::High => Self::pack(active, self.active_high().saturating_add(1)),
        }
    }
}

/// Pending heads of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingHeads {
    /// True if the high-priority head has an eligible request.
    pub high: bool,
    /// True if the regular head has an eligible request.
    pub regular: bool,
}

impl PendingHeads {
    /// Returns the set without the head of `priority`, which dispatched nothing.
    pub const fn without(self, priority: Priority) -> Self {
        match priority {
            Priority::Regular => Self {
                regular: false,
                ..self
            },
            Priority::High => Self {
                high: false,
                ..self
            },
        }
    }
}

/// Order between the heads of one partition.
///
/// To choose a request: call [`HeadTurn::first`], take a slot, and query the returned head. If the
/// head returns a request, call [`HeadTurn::served`]; else return the slot and repeat with
/// [`PendingHeads::without`] that head. So the other head is tried whenever the first one returns
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadTurn {
    high_in_a_row: u32,
}

impl HeadTurn {
    /// Returns the head to query next; `None` if none is pending or that head may not take a slot.
    pub const fn first(
        &self,
        pending: PendingHeads,
        pool: Pool,
        limits: &SlotLimits,
    ) -> Option<Priority> {
        let high = pending.high && (!pending.regular || self.high_goes_first(pool, limits));
        let priority = if high {
            Priority::High
        } else if pending.regular {
            Priority::Regular
        } else {
            return None;
        };
        if pool.allows(priority, limits) {
            Some(priority)
        } else {
            None
        }
    }

    /// Returns true if high priority goes first while both heads are pending.
    const fn high_goes_first(&self, pool: Pool, limits: &SlotLimits) -> bool {
        if limits.slots <= 1 {
            let ratio = if limits.ratio == 0 { 1 } else { limits.ratio };
            self.high_in_a_row < ratio
        } else {
            pool.active_high() == 0 || self.high_in_a_row < limits.ratio
        }
    }

    /// Counts a dispatched request of `priority`.
    pub fn served(&mut self, priority: Priority) {
        self.high_in_a_row = match priority {
            Priority::Regular => 0,
            Priority::High => self.high_in_a_row.saturating_add(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{High, Regular};

    fn limits(slots: u32, high_priority: bool, ratio: u32) -> SlotLimits {
        SlotLimits {
            slots,
            all: slots,
            high_priority,
            ratio,
        }
    }

    fn regular(pool: Pool) -> u32 {
        pool.active() - pool.active_high()
    }

    /// Returns the pool after a request of `priority` ended; `None` if none was in flight.
    fn put(pool: Pool, priority: Priority) -> Option<Pool> {
        let active = match priority {
            Regular => regular(pool),
            High => pool.active_high(),
        };
        (active > 0).then(|| Pool(pool.0 - Pool::one(priority).0))
    }

    /// Returns all pools that are reachable within `limits`.
    fn reachable(limits: &SlotLimits) -> Vec<Pool> {
        let mut seen = vec![Pool::EMPTY];
        let mut next = 0;
        while next < seen.len() {
            let pool = seen[next];
            next += 1;
            let mut steps = vec![];
            for priority in [Regular, High] {
                steps.extend(pool.take(priority, limits));
                steps.extend(put(pool, priority));
            }
            for step in steps {
                if !seen.contains(&step) {
                    seen.push(step);
                }
            }
        }
        seen
    }

    #[test]
    fn table() {
        for (slots, hp, regular, high, want_regular, want_high) in [
            (1, false, 0, 0, true, true),
            (1, true, 0, 0, true, true),
            (1, true, 1, 0, false, false),
            (1, true, 0, 1, false, false),
            (2, true, 0, 0, true, true),
            (2, true, 1, 0, false, true),
            (2, true, 0, 1, true, true),
            (2, true, 1, 1, false, false),
            // The number of slots was reduced below the number in use.
            (2, true, 5, 0, false, false),
            (2, false, 1, 0, true, true),
            (2, false, 2, 0, false, false),
            (8, true, 6, 0, true, true),
            (8, true, 7, 0, false, true),
            (8, true, 6, 1, true, true),
            (0, true, 0, 0, true, true),
            (0, true, 1, 0, false, false),
            (65_535, true, 65_534, 0, false, true),
        ] {
            let pool = Pool::pack(regular + high, high);
            let limits = limits(slots, hp, 10);
            let context = (slots, hp, regular, high);
            assert_eq!(pool.allows(Regular, &limits), want_regular, "{context:?}");
            assert_eq!(pool.allows(High, &limits), want_high, "{context:?}");
        }
    }

    #[test]
    fn every_slot_is_usable_and_one_is_reserved() {
        for slots in 1..=7 {
            for hp in [false, true] {
                let limits = limits(slots, hp, 10);
                let pools = reachable(&limits);
                for &pool in &pools {
                    assert_eq!(Pool::from_bits(pool.bits()), pool);
                    assert!(pool.active_high() <= pool.active() && pool.active() <= slots);
                    if hp && slots > 1 {
                        assert!(regular(pool) < slots);
                        assert!(pool.active_high() > 0 || pool.allows(High, &limits));
                    }
                    for priority in [Regular, High] {
                        let Some(taken) = pool.take(priority, &limits) else {
                            continue;
                        };
                        assert_eq!(put(taken, priority), Some(pool), "take and put cancel out");
                    }
                    // High priority may use every slot.
                    assert_eq!(pool.allows(High, &limits), pool.active() < slots);
                }
                assert!(pools.iter().any(|p| p.active() == slots));
            }
        }
    }

    #[test]
    fn charge_saturates() {
        let full = Pool::pack(u32::MAX, u32::MAX);
        assert_eq!(full.charge(High), full);
        assert_eq!(full.charge(Regular), full);
    }

    #[test]
    fn first_table() {
        let both = PendingHeads {
            high: true,
            regular: true,
        };
        for (slots, pending, regular, high, row, ratio, want) in [
            (4, both, 0, 0, 99, 10, Some(High)),
            (4, both, 0, 1, 9, 10, Some(High)),
            (4, both, 0, 1, 10, 10, Some(Regular)),
            (4, both.without(Regular), 0, 1, 10, 10, Some(High)),
            (4, both.without(High), 0, 1, 0, 10, Some(Regular)),
            (4, both.without(High).without(Regular), 0, 0, 0, 10, None),
            (4, both, 3, 0, 0, 10, Some(High)),
            (4, both.without(High), 3, 0, 0, 10, None),
            (4, both, 3, 1, 0, 10, None),
            (4, both, 0, 0, 0, 0, Some(High)),
            (4, both, 0, 1, 0, 0, Some(Regular)),
            (4, both.without(Regular), 0, 1, 0, 0, Some(High)),
            (1, both, 0, 0, 9, 10, Some(High)),
            (1, both, 0, 0, 10, 10, Some(Regular)),
            (1, both, 0, 0, 0, 0, Some(High)),
            (1, both, 0, 0, 1, 0, Some(Regular)),
            (1, both.without(Regular), 0, 0, 99, 0, Some(High)),
            (4, both, 0, 1, u32::MAX, u32::MAX, Some(Regular)),
        ] {
            let turn = HeadTurn { high_in_a_row: row };
            let pool = Pool::pack(regular + high, high);
            let got = turn.first(pending, pool, &limits(slots, true, ratio));
            assert_eq!(
                got,
                want,
                "{:?}",
                (slots, pending, regular, high, row, ratio)
            );
        }
    }

    /// Enumerates every order of completions with both heads always pending: each head is served
    /// again within a bounded number of dispatches. The bound does not count dispatches while the
    /// head has its guaranteed slots: S - 1 for regular, one for high priority with ratio 0.
    fn worst_wait(slots: u32, ratio: u32, waiting: Priority) -> u32 {
        let limits = limits(slots, true, ratio);
        let pending = PendingHeads {
            high: true,
            regular: true,
        };
        let bound = ratio.max(1) + 2 * slots + 2;
        let mut worst = 0;
        let mut seen = vec![(Pool::EMPTY, HeadTurn::default(), 0u32)];
        let mut next = 0;
        while next < seen.len() {
            let (pool, mut turn, wait) = seen[next];
            next += 1;
            worst = worst.max(wait);
            assert!(
                wait <= bound,
                "{waiting:?} starves: {slots} slots, ratio {ratio}"
            );
            let mut steps = vec![];
            match turn.first(pending, pool, &limits) {
                // A free slot is used immediately.
                Some(priority) => {
                    let pool = pool.take(priority, &limits).unwrap();
                    turn.served(priority);
                    turn.high_in_a_row = turn.high_in_a_row.min(ratio + slots);
                    let sated = match waiting {
                        Regular => regular(pool) + 1 >= slots.max(2),
                        High => ratio == 0 && pool.active_high() > 0,
                    };
                    let wait = if priority == waiting || sated {
                        0
                    } else {
                        wait + 1
                    };
                    steps.push((pool, turn, wait));
                }
                None => {
                    for priority in [Regular, High] {
                        steps.extend(put(pool, priority).map(|pool| (pool, turn, wait)));
                    }
                }
            }
            assert!(!steps.is_empty(), "stuck");
            for step in steps {
                if !seen.contains(&step) {
                    seen.push(step);
                }
            }
        }
        worst
    }

    #[test]
    fn no_head_starves() {
        for slots in 1..=4 {
            for ratio in 0..=4 {
                let regular = worst_wait(slots, ratio, Regular);
                assert!(
                    regular <= ratio.max(1) + slots,
                    "{slots} {ratio}: {regular}"
                );
                let high = worst_wait(slots, ratio, High);
                assert!(high <= slots, "{slots} {ratio}: {high}");
            }
        }
    }

    #[test]
    fn ratio_shapes_the_mix() {
        // Requests end in the order of dispatch; both heads are always pending.
        for (slots, ratio, high_per_round) in [(1, 3, 3), (1, 0, 1), (4, 10, 10), (4, 1, 1)] {
            let limits = limits(slots, true, ratio);
            let (mut pool, mut turn) = (Pool::EMPTY, HeadTurn::default());
            let mut running = std::collections::VecDeque::new();
            let mut counts = [0u32; 2];
            for _ in 0..1100 {
                let pending = PendingHeads {
                    high: true,
                    regular: true,
                };
                while let Some(priority) = turn.first(pending, pool, &limits) {
                    pool = pool.take(priority, &limits).unwrap();
                    turn.served(priority);
                    running.push_back(priority);
                    counts[usize::from(priority == High)] += 1;
                }
                pool = put(pool, running.pop_front().unwrap()).unwrap();
            }
            let ratio = f64::from(counts[1]) / f64::from(counts[0]);
            assert!(
                (ratio - f64::from(high_per_round)).abs() < 0.2,
                "{slots}: {ratio}"
            );
        }
    }
}
