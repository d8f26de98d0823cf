// SPDX-License-Identifier: GPL-2.0-only

//! The tests that take the whole tool, without the module.
//!
//! One program, which is built and linked once.

mod exporter;
mod exposition;
mod pages;
mod rows;
mod statistics;
mod status;
mod texts;
mod verbs;
