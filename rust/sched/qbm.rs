// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth management: each client gets the bandwidth that the plan guarantees, and bandwidth
//! that clients do not use is allocated to other clients.
//!
//! - A *group* is one capacity that clients share: a backing target of a service or the whole
//!   service, like StorNext's stripe group.
//! - A *client* is a network identifier, a job, a user or a device to which a group allocates
//!   bandwidth.
//! - *Terms* are the class, minimum and maximum of a client ([`terms`]).
//! - A *plan* is the administrator's configuration: groups, clients, parameters ([`plan`]).
//! - A *gate* is the leaky bucket that limits one client to the allocated rate ([`gate`]).
//! - The *allocator* divides the capacity of a group among the clients ([`allocator`]).
//! - The *manager* measures usage and requests increases and decreases from the allocator
//!   ([`manager`]).
//!
//! ```text
//!   plan ──────────► manager ◄─────────────┐ usage, throttled periods
//!                     │     ▲              │
//!            requests ▼     │ grants       │
//!                   allocator              │
//!                          │ rates         │
//!                          ▼               │
//!   requests ─────────► gates ─────────────┘ ─────► device
//! ```
//!
//! Rules and defaults are those of StorNext's *Quality of Service Bandwidth Management*; decisions
//! that StorNext leaves open are documented where they are made. Rates and capacities are in bytes
//! per second.

pub mod allocator;
pub mod gate;
pub mod manager;
pub mod plan;
pub mod terms;
