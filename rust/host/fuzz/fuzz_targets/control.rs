// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/control.rs`; `scripts/fuzz.sh control` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::control::run(data));
