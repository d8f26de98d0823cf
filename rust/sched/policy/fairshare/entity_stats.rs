// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of one entity in one part.
//!
//! [`EntityStats::sample`] adds the service to the windows at intervals, so that each request
//! updates only one sum.
//!
//! ```text
//!      cell before        cell now
//!  ├──────────────────┼───────────┼ ─ ─ ─ ┤
//!            ├────────────────────┤
//!              last second: the cell now, and the overlapping part of the cell before
//! ```
//!
//! A window assumes even service within the cell before. Bursts appear up to one cell early or
//! late; steady service is exact.

use crate::sched::{
    count::Count,
    rng::avalanche,
    statistics::{stats, Stats},
    units::NSEC_PER_SEC,
};

/// Nanoseconds of a minute.
const NSEC_PER_MINUTE: u64 = 60 * NSEC_PER_SEC;

/// Recent service, in cells of one length.
///
/// A cell saturates at 2^32 - 1 units, which is 71 million pages or requests per second for a
/// minute.
#[derive(Clone, Copy, Debug, Default)]
struct ServiceWindow {
    /// Number of the current cell since time 0; wraps.
    cell: u32,
    before: u32,
    now: u32,
}

impl ServiceWindow {
    /// Advances the window to `cell`; does nothing for an earlier cell.
    fn roll(&mut self, cell: u32) {
        let ahead = cell.wrapping_sub(self.cell) as i32;
        if ahead > 0 {
            let before = if ahead == 1 { self.now } else { 0 };
            *self = Self {
                cell,
                before,
                now: 0,
            };
        }
    }

    /// Adds `service` at `now`, ns, to the current cell of `length` ns; the sum stays at 0 or
    /// above.
    fn add(&mut self, service: i32, now: u64, length: u64) {
        self.roll(now.checked_div(length).unwrap_or(0) as u32);
        self.now = self.now.saturating_add_signed(service);
    }

    /// Adds the service of another part.
    fn merge(&mut self, mut other: Self) {
        self.roll(other.cell);
        other.roll(self.cell);
        self.before.count(other.before);
        self.now.count(other.now);
    }

    /// Returns the service in the `length` ns before `now`.
    fn sum(mut self, now: u64, length: u64) -> u64 {
        let cell = now.checked_div(length).unwrap_or(0) as u32;
        self.roll(cell);
        let into = if cell == self.cell {
            now.checked_rem(length).unwrap_or(0)
        } else {
            0
        };
        // In units of 2^-16; a length is below 2^36 ns.
        let overlap = length.saturating_sub(into).wrapping_shl(16);
        let overlap = overlap.checked_div(length).unwrap_or(0);
        let before = u64::from(self.before).wrapping_mul(overlap) >> 16;
        before.saturating_add(u64::from(self.now))
    }
}

/// Service over the last second and the last minute, units of the cost model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceWindows {
    second: ServiceWindow,
    minute: ServiceWindow,
}

impl ServiceWindows {
    /// Adds `service` at `now`, ns; negative service corrects service added before.
    pub fn add(&mut self, service: i64, now: u64) {
        let service = service.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        self.second.add(service, now, NSEC_PER_SEC);
        self.minute.add(service, now, NSEC_PER_MINUTE);
    }

    /// Adds the service of another part.
    pub fn merge(&mut self, other: &Self) {
        self.second.merge(other.second);
        self.minute.merge(other.minute);
    }

    /// Returns the service in the second before `now`, ns.
    pub fn second(&self, now: u64) -> u64 {
        self.second.sum(now, NSEC_PER_SEC)
    }

    /// Returns the service in the minute before `now`, ns.
    pub fn minute(&self, now: u64) -> u64 {
        self.minute.sum(now, NSEC_PER_MINUTE)
    }
}

/// Logarithm of the shortest queueing time, ns, with a bucket apart from 0: about a microsecond.
const FIRST: u32 = 10;

/// Logarithm of the queueing time, ns, from which all times share a bucket: about 69 s.
const LAST: u32 = 36;

/// Number of buckets: one for shorter times, two for each power of two, one for longer times.
const BUCKETS: usize = 2 + 2 * (LAST - FIRST) as usize;

/// Histogram of queueing times.
///
/// A bucket covers the times from a power of two to one and a half times that power, or from there
/// to the next power. A percentile is the middle of a bucket, which is at most a quarter off.
///
/// A bucket has 16 bits. When a bucket is full, all counts are halved. From then on one time of two
/// is counted, then one of four and so on, chosen by a hash. So the buckets stay in proportion, to
/// about a hundredth of the rank.
///
/// # Invariants
///
/// A count stands for 2^`rarity` queueing times.
#[derive(Clone, Copy, Debug)]
pub struct QueueTimeHistogram {
    counts: [u16; BUCKETS],
    rarity: u16,
    /// Number of queueing times added; wraps.
    seen: u32,
}

impl QueueTimeHistogram {
    /// Creates an empty histogram.
    pub const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            rarity: 0,
            seen: 0,
        }
    }

    /// Returns the bucket of a queueing time, ns.
    #[inline]
    fn bucket(ns: u64) -> usize {
        match ns.checked_ilog2() {
            Some(log) if log >= LAST => const { BUCKETS - 1 },
            Some(log) if log >= FIRST => {
                // The power of two and the bit below it, as one number.
                let half = (ns >> (log.wrapping_sub(1) & 63)) as usize & 1;
                let steps = (log.wrapping_sub(FIRST) as usize).wrapping_mul(2);
                steps.wrapping_add(half).wrapping_add(1)
            }
            _ => 0,
        }
    }

    /// Returns the start of a bucket, ns.
    fn start(bucket: usize) -> u64 {
        let Some(steps) = bucket.checked_sub(1) else {
            return 0;
        };
        // Two or three halves of a power of two.
        let halves = (steps as u64 & 1) | 2;
        let log = (steps as u32 / 2).wrapping_add(const { FIRST - 1 });
        halves.wrapping_shl(log)
    }

    /// Adds a queueing time, ns.
    #[inline]
    fn add(&mut self, ns: u64) {
        self.seen = self.seen.wrapping_add(1);
        if self.rarity > 0 {
            // Every n-th time could coincide with a pattern of the load, so a hash chooses.
            let hash = avalanche(u64::from(self.seen));
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

    /// Reduces the counts by half, so that each stands for twice as many times; no count becomes 0.
    #[cold]
    fn halve(&mut self) {
        for count in &mut self.counts {
            *count = count.div_ceil(2);
        }
        self.rarity = self.rarity.saturating_add(1);
    }

    /// Adds the histogram of another part.
    fn merge(&mut self, other: &Self) {
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
            count.count(*more);
        }
        self.seen = self.seen.wrapping_add(other.seen);
    }

    /// Returns the queueing time, ns, that `mille` of a thousand requests did not exceed. The value
    /// is at most a quarter off, 0 below a microsecond or without requests, and at most 2^36.
    pub fn percentile(&self, mille: u32) -> u64 {
        let counts = || self.counts.iter().map(|count| u64::from(*count));
        let rank = counts().sum::<u64>().saturating_mul(mille.into());
        let rank = rank.div_ceil(1000);
        let mut sum = 0u64;
        for (bucket, count) in counts().enumerate() {
            sum.count(count);
            if sum >= rank && count > 0 {
                let (start, end) = (Self::start(bucket), Self::start(bucket.saturating_add(1)));
                return match bucket {
                    0 => 0,
                    _ if bucket >= const { BUCKETS - 1 } => start,
                    _ => start.midpoint(end),
                };
            }
        }
        0
    }

    /// Returns an upper bound of the longest queueing time, ns: at most half too much, and at most
    /// 2^36.
    pub fn max(&self) -> u64 {
        let last = self.counts.iter().rposition(|count| *count > 0);
        last.map_or(0, |bucket| {
            Self::start(bucket.saturating_add(1).min(const { BUCKETS - 1 }))
        })
    }
}

/// Limits between buckets of debt, pages.
pub const DEBTS: [i64; 7] = [-4096, -256, -16, 0, 16, 256, 4096];

/// Number of buckets of debt: the first is below the first of [`DEBTS`], the last is from the last
/// of [`DEBTS`] on.
pub const DEBT_BUCKETS: usize = DEBTS.len() + 1;

stats! {
    /// Counters of an entity.
    EntityCounts {
        dispatched: Counter Plain "nrs_entity_dispatched_requests_total" "Dispatched requests";
        cost_pages: Counter Cost "nrs_entity_served_bytes_total"
            "Bytes of the dispatched requests, in whole pages";
        opportunity: Counter Plain "nrs_entity_opportunity_requests_total"
            "Requests dispatched in FIFO order at low queue depth";
        time_us: Counter Us "nrs_entity_device_seconds_total"
            "Device time of requests, with the cost model time";
        forced: Counter Plain "nrs_entity_forced_requests_total"
            "Requests dispatched without queueing";
        limit_hits: Counter Plain "nrs_entity_limit_hits_total"
            "Number of times that a limit of the entity or of a level above throttled it";
        throttled_ns: Counter Ns "nrs_entity_throttled_seconds_total"
            "Time for which a limit throttled the first request of the entity";
    }
}

/// Counters of one entity in one part; all saturate but `service`.
///
/// # Context
///
/// Changed under the partition's lock, in a few nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct EntityStats {
    /// Plain counters.
    pub counts: EntityCounts,
    /// Total service, units of the cost model; wraps.
    service: u64,
    /// Value of `service` at the last sample.
    sampled: u64,
    /// Recent service.
    pub windows: ServiceWindows,
    /// Number of samples in each bucket of debt.
    pub debts: [u32; DEBT_BUCKETS],
    /// Queueing times of requests.
    pub waits: QueueTimeHistogram,
}

impl Default for EntityStats {
    fn default() -> Self {
        Self::new()
    }
}

impl EntityStats {
    /// Creates statistics with all counts 0.
    pub fn new() -> Self {
        Self {
            counts: EntityCounts::ZERO,
            service: 0,
            sampled: 0,
            windows: ServiceWindows::default(),
            debts: [0; DEBT_BUCKETS],
            waits: QueueTimeHistogram::new(),
        }
    }

    /// Counts a dispatched request of `pages` and of `service` units of the cost model;
    /// `opportunity` if the request was dispatched without a decision.
    #[inline]
    pub fn count(&mut self, pages: u32, service: u32, opportunity: bool) {
        let counts = &mut self.counts;
        counts.dispatched.count(1);
        counts.cost_pages.count(u64::from(pages));
        counts.opportunity.count(u64::from(opportunity));
        self.service = self.service.wrapping_add(u64::from(service));
    }

    /// Counts `requests` requests dispatched without a decision, of `pages` and `service` (units of
    /// the cost model) in all.
    pub fn count_passed(&mut self, requests: u32, pages: u64, service: u64) {
        let (counts, requests) = (&mut self.counts, u64::from(requests));
        counts.dispatched.count(requests);
        counts.cost_pages.count(pages);
        counts.opportunity.count(requests);
        self.service = self.service.wrapping_add(service);
    }

    /// Adds the service since the last sample to the windows at `now`, ns. Returns that service, in
    /// units of the cost model; negative if corrections exceed charges.
    pub fn sample(&mut self, now: u64) -> i64 {
        let since = self.service.wrapping_sub(self.sampled) as i64;
        self.sampled = self.service;
        self.windows.add(since, now);
        since
    }

    /// Returns the total service, units of the cost model; wraps.
    pub const fn service(&self) -> u64 {
        self.service
    }

    /// Counts a forced request, which is already counted as dispatched.
    pub fn forced(&mut self) {
        self.counts.forced.count(1);
    }

    /// Counts that a limit throttles the first request for `ns`.
    pub fn throttled(&mut self, ns: u64) {
        let counts = &mut self.counts;
        counts.limit_hits.count(1);
        counts.throttled_ns.count(ns);
    }

    /// Counts the queueing time of a request, ns.
    #[inline]
    pub fn waited(&mut self, ns: u64) {
        self.waits.add(ns);
    }

    /// Counts a sample of the debt to the entity, tenths of a unit of cost.
    pub fn debt(&mut self, decipages: i64) {
        let bucket = DEBTS.partition_point(|pages| decipages >= pages.wrapping_mul(10));
        if let Some(count) = self.debts.get_mut(bucket) {
            count.count(1);
        }
    }

    /// Counts the time of a request in flight, us.
    #[inline]
    pub fn time(&mut self, us: u64) {
        self.counts.time_us.count(us);
    }

    /// Adds `delta` to the service of a request counted before.
    pub fn correct(&mut self, delta: i64) {
        self.service = self.service.wrapping_add_signed(delta);
    }

    /// Resets the counters; service and windows stay, because old service leaves the windows by
    /// itself.
    pub fn reset(&mut self) {
        *self = Self {
            service: self.service,
            sampled: self.sampled,
            windows: self.windows,
            ..Self::new()
        };
    }

    /// Adds the counters of another part.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.windows.merge(&other.windows);
        self.waits.merge(&other.waits);
        for (sum, more) in self.debts.iter_mut().zip(&other.debts) {
            sum.count(*more);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Compares windows with rates and percentiles with sorting, and checks edges of buckets.

    use super::*;
    use crate::sched::rng::Rng;

    #[test]
    fn windows_follow_the_rate() {
        let mut windows = ServiceWindows::default();
        assert_eq!((windows.second(5), windows.minute(5)), (0, 0));
        // 100 per ms for 200 s.
        let mut now = 12_345_678_901;
        for step in 0..200_000u64 {
            windows.add(100, now);
            now += 1_000_000;
            if step % 997 == 0 && step > 2000 {
                assert!(windows.second(now).abs_diff(100_000) <= 300, "{step}");
            }
            if step % 997 == 0 && step > 120_000 {
                assert!(windows.minute(now).abs_diff(6_000_000) <= 500, "{step}");
            }
        }
        // The sum decreases, and is 0 after two lengths.
        let half = windows.second(now + NSEC_PER_SEC / 2);
        assert!((40_000..=60_000).contains(&half), "{half}");
        assert_eq!(windows.second(now + 2 * NSEC_PER_SEC), 0);
        assert!(windows.minute(now + 59 * NSEC_PER_SEC) > 0);
        assert_eq!(windows.minute(now + 120 * NSEC_PER_SEC), 0);
        // A time slightly before the last one counts as now.
        windows.add(7, now - NSEC_PER_SEC);
        assert!(windows.second(now) > 90_000);
        assert!(windows.second(now - 2 * NSEC_PER_SEC) > 0);
    }

    #[test]
    fn windows_of_parts_add_up() {
        let at = |second: u64| second * NSEC_PER_SEC;
        for (other, one, now, want) in [
            // The same cell, one behind, long ago, and with `a` and `b` swapped.
            (at(100), at(100), at(100), 30),
            (at(99), at(100), at(100), 30),
            (at(100), at(99), at(100), 30),
            (at(50), at(100), at(100), 20),
            (at(100), at(50), at(100), 10),
            (at(99), at(100), at(100) + NSEC_PER_SEC / 2, 25),
        ] {
            let (mut a, mut b) = (ServiceWindows::default(), ServiceWindows::default());
            a.add(10, other);
            b.add(20, one);
            a.merge(&b);
            assert_eq!(a.second(now), want);
        }
        let mut most = ServiceWindows::default();
        for _ in 0..3 {
            most.add(i64::MAX, u64::MAX);
        }
        most.merge(&most.clone());
        assert_eq!(most.second(u64::MAX), u64::from(u32::MAX));
        for _ in 0..3 {
            most.add(i64::MIN, u64::MAX);
        }
        assert_eq!(most.second(u64::MAX), 0);
    }

    #[test]
    fn buckets_of_waits() {
        for (ns, start, end) in [
            (0, 0, 1024),
            (1023, 0, 1024),
            (1024, 1024, 1536),
            (1535, 1024, 1536),
            (1536, 1536, 2048),
            (2047, 1536, 2048),
            ((1 << 36) - 1, 3 << 34, 1 << 36),
        ] {
            let bucket = QueueTimeHistogram::bucket(ns);
            let got = (
                QueueTimeHistogram::start(bucket),
                QueueTimeHistogram::start(bucket + 1),
            );
            assert_eq!(got, (start, end), "{ns}");
        }
        for ns in [1 << 36, u64::MAX] {
            assert_eq!(QueueTimeHistogram::bucket(ns), BUCKETS - 1);
        }
    }

    #[test]
    fn percentiles_are_near() {
        let mut rng = Rng::new(5);
        let (mut sum, mut all) = (EntityStats::new(), Vec::new());
        assert_eq!((sum.waits.percentile(500), sum.waits.max()), (0, 0));
        for (count, most) in [(1, 1 << 20), (1000, 1 << 24), (200_000, 1 << 30)] {
            let mut stats = EntityStats::new();
            for _ in 0..count {
                let most = 1 + rng.below(most);
                let ns = 2000 + rng.below(most);
                stats.waited(ns);
                all.push(ns);
            }
            sum.merge(&stats);
            all.sort();
            for mille in [1, 500, 900, 990] {
                let rank = (all.len() * mille as usize).div_ceil(1000);
                let exact = all[rank - 1];
                let got = sum.waits.percentile(mille);
                assert!(got.abs_diff(exact) <= exact / 4, "{mille}: {got} {exact}");
            }
            let max = all[all.len() - 1];
            assert!((max..=max * 3 / 2).contains(&sum.waits.max()));
        }
    }

    #[test]
    fn full_buckets_stay_in_proportion() {
        let mut sum = EntityStats::new();
        for _ in 0..995 {
            sum.waited(2000);
        }
        for _ in 0..5 {
            sum.waited(1 << 30);
        }
        // 10^12 requests.
        for _ in 0..30 {
            sum.merge(&sum.clone());
            assert!(sum.waits.percentile(990) < 2500);
            assert!(sum.waits.percentile(999) > 1 << 29);
        }
        // Added one by one, the rare times are neither lost nor counted more often.
        let mut one = EntityStats::new();
        for step in 0..1_000_000u32 {
            one.waited(if step % 100 == 0 { 1 << 30 } else { 2000 });
        }
        let rare =
            u64::from(one.waits.counts[QueueTimeHistogram::bucket(1 << 30)]) << one.waits.rarity;
        assert!((9_500..=10_500).contains(&rare), "{rare}");
    }

    #[test]
    fn debts_have_buckets() {
        for (decipages, bucket) in [
            (i64::MIN, 0),
            (-40_961, 0),
            (-40_960, 1),
            (-1, 3),
            (0, 4),
            (159, 4),
            (160, 5),
            (40_959, 6),
            (40_960, 7),
            (i64::MAX, 7),
        ] {
            let mut stats = EntityStats::new();
            stats.debt(decipages);
            assert_eq!(stats.debts[bucket], 1, "{decipages}");
        }
    }

    #[test]
    fn counts_and_resets() {
        let mut stats = EntityStats::new();
        stats.count(3, 4, true);
        stats.sample(0);
        stats.count(5, 6, false);
        stats.sample(10);
        stats.forced();
        stats.time(100);
        stats.waited(2000);
        stats.debt(5);
        stats.correct(-1);
        stats.sample(20);
        let mut sum = stats;
        sum.merge(&stats);
        assert_eq!((sum.counts.dispatched, sum.counts.cost_pages), (4, 16));
        assert_eq!((sum.counts.opportunity, sum.counts.forced), (2, 2));
        assert_eq!((sum.counts.time_us, sum.debts[4]), (200, 2));
        assert_eq!((sum.windows.second(20), sum.waits.max()), (18, 2048));
        sum.reset();
        assert_eq!((sum.counts.dispatched, sum.waits.max()), (0, 0));
        assert_eq!((sum.windows.second(20), sum.debts[4]), (18, 0));
    }
}
