// SPDX-License-Identifier: GPL-2.0-only

//! The tests that take the whole simulator.
//!
//! One program, which is built and linked once.

mod engine;
mod fluid;
mod scenarios;
mod studies;
mod timeouts;
