// SPDX-License-Identifier: GPL-2.0-only

//! Clients that ask for more and do with less by themselves.

use nrs_sched::{
    bandwidth::{Load, Setup, Sim, MB, MS, SECOND},
    qbm::terms::Class,
};

const GREEDY: Load = Load::Greedy(8);

/// Time until `reached`, in steps of a tenth of a walk, ns.
fn until(sim: &mut Sim, limit: u64, reached: impl Fn(&Sim) -> bool) -> u64 {
    let from = sim.time();
    while !reached(sim) {
        sim.run(20 * MS);
        assert!(sim.time() - from <= limit, "not within {limit} ns");
    }
    sim.time() - from
}

/// Who uses little has less with each slow period, and all of it back within 1.44 s of the moment it has to
/// wait.
#[test]
fn gives_up_what_it_does_not_use_and_restores_it() {
    for class in [Class::FirstCome, Class::FairShare, Class::LowShare] {
        for phase in [0, 50, 130, 190] {
            let text = format!(
                "by uid; group all capacity=100MB; client 1 class={} min=50MB max=50MB",
                class.name()
            );
            let mut sim = Sim::new(&text, Setup::default());
            sim.load(1, Load::Rate(4 * MB));
            sim.run(31 * SECOND);
            assert_eq!(sim.allocated(1), Some(45 * MB));
            sim.run(210 * SECOND);
            let little = sim.allocated(1).unwrap();
            assert!(little < 22 * MB, "{little}");
            sim.run(phase * MS);
            sim.load(1, GREEDY);
            let took = until(&mut sim, 10 * SECOND, |sim| {
                sim.allocated(1) == Some(50 * MB)
            });
            assert!(took <= 1_440 * MS, "{}: {took}", class.name());
            assert!(sim.stats().contains("restores: 1"), "{}", sim.stats());
        }
    }
}

/// What it gave up is others' meanwhile, and comes back from them.
#[test]
fn restores_from_who_had_it_meanwhile() {
    let text = "by uid; group all capacity=100MB
        client 1 class=first_come min=60MB max=60MB
        client 2 class=fair_share min=40MB max=90MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(1, Load::Rate(3 * MB));
    sim.load(2, GREEDY);
    sim.run(400 * SECOND);
    let more = sim.allocated(2).unwrap();
    assert!(more > 70 * MB, "{more}");
    sim.load(1, GREEDY);
    until(&mut sim, 1_440 * MS, |sim| {
        sim.allocated(1) == Some(60 * MB)
    });
    sim.run(SECOND);
    assert_eq!(sim.allocated(2), Some(40 * MB));
    assert!(sim.stats().contains("taken_by_others: "));
}

/// A slow period of 80 % asks for 30 % more, one of 79 % does not.
#[test]
fn asks_for_more_after_a_slow_period_of_80_percent() {
    for (percent, more) in [(100, true), (83, true), (77, false), (62, false)] {
        let text = "by uid; group all capacity=100MB; client 1 class=fair_share min=20MB max=90MB";
        let mut sim = Sim::new(text, Setup::default());
        sim.load(1, Load::Rate(20 * MB / 100 * percent));
        sim.run(31 * SECOND);
        let want = if more { 26 * MB } else { 20 * MB };
        assert_eq!(sim.allocated(1), Some(want), "{percent}");
    }
}

/// Alone on a group a client reaches what it asks for, if that is within its maximum.
#[test]
fn alone_it_reaches_what_it_asks_for() {
    for (min, ask) in [(5, 95), (20, 60), (50, 30)] {
        for class in [Class::FirstCome, Class::FairShare, Class::LowShare] {
            let text = format!(
                "by uid; group all capacity=100MB; client 1 class={} min={min}MB",
                class.name()
            );
            let mut sim = Sim::new(&text, Setup::default());
            sim.load(1, Load::Rate(ask * MB));
            // 1.3 to the twelfth is 23.
            sim.run(370 * SECOND);
            let span = sim.run(60 * SECOND);
            let rate = sim.served(1, span.0, span.1);
            assert!(
                rate > ask * MB / 100 * 98,
                "{} {min} {ask}: {rate}",
                class.name()
            );
        }
    }
    // Movers have at once what nobody else does.
    let text = "by uid; group all capacity=100MB; client 1 class=mover min=5MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(1, GREEDY);
    sim.run(SECOND);
    let span = sim.run(10 * SECOND);
    assert!(sim.served(1, span.0, span.1) > 98 * MB);
}

/// A client offered 95 % of what it has does not sleep in most of the periods, nor one that has the rest of
/// a device beside it.
#[test]
fn sleepless_under_load() {
    for pages in [1, 16, 64, 128] {
        for percent in [50, 80, 95] {
            let text =
                "by uid; group all capacity=100MB; default class=fair_share min=48MB max=48MB";
            let mut sim = Sim::new(text, Setup::default());
            sim.shape(1, pages, 0);
            sim.shape(2, pages, 0);
            sim.load(1, Load::Rate(48 * MB / 100 * percent));
            sim.load(2, Load::Rate(48 * MB / 100 * percent));
            sim.run(5 * SECOND);
            let sleeps = |sim: &Sim| -> u64 {
                let status = sim.status();
                let lines = status
                    .lines()
                    .filter_map(|line| line.split_once("sleeps: "));
                lines
                    .map(|(_, count)| count.parse::<u64>().unwrap())
                    .max()
                    .unwrap()
            };
            let before = sleeps(&sim);
            let span = sim.run(20 * SECOND);
            let slept = sleeps(&sim) - before;
            assert!(
                slept * 2 < 500,
                "{pages} pages, {percent} %: {slept} of 500 periods"
            );
            let rate = sim.served(1, span.0, span.1);
            assert!(
                rate > 48 * MB / 100 * (percent - 1),
                "{pages} {percent}: {rate}"
            );
        }
    }
}

/// An hour with two that would have everything: once they have settled, nothing changes.
#[test]
fn two_greedy_clients_do_not_oscillate() {
    for (one, two) in [
        (Class::FairShare, Class::FairShare),
        (Class::FirstCome, Class::FirstCome),
        (Class::FirstCome, Class::FairShare),
        (Class::FairShare, Class::LowShare),
        (Class::FirstCome, Class::Mover),
        (Class::Mover, Class::Mover),
    ] {
        let text = format!(
            "by uid; group all capacity=20MB
            client 1 class={} min=4MB
            client 2 class={} min=4MB",
            one.name(),
            two.name()
        );
        let setup = Setup {
            bandwidth: 20 * MB,
            ..Setup::default()
        };
        let mut sim = Sim::new(&text, setup);
        for user in 1..=2 {
            sim.shape(user, 128, 0);
            sim.load(user, GREEDY);
        }
        sim.run(600 * SECOND);
        let settled = [sim.changes(1), sim.changes(2)];
        let had = [sim.allocated(1), sim.allocated(2)];
        let span = sim.run(3_000 * SECOND);
        let what = format!("{} and {}", one.name(), two.name());
        assert_eq!([sim.changes(1), sim.changes(2)], settled, "{what}");
        assert_eq!([sim.allocated(1), sim.allocated(2)], had, "{what}");
        let sum = sim.served(1, span.0, span.1) + sim.served(2, span.0, span.1);
        assert!(sum > 19_500_000, "{what}: {sum}");
        for user in [1, 2] {
            let rate = sim.served(user, span.0, span.1);
            assert!(rate > 3_900_000, "{what}: {user} {rate}");
        }
    }
}

/// Nor do many of them, of all classes, with loads that are not theirs to choose.
#[test]
fn a_crowd_settles() {
    let text = "by uid; group all capacity=20MB
        client 1 class=first_come min=3MB
        client 2 class=fair_share min=3MB
        client 3 class=fair_share min=6MB
        client 4 class=low_share min=3MB
        client 5 class=mover min=1MB";
    let setup = Setup {
        bandwidth: 20 * MB,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    for user in 1..=5 {
        sim.shape(user, 64, 0);
        sim.load(user, GREEDY);
    }
    // One uses a fifth of its minimum: that is given up step by step, and others have it.
    sim.load(3, Load::Rate(1_200_000));
    sim.run(1_200 * SECOND);
    let before: Vec<u64> = (1..=5).map(|user| sim.changes(user)).collect();
    sim.run(1_200 * SECOND);
    for (user, before) in (1..=5).zip(before) {
        let changes = sim.changes(user) - before;
        assert!(changes <= 2, "{user}: {changes}");
    }
}
