// SPDX-License-Identifier: GPL-2.0-only

//! Results of a run.
//!
//! - *Bin*: an interval of [`Outcome::sample_ns`]; each request counts in the bin in which it ends.
//! - *Settled*: counted from [`Outcome::settle_ns`] on; shares are judged by settled requests.
//! - *Device time*: the service time of a request at the device, without queue time.
//! - *Round*: the data that a bulk-synchronous application moves between two periods of computing.
//!
//! All values except [`Outcome::wall`] are simulated. [`Outcome::wall`] is not serialised: equal
//! scenarios and seeds give equal bytes.

use serde::Serialize;
use std::time::Duration;

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub name: String,
    /// Title of the scenario.
    pub title: String,
    /// Seed of random numbers.
    pub seed: u64,
    /// Requested simulated time, ns.
    pub duration_ns: u64,
    /// Simulated time at the end: when all work was done, or the duration, ns.
    pub ended_ns: u64,
    /// Length of a bin, ns.
    pub sample_ns: u64,
    /// Start of the settled part, ns.
    pub settle_ns: u64,
    /// Number of events.
    pub events: u64,
    /// Maximum number of outstanding requests, which bounds the memory.
    pub outstanding_most: u64,
    /// Jobs in the order of the scenario.
    pub jobs: Vec<JobOutcome>,
    /// Servers in the order of the scenario; a count above 1 makes several entries.
    pub servers: Vec<ServerOutcome>,
    /// Statistics of the exchange between servers, if it is enabled.
    pub exchange: Option<ExchangeOutcome>,
    /// Wall time of the run; not serialised because it differs from run to run.
    #[serde(skip)]
    pub wall: Duration,
}

/// Counts of completed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Number of requests.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of device times, ns.
    pub device_ns: u64,
}

impl Count {
    /// Counts a request with its bytes and its device time.
    pub fn add(&mut self, bytes: u64, device_ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.device_ns += device_ns;
    }

    /// Adds both counts; returns the sum.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            device_ns: self.device_ns + other.device_ns,
        }
    }
}

/// Latency of settled requests, from sending by the client to receipt of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of requests.
    pub requests: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Median, ns; the resolution of all quantiles is one part in 128.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// 99.9th percentile, ns.
    pub p999_ns: u64,
    /// Maximum, ns; exact.
    pub max_ns: u64,
}

/// Results of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobOutcome {
    /// Name of the job.
    pub name: String,
    /// Number of requests sent.
    pub issued: u64,
    /// Number of requests without an answer at the end of the run.
    pub unfinished: u64,
    /// All answered requests.
    pub total: Count,
    /// Requests answered from the settle time on.
    pub settled: Count,
    /// Number of reads among all answered requests.
    pub reads: u64,
    /// Number of writes among all answered requests.
    pub writes: u64,
    /// Number of metadata operations among all answered requests.
    pub metadata: u64,
    /// Latency of settled requests.
    pub latency: Latency,
    /// Mean queue time of settled requests, from arrival at the server to dispatch, ns.
    pub wait_mean_ns: f64,
    /// Completion time of the job's work, ns since the start; `None` without a limit or if
    /// unfinished.
    pub completed_ns: Option<u64>,
    /// Rounds, if the job is bulk-synchronous.
    pub rounds: Option<Rounds>,
    /// Counts by bin, according to the time of the answer.
    pub bins: Vec<Count>,
}

/// Results of a bulk-synchronous application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rounds {
    /// Number of completed rounds.
    pub done: u64,
    /// Sum of the data phases of all completed rounds, ns.
    pub io_ns: u64,
    /// Longest data phase, ns.
    pub io_max_ns: u64,
    /// Time from the start to the end of the last completed round, data and computing, ns.
    pub whole_ns: u64,
}

/// Results of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerOutcome {
    /// Name of the server.
    pub name: String,
    /// Policy line of the server.
    pub policy: String,
    /// Counts of completed requests.
    pub total: Count,
    /// Device time of all dispatched requests per channel of the device, ns.
    pub busy_ns: u64,
    /// Time during which the policy throttled all queued requests and none was in flight, ns.
    pub withheld_ns: u64,
    /// Number of requests dispatched without being queued.
    pub passed: u64,
    /// Maximum number of requests in the server, queued or in flight.
    pub held_most: u64,
    /// Number of requests in an overflow class, because no class could be created.
    pub overflow: u64,
    /// Counts by job, in the order of the scenario.
    pub jobs: Vec<Count>,
    /// Bytes by job and bin; empty unless requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bins_bytes: Vec<Vec<u64>>,
}

/// Statistics of the exchange between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExchangeOutcome {
    /// Number of messages sent.
    pub messages: u64,
    /// Bytes of sent messages.
    pub bytes: u64,
    /// Number of lost messages, including messages from and to servers that are cut off.
    pub lost: u64,
    /// Number of messages received.
    pub heard: u64,
    /// Number of messages rejected by the receiver.
    pub refused: u64,
    /// Number of steps of all servers.
    pub steps: u64,
}

impl Outcome {
    /// Returns the job with this name.
    pub fn job(&self, name: &str) -> Option<&JobOutcome> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// Returns the mean rate of job `index` between `from` and `to`, bytes/s; the times are ns
    /// since the start, rounded down to bins.
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

    /// Returns the share of each job in the settled bytes, 0 to 1.
    pub fn shares(&self) -> Vec<f64> {
        let sum: u64 = self.jobs.iter().map(|job| job.settled.bytes).sum();
        let share = |job: &JobOutcome| job.settled.bytes as f64 / sum.max(1) as f64;
        self.jobs.iter().map(share).collect()
    }
}
