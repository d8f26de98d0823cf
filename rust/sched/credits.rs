// SPDX-License-Identifier: GPL-2.0-only

//! How many requests each client of a service may have there at a time.
//!
//! # Vocabulary
//!
//! - *Active* client: one with a request queued or in service.
//! - *Fan-out*: number of active clients.
//! - *Buffer*: requests that the service holds at most (`max`).
//!
//! # Formula
//!
//! ```text
//! each = max(1, floor(max / fan-out))
//! ```
//!
//! One client may fill the buffer, which gives it the full speed of the service; many clients get few
//! requests each, which bounds what a newcomer finds before it: at most `fan-out * each <= max` requests.
//! At more clients than the buffer holds each of them has one credit, which is the least there is; the sum
//! is the fan-out then, and the owner of the buffer lets requests wait outside.
//!
//! The value follows the fan-out with hysteresis, so that clients are not told another value for each one
//! that comes or goes:
//!
//! ```text
//!            fan-out * each > max: at once
//!        ┌────────────────────────────────────┐
//!        │                                    ▼
//!   more credits                        fewer credits
//!        ▲                                    │
//!        └────────────────────────────────────┘
//!     fan-out <= 3/4 of that at the last change
//! ```
//!
//! Another `max` is taken at once, both ways. A client that has more requests than a new value allows keeps
//! them and gets no more until it is below; so the sum of credits is bounded at all times, and the sum of
//! requests as soon as those that were admitted before have ended.

/// Largest buffer, requests.
pub const CREDITS_MAX: u32 = 1 << 20;

/// Bits that each of the three numbers takes when packed; the largest buffer needs all of them.
const BITS: u32 = 21;

/// What fits in them.
const MASK: u32 = (1 << BITS) - 1;

/// What each client of a service may have, and what that was decided by.
///
/// # Invariants
///
/// - `each * fan_out <= max`, or `each` is 1.
/// - All three are at most 2^21 - 1; all are 0 before the first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    each: u32,
    fan_out: u32,
    max: u32,
}

impl Credits {
    /// Before there is a value; [`Credits::at`] gives the first one.
    pub const NONE: Self = Self {
        each: 0,
        fan_out: 0,
        max: 0,
    };

    /// Requests, queued or in service, that each client may have; at least 1.
    pub const fn each(self) -> u32 {
        if self.each == 0 {
            1
        } else {
            self.each
        }
    }

    /// Active clients at the last change; 0 before the first value.
    pub const fn fan_out(self) -> u32 {
        self.fan_out
    }

    /// The value for `active` clients, the one that asks included, and a buffer of `max` requests; the same
    /// one as long as nobody needs to be told.
    pub const fn at(self, active: u32, max: u32) -> Self {
        let (max, active) = (bounded(max, CREDITS_MAX), bounded(active, MASK));
        let over = (active as u64).saturating_mul(self.each as u64) > max as u64;
        // Both sides are below 2^23.
        let fallen = active.saturating_mul(4) <= self.fan_out.saturating_mul(3);
        if max == self.max && !over && !fallen {
            return self;
        }
        let each = match max.checked_div(active) {
            Some(0) | None => 1,
            Some(each) => each,
        };
        if max == self.max && each == self.each {
            return self;
        }
        Self {
            each,
            fan_out: active,
            max,
        }
    }

    /// Requests that a client may have which has to drain, because another one waits for what it holds: half
    /// of a buffer of `max`, and not less than it had.
    pub const fn urgent(self, max: u32) -> u32 {
        let half = max / 2;
        if half > self.each() {
            half
        } else {
            self.each()
        }
    }

    /// All of it in one number; 0 before the first value.
    pub const fn pack(self) -> u64 {
        self.each as u64 | ((self.fan_out as u64) << BITS) | ((self.max as u64) << (2 * BITS))
    }

    /// What was packed; any number is some value.
    pub const fn unpack(packed: u64) -> Self {
        Self {
            each: packed as u32 & MASK,
            fan_out: (packed >> BITS) as u32 & MASK,
            max: (packed >> (2 * BITS)) as u32 & MASK,
        }
    }
}

/// `number`, at least 1 and at most `most`.
const fn bounded(number: u32, most: u32) -> u32 {
    if number == 0 {
        1
    } else if number > most {
        most
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    /// One value after the other: clients, buffer, what each may have.
    #[test]
    fn values() {
        let tables: &[&[(u32, u32, u32)]] = &[
            // One client has all, two half, and so on; one less than three is less than three quarters.
            &[
                (1, 64, 64),
                (2, 64, 32),
                (3, 64, 21),
                (4, 64, 16),
                (3, 64, 21),
                (2, 64, 32),
                (1, 64, 64),
                (0, 64, 64),
            ],
            // Down at once, up after a quarter.
            &[
                (10, 1000, 100),
                (11, 1000, 90),
                (10, 1000, 90),
                (9, 1000, 90),
                (8, 1000, 125),
                (7, 1000, 125),
                (6, 1000, 166),
            ],
            // More clients than the buffer holds: the minimum; back as soon as there are two for each.
            &[
                (16, 16, 1),
                (17, 16, 1),
                (4096, 16, 1),
                (16, 16, 1),
                (12, 16, 1),
                (9, 16, 1),
                (8, 16, 2),
                (9, 16, 1),
            ],
            // Another buffer counts at once.
            &[
                (4, 64, 16),
                (4, 128, 32),
                (4, 100, 25),
                (4, 2, 1),
                (4, 64, 16),
            ],
            // The ends of the range.
            &[
                (1, CREDITS_MAX, CREDITS_MAX),
                (1, u32::MAX, CREDITS_MAX),
                (CREDITS_MAX, CREDITS_MAX, 1),
                (u32::MAX, u32::MAX, 1),
                (0, 0, 1),
                (1, 1, 1),
            ],
        ];
        for table in tables {
            let mut credits = Credits::NONE;
            for (step, &(active, max, want)) in table.iter().enumerate() {
                credits = credits.at(active, max);
                assert_eq!(credits.each(), want, "{table:?} at {step}");
                assert_eq!(credits.at(active, max), credits, "{table:?} at {step}");
            }
        }
    }

    #[test]
    fn packs() {
        assert_eq!(Credits::NONE.pack(), 0);
        assert_eq!(Credits::unpack(0), Credits::NONE);
        assert_eq!((Credits::NONE.each(), Credits::NONE.fan_out()), (1, 0));
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let (active, max) = (rng.next_u32() >> rng.below(32), rng.next_u32() >> 11);
            let credits = Credits::NONE.at(active, max);
            assert_eq!(Credits::unpack(credits.pack()), credits);
            // Whatever an attacker packs, what follows is in bounds.
            let odd = Credits::unpack(rng.next_u64()).at(active, max);
            assert!((1..=CREDITS_MAX).contains(&odd.each()));
        }
    }

    #[test]
    fn who_must_drain_has_half() {
        for (active, max, want) in [
            (1, 64, 64),
            (2, 64, 32),
            (8, 64, 32),
            (64, 64, 32),
            (9, 1, 1),
        ] {
            let credits = Credits::NONE.at(active, max);
            assert_eq!(credits.urgent(max), want, "{active} of {max}");
        }
    }

    /// Clients come and go; the sum never exceeds the buffer, nothing grows but after a quarter left, and few
    /// changes are told.
    #[test]
    fn a_random_walk_stays_in_bounds() {
        for (seed, max) in [(1, 65_536u32), (2, 256), (3, 1_000), (4, 17)] {
            let mut rng = Rng::new(seed);
            let mut credits = Credits::NONE;
            let (mut active, mut told) = (0u32, 0u32);
            for _ in 0..100_000 {
                let most = if rng.below(100) == 0 { 200 } else { 3 };
                let steps = rng.below(most) as u32;
                active = if rng.below(2) == 0 {
                    (active + steps).min(5_000)
                } else {
                    active.saturating_sub(steps)
                };
                let next = credits.at(active, max);
                let each = next.each();
                assert!(each >= 1 && each <= max);
                assert!(
                    each == 1 || active * each <= max,
                    "{active} times {each} of {max}"
                );
                if active <= 1 {
                    assert_eq!(each, max);
                }
                // Never less than three quarters of what there could be, but for rounding.
                let fair = max / active.max(1);
                assert!(each + 1 >= fair - fair / 4, "{each} where {fair} could be");
                if each > credits.each() && credits != Credits::NONE {
                    assert!(active.max(1) * 4 <= credits.fan_out() * 3);
                }
                told += u32::from(each != credits.each());
                credits = next;
            }
            println!("buffer {max}: {told} changes in 100000 steps");
            assert!(told < 60_000, "{told}");
        }
    }

    /// A fan-out that swings by a tenth is told once.
    #[test]
    fn noise_is_not_told() {
        let mut rng = Rng::new(9);
        let mut credits = Credits::NONE.at(440, 65_536);
        let first = credits;
        for _ in 0..10_000 {
            credits = credits.at(360 + rng.below(81) as u32, 65_536);
        }
        assert_eq!(credits, first);
    }
}
