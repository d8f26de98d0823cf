// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of whole policies with a model: a plain list of requests and the literal rules.
//!
//! The rules of `crrn` are those of Lustre. The rules of `orr` differ in three points. Classes of
//! one round are served in the order of their keys. A class that was empty for up to 10 ms
//! continues its batch, but not too often after others were served. A round counts from the
//! requests that were served in it.

use crate::bench::{attrs, read, Bench};
use nrs_sched::{
    attr::Attrs,
    item::{Cost, Direction},
    policy::{crrn, params::heads::PerHead, robin, Kind, Tunables},
};
use proptest::prelude::*;

/// State of a client in Lustre, with the additional state of an object.
#[derive(Clone, Copy, Default)]
struct Client {
    round: u64,
    sequence: u64,
    quantum: u64,
    active: u64,
    dry: u64,
    served: u64,
    broken: u64,
    fickle: bool,
}

/// A queued request: its tag, and the further sort keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    round: u64,
    tie: u64,
    offset: u64,
    id: u64,
    who: usize,
}

struct RobinModel {
    orr: bool,
    clients: [Client; 6],
    round: u64,
    sequence: u64,
    quantum: u64,
    served: u64,
    begun: usize,
    queue: Vec<Queued>,
}

impl RobinModel {
    fn new(orr: bool, quantum: u64) -> Self {
        Self {
            orr,
            clients: Default::default(),
            round: 0,
            sequence: 1,
            quantum,
            served: 0,
            begun: 0,
            queue: Vec::new(),
        }
    }

    fn enqueue(&mut self, who: usize, id: u64, offset: u64, now: u64) {
        let mut client = self.clients[who];
        if self.orr {
            self.admit_orr(who, &mut client, now);
        } else {
            self.admit_crrn(&mut client);
        }
        self.queue.push(Queued {
            round: client.round,
            tie: if self.orr {
                who as u64
            } else {
                client.sequence
            },
            offset: if self.orr { offset } else { 0 },
            id,
            who,
        });
        client.active += 1;
        client.quantum -= 1;
        if client.quantum == 0 {
            client.round += 1;
        }
        self.clients[who] = client;
    }

    /// Follows Lustre's code literally.
    fn admit_crrn(&mut self, client: &mut Client) {
        if client.quantum == 0
            || client.round < self.round
            || (client.active == 0 && client.quantum > 0)
        {
            if client.active == 0 && client.quantum > 0 {
                client.round += 1;
            }
            client.round = client.round.max(self.round);
            if client.sequence < self.sequence {
                self.sequence += 1;
                client.sequence = self.sequence;
            }
            client.quantum = self.quantum;
        }
    }

    fn admit_orr(&mut self, who: usize, client: &mut Client, now: u64) {
        let mut fresh = client.quantum == 0;
        if client.active == 0 && client.quantum > 0 {
            if client.fickle || now - client.dry > 10_000_000 {
                fresh = true;
            } else if client.served != self.served {
                client.broken += 1;
                client.fickle = client.broken > self.quantum / 32;
                fresh = client.fickle;
            }
        }
        if !fresh {
            return;
        }
        if client.quantum > 0 {
            client.round += 1;
        } else {
            client.fickle = false;
        }
        client.round = client.round.max(self.round);
        if client.round == self.round {
            let mut busy: Vec<usize> = self.queue.iter().map(|queued| queued.who).collect();
            busy.push(who);
            busy.sort();
            busy.dedup();
            if self.begun < busy.len() + 64 {
                self.begun += 1;
            } else {
                client.round += 1;
            }
        }
        client.quantum = self.quantum;
        client.broken = 0;
    }

    /// Returns the index of the next request.
    fn first(&self) -> Option<usize> {
        (0..self.queue.len()).min_by_key(|&i| self.queue[i])
    }

    /// Removes a request from the list.
    fn remove(&mut self, index: usize) -> Queued {
        let queued = self.queue.remove(index);
        self.clients[queued.who].active -= 1;
        queued
    }

    /// Updates the round after the removal of the first request.
    fn advance(&mut self, gone: &Queued) {
        let round = match self.first() {
            _ if self.orr => gone.round,
            None => self.round + 1,
            Some(first) => self.queue[first].round,
        };
        if round > self.round {
            self.round = round;
            self.begun = 0;
        }
    }

    /// Records the time at which a class has become empty.
    fn dry(&mut self, who: usize, now: u64) {
        if self.clients[who].active == 0 {
            self.clients[who].dry = now;
            self.clients[who].served = self.served;
        }
    }

    fn get(&mut self, now: u64) -> Option<u64> {
        let first = self.first()?;
        let gone = self.remove(first);
        self.advance(&gone);
        self.served += 1;
        self.dry(gone.who, now);
        Some(gone.id)
    }

    /// Removes request `id`; all requests of the first batch count as first.
    fn dequeue(&mut self, id: u64, now: u64) {
        let index = self.queue.iter().position(|queued| queued.id == id);
        let index = index.expect("it is queued");
        let first = self.queue[self.first().expect("not empty")];
        let gone = self.remove(index);
        if !self.orr && (first.round, first.tie) == (gone.round, gone.tie) {
            self.advance(&gone);
        }
        self.dry(gone.who, now);
    }
}

#[derive(Clone, Debug)]
enum RobinOp {
    Arrive { who: usize, offset: u64 },
    Pass { who: usize },
    Serve,
    Take { index: prop::sample::Index },
    Quantum { quantum: u64 },
    Wait { ns: u64 },
}

fn op() -> impl Strategy<Value = RobinOp> {
    prop_oneof![
        12 => (0usize..6, 0u64..16).prop_map(|(who, offset)| RobinOp::Arrive { who, offset }),
        1 => (0usize..6).prop_map(|who| RobinOp::Pass { who }),
        10 => Just(RobinOp::Serve),
        2 => any::<prop::sample::Index>().prop_map(|index| RobinOp::Take { index }),
        1 => prop_oneof![Just(1u64), Just(2), Just(8), 1u64..100]
            .prop_map(|quantum| RobinOp::Quantum { quantum }),
        1 => prop_oneof![Just(10_000_000u64), Just(10_000_001), 0u64..9_000_000]
            .prop_map(|ns| RobinOp::Wait { ns }),
    ]
}

fn quanta(quantum: u64) -> Tunables {
    let mut tunables = Tunables::default();
    let of_clients = crrn::Quantum::new(quantum as u32).expect("within limits");
    tunables.crrn.quantum = PerHead::both(of_clients);
    let of_objects = robin::params::Quantum::new(quantum as u32).expect("within limits");
    tunables.orr.quantum = PerHead::both(of_objects);
    tunables
}

/// Runs both and compares the results.
fn run(kind: Kind, quantum: u64, ops: &[RobinOp]) {
    let mut tunables = quanta(quantum);
    let mut bench = Bench::new(kind, &tunables);
    let mut model = RobinModel::new(kind == Kind::Orr, quantum);
    for op in ops {
        match *op {
            RobinOp::Arrive { who, offset } => {
                let id = bench.push(&attrs(who as u32), read(offset << 12));
                model.enqueue(who, id.expect("reads are taken"), offset, bench.now);
            }
            RobinOp::Pass { who } => {
                if model.queue.is_empty() {
                    let cost = Cost::new(Direction::Read, 4096);
                    bench.pass(&attrs(who as u32), cost);
                    model.enqueue(who, 0, 0, bench.now);
                    assert_eq!(model.get(bench.now), Some(0));
                }
            }
            RobinOp::Serve => assert_eq!(bench.serve(), model.get(bench.now)),
            RobinOp::Take { index } => {
                if !model.queue.is_empty() {
                    let id = index.get(&model.queue).id;
                    bench.take(id);
                    model.dequeue(id, bench.now);
                }
            }
            RobinOp::Quantum { quantum } => {
                let after = quanta(quantum);
                bench.update(kind, &tunables, &after);
                (tunables, model.quantum) = (after, quantum);
            }
            RobinOp::Wait { ns } => bench.now += ns,
        }
        assert_eq!(bench.len(), model.queue.len());
    }
    while !model.queue.is_empty() {
        assert_eq!(bench.serve(), model.get(bench.now));
    }
    assert_eq!(bench.serve(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn crrn_is_as_in_lustre(
        quantum in prop_oneof![Just(1u64), Just(3), Just(8)],
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        run(Kind::Crrn, quantum, &ops);
    }

    #[test]
    fn orr_is_as_documented(
        quantum in prop_oneof![Just(1u64), Just(3), Just(8), Just(64)],
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        run(Kind::Orr, quantum, &ops);
    }
}

/// Checks that clients without a network identifier are distinguished by the number from the
/// front-end.
#[test]
fn clients_without_nid() {
    let mut bench = Bench::new(Kind::Crrn, &Tunables::default());
    let client = |client| Attrs {
        client,
        ..Attrs::UNKNOWN
    };
    for number in [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0] {
        bench.push(&client(number), read(0));
    }
    assert_eq!(bench.drain(), [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 9]);
}
