// SPDX-License-Identifier: GPL-2.0-only

//! What the fuzz targets found to be worth keeping still holds, and so do some thousand changes of it, always the
//! same ones; `scripts/fuzz.sh` looks for more.

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/control.rs"]
mod control;
#[path = "../../../fuzz/src/jobid.rs"]
mod jobid;
#[path = "../../../fuzz/src/modes.rs"]
mod modes;
#[path = "../../../fuzz/src/nid.rs"]
mod nid;
#[path = "../../../fuzz/src/numbers.rs"]
mod numbers;
#[path = "../../../fuzz/src/part.rs"]
mod part;
#[path = "../../../fuzz/src/partition.rs"]
mod partition;
#[path = "../../../fuzz/src/plan.rs"]
pub mod plan;
#[path = "../../../fuzz/src/policies.rs"]
mod policies;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/rules.rs"]
pub mod rules;
#[path = "../../../fuzz/src/timeouts.rs"]
mod timeouts;
#[path = "../../../fuzz/src/tunables.rs"]
mod tunables;
#[path = "../../../fuzz/src/weights.rs"]
mod weights;

use replay::bounded;

/// Defines a test for each target: its name, its module, how many changes, and their length.
macro_rules! targets {
    ($($name:ident: $module:ident, $count:literal, $longest:literal;)+) => {
        $(
            #[test]
            fn $name() {
                bounded(stringify!($name), $count, $longest, $module::run);
            }
        )+

        /// Every corpus is replayed by a test: `exchange` and `wire` by those of nrs-agent and nrs-client.
        #[test]
        fn nothing_is_left_out() {
            let known = [$(stringify!($name),)+ "exchange", "wire"];
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus");
            let mut found = 0;
            for entry in std::fs::read_dir(dir).expect("the corpus") {
                let name = entry.expect("an entry").file_name();
                assert!(known.iter().any(|known| name == *known), "{name:?}");
                found += 1;
            }
            assert_eq!(found, known.len());
        }
    };
}

targets! {
    control: control, 20_000, 256;
    jobid: jobid, 20_000, 512;
    modes: modes, 20_000, 256;
    nid: nid, 10_000, 512;
    numbers: numbers, 20_000, 64;
    part: part, 200, 600;
    partition: partition, 300, 400;
    plan: plan, 1_500, 1_024;
    policies: policies, 20_000, 256;
    rule_command: rules, 1_000, 1_024;
    timeouts: timeouts, 10_000, 512;
    tunables: tunables, 20_000, 128;
    weights: weights, 3_000, 512;
}
