// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/partition.rs`; `scripts/fuzz.sh partition` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::partition::run(data));
