// SPDX-License-Identifier: GPL-2.0-only

//! Measures the CPU time that sharing over servers costs a server, per entity: `record`, `step` of
//! the rule, `encode` (own message), `receive` (messages of other servers), and `factors`.

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use nrs_agent::{message::HEADER, message::RECORD, Account, Exchange, Terms};
use std::time::{Duration, Instant};

const DELTA: u64 = 100_000_000;

/// Pairs of entities per server and number of servers.
const SIZES: [(u64, u64); 5] = [(64, 8), (64, 128), (1_000, 8), (1_000, 128), (10_000, 8)];

fn account(id: u64, delta: u64) -> Account {
    Account {
        id: id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        parent: 0,
        weight: 4096,
        leaf: true,
        service: delta * (1000 + id),
        active: true,
        waiting: true,
    }
}

/// Servers that all serve the same entities.
struct Cluster {
    one: Exchange,
    others: Vec<Exchange>,
    entities: u64,
    delta: u64,
    said: Vec<(u64, Vec<u8>)>,
}

impl Cluster {
    fn new(entities: u64, servers: u64) -> Self {
        let terms = Terms {
            grain: 1,
            records_max: 1 << 22,
            ..Terms::default()
        };
        let new = |server| Exchange::new(server, 1, terms);
        let mut cluster = Self {
            one: new(1),
            others: (2..=servers).map(new).collect(),
            entities,
            delta: 0,
            said: Vec::new(),
        };
        for _ in 0..3 {
            cluster.round();
            cluster.receive();
            cluster.record();
            cluster.step();
        }
        cluster
    }

    /// Advances the other servers by one delta and collects their datagrams.
    fn round(&mut self) {
        self.delta += 1;
        let now = self.delta * DELTA;
        self.said.clear();
        for (number, other) in (2..).zip(&mut self.others) {
            for id in 0..self.entities {
                other.record(&account(id, self.delta));
            }
            other.step(now);
            let said = other.encode(now).into_iter();
            self.said.extend(said.map(|bytes| (number, bytes)));
        }
    }

    fn receive(&mut self) {
        for (from, bytes) in &self.said {
            self.one
                .receive(*from, bytes, self.delta * DELTA)
                .expect("news");
        }
    }

    fn record(&mut self) {
        for id in 0..self.entities {
            self.one.record(&account(id, self.delta));
        }
    }

    fn step(&mut self) {
        self.one.step(self.delta * DELTA);
    }

    fn encode(&mut self) -> usize {
        let said = self.one.encode(self.delta * DELTA);
        said.iter().map(Vec::len).sum()
    }
}

fn exchange(c: &mut Criterion) {
    let mut group = c.benchmark_group("exchange");
    group
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .sample_size(10);
    for (entities, servers) in SIZES {
        let mut cluster = Cluster::new(entities, servers);
        let (each, bytes) = (entities as usize * RECORD, cluster.encode());
        println!(
            "exchange: {entities} entities: {bytes} bytes per message, \
             {} of them headers of {HEADER}",
            bytes - each
        );
        let name = format!("{entities} entities, {servers} servers");
        for what in ["note", "step", "say", "hear", "factors"] {
            // Throughput is per entity; for `receive`, per record.
            let records = if what == "hear" { servers - 1 } else { 1 };
            group.throughput(Throughput::Elements(entities * records));
            group.bench_function(format!("{what}/{name}"), |b| {
                b.iter_custom(|count| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..count {
                        cluster.round();
                        let mut time = |counted: &str, run: &mut dyn FnMut()| {
                            let start = Instant::now();
                            run();
                            if counted == what {
                                sum += start.elapsed();
                            }
                        };
                        time("hear", &mut || cluster.receive());
                        time("note", &mut || cluster.record());
                        time("step", &mut || cluster.step());
                        time("say", &mut || {
                            cluster.encode();
                        });
                        time("factors", &mut || {
                            cluster.one.factors();
                        });
                    }
                    sum
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, exchange);
criterion_main!(benches);
