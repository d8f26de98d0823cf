// SPDX-License-Identifier: GPL-2.0-only

//! Counters that parts share: tallies from several threads. Racing claims are tested beside the
//! code, where they can be slowed down.

use nrs_sched::{
    policy::fairshare::totals::{SharedTotals, TotalClaim, TotalView},
    rng::Rng,
};
use std::{sync::Barrier, thread};

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
            tally.add(&counters, i64::from(cost));
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
                tally.add(&counters, 1 + i64::from(rng.next_u32() % 50));
                tally.upkeep(&counters, id);
                assert_eq!(tally.elsewhere(&counters), 0);
            }
            tally.close(&counters);
        }
    });
    assert_unused(&counters, 1);
}
