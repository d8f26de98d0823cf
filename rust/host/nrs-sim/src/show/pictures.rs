// SPDX-License-Identifier: GPL-2.0-only

//! Charts of an outcome: throughput and shares over time, latencies.

use std::io;
use std::path::{Path, PathBuf};

use nrs_report::chart::Diagram;

use super::shown;
use crate::outcome::Outcome;

/// Writes NAME-throughput.svg, NAME-shares.svg and NAME-latency.svg; returns their paths.
///
/// # Errors
///
/// An error of the file system.
pub(super) fn write(outcome: &Outcome, out: &Path) -> io::Result<Vec<PathBuf>> {
    let path = |what: &str| out.join(format!("{}-{what}.svg", outcome.name));
    let title = match outcome.title.as_str() {
        "" => &outcome.name,
        title => title,
    };
    let (throughput, shares, latency) = (path("throughput"), path("shares"), path("latency"));
    over_time(outcome, title).save(&throughput)?;
    shares_over_time(outcome, title).save(&shares)?;
    latencies(outcome, title).save(&latency)?;
    Ok(vec![throughput, shares, latency])
}

/// Returns the time at the middle of bin `n`, s.
fn at(outcome: &Outcome, n: usize) -> f64 {
    (n as f64 + 0.5) * outcome.sample_ns as f64 / 1e9
}

/// Plots the throughput of each job by bin, MB/s.
pub fn over_time(outcome: &Outcome, title: &str) -> Diagram {
    let seconds = outcome.sample_ns.max(1) as f64 / 1e9;
    let chart = Diagram::lines(title, "time in s", "MB/s");
    shown(outcome).fold(chart, |chart, (_, job)| {
        let bins = job.bins.iter().enumerate();
        let points = bins.map(|(n, bin)| (at(outcome, n), bin.bytes as f64 / seconds / 1e6));
        chart.series(&job.name, points.collect())
    })
}

/// Plots the share of each job in the bytes of a bin; bins without bytes of the job are left out.
fn shares_over_time(outcome: &Outcome, title: &str) -> Diagram {
    let bins = outcome.jobs.iter().map(|job| job.bins.len()).max();
    let sums: Vec<u64> = (0..bins.unwrap_or(0))
        .map(|n| {
            let bytes = outcome.jobs.iter().filter_map(|job| job.bins.get(n));
            bytes.map(|bin| bin.bytes).sum()
        })
        .collect();
    let chart = Diagram::lines(title, "time in s", "share in %");
    shown(outcome).fold(chart, |chart, (_, job)| {
        let points = job
            .bins
            .iter()
            .zip(&sums)
            .enumerate()
            .filter(|(_, (bin, _))| bin.bytes > 0)
            .map(|(n, (bin, sum))| (at(outcome, n), bin.bytes as f64 * 100.0 / *sum as f64));
        chart.series(&job.name, points.collect())
    })
}

/// Plots the median, p99 and p99.9 latency of each job.
fn latencies(outcome: &Outcome, title: &str) -> Diagram {
    let bars = |pick: fn(&crate::outcome::Latency) -> u64| -> Vec<f64> {
        let values = shown(outcome).map(|(_, job)| pick(&job.latency) as f64 / 1e3);
        values.collect()
    };
    Diagram::bars(title, "latency in us")
        .log_y()
        .groups(shown(outcome).map(|(_, job)| job.name.clone()).collect())
        .bar("median", bars(|latency| latency.p50_ns))
        .bar("p99", bars(|latency| latency.p99_ns))
        .bar("p99.9", bars(|latency| latency.p999_ns))
}
