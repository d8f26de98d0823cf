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

    /// A partition: its share, its tag, what a request of it costs, what it was served.
    #[derive(Clone, Copy)]
    struct Place {
        share: u64,
        tag: u64,
        cost: u32,
        ready: bool,
        served: u64,
    }

    struct Service {
        places: Vec<Place>,
        clock: u64,
    }

    impl Service {
        fn new(shares: &[(u64, u32)], tag: u64) -> Self {
            let place = |&(share, cost): &(u64, u32)| Place {
                share,
                tag,
                cost,
                ready: true,
                served: 0,
            };
            Self {
                places: shares.iter().map(place).collect(),
                clock: tag,
            }
        }

        fn serve(&mut self) -> usize {
            let ready = self.places.iter().enumerate().filter(|(_, p)| p.ready);
            let next = first(ready.map(|(i, p)| (i as u32, p.tag))).unwrap() as usize;
            let shares = self.places.iter().filter(|p| p.ready).map(|p| p.share);
            let mean = mean(shares);
            let place = &mut self.places[next];
            self.clock = start(self.clock, place.tag);
            let share = if place.share == 0 { mean } else { place.share };
            place.tag = advance(place.tag, pace(share), place.cost);
            place.served += u64::from(place.cost);
            next
        }

        fn ready(&mut self, index: usize, ready: bool) {
            let clock = self.clock;
            let place = &mut self.places[index];
            if ready && !place.ready {
                place.tag = start(place.tag, clock);
            }
            place.ready = ready;
        }

        fn served(&self) -> Vec<u64> {
            self.places.iter().map(|place| place.served).collect()
        }
    }

    /// Of each four requests three go to the one with three quarters, wherever the tags are.
    #[test]
    fn three_to_one() {
        for tag in [0, u64::MAX - (5 << 32), i64::MAX as u64 - (1 << 33)] {
            let mut service = Service::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1)], tag);
            for round in 1..=100_000 {
                for _ in 0..4 {
                    service.serve();
                }
                assert_eq!(service.served(), [3 * round, round]);
            }
        }
    }

    /// Equal shares are equal pages, not equal requests, to one request.
    #[test]
    fn costs_count() {
        let mut service = Service::new(&[(WHOLE / 2, 1), (WHOLE / 2, 256)], 0);
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
        let mut service = Service::new(&[(WHOLE / 2, 4), (WHOLE / 2, 4)], 0);
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
        service.places[0].tag = advance(service.places[0].tag, pace(WHOLE / 2), 4);
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
        let mut service = Service::new(&[(0, 1), (0, 1), (0, 1)], 7);
        for _ in 0..300 {
            service.serve();
        }
        assert_eq!(service.served(), [100, 100, 100]);
        let mut service = Service::new(&[(WHOLE / 4 * 3, 1), (WHOLE / 4, 1), (0, 1)], 7);
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
        let shares = [(1, u32::MAX), (WHOLE - 1, u32::MAX)];
        let mut service = Service::new(&shares, u64::MAX - 3);
        for _ in 0..10_000 {
            service.serve();
            let apart = service.places[0].tag.wrapping_sub(service.places[1].tag) as i64;
            assert!(apart.unsigned_abs() <= 1 << 61);
        }
        assert!((2..=4).contains(&(service.served()[0] / u64::from(u32::MAX))));
        assert_eq!(mean([0, 0].into_iter()), 0);
        assert_eq!(first(core::iter::empty()), None);
        assert_eq!(first([(3, 9), (4, 9), (5, u64::MAX)].into_iter()), Some(5));
    }
}
