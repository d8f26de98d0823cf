// SPDX-License-Identifier: GPL-2.0-only

//! Tests that each row of `nrs_sched::statistics` is in the module's text, in snapshots as JSON,
//! and on the page of metrics.

use nrs_sched::key::Key;
use nrs_sched::policy::fairshare::stats::{self as fairshare, NodeRow as EntityRow};
use nrs_sched::policy::tbf::class::ClassCounts;
use nrs_sched::policy::tbf::plan::RateUnit;
use nrs_sched::policy::tbf::stats::{self as tbf, TbfRow as ClassRow};
use nrs_sched::policy::Kind;
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
use crate::texts::{self, numbered, table};

/// Texts of a service, with the snapshot and the page made from them.
struct ShownTexts {
    texts: Vec<(&'static str, String)>,
    json: serde_json::Value,
    page: Page,
}

impl ShownTexts {
    fn new(policy: &str, texts: &[(&'static str, String)]) -> Self {
        Self::counting(policy, &[], texts)
    }

    /// Creates the texts of a service whose policy has the counters `counts`.
    fn counting(policy: &str, counts: &[u64], texts: &[(&'static str, String)]) -> Self {
        let clients = texts::clients("c", &numbered(100));
        let policies = texts::policies(policy, "", counts);
        let mut texts = texts.to_vec();
        texts.extend([("clients", clients), ("nrs_policies", policies)]);
        let values: Vec<(&str, &str)> = texts.iter().map(|(name, t)| (*name, &**t)).collect();
        let snapshot = stats::read(&Mock::with(&[("s", &values)]), "s").expect("a snapshot");
        let json = serde_json::to_value(&snapshot).expect("JSON");
        let gathered = Gathered {
            snapshots: vec![snapshot],
            ..Gathered::default()
        };
        let page = Page::parse(&render(&gathered, 10, None)).expect("well-formed");
        Self { texts, json, page }
    }

    /// Verifies that each row of `table` is in `text`, at `place` in the JSON, and on the page with
    /// `labels`; `of` replaces `*` in metric names.
    fn has<T: Stats>(&self, table: &T, text: &str, place: &str, of: &str, labels: &[(&str, &str)]) {
        let text = self.texts.iter().find(|(name, _)| *name == text);
        let text = &text.expect("a text").1;
        let words: Vec<&str> = text.split([' ', ',', '\n']).collect();
        let json = self.json.pointer(place).expect("a place");
        for (stat, number) in T::ROWS.iter().zip(table.values()) {
            let name = stat.name;
            let shown = [format!("{name}:"), number.to_string()];
            assert!(words.windows(2).any(|pair| pair == shown), "{name}: {text}");
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
    let both = table::<ConcurrencyCounts>(&concurrency, true) + &table::<OrderCounts>(&order, true);
    let shown = ShownTexts::new(
        "crrn",
        &[
            ("at_stats", table::<TimeoutCounts>(&timeouts, true)),
            ("nrs_concurrency", both),
        ],
    );
    shown.has(&numbered::<ServiceCounts>(100), "clients", "", "", &[]);
    let (place, of) = ("/clients/0/counters", [("client", "c")]);
    shown.has(&numbered::<ClientCounts>(200), "clients", place, "", &of);
    shown.has(&numbered::<DeadlineCounts>(300), "clients", place, "", &of);
    let (place, of) = ("/targets/0/counters", [("target", "8:0")]);
    shown.has(&numbered::<TargetCounts>(400), "clients", place, "", &of);
    shown.has(&timeouts, "at_stats", "/timeouts", "", &[]);
    shown.has(&concurrency, "nrs_concurrency", "/concurrency", "", &[]);
    shown.has(&order, "nrs_concurrency", "/concurrency", "", &[]);
}

/// Verifies that counters of policies as a whole need no code in the tool, including the policy for
/// tests.
#[test]
fn rows_of_policies() {
    let texts = [
        ("nrs_tbf_stats", texts::tbf(1)),
        ("nrs_fairshare_stats", texts::fairshare(1)),
    ];
    for kind in Kind::ALL.iter().filter(|kind| !kind.counts().is_empty()) {
        let counts: Vec<u64> = (100..).take(kind.counts().len()).collect();
        let shown = ShownTexts::counting(kind.name(), &counts, &texts);
        let policy = &shown.json["heads"][0]["policies"][1];
        assert_eq!(policy["name"], kind.name());
        for (stat, count) in kind.counts().iter().zip(counts) {
            assert_eq!(policy[stat.name], count);
            let of = [("service", "s"), ("head", "high"), ("policy", kind.name())];
            let labels = [&of, stat.labels].concat();
            let value = shown.page.value(stat.metric, &labels);
            assert_eq!(value, Some(count as f64), "{}", stat.metric);
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
    let mut text = String::new();
    tbf::write_yaml(&mut text, rows.as_slice(), sums.as_slice()).expect("a text");
    let shown = ShownTexts::new("tbf", &[("nrs_tbf_stats", text)]);
    let labels = [("head", "regular"), ("rule", "r")];
    let json = &shown.json["rules"][0];
    assert_eq!(
        (json["counters"]["classes"].as_u64(), rule.gauges.queued),
        (Some(1), 14)
    );
    shown.has(
        &rule.gauges,
        "nrs_tbf_stats",
        "/rules/0/counters",
        "rule",
        &labels,
    );
    shown.has(
        &rule.counters,
        "nrs_tbf_stats",
        "/rules/0/counters",
        "rule",
        &labels,
    );
    let entity = [&labels[..], &[("policy", "tbf"), ("entity", "default")]].concat();
    shown.has(
        &class.counters,
        "nrs_tbf_stats",
        "/entities/0",
        "entity",
        &entity,
    );
}

#[test]
fn rows_of_fairshare() {
    let mut row = EntityRow::new(1, 0, "uid", Key::Uid(7), 4096);
    for round in 0..9 {
        row.stats.count(30, 1, round < 5);
    }
    row.stats.forced();
    row.stats.time(1234);
    let mut rows = fairshare::NodeRows::new();
    rows.extend(&[row], false).expect("memory");
    rows.merge().expect("memory");
    let mut text = String::new();
    fairshare::write_yaml(&mut text, &rows, 0).expect("a text");
    let shown = ShownTexts::new("fairshare", &[("nrs_fairshare_stats", text)]);
    let labels = [
        ("head", "regular"),
        ("policy", "fairshare"),
        ("entity", "uid:7"),
    ];
    let counts = &row.stats.counts;
    assert!(counts.values().all(|number| number > 0));
    shown.has(
        counts,
        "nrs_fairshare_stats",
        "/entities/0",
        "entity",
        &labels,
    );
}
