// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::{
    arena::{attrs, feed, view, Request},
    sched::{
        class::ClassId,
        item::Direction,
        mem::Need as _,
        policy::{Configuration, Part},
        qbm::{
            gate::{Gate, Gates},
            terms::UNREGULATED,
        },
        units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
    },
};

mod claims;
mod rates;

const NOW: u64 = 5_000 * SECOND;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn tunables() -> Tunables {
    Tunables {
        by: By::Uid,
        ..Tunables::default()
    }
}

/// Creates gates for `count` clients of one group, without limits at first.
fn gates(count: u32) -> mem::Shared<Gates> {
    let gates = Gates::new(count, 1).unwrap();
    gates.open(0, (1, None), (UNREGULATED, 0), 0);
    gates.opened(1);
    mem::Shared::new(gates).unwrap()
}

/// Returns the update with `gates` and a plan without lines.
fn update_of(gates: &mem::Shared<Gates>) -> Update {
    let plan = mem::Shared::new(Plan::none()).unwrap();
    Some((gates.clone(), plan))
}

/// Returns the gate claim of `user`.
fn claim_of(gates: &Gates, user: u32) -> GateClaim {
    gates.claim(
        &RequestOwner::of(By::Uid, &attrs(user)),
        &GateClaim::NONE,
        || false,
        NOW,
    )
}

/// A part, and the gates of its clients.
struct QbmBench {
    part: State<Request>,
    gates: mem::Shared<Gates>,
    ids: u64,
}

impl QbmBench {
    fn with(tunables: &Tunables, gates: &mem::Shared<Gates>) -> Self {
        let config = Config::parse(None, tunables).unwrap();
        let shared = mem::Shared::new(Shared::new(&config, 1, 1).unwrap()).unwrap();
        let mut part = State::new(&config, 1, &shared).unwrap();
        part.update(update_of(gates), NOW);
        Self {
            part,
            gates: gates.clone(),
            ids: 0,
        }
    }

    fn new() -> Self {
        Self::with(&tunables(), &gates(1024))
    }

    /// Creates a bench in which user 1 has `count` requests of a second at its rate, 1 MiB/s.
    fn slow(count: u32) -> Self {
        let mut bench = Self::new();
        bench.rate(1, MIB, 1, NOW);
        bench.class(1, NOW);
        for _ in 0..count {
            bench.queue(1, 256, NOW);
        }
        bench
    }

    fn gate(&self, user: u32) -> &Gate {
        self.gates.get(claim_of(&self.gates, user).idx()).unwrap()
    }

    /// Sets rate and rank of the gate of `user`, with a full bucket.
    fn rate(&self, user: u32, rate: u64, rank: u8, now: u64) {
        let gate = self.gate(user);
        gate.clear(now);
        gate.set(rate, rank, now);
        gate.clear(now);
        gate.set_known(true);
    }

    fn class(&mut self, user: u32, now: u64) -> ClassId {
        feed(&mut self.part);
        self.part.classify(&attrs(user), now)
    }

    fn queue(&mut self, user: u32, pages: u32, now: u64) -> Request {
        let request = self.request(user, pages, now);
        let class = self.class(user, now);
        self.part.enqueue(request, class, now).unwrap();
        request
    }

    fn request(&mut self, user: u32, pages: u32, now: u64) -> Request {
        self.ids += 1;
        Request {
            owner: user,
            id: self.ids,
            pages,
            arrival: now,
            direction: Direction::Write,
            ..Request::default()
        }
    }

    fn get(&mut self, now: u64) -> Option<Request> {
        match self.part.get(&view(now, false)) {
            Decision::Item((request, grant)) => {
                self.part.stop(&grant, request.cost(), now);
                Some(request)
            }
            _ => None,
        }
    }

    /// Dispatches all eligible requests; returns their number.
    fn burst(&mut self, now: u64) -> usize {
        std::iter::from_fn(|| self.get(now)).count()
    }

    /// Passes a request of `class` by opportunity.
    fn pass(&mut self, class: ClassId, cost: Cost, now: u64) -> BypassOutcome {
        self.part
            .pass(class, cost, BypassReason::Opportunity, || now)
    }

    /// Asserts that a forced request is dispatched.
    fn force(&mut self, now: u64) {
        let forced = self.part.get(&view(now, true));
        assert!(matches!(forced, Decision::Item(_)), "{forced:?}");
    }

    fn until(&mut self, now: u64) -> u64 {
        match self.part.get(&view(now, false)) {
            Decision::Throttled { until } => until,
            other => panic!("{other:?}"),
        }
    }
}

/// Orders classes with tokens by rank, and within a rank by the time since when they have tokens.
#[test]
fn ranks_go_first() {
    let mut bench = QbmBench::new();
    let ranks = [(1, 3), (2, 2), (3, 1), (4, 0), (5, 3), (6, 0)];
    for (user, rank) in ranks {
        bench.rate(user, 100 * MIB, rank, NOW);
        bench.class(user, NOW);
    }
    bench.class(9, NOW);
    let mut now = NOW;
    for (user, _) in ranks {
        for _ in 0..2 {
            now += 1;
            bench.queue(user, 1, now);
        }
    }
    bench.queue(9, 1, now);
    // 9 is unregulated. A second request has been the front only since the first request was
    // dispatched.
    let order: Vec<u32> = (1..=13)
        .map_while(|i| bench.get(now + i))
        .map(|request| request.owner)
        .collect();
    assert_eq!(order, [9, 4, 6, 4, 6, 3, 3, 2, 2, 1, 5, 1, 5]);
    assert!(bench.part.is_empty() && bench.get(now).is_none());
}

/// Keeps the order within a throttled class, and dispatches from other classes meanwhile.
#[test]
fn throttled_class_keeps_its_order_and_blocks_no_other() {
    let mut bench = QbmBench::new();
    bench.rate(1, MIB, 0, NOW);
    bench.rate(2, 100 * MIB, 3, NOW);
    for user in [1, 2] {
        bench.class(user, NOW);
    }
    let large = bench.queue(1, 256, NOW);
    let behind = bench.queue(1, 256, NOW);
    let small = bench.queue(1, 1, NOW);
    let other = bench.queue(2, 1, NOW);
    // A full bucket, then debt of 1 MiB.
    assert_eq!(bench.get(NOW), Some(large));
    assert_eq!(bench.get(NOW), Some(other));
    let until = bench.until(NOW);
    assert!((until - NOW).abs_diff(SECOND) < MS);
    let class = bench.class(1, NOW);
    let cost = Cost::new(Direction::Read, 0);
    assert_eq!(bench.pass(class, cost, NOW), BypassOutcome::Refused);
    assert!(bench.get(until - 1000).is_none());
    assert_eq!(bench.get(until), Some(behind));
    let later = bench.until(until);
    assert!((later - until).abs_diff(SECOND) < 41 * MS);
    assert_eq!(bench.get(later), Some(small));
    // Periods in which the class waited: two seconds with periods of 40 ms.
    let sleeps = bench.gate(1).usage().sleeps;
    assert!((48..=51).contains(&sleeps), "{sleeps}");
}

#[test]
fn everything_goes_when_it_is_drained() {
    let mut bench = QbmBench::new();
    bench.rate(1, 32 << 10, 3, NOW);
    bench.gates.set_start(0, (32 << 10, 3), NOW);
    for _ in 0..100 {
        bench.queue(1, 16, NOW);
    }
    for user in 20..30 {
        bench.queue(user, 16, NOW);
    }
    let mut last = [0; 32];
    let mut count = bench.burst(NOW);
    let _ = bench.until(NOW);
    while let Decision::Item((request, grant)) = bench.part.get(&view(NOW, true)) {
        assert!(request.id > last[request.owner as usize]);
        last[request.owner as usize] = request.id;
        bench.part.stop(&grant, request.cost(), NOW);
        count += 1;
    }
    assert_eq!((count, bench.part.len()), (110, 0));
    assert_eq!(bench.gate(1).usage().requests, 100);
}

/// Verifies that a refused request returns its tokens, and that the front has them at once.
#[test]
fn a_refused_request_gives_back() {
    let mut bench = QbmBench::new();
    bench.rate(1, MIB, 1, NOW);
    let class = bench.class(1, NOW);
    let requests: Vec<_> = (0..3).map(|_| bench.queue(1, 256, NOW)).collect();
    assert!(bench.get(NOW).is_some());
    let balance = bench.gate(1).balance(NOW);
    assert!(bench.until(NOW) > NOW);
    bench.part.refund(class, requests[0].cost(), NOW);
    assert_eq!(bench.get(NOW), Some(requests[1]));
    assert_eq!(bench.gate(1).balance(NOW), balance);
    assert!(bench.until(NOW) > NOW);
}

/// Verifies that a removed front returns its tokens.
#[test]
fn a_front_that_leaves_gives_back() {
    let mut bench = QbmBench::slow(0);
    let class = bench.class(1, NOW);
    let mut places = Vec::new();
    for pages in [512, 2048, 2048, 1] {
        let mut request = bench.request(1, pages, NOW);
        places.push(request.register());
        bench.part.enqueue(request, class, NOW).unwrap();
    }
    assert!(bench.get(NOW).is_some());
    let balance = bench.gate(1).balance(NOW);
    let until = bench.until(NOW);
    // A new front of the same cost takes over the tokens.
    assert!(bench.part.dequeue(class, &places[1], NOW).is_some());
    assert_eq!(
        (bench.until(NOW), bench.gate(1).balance(NOW)),
        (until, balance)
    );
    // A new front of another cost needs fewer tokens.
    assert!(bench.part.dequeue(class, &places[2], NOW).is_some());
    assert_eq!(bench.gate(1).balance(NOW), balance + 2047 * PAGE as i64);
    assert!(bench.until(NOW) < until);
    assert!(bench.part.dequeue(class, &places[2], NOW).is_none());
    assert!(bench.part.dequeue(class, &places[3], NOW).is_some());
    assert_eq!(bench.gate(1).balance(NOW), balance + 2048 * PAGE as i64);
    assert!(bench.part.is_empty());
    // Only dispatched requests are counted.
    assert_eq!(bench.gate(1).usage().requests, 1);
}
