// SPDX-License-Identifier: GPL-2.0-only

//! Time until shares over servers are fair, by delta, latency of messages, and loss.
//!
//! Sixteen jobs run on 16 servers. A run has settled when no job's error exceeds 10 % (mean of 500
//! ms) from then on. Late errors are errors of the last quarter of the run.

use nrs_report::chart::Lines;
use nrs_report::stat::median;
use nrs_report::table::Table;

use super::cluster::{curve, kilobytes, late, percent, runs, seconds, settled, worst_and_mean};
use super::{finish, Failure, Options};

const SERVERS: usize = 16;
const JOBS: usize = 16;
const WINDOW: usize = 5;

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let deltas: &[u64] = if options.quick {
        &[100, 500]
    } else {
        &[50, 100, 200, 500]
    };
    let paths = [(1, 0), (1, 10), (1, 30), (20, 0), (100, 0), (20, 30)];
    let mut table = Table::headed(
        "Delta, ms | Latency, ms | Loss, % | Settled after, s | In deltas | Mean error, % | \
         Messages, kB/s and server",
    );
    let title = "16 jobs on 16 servers from a cold start";
    let mut chart = Lines::new(title, "time, s", "error of the worst job, %").log_y();
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
                    chart = chart.series(&format!("delta {delta} ms"), points);
                }
            }
            let known: Vec<f64> = times.iter().flatten().copied().collect();
            let deltas = match known.len() == times.len() {
                true => format!("{:.0}", median(&known) * 1e3 / delta as f64),
                false => "—".to_string(),
            };
            table.row(&[
                delta.to_string(),
                latency.to_string(),
                loss.to_string(),
                seconds(&times),
                deltas,
                percent(&lates),
                kilobytes(&bytes),
            ]);
        }
    }
    finish("delta", &table, &chart.rule_at_y(10.0, "10 %"), options)
}
