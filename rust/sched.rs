// SPDX-License-Identifier: GPL-2.0-only

//! Scheduling policies as pure state machines.
//!
//! # Types
//!
//! * [`attr::Attrs`]: attributes of a request of a client.
//! * [`item::Item`]: a request inside a policy; owned by exactly one container at a time.
//! * [`key::Key`]: key of a class, which is a set of requests that a policy treats alike. A class
//!   of the fairshare policy has a weight and a share and is called an entity.
//! * [`policy::Part`]: state of one policy on one head.
//! * [`head::Head`]: the policies of one priority on one partition.
//! * [`partition::PartitionMachine`]: state machine that admits and dispatches the requests of one
//!   CPT and target (a partition).
//! * [`service::ServiceSettings`]: settings of all partitions, and their changes.
//!
//! # Rules
//!
//! This code uses no kernel interface, clock, lock or random source: time (`now`, monotonic ns) and
//! seeds are arguments. Code does not allocate while a caller may hold a lock; callers pass memory
//! in through [`mem::Need`] and [`mem::Spare`]. The same files are compiled into `nrs.ko` and, by
//! Cargo, for the host; only [`mem`] and [`bug!`] differ.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
    )
)]
#![cfg_attr(
    MODULE,
    allow(
        unreachable_pub,
        reason = "the host compiles the same files as a library, whose interface must be pub"
    )
)]

#[cfg(MODULE)]
macro_rules! bug {
    ($($cond:expr)?) => {
        $crate::sys::misc::bug!($($cond)?)
    };
}

/// Reports an internal error, optionally only if a condition is true. The host panics. The kernel
/// warns once for each place in the code and continues.
#[cfg(not(MODULE))]
#[macro_export]
macro_rules! bug {
    () => {
        $crate::impossible()
    };
    ($cond:expr) => {
        if $cond {
            $crate::impossible()
        }
    };
}

/// Panics. The return type is not `!` because the kernel's counterpart returns.
#[cfg(not(MODULE))]
#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "for tests")]
pub fn impossible() {
    panic!("internal error: impossible state");
}

pub mod agent;
pub mod atomic;
pub mod attr;
pub mod bucket;
pub mod capacity;
pub mod class;
pub mod control;
pub mod count;
pub mod cpus;
pub mod credits;
pub mod error;
pub mod glob;
pub mod head;
pub mod health;
pub mod heap;
pub mod item;
pub mod items;
pub mod jobid;
pub mod key;
pub mod knee;
pub mod leftist_heap;
pub mod mem;
pub mod nid;
pub mod order;
pub mod owners;
pub mod parameters;
pub mod partition;
pub mod policy;
pub mod priority_sources;
pub mod qbm;
pub mod ranges;
pub mod report;
pub mod rng;
pub mod rules;
pub mod service;
pub mod slab;
pub mod slots;
pub(crate) mod sort;
pub mod start_tags;
pub mod statistics;
pub mod table;
pub mod tag_shares;
pub mod tagged_table;
pub mod text;
pub mod timeouts;
pub mod tournament;
pub mod units;
