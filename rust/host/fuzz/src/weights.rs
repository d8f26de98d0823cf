// SPDX-License-Identifier: GPL-2.0-only

//! Changes of weights: each line is one write to `nrs_fairshare_weights`; the first line may be a
//! mode with weights.

use nrs_sched::{
    attr::Opcode,
    jobid::JobId,
    key::{Field, Key},
    nid::Nid,
    policy::fairshare::{
        mode::Mode,
        weights::{split, Weights, WEIGHTS_MAX, WEIGHT_MAX},
    },
};

/// Returns keys that weights are likely to match.
fn keys() -> impl Iterator<Item = Key> {
    let jobs = ["a", "dd.0", "x y", "\"", "job#4"];
    let jobs = jobs.map(|job| Key::Jobid(JobId::new(job.as_bytes())));
    let nids = ["0@lo", "10.0.0.1@tcp", "fe80::1@o2ib1"];
    let nids = nids.map(|nid| Key::Nid(Nid::parse(nid).expect("valid")));
    let others = [
        Key::Default,
        Key::Uid(0),
        Key::Uid(1000),
        Key::Gid(7),
        Key::Projid(3),
        Key::Nodemap(1),
        Key::Opcode(Opcode::OST_READ),
    ];
    let absent = Field::ALL.map(Key::Absent);
    jobs.into_iter().chain(nids).chain(others).chain(absent)
}

/// Returns the text of `weights`.
fn text(weights: &Weights) -> String {
    let mut out = String::new();
    weights.write(&mut out).expect("strings take all");
    out
}

/// Checks the properties of every table.
fn check(weights: &Weights) {
    let written = text(weights);
    let again = Weights::new().apply(&written);
    let again = again.unwrap_or_else(|error| panic!("{written}: {error:?}"));
    assert_eq!(text(&again), written);
    assert_eq!(again.len(), weights.len());
    assert!(weights.len() <= WEIGHTS_MAX && written.lines().count() == weights.len());
    for key in keys() {
        let weight = weights.of(&key);
        assert!((1..=WEIGHT_MAX).contains(&weight));
        assert_eq!(again.of(&key), weight, "{key}\n{written}");
    }
    // Applying the whole text to the table again changes nothing.
    let twice = again.apply(&written).expect("it was taken before");
    assert_eq!(text(&twice), written);
    assert!(weights.apply("clear").is_ok_and(|empty| empty.is_empty()));
}

/// Checks each line as a change.
pub fn run(all: &str) {
    if let Ok((mode, list)) = split(all) {
        assert_eq!(Mode::parse(&mode.to_string()), Ok(mode));
        let list = list.unwrap_or_default();
        assert!(all.contains(list));
    }
    let mut weights = Weights::new();
    for line in all.split('\n').take(64) {
        let list = match split(line) {
            Ok((_, Some(list))) => list,
            _ => line,
        };
        let before = text(&weights);
        match weights.apply(list) {
            Ok(next) => weights = next,
            Err(error) => {
                crate::check_reason(&error);
                assert_eq!(text(&weights), before);
            }
        }
    }
    check(&weights);
    // All lines at once: items after an error do not count.
    if let Ok(weights) = Weights::new().apply(all) {
        check(&weights);
    }
}
