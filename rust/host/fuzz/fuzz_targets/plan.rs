// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes the text of `nrs_qbm_config`: parser, checks, index, writer, edits.
//!
//! From `rust/host`, with `cargo install cargo-fuzz --version 0.12.0 --locked` done once (later versions want
//! a newer compiler):
//!
//! ```text
//! cargo fuzz run --sanitizer none plan -- -dict=fuzz/plan.dict -max_total_time=60
//! ```
//!
//! `--sanitizer none` is for a stable compiler; there is no unsafe code that a sanitizer would look at.

#![no_main]

#[path = "../plan.rs"]
mod plan;

libfuzzer_sys::fuzz_target!(|data: &[u8]| plan::run(data));
