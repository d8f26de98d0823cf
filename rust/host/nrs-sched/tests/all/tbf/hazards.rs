// SPDX-License-Identifier: GPL-2.0-only

//! One test for each defect in the history of the original policy that could occur here, and for
//! each hazard in its code. Defects of the rule language are covered by the tests of the rules.

use super::sim::{near, none, one, play, TbfSim, SECOND};
use nrs_sched::{
    managed::yaml,
    policy::{
        tbf::{
            params::GlobalRate,
            stats::{report, TbfRows},
        },
        Decision, Part,
    },
};

const HAZARDS: &str = "
# lu_19137: the wake-up time is absolute and one token away [AGE: 0s, 1s, 315360000s]
wait AGE
start a uid={1} rate=10
queue 1 4
get 1 1 1 throttled=0.1s

# hazard 3: no throttling flag remains set; a decision depends only on the queued requests
start a uid={1} rate=1
queue 1 4
run 1ns none
get throttled
// An arrival of another user is served at once, regardless of earlier answers.
queue 2 1
get 2 throttled
force 1
get empty

# hazard 7: a class that is one token late keeps one token [REAL: realtime=0, realtime=1]
late 0
start a uid={1} rate=1000 REAL
queue 1 10
in 1ns none: 1=3
// The fourth request has its token after 1 ms; after exactly 2 ms, two requests are eligible.
wait 1999999ns
in 1ns none: 1=2
get throttled

# hazard 19: thousands of realtime classes without tokens do not delay a class with tokens
start a uid={5001} rate=10
change default rate=1 realtime=1
queue 1-5000 4
in 1ns none: *=15000
get throttled
queue 5001 1
get 5001

# lu_6163: products and quotients of 64 bits are right [RATE: 32GiB/s, 1B/s, 10000000, 1]
// Idle for ten years.
late 0
start a uid={1} rate=RATE
queue 1 1
in 1ns none: 1=1
wait 315360000s
queue 1 4
burst 3
get throttled=1ns..16384s
";

#[test]
fn hazards() {
    play(HAZARDS);
}

/// Checks that the debt of a class outlives the eviction of idle classes, and classes that are
/// created and evicted meanwhile.
#[test]
fn debts_survive_idle_classes() {
    for global_rate in [GlobalRate::On, GlobalRate::Off] {
        let mut sim = TbfSim::by_uid();
        sim.play(&format!("with uid cache_size=4 global_rate={global_rate}"));
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
                sim.play("pass 2 forced");
            }
            sim.play("pass 10-29 opportunity");
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
    sim.play("queue 1-1000 1");
    let rows = sim.rows();
    assert_eq!(rows.len(), 1000);
    let mut all = TbfRows::new();
    all.extend(&rows, false).unwrap();
    all.merge();
    let text = yaml(|out| report(out, all.as_slice(), all.sums().unwrap().as_slice()));
    assert!(text.len() > 100_000 && text.contains("uid:1000"));
}

/// Checks LU-15926, and the residue of exactly one token: no remainder persists over a change.
#[test]
fn lu_15926_changes_leave_no_remainder() {
    let mut sim = TbfSim::by_uid();
    sim.play("start a uid={1} rate=3 realtime=1; queue 1 16");
    for rate in (1..200).chain([1, 10_000_000, 1, 999_999, 7]) {
        sim.run(sim.now + SECOND / 50 + 1, one);
        sim.rule(&format!("change a rate={rate}"));
    }
    sim.play("run 2s; in 100s: 1=700~1");
}

/// Checks LU-16796, LU-20423, hazard 18: idle classes stay within their limit. Evicted classes that
/// return equal new ones; a class with requests is never evicted.
#[test]
fn lu_19597_idle_classes_are_bounded() {
    let mut sim = TbfSim::by_uid();
    sim.play("with uid cache_size=10; start a uid={5000} rate=1; queue 5000 10");
    sim.play("in 1ns none: 5000=3");
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
    let mut sim = TbfSim::by_uid();
    sim.play("with uid classes_max=64; change default rate=100");
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
