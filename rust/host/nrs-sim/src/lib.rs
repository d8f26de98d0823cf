// SPDX-License-Identifier: GPL-2.0-only

//! Servers and clients in simulated time.
//!
//! ```text
//! scenario (TOML) --scenario--> Scenario --engine--> Outcome --show--> table, JSON, SVG
//!                                  ^                    |
//!                                  +------- study ------+   families of runs
//! ```
//!
//! The schedulers are those of the kernel module: the same files, compiled for the host (`nrs-sched`).
//! Time is simulated, so a run is the same on every machine and depends on its seed alone.

pub mod engine;
pub mod outcome;
pub mod scenario;
pub mod show;
pub mod study;
pub mod timeouts;
