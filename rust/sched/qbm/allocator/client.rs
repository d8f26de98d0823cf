// SPDX-License-Identifier: GPL-2.0-only

//! What an allocator knows of one client.

use crate::sched::qbm::terms::Terms;

/// Rates above this count as this, bytes/s (2^48): the sums of [`CLIENTS_MAX`] of them fit in 64 bits.
pub(super) const RATE_MAX: u64 = 1 << 48;

/// Clients of one allocator, at most.
pub(super) const CLIENTS_MAX: usize = 1 << 15;

/// What a client asks for that takes whatever it gets.
const EVERYTHING: u64 = u64::MAX;

/// One client.
///
/// # Invariants
///
/// - `floor <= goal <= cap`, and `allocation <= cap`; also `floor <= allocation`, or it has nothing yet.
/// - `asked` is [`EVERYTHING`], or was less than `before` when it was asked for: the client does with less.
/// - `wish` is 0 or more than `allocation`, and not above `cap`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// What it is promised.
    pub(super) terms: Terms,
    /// What it has, bytes/s.
    pub(super) allocation: u64,
    /// What it is to have: its minimum, or less if it asked for less, bytes/s.
    pub(super) goal: u64,
    /// What it never has more than: its maximum, or less if it asked for less, bytes/s.
    pub(super) cap: u64,
    /// When it asked for its goal; smaller is earlier.
    pub(super) since: u64,
    /// What it wants to have, above its goal, as soon as there is more; 0: nothing.
    pub(super) wish: u64,
    /// When it asked for that.
    pub(super) wished: u64,
    /// What it had before everything was given out anew.
    pub(super) had: u64,
    /// What was said last that it has.
    pub(super) reported: u64,
    asked: u64,
    before: u64,
}

impl Client {
    /// A client of `terms` that has nothing and asks for everything.
    pub(super) fn new(terms: Terms, floor: u64, now: u64) -> Self {
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
        client.aim(floor);
        client
    }

    /// Computes goal and cap from terms and what was asked for.
    pub(super) fn aim(&mut self, floor: u64) {
        let max = self.terms.max.min(RATE_MAX);
        let most = self.asked.min(max);
        self.goal = most.min(self.terms.min).max(floor);
        self.cap = most.max(self.goal);
        self.wish = self.wish.min(self.cap);
        self.come_true();
    }

    /// Whether it has nothing yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.allocation == 0
    }

    /// What it has below its goal.
    pub(super) const fn missing(&self) -> u64 {
        self.goal.saturating_sub(self.allocation)
    }

    /// What it has above its goal.
    pub(super) const fn extra(&self) -> u64 {
        self.allocation.saturating_sub(self.goal)
    }

    /// Whether it has less than its goal.
    pub(super) const fn is_unmet(&self) -> bool {
        self.allocation < self.goal
    }

    /// Whether it had its goal before everything was given out anew.
    pub(super) const fn had_all(&self) -> bool {
        self.had >= self.goal
    }

    /// Whether it waits for more than its goal.
    pub(super) const fn wants(&self) -> bool {
        self.wish > 0
    }

    /// The last amount that it was told while it took all it could get.
    pub(super) const fn given(&self) -> u64 {
        if self.asked == EVERYTHING || self.before < self.allocation {
            self.allocation
        } else {
            self.before
        }
    }

    /// Sets what it has.
    pub(super) fn set(&mut self, allocation: u64) {
        self.allocation = allocation;
        self.come_true();
    }

    /// Does with `less` than it has.
    pub(super) fn ask_less(&mut self, less: u64, floor: u64) {
        self.before = self.given();
        self.asked = less;
        self.wish = 0;
        self.aim(floor);
    }

    /// Has use for `by` more than it asked for, or has; for everything again, if that is what it was told before.
    pub(super) fn ask_more(&mut self, by: u64, floor: u64) {
        if self.asked != EVERYTHING {
            self.asked = self.asked.max(self.allocation).saturating_add(by);
            if self.asked >= self.before {
                self.asked = EVERYTHING;
            }
            self.aim(floor);
        }
    }

    /// Takes whatever it gets again.
    pub(super) fn ask_all(&mut self, floor: u64) {
        self.asked = EVERYTHING;
        self.aim(floor);
    }

    /// Forgets a wish that has come true.
    fn come_true(&mut self) {
        if self.wish <= self.allocation {
            self.wish = 0;
        }
    }
}
