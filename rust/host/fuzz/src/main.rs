// SPDX-License-Identifier: GPL-2.0-only

//! Passes the input of the fuzzer to the target in the environment variable `NRS_FUZZ_TARGET`.
//! First writes the words of the target to the file `NRS_FUZZ_DICTIONARY`.

#![cfg_attr(fuzzing, no_main)]

use std::{env, fs, sync::OnceLock};

use nrs_fuzz::Target;

/// The target that runs.
static TARGET: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = env::var("NRS_FUZZ_TARGET").expect("the name of a target");
        let target = nrs_fuzz::target(&name);
        if let Ok(file) = env::var("NRS_FUZZ_DICTIONARY") {
            fs::write(&file, target.dictionary()).expect(&file);
        }
        TARGET.get_or_init(|| target);
    },
    |data: &[u8]| (TARGET.get().expect("init ran").run)(data)
);

/// Fails: only `scripts/fuzz.sh` links the fuzzer; other builds check that this file compiles.
#[cfg(not(fuzzing))]
fn main() -> Result<(), &'static str> {
    Err("built without the fuzzer, see scripts/fuzz.sh")
}
