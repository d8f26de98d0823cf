// SPDX-License-Identifier: GPL-2.0-only

//! Recent usage of clients, and evaluation of the usage.
//!
//! - A *mark* is the totals of a client at a time that is the same for all clients
//!   ([`ClientTotals`]). The manager's [`MarkTimes`] records the times.
//! - The *window* is the time from a mark to now; it is the fast period and moves by one mark at a
//!   time.
//! - *Slow periods* follow one another, starting when the client joins ([`SlowPeriod`]).
//! - *Allowed* bytes are the bytes that a client could have used in a slow period: the integral of
//!   its rate.

use super::rate::{amount, percent, rate};
use crate::sched::qbm::{gate::Usage, plan::BandwidthParameters, terms::UNREGULATED};

/// Number of stored marks: a fast period of eighths, the current eighth and one before the period.
pub const MARKS: usize = 10;

/// Totals of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Bytes read and written.
    pub bytes: u64,
    /// Periods in which a request waited for tokens.
    pub sleeps: u64,
}

impl ClientTotals {
    /// Extracts the totals from `usage`.
    pub const fn of(usage: &Usage) -> Self {
        Self {
            bytes: usage.bytes(),
            sleeps: usage.sleeps,
        }
    }

    /// Returns the difference to `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }
}

/// Index of a mark and the time of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkTime {
    /// Index in the array of marks.
    pub place: usize,
    /// Time of the mark, monotonic ns.
    pub time: u64,
}

/// Times of the marks, common to all clients.
pub struct MarkTimes {
    times: [u64; MARKS],
    last: usize,
    made: usize,
}

impl MarkTimes {
    /// Creates a clock without marks.
    pub const fn new() -> Self {
        Self {
            times: [0; MARKS],
            last: 0,
            made: 0,
        }
    }

    /// Returns the start of the window that ends at `now`: the youngest mark that is at least
    /// `fast` ns old, or else the oldest mark. `None` before the first mark.
    pub fn window(&self, now: u64, fast: u64) -> Option<MarkTime> {
        let mut found = None;
        let mut place = self.last;
        for _ in 0..self.made {
            let time = self.times.get(place).copied()?;
            found = Some(MarkTime { place, time });
            if now.saturating_sub(time) >= fast {
                break;
            }
            place = place.checked_sub(1).unwrap_or(MARKS.wrapping_sub(1));
        }
        found
    }

    /// Returns the time of the last mark, monotonic ns; 0 before the first.
    pub fn last(&self) -> u64 {
        self.times.get(self.last).copied().unwrap_or(0)
    }

    /// Creates a mark at `now`. Returns the index at which all clients store their totals, or
    /// `None` if the last mark is younger than an eighth of `fast`.
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

/// Usage of a client in the fast period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastUsage {
    /// Average rate, bytes/s.
    pub rate: u64,
    /// True if requests waited for tokens in enough periods to trigger a restore.
    pub slept: bool,
}

/// Result of a slow period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageLevel {
    /// High usage: the client could use more.
    Much,
    /// Medium usage: the allocation fits.
    Enough,
    /// Low usage: the client could do with less.
    Little,
}

/// Slow period of a client.
#[derive(Clone, Copy, Debug)]
pub struct SlowPeriod {
    since: u64,
    bytes: u64,
    allowed: u64,
    /// Time up to which `allowed` is integrated, monotonic ns.
    summed: u64,
    /// Usage in the previous slow period, bytes/s; `None` in the first.
    before: Option<u64>,
}

impl SlowPeriod {
    /// Starts the first slow period at `now`, without usage.
    pub const fn new(now: u64) -> Self {
        Self {
            since: now,
            bytes: 0,
            allowed: 0,
            summed: now,
            before: None,
        }
    }

    /// Adds the bytes allowed until `now` at `rate` bytes/s. To be called before each change of the
    /// rate.
    pub fn allow(&mut self, rate: u64, now: u64) {
        if rate != UNREGULATED {
            let more = amount(rate, now.saturating_sub(self.summed));
            self.allowed = self.allowed.saturating_add(more);
        }
        self.summed = now;
    }

    /// Returns true if the slow period is over.
    pub const fn is_over(&self, now: u64, tuning: &BandwidthParameters) -> bool {
        now.saturating_sub(self.since) >= tuning.slow
    }

    /// Ends the slow period of a client with a total of `bytes`, and starts the next.
    pub fn end(&mut self, bytes: u64, now: u64, tuning: &BandwidthParameters) -> UsageLevel {
        let used = bytes.saturating_sub(self.bytes);
        let verdict = if used >= percent(self.allowed, tuning.high) {
            UsageLevel::Much
        } else if used < percent(self.allowed, tuning.low) {
            UsageLevel::Little
        } else {
            UsageLevel::Enough
        };
        let before = Some(rate(used, now.saturating_sub(self.since)));
        *self = Self {
            bytes,
            before,
            ..Self::new(now)
        };
        verdict
    }

    /// Returns the usage in the last complete slow period, or in the current period if there is
    /// none, bytes/s.
    pub fn rate(&self, bytes: u64, now: u64) -> u64 {
        let used = bytes.saturating_sub(self.bytes);
        self.before
            .unwrap_or_else(|| rate(used, now.saturating_sub(self.since)))
    }
}

/// Usage of a client.
#[derive(Clone, Copy, Debug)]
pub struct RecentUsage {
    marks: [ClientTotals; MARKS],
    /// Totals at the last look.
    pub total: ClientTotals,
    /// Totals at the last mark.
    last: ClientTotals,
    /// Usage in the fast period before the last look.
    pub fast: FastUsage,
    /// Current slow period.
    pub slow: SlowPeriod,
    joined: u64,
}

impl RecentUsage {
    /// Creates an empty record that starts at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            marks: [ClientTotals::default(); MARKS],
            total: ClientTotals::default(),
            last: ClientTotals::default(),
            fast: FastUsage::default(),
            slow: SlowPeriod::new(now),
            joined: now,
        }
    }

    /// Starts a new slow period at `now`, and discards the current one.
    pub fn begin(&mut self, now: u64) {
        self.slow = SlowPeriod {
            bytes: self.total.bytes,
            before: self.slow.before,
            ..SlowPeriod::new(now)
        };
    }

    /// Updates the totals at `now`, for a window that starts at `window`.
    pub fn update(
        &mut self,
        total: ClientTotals,
        window: Option<MarkTime>,
        now: u64,
        tuning: &BandwidthParameters,
    ) {
        let (before, since) = match window {
            // All marks before the client joined are 0.
            Some(moment) => (
                self.marks.get(moment.place).copied().unwrap_or_default(),
                moment.time.max(self.joined),
            ),
            None => (ClientTotals::default(), self.joined),
        };
        let used = total.since(&before);
        let span = now.saturating_sub(since);
        self.fast = FastUsage {
            rate: rate(used.bytes, span),
            slept: slept(used.sleeps, span, tuning),
        };
        self.total = total;
    }

    /// Stores the totals of the last look as the mark at index `place`; returns the difference to
    /// the previous mark.
    pub fn mark(&mut self, place: usize) -> ClientTotals {
        if let Some(mark) = self.marks.get_mut(place) {
            *mark = self.total;
        }
        let added = self.total.since(&self.last);
        self.last = self.total;
        added
    }
}

/// Returns true if `sleeps` is a sufficient share of the periods in `span` ns; a shorter span
/// counts as a fast period.
fn slept(sleeps: u64, span: u64, tuning: &BandwidthParameters) -> bool {
    let time = sleeps.saturating_mul(tuning.period);
    sleeps > 0 && time >= percent(span.max(tuning.fast), tuning.sleep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::units::NSEC_PER_MSEC as MS;

    const START: u64 = 5_000 * MS;

    /// Simulates ticks at these distances, cyclically, ms; returns the times and the lengths of the
    /// windows.
    fn windows(distances: &[u64]) -> Vec<(u64, u64)> {
        let tuning = BandwidthParameters::default();
        let mut clock = MarkTimes::new();
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
        let tuning = BandwidthParameters::default();
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
        let tuning = BandwidthParameters::default();
        for (percent, want) in [
            (100, UsageLevel::Much),
            (80, UsageLevel::Much),
            (79, UsageLevel::Enough),
            (60, UsageLevel::Enough),
            (59, UsageLevel::Little),
            (0, UsageLevel::Little),
        ] {
            let mut slow = SlowPeriod::new(START);
            // Half of the time at each of two rates.
            slow.allow(1_000_000, START + 15_000 * MS);
            let end = START + 30_000 * MS;
            assert!(!slow.is_over(end - 1, &tuning) && slow.is_over(end, &tuning));
            slow.allow(3_000_000, end);
            let used = 60_000_000 / 100 * percent;
            assert_eq!(slow.end(used, end, &tuning), want, "{percent}");
            assert_eq!(slow.rate(used, end), used / 30);
            // The next slow period is independent.
            slow.allow(1_000_000, end + 30_000 * MS);
            let verdict = slow.end(used + 30_000_000, end + 30_000 * MS, &tuning);
            assert_eq!(verdict, UsageLevel::Much);
        }
    }

    #[test]
    fn the_fast_rate_of_a_newcomer() {
        let tuning = BandwidthParameters::default();
        let mut clock = MarkTimes::new();
        clock.mark(START, tuning.fast);
        let mut recent = RecentUsage::new(START + 100 * MS);
        let now = START + 200 * MS;
        let total = ClientTotals {
            bytes: 1_000_000,
            sleeps: 2,
        };
        let window = clock.window(now, tuning.fast);
        recent.update(total, window, now, &tuning);
        assert_eq!(recent.mark(0), total);
        assert_eq!(recent.fast.rate, 10_000_000);
        assert!(!recent.fast.slept);
    }
}
