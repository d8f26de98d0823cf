// SPDX-License-Identifier: GPL-2.0-only

//! Token buckets by the generic cell rate algorithm (GCRA; ITU-T I.371, annex A) in its virtual
//! scheduling form. A bucket is one number; tokens are not counted.
//!
//! * Tick: 1/16 ns, the unit of all times here. Instants are ticks since 52 days before the clock
//!   started, so that a bucket can be full soon after boot.
//! * [`Pace`]: ticks per token; GCRA's emission interval.
//! * [`BucketLevel`]: instant up to which a bucket's tokens are used up; GCRA's theoretical arrival
//!   time. The time since then is the credit: `credit = now - level`, `tokens = credit / pace`. A
//!   level after the current time is debt.
//! * Window: maximum credit, `depth * pace` for a depth in tokens; GCRA's tolerance. Older credit
//!   is lost.
//! * [`Charge`]: amount that a request takes. Its span is its tokens times the pace. The request is
//!   eligible once the credit is at least its need: the span, or the whole window if the span is
//!   longer. A request larger than the depth needs a full bucket and leaves debt, which later
//!   credit repays.
//!
//! ```text
//!            window
//!       ◄──────────────►
//!  ─────┬────────┬──────┬────────────► time
//!     floor    level   now
//!                ◄──────►
//!                 credit
//!
//!  take:  level = max(level, floor) + span        ready:  max(level, floor) + need
//! ```
//!
//! The level includes the fraction of a token, so no credit is lost between two requests: after a
//! late dispatch the credit is larger by the delay. A take is one addition, so a level can be
//! shared by compare-and-swap.
//!
//! # Precision
//!
//! A span is rounded to the nearest tick. At 10^7 requests/s the span is 1600 ticks. At any rate in
//! bytes/s, the error for requests that arrive at less than 10^7/s is at most 0.03 %. Instants
//! reach 2^60 ns (36 years) and spans 2^51 ns (26 days); larger values saturate.

use crate::sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC};

pub mod rate;
pub mod table;

/// Maximum lateness that a backlogged class keeps, 10 ms in ticks.
pub const LATE: u64 = span(10 * NSEC_PER_MSEC);

/// Maximum debt of a class from forced requests, and its maximum length after a change of the rule,
/// 10 s in ticks. Other debt is due to tokens taken ahead of time or to large requests, and a
/// change does not reduce it.
pub const DEBT_MAX: u64 = span(10 * NSEC_PER_SEC);

/// Fraction bits of a nanosecond.
const FRACTION: u32 = 4;

/// Ticks per second.
const SECOND: u64 = NSEC_PER_SEC << FRACTION;

/// Fraction bits of a pace.
const SCALE: u32 = 30;

/// Time from instant 0 to the start of the clock, ns; longer than any span.
const EPOCH: u64 = 1 << 52;

/// Maximum time of the clock, ns; later times map to the same instant.
const CLOCK_MAX: u64 = 1 << 59;

/// Maximum span, ticks.
pub const SPAN_MAX: u64 = 1 << (51 + FRACTION);

/// Returns the instant of the monotonic time `now`, ns.
pub const fn instant(now: u64) -> u64 {
    let now = if now > CLOCK_MAX { CLOCK_MAX } else { now };
    now.wrapping_add(EPOCH) << FRACTION
}

/// Returns the monotonic time at or just after an instant, ns; 0 for instants before the clock
/// started.
pub const fn clock(instant: u64) -> u64 {
    let up = instant.saturating_add((1 << FRACTION) - 1) >> FRACTION;
    up.saturating_sub(EPOCH)
}

/// Returns the span of `ns`, ticks.
pub const fn span(ns: u64) -> u64 {
    if ns > SPAN_MAX >> FRACTION {
        SPAN_MAX
    } else {
        ns << FRACTION
    }
}

/// Returns the length of a span, ns.
pub const fn nanoseconds(span: u64) -> u64 {
    span >> FRACTION
}

/// Duration of one token (emission interval).
///
/// # Invariants
///
/// `inverse` is in units of 2^-30 ticks per token; the maximum is 2^63.9, for 1/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    inverse: u64,
}

impl Pace {
    /// Returns the pace of `per_second` tokens per second; 0 counts as 1.
    pub const fn new(per_second: u64) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        // INVARIANT: 16 * 10^9 * 2^30 is below 2^64.
        let inverse = match (SECOND << SCALE).checked_div(per_second) {
            Some(inverse) => inverse,
            None => u64::MAX,
        };
        Self { inverse }
    }

    /// Restores the pace from the result of [`Pace::word`].
    pub const fn from_word(word: u64) -> Self {
        Self { inverse: word }
    }

    /// Encodes the pace as one word.
    pub const fn word(self) -> u64 {
        self.inverse
    }

    /// Returns the duration of `tokens`, ticks; at most [`SPAN_MAX`].
    #[inline]
    pub const fn span(self, tokens: u64) -> u64 {
        let product = (tokens as u128).wrapping_mul(self.inverse as u128);
        // The product is below 2^128 - 2^65, so the rounding does not wrap.
        let ticks = product.wrapping_add(1 << (SCALE - 1)) >> SCALE;
        if ticks > SPAN_MAX as u128 {
            SPAN_MAX
        } else {
            ticks as u64
        }
    }
}

/// Amount that a request takes from a bucket, ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Required credit.
    pub need: u64,
    /// Credit that the request uses up.
    pub span: u64,
}

impl Charge {
    /// Charge of no tokens.
    pub const NONE: Self = Self { need: 0, span: 0 };

    /// Returns the charge of `tokens` at `pace` from a bucket with the given window.
    #[inline]
    pub const fn new(pace: Pace, tokens: u64, window: u64) -> Self {
        let span = pace.span(tokens);
        let need = if span > window { window } else { span };
        Self { need, span }
    }
}

/// Instant up to which the tokens of a bucket are used up (theoretical arrival time).
///
/// # Examples
///
/// ```
/// use nrs_sched::{bucket::{instant, span, BucketLevel, Charge, Pace}, units::NSEC_PER_MSEC};
///
/// // 100 tokens per second and a depth of 3 tokens.
/// let (pace, now) = (Pace::new(100), instant(0));
/// let (window, ms) = (pace.span(3), span(NSEC_PER_MSEC));
/// let one = Charge::new(pace, 1, window);
/// let mut level = BucketLevel::FULL;
/// for _ in 0..3 {
///     assert!(level.ready(now - window, one) <= now);
///     level = level.take(now - window, one);
/// }
/// assert_eq!(level.ready(now - window, one), now + 10 * ms);
/// // A request of 5 tokens needs a full bucket, and leaves a debt of 2 tokens.
/// let large = Charge::new(pace, 5, window);
/// assert!(BucketLevel::FULL.ready(now - window, large) <= now);
/// let level = BucketLevel::FULL.take(now - window, large);
/// assert_eq!(level.ready(now - window, one), now + 30 * ms);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketLevel(pub u64);

impl BucketLevel {
    /// Level of a bucket that was never used: full.
    pub const FULL: Self = Self(0);

    /// Returns the level without the credit from before `floor`.
    #[inline]
    #[must_use]
    pub fn at_least(self, floor: u64) -> Self {
        Self(self.0.max(floor))
    }

    /// Returns the instant at which the credit suffices for `charge`, without credit from before
    /// `floor`.
    #[inline]
    pub fn ready(self, floor: u64, charge: Charge) -> u64 {
        self.at_least(floor).0.saturating_add(charge.need)
    }

    /// Returns the level after `charge` was taken.
    #[inline]
    #[must_use]
    pub fn take(self, floor: u64, charge: Charge) -> Self {
        Self(self.at_least(floor).0.saturating_add(charge.span))
    }

    /// Returns the level after `charge` was taken without regard to the credit. The charge does not
    /// move the level beyond `bound`.
    #[must_use]
    pub fn force(self, floor: u64, charge: Charge, bound: u64) -> Self {
        let level = self.at_least(floor);
        let after = level.0.saturating_add(charge.span);
        Self(after.min(bound.max(level.0)))
    }

    /// Returns the level after a refund of `span`.
    #[inline]
    #[must_use]
    pub fn refund(self, span: u64) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// Returns the level of another bucket with as many units at `now` as this one; `old` and `new`
    /// are the duration of the same number of units in this bucket and in the other.
    ///
    /// Thus a change of the rate creates no tokens, and debt remains the same number of requests.
    /// But the part of the debt that [`BucketLevel::forced`] counts does not grow beyond
    /// `debt_max`, or beyond the previous length if that is longer.
    #[must_use]
    pub fn rescale(self, forced: Self, now: u64, old: u64, new: u64, debt_max: u64) -> Self {
        if self.0 <= now {
            return Self(now.saturating_sub(scale(now.saturating_sub(self.0), old, new)));
        }
        let debt = self.0.saturating_sub(now);
        let part = forced.0.saturating_sub(now).min(debt);
        let bounded = scale(part, old, new).min(part.max(debt_max));
        let rest = scale(debt.saturating_sub(part), old, new);
        Self(now.saturating_add(bounded).saturating_add(rest))
    }

    /// Returns the level of a bucket that counts only the debt of forced requests. A forced request
    /// has moved the level of the main bucket from `before` to `after`.
    #[must_use]
    pub fn forced(self, before: Self, after: Self, now: u64) -> Self {
        let owed = after.at_least(now).0.saturating_sub(before.at_least(now).0);
        Self(self.at_least(now).0.saturating_add(owed).min(after.0))
    }
}

/// Returns `x * new / old`, at most [`SPAN_MAX`]; accurate to at least 8 bits.
pub fn scale(x: u64, old: u64, new: u64) -> u64 {
    if old == new {
        return x;
    }
    // The ratio as a fixed-point number of 64 bits with `shift` fraction bits.
    let shift = new.leading_zeros();
    let Some(ratio) = new.wrapping_shl(shift).checked_div(old.max(1)) else {
        return x;
    };
    let product = u128::from(x).wrapping_mul(u128::from(ratio));
    let scaled = product.checked_shr(shift).unwrap_or(0);
    u64::try_from(scaled).map_or(SPAN_MAX, |scaled| scaled.min(SPAN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = instant(1_000_000_000_000);

    fn charge(per_second: u64, tokens: u64, depth: u64) -> (Charge, u64) {
        let pace = Pace::new(per_second);
        let window = pace.span(depth);
        (Charge::new(pace, tokens, window), window)
    }

    #[test]
    fn times() {
        for ns in [0, 1, 2, 1_000_000_007, 315_576_000_000_000_000, CLOCK_MAX] {
            assert_eq!(clock(instant(ns)), ns);
            assert_eq!(clock(instant(ns) + 1), ns + 1);
            assert_eq!(clock(instant(ns) - 1), ns);
        }
        assert_eq!(instant(u64::MAX), instant(CLOCK_MAX));
        assert_eq!(clock(0), 0);
        assert_eq!(nanoseconds(span(1234)), 1234);
        assert_eq!(span(u64::MAX), SPAN_MAX);
        // The longest span added to the last instant does not wrap.
        assert!(instant(u64::MAX).checked_add(4 * SPAN_MAX).is_some());
    }

    /// Checks that the tokens of one second take one second, to 10^-6, at any rate.
    #[test]
    fn paces() {
        for per_second in [1, 2, 3, 7, 100, 999, 10_000, 999_999, 10_000_000] {
            let ticks = Pace::new(per_second).span(per_second);
            assert!(ticks.abs_diff(SECOND) <= SECOND / 1_000_000, "{per_second}");
            // Rounding errors of single tokens add up; the documented bound is 0.03 %.
            let sum = Pace::new(per_second).span(1) * per_second;
            assert!(sum.abs_diff(SECOND) <= SECOND * 3 / 10_000, "{per_second}");
        }
        for per_second in [1 << 20, 200 << 20, 1 << 30, 1 << 40] {
            let ticks = Pace::new(per_second).span(per_second);
            assert!(ticks.abs_diff(SECOND) <= SECOND / 1_000_000, "{per_second}");
        }
        assert_eq!(Pace::new(0), Pace::new(1));
        assert_eq!(Pace::new(1).span(u64::MAX), SPAN_MAX);
        assert_eq!(
            Pace::new(u64::MAX).span(u64::MAX),
            Pace::new(u64::MAX).span(u64::MAX)
        );
    }

    #[test]
    fn a_full_bucket_has_its_depth_and_no_more() {
        let (one, window) = charge(100, 1, 3);
        let floor = NOW - window;
        let mut level = BucketLevel::FULL;
        for _ in 0..3 {
            assert!(level.ready(floor, one) <= NOW);
            level = level.take(floor, one);
        }
        // The next token is due in 10 ms.
        assert_eq!(level.ready(floor, one), NOW + span(10_000_000));
        // A refunded token is available again.
        assert_eq!(level.refund(one.span).ready(floor, one), NOW);
        assert_eq!(BucketLevel::FULL.refund(1), BucketLevel::FULL);
    }

    #[test]
    fn larger_than_the_depth_means_debt() {
        let (large, window) = charge(100, 50, 3);
        let floor = NOW - window;
        assert!(BucketLevel::FULL.ready(floor, large) <= NOW);
        let level = BucketLevel::FULL.take(floor, large);
        // The debt is 47 tokens, and the next large request needs a full bucket.
        assert_eq!(level.ready(floor, large), NOW + span(500_000_000));
    }

    #[test]
    fn forced_debt_is_bounded() {
        let (one, window) = charge(1, 1, 3);
        let (floor, bound) = (NOW - window, NOW + span(10_000_000_000));
        let mut level = BucketLevel::FULL;
        for _ in 0..1000 {
            level = level.force(floor, one, bound);
        }
        assert_eq!(level, BucketLevel(bound));
        // Larger debt from another source is not reduced.
        let deep = BucketLevel(bound + 7);
        assert_eq!(deep.force(floor, one, bound), deep);
    }

    /// Checks that a change of the rate does not extend forced debt beyond the maximum of the bound
    /// and the previous debt.
    #[test]
    fn rescaled_debt_is_bounded() {
        let at = |debt| BucketLevel(NOW + debt);
        for (debt, forced, new, after) in [
            (3, 3, 100, 10),
            (12, 12, 100, 12),
            (12, 12, 1, 12),
            (2, 2, 4, 8),
            (3, 9, 100, 10),
            (12, 3, 100, 910),
            (12, 0, 100, 1200),
        ] {
            let level = at(debt).rescale(at(forced), NOW, 1, new, 10);
            assert_eq!(level, at(after), "{debt} {forced} {new}");
        }
    }

    /// Checks that only the debt of forced requests counts as forced.
    #[test]
    fn forced_debt_is_counted_separately() {
        let at = |debt: i64| BucketLevel((NOW as i64 + debt) as u64);
        for (forced, before, after, want) in [
            (-9, -5, 3, 3),
            (-9, 20, 21, 1),
            (2, 20, 21, 3),
            (-9, 20, 20, 0),
            (5, 1, 3, 3),
        ] {
            let counted = at(forced).forced(at(before), at(after), NOW);
            assert_eq!(counted, at(want), "{forced} {before} {after}");
        }
        // Credit does not count as debt.
        assert!(BucketLevel::FULL.forced(at(-5), at(-2), NOW).0 <= NOW);
    }

    #[test]
    fn rescaling_keeps_the_fraction() {
        let window = |per_second| Pace::new(per_second).span(4);
        for (old, new) in [(1, 1000), (1000, 1), (7, 999), (10_000_000, 1), (5, 5)] {
            let (old, new) = (window(old), window(new));
            for quarter in -40i64..=4 {
                let credit = old as i64 / 4 * quarter;
                let level = BucketLevel((NOW as i64 - credit) as u64);
                let got = NOW as i64 - level.rescale(BucketLevel::FULL, NOW, old, new, 0).0 as i64;
                let want = new as i64 / 4 * quarter;
                assert!(
                    (got - want).abs() <= new as i64 / 200 + 40,
                    "{quarter} {got} {want}"
                );
            }
            // A full bucket stays at most full.
            let full = BucketLevel::FULL.at_least(NOW - old);
            assert!(NOW - full.rescale(full, NOW, old, new, 0).0 <= new + new / 200);
        }
        // Extreme values do not wrap.
        assert_eq!(scale(u64::MAX, 1, SPAN_MAX), SPAN_MAX);
        assert_eq!(scale(SPAN_MAX, SPAN_MAX, 1), 1);
        assert_eq!(scale(5, 0, 0), 5);
        assert_eq!(scale(5, 7, 0), 0);
    }
}
