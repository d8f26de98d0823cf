// SPDX-License-Identifier: GPL-2.0-only

//! Tests that each row of `nrs_sched::statistics` is in snapshots as JSON, and on the page of
//! metrics.

use std::fmt;

use nrs_sched::bucket::rate::RateUnit;
use nrs_sched::key::Key;
use nrs_sched::policy::fairshare::stats::{self as fairshare, NodeRow as EntityRow};
use nrs_sched::policy::tbf::class::ClassCounts;
use nrs_sched::policy::tbf::stats::{self as tbf, TbfRow as ClassRow};
use nrs_sched::policy::Kind;
use nrs_sched::report::Report;
use nrs_sched::rules::{Name, Rate, Subject, Unit};
use nrs_sched::statistics::{
    ClientCounts, ConcurrencyCounts, DeadlineCounts, OrderCounts, ServiceCounts, StatUnit, Stats,
    TargetCounts, TimeoutCounts,
};
use nrsctl::exporter::encode::Number;
use nrsctl::exporter::family::Gathered;
use nrsctl::exporter::page::render;
use nrsctl::mock::Mock;
use nrsctl::stats::{self, in_bytes};

use crate::exposition::Page;
use crate::texts::{self, numbered};

/// Writes a part of a snapshot of the module.
type Part<'a> = (&'static str, &'a dyn Fn(&mut Report<'_>) -> fmt::Result);

/// Snapshot of the module, with the snapshot and the page made from it.
struct ShownParts {
    json: serde_json::Value,
    page: Page,
}

impl ShownParts {
    fn new(policy: &str, parts: &[Part<'_>]) -> Self {
        Self::counting(policy, &[], parts)
    }

    /// Creates the snapshot of a service whose policy has the counters `counts`.
    fn counting(policy: &str, counts: &[u64], parts: &[Part<'_>]) -> Self {
        let text = texts::json(|report| {
            report.map(|map| {
                map.part("clients", |map| texts::clients(map, "c", &numbered(100)))?;
                map.part("nrs_policies", |map| {
                    texts::policies(map, policy, "", counts)
                })?;
                parts
                    .iter()
                    .try_for_each(|(name, write)| map.part(name, write))
            })
        });
        let kernel = Mock::with(&[("s", &[("snapshot", &text), ("nrs_fairshare_weights", "")])]);
        let snapshot = stats::read(&kernel, "s").expect("a snapshot");
        let json = serde_json::to_value(&snapshot).expect("JSON");
        let gathered = Gathered {
            snapshots: vec![snapshot],
            ..Gathered::default()
        };
        let page = Page::parse(&render(&gathered, 10, None)).expect("well-formed");
        Self { json, page }
    }

    /// Verifies that each row of `table` is at `place` in the JSON, and on the page with `labels`;
    /// `of` replaces `*` in metric names.
    fn has<T: Stats>(&self, table: &T, place: &str, of: &str, labels: &[(&str, &str)]) {
        let json = self.json.pointer(place).expect("a place");
        for (stat, number) in table.pairs() {
            let name = stat.name;
            assert_eq!(json[stat.key()], number, "{name}: {json}");
            if stat.metric.is_empty() {
                continue;
            }
            let metric = stat.metric.replace('*', of);
            let value = match stat.unit {
                StatUnit::Cost => in_bytes(json["unit"].as_str().unwrap_or("bytes"), number),
                _ => Some(number),
            };
            let value = value.map(|value| Number::of(stat.unit, value).to_string());
            let value = value.map(|value| value.parse().expect("a number"));
            let labels = [&[("service", "s")], labels, stat.labels].concat();
            assert_eq!(self.page.value(&metric, &labels), value, "{metric}");
        }
    }
}

#[test]
fn rows_of_a_service() {
    let (concurrency, order) = (numbered(600), numbered(700));
    let timeouts = numbered(500);
    let (concurrency, order): (ConcurrencyCounts, OrderCounts) = (concurrency, order);
    let timeouts: TimeoutCounts = timeouts;
    let both = |report: &mut Report<'_>| {
        report.map(|map| {
            map.stats(&concurrency, &[])?;
            map.stats(&order, &[])
        })
    };
    let at_stats = |report: &mut Report<'_>| report.map(|map| map.stats(&timeouts, &[]));
    let parts: [Part<'_>; 2] = [("at_stats", &at_stats), ("nrs_concurrency", &both)];
    let shown = ShownParts::new("crrn", &parts);
    shown.has(&numbered::<ServiceCounts>(100), "", "", &[]);
    let (place, of) = ("/clients/0/counters", [("client", "c")]);
    shown.has(&numbered::<ClientCounts>(200), place, "", &of);
    shown.has(&numbered::<DeadlineCounts>(300), place, "", &of);
    let (place, of) = ("/targets/0/counters", [("target", "8:0")]);
    shown.has(&numbered::<TargetCounts>(400), place, "", &of);
    shown.has(&timeouts, "/timeouts", "", &[]);
    shown.has(&concurrency, "/concurrency", "", &[]);
    shown.has(&order, "/concurrency", "", &[]);
}

/// Verifies that counters of policies as a whole need no code in the tool, including the policy for
/// tests.
#[test]
fn rows_of_policies() {
    let parts: [Part<'_>; 2] = [
        ("nrs_tbf_stats", &|report| texts::tbf(report, 1)),
        ("nrs_fairshare_stats", &|report| texts::fairshare(report, 1)),
    ];
    for kind in Kind::ALL.iter().filter(|kind| !kind.counts().is_empty()) {
        let counts: Vec<u64> = (100..).take(kind.counts().len()).collect();
        let shown = ShownParts::counting(kind.name(), &counts, &parts);
        let policy = &shown.json["heads"][0]["policies"][1];
        assert_eq!(policy["name"], kind.name());
        for (stat, count) in kind.counts().iter().zip(counts) {
            assert_eq!(policy[stat.name], count);
            let of = [("service", "s"), ("head", "high"), ("policy", kind.name())];
            let labels = [&of, stat.labels].concat();
            let value = shown.page.value(stat.metric, &labels);
            let unit = match stat.unit {
                StatUnit::Ns => 1e9,
                _ => 1.0,
            };
            assert_eq!(value, Some(count as f64 / unit), "{}", stat.metric);
        }
    }
    let mut kinds = Kind::ALL.iter().filter(|kind| kind.is_for_tests());
    assert!(kinds.any(|kind| !kind.counts().is_empty()));
}

#[test]
fn rows_of_tbf() {
    let mut rows = tbf::TbfRows::new();
    let row = |counters| ClassRow {
        subject: Subject::NONE,
        high: false,
        default: true,
        id: 1,
        rule: Name::new("r").expect("a name"),
        rate: Rate::new(10, Unit::Bytes).expect("a rate"),
        count: RateUnit::Bytes,
        counters,
        queued: 7,
        active: 0,
        debt: 0,
    };
    // Two parts contain the same class; its counters are summed.
    rows.extend(&[row(numbered(100)), row(numbered(1000))], false)
        .expect("memory");
    rows.merge();
    let sums = rows.sums().expect("memory");
    let (class, rule) = (rows.as_slice()[0], sums.as_slice()[0]);
    assert!(class
        .counters
        .values()
        .eq((1100..).step_by(2).take(ClassCounts::ROWS.len())));
    let report = |out: &mut Report<'_>| tbf::report(out, rows.as_slice(), sums.as_slice());
    let shown = ShownParts::new("tbf", &[("nrs_tbf_stats", &report)]);
    let labels = [("head", "regular"), ("rule", "r")];
    let json = &shown.json["rules"][0];
    assert_eq!(
        (json["counters"]["classes"].as_u64(), rule.gauges.queued),
        (Some(1), 14)
    );
    shown.has(&rule.gauges, "/rules/0/counters", "rule", &labels);
    shown.has(&rule.counters, "/rules/0/counters", "rule", &labels);
    let entity = [&labels[..], &[("policy", "tbf"), ("entity", "default")]].concat();
    shown.has(&class.counters, "/entities/0", "entity", &entity);
}

#[test]
fn rows_of_fairshare() {
    let mut row = EntityRow::new(1, 0, "uid", Key::Uid(7), 4096);
    for round in 0..9 {
        row.stats.count(30, 1, round < 5);
    }
    row.stats.forced();
    row.stats.throttled(5678);
    row.stats.time(1234);
    let mut rows = fairshare::NodeRows::new();
    rows.extend(&[row], false).expect("memory");
    rows.merge().expect("memory");
    let report = |out: &mut Report<'_>| fairshare::report(out, &rows, 0);
    let shown = ShownParts::new("fairshare", &[("nrs_fairshare_stats", &report)]);
    let labels = [
        ("head", "regular"),
        ("policy", "fairshare"),
        ("entity", "uid:7"),
    ];
    let counts = &row.stats.counts;
    assert!(counts.values().all(|number| number > 0));
    shown.has(counts, "/entities/0", "entity", &labels);
}
