// SPDX-License-Identifier: GPL-2.0-only

//! The engine: what has to hold for every run, what theory says of simple ones, and policies in it.

mod cluster;
pub mod common;
mod laws;
mod policies;
mod theory;
