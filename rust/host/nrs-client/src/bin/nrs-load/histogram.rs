// SPDX-License-Identifier: GPL-2.0-only

//! Times, counted by size: each bucket is an eighth of a power of two wide.

use std::time::Duration;

use serde_json::{json, Value};

/// Buckets of one power of two, as bits.
const BITS: u32 = 3;

/// How often each time was seen.
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; 64 << BITS],
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 1 << BITS {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let eighth = (ns >> (power - BITS)) & ((1 << BITS) - 1);
    (((power - BITS + 1) as usize) << BITS) + eighth as usize
}

/// The largest time of bucket `index`, ns.
fn upper(index: usize) -> u64 {
    let (power, eighth) = (index >> BITS, index & ((1 << BITS) - 1));
    match power {
        0 => eighth as u64,
        power => ((((1 << BITS) + eighth as u128 + 1) << (power - 1)) - 1) as u64,
    }
}

impl Histogram {
    /// Counts `time`.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// The time that `part` of all times do not exceed, ns.
    fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(index).min(self.max);
            }
        }
        self.max
    }

    /// Mean, quantiles and maximum, us.
    pub fn report(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1000.0;
        let mean = if self.count == 0 {
            0.0
        } else {
            self.sum as f64 / self.count as f64 / 1000.0
        };
        json!({
            "mean": mean,
            "p50": us(self.quantile(0.5)),
            "p95": us(self.quantile(0.95)),
            "p99": us(self.quantile(0.99)),
            "max": us(self.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_its_bucket() {
        for ns in (0..4096).chain([u64::MAX - 1, u64::MAX, 1 << 40, (1 << 40) - 1]) {
            let index = bucket(ns);
            assert!(ns <= upper(index), "{ns}");
            assert!(index == 0 || ns > upper(index - 1), "{ns}");
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        for (part, us) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let seen = histogram.quantile(part) as f64 / 1000.0;
            assert!(seen >= us && seen <= us * 1.125, "{part}: {seen}");
        }
    }
}
