// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::{
    collections::VecDeque,
    sync::{atomic::AtomicBool, Barrier},
    thread,
    vec::Vec,
};

/// What a visitor sees, oldest first.
fn seen(cohorts: &Cohorts) -> Vec<Cohort> {
    let mut seen = Vec::new();
    cohorts.visit(|cohort| {
        seen.push(cohort);
        None
    });
    seen.sort_by_key(|cohort| cohort.sent);
    seen
}

/// Gives all cohorts that `which` chooses the `deadline`.
fn extend(cohorts: &Cohorts, deadline: u64, which: impl Fn(&Cohort) -> bool) {
    cohorts.visit(|cohort| which(&cohort).then_some(deadline));
}

fn new() -> Cohorts {
    Cohorts::new().expect("memory")
}

const fn cohort(sent: u64, last: u64, deadline: u64, extended: bool, count: u32) -> Cohort {
    Cohort {
        sent,
        last,
        deadline,
        extended,
        count,
    }
}

/// A millisecond in which a cohort and an old cohort begin, past the lower half of an instant.
const T: u64 = 5 << 32;

#[test]
fn nothing() {
    let cohorts = new();
    assert_eq!(
        (cohorts.len(), cohorts.next(), cohorts.oldest()),
        (0, None, None)
    );
    assert_eq!(cohorts.enter(T, 0), Token::NONE);
    cohorts.leave(Token::NONE);
    // Not there.
    cohorts.leave(Token::at(7));
    assert_eq!((cohorts.len(), seen(&cohorts)), (0, vec![]));
}

#[test]
fn tokens() {
    for (at, now, elapsed) in [
        (T, T, 0),
        (T + 5, T + 17, 12),
        // The lower half of the instant begins again.
        (T - 5, T + 5, 10),
        // Backwards.
        (T + 5, T, 0),
        (T - 1, T, 2),
    ] {
        assert_eq!(Token::at(at).elapsed(now), elapsed);
        assert!(!Token::at(at).is_none());
    }
    assert_eq!(Token::NONE.elapsed(T + 90), 0);
    assert_eq!(Token::at(T + 5).sent(), 5);
}

#[test]
fn the_latest_deadline_of_a_cohort() {
    let cohorts = new();
    let a = cohorts.enter(T, 10_000);
    let b = cohorts.enter(T + 200, 5000);
    assert_eq!(seen(&cohorts), [cohort(T, T + 255, T + 10_000, false, 2)]);
    let c = cohorts.enter(T + 255, 20_000);
    assert_eq!(seen(&cohorts), [cohort(T, T + 255, T + 20_255, false, 3)]);
    let d = cohorts.enter(T + 256, 1000);
    assert_eq!(cohorts.next(), Some(T + 1256));
    assert_eq!((cohorts.oldest(), cohorts.len()), (Some(T), 4));
    for token in [a, b, c] {
        cohorts.leave(token);
    }
    assert_eq!(
        seen(&cohorts),
        [cohort(T + 256, T + 511, T + 1256, false, 1)]
    );
    // An empty cohort keeps its deadline, unless another one is later.
    cohorts.leave(d);
    assert_eq!((cohorts.next(), cohorts.len()), (None, 0));
    let e = cohorts.enter(T + 300, 100);
    assert_eq!(cohorts.next(), Some(T + 1256));
    let f = cohorts.enter(T + 300, 30_000);
    assert_eq!(cohorts.next(), Some(T + 30_300));
    cohorts.leave(e);
    cohorts.leave(f);
    assert_eq!((cohorts.next(), cohorts.len()), (None, 0));
}

#[test]
fn deadlines_move() {
    let terms = Terms::default();
    let cohorts = new();
    cohorts.enter(T, 17_500);
    cohorts.enter(T + 1000, 17_500);
    let [first, second] = seen(&cohorts)[..] else {
        panic!("two cohorts");
    };
    // A completion of the same quarter second is no sign of life.
    assert_eq!(first.since(&terms), T + 255);
    extend(&cohorts, T + 42_500, |cohort| cohort.sent == T);
    assert_eq!(
        seen(&cohorts),
        [cohort(T, T + 255, T + 42_500, true, 1), second]
    );
    assert_eq!(seen(&cohorts)[0].since(&terms), T + 12_500);
    assert_eq!(cohorts.next(), Some(second.deadline));
    // Passed: it is still there, but nobody asks for it.
    extend(&cohorts, u64::MAX, |cohort| cohort.sent != T);
    assert_eq!(seen(&cohorts)[1].deadline, u64::MAX);
    assert_eq!((cohorts.next(), cohorts.len()), (Some(T + 42_500), 2));
    // Until there is another member.
    cohorts.enter(T + 1001, 5000);
    assert_eq!(seen(&cohorts)[1].deadline, T + 6001);
    extend(&cohorts, u64::MAX, |_| true);
    assert_eq!((cohorts.next(), cohorts.len()), (None, 3));
}

/// What is too old moves on with its deadline, and leaves from wherever it is.
#[test]
fn older_and_older() {
    let cohorts = new();
    let first = cohorts.enter(T + 10, 3_000_000);
    let second = cohorts.enter(T + 300, 3_000_100);
    assert_eq!(seen(&cohorts).len(), 2);
    // Their places are wanted.
    let young = 256 * 256;
    let third = cohorts.enter(T + young, 5000);
    let fourth = cohorts.enter(T + young + 256, 5000);
    assert_eq!(
        seen(&cohorts),
        [
            cohort(T, T + 4095, T + 3_000_400, false, 2),
            cohort(T + young, T + young + 255, T + young + 5000, false, 1),
            cohort(T + young + 256, T + young + 511, T + young + 5256, false, 1),
        ]
    );
    // And again.
    let old = 256 * 4096;
    let fifth = cohorts.enter(T + old, 5000);
    let sixth = cohorts.enter(T + old + young, 5000);
    let all = seen(&cohorts);
    assert_eq!(
        all[0],
        cohort(T, T + 4095, T + 3_000_400, false, 2),
        "elders"
    );
    assert_eq!((cohorts.len(), cohorts.oldest()), (6, Some(T)));
    for (token, left) in [
        (second, 5),
        (fifth, 4),
        (first, 3),
        (third, 2),
        (sixth, 1),
        (fourth, 0),
    ] {
        cohorts.leave(token);
        assert_eq!(cohorts.len(), left);
    }
    assert_eq!(seen(&cohorts), []);
}

/// Elders expire with the earliest of their deadlines.
#[test]
fn elders() {
    let cohorts = new();
    let old = 256 * 4096;
    let enter = |at, timeout| cohorts.enter(at, timeout);
    enter(T, 4_000_000);
    // Of the same places, some rounds later: each pushes the others on.
    enter(T + old, 1_000_000);
    enter(T + 2 * old, 5000);
    let elders = seen(&cohorts)[0];
    assert_eq!(elders, cohort(T, T + 4095, T + 4_000_000, false, 1));
    enter(T + 3 * old, 5000);
    let elders = seen(&cohorts)[0];
    assert_eq!(
        elders,
        cohort(T, T + old + 4095, T + old + 1_000_000, false, 2)
    );
    assert_eq!(cohorts.len(), 4);
    extend(&cohorts, T + 9_000_000, |cohort| cohort.sent == T);
    assert_eq!(
        seen(&cohorts)[0],
        cohort(T, T + old + 4095, T + 9_000_000, true, 2)
    );
    extend(&cohorts, u64::MAX, |cohort| cohort.sent == T);
    assert_eq!(seen(&cohorts)[0].deadline, u64::MAX);
    // One that has not expired is looked at.
    enter(T + 4 * old, 5000);
    let elders = seen(&cohorts)[0];
    assert_eq!((elders.count, elders.deadline), (3, T + 2 * old + 5000));
}

/// A clock that is behind, and one that is far ahead.
#[test]
fn clocks() {
    let cohorts = new();
    let young = 256 * 256;
    let a = cohorts.enter(T + young, 5000);
    // Its place has been taken by a later one.
    let b = cohorts.enter(T, 5000);
    assert_eq!(
        seen(&cohorts),
        [
            cohort(T, T + 4095, T + 5000, false, 1),
            cohort(T + young, T + young + 255, T + young + 5000, false, 1),
        ]
    );
    // A month later, and three.
    let month = 30 * 86_400_000;
    let c = cohorts.enter(T + month, 5000);
    assert_eq!(cohorts.len(), 3);
    let d = cohorts.enter(T + 3 * month, 7000);
    let e = cohorts.enter(T + 3 * month + 1, 7000);
    assert_eq!(cohorts.len(), 5);
    for token in [a, b, c, d, e] {
        cohorts.leave(token);
    }
    assert_eq!(seen(&cohorts), []);
}

/// The first instants of a clock, the last ones, and timeouts that are too long for a word.
#[test]
fn ends_of_time() {
    for (at, timeout, deadline) in [
        (0, 5000, 5000),
        (1, u32::MAX, u64::from(LEFT_MAX)),
        (u64::from(u32::MAX), 5000, u64::from(u32::MAX) + 5000 - 1),
        (u64::MAX, 5000, u64::MAX),
    ] {
        let cohorts = new();
        let token = cohorts.enter(at, timeout);
        assert_eq!(seen(&cohorts)[0].deadline, deadline, "{at}");
        assert_eq!(cohorts.len(), 1);
        cohorts.leave(token);
        assert_eq!(cohorts.len(), 0);
    }
}

/// More requests than a word can count.
#[test]
fn crowds() {
    let cohorts = new();
    let many = (1 << 21) + 5;
    for _ in 0..many {
        cohorts.enter(T, 5000);
    }
    assert_eq!(cohorts.len(), many);
    for _ in 0..many {
        cohorts.leave(Token::at(T));
    }
    assert_eq!(cohorts.len(), 0);
}

/// Threads enter and leave while time passes and another one looks: whoever is there is seen, and in the end
/// nobody is.
#[test]
fn many_threads() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 8000;

    /// Enters and leaves, and returns what is still there.
    fn work(cohorts: &Cohorts, thread: u64, stride: u64) -> VecDeque<Token> {
        let mut held = VecDeque::new();
        for round in 0..ROUNDS {
            held.push_back(cohorts.enter(T + round * stride + thread, 20_000));
            if round % 64 == 0 {
                assert!(cohorts.len() as usize >= held.len());
                assert!(cohorts.oldest().is_some_and(|sent| sent >= T));
            }
            if held.len() as u64 > 1 + (round % 300) {
                held.drain(..2).for_each(|token| cohorts.leave(token));
            }
        }
        held
    }

    // From all in a few cohorts to all places of a ring in a moment.
    for stride in [1, 97, 4099] {
        let cohorts = new();
        let ready = Barrier::new(THREADS as usize + 1);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let start = |thread| {
                let (cohorts, ready) = (&cohorts, &ready);
                scope.spawn(move || {
                    ready.wait();
                    work(cohorts, thread, stride)
                })
            };
            let workers: Vec<_> = (0..THREADS).map(start).collect();
            let looker = scope.spawn(|| {
                ready.wait();
                for look in 0.. {
                    cohorts.visit(|cohort| {
                        assert!(cohort.count > 0 && cohort.sent >= T);
                        assert!(cohort.last >= cohort.sent && cohort.deadline > T);
                        (look % 3 == 0).then_some(cohort.deadline.saturating_add(50))
                    });
                    if done.load(SeqCst) {
                        return;
                    }
                }
            });
            let ended = workers.into_iter().map(|worker| worker.join());
            let held: Vec<_> = ended.flat_map(|held| held.expect("no panic")).collect();
            done.store(true, SeqCst);
            looker.join().expect("no panic");
            assert_eq!(cohorts.len() as usize, held.len());
            held.into_iter().for_each(|token| cohorts.leave(token));
        });
        assert_eq!((cohorts.len(), cohorts.next()), (0, None), "{stride}");
    }
}
