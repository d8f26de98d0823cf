// SPDX-License-Identifier: GPL-2.0-only

//! Invariants of estimators, early replies and recoveries, for all inputs and times.

use nrs_sched::timeouts::{
    early::{at_margin, in_recovery, on_arrival, wake, EarlyRefusal, EarlyReply, RequestTimes},
    estimator::Estimator,
    recovery::Recovery,
    terms::{
        AtDeviations, AtEarlyMargin, AtEstimator, AtExtra, AtFactor, AtHistory, AtIncrement,
        AtInitial, AtMax, AtMin, ObdTimeout, TimeoutMode, TimeoutTerms,
    },
};
use proptest::prelude::*;

/// Generates terms that pass the check.
fn terms() -> impl Strategy<Value = TimeoutTerms> {
    let limits = (
        1..=3600_u32,
        0..=3600_u32,
        4..=3600_u32,
        1..=3600_u32,
        1..=3600_u32,
    );
    let shape = (
        100..=1000_u32,
        0..=600_u32,
        1..=3600_u32,
        1..=100_u32,
        0..=3600_u32,
    );
    let kind = prop::sample::select(AtEstimator::ALL);
    (limits, shape, kind).prop_map(|((min, max, history, extra, margin), shape, estimator)| {
        let (factor, increment, initial, deviations, fixed) = shape;
        let max = if max < 200 { 0 } else { max };
        let ceiling = if max == 0 { 3600 } else { max };
        let min = min.min(ceiling);
        let terms = TimeoutTerms {
            min: AtMin::new(min).expect("limits"),
            max: AtMax::new(max).expect("limits"),
            history: AtHistory::new(history).expect("limits"),
            extra: AtExtra::new(extra.min(ceiling)).expect("limits"),
            early_margin: AtEarlyMargin::new(margin.min(min)).expect("limits"),
            factor: AtFactor::new(factor).expect("limits"),
            increment: AtIncrement::new(increment).expect("limits"),
            initial: AtInitial::new(initial).expect("limits"),
            deviations: AtDeviations::new(deviations).expect("limits"),
            fixed: ObdTimeout::new(if fixed < 100 { 0 } else { fixed }).expect("limits"),
            estimator,
            ..TimeoutTerms::default()
        };
        assert_eq!(terms.check(), Ok(()));
        terms
    })
}

/// Generates durations of all magnitudes, including the special values.
fn duration() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => Just(0),
        1 => Just(u32::MAX),
        6 => (0..32_u32, any::<u32>()).prop_map(|(shift, value)| value >> shift),
    ]
}

/// Generates instants that mostly advance, and sometimes jump anywhere.
fn instants() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let step = prop_oneof![
        10 => (0..60_000_i64).prop_map(|step| (false, step)),
        2 => (-100_000..1_000_000_i64).prop_map(|step| (false, step)),
        1 => any::<i64>().prop_map(|step| (true, step)),
    ];
    prop::collection::vec((step, duration()), 1..150).prop_map(|steps| {
        let mut now = 1_u64 << 40;
        let mut instants = Vec::new();
        for ((jumps, step), sample) in steps {
            now = if jumps {
                step.unsigned_abs()
            } else {
                now.saturating_add_signed(step)
            };
            instants.push((now, sample));
        }
        instants
    })
}

/// Returns true if `value`, ms, is within the limits that the terms set for estimates.
fn within(terms: &TimeoutTerms, value: u32) -> bool {
    let (min, max) = (terms.min.get() * 1000, terms.max.get() * 1000);
    value >= min && (max == 0 || value <= max)
}

proptest! {
    /// Compares the estimator of the worst with a list of samples, as long as the clock advances.
    /// The estimate is always within the limits, and the worst sample ever is exact.
    #[test]
    fn the_worst_of_a_list(terms in terms(), instants in instants()) {
        let rule = terms.rule();
        let mut estimator = Estimator::new();
        let mut told: Vec<(u64, u32)> = Vec::new();
        let mut backwards = false;
        let mut latest = 0;
        for (now, sample) in instants {
            backwards |= now < latest;
            latest = now;
            estimator.measure(sample, now, &rule);
            if sample != 0 {
                told.push((now, sample));
            }
            let estimate = estimator.estimate(now, &rule);
            prop_assert!(within(&terms, estimate));
            let worst = told.iter().map(|(_, sample)| *sample).max();
            prop_assert_eq!(estimator.seen(now, &rule).worst.map(|worst| worst.0), worst);
            if backwards || terms.estimator == AtEstimator::Average || told.is_empty() {
                continue;
            }
            // Samples count for at least the history minus one bin, and for at most the whole
            // history.
            let history = u64::from(terms.history.get()) * 1000;
            let since = |span: u64| {
                let recent = told.iter().filter(|(at, _)| now - at < span);
                rule.clamp(recent.map(|(_, sample)| *sample).max().unwrap_or(0))
            };
            prop_assert!(estimate >= since(history / 4 * 3), "{estimate} at {now}");
            prop_assert!(estimate <= since(history), "{estimate} at {now}");
        }
    }

    /// Checks that samples suppressed by a filter change nothing, now and later.
    #[test]
    fn filters_lose_nothing(terms in terms(), instants in instants(), later in 0..2_000_000_u64) {
        let rule = terms.rule();
        let (mut all, mut some) = (Estimator::new(), Estimator::new());
        let mut end = 0;
        for (now, sample) in instants {
            all.measure(sample, now, &rule);
            if !some.filter(now, &rule).holds(sample, now) {
                some.measure(sample, now, &rule);
            }
            prop_assert_eq!(all.seen(now, &rule), some.seen(now, &rule));
            end = now.saturating_add(later);
        }
        prop_assert_eq!(all.seen(end, &rule), some.seen(end, &rule));
    }

    /// Checks that deadlines only move later, and never after `at_max` unless the initial deadline
    /// was later.
    #[test]
    fn early_replies(
        terms in terms(),
        arrival in any::<u64>(),
        timeout in duration(),
        estimate in duration(),
        life in prop::collection::vec((any::<bool>(), prop::option::of(duration())), 0..50),
    ) {
        let mut deadline = arrival.saturating_add(timeout.into());
        let limit = arrival.saturating_add(u64::from(terms.max.get()) * 1000);
        if let Some(later) = on_arrival(&terms, arrival, timeout, estimate) {
            prop_assert!(later > deadline || later == u64::MAX);
            prop_assert!(later <= limit && timeout < terms.rule().clamp(estimate));
            deadline = later;
        }
        for (alive, busy) in life {
            let now = wake(&terms, deadline).max(arrival);
            let stated = RequestTimes { arrival, deadline };
            let busy = busy.map(|busy| now.saturating_add(busy.into()));
            match at_margin(&terms, &stated, now, alive, busy) {
                EarlyReply::Grant { deadline: later, sample } => {
                    prop_assert!(later > deadline && later <= limit && sample > 0);
                    prop_assert!(alive || busy > Some(now));
                    prop_assert_eq!(terms.mode(), TimeoutMode::Adaptive);
                    prop_assert!(wake(&terms, later) > now, "the next look is later");
                    deadline = later;
                }
                EarlyReply::Refuse(EarlyRefusal::Late) => prop_assert!(now >= deadline),
                EarlyReply::Refuse(EarlyRefusal::Dead) => prop_assert!(!alive),
                EarlyReply::Refuse(EarlyRefusal::Limit) => {
                    prop_assert!(terms.mode() != TimeoutMode::Adaptive || deadline >= limit);
                }
            }
        }
    }

    /// Checks that the end of a recovery window never moves earlier, and that early replies extend
    /// the deadline in the window.
    #[test]
    fn recoveries(
        terms in terms(),
        clients in prop::collection::vec((0..5000_u64, duration()), 1..100),
    ) {
        let mut recovery = Recovery::new();
        let mut now = 1000;
        for (step, timeout) in clients {
            let before = recovery;
            now += step;
            let ends = recovery.join(now, timeout, &terms);
            prop_assert_eq!(ends, recovery.ends());
            if before.is_over(now) {
                prop_assert_eq!(recovery.clients(), 1);
            } else {
                prop_assert_eq!(recovery.clients(), before.clients() + 1);
                prop_assert!(ends >= before.ends() && recovery.largest() >= before.largest());
            }
            if timeout != u32::MAX && terms.mode() == TimeoutMode::Adaptive {
                let whole = timeout.min(terms.max.get() * 1000);
                prop_assert!(
                    ends >= now + u64::from(whole),
                    "the window ends before the client's timeout"
                );
            }
            let extra = recovery.extra(&terms);
            let stated = RequestTimes { arrival: now, deadline: now + 1 };
            let granted = EarlyReply::Grant { deadline: now + 1 + u64::from(extra), sample: 0 };
            prop_assert_eq!(in_recovery(&stated, now, extra), granted);
        }
    }
}
