// SPDX-License-Identifier: GPL-2.0-only

//! Order of classes: by time, minimum rates before the rest, and effects of congestion.

use super::sim::{near, none, play, TbfSim, SECOND};
use nrs_sched::policy::{
    tbf::params::{Overload, Tunables},
    Decision,
};

const ORDER: &str = "
# hundreds of classes throttled for long do not delay a class with tokens
with uid+gid
late 0
start slow gid={1 2 3 4} rate=1
start fast gid={9} rate=1000
queue 100-499 10
run 0.5s none
// All classes are out of tokens now, and the next tokens are half a second away.
get throttled=0.34s..
queue 900 3
get 900 900 900
queue 901 50
in 0.25s: 901=252~1

# lu_9228: under congestion, classes of equal rates get equal service [REAL: realtime=0, realtime=1]
start a uid={1} rate=1000 REAL; start b uid={2} rate=1000 REAL
start c uid={3} rate=1000 REAL; start d uid={4} rate=1000 REAL
queue 1-4 4
congested 1s 400us
congested 4s 400us: each:1-4=2500~1

# a realtime rule makes up for lateness and gets its whole rate; the other gets the rest
start a uid={1} rate=1000
start b uid={2} rate=100 realtime=1
queue 1-2 4
congested 2s 2ms
congested 10s 2ms: 1=4000~1.5 2=1000~1.5

# credit for lateness is limited [REAL BURST: realtime=1 1000..1004, realtime=0 10..14]
start a uid={1} rate=1000 REAL
queue 1 5000
// No request is dispatched for a minute, because the device hangs: all of it is lateness.
wait 60s
burst BURST
// An hour without requests is not lateness.
drain
wait 3600s
queue 1 100
burst 3

# under congestion, minimum rates precede service beyond them
start a uid={1} rate=1000 minrate=300
start b uid={2} rate=10000
start c uid={3} rate=1000 minrate=50
queue 1-3 8
// 400 requests/s; the minimum rates are 350.
congested 1s 2.5ms
congested 10s 2.5ms: 1=2970.. 3=495.. 2=100..
// 200 requests/s: classes with a minimum rate get no more than that rate; the other class gets one
// request in eleven.
congested 1s 5ms
congested 10s 5ms: 2=182~2
// With enough for all, rates hold.
queue 1-3 20
run 1s
in 4s: 1=4000~1 2=40000~1 3=4000~1

# beside one class a rule has its minimum rate, regardless of its service before the shortage
with uid+gid parts=2
start other uid={1} rate=10000
start named gid={3} rate=10000 minrate=300
queue 300-309 8; queue 300-309 8 @1
run 1s
queue 1 720
congested 1s 2ms: 300-309=270..

# the growth of a request is charged where pages or bytes count, also to shared buckets
late 0
start bytes uid={2} rate=409600B/s
start count uid={1} rate=100
start both uid={3} rate=100 also=bytes
pass 1-3 merged 23
row 1 debt=0 cost=0 dispatched=0 forced=0
// Three pages at once, and 20 at 100 per second.
row 2 debt=200ms cost=94208 dispatched=0 forced=0
row 3 debt=0 cost=0 dispatched=0 forced=0
queue 1,3 1
get 1
// The shared bucket of the rule has the same debt; one more page becomes due.
get throttled=210ms

# an opportunity needs tokens and an empty queue, and the debt of forced requests is limited
late 0
start a uid={1} rate=100
pass 1 opportunity 3
pass 1 opportunity refused
// A refusal costs nothing.
wait 10ms
pass 1 opportunity
queue 1 1
wait 1s
pass 1 opportunity refused
get 1
wait 1s
// Three tokens and a debt of five: the next token in 60 ms.
pass 1 forced 8
queue 1 1
row 1 debt=50ms forced=8 dispatched=13 queued=1
get throttled=60ms
// The class is served again after the limit, regardless of the number of forced requests.
pass 1 forced 100000
row 1 debt=..10s
queue 1 1
wait 60ms
get 1
get throttled=..10.02s
";

#[test]
fn order() {
    play(ORDER);
}

/// Checks that requests are served in the order in which their tokens become available, and never
/// earlier.
#[test]
fn classes_go_in_the_order_of_their_tokens() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    for (uid, rate) in [(1, 10), (2, 25), (3, 100), (4, 1)] {
        sim.rule(&format!("start r{uid} uid={{{uid}}} rate={rate}"));
        sim.queue(0, uid, 200, 1);
    }
    let start = sim.now;
    sim.log = Some(Vec::new());
    sim.run(start + 10 * SECOND, none);
    let log = sim.log.take().unwrap();
    assert!(log.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    for (uid, rate) in [(1, 10), (2, 25), (4, 1)] {
        let at: Vec<u64> = log
            .iter()
            .filter(|(o, _)| *o == uid)
            .map(|(_, at)| *at)
            .collect();
        for (i, at) in at.iter().enumerate() {
            // Three requests at once, then one per token.
            let want = start + (i as u64).saturating_sub(2) * SECOND / rate;
            assert!(at.abs_diff(want) <= 1, "{uid} {i}");
        }
    }
}

/// Creates a partition by uid that orders classes with tokens by `overload`.
fn overloaded(overload: Overload) -> TbfSim {
    let tunables = Tunables {
        overload,
        ..Tunables::default()
    };
    TbfSim::new("uid", 1, &tunables)
}

/// Checks that congestion favours higher rates without starvation, or that classes take turns.
#[test]
fn congestion_prefers_higher_rates_without_starvation() {
    for overload in [Overload::Rate, Overload::Equal] {
        let run = |fast: u32, slow: u32, others: u32| {
            let mut sim = overloaded(overload);
            sim.rule(&format!("start slow uid={{1}} rate={slow}"));
            sim.rule(&format!(
                "start fast uid={{{}}} rate={fast}",
                list(2..=1 + others)
            ));
            (1..=1 + others).for_each(|uid| sim.queue(0, uid, 4, 1));
            sim.play("congested 2s 4ms; congested 20s 4ms");
            (sim.served[&2].0, sim.served[&1].0)
        };
        let (fast, slow) = run(1000, 150, 1);
        if overload == Overload::Rate {
            assert!(2 * fast >= 3 * slow, "{fast} {slow}");
            near(slow, 5000 / 3, 2.0, "the lower rate");
        } else {
            near(fast, slow, 1.0, "in turn");
        }
        // A higher rate gets no less service.
        let got = [20, 50, 100, 120, 130, 150, 250, 1000].map(|rate| run(1000, rate, 1).1);
        assert!(
            got.windows(2).all(|pair| pair[0] <= pair[1] + pair[1] / 50),
            "{got:?}"
        );
        near(got[0], 400, 1.0, "a low rate");
        near(got[7], 2500, 1.0, "the same rate");
        // Fifty classes that never run out of tokens leave the slowest class its turns.
        let (fast, slow) = run(10_000, 1, 50);
        assert!((16..=20).contains(&slow), "the slowest: {slow}");
        near(fast, 100, 3.0, "one of fifty");
    }
}

/// Returns the numbers, separated by blanks.
fn list(numbers: std::ops::RangeInclusive<u32>) -> String {
    let words: Vec<String> = numbers.map(|number| number.to_string()).collect();
    words.join(" ")
}

/// Checks that a limited class gets its rate on a saturated server beside classes with more tokens
/// than they can use. With equal turns, the rate must be less than the class's share. Where higher
/// rates have an advantage, the class's waiting time must be less than a quarter of the time
/// between two requests.
#[test]
fn a_limited_class_gets_its_rate_beside_one_that_has_tokens_in_plenty() {
    for (overload, rate, others) in [
        (Overload::Equal, 60, 1),
        (Overload::Equal, 60, 3),
        (Overload::Rate, 25, 1),
        (Overload::Rate, 25, 3),
    ] {
        let mut sim = overloaded(overload);
        sim.rule(&format!("start a uid={{1}} rate={rate}"));
        for uid in 1..=1 + others {
            sim.queue(0, uid, 8, 16);
        }
        // Eight slots whose requests end together.
        let mut batches = |count| {
            sim.served.clear();
            for _ in 0..count {
                for _ in 0..8 {
                    if let Decision::Item(request) = sim.get(0, false) {
                        sim.queue(0, request.owner, 1, request.pages);
                    }
                }
                sim.now += 9_000_000;
            }
            sim.served[&1].0
        };
        batches(100);
        near(batches(1000), rate * 9, 1.0, &format!("beside {others}"));
    }
}

/// Checks that a minimum rate belongs to the rule: more names do not multiply it, and other rules
/// get their turns.
#[test]
fn names_do_not_multiply_a_floor() {
    // Returns the service of user 1, and that of a rule whose requests have `names` names.
    let run = |names: u32, minrate: u32| {
        let mut sim = TbfSim::new("uid+gid", 1, &Tunables::default());
        let last = 299 + names;
        sim.play(&format!(
            "start other uid={{1}} rate=1000; start named gid={{3}} rate=1000 minrate={minrate}
            queue 1 8; queue 300-{last} 8; congested 1s 1ms; congested 10s 1ms"
        ));
        let got = &sim.served;
        let named = got.range(300..).map(|(_, got)| got.0);
        let (least, most) = (named.clone().min().unwrap(), named.clone().max().unwrap());
        assert!(most - least <= 2 + most / 5, "{got:?}");
        (got[&1].0, named.sum::<u64>())
    };
    for (names, minrate) in [(1, 100), (50, 100), (1, 900), (50, 900)] {
        let (other, named) = run(names, minrate);
        assert!(other >= 500, "{names} {minrate}: {other} {named}");
        assert!(
            named >= u64::from(minrate) * 99 / 10,
            "{names} {minrate}: {other} {named}"
        );
    }
}
