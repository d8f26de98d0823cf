// SPDX-License-Identifier: GPL-2.0-only

//! Requests that pass without the lock of their partition.

use nrs_sched::{
    arena::{config_of, part_of, rows, Request},
    attr::Priority,
    threads::Threads,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

/// Returns the number of dispatched requests of each class that has any, and their pages, in
/// ascending order.
fn served(threads: &Threads) -> Vec<(u64, u64)> {
    threads.with(|machine| {
        let primary = machine.head(Priority::Regular).primary_mut();
        let rows = rows(primary.expect("fairshare"));
        let leaves = rows.iter().filter(|row| row.leaf);
        let counts = leaves.map(|row| row.stats.counts);
        let mut served: Vec<_> = counts
            .map(|counts| (counts.dispatched, counts.cost_pages))
            .filter(|(dispatched, _)| *dispatched > 0)
            .collect();
        served.sort_unstable();
        served
    })
}

/// Checks that each passed request is counted once. Two threads pass requests of two users, most of
/// them without the lock, while a third thread reads the head. The reads begin once a request has
/// passed without the lock. No thread passes its second half before one of the reads.
#[test]
fn what_passed_is_counted_once() {
    const EACH: u64 = 50_000;
    let threads = Threads::new(&config_of("fairshare uid_fair"), 64, 2).expect("memory");
    let [began, looked, done] = [const { AtomicBool::new(false) }; 3];
    let unlocked: u64 = thread::scope(|scope| {
        let passing: Vec<_> = (0..2u32)
            .map(|cpu| {
                let (threads, began, looked) = (&threads, &began, &looked);
                scope.spawn(move || {
                    let mut unlocked = 0;
                    for id in 0..EACH {
                        while id == EACH / 2 && began.load(Relaxed) && !looked.load(Relaxed) {
                            thread::yield_now();
                        }
                        // Each user on both CPUs.
                        let owner = 1 + (cpu + (id % 2) as u32) % 2;
                        let mut request = Request::new(owner, id, owner, 0);
                        let found = threads.pass(cpu, &mut request);
                        if found.slot {
                            unlocked += 1;
                            began.store(true, Relaxed);
                        }
                        let sent = match found.slot {
                            true => Some(request),
                            false => threads.arrive(cpu, request),
                        };
                        assert!(threads.end(cpu, &sent.expect("it passes")).is_empty());
                    }
                    unlocked
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Relaxed) {
                if began.load(Relaxed) {
                    served(&threads);
                    looked.store(true, Relaxed);
                }
                thread::yield_now();
            }
        });
        let unlocked = passing
            .into_iter()
            .map(|thread| thread.join().expect("done"));
        let unlocked = unlocked.sum();
        done.store(true, Relaxed);
        unlocked
    });
    println!("{unlocked} of {} without the lock", 2 * EACH);
    assert!(unlocked > 0 && looked.load(Relaxed));
    assert_eq!(served(&threads), [(EACH, EACH), (EACH, 2 * EACH)]);
    assert_eq!(threads.slot_pool.used().active(), 0);
}

/// Checks that 10,000 passed requests of a user leave no debt. That user and another one are then
/// served in turn, as if the requests had passed with the lock.
#[test]
fn a_burst_that_passed_is_no_debt() {
    let order = |locked: bool| {
        let threads = Threads::new(&config_of("fairshare uid_fair"), 1, 1).expect("memory");
        for id in 0..10_000 {
            if locked {
                // Reading the rows closes the open row.
                served(&threads);
            }
            let sent = threads
                .arrive(0, Request::new(1, id, 1, 0))
                .expect("passed");
            threads.end(0, &sent);
        }
        assert_eq!(served(&threads), [(10_000, 10_000)]);
        let mut sent = threads.arrive(0, Request::new(3, 0, 1, 0));
        for id in 0..100 {
            for owner in [1, 2] {
                assert!(threads.arrive(0, Request::new(owner, id, 1, 0)).is_none());
            }
        }
        let mut order = Vec::new();
        while let Some(request) = sent {
            sent = threads.end(0, &request).pop();
            order.extend(sent.as_ref().map(|request| request.owner));
        }
        order
    };
    let unlocked = order(false);
    assert_eq!(unlocked.len(), 200);
    for (count, owners) in (1..).zip(unlocked.chunks(2)) {
        assert_ne!(owners[0], owners[1], "turn {count}");
    }
    assert_eq!(unlocked, order(true));
}

/// Checks that requests without a submitter pass without the lock only while their policy has a
/// single class.
#[test]
fn one_class_needs_no_submitter() {
    let threads = Threads::new(&config_of("fifo"), 64, 1).expect("memory");
    let pass = |id| {
        let mut request = Request::new(0, id, 1, 0);
        let unlocked = threads.pass(0, &mut request).slot;
        let sent = match unlocked {
            true => Some(request),
            false => threads.arrive_locked(0, request),
        };
        threads.end(0, &sent.expect("it passes"));
        unlocked
    };
    assert_eq!([0, 1, 2].map(pass), [false, true, true]);
    threads.with(|machine| {
        let part = part_of("fairshare uid_fair");
        let head = machine.head(Priority::Regular);
        assert!(head.install(part, config_of("fairshare uid_fair")).is_ok());
    });
    assert_eq!([3, 4, 5].map(pass), [false; 3]);
    assert_eq!(served(&threads), [(3, 3)]);
}

/// Checks that a request never passes without the lock if its policy may refuse requests.
#[test]
fn a_policy_that_may_refuse_sees_each_request() {
    let threads = Threads::new(&config_of("tbf uid"), 64, 1).expect("memory");
    for id in 0..100 {
        let mut request = Request::new(1, id, 1, 0);
        assert!(!threads.pass(0, &mut request).slot);
        if let Some(sent) = threads.arrive(0, request) {
            threads.end(0, &sent);
        }
    }
}
