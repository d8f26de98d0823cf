// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth of clients over time: by class and by usage, when clients join and leave, and when
//! plans change.

use super::sim::{play, QbmSim};
use nrs_sched::units::NSEC_PER_SEC as SECOND;

const RULES: &str = "
# a class takes from lower ones [HIGH LOW: fc fs, fc ls, fc mover, fs ls, fs mover, ls mover]
// The lower class has its bandwidth again 2 s after the higher class left.
by uid; group all capacity=100MB
client 1 class=HIGH min=70MB max=70MB; client 2 class=LOW min=60MB max=60MB
load 2 greedy
run 3s
in 2s: 2=60~2
load 1 greedy
run 1s
in 3s: 1=70~2 2=30~2
load 1 off
run 2s
in 2s: 2=60~2
has 1=none

# a client gives up what it does not use [CLASS PHASE: fc 0s, fs 50ms, ls 190ms]
// With each slow period. All of it is restored within 1.44 s after the client is throttled.
by uid; group all capacity=100MB; client 1 class=CLASS min=50MB max=50MB
load 1 4
run 31s
has 1=45
run 210s
run PHASE
has 1=..21.9
load 1 greedy
run 1.44s
has 1=50
stats restores: 1

# a client that uses 80 % in a slow period has more [USED HAS: 20 26, 16.6 26, 15.4 20, 12.4 20]
by uid; group all capacity=100MB; client 1 class=fs min=20MB max=90MB
load 1 USED
run 31s
has 1=HAS

# pauses up to a second are ignored, none is low usage [PAUSE JOINS: 700ms 1, 1350ms 12, 3s 12]
by uid; group all capacity=100MB; default class=fs min=50MB max=50MB
12x load 1 greedy; run 3s; has 1=50; load 1 off; run PAUSE
stats decreases: 0
stats joins: JOINS

# newcomers have the allocation of their terms within 2 ms
by uid; group all capacity=100MB; default class=fs min=10MB
run 1.05s
shape 1-3 16
load 1 greedy=1; run 2ms; has 1=10
load 2 greedy=1; run 2ms; has 2=10
load 3 greedy=1; run 2ms; has 3=10

# reloading a plan changes nothing, and a new plan applies at once while all clients are served
by uid; group all capacity=100MB
client 1 class=fc min=40MB max=60MB; client 2 class=fs min=40MB max=60MB
shape 1-2 16; load 1-2 greedy
// More than its minimum.
run 70s
5x has 1=60 2=40; again; run 1s
by uid; group all capacity=100MB
client 1 class=fc min=70MB max=70MB; client 2 class=fs min=40MB max=60MB
run 1ms; has 1=70 2=30
5x in 0.2s: 1=17.5.. 2=7.5..
in 3s: 1=70~2 2=30~2
by uid; group all capacity=100MB
client 1 class=ls min=70MB max=70MB; client 2 class=fs min=50MB max=50MB
run 1ms; has 1=50 2=50
5x in 0.2s: 1=12.5.. 2=12.5..
in 3s: 1=50~2 2=50~2
by uid; group all capacity=50MB
client 1 class=fs min=30MB max=30MB; client 2 class=fs min=30MB max=30MB
run 1ms; has 1=25 2=25
5x in 0.2s: 1=6.25.. 2=6.25..
in 3s: 1=25~2 2=25~2
by uid; group all capacity=100MB
client 1 class=fs min=30MB max=30MB; client 2 class=fs min=10MB max=10MB
run 1ms; has 1=30 2=10
5x in 0.2s: 1=7.5.. 2=2.5..
in 3s: 1=30~2 2=10~2

# clients continue in other groups, under the other strategy, and without a strategy
shape 1 16 1; shape 2 16 2; load 1-2 greedy
by uid; group a capacity=40MB; default class=fs min=100%
run 1ms; has 1=20 2=20
run 1s
in 3s: 1=20~2 2=20~2
by uid; group b capacity=30MB target=1; group a capacity=40MB; default class=fs min=100%
run 1ms; has 1=30 2=40
run 1s
in 3s: 1=30~2 2=40~2
// The names are swapped.
by uid; group a capacity=50MB target=1; group b capacity=10MB; default class=fs min=100%
run 1ms; has 1=50 2=10
run 1s
in 3s: 1=50~2 2=10~2
by uid; group a capacity=100MB strategy=mover; client 2 class=mover min=10MB
run 5s
has 1=1e12..
in 5s: 1=95..
by uid; group a capacity=100MB; default class=fs min=30MB max=30MB; client 2 class=mover min=10MB
run 2s
in 5s: 1=30~2 2=70~2
by uid
run 1s
has 1=none
in 2s: 1=45.. 2=45..

# counters
by uid; group all capacity=100MB
client 1 class=fc min=60MB max=60MB; default class=fs min=60MB max=90MB
load 2 greedy
run 35s
load 1 greedy
run 10s
load 2 off
run 3s
stats joins: 2
stats leaves: 1
stats increases_asked: 1
stats increases_whole: 1
stats losses: 1
stats taken_by_others: 38000000
stats decreases: 0
stats written_bytes: 0
reset

# the last client of a device with half of the promised bandwidth has the minimum rate of 32 KiB/s
disk 100 1000
by uid; group all capacity=200MB
client 1 class=fc min=190MB max=190MB; client 2 class=ls min=5MB max=5MB
shape 1-2 1; load 1-2 greedy=16
run 5s
in 20s: 1=90.. 2=0.03244..

# movers share the remaining bandwidth by their minimums, up to their maximums
by uid; group all capacity=100MB strategy=mover
client 7 class=mover min=10MB; client 8 class=mover min=30MB
client 9 class=mover min=10MB max=12MB
load 7-9 greedy; load 1 20
run 5s
in 10s: 7=16.5~3 8=49.5~3 9=12~4
has 1=1e12..
";

#[test]
fn rules() {
    play(RULES);
}

/// Checks that clients that are offered 95 % of their allocation are not throttled in half of the
/// periods.
#[test]
fn sleepless_under_load() {
    for pages in [1, 16, 128] {
        let text = "by uid; group all capacity=100MB; default class=fs min=48MB max=48MB";
        let mut sim = QbmSim::new(text, 100, 64);
        sim.play(&format!("shape 1-2 {pages}; load 1-2 45.6; run 5s"));
        sim.manager.reset_stats();
        let rates = sim.rates(20 * SECOND, [1, 2]);
        assert!(rates.iter().all(|rate| *rate > 48.0 * 0.94), "{rates:?}");
        let stats = sim.stats();
        let sleeps = stats
            .lines()
            .filter_map(|line| line.split_once("    sleeps: "));
        for (_, sleeps) in sleeps {
            assert!(sleeps.parse::<u64>().unwrap() < 250, "{pages}: {stats}");
        }
    }
}

/// Checks that two greedy clients use all bandwidth, and that the settled allocation does not
/// change for 50 minutes.
#[test]
fn two_greedy_clients_do_not_oscillate() {
    for [one, two] in [
        ["fair_share", "fair_share"],
        ["first_come", "first_come"],
        ["first_come", "fair_share"],
        ["fair_share", "low_share"],
        ["first_come", "mover"],
        ["mover", "mover"],
    ] {
        let what = format!("{one} and {two}");
        let text = format!(
            "by uid; group all capacity=20MB
            client 1 class={one} min=4MB; client 2 class={two} min=4MB"
        );
        let mut sim = QbmSim::new(&text, 20, 64);
        sim.play("shape 1-2 128; load 1-2 greedy; run 600s");
        let had = [1, 2].map(|user| sim.allocated(user));
        for _ in 0..600 {
            let [first, second] = sim.rates(5 * SECOND, [1, 2]);
            assert_eq!([1, 2].map(|user| sim.allocated(user)), had, "{what}");
            let ok = first + second > 19.5 && first > 3.7 && second > 3.7;
            assert!(ok, "{what}: {first} {second}");
        }
    }
}

/// Checks that clients without a gate of their own share the gate of the group and are counted.
/// They get gates as soon as gates are vacant.
#[test]
fn gates_run_out() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=5MB max=5MB";
    let mut sim = QbmSim::new(text, 100, 14);
    let users: [u32; 20] = std::array::from_fn(|i| i as u32 + 1);
    for user in users {
        sim.play(&format!("shape {user} 4; load {user} greedy=4; run 50ms"));
    }
    sim.run(2 * SECOND);
    let (own, shared): (Vec<f64>, Vec<f64>) = sim
        .rates(5 * SECOND, users)
        .into_iter()
        .partition(|rate| (rate - 5.0).abs() < 0.25);
    assert_eq!(own.len(), 14, "{shared:?}");
    let sum: f64 = shared.iter().sum();
    assert!((sum - 5.0).abs() < 0.25, "{shared:?}");
    let equal = |rate: &f64| (rate - sum / 6.0).abs() < 0.1;
    assert!(shared.iter().all(equal), "{shared:?}");
    assert!(sim.stats().contains("without_gate: 6\n"), "{}", sim.stats());
    let status = sim.status();
    assert!(status.contains("without_gate: 5000000\n"), "{status}");
    sim.play("load 1-8 off; run 3s");
    let rates = sim.rates(3 * SECOND, users);
    assert!(
        rates[8..].iter().all(|rate| (rate - 5.0).abs() < 0.25),
        "{rates:?}"
    );
    assert!(!sim.status().contains("without_gate"));
}
