// SPDX-License-Identifier: GPL-2.0-only

//! What is counted for one entity in one part.
//!
//! # Vocabulary
//!
//! - *Ledger*: all counters of one entity ([`Ledger`]).
//! - *Windows*: service received over the last second and minute ([`Windows`]), in units of the cost model.
//! - *Waits*: how long requests were queued, as a histogram ([`Waits`]).
//! - *Debts*: what the entity was owed, as a histogram of samples.
//! - *Sample*: now and then what was received since the last time goes into the windows, so that a request
//!   pays for a sum only.
//!
//! ```text
//!      cell before        cell now
//!  ├──────────────────┼───────────┼ ─ ─ ─ ┤
//!            ├────────────────────┤
//!              the last second: what is in the cell now, and of the cell before the part that still overlaps
//! ```
//!
//! A window takes it that service was even within the cell before: bursts come out up to one cell early or
//! late, and what is steady comes out exactly.

use crate::sched::{
    statistics::{stats, Stats},
    units::NSEC_PER_SEC,
};

/// Seconds of a minute.
const MINUTE: u64 = 60;

/// Service received lately, from which a rate over one length of time is read.
///
/// Saturates at 2^32 - 1 units in a cell: in a minute 71 million pages or requests per second.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Number of the cell since time 0; wraps.
    cell: u32,
    before: u32,
    now: u32,
}

impl Window {
    /// Nothing.
    const fn new() -> Self {
        Self {
            cell: 0,
            before: 0,
            now: 0,
        }
    }

    /// Goes on to `cell`; one that has passed already counts as the current one.
    fn roll(&mut self, cell: u32) {
        let ahead = cell.wrapping_sub(self.cell) as i32;
        if ahead <= 0 {
            return;
        }
        self.before = if ahead == 1 { self.now } else { 0 };
        self.now = 0;
        self.cell = cell;
    }

    /// Adds what somebody else received.
    fn merge(&mut self, mut other: Self) {
        self.roll(other.cell);
        other.roll(self.cell);
        self.before = self.before.saturating_add(other.before);
        self.now = self.now.saturating_add(other.now);
    }

    /// What was received in the time that ends at `now`, for cells of `length`, ns.
    fn sum(mut self, now: u64, length: u64) -> u64 {
        let cell = now.checked_div(length).unwrap_or(0) as u32;
        self.roll(cell);
        let into = if cell == self.cell {
            now.checked_rem(length).unwrap_or(0)
        } else {
            0
        };
        // Of 2^16; a length is below 2^36 ns.
        let overlap = length
            .saturating_sub(into)
            .wrapping_shl(16)
            .checked_div(length)
            .unwrap_or(0);
        let before = u64::from(self.before).wrapping_mul(overlap) >> 16;
        before.saturating_add(u64::from(self.now))
    }
}

/// Service received over the last second and the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    second: Window,
    minute: Window,
}

impl Windows {
    /// Nothing received.
    pub const fn new() -> Self {
        Self {
            second: Window::new(),
            minute: Window::new(),
        }
    }

    /// Goes on to `now`, ns.
    #[inline]
    fn roll(&mut self, now: u64) {
        let second = now / NSEC_PER_SEC;
        self.second.roll(second as u32);
        self.minute.roll((second / MINUTE) as u32);
    }

    /// Counts `service` at `now`, ns.
    #[inline]
    pub fn add(&mut self, service: u32, now: u64) {
        self.roll(now);
        self.second.now = self.second.now.saturating_add(service);
        self.minute.now = self.minute.now.saturating_add(service);
    }

    /// Corrects what was counted before by `delta`; not below nothing.
    pub fn correct(&mut self, delta: i64, now: u64) {
        self.roll(now);
        let by = delta.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        self.second.now = self.second.now.saturating_add_signed(by);
        self.minute.now = self.minute.now.saturating_add_signed(by);
    }

    /// Adds what was received elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.second.merge(other.second);
        self.minute.merge(other.minute);
    }

    /// Received in the second before `now`, ns.
    pub fn second(&self, now: u64) -> u64 {
        self.second.sum(now, NSEC_PER_SEC)
    }

    /// Received in the minute before `now`, ns.
    pub fn minute(&self, now: u64) -> u64 {
        self.minute.sum(now, const { NSEC_PER_SEC * MINUTE })
    }
}

/// Logarithm of the shortest wait that is told from none, ns: about a microsecond.
const FIRST: u32 = 10;

/// Logarithm of the wait from which on all count the same, ns: about 69 s.
const LAST: u32 = 36;

/// One for what is shorter than all others, two for each power of two, one for what is longer.
const BUCKETS: usize = 2 + 2 * (LAST - FIRST) as usize;

/// How long requests waited.
///
/// Buckets are from a power of two to one and a half times that, and from there to the next; what is told of
/// one is its middle, which is at most a quarter off.
///
/// A bucket has 16 bits. When one is full, all are halved, and from then on only one wait of two is counted,
/// then one of four and so on; which ones, a hash decides. So the buckets stay in proportion, to about a
/// hundredth of the rank.
///
/// # Invariants
///
/// A count stands for 2^`rarity` waits.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    counts: [u16; BUCKETS],
    rarity: u16,
    /// Waits seen; wraps.
    seen: u32,
}

impl Waits {
    /// None.
    pub const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            rarity: 0,
            seen: 0,
        }
    }

    /// The bucket of a wait, ns.
    #[inline]
    fn bucket(ns: u64) -> usize {
        let log = ns.checked_ilog2().unwrap_or(0);
        if log < FIRST {
            0
        } else if log >= LAST {
            const { BUCKETS - 1 }
        } else {
            // The power of two and the bit below it, as one number.
            let steps = (ns >> (log.wrapping_sub(1) & 63)) & 1;
            let steps = u64::from(log.wrapping_sub(FIRST))
                .wrapping_mul(2)
                .wrapping_add(steps);
            steps.wrapping_add(1) as usize
        }
    }

    /// Where a bucket starts, ns.
    fn start(bucket: usize) -> u64 {
        let Some(steps) = bucket.checked_sub(1) else {
            return 0;
        };
        // Two or three halves of a power of two.
        let halves = (steps as u64 & 1) | 2;
        let log = (steps as u32 / 2).wrapping_add(const { FIRST - 1 });
        halves.wrapping_shl(log)
    }

    /// Counts a wait, ns.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.seen = self.seen.wrapping_add(1);
        if self.rarity > 0 {
            // Not only every n-th one, which may be one of a kind.
            let hash = crate::sched::rng::avalanche(u64::from(self.seen));
            if hash.trailing_zeros() < u32::from(self.rarity) {
                return;
            }
        }
        if let Some(count) = self.counts.get_mut(Self::bucket(ns)) {
            match count.checked_add(1) {
                Some(more) => *count = more,
                None => self.halve(),
            }
        }
    }

    /// Makes each count stand for twice as many waits; none becomes nothing.
    #[cold]
    fn halve(&mut self) {
        for count in &mut self.counts {
            *count = count.div_ceil(2);
        }
        self.rarity = self.rarity.saturating_add(1);
    }

    /// Adds the waits of others.
    pub fn merge(&mut self, other: &Self) {
        let mut other = *other;
        loop {
            while self.rarity < other.rarity {
                self.halve();
            }
            while other.rarity < self.rarity {
                other.halve();
            }
            let mut pairs = self.counts.iter().zip(&other.counts);
            if pairs.all(|(a, b)| a.checked_add(*b).is_some()) {
                break;
            }
            self.halve();
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.seen = self.seen.wrapping_add(other.seen);
    }

    /// The wait that `mille` of a thousand requests did not exceed, ns; at most a quarter off, 0 below a
    /// microsecond or without requests, and no more than 2^36.
    pub fn percentile(&self, mille: u32) -> u64 {
        let total = self
            .counts
            .iter()
            .fold(0u64, |sum, count| sum.saturating_add(u64::from(*count)));
        let rank = total.saturating_mul(u64::from(mille)).div_ceil(1000);
        let mut sum = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum = sum.saturating_add(u64::from(*count));
            if sum >= rank && *count > 0 {
                return Self::middle(bucket);
            }
        }
        0
    }

    /// What a bucket stands for, ns.
    fn middle(bucket: usize) -> u64 {
        let start = Self::start(bucket);
        match bucket {
            0 => 0,
            _ if bucket >= const { BUCKETS - 1 } => start,
            _ => start.saturating_add(Self::start(bucket.saturating_add(1))) / 2,
        }
    }

    /// What no wait exceeded, ns; at most half too much, and no more than 2^36.
    pub fn max(&self) -> u64 {
        let last = self.counts.iter().rposition(|count| *count > 0);
        last.map_or(0, |bucket| {
            Self::start(bucket.saturating_add(1).min(const { BUCKETS - 1 }))
        })
    }
}

/// Where buckets of debt end and the next ones start, pages.
pub const DEBTS: [i64; 7] = [-4096, -256, -16, 0, 16, 256, 4096];

/// Buckets of debt: the first is what is below the first of [`DEBTS`], the last what is not below the last.
pub const DEBT_BUCKETS: usize = DEBTS.len() + 1;

stats! {
    /// Counters of an entity.
    EntityCounts {
        dispatched: Counter Plain "nrs_entity_dispatched_requests_total" "Dispatched requests";
        cost_pages: Counter Cost "nrs_entity_served_bytes_total" "Bytes of the dispatched requests, in whole pages";
        opportunity: Counter Plain "nrs_entity_opportunity_requests_total" "Requests dispatched in the order of arrival because few were queued";
        time_us: Counter Us "nrs_entity_device_seconds_total" "Time of the device that requests took, with the cost model time";
        forced: Counter Plain "nrs_entity_forced_requests_total" "Requests dispatched at once because they must not wait";
    }
}

/// The counters of one entity in one part; all saturate.
///
/// # Context
///
/// Changed under the partition's lock, in a few nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    counts: EntityCounts,
    /// Service in all, units of the cost model; wraps.
    service: u64,
    /// Of that, what is in the windows.
    sampled: u64,
    windows: Windows,
    debts: [u32; DEBT_BUCKETS],
    waits: Waits,
}

impl Ledger {
    /// Nothing counted.
    pub const fn new() -> Self {
        Self {
            counts: EntityCounts::ZERO,
            service: 0,
            sampled: 0,
            windows: Windows::new(),
            debts: [0; DEBT_BUCKETS],
            waits: Waits::new(),
        }
    }

    /// Counts a request of `pages` that goes down, which is `service` in units of the cost model;
    /// `opportunity`: without a decision.
    #[inline]
    pub fn count(&mut self, pages: u32, service: u32, opportunity: bool) {
        let counts = &mut self.counts;
        counts.dispatched = counts.dispatched.saturating_add(1);
        counts.cost_pages = counts.cost_pages.saturating_add(u64::from(pages));
        counts.opportunity = counts.opportunity.saturating_add(u64::from(opportunity));
        self.service = self.service.wrapping_add(u64::from(service));
    }

    /// Puts what was received since the last time into the windows, as of `now` (ns); returns it, in units
    /// of the cost model. Negative if more was taken back.
    pub fn sample(&mut self, now: u64) -> i64 {
        let since = self.service.wrapping_sub(self.sampled) as i64;
        self.sampled = self.service;
        self.windows.correct(since, now);
        since
    }

    /// Service in all, units of the cost model; wraps.
    pub const fn service(&self) -> u64 {
        self.service
    }

    /// Counts one of those as gone down past the queues while others waited.
    pub fn forced(&mut self) {
        self.counts.forced = self.counts.forced.saturating_add(1);
    }

    /// Counts how long a request was queued, ns.
    #[inline]
    pub fn waited(&mut self, ns: u64) {
        self.waits.add(ns);
    }

    /// Counts a sample of what the entity is owed, tenths of a unit of cost.
    #[inline]
    pub fn debt(&mut self, decipages: i64) {
        let bucket = DEBTS.iter().fold(0usize, |bucket, pages| {
            bucket.wrapping_add(usize::from(decipages >= pages.wrapping_mul(10)))
        });
        if let Some(count) = self.debts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts how long a request was in service, us.
    #[inline]
    pub fn time(&mut self, us: u64) {
        self.counts.time_us = self.counts.time_us.saturating_add(us);
    }

    /// A request was `delta` more service than was counted when it went down.
    pub fn correct(&mut self, delta: i64) {
        self.service = self.service.wrapping_add_signed(delta);
    }

    /// Counts from zero again; the windows stay, since they forget by themselves.
    pub fn reset(&mut self) {
        *self = Self {
            service: self.service,
            sampled: self.sampled,
            windows: self.windows,
            ..Self::new()
        };
    }

    /// Adds what was counted in another part.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.windows.merge(&other.windows);
        for (count, more) in self.debts.iter_mut().zip(&other.debts) {
            *count = count.saturating_add(*more);
        }
        self.waits.merge(&other.waits);
    }

    /// Returns the counters that need no more than a number.
    pub const fn counts(&self) -> &EntityCounts {
        &self.counts
    }

    /// Service received lately.
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// How long requests were queued.
    pub const fn waits(&self) -> &Waits {
        &self.waits
    }

    /// How many samples were in each bucket of debt.
    pub const fn debts(&self) -> &[u32; DEBT_BUCKETS] {
        &self.debts
    }
}

#[cfg(test)]
mod tests;
