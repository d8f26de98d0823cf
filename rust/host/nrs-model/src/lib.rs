// SPDX-License-Identifier: GPL-2.0-only

//! Model test of the partitions of a target: no wake-up is lost, and each request is dispatched
//! once.
//!
//! The files of `rust/sched/partition/` are compiled with words and locks that let another task run
//! first ([`atomic`], [`search`]). All their dependencies come from `nrs_sched`. Each scenario
//! ([`scenario`]) is run in every order with at most a given number of interruptions.

#[macro_use(bug)]
extern crate nrs_sched;

pub mod atomic;
mod request;
pub mod scenario;
pub mod search;
pub mod touch;
mod world;

/// Directory of the pure scheduling code.
#[path = "../../../sched"]
mod shared {
    pub mod partition;
}

pub use shared::partition;

/// Modules that the files of the pure scheduling code import.
pub(crate) mod sched {
    pub(crate) use crate::atomic;
    pub(crate) use nrs_sched::{
        attr, cpus, head, health, item, mem, order, policy, ranges, slots, start_tags, units,
    };
}
