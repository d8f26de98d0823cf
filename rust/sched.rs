// SPDX-License-Identifier: GPL-2.0-only

//! The pure part: scheduling policies as state machines.
//!
//! # Vocabulary
//!
//! - *Request*: what a client asked for; its attributes are [`attr::Attrs`].
//! - *Item*: a request as it travels through a policy; owned, in one place at a time
//!   ([`item::Item`]).
//! - *Class*: the requests that a policy treats alike, named by a [`key::Key`].
//! - *Entity*: a class of the fairshare policy; it has a weight and a share.
//! - *Part*: the state of one policy on one head ([`policy::Part`]).
//! - *Head*: the policies of one priority on one partition ([`head::Head`]).
//! - *Partition*: the state machine that admits and dispatches the requests of one CPT and target
//!   ([`partition::Machine`]).
//!
//! # Rules
//!
//! Nothing here knows the kernel, a clock, a lock or a random source: time (`now`, monotonic
//! nanoseconds) and seeds are arguments. Nothing allocates while a caller may hold a lock; memory
//! comes in through [`mem::Need`] and [`mem::Spare`]. The same files are compiled into `nrs.ko` and,
//! by Cargo, for the host; [`mem`] and [`bug!`] are all that differs.

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
        dead_code,
        unreachable_pub,
        reason = "tests and benches on the host look at more than the kernel part uses"
    )
)]

#[cfg(MODULE)]
macro_rules! bug {
    ($($cond:expr)?) => {
        $crate::sys::misc::bug!($($cond)?)
    };
}

/// Reports that something has happened which cannot; with a condition, if that holds. The host panics; the kernel warns
/// once for each place in the code, and goes on.
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

/// Panics. The type does not say so, since the kernel goes on.
#[cfg(not(MODULE))]
#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "for tests")]
pub fn impossible() {
    panic!("something has happened which cannot");
}

pub mod agent;
pub mod atomic;
pub mod attr;
pub(crate) mod bucket;
pub mod class;
pub mod control;
pub mod cpus;
pub mod credits;
pub mod error;
pub mod glob;
pub mod head;
pub mod health;
pub mod heap;
pub mod item;
pub mod jobid;
pub mod key;
pub mod knee;
pub mod leftist;
pub mod mem;
pub mod nid;
pub mod order;
pub mod parameters;
pub mod partition;
pub mod policy;
pub mod qbm;
pub mod ranges;
pub mod rng;
pub mod rules;
pub mod slab;
pub mod slots;
pub(crate) mod sort;
pub mod sources;
pub mod statistics;
pub mod table;
pub mod text;
pub mod timeouts;
pub mod tournament;
pub mod turns;
pub mod units;
