// SPDX-License-Identifier: GPL-2.0-only

//! Which submitters may use all tags of a queue that has few of them.
//!
//! A request of the block layer needs a tag before a scheduler sees it. A submitter that has more than its share of the tags is
//! confined to half of them, so that other submitters do not wait for a tag, where no policy decides.
//!
//! Submitters are told apart by a number below [`SUBMITTERS`]; those with the same number count as one.

use crate::sched::atomic::Word;

/// Numbers of submitters.
pub const SUBMITTERS: usize = 64;

/// Number of no submitter.
pub const NOBODY: u8 = u8::MAX;

/// Tags that each submitter has, as far as they are counted.
pub struct Tags {
    counts: [Word; SUBMITTERS],
    /// Submitters that have some.
    busy: Word,
    /// Tags of all submitters.
    total: Word,
}

impl Tags {
    /// Creates the count of a queue without requests.
    pub const fn new() -> Self {
        Self {
            counts: [const { Word::new(0) }; SUBMITTERS],
            busy: Word::new(0),
            total: Word::new(0),
        }
    }

    /// Returns the number of a submitter whose identity has `hash`.
    pub const fn submitter(hash: u64) -> u8 {
        const { assert!(SUBMITTERS == 1 << 6) };
        hash as u8 & 0x3f
    }

    /// Returns the tags, of `all`, that a submitter with more than its share may use.
    pub const fn least(all: u32) -> u32 {
        match all / 2 {
            0 => 1,
            half => half,
        }
    }

    /// Counts a tag of `submitter`.
    pub fn enter(&self, submitter: u8) {
        if let Some(count) = self.counts.get(usize::from(submitter)) {
            self.total.add(1);
            if count.add(1) == 0 {
                self.busy.add(1);
            }
        }
    }

    /// Counts a tag that `submitter` has given back.
    pub fn leave(&self, submitter: u8) {
        if let Some(count) = self.counts.get(usize::from(submitter)) {
            self.total.sub(1);
            if count.sub(1) == 1 {
                self.busy.sub(1);
            }
        }
    }

    /// Returns whether half of `all` tags are counted: nobody waits for a tag before.
    #[inline]
    pub fn are_few(&self, all: u32) -> bool {
        self.total.get() >= u64::from(all / 2)
    }

    /// Returns whether `submitter` has more than its share of `all` tags: an equal part for each submitter that has some, while
    /// half of a part stays free.
    pub fn is_over(&self, submitter: u8, all: u32) -> bool {
        let count = self.counts.get(usize::from(submitter));
        let halves = self.busy.get().saturating_mul(2).saturating_add(1);
        let twice = u64::from(all).saturating_mul(2);
        count.is_some_and(|count| count.get().saturating_mul(halves) > twice)
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

    fn with(counts: &[(u8, u32)]) -> Tags {
        let tags = Tags::new();
        for (submitter, count) in counts {
            for _ in 0..*count {
                tags.enter(*submitter);
            }
        }
        tags
    }

    #[test]
    fn a_submitter_alone_may_have_two_thirds() {
        let tags = with(&[(3, 20)]);
        assert!(!tags.is_over(3, 30));
        tags.enter(3);
        assert!(tags.is_over(3, 30));
        assert!(!tags.is_over(4, 30));
        tags.leave(3);
        assert!(!tags.is_over(3, 30));
    }

    #[test]
    fn shares_shrink_with_submitters_and_grow_again() {
        let tags = with(&[(1, 10), (2, 1)]);
        // Two fifths of 16 each.
        assert!(tags.is_over(1, 16));
        assert!(!tags.is_over(2, 16));
        tags.leave(2);
        assert!(!tags.is_over(1, 16));
    }

    #[test]
    fn tags_are_few_from_half_on() {
        let tags = with(&[(1, 4), (2, 3)]);
        assert!(!tags.are_few(16));
        tags.enter(2);
        assert!(tags.are_few(16));
        tags.leave(1);
        assert!(!tags.are_few(16));
    }

    #[test]
    fn who_has_too_many_finds_a_tag_all_the_same() {
        for all in 1..=2048 {
            let least = Tags::least(all);
            assert!(least >= 1 && least <= all, "{least} of {all}");
        }
    }

    #[test]
    fn nobody_is_counted() {
        let tags = with(&[(NOBODY, 1)]);
        assert!(!tags.is_over(NOBODY, 0));
        tags.leave(NOBODY);
        assert_eq!((tags.busy.get(), tags.total.get()), (0, 0));
        assert!(usize::from(Tags::submitter(u64::MAX)) < SUBMITTERS);
    }
}
