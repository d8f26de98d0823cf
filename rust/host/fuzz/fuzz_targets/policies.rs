// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/policies.rs`; `scripts/fuzz.sh policies` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::policies::run(data));
