// SPDX-License-Identifier: GPL-2.0-only

//! Target round robin: backing devices take turns, and the requests of a device are dispatched in
//! the order of their offsets.
//!
//! A class is a target. [`super::robin`] defines the order of classes, [`super::robin::sorted`] the
//! order of requests.

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

/// All parameters of `trr`.
pub const PARAMETERS: &[Parameter] = rows! {
    |values| values.policies.trr, "trr.md", "ENOMEM" {
        /// Requests of one target in a batch.
        "nrs_trr_quantum" quantum: [heads "quantum" given Quantum],
        /// Sort key: offset on the device or in the file.
        "nrs_trr_offset_type" offset_type: [heads "offset_type" given OffsetType],
        /// Directions of the requests that are sorted; fifo dispatches the other requests.
        "nrs_trr_supported" supported: [heads "supported" given Supported],
    } {}
};

/// Configuration of a part.
pub type Config = robin::Config<Tunables>;

/// Update of a running part.
pub type Update = robin::Update<Sorting>;

/// Round robin over targets on one head.
pub type State<I> = robin::State<I, Trr>;

/// Round robin over targets.
pub enum Trr {}

impl<I: Item> Robin<I> for Trr {
    /// Number of the target.
    type Key = u64;
    type Store = Sorted<I>;
    type Tunables = Tunables;

    const TIES: TieBreak = TieBreak::Key;
    const DEFAULT: u64 = u64::MAX;

    fn key(attrs: &Attrs) -> u64 {
        attrs.target.into()
    }

    fn tie(target: &u64) -> [u64; 2] {
        [*target, 0]
    }
}
