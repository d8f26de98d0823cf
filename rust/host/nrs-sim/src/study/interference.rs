// SPDX-License-Identifier: GPL-2.0-only

//! A small application beside jobs with high bandwidth.
//!
//! The *application* is bulk-synchronous: 8 processes move 64 MiB together, wait for each other,
//! compute, and repeat. It computes 10 ms (`chatty`) or 200 ms (`sparse`). A *hog* is a job of 4
//! nodes with 56 processes each that write without pause; the four hogs belong to one user.
//!
//! - *Slowdown*: the time of a round divided by the time of a round without hogs, minus 1. The
//!   slowdown of the *data* phase leaves out the computing.
//! - *Cut*: the reduction of the slowdown by a policy against `fifo`, %. The published values for
//!   ThemisIO are 59.1 to 99.8 %; the available text does not describe the applications.
//! - *Hogs keep*: the throughput of the hogs relative to `fifo`, %; it shows whether a policy
//!   starves the hogs.

use nrs_report::chart::Bars;
use nrs_report::stat::spread;
use nrs_report::table::Table;

use super::{all, keep, seeded, Failure, Options};
use crate::outcome::Outcome;

const FILE: (&str, &str) = (
    "interference.toml",
    include_str!("../../scenarios/interference.toml"),
);

/// Applications: name and compute time.
const APPLICATIONS: &[(&str, &str)] = &[("chatty", "10ms"), ("sparse", "200ms")];

/// Number of hogs beside an application.
const BESIDE: &[(&str, usize)] = &[("1 hog", 1), ("4 hogs", 4)];

/// Name, policy, and rate limit of each hog with `tbf` as a part of the bandwidth.
const POLICIES: [(&str, &str, Option<f64>); 6] = [
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

/// Rate of 1 MiB requests at the full bandwidth of the device, requests/s.
const REQUESTS: f64 = 21.9e9 / 1_048_576.0;

/// Returns the mean time of a round and of its data phase, ms; infinite without a completed round.
fn round(outcome: &Outcome) -> (f64, f64) {
    let rounds = outcome.jobs.first().and_then(|job| job.rounds);
    let rounds = rounds.filter(|rounds| rounds.done > 0);
    rounds.map_or((f64::INFINITY, f64::INFINITY), |rounds| {
        let each = |ns: u64| ns as f64 / rounds.done as f64 / 1e6;
        (each(rounds.whole_ns), each(rounds.io_ns))
    })
}

/// Returns the throughput of all jobs except the first, MB/s.
fn moved_by_hogs(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome.jobs.iter().skip(1).map(|job| job.total.bytes).sum();
    bytes as f64 * 1e3 / outcome.duration_ns.max(1) as f64
}

/// Runs an application beside `hogs` hogs, once for each seed.
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
    let mut scenarios = seeded(FILE, &set, options)?;
    for scenario in &mut scenarios {
        scenario.jobs.truncate(1 + hogs);
    }
    all(&scenarios, options)
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let scale = if options.quick { 0.1 } else { 1.0 };
    let mut table = Table::headed(
        "application | beside | policy | round, ms | slowdown, % | cut, % | data phase, % | \
         cut, % | p99, ms | hogs, MB/s | hogs, % of fifo",
    );
    let mut groups = Vec::new();
    let mut bars = POLICIES.map(|(name, ..)| (name, Vec::new()));
    for (application, compute) in APPLICATIONS {
        let alone = outcomes(compute, 0, "fifo", "[]", options)?;
        for (with, hogs) in BESIDE {
            groups.push(format!("{application}, {with}"));
            let mut fifo: Option<(f64, f64, f64)> = None;
            for ((name, policy, rate), (_, bars)) in POLICIES.iter().zip(&mut bars) {
                let rate = rate.map(|part| (part * REQUESTS * scale).round());
                let rules = rate.map_or("[]".to_string(), |rate| {
                    // Without its own rule, the application would have the default rate.
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
                let cut = |ours: f64, fifo: f64| match *name {
                    "fifo" => "-".to_string(),
                    _ => format!("{:.1}", (1.0 - ours / fifo) * 100.0),
                };
                let p99 = |o: &Outcome| o.jobs[0].latency.p99_ns as f64 / 1e6;
                let each =
                    |pick: &dyn Fn(&Outcome) -> f64| over(outcomes.iter().map(pick).collect());
                table.row(&[
                    application.to_string(),
                    with.to_string(),
                    name.to_string(),
                    each(&|o| round(o).0).text(2),
                    slow.text(1),
                    cut(slow.median, first.0),
                    data.text(1),
                    cut(data.median, first.1),
                    each(&p99).text(2),
                    moved.text(0),
                    format!("{:.1}", moved.median / first.2 * 100.0),
                ]);
                bars.push(slow);
            }
        }
    }
    let text = format!(
        "{}\n\
         Median (least–greatest) of {} seeds. Slowdown: additional time of a round because of \
         hogs, relative to the time alone. Cut: reduction of the slowdown against fifo; published \
         for ThemisIO: 59.1 to 99.8 %.\n",
        table.markdown(),
        options.seeds
    );
    keep("interference", &text, &table, options)?;
    if let Some(out) = &options.out {
        let title = "Slowdown of a small application beside hogs";
        let mut chart = Bars::new(title, "slowdown in %").log_y().groups(groups);
        for (name, bars) in bars {
            chart = chart.series(name, bars);
        }
        chart.save(&out.join("interference.svg"))?;
    }
    Ok(text)
}
