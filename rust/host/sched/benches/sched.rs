// SPDX-License-Identifier: GPL-2.0-only

//! What a decision costs: `enqueue` + `get` + `stop` in a closed loop of 8 queued requests per entity, and
//! the statistics file.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::{
    crowd::Crowd,
    jobid::JobId,
    key::Key,
    policy::{
        fairshare::{
            ledger::Ledger,
            params::Select,
            stats::{write_yaml, Row, Rows},
        },
        Kind,
    },
    ranges::{Brief, Outline},
    rng::avalanche,
};
use std::{hint::black_box, time::Duration};

/// From two entities to many.
const ALL: [u32; 7] = [2, 8, 64, 256, 1000, 4096, 100_000];

/// Those that there are limits for.
const SOME: [u32; 3] = [64, 1000, 100_000];

/// As many as there are gates for.
const GATED: [u32; 6] = [2, 8, 64, 256, 1000, 4096];

/// Name, what it is of, levels, largest request, and numbers of entities.
type Case = (&'static str, Kind, Select, u32, u32, &'static [u32]);

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));
    let fair = Kind::Fairshare;
    let cases: [Case; 16] = [
        ("fifo", Kind::Fifo, Select::Deadline, 1, 1, &ALL),
        ("crrn", Kind::Crrn, Select::Deadline, 1, 1, &ALL),
        ("orr", Kind::Orr, Select::Deadline, 1, 1, &ALL),
        ("trr", Kind::Trr, Select::Deadline, 1, 1, &SOME),
        ("deadline", fair, Select::Deadline, 1, 1, &ALL),
        ("mixed", fair, Select::Deadline, 1, 16, &SOME),
        ("tree2", fair, Select::Deadline, 2, 1, &SOME),
        ("tree3", fair, Select::Deadline, 3, 1, &SOME),
        ("tree3_mixed", fair, Select::Deadline, 3, 16, &SOME),
        ("deadline_memory", fair, Select::DeadlineMemory, 1, 1, &SOME),
        ("golden", fair, Select::Golden, 1, 1, &SOME),
        ("random", fair, Select::Random, 1, 1, &ALL),
        ("paper", fair, Select::Paper, 1, 1, &SOME),
        ("tbf", Kind::Tbf, Select::Deadline, 1, 1, &ALL),
        ("qbm", Kind::Qbm, Select::Deadline, 1, 1, &GATED),
        // More than there are tokens for: everybody waits at a gate.
        ("qbm_waits", Kind::Qbm, Select::Deadline, 1, 16, &GATED),
    ];
    for (name, kind, select, depth, pages, counts) in cases {
        for &count in counts {
            let mut crowd = Crowd::new(kind, select, depth, count, pages);
            let id = BenchmarkId::new(name, count);
            group.bench_function(id, |b| b.iter(|| black_box(&mut crowd).step()));
        }
    }
    group.finish();
}

/// Nobody else has requests.
fn solo(c: &mut Criterion) {
    let mut group = c.benchmark_group("solo");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));
    for (name, kind, depth) in [
        ("fifo", Kind::Fifo, 1),
        ("deadline", Kind::Fairshare, 1),
        ("tree3", Kind::Fairshare, 3),
    ] {
        let mut crowd = Crowd::new(kind, Select::Deadline, depth, 1, 1);
        group.bench_function(name, |b| b.iter(|| black_box(&mut crowd).step()));
    }
    group.finish();
}

/// `users` users with `jobs` jobs each, all of them active, as rows.
fn rows(users: u32, jobs: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for uid in 0..users {
        // Identifiers are hashes.
        let user = avalanche(u64::from(uid) + 1);
        rows.push(Row::inner(user, 0, "uid", Key::Uid(uid), 4096));
        for job in 0..jobs {
            let name = format!("batch_sim.{job}");
            let key = Key::Jobid(JobId::new(name.as_bytes()));
            let mut ledger = Ledger::new();
            for i in 0..100 {
                ledger.count(256, 256, i % 7 == 0);
                ledger.sample(1000 * i);
                ledger.waited(5000 * (i + 1));
                ledger.debt(5 * i as i64 - 200);
            }
            rows.push(Row {
                active: true,
                ledger,
                lag_decipages: -124,
                queue_depth: 7,
                ..Row::new(avalanche(user + u64::from(job)), user, "jobid", key, 4096)
            });
        }
    }
    rows
}

fn statistics(c: &mut Criterion) {
    let list = rows(100, 100);
    let mut rows = Rows::new();
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
            write_yaml(&mut text, black_box(&rows), 100_000).expect("string");
        });
    });
    group.bench_function("merge/10000", |b| {
        b.iter(|| {
            let mut rows = Rows::new();
            rows.extend(black_box(&list), false).expect("memory");
            rows.merge().expect("memory");
            rows
        });
    });
    let mut outline = Outline::new();
    for row in &list {
        let brief = Brief {
            id: row.id,
            parent: row.parent,
            weight: row.weight,
            leaf: row.leaf,
            active: row.active,
            part: 0,
        };
        outline.extend(&[brief]).expect("memory");
    }
    group.bench_function("ranges/10000", |b| {
        b.iter(|| outline.build(1).map(|published| published.table.len()));
    });
    group.finish();
}

criterion_group!(benches, decisions, solo, statistics);
criterion_main!(benches);
