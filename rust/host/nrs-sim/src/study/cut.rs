// SPDX-License-Identifier: GPL-2.0-only

//! A server is cut off: it neither sends nor receives messages for some time.
//!
//! Sixteen jobs run on 8 servers; the delta is 100 ms. The first server is cut off at 8 s, for 2 s
//! or 10 s, and serves requests all the time. Its last report fades after 4, 16 or 64 deltas.
//! Errors are errors of the worst job, means of 500 ms.

use nrs_report::chart::Lines;
use nrs_report::table::Table;

use super::cluster::{curve, percent, runs, seconds, settled, worst_and_mean, BIN_MS};
use super::{finish, Failure, Options};

const SERVERS: usize = 8;
const JOBS: usize = 16;
const WINDOW: usize = 5;
/// Start of the cut, s.
const CUT: u64 = 8;
/// Length of a run after the end of the cut, s.
const AFTER: u64 = 8;

/// Returns the maximum of `series` between seconds `from` and `to`.
fn largest(series: &[f64], from: u64, to: u64) -> f64 {
    let bin = |second: u64| (second * 1000 / BIN_MS) as usize;
    let within = series.iter().take(bin(to)).skip(bin(from));
    within.copied().fold(0.0, f64::max)
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let cases: &[(u64, u64)] = if options.quick {
        &[(2, 16), (2, 4)]
    } else {
        &[(2, 4), (2, 16), (2, 64), (10, 4), (10, 16), (10, 64)]
    };
    let mut table = Table::headed(
        "Cut, s | Fades after, deltas | Worst job in the 2 s before, % | While cut off, % | \
         Within 10 % again after, s | Messages lost",
    );
    let title = "One of 8 servers is cut off from 8 s to 18 s";
    let mut chart = Lines::new(title, "time, s", "error of the worst job, %").log_y();
    for &(cut, hold) in cases {
        let back = CUT + cut;
        let exchange = format!(
            "delta = \"100ms\"\nlatency = \"1ms\"\nhold = {hold}\n\
             cut = [{{ server = \"oss0\", from = \"{CUT}s\", to = \"{back}s\" }}]"
        );
        let name = format!("cut-{cut}");
        let runs = runs(&name, (SERVERS, JOBS), back + AFTER, &exchange, options)?;
        let (mut before, mut during, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut lost = 0;
        for (index, (layout, outcome)) in runs.iter().enumerate() {
            let (worst, _) = worst_and_mean(&layout.errors(outcome, WINDOW));
            before.push(largest(&worst, CUT - 2, CUT));
            during.push(largest(&worst, CUT, back));
            let after: Vec<f64> = worst
                .iter()
                .copied()
                .skip((back * 1000 / BIN_MS) as usize)
                .collect();
            times.push(settled(&after, 0.1));
            lost += outcome.exchange.map_or(0, |exchange| exchange.lost);
            if index == 0 && cut == 10 {
                chart = chart.series(&format!("fades after {hold} deltas"), curve(&worst));
            }
        }
        table.row(&[
            cut.to_string(),
            hold.to_string(),
            percent(&before),
            percent(&during),
            seconds(&times),
            lost.to_string(),
        ]);
    }
    finish("cut", &table, &chart, options)
}
