// SPDX-License-Identifier: GPL-2.0-only

//! Latencies of requests: mean, quantiles and maximum.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{json, Value};

/// Recorded latencies. Quantiles have one significant digit, because there may be a hundred
/// thousand clients.
#[derive(Clone)]
pub struct Latency {
    histogram: Histogram<u32>,
    sum: Duration,
    max: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            histogram: Histogram::new(1).expect("one digit is within limits"),
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

impl Latency {
    /// Records `time`.
    pub fn add(&mut self, time: Duration) {
        // Times beyond 2^64 ns do not occur.
        let _ = self.histogram.record(time.as_nanos() as u64);
        self.sum += time;
        self.max = self.max.max(time);
    }

    /// Returns the mean, us.
    pub fn mean_us(&self) -> f64 {
        us(self.sum) / (self.histogram.len().max(1) as f64)
    }

    /// Returns the maximum, us.
    pub fn max_us(&self) -> f64 {
        us(self.max)
    }

    /// Returns the latency that the fraction `part` of all requests does not exceed, us.
    fn quantile_us(&self, part: f64) -> f64 {
        let ns = self.histogram.value_at_quantile(part);
        us(Duration::from_nanos(ns).min(self.max))
    }

    /// Returns mean, quantiles and maximum, us.
    pub fn report(&self) -> Value {
        json!({
            "mean": self.mean_us(),
            "p50": self.quantile_us(0.5),
            "p95": self.quantile_us(0.95),
            "p99": self.quantile_us(0.99),
            "max": self.max_us(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut latency = Latency::default();
        assert_eq!((latency.quantile_us(0.5), latency.mean_us()), (0.0, 0.0));
        for us in 1..=1000 {
            latency.add(Duration::from_micros(us));
        }
        for (part, us) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let seen = latency.quantile_us(part);
            assert!(seen >= us && seen <= us * 1.07, "{part}: {seen}");
        }
        assert_eq!((latency.mean_us(), latency.max_us()), (500.5, 1000.0));
    }
}
