// SPDX-License-Identifier: GPL-2.0-only

//! Recovery: clients come back after the server was away.
//!
//! # Vocabulary
//!
//! - *Window*: the time in which clients may come back; every one that does moves its end.
//! - *Largest*: the largest timeout that a client stated when it came back.
//!
//! ```text
//!            begin                 now >= ends
//!   none ─────────────► window ─────────────────► over
//!                       │    ▲                     │
//!                       └────┘ join: the end       │ join: another window
//!                              moves, never back   ▼
//! ```
//!
//! A client notices that the server is back only after its own timeout, which may be large, so the window
//! follows the largest one seen (Barton and Rutman, *Adaptive RPC Timeouts*, 2007, section 5.1). What
//! requests wait for meanwhile says nothing about the service, and is not measured.

use super::terms::{millis, AtMax, Mode, Terms};

/// Shortest time that an early reply grants, ms.
const SHORTEST: u32 = 1000;

/// A time in which clients may come back.
///
/// # Invariants
///
/// Between [`Recovery::begin`] and the end, `ends` never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    ends: u64,
    largest: u32,
    clients: u32,
}

impl Recovery {
    /// No window.
    pub const fn new() -> Self {
        Self {
            ends: 0,
            largest: 0,
            clients: 0,
        }
    }

    /// A window begins at `now`, as long as a timeout of the initial estimate; one that is there goes on.
    pub fn begin(&mut self, now: u64, terms: &Terms) {
        let ends = if self.is_over(now) { 0 } else { self.ends };
        *self = Self {
            // INVARIANT: not earlier than that of a window that goes on.
            ends: ends.max(now.saturating_add(self.window(terms).into())),
            ..Self::new()
        };
    }

    /// A client is back at `now`, with a `timeout` of its own, ms. Returns when the window ends, ms. It begins
    /// with the client if there is none.
    pub fn join(&mut self, now: u64, timeout: u32, terms: &Terms) -> u64 {
        if self.is_over(now) {
            *self = Self::new();
        }
        self.clients = self.clients.saturating_add(1);
        // One that cannot be says nothing.
        if timeout != u32::MAX {
            self.largest = self.largest.max(timeout);
        }
        // INVARIANT: the later one.
        let ends = now.saturating_add(self.window(terms).into());
        self.ends = self.ends.max(ends);
        self.ends
    }

    /// Whether there is no window at `now`.
    pub const fn is_over(&self, now: u64) -> bool {
        now >= self.ends
    }

    /// When the window ends, ms; 0: there was none.
    pub const fn ends(&self) -> u64 {
        self.ends
    }

    /// Clients that came back in it.
    pub const fn clients(&self) -> u32 {
        self.clients
    }

    /// The largest timeout that one stated, ms.
    pub const fn largest(&self) -> u32 {
        self.largest
    }

    /// What an early reply grants meanwhile, ms: `at_extra` or a quarter of the window.
    pub fn extra(&self, terms: &Terms) -> u32 {
        let quarter = self.window(terms) / 4;
        quarter.min(millis(terms.extra.get())).max(SHORTEST)
    }

    /// How long the window is after a client came, ms.
    fn window(&self, terms: &Terms) -> u32 {
        let largest = self.largest.max(millis(terms.initial.get()));
        match terms.mode() {
            Mode::Adaptive => terms.timeout(largest),
            Mode::Fixed => terms.timeout(0).max(self.largest.min(millis(AtMax::MAX))),
            Mode::Off => 0,
        }
    }
}

#[cfg(test)]
mod tests;
