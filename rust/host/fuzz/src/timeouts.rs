// SPDX-License-Identifier: GPL-2.0-only

//! Terms of timeouts, set one by one, and what estimators make of samples under them. Each line is `NAME VALUE`, or
//! two numbers: ms that pass, and a sample in ms.

use nrs_sched::{
    parameters::Values,
    timeouts::{
        early::{margin, on_arrival, wake},
        estimator::Estimator,
        portal::Portal,
        recovery::Recovery,
        terms::{millis, Mode, Terms},
    },
};

/// What holds under all terms that go together.
fn check(terms: &Terms) {
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
        let clamped = terms.clamp(estimate);
        assert!(clamped >= min && (max == 0 || clamped <= max));
        assert_eq!(terms.clamp(clamped), clamped);
        let timeout = terms.timeout(estimate);
        match terms.mode() {
            Mode::Adaptive => assert!(timeout >= clamped),
            Mode::Fixed => assert_eq!(timeout, millis(terms.fixed.get())),
            Mode::Off => assert_eq!(timeout, 0),
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

/// Takes lines of settings and samples.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let mut values = Values::default();
    let (mut estimator, mut portal) = (Estimator::new(), Portal::new());
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
        let filter = estimator.filter(now, &terms);
        let (before, bins) = (estimator.estimate(now, &terms), estimator.bins(now, &terms));
        estimator.measure(sample, now, &terms);
        let estimate = estimator.estimate(now, &terms);
        if filter.holds(sample, now) && estimator.worst().is_some_and(|(ever, _)| ever > sample) {
            assert_eq!(estimator.bins(now, &terms), bins, "{filter:?} {sample}");
            assert_eq!(estimate, before, "{filter:?} {sample}");
        }
        let max = millis(terms.max.get());
        assert!(estimate >= millis(terms.min.get()));
        assert!(max == 0 || estimate <= max, "{estimate} {terms:?}");
        assert_eq!(estimator.worst().map_or(0, |(sample, _)| sample), worst);
        let seen = estimator.seen(now, &terms);
        assert!(seen.current == estimate && seen.bins.iter().all(|bin| *bin <= worst));
        portal.replied(now, sample, sample / 2, estimate, &terms);
        let timeout = portal.timeout(now, &terms);
        assert_eq!(timeout == 0, terms.mode() == Mode::Off);
        if let Some(deadline) = on_arrival(&terms, now, timeout, estimate) {
            assert!(wake(&terms, deadline) <= deadline);
        }
        if recovery.clients() == 0 {
            recovery.begin(now, &terms);
        }
        let ends = recovery.ends();
        let joined = recovery.join(now, sample, &terms);
        assert!(recovery.is_over(now) || joined >= ends);
        assert!(recovery.largest() <= worst && recovery.extra(&terms) <= millis(terms.extra.get()));
    }
}
