// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/exchange.rs`; `scripts/fuzz.sh exchange` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::exchange::run(data));
