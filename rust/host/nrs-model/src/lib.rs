// SPDX-License-Identifier: GPL-2.0-only

//! A model test of the partitions of a target: no wake-up is lost, and each request is dispatched
//! once.
//!
//! The files of `rust/sched/partition/` are compiled here with words and locks that let another
//! task go first ([`atomic`], [`search`]); everything they stand on comes from `nrs_sched`. Each
//! scenario ([`scenario`]) is run in every order in which tasks are interrupted at most so many
//! times.

#[macro_use(bug)]
extern crate nrs_sched;

pub mod atomic;
mod request;
pub mod scenario;
pub mod search;
mod world;

/// The directory of the pure part.
#[path = "../../../sched"]
mod shared {
    pub mod partition;
}

pub use shared::partition;

/// What the files of the pure part import.
pub(crate) mod sched {
    pub(crate) use crate::atomic;
    pub(crate) use nrs_sched::{
        attr, cpus, head, health, item, mem, order, policy, ranges, slots, turns, units,
    };
}
