// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/nid.rs`; `scripts/fuzz.sh nid` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::nid::run(data));
