// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the whole tool without the module.
//!
//! All tests are in one program, so that only one program is compiled and linked.

mod exporter;
mod exposition;
mod pages;
mod rows;
mod statistics;
mod status;
mod texts;
mod verbs;
