// SPDX-License-Identifier: GPL-2.0-only

//! Rates of classes after changes of their gates.

use super::*;

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
        let _ = Qbm::next(&mut bench.part, &view(end, false));
    }
    refresh(&mut bench, end);
    let order: Vec<u32> = (0..200)
        .map_while(|_| bench.get(end))
        .map(|request| request.owner)
        .collect();
    assert_eq!(order.len(), 200);
    assert_eq!((order.first(), order.last()), (Some(&170), Some(&30)));
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
