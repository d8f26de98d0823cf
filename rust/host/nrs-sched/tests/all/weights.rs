// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of weight tables with a map. The fuzz target `weights` checks that written text
//! yields the same table again.

use nrs_sched::{
    glob,
    jobid::JobId,
    key::{Field, Key},
    nid::Nid,
    policy::fairshare::entity_table::{Weights, ITEMS_MAX, WEIGHT_MAX},
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Generates the bytes of an identifier, many of them with a special meaning.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => 1u8..=255,
        3 => b'a'..=b'c',
        2 => prop_oneof![Just(b'"'), Just(b'\\'), Just(b','), Just(b' '), Just(b':'), Just(b'-')],
    ];
    let byte = byte.prop_filter("wildcards are tested elsewhere", |b| !b"*?".contains(b));
    proptest::collection::vec(byte, 1..=31)
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Key, u32),
    Remove(Key),
    Clear,
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        (0u32..20).prop_map(Key::Uid),
        any::<u32>().prop_map(|n| Key::Gid(n.min(u32::MAX - 1))),
        (0u32..4).prop_map(Key::Projid),
        (0u32..4).prop_map(Key::Nodemap),
        (0u8..8).prop_map(|n| Key::Nid(Nid::parse(&format!("10.0.0.{n}@tcp")).expect("a client"))),
        name().prop_map(|name| Key::Jobid(JobId::new(&name))),
        (0u8..4).prop_map(|n| Key::Jobid(JobId::new(&[b'j', n + 1]))),
        prop_oneof![Just(Field::Uid), Just(Field::Jobid)].prop_map(Key::Absent),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        20 => (key(), 1..=WEIGHT_MAX).prop_map(|(key, weight)| Edit::Set(key, weight)),
        4 => key().prop_map(Edit::Remove),
        1 => Just(Edit::Clear),
    ]
}

/// Returns field and value of `key` as text, with every byte of a job escaped.
fn value(key: &Key) -> String {
    match key {
        Key::Jobid(job) => {
            let bytes = job.as_bytes().iter().map(|b| format!("\\x{b:02X}"));
            let bytes = bytes.collect::<Vec<_>>().concat();
            format!("jobid:\"{bytes}\"")
        }
        Key::Absent(Field::Jobid) => "jobid:\"\"".to_owned(),
        Key::Absent(field) => format!("{}:4294967295", field.name()),
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn agrees_with_a_map(edits in proptest::collection::vec(edit(), 0..200)) {
        let mut map = BTreeMap::new();
        let mut weights = Weights::new();
        for edit in &edits {
            let text = match edit {
                Edit::Set(key, weight) => format!("{}:{weight}", value(key)),
                Edit::Remove(key) => format!("-{}", value(key)),
                Edit::Clear => "clear".to_owned(),
            };
            let done = match edit {
                Edit::Set(key, weight) => {
                    map.insert(*key, *weight);
                    true
                }
                Edit::Remove(key) => map.remove(key).is_some(),
                Edit::Clear => {
                    map.clear();
                    true
                }
            };
            let next = weights.apply(&text);
            prop_assert_eq!(next.is_ok(), done, "{}", text);
            weights = next.unwrap_or(weights);
        }
        prop_assert_eq!(weights.len(), map.len());
        for (key, weight) in &map {
            prop_assert_eq!(weights.of(key), *weight);
        }
        prop_assert!(weights.len() <= ITEMS_MAX);
    }

    #[test]
    fn wildcards(patterns in proptest::collection::vec("[ab*?]{0,6}", 0..20), job in "[ab]{0,6}") {
        let wild = |text: &str| text.contains(['*', '?']);
        let mut turns: Vec<(String, u32)> = Vec::new();
        let mut exact = BTreeMap::new();
        let mut text = String::new();
        for (pattern, weight) in patterns.into_iter().zip(2..) {
            text += &format!("jobid:\"{pattern}\":{weight} ");
            if !wild(&pattern) {
                exact.insert(pattern, weight);
            } else if let Some(turn) = turns.iter_mut().find(|turn| turn.0 == pattern) {
                turn.1 = weight;
            } else {
                turns.push((pattern, weight));
            }
        }
        let weights = Weights::new().apply(&text).expect("all are well formed");
        let id = JobId::new(job.as_bytes());
        let key = if job.is_empty() { Key::Absent(Field::Jobid) } else { Key::Jobid(id) };
        let turn = turns.iter().find(|turn| glob::matches(turn.0.as_bytes(), job.as_bytes()));
        let want = exact.get(&job).or(turn.map(|turn| &turn.1));
        prop_assert_eq!(weights.of(&key), want.copied().unwrap_or(1));
    }
}
