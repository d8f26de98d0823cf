// SPDX-License-Identifier: GPL-2.0-only

//! The mover strategy: regular clients do not notice movers, and movers have what they leave.

use nrs_sched::bandwidth::{Load, Setup, Sim, MB, MS, SECOND};

const PLAN: &str = "by uid; group all capacity=100MB strategy=mover
    client 8 class=mover min=10MB
    client 9 class=mover min=10MB";

/// What user 1 gets with and without movers, and what movers get, bytes/s, over periods in which it has the
/// loads in `turns` for so many seconds, again and again.
fn measure(turns: &[(Load, u64)], slots: usize) -> (u64, u64, u64) {
    let run = |movers: bool| {
        let setup = Setup {
            slots,
            ..Setup::default()
        };
        let mut sim = Sim::new(PLAN, setup);
        if movers {
            sim.load(8, Load::Greedy(8));
            sim.load(9, Load::Greedy(8));
        }
        sim.run(10 * SECOND);
        let from = sim.time();
        for (load, seconds) in turns.iter().cycle().take(turns.len() * 4) {
            sim.load(1, *load);
            sim.run(seconds * SECOND);
        }
        let served = |user| sim.served(user, from, sim.time());
        (served(1), served(8) + served(9))
    };
    let (alone, _) = run(false);
    let (beside, movers) = run(true);
    (alone, beside, movers)
}

#[test]
fn regular_clients_do_not_notice() {
    for (what, turns, slots) in [
        ("greedy", &[(Load::Greedy(8), 20)][..], 4),
        ("greedy, one slot", &[(Load::Greedy(8), 20)], 1),
        ("greedy, many slots", &[(Load::Greedy(32), 20)], 16),
        ("greedy, nothing waits", &[(Load::Greedy(32), 20)], 64),
        ("steady", &[(Load::Rate(40 * MB), 20)], 4),
        ("nearly all", &[(Load::Rate(93 * MB), 20)], 4),
        ("nothing", &[(Load::Off, 20)], 4),
        (
            "comes and goes",
            &[(Load::Greedy(8), 20), (Load::Off, 20)],
            4,
        ),
        (
            "comes and goes, nothing waits",
            &[(Load::Greedy(32), 20), (Load::Off, 20)],
            64,
        ),
        (
            "comes and goes, half",
            &[(Load::Rate(50 * MB), 15), (Load::Off, 15)],
            4,
        ),
        (
            "changes",
            &[
                (Load::Rate(80 * MB), 15),
                (Load::Rate(20 * MB), 15),
                (Load::Rate(60 * MB), 15),
            ],
            4,
        ),
    ] {
        let (alone, beside, movers) = measure(turns, slots);
        let left = 100 * MB - alone;
        println!("{what}: alone {alone}, beside {beside}, movers {movers} of {left}");
        assert!(beside * 100 >= alone * 97, "{what}: {beside} of {alone}");
        if left > 10 * MB {
            assert!(movers * 100 >= left * 90, "{what}: {movers} of {left}");
        }
    }
}

/// Movers share by their minimums, up to their maximums.
#[test]
fn movers_share_what_is_left() {
    let text = "by uid; group all capacity=100MB strategy=mover
        client 8 class=mover min=10MB
        client 9 class=mover min=30MB
        client 10 class=mover min=10MB max=12MB";
    let mut sim = Sim::new(text, Setup::default());
    (8..=10).for_each(|user| sim.load(user, Load::Greedy(8)));
    sim.load(1, Load::Rate(20 * MB));
    sim.run(5 * SECOND);
    let span = sim.run(10 * SECOND);
    let rate = |user| sim.served(user, span.0, span.1) as f64 / 1e6;
    assert!((rate(10) - 12.0).abs() < 0.5, "{}", rate(10));
    assert!(
        (rate(9) / rate(8) - 3.0).abs() < 0.1,
        "{} {}",
        rate(8),
        rate(9)
    );
    let sum = rate(8) + rate(9) + rate(10);
    assert!(sum > 75.0, "{sum}");
    assert_eq!(sim.allocated(1), Some(u64::MAX));
}

/// A mover that does not use its share leaves it to the other.
#[test]
fn an_idle_mover_is_no_loss() {
    let mut sim = Sim::new(PLAN, Setup::default());
    sim.load(8, Load::Greedy(8));
    sim.load(9, Load::Off);
    sim.run(5 * SECOND);
    let span = sim.run(5 * SECOND);
    assert!(sim.served(8, span.0, span.1) > 95 * MB);
    // And it has its share again when it comes back.
    sim.load(9, Load::Greedy(8));
    sim.run(2 * SECOND);
    let span = sim.run(5 * SECOND);
    let rate = sim.served(9, span.0, span.1);
    assert!(rate > 46 * MB, "{rate}");
}

/// A mover that uses little of its share leaves the rest to the other step by step, and has all of it back
/// when it needs it.
#[test]
fn a_slow_mover_is_little_loss() {
    let mut sim = Sim::new(PLAN, Setup::default());
    sim.load(8, Load::Greedy(8));
    sim.load(9, Load::Rate(5 * MB));
    sim.run(700 * SECOND);
    let span = sim.run(30 * SECOND);
    let rate = sim.served(8, span.0, span.1);
    assert!(rate > 85 * MB, "{rate}");
    sim.load(9, Load::Greedy(8));
    sim.run(1_440 * MS);
    assert_eq!(sim.allocated(8), sim.allocated(9));
    let span = sim.run(5 * SECOND);
    let rate = sim.served(9, span.0, span.1);
    assert!(rate > 46 * MB, "{rate}");
}

/// In a group of classes movers have what allocations leave.
#[test]
fn movers_beside_classes() {
    let text = "by uid; group all capacity=100MB
        client 1 class=fair_share min=60MB max=60MB
        client 8 class=mover min=10MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(8, Load::Greedy(8));
    sim.run(2 * SECOND);
    let span = sim.run(3 * SECOND);
    assert!(sim.served(8, span.0, span.1) > 97 * MB);
    sim.load(1, Load::Greedy(8));
    sim.run(SECOND);
    let span = sim.run(5 * SECOND);
    let rate = |user| sim.served(user, span.0, span.1);
    assert!(
        rate(1) > 59 * MB && rate(8) > 38 * MB,
        "{} {}",
        rate(1),
        rate(8)
    );
}
