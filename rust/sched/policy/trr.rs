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

/// The policy.
pub enum Trr {}

impl<I: Item> Robin<I> for Trr {
    /// The number of the target.
    type Key = u64;
    type Store = Sorted<I>;
    type Tunables = Tunables;

    const TIES: Ties = Ties::Key;
    const DEFAULT: u64 = u64::MAX;

    fn key(attrs: &Attrs) -> u64 {
        attrs.target.into()
    }

    fn tie(target: &u64) -> [u64; 2] {
        [*target, 0]
    }
}
