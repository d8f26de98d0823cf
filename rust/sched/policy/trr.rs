// SPDX-License-Identifier: GPL-2.0-only

//! Target round robin: backing devices take turns, and the requests of one are served in the order of their
//! offsets.
//!
//! A class is a target. How turns are taken is [`super::robin`]'s, how requests are sorted
//! [`super::robin::sorted`]'s.

use super::robin::{
    self,
    params::{self, OffsetType, Quantum, Sorting, Supported},
    sorted::Sorted,
    Robin, Ties,
};
use crate::sched::{
    attr::Attrs,
    item::Item,
    key::{Hashed, Hasher},
    parameters::{schema::rows, Parameter},
};

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as Kept, Nothing as Overseer, Nothing as Shared,
};
pub use params::Tunables;

/// All parameters of `trr`.
pub const PARAMETERS: &[Parameter] = rows! {
    |values| values.policies.trr, "trr.md", "ENOMEM" {
        /// Requests of one target in a batch.
        "nrs_trr_quantum" quantum: [heads "quantum" given Quantum],
        /// Sort key: offset on the device or in the file.
        "nrs_trr_offset_type" offset_type: [heads "offset_type" given OffsetType],
        /// Sorted requests; fifo serves the others.
        "nrs_trr_supported" supported: [heads "supported" given Supported],
    } {}
};

/// How a part was started.
pub type Config = robin::Config<Tunables>;

/// What a running part is told.
pub type Update = robin::Update<Sorting>;

/// Round robin over targets on one head.
pub type State<I> = robin::State<I, Trr>;

/// A backing device or target; the order of values is the order of turns in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// By its number.
    Number(u32),
    /// All that no class could be made for.
    Default,
}

impl Target {
    /// A word in the same order.
    const fn word(&self) -> u64 {
        match self {
            Self::Number(number) => *number as u64,
            Self::Default => u64::MAX,
        }
    }
}

impl Hashed for Target {
    fn mix(&self, hasher: &Hasher) -> u64 {
        hasher.word(self.word())
    }
}

/// The policy.
pub enum Trr {}

impl<I: Item> Robin<I> for Trr {
    type Key = Target;
    type Store = Sorted<I>;
    type Tunables = Tunables;

    const TIES: Ties = Ties::Key;
    const DEFAULT: Target = Target::Default;

    fn key(attrs: &Attrs) -> Target {
        Target::Number(attrs.target)
    }

    fn tie(target: &Target) -> [u64; 2] {
        [target.word(), 0]
    }
}
