// SPDX-License-Identifier: GPL-2.0-only

//! Requests with one deadline, and how a word holds them.

/// Bits of a word for the number of requests, for the time left, and for whether that is not the first one;
/// the rest is the generation.
const COUNT_BITS: u32 = 21;
const LEFT_BITS: u32 = 26;
const LEFT_SHIFT: u32 = COUNT_BITS;
const EXTENDED_SHIFT: u32 = COUNT_BITS + LEFT_BITS;
const GENERATION_SHIFT: u32 = EXTENDED_SHIFT + 1;

/// Requests in a word, at most.
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// Stands for no deadline.
const LEFT_NONE: u32 = (1 << LEFT_BITS) - 1;

/// The longest time from a cohort's start to its deadline, ms: 18 hours; the longest timeout of any terms is
/// below 12.
pub(super) const LEFT_MAX: u32 = LEFT_NONE - 1;

/// Requests with one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// None of them was sent before, ms modulo 2^32.
    pub(super) sent: u32,
    /// All of them were sent less than this time after that, ms.
    pub(super) span: u32,
    /// Their deadline, ms after `sent`; none if it passed.
    pub(super) left: Option<u32>,
    /// Whether it is not their first one.
    pub(super) extended: bool,
    /// Their number.
    pub(super) count: u32,
}

/// Requests of one cohort.
///
/// # Invariants
///
/// From the highest bit on: generation, whether the deadline was extended, the time left from the start of
/// the cohort to it, the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// A word of these parts; a time that does not fit is the longest one.
    pub(super) const fn new(
        generation: u16,
        left: Option<u32>,
        extended: bool,
        count: u32,
    ) -> Self {
        let left = match left {
            None => LEFT_NONE,
            Some(left) if left > LEFT_MAX => LEFT_MAX,
            Some(left) => left,
        };
        let count = if count > COUNT_MAX { COUNT_MAX } else { count };
        // INVARIANT: all parts fit their bits.
        Self(
            ((generation as u64) << GENERATION_SHIFT)
                | ((extended as u64) << EXTENDED_SHIFT)
                | ((left as u64) << LEFT_SHIFT)
                | count as u64,
        )
    }

    /// Which of the cohorts that share the place it is.
    pub(super) const fn generation(self) -> u16 {
        (self.0 >> GENERATION_SHIFT) as u16
    }

    /// The time from its start to its deadline, ms; none if that passed.
    pub(super) const fn left(self) -> Option<u32> {
        match (self.0 >> LEFT_SHIFT) as u32 & LEFT_NONE {
            LEFT_NONE => None,
            left => Some(left),
        }
    }

    /// Whether the deadline is not the first one.
    pub(super) const fn is_extended(self) -> bool {
        (self.0 >> EXTENDED_SHIFT) & 1 != 0
    }

    /// Number of requests.
    pub(super) const fn count(self) -> u32 {
        self.0 as u32 & COUNT_MAX
    }

    /// The same with one more request, whose deadline is `left` ms after the start, if the deadline is not to
    /// become later and there is room.
    #[inline]
    pub(super) const fn one_more(self, left: u32) -> Option<Self> {
        // A deadline that passed is before all others this way.
        let here = (self.0.wrapping_add(1 << LEFT_SHIFT) >> LEFT_SHIFT) as u32 & LEFT_NONE;
        if here > left && self.count() != COUNT_MAX {
            // INVARIANT: there is room, so the other parts stay.
            Some(Self(self.0.wrapping_add(1)))
        } else {
            None
        }
    }

    /// The same with `count` more requests, whose deadline is `left` ms after the start; the later deadline
    /// counts, one that passed does not. None if they are too many.
    pub(super) const fn joined(
        self,
        left: Option<u32>,
        extended: bool,
        count: u32,
    ) -> Option<Self> {
        let sum = self.count().saturating_add(count);
        if sum > COUNT_MAX {
            return None;
        }
        let later = match (self.left(), left) {
            _ if self.count() == 0 => true,
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(here), Some(there)) => there > here,
        };
        Some(if later {
            Self::new(self.generation(), left, extended, sum)
        } else {
            self.with_count(sum)
        })
    }

    /// The same with another number of requests.
    pub(super) const fn with_count(self, count: u32) -> Self {
        Self((self.0 & !(COUNT_MAX as u64)) | (count & COUNT_MAX) as u64)
    }
}
