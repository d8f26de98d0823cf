// SPDX-License-Identifier: GPL-2.0-only

//! Concurrent use of one gate by several CPUs.

use super::*;
use std::{
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};

/// Verifies that two threads together take at most the credit, and each byte once.
#[test]
fn two_threads_on_one_gate() {
    let rate = 1 << 30;
    let gates = gates(rate);
    let gate = gate(&gates);
    let sizes = [4096u64, 12_288];
    let mut now = NOW;
    let mut total = [0u64; 2];
    let mut owed = 0;
    for _ in 0..50 {
        let went: Vec<u64> = thread::scope(|scope| {
            let threads = sizes.map(|size| {
                scope.spawn(move || {
                    let mut went = 0;
                    while gate.take(write(size), now).is_ok() {
                        went += size;
                        let (ticket, _) = gate.reserve(write(size), now);
                        gate.cancel(&ticket);
                    }
                    went
                })
            });
            threads.map(|thread| thread.join().unwrap()).into()
        });
        for (total, went) in total.iter_mut().zip(&went) {
            *total += went;
        }
        owed += went.iter().sum::<u64>();
        let came = comes(rate, now - NOW + 40 * MS);
        // One thread may have been refused while the other had booked.
        assert!(owed <= came && owed + 3 * 12_288 >= came, "{owed} {came}");
        now += 10 * MS;
    }
    assert_eq!(gate.usage().written, total.iter().sum::<u64>());
}

/// Verifies that readers never see a mixture of two inflows while the rate changes continually.
#[test]
fn a_course_is_read_whole() {
    let gates = gates(1000);
    let gate = gate(&gates);
    let (rates, steps) = ([1000u64, 1 << 39], 20_000u64);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Relaxed) {
                    let course = gate.course();
                    let rate = rates.into_iter().find(|&rate| {
                        let course_of = Inflow::new(rate, 0, 0);
                        (course_of.speed, course_of.pace) == (course.speed, course.pace)
                    });
                    assert!(rate.is_some(), "{course:?}");
                    // The two rates alternate every nanosecond, so the inflow follows from the
                    // start time.
                    let ns = course.start - NOW;
                    let want = comes(rates[1], 1) * ns.div_ceil(2).saturating_sub(1);
                    assert!(
                        course.base.abs_diff(want) <= comes(rates[1], 1) + ns,
                        "{course:?}"
                    );
                    assert!(course.start >= seen);
                    seen = course.start;
                }
            });
        }
        for step in 1..=steps {
            gate.set(rates[(step % 2) as usize], 0, NOW + step);
            let (ticket, _) = gate.reserve(write(512), NOW + step);
            gate.cancel(&ticket);
        }
        done.store(true, Relaxed);
    });
}

/// Verifies that the manager gets every announcement of concurrent threads.
#[test]
fn no_announcement_is_lost() {
    let gates = Gates::new(64, 1).unwrap();
    let places = gates.len();
    let told: Vec<AtomicBool> = (0..places).map(|_| AtomicBool::new(false)).collect();
    let look = || {
        let mut looks = 0;
        for place in gates.take_pending() {
            told[place as usize].store(false, SeqCst);
            looks += 1;
        }
        looks
    };
    let left = AtomicU32::new(3);
    thread::scope(|scope| {
        for seed in 1..=3 {
            let (gates, told, left) = (&gates, &told, &left);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..100_000 {
                    let place = rng.below(places.into()) as u32;
                    told[place as usize].store(true, SeqCst);
                    gates.announce(place);
                }
                left.fetch_sub(1, SeqCst);
            });
        }
        while left.load(SeqCst) > 0 {
            assert!(look() <= places, "a gate is in the list once");
        }
    });
    look();
    assert!(told.iter().all(|told| !told.load(SeqCst)) && !gates.has_pending());
    // Places are returned in the order of announcement; only the first announcement wakes the
    // worker.
    let wakes = [7, 3, 7, 9].map(|place| gates.announce(place));
    assert_eq!(wakes, [true, false, false, false]);
    assert!(gates.take_pending().eq([7, 3, 9]) && look() == 0);
}
