// SPDX-License-Identifier: GPL-2.0-only

//! What timeouts cost a request: to enter its cohort and leave it, and to be measured; and what those pay
//! that look at all cohorts or at one request.
//!
//! `enter_leave` is in a cohort that has begun, `moving` with 4096 requests in service, one each millisecond.
//! `filter` is what nearly all samples cost, `measure` the rest. `visit` and `next` are with all places of
//! the ring in use.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::timeouts::{
    cohorts::{Cohorts, Token, SPAN},
    early::{at_margin, Stated},
    estimator::Estimator,
    portal::Portal,
    terms::{AtEstimator, Terms},
};
use std::{hint::black_box, time::Duration};

/// A present.
const NOW: u64 = 5_000_000_000;

fn timeouts(c: &mut Criterion) {
    let mut group = c.benchmark_group("timeouts");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));

    let cohorts = Cohorts::new().expect("memory");
    let _stays = cohorts.enter(NOW, 17_500);
    group.bench_function("enter_leave", |b| {
        b.iter(|| {
            let token = cohorts.enter(black_box(NOW), black_box(17_500));
            cohorts.leave(black_box(token));
        });
    });
    let mut now = NOW;
    let mut held = [Token::NONE; 4096];
    group.bench_function("enter_leave/moving", |b| {
        b.iter(|| {
            now += 1;
            let token = cohorts.enter(now, black_box(17_500));
            let oldest = &mut held[now as usize % 4096];
            cohorts.leave(std::mem::replace(oldest, token));
        });
    });

    let full = Cohorts::new().expect("memory");
    for place in 0..256 {
        full.enter(NOW + place * SPAN, 17_500);
    }
    group.bench_function("next", |b| b.iter(|| full.next()));
    group.bench_function("visit", |b| {
        b.iter(|| full.visit(|cohort| black_box((cohort.deadline < NOW).then_some(NOW))));
    });

    for kind in AtEstimator::ALL {
        let terms = Terms {
            estimator: *kind,
            ..Terms::default()
        };
        let mut estimator = Estimator::new();
        estimator.measure(300, NOW, &terms);
        let mut at = NOW;
        group.bench_function(BenchmarkId::new("measure", kind), |b| {
            b.iter(|| {
                at += 7;
                estimator.measure(black_box(250), at, &terms);
            });
        });
        group.bench_function(BenchmarkId::new("estimate", kind), |b| {
            b.iter(|| estimator.estimate(black_box(at), &terms));
        });
    }

    let terms = Terms::default();
    let mut estimator = Estimator::new();
    estimator.measure(300, NOW, &terms);
    let filter = estimator.filter(NOW, &terms);
    group.bench_function("filter", |b| {
        b.iter(|| filter.holds(black_box(250), black_box(NOW + 5)));
    });

    let mut portal = Portal::new();
    portal.replied(NOW, 300, 290, 0, &terms);
    group.bench_function("timeout", |b| {
        b.iter(|| portal.timeout(black_box(NOW), &terms));
    });
    let stated = Stated {
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
