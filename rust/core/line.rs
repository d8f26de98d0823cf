// SPDX-License-Identifier: GPL-2.0-only

//! The partitions of a target that wait for slots, and whose turn it is.
//!
//! # Vocabulary
//!
//! - *Waiting*: a partition that has queued requests.
//! - *Ready*: a partition with requests that may be served as far as it knows; what its policies withhold
//!   for now does not count.
//! - *Urgent*: a ready partition with high-priority requests among them.
//! - *Turn*: the ready partition with the smallest tag goes next ([`crate::sched::turns`]).
//!
//! ```text
//!             a request is queued, or may be served again: starts at the clock
//!   idle ──────────────────────────────────────────────────────────────────────▶ ready ──▶ decides, tag moves on
//!     ▲                                                                            │
//!     └──────────────── nothing is queued, or all of it is withheld ◀──────────────┘
//! ```
//!
//! All of a partition's own state changes under its lock; others read it without. Tags that are read while
//! they change cost somebody a turn, at most one for each CPU that decides at the time.
//!
//! A partition that has the target to itself keeps no state here but that it waits.

use crate::{
    core::cpt::CPTS_MAX,
    sched::turns,
    sys::atomic::{Hint, Word},
};

/// A set of up to 64 small numbers that many change at once.
struct Set(Word);

impl Set {
    const fn new() -> Self {
        Self(Word::new(0))
    }

    fn insert(&self, member: u16) {
        self.0.set_bits(1u64.wrapping_shl(member.into()));
    }

    fn remove(&self, member: u16) {
        self.0.clear_bits(1u64.wrapping_shl(member.into()));
    }

    /// The members, as bits.
    fn members(&self) -> u64 {
        self.0.get()
    }
}

/// Whether a partition is one of those that others look for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// It has queued requests.
    pub(crate) waiting: bool,
    /// It has requests that may be served.
    pub(crate) ready: bool,
    /// It has high-priority requests that may be served.
    pub(crate) urgent: bool,
}

/// One partition.
struct Place {
    share: Hint,
    tag: Hint,
}

impl Place {
    const fn new() -> Self {
        Self {
            share: Hint::new(0),
            tag: Hint::new(0),
        }
    }
}

/// The partitions of a target.
pub(super) struct Line {
    /// There is only one.
    alone: bool,
    waiting: Set,
    ready: Set,
    urgent: Set,
    /// The largest tag of all that had a turn.
    clock: Hint,
    places: [Place; CPTS_MAX as usize],
}

impl Line {
    /// `partitions` partitions, none of them ready.
    pub(super) const fn new(partitions: u16) -> Self {
        Self {
            alone: partitions <= 1,
            waiting: Set::new(),
            ready: Set::new(),
            urgent: Set::new(),
            clock: Hint::new(0),
            places: [const { Place::new() }; CPTS_MAX as usize],
        }
    }

    /// Whether a partition has the target to itself.
    pub(super) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Partitions that are waiting, as bits.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.members()
    }

    /// Partitions that are ready, as bits; none if there is only one.
    pub(super) fn ready(&self) -> u64 {
        self.ready.members()
    }

    /// Those that are urgent.
    pub(super) fn urgent(&self) -> u64 {
        self.urgent.members()
    }

    /// Partition `index`, marked as `old`, is as `new` says from now on. Called with its lock held.
    pub(super) fn mark(&self, index: u16, old: Mark, new: Mark) {
        match (old.waiting, new.waiting) {
            (false, true) => self.waiting.insert(index),
            (true, false) => self.waiting.remove(index),
            _ => {}
        }
        if self.alone {
            return;
        }
        if new.ready && !old.ready {
            if let Some(place) = self.places.get(usize::from(index)) {
                place
                    .tag
                    .set(turns::start(place.tag.get(), self.clock.get()));
            }
        }
        for (set, old, new) in [
            (&self.urgent, old.urgent, new.urgent),
            (&self.ready, old.ready, new.ready),
        ] {
            match (old, new) {
                (false, true) => set.insert(index),
                (true, false) => set.remove(index),
                _ => {}
            }
        }
    }

    /// Counts a request that partition `index` decided and that costs `cost`. Called with its lock held.
    pub(super) fn charge(&self, index: u16, cost: u32) {
        let Some(place) = self.places.get(usize::from(index)) else {
            return;
        };
        let tag = place.tag.get();
        if turns::is_before(self.clock.get(), tag) {
            self.clock.set(tag);
        }
        let share = match place.share.get() {
            0 => turns::mean(self.those(self.ready()).map(|(_, place)| place.share.get())),
            share => share,
        };
        place.tag.set(turns::advance(tag, turns::pace(share), cost));
    }

    /// The one of `partitions`, bits, whose turn it is.
    pub(super) fn first(&self, partitions: u64) -> Option<u32> {
        turns::first(
            self.those(partitions)
                .map(|(index, place)| (index, place.tag.get())),
        )
    }

    /// The partitions of a set, bits.
    fn those(&self, partitions: u64) -> impl Iterator<Item = (u32, &Place)> {
        let mut left = partitions;
        core::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            Some((index, self.places.get(index as usize)?))
        })
    }

    /// Sets the shares, in the order of the partitions; from the next requests on.
    pub(super) fn set_shares(&self, shares: &[u64]) {
        for (place, share) in self.places.iter().zip(shares) {
            place.share.set(*share);
        }
    }
}
