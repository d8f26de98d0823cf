// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

/// Milliseconds per second.
const S: u64 = 1000;

/// Rule with estimates from 1 s to 600 s, and bins of 2 s.
const WORST: EstimateRule = EstimateRule {
    min_ms: 1000,
    max_ms: 600_000,
    history_ms: 8000,
    initial_ms: 10_000,
    deviations: None,
    factor: 125,
    increment_ms: 5000,
};

fn average(deviations: u32) -> EstimateRule {
    EstimateRule {
        deviations: Some(deviations),
        ..WORST
    }
}

/// Checks the estimate and the bins after each sample.
#[test]
fn the_worst_of_the_history() {
    let mut estimator = Estimator::new();
    assert_eq!(estimator.estimate(0, &WORST), 10_000);
    for (at, sample, estimate, bins) in [
        // No samples yet.
        (50 * S, 0, 10_000, [0; 4]),
        // The first sample replaces the initial estimate, and starts the bins.
        (100 * S, 3000, 3000, [3000, 0, 0, 0]),
        (101 * S, 2000, 3000, [3000, 0, 0, 0]),
        (101 * S + 999, 4000, 4000, [4000, 0, 0, 0]),
        // The second bin.
        (102 * S, 1500, 4000, [1500, 4000, 0, 0]),
        (103 * S, 0, 4000, [1500, 4000, 0, 0]),
        // Two bins later.
        (106 * S, 2500, 4000, [2500, 0, 1500, 4000]),
        // The worst sample expires.
        (108 * S, 2000, 2500, [2000, 2500, 0, 1500]),
        // Time passes without samples.
        (110 * S, 0, 2500, [0, 2000, 2500, 0]),
        (114 * S, 0, 2000, [0, 0, 0, 2000]),
        (116 * S, 0, 1000, [0; 4]),
        // Below the minimum, above the maximum.
        (117 * S, 20, 1000, [20, 0, 0, 0]),
        (118 * S, 700_000, 600_000, [700_000, 20, 0, 0]),
        // The clock runs backwards: all samples go to the newest bin.
        (10 * S, 800_000, 600_000, [800_000, 20, 0, 0]),
        (0, 900_000, 600_000, [900_000, 20, 0, 0]),
        (120 * S, 0, 600_000, [0, 900_000, 20, 0]),
        // The largest sample, at the largest instant.
        (1000 * S, 5, 1000, [5, 0, 0, 0]),
        (u64::MAX, u32::MAX, 600_000, [u32::MAX, 0, 0, 0]),
    ] {
        estimator.measure(sample, at, &WORST);
        let seen = estimator.seen(at, &WORST);
        assert_eq!((seen.current, seen.bins), (estimate, bins), "at {at}");
    }
    let worst = estimator.seen(0, &WORST).worst;
    assert_eq!(worst, Some((u32::MAX, u64::MAX)));
}

/// Checks that a changed rule takes effect immediately.
#[test]
fn changed_rules() {
    let mut rule = WORST;
    let mut estimator = Estimator::new();
    estimator.measure(500_000, 0, &rule);
    estimator.measure(20_000, 2 * S, &rule);
    rule.max_ms = 60_000;
    assert_eq!(estimator.estimate(2 * S, &rule), 60_000);
    rule.max_ms = 600_000;
    assert_eq!(estimator.estimate(2 * S, &rule), 500_000);
    // Bins of 10 s, and finally of 1 s.
    for (history_ms, at, bins) in [
        (40_000, 11, [20_000, 500_000, 0, 0]),
        (40_000, 12, [0, 20_000, 500_000, 0]),
        (4000, 13, [0, 0, 20_000, 500_000]),
    ] {
        rule.history_ms = history_ms;
        assert_eq!(estimator.seen(at * S, &rule).bins, bins);
    }
}

#[test]
fn filters() {
    let mut estimator = Estimator::new();
    let filter = estimator.filter(5, &WORST);
    assert_eq!((filter.limit, filter.until), (0, u64::MAX));
    assert!(filter.holds(0, 7) && !filter.holds(1, 7));
    estimator.measure(300, 100 * S, &WORST);
    let filter = estimator.filter(101 * S, &WORST);
    assert_eq!((filter.limit, filter.until), (300, 102 * S));
    assert!(filter.holds(300, 102 * S - 1) && !filter.holds(301, 101 * S));
    assert!(!filter.holds(1, 102 * S));
    // A bin without samples filters no sample, and neither does the mean.
    let none = SampleFilter {
        limit: 0,
        until: 104 * S,
    };
    assert_eq!(estimator.filter(103 * S, &WORST), none);
    estimator.measure(9, 103 * S, &average(4));
    assert_eq!(estimator.filter(103 * S, &average(4)), none);
}

#[test]
fn the_mean_and_deviations() {
    for (deviations, samples, want) in [
        // Mean 5 s, deviation 2 s.
        (
            1,
            &[2000, 4000, 4000, 4000, 5000, 5000, 7000, 9000][..],
            7000,
        ),
        (4, &[2000, 4000, 4000, 4000, 5000, 5000, 7000, 9000], 13_000),
        (100, &[3000; 50], 3000),
        (4, &[1], 1000),
        (100, &[1, 3_600_000], 600_000),
        (4, &[u32::MAX; 20], 600_000),
    ] {
        let rule = average(deviations);
        let mut estimator = Estimator::new();
        for (at, sample) in samples.iter().enumerate() {
            // All bins of the history.
            estimator.measure(*sample, at as u64 * S, &rule);
        }
        let now = samples.len().min(7) as u64 * S;
        let estimate = estimator.estimate(now, &rule);
        assert!(estimate.abs_diff(want) <= 2, "{estimate} {want}");
    }
}

/// Checks that many long samples do not overflow the sums, and that they expire.
#[test]
fn the_mean_of_many() {
    let rule = EstimateRule {
        max_ms: 3_600_000,
        ..average(4)
    };
    let mut estimator = Estimator::new();
    for at in [0, 2 * S, 4 * S, 6 * S] {
        for _ in 0..300_000 {
            estimator.measure(3_500_000, at, &rule);
        }
    }
    assert_eq!(estimator.estimate(6 * S, &rule), 3_500_000);
    for _ in 0..1000 {
        estimator.measure(2000, 14 * S, &rule);
    }
    assert_eq!(estimator.estimate(14 * S, &rule), 2000);
    assert_eq!(estimator.estimate(22 * S, &rule), 1000);
}

/// Checks that the mean uses only samples measured for it, and the worst sample before that.
#[test]
fn from_the_worst_to_the_mean() {
    let mut estimator = Estimator::new();
    estimator.measure(9000, 0, &WORST);
    assert_eq!(estimator.estimate(0, &average(4)), 9000);
    estimator.measure(2000, 1, &average(4));
    assert_eq!(estimator.estimate(1, &average(4)), 2000);
    assert_eq!(estimator.estimate(1, &WORST), 9000);
}

#[test]
fn timeouts() {
    let longest = EstimateRule {
        max_ms: 3_600_000,
        factor: 1000,
        increment_ms: 600_000,
        ..WORST
    };
    let contradicting = EstimateRule {
        min_ms: 700_000,
        ..WORST
    };
    for (rule, estimate, want) in [
        (WORST, 10_000, 17_500),
        (WORST, 600_000, 755_000),
        // Below the minimum, above the maximum, the largest number.
        (WORST, 0, 6250),
        (WORST, 600_001, 755_000),
        (WORST, u32::MAX, 755_000),
        (longest, u32::MAX, 36_600_000),
        (contradicting, 1, 880_000),
        (contradicting, u32::MAX, 880_000),
    ] {
        assert_eq!(rule.timeout(estimate), want, "{estimate}");
    }
}

#[test]
fn roots() {
    let squares = (0..2000).chain((0..=32).flat_map(|bit| {
        let power = 1_u64 << bit;
        [power - 1, power, power + 1].map(|side| side.min((1 << 32) - 1))
    }));
    for side in squares {
        let square = side * side;
        assert_eq!(root(square), side);
        assert_eq!(root(square + side), side);
        assert_eq!(root(square.saturating_sub(1)), side.saturating_sub(1));
    }
    assert_eq!(root(u64::MAX), (1 << 32) - 1);
}
