// SPDX-License-Identifier: GPL-2.0-only

//! Jobs on many servers, with their fair shares.
//!
//! - *Layout*: servers of different bandwidths, and the servers of each job ([`ClusterLayout`]).
//! - *Stripe*: the part of a job at one server: processes that use data of this server.
//! - *Reference*: the bandwidth of each job under [`max_min`] fairness.
//! - *Error*: relative difference of a job's bandwidth from the reference.
//!
//! Each stripe is a job of the scenario. The stripes of a job have the same jobid, so the servers
//! treat them as one job.

use std::fmt::Write;

use nrs_report::stat::{median, spread};
use nrs_sched::{max_min::max_min, rng::Rng};

use super::{all, Failure, Options};
use crate::outcome::Outcome;
use crate::scenario::Scenario;

/// Bandwidths of servers to draw from, MB/s.
const BANDWIDTHS: [u64; 5] = [600, 800, 1000, 1200, 1400];

/// Length of a bin, ms.
pub const BIN_MS: u64 = 100;

/// Placement of jobs on servers.
#[derive(Clone, Debug)]
pub struct ClusterLayout {
    /// Bandwidth of each server, MB/s.
    pub servers: Vec<u64>,
    /// Servers of each job, in ascending order.
    pub jobs: Vec<Vec<usize>>,
}

impl ClusterLayout {
    /// Draws the bandwidths of `servers` servers and, for each of `jobs` jobs, a random number of
    /// servers.
    pub fn random(servers: usize, jobs: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_add(servers as u64 * 1000));
        let bandwidth = |rng: &mut Rng| BANDWIDTHS[rng.below(BANDWIDTHS.len() as u64) as usize];
        let bandwidths: Vec<u64> = (0..servers).map(|_| bandwidth(&mut rng)).collect();
        let jobs = (0..jobs)
            .map(|_| {
                let mut all: Vec<usize> = (0..servers).collect();
                let count = 1 + rng.below(servers as u64) as usize;
                for at in 0..count {
                    all.swap(at, at + rng.below((servers - at) as u64) as usize);
                }
                all.truncate(count);
                all.sort_unstable();
                all
            })
            .collect();
        Self {
            servers: bandwidths,
            jobs,
        }
    }

    /// Returns the bandwidth of each job under max-min fairness, bytes/s.
    pub fn reference(&self) -> Vec<f64> {
        let capacities: Vec<f64> = self.servers.iter().map(|mb| *mb as f64 * 1e6).collect();
        let jobs = self.jobs.iter();
        let jobs: Vec<_> = jobs
            .map(|servers| (1.0, servers.as_slice(), f64::INFINITY))
            .collect();
        max_min(&capacities, &jobs)
    }

    /// Returns the scenario for `seconds`; `exchange` has the lines of the table, empty for no
    /// exchange.
    ///
    /// # Errors
    ///
    /// Faults of the scenario.
    pub fn scenario(&self, name: &str, seconds: u64, exchange: &str) -> Result<Scenario, Failure> {
        let mut text = format!(
            "name = \"{name}\"\ntitle = \"{} jobs on {} servers\"\nduration = \"{seconds}s\"\n\
             sample = \"{BIN_MS}ms\"\n",
            self.jobs.len(),
            self.servers.len(),
        );
        if !exchange.is_empty() {
            write!(text, "[exchange]\n{exchange}\n")?;
        }
        for bandwidth in BANDWIDTHS {
            write!(
                text,
                "[[device]]\nname = \"d{bandwidth}\"\nkind = \"pipe\"\n\
                 bandwidth = \"{bandwidth}MB/s\"\n\
                 latency = \"100us\"\njitter = 0.1\n"
            )?;
        }
        for (server, bandwidth) in self.servers.iter().enumerate() {
            write!(
                text,
                "[[server]]\nname = \"oss{server}\"\nslots = 16\ndevice = \"d{bandwidth}\"\n\
                 policy = \"fairshare jobid_fair\"\n"
            )?;
        }
        for (job, servers) in self.jobs.iter().enumerate() {
            for server in servers {
                write!(
                    text,
                    "[[job]]\nname = \"j{job}-{server}\"\njobid = \"j{job}\"\nprocs = 24\n\
                     servers = [\"oss{server}\"]\nmix = {{ read = 1, write = 1 }}\n"
                )?;
            }
        }
        Ok(Scenario::parse("cluster", &text, &[])?)
    }

    /// Returns the error of each job in each bin, from the mean rate of the last `window` bins.
    pub fn errors(&self, outcome: &Outcome, window: usize) -> Vec<Vec<f64>> {
        let reference = self.reference();
        let bins = (outcome.duration_ns / outcome.sample_ns.max(1)) as usize;
        let mut at = 0;
        let mut errors = Vec::new();
        for (job, servers) in self.jobs.iter().enumerate() {
            let mut bytes = vec![0f64; bins];
            for stripe in &outcome.jobs[at..at + servers.len()] {
                for (sum, bin) in bytes.iter_mut().zip(&stripe.bins) {
                    *sum += bin.bytes as f64;
                }
            }
            at += servers.len();
            let seconds = outcome.sample_ns as f64 / 1e9;
            let smooth = (0..bins).map(|bin| {
                let from = (bin + 1).saturating_sub(window);
                let mean = bytes[from..=bin].iter().sum::<f64>() / (bin + 1 - from) as f64;
                (mean / seconds / reference[job] - 1.0).abs()
            });
            errors.push(smooth.collect());
        }
        errors
    }

    /// Returns the bandwidth used from second `from_s` on, as a part of the capacity of servers
    /// with jobs.
    pub fn efficiency(&self, outcome: &Outcome, from_s: u64) -> f64 {
        let from = from_s * 1_000_000_000;
        let rate = |index| outcome.rate(index, from, outcome.duration_ns);
        let served: f64 = (0..outcome.jobs.len()).map(rate).sum();
        // A server without jobs does not count.
        let used = |server: &usize| {
            self.jobs
                .iter()
                .any(|job| job.binary_search(server).is_ok())
        };
        let all = (0..self.servers.len()).filter(used);
        served
            / all
                .map(|server| self.servers[server] as f64 * 1e6)
                .sum::<f64>()
    }
}

/// Runs random layouts, one for each seed, for `seconds`.
///
/// # Errors
///
/// The error of a run.
pub fn runs(
    name: &str,
    (servers, jobs): (usize, usize),
    seconds: u64,
    exchange: &str,
    options: &Options,
) -> Result<Vec<(ClusterLayout, Outcome)>, Failure> {
    let (mut layouts, mut scenarios) = (Vec::new(), Vec::new());
    for seed in 1..=options.seeds {
        let layout = ClusterLayout::random(servers, jobs, seed);
        scenarios.push(Scenario {
            seed,
            ..layout.scenario(name, seconds, exchange)?
        });
        layouts.push(layout);
    }
    Ok(layouts.into_iter().zip(all(&scenarios, options)?).collect())
}

/// Converts the worst error of each bin to points of a chart: seconds and percent.
pub fn curve(worst: &[f64]) -> Vec<(f64, f64)> {
    let points = (1u64..).zip(worst);
    let points = points.map(|(bin, worst)| (bin * BIN_MS, 100.0 * worst.max(0.001)));
    points
        .map(|(ms, percent)| (ms as f64 / 1e3, percent))
        .collect()
}

/// Returns the largest and the mean error of all jobs, by bin.
pub fn worst_and_mean(errors: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
    let bins = errors.first().map_or(0, Vec::len);
    let at = |bin: usize| errors.iter().map(move |job| job[bin]);
    let worst = (0..bins).map(|bin| at(bin).fold(0.0, f64::max)).collect();
    let mean = (0..bins)
        .map(|bin| at(bin).sum::<f64>() / errors.len() as f64)
        .collect();
    (worst, mean)
}

/// Returns the time after which `series` stays at or below `limit`, s; `None` if it exceeds `limit`
/// in its last second.
pub fn settled(series: &[f64], limit: f64) -> Option<f64> {
    let after = series
        .iter()
        .rposition(|value| *value > limit)
        .map_or(0, |last| last + 1);
    let second = (1000 / BIN_MS) as usize;
    (after + second <= series.len()).then(|| after as f64 * BIN_MS as f64 / 1e3)
}

/// Returns the mean of the last `count` values.
pub fn late(series: &[f64], count: usize) -> f64 {
    let from = series.len().saturating_sub(count);
    series[from..].iter().sum::<f64>() / (series.len() - from).max(1) as f64
}

/// Formats parts as percent, over all seeds.
pub fn percent(parts: &[f64]) -> String {
    spread(parts).scaled(100.0).text(1)
}

/// Formats rates in bytes/s as kB/s, over all seeds.
pub fn kilobytes(rates: &[f64]) -> String {
    spread(rates).scaled(1e-3).text(1)
}

/// Formats the median of `times`, s; a dash if one is `None`.
pub fn seconds(times: &[Option<f64>]) -> String {
    let known: Vec<f64> = times.iter().flatten().copied().collect();
    if known.len() < times.len() {
        return format!("— ({} of {})", known.len(), times.len());
    }
    format!("{:.1}", median(&known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_is_for_good() {
        let series = |from: &[f64]| {
            let mut all = from.to_vec();
            all.extend([0.0; 20]);
            all
        };
        assert_eq!(settled(&series(&[]), 0.1), Some(0.0));
        assert_eq!(settled(&series(&[0.5, 0.0, 0.2]), 0.1), Some(0.3));
        assert_eq!(settled(&[0.5; 30], 0.1), None);
        let mut late = series(&[]);
        late[15] = 1.0;
        assert_eq!(settled(&late, 0.1), None);
    }
}
