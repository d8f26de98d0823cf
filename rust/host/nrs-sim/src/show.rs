// SPDX-License-Identifier: GPL-2.0-only

//! Output of an outcome: tables, JSON and charts.

mod pictures;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nrs_report::table::Table;

use crate::outcome::{JobOutcome, Outcome};

/// Maximum number of jobs and of servers in tables and charts; the JSON has all.
const SHOWN: usize = 24;

/// Progress in percent on a line of stderr, which is erased at the end.
pub struct Progress {
    /// Number of steps; `None` shows nothing.
    steps: Option<u64>,
    percent: AtomicU64,
}

impl Progress {
    /// Creates a progress of `steps` steps; a hidden one if `quiet` or if stderr is no terminal.
    pub fn new(quiet: bool, steps: u64) -> Self {
        Self {
            steps: (!quiet && io::stderr().is_terminal()).then_some(steps.max(1)),
            percent: AtomicU64::new(0),
        }
    }

    /// Shows that `done` steps are done.
    pub fn set(&self, done: u64) {
        let percent = self.steps.map_or(0, |steps| done * 100 / steps);
        if self.percent.fetch_max(percent, Ordering::Relaxed) < percent {
            let _ = write!(io::stderr(), "\r{percent:>3}%");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.steps.is_some() {
            let _ = write!(io::stderr(), "\r    \r");
        }
    }
}

/// Returns the jobs to show: the first [`SHOWN`].
fn shown(outcome: &Outcome) -> impl Iterator<Item = (usize, &JobOutcome)> {
    outcome.jobs.iter().enumerate().take(SHOWN)
}

/// Returns the rate for `bytes` in `ns`, MB/s.
fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 1e3 / ns.max(1) as f64
}

/// Formats tables of jobs, servers and the exchange; rates and shares of jobs count from the settle
/// time.
pub fn tables(outcome: &Outcome) -> String {
    let settled = outcome.ended_ns.saturating_sub(outcome.settle_ns);
    let mut text = format!(
        "{}: {} (seed {})\n\n",
        outcome.name, outcome.title, outcome.seed
    );
    let mut jobs = Table::headed(
        "job | requests | MB/s | share % | p50 us | p99 us | p99.9 us | queue time us | \
         completed s | rounds | round ms",
    );
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    for ((_, job), share) in shown(outcome).zip(outcome.shares()) {
        let done = job.completed_ns.map(|ns| format!("{:.2}", ns as f64 / 1e9));
        let rounds = job.rounds.filter(|rounds| rounds.done > 0);
        jobs.row(&[
            job.name.clone(),
            job.total.requests.to_string(),
            format!("{:.1}", rate(job.settled.bytes, settled)),
            format!("{:.2}", share * 100.0),
            us(job.latency.p50_ns),
            us(job.latency.p99_ns),
            us(job.latency.p999_ns),
            format!("{:.1}", job.wait_mean_ns / 1e3),
            done.unwrap_or_default(),
            rounds.map_or(String::new(), |rounds| rounds.done.to_string()),
            rounds.map_or(String::new(), |rounds| {
                format!("{:.2}", rounds.whole_ns as f64 / rounds.done as f64 / 1e6)
            }),
        ]);
    }
    text += &jobs.markdown();
    text += &more(outcome.jobs.len(), "jobs");
    text.push('\n');
    let mut servers =
        Table::headed("server | policy | MB/s | busy % | throttled % | bypassed | requests max");
    let whole = outcome.ended_ns.max(1) as f64;
    for server in outcome.servers.iter().take(SHOWN) {
        servers.row(&[
            server.name.clone(),
            server.policy.clone(),
            format!("{:.1}", rate(server.total.bytes, outcome.ended_ns)),
            format!("{:.1}", server.busy_ns as f64 * 100.0 / whole),
            format!("{:.1}", server.withheld_ns as f64 * 100.0 / whole),
            server.passed.to_string(),
            server.held_most.to_string(),
        ]);
    }
    text += &servers.markdown();
    text += &more(outcome.servers.len(), "servers");
    if let Some(exchange) = &outcome.exchange {
        text += &format!(
            "\nexchange: {} messages, {} bytes, {} lost, {} refused\n",
            exchange.messages, exchange.bytes, exchange.lost, exchange.refused
        );
    }
    text.push('\n');
    text
}

/// Formats a line with the number of entries that are not shown.
fn more(count: usize, what: &str) -> String {
    match count.saturating_sub(SHOWN) {
        0 => String::new(),
        rest => format!("and {rest} more {what}\n"),
    }
}

/// Writes NAME.json and NAME-*.svg; returns their paths.
///
/// # Errors
///
/// An error of the file system.
pub fn write(outcome: &Outcome, out: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(out)?;
    let path = out.join(format!("{}.json", outcome.name));
    let mut json = serde_json::to_string_pretty(outcome)?;
    json.push('\n');
    std::fs::write(&path, json)?;
    let mut all = vec![path];
    all.extend(pictures::write(outcome, out)?);
    Ok(all)
}
