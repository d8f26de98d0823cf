// SPDX-License-Identifier: GPL-2.0-only

//! State of one client of an allocator.

use crate::sched::qbm::terms::Entitlement;

/// Highest effective rate, bytes/s (2^48): sums of [`CLIENTS_MAX`] such rates fit in 64 bits.
pub(super) const RATE_MAX: u64 = 1 << 48;

/// Maximum number of clients of an allocator.
pub(super) const CLIENTS_MAX: usize = 1 << 15;

/// Value of `asked` of a client that takes all available bandwidth.
const EVERYTHING: u64 = u64::MAX;

/// Client of an allocator.
///
/// # Invariants
///
/// - `floor <= goal <= cap`, and `allocation <= cap`; also `floor <= allocation`, except for a new
///   client.
/// - `asked` is [`EVERYTHING`], or was less than `before` when requested: the client has reduced
///   its demand.
/// - `wish` is 0, or larger than `allocation` and at most `cap`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocatorClient {
    /// Guaranteed bandwidth.
    pub(super) terms: Entitlement,
    /// Current bandwidth, bytes/s.
    pub(super) allocation: u64,
    /// Bandwidth due to the client: the minimum, or less if less was requested, bytes/s.
    pub(super) goal: u64,
    /// Upper limit of the allocation: the maximum, or less if less was requested, bytes/s.
    pub(super) cap: u64,
    /// Time of the request for the goal; smaller is earlier.
    pub(super) since: u64,
    /// Wanted allocation above the goal, bytes/s; 0 if nothing is wanted.
    pub(super) wish: u64,
    /// Time of the request for `wish`.
    pub(super) wished: u64,
    /// Allocation before everything was reallocated, bytes/s.
    pub(super) had: u64,
    /// Last reported allocation, bytes/s.
    pub(super) reported: u64,
    asked: u64,
    before: u64,
}

impl AllocatorClient {
    /// Creates a client with `terms` that has no allocation and takes all available bandwidth.
    pub(super) fn new(terms: Entitlement, floor: u64, now: u64) -> Self {
        let mut client = Self {
            terms,
            allocation: 0,
            goal: 0,
            cap: 0,
            since: now,
            wish: 0,
            wished: 0,
            had: 0,
            reported: 0,
            asked: EVERYTHING,
            before: 0,
        };
        client.update_goal(floor);
        client
    }

    /// Computes goal and cap from the terms and the requested amount.
    pub(super) fn update_goal(&mut self, floor: u64) {
        let max = self.terms.max.min(RATE_MAX);
        let most = self.asked.min(max);
        self.goal = most.min(self.terms.min).max(floor);
        self.cap = most.max(self.goal);
        self.wish = self.wish.min(self.cap);
        self.clear_met_wish();
    }

    /// Returns true if the client has no allocation yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.allocation == 0
    }

    /// Returns the difference between goal and allocation, if below the goal.
    pub(super) const fn missing(&self) -> u64 {
        self.goal.saturating_sub(self.allocation)
    }

    /// Returns the allocation above the goal.
    pub(super) const fn extra(&self) -> u64 {
        self.allocation.saturating_sub(self.goal)
    }

    /// Returns true if the allocation is below the goal.
    pub(super) const fn is_unmet(&self) -> bool {
        self.allocation < self.goal
    }

    /// Returns true if the goal was met before everything was reallocated.
    pub(super) const fn had_all(&self) -> bool {
        self.had >= self.goal
    }

    /// Returns true if the client wants more than its goal.
    pub(super) const fn wants(&self) -> bool {
        self.wish > 0
    }

    /// Returns the last allocation reported while the client took all available bandwidth.
    pub(super) const fn given(&self) -> u64 {
        if self.asked == EVERYTHING || self.before < self.allocation {
            self.allocation
        } else {
            self.before
        }
    }

    /// Sets the allocation.
    pub(super) fn set(&mut self, allocation: u64) {
        self.allocation = allocation;
        self.clear_met_wish();
    }

    /// Reduces the requested amount to `less`.
    pub(super) fn ask_less(&mut self, less: u64, floor: u64) {
        self.before = self.given();
        self.asked = less;
        self.wish = 0;
        self.update_goal(floor);
    }

    /// Adds `by` to the requested amount or allocation, whichever is larger. At the previous
    /// allocation or more, the client takes all available bandwidth again.
    pub(super) fn ask_more(&mut self, by: u64, floor: u64) {
        if self.asked != EVERYTHING {
            self.asked = self.asked.max(self.allocation).saturating_add(by);
            if self.asked >= self.before {
                self.asked = EVERYTHING;
            }
            self.update_goal(floor);
        }
    }

    /// Makes the client take all available bandwidth again.
    pub(super) fn ask_all(&mut self, floor: u64) {
        self.asked = EVERYTHING;
        self.update_goal(floor);
    }

    /// Clears a wish that has been fulfilled.
    fn clear_met_wish(&mut self) {
        if self.wish <= self.allocation {
            self.wish = 0;
        }
    }
}
