// SPDX-License-Identifier: GPL-2.0-only

//! Turns of partitions at shared slots, by start-time fair queueing.
//!
//! # Terms
//!
//! - *Share*: fraction of the service for a partition, in units of 2^-32: the sum of the shares of
//!   the entities that are active there. 0 if unknown.
//! - *Pace*: increment of the tag of a partition per unit of cost ([`pace`]), inverse to the share.
//! - *Tag*: virtual time up to which a partition has received its share. The partition with the
//!   smallest tag is next ([`first`]).
//! - *Clock*: the virtual time, the largest tag of any partition that was next. A partition that
//!   becomes ready starts no earlier ([`start`]), so idle time earns no credit.
//!
//! The algorithm is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM '96). The normalised
//! service of two always ready partitions differs by at most one request of each at any time.
//!
//! # Numbers
//!
//! Tags wrap. 2^32 is one unit of cost at the whole share. A request costs at most [`COST_MAX`] and
//! a share counts as at least [`SHARE_MIN`], so one request adds at most 2^61. So the tags of ready
//! partitions are within 2^63 of each other, as the comparison requires. The tags of idle
//! partitions follow the clock whenever it enters another eighth of its range
//! ([`entered_next_eighth`]), so they stay comparable for any idle time.

/// Share of a partition that has the whole service.
pub const WHOLE: u64 = 1 << 32;

/// Minimum of a known share: a 4096th.
pub const SHARE_MIN: u64 = WHOLE >> 12;

/// Maximum cost of a request, units of cost.
pub const COST_MAX: u32 = 1 << 17;

/// Returns the pace of a partition with `share`; an unknown share counts as the whole.
pub fn pace(share: u64) -> u64 {
    let share = match share {
        0 => WHOLE,
        share => share.clamp(SHARE_MIN, WHOLE),
    };
    // Approximates 2^64 / share to 1 part in 2^32 or better.
    u64::MAX.checked_div(share).unwrap_or(WHOLE)
}

/// Returns the tag after a request of `cost`.
pub fn advance(tag: u64, pace: u64, cost: u32) -> u64 {
    let cost = u64::from(cost.clamp(1, COST_MAX));
    tag.wrapping_add(cost.saturating_mul(pace))
}

/// Returns true if `tag` is before `other`.
pub const fn is_before(tag: u64, other: u64) -> bool {
    (tag.wrapping_sub(other) as i64) < 0
}

/// Returns true if the clock entered another eighth of its range between `old` and `new`.
pub const fn entered_next_eighth(old: u64, new: u64) -> bool {
    (old ^ new) >> 61 != 0
}

/// Returns the later of `tag` and `clock`: the tag of a partition that becomes ready.
pub const fn start(tag: u64, clock: u64) -> u64 {
    if is_before(tag, clock) {
        clock
    } else {
        tag
    }
}

/// Returns the mean of the known shares; 0 if none is known.
pub fn mean(shares: impl Iterator<Item = u64>) -> u64 {
    let known = shares.filter(|share| *share != 0);
    let (sum, count) = known.fold((0u64, 0u64), |(sum, count), share| {
        (sum.saturating_add(share), count.saturating_add(1))
    });
    sum.checked_div(count).unwrap_or(0)
}

/// Returns the name with the smallest tag, of pairs of name and tag; the first of equal tags.
pub fn first(ready: impl Iterator<Item = (u32, u64)>) -> Option<u32> {
    let earlier = |best: (u32, u64), next: (u32, u64)| {
        if is_before(next.1, best.1) {
            next
        } else {
            best
        }
    };
    ready.reduce(earlier).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::partition::slot_pool::{PartitionMark, SlotPool};

    /// Ready partitions, with their shares and the costs of their requests.
    struct ReadyPartitions {
        slot_pool: SlotPool,
        costs: Vec<u32>,
        served: Vec<u64>,
    }

    impl ReadyPartitions {
        fn new(partitions: &[(u64, u32)]) -> Self {
            let (shares, costs): (Vec<u64>, Vec<u32>) = partitions.iter().copied().unzip();
            let service = Self {
                slot_pool: SlotPool::new(costs.len() as u16, 4),
                served: vec![0; costs.len()],
                costs,
            };
            service.slot_pool.set_shares(&shares);
            (0..shares.len()).for_each(|index| service.ready(index, true));
            service
        }

        fn serve(&mut self) -> usize {
            let next = self
                .slot_pool
                .next(0, || self.slot_pool.limits(2, 0))
                .unwrap()
                .index;
            let index = usize::from(next);
            self.slot_pool.charge(next, self.costs[index]);
            self.served[index] += u64::from(self.costs[index]);
            index
        }

        fn ready(&self, index: usize, ready: bool) {
            let ready_mark = PartitionMark {
                waiting: true,
                ready: true,
                urgent: false,
            };
            let (mut old, mut new) = (PartitionMark::default(), ready_mark);
            if !ready {
                core::mem::swap(&mut old, &mut new);
            }
            self.slot_pool.mark(index as u16, old, new);
        }

        fn served(&self) -> Vec<u64> {
            self.served.clone()
        }
    }

    /// Checks that the partition with three quarters gets three of each four requests.
    #[test]
    fn three_to_one() {
        let mut service = ReadyPartitions::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1)]);
        for round in 1..=100_000 {
            for _ in 0..4 {
                service.serve();
            }
            assert_eq!(service.served(), [3 * round, round]);
        }
    }

    /// Checks that equal shares give equal pages, not equal requests, to within one request.
    #[test]
    fn costs_count() {
        let mut service = ReadyPartitions::new(&[(WHOLE / 2, 1), (WHOLE / 2, 256)]);
        for _ in 0..257 * 1000 {
            service.serve();
            let [small, large] = service.served()[..] else {
                panic!()
            };
            assert!(small.abs_diff(large) <= 257);
        }
    }

    /// Checks that idle time gives neither credit nor debt beyond the last request.
    #[test]
    fn idle_earns_nothing() {
        let mut service = ReadyPartitions::new(&[(WHOLE / 2, 4), (WHOLE / 2, 4)]);
        for idle in [0, 1, 1000] {
            service.ready(1, false);
            for _ in 0..idle {
                assert_eq!(service.serve(), 0);
            }
            service.ready(1, true);
            let before = service.served();
            for _ in 0..100 {
                service.serve();
            }
            let after = service.served();
            assert_eq!((after[0] - before[0]) / 4 + (after[1] - before[1]) / 4, 100);
            assert!((after[1] - before[1]).abs_diff(200) <= 4, "{idle}");
        }
        // Both are idle, and the partition that was behind becomes ready first.
        service.ready(0, false);
        service.ready(1, false);
        service.slot_pool.charge(0, 4);
        service.ready(1, true);
        service.ready(0, true);
        let before = service.served();
        for _ in 0..100 {
            service.serve();
        }
        let after = service.served();
        assert!((after[0] - before[0]).abs_diff(200) <= 8);
    }

    /// Checks that unknown shares are equal, and count as the mean of the known ones.
    #[test]
    fn unknown_shares() {
        let mut service = ReadyPartitions::new(&[(0, 1), (0, 1), (0, 1)]);
        for _ in 0..300 {
            service.serve();
        }
        assert_eq!(service.served(), [100, 100, 100]);
        let mut service = ReadyPartitions::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1), (0, 1)]);
        for _ in 0..600 {
            service.serve();
        }
        let served = service.served();
        for (got, want) in served.iter().zip([300, 100, 200]) {
            assert!(got.abs_diff(want) <= 1, "{served:?}");
        }
    }

    /// Checks that a partition with a minimal share, and requests of any size, stays comparable.
    #[test]
    fn extremes() {
        assert_eq!(pace(1), pace(SHARE_MIN));
        assert_eq!(pace(u64::MAX), pace(WHOLE));
        let far = advance(0, pace(1), u32::MAX);
        assert!((1 << 60..=1 << 61).contains(&far) && is_before(0, far));
        assert_eq!(advance(5, pace(1), 0), advance(5, pace(1), 1));
        let mut service = ReadyPartitions::new(&[(1, u32::MAX), (WHOLE - 1, u32::MAX)]);
        for _ in 0..10_000 {
            service.serve();
        }
        assert!((2..=4).contains(&(service.served()[0] / u64::from(u32::MAX))));
        assert_eq!(mean([0, 0].into_iter()), 0);
        assert_eq!(first(core::iter::empty()), None);
        assert_eq!(first([(3, 9), (4, 9), (5, u64::MAX)].into_iter()), Some(5));
    }
}
