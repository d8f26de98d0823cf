// SPDX-License-Identifier: GPL-2.0-only

//! Cost of passing and ending a request, with one and two threads on the same partition. Reports
//! the CPU time, and the throughput of two threads relative to one thread for the same CPU time of
//! each.
//!
//! Each thread keeps `depth` requests in flight. With `locked`, each request takes the lock of the
//! partition, as it does if a policy may refuse the request.

use nrs_sched::{
    arena::Request,
    policy::{Config, Kind, Tunables},
    threads::Threads,
};
use std::{collections::VecDeque, fs, process::Command, sync::Barrier, thread};

/// Number of requests of one thread.
const REQUESTS: u64 = 2_000_000;

/// Number of measurements, of which the best one counts.
const ROUNDS: u32 = 5;

/// Returns the CPU time of this thread, ns.
fn cpu_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let first = text.split(' ').next();
    first.and_then(|word| word.parse().ok()).expect("a number")
}

/// Pins this thread to `cpu` with `taskset`.
fn pin(cpu: u32) {
    let link = fs::read_link("/proc/thread-self").expect("link");
    let thread = link
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    let list = cpu.to_string();
    let done = Command::new("taskset")
        .args(["-pc", &list, &thread])
        .output();
    assert!(done.is_ok_and(|done| done.status.success()), "taskset");
}

/// Passes requests with `depth` in flight on `cpu`; returns the CPU time, ns.
fn run(threads: &Threads, cpu: u32, depth: usize, locked: bool) -> u64 {
    let mut flight = VecDeque::with_capacity(depth);
    let begun = cpu_time();
    for id in 0..REQUESTS {
        let request = Request::new(cpu + 1, id, 1, 0);
        let sent = match locked {
            true => threads.arrive_locked(cpu, request),
            false => threads.arrive(cpu, request),
        };
        flight.push_back(sent.expect("passed"));
        if flight.len() == depth {
            let request = flight.pop_front().expect("one");
            assert!(threads.end(cpu, &request).is_empty());
        }
    }
    let time = cpu_time() - begun;
    for request in flight {
        threads.end(cpu, &request);
    }
    time
}

/// Returns the CPU time per request with `count` threads, ns, as the mean of all threads.
fn measure(config: &Config, count: u32, depth: usize, locked: bool) -> f64 {
    let round = || {
        let threads = Threads::new(config, 64, 2).expect("memory");
        let barrier = Barrier::new(count as usize);
        let times: u64 = thread::scope(|scope| {
            let start = |cpu| {
                let (threads, barrier) = (&threads, &barrier);
                scope.spawn(move || {
                    pin(cpu);
                    barrier.wait();
                    run(threads, cpu, depth, locked)
                })
            };
            let all: Vec<_> = (0..count).map(start).collect();
            all.into_iter()
                .map(|thread| thread.join().expect("done"))
                .sum()
        });
        times as f64 / f64::from(count) / REQUESTS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}

fn main() {
    println!("policy     depth  way       1 thread, ns  2 threads, ns  2 threads / 1");
    for (name, kind, argument) in [
        ("fifo", Kind::Fifo, None),
        ("fairshare", Kind::Fairshare, Some("uid_fair")),
    ] {
        let config = Config::parse(kind, argument, &Tunables::default()).expect("valid");
        for depth in [1, 8] {
            for (way, locked) in [("locked", true), ("unlocked", false)] {
                let [one, two] = [1, 2].map(|count| measure(&config, count, depth, locked));
                let times = 2.0 * one / two;
                println!("{name:<10} {depth:>5}  {way:<8} {one:>13.1} {two:>14.1} {times:>14.2}");
            }
        }
    }
}
