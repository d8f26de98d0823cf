// SPDX-License-Identifier: GPL-2.0-only

//! What a run returns.
//!
//! # Vocabulary
//!
//! - *Bin*: a piece of the run, [`Outcome::sample_ns`] long; what ends in it is counted there.
//! - *Settled*: counted from [`Outcome::settle_ns`] on, when shares are judged.
//! - *Device time*: what the device needs for a request, without the wait for others.
//! - *Round*: what a bulk-synchronous application moves between two spells of computing.
//!
//! Everything is simulated but [`Outcome::wall`], which is not serialised: equal scenarios and seeds give equal
//! bytes.

use serde::Serialize;
use std::time::Duration;

/// What a run returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// The seed of everything random.
    pub seed: u64,
    /// Simulated time that was asked for, ns.
    pub duration_ns: u64,
    /// Simulated time at which nothing was left to do, or the duration, ns.
    pub ended_ns: u64,
    /// Length of a bin, ns.
    pub sample_ns: u64,
    /// What was before does not count as settled, ns.
    pub settle_ns: u64,
    /// Events that were handled.
    pub events: u64,
    /// Requests outstanding at a time, at most: what memory is bounded by.
    pub outstanding_most: u64,
    /// Jobs, in the order of the scenario.
    pub jobs: Vec<Job>,
    /// Servers, in the order of the scenario, counts expanded.
    pub servers: Vec<Server>,
    /// What servers told each other, if they did.
    pub exchange: Option<Exchange>,
    /// Wall time of the run; not serialised, as it differs from run to run.
    #[serde(skip)]
    pub wall: Duration,
}

/// Counts of requests that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Device time, ns.
    pub device_ns: u64,
}

impl Count {
    /// Adds a request that moved `bytes` and took the device `device_ns`.
    pub fn add(&mut self, bytes: u64, device_ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.device_ns += device_ns;
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            device_ns: self.device_ns + other.device_ns,
        }
    }
}

/// Times from when a client sends a request to when it has the answer, settled ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many.
    pub requests: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Median, ns; this and what follows to one part in 128.
    pub p50_ns: u64,
    /// 99 % are no longer, ns.
    pub p99_ns: u64,
    /// 99.9 % are no longer, ns.
    pub p999_ns: u64,
    /// The longest, ns; exact.
    pub max_ns: u64,
}

/// What a job did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that had no answer when the run ended.
    pub unfinished: u64,
    /// All that were answered.
    pub total: Count,
    /// Those answered from the settle time on.
    pub settled: Count,
    /// Of all, reads.
    pub reads: u64,
    /// Of all, writes.
    pub writes: u64,
    /// Of all, operations on metadata.
    pub metadata: u64,
    /// How long requests took.
    pub latency: Latency,
    /// From the arrival at a server to the start at its device, settled requests, mean, ns.
    pub wait_mean_ns: f64,
    /// When it had done its work, if it had some, ns since the run began.
    pub completed_ns: Option<u64>,
    /// Rounds, if it is bulk-synchronous.
    pub rounds: Option<Rounds>,
    /// By the time at which answers came.
    pub bins: Vec<Count>,
}

/// What a bulk-synchronous application did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rounds {
    /// Rounds that were done.
    pub done: u64,
    /// Time in which data was moved, all rounds that were done, ns.
    pub io_ns: u64,
    /// The longest of them, ns.
    pub io_max_ns: u64,
    /// Time of data and of computing, from the start to the end of the last round that was done, ns.
    pub whole_ns: u64,
}

/// What a server did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// What it was started with.
    pub policy: String,
    /// Requests that ended.
    pub total: Count,
    /// Device time of all that was started, per channel of the device, ns.
    pub busy_ns: u64,
    /// Time during which nothing was at the device though requests waited in the server, ns: a policy held
    /// them back.
    pub withheld_ns: u64,
    /// Requests that went to the device without being queued.
    pub passed: u64,
    /// Requests that were in the server at a time, at most.
    pub held_most: u64,
    /// Requests that a stand-in class took because no class could be made.
    pub overflow: u64,
    /// By job, in the order of the scenario.
    pub jobs: Vec<Count>,
    /// Bytes by job and bin, if the run was asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bins_bytes: Vec<Vec<u64>>,
}

/// What servers told each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// Messages that were sent.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these messages, those that were lost, cut ones included.
    pub lost: u64,
    /// Messages that were heard.
    pub heard: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Steps of all servers.
    pub steps: u64,
}

impl Outcome {
    /// The job called `name`.
    pub fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// Bytes per second that job `index` moved from `from` to `to` (ns since the run began), to whole bins.
    pub fn rate(&self, index: usize, from: u64, to: u64) -> f64 {
        let Some(job) = self.jobs.get(index) else {
            return 0.0;
        };
        let sample = self.sample_ns.max(1);
        let (first, end) = (from / sample, to / sample);
        let bins = job.bins.iter().zip(0u64..);
        let within = bins.filter(|(_, bin)| (first..end).contains(bin));
        let bytes: u64 = within.map(|(bin, _)| bin.bytes).sum();
        let ns = end.saturating_sub(first).saturating_mul(sample).max(1);
        bytes as f64 * 1e9 / ns as f64
    }

    /// The share of each job in the bytes that settled, 0 to 1.
    pub fn shares(&self) -> Vec<f64> {
        let sum: u64 = self.jobs.iter().map(|job| job.settled.bytes).sum();
        let share = |job: &Job| job.settled.bytes as f64 / sum.max(1) as f64;
        self.jobs.iter().map(share).collect()
    }
}
