// SPDX-License-Identifier: GPL-2.0-only

//! Four bins that age.

/// Bins of a history.
pub const BINS: usize = 4;

/// A history in bins of the same length.
///
/// # Invariants
///
/// Bins are in the order of time, newest first; the newest one began at `start`.
pub(super) struct Bins<T> {
    bins: [T; BINS],
    start: u64,
}

impl<T> Bins<T> {
    /// A history that began when the clock did.
    pub(super) const fn new(empty: [T; BINS]) -> Self {
        Self {
            bins: empty,
            start: 0,
        }
    }

    /// The newest bin begins at `now`.
    pub(super) const fn begin(&mut self, now: u64) {
        self.start = now;
    }

    /// Forgets what is too old at `now`, for bins of `width` ms, at least 1. A clock that ran backwards
    /// changes nothing.
    pub(super) fn age(&mut self, now: u64, width: u32, mut empty: impl FnMut() -> T) {
        let width = u64::from(width.max(1));
        let passed = now
            .saturating_sub(self.start)
            .checked_div(width)
            .unwrap_or(0);
        if passed == 0 {
            return;
        }
        // INVARIANT: the oldest bin comes first, empty, and the others move up.
        for _ in 0..passed.min(BINS as u64) {
            self.bins.rotate_right(1);
            *self.newest() = empty();
        }
        // At most `now`.
        self.start = self.start.saturating_add(passed.saturating_mul(width));
    }

    /// When the newest bin ends, ms.
    pub(super) fn ends(&self, width: u32) -> u64 {
        self.start.saturating_add(width.max(1).into())
    }

    /// The newest bin.
    pub(super) const fn newest(&mut self) -> &mut T {
        let [newest, ..] = &mut self.bins;
        newest
    }

    /// All bins, newest first.
    pub(super) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.bins.iter()
    }
}
