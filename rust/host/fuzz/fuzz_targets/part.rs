// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/part.rs`; `scripts/fuzz.sh part` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::part::run(data));
