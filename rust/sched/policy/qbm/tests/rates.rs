// SPDX-License-Identifier: GPL-2.0-only

//! Rates of classes after changes of their gates.

use super::*;
use crate::sched::rng::Rng;

/// Applies a change of the rate to waiting classes, and a change of the rank to ready classes,
/// after a refresh.
#[test]
fn refresh_follows_the_gates() {
    let mut bench = QbmBench::new();
    for user in 1..=200 {
        bench.rate(user, MIB, 2, NOW);
        bench.class(user, NOW);
    }
    for user in 1..=200 {
        bench.queue(user, 1024, NOW);
        bench.queue(user, 1024, NOW);
    }
    for _ in 0..200 {
        assert!(bench.get(NOW).is_some());
    }
    let slow = bench.until(NOW);
    assert!((slow - NOW).abs_diff(4 * SECOND) < 50 * MS);
    let refresh = |bench: &mut QbmBench, now| {
        let (mut from, mut rounds) = (Some(0), 0);
        while let Some(at) = from {
            from = bench.part.refresh(at, 64, now);
            rounds += 1;
        }
        assert_eq!(rounds, 4);
    };
    for user in 1..=200 {
        bench.gate(user).set(4 * MIB, 2, NOW);
    }
    assert_eq!(bench.until(NOW), slow);
    refresh(&mut bench, NOW);
    let fast = bench.until(NOW);
    assert!((fast - NOW).abs_diff(SECOND) < 50 * MS);
    // A lower rate: no request is dispatched early, even before the refresh.
    for user in 1..=200 {
        bench.gate(user).set(MIB, 2, NOW);
    }
    let mut now = fast;
    while now < slow - 50 * MS {
        now = bench.until(now);
    }
    assert!(now.abs_diff(slow) < 50 * MS, "{} {}", now, slow);
    // Ready classes are ordered by their current ranks.
    bench.gate(170).set(MIB, 0, slow);
    bench.gate(30).set(MIB, 3, slow);
    let end = slow + 10 * MS;
    for _ in 0..4 {
        let _ = bench.part.next(&view(end, false));
    }
    refresh(&mut bench, end);
    let order: Vec<u32> = (0..200)
        .map_while(|_| bench.get(end))
        .map(|request| request.owner)
        .collect();
    assert_eq!(order.len(), 200);
    assert_eq!((order.first(), order.last()), (Some(&170), Some(&30)));
}

/// Verifies the rates of clients backlogged on two partitions to 1 %, with late timers and requests
/// of any size.
#[test]
fn rates_hold_over_partitions() {
    let gates = gates(1024);
    let mut benches = [(); 2].map(|()| QbmBench::with(&tunables(), &gates));
    let rates = [32 << 10, MIB, 10 * MIB, 77_777_777, 200 * MIB];
    let mut rng = Rng::new(9);
    let size = |rng: &mut Rng, user: u32, part: usize| match (user, part) {
        (2, 0) => 1,
        (2, _) => 1024,
        _ => 1 + rng.below(32 << user) as u32 / 8,
    };
    for (user, rate) in (0u32..).zip(rates) {
        benches[0].rate(user, rate, (user % 4) as u8, NOW);
        for (part, bench) in benches.iter_mut().enumerate() {
            for _ in 0..3 {
                let pages = size(&mut rng, user, part);
                bench.queue(user, pages, NOW);
            }
        }
    }
    let mut now = NOW;
    let mut before = [0; 5];
    let (start, end) = (NOW + SECOND, NOW + 21 * SECOND);
    let mut due = [NOW; 2];
    while now < end {
        let part = usize::from(due[1] < due[0]);
        // Timers are late.
        now = now.max(due[part]) + rng.below(200_000);
        if now > start && before[4] == 0 {
            before = [0, 1, 2, 3, 4].map(|user| benches[0].gate(user).usage().bytes());
        }
        let bench = &mut benches[part];
        while let Some(request) = bench.get(now) {
            let pages = size(&mut rng, request.owner, part);
            bench.queue(request.owner, pages, now);
        }
        due[part] = bench.until(now);
    }
    for (user, rate) in (0u32..).zip(rates) {
        let went = benches[0].gate(user).usage().bytes() - before[user as usize];
        let want = rate * 20;
        let slack = want / 100 + 2 * 4096 * (1024u64).min(32 << user);
        assert!(went.abs_diff(want) <= slack, "{user}: {went} {want}");
    }
}

/// Counts the time spent waiting for the rate as withheld, and the time spent waiting for a slot
/// not.
#[test]
fn withheld_for_its_rate() {
    for slots_free in [true, false] {
        let mut bench = QbmBench::new();
        bench.rate(1, MIB, 2, NOW);
        bench.class(1, NOW);
        for _ in 0..4 {
            // The cost of each request is one second at the rate.
            bench.queue(1, 256, NOW);
        }
        let mut now = NOW;
        for n in 0u32..4 {
            let grant = loop {
                match bench.part.get(&view(now, false)) {
                    Decision::Item((_, grant)) => break grant,
                    Decision::Throttled { until } => now = until,
                    Decision::Empty => panic!("request {n} is lost"),
                }
            };
            if slots_free {
                assert!(grant.withheld.abs_diff(n * 1000) <= 60, "{n}: {grant:?}");
            } else {
                assert!(grant.withheld <= 5, "{n}: {grant:?}");
                // The rate rises, and the device is slow.
                bench.gate(1).set(1000 * MIB, 2, now);
                bench.part.refresh(0, 64, now);
                now += 5 * SECOND;
            }
        }
    }
}
