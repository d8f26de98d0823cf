// SPDX-License-Identifier: GPL-2.0-only

//! Which submitters may use all tags of a queue that has few of them.
//!
//! A request of the block layer needs a tag before a scheduler sees it. A submitter that has queued more requests than its share
//! of the tags leaves a part of them, the *reserve*, to others, so that these do not wait where no policy decides.
//!
//! Submitters are told apart by a number below [`SUBMITTERS`]; those with the same number count as one.

use crate::sched::atomic::Word;

/// Numbers of submitters.
pub const SUBMITTERS: usize = 64;

/// Number of no submitter.
pub const NOBODY: u8 = u8::MAX;

/// Requests that each submitter has queued.
pub struct Tags {
    queued: [Word; SUBMITTERS],
    /// Submitters that have some.
    busy: Word,
}

impl Tags {
    /// Creates the count of a queue without requests.
    pub const fn new() -> Self {
        Self {
            queued: [const { Word::new(0) }; SUBMITTERS],
            busy: Word::new(0),
        }
    }

    /// Returns the number of a submitter whose identity has `hash`.
    pub const fn submitter(hash: u64) -> u8 {
        (hash % SUBMITTERS as u64) as u8
    }

    /// Returns the tags that every submitter may use, of `all`: all but the reserve, a quarter of them and at least one.
    pub const fn least(all: u32) -> u32 {
        let reserve = if all / 4 > 1 { all / 4 } else { 1 };
        match all.saturating_sub(reserve) {
            0 => 1,
            least => least,
        }
    }

    /// Counts a request that `submitter` has queued.
    pub fn enter(&self, submitter: u8) {
        if let Some(queued) = self.queued.get(usize::from(submitter)) {
            if queued.add(1) == 0 {
                self.busy.add(1);
            }
        }
    }

    /// Counts a request of `submitter` that is queued no more.
    pub fn leave(&self, submitter: u8) {
        if let Some(queued) = self.queued.get(usize::from(submitter)) {
            if queued.sub(1) == 1 {
                self.busy.sub(1);
            }
        }
    }

    /// Returns whether `submitter` has queued more than its share of `all` tags: an equal part for each submitter that has
    /// queued some, and for one more.
    pub fn is_over(&self, submitter: u8, all: u32) -> bool {
        let queued = self.queued.get(usize::from(submitter));
        let parts = self.busy.get().saturating_add(1);
        queued.is_some_and(|queued| queued.get().saturating_mul(parts) > all.into())
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submitter_alone_may_queue_half() {
        let tags = Tags::new();
        for _ in 0..16 {
            tags.enter(3);
        }
        assert!(!tags.is_over(3, 32));
        tags.enter(3);
        assert!(tags.is_over(3, 32));
        assert!(!tags.is_over(4, 32));
        tags.leave(3);
        assert!(!tags.is_over(3, 32));
    }

    #[test]
    fn shares_shrink_with_submitters_and_grow_again() {
        let tags = Tags::new();
        for _ in 0..12 {
            tags.enter(1);
        }
        tags.enter(2);
        // A third of 32 each.
        assert!(tags.is_over(1, 32));
        assert!(!tags.is_over(2, 32));
        tags.leave(2);
        assert!(!tags.is_over(1, 32));
    }

    #[test]
    fn somebody_else_always_finds_a_tag() {
        for all in 2..=2048 {
            let least = Tags::least(all);
            assert!(least >= 1 && least < all, "{least} of {all}");
            assert!(all - least <= all.div_ceil(4).max(1));
        }
        assert_eq!(Tags::least(1), 1);
    }

    #[test]
    fn nobody_is_counted() {
        let tags = Tags::new();
        tags.enter(NOBODY);
        assert!(!tags.is_over(NOBODY, 0));
        tags.leave(NOBODY);
        assert_eq!(tags.busy.get(), 0);
        assert!(usize::from(Tags::submitter(u64::MAX)) < SUBMITTERS);
    }
}
