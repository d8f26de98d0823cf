// SPDX-License-Identifier: GPL-2.0-only

//! Counters that parts share: comparison with a model, and tallies from several threads. Racing
//! claims are tested beside the code, where they can be slowed down.

use nrs_sched::{
    policy::fairshare::totals::{SharedTotals, TotalClaim, TotalView},
    rng::Rng,
};
use proptest::prelude::*;
use std::{collections::HashMap, sync::Barrier, thread};

/// Number of threads of a test; more than processors, so that threads are preempted.
const THREADS: usize = 6;

/// Returns an id with tag `tag` in block `block`.
const fn id(tag: u64, block: u64) -> u64 {
    (tag << 16) | block
}

/// Runs `work` in all threads concurrently, each with its number.
fn threads<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.expect("no panic")).collect()
    })
}

/// Asserts that the `blocks` blocks are unused: 8 new ids have room in each block.
fn assert_unused(counters: &SharedTotals, blocks: u64) {
    let others: Vec<TotalClaim> = (0..blocks)
        .flat_map(|block| (1 << 40..(1 << 40) + 8).map(move |tag| id(tag, block)))
        .map(|id| counters.claim(id).expect("room"))
        .collect();
    for claim in others {
        counters.release(claim);
    }
}

#[derive(Clone, Debug)]
enum CounterOp {
    Claim(u64, u64),
    Release(usize),
    Add(usize, i64),
    Recheck(usize),
}

fn op() -> impl Strategy<Value = CounterOp> {
    prop_oneof![
        4 => (1..=6u64, 0..2u64).prop_map(|(tag, block)| CounterOp::Claim(tag, block)),
        1 => (7..=12u64, 0..2u64).prop_map(|(tag, block)| CounterOp::Claim(tag, block)),
        3 => any::<usize>().prop_map(CounterOp::Release),
        4 => (any::<usize>(), -100..1000i64).prop_map(|(at, cost)| CounterOp::Add(at, cost)),
        1 => any::<usize>().prop_map(CounterOp::Recheck),
    ]
}

proptest! {
    /// Compares counters with a map: an id has one counter while it has users, with the sum of all
    /// additions. A claim fails only if 8 other ids of the block have users.
    #[test]
    fn like_a_map(ops in prop::collection::vec(op(), 1..400)) {
        let counters = SharedTotals::new(8).expect("memory");
        let mut claims: Vec<(u64, TotalClaim)> = Vec::new();
        let mut sums: HashMap<u64, (TotalClaim, u64, usize)> = HashMap::new();
        for op in ops {
            match op {
                CounterOp::Claim(tag, block) => {
                    let id = id(tag, block);
                    let there = sums.keys().filter(|other| *other & 0xffff == block).count();
                    match counters.claim(id) {
                        Some(claim) => {
                            let total = counters.total(&claim);
                            let sum = sums.entry(id).or_insert((claim, total, 0));
                            prop_assert_eq!(sum.0, claim);
                            sum.2 += 1;
                            claims.push((id, claim));
                        }
                        None => prop_assert!(there == 8 && !sums.contains_key(&id)),
                    }
                }
                CounterOp::Release(at) if !claims.is_empty() => {
                    let (id, claim) = claims.swap_remove(at % claims.len());
                    counters.release(claim);
                    let sum = sums.get_mut(&id).expect("it has users");
                    sum.2 -= 1;
                    if sum.2 == 0 {
                        sums.remove(&id);
                    }
                }
                CounterOp::Add(at, cost) if !claims.is_empty() => {
                    let (id, claim) = claims[at % claims.len()];
                    counters.add(&claim, cost);
                    let sum = sums.get_mut(&id).expect("it has users");
                    sum.1 = sum.1.wrapping_add(cost as u64);
                }
                CounterOp::Recheck(at) if !claims.is_empty() => {
                    let (id, claim) = claims[at % claims.len()];
                    prop_assert_eq!(counters.recheck(&claim, id), None);
                }
                _ => {}
            }
            for (claim, total, _) in sums.values() {
                prop_assert_eq!(counters.total(claim), *total);
            }
        }
        for (_, claim) in claims {
            counters.release(claim);
        }
        assert_unused(&counters, 2);
    }
}

/// Checks that each tally reports exactly the service of the other tallies, while all serve
/// concurrently.
#[test]
fn tallies_are_exact_from_many_threads() {
    let counters = SharedTotals::new(8).expect("memory");
    let barrier = Barrier::new(THREADS);
    let told = threads(|thread| {
        let mut rng = Rng::new(thread as u64);
        let mut tally = TotalView::default();
        let (mut served, mut told) = (0u64, 0u64);
        tally.open(&counters, 1234);
        barrier.wait();
        tally.upkeep(&counters, 1234);
        barrier.wait();
        for _ in 0..50_000 {
            let cost = rng.next_u32() % 100;
            tally.note(&counters, i64::from(cost));
            served += u64::from(cost);
            if cost < 30 {
                told += tally.elsewhere(&counters);
            }
        }
        barrier.wait();
        told += tally.elsewhere(&counters);
        assert_eq!(tally.elsewhere(&counters), 0);
        tally.close(&counters);
        (served, told)
    });
    let all: u64 = told.iter().map(|(served, _)| served).sum();
    for (served, told) in told {
        assert_eq!(told, all - served);
    }
    assert_unused(&counters, 2);
}

/// Checks that a reused counter never reports the service of its previous ids, while ids are
/// claimed and released.
#[test]
fn strangers_do_not_mix() {
    let counters = SharedTotals::new(4).expect("memory");
    threads(|thread| {
        // All threads use one block. Each has ids of its own, so no other thread ever serves them.
        let mut rng = Rng::new(thread as u64);
        let mut tally = TotalView::default();
        for round in 0..20_000 {
            let id = id(1 + thread as u64 + 10 * (round % 3), 0);
            assert!(tally.open(&counters, id));
            for _ in 0..rng.next_u32() % 4 {
                tally.note(&counters, 1 + i64::from(rng.next_u32() % 50));
                tally.upkeep(&counters, id);
                assert_eq!(tally.elsewhere(&counters), 0);
            }
            tally.close(&counters);
        }
    });
    assert_unused(&counters, 1);
}
