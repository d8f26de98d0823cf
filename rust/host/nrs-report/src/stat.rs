// SPDX-License-Identifier: GPL-2.0-only

//! Summaries of repeated measurements.

use serde::{Deserialize, Serialize};

/// Lowest value, median and highest value of some measurements.
///
/// # Invariants
///
/// `low <= median <= high`; all are NaN if there are no measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Lowest value.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Highest value.
    pub high: f64,
}

impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        let (low, median, high) = (value, value, value);
        Self { low, median, high }
    }
}

impl Spread {
    /// Formats the values with `places` decimals: `12.3 (11.9–12.8)`, or only the median if all
    /// three texts are equal.
    pub fn text(&self, places: usize) -> String {
        let texts = [self.low, self.median, self.high].map(|value| format!("{value:.places$}"));
        match texts {
            [low, median, high] if low == median && median == high => median,
            [low, median, high] => format!("{median} ({low}–{high})"),
        }
    }
}

/// Returns the median of the finite values; NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    spread(values).median
}

/// Returns the lowest, median and highest of the finite values; NaN if there are none. The median
/// of an even number of values is in the middle of two.
pub fn spread(values: &[f64]) -> Spread {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let &[low, .., high] = sorted.as_slice() else {
        return sorted.first().copied().unwrap_or(f64::NAN).into();
    };
    let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    let median = below + (above - below) * 0.5;
    Spread { low, median, high }
}

/// Returns the mean; NaN if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the coefficient of variation, a fraction: the standard deviation (of all values, divided
/// by their number) divided by the mean. Returns NaN if there are no values.
pub fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let square = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
    square.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        for (values, want) in [
            (&[5.0, 1.0, 3.0][..], [1.0, 3.0, 5.0]),
            (&[4.0, 1.0, 2.0, 3.0], [1.0, 2.5, 4.0]),
            (&[1.0, f64::NAN, 3.0], [1.0, 2.0, 3.0]),
            (&[7.0], [7.0; 3]),
        ] {
            let Spread { low, median, high } = spread(values);
            assert_eq!([low, median, high], want, "{values:?}");
        }
        assert!(median(&[]).is_nan() && median(&[f64::NAN]).is_nan());
        assert_eq!(spread(&[5.0, 1.0, 3.0]).text(1), "3.0 (1.0–5.0)");
        assert_eq!(Spread::from(2.0).text(2), "2.00");
        assert_eq!(variation(&[2.0, 4.0]), 1.0 / 3.0);
    }
}
