// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::timeouts::terms::{AtDeviations, AtHistory, AtInitial, AtMax, AtMin};

/// Milliseconds of a second.
const S: u64 = 1000;

/// `at_min` 1 s, `at_max` 600 s, bins of 2 s.
fn terms(estimator: AtEstimator) -> Terms {
    Terms {
        min: AtMin::new(1).unwrap(),
        history: AtHistory::new(8).unwrap(),
        estimator,
        ..Terms::default()
    }
}

/// What is measured at `at`, and the estimate and the bins after it.
struct Step {
    at: u64,
    sample: u32,
    estimate: u32,
    bins: [u32; BINS],
}

const fn step(at: u64, sample: u32, estimate: u32, bins: [u32; BINS]) -> Step {
    Step {
        at,
        sample,
        estimate,
        bins,
    }
}

#[test]
fn the_worst_of_the_history() {
    let terms = terms(AtEstimator::Worst);
    let mut estimator = Estimator::new();
    assert_eq!(estimator.estimate(0, &terms), 10_000, "at_initial");
    assert_eq!(
        (estimator.worst(), estimator.bins(0, &terms)),
        (None, [0; 4])
    );
    for (row, step) in [
        // Nothing known.
        step(50 * S, 0, 10_000, [0; 4]),
        // The first sample replaces the initial estimate, and the bins begin with it.
        step(100 * S, 3000, 3000, [3000, 0, 0, 0]),
        step(101 * S, 2000, 3000, [3000, 0, 0, 0]),
        step(101 * S + 999, 4000, 4000, [4000, 0, 0, 0]),
        // The second bin.
        step(102 * S, 1500, 4000, [1500, 4000, 0, 0]),
        step(103 * S, 0, 4000, [1500, 4000, 0, 0]),
        // Two bins on.
        step(106 * S, 2500, 4000, [2500, 0, 1500, 4000]),
        // The worst one is forgotten.
        step(108 * S, 2000, 2500, [2000, 2500, 0, 1500]),
        // Time alone.
        step(110 * S, 0, 2500, [0, 2000, 2500, 0]),
        step(114 * S, 0, 2000, [0, 0, 0, 2000]),
        step(116 * S, 0, 1000, [0; 4]),
        // Below at_min, above at_max.
        step(117 * S, 20, 1000, [20, 0, 0, 0]),
        step(118 * S, 700_000, 600_000, [700_000, 20, 0, 0]),
        // A clock that runs backwards: all is of the newest bin.
        step(10 * S, 800_000, 600_000, [800_000, 20, 0, 0]),
        step(0, 900_000, 600_000, [900_000, 20, 0, 0]),
        step(120 * S, 0, 600_000, [0, 900_000, 20, 0]),
        // Without end, at the end of time.
        step(1000 * S, 5, 1000, [5, 0, 0, 0]),
        step(u64::MAX, u32::MAX, 600_000, [u32::MAX, 0, 0, 0]),
    ]
    .iter()
    .enumerate()
    {
        estimator.measure(step.sample, step.at, &terms);
        assert_eq!(
            estimator.estimate(step.at, &terms),
            step.estimate,
            "row {row}"
        );
        assert_eq!(estimator.bins(step.at, &terms), step.bins, "row {row}");
    }
    assert_eq!(estimator.worst(), Some((u32::MAX, u64::MAX)));
}

#[test]
fn the_worst_ever_stays() {
    let terms = terms(AtEstimator::Worst);
    let mut estimator = Estimator::new();
    for (at, sample, worst) in [
        (5 * S, 300, (300, 5 * S)),
        (6 * S, 300, (300, 5 * S)),
        (7 * S, 800_000, (800_000, 7 * S)),
        (9 * S, 700_000, (800_000, 7 * S)),
        (900 * S, 5, (800_000, 7 * S)),
    ] {
        estimator.measure(sample, at, &terms);
        assert_eq!(estimator.worst(), Some(worst));
    }
    assert_eq!(estimator.seen(900 * S, &terms).current, 1000);
}

/// The first estimate is within the limits, too.
#[test]
fn initial_estimates() {
    for (initial, min, max, want) in [
        (10, 1, 600, 10_000),
        (1, 5, 600, 5000),
        (3600, 5, 600, 600_000),
        // Adaptive timeouts are off.
        (3600, 5, 0, 3_600_000),
    ] {
        let terms = Terms {
            initial: AtInitial::new(initial).unwrap(),
            min: AtMin::new(min).unwrap(),
            max: AtMax::new(max).unwrap(),
            ..Terms::default()
        };
        assert_eq!(Estimator::new().estimate(7, &terms), want);
    }
}

/// Terms count as soon as they are changed.
#[test]
fn changed_terms() {
    let mut terms = terms(AtEstimator::Worst);
    let mut estimator = Estimator::new();
    estimator.measure(500_000, 0, &terms);
    estimator.measure(20_000, 2 * S, &terms);
    terms.max = AtMax::new(60).unwrap();
    assert_eq!(estimator.estimate(2 * S, &terms), 60_000);
    terms.max = AtMax::default();
    assert_eq!(estimator.estimate(2 * S, &terms), 500_000);
    // Bins are 10 s now.
    terms.history = AtHistory::new(40).unwrap();
    assert_eq!(estimator.bins(11 * S, &terms), [20_000, 500_000, 0, 0]);
    assert_eq!(estimator.bins(12 * S, &terms), [0, 20_000, 500_000, 0]);
    // And 1 s.
    terms.history = AtHistory::new(4).unwrap();
    assert_eq!(estimator.bins(13 * S, &terms), [0, 0, 20_000, 500_000]);
}

#[test]
fn filters() {
    let terms = terms(AtEstimator::Worst);
    let mut estimator = Estimator::new();
    let filter = estimator.filter(5, &terms);
    assert_eq!((filter.limit, filter.until), (0, u64::MAX));
    assert!(filter.holds(0, 7) && !filter.holds(1, 7));
    estimator.measure(300, 100 * S, &terms);
    let filter = estimator.filter(101 * S, &terms);
    assert_eq!((filter.limit, filter.until), (300, 102 * S));
    assert!(filter.holds(300, 102 * S - 1) && filter.holds(0, 0));
    assert!(!filter.holds(301, 101 * S) && !filter.holds(1, 102 * S));
    // A bin without samples lets all of them through.
    let filter = estimator.filter(103 * S, &terms);
    assert_eq!((filter.limit, filter.until), (0, 104 * S));
    let average = Terms {
        estimator: AtEstimator::Average,
        ..terms
    };
    estimator.measure(9, 103 * S, &terms);
    let filter = estimator.filter(103 * S, &average);
    assert_eq!((filter.limit, filter.until), (0, 104 * S));
}

#[test]
fn the_average_and_deviations() {
    for (deviations, samples, want) in [
        // Mean 5 s, deviation 2 s.
        (
            1,
            &[2000, 4000, 4000, 4000, 5000, 5000, 7000, 9000][..],
            7000,
        ),
        (
            4,
            &[2000, 4000, 4000, 4000, 5000, 5000, 7000, 9000][..],
            13_000,
        ),
        (100, &[3000; 50][..], 3000),
        (4, &[1][..], 1000),
        (100, &[1, 3_600_000][..], 600_000),
        (4, &[u32::MAX; 20][..], 600_000),
    ] {
        let terms = Terms {
            deviations: AtDeviations::new(deviations).unwrap(),
            ..terms(AtEstimator::Average)
        };
        let mut estimator = Estimator::new();
        for (at, sample) in samples.iter().enumerate() {
            // All bins of the history.
            estimator.measure(*sample, at as u64 * S, &terms);
        }
        let now = samples.len().min(7) as u64 * S;
        let estimate = estimator.estimate(now.min(7 * S), &terms);
        assert!(estimate.abs_diff(want) <= 2, "{estimate} {want}");
    }
}

/// An estimate of somebody else is not remembered for longer than it is told.
#[test]
fn told_estimates() {
    for estimator in [AtEstimator::Worst, AtEstimator::Average] {
        let terms = terms(estimator);
        let mut estimator = Estimator::new();
        for (at, told, estimate) in [
            (S, 0, 10_000),
            (S, 60_000, 60_000),
            (2 * S, 9000, 9000),
            (3 * S, 0, 9000),
            (4 * S, 20, 1000),
            (5 * S, u32::MAX, 600_000),
            (6 * S, 7000, 7000),
            // Too old.
            (14 * S - 1, 0, 7000),
            (14 * S, 0, 1000),
        ] {
            estimator.told(told, at, &terms);
            assert_eq!(estimator.estimate(at, &terms), estimate);
        }
        estimator.told(8000, 20 * S, &terms);
        let filter = estimator.filter(20 * S, &terms);
        assert!(filter.limit == 0 && !filter.holds(7000, 20 * S));
        assert_eq!(estimator.bins(20 * S, &terms), [8000, 0, 0, 0]);
        assert_eq!(estimator.worst(), Some((u32::MAX, 5 * S)));
        // What is measured again has a history.
        estimator.told(4000, 20 * S, &terms);
        estimator.measure(2000, 20 * S, &terms);
        let current = estimator.estimate(20 * S, &terms);
        assert!([2000, 8000].contains(&current) || terms.estimator == AtEstimator::Average);
    }
}

/// Many long samples fit the sums, and the average forgets.
#[test]
fn the_average_of_many() {
    let terms = Terms {
        max: AtMax::new(3600).unwrap(),
        ..terms(AtEstimator::Average)
    };
    let mut estimator = Estimator::new();
    for at in [0, 2 * S, 4 * S, 6 * S] {
        for _ in 0..300_000 {
            estimator.measure(3_500_000, at, &terms);
        }
    }
    assert_eq!(estimator.estimate(6 * S, &terms), 3_500_000);
    for _ in 0..1000 {
        estimator.measure(2000, 14 * S, &terms);
    }
    assert_eq!(estimator.estimate(14 * S, &terms), 2000);
    assert_eq!(estimator.estimate(22 * S, &terms), 1000);
}

/// The average looks at what was measured for it; before that the worst stands in.
#[test]
fn from_one_estimator_to_another() {
    let worst = terms(AtEstimator::Worst);
    let average = terms(AtEstimator::Average);
    let mut estimator = Estimator::new();
    estimator.measure(9000, 0, &worst);
    assert_eq!(estimator.estimate(0, &average), 9000);
    estimator.measure(2000, 1, &average);
    assert_eq!(estimator.estimate(1, &average), 2000);
    assert_eq!(estimator.estimate(1, &worst), 9000);
}
