// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/weights.rs`; `scripts/fuzz.sh weights` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::weights::run(data));
