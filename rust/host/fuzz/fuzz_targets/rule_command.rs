// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes the commands of `nrs_tbf_rule`: parser, book, compiled rule set.
//!
//! From `rust/host`, with `cargo install cargo-fuzz --version 0.12.0 --locked` done once (later versions want
//! a newer compiler):
//!
//! ```text
//! cargo fuzz run --sanitizer none rule_command -- -dict=fuzz/rule_command.dict -max_total_time=60
//! ```
//!
//! `--sanitizer none` is for a stable compiler; there is no unsafe code that a sanitizer would look at.

#![no_main]

#[path = "../harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::run(data));
