// SPDX-License-Identifier: GPL-2.0-only

//! Recovery window: clients reconnect after a server outage.
//!
//! ```text
//!            join                  now >= ends
//!   none ─────────────► window ─────────────────► over
//!                       │    ▲                     │
//!                       └────┘ join: the end       │ join: another window
//!                              moves, never back   ▼
//! ```
//!
//! A client detects the recovery of the server only after its own timeout, which may be large. So
//! the window follows the largest timeout seen (Barton and Rutman, *Adaptive RPC Timeouts*, 2007,
//! section 5.1). Waiting times in the window do not reflect the service and are not measured.

use super::terms::{millis, AtMax, TimeoutMode, TimeoutTerms};
use crate::sched::count::Count;

/// Minimum extension of an early reply, ms.
const SHORTEST: u32 = 1000;

/// Window in which clients may reconnect.
///
/// # Invariants
///
/// `ends` never decreases before the window ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    ends: u64,
    largest: u32,
    clients: u32,
}

impl Recovery {
    /// Creates a state without a window.
    pub const fn new() -> Self {
        Self {
            ends: 0,
            largest: 0,
            clients: 0,
        }
    }

    /// Adds a client that reconnects at `now` with its own `timeout`, ms, and opens a window if
    /// there is none. Returns the end of the window, ms.
    pub fn join(&mut self, now: u64, timeout: u32, terms: &TimeoutTerms) -> u64 {
        if self.is_over(now) {
            *self = Self::new();
        }
        self.clients.count(1);
        // An invalid timeout is ignored.
        if timeout != u32::MAX {
            self.largest = self.largest.max(timeout);
        }
        // INVARIANT: the end is the later of both.
        let ends = now.saturating_add(self.window(terms).into());
        self.ends = self.ends.max(ends);
        self.ends
    }

    /// Returns true if there is no window at `now`.
    pub const fn is_over(&self, now: u64) -> bool {
        now >= self.ends
    }

    /// Returns the end of the window, ms; 0 if there was none.
    pub const fn ends(&self) -> u64 {
        self.ends
    }

    /// Returns the number of clients that reconnected in the window.
    pub const fn clients(&self) -> u32 {
        self.clients
    }

    /// Returns the largest timeout stated by a client, ms.
    pub const fn largest(&self) -> u32 {
        self.largest
    }

    /// Returns the extension of an early reply in the window, ms: a quarter of the window, at most
    /// `at_extra` and at least 1 s.
    pub fn extra(&self, terms: &TimeoutTerms) -> u32 {
        let quarter = self.window(terms) / 4;
        quarter.min(millis(terms.extra.get())).max(SHORTEST)
    }

    /// Returns the length of the window after a client reconnects, ms.
    fn window(&self, terms: &TimeoutTerms) -> u32 {
        let largest = self.largest.max(millis(terms.initial.get()));
        match terms.mode() {
            TimeoutMode::Adaptive => terms.timeout(largest),
            TimeoutMode::Fixed => terms.timeout(0).max(self.largest.min(millis(AtMax::MAX))),
            TimeoutMode::Off => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::timeouts::terms::{AtExtra, ObdTimeout};

    fn terms(max: u32, fixed: u32) -> TimeoutTerms {
        TimeoutTerms {
            max: AtMax::new(max).unwrap(),
            fixed: ObdTimeout::new(fixed).unwrap(),
            ..TimeoutTerms::default()
        }
    }

    /// Checks the end, the largest timeout and the clients of the window after each client.
    #[test]
    fn windows() {
        let mut recovery = Recovery::new();
        assert!(recovery.is_over(0) && recovery.is_over(u64::MAX));
        for (now, timeout, ends, largest, clients) in [
            // At least the timeout of at_initial.
            (1000, 0, 18_500, 0, 1),
            (2000, 17_500, 28_875, 17_500, 2),
            // A smaller timeout moves the end as the largest one does.
            (3000, 5000, 29_875, 17_500, 3),
            (4000, u32::MAX, 30_875, 17_500, 4),
            // The end never moves back.
            (1000, 100, 30_875, 17_500, 5),
            (6000, 100_000, 136_000, 100_000, 6),
            // No client waits longer than the timeout of at_max.
            (7000, 4_000_000, 762_000, 4_000_000, 7),
            // After the end, another window begins.
            (762_000, 20_000, 792_000, 20_000, 1),
            (u64::MAX, 20_000, u64::MAX, 20_000, 1),
        ] {
            assert_eq!(recovery.join(now, timeout, &terms(600, 100)), ends);
            assert_eq!((recovery.ends(), recovery.largest()), (ends, largest));
            assert_eq!(recovery.clients(), clients, "{now} {timeout}");
            assert!(!recovery.is_over(ends - 1) && recovery.is_over(ends));
        }
    }

    #[test]
    fn other_modes() {
        let mut recovery = Recovery::new();
        for (timeout, ends) in [
            (50_000, 100_000),
            (250_000, 250_000),
            (u32::MAX - 1, 3_600_000),
        ] {
            assert_eq!(recovery.join(0, timeout, &terms(0, 100)), ends);
        }
        let mut recovery = Recovery::new();
        assert_eq!(recovery.join(7, 50_000, &terms(0, 0)), 7);
        assert!(recovery.is_over(7));
    }

    #[test]
    fn what_early_replies_grant() {
        for (extra, timeout, want) in [
            // A quarter of 17.5 s, of 67.5 s, and at most at_extra.
            (30, 0, 4375),
            (30, 50_000, 16_875),
            (30, 500_000, 30_000),
            (2, 50_000, 2000),
            (1, 0, 1000),
        ] {
            let terms = TimeoutTerms {
                extra: AtExtra::new(extra).unwrap(),
                ..TimeoutTerms::default()
            };
            let mut recovery = Recovery::new();
            recovery.join(0, timeout, &terms);
            assert_eq!(recovery.extra(&terms), want);
        }
        assert_eq!(Recovery::new().extra(&terms(0, 0)), 1000);
    }
}
