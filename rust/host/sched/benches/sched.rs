// SPDX-License-Identifier: GPL-2.0-only

//! What a decision costs: `enqueue` + `get` + `stop` in a closed loop of 8 queued requests per entity, and
//! the statistics file.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use nrs_sched::{
    arena::{self, Request},
    attr::{Attrs, Id},
    jobid::JobId,
    key::Key,
    mem::Need,
    policy::{
        fairshare::params::{ClassesMax, Select},
        tbf, AnyPart, Config, Get, Kind, Part, Tunables, View,
    },
    ranges::Table,
    stats::{write_yaml, Row, Rows},
};
use std::{hint::black_box, time::Duration};

const QUEUED: u32 = 8;

fn attrs(uid: u32) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        ..Attrs::UNKNOWN
    }
}

/// A part with `entities` classes that have [`QUEUED`] requests each.
fn part(kind: Kind, select: Select, entities: u32) -> AnyPart<Request> {
    let mut tunables = Tunables::default();
    tunables.fairshare.select = select;
    tunables.fairshare.classes_max = ClassesMax::new(1 << 20).expect("within limits");
    tunables.tbf.classes_max = tbf::params::ClassesMax::new(1 << 20).expect("within limits");
    // Twice what a decision per microsecond uses, so that there is always one to make.
    let rate = (2_000_000 / entities).max(1);
    tunables.tbf.rate = tbf::params::Rate::new(rate).expect("within limits");
    let arg = match kind {
        Kind::Fifo => None,
        Kind::Fairshare => Some("uid_fair"),
        Kind::Tbf => Some("uid"),
    };
    let config = Config::parse(kind, arg, &tunables).expect("valid");
    arena::reserve((entities * QUEUED) as usize + 64).expect("memory");
    let mut part = arena::lone_part(&config, 1).expect("memory");
    let mut id = 0;
    for uid in 0..entities {
        while !part.need().is_empty() {
            let spare = part.need().allocate().expect("memory");
            part.grow(spare);
        }
        let class = part.classify(&attrs(uid), 0);
        for _ in 0..QUEUED {
            let request = Request {
                owner: uid,
                id,
                pages: 1,
                arrival: id,
            };
            assert!(part.enqueue(request, class, 0).is_ok());
            id += 1;
        }
    }
    part
}

fn step(part: &mut AnyPart<Request>, now: u64) {
    let view = View {
        now,
        force: false,
        table: None,
    };
    let Get::Item((request, class)) = part.get(&view) else {
        panic!("something may always go");
    };
    part.stop(class, nrs_sched::item::Item::cost(&request), now);
    assert!(part.enqueue(request, class, now).is_ok());
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .sample_size(20)
        .throughput(Throughput::Elements(1));
    for (name, kind, select) in [
        ("fifo", Kind::Fifo, Select::Deadline),
        ("deadline", Kind::Fairshare, Select::Deadline),
        ("random", Kind::Fairshare, Select::Random),
        ("tbf", Kind::Tbf, Select::Deadline),
    ] {
        for entities in [2, 8, 64, 256, 1000, 4096, 100_000] {
            let mut part = part(kind, select, entities);
            let mut now = 0;
            let mut next = || {
                now += 1000;
                step(black_box(&mut part), now)
            };
            for _ in 0..u64::from(entities) * 4 {
                next();
            }
            let id = BenchmarkId::new(name, entities);
            group.bench_function(id, |b| b.iter(&mut next));
        }
    }
    group.finish();
}

fn statistics(c: &mut Criterion) {
    let mut rows = Rows::new();
    for uid in 0..10_000 {
        let row = Row {
            active: true,
            dispatched: 148_290,
            cost_pages: 592_160,
            opportunity: 3041,
            lag_decipages: -124,
            queue_depth: 7,
            ..Row::new(
                Key::Jobid(JobId::new(format!("batch_sim.{uid}").as_bytes())),
                4096,
            )
        };
        rows.extend(&[row]).expect("memory");
    }
    rows.merge();
    let table = Table::build(rows.as_slice(), 1).expect("memory");
    let mut text = String::new();
    let mut group = c.benchmark_group("statistics");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(1));
    group.bench_function("yaml/10000", |b| {
        b.iter(|| {
            text.clear();
            write_yaml(&mut text, black_box(rows.as_slice()), Some(&table)).expect("string");
        });
    });
    group.bench_function("ranges/10000", |b| {
        b.iter(|| Table::build(black_box(rows.as_slice()), 1).map(|table| table.len()));
    });
    group.finish();
}

criterion_group!(benches, decisions, statistics);
criterion_main!(benches);
