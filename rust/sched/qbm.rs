// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth management: clients get the bandwidth that their class promises, and give back what they
//! do not use.
//!
//! # Vocabulary
//!
//! - *Group*: one capacity that clients share: a backing target of a service, or all of it; StorNext's
//!   stripe group.
//! - *Client*: who bandwidth is given to in a group: a network identifier, a job, a user or a device.
//! - *Terms*: a client's class, minimum and maximum ([`terms`]).
//! - *Plan*: what an administrator wants: groups, clients, numbers ([`plan`]).
//! - *Gate*: the leaky bucket that holds one client to what it has ([`gate`]).
//! - *Allocator*: who has how much of a group's capacity ([`allocator`]).
//! - *Manager*: sees what clients use and asks the allocator for more or less ([`manager`]).
//!
//! ```text
//!   plan ──────────► manager ◄─────────────┐ what was used, how often it was slept on
//!                    │     ▲               │
//!          asks for  ▼     │ gives, takes  │
//!                   allocator              │
//!                          │ rates         │
//!                          ▼               │
//!   requests ─────────► gates ─────────────┘ ─────► device
//! ```
//!
//! The rules and the numbers are those of StorNext's *Quality of Service Bandwidth Management*; what they
//! leave open is said where it is decided. Rates and capacities are bytes per second.

pub mod allocator;
pub mod gate;
pub mod manager;
pub mod plan;
pub mod terms;
