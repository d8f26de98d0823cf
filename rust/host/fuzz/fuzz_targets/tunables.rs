// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/tunables.rs`; `scripts/fuzz.sh tunables` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::tunables::run(data));
