// SPDX-License-Identifier: GPL-2.0-only

//! Statistics file: valid YAML for all job names.

use nrs_sched::{
    jobid::JobId,
    key::Key,
    managed::yaml,
    policy::fairshare::{
        entity_stats::EntityStats,
        stats::{report, NodeRow, NodeRows},
    },
};
use proptest::prelude::*;
use serde_yaml_ng::Value;

fn jobid(name: &[u8]) -> Key {
    Key::Jobid(JobId::new(name))
}

fn row(id: u64, parent: u64, level: &'static str, key: Key) -> NodeRow {
    NodeRow {
        active: true,
        lag_decipages: -124,
        queue_depth: 7,
        ..NodeRow::new(id, parent, level, key, 4096)
    }
}

fn parse(list: &[NodeRow]) -> Vec<Value> {
    let mut rows = NodeRows::new();
    rows.extend(list, false).expect("memory");
    rows.merge().expect("memory");
    let text = yaml(|out| report(out, &rows, 1));
    serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn the_fields_are_those_of_the_design() {
    let mut stats = EntityStats::new();
    for _ in 0..3 {
        stats.count(4, 4, true);
        stats.sample(0);
        stats.waited(3_000_000);
    }
    stats.time(17);
    stats.debt(-124);
    let job = NodeRow {
        size: 3,
        stats,
        ..row(12, 11, "size", jobid(b"batch_sim.12345"))
    };
    let entities = parse(&[NodeRow::inner(11, 0, "uid", Key::Uid(1000), 4096), job]);
    assert_eq!(entities.len(), 1);
    let entity = &entities[0];
    for (field, want) in [
        ("entity", "uid:1000/jobid:batch_sim.12345"),
        ("type", "size"),
        ("queue", "regular"),
        ("range", "[0.000, 1.000)"),
    ] {
        assert_eq!(entity[field].as_str(), Some(want), "{field}");
    }
    assert_eq!(entity["active"].as_bool(), Some(true));
    for (field, want) in [
        ("dispatched", 3),
        ("cost_pages", 12),
        ("time_us", 17),
        ("opportunity", 3),
        ("forced", 0),
        ("queue_depth", 7),
        ("size", 3),
    ] {
        assert_eq!(entity[field].as_i64(), Some(want), "{field}");
    }
    for (field, want) in [
        ("fairness_debt", -12.4),
        ("weight", 1.0),
        ("factor", 1.0),
        ("opportunity_ratio", 1.0),
        ("share_wanted", 1.0),
        ("share_1s", 1.0),
        ("share_60s", 1.0),
        ("borrowed", 0.0),
    ] {
        assert_eq!(entity[field].as_f64(), Some(want), "{field}");
    }
    let debts = entity["debt_histogram"].as_mapping().expect("a mapping");
    assert_eq!(debts.len(), 8);
    assert_eq!(entity["debt_histogram"]["-16..0"].as_i64(), Some(1));
    let waits = &entity["wait_us"];
    for (field, range) in [
        ("p50", 2250..3750),
        ("p90", 2250..3750),
        ("p99", 2250..3750),
        ("max", 3000..4500),
    ] {
        let got = waits[field].as_i64().expect("a number");
        assert!(range.contains(&got), "{field}: {got}");
    }
    let fields: Vec<&str> = entity
        .as_mapping()
        .expect("a mapping")
        .keys()
        .filter_map(Value::as_str)
        .collect();
    // The order that scripts may rely on.
    let first = [
        "entity",
        "type",
        "active",
        "range",
        "dispatched",
        "cost_pages",
        "opportunity",
        "fairness_debt",
        "queue_depth",
    ];
    assert_eq!(&fields[..first.len()], first);
    assert_eq!(fields.len(), 24);
}

/// Returns the expected path, if all of it is ASCII.
fn path(names: &[Vec<u8>]) -> Option<String> {
    let name = |name: &Vec<u8>| {
        let name = String::from_utf8(name.clone()).ok()?;
        name.is_ascii().then(|| format!("jobid:{name}"))
    };
    let names: Option<Vec<String>> = names.iter().map(name).collect();
    names.map(|names| names.join("/"))
}

proptest! {
    #[test]
    fn any_name_is_read_back_at_any_level(
        names in proptest::collection::vec(proptest::collection::vec(1u8.., 1..31), 1..6)
    ) {
        let mut rows = Vec::new();
        for (name, id) in names.iter().zip(1..) {
            rows.push(NodeRow {
                leaf: id == names.len() as u64,
                ..row(id, id - 1, "jobid", jobid(name))
            });
        }
        let entities = parse(&rows);
        prop_assert_eq!(entities.len(), 1);
        let entity = entities[0]["entity"].as_str().unwrap_or_default();
        prop_assert!(entity.starts_with("jobid:"));
        if let Some(path) = path(&names) {
            prop_assert_eq!(entity, path);
        }
    }
}
