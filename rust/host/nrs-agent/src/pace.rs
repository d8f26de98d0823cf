// SPDX-License-Identifier: GPL-2.0-only

//! Steps at equal intervals, without drift and without bursts.

use std::time::Duration;

/// Schedule of steps.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    delta: u64,
    next: u64,
}

impl Pace {
    /// Creates a schedule: the first step is due at `now`, the next ones every `delta`, both ns.
    pub fn new(now: u64, delta: u64) -> Self {
        Self {
            delta: delta.max(1),
            next: now,
        }
    }

    /// Returns the time until the next step at `now`; `None` if the step is due.
    pub fn left(&self, now: u64) -> Option<Duration> {
        let left = self.next.checked_sub(now).filter(|left| *left > 0);
        left.map(Duration::from_nanos)
    }

    /// Consumes the step that is due at `now`; returns the number of missed steps before it, which
    /// are skipped.
    pub fn take(&mut self, now: u64) -> u64 {
        let missed = now.saturating_sub(self.next) / self.delta;
        self.next += (missed + 1) * self.delta;
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_neither_drift_nor_come_in_bursts() {
        let mut pace = Pace::new(1000, 100);
        // Each step is a little late; the times of the next steps do not change.
        for (now, left) in [(1000, 0), (1007, 93), (1100, 0), (1130, 70)] {
            assert_eq!(pace.left(now).map_or(0, |left| left.as_nanos()), left);
            if left == 0 {
                assert_eq!(pace.take(now), 0);
            }
        }
        // The process was stopped: one step immediately, the next one at its regular time.
        assert_eq!(pace.left(1730), None);
        assert_eq!(pace.take(1730), 5);
        assert_eq!(pace.left(1730), Some(Duration::from_nanos(70)));
    }
}
