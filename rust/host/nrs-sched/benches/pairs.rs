// SPDX-License-Identifier: GPL-2.0-only

//! Two partitions with the same classes: processor time of a decision while one of them decides, and while both do, each
//! in a thread of its own.

use nrs_sched::{
    crowd::{Case, Crowd},
    policy::{fairshare::params::Select, Kind},
};
use std::{fs, sync::Barrier, thread};

/// Decisions of each thread in a round.
const DECISIONS: u32 = 200_000;

/// Rounds, of which the fastest counts.
const ROUNDS: u32 = 15;

/// Processor time that this thread has used, ns.
fn used() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("proc");
    let word = text.split_whitespace().next();
    word.and_then(|word| word.parse().ok()).expect("a number")
}

/// Has all of `crowds` decide at a time; nanoseconds of a decision.
fn decide(crowds: &mut [Crowd], count: u32) -> f64 {
    let barrier = Barrier::new(crowds.len());
    let sum: u64 = thread::scope(|scope| {
        let threads: Vec<_> = crowds
            .iter_mut()
            .map(|crowd| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = used();
                    (0..count).for_each(|_| crowd.step());
                    used() - start
                })
            })
            .collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.sum()
    });
    sum as f64 / f64::from(count) / crowds.len() as f64
}

fn main() {
    // Tests only look whether it runs.
    let test = std::env::args().any(|argument| argument == "--test");
    let (rounds, decisions) = if test { (1, 1000) } else { (ROUNDS, DECISIONS) };
    let fair = Case::select("fairshare", Select::Deadline);
    let cases = [
        fair,
        fair.levels(3).named("fairshare3"),
        Case::new("tbf", Kind::Tbf),
    ];
    for case in cases {
        for classes in [2, 64, 1_000] {
            let mut pair = Crowd::pair(&case, classes);
            let mut best = [f64::INFINITY; 2];
            for _ in 0..rounds {
                for (best, count) in best.iter_mut().zip([1, 2]) {
                    *best = best.min(decide(&mut pair[..count], decisions));
                }
            }
            let [one, two] = best;
            let times = 2.0 * one / two;
            println!(
                "{} {classes}: {one:.0} ns, two threads {two:.0} ns, {times:.2} times one",
                case.name
            );
        }
    }
}
