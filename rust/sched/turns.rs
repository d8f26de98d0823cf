// SPDX-License-Identifier: GPL-2.0-only

//! Turns of partitions at the slots that they share, by start tags.
//!
//! # Vocabulary
//!
//! - *Share*: what a partition is to have of the service, in units of 2^-32: the sum of the shares of those
//!   who compete there. 0: not known.
//! - *Pace*: what a unit of cost adds to the tag of a partition ([`pace`]): the smaller the share, the more.
//! - *Tag*: virtual time up to which a partition has had its share. The smallest tag goes next ([`first`]).
//! - *Clock*: the largest tag that was ever next. A partition that was idle starts no earlier ([`start`]),
//!   so that being idle earns nothing.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM '96): of two partitions that are always ready, the
//! normalised service differs by no more than one request of each at any time.
//!
//! # Numbers
//!
//! Tags wrap. 2^32 is one unit of cost at the whole share. A request costs at most [`COST_MAX`] and a share
//! counts as at least [`SHARE_MIN`], so one request adds at most 2^61: the tags of those who are ready are
//! within 2^63 of each other, which is what comparing them needs. Those who are idle follow the clock whenever it
//! enters another eighth of its range ([`is_far`]), so that theirs are, too, however long they are idle.

/// The whole.
pub const WHOLE: u64 = 1 << 32;

/// What a share that is known counts at least as: a 4096th.
pub const SHARE_MIN: u64 = WHOLE >> 12;

/// What a request counts at most, units of cost.
pub const COST_MAX: u32 = 1 << 17;

/// What a unit of cost adds to a tag, for a partition with `share`; an unknown one counts as the whole.
pub fn pace(share: u64) -> u64 {
    let share = match share {
        0 => WHOLE,
        share => share.clamp(SHARE_MIN, WHOLE),
    };
    // 2^64 / share, as near as 64 bits come to it: 1 part in 2^32 or better.
    u64::MAX.checked_div(share).unwrap_or(WHOLE)
}

/// The tag after a request that costs `cost`.
pub fn advance(tag: u64, pace: u64, cost: u32) -> u64 {
    let cost = u64::from(cost.clamp(1, COST_MAX));
    tag.wrapping_add(cost.saturating_mul(pace))
}

/// Whether `tag` is before `other`.
pub const fn is_before(tag: u64, other: u64) -> bool {
    (tag.wrapping_sub(other) as i64) < 0
}

/// Whether a clock that went from `old` to `new` entered another eighth of its range.
pub const fn is_far(old: u64, new: u64) -> bool {
    (old ^ new) >> 61 != 0
}

/// The later of two tags: where a partition with `tag` starts that was idle, at `clock`.
pub const fn start(tag: u64, clock: u64) -> u64 {
    if is_before(tag, clock) {
        clock
    } else {
        tag
    }
}

/// The mean of the shares that are known; 0 if none is.
pub fn mean(shares: impl Iterator<Item = u64>) -> u64 {
    let known = shares.filter(|share| *share != 0);
    let (sum, count) = known.fold((0u64, 0u64), |(sum, count), share| {
        (sum.saturating_add(share), count.saturating_add(1))
    });
    sum.checked_div(count).unwrap_or(0)
}

/// The one with the smallest tag, of pairs of name and tag; the first of several.
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
    use crate::sched::partition::line::{Line, Mark};

    /// Partitions that are ready, with their shares and the costs of their requests.
    struct Service {
        line: Line,
        costs: Vec<u32>,
        served: Vec<u64>,
    }

    impl Service {
        fn new(partitions: &[(u64, u32)]) -> Self {
            let (shares, costs): (Vec<u64>, Vec<u32>) = partitions.iter().copied().unzip();
            let service = Self {
                line: Line::new(costs.len() as u16, 4),
                served: vec![0; costs.len()],
                costs,
            };
            service.line.set_shares(&shares);
            (0..shares.len()).for_each(|index| service.ready(index, true));
            service
        }

        fn serve(&mut self) -> usize {
            let next = self.line.next(0, || self.line.limits(2, 0)).unwrap().index;
            let index = usize::from(next);
            self.line.charge(next, self.costs[index]);
            self.served[index] += u64::from(self.costs[index]);
            index
        }

        fn ready(&self, index: usize, ready: bool) {
            let ready_mark = Mark {
                waiting: true,
                ready: true,
                urgent: false,
            };
            let (mut old, mut new) = (Mark::default(), ready_mark);
            if !ready {
                core::mem::swap(&mut old, &mut new);
            }
            self.line.mark(index as u16, old, new);
        }

        fn served(&self) -> Vec<u64> {
            self.served.clone()
        }
    }

    /// Of each four requests three go to the one with three quarters.
    #[test]
    fn three_to_one() {
        let mut service = Service::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1)]);
        for round in 1..=100_000 {
            for _ in 0..4 {
                service.serve();
            }
            assert_eq!(service.served(), [3 * round, round]);
        }
    }

    /// Equal shares are equal pages, not equal requests, to one request.
    #[test]
    fn costs_count() {
        let mut service = Service::new(&[(WHOLE / 2, 1), (WHOLE / 2, 256)]);
        for _ in 0..257 * 1000 {
            service.serve();
            let [small, large] = service.served()[..] else {
                panic!()
            };
            assert!(small.abs_diff(large) <= 257);
        }
    }

    /// Whoever was idle has neither credit for it nor debt beyond its last request.
    #[test]
    fn idle_earns_nothing() {
        let mut service = Service::new(&[(WHOLE / 2, 4), (WHOLE / 2, 4)]);
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
        // Both idle, and the one that was behind comes first.
        service.ready(0, false);
        service.ready(1, false);
        service.line.charge(0, 4);
        service.ready(1, true);
        service.ready(0, true);
        let before = service.served();
        for _ in 0..100 {
            service.serve();
        }
        let after = service.served();
        assert!((after[0] - before[0]).abs_diff(200) <= 8);
    }

    /// Without known shares all are equal; one that is not known is as good as the mean of the others.
    #[test]
    fn unknown_shares() {
        let mut service = Service::new(&[(0, 1), (0, 1), (0, 1)]);
        for _ in 0..300 {
            service.serve();
        }
        assert_eq!(service.served(), [100, 100, 100]);
        let mut service = Service::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1), (0, 1)]);
        for _ in 0..600 {
            service.serve();
        }
        let served = service.served();
        for (got, want) in served.iter().zip([300, 100, 200]) {
            assert!(got.abs_diff(want) <= 1, "{served:?}");
        }
    }

    /// A partition with hardly any share, and requests of any size, stays comparable.
    #[test]
    fn extremes() {
        assert_eq!(pace(1), pace(SHARE_MIN));
        assert_eq!(pace(u64::MAX), pace(WHOLE));
        let far = advance(0, pace(1), u32::MAX);
        assert!((1 << 60..=1 << 61).contains(&far) && is_before(0, far));
        assert_eq!(advance(5, pace(1), 0), advance(5, pace(1), 1));
        let mut service = Service::new(&[(1, u32::MAX), (WHOLE - 1, u32::MAX)]);
        for _ in 0..10_000 {
            service.serve();
        }
        assert!((2..=4).contains(&(service.served()[0] / u64::from(u32::MAX))));
        assert_eq!(mean([0, 0].into_iter()), 0);
        assert_eq!(first(core::iter::empty()), None);
        assert_eq!(first([(3, 9), (4, 9), (5, u64::MAX)].into_iter()), Some(5));
    }
}
