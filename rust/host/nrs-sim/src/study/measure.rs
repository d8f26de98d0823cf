// SPDX-License-Identifier: GPL-2.0-only

//! Columns of a study's tables: what is measured in a run, and how it is printed.
//!
//! - *Overlap*: the time in which all jobs run: from the settle time after the last arrival to the
//!   first departure. Shares, their error, variation and total are of the overlap.
//! - *Bin*: [`Outcome::sample_ns`].

use nrs_report::stat::variation;
use serde::Deserialize;

use super::cluster::Cluster;
use super::fluid;
use super::input::Done;
use super::Case;
use crate::outcome::Outcome;
use crate::scenario::{Scenario, Time};

/// Error below which jobs on several servers have settled.
const SETTLED: f64 = 0.1;
/// The same for jobs on ideal servers.
const IDEAL_SETTLED: f64 = 0.05;
/// Number of deltas of late errors on ideal servers, at the end of each phase.
const LATE: usize = 10;
/// Default time over which rates are averaged for an error, ns.
const WINDOW: u64 = 500_000_000;

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The cell with the column's name.
    Cell,
    /// The limit of the column with the same name.
    Limit,
    /// Whether the row keeps all limits.
    Limits,
    /// Share of each job in the bytes moved, %.
    Shares,
    /// Largest `|share / ideal - 1|` of all jobs, with two jobs also of their ratio, %.
    ShareError,
    /// Largest standard deviation of a job's throughput in groups of ten bins over its mean, %.
    Variation,
    /// Time from the last arrival until shares stay within 5 % of the ideal, or within three
    /// requests, s.
    ShareSettling,
    /// Throughput of all jobs over that of the first job alone, %.
    OverSolo,
    /// Rate of each job, MB/s.
    Rate,
    /// Rate of all jobs together, MB/s.
    Rates,
    /// Rate of all jobs together, % of the bandwidth that the first run leaves.
    OfRest,
    /// Throughput of all servers, MB/s.
    Throughput,
    /// Mean time of seek and rotation of a request, ms.
    Arm,
    /// Longest latency of a request, s.
    Longest,
    /// Mean difference of the jobs from max-min fairness, %.
    MeanError,
    /// Largest difference of a job from max-min fairness, %.
    WorstError,
    /// Time from which no job's difference exceeds [`SETTLED`], s; on ideal servers, deltas.
    Settling,
    /// The same in deltas.
    SettlingDeltas,
    /// Bandwidth used, % of the servers that have jobs.
    Used,
    /// Messages that a server receives, kB/s.
    Received,
    /// Messages that a server would send to a router, kB/s.
    Routed,
    /// Number of lost messages.
    Lost,
}

impl Measure {
    /// Returns true if the column is no measurement.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Cell | Self::Limit | Self::Limits)
    }
}

/// How the values of all seeds become a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Median, with the least and the greatest value.
    #[default]
    Spread,
    /// Median.
    Median,
    /// Greatest value.
    Worst,
    /// Sum.
    Sum,
}

/// Column of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Head of the column.
    pub head: String,
    /// What the column has.
    pub measure: Measure,
    /// Name for limits, cells and the chart; empty by default.
    #[serde(default)]
    pub name: String,
    /// Index of the row's run; 0 by default.
    #[serde(default)]
    pub run: usize,
    /// Jobs of a rate; all by default.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Start: a time, or the name of a time of the row; the start of the run by default.
    #[serde(default)]
    pub from: Option<String>,
    /// End; the end of the run by default.
    #[serde(default)]
    pub to: Option<String>,
    /// Time over which rates are averaged for an error; half a second by default.
    #[serde(default)]
    pub window: Option<Time>,
    /// How the values of all seeds become a cell.
    #[serde(default)]
    pub over: Over,
    /// Decimals; 1 by default.
    #[serde(default = "one")]
    pub places: usize,
    /// Text between the values of several jobs; a comma by default.
    #[serde(default = "comma")]
    pub join: String,
}

fn one() -> usize {
    1
}

fn comma() -> String {
    ", ".to_string()
}

impl Column {
    /// Returns the values of the column in the runs of a row; infinite for what never settles.
    ///
    /// # Errors
    ///
    /// The column does not match the row.
    pub fn values(&self, case: &Case, runs: &[Done]) -> Result<Vec<f64>, String> {
        let (scenario, outcome) = match runs.get(self.run) {
            _ if self.measure.is_text() => return Ok(Vec::new()),
            Some(Done::Scenario(scenario, outcome)) => (scenario, outcome),
            Some(Done::Ideal(run)) => return self.of_ideal(run).map(|value| vec![value]),
            None => return Err(format!("there is no run {}", self.run)),
        };
        let from = case.time(&self.from)?.unwrap_or(0);
        let to = case.time(&self.to)?.unwrap_or(outcome.duration_ns);
        if let Some(name) = self.jobs.iter().find(|name| outcome.job(name).is_none()) {
            return Err(format!("unknown job \"{name}\""));
        }
        let judged = || match case.ideal.len() == outcome.jobs.len() {
            true => Ok(judge(scenario, outcome, &case.ideal)),
            false => Err("needs an ideal share of each job".to_string()),
        };
        let named = |name: &String| self.jobs.is_empty() || self.jobs.contains(name);
        let jobs = (0..outcome.jobs.len()).filter(|job| named(&outcome.jobs[*job].name));
        let rates = jobs.map(|job| outcome.rate(job, from, to) / 1e6);
        let total = outcome.servers.iter().map(|server| server.total);
        let bytes = total.clone().map(|total| total.bytes).sum::<u64>() as f64;
        let exchange = outcome.exchange.unwrap_or_default();
        let servers = outcome.servers.len();
        let received =
            || exchange.bytes as f64 / (outcome.duration_ns as f64 / 1e9) / servers as f64 * 1e-3;
        Ok(vec![match self.measure {
            Measure::Cell | Measure::Limit | Measure::Limits => return Ok(Vec::new()),
            Measure::Shares => return Ok(judged()?.shares),
            Measure::Rate => return Ok(rates.collect()),
            Measure::ShareError => judged()?.error_percent,
            Measure::Variation => judged()?.variation_percent,
            Measure::ShareSettling => judged()?.settles_s,
            Measure::OverSolo => judged()?.total_percent,
            Measure::Rates => rates.sum(),
            Measure::OfRest => {
                let Some(Done::Scenario(first, alone)) = runs.first() else {
                    return Err("the first run is no scenario".to_string());
                };
                let used = (0..alone.jobs.len()).map(|job| alone.rate(job, from, to) / 1e6);
                let left = bandwidth(first) / 1e6 - used.sum::<f64>();
                // Of next to nothing there is no part.
                if left > 5.0 {
                    rates.sum::<f64>() * 100.0 / left
                } else {
                    f64::NAN
                }
            }
            Measure::Throughput => bytes * 1e3 / outcome.ended_ns.max(1) as f64,
            Measure::Arm => {
                let requests = total.clone().map(|total| total.requests).sum::<u64>();
                let device = total.map(|total| total.device_ns).sum::<u64>() as f64;
                let transfer = bytes / bandwidth(scenario) * 1e3;
                (device / 1e6 - transfer) / requests.max(1) as f64
            }
            Measure::Longest => {
                let longest = outcome.jobs.iter().map(|job| job.latency.max_ns).max();
                longest.unwrap_or(0) as f64 / 1e9
            }
            Measure::Received => received(),
            Measure::Routed => received() / servers.saturating_sub(1).max(1) as f64,
            Measure::Lost => exchange.lost as f64,
            Measure::Used => Cluster::new(scenario).used(outcome, from, to) * 100.0,
            Measure::MeanError
            | Measure::WorstError
            | Measure::Settling
            | Measure::SettlingDeltas => {
                let sample = outcome.sample_ns.max(1);
                let window = self.window.map_or(WINDOW, |window| window.0) / sample;
                let cluster = Cluster::new(scenario);
                let (worst, mean) = cluster.errors(outcome, window.max(1) as usize);
                let end = (to / sample).min(worst.len() as u64) as usize;
                let within = ((from / sample) as usize).min(end)..end;
                match self.measure {
                    Measure::MeanError => nrs_report::stat::mean(&mean[within]) * 100.0,
                    Measure::WorstError => {
                        worst[within].iter().copied().fold(0.0, f64::max) * 100.0
                    }
                    _ => {
                        let seconds = settled(&worst[within], SETTLED, sample);
                        let delta = scenario.exchange.as_ref().map_or(1, |e| e.delta.0);
                        match self.measure {
                            Measure::Settling => seconds,
                            _ => seconds * 1e9 / delta as f64,
                        }
                    }
                }
            }
        }])
    }

    /// Returns the value of the column in a run of ideal servers.
    fn of_ideal(&self, run: &fluid::Run) -> Result<f64, String> {
        match self.measure {
            Measure::MeanError => Ok(run.late(LATE) * 100.0),
            Measure::WorstError => Ok(run.end_max_error(LATE) * 100.0),
            Measure::Settling => {
                let settled = run.settled(IDEAL_SETTLED);
                Ok(settled.map_or(f64::INFINITY, |settled| settled as f64))
            }
            _ => Err("not measured of ideal servers".to_string()),
        }
    }
}

/// Returns the bandwidth of the first device, bytes/s.
fn bandwidth(scenario: &Scenario) -> f64 {
    let device = scenario.devices.first();
    let rate = device.and_then(|device| device.bandwidth);
    rate.map_or(f64::NAN, |rate| rate.0 as f64)
}

/// Returns the time after which `series` stays at or below `limit`, s; infinite if it exceeds
/// `limit` in its last second. A bin takes `sample` ns.
fn settled(series: &[f64], limit: f64, sample: u64) -> f64 {
    let last = series.iter().rposition(|value| *value > limit);
    let after = last.map_or(0, |last| last + 1);
    let second = 1_000_000_000u64.div_ceil(sample) as usize;
    match after + second <= series.len() {
        true => (after as u64 * sample) as f64 / 1e9,
        false => f64::INFINITY,
    }
}

/// Returns the error of the worst job over time as points of a chart: seconds and percent.
pub fn curve(run: &Done) -> Vec<(f64, f64)> {
    let Done::Scenario(scenario, outcome) = run else {
        return Vec::new();
    };
    let window = (WINDOW / outcome.sample_ns.max(1)).max(1) as usize;
    let (worst, _) = Cluster::new(scenario).errors(outcome, window);
    let points = (1u64..).zip(worst);
    // A logarithmic axis has no zero.
    let points = points.map(|(bin, worst)| (bin * outcome.sample_ns, 100.0 * worst.max(0.001)));
    points
        .map(|(ns, percent)| (ns as f64 / 1e9, percent))
        .collect()
}

/// Results of the overlap of a run.
#[derive(Clone, Debug)]
struct Judged {
    /// Share of each job in the bytes moved, %.
    shares: Vec<f64>,
    error_percent: f64,
    variation_percent: f64,
    settles_s: f64,
    total_percent: f64,
}

/// Evaluates the overlap of all jobs of a run by ideal shares.
fn judge(scenario: &Scenario, outcome: &Outcome, ideal: &[f64]) -> Judged {
    let jobs = &scenario.jobs;
    let sample = outcome.sample_ns.max(1);
    let came = jobs.iter().map(|job| job.start.0).max().unwrap_or(0);
    let ends = jobs.iter().filter_map(|job| job.stop).map(|stop| stop.0);
    let ends = ends.min().unwrap_or(scenario.duration.0);
    let bytes = |job: usize, bin: u64| {
        let bin = outcome.jobs[job].bins.get(bin as usize);
        bin.map_or(0.0, |bin| bin.bytes as f64)
    };
    let sum = ideal.iter().sum::<f64>();
    let first = (came + scenario.settle.0).div_ceil(sample);
    let last = ends / sample;
    let moved: Vec<f64> = (0..jobs.len())
        .map(|job| (first..last).map(|bin| bytes(job, bin)).sum())
        .collect();
    let total: f64 = moved.iter().sum();
    let shares: Vec<f64> = moved.iter().map(|moved| moved / total).collect();
    let errors = shares.iter().zip(ideal);
    let mut error = errors
        .map(|(share, ideal)| (share * sum / ideal - 1.0).abs())
        .fold(0.0, f64::max);
    if let ([a, b], [x, y]) = (&shares[..], ideal) {
        error = error.max((a / b * y / x - 1.0).abs());
    }
    // Groups of ten bins: a second, or less in a shortened scenario.
    let ten = (first..last).collect::<Vec<u64>>();
    let ten = ten.chunks_exact(10);
    let variation = (0..jobs.len())
        .map(|job| {
            let bins = ten
                .clone()
                .map(|bins| bins.iter().map(|bin| bytes(job, *bin)).sum());
            variation(&bins.collect::<Vec<f64>>())
        })
        .fold(0.0, f64::max);
    let request = jobs.iter().flat_map(|job| &job.io).map(|io| io.size.0);
    let request = request.max().unwrap_or(0) as f64;
    let fair = |bin: u64| {
        let all: f64 = (0..jobs.len()).map(|job| bytes(job, bin)).sum();
        let mut jobs = ideal.iter().enumerate();
        jobs.all(|(job, ideal)| {
            let due = all * ideal / sum;
            all > 0.0 && (bytes(job, bin) - due).abs() <= (due * 0.05).max(3.0 * request)
        })
    };
    let start = came / sample;
    // First bin from which all bins are fair.
    let unfair = (start..last).rev().find(|bin| !fair(*bin));
    let settled = unfair.map_or(start, |bin| bin + 1);
    let settles = match settled >= last {
        true => f64::INFINITY,
        false => (settled - start) as f64 * sample as f64 / 1e9,
    };
    let second = jobs
        .iter()
        .map(|job| job.start.0)
        .filter(|start| *start > 0);
    let second = second.min().unwrap_or(came);
    let alone = outcome.rate(0, scenario.settle.0, second);
    let rate: f64 = (0..jobs.len())
        .map(|job| outcome.rate(job, first * sample, last * sample))
        .sum();
    Judged {
        shares: shares.into_iter().map(|share| share * 100.0).collect(),
        error_percent: error * 100.0,
        variation_percent: variation * 100.0,
        settles_s: settles,
        total_percent: rate / alone * 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_is_for_good() {
        const BIN: u64 = 100_000_000;
        let series = |from: &[f64]| {
            let mut all = from.to_vec();
            all.extend([0.0; 20]);
            all
        };
        assert_eq!(settled(&series(&[]), 0.1, BIN), 0.0);
        assert_eq!(settled(&series(&[0.5, 0.0, 0.2]), 0.1, BIN), 0.3);
        assert!(settled(&[0.5; 30], 0.1, BIN).is_infinite());
        let mut late = series(&[]);
        late[15] = 1.0;
        assert!(settled(&late, 0.1, BIN).is_infinite());
    }
}
