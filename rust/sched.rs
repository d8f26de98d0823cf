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
//! by Cargo, for the host; [`mem`] is the only one that differs.

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

pub(crate) mod atomic;
pub(crate) mod attr;
pub(crate) mod bucket;
pub(crate) mod class;
pub(crate) mod control;
pub(crate) mod credits;
pub(crate) mod error;
pub(crate) mod head;
pub(crate) mod health;
pub(crate) mod heap;
pub(crate) mod item;
pub(crate) mod jobid;
pub(crate) mod key;
pub(crate) mod leftist;
pub(crate) mod mem;
pub(crate) mod nid;
pub(crate) mod order;
pub(crate) mod parameters;
pub(crate) mod partition;
pub(crate) mod policy;
pub(crate) mod qbm;
pub(crate) mod ranges;
pub(crate) mod rng;
pub(crate) mod rules;
pub(crate) mod slab;
pub(crate) mod slots;
pub(crate) mod sort;
pub(crate) mod sources;
pub(crate) mod statistics;
pub(crate) mod text;
pub(crate) mod timeouts;
pub(crate) mod turns;
pub(crate) mod units;
