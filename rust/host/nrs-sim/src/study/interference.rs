// SPDX-License-Identifier: GPL-2.0-only

//! A small application beside bandwidth hogs.
//!
//! The *application* is bulk-synchronous: 8 processes move 64 MiB together, wait for each other, compute,
//! and begin anew; *chatty* computes 10 ms, *calm* 200 ms. A *hog* is a job of 4 nodes with 56 processes
//! each that write without a pause; four hogs belong to one user.
//!
//! * *Slowdown*: time of a round over that alone, less one: the time that the hogs add, as a part of the time
//!   alone. Likewise that of the *data* phase, without the computing.
//! * *Cut*: by how much a policy makes the slowdown less than with `fifo`, %. The published figure for
//!   ThemisIO is 59.1 to 99.8 %, for applications of which the text read here does not tell the parts.
//! * *Hogs keep*: their throughput over that with `fifo`, %; a policy that starves hogs is no better.

use nrs_report::chart::Bars;
use nrs_report::stat::{spread, Spread};
use nrs_report::table::Table;
use serde::Serialize;

use super::{all, keep, seeded, Failure, Options};
use crate::outcome::Outcome;

const FILE: &str = "interference.toml";
const TEXT: &str = include_str!("../../scenarios/interference.toml");

/// Applications: name, and time of computing.
const APPLICATIONS: &[(&str, &str)] = &[("chatty", "10ms"), ("calm", "200ms")];

/// Hogs beside an application.
const BESIDE: &[(&str, usize)] = &[("1 hog", 1), ("4 hogs", 4)];

/// What each is called, its policy, and the rate of hogs with `tbf`, as a part of the bandwidth.
const POLICIES: &[(&str, &str, Option<f64>)] = &[
    ("fifo", "fifo", None),
    (
        "tbf, each hog at half of the bandwidth",
        "tbf jobid",
        Some(0.5),
    ),
    ("tbf, each hog at a tenth", "tbf jobid", Some(0.1)),
    ("fairshare jobid_fair", "fairshare jobid_fair", None),
    ("fairshare size_fair", "fairshare size_fair", None),
    ("fairshare uid_fair", "fairshare uid_fair", None),
];

/// Requests of 1 MiB per second that are the whole bandwidth of the scenarios' device.
const REQUESTS: f64 = 21.9e9 / 1_048_576.0;

/// A row of the results.
#[derive(Debug, Serialize)]
struct Row {
    application: &'static str,
    beside: &'static str,
    policy: &'static str,
    round_ms: Spread,
    slowdown_percent: Spread,
    data_slowdown_percent: Spread,
    cut_percent: Option<f64>,
    data_cut_percent: Option<f64>,
    hogs_mb_per_s: Spread,
    hogs_keep_percent: f64,
    p99_ms: Spread,
}

/// Milliseconds of a round, and of its data phase; infinite if none was done.
fn round(outcome: &Outcome) -> (f64, f64) {
    let rounds = outcome.jobs.first().and_then(|job| job.rounds);
    let rounds = rounds.filter(|rounds| rounds.done > 0);
    rounds.map_or((f64::INFINITY, f64::INFINITY), |rounds| {
        let each = |ns: u64| ns as f64 / rounds.done as f64 / 1e6;
        (each(rounds.whole_ns), each(rounds.io_ns))
    })
}

/// MB/s of all jobs but the first.
fn moved_by_hogs(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome.jobs.iter().skip(1).map(|job| job.total.bytes).sum();
    bytes as f64 * 1e3 / outcome.duration_ns.max(1) as f64
}

/// Runs an application beside so many hogs, once for each seed.
fn outcomes(
    compute: &str,
    hogs: usize,
    policy: &str,
    rules: &str,
    options: &Options,
) -> Result<Vec<Outcome>, Failure> {
    let set = [
        ("job.app.burst.compute", compute),
        ("server.0.policy", policy),
        ("server.0.rules", rules),
    ];
    let mut scenarios = seeded(FILE, TEXT, &set, options)?;
    for scenario in &mut scenarios {
        scenario.jobs.truncate(1 + hogs);
    }
    all(&scenarios, options)
}

/// Runs all.
///
/// # Errors
///
/// What a run or the file system says.
pub fn run(options: &Options) -> Result<String, Failure> {
    let scale = if options.quick { 0.1 } else { 1.0 };
    let mut rows: Vec<Row> = Vec::new();
    for (application, compute) in APPLICATIONS {
        let alone = outcomes(compute, 0, "fifo", "[]", options)?;
        for (with, hogs) in BESIDE {
            let mut fifo: Option<(f64, f64, f64)> = None;
            for (name, policy, rate) in POLICIES {
                let rate = rate.map(|part| (part * REQUESTS * scale).round());
                let rules = rate.map_or("[]".to_string(), |rate| {
                    // Without a rule of its own, the application has the default rate.
                    format!(
                        "[\"start app jobid={{app}} rate=1000000\", \
                         \"start hogs jobid={{hog*}} rate={rate}\"]"
                    )
                });
                let outcomes = outcomes(compute, *hogs, policy, &rules, options)?;
                let pairs = || outcomes.iter().zip(&alone);
                let over = |values: Vec<f64>| spread(&values);
                let slow = over(
                    pairs()
                        .map(|(o, a)| (round(o).0 / round(a).0 - 1.0) * 100.0)
                        .collect(),
                );
                let data = over(
                    pairs()
                        .map(|(o, a)| (round(o).1 / round(a).1 - 1.0) * 100.0)
                        .collect(),
                );
                let moved = over(outcomes.iter().map(moved_by_hogs).collect());
                let first = *fifo.get_or_insert((slow.median, data.median, moved.median));
                let cut =
                    |ours: f64, fifo: f64| (*name != "fifo").then(|| (1.0 - ours / fifo) * 100.0);
                let p99 = |o: &Outcome| o.jobs[0].latency.p99_ns as f64 / 1e6;
                rows.push(Row {
                    application,
                    beside: with,
                    policy: name,
                    round_ms: over(outcomes.iter().map(|o| round(o).0).collect()),
                    slowdown_percent: slow,
                    data_slowdown_percent: data,
                    cut_percent: cut(slow.median, first.0),
                    data_cut_percent: cut(data.median, first.1),
                    hogs_mb_per_s: moved,
                    hogs_keep_percent: moved.median / first.2 * 100.0,
                    p99_ms: over(outcomes.iter().map(p99).collect()),
                });
            }
        }
    }
    let text = table(&rows, options);
    keep("interference", &text, &rows, options)?;
    if let Some(out) = &options.out {
        picture(&rows).save(&out.join("interference.svg"))?;
    }
    Ok(text)
}

fn table(rows: &[Row], options: &Options) -> String {
    let mut table = Table::headed(
        "application | beside | policy | round, ms | slowdown, % | cut, % | data phase, % | \
         cut, % | p99, ms | hogs, MB/s | hogs keep, %",
    );
    let optional = |value: Option<f64>| value.map_or("-".to_string(), |v| format!("{v:.1}"));
    for row in rows {
        table.row(&[
            row.application.to_string(),
            row.beside.to_string(),
            row.policy.to_string(),
            row.round_ms.text(2),
            row.slowdown_percent.text(1),
            optional(row.cut_percent),
            row.data_slowdown_percent.text(1),
            optional(row.data_cut_percent),
            row.p99_ms.text(2),
            row.hogs_mb_per_s.text(0),
            format!("{:.1}", row.hogs_keep_percent),
        ]);
    }
    format!(
        "{}\nMedian (least–greatest) of {} seeds. Slowdown: what hogs add to the time of a round, of the time \
         alone; cut: less than with fifo. Published for ThemisIO: 59.1 to 99.8 % less.\n",
        table.markdown(),
        options.seeds
    )
}

fn picture(rows: &[Row]) -> Bars {
    let mut groups: Vec<String> = Vec::new();
    for row in rows {
        let group = format!("{}, {}", row.application, row.beside);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    POLICIES.iter().fold(
        Bars::new(
            "Slowdown of a small application beside hogs",
            "slowdown in %",
        )
        .log_y()
        .groups(groups),
        |chart, (name, ..)| {
            let values = rows.iter().filter(|row| row.policy == *name);
            chart.series(name, values.map(|row| row.slowdown_percent).collect())
        },
    )
}
