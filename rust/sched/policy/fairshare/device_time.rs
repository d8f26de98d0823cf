// SPDX-License-Identifier: GPL-2.0-only

//! Cost by time: the estimate at dispatch and the measurement at completion.
//!
//! - *Active*: dispatched to the device and not completed.
//! - *Device time*: time of the device that a request took, ns ([`DeviceClock`]). Each moment of
//!   the request's time in flight is divided by the number of active requests.
//! - *Estimate*: device time charged at dispatch, µs ([`Estimates`]).
//! - *Correction*: device time minus estimate, charged at completion, µs ([`correction`]).
//! - *Size class*: 1, 2 to 4, 5 to 16, 17 to 64, 65 to 256, or more pages.
//!
//! ```text
//!  queued ── estimate ──► active ─── DeviceClock::end ──► completed
//!            is charged     │           correction           │
//!     DeviceClock::start ◄──┘           is charged           └──► Estimates::record
//! ```
//!
//! # Model: processor sharing
//!
//! A device with `n` requests in flight is modelled as serving each request at an n-th of its
//! speed. This is processor sharing (Kleinrock, "Time-shared systems: a theoretical treatment",
//! JACM 14(2), 1967). The clock `acc` advances by `dt / n`, so a request's device time is the
//! advance of the clock while the request is active. The device times of all requests sum to the
//! busy time of the device. Remainders of both divisions are carried, so the sum stays exact.

use super::entity::COST_MAX;
use crate::sched::{count::Count, item::Direction, units::NSEC_PER_USEC};

/// Number of bits of the clock below one nanosecond.
const FRACTION_BITS: u32 = 16;

/// Longest interval that is counted between two events, ns (about 73 min): a device without
/// dispatches and completions for longer is not busy.
const STEP_MAX: u64 = 1 << 42;

/// Clock of a part, which measures the device time of requests.
///
/// # Invariants
///
/// The clock times the number of active requests, summed over time, plus `rest`, is the time with
/// active requests. The device times returned plus `fraction` are the advance of the clock for
/// completed requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceClock {
    /// Clock, 2^-16 ns, wrapping.
    acc: u64,
    /// Time of the latest event, ns.
    last: u64,
    /// Device time not yet in `acc`, 2^-16 ns.
    rest: u64,
    /// Device time not yet returned, 2^-16 ns; below 1 ns.
    fraction: u64,
    active: u32,
}

impl DeviceClock {
    /// Starts a request at `now`, ns; returns its stamp for [`DeviceClock::end`].
    pub fn start(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.active.count(1);
        self.acc
    }

    /// Ends the request with `stamp` at `now`, ns; returns its device time, ns.
    ///
    /// Called once per [`DeviceClock::start`], also for failed requests; returns 0 if no request is
    /// active.
    pub fn end(&mut self, stamp: u64, now: u64) -> u64 {
        if self.active == 0 {
            return 0;
        }
        self.advance(now);
        self.active = self.active.saturating_sub(1);
        let time = self.acc.wrapping_sub(stamp).saturating_add(self.fraction);
        self.fraction = time & ((1 << FRACTION_BITS) - 1);
        time >> FRACTION_BITS
    }

    /// Advances the clock to `now`; the clock stops while time moves back.
    fn advance(&mut self, now: u64) {
        let step = now.wrapping_sub(self.last);
        if (step as i64) <= 0 {
            return;
        }
        self.last = now;
        let active = u64::from(self.active);
        let time = (step.min(STEP_MAX) << FRACTION_BITS).saturating_add(self.rest);
        if let (Some(each), Some(rest)) = (time.checked_div(active), time.checked_rem(active)) {
            self.acc = self.acc.wrapping_add(each);
            self.rest = rest;
        }
    }
}

/// Number of size classes.
const SIZES: usize = 6;

/// Number of directions.
const DIRECTIONS: usize = 3;

/// Logarithm of the inverse of the latest time's weight in an estimate: an eighth.
const WEIGHT_SHIFT: u32 = 3;

/// Largest time that is noted, ns, because no estimate is above [`COST_MAX`].
const TIME_MAX: u64 = COST_MAX as u64 * NSEC_PER_USEC;

/// Device time expected for a request without measurements, ns.
const DEFAULT: u64 = 100 * NSEC_PER_USEC;

/// Device time expected for each page without measurements, ns.
const DEFAULT_PAGE: u64 = NSEC_PER_USEC;

/// Expected device times for each direction and size class: moving averages of measurements, with a
/// weight of an eighth for the latest one.
///
/// A part has estimates for all its entities, and each entity has estimates of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimates {
    /// Means, ns; 0: not measured.
    cells: [u32; SIZES * DIRECTIONS],
}

impl Estimates {
    /// Notes that a request of `pages` took `time` of the device, ns.
    pub fn record(&mut self, direction: Direction, pages: u32, time: u64) {
        let Some(cell) = self.cells.get_mut(index(direction, pages)) else {
            return;
        };
        // At most 2^27.
        let time = time.clamp(1, TIME_MAX);
        let mean = match u64::from(*cell) {
            0 => time,
            mean => {
                (mean << WEIGHT_SHIFT)
                    .wrapping_sub(mean)
                    .wrapping_add(time)
                    .wrapping_add(1 << (WEIGHT_SHIFT - 1))
                    >> WEIGHT_SHIFT
            }
        };
        *cell = mean as u32;
    }

    /// Estimates the charge for a request of an entity with these estimates, µs, from 1 to
    /// [`COST_MAX`].
    ///
    /// Without measurements of the entity the estimate is taken from `part`, else 100 µs and 1 µs
    /// per page.
    pub fn estimate(&self, part: &Self, direction: Direction, pages: u32) -> u32 {
        let time = self
            .get(direction, pages)
            .or_else(|| part.get(direction, pages))
            .unwrap_or_else(|| {
                let pages = u64::from(pages).wrapping_mul(DEFAULT_PAGE);
                pages.wrapping_add(DEFAULT)
            });
        let cost = time.wrapping_add(NSEC_PER_USEC / 2) / NSEC_PER_USEC;
        cost.clamp(1, u64::from(COST_MAX)) as u32
    }

    /// Returns the mean of the measurements, ns.
    fn get(&self, direction: Direction, pages: u32) -> Option<u64> {
        let time = self.cells.get(index(direction, pages)).copied()?;
        (time > 0).then_some(time.into())
    }
}

/// Returns the index of the cell of a direction and of the size class of `pages`.
const fn index(direction: Direction, pages: u32) -> usize {
    let row = match direction {
        Direction::Read => 0,
        Direction::Write => 1,
        Direction::Other => 2usize,
    };
    // 0 for one page, then one class more for every two bits.
    let bits = u32::BITS.wrapping_sub(pages.saturating_sub(1).leading_zeros());
    let class = bits.div_ceil(2) as usize;
    let class = if class < SIZES { class } else { SIZES - 1 };
    row.wrapping_mul(SIZES).wrapping_add(class)
}

/// Computes the charge at completion, µs, for a request with device time `measured`, ns, that was
/// charged `charged`, µs, at dispatch. The result is negative if the charge was too high.
///
/// `rest`, ns, below 1000 and initially 0, is carried. So charges and corrections of any number of
/// requests sum to the measured time, to less than 1 µs.
pub fn correction(charged: u32, measured: u64, rest: &mut u16) -> i64 {
    let time = measured.saturating_add(u64::from(*rest));
    *rest = (time % NSEC_PER_USEC) as u16;
    // Below 2^55.
    let time = (time / NSEC_PER_USEC) as i64;
    time.wrapping_sub(i64::from(charged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{rng::Rng, units::NSEC_PER_MSEC as MS};

    #[test]
    fn a_request_alone_takes_what_elapses() {
        let mut busy = DeviceClock::default();
        for now in [0, 5, 77 * MS, 1 << 62] {
            let mut busy = busy;
            let stamp = busy.start(now);
            assert_eq!(busy.end(stamp, now + 3 * MS + 7), 3 * MS + 7);
        }
        // Idle time is not charged to a request.
        let stamp = busy.start(1000);
        assert_eq!(busy.end(stamp, 1500), 500);
        let stamp = busy.start(9_000_000);
        assert_eq!(busy.end(stamp, 9_000_001), 1);
        assert_eq!(busy.active, 0);
    }

    #[test]
    fn requests_at_a_time_share_it() {
        let mut busy = DeviceClock::default();
        // Two from 0 to 10, one more from 4 to 10, then one until 13.
        let a = busy.start(100);
        let b = busy.start(100);
        let c = busy.start(100 + 4 * MS);
        assert_eq!(busy.active, 3);
        assert_eq!(busy.end(a, 100 + 10 * MS), 4 * MS);
        assert_eq!(busy.end(c, 100 + 10 * MS), 2 * MS);
        assert_eq!(busy.end(b, 100 + 13 * MS), 7 * MS);
        let stamps: Vec<u64> = (0..64).map(|_| busy.start(20 * MS)).collect();
        for stamp in stamps {
            assert_eq!(busy.end(stamp, 84 * MS), MS);
        }
    }

    #[test]
    fn odd_times() {
        let mut busy = DeviceClock::default();
        assert_eq!(busy.end(123, 1000), 0);
        let a = busy.start(1000);
        // Time that moves back counts as 0; the next interval starts at the latest moment.
        let b = busy.start(400);
        assert_eq!(busy.end(b, 999), 0);
        assert_eq!(busy.end(a, 1010), 10);
        assert_eq!((busy.end(a, 2000), busy.active), (0, 0));
        // A device without events for days.
        let a = busy.start(3000);
        assert_eq!(busy.end(a, 3000 + (1 << 62)), STEP_MAX);
        // An invalid stamp returns some number and affects no other request.
        let a = busy.start(1 << 63);
        let _ = busy.start(1 << 63);
        let _ = busy.end(u64::MAX - 5, (1 << 63) + 50);
        assert!(busy.end(a, (1 << 63) + 100) <= 100);
    }

    /// Verifies that the times of all requests sum to the time with active requests, to the
    /// nanosecond. Orders of events are random, and times jump back.
    #[test]
    fn times_sum_to_the_time_of_the_device() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let depth = 1 + rng.next_u32() % 300;
            let mut busy = DeviceClock::default();
            let mut active: Vec<(u64, u64)> = Vec::new();
            let (mut now, mut latest) = (rng.next_u64() >> 20, 0);
            let (mut device, mut reported, mut events) = (0u64, 0u64, 0);
            while events < 20_000 || !active.is_empty() {
                events += 1;
                now += u64::from(rng.next_u32() % 5000);
                let seen = now.saturating_sub(u64::from(rng.next_u32() % 7) * 300);
                if seen > latest {
                    device += if active.is_empty() { 0 } else { seen - latest };
                    latest = seen;
                }
                let more = events < 20_000 && rng.next_u32() % (2 * depth) >= active.len() as u32;
                if more {
                    active.push((busy.start(seen), latest));
                } else if !active.is_empty() {
                    let chosen = rng.next_u32() as usize % active.len();
                    let (stamp, since) = active.swap_remove(chosen);
                    let time = busy.end(stamp, seen);
                    assert!(time <= latest - since + 1);
                    reported += time;
                }
                assert_eq!(busy.active as usize, active.len());
            }
            assert!(device - reported <= 1, "{device} {reported}");
        }
    }

    #[test]
    fn size_classes() {
        for (pages, class) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (4, 1),
            (5, 2),
            (16, 2),
            (17, 3),
            (64, 3),
            (65, 4),
            (256, 4),
            (257, 5),
            (1 << 14, 5),
            (u32::MAX, 5),
        ] {
            assert_eq!(index(Direction::Read, pages), class, "{pages}");
            assert_eq!(index(Direction::Write, pages), SIZES + class);
            assert_eq!(index(Direction::Other, pages), 2 * SIZES + class);
        }
    }

    #[test]
    fn estimates_fall_back() {
        let (mut own, mut part) = (Estimates::default(), Estimates::default());
        for (pages, cost) in [(1, 101), (256, 356), (u32::MAX, COST_MAX)] {
            assert_eq!(own.estimate(&part, Direction::Write, pages), cost);
        }
        part.record(Direction::Write, 3, 2 * MS);
        assert_eq!(own.estimate(&part, Direction::Write, 2), 2000);
        assert_eq!(own.estimate(&part, Direction::Read, 2), 102);
        assert_eq!(own.estimate(&part, Direction::Write, 5), 105);
        own.record(Direction::Write, 2, 50_000);
        assert_eq!(own.estimate(&part, Direction::Write, 4), 50);
        // A charge is never 0 and never above the largest cost.
        own.record(Direction::Read, 1, 0);
        assert_eq!(own.estimate(&part, Direction::Read, 1), 1);
        own.record(Direction::Other, 1, u64::MAX);
        assert_eq!(own.estimate(&part, Direction::Other, 1), COST_MAX);
    }

    /// Verifies that an estimate is within 1 % after 100 requests that take another time, and
    /// always between the extremes.
    #[test]
    fn estimates_follow() {
        let mut rng = Rng::new(2);
        let mut own = Estimates::default();
        let mut before = None;
        for _ in 0..200 {
            let time = (10_000 << (rng.next_u32() % 12)) + u64::from(rng.next_u32() % 10_000);
            for _ in 0..100 {
                let from = own.get(Direction::Read, 1).unwrap_or(time);
                own.record(Direction::Read, 1, time);
                let mean = own.get(Direction::Read, 1).unwrap();
                let (low, high) = (from.min(time), from.max(time));
                assert!(mean + (mean >> 11) >= low && mean <= high + (high >> 11));
            }
            let mean = own.get(Direction::Read, 1).unwrap();
            assert!(
                mean.abs_diff(time) <= time / 100 + 4,
                "{before:?} {time} {mean}"
            );
            before = Some(time);
        }
    }

    /// Verifies that charges and corrections sum to the measured time.
    #[test]
    fn corrections_sum_to_what_was_measured() {
        let mut rng = Rng::new(3);
        let (mut rest, mut charges, mut measured) = (0, 0i64, 0u64);
        for _ in 0..100_000 {
            let charged = rng.next_u32() % (COST_MAX + 1);
            let time = rng.next_u64() >> (20 + rng.next_u32() % 44);
            let delta = correction(charged, time, &mut rest);
            charges += i64::from(charged) + delta;
            measured += time;
            assert!(rest < 1000);
            let gap = measured - charges as u64 * NSEC_PER_USEC;
            assert_eq!(gap, u64::from(rest));
        }
        let mut rest = 999;
        assert!(correction(1, u64::MAX, &mut rest) > 0);
        let mut rest = 0;
        assert_eq!(correction(7, 0, &mut rest), -7);
    }
}
