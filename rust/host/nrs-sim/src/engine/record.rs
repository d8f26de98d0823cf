// SPDX-License-Identifier: GPL-2.0-only

//! What is written down while a run goes on.

use super::{
    item::{Op, Record},
    START,
};
use crate::outcome::{Count, Latency};
use hdrhistogram::Histogram;

/// Significant decimal digits of times that are counted: to one part in 128.
const DIGITS: u8 = 2;

/// What a job did.
pub struct Diary {
    /// All requests.
    pub total: Count,
    /// Those that settled.
    pub settled: Count,
    /// Reads, writes, operations on metadata.
    pub operations: [u64; 3],
    /// How long settled requests took, ns.
    times: Histogram<u64>,
    /// Sum of these times, ns.
    sum: u128,
    /// The longest of them, ns.
    longest: u64,
    /// How long they waited in servers, ns.
    wait: u128,
    /// By the time of the answer.
    pub bins: Vec<Count>,
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
            total: Count::default(),
            settled: Count::default(),
            operations: [0; 3],
            times: Histogram::new(DIGITS).expect("digits from 0 to 5"),
            sum: 0,
            longest: 0,
            wait: 0,
            bins: vec![Count::default(); bins.count],
        }
    }

    /// `record` is answered at `now`.
    pub fn add(&mut self, record: &Record, bins: &Bins, now: u64) {
        let (bytes, device) = (record.bytes, record.device_ns);
        self.total.add(bytes, device);
        self.operations[match record.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Metadata => 2,
        }] += 1;
        if let Some(bin) = self.bins.get_mut(bins.at(now)) {
            bin.add(bytes, device);
        }
        if now - START >= bins.settle {
            self.settled.add(bytes, device);
            let time = now - record.sent;
            self.times += time;
            self.sum += u128::from(time);
            self.longest = self.longest.max(time);
            self.wait += u128::from(record.started - record.arrived);
        }
    }

    /// How long settled requests took.
    pub fn latency(&self) -> Latency {
        let requests = self.times.len();
        let quantile = |part| self.times.value_at_quantile(part).min(self.longest);
        Latency {
            requests,
            mean_ns: self.sum as f64 / requests.max(1) as f64,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: self.longest,
        }
    }

    /// Mean of the wait in servers, ns.
    pub fn wait_mean(&self) -> f64 {
        self.wait as f64 / self.settled.requests.max(1) as f64
    }
}
