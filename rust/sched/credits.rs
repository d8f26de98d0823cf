// SPDX-License-Identifier: GPL-2.0-only

//! Credits: maximum number of requests that each client may have in a service at a time.
//!
//! A client is active while its requests are queued or in service. The fan-out is the number of
//! active clients. The buffer (`max`) is the maximum number of requests in the service.
//!
//! # Formula
//!
//! ```text
//! each = max(1, floor(max / fan-out))
//! ```
//!
//! A single client may fill the buffer and thus gets the full speed of the service. Many clients
//! get few requests each, so a new client finds at most `fan-out * each <= max` requests before its
//! own. With more clients than the buffer has entries, each client has one credit, the minimum. The
//! sum is then the fan-out, and the owner of the buffer queues the excess requests outside.
//!
//! The value follows the fan-out with hysteresis, so that not every arrival or departure of a
//! client causes a notification of all clients:
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
//! A new `max` takes effect at once in both directions. A client with more requests than a new
//! value allows keeps these requests and gets no more until it is below the value. Thus the sum of
//! credits is always bounded, and the sum of requests is bounded once the requests admitted before
//! have ended.

use crate::sched::atomic::AtomicWord;

/// Maximum buffer, requests.
pub const CREDITS_MAX: u32 = 1 << 20;

/// Bits of each of the three numbers in packed form; the maximum buffer needs all of them.
const BITS: u32 = 21;

/// Maximum value of [`BITS`] bits.
const MASK: u32 = (1 << BITS) - 1;

/// Credits of each client, with the values that they were derived from.
///
/// # Invariants
///
/// - `each * fan_out <= max`, or `each` is 1.
/// - All three numbers are at most 2^21 - 1; all are 0 before the first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    each: u32,
    fan_out: u32,
    max: u32,
}

impl Credits {
    /// State before the first value, which [`Credits::at`] returns.
    pub const NONE: Self = Self {
        each: 0,
        fan_out: 0,
        max: 0,
    };

    /// Returns the number of requests, queued or in service, that each client may have; at least 1.
    pub const fn each(self) -> u32 {
        if self.each == 0 {
            1
        } else {
            self.each
        }
    }

    /// Returns the credits for `active` clients, including the current one, and a buffer of `max`
    /// requests; `self` if no client needs a notification.
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

    /// Returns the credits of a client that has to drain because another client waits for resources
    /// that the client holds: half of a buffer of `max`, and at least its regular credits.
    pub const fn urgent(self, max: u32) -> u32 {
        let half = max / 2;
        if half > self.each() {
            half
        } else {
            self.each()
        }
    }

    /// Recomputes the credits packed in `word` for the active clients and the buffer that `read`
    /// returns; returns true if the credits of a client rose.
    ///
    /// A change is checked again, because the numbers may have changed between their reading and
    /// the change, and the CPU that changed them may have found the old credits in order.
    pub fn update(word: &AtomicWord, mut read: impl FnMut() -> (u32, u32)) -> bool {
        let mut rose = false;
        loop {
            let mut rises = false;
            let changed = word.change(|packed| {
                let old = Self::unpack(packed);
                let (active, max) = read();
                let new = old.at(active, max);
                rises = new.each() > old.each();
                (new != old).then(|| new.pack())
            });
            if !changed {
                return rose;
            }
            rose |= rises;
        }
    }

    /// Packs all numbers into one word; 0 before the first value.
    pub const fn pack(self) -> u64 {
        self.each as u64 | ((self.fan_out as u64) << BITS) | ((self.max as u64) << (2 * BITS))
    }

    /// Unpacks a word; every word is valid.
    pub const fn unpack(packed: u64) -> Self {
        Self {
            each: packed as u32 & MASK,
            fan_out: (packed >> BITS) as u32 & MASK,
            max: (packed >> (2 * BITS)) as u32 & MASK,
        }
    }
}

/// Returns `number`, limited to the range from 1 to `most`.
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

    /// Verifies the credits if a client becomes active between the reading for another one that
    /// left and the change.
    #[test]
    fn an_update_with_an_old_fan_out_is_corrected() {
        for (old, stale, now) in [(3, 2, 3), (2, 3, 2)] {
            let word = AtomicWord::new(Credits::NONE.at(old, 64).pack());
            let mut reads = [stale].into_iter();
            Credits::update(&word, || (reads.next().unwrap_or(now), 64));
            assert_eq!(Credits::unpack(word.get()).each(), 64 / now);
        }
    }

    /// Checks sequences of: active clients, buffer, credits of each client.
    #[test]
    fn values() {
        let tables: &[&[(u32, u32, u32)]] = &[
            // The buffer is divided equally; one client less than three is less than three
            // quarters.
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
            // The credits decrease at once, and increase after the fan-out fell by a quarter.
            &[
                (10, 1000, 100),
                (11, 1000, 90),
                (10, 1000, 90),
                (9, 1000, 90),
                (8, 1000, 125),
                (7, 1000, 125),
                (6, 1000, 166),
            ],
            // More clients than the buffer: the minimum, until the buffer has two entries for each
            // client.
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
            // A change of the buffer takes effect at once.
            &[
                (4, 64, 16),
                (4, 128, 32),
                (4, 100, 25),
                (4, 2, 1),
                (4, 64, 16),
            ],
            // Limits of the range.
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
        assert_eq!((Credits::NONE.each(), Credits::NONE.fan_out), (1, 0));
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let (active, max) = (rng.next_u32() >> rng.below(32), rng.next_u32() >> 11);
            let credits = Credits::NONE.at(active, max);
            assert_eq!(Credits::unpack(credits.pack()), credits);
            // The next value is in bounds even if an attacker has packed the word.
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

    /// Simulates random arrivals and departures of clients. The sum never exceeds the buffer, the
    /// credits increase only after the fan-out fell by a quarter, and changes are few.
    #[test]
    fn a_random_walk_stays_in_bounds() {
        for (seed, max) in [(1, 65_536u32), (2, 256), (3, 1_000), (4, 17)] {
            let mut rng = Rng::new(seed);
            let mut credits = Credits::NONE;
            let (mut active, mut changes) = (0u32, 0u32);
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
                // At least three quarters of the fair value, except for rounding.
                let fair = max / active.max(1);
                assert!(each + 1 >= fair - fair / 4, "{each} where {fair} could be");
                if each > credits.each() && credits != Credits::NONE {
                    assert!(active.max(1) * 4 <= credits.fan_out * 3);
                }
                changes += u32::from(each != credits.each());
                credits = next;
            }
            println!("buffer {max}: {changes} changes in 100000 steps");
            assert!(changes < 60_000, "{changes}");
        }
    }

    /// Checks that fluctuations of the fan-out by a tenth cause no change.
    #[test]
    fn noise_is_not_reported() {
        let mut rng = Rng::new(9);
        let mut credits = Credits::NONE.at(440, 65_536);
        let first = credits;
        for _ in 0..10_000 {
            credits = credits.at(360 + rng.below(81) as u32, 65_536);
        }
        assert_eq!(credits, first);
    }
}
