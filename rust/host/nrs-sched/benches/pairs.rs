// SPDX-License-Identifier: GPL-2.0-only

//! Two partitions with the same classes: time of a decision while one of them decides, and while
//! both do, each in its own thread.
//!
//! Rounds are short, and the fastest one counts: no other task ran on either processor during it.

use nrs_sched::{
    backlog::{Backlog, Case},
    policy::{fairshare::params::Select, Kind},
};
use std::{
    hint,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// Decisions of each thread in a round.
const DECISIONS: u32 = 5_000;

/// Number of rounds.
const ROUNDS: u32 = 600;

/// Makes `count` decisions on each of `backlogs` concurrently; returns the time of the slowest.
fn decide(backlogs: &mut [Backlog], count: u32) -> Duration {
    let (ready, all) = (AtomicUsize::new(0), backlogs.len());
    thread::scope(|scope| {
        let threads: Vec<_> = backlogs
            .iter_mut()
            .map(|backlog| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.fetch_add(1, SeqCst);
                    while ready.load(SeqCst) < all {
                        hint::spin_loop();
                    }
                    let start = Instant::now();
                    (0..count).for_each(|_| backlog.step());
                    start.elapsed()
                })
            })
            .collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.max().unwrap_or_default()
    })
}

fn main() {
    // Tests only check that it runs.
    let test = std::env::args().any(|argument| argument == "--test");
    let (rounds, decisions) = if test {
        (1, 1_000)
    } else {
        (ROUNDS, DECISIONS)
    };
    let fair = Case::select("fairshare", Select::Deadline);
    let cases = [
        fair,
        fair.levels(2).named("fairshare2"),
        fair.levels(3).named("fairshare3"),
        Case::new("tbf", Kind::Tbf),
    ];
    for case in cases {
        for classes in [2, 64, 1_000] {
            let mut pair = Backlog::pair(&case, classes);
            let mut best = [Duration::MAX; 2];
            for _ in 0..rounds {
                for (best, threads) in best.iter_mut().zip([1, 2]) {
                    *best = decide(&mut pair[..threads], decisions).min(*best);
                }
            }
            let [one, two] = best.map(|time| time.as_secs_f64() * 1e9 / f64::from(decisions));
            println!(
                "{} {classes}: {one:.0} ns, two threads {two:.0} ns, {:.2} times one",
                case.name,
                2.0 * one / two
            );
        }
    }
}
