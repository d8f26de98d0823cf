// SPDX-License-Identifier: GPL-2.0-only

//! Object round robin: objects take turns, and the requests of an object are dispatched in the
//! order of their offsets.
//!
//! A class is an object on its target, or an offset stream if requests have one, whatever the
//! objects of the stream are. [`super::robin`] defines the order of classes,
//! [`super::robin::sorted`] the order of requests.

use super::robin::{
    self,
    params::{self, OffsetType, Quantum, Sorting, Supported},
    sorted::Sorted,
    Robin, TieBreak,
};
use crate::sched::{
    attr::Attrs,
    item::Item,
    parameters::{schema::rows, Parameter},
};

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as PolicyData, Nothing as Overseer, Nothing as Shared,
};
pub use params::Tunables;

/// All parameters of `orr`.
pub const PARAMETERS: &[Parameter] = rows! {
    |values| values.policies.orr, "orr.md", "ENOMEM" {
        /// Requests of one file in a batch.
        "nrs_orr_quantum" quantum: [heads "quantum" given Quantum],
        /// Sort key: offset on the device or in the file.
        "nrs_orr_offset_type" offset_type: [heads "offset_type" given OffsetType],
        /// Directions of the requests that are sorted; fifo dispatches the other requests.
        "nrs_orr_supported" supported: [heads "supported" given Supported],
    } {}
};

/// Configuration of a part.
pub type Config = robin::Config<Tunables>;

/// Update of a running part.
pub type Update = robin::Update<Sorting>;

/// Round robin over objects on one head.
pub type State<I> = robin::State<I, Orr>;

/// Round robin over objects.
pub enum Orr {}

impl<I: Item> Robin<I> for Orr {
    /// Offset stream, or target and object, in the order of turns in a round.
    type Key = [u64; 2];
    type Store = Sorted<I>;
    type Tunables = Tunables;

    const WANTS_FILE: bool = true;
    const TIES: TieBreak = TieBreak::Key;
    const DEFAULT: [u64; 2] = [u64::MAX; 2];

    fn key(attrs: &Attrs) -> [u64; 2] {
        match attrs.stream {
            // At most 2^32.
            0 => [u64::from(attrs.target).wrapping_add(1), attrs.object],
            stream => [0, stream],
        }
    }

    fn tie(key: &[u64; 2]) -> [u64; 2] {
        *key
    }
}
