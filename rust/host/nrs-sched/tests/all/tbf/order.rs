// SPDX-License-Identifier: GPL-2.0-only

//! Order of classes: by time, minimum rates before the rest, and effects of congestion.

use super::sim::{near, none, one, TbfSim, SECOND};
use nrs_sched::policy::{
    tbf::params::{Overload, Tunables},
    BypassOutcome, BypassReason, Decision,
};

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

/// Checks that hundreds of classes throttled for long do not delay a class with tokens.
#[test]
fn a_class_without_tokens_delays_no_class() {
    let mut sim = TbfSim::new("uid+gid", 1, &Tunables::default());
    sim.late = 0;
    sim.rule("start slow gid={1 2 3 4} rate=1");
    sim.rule("start fast gid={9} rate=1000");
    for owner in 100..500 {
        sim.queue(0, owner, 10, 1);
    }
    sim.run(sim.now + SECOND / 2, none);
    // All classes are out of tokens now, and the next tokens are half a second away.
    assert!(
        matches!(sim.get(0, false), Decision::Throttled { until } if until > sim.now + SECOND / 3)
    );
    sim.queue(0, 900, 3, 1);
    for _ in 0..3 {
        assert!(matches!(sim.get(0, false), Decision::Item(request) if request.owner == 900));
    }
    sim.queue(0, 901, 50, 1);
    near(sim.count(901, SECOND / 4, one), 252, 1.0, "fast");
}

/// Checks LU-9228: under congestion, classes of equal rates get equal service, realtime or not.
#[test]
fn lu_9228_equal_rates_get_equal_service_under_congestion() {
    for realtime in [0, 1] {
        let mut sim = TbfSim::by_uid();
        for uid in 1..=4 {
            let rule = format!("start r{uid} uid={{{uid}}} rate=1000 realtime={realtime}");
            sim.rule(&rule);
            sim.queue(0, uid, 4, 1);
        }
        sim.congested(SECOND, 400_000);
        let got = sim.congested(4 * SECOND, 400_000);
        for uid in 1..=4 {
            near(
                got[&uid].0,
                2500,
                1.0,
                &format!("{uid} realtime {realtime}"),
            );
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
            sim.congested(2 * SECOND, 4_000_000);
            let got = sim.congested(20 * SECOND, 4_000_000);
            (got[&2].0, got[&1].0)
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

/// Checks that realtime rules get their whole rate and precede other rules.
#[test]
fn realtime_rules_get_their_whole_rate() {
    let run = |realtime: [u32; 2]| {
        let mut sim = TbfSim::by_uid();
        for (uid, (rate, realtime)) in (1..).zip([1000, 100].into_iter().zip(realtime)) {
            let rule = format!("start r{uid} uid={{{uid}}} rate={rate} realtime={realtime}");
            sim.rule(&rule);
            sim.queue(0, uid, 4, 1);
        }
        sim.congested(2 * SECOND, 2_000_000);
        let got = sim.congested(10 * SECOND, 2_000_000);
        (got[&1].0, got[&2].0)
    };
    // The realtime class, which makes up for lateness, gets its whole rate; the other gets the
    // rest.
    let (fast, slow) = run([0, 1]);
    near(slow, 1000, 1.5, "realtime");
    near(fast, 4000, 1.5, "rest");
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

/// Checks that credit for lateness is limited to one second.
#[test]
fn realtime_credit_is_capped() {
    for (realtime, most) in [(1, 1003), (0, 13)] {
        let mut sim = TbfSim::by_uid();
        sim.rule(&format!("start a uid={{1}} rate=1000 realtime={realtime}"));
        sim.queue(0, 1, 5000, 1);
        // No request is dispatched for a minute, because the device hangs: all of it is lateness.
        sim.now += 60 * SECOND;
        let mut burst = 0u64;
        while let Decision::Item(_) = sim.get(0, false) {
            burst += 1;
        }
        assert!((most - 3..=most + 1).contains(&burst), "{burst} of {most}");
        // An hour without requests is not lateness.
        while let Decision::Item(_) = sim.get(0, true) {}
        sim.now += 3600 * SECOND;
        sim.queue(0, 1, 100, 1);
        let burst = std::iter::from_fn(|| match sim.get(0, false) {
            Decision::Item(request) => Some(request),
            _ => None,
        });
        assert_eq!(burst.count(), 3);
    }
}

/// Checks that under congestion minimum rates precede service beyond the minimum rates.
#[test]
fn floors_come_first() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start a uid={1} rate=1000 minrate=300");
    sim.rule("start b uid={2} rate=10000");
    sim.rule("start c uid={3} rate=1000 minrate=50");
    for uid in 1..=3 {
        sim.queue(0, uid, 8, 1);
    }
    // 400 requests/s; the minimum rates are 350.
    sim.congested(SECOND, 2_500_000);
    let got = sim.congested(10 * SECOND, 2_500_000);
    assert!(got[&1].0 >= 2970, "{got:?}");
    assert!(got[&3].0 >= 495, "{got:?}");
    assert!(got[&2].0 >= 100, "{got:?}");
    // 200 requests/s: classes with a minimum rate get no more than that rate; the other class gets
    // one request in eleven.
    sim.congested(SECOND, 5_000_000);
    let got = sim.congested(10 * SECOND, 5_000_000);
    near(got[&2].0, 2000 / 11, 2.0, "beside floors");
    // With enough for all, rates hold.
    for uid in 1..=3 {
        sim.queue(0, uid, 20, 1);
    }
    sim.run(sim.now + SECOND, one);
    let got = sim.measure(4 * SECOND, one);
    for (uid, rate) in [(1, 1000), (2, 10_000), (3, 1000)] {
        near(got[&uid].0, 4 * rate, 1.0, "rate");
    }
}

/// Checks that a minimum rate belongs to the rule: more names do not multiply it, and other rules
/// get their turns.
#[test]
fn names_do_not_multiply_a_floor() {
    // Returns the service of user 1, and that of a rule whose requests have `names` names.
    let run = |names: u32, minrate: u32| {
        let mut sim = TbfSim::new("uid+gid", 1, &Tunables::default());
        sim.rule("start other uid={1} rate=1000");
        sim.rule(&format!(
            "start named gid={{3}} rate=1000 minrate={minrate}"
        ));
        sim.queue(0, 1, 8, 1);
        for name in 0..names {
            sim.queue(0, 300 + name, 8, 1);
        }
        sim.congested(SECOND, 1_000_000);
        let got = sim.congested(10 * SECOND, 1_000_000);
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
    // Beside one class the rule has its minimum rate, regardless of its service before the
    // shortage.
    let mut sim = TbfSim::new("uid+gid", 2, &Tunables::default());
    sim.rule("start other uid={1} rate=10000");
    sim.rule("start named gid={3} rate=10000 minrate=300");
    for part in 0..2 {
        (300..310).for_each(|owner| sim.queue(part, owner, 8, 1));
    }
    sim.run(sim.now + SECOND, one);
    (0..90).for_each(|_| sim.queue(0, 1, 8, 1));
    let got = sim.congested(SECOND, 2_000_000);
    let named: u64 = got.range(300..).map(|(_, got)| got.0).sum();
    assert!(named >= 270, "{named}");
}

/// Checks that the growth of a request is charged where pages or bytes count, also to shared
/// buckets; it does not count as a request.
#[test]
fn growing() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start bytes uid={2} rate=409600B/s");
    sim.rule("start count uid={1} rate=100");
    sim.rule("start both uid={3} rate=100 also=bytes");
    // Three pages at once, and 20 at 100 per second.
    for (uid, cost, debt) in [(1, 0, 0), (2, 23 * 4096, 200_000_000), (3, 0, 0)] {
        for _ in 0..23 {
            assert_eq!(
                sim.pass(uid, 1, BypassReason::Merged),
                BypassOutcome::Counted
            );
        }
        let row = sim.row(uid);
        assert_eq!((row.debt, row.counters.cost), (debt, cost), "{uid}");
        assert_eq!((row.counters.dispatched, row.counters.forced), (0, 0));
    }
    sim.queue(0, 1, 1, 1);
    sim.queue(0, 3, 1, 1);
    assert!(matches!(sim.get(0, false), Decision::Item(request) if request.owner == 1));
    // The shared bucket of the rule has the same debt; one more page becomes due.
    let due = sim.now + 210_000_000;
    let got = sim.get(0, false);
    assert!(
        matches!(got, Decision::Throttled { until } if until == due),
        "{got:?}, not {due}"
    );
}

/// Checks that an opportunity needs tokens and an empty queue, and that the debt of forced requests
/// is limited.
#[test]
fn passing() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start a uid={1} rate=100");
    for _ in 0..3 {
        assert_eq!(
            sim.pass(1, 1, BypassReason::Opportunity),
            BypassOutcome::Counted
        );
    }
    assert_eq!(
        sim.pass(1, 1, BypassReason::Opportunity),
        BypassOutcome::Refused
    );
    // A refusal costs nothing.
    sim.now += 10_000_000;
    assert_eq!(
        sim.pass(1, 1, BypassReason::Opportunity),
        BypassOutcome::Counted
    );
    sim.queue(0, 1, 1, 1);
    sim.now += SECOND;
    assert_eq!(
        sim.pass(1, 1, BypassReason::Opportunity),
        BypassOutcome::Refused
    );
    assert!(matches!(sim.get(0, false), Decision::Item(_)));
    sim.now += SECOND;
    // Three tokens and a debt of five: the next token in 60 ms.
    for _ in 0..8 {
        assert_eq!(
            sim.pass(1, 1, BypassReason::Forced { contended: true }),
            BypassOutcome::Counted
        );
    }
    sim.queue(0, 1, 1, 1);
    let row = sim.row(1);
    assert_eq!((row.debt, row.counters.forced), (50_000_000, 8));
    assert_eq!((row.counters.dispatched, row.queued), (13, 1));
    assert!(
        matches!(sim.get(0, false), Decision::Throttled { until } if until == sim.now + 60_000_000)
    );
    // The class is served again after the limit, regardless of the number of forced requests.
    for _ in 0..100_000 {
        assert_eq!(
            sim.pass(1, 1, BypassReason::Forced { contended: true }),
            BypassOutcome::Counted
        );
    }
    assert!(sim.row(1).debt <= 10 * SECOND);
    sim.queue(0, 1, 1, 1);
    sim.now += 60_000_000;
    assert!(matches!(sim.get(0, false), Decision::Item(_)));
    let limit = sim.now + 10 * SECOND + 20_000_000;
    assert!(matches!(sim.get(0, false), Decision::Throttled { until } if until <= limit));
}
