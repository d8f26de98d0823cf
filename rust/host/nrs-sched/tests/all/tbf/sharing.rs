// SPDX-License-Identifier: GPL-2.0-only

//! Buckets that several classes or partitions share: `also`, lending, and real threads.

use super::sim::{attrs, near, none, one, TbfSim, SECOND};
use nrs_sched::{
    arena::{view, Request},
    item::Item,
    mem,
    policy::{
        tbf::{params::GlobalRate, Config, Shared, State, Tunables, Update},
        Configuration, Decision, Part,
    },
    rng::Rng,
    rules::RuleCommand,
};
use std::sync::{
    atomic::{AtomicU64, Ordering::SeqCst},
    Mutex,
};

/// Calls `test` with servers and their number of partitions: one partition, two that share rates,
/// and one that does not share.
fn layouts(test: impl Fn(TbfSim, usize)) {
    for (parts, global_rate) in [
        (1, GlobalRate::On),
        (2, GlobalRate::On),
        (1, GlobalRate::Off),
    ] {
        let tunables = Tunables {
            global_rate,
            ..Tunables::default()
        };
        test(TbfSim::new("uid", parts, &tunables), parts as usize);
    }
}

/// Checks two stacked limits: a rate for each client, and a common rate for all clients of a group.
#[test]
fn also_limits_all_who_name_the_rule() {
    layouts(|mut sim, parts| {
        sim.rule("start group uid={999} rate=250");
        sim.rule("start each uid={1 2 3 4 5} rate=100 also=group");
        sim.rule("start free uid={6} rate=100");
        for uid in 1..=2 {
            sim.queue(uid as usize % parts, uid, 8, 1);
        }
        sim.queue(0, 6, 8, 1);
        sim.run(sim.now + SECOND, one);
        // Two clients get their own rates.
        let got = sim.measure(4 * SECOND, one);
        for uid in [1, 2, 6] {
            near(got[&uid].0, 400, 1.0, "own");
        }
        // Five clients get equal parts of the group's rate.
        for uid in 3..=5 {
            sim.queue(uid as usize % parts, uid, 8, 1);
        }
        sim.run(sim.now + SECOND, one);
        let got = sim.measure(10 * SECOND, one);
        let all: u64 = (1..=5).map(|uid| got[&uid].0).sum();
        near(all, 2500, 1.0, "group");
        for uid in 1..=5 {
            near(got[&uid].0, 500, 3.0, "part");
        }
        near(got[&6].0, 1000, 1.0, "free");
        // A change of the group affects its clients.
        sim.rule("change group rate=100");
        let got = sim.measure(10 * SECOND, one);
        near((1..=5).map(|uid| got[&uid].0).sum(), 1000, 2.0, "changed");
    });
}

/// Checks that a class throttled by one bucket takes no token of another bucket that other classes
/// could use.
#[test]
fn a_token_of_each_or_of_none() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start wide uid={999} rate=100");
    sim.rule("start narrow uid={998} rate=1");
    let many = (100..200)
        .map(|uid| uid.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    sim.rule(&format!(
        "start both uid={{{many}}} rate=1000 also=wide+narrow"
    ));
    sim.rule("start one uid={1} rate=1000 also=wide");
    for uid in 100..200 {
        sim.queue(0, uid, 4, 1);
    }
    sim.run(sim.now + 5 * SECOND, none);
    sim.queue(0, 1, 8, 1);
    sim.run(sim.now + SECOND, one);
    let got = sim.measure(20 * SECOND, one);
    let narrow: u64 = (100..200)
        .filter_map(|uid| got.get(&uid))
        .map(|got| got.0)
        .sum();
    near(narrow, 20, 5.0, "narrow");
    near(got[&1].0 + narrow, 2000, 1.0, "wide");
    // A byte limit beside a request limit.
    let mut sim = TbfSim::by_uid();
    sim.rule("start bytes uid={999} rate=1MiB/s");
    sim.rule("start iops uid={1} rate=100 also=bytes");
    sim.queue(0, 1, 8, 1);
    sim.run(sim.now + SECOND, one);
    near(
        sim.count(1, 10 * SECOND, one),
        1000,
        1.0,
        "requests are the limit",
    );
    sim.run(sim.now + 2 * SECOND, |_| 256);
    near(
        sim.count(1, 100 * SECOND, |_| 256),
        100,
        2.0,
        "bytes are the limit",
    );
}

/// Checks that a borrower gets the unused rate of other rules, and that the owner has it again
/// within 100 ms.
#[test]
fn lending_and_its_return() {
    layouts(|mut sim, parts| {
        let borrower = parts - 1;
        sim.rule("start owner uid={1} rate=1000");
        sim.rule("start other uid={2} rate=500 borrow=1");
        sim.rule("start third uid={3} rate=200");
        sim.queue(borrower, 2, 32, 1);
        sim.run(sim.now + SECOND, one);
        // Alone: the rate of the borrower and those of the two idle rules.
        near(sim.count(2, 4 * SECOND, one), 4 * 1700, 1.0, "borrowed");
        // The owner returns: it has its full rate at once, and the borrower has the rest after 100
        // ms.
        sim.queue(0, 1, 16, 1);
        let got = sim.measure(SECOND / 10, one);
        assert!(got[&1].0 >= 99, "{got:?}");
        let got = sim.measure(4 * SECOND, one);
        near(got[&1].0, 4000, 1.0, "owner");
        near(got[&2].0, 4 * 700, 2.0, "rest");
        // All three: nothing is left to borrow.
        sim.queue(0, 3, 16, 1);
        sim.run(sim.now + SECOND / 5, one);
        let got = sim.measure(4 * SECOND, one);
        for (uid, rate) in [(1, 1000), (2, 500), (3, 200)] {
            near(got[&uid].0, 4 * rate, 2.0, &format!("{uid} of all"));
        }
        assert!(sim.row(2).counters.borrowed > 5000);
        assert_eq!(sim.row(1).counters.borrowed, 0);
    });
}

/// Checks that a rule without `borrow` keeps its rate, and that the default rule neither lends nor
/// borrows.
#[test]
fn only_who_may_borrows() {
    let mut sim = TbfSim::by_uid();
    sim.rule("start owner uid={1} rate=1000");
    sim.rule("start other uid={2} rate=500");
    sim.queue(0, 2, 32, 1);
    sim.run(sim.now + SECOND, one);
    near(sim.count(2, SECOND, one), 500, 1.0, "not marked");
    sim.rule("stop owner");
    sim.rule("change other borrow=1");
    sim.run(sim.now + SECOND, one);
    near(sim.count(2, SECOND, one), 500, 1.0, "no lender");
    // Bytes are not lent to requests.
    sim.rule("start owner uid={1} rate=100MiB/s");
    near(sim.count(2, SECOND, one), 500, 1.5, "another unit");
}

/// Checks that four threads that share a limit in real time get it together.
#[test]
fn threads_share_one_rate() {
    let config = Config::parse(Some("uid"), &Tunables::default()).unwrap();
    let shared = mem::Shared::new(Shared::new(&config, 5, 1).unwrap()).unwrap();
    let rule_list = config.rule_list().unwrap();
    let rule_list = rule_list
        .apply(&RuleCommand::parse("start a uid={1} rate=1000000").unwrap())
        .unwrap();
    let rule_list = rule_list
        .apply(&RuleCommand::parse("start b uid={2} rate=1000 also=a").unwrap())
        .unwrap();
    let rules = mem::Shared::new(rule_list.compile(1).unwrap()).unwrap();
    let update = Update::new(rules, &config).unwrap();
    // Simulated time that all threads advance.
    let clock = AtomicU64::new(100 * SECOND);
    let totals = Mutex::new([0u64; 2]);
    let end = 100 * SECOND + SECOND / 2;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (config, shared, update) = (&config, &shared, update.clone());
            let (clock, totals) = (&clock, &totals);
            scope.spawn(move || {
                let mut part = State::<Request>::new(config, thread, shared).unwrap();
                part.update(update, 0);
                let mut rng = Rng::new(thread);
                let mut served = [0u64; 2];
                let arrive = |part: &mut State<Request>, owner: u32, now| {
                    let class = part.classify(&attrs(owner), now);
                    let request = Request::new(owner, 0, 1, now);
                    assert!(part.enqueue(request, class, now).is_ok());
                };
                for owner in [1, 1, 1, 1, 2, 2] {
                    arrive(&mut part, owner, 100 * SECOND);
                }
                loop {
                    let now = clock.fetch_add(rng.below(300), SeqCst);
                    if now >= end {
                        break;
                    }
                    while let Decision::Item((request, grant)) = part.get(&view(now, false)) {
                        part.stop(&grant, request.cost(), now);
                        served[request.owner as usize - 1] += 1;
                        arrive(&mut part, request.owner, now);
                    }
                }
                let mut totals = totals.lock().unwrap();
                for (total, served) in totals.iter_mut().zip(served) {
                    *total += served;
                }
            });
        }
    });
    let totals = *totals.lock().unwrap();
    // For `also`, the second class takes from the first rule's shared bucket, which is not the
    // first class's own bucket.
    near(totals[0], 500_000, 1.0, "own");
    near(totals[1], 500, 2.0, "also");
    assert_eq!(shared.full(), 0);
}

/// Checks that a borrower that is throttled for long rarely checks for unused rates.
#[test]
fn a_long_wait_takes_few_looks() {
    let mut sim = TbfSim::by_uid();
    sim.late = 0;
    sim.rule("start a uid={1} rate=1KiB/s borrow=1");
    sim.queue(0, 1, 3, 256);
    let (end, mut asked) = (sim.now + 100 * SECOND, 0);
    while sim.now < end {
        if let Decision::Throttled { until } = sim.get(0, false) {
            sim.now = until;
            asked += 1;
        }
    }
    assert!(asked <= 110, "{asked}");
}
