// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/timeouts.rs`; `scripts/fuzz.sh timeouts` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::timeouts::run(data));
