// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/plan.rs`; `scripts/fuzz.sh plan` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::plan::run(data));
