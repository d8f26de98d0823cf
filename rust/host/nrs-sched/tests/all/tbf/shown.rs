// SPDX-License-Identifier: GPL-2.0-only

//! Statistics: counters, and valid YAML for all job names.

use super::sim::{attrs, none, one, TbfSim, SECOND};
use nrs_sched::{
    arena::Request,
    attr::Attrs,
    jobid::JobId,
    managed::yaml,
    policy::{
        tbf::{stats::report, stats::TbfRow, stats::TbfRows, Tunables},
        Part,
    },
};
use serde_yaml_ng::Value;

fn parse(rows: &[TbfRow]) -> Value {
    let mut all = TbfRows::new();
    all.extend(rows, false).expect("memory");
    all.merge();
    let sums = all.sums().expect("memory");
    let text = yaml(|out| report(out, all.as_slice(), sums.as_slice()));
    serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn classes_and_rules_of_all_partitions() {
    let mut sim = TbfSim::new("uid", 2, &Tunables::default());
    sim.late = 0;
    sim.rule("start bytes uid={3} rate=1MiB/s");
    sim.rule("start a uid={1 2} rate=10");
    for part in 0..2 {
        for uid in 1..=3 {
            sim.queue(part, uid, 10, 2);
        }
    }
    sim.run(sim.now + SECOND, none);
    let shown = parse(&sim.rows());
    let rules = shown["rules"].as_sequence().unwrap();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["rule"].as_str(), Some("bytes"));
    assert_eq!(rules[0]["rate"].as_str(), Some("1MiB/s"));
    assert_eq!(rules[0]["unit"].as_str(), Some("bytes"));
    assert_eq!(rules[0]["dispatched"].as_i64(), Some(20));
    assert_eq!(rules[0]["cost"].as_i64(), Some(20 * 8192));
    assert_eq!(rules[1]["classes"].as_i64(), Some(2));
    let classes = shown["classes"].as_sequence().unwrap();
    assert_eq!(classes.len(), 3);
    for (class, uid) in classes.iter().zip(["uid:1", "uid:2"]) {
        assert_eq!(class["class"].as_str(), Some(uid));
        assert_eq!(class["rule"].as_str(), Some("a"));
        assert_eq!(class["rate"].as_str(), Some("10"));
        // The depth, and one request in a tenth of a second.
        let dispatched = class["dispatched"].as_i64().unwrap();
        assert!((12..=13).contains(&dispatched), "{dispatched}");
        assert_eq!(class["queued"].as_i64(), Some(20 - dispatched));
        assert_eq!(class["active"].as_i64(), Some(0));
        // Both partitions were throttled for almost the whole second.
        let throttled = class["throttled_ns"].as_i64().unwrap() as u64;
        assert!((SECOND..=2 * SECOND).contains(&throttled), "{throttled}");
        let hits = class["limit_hits"].as_i64().unwrap();
        assert!((9..=12).contains(&hits), "{hits}");
        for counter in ["forced", "borrowed", "debt_ns"] {
            assert_eq!(class[counter].as_i64(), Some(0), "{counter}");
        }
    }
    for part in &mut sim.parts {
        assert_eq!(part.reset(0, 64), None);
    }
    for row in sim.rows() {
        assert_eq!((row.counters.dispatched, row.counters.throttled_ns), (0, 0));
    }
    sim.run(sim.now + SECOND, one);
    let empty = parse(&[]);
    assert_eq!(empty["rules"].as_sequence().map(Vec::len), Some(0));
    assert_eq!(empty["classes"].as_sequence().map(Vec::len), Some(0));
}

/// Checks that rules of the two heads are kept apart, regardless of their numbers.
#[test]
fn heads_are_distinguished() {
    let mut rows = TbfRows::new();
    for (command, high) in [
        ("start a uid={1} rate=10", false),
        ("start b uid={1} rate=20", true),
    ] {
        let mut sim = TbfSim::by_uid();
        sim.rule(command);
        sim.queue(0, 1, 2, 1);
        sim.run(sim.now + SECOND, none);
        rows.extend(&sim.rows(), high).unwrap();
    }
    rows.merge();
    let sums = rows.sums().unwrap();
    let seen: Vec<_> = sums
        .as_slice()
        .iter()
        .map(|sum| (sum.rule.to_string(), sum.high))
        .collect();
    assert_eq!(seen, [("a".into(), false), ("b".into(), true)]);
    assert_eq!(rows.as_slice().len(), 2);
}

/// Checks that the name of a job is shown unchanged, regardless of its meaning in YAML.
#[test]
fn names_are_quoted() {
    let mut sim = TbfSim::new("jobid", 1, &Tunables::default());
    let attrs = Attrs {
        jobid: JobId::new(b"a:\"b\\#[{'%&*!"),
        ..attrs(1)
    };
    let class = sim.parts[0].classify(&attrs, sim.now);
    let request = Request::new(1, 1, 1, sim.now);
    assert!(sim.parts[0].enqueue(request, class, sim.now).is_ok());
    let shown = parse(&sim.rows());
    let name = shown["classes"][0]["class"].as_str();
    assert_eq!(name, Some("jobid:a:\"b\\#[{'%&*!"));
}
