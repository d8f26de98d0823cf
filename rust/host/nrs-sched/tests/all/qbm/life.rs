// SPDX-License-Identifier: GPL-2.0-only

//! Clients that come and go, plans that change under load, and gates that run out.

use nrs_sched::bandwidth::{Load, Setup, Sim, MB, MS, SECOND};

const GREEDY: Load = Load::Greedy(8);

/// What a client had that disappears is others' within two seconds.
#[test]
fn what_the_disappeared_had_is_back_within_2_s() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=80MB max=80MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(1, GREEDY);
    sim.load(2, GREEDY);
    sim.run(10 * SECOND);
    assert_eq!(sim.allocated(1), Some(50 * MB));
    sim.load(2, Load::Off);
    sim.run(2 * SECOND);
    assert_eq!(sim.allocated(1), Some(80 * MB));
    assert_eq!(sim.allocated(2), None);
    let span = sim.run(2 * SECOND);
    assert!(sim.served(1, span.0, span.1) > 78 * MB);
    // It comes back as if it had never been there.
    sim.load(2, GREEDY);
    sim.run(SECOND);
    assert_eq!(sim.allocated(2), Some(50 * MB));
}

/// Pauses shorter than a second are none.
#[test]
fn short_pauses_cost_nothing() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=50MB max=50MB";
    let mut sim = Sim::new(text, Setup::default());
    for _ in 0..20 {
        sim.load(1, GREEDY);
        sim.run(300 * MS);
        sim.load(1, Load::Off);
        sim.run(700 * MS);
        assert_eq!(sim.allocated(1), Some(50 * MB));
    }
    assert!(sim.stats().contains("joins: 1\n"), "{}", sim.stats());
}

/// Who leaves and comes back begins anew: a pause is not held against it.
#[test]
fn long_pauses_are_not_counted() {
    for pause in [1_100, 1_350, 1_600, 3_000] {
        let text = "by uid; group all capacity=100MB; default class=fair_share min=50MB max=50MB";
        let mut sim = Sim::new(text, Setup::default());
        for _ in 0..12 {
            sim.load(1, GREEDY);
            sim.run(3 * SECOND);
            assert_eq!(sim.allocated(1), Some(50 * MB), "{pause}");
            sim.load(1, Load::Off);
            sim.run(pause * MS);
        }
        assert!(sim.stats().contains("decreases: 0\n"), "{}", sim.stats());
    }
}

/// A newcomer waits for its seat for less than a millisecond.
#[test]
fn newcomers_are_served_at_once() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=10MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.run(SECOND + 50 * MS);
    for user in 1..=5 {
        sim.shape(user, 16, 0);
        sim.load(user, Load::Greedy(1));
        sim.run(2 * MS);
        assert_eq!(sim.allocated(user), Some(10 * MB));
    }
}

/// The text that is there already changes nothing; another one holds from the next moment on, and nobody
/// stands still for it.
#[test]
fn reconfiguration_under_load() {
    let plan = |capacity: u64, one: &str, two: &str| {
        format!("by uid; group all capacity={capacity}MB; client 1 {one}; client 2 {two}")
    };
    let first = plan(
        100,
        "class=first_come min=40MB max=60MB",
        "class=fair_share min=40MB max=60MB",
    );
    let mut sim = Sim::new(&first, Setup::default());
    for user in [1, 2] {
        sim.shape(user, 16, 0);
        sim.load(user, GREEDY);
    }
    // The first has more than its minimum by now.
    sim.run(70 * SECOND);
    let had = [sim.allocated(1), sim.allocated(2)];
    assert_eq!(had, [Some(60 * MB), Some(40 * MB)]);
    let changes = sim.changes(1) + sim.changes(2);
    for _ in 0..5 {
        sim.configure(&first);
        sim.run(SECOND);
    }
    assert_eq!([sim.allocated(1), sim.allocated(2)], had);
    assert_eq!(sim.changes(1) + sim.changes(2), changes);
    for (text, want) in [
        (
            plan(
                100,
                "class=first_come min=70MB max=70MB",
                "class=fair_share min=40MB max=60MB",
            ),
            [70, 30],
        ),
        (
            plan(
                100,
                "class=low_share min=70MB max=70MB",
                "class=fair_share min=50MB max=50MB",
            ),
            [50, 50],
        ),
        (
            plan(
                50,
                "class=fair_share min=30MB max=30MB",
                "class=fair_share min=30MB max=30MB",
            ),
            [25, 25],
        ),
        (
            plan(
                100,
                "class=fair_share min=30MB max=30MB",
                "class=fair_share min=10MB max=10MB",
            ),
            [30, 10],
        ),
    ] {
        sim.configure(&text);
        let from = sim.time();
        sim.run(MS);
        assert_eq!(
            [sim.allocated(1), sim.allocated(2)],
            want.map(|rate| Some(rate * MB)),
            "{text}"
        );
        sim.run(4 * SECOND);
        for (user, want) in [(1, want[0]), (2, want[1])] {
            // No fifth of a second without service, from the first on.
            for step in 0..15u64 {
                let at = from.next_multiple_of(100 * MS) + step * 200 * MS;
                let rate = sim.served(user, at, at + 200 * MS);
                assert!(rate > want * MB / 4, "{text}: {user} {step}: {rate}");
            }
            let rate = sim.served(user, from + SECOND, from + 4 * SECOND);
            assert!(rate.abs_diff(want * MB) < want * MB / 20, "{user}: {rate}");
        }
    }
}

/// A client goes on under its new group, and with another way to tell clients apart all register anew.
#[test]
fn groups_change_under_load() {
    let mut sim = Sim::new(
        "by uid; group a capacity=40MB; default class=fair_share min=100%",
        Setup::default(),
    );
    sim.shape(1, 16, 1);
    sim.shape(2, 16, 2);
    sim.load(1, GREEDY);
    sim.load(2, GREEDY);
    sim.run(5 * SECOND);
    assert_eq!(sim.allocated(1), Some(20 * MB));
    sim.configure(
        "by uid
        group b capacity=30MB target=1
        group a capacity=40MB
        default class=fair_share min=100%",
    );
    sim.run(MS);
    assert_eq!(sim.allocated(1), Some(30 * MB));
    assert_eq!(sim.allocated(2), Some(40 * MB));
    // Their names swapped, their places, too.
    sim.configure(
        "by uid
        group a capacity=50MB target=1
        group b capacity=10MB
        default class=fair_share min=100%",
    );
    sim.run(MS);
    assert_eq!(sim.allocated(1), Some(50 * MB));
    assert_eq!(sim.allocated(2), Some(10 * MB));
    let span = sim.run(5 * SECOND);
    assert!(sim.served(1, span.0, span.1) > 48 * MB);
    // Nothing is left of them.
    sim.configure("by uid");
    sim.run(SECOND);
    let span = sim.run(2 * SECOND);
    assert_eq!(sim.allocated(1), None);
    assert!(sim.served(2, span.0, span.1) > 45 * MB);
    assert_eq!(sim.status(), "[]\n");
}

/// From classes to the mover strategy and back.
#[test]
fn strategies_change_under_load() {
    let classes = "by uid; group all capacity=100MB; default class=fair_share min=30MB max=30MB
        client 8 class=mover min=10MB";
    let mover = "by uid; group all capacity=100MB strategy=mover; client 8 class=mover min=10MB";
    let mut sim = Sim::new(classes, Setup::default());
    sim.load(1, GREEDY);
    sim.load(8, GREEDY);
    sim.run(5 * SECOND);
    assert_eq!(sim.allocated(1), Some(30 * MB));
    sim.configure(mover);
    sim.run(5 * SECOND);
    assert_eq!(sim.allocated(1), Some(u64::MAX));
    let span = sim.run(5 * SECOND);
    assert!(sim.served(1, span.0, span.1) > 95 * MB);
    sim.configure(classes);
    sim.run(2 * SECOND);
    assert_eq!(sim.allocated(1), Some(30 * MB));
    let span = sim.run(5 * SECOND);
    let (regular, movers) = (sim.served(1, span.0, span.1), sim.served(8, span.0, span.1));
    assert!(regular.abs_diff(30 * MB) < MB, "{regular}");
    assert!(movers > 67 * MB, "{movers}");
}

/// Who finds no gate shares that of the group, is counted, and has a gate as soon as there is one.
#[test]
fn gates_run_out() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=5MB max=5MB";
    let setup = Setup {
        seats: 14,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    for user in 1..=20 {
        sim.shape(user, 4, 0);
        sim.load(user, Load::Greedy(4));
        sim.run(50 * MS);
    }
    sim.run(2 * SECOND);
    let span = sim.run(5 * SECOND);
    let rates: Vec<u64> = (1..=20)
        .map(|user| sim.served(user, span.0, span.1))
        .collect();
    let own = rates.iter().filter(|rate| rate.abs_diff(5 * MB) < MB / 4);
    assert_eq!(own.count(), 14, "{rates:?}");
    // Six share the bandwidth of one.
    let shared: u64 = rates.iter().filter(|rate| **rate < 4 * MB).sum();
    assert!(shared.abs_diff(5 * MB) < MB / 4, "{rates:?}");
    assert!(rates.iter().all(|rate| *rate > 0), "{rates:?}");
    assert!(sim.stats().contains("seatless: 6\n"), "{}", sim.stats());
    assert!(
        sim.status().contains("without_seat: 5000000\n"),
        "{}",
        sim.status()
    );
    (1..=8).for_each(|user| sim.load(user, Load::Off));
    sim.run(3 * SECOND);
    let span = sim.run(3 * SECOND);
    for user in 9..=20 {
        let rate = sim.served(user, span.0, span.1);
        assert!(rate.abs_diff(5 * MB) < MB / 4, "{user}: {rate}");
    }
    assert!(!sim.status().contains("without_seat"), "{}", sim.status());
}

/// A gate is another client's only when nobody uses it: with clients that come and go all the time, nobody is
/// charged for another.
#[test]
fn gates_change_hands_cleanly() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=4MB max=4MB";
    let setup = Setup {
        seats: 16,
        parts: 2,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    // One stays; its rate is its own throughout.
    sim.shape(1, 16, 0);
    sim.load(1, Load::Greedy(16));
    for round in 0..60u32 {
        for user in 0..6 {
            let user = 2 + (round * 6 + user) % 30;
            sim.shape(user, 16, 0);
            sim.load(user, Load::Greedy(4));
        }
        let span = sim.run(400 * MS);
        for user in 0..6 {
            sim.load(2 + (round * 6 + user) % 30, Load::Off);
        }
        if round > 1 {
            let rate = sim.served(1, span.0, span.1);
            assert!(rate.abs_diff(4 * MB) < MB, "{round}: {rate}");
        }
    }
    let rate = sim.served(1, SECOND, sim.time());
    assert!(rate.abs_diff(4 * MB) < MB / 10, "{rate}");
}
