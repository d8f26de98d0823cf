// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/wire.rs`; `scripts/fuzz.sh wire` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::wire::run(data));
