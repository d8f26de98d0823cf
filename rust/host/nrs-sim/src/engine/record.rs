// SPDX-License-Identifier: GPL-2.0-only

//! Statistics that are recorded during a run.

use super::{
    item::{Op, Record},
    queue::START,
};
use crate::outcome::{Count, JobOutcome, Latency};
use hdrhistogram::Histogram;

/// Significant decimal digits of recorded times: a resolution of one part in 128.
const DIGITS: u8 = 2;

/// Statistics of a job.
pub struct Diary {
    /// Counts and bins.
    job: JobOutcome,
    /// Histogram of the times of settled requests, ns.
    times: Histogram<u64>,
    /// Sum of these times, ns.
    sum: u128,
    /// Sum of the queue times of settled requests, ns.
    wait: u128,
}

/// Division of the run into bins.
#[derive(Clone, Copy)]
pub struct Bins {
    /// Length of a bin, ns.
    pub sample: u64,
    /// Number of bins.
    pub count: usize,
    /// Start of the settled part of the run, ns since the start.
    pub settle: u64,
}

impl Bins {
    /// Returns the bin of `now`.
    pub fn at(&self, now: u64) -> usize {
        (((now - START) / self.sample) as usize).min(self.count.saturating_sub(1))
    }
}

impl Diary {
    /// Creates empty statistics.
    pub fn new(bins: &Bins) -> Self {
        Self {
            job: JobOutcome {
                bins: vec![Count::default(); bins.count],
                ..JobOutcome::default()
            },
            times: Histogram::new(DIGITS).expect("digits from 0 to 5"),
            sum: 0,
            wait: 0,
        }
    }

    /// Counts `record`, which is answered at `now`.
    pub fn add(&mut self, record: &Record, bins: &Bins, now: u64) {
        let (job, bytes, device) = (&mut self.job, record.bytes, record.device_ns);
        job.total.add(bytes, device);
        *match record.op {
            Op::Read => &mut job.reads,
            Op::Write => &mut job.writes,
            Op::Metadata => &mut job.metadata,
        } += 1;
        if let Some(bin) = job.bins.get_mut(bins.at(now)) {
            bin.add(bytes, device);
        }
        if now - START >= bins.settle {
            job.settled.add(bytes, device);
            let time = now - record.sent;
            self.times += time;
            self.sum += u128::from(time);
            job.latency.max_ns = job.latency.max_ns.max(time);
            self.wait += u128::from(record.started - record.arrived);
        }
    }

    /// Returns the statistics of the job.
    pub fn job(&self) -> JobOutcome {
        let (requests, max_ns) = (self.times.len(), self.job.latency.max_ns);
        let mean = |sum| sum as f64 / requests.max(1) as f64;
        let quantile = |part| self.times.value_at_quantile(part).min(max_ns);
        JobOutcome {
            latency: Latency {
                requests,
                mean_ns: mean(self.sum),
                p50_ns: quantile(0.5),
                p99_ns: quantile(0.99),
                p999_ns: quantile(0.999),
                max_ns,
            },
            wait_mean_ns: mean(self.wait),
            ..self.job.clone()
        }
    }
}
