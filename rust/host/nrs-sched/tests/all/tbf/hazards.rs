// SPDX-License-Identifier: GPL-2.0-only

//! One test for each defect in the history of the original policy that could occur here, and for
//! each hazard in its code. Defects of the rule language are covered by the tests of the rules.

use super::sim::{near, none, one, TbfSim, SECOND};
use nrs_sched::policy::{
    params::ClassesMax,
    tbf::{
        params::{CacheSize, GlobalRate},
        stats::{report, TbfRows},
        Tunables,
    },
    BypassOutcome, BypassReason, Decision, Part,
};

/// Checks that the debt of a class outlives the eviction of idle classes, and classes that are
/// created and evicted meanwhile.
#[test]
fn debts_survive_idle_classes() {
    for global_rate in [GlobalRate::On, GlobalRate::Off] {
        let tunables = Tunables {
            global_rate,
            cache_size: CacheSize::new(4).unwrap(),
            ..Tunables::default()
        };
        let mut sim = TbfSim::new("uid", 1, &tunables);
        sim.rule("start a uid={1 2} rate=1KiB/s");
        let mut queued = 0;
        for second in 0..600 {
            if second % 11 == 0 && queued == 0 {
                // 1024 s worth of tokens for user 1, and a debt of user 2 for requests that are
                // never queued.
                sim.queue(0, 1, 1, 256);
                queued += 1;
            }
            if second % 11 == 0 {
                assert_eq!(
                    sim.pass(2, 1, BypassReason::Forced { contended: true }),
                    BypassOutcome::Counted
                );
            }
            (10..30).for_each(|uid| {
                assert_eq!(
                    sim.pass(uid, 1, BypassReason::Opportunity),
                    BypassOutcome::Counted
                )
            });
            while let Decision::Item(_) = sim.get(0, false) {
                queued -= 1;
            }
            sim.now += SECOND;
            sim.parts[0].age(sim.now, 64);
        }
        assert!(sim.served[&1].0 <= 2, "{global_rate}: {:?}", sim.served);
        assert!(sim.parts[0].len() == 1 && sim.rows().len() < 30);
    }
}

/// Checks LU-5379: a listing longer than a page, or than one lock hold, is complete.
#[test]
fn lu_5379_long_listings_are_complete() {
    let mut sim = TbfSim::by_uid();
    for uid in 1..=1000 {
        sim.queue(0, uid, 1, 1);
    }
    let rows = sim.rows();
    assert_eq!(rows.len(), 1000);
    let mut all = TbfRows::new();
    all.extend(&rows, false).unwrap();
    all.merge();
    let mut text = String::new();
    report(
        &mut nrs_sched::report::Report::yaml(&mut text),
        all.as_slice(),
        all.sums().unwrap().as_slice(),
    )
    .unwrap();
    assert!(text.len() > 100_000 && text.contains("uid:1000"));
}

/// Checks LU-6163, LU-6174: products and quotients of 64 bits and more are correct.
#[test]
fn lu_6163_large_products_are_right() {
    for rate in ["32GiB/s", "1B/s", "10000000", "1"] {
        let mut sim = TbfSim::by_uid();
        sim.late = 0;
        sim.rule(&format!("start a uid={{1}} rate={rate}"));
        // Idle for ten years.
        sim.queue(0, 1, 1, 1);
        assert_eq!(sim.count(1, 1, none), 1);
        sim.now += 315_360_000 * SECOND;
        sim.queue(0, 1, 4, 1);
        let burst =
            std::iter::from_fn(|| matches!(sim.get(0, false), Decision::Item(_)).then_some(()));
        assert_eq!(burst.count(), 3, "{rate}");
        let Decision::Throttled { until } = sim.get(0, false) else {
            panic!("the fourth one has to wait");
        };
        assert!(
            until > sim.now && until <= sim.now + 4 * 4096 * SECOND,
            "{rate}"
        );
    }
}

/// Checks LU-15926, and the residue of exactly one token: no remainder persists over a change.
#[test]
fn lu_15926_changes_leave_no_remainder() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start a uid={1} rate=3 realtime=1");
    sim.queue(0, 1, 16, 1);
    for rate in (1..200).chain([1, 10_000_000, 1, 999_999, 7]) {
        sim.run(sim.now + SECOND / 50 + 1, one);
        sim.rule(&format!("change a rate={rate}"));
    }
    sim.run(sim.now + 2 * SECOND, one);
    near(
        sim.count(1, 100 * SECOND, one),
        700,
        1.0,
        "after the changes",
    );
}

/// Checks LU-19137: the wake-up time is absolute and at most one token away, also long after the
/// start.
#[test]
fn lu_19137_the_wake_up_is_absolute() {
    for days in [0, 1, 3650] {
        let mut sim = TbfSim::by_uid();
        sim.now = days * 86_400 * SECOND;
        sim.rule("start a uid={1} rate=10");
        sim.queue(0, 1, 4, 1);
        for _ in 0..3 {
            assert!(matches!(sim.get(0, false), Decision::Item(_)));
        }
        let Decision::Throttled { until } = sim.get(0, false) else {
            panic!("three tokens were there");
        };
        assert_eq!(until, sim.now + SECOND / 10);
    }
}

/// Checks LU-16796, LU-20423, hazard 18: idle classes stay within their limit. Evicted classes that
/// return equal new ones; a class with requests is never evicted.
#[test]
fn lu_19597_idle_classes_are_bounded() {
    let tunables = Tunables {
        cache_size: CacheSize::new(10).unwrap(),
        ..Tunables::default()
    };
    let mut sim = TbfSim::new("uid", 1, &tunables);
    sim.rule("start a uid={5000} rate=1");
    sim.queue(0, 5000, 10, 1);
    assert_eq!(sim.count(5000, 1, none), 3);
    sim.served.clear();
    for uid in 1..=1000 {
        sim.queue(0, uid, 1, 1);
        assert!(matches!(sim.get(0, false), Decision::Item(_)));
        assert!(sim.rows().len() <= 12);
    }
    let mut refs = 0;
    sim.parts[0].refs(0, u32::MAX, |_| refs += 1);
    assert_eq!(refs, 11);
    assert_eq!(sim.row(5000).queued, 7);
}

/// Checks hazard 18: beyond the limit of classes, requests of a rule share a class under that rule,
/// regardless of the rules in the table.
#[test]
fn beyond_the_bound_the_rule_limits() {
    let tunables = Tunables {
        classes_max: ClassesMax::new(64).unwrap(),
        ..Tunables::default()
    };
    let mut sim = TbfSim::new("uid", 1, &tunables);
    sim.rule("change default rate=100");
    let listed: Vec<String> = (1000..1040).map(|uid| uid.to_string()).collect();
    sim.rule(&format!("start a uid={{{}}} rate=50", listed.join(" ")));
    let mut without = Vec::new();
    for (uids, count) in [(1..201, 10), (1000..1040, 100)] {
        for uid in uids {
            sim.queue(0, uid, count, 1);
            if sim.own_row(uid).is_none() {
                without.push(uid);
            }
        }
    }
    sim.run(sim.now + SECOND / 2, none);
    let shared = sim.rows().into_iter().filter(|row| row.default);
    let shared: Vec<(String, u32)> = shared
        .map(|row| (row.rule.as_str().to_owned(), row.queued))
        .collect();
    assert_eq!(shared.len(), 2, "{shared:?}");
    let got = sim.measure(SECOND, none);
    let of = |from: u32| {
        let uids = without.iter().filter(|uid| **uid / 1000 == from);
        uids.map(|uid| got.get(uid).map_or(0, |got| got.0)).sum()
    };
    let (default, a): (u64, u64) = (of(0), of(1));
    near(default, 100, 2.0, "shared class of default");
    near(a, 50, 2.0, "shared class of a");
    // Once the table has room again, each user has its own class.
    sim.run(sim.now + 120 * SECOND, none);
    assert!(sim.rows().iter().all(|row| row.queued == 0));
    while sim.parts[0].age(sim.now, 64) {}
    for uid in [1039, 150] {
        sim.class(0, uid);
        assert!(sim.own_row(uid).is_some());
    }
}

/// Checks hazard 3: no throttling flag can remain set; the answer of a part depends only on the
/// queued requests.
#[test]
fn hazard_3_throttling_has_no_flag() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start a uid={1} rate=1");
    sim.queue(0, 1, 4, 1);
    sim.run(sim.now + 1, none);
    assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
    // An arrival of another user is served at once, regardless of earlier answers.
    sim.queue(0, 2, 1, 1);
    assert!(matches!(sim.get(0, false), Decision::Item(request) if request.owner == 2));
    assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
    assert!(matches!(sim.get(0, true), Decision::Item(_)));
    assert!(matches!(sim.get(0, false), Decision::Empty));
}

/// Checks hazard 7: a class that is exactly one token late keeps exactly one token.
#[test]
fn hazard_7_exactly_one_token_late() {
    for realtime in [0, 1] {
        let mut sim = TbfSim::by_uid();
        sim.late = 0;
        sim.rule(&format!("start a uid={{1}} rate=1000 realtime={realtime}"));
        sim.queue(0, 1, 10, 1);
        assert_eq!(sim.count(1, 1, none), 3);
        // The fourth request has its token after 1 ms; after exactly 2 ms, two requests are
        // eligible.
        sim.now += 2_000_000 - 1;
        assert_eq!(sim.count(1, 1, none), 2);
        assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
    }
}

/// Checks hazard 19: thousands of realtime classes without tokens do not delay a class with tokens.
#[test]
fn hazard_19_realtime_classes_without_tokens() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start a uid={5001} rate=10");
    sim.rule("change default rate=1 realtime=1");
    for uid in 1..=5000 {
        sim.queue(0, uid, 4, 1);
    }
    sim.run(sim.now + 1, none);
    assert_eq!(sim.served.values().map(|got| got.0).sum::<u64>(), 15_000);
    assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
    sim.queue(0, 5001, 1, 1);
    assert!(matches!(sim.get(0, false), Decision::Item(request) if request.owner == 5001));
}
