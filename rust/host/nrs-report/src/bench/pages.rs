// SPDX-License-Identifier: GPL-2.0-only

//! The report: one table for each question.

use std::fmt::Write as _;

use nrs_report::table::Table;
use serde_json::{json, Value};

use super::{
    anchors::ANCHORS,
    growth::{growth, Growth},
    measured::{Measured, Memory, Timing},
};

/// Policies, in the order of tables.
pub const POLICIES: [&str; 14] = [
    "fifo",
    "crrn",
    "orr",
    "trr",
    "delay",
    "tbf",
    "tbf_rules",
    "qbm",
    "qbm_waits",
    "fairshare",
    "fairshare_mixed",
    "fairshare2",
    "fairshare3",
    "paper",
];

/// Numbers of classes.
const CLASSES: [u32; 8] = [2, 8, 64, 256, 1_000, 4_096, 16_384, 100_000];

/// `number` with commas.
fn commas(number: u32) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

/// Nanoseconds: median and confidence interval.
fn shown(one: &Timing) -> String {
    one.ns.text(if one.ns.median < 100.0 { 1 } else { 0 })
}

/// Nanoseconds of the fastest sample.
fn least(one: &Timing) -> String {
    format!("{:.0}", one.least_ns)
}

/// The fastest sample, the median and its confidence interval.
fn both(one: &Timing) -> String {
    format!("{}; {}", least(one), shown(one))
}

/// Classes and medians from `from` to `to`.
fn medians(measured: &Measured, policy: &str, from: u32, to: u32) -> Vec<(u32, f64)> {
    let points = measured.series("decision", policy).into_iter();
    let within = points.filter(|(classes, _)| (from..=to).contains(classes));
    within
        .map(|(classes, one)| (classes, one.figure(measured.busy())))
        .collect()
}

/// A head and a table under it; nothing if the table has no rows.
fn section(out: &mut String, head: &str, text: &str, table: &Table) {
    if !table.is_empty() {
        // Strings take all.
        let _ = write!(out, "## {head}\n\n{text}\n\n{}\n", table.markdown());
    }
}

/// What a decision costs.
fn decisions(measured: &Measured, cell: fn(&Timing) -> String) -> Table {
    let mut head = vec!["policy".to_owned()];
    head.extend(CLASSES.map(commas));
    let mut table = Table::new(&head);
    for policy in POLICIES {
        let points = measured.series("decision", policy);
        if points.is_empty() {
            continue;
        }
        let mut row = vec![policy.to_owned()];
        row.extend(CLASSES.map(|classes| {
            let found = points.iter().find(|(count, _)| *count == classes);
            found.map_or("–".to_owned(), |(_, one)| cell(one))
        }));
        table.row(&row);
    }
    table
}

/// Growth of all policies, over all and over two halves of the range.
fn growths(measured: &Measured) -> Vec<(&'static str, [Option<Growth>; 3])> {
    let ranges = [(2, 100_000), (2, 1_000), (1_000, 100_000)];
    let of = |policy| ranges.map(|(from, to)| growth(&medians(measured, policy, from, to)));
    POLICIES.map(|policy| (policy, of(policy))).into()
}

fn growth_table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "policy",
        "ns per doubling",
        "of that up to 1,000",
        "from 1,000 on",
        "times per doubling",
        "most over least classes",
    ]);
    for (policy, [all, few, many]) in growths(measured) {
        let Some(all) = all else {
            continue;
        };
        let slope = |growth: Option<Growth>| {
            growth.map_or("–".to_owned(), |growth| {
                format!("{:+.1}", growth.slope_ns)
            })
        };
        let doublings = (f64::from(all.to) / f64::from(all.from)).log2();
        let most = all.ratio.powf(doublings);
        table.row(&[
            policy.to_owned(),
            slope(Some(all)),
            slope(few),
            slope(many),
            format!("{:.3}", all.ratio),
            format!("{most:.2} ({} / {})", commas(all.to), all.from),
        ]);
    }
    table
}

/// Beside what others take.
fn others(measured: &Measured) -> Table {
    let ours = ["fairshare", "fairshare_mixed", "fairshare3", "tbf", "qbm"];
    let mut head = vec!["classes"];
    head.extend(ours);
    head.extend(ANCHORS.each_ref().map(|anchor| anchor.name));
    head.push("fairshare against the best of them");
    let mut table = Table::new(&head);
    for classes in CLASSES {
        let mut row = vec![commas(classes)];
        let value = classes.to_string();
        let of = |policy| measured.one("decision", policy, &value);
        let figure = |one: &Timing| format!("{:.0}", one.figure(measured.busy()));
        row.extend(ours.map(|policy| of(policy).map_or("–".to_owned(), figure)));
        let spreads = ANCHORS.each_ref().map(|anchor| anchor.among(classes));
        row.extend(spreads.map(|ns| match ns {
            Some(ns) => format!("{}–{}", ns.low, ns.high),
            None => "–".to_owned(),
        }));
        let best = spreads
            .iter()
            .flatten()
            .map(|ns| ns.low)
            .min_by(f64::total_cmp);
        row.push(match (best, of("fairshare")) {
            (Some(best), Some(one)) => {
                format!("{:.1} times as fast", best / one.figure(measured.busy()))
            }
            _ => "–".to_owned(),
        });
        if of("fairshare").is_some() {
            table.row(&row);
        }
    }
    table
}

/// Memory of a policy with so many classes.
fn memory<'a>(measured: &'a Measured, policy: &str, classes: u32) -> Option<&'a Memory> {
    let mut all = measured.memory.iter();
    all.find(|one| one.policy == policy && one.classes == classes)
}

fn memory_table(measured: &Measured) -> Table {
    let counts = [64, 1_000, 4_096, 16_384, 100_000];
    let mut head = vec!["policy".to_owned()];
    head.extend(["shared", "shared, most", "empty part", "empty part, most"].map(str::to_owned));
    head.extend(counts.map(|count| format!("per class of {}", commas(count))));
    head.push("per queued request".to_owned());
    let mut table = Table::new(&head);
    for policy in POLICIES {
        let (usual, most) = (
            memory(measured, policy, 4_096),
            memory(measured, policy, 100_000),
        );
        let (Some(usual), Some(most)) = (usual, most) else {
            continue;
        };
        let mut row = vec![policy.to_owned()];
        let once = [
            usual.shared_bytes,
            most.shared_bytes,
            usual.empty_bytes,
            most.empty_bytes,
        ];
        row.extend(once.map(|bytes| bytes.to_string()));
        row.extend(counts.map(|count| {
            let found = memory(measured, policy, count);
            found.map_or("–".to_owned(), |one| format!("{:.0}", one.per_class()))
        }));
        row.push(format!("{:.0}", most.per_request()));
        table.row(&row);
    }
    let orders = measured.memory.iter().filter(|one| one.policy == "order");
    if let Some(order) = orders.max_by_key(|one| one.depth) {
        let mut row = vec!["order of requests".to_owned()];
        row.extend(["–", "–", "–"].map(str::to_owned));
        row.push(order.empty_bytes.to_string());
        row.extend(counts.map(|_| "–".to_owned()));
        row.push(format!("{:.0}", order.per_request()));
        table.row(&row);
    }
    table
}

fn sizes(measured: &Measured) -> Table {
    let mut table = Table::new(&["what the module keeps", "bytes"]);
    for (what, bytes) in &measured.sizes {
        table.row(&[what.as_str(), &bytes.to_string()]);
    }
    table
}

/// Each operation by itself.
fn operations(measured: &Measured) -> Table {
    let each = ["enqueue", "get", "stop", "dequeue"];
    let mut head = vec!["policy"];
    head.extend(each);
    let mut table = Table::new(&head);
    let mut names: Vec<&str> = Vec::new();
    for one in measured.timings.iter().filter(|one| one.group == "scale") {
        if !names.contains(&one.name.as_str()) {
            names.push(&one.name);
        }
    }
    for name in names {
        let mut row = vec![name.to_owned()];
        row.extend(each.map(|what| {
            measured
                .one("scale", name, what)
                .map_or("–".to_owned(), both)
        }));
        table.row(&row);
    }
    table
}

/// What else was measured.
fn rest(measured: &Measured) -> Table {
    let mut table = Table::new(&["group", "what", "of", "ns", "fastest sample"]);
    let mut all: Vec<_> = measured.timings.iter().collect();
    let number = |value: &str| value.parse::<u64>().unwrap_or(0);
    all.sort_by(|a, b| {
        let key = |one: &Timing| (one.group.clone(), one.name.clone());
        key(a)
            .cmp(&key(b))
            .then(number(&a.value).cmp(&number(&b.value)))
    });
    for one in all {
        if !["decision", "scale"].contains(&one.group.as_str()) {
            table.row(&[&one.group, &one.name, &one.value, &shown(one), &least(one)]);
        }
    }
    table
}

/// The whole report.
pub fn page(measured: &Measured) -> String {
    let mut out = String::from("# What scheduling costs\n\n");
    let _ = writeln!(
        out,
        "{}; load averages (1, 5, 15 minutes) at the start and at the end: {}. {}\n",
        measured.processor,
        measured.load.join("; "),
        if measured.busy() {
            "The machine did something else at the same time: medians have what others took in them and are upper \
             bounds. Growth, comparison and pictures are made of the fastest sample of each benchmark, which is \
             one that was hardly interrupted."
        } else {
            "Growth, comparison and pictures are made of the medians."
        }
    );
    section(
        &mut out,
        "What does a decision cost?",
        "Nanoseconds of `enqueue` + `get` + `stop` with 8 requests queued in each class, by number of classes: \
         median (95 % confidence interval).",
        &decisions(measured, shown),
    );
    section(
        &mut out,
        "And in the fastest sample?",
        "The same; the least of all samples, each of them thousands of decisions.",
        &decisions(measured, least),
    );
    section(
        &mut out,
        "How does it grow with the number of classes?",
        "The slope over log2 of the classes, ns; and how many times as long a decision takes with twice as many.",
        &growth_table(measured),
    );
    section(
        &mut out,
        "How does that compare?",
        "Nanoseconds. The others are ranges of several runs on another machine, of the same pair of operations.",
        &others(measured),
    );
    for anchor in ANCHORS {
        let _ = writeln!(out, "* {}: {}.", anchor.name, anchor.source);
    }
    out.push('\n');
    section(
        &mut out,
        "How much memory?",
        "Bytes, counted where they are allocated, with queues and requests of the kernel's size: what all parts of \
         a service share, a part without classes, and what classes and queued requests add. What is made once \
         grows with `classes_max`, 16,384 by default; *most* is with 1,048,576, which more than 4,096 classes were \
         measured with. Memory is taken in chunks of 16 KiB, and some is kept ready for the next classes, which \
         shows where there are few. The structure of a part itself is not counted.",
        &memory_table(measured),
    );
    section(
        &mut out,
        "What does the front-end keep of a request?",
        "From the debug information of `nrs.ko`. It is there whatever the policy.",
        &sizes(measured),
    );
    section(
        &mut out,
        "What does each operation cost on a large server?",
        "Nanoseconds with 4,096 clients that have 16 requests queued each: fastest sample; median (95 % confidence \
         interval).",
        &operations(measured),
    );
    section(
        &mut out,
        "What do the other pieces cost?",
        "Nanoseconds: finding the class of a request, one client alone, finding a rule and compiling rules, the \
         order of requests, timeouts, statistics files.",
        &rest(measured),
    );
    out
}

/// The same as numbers.
pub fn json(measured: &Measured) -> Value {
    let growths: Vec<Value> = growths(measured)
        .into_iter()
        .filter(|(_, [all, ..])| all.is_some())
        .map(|(policy, [all, few, many])| {
            json!({ "policy": policy, "all": all, "up_to_1000": few, "from_1000": many })
        })
        .collect();
    json!({
        "processor": measured.processor,
        "load": measured.load,
        "timings_ns": measured.timings,
        "growth": growths,
        "memory": measured.memory,
        "front_end_bytes": measured.sizes,
    })
}
