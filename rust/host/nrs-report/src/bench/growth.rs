// SPDX-License-Identifier: GPL-2.0-only

//! How much longer a decision takes when there are twice as many classes.

use serde::Serialize;

/// Growth over some numbers of classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Least number of classes.
    pub from: u32,
    /// Largest one.
    pub to: u32,
    /// Nanoseconds per doubling: the slope of the straight line over log2 with the least squares.
    pub slope_ns: f64,
    /// Times per doubling: the root of the last over the first.
    pub ratio: f64,
}

/// The growth of `points`, classes and ns in rising order; none of fewer than two.
pub fn growth(points: &[(u32, f64)]) -> Option<Growth> {
    let (&(from, first), &(to, last)) = (points.first()?, points.last()?);
    if from >= to || first <= 0.0 {
        return None;
    }
    let count = points.len() as f64;
    let logs = points
        .iter()
        .map(|&(classes, ns)| (f64::from(classes).log2(), ns));
    let (sum_x, sum_y) = logs
        .clone()
        .fold((0.0, 0.0), |(x, y), (log, ns)| (x + log, y + ns));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (above, below) = logs.fold((0.0, 0.0), |(above, below), (log, ns)| {
        let off = log - mean_x;
        (above + off * (ns - mean_y), below + off * off)
    });
    let doublings = f64::from(to).log2() - f64::from(from).log2();
    Some(Growth {
        from,
        to,
        slope_ns: above / below,
        ratio: (last / first).powf(doublings.recip()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_lines_and_powers() {
        let line: Vec<(u32, f64)> = (1..10)
            .map(|log| (1 << log, 30.0 + 5.0 * f64::from(log)))
            .collect();
        let found = growth(&line).expect("points");
        assert!((found.slope_ns - 5.0).abs() < 1e-9);
        assert_eq!((found.from, found.to), (2, 512));
        let power: Vec<(u32, f64)> = (1..10).map(|log| (1 << log, f64::from(1 << log))).collect();
        assert!((growth(&power).expect("points").ratio - 2.0).abs() < 1e-9);
        assert_eq!(growth(&[(2, 1.0)]), None);
        assert_eq!(growth(&[]), None);
    }
}
