// SPDX-License-Identifier: GPL-2.0-only

//! Buckets that several classes or partitions share: `also`, lending, and real threads.

use super::sim::{attrs, near, play, TbfSim, SECOND};
use nrs_sched::{
    arena::{view, Request},
    item::Item,
    mem,
    policy::{
        tbf::{Config, Shared, State, Tunables, Update},
        Configuration, Decision, Part,
    },
    rng::Rng,
    rules::RuleCommand,
};
use std::sync::{
    atomic::{AtomicU64, Ordering::SeqCst},
    Mutex,
};

const SHARING: &str = "
# two limits: each client's, and a common one of a group [PARTS GLOBAL: 1 1, 2 1, 1 0]
with uid parts=PARTS global_rate=GLOBAL
start group uid={999} rate=250
start each uid={1 2 3 4 5} rate=100 also=group
start free uid={6} rate=100
queue 1-2 8 @*
queue 6 8
run 1s
// Two clients get their own rates.
in 4s: each:1-2=400~1 6=400~1
// Five clients get equal parts of the group's rate.
queue 3-5 8 @*
run 1s
in 10s: 1-5=2500~1 each:1-5=500~3 6=1000~1
// A change of the group affects its clients.
change group rate=100
in 10s: 1-5=1000~2

# a borrower gets unused rates, the owner has its own in 100 ms [PARTS GLOBAL: 1 1, 2 1, 1 0]
with uid parts=PARTS global_rate=GLOBAL
start owner uid={1} rate=1000
start other uid={2} rate=500 borrow=1
start third uid={3} rate=200
queue 2 32 @1
run 1s
// Alone: the rate of the borrower and those of the two idle rules.
in 4s: 2=6800~1
// The owner returns: it has its full rate at once, and the borrower has the rest after 100 ms.
queue 1 16
in 0.1s: 1=99..
in 4s: 1=4000~1 2=2800~2
// All three: nothing is left to borrow.
queue 3 16
run 0.2s
in 4s: 1=4000~2 2=2000~2 3=800~2
row 2 borrowed=5001..
row 1 borrowed=0

# a class throttled by one bucket takes no token of another that other classes could use
with uid+gid
start wide uid={999} rate=100
start narrow uid={998} rate=1
start both gid={1} rate=1000 also=wide+narrow
start one uid={1} rate=1000 also=wide
queue 100-199 4
run 5s none
queue 1 8
run 1s
in 20s: 100-199=20~5 1,100-199=2000~1

# a byte limit beside a request limit
start bytes uid={999} rate=1MiB/s
start iops uid={1} rate=100 also=bytes
queue 1 8
run 1s
in 10s: 1=1000~1
run 2s large
in 100s large: 1=100~2

# a rule without borrow keeps its rate, and the default rule neither lends nor borrows
start owner uid={1} rate=1000
start other uid={2} rate=500
queue 2 32
run 1s
in 1s: 2=500~1
stop owner
change other borrow=1
run 1s
in 1s: 2=500~1
// Bytes are not lent to requests.
start owner uid={1} rate=100MiB/s
in 1s: 2=500~1.5

# refused requests return their tokens to all buckets from which they took [PARTS: 1, 2]
with uid parts=PARTS
late 0
start all uid={7} rate=10
start own uid={1} rate=20 also=all
10x queue 1 1; get 1; refund 1
// No bucket gets more than its depth.
10x refund 1
queue 1 100
// The depth of three, ten tokens of the shared bucket a second, and 10 ms for lateness.
in 1s none: 1=13
get throttled
// The front of the class has a token that is returned.
refund 1; get 1 throttled
";

#[test]
fn sharing() {
    play(SHARING);
}

/// Checks that four threads that share a limit in real time get it together.
#[test]
fn threads_share_one_rate() {
    let config = Config::parse(Some("uid"), &Tunables::default()).unwrap();
    let shared = mem::Shared::new(Shared::new(&config, 5, 1).unwrap()).unwrap();
    let rules = [
        "start a uid={1} rate=1000000",
        "start b uid={2} rate=1000 also=a",
    ];
    let rule_list = rules
        .iter()
        .fold(config.rule_list().unwrap(), |rule_list, rule| {
            rule_list.apply(&RuleCommand::parse(rule).unwrap()).unwrap()
        });
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
    sim.play("late 0; start a uid={1} rate=1KiB/s borrow=1; queue 1 3 256");
    let (end, mut asked) = (sim.now + 100 * SECOND, 0);
    while sim.now < end {
        if let Decision::Throttled { until } = sim.get(0, false) {
            sim.now = until;
            asked += 1;
        }
    }
    assert!(asked <= 110, "{asked}");
}
