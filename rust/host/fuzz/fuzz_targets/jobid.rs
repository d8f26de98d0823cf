// SPDX-License-Identifier: GPL-2.0-only

//! What must hold is in `src/jobid.rs`; `scripts/fuzz.sh jobid` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nrs_fuzz::jobid::run(data));
