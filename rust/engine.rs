// SPDX-License-Identifier: GPL-2.0-only

//! The kernel part of scheduling: supplies the policies with time, locks and memory.
//!
//! # Terms
//!
//! - *Service*: policies that share out the slots of the targets of the service ([`service`]).
//! - *Target*: a backing device of a service ([`target`]).
//! - *Slot*: the right to have one request in flight at a target.
//! - *Partition*: the part of a service that the CPUs of one CPT use for one target
//!   ([`partition`]).
//! - *Client*: a block device, a program or a kernel module that submits requests to one target
//!   ([`client`]).
//! - *Timeouts*: service times of requests, and their deadlines ([`timeouts`],
//!   [`client::deadlines`]).
//! - *Worker*: periodic work of a service, once a delta: shares, memory, ageing ([`worker`]).
//! - *Agent*: an open file of `/dev/nrs-control` that sets factors of weights ([`agent`]).
//! - *Overseer*: examines all partitions of a service for a policy that needs a global view
//!   ([`overseer`]).
//!
//! ```text
//!            no request is queued and a slot is free
//!  arrive ─────────────────────────────────────────────────▶ dispatched without queueing ─┐
//!    │                                                                                    │
//!    └─▶ classified ─▶ queued in a policy ─▶ decided, has a slot ─▶ target's list ─▶ submitted
//!                            ▲                       ▲                                    │
//!                            │   pump: one decision per free slot                         │
//!                            └──────────── complete: the slot is free ◀───────────────────┘
//! ```
//!
//! # Lock order
//!
//! 1. the registry's mutex ([`registry`])
//! 2. a service's configuration mutex, then the mutexes of its overseer, its clients and its agent,
//!    in this order
//! 3. one partition's lock ([`partition::Partition`]); never two
//! 4. one target's lock ([`target::Target`])
//!
//! The lock of the progress hook that a service's timers call is taken alone; only a workqueue's
//! lock is taken inside ([`target_parameters::TargetParameters`]).
//!
//! Timeouts have locks of their own, with nothing else taken inside. These are the lock of a
//! history, then the lock of the terms ([`timeouts`]), and the lock of a client's alarm
//! ([`client::deadlines`]). The mutex of a client notifier is taken before 3 ([`client::notify`]).
//!
//! Locks from 3 on, and the locks of timeouts, are spinlocks taken with interrupts off, because
//! requests end in interrupts. Nothing is submitted, freed, printed or woken under them.

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
pub(crate) mod client_list;
pub(crate) mod concurrency;
pub(crate) mod cpt;
pub(crate) mod framework;
pub(crate) mod overseer;
pub(crate) mod parameters;
pub(crate) mod partition;
pub(crate) mod partitions;
pub(crate) mod progress;
pub(crate) mod refusal;
pub(crate) mod registry;
pub(crate) mod service;
pub(crate) mod target;
pub(crate) mod target_parameters;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub(crate) mod timeouts;
pub(crate) mod tuner;
pub(crate) mod worker;
