// SPDX-License-Identifier: GPL-2.0-only

//! What is written down while a run goes on.

use super::{
    item::{Op, Record},
    START,
};
use crate::outcome::{Count, Job, Latency};
use hdrhistogram::Histogram;

/// Significant decimal digits of times that are counted: to one part in 128.
const DIGITS: u8 = 2;

/// What a job did.
pub struct Diary {
    /// Counts and bins.
    job: Job,
    /// How long settled requests took, ns.
    times: Histogram<u64>,
    /// Sum of these times, ns.
    sum: u128,
    /// How long they waited in servers, ns.
    wait: u128,
}

/// How time is divided.
#[derive(Clone, Copy)]
pub struct Bins {
    /// Length of a bin, ns.
    pub sample: u64,
    /// How many there are.
    pub count: usize,
    /// When a run has settled, ns since its begin.
    pub settle: u64,
}

impl Bins {
    /// The bin of `now`.
    pub fn at(&self, now: u64) -> usize {
        (((now - START) / self.sample) as usize).min(self.count.saturating_sub(1))
    }
}

impl Diary {
    /// Nothing yet.
    pub fn new(bins: &Bins) -> Self {
        Self {
            job: Job {
                bins: vec![Count::default(); bins.count],
                ..Job::default()
            },
            times: Histogram::new(DIGITS).expect("digits from 0 to 5"),
            sum: 0,
            wait: 0,
        }
    }

    /// `record` is answered at `now`.
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

    /// The job, as far as its requests say.
    pub fn job(&self) -> Job {
        let (requests, max_ns) = (self.times.len(), self.job.latency.max_ns);
        let mean = |sum| sum as f64 / requests.max(1) as f64;
        let quantile = |part| self.times.value_at_quantile(part).min(max_ns);
        Job {
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
