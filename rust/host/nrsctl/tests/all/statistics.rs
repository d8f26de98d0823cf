// SPDX-License-Identifier: GPL-2.0-only

//! Tests of reading snapshots from the module's own writers.

use crate::texts::{self, module, service, snapshot};
use nrs_sched::report::Report;
use nrsctl::failure::{Failure, FailureKind};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, Bandwidth, Entity, Rule, Snapshot};
use proptest::prelude::*;
use serde_yaml_ng::Value;
use std::fmt;

/// Reads what the module writes as a snapshot.
fn read(text: &str) -> Result<Snapshot, Failure> {
    stats::read(&module(text), "svc")
}

/// Verifies that both formats of a report say the same.
fn compare(write: impl Fn(&mut Report<'_>) -> fmt::Result) {
    let mut text = String::new();
    write(&mut Report::yaml(&mut text)).expect("a string takes everything");
    let yaml: Value = serde_yaml_ng::from_str(&text).expect(&text);
    let json: Value = serde_json::from_str(&texts::json(write)).expect("JSON");
    assert_eq!(yaml, json, "{text}");
}

#[test]
fn yaml_and_json_are_equal() {
    for entities in [0, 1, 2, 26, 300] {
        compare(|report| texts::fairshare(report, entities));
        compare(|report| texts::tbf(report, entities));
    }
    compare(|report| texts::clients(report, "q\"1\\x22", &texts::numbered(7)));
}

#[test]
fn clients_that_are_not_regulated() {
    let text = r#"{"nrs_qbm_status":[{"group":"g","strategy":"mover","capacity":5,"clients":[
        {"client":"device:a","class":"unregulated","allocated":"unregulated","used_fast":7}]}]}"#;
    let clients = read(text).expect("clients").entities;
    let want = Bandwidth {
        class: "unregulated".into(),
        used_fast: 7,
        ..Bandwidth::default()
    };
    assert_eq!(clients[0].bandwidth.as_ref(), Some(&want));
    assert_eq!(clients[0].limit, None);
}

/// Verifies that what newer modules add is ignored, and that what older modules lack has a default.
#[test]
fn other_versions() {
    let text = r#"{"new":[1],
        "clients":{"service":{"slots":1,"new":2,"mode":"x"},
            "clients":[{"client":"a","counters":{"passed":1,"mode":"x","state":"lost"}}],
            "targets":[{"target":"8:0","counters":{"depth":3,"mode":"x"}}],"others":[]},
        "nrs_policies":[{"name":"regular","policies":[
            {"name":"new","argument":"thing","state":"started","fallback":false,"colour":1}]}],
        "at_stats":{"a":1,"mode":"x","name":"5"},
        "nrs_fairshare_stats":[
            {"entity":"uid:1","dispatched":3,"colour":"red","deep":{"deeper":{"a":1}}}],
        "nrs_qbm_status":[{"group":"all","strategy":"even","mode":"x",
            "reserves":{"high":1,"kind":"y"}}],
        "nrs_qbm_stats":[{"group":"all","mode":"x","sleeps":3},{"group":"gone","sleeps":4}]}"#;
    let found = read(text).expect("a snapshot");
    let only = |name: &'static str, number| [(name.into(), number)].into();
    assert_eq!(found.counters, only("slots", 1));
    let policy = &found.heads[0].policies[0];
    assert_eq!(policy.full(), "new thing");
    assert!(policy.counters.is_empty());
    assert!(found.clients[0].lost && found.clients[0].counters == only("passed", 1));
    assert_eq!(found.targets[0].counters, only("depth", 3));
    assert_eq!(found.timeouts, only("a", 1));
    assert_eq!(found.entities.len(), 1);
    assert_eq!(found.entities[0].counter("dispatched"), 3);
    let counters = [("reserve_high".into(), 1), ("sleeps".into(), 3)].into();
    assert_eq!(found.groups.len(), 1);
    assert_eq!(
        (&*found.groups[0].strategy, &found.groups[0].counters),
        ("even", &counters)
    );
    assert_eq!(read("{}").expect("nothing").unhealthy, None);
}

/// Snapshots that are wrong, each with a part of the reason.
const WRONG: &str = r#"
nothing
    expected ident at line 1 column 2
{
    EOF while parsing
{"nrs_fairshare_stats":[{"weight":"inf"}]}
    weight: invalid type
{"nrs_fairshare_stats":[{"queue":"slow"}]}
    queue: expected a head
{"nrs_tbf_stats":{"classes":[{"queued":-1}]}}
    queued: invalid value
{"nrs_qbm_status":{"group":"a"}}
    invalid type: map, expected a sequence
"#;

#[test]
fn faults_are_reported_with_their_position() {
    let lines: Vec<&str> = WRONG.trim_matches('\n').lines().collect();
    for pair in lines.chunks(2) {
        let (text, want) = (pair[0], pair[1].trim());
        let failure = read(text).expect_err(text);
        let message = failure.message;
        assert!(
            message.starts_with("snapshot of service 'svc': "),
            "{message}"
        );
        assert!(message.contains(want), "{message}");
        assert!(failure.kind == FailureKind::Other && failure.hint.is_some());
    }
    let missing = stats::read(&Mock::with(&[]), "svc").expect_err("no service");
    assert_eq!(missing.kind, FailureKind::NotFound);
}

#[test]
fn limits_of_rules() {
    for (rate, unit, want) in [
        ("10000", "requests", Some((10_000, false))),
        ("10000", "pages", Some((40_960_000, true))),
        ("7iops", "pages", Some((7, false))),
        ("3MB/s", "bytes", Some((3_000_000, true))),
        ("3XB/s", "bytes", None),
    ] {
        let rule = Rule {
            rate: rate.into(),
            unit: unit.into(),
            ..Rule::default()
        };
        assert_eq!(rule.limit(), want, "{rate}");
    }
}

/// Verifies that a snapshot is unchanged by a conversion to JSON and back, and that missing fields
/// get their defaults.
#[test]
fn recorded_and_read_again() {
    for name in ["fairshare", "tbf", "qbm"] {
        let snapshot = snapshot(name);
        let text = serde_json::to_string(&snapshot).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Snapshot>(&text).expect("a snapshot"),
            snapshot
        );
    }
    let old: Snapshot =
        serde_json::from_str(r#"{"service":"a","entities":[{"name":"b"}]}"#).expect("a snapshot");
    assert_eq!(
        old.entities[0],
        Entity {
            name: "b".into(),
            ..Entity::default()
        }
    );
}

#[test]
fn time_goes_forward() {
    let module = module(&service("crrn", 0));
    let times: Vec<u64> = (0..3)
        .map(|_| stats::read(&module, "svc").expect("a snapshot").at_ns)
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

proptest! {
    /// Verifies that names of any bytes are read unchanged, in both formats.
    #[test]
    fn any_name(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        compare(|report| report.map(|map| map.name("name", &bytes)));
        let want: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let text = texts::json(|report| {
            report.map(|map| {
                map.part("nrs_fairshare_stats", |report| {
                    report.list(|list| list.entry(|entry| entry.name("entity", &bytes)))
                })?;
                map.part("nrs_tbf_stats", |report| {
                    report.map(|map| {
                        map.entries("classes", |list| {
                            list.entry(|entry| entry.name("class", &bytes))
                        })
                    })
                })
            })
        });
        for entity in read(&text).expect("a snapshot").entities {
            prop_assert_eq!(&entity.name, &want);
        }
    }
}
