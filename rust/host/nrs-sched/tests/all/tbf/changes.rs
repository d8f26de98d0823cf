// SPDX-License-Identifier: GPL-2.0-only

//! Rules that change under load.

use super::sim::{near, one, play, TbfSim, SECOND};
use nrs_sched::{
    error::Code,
    policy::{
        tbf::{
            params::{CacheSize, Depth, GlobalRate, Overload},
            Config, Tunables,
        },
        Configuration, Decision, Part,
    },
    rules::{RuleCommand, Subject},
};
use std::collections::BTreeMap;

const CHANGES: &str = "
# a standing backlog follows every change at once, without a new arrival [LATER: now, later]
// Without the walk over the classes, the root of the heap is matched when it is examined; a shorter
// throttling time than before needs the walk.
start a uid={1} rate=1
queue 1 100000
run 10.5s none
change a rate=1000;                in 1s none: 1=1000~1
LATER change a rate=10;            in 10s none: 1=100~2
start b uid={1} rate=500;          in 1s none: 1=500~1
// Only the rank changes.
LATER change a rank=b rate=100;    in 1s none: 1=100~2
change b rank=a;                   in 1s none: 1=500~1
LATER stop b;                      in 1s none: 1=100~2
stop a;                            in 1s none: 1=10000~1
LATER change default rate=50;      in 1s none: 1=50~3

# a class that the walk has not reached is matched when it is accessed
late 0
start a uid={1} rate=1
queue 1 10
run 0.5s none
later change a rate=1000
row 1 rate=1000
// An arrival accesses the class.
queue 1 1
in 10ms none: 1=8
// The root of the heap: no further request is served at the old rate.
queue 1 100
run 10ms none
later change a rate=1
in 20s none: 1=20~5

# a burst that is raised grants no tokens, and one that is lowered leaves none
late 0
start a uid={1} rate=10
queue 1 4
in 1ns none: 1=3
change a burst=100s
in 95ms none: 1=0
in 10ms none: 1=1
run 20s none
queue 1 400
in 1ns none: 1=200~1
run 10s none
change a burst=1s
queue 1 1000
in 1ns none: 1=0

# tokens and debt keep their proportion: a change to a slow rule and back gains nothing
late 0
start a uid={1} rate=10
queue 1 2
in 1ns none: 1=2
// One of three tokens is left.
change a rate=1000; change a rate=3MiB/s; change a rate=10
queue 1 3
// Tolerates rounding.
wait 1ms
in 1ns none: 1=1
get throttled=0.1s~3

# a change of another rule does not reduce the lateness of a class
start a uid={1} rate=1000 realtime=1
start b uid={2} rate=1000
queue 1 8
run 1s
clear
// The server stalls for half of the time, and then receives other rules.
50x wait 10ms; change b rate=1001; run 10ms; wait 10ms; change b rate=1000; run 10ms
served: 1=2000~2

# classes that share one bucket gain nothing from changes [FORCED RUN MOST: 0 2s 223, 1 4s 423]
// Their tokens are reserved far beyond the longest debt. 21 or 41 requests each time, also if a
// class has the debt of a forced request.
late 0
start all uid={9} rate=10
change default rate=1000 also=all
queue 100-399 8
run 1s
clear
10x pass 500 forced FORCED; change all rate=1; run 1s; change all rate=10; run RUN
served: *=..MOST

# a debt of forced requests is at most 10 s after a change [ALSO LIMIT GLOBAL: also= a 1, \
also= a 0, also=all all 1, also=all all 0]
// Of the class's own bucket, or of a bucket that its rule names.
with uid global_rate=GLOBAL
start all uid={9} rate=10000
start a uid={1} rate=10000 ALSO
pass 1 forced 200000
change LIMIT rate=1
queue 1 2
get throttled=10s..11.1s

# the debt of a large request stays [FORCED GLOBAL: 0 1, 0 0, 1 1, 1 0]
// Over any number of changes, and although another request was forced.
with uid global_rate=GLOBAL
start a uid={1} rate=1KiB/s
queue 1 2 256
in 1ns none: 1=1
pass 1 forced FORCED
10x change a rate=64B/s; change a rate=1KiB/s
change a rate=64KiB/s; change a rate=1KiB/s
get throttled=1024s~5
";

#[test]
fn changes() {
    play(CHANGES);
}

/// Checks that a storm of commands creates no tokens.
#[test]
fn a_storm_of_commands_does_not_raise_a_rate() {
    for parts in [1, 2] {
        let mut sim = TbfSim::new("uid", parts, &Default::default());
        sim.play("start a uid={1} rate=100; queue 1 16; run 1s; clear");
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
        for i in 0..3000 {
            sim.rule(storm[i % storm.len()]);
            sim.run(sim.now + SECOND / 500, one);
        }
        near(sim.served[&1].0, 600, 2.0, "storm");
    }
}

/// Checks the number of classes of each rule, collected over all indexes.
#[test]
fn classes_are_counted_by_rule() {
    let mut sim = TbfSim::by_uid();
    sim.play("start a uid={1 2 3} rate=10; start b uid={4} rate=10; queue 1-300 1; run 1s none");
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
    sim.play("late 0; change default rate=100; queue 1-1000 10; run 1ms none");
    sim.play("later change default rate=1; wait 0.1s");
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
    sim.play("later change default rate=20; queue 1-200 10; later change default rate=10");
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

/// Checks that a class has one rate in total, 100 requests/s on average, while four partitions are
/// updated one after another. The same holds if a change moves the class to another rule.
#[test]
fn a_change_under_way_gains_nothing() {
    for (also, commands, least) in [
        ("", ["change a realtime=1", "change a realtime=0"], 90),
        ("all", ["change a realtime=1", "change a realtime=0"], 90),
        ("", ["change a rate=101", "change a rate=100"], 90),
        ("all", ["change a rate=101", "change a rate=100"], 90),
        ("", ["start b uid={1} rate=100", "stop b"], 90),
        ("all", ["start b uid={1} rate=100", "stop b"], 90),
        // The partitions share one bucket.
        ("", ["change a rate=130", "change a rate=70"], 95),
    ] {
        let mut sim = TbfSim::new("uid", 4, &Tunables::default());
        sim.play("late 0; start all uid={9} rate=200");
        sim.rule(&format!("start a uid={{1}} rate=100 also={also}"));
        (0..4).for_each(|part| sim.queue(part, 1, 8, 1));
        sim.play("run 1s; clear");
        for change in 0..50 {
            let update = sim.command(commands[change % 2]);
            for part in 0..4 {
                sim.update_part(part, &update);
                sim.run(sim.now + SECOND / 50, one);
            }
            sim.run(sim.now + SECOND / 8, one);
        }
        let (got, want) = (sim.served[&1].0, 50 * 205 / 10);
        let range = want * least / 100..=want + 15;
        assert!(
            range.contains(&got),
            "{commands:?} {also}: {got} for {want}"
        );
    }
}

/// Checks that parameters change in place: a limited backlog stays limited, and no bucket is
/// refilled.
#[test]
fn parameters_change_in_place() {
    let mut sim = TbfSim::new("uid", 2, &Tunables::default());
    sim.play("start a uid={1} rate=100; queue 1 8; queue 1 8 @1; run 1s; clear");
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
