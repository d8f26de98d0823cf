// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the engine: invariants of every run, comparisons with theory, and policies.

mod cluster;
pub mod common;
mod laws;
mod policies;
mod theory;
