// SPDX-License-Identifier: GPL-2.0-only

//! Shares over 1 to 128 servers, with and without the exchange between them.
//!
//! Sixteen jobs, each on a random number of servers of different bandwidth; delta 100 ms, messages that take 1 ms.
//! The error is that of the last 4 of 15 s; a run has settled when no job is more than 10 % off (mean of
//! 500 ms) from then on.

use nrs_report::chart::Lines;
use nrs_report::stat::{spread, Spread};
use nrs_report::table::Table;
use serde::Serialize;

use super::cluster::{late, runs, seconds, settled, worst_and_mean};
use super::{keep, Failure, Options};

const JOBS: usize = 16;
const SECONDS: u64 = 15;
/// Bins that errors are the mean of.
const WINDOW: usize = 5;

/// Percent of a value, over all seeds.
fn percent(values: &[f64]) -> Spread {
    spread(values).scaled(100.0)
}

/// A row of the results.
#[derive(Debug, Serialize)]
struct Row {
    servers: usize,
    exchange: &'static str,
    mean_error_percent: Spread,
    worst_error_percent: Spread,
    settled_s: Vec<Option<f64>>,
    efficiency_percent: Spread,
    message_bytes_per_s_and_server: Spread,
    events: u64,
}

/// Runs it.
///
/// # Errors
///
/// What a run says.
pub fn run(options: &Options) -> Result<String, Failure> {
    let sizes: &[usize] = if options.quick {
        &[1, 4, 16]
    } else {
        &[1, 2, 4, 8, 16, 32, 64, 128]
    };
    let ways = [
        ("none", ""),
        ("all", "delta = \"100ms\"\nlatency = \"1ms\""),
        (
            "relay",
            "delta = \"100ms\"\nlatency = \"1ms\"\ntopology = \"relay\"",
        ),
    ];
    let mut rows = Vec::new();
    for &servers in sizes {
        for (way, exchange) in ways {
            let name = format!("scale-{servers}");
            let runs = runs(&name, (servers, JOBS), SECONDS, exchange, options)?;
            let (mut means, mut worsts, mut times) = (Vec::new(), Vec::new(), Vec::new());
            let (mut used, mut bytes) = (Vec::new(), Vec::new());
            let mut events = 0;
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
                bytes.push(said as f64 / SECONDS as f64 / servers as f64);
                events += outcome.events;
            }
            rows.push(Row {
                servers,
                exchange: way,
                mean_error_percent: percent(&means),
                worst_error_percent: percent(&worsts),
                settled_s: times,
                efficiency_percent: percent(&used),
                message_bytes_per_s_and_server: spread(&bytes),
                events,
            });
        }
    }
    let mut table = Table::new(&[
        "Servers",
        "Exchange",
        "Mean error, %",
        "Worst job, %",
        "Settled after, s",
        "Bandwidth used, %",
        "Messages, kB/s and server",
    ]);
    for row in &rows {
        table.row(&[
            row.servers.to_string(),
            row.exchange.to_string(),
            row.mean_error_percent.text(1),
            row.worst_error_percent.text(1),
            seconds(&row.settled_s),
            row.efficiency_percent.text(1),
            row.message_bytes_per_s_and_server.scaled(1e-3).text(1),
        ]);
    }
    let markdown = table.markdown();
    keep("scale", &markdown, &rows, options)?;
    if let Some(out) = &options.out {
        let title = "Error of the worst of 16 jobs";
        let mut chart = Lines::new(title, "servers", "worst job, % off")
            .log_x()
            .log_y();
        for (way, _) in ways {
            let of = rows.iter().filter(|row| row.exchange == way);
            let points =
                of.map(|row| (row.servers as f64, row.worst_error_percent.median.max(0.05)));
            chart = chart.series(way, points.collect());
        }
        chart.save(&out.join("scale.svg"))?;
    }
    Ok(markdown)
}
