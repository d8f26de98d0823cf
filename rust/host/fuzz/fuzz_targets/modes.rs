// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/modes.rs`; `scripts/fuzz.sh modes` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::modes::run(data));
