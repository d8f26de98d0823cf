// SPDX-License-Identifier: GPL-2.0-only

//! Bounded runs of all targets: the corpus, and some thousand modifications of it, always the same
//! ones. `scripts/fuzz.sh` searches for further inputs.

use nrs_fuzz::{replay::bounded, target, TARGETS};

macro_rules! tests {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                bounded(target(stringify!($name)));
            }
        )+

        /// Checks that each target has a test and a corpus, and that no other corpus exists.
        #[test]
        fn nothing_is_left_out() {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
            let entries = std::fs::read_dir(dir).expect("the corpus");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut corpora: Vec<_> = names.collect();
            corpora.sort();
            assert_eq!(corpora, [$(stringify!($name)),+]);
            assert!(TARGETS.iter().map(|target| target.name).eq([$(stringify!($name)),+]));
        }
    };
}

tests! {
    config control exchange jobid nid parameters part partition plan policies rules timeouts weights
    wire words
}
