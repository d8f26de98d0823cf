// SPDX-License-Identifier: GPL-2.0-only

//! Terms of timeouts, set one by one, and estimators with these terms. Each line is `NAME VALUE`,
//! or two numbers: the ms that pass, and a sample in ms.

use nrs_sched::{
    parameters::Values,
    timeouts::{
        early::{margin, on_arrival, wake},
        estimator::Estimator,
        recovery::Recovery,
        terms::{millis, TimeoutMode, TimeoutTerms},
    },
};

/// Checks the properties of all consistent terms.
fn check(terms: &TimeoutTerms) {
    let (min, max) = (millis(terms.min.get()), millis(terms.max.get()));
    let mut last = (0, 0);
    for estimate in [
        0,
        1,
        min,
        max,
        max.wrapping_add(1),
        1 << 20,
        u32::MAX / 2,
        u32::MAX,
    ] {
        let rule = terms.rule();
        let clamped = rule.clamp(estimate);
        assert!(clamped >= min && (max == 0 || clamped <= max));
        assert_eq!(rule.clamp(clamped), clamped);
        let timeout = terms.timeout(estimate);
        match terms.mode() {
            TimeoutMode::Adaptive => assert!(timeout >= clamped),
            TimeoutMode::Fixed => assert_eq!(timeout, millis(terms.fixed.get())),
            TimeoutMode::Off => assert_eq!(timeout, 0),
        }
        let (before, shorter) = last;
        assert!(
            estimate < before || timeout >= shorter,
            "{terms:?} {estimate}"
        );
        last = (estimate, timeout);
    }
    assert!(margin(terms) <= millis(3600));
}

/// Checks lines of settings and samples.
pub fn run(text: &str) {
    let mut values = Values::default();
    let mut estimator = Estimator::new();
    let mut recovery = Recovery::new();
    let mut now = 5_000_000_000u64;
    let mut worst = 0;
    for line in text.split('\n').take(256) {
        let Some((one, two)) = line.split_once(' ') else {
            continue;
        };
        let (Ok(passed), Ok(sample)) = (one.parse::<u32>(), two.parse::<u32>()) else {
            if values.set_named(one, two).is_ok() {
                check(&values.timeouts);
            }
            continue;
        };
        let terms = values.timeouts;
        now += u64::from(passed);
        worst = worst.max(sample);
        let rule = terms.rule();
        let (filter, before) = (estimator.filter(now, &rule), estimator.seen(now, &rule));
        estimator.measure(sample, now, &rule);
        let (seen, estimate) = (estimator.seen(now, &rule), estimator.estimate(now, &rule));
        if filter.holds(sample, now) && seen.worst.is_some_and(|(ever, _)| ever > sample) {
            assert_eq!(seen, before, "{filter:?} {sample}");
        }
        assert_eq!(estimate, rule.clamp(estimate), "{terms:?}");
        assert_eq!(seen.worst.map_or(0, |(sample, _)| sample), worst);
        assert!(seen.current == estimate && seen.bins.iter().all(|bin| *bin <= worst));
        let timeout = terms.timeout(estimate);
        assert_eq!(timeout == 0, terms.mode() == TimeoutMode::Off);
        if let Some(deadline) = on_arrival(&terms, now, timeout, estimate) {
            assert!(wake(&terms, deadline) <= deadline);
        }
        let ends = recovery.ends();
        let joined = recovery.join(now, sample, &terms);
        assert!(recovery.is_over(now) || joined >= ends);
        assert!(recovery.largest() <= worst && recovery.extra(&terms) <= millis(terms.extra.get()));
    }
}
