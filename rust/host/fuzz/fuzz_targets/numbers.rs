// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/numbers.rs`; `scripts/fuzz.sh numbers` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::numbers::run(data));
