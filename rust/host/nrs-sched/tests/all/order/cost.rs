// SPDX-License-Identifier: GPL-2.0-only

//! Cost of ordering in visited nodes and steps, not in time.

use nrs_sched::{
    arena::Request,
    attr::Attrs,
    item::{ByteRange, Direction},
    mem::Need,
    order::{Forced, Order, OrderAction, OrderOutcome, RecordId, Relation},
    rng::Rng,
};

/// Maximum number of nodes per look-up, entry or removal, for each bit of the number of requests.
const PER_BIT: u64 = 16;

/// The order table without a policy: released requests start at once.
struct Table {
    order: Order<Request>,
    started: Vec<RecordId>,
    /// Record of each request.
    ids: Vec<RecordId>,
    /// Number of calls of `next`.
    steps: u64,
    /// Maximum number of nodes that one call has visited.
    most: u64,
}

impl Table {
    fn new() -> Self {
        Self {
            order: Order::new(1 << 20, 5).expect("memory"),
            started: Vec::new(),
            ids: Vec::new(),
            steps: 0,
            most: 0,
        }
    }

    /// Calls `f` and records the nodes that it visited.
    fn call<R>(&mut self, f: impl FnOnce(&mut Order<Request>) -> R) -> R {
        let before = self.order.visits();
        let result = f(&mut self.order);
        self.most = self.most.max(self.order.visits() - before);
        result
    }

    fn arrive(&mut self, range: ByteRange, direction: Direction, high: bool) {
        while !self.order.need().is_empty() {
            let spare = self.order.need().allocate().expect("memory");
            self.order.grow(spare);
        }
        let relation = Relation::overlap(0, &range, direction);
        match self.call(|order| order.enter(relation, high)) {
            OrderOutcome::Free(id) => {
                self.ids.push(id);
                self.start(id);
            }
            OrderOutcome::Blocked(id) => {
                self.ids.push(id);
                let request = Request {
                    id: self.ids.len() as u64 - 1,
                    range,
                    direction,
                    ..Request::default()
                };
                self.call(|order| order.block(id, request, Attrs::UNKNOWN, Forced::No));
            }
            OrderOutcome::Full => panic!("there is memory"),
        }
        self.act();
    }

    fn start(&mut self, id: RecordId) {
        self.started.push(id);
        assert!(self.order.running(id).is_none());
    }

    fn finish(&mut self, id: RecordId) {
        self.call(|order| order.finish(id));
        self.act();
    }

    fn act(&mut self) {
        while let Some(act) = self.call(Order::next) {
            self.steps += 1;
            match act {
                OrderAction::Release { id, item, .. } => {
                    assert_eq!(self.ids[item.id as usize], id);
                    self.start(id);
                }
                OrderAction::Again => {}
                OrderAction::Move { .. } | OrderAction::Force { .. } => panic!("nothing is queued"),
            }
        }
    }

    /// Checks the cost of `requests` requests with `predecessors` predecessors each, with `n` at a
    /// time.
    fn check(&self, name: &str, requests: u64, predecessors: u64, n: u64) {
        let bits = u64::from(n.ilog2()) + 1;
        let visits = self.order.visits() / requests;
        println!(
            "{name}: {visits} nodes and {:.2} steps for each request; most in one call {}",
            self.steps as f64 / requests as f64,
            self.most
        );
        assert!(visits <= PER_BIT * bits * (1 + predecessors), "{name}");
        // A call may take a few steps.
        assert!(self.most <= 8 * PER_BIT * bits, "{name}: {}", self.most);
    }
}

fn block(number: u64) -> ByteRange {
    ByteRange::new(0, number * 4096, 4096)
}

#[test]
fn a_chain_of_writes_to_one_block() {
    const N: u64 = 1 << 16;
    let mut table = Table::new();
    for _ in 0..N {
        table.arrive(block(7), Direction::Write, false);
    }
    assert_eq!(
        (table.started.len(), table.order.blocked()),
        (1, N as u32 - 1)
    );
    for i in 0..N as usize {
        assert_eq!(table.started.len(), i + 1);
        let id = table.ids[i];
        assert_eq!(table.started[i], id);
        table.finish(id);
    }
    table.check("chain", N, 1, N);
    assert!(table.steps <= 3 * N);
    assert_eq!(table.order.live(), 0);
}

/// Checks that the promotion of the last request of a long chain takes one step for each other
/// request.
#[test]
fn a_promotion_goes_through_a_chain_once() {
    const N: u64 = 1 << 16;
    let mut table = Table::new();
    for _ in 0..N - 1 {
        table.arrive(block(7), Direction::Write, false);
    }
    table.arrive(block(7), Direction::Write, true);
    table.check("promoted chain", N, 1, N);
    assert!(table.steps <= 3 * N);
    let (last, steps) = (table.ids[N as usize - 1], table.steps);
    table.order.promote(last);
    table.act();
    assert_eq!(table.steps, steps, "it is known");
    // Growing ranges: each precedes all later ones, and none covers the next.
    let mut table = Table::new();
    const GROWING: u64 = 2_000;
    for i in 1..=GROWING {
        table.arrive(
            ByteRange::new(0, 0, i * 4096),
            Direction::Write,
            i == GROWING,
        );
    }
    table.check("growing", GROWING, 1, GROWING);
}

#[test]
fn many_reads_before_one_write() {
    const N: u64 = 10_000;
    for (name, turn) in [("forwards", 0), ("backwards", 1), ("at random", 2)] {
        for high in [false, true] {
            let mut table = Table::new();
            let mut rng = Rng::new(2);
            for _ in 0..N {
                table.arrive(block(7), Direction::Read, false);
            }
            assert_eq!(table.started.len() as u64, N);
            table.arrive(block(7), Direction::Write, high);
            assert_eq!(table.order.blocked(), 1);
            let mut left: Vec<_> = (0..N as usize).collect();
            while !left.is_empty() {
                let at = match turn {
                    0 => 0,
                    1 => left.len() - 1,
                    _ => rng.below(left.len() as u64) as usize,
                };
                assert_eq!(table.order.blocked(), 1);
                let id = table.ids[left.remove(at)];
                table.finish(id);
            }
            assert_eq!((table.order.blocked(), table.order.live()), (0, 1));
            // The write has N predecessors, each read has none.
            table.check(name, N + 1, 1, N);
            assert!(table.steps <= 2 * N, "{}", table.steps);
        }
    }
}

#[test]
fn random_ranges() {
    const N: u64 = 1 << 14;
    for (name, places, blocks) in [
        ("sparse", 1 << 24, 16),
        ("dense", 1 << 16, 16),
        ("wide", 1 << 16, 1 << 12),
    ] {
        let mut table = Table::new();
        let mut rng = Rng::new(9);
        let (mut begun, mut ended) = (0u64, 0usize);
        // Number of concurrent requests.
        const HERE: u64 = 1 << 12;
        while begun < N || ended < table.started.len() {
            if begun < N && begun - (ended as u64) < HERE {
                let range =
                    ByteRange::new(0, rng.below(places) * 4096, (1 + rng.below(blocks)) * 4096);
                let direction = match rng.below(2) {
                    0 => Direction::Read,
                    _ => Direction::Write,
                };
                table.arrive(range, direction, rng.below(16) == 0);
                begun += 1;
            } else {
                let other = ended + rng.below((table.started.len() - ended) as u64) as usize;
                table.started.swap(ended, other);
                let id = table.started[ended];
                ended += 1;
                table.finish(id);
            }
        }
        assert_eq!((ended as u64, table.order.live()), (N, 0));
        table.check(name, N, 8, HERE);
    }
}

/// Checks that searches are given up in time when long old ranges overlap short new ranges that end
/// before the searched range.
#[test]
fn hostile_ranges() {
    const N: u64 = 1 << 14;
    let mut table = Table::new();
    let mut rng = Rng::new(5);
    for i in 0..N {
        let (start, length) = match i < N / 2 {
            true => (2 * i, 1 << 40),
            false => (2 * rng.below(N / 2) + 1, 1),
        };
        table.arrive(ByteRange::new(0, start, length), Direction::Read, false);
    }
    for start in [1 << 39, 1 << 38, 1 << 37] {
        table.arrive(ByteRange::new(0, start, 4096), Direction::Write, false);
    }
    for ended in 0..N as usize + 3 {
        let id = table.started[ended];
        table.finish(id);
    }
    table.check("hostile", N + 3, 3, N);
}
