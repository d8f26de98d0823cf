// SPDX-License-Identifier: GPL-2.0-only

//! Tests of numbers, merging, the order of paths and shares. Another test parses the file as YAML.

use super::*;
use crate::sched::{jobid::JobId, statistics::Stats as _, units::NSEC_PER_SEC as SECOND};

fn uid(number: u32) -> NodeRow {
    NodeRow::inner(1 + u64::from(number), 0, "uid", Key::Uid(number), 4096)
}

fn job(of: u32, name: &str, id: u64) -> NodeRow {
    let key = Key::Jobid(JobId::new(name.as_bytes()));
    NodeRow {
        active: true,
        ..NodeRow::new(id, 1 + u64::from(of), "jobid", key, 4096)
    }
}

fn merged(parts: &[(&[NodeRow], bool)]) -> NodeRows {
    let mut rows = NodeRows::new();
    for (part, high) in parts {
        rows.extend(part, *high).unwrap();
    }
    rows.merge().unwrap();
    rows
}

/// Verifies that counters of several parts are summed, and that the largest of their gauges counts.
#[test]
fn the_largest_gauge_of_parts_counts() {
    let counts = |held_ns, latency_slots| Counts {
        held_ns,
        latency_slots,
        ..Counts::ZERO
    };
    let (mut sum, mut sums) = (Counts::ZERO, [0; Counts::ROWS.len()]);
    for part in [counts(5, 2), counts(4, 3), counts(3, 1)] {
        sum.merge(&part);
        part.add_to(&mut sums);
    }
    assert_eq!(sum, counts(12, 3));
    assert!(sum.values().eq(sums));
}

/// Returns the values of `field` in the file, in order.
fn field(rows: &NodeRows, now: u64, field: &str) -> Vec<String> {
    let mut text = String::new();
    report(
        &mut crate::sched::report::Report::yaml(&mut text),
        rows,
        now,
    )
    .unwrap();
    let start = format!("{field}: ");
    let values = text
        .lines()
        .filter_map(|line| line[2..].strip_prefix(&start));
    values.map(str::to_string).collect()
}

#[test]
fn numbers() {
    for (part, whole, text) in [
        (0, 0, "0.000"),
        (5, 0, "0.000"),
        (1, 3, "0.333"),
        (3, 3, "1.000"),
        (4, 3, "1.000"),
        (u64::MAX / 3, u64::MAX, "0.333"),
        (1, u64::MAX, "0.000"),
        (u64::MAX, u64::MAX, "1.000"),
    ] {
        assert_eq!(Fraction(ratio(part, whole)).to_string(), text);
    }
}

/// Verifies that an entity of several parts has one row with the sums, and a row for each head.
#[test]
fn rows_of_one_entity_become_one() {
    let part = |n: u32| {
        let mut row = job(7, "dd", 99);
        row.active = n == 3;
        row.weight = n;
        row.lag_decipages = i64::from(n) - 2;
        row.queue_depth = n;
        row.requests = 1;
        row.stats.count(n * 10, n * 10, n == 1);
        row.stats.sample(0);
        [row, uid(7)]
    };
    let rows = merged(&[
        (&part(1), false),
        (&part(2), false),
        (&part(3), false),
        (&part(2), true),
    ]);
    let all: Vec<&NodeRow> = rows.iter().collect();
    assert_eq!(all.len(), 4);
    assert!(!all[0].leaf && all[1].leaf && !all[1].high);
    let row = all[1];
    assert_eq!((row.weight, row.active, row.lag_decipages), (3, true, 0));
    assert_eq!((row.queue_depth, row.requests), (6, 3));
    assert_eq!(
        (row.stats.counts.dispatched, row.stats.counts.cost_pages),
        (3, 60)
    );
    assert!(all[3].leaf && all[3].high && all[3].stats.counts.cost_pages == 20);
    assert_eq!(
        field(&rows, 0, "queue"),
        ["\"regular\"", "\"high_priority\""]
    );
    // Without rows the text is empty.
    assert!(field(&merged(&[]), 0, "queue").is_empty());
}

/// Verifies that members follow their group, in the order of keys, whatever their identifiers are.
#[test]
fn the_order_is_that_of_paths() {
    let mut rows = Vec::new();
    for (number, id) in [(3u32, 7), (1, 9), (2, 8)] {
        rows.push(job(number, "b", id * 100));
        rows.push(job(number, "a", id * 1000));
        rows.push(job(number, "c", id * 10));
        rows.push(uid(number));
    }
    // An entity whose group has no row, a group without members, and the default class.
    rows.push(job(55, "z", 1));
    rows.push(uid(4));
    rows.push(NodeRow::new(40, 0, "default", Key::Default, 4096));
    let paths = |rows: &[NodeRow]| -> Vec<String> {
        let rows = merged(&[(rows, false)]);
        let mut text = String::new();
        report(&mut crate::sched::report::Report::yaml(&mut text), &rows, 0).unwrap();
        let paths = text
            .lines()
            .filter_map(|line| line.strip_prefix("- entity: "));
        paths.map(str::to_string).collect()
    };
    let want = [
        "\"default\"",
        "\"jobid:z\"",
        "\"uid:1/jobid:a\"",
        "\"uid:1/jobid:b\"",
        "\"uid:1/jobid:c\"",
        "\"uid:2/jobid:a\"",
        "\"uid:2/jobid:b\"",
        "\"uid:2/jobid:c\"",
        "\"uid:3/jobid:a\"",
        "\"uid:3/jobid:b\"",
        "\"uid:3/jobid:c\"",
    ];
    assert_eq!(paths(&rows), want);
    rows.reverse();
    assert_eq!(paths(&rows), want);
    rows.rotate_left(4);
    assert_eq!(paths(&rows), want);
}

/// Verifies the shares wanted, received and borrowed: two of three entities are active, and one
/// gets more than its share.
#[test]
fn shares() {
    let now = 600 * SECOND;
    let mut rows = [job(1, "a", 11), job(1, "b", 12), job(1, "c", 13), uid(1)];
    rows[2].active = false;
    rows[0].weight = 2 * 4096;
    rows[0].size = 2;
    for second in 540..600 {
        rows[0].stats.count(30, 30, false);
        rows[0].stats.sample(second * SECOND);
        rows[1].stats.count(10, 10, true);
        rows[1].stats.sample(second * SECOND);
        // This entity became idle half a minute ago.
        if second < 570 {
            rows[2].stats.count(40, 40, true);
            rows[2].stats.sample(second * SECOND);
        }
    }
    let list = merged(&[(&rows, false)]);
    for (name, want) in [
        (
            "range",
            [
                "\"[0.000, 0.667)\"",
                "\"[0.667, 1.000)\"",
                "\"[0.000, 0.000)\"",
            ],
        ),
        ("share_wanted", ["0.667", "0.333", "0.000"]),
        ("share_1s", ["0.750", "0.250", "0.000"]),
        ("share_60s", ["0.500", "0.167", "0.333"]),
        // Entitled: a half, a quarter, a quarter.
        ("borrowed", ["0.000", "0.000", "0.083"]),
        ("opportunity_ratio", ["0.000", "1.000", "1.000"]),
        ("weight", ["2.000", "1.000", "1.000"]),
        ("active", ["true", "true", "false"]),
    ] {
        assert_eq!(field(&list, now - 1, name), want, "{name}");
    }
    assert_eq!(field(&list, now, "size"), ["2"]);
    // With a removed entity that got half of all service.
    let mut list = list;
    let mut total = ServiceWindows::default();
    for second in 540..600 {
        total.add(120, second * SECOND);
    }
    list.total(&total, true);
    assert_eq!(field(&list, now - 1, "share_60s")[0], "0.500");
    list.total(&total, false);
    assert_eq!(
        field(&list, now - 1, "share_60s"),
        ["0.250", "0.083", "0.167"]
    );
}

#[test]
fn histograms() {
    let mut row = job(1, "a", 11);
    for pages in [-5000, -100, -1, 0, 5, 16, 300] {
        row.stats.debt(pages * 10);
    }
    for _ in 0..98 {
        row.stats.waited(0);
    }
    row.stats.waited(1 << 20);
    row.stats.waited(1 << 30);
    let rows = merged(&[(&[row], false)]);
    assert_eq!(
        field(&rows, 0, "debt_histogram"),
        [concat!(
            r#"{ "..-4096": 1, "-4096..-256": 0, "-256..-16": 1, "-16..0": 1, "#,
            r#""0..16": 2, "16..256": 1, "256..4096": 1, "4096..": 0 }"#
        )]
    );
    assert_eq!(
        field(&rows, 0, "wait_us"),
        ["{ p50: 0, p90: 0, p99: 1310, max: 1610612 }"]
    );
}

/// Verifies that a row is small and a buffer of rows can be allocated.
#[test]
fn rows_are_small() {
    assert!(size_of::<NodeRow>() <= 480, "{}", size_of::<NodeRow>());
    assert!(crate::sched::policy::fairshare::NodeRowBuf::new().is_ok());
}
