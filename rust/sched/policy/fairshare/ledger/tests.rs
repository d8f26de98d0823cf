// SPDX-License-Identifier: GPL-2.0-only

//! Windows against rates, percentiles against sorting, edges of buckets.

use super::*;
use crate::sched::rng::Rng;

#[test]
fn fits() {
    assert!(size_of::<Ledger>() <= 256, "{}", size_of::<Ledger>());
}

#[test]
fn windows_follow_the_rate() {
    let mut windows = Windows::new();
    assert_eq!((windows.second(5), windows.minute(5)), (0, 0));
    // 100 per ms for 200 s.
    let start = 12_345_678_901;
    let mut now = start;
    for step in 0..200_000u64 {
        windows.add(100, now);
        now += 1_000_000;
        let seconds = (step + 1).min(1000) * 100;
        if step % 997 == 0 && step > 2000 {
            assert!(windows.second(now).abs_diff(seconds) <= 300, "{step}");
        }
        if step % 997 == 0 && step > 120_000 {
            assert!(windows.minute(now).abs_diff(6_000_000) <= 500, "{step}");
        }
    }
    // It fades, and is gone after two lengths.
    let half = windows.second(now + NSEC_PER_SEC / 2);
    assert!((40_000..=60_000).contains(&half), "{half}");
    assert_eq!(windows.second(now + 2 * NSEC_PER_SEC), 0);
    assert!(windows.minute(now + 59 * NSEC_PER_SEC) > 0);
    assert_eq!(windows.minute(now + 120 * NSEC_PER_SEC), 0);
    // Time that runs back a little counts as now.
    windows.add(7, now - NSEC_PER_SEC);
    assert!(windows.second(now) > 90_000);
    assert!(windows.second(now - 2 * NSEC_PER_SEC) > 0);
}

#[test]
fn windows_of_parts_add_up() {
    let at = |second: u64| second * NSEC_PER_SEC;
    for (other, one, now, want) in [
        // The same cell, one behind, long ago, and the other way round.
        (at(100), at(100), at(100), 30),
        (at(99), at(100), at(100), 30),
        (at(100), at(99), at(100), 30),
        (at(50), at(100), at(100), 20),
        (at(100), at(50), at(100), 10),
        (at(99), at(100), at(100) + NSEC_PER_SEC / 2, 25),
    ] {
        let (mut a, mut b) = (Windows::new(), Windows::new());
        a.add(10, other);
        b.add(20, one);
        a.merge(&b);
        assert_eq!(a.second(now), want);
    }
    let mut most = Windows::new();
    most.add(u32::MAX, 0);
    most.add(u32::MAX, u64::MAX);
    most.merge(&most.clone());
    assert_eq!(most.second(u64::MAX), u64::from(u32::MAX));
    most.correct(i64::MIN, u64::MAX);
    most.correct(i64::MIN, u64::MAX);
    assert_eq!(most.second(u64::MAX), 0);
    most.correct(5, u64::MAX);
    assert_eq!(most.minute(u64::MAX), 5);
}

#[test]
fn buckets_of_waits() {
    for (ns, start, end) in [
        (0, 0, 1024),
        (1, 0, 1024),
        (1023, 0, 1024),
        (1024, 1024, 1536),
        (1535, 1024, 1536),
        (1536, 1536, 2048),
        (2047, 1536, 2048),
        ((1 << 36) - 1, 3 << 34, 1 << 36),
    ] {
        let bucket = Waits::bucket(ns);
        let got = (Waits::start(bucket), Waits::start(bucket + 1));
        assert_eq!(got, (start, end), "{ns}");
    }
    for ns in [1 << 36, u64::MAX] {
        assert_eq!(Waits::bucket(ns), BUCKETS - 1);
    }
    assert_eq!(Waits::start(BUCKETS - 1), 1 << 36);
}

/// Percentiles of `waits`, which were drawn from these.
fn check(waits: &Waits, mut exact: Vec<u64>) {
    exact.sort();
    for mille in [1, 500, 900, 990] {
        let got = waits.percentile(mille) as f64;
        // A hundredth of the rank and a quarter of the value.
        let at = |mille: f64| {
            let rank = exact.len() as f64 * mille / 1000.0;
            exact[(rank.max(0.0) as usize).min(exact.len() - 1)] as f64
        };
        let mille = f64::from(mille);
        let (low, high) = (at(mille - 10.0) * 0.79, at(mille + 10.0) * 1.26);
        assert!((low..=high).contains(&got), "{mille}: {got} {low} {high}");
    }
    let max = exact[exact.len() - 1];
    assert!((max..=max * 3 / 2).contains(&waits.max()));
}

#[test]
fn percentiles_are_near() {
    let mut rng = Rng::new(5);
    let (mut all, mut sum) = (Vec::new(), Waits::new());
    assert_eq!((sum.percentile(500), sum.max()), (0, 0));
    for (count, most) in [(1, 1 << 20), (1000, 1 << 24), (700_000, 1 << 30)] {
        let (mut waits, mut exact) = (Waits::new(), Vec::new());
        for _ in 0..count {
            let most = 1 + rng.below(most);
            let ns = 2000 + rng.below(most);
            waits.add(ns);
            exact.push(ns);
        }
        check(&waits, exact.clone());
        all.extend(exact);
        sum.merge(&waits);
        let (a, b) = (sum.percentile(990), sum.max());
        assert!(a <= b);
    }
    check(&sum, all);
    // The other way round, a rare one with a frequent one.
    let mut few = Waits::new();
    few.add(1 << 33);
    let before = sum.percentile(500);
    few.merge(&sum);
    assert_eq!(few.percentile(500), before);
    assert_eq!(few.max(), 3 << 32);
    for _ in 0..40 {
        let copy = few;
        few.merge(&copy);
    }
    assert_eq!(few.percentile(500), before);
}

/// Two kinds in turn are both counted when only some are.
#[test]
fn rare_counting_is_even() {
    let mut waits = Waits::new();
    for i in 0..1_000_000 {
        waits.add(if i % 2 == 0 { 3000 } else { 5 << 20 });
    }
    let counts = [3000, 5 << 20].map(|ns| f64::from(waits.counts[Waits::bucket(ns)]));
    assert!(
        (0.97..1.03).contains(&(counts[0] / counts[1])),
        "{counts:?}"
    );
    let total = f64::from(1u32 << waits.rarity) * (counts[0] + counts[1]);
    assert!((0.97e6..1.03e6).contains(&total), "{total}");
}

#[test]
fn debts_have_buckets() {
    for (decipages, bucket) in [
        (i64::MIN, 0),
        (-40_961, 0),
        (-40_960, 1),
        (-1, 3),
        (0, 4),
        (159, 4),
        (160, 5),
        (40_959, 6),
        (40_960, 7),
        (i64::MAX, 7),
    ] {
        let mut ledger = Ledger::new();
        ledger.debt(decipages);
        assert_eq!(ledger.debts()[bucket], 1, "{decipages}");
    }
}

#[test]
fn counts_and_resets() {
    let mut ledger = Ledger::new();
    ledger.count(3, 4, true);
    ledger.sample(0);
    ledger.count(5, 6, false);
    ledger.sample(10);
    ledger.forced();
    ledger.time(100);
    ledger.waited(2000);
    ledger.debt(5);
    ledger.correct(-1);
    ledger.sample(20);
    let mut sum = ledger;
    sum.merge(&ledger);
    assert_eq!((sum.counts().dispatched, sum.counts().cost_pages), (4, 16));
    assert_eq!((sum.counts().opportunity, sum.counts().forced), (2, 2));
    assert_eq!((sum.counts().time_us, sum.debts()[4]), (200, 2));
    assert_eq!((sum.windows().second(20), sum.waits().max()), (18, 2048));
    sum.reset();
    assert_eq!((sum.counts().dispatched, sum.waits().max()), (0, 0));
    assert_eq!((sum.windows().second(20), sum.debts()[4]), (18, 0));
}
