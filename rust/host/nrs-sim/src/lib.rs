// SPDX-License-Identifier: GPL-2.0-only

//! Simulator of servers and clients.
//!
//! ```text
//! scenario (TOML) --scenario--> Scenario --engine--> Outcome --show--> table, JSON, SVG
//!                                  ^                    |
//!                                  +------- study ------+   families of runs
//! ```
//!
//! The schedulers are the source files of the kernel module, compiled for the host (`nrs-sched`).
//! Time is simulated: a run depends only on its scenario and seed, not on the machine.

pub mod engine;
pub mod outcome;
pub mod scenario;
pub mod show;
pub mod study;
