// SPDX-License-Identifier: GPL-2.0-only

//! What is written down while a run goes on.
//!
//! * A *histogram* counts times in pieces of an octave, 128 each, so that a quantile is known to one part in
//!   128 whatever its size.

use super::{
    item::{Op, Record},
    START,
};
use crate::outcome::{Count, Latency};

/// Logarithm of the pieces of an octave.
const PIECES: u32 = 7;

/// Counts of times.
pub struct Histogram {
    counts: Vec<u64>,
    number: u64,
    sum: u128,
    most: u64,
}

impl Histogram {
    /// Nothing counted.
    pub fn new() -> Self {
        Self {
            counts: Vec::new(),
            number: 0,
            sum: 0,
            most: 0,
        }
    }

    fn piece(time: u64) -> usize {
        let octave = time.max(1).ilog2();
        if octave < PIECES {
            return time as usize;
        }
        let shift = octave - PIECES;
        (((u64::from(shift) + 1) << PIECES) + ((time >> shift) - (1 << PIECES))) as usize
    }

    /// The largest time that is counted in `piece`.
    fn largest(piece: usize) -> u64 {
        let (octave, rest) = (piece as u64 >> PIECES, piece as u64 & ((1 << PIECES) - 1));
        match octave.checked_sub(1) {
            None => rest,
            Some(shift) => {
                let next = u128::from((1 << PIECES) + rest + 1) << shift;
                u64::try_from(next - 1).unwrap_or(u64::MAX)
            }
        }
    }

    /// Counts `time`, ns.
    pub fn add(&mut self, time: u64) {
        let piece = Self::piece(time);
        if piece >= self.counts.len() {
            self.counts.resize(piece + 1, 0);
        }
        self.counts[piece] += 1;
        self.number += 1;
        self.sum += u128::from(time);
        self.most = self.most.max(time);
    }

    /// The time that `per_mille` of 1000 times do not exceed, ns; 0 if there are none.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (u128::from(self.number) * u128::from(per_mille)).div_ceil(1000) as u64;
        let mut sum = 0;
        for (piece, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= rank.max(1) {
                return Self::largest(piece).min(self.most);
            }
        }
        0
    }

    /// What it comes to.
    pub fn latency(&self) -> Latency {
        Latency {
            requests: self.number,
            mean_ns: self.sum as f64 / self.number.max(1) as f64,
            p50_ns: self.quantile(500),
            p99_ns: self.quantile(990),
            p999_ns: self.quantile(999),
            max_ns: self.most,
        }
    }
}

/// What a job did.
pub struct Diary {
    /// All requests.
    pub total: Count,
    /// Those that settled.
    pub settled: Count,
    /// Reads, writes, operations on metadata.
    pub operations: [u64; 3],
    /// How long settled requests took.
    pub latency: Histogram,
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
            latency: Histogram::new(),
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
            self.latency.add(now - record.sent);
            self.wait += u128::from(record.started - record.arrived);
        }
    }

    /// Mean of the wait in servers, ns.
    pub fn wait_mean(&self) -> f64 {
        self.wait as f64 / self.settled.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every time is in a piece that ends no more than a 128th above it, and pieces are in order.
    #[test]
    fn pieces() {
        let mut times: Vec<u64> = (0..2_000).collect();
        for shift in 10..64 {
            for offset in [0, 1, 77] {
                times.push((1u64 << shift) - 1);
                times.push((1u64 << shift) + offset);
            }
        }
        times.push(u64::MAX);
        times.sort_unstable();
        let mut last = 0;
        for time in times {
            let piece = Histogram::piece(time);
            let largest = Histogram::largest(piece);
            assert!(piece >= last && largest >= time, "{time}");
            assert!(largest - time <= time / 128, "{time} {largest}");
            last = piece;
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(990), 0);
        for time in 1..=100_000u64 {
            histogram.add(time * 10);
        }
        let latency = histogram.latency();
        for (got, want) in [
            (latency.p50_ns, 500_000),
            (latency.p99_ns, 990_000),
            (latency.p999_ns, 999_000),
        ] {
            assert!(got >= want && got - want <= want / 128, "{got} {want}");
        }
        assert_eq!((latency.max_ns, latency.mean_ns), (1_000_000, 500_005.0));
    }
}
