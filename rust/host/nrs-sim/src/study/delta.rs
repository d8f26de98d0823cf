// SPDX-License-Identifier: GPL-2.0-only

//! How long shares take to become fair over servers, by delta, by the time of messages and by loss.
//!
//! Sixteen jobs on 16 servers. A run has settled when no job is more than 10 % off (mean of 500 ms) from then
//! on; the error is that of the last quarter of the run.

use nrs_report::chart::Lines;
use nrs_report::stat::{median, spread, Spread};
use nrs_report::table::Table;
use serde::Serialize;

use super::cluster::{curve, late, runs, seconds, settled, worst_and_mean};
use super::{keep, Failure, Options};

const SERVERS: usize = 16;
const JOBS: usize = 16;
const WINDOW: usize = 5;

/// A row of the results.
#[derive(Debug, Serialize)]
struct Row {
    delta_ms: u64,
    latency_ms: u64,
    loss_percent: u64,
    settled_s: Vec<Option<f64>>,
    settled_deltas: Option<f64>,
    mean_error_percent: Spread,
    message_bytes_per_s_and_server: Spread,
}

/// Runs it.
///
/// # Errors
///
/// What a run says.
pub fn run(options: &Options) -> Result<String, Failure> {
    let deltas: &[u64] = if options.quick {
        &[100, 500]
    } else {
        &[50, 100, 200, 500]
    };
    let paths = [(1, 0), (1, 10), (1, 30), (20, 0), (100, 0), (20, 30)];
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for &delta in deltas {
        for (latency, loss) in paths {
            let length = (delta * 80 / 1000).max(12);
            let exchange = format!(
                "delta = \"{delta}ms\"\nlatency = \"{latency}ms\"\nloss = {}.{:02}",
                loss / 100,
                loss % 100
            );
            let name = format!("delta-{delta}");
            let runs = runs(&name, (SERVERS, JOBS), length, &exchange, options)?;
            let (mut times, mut lates, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
            for (index, (layout, outcome)) in runs.iter().enumerate() {
                let (worst, mean) = worst_and_mean(&layout.errors(outcome, WINDOW));
                times.push(settled(&worst, 0.1));
                lates.push(late(&mean, mean.len() / 4));
                let said = outcome.exchange.map_or(0, |exchange| exchange.bytes);
                bytes.push(said as f64 / length as f64 / SERVERS as f64);
                if index == 0 && (latency, loss) == (1, 0) {
                    let mut points = curve(&worst);
                    points.retain(|point| point.0 <= 12.0);
                    curves.push((format!("delta {delta} ms"), points));
                }
            }
            let known: Vec<f64> = times.iter().flatten().copied().collect();
            let all_settled = known.len() == times.len();
            rows.push(Row {
                delta_ms: delta,
                latency_ms: latency,
                loss_percent: loss,
                settled_deltas: all_settled.then(|| median(&known) * 1e3 / delta as f64),
                settled_s: times,
                mean_error_percent: spread(&lates).scaled(100.0),
                message_bytes_per_s_and_server: spread(&bytes),
            });
        }
    }
    let mut table = Table::new(&[
        "Delta, ms",
        "Latency, ms",
        "Loss, %",
        "Settled after, s",
        "In deltas",
        "Mean error, %",
        "Messages, kB/s and server",
    ]);
    for row in &rows {
        table.row(&[
            row.delta_ms.to_string(),
            row.latency_ms.to_string(),
            row.loss_percent.to_string(),
            seconds(&row.settled_s),
            row.settled_deltas
                .map_or("—".to_string(), |deltas| format!("{deltas:.0}")),
            row.mean_error_percent.text(1),
            row.message_bytes_per_s_and_server.scaled(1e-3).text(1),
        ]);
    }
    let markdown = table.markdown();
    keep("delta", &markdown, &rows, options)?;
    if let Some(out) = &options.out {
        let title = "16 jobs on 16 servers from a cold start";
        let mut chart = Lines::new(title, "time, s", "worst job, % off").log_y();
        for (name, points) in curves {
            chart = chart.series(&name, points);
        }
        chart.rule_at_y(10.0, "10 %").save(&out.join("delta.svg"))?;
    }
    Ok(markdown)
}
