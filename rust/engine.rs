// SPDX-License-Identifier: GPL-2.0-only

//! The kernel part of scheduling: it lends the policies time, locks and memory.
//!
//! # Vocabulary
//!
//! - *Service*: policies that share out the slots of its targets ([`service`]).
//! - *Target*: a backing device of a service ([`target`]).
//! - *Slot*: the right to have one request at a target.
//! - *Partition*: the part of a service that the CPUs of one CPT use for one target ([`partition`]).
//! - *Client*: a front-end's device; it brings requests to one target ([`client`]).
//! - *Timeouts*: how long requests take, and how long they may ([`timeouts`], [`client::deadlines`]).
//! - *Worker*: what a service does every delta: shares, memory, ageing ([`worker`]).
//! - *Agent*: an open file of `/dev/nrs-control` that sets factors of weights ([`agent`]).
//! - *Overseer*: what looks at all parts of a service for a policy that needs it ([`overseer`]).
//!
//! ```text
//!            no work waits and a slot is free
//!  arrive ─────────────────────────────────────────────────────────▶ goes down at once ─┐
//!    │                                                                                  │
//!    └─▶ classified ─▶ queued in a policy ─▶ decided, has a slot ─▶ target's list ─▶ submitted
//!                            ▲                       ▲                                  │
//!                            │   pump: one decision per free slot                       │
//!                            └──────────── complete: the slot is free ◀─────────────────┘
//! ```
//!
//! # Lock order
//!
//! 1. the registry's mutex ([`registry`])
//! 2. a service's configuration mutex, then that of its overseer, then its clients' mutex, then that of its agent
//! 3. one partition's lock ([`partition::Partition`]); never two
//! 4. one target's lock ([`target::Target`])
//!
//! That of who a service's timers call is taken alone, with nothing but a workqueue's inside ([`dispatch::Dispatch`]).
//!
//! Timeouts have locks of their own, with nothing else taken inside: a history's, then that of the terms
//! ([`timeouts`]); a client's alarm ([`client::deadlines`]). A herald's mutex is taken before 3
//! ([`client::herald`]).
//!
//! Locks from 3 on, and those of timeouts, are spinlocks taken with interrupts off, because requests end in interrupts. Nothing is
//! submitted, freed, printed or woken under them.

#![cfg_attr(
    not(CONFIG_KUNIT = "y"),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
    )
)]

pub(crate) mod agent;
pub(crate) mod arrival;
pub(crate) mod client;
pub(crate) mod concurrency;
pub(crate) mod cpt;
pub(crate) mod dispatch;
pub(crate) mod driven;
pub(crate) mod keeper;
pub(crate) mod overseer;
pub(crate) mod parameters;
pub(crate) mod partition;
pub(crate) mod partitions;
pub(crate) mod refused;
pub(crate) mod registry;
pub(crate) mod roster;
pub(crate) mod service;
pub(crate) mod target;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub(crate) mod timeouts;
pub(crate) mod tuner;
pub(crate) mod worker;
