// SPDX-License-Identifier: GPL-2.0-only

//! Cost of adaptive timeouts per request: `filter` for nearly all samples, `measure` for the rest,
//! and a deadline that is near.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::timeouts::{
    early::{at_margin, RequestTimes},
    estimator::Estimator,
    terms::{AtEstimator, TimeoutTerms},
};
use std::{hint::black_box, time::Duration};

/// The time, ns.
const NOW: u64 = 5_000_000_000;

fn timeouts(c: &mut Criterion) {
    let mut group = c.benchmark_group("timeouts");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));

    for kind in AtEstimator::ALL {
        let terms = TimeoutTerms {
            estimator: *kind,
            ..TimeoutTerms::default()
        };
        let mut estimator = Estimator::new();
        estimator.measure(300, NOW, &terms.rule());
        let mut at = NOW;
        group.bench_function(BenchmarkId::new("measure", kind), |b| {
            b.iter(|| {
                at += 7;
                estimator.measure(black_box(250), at, &terms.rule());
            });
        });
        group.bench_function(BenchmarkId::new("estimate", kind), |b| {
            b.iter(|| estimator.estimate(black_box(at), &terms.rule()));
        });
    }

    let terms = TimeoutTerms::default();
    let mut estimator = Estimator::new();
    estimator.measure(300, NOW, &terms.rule());
    let filter = estimator.filter(NOW, &terms.rule());
    group.bench_function("filter", |b| {
        b.iter(|| filter.holds(black_box(250), black_box(NOW + 5)));
    });

    group.bench_function("timeout", |b| {
        b.iter(|| terms.timeout(estimator.estimate(black_box(NOW), &terms.rule())));
    });
    let stated = RequestTimes {
        arrival: NOW,
        deadline: NOW + 17_500,
    };
    group.bench_function("at_margin", |b| {
        b.iter(|| {
            at_margin(
                &terms,
                black_box(&stated),
                black_box(NOW + 12_500),
                true,
                None,
            )
        });
    });
    group.finish();
}

criterion_group!(benches, timeouts);
criterion_main!(benches);
