// SPDX-License-Identifier: GPL-2.0-only

//! Cost of a decision: `enqueue` + `get` + `stop` in a closed loop of 8 queued requests per entity.
//! Also measures the statistics file.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::{
    agent::{
        reading::{LastReading, Reading},
        FactorPairs, Lease, ONE,
    },
    arena::{attrs, feed, lone_part, reserve, Request},
    attr::Priority,
    backlog::{Backlog, Case},
    jobid::JobId,
    key::Key,
    mem::Shared,
    parameters::Values,
    policy::{
        control::Parameters,
        fairshare::{
            entity_stats::EntityStats,
            params::Select,
            stats::{report, NodeRow, NodeRows},
        },
        Config, Kind, Part, Tunables, ROWS,
    },
    ranges::{NodeReport, RangeBuilder},
    rng::avalanche,
    running_parts::RunningParts,
};
use std::{hint::black_box, time::Duration};

/// Numbers of classes.
const ALL: [u32; 8] = [2, 8, 64, 256, 1_000, 4_096, 16_384, 100_000];

/// Numbers of classes, up to the maximum number of gates.
const GATED: [u32; 7] = [2, 8, 64, 256, 1_000, 4_096, 16_384];

/// Returns the cases to compare, with their numbers of classes.
fn cases() -> Vec<(Case, &'static [u32])> {
    let deadline = Case::select("fairshare", Select::Deadline);
    vec![
        (Case::new("fifo", Kind::Fifo), &ALL),
        (Case::new("crrn", Kind::Crrn), &ALL),
        (Case::new("orr", Kind::Orr), &ALL),
        (Case::new("trr", Kind::Trr), &ALL),
        (Case::new("delay", Kind::Delay), &ALL),
        (deadline, &ALL),
        (deadline.pages(16).named("fairshare_mixed"), &ALL),
        (deadline.levels(2).named("fairshare2"), &ALL),
        (deadline.levels(3).named("fairshare3"), &ALL),
        (Case::select("paper", Select::Paper), &ALL),
        (Case::new("tbf", Kind::Tbf), &ALL),
        (Case::new("tbf_rules", Kind::Tbf).rules(256), &ALL),
        (Case::new("qbm", Kind::Qbm), &GATED),
        // Exceeds the available tokens: all classes are throttled at a gate.
        (Case::new("qbm_waits", Kind::Qbm).pages(16), &GATED),
    ]
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    group
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(20)
        .throughput(Throughput::Elements(1));
    for (case, counts) in cases() {
        for &count in counts {
            // Cases that are filtered out are not created.
            let mut backlog = None;
            group.bench_function(BenchmarkId::new(case.name, count), |b| {
                let backlog = backlog.get_or_insert_with(|| Backlog::new(&case, count));
                b.iter(|| black_box(&mut *backlog).step());
            });
        }
    }
    group.finish();
}

/// Measures the lookup of an existing class: once per request, unless the front-end caches the
/// class.
fn classes(c: &mut Criterion) {
    let mut group = c.benchmark_group("classify");
    group
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(10)
        .throughput(Throughput::Elements(1));
    let deadline = Case::select("fairshare", Select::Deadline);
    let fairshare3 = deadline.levels(3).named("fairshare3");
    let crrn = Case::new("crrn", Kind::Crrn);
    let tbf = Case::new("tbf_rules", Kind::Tbf).rules(256);
    for case in [crrn, deadline, fairshare3, tbf] {
        for count in [8, 1_000, 16_384] {
            let mut backlog = None;
            group.bench_function(BenchmarkId::new(case.name, count), |b| {
                let backlog = backlog.get_or_insert_with(|| Backlog::new(&case, count));
                b.iter(|| black_box(&mut *backlog).find());
            });
        }
    }
    group.finish();
}

/// Measures a decision when only one class has requests.
fn solo(c: &mut Criterion) {
    let mut group = c.benchmark_group("solo");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));
    let deadline = Case::select("fairshare", Select::Deadline);
    let fairshare3 = deadline.levels(3).named("fairshare3");
    for case in [Case::new("fifo", Kind::Fifo), deadline, fairshare3] {
        let mut backlog = Backlog::new(&case, 1);
        group.bench_function(case.name, |b| b.iter(|| black_box(&mut backlog).step()));
    }
    group.finish();
}

/// Creates the rows of `users` users with `jobs` active jobs each.
fn rows(users: u32, jobs: u32) -> Vec<NodeRow> {
    let mut rows = Vec::new();
    for uid in 0..users {
        // Identifiers are hashes.
        let user = avalanche(u64::from(uid) + 1);
        rows.push(NodeRow::inner(user, 0, "uid", Key::Uid(uid), 4096));
        for job in 0..jobs {
            let name = format!("batch_sim.{job}");
            let key = Key::Jobid(JobId::new(name.as_bytes()));
            let mut stats = EntityStats::new();
            for i in 0..100 {
                stats.count(256, 256, i % 7 == 0);
                stats.sample(1000 * i);
                stats.waited(5000 * (i + 1));
                stats.debt(5 * i as i64 - 200);
            }
            rows.push(NodeRow {
                active: true,
                stats,
                lag_decipages: -124,
                queue_depth: 7,
                ..NodeRow::new(avalanche(user + u64::from(job)), user, "jobid", key, 4096)
            });
        }
    }
    rows
}

fn statistics(c: &mut Criterion) {
    let list = rows(100, 100);
    let mut rows = NodeRows::new();
    rows.extend(&list, false).expect("memory");
    rows.merge().expect("memory");
    let mut text = String::new();
    let mut group = c.benchmark_group("statistics");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(1));
    group.bench_function("yaml/10000", |b| {
        b.iter(|| {
            text.clear();
            report(
                &mut nrs_sched::report::Report::yaml(&mut text),
                black_box(&rows),
                100_000,
            )
            .expect("string");
        });
    });
    group.bench_function("merge/10000", |b| {
        b.iter(|| {
            let mut rows = NodeRows::new();
            rows.extend(black_box(&list), false).expect("memory");
            rows.merge().expect("memory");
            rows
        });
    });
    let mut builder = RangeBuilder::new();
    for row in &list {
        let report = NodeReport {
            id: row.id,
            parent: row.parent,
            weight: row.weight,
            leaf: row.leaf,
            active: row.active,
            part: 0,
        };
        builder.extend(&[report]).expect("memory");
    }
    group.bench_function("ranges/10000", |b| {
        b.iter(|| builder.build().map(|published| published.table.len()));
    });
    group.finish();
}

/// Measures an agent that reads the accounts of 10,000 changed, backlogged entities and sets a
/// factor for each.
fn agent(c: &mut Criterion) {
    const COUNT: u32 = 10_000;
    let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &Tunables::default());
    let config = config.expect("a mode");
    let mut part = lone_part::<Request>(&config, 1).expect("memory");
    reserve(COUNT as usize).expect("memory");
    for uid in 0..COUNT {
        let class = part.classify(&attrs(uid), 0);
        feed(&mut part);
        let request = Request::new(uid, uid.into(), 1, 0);
        assert!(part.enqueue(request, class, 0).is_ok());
    }
    let mut parts = RunningParts::default();
    parts.add(Priority::Regular, part);
    let mut parameters = Parameters::new(Values::default()).expect("memory");
    let started = parameters.kept.sync(&[None; 2], &[Some(config), None]);
    started.expect("memory");
    let mut group = c.benchmark_group("agent");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(1));
    let mut told = LastReading::new();
    group.bench_function("accounts/10000", |b| {
        b.iter(|| {
            let reading = Reading::of(&parts).expect("memory");
            let changes = told.changes(1, &reading, true);
            let service = changes.fold(0, |sum, (report, _)| sum ^ report.account.service);
            told.record(1, reading);
            service
        });
    });
    let reading = Reading::of(&parts).expect("memory");
    let changes = told.changes(1, &reading, true);
    let ids: Vec<u64> = changes.map(|(report, _)| report.account.id).collect();
    assert_eq!(ids.len(), COUNT as usize);
    let mut divisor = 1;
    group.bench_function("factors/10000", |b| {
        b.iter(|| {
            // Different factors in each iteration.
            divisor = divisor % 1000 + 1;
            let mut pairs = FactorPairs::new(ids.len()).expect("memory");
            for id in &ids {
                pairs.push(*id, ONE / divisor).expect("valid");
            }
            let lease = Shared::new(Lease::new(0, 60_000)).expect("memory");
            let kept = &mut parameters.kept;
            kept.set_factors(pairs, &lease).expect("memory");
            let update = parameters.update(&config, Priority::Regular);
            let update = update.expect("memory").expect("an update");
            let mut part = parts.part(0);
            drop(part.update(update, 0));
            let mut from = Some(0);
            while let Some(idx) = from {
                from = part.refresh(idx, ROWS as u32, 0);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, decisions, classes, solo, statistics, agent);
criterion_main!(benches);
