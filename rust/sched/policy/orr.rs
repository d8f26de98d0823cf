// SPDX-License-Identifier: GPL-2.0-only

//! Object round robin: objects take turns, and the requests of one are served in the order of their offsets.
//!
//! A class is an object on its target or, where requests say which offset stream they belong to, the
//! stream, whatever objects it goes through. How turns are taken is [`super::robin`]'s, how requests are
//! sorted [`super::robin::sorted`]'s.

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

/// All parameters of `orr`.
pub const PARAMETERS: &[Parameter] = rows! {
    |values| values.policies.orr, "orr.md", "ENOMEM" {
        /// Requests of one file in a batch.
        "nrs_orr_quantum" quantum: [heads "quantum" given Quantum],
        /// Sort key: offset on the device or in the file.
        "nrs_orr_offset_type" offset_type: [heads "offset_type" given OffsetType],
        /// Sorted requests; fifo serves the others.
        "nrs_orr_supported" supported: [heads "supported" given Supported],
    } {}
};

/// How a part was started.
pub type Config = robin::Config<Tunables>;

/// What a running part is told.
pub type Update = robin::Update<Sorting>;

/// Round robin over objects on one head.
pub type State<I> = robin::State<I, Orr>;

/// What requests are kept together by; the order of values is the order of turns in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// An offset stream, by what the hint says.
    Stream(u64),
    /// An object of a target.
    Backing {
        /// The target.
        target: u32,
        /// The object; 0: nobody knows.
        object: u64,
    },
    /// All that no class could be made for.
    Default,
}

impl Object {
    /// Two words in the same order.
    const fn words(&self) -> [u64; 2] {
        match self {
            Self::Stream(stream) => [0, *stream],
            // 2^32 at most.
            Self::Backing { target, object } => [(*target as u64).wrapping_add(1), *object],
            Self::Default => [u64::MAX; 2],
        }
    }
}

impl Hashed for Object {
    fn mix(&self, hasher: &Hasher) -> u64 {
        let [first, second] = self.words();
        hasher.mix(hasher.word(first), second)
    }
}

/// The policy.
pub enum Orr {}

impl<I: Item> Robin<I> for Orr {
    type Key = Object;
    type Store = Sorted<I>;
    type Tunables = Tunables;

    const WANTS_FILE: bool = true;
    const TIES: Ties = Ties::Key;
    const DEFAULT: Object = Object::Default;

    fn key(attrs: &Attrs) -> Object {
        match attrs.stream {
            0 => Object::Backing {
                target: attrs.target,
                object: attrs.object,
            },
            stream => Object::Stream(stream),
        }
    }

    fn tie(object: &Object) -> [u64; 2] {
        object.words()
    }
}
