// SPDX-License-Identifier: GPL-2.0-only

//! Jobs on many servers, with their fair shares.
//!
//! - *Stripe*: the part of a job at one server: processes that use data of this server. Each stripe
//!   is a job of the scenario. The stripes of a job have the same jobid, so the servers treat them
//!   as one job.
//! - *Reference*: the bandwidth of each job under [`max_min`] fairness.
//! - *Error*: relative difference of a job's bandwidth from the reference.

use nrs_sched::{max_min::max_min, rng::Rng};
use serde::Deserialize;

use crate::outcome::Outcome;
use crate::scenario::{Faults, Scenario, Servers};

/// Bandwidths of servers to draw from, MB/s.
const BANDWIDTHS: [u64; 5] = [600, 800, 1000, 1200, 1400];

/// Random placement of jobs on servers of different bandwidths.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {
    /// Number of servers.
    pub servers: usize,
    /// Number of jobs, each on a random number of servers.
    pub jobs: usize,
}

impl Random {
    /// Returns the scenario that `seed` draws; `rest` has its other keys.
    ///
    /// # Errors
    ///
    /// Faults of the scenario.
    pub fn scenario(&self, rest: &str, seed: u64) -> Result<Scenario, Faults> {
        let mut rng = Rng::new(seed.wrapping_add(self.servers as u64 * 1000));
        let mut text = String::new();
        for bandwidth in BANDWIDTHS {
            text += &format!(
                "[[device]]\nname = \"d{bandwidth}\"\nkind = \"pipe\"\n\
                 bandwidth = \"{bandwidth}MB/s\"\nlatency = \"100us\"\njitter = 0.1\n"
            );
        }
        for server in 0..self.servers {
            let bandwidth = BANDWIDTHS[rng.below(BANDWIDTHS.len() as u64) as usize];
            text += &format!(
                "[[server]]\nname = \"oss{server}\"\nslots = 16\ndevice = \"d{bandwidth}\"\n\
                 policy = \"fairshare jobid_fair\"\n"
            );
        }
        for job in 0..self.jobs {
            let mut all: Vec<usize> = (0..self.servers).collect();
            let count = 1 + rng.below(self.servers as u64) as usize;
            for at in 0..count {
                all.swap(at, at + rng.below((self.servers - at) as u64) as usize);
            }
            all.truncate(count);
            all.sort_unstable();
            for server in all {
                text += &format!(
                    "[[job]]\nname = \"j{job}-{server}\"\njobid = \"j{job}\"\nprocs = 24\n\
                     servers = [\"oss{server}\"]\nmix = {{ read = 1, write = 1 }}\n"
                );
            }
        }
        Scenario::parse("random", &format!("{rest}\n{text}"), &[])
    }
}

/// Job with its stripes: the indices of their servers and of their jobs in the scenario.
#[derive(Clone, Debug, Default)]
struct StripedJob {
    servers: Vec<usize>,
    stripes: Vec<usize>,
}

/// Jobs of a scenario by jobid, and the capacity of each server, bytes/s.
pub struct Cluster {
    capacities: Vec<f64>,
    jobs: Vec<StripedJob>,
}

impl Cluster {
    /// Groups the jobs of `scenario`; consecutive jobs with the same jobid are stripes of one job.
    pub fn new(scenario: &Scenario) -> Self {
        let names = scenario.server_names();
        let servers = scenario.servers.iter();
        let capacities = servers.flat_map(|server| {
            let device = scenario.device(&server.device);
            let rate = device.and_then(|device| device.bandwidth);
            server
                .names()
                .map(move |_| rate.map_or(0.0, |rate| rate.0 as f64))
        });
        let mut jobs: Vec<StripedJob> = Vec::new();
        let mut last = None;
        for (index, job) in scenario.jobs.iter().enumerate() {
            if last.replace(job.jobid()) != Some(job.jobid()) {
                jobs.push(StripedJob::default());
            }
            let Some(striped) = jobs.last_mut() else {
                continue;
            };
            striped.stripes.push(index);
            let here = |name: &str| match &job.servers {
                Servers::Names(list) => list.iter().any(|other| other == name),
                _ => true,
            };
            let here = (0..names.len()).filter(|server| here(&names[*server]));
            striped.servers.extend(here);
        }
        Self {
            capacities: capacities.collect(),
            jobs,
        }
    }

    /// Returns the bandwidth of each job under max-min fairness, bytes/s.
    fn reference(&self) -> Vec<f64> {
        let jobs = self.jobs.iter();
        let jobs: Vec<_> = jobs
            .map(|job| (1.0, job.servers.as_slice(), f64::INFINITY))
            .collect();
        max_min(&self.capacities, &jobs)
    }

    /// Returns the largest and the mean error of all jobs in each bin, from the mean rate of the
    /// last `window` bins.
    pub fn errors(&self, outcome: &Outcome, window: usize) -> (Vec<f64>, Vec<f64>) {
        let seconds = outcome.sample_ns as f64 / 1e9;
        let bins = (outcome.duration_ns / outcome.sample_ns.max(1)) as usize;
        let (mut worst, mut sum) = (vec![0f64; bins], vec![0f64; bins]);
        for (job, reference) in self.jobs.iter().zip(self.reference()) {
            let mut bytes = vec![0f64; bins];
            for stripe in &job.stripes {
                for (sum, bin) in bytes.iter_mut().zip(&outcome.jobs[*stripe].bins) {
                    *sum += bin.bytes as f64;
                }
            }
            let errors = (0..bins).map(|bin| {
                let from = (bin + 1).saturating_sub(window);
                let mean = bytes[from..=bin].iter().sum::<f64>() / (bin + 1 - from) as f64;
                (mean / seconds / reference - 1.0).abs()
            });
            for ((worst, sum), error) in worst.iter_mut().zip(&mut sum).zip(errors) {
                *worst = worst.max(error);
                *sum += error;
            }
        }
        let count = self.jobs.len() as f64;
        (worst, sum.into_iter().map(|sum| sum / count).collect())
    }

    /// Returns the bandwidth used between two times, ns, as a part of the capacity of servers with
    /// jobs.
    pub fn used(&self, outcome: &Outcome, from: u64, to: u64) -> f64 {
        let rate = |index| outcome.rate(index, from, to);
        let served: f64 = (0..outcome.jobs.len()).map(rate).sum();
        let has_job = |server: &usize| self.jobs.iter().any(|job| job.servers.contains(server));
        let all = (0..self.capacities.len()).filter(has_job);
        served / all.map(|server| self.capacities[server]).sum::<f64>()
    }
}
