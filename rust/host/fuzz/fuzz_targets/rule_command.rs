// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/rules.rs`; `scripts/fuzz.sh rule_command` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::rules::run(data));
