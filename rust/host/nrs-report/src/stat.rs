// SPDX-License-Identifier: GPL-2.0-only

//! Summaries of repeated measurements.
//!
//! A *percentile* is given in thousandths, so 999 is p99.9. It is interpolated between two values:
//! its position is `(n - 1) * p` from the lowest value. A *spread* consists of the lowest value,
//! the median and the highest value.

use serde::Serialize;

/// Lowest value, median and highest value of some measurements.
///
/// # Invariants
///
/// `low <= median <= high`; all are NaN if there are no measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
        Self {
            low: value,
            median: value,
            high: value,
        }
    }
}

impl Spread {
    /// Multiplies all three values by `by`.
    pub fn scaled(self, by: f64) -> Self {
        let (a, b) = (self.low * by, self.high * by);
        Self {
            low: a.min(b),
            median: self.median * by,
            high: a.max(b),
        }
    }

    /// Formats the values with `places` decimals: `12.3 (11.9–12.8)`, or only the median if all
    /// three texts are equal.
    pub fn text(&self, places: usize) -> String {
        let show = |value: f64| format!("{value:.places$}");
        let (low, median, high) = (show(self.low), show(self.median), show(self.high));
        if low == median && median == high {
            median
        } else {
            format!("{median} ({low}–{high})")
        }
    }
}

/// Returns the finite values, sorted.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the median of the finite values; NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 500)
}

/// Returns the interpolated percentile of the finite values; NaN if there are none. `per_mille` is
/// clamped to 1000.
pub fn percentile(values: &[f64], per_mille: u32) -> f64 {
    let sorted = sorted(values);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = last as f64 * f64::from(per_mille.min(1000)) / 1000.0;
    let below = (place as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Returns the lowest, median and highest of the finite values; NaN if there are none.
pub fn spread(values: &[f64]) -> Spread {
    Spread {
        low: percentile(values, 0),
        median: median(values),
        high: percentile(values, 1000),
    }
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
    fn percentiles() {
        for (values, per_mille, want) in [
            (&[3.0, 1.0, 2.0][..], 500, 2.0),
            (&[1.0, 2.0, 3.0, 4.0], 500, 2.5),
            (&[1.0], 999, 1.0),
            (&[1.0, f64::NAN, 3.0], 1000, 3.0),
            (&[10.0, 20.0], 250, 12.5),
            (&[10.0, 20.0], 5000, 20.0),
        ] {
            assert_eq!(percentile(values, per_mille), want, "{values:?}");
        }
        assert!(median(&[]).is_nan());
        assert!(median(&[f64::NAN]).is_nan());
    }

    #[test]
    fn spreads() {
        let all = spread(&[5.0, 1.0, 3.0]);
        assert_eq!((all.low, all.median, all.high), (1.0, 3.0, 5.0));
        assert_eq!(all.text(1), "3.0 (1.0–5.0)");
        assert_eq!(Spread::from(2.0).text(2), "2.00");
        assert_eq!(all.scaled(-1.0).low, -5.0);
        assert_eq!(variation(&[2.0, 4.0]), 1.0 / 3.0);
    }
}
