// SPDX-License-Identifier: GPL-2.0-only

//! Fairness over 1 to 128 servers, with and without the exchange between servers.
//!
//! Sixteen jobs run on a random number of servers each; the bandwidths of the servers differ. The
//! delta is 100 ms and messages take 1 ms. Errors are errors of the last 4 of 15 s. A run has
//! settled when no job's error exceeds 10 % (mean of 500 ms) from then on.

use nrs_report::chart::Lines;
use nrs_report::stat::median;
use nrs_report::table::Table;

use super::cluster::{kilobytes, late, percent, runs, seconds, settled, worst_and_mean};
use super::{finish, Failure, Options};

const JOBS: usize = 16;
const SECONDS: u64 = 15;
/// Number of bins over which errors are averaged.
const WINDOW: usize = 5;

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let sizes: &[usize] = if options.quick {
        &[1, 4, 16]
    } else {
        &[1, 2, 4, 8, 16, 32, 64, 128]
    };
    let ways = [
        ("none", ""),
        ("all", "delta = \"100ms\"\nlatency = \"1ms\""),
    ];
    let mut table = Table::headed(
        "Servers | Exchange | Mean error, % | Worst job, % | Settled after, s | \
         Bandwidth used, % | Received, kB/s and server | Sent by a router, kB/s and server",
    );
    let mut curves = ways.map(|(way, _)| (way, Vec::new()));
    for &servers in sizes {
        for ((way, exchange), (_, points)) in ways.iter().zip(&mut curves) {
            let name = format!("scale-{servers}");
            let runs = runs(&name, (servers, JOBS), SECONDS, exchange, options)?;
            let (mut means, mut worsts, mut times) = (Vec::new(), Vec::new(), Vec::new());
            let (mut used, mut bytes, mut once) = (Vec::new(), Vec::new(), Vec::new());
            for (layout, outcome) in &runs {
                let tail = layout.errors(outcome, 40);
                let ends: Vec<f64> = tail.iter().map(|job| late(job, 1)).collect();
                means.push(ends.iter().sum::<f64>() / ends.len() as f64);
                worsts.push(ends.iter().copied().fold(0.0, f64::max));
                times.push(settled(
                    &worst_and_mean(&layout.errors(outcome, WINDOW)).0,
                    0.1,
                ));
                used.push(layout.efficiency(outcome, SECONDS / 2));
                let said = outcome.exchange.map_or(0, |exchange| exchange.bytes);
                let said = said as f64 / SECONDS as f64 / servers as f64;
                bytes.push(said);
                once.push(said / servers.saturating_sub(1).max(1) as f64);
            }
            points.push((servers as f64, (median(&worsts) * 100.0).max(0.05)));
            table.row(&[
                servers.to_string(),
                way.to_string(),
                percent(&means),
                percent(&worsts),
                seconds(&times),
                percent(&used),
                kilobytes(&bytes),
                kilobytes(&once),
            ]);
        }
    }
    let title = "Error of the worst of 16 jobs";
    let mut chart = Lines::new(title, "servers", "error of the worst job, %")
        .log_x()
        .log_y();
    for (way, points) in curves {
        chart = chart.series(way, points);
    }
    finish("scale", &table, &chart, options)
}
