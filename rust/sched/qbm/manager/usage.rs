// SPDX-License-Identifier: GPL-2.0-only

//! What a client used of late, and what follows from it.
//!
//! # Vocabulary
//!
//! - *Mark*: a client's totals at a moment that is the same for all clients ([`Mark`]); the manager's
//!   [`Clock`] knows the moments.
//! - *Window*: from a mark to now: the fast period, which slides by a mark.
//! - *Slow period*: follows the one before it, from when the client joined on ([`Slow`]).
//! - *Allowed*: what a client could have used in a slow period: what it had, as long as it had it.

use super::rate::{amount, percent, rate};
use crate::sched::qbm::{gate::Usage, plan::Tuning, terms::UNREGULATED};

/// Marks that are kept: a fast period of eighths, the eighth that is running, and one before.
pub const MARKS: usize = 10;

/// A client's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Bytes both ways.
    pub bytes: u64,
    /// Periods slept in.
    pub sleeps: u64,
}

impl Mark {
    /// Returns the totals of a client with this `usage`.
    pub const fn of(usage: &Usage) -> Self {
        Self {
            bytes: usage.bytes(),
            sleeps: usage.sleeps,
        }
    }

    /// What was added since `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }
}

/// A place in the array of marks, and the moment of the mark in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Which mark.
    pub place: usize,
    /// When it was made, monotonic ns.
    pub time: u64,
}

/// When marks were made; the same for all clients.
pub struct Clock {
    times: [u64; MARKS],
    last: usize,
    made: usize,
}

impl Clock {
    /// No mark.
    pub const fn new() -> Self {
        Self {
            times: [0; MARKS],
            last: 0,
            made: 0,
        }
    }

    /// The moment from which on the window of `fast` ns up to `now` goes: the youngest mark that is as old,
    /// or else the oldest. `None` before the first mark.
    pub fn window(&self, now: u64, fast: u64) -> Option<Moment> {
        let mut found = None;
        let mut place = self.last;
        for _ in 0..self.made {
            let time = self.times.get(place).copied()?;
            found = Some(Moment { place, time });
            if now.saturating_sub(time) >= fast {
                break;
            }
            place = place.checked_sub(1).unwrap_or(MARKS.wrapping_sub(1));
        }
        found
    }

    /// When the last mark was made, monotonic ns; 0 before the first.
    pub fn last(&self) -> u64 {
        self.times.get(self.last).copied().unwrap_or(0)
    }

    /// The place where all clients are to note their totals at `now`; `None` if the last mark is younger
    /// than an eighth of `fast`.
    pub fn mark(&mut self, now: u64, fast: u64) -> Option<usize> {
        if self.made > 0 && now.saturating_sub(self.last()) < fast / 8 {
            return None;
        }
        self.last = match self.last.saturating_add(1) {
            MARKS => 0,
            next => next,
        };
        self.made = self.made.saturating_add(1).min(MARKS);
        *self.times.get_mut(self.last)? = now;
        Some(self.last)
    }
}

/// What a client did in the fast period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fast {
    /// What it used, bytes/s.
    pub rate: u64,
    /// Whether it slept in so many of the periods that it wants back what it gave up.
    pub slept: bool,
}

/// What a client's slow period says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It used most of what it had: it could do with more.
    Much,
    /// It used enough of it.
    Enough,
    /// It could do with less.
    Little,
}

/// A slow period.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    since: u64,
    bytes: u64,
    allowed: u64,
    /// Up to when `allowed` is summed up, monotonic ns.
    summed: u64,
    /// What was used in the one before, bytes/s; `None` in the first.
    before: Option<u64>,
}

impl Slow {
    /// The first one, from `now` on; nothing was used before.
    pub const fn new(now: u64) -> Self {
        Self {
            since: now,
            bytes: 0,
            allowed: 0,
            summed: now,
            before: None,
        }
    }

    /// Sums up what was allowed until `now`, at `rate` bytes/s. To be told before the rate changes.
    pub fn allow(&mut self, rate: u64, now: u64) {
        if rate != UNREGULATED {
            let more = amount(rate, now.saturating_sub(self.summed));
            self.allowed = self.allowed.saturating_add(more);
        }
        self.summed = now;
    }

    /// Whether the period is over.
    pub const fn is_over(&self, now: u64, tuning: &Tuning) -> bool {
        now.saturating_sub(self.since) >= tuning.slow
    }

    /// Ends the period of a client that has used `bytes` ever; the next one begins.
    pub fn end(&mut self, bytes: u64, now: u64, tuning: &Tuning) -> Verdict {
        let used = bytes.saturating_sub(self.bytes);
        let verdict = if used >= percent(self.allowed, tuning.high) {
            Verdict::Much
        } else if used < percent(self.allowed, tuning.low) {
            Verdict::Little
        } else {
            Verdict::Enough
        };
        let before = Some(rate(used, now.saturating_sub(self.since)));
        *self = Self {
            bytes,
            before,
            ..Self::new(now)
        };
        verdict
    }

    /// What was used in the last whole period, or in this one while it is the first, bytes/s.
    pub fn rate(&self, bytes: u64, now: u64) -> u64 {
        let used = bytes.saturating_sub(self.bytes);
        self.before
            .unwrap_or_else(|| rate(used, now.saturating_sub(self.since)))
    }
}

/// What a client used.
#[derive(Clone, Copy, Debug)]
pub struct Recent {
    marks: [Mark; MARKS],
    /// The totals at the last look.
    pub total: Mark,
    /// Those at the last mark.
    last: Mark,
    /// What it did in the fast period up to then.
    pub fast: Fast,
    /// Its slow period.
    pub slow: Slow,
    joined: u64,
}

impl Recent {
    /// Nothing, from `now` on.
    pub fn new(now: u64) -> Self {
        Self {
            marks: [Mark::default(); MARKS],
            total: Mark::default(),
            last: Mark::default(),
            fast: Fast::default(),
            slow: Slow::new(now),
            joined: now,
        }
    }

    /// Begins a slow period at `now`; what was before is another matter.
    pub fn begin(&mut self, now: u64) {
        self.slow = Slow {
            bytes: self.total.bytes,
            before: self.slow.before,
            ..Slow::new(now)
        };
    }

    /// Looks at the totals at `now`; the window begins at `window`.
    pub fn look(&mut self, total: Mark, window: Option<Moment>, now: u64, tuning: &Tuning) {
        let (before, since) = match window {
            // What was before it joined is 0 in all marks.
            Some(moment) => (
                self.marks.get(moment.place).copied().unwrap_or_default(),
                moment.time.max(self.joined),
            ),
            None => (Mark::default(), self.joined),
        };
        let used = total.since(&before);
        let span = now.saturating_sub(since);
        self.fast = Fast {
            rate: rate(used.bytes, span),
            slept: slept(used.sleeps, span, tuning),
        };
        self.total = total;
    }

    /// Notes the totals of the last look as the mark in `place`; returns what was added since the mark
    /// before.
    pub fn mark(&mut self, place: usize) -> Mark {
        if let Some(mark) = self.marks.get_mut(place) {
            *mark = self.total;
        }
        let added = self.total.since(&self.last);
        self.last = self.total;
        added
    }
}

/// Whether `sleeps` periods are enough of those in `span` ns, which counts as a fast period at least.
fn slept(sleeps: u64, span: u64, tuning: &Tuning) -> bool {
    let time = sleeps.saturating_mul(tuning.period);
    sleeps > 0 && time >= percent(span.max(tuning.fast), tuning.sleep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

    const START: u64 = 5_000 * MS;

    /// Ticks at these distances, in turn, ms.
    fn windows(distances: &[u64]) -> Vec<(u64, u64)> {
        let tuning = Tuning::default();
        let mut clock = Clock::new();
        let mut now = START;
        let mut spans = Vec::new();
        for distance in distances.iter().cycle().take(400) {
            let window = clock.window(now, tuning.fast);
            if let Some(moment) = window {
                spans.push((now, now - moment.time));
            }
            clock.mark(now, tuning.fast);
            now += distance * MS;
        }
        spans
    }

    #[test]
    fn windows_are_a_fast_period_and_a_bit() {
        for distances in [
            &[200][..],
            &[199],
            &[201],
            &[1],
            &[17, 200, 3],
            &[40],
            &[124, 126],
        ] {
            for (now, span) in windows(distances) {
                if now >= START + 1_400 * MS {
                    assert!(
                        (1_000 * MS..=1_250 * MS).contains(&span),
                        "{distances:?} {span}"
                    );
                }
            }
        }
    }

    #[test]
    fn half_of_the_periods() {
        let tuning = Tuning::default();
        for (sleeps, span, want) in [
            (0, 0, false),
            (12, 1_000, false),
            (13, 1_000, true),
            (13, 200, true),
            (13, 1_200, false),
            (15, 1_200, true),
        ] {
            assert_eq!(slept(sleeps, span * MS, &tuning), want, "{sleeps} {span}");
        }
    }

    #[test]
    fn slow_periods() {
        let tuning = Tuning::default();
        for (percent, want) in [
            (100, Verdict::Much),
            (80, Verdict::Much),
            (79, Verdict::Enough),
            (60, Verdict::Enough),
            (59, Verdict::Little),
            (0, Verdict::Little),
        ] {
            let mut slow = Slow::new(START);
            // Half of the time at one rate, half at another.
            slow.allow(1_000_000, START + 15_000 * MS);
            let end = START + 30_000 * MS;
            assert!(!slow.is_over(end - 1, &tuning) && slow.is_over(end, &tuning));
            slow.allow(3_000_000, end);
            let used = 60_000_000 / 100 * percent;
            assert_eq!(slow.end(used, end, &tuning), want, "{percent}");
            assert_eq!(slow.rate(used, end), used / 30);
            // The next one counts for itself.
            slow.allow(1_000_000, end + 30_000 * MS);
            let verdict = slow.end(used + 30_000_000, end + 30_000 * MS, &tuning);
            assert_eq!(verdict, Verdict::Much);
        }
    }

    #[test]
    fn the_fast_rate_of_a_newcomer() {
        let tuning = Tuning::default();
        let mut clock = Clock::new();
        clock.mark(START, tuning.fast);
        let mut recent = Recent::new(START + 100 * MS);
        let now = START + 200 * MS;
        let total = Mark {
            bytes: 1_000_000,
            sleeps: 2,
        };
        let window = clock.window(now, tuning.fast);
        recent.look(total, window, now, &tuning);
        assert_eq!(recent.mark(0), total);
        assert_eq!(recent.fast.rate, 10_000_000);
        assert!(!recent.fast.slept);
    }
}
