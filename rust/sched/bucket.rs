// SPDX-License-Identifier: GPL-2.0-only

//! Token buckets: one number each, and no token is ever counted.
//!
//! # Vocabulary
//!
//! - *Tick*: a sixteenth of a nanosecond, the unit of all times here; instants are ticks since 52 days
//!   before the clock started, so that a bucket can be full when the machine is young.
//! - *Pace*: ticks per token ([`Pace`]).
//! - *Level*: the instant up to which a bucket's tokens are used up ([`Level`]). What has passed since then
//!   is the credit: `credit = now - level`, `tokens = credit / pace`; a level ahead of the clock is debt.
//! - *Window*: how much credit counts; older credit is lost. The window of `depth` tokens is
//!   `depth * pace`.
//! - *Charge*: what a request takes ([`Charge`]): its *span* is its tokens times the pace. It may go when
//!   the credit is at least its *need*, the span, or the whole window if the span is longer: a request
//!   larger than the depth needs a full bucket, goes into debt and pays it off.
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
//! This is the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). The
//! fraction of a token is in the level, so nothing is lost between two requests whenever they are served;
//! what is served late is followed by a credit of that time. A take is one addition, so a level can be
//! shared by compare-and-swap.
//!
//! # Precision
//!
//! A span is rounded to the nearest tick. At 10^7 requests/s it is 1600 ticks, and whatever the rate in
//! bytes, requests that arrive at less than 10^7/s are off by 0.03 % at most.
//! Instants reach 2^60 ns (36 years) and spans 2^51 ns (26 days); beyond that they saturate.

use crate::sched::units::NSEC_PER_SEC;

/// Bits of a nanosecond.
const FRACTION: u32 = 4;

/// Ticks of a second.
const SECOND: u64 = NSEC_PER_SEC << FRACTION;

/// Bits of the fraction of a pace.
const SCALE: u32 = 30;

/// Nanoseconds from instant 0 to the start of the clock; longer than any span.
const EPOCH: u64 = 1 << 52;

/// Nanoseconds of the clock beyond which instants stand still.
const CLOCK_MAX: u64 = 1 << 59;

/// The longest span, ticks.
pub const SPAN_MAX: u64 = 1 << (51 + FRACTION);

/// The instant of the monotonic time `now`, ns.
pub const fn instant(now: u64) -> u64 {
    let now = if now > CLOCK_MAX { CLOCK_MAX } else { now };
    now.wrapping_add(EPOCH) << FRACTION
}

/// The monotonic time at or just after an instant, ns; 0 for instants before the clock started.
pub const fn clock(instant: u64) -> u64 {
    let up = instant.saturating_add((1 << FRACTION) - 1) >> FRACTION;
    up.saturating_sub(EPOCH)
}

/// A span of `ns`, ticks.
pub const fn span(ns: u64) -> u64 {
    if ns > SPAN_MAX >> FRACTION {
        SPAN_MAX
    } else {
        ns << FRACTION
    }
}

/// Nanoseconds of a span.
pub const fn nanoseconds(span: u64) -> u64 {
    span >> FRACTION
}

/// How long a token takes.
///
/// # Invariants
///
/// `inverse` is ticks per token in units of 2^-30; 2^63.9 for 1/s, the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    inverse: u64,
}

impl Pace {
    /// The pace of `per_second` tokens per second; 0 counts as 1.
    pub const fn new(per_second: u64) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        // INVARIANT: 16 * 10^9 * 2^30 is below 2^64.
        let inverse = match (SECOND << SCALE).checked_div(per_second) {
            Some(inverse) => inverse,
            None => u64::MAX,
        };
        Self { inverse }
    }

    /// The pace that [`Pace::word`] told.
    pub const fn from_word(word: u64) -> Self {
        Self { inverse: word }
    }

    /// The pace as one word.
    pub const fn word(self) -> u64 {
        self.inverse
    }

    /// How long `tokens` take, ticks; at most [`SPAN_MAX`].
    #[inline]
    pub const fn span(self, tokens: u64) -> u64 {
        let product = (tokens as u128).wrapping_mul(self.inverse as u128);
        // Below 2^128 - 2^65 before, so the rounding does not wrap.
        let ticks = product.wrapping_add(1 << (SCALE - 1)) >> SCALE;
        if ticks > SPAN_MAX as u128 {
            SPAN_MAX
        } else {
            ticks as u64
        }
    }
}

/// What a request takes from a bucket, ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Credit there must be.
    pub need: u64,
    /// Credit that is used up.
    pub span: u64,
}

impl Charge {
    /// That of `tokens` at `pace`, from a bucket whose depth is `window`.
    #[inline]
    pub const fn new(pace: Pace, tokens: u64, window: u64) -> Self {
        let span = pace.span(tokens);
        let need = if span > window { window } else { span };
        Self { need, span }
    }
}

/// The instant up to which the tokens of a bucket are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u64);

impl Level {
    /// Nothing was used up ever: as much credit as counts.
    pub const FULL: Self = Self(0);

    /// The level with the credit from before `floor` lost.
    #[inline]
    #[must_use]
    pub fn at_least(self, floor: u64) -> Self {
        Self(self.0.max(floor))
    }

    /// When there will be enough for `charge`, as far as credit before `floor` does not count.
    #[inline]
    pub fn ready(self, floor: u64, charge: Charge) -> u64 {
        self.at_least(floor).0.saturating_add(charge.need)
    }

    /// The level after `charge` was taken.
    #[inline]
    #[must_use]
    pub fn take(self, floor: u64, charge: Charge) -> Self {
        Self(self.at_least(floor).0.saturating_add(charge.span))
    }

    /// The level after `charge` was taken regardless; whatever it was, not moved beyond `bound` by this.
    #[must_use]
    pub fn force(self, floor: u64, charge: Charge, bound: u64) -> Self {
        let level = self.at_least(floor);
        let after = level.0.saturating_add(charge.span);
        Self(after.min(bound.max(level.0)))
    }

    /// The level after a charge of `span` was given back.
    #[inline]
    #[must_use]
    pub fn refund(self, span: u64) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// The level of another bucket that has as many units as this one at `now`, which take `new` there and `old` here.
    ///
    /// So a change of the rate gives nobody a token, and debt of requests stays that many requests; but the part of it that
    /// [`Level::forced`] counts gets no longer by it than `debt_max`, or than it was.
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

    /// The level of a bucket from which only forced requests take what they owe, after one that moved the level of this
    /// bucket from `before` to `after`.
    #[must_use]
    pub fn forced(self, before: Self, after: Self, now: u64) -> Self {
        let owed = after.at_least(now).0.saturating_sub(before.at_least(now).0);
        Self(self.at_least(now).0.saturating_add(owed).min(after.0))
    }
}

/// `x * new / old`, at most [`SPAN_MAX`]; to 8 bits at least.
pub fn scale(x: u64, old: u64, new: u64) -> u64 {
    if old == new {
        return x;
    }
    // The ratio as a number of 64 bits with `shift` behind the point.
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
        // Not even the longest span from the last instant wraps.
        assert!(instant(u64::MAX).checked_add(4 * SPAN_MAX).is_some());
    }

    /// One second's worth of tokens takes one second, to 10^-6, at any rate.
    #[test]
    fn paces() {
        for per_second in [1, 2, 3, 7, 100, 999, 10_000, 999_999, 10_000_000] {
            let ticks = Pace::new(per_second).span(per_second);
            assert!(ticks.abs_diff(SECOND) <= SECOND / 1_000_000, "{per_second}");
            // One by one the rounding adds up; 0.03 % is promised.
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
        let mut level = Level::FULL;
        for _ in 0..3 {
            assert!(level.ready(floor, one) <= NOW);
            level = level.take(floor, one);
        }
        // The next one in 10 ms.
        assert_eq!(level.ready(floor, one), NOW + span(10_000_000));
        // Given back, it is there again.
        assert_eq!(level.refund(one.span).ready(floor, one), NOW);
        assert_eq!(Level::FULL.refund(1), Level::FULL);
    }

    #[test]
    fn larger_than_the_depth_means_debt() {
        let (large, window) = charge(100, 50, 3);
        let floor = NOW - window;
        assert!(Level::FULL.ready(floor, large) <= NOW);
        let level = Level::FULL.take(floor, large);
        // 47 tokens are owed, and a full bucket is needed again.
        assert_eq!(level.ready(floor, large), NOW + span(500_000_000));
    }

    #[test]
    fn forced_debt_is_bounded() {
        let (one, window) = charge(1, 1, 3);
        let (floor, bound) = (NOW - window, NOW + span(10_000_000_000));
        let mut level = Level::FULL;
        for _ in 0..1000 {
            level = level.force(floor, one, bound);
        }
        assert_eq!(level, Level(bound));
        // Debt from elsewhere is not forgiven.
        let deep = Level(bound + 7);
        assert_eq!(deep.force(floor, one, bound), deep);
    }

    /// What forced requests owe gets no longer by a change than the bound, or than it was.
    #[test]
    fn rescaled_debt_is_bounded() {
        let at = |debt| Level(NOW + debt);
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

    /// Only what a forced request owes counts as forced.
    #[test]
    fn forced_debt_is_told_apart() {
        let at = |debt: i64| Level((NOW as i64 + debt) as u64);
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
        // Credit is not owed.
        assert!(Level::FULL.forced(at(-5), at(-2), NOW).0 <= NOW);
    }

    #[test]
    fn rescaling_keeps_the_fraction() {
        let window = |per_second| Pace::new(per_second).span(4);
        for (old, new) in [(1, 1000), (1000, 1), (7, 999), (10_000_000, 1), (5, 5)] {
            let (old, new) = (window(old), window(new));
            for quarter in -40i64..=4 {
                let credit = old as i64 / 4 * quarter;
                let level = Level((NOW as i64 - credit) as u64);
                let got = NOW as i64 - level.rescale(Level::FULL, NOW, old, new, 0).0 as i64;
                let want = new as i64 / 4 * quarter;
                assert!(
                    (got - want).abs() <= new as i64 / 200 + 40,
                    "{quarter} {got} {want}"
                );
            }
            // More than full is full.
            let full = Level::FULL.at_least(NOW - old);
            assert!(NOW - full.rescale(full, NOW, old, new, 0).0 <= new + new / 200);
        }
        // Nothing wraps at the ends.
        assert_eq!(scale(u64::MAX, 1, SPAN_MAX), SPAN_MAX);
        assert_eq!(scale(SPAN_MAX, SPAN_MAX, 1), 1);
        assert_eq!(scale(5, 0, 0), 5);
        assert_eq!(scale(5, 7, 0), 0);
    }
}
