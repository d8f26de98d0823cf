// SPDX-License-Identifier: GPL-2.0-only

//! Rules that change under load.

use super::sim::{near, none, one, TbfSim, SECOND};
use nrs_sched::{
    error::Code,
    policy::{
        tbf::{
            params::{CacheSize, Depth, GlobalRate, Overload},
            Config, Tunables,
        },
        BypassOutcome, BypassReason, Configuration, Decision, Part,
    },
    rules::{RuleCommand, Subject},
};
use std::collections::BTreeMap;

/// Checks that a backlog follows every change at once, without a new arrival.
#[test]
fn a_standing_backlog_follows_a_change_at_once() {
    for refresh in [true, false] {
        // Without the walk over the classes, the root of the heap is matched when it is examined. A
        // shorter throttling time than before needs the walk.
        let apply = |sim: &mut TbfSim, command: &str, shorter: bool| {
            if refresh || shorter {
                sim.rule(command);
            } else {
                sim.rule_later(command);
            }
        };
        let mut sim = TbfSim::by_uid();
        sim.rule("start a uid={1} rate=1");
        sim.queue(0, 1, 100_000, 1);
        sim.run(sim.now + 10 * SECOND + SECOND / 2, none);
        apply(&mut sim, "change a rate=1000", true);
        near(sim.count(1, SECOND, none), 1000, 1.0, "raised");
        apply(&mut sim, "change a rate=10", false);
        near(sim.count(1, 10 * SECOND, none), 100, 2.0, "lowered");
        apply(&mut sim, "start b uid={1} rate=500", true);
        near(sim.count(1, SECOND, none), 500, 1.0, "started");
        // Only the rank changes.
        apply(&mut sim, "change a rank=b rate=100", false);
        near(sim.count(1, SECOND, none), 100, 2.0, "ranked");
        apply(&mut sim, "change b rank=a", true);
        near(sim.count(1, SECOND, none), 500, 1.0, "ranked back");
        apply(&mut sim, "stop b", false);
        near(sim.count(1, SECOND, none), 100, 2.0, "stopped");
        apply(&mut sim, "stop a", true);
        near(sim.count(1, SECOND, none), 10_000, 1.0, "default");
        apply(&mut sim, "change default rate=50", false);
        near(sim.count(1, SECOND, none), 50, 3.0, "default changed");
    }
}

/// Checks that a class that the walk has not reached is matched when it is accessed.
#[test]
fn what_is_touched_is_matched() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start a uid={1} rate=1");
    sim.queue(0, 1, 10, 1);
    sim.run(sim.now + SECOND / 2, none);
    sim.rule_later("change a rate=1000");
    assert_eq!(sim.row(1).rate.per_second(), 1000);
    // An arrival accesses the class.
    sim.queue(0, 1, 1, 1);
    assert_eq!(sim.count(1, SECOND / 100, none), 8);
    // The root of the heap: no further request is served at the old rate.
    sim.queue(0, 1, 100, 1);
    sim.run(sim.now + SECOND / 100, none);
    sim.rule_later("change a rate=1");
    near(sim.count(1, 20 * SECOND, none), 20, 5.0, "root");
}

/// Checks that a storm of commands creates no tokens.
#[test]
fn a_storm_of_commands_does_not_raise_a_rate() {
    for parts in [1, 2] {
        let mut sim = TbfSim::new("uid", parts, &Default::default());
        sim.rule("start a uid={1} rate=100");
        sim.queue(0, 1, 16, 1);
        sim.run(sim.now + SECOND, one);
        let storm = [
            "start b uid={1} rate=100",
            "change a rate=100",
            "stop b",
            "change a realtime=1",
            "start c uid={7} rate=5",
            "change a realtime=0",
            "stop c",
            "change a rate=101",
            "change a rate=100",
        ];
        sim.served.clear();
        for i in 0..3000 {
            sim.rule(storm[i % storm.len()]);
            sim.run(sim.now + SECOND / 500, one);
        }
        near(sim.served[&1].0, 600, 2.0, "storm");
    }
}

/// Checks that debt and tokens keep their proportion: a change to a slow rule and back gains
/// nothing.
#[test]
fn tokens_survive_a_change_in_proportion() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start a uid={1} rate=10");
    sim.queue(0, 1, 2, 1);
    assert_eq!(sim.count(1, 1, none), 2);
    // One of three tokens is left.
    sim.rule("change a rate=1000");
    sim.rule("change a rate=3MiB/s");
    sim.rule("change a rate=10");
    sim.queue(0, 1, 3, 1);
    // Tolerates rounding.
    sim.now += SECOND / 1000;
    assert_eq!(sim.count(1, 1, none), 1);
    let Decision::Throttled { until } = sim.get(0, false) else {
        panic!("no token is left");
    };
    near(until - sim.now, SECOND / 10, 3.0, "next");
}

/// Checks the number of classes of each rule, collected over all indexes.
#[test]
fn classes_are_counted_by_rule() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start a uid={1 2 3} rate=10");
    sim.rule("start b uid={4} rate=10");
    for uid in 1..=300 {
        sim.queue(0, uid, 1, 1);
    }
    sim.run(sim.now + SECOND, none);
    let refs = |sim: &TbfSim| {
        let mut refs = BTreeMap::new();
        let mut from = Some(0);
        while let Some(idx) = from {
            from = sim.parts[0].refs(idx, 64, |id| *refs.entry(id).or_insert(0) += 1);
        }
        let mut text = String::new();
        let count = |id| refs.get(&id).copied().unwrap_or(0);
        sim.rule_list.write(&mut text, count).unwrap();
        text
    };
    assert_eq!(
        refs(&sim),
        "b uid={4} 10, ref 1\na uid={1 2 3} 10, ref 3\ndefault * 10000, ref 296\n"
    );
    sim.rule("stop a");
    assert_eq!(
        refs(&sim),
        "b uid={4} 10, ref 1\ndefault * 10000, ref 299\n"
    );
}

/// Checks that a timer is never requested within 20 µs, regardless of the number of classes to be
/// matched again.
#[test]
fn no_early_timer_requests() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("change default rate=100");
    for uid in 1..=1000 {
        sim.queue(0, uid, 10, 1);
    }
    sim.run(sim.now + SECOND / 1000, none);
    sim.rule_later("change default rate=1");
    sim.now += SECOND / 10;
    let (end, mut asked) = (sim.now + SECOND / 2, 0);
    while sim.now < end {
        match sim.get(0, false) {
            Decision::Throttled { until } => {
                assert!(until - sim.now >= 20_000, "{}", until - sim.now);
                sim.now = until;
                asked += 1;
            }
            Decision::Item(_) => {}
            Decision::Empty => panic!("none is left"),
        }
    }
    assert!(asked < 100, "{asked}");
}

/// Checks that one lock hold compares a bounded number of patterns, with the default maximum number
/// of rules.
#[test]
fn a_hold_compares_few_patterns() {
    const RULES: u32 = 4_096;
    let mut sim = TbfSim::new("uid+jobid", 1, &Tunables::default());
    for rule in 0..RULES {
        let text = format!("start r{rule} jobid={{batch{rule}.*}} rate=100");
        sim.rule_list = sim
            .rule_list
            .apply(&RuleCommand::parse(&text).unwrap())
            .unwrap();
    }
    sim.rule_later("change default rate=20");
    for uid in 1..=200 {
        sim.queue(0, uid, 10, 1);
    }
    sim.rule_later("change default rate=10");
    let (_, work) = sim.parts[0]
        .rules()
        .plan()
        .rules()
        .find_with_cost(&Subject::NONE);
    assert_eq!(work, RULES);
    // Classes that are matched again under one lock hold, each with `work` comparisons.
    let mut holds = 0;
    let mut from = Some(0);
    while let Some(idx) = from {
        from = sim.parts[0].refresh(idx, 64, sim.now);
        let end = from.unwrap_or(201);
        assert!((end - idx) * work <= 2 * RULES, "{idx} to {end}");
        holds += 1;
    }
    assert!(holds >= 100, "{holds}");
    // Classes that are up to date need no comparisons.
    assert_eq!(sim.parts[0].refresh(0, 64, sim.now), Some(64));
}

/// Checks that the number of patterns is limited, and that the error states the limit.
#[test]
fn patterns_are_bounded() {
    let sim = TbfSim::new("jobid", 1, &Tunables::default());
    let patterns: Vec<String> = (0..512).map(|i| format!("{i}*")).collect();
    let mut rule_list = sim.rule_list;
    for rule in 0..=16 {
        let text = format!("start r{rule} jobid={{{}}} rate=5", patterns.join(" "));
        match rule_list.apply(&RuleCommand::parse(&text).unwrap()) {
            Ok(next) if rule < 16 => rule_list = next,
            Ok(_) => panic!("no bound"),
            Err(error) => {
                assert_eq!((rule, error.code), (16, Code::NoSpace));
                assert!(error.reason.contains("8192"), "{error}");
            }
        }
    }
    // Exact values need no patterns.
    let command = RuleCommand::parse("start exact jobid={a b c} rate=5").unwrap();
    assert!(rule_list.apply(&command).is_ok());
}

/// Applies fifty changes by `commands` in turn to four partitions, one after another, with a
/// backlog of user 1. Returns the requests that the user got, and the number expected at 100
/// requests/s.
fn updated_one_by_one(sim: &mut TbfSim, commands: [&str; 2]) -> (u64, u64) {
    for part in 0..4 {
        sim.queue(part, 1, 8, 1);
    }
    sim.run(sim.now + SECOND, one);
    sim.served.clear();
    for change in 0..50 {
        let update = sim.command(commands[change % 2]);
        for part in 0..4 {
            sim.tell(part, &update);
            sim.run(sim.now + SECOND / 50, one);
        }
        sim.run(sim.now + SECOND / 8, one);
    }
    (sim.served[&1].0, 50 * 205 / 10)
}

/// Checks that a class has one rate in total while partitions are updated one after another. The
/// same holds if a change moves the class to another rule.
#[test]
fn a_change_under_way_gains_nothing() {
    for commands in [
        ["change a realtime=1", "change a realtime=0"],
        ["change a rate=101", "change a rate=100"],
        ["start b uid={1} rate=100", "stop b"],
    ] {
        for also in ["", "all"] {
            let mut sim = TbfSim::new("uid", 4, &Tunables::default());
            sim.late = 0;
            sim.rule("start all uid={9} rate=200");
            sim.rule(&format!("start a uid={{1}} rate=100 also={also}"));
            let (got, want) = updated_one_by_one(&mut sim, commands);
            let range = want * 9 / 10..=want + 15;
            assert!(
                range.contains(&got),
                "{commands:?} {also}: {got} for {want}"
            );
        }
    }
}

/// Checks that parameters change in place: a limited backlog stays limited, and no bucket is
/// refilled.
#[test]
fn parameters_change_in_place() {
    let mut sim = TbfSim::new("uid", 2, &Tunables::default());
    sim.rule("start a uid={1} rate=100");
    sim.queue(0, 1, 8, 1);
    sim.queue(1, 1, 8, 1);
    sim.run(sim.now + SECOND, one);
    sim.served.clear();
    for i in 0..500 {
        sim.tune(|tunables| match i % 3 {
            0 => tunables.depth = Depth::new([3, 30][i / 3 % 2]).unwrap(),
            1 => tunables.cache_size = CacheSize::new(i as u32 + 1).unwrap(),
            _ => tunables.overload = [Overload::Equal, Overload::Rate][i / 3 % 2],
        });
        sim.run(sim.now + SECOND / 100, one);
    }
    near(sim.served[&1].0, 500, 2.0, "in place");
    let config = Config::parse(Some("uid"), &Tunables::default()).unwrap();
    let other = Tunables {
        global_rate: GlobalRate::Off,
        ..Tunables::default()
    };
    assert!(!config.follows(&config.with(&other)));
}

/// Checks that partitions that receive a new rate one after another share one bucket.
#[test]
fn a_change_of_the_rate_under_way_gains_nothing() {
    let mut sim = TbfSim::new("uid", 4, &Tunables::default());
    sim.late = 0;
    sim.rule("start a uid={1} rate=100");
    let commands = ["change a rate=130", "change a rate=70"];
    let (got, want) = updated_one_by_one(&mut sim, commands);
    assert!(
        (want * 95 / 100..=want + 15).contains(&got),
        "{got} for {want}"
    );
}

/// Checks that a change of another rule does not reduce the lateness of a class.
#[test]
fn changes_of_others_take_no_lateness() {
    let mut sim = TbfSim::new("uid", 1, &Tunables::default());
    sim.rule("start a uid={1} rate=1000 realtime=1");
    sim.rule("start b uid={2} rate=1000");
    sim.queue(0, 1, 8, 1);
    sim.run(sim.now + SECOND, one);
    sim.served.clear();
    for change in 0..100 {
        // The server stalls for half of the time, and then receives other rules.
        sim.now += SECOND / 100;
        sim.rule(["change b rate=1001", "change b rate=1000"][change % 2]);
        sim.run(sim.now + SECOND / 100, one);
    }
    near(sim.served[&1].0, 2000, 2.0, "late");
}

/// Checks that the debt of forced requests is at most 10 s after a change. Tests the class's own
/// bucket and a bucket that its rule names.
#[test]
fn a_debt_of_forced_requests_is_no_longer_after_a_change() {
    for global_rate in [GlobalRate::On, GlobalRate::Off] {
        for (also, limited) in [("", "a"), ("all", "all")] {
            let tunables = Tunables {
                global_rate,
                ..Tunables::default()
            };
            let mut sim = TbfSim::new("uid", 1, &tunables);
            sim.rule("start all uid={9} rate=10000");
            sim.rule(&format!("start a uid={{1}} rate=10000 also={also}"));
            for _ in 0..200_000 {
                let passed = sim.pass(1, 1, BypassReason::Forced { contended: true });
                assert_eq!(passed, BypassOutcome::Counted);
            }
            sim.rule(&format!("change {limited} rate=1"));
            sim.queue(0, 1, 2, 1);
            let Decision::Throttled { until } = sim.get(0, false) else {
                panic!("class has a debt");
            };
            let wait = (until - sim.now) as f64 / SECOND as f64;
            assert!(
                (10.0..=11.1).contains(&wait),
                "{global_rate} {limited}: {wait} s"
            );
        }
    }
}

/// Checks that the debt of a large request persists over any number of changes.
#[test]
fn a_debt_of_large_requests_stays() {
    for global_rate in [GlobalRate::On, GlobalRate::Off] {
        let tunables = Tunables {
            global_rate,
            ..Tunables::default()
        };
        let mut sim = TbfSim::new("uid", 1, &tunables);
        sim.rule("start a uid={1} rate=1KiB/s");
        sim.queue(0, 1, 2, 256);
        assert_eq!(sim.count(1, 1, none), 1);
        for _ in 0..10 {
            sim.rule("change a rate=64B/s");
            sim.rule("change a rate=1KiB/s");
        }
        let Decision::Throttled { until } = sim.get(0, false) else {
            panic!("class has a debt");
        };
        near((until - sim.now) / SECOND, 1024, 5.0, "debt");
    }
}

/// Returns three hundred classes that share an empty bucket of 10 requests/s.
fn long_line() -> TbfSim {
    let mut sim = TbfSim::new("uid", 1, &Tunables::default());
    sim.late = 0;
    sim.rule("start all uid={9} rate=10");
    sim.rule("change default rate=1000 also=all");
    for uid in 100..400 {
        sim.queue(0, uid, 8, 1);
    }
    sim.run(sim.now + SECOND, one);
    sim.served.clear();
    sim
}

/// Checks that classes that share one bucket gain nothing from changes of its rate. Their tokens
/// are reserved far beyond the longest debt.
#[test]
fn a_long_line_at_a_shared_bucket_gains_nothing() {
    let mut sim = long_line();
    for _ in 0..10 {
        sim.rule("change all rate=1");
        sim.run(sim.now + SECOND, one);
        sim.rule("change all rate=10");
        sim.run(sim.now + 2 * SECOND, one);
    }
    let got: u64 = sim.served.values().map(|got| got.0).sum();
    // 21 each time.
    assert!(got <= 10 * 21 + 13, "{got}");
}

/// Checks that the same classes gain nothing if one of them has the debt of a forced request.
#[test]
fn a_forced_request_shortens_no_line() {
    let mut sim = long_line();
    for _ in 0..10 {
        let passed = sim.pass(500, 1, BypassReason::Forced { contended: true });
        assert_eq!(passed, BypassOutcome::Counted);
        sim.rule("change all rate=1");
        sim.run(sim.now + SECOND, one);
        sim.rule("change all rate=10");
        sim.run(sim.now + 4 * SECOND, one);
    }
    let got: u64 = sim.served.values().map(|got| got.0).sum();
    // 41 each time.
    assert!(got <= 10 * 41 + 13, "{got}");
}

/// Checks that the debt of a large request persists over changes, although another request was
/// forced.
#[test]
fn a_forced_request_forgives_no_large_one() {
    for global_rate in [GlobalRate::On, GlobalRate::Off] {
        let tunables = Tunables {
            global_rate,
            ..Tunables::default()
        };
        let mut sim = TbfSim::new("uid", 1, &tunables);
        sim.rule("start a uid={1} rate=1KiB/s");
        sim.queue(0, 1, 2, 256);
        assert_eq!(sim.count(1, 1, none), 1);
        let passed = sim.pass(1, 1, BypassReason::Forced { contended: true });
        assert_eq!(passed, BypassOutcome::Counted);
        sim.rule("change a rate=64KiB/s");
        sim.rule("change a rate=1KiB/s");
        let Decision::Throttled { until } = sim.get(0, false) else {
            panic!("class has a debt");
        };
        near((until - sim.now) / SECOND, 1024, 5.0, "debt");
    }
}
