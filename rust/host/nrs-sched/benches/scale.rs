// SPDX-License-Identifier: GPL-2.0-only

//! Cost of one operation on a large server with 4,096 clients and 16 queued requests each. Also
//! measures the order table with up to 65,536 requests.

use criterion::{criterion_group, criterion_main, Bencher, BenchmarkId, Criterion, Throughput};
use nrs_sched::{
    arena::Request,
    attr::Attrs,
    item::{ByteRange, Direction},
    mem::Need,
    order::{Forced, Order, OrderAction, OrderOutcome, RecordId, Relation},
    rng::Rng,
    scale::{cases, Scale},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const CLIENTS: u32 = 4_096;
const DEPTH: u32 = 16;

/// Number of operations that are measured together.
const BATCH: u64 = 256;

/// Calls `batch` for at most [`BATCH`] operations at a time; `batch` returns the time they took.
fn batches(
    b: &mut Bencher<'_>,
    scale: &mut Scale,
    mut batch: impl FnMut(&mut Scale, u64) -> Duration,
) {
    b.iter_custom(|count| {
        let mut sum = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let now = left.min(BATCH);
            sum += batch(scale, now);
            left -= now;
        }
        sum
    });
}

fn policies(c: &mut Criterion) {
    let mut group = c.benchmark_group("scale");
    group
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(10)
        .throughput(Throughput::Elements(1));
    for case in cases() {
        let mut scale = Scale::new(&case, CLIENTS, DEPTH, false);
        let mut taken = Vec::new();
        // `get` and `stop` of a batch, then `enqueue`; one of them counts.
        for counted in ["get", "stop", "enqueue"] {
            let id = BenchmarkId::new(case.name, counted);
            group.bench_function(id, |b| {
                batches(b, &mut scale, |scale, count| {
                    let start = Instant::now();
                    (0..count).for_each(|_| taken.push(scale.get()));
                    let got = Instant::now();
                    taken
                        .iter()
                        .for_each(|(item, grant)| scale.stop(item, grant));
                    let stopped = Instant::now();
                    taken.drain(..).for_each(|(item, _)| scale.enqueue(item));
                    let queued = Instant::now();
                    match counted {
                        "get" => got - start,
                        "stop" => stopped - got,
                        _ => queued - stopped,
                    }
                });
            });
        }
        drop(scale);
        let mut scale = Scale::new(&case, CLIENTS, DEPTH, true);
        let mut out = Vec::new();
        let id = BenchmarkId::new(case.name, "dequeue");
        group.bench_function(id, |b| {
            batches(b, &mut scale, |scale, count| {
                let start = Instant::now();
                (0..count).for_each(|_| out.push(scale.dequeue()));
                let time = start.elapsed();
                out.drain(..).for_each(|item| scale.enqueue(item));
                time
            });
        });
    }
    group.finish();
}

fn request(id: u64, range: ByteRange) -> Request {
    Request {
        id,
        pages: 1,
        range,
        direction: Direction::Write,
        ..Request::default()
    }
}

/// Creates an order table. Its seed differs from the seed of the ranges, because submitters must
/// not know it.
fn order() -> Order<Request> {
    let mut order = Order::new(1 << 20, 0x0bad_5eed).expect("memory");
    feed(&mut order);
    order
}

fn feed(order: &mut Order<Request>) {
    while !order.need().is_empty() {
        let spare = order.need().allocate().expect("memory");
        order.grow(spare);
    }
}

/// Enters a write at a random place in 4 TiB that overlaps no other request.
fn lone(order: &mut Order<Request>, rng: &mut Rng) -> RecordId {
    loop {
        let range = ByteRange::new(0, rng.below(1 << 30) << 12, 4096);
        match order.enter(Relation::overlap(0, &range, Direction::Write), false) {
            OrderOutcome::Free(id) => {
                order.running(id);
                return id;
            }
            // The block overlaps another request: the request is removed again at once.
            OrderOutcome::Blocked(id) => {
                order.block(id, request(0, range), Attrs::UNKNOWN, Forced::No);
                order.force_all();
                while let Some(act) = order.next() {
                    if let OrderAction::Release { id, .. } = act {
                        order.running(id);
                        order.finish(id);
                    }
                }
            }
            OrderOutcome::Full => panic!("memory"),
        }
    }
}

/// Enters a write to the same block as all others; it is blocked by the last of them.
fn link(order: &mut Order<Request>, number: u64, high: bool) -> RecordId {
    let range = ByteRange::new(0, 0, 4096);
    match order.enter(Relation::overlap(0, &range, Direction::Write), high) {
        OrderOutcome::Free(id) => {
            order.running(id);
            id
        }
        OrderOutcome::Blocked(id) => {
            order.block(id, request(number, range), Attrs::UNKNOWN, Forced::No);
            id
        }
        OrderOutcome::Full => panic!("memory"),
    }
}

fn orders(c: &mut Criterion) {
    let mut group = c.benchmark_group("order");
    group
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(10)
        .throughput(Throughput::Elements(1));
    for others in [1u64, 1_024, 65_536] {
        let mut order = order();
        let mut rng = Rng::new(1);
        for _ in 0..others {
            feed(&mut order);
            lone(&mut order, &mut rng);
        }
        group.bench_function(BenchmarkId::new("free", others), |b| {
            b.iter(|| {
                let id = lone(&mut order, &mut rng);
                order.finish(id);
            });
        });
    }
    for length in [1_024u64, 65_536] {
        let mut order = order();
        let mut chain = VecDeque::new();
        for number in 0..length {
            feed(&mut order);
            chain.push_back(link(&mut order, number, false));
        }
        group.bench_function(BenchmarkId::new("chain", length), |b| {
            b.iter(|| {
                order.finish(chain.pop_front().expect("chain"));
                while let Some(act) = order.next() {
                    if let OrderAction::Release { id, .. } = act {
                        order.running(id);
                    }
                }
                chain.push_back(link(&mut order, length, false));
            });
        });
    }
    // An urgent request arrives and promotes the whole chain; each promotion is one step.
    let length = 65_536u64;
    group.throughput(Throughput::Elements(length));
    group.bench_function(BenchmarkId::new("promote", length), |b| {
        b.iter_custom(|count| {
            let mut sum = Duration::ZERO;
            for _ in 0..count {
                let mut order = order();
                for number in 0..length {
                    feed(&mut order);
                    link(&mut order, number, false);
                }
                link(&mut order, length, true);
                let start = Instant::now();
                while order.next().is_some() {}
                sum += start.elapsed();
            }
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, policies, orders);
criterion_main!(benches);
