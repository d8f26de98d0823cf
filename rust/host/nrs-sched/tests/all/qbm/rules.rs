// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth of clients over time: by class and by usage, when clients join and leave, and when
//! plans change.

use super::sim::{Load, QbmSim, GREEDY, MB};
use nrs_sched::{
    qbm::terms::BandwidthClass,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};

/// Creates a service of 100 MB/s with one group; `clients` is the rest of the plan.
fn service(clients: &str) -> QbmSim {
    QbmSim::new(
        &format!("by uid; group all capacity=100MB; {clients}"),
        100,
        64,
    )
}

/// Asserts the allocations of users 1, 2, …, MB/s.
#[track_caller]
fn assert_allocated<const N: usize>(sim: &QbmSim, want: [u64; N], what: &str) {
    let have: [Option<u64>; N] = std::array::from_fn(|i| sim.allocated(i as u32 + 1));
    assert_eq!(have, want.map(|rate| Some(rate * MB)), "{what}");
}

/// Asserts that rates are within 2 % of `want`, MB/s.
#[track_caller]
fn assert_near<const N: usize>(rates: [f64; N], want: [u64; N], what: &str) {
    for (rate, want) in rates.iter().zip(want) {
        let want = want as f64;
        assert!((rate - want).abs() <= want * 0.02, "{what}: {rates:?}");
    }
}

/// Checks that every class takes bandwidth from every class below it. The lower class has its
/// bandwidth again 2 s after the higher class left.
#[test]
fn steals_and_returns() {
    for (rank, high) in BandwidthClass::ALL.into_iter().enumerate() {
        for low in BandwidthClass::ALL.into_iter().skip(rank + 1) {
            let (high, low) = (high.name(), low.name());
            let what = format!("{high} over {low}");
            let mut sim = service(&format!(
                "client 1 class={high} min=70MB max=70MB; client 2 class={low} min=60MB max=60MB"
            ));
            sim.load(2, GREEDY);
            sim.run(3 * SECOND);
            assert_near(sim.rates(2 * SECOND, [2]), [60], &what);
            sim.load(1, GREEDY);
            sim.run(SECOND);
            assert_near(sim.rates(3 * SECOND, [1, 2]), [70, 30], &what);
            sim.load(1, Load::Off);
            sim.run(2 * SECOND);
            assert_near(sim.rates(2 * SECOND, [2]), [60], &what);
            assert_eq!(sim.allocated(1), None, "{what}");
        }
    }
}

/// Checks that a client that uses little gives up bandwidth with each slow period. All of it is
/// restored within 1.44 s after the client is throttled.
#[test]
fn gives_up_what_it_does_not_use_and_restores_it() {
    for (class, phase) in [("first_come", 0), ("fair_share", 50), ("low_share", 190)] {
        let mut sim = service(&format!("client 1 class={class} min=50MB max=50MB"));
        sim.load(1, Load::Rate(4 * MB));
        sim.run(31 * SECOND);
        assert_allocated(&sim, [45], class);
        sim.run(210 * SECOND + phase * MS);
        assert!(sim.allocated(1) < Some(22 * MB), "{class}");
        sim.load(1, GREEDY);
        sim.run(1_440 * MS);
        assert_allocated(&sim, [50], class);
        assert!(sim.stats().contains("restores: 1\n"), "{}", sim.stats());
    }
}

/// Checks that a client that uses 80 % in a slow period requests 30 % more bandwidth, and does not
/// if it uses less.
#[test]
fn asks_for_more_after_a_slow_period_of_80_percent() {
    for (percent, want) in [(100, 26), (83, 26), (77, 20), (62, 20)] {
        let mut sim = service("client 1 class=fair_share min=20MB max=90MB");
        sim.load(1, Load::Rate(20 * MB / 100 * percent));
        sim.run(31 * SECOND);
        assert_allocated(&sim, [want], &percent.to_string());
    }
}

/// Checks that clients that are offered 95 % of their allocation are not throttled in half of the
/// periods.
#[test]
fn sleepless_under_load() {
    for pages in [1, 16, 128] {
        let mut sim = service("default class=fair_share min=48MB max=48MB");
        for user in [1, 2] {
            sim.shape(user, pages, 0);
            sim.load(user, Load::Rate(48 * MB / 100 * 95));
        }
        sim.run(5 * SECOND);
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
        for user in [1, 2] {
            sim.shape(user, 128, 0);
            sim.load(user, GREEDY);
        }
        sim.run(600 * SECOND);
        let had = [1, 2].map(|user| sim.allocated(user));
        for _ in 0..600 {
            let [first, second] = sim.rates(5 * SECOND, [1, 2]);
            assert_eq!([1, 2].map(|user| sim.allocated(user)), had, "{what}");
            let ok = first + second > 19.5 && first > 3.7 && second > 3.7;
            assert!(ok, "{what}: {first} {second}");
        }
    }
}

/// Checks that pauses shorter than a second are ignored. After a longer pause, a client joins
/// again, and the pause does not count as low usage.
#[test]
fn pauses() {
    for (pause, joins) in [(700, 1), (1_350, 12), (3_000, 12)] {
        let mut sim = service("default class=fair_share min=50MB max=50MB");
        for _ in 0..12 {
            sim.load(1, GREEDY);
            sim.run(3 * SECOND);
            assert_allocated(&sim, [50], "after a pause");
            sim.load(1, Load::Off);
            sim.run(pause * MS);
        }
        let stats = sim.stats();
        assert!(stats.contains("decreases: 0\n"), "{stats}");
        assert!(stats.contains(&format!("joins: {joins}\n")), "{stats}");
    }
}

/// Checks that a new client has the allocation of its terms within 2 ms.
#[test]
fn newcomers_are_served_at_once() {
    let mut sim = service("default class=fair_share min=10MB");
    sim.run(SECOND + 50 * MS);
    for user in 1..=5 {
        sim.shape(user, 16, 0);
        sim.load(user, Load::Greedy(1));
        sim.run(2 * MS);
        assert_eq!(sim.allocated(user), Some(10 * MB));
    }
}

/// Checks that reloading the same plan changes nothing, and that a new plan applies at once while
/// all clients are served.
#[test]
fn reconfiguration_under_load() {
    let plan = |capacity: u64, [one, two]: [&str; 2]| {
        format!(
            "by uid; group all capacity={capacity}MB; client 1 class={one}; client 2 class={two}"
        )
    };
    let first = plan(100, ["fc min=40MB max=60MB", "fs min=40MB max=60MB"]);
    let mut sim = QbmSim::new(&first, 100, 64);
    for user in [1, 2] {
        sim.shape(user, 16, 0);
        sim.load(user, GREEDY);
    }
    sim.run(70 * SECOND);
    for _ in 0..5 {
        assert_allocated(&sim, [60, 40], "more than its minimum");
        sim.configure(&first);
        sim.run(SECOND);
    }
    for (capacity, clients, want) in [
        (
            100,
            ["fc min=70MB max=70MB", "fs min=40MB max=60MB"],
            [70, 30],
        ),
        (
            100,
            ["ls min=70MB max=70MB", "fs min=50MB max=50MB"],
            [50, 50],
        ),
        (
            50,
            ["fs min=30MB max=30MB", "fs min=30MB max=30MB"],
            [25, 25],
        ),
        (
            100,
            ["fs min=30MB max=30MB", "fs min=10MB max=10MB"],
            [30, 10],
        ),
    ] {
        let text = plan(capacity, clients);
        sim.configure(&text);
        sim.run(MS);
        assert_allocated(&sim, want, &text);
        for _ in 0..5 {
            let rates = sim.rates(200 * MS, [1, 2]);
            let served = rates
                .iter()
                .zip(want)
                .all(|(rate, want)| *rate > want as f64 / 4.0);
            assert!(served, "{text}: {rates:?}");
        }
        assert_near(sim.rates(3 * SECOND, [1, 2]), want, &text);
    }
}

/// Checks that clients continue in other groups, under the other strategy, and without a strategy.
#[test]
fn groups_change_under_load() {
    let mut sim = QbmSim::new("by uid", 100, 64);
    for user in [1, 2] {
        sim.shape(user, 16, user);
        sim.load(user, GREEDY);
    }
    let default = "default class=fair_share min=100%";
    for (groups, want) in [
        ("group a capacity=40MB", [20, 20]),
        (
            "group b capacity=30MB target=1; group a capacity=40MB",
            [30, 40],
        ),
        // The names are swapped.
        (
            "group a capacity=50MB target=1; group b capacity=10MB",
            [50, 10],
        ),
    ] {
        sim.configure(&format!("by uid; {groups}; {default}"));
        sim.run(MS);
        assert_allocated(&sim, want, groups);
        sim.run(SECOND);
        assert_near(sim.rates(3 * SECOND, [1, 2]), want, groups);
    }
    let mover = "client 2 class=mover min=10MB";
    sim.configure(&format!(
        "by uid; group a capacity=100MB strategy=mover; {mover}"
    ));
    sim.run(5 * SECOND);
    assert_eq!(sim.allocated(1), Some(u64::MAX));
    let [regular] = sim.rates(5 * SECOND, [1]);
    assert!(regular > 95.0, "{regular}");
    sim.configure(&format!(
        "by uid; group a capacity=100MB; default class=fs min=30MB max=30MB; {mover}"
    ));
    sim.run(2 * SECOND);
    assert_near(sim.rates(5 * SECOND, [1, 2]), [30, 70], "classes again");
    sim.configure("by uid");
    sim.run(SECOND);
    assert_eq!((sim.allocated(1), &*sim.status()), (None, "[]\n"));
    let [one, two] = sim.rates(2 * SECOND, [1, 2]);
    assert!(one > 45.0 && two > 45.0, "{one} {two}");
}

/// Checks that clients without a gate of their own share the gate of the group and are counted.
/// They get gates as soon as gates are vacant.
#[test]
fn gates_run_out() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=5MB max=5MB";
    let mut sim = QbmSim::new(text, 100, 14);
    let users: [u32; 20] = std::array::from_fn(|i| i as u32 + 1);
    for user in users {
        sim.shape(user, 4, 0);
        sim.load(user, Load::Greedy(4));
        sim.run(50 * MS);
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
    (1..=8).for_each(|user| sim.load(user, Load::Off));
    sim.run(3 * SECOND);
    let rates = sim.rates(3 * SECOND, users);
    assert!(
        rates[8..].iter().all(|rate| (rate - 5.0).abs() < 0.25),
        "{rates:?}"
    );
    assert!(!sim.status().contains("without_gate"));
}

#[test]
fn counters() {
    let mut sim = service(
        "client 1 class=first_come min=60MB max=60MB
        default class=fair_share min=60MB max=90MB",
    );
    sim.load(2, GREEDY);
    sim.run(35 * SECOND);
    sim.load(1, GREEDY);
    sim.run(10 * SECOND);
    sim.load(2, Load::Off);
    sim.run(3 * SECOND);
    let stats = sim.stats();
    for line in [
        "joins: 2",
        "leaves: 1",
        "increases_asked: 1",
        "increases_whole: 1",
        "losses: 1",
        "taken_by_others: 38000000",
        "decreases: 0",
        "written_bytes: 0",
    ] {
        assert!(
            stats.contains(&format!("\n  {line}\n")),
            "{line} in {stats}"
        );
    }
    sim.manager.reset_stats();
    let stats = sim.stats();
    let numbers = stats.lines().filter_map(|line| line.split_once(": "));
    let counted = numbers.filter(|(_, value)| !value.starts_with('"') && *value != "0");
    assert_eq!(counted.count(), 0, "{stats}");
}

/// Checks that the last client of a device with half of the promised bandwidth has the minimum rate
/// of 32 KiB/s.
#[test]
fn an_overcommitted_device_without_starvation() {
    let text = "by uid; group all capacity=200MB
        client 1 class=first_come min=190MB max=190MB; client 2 class=low_share min=5MB max=5MB";
    let mut sim = QbmSim::new(text, 100, 1000);
    for user in [1, 2] {
        sim.shape(user, 1, 0);
        sim.load(user, Load::Greedy(16));
    }
    sim.run(5 * SECOND);
    let [high, low] = sim.rates(20 * SECOND, [1, 2]);
    assert!(low >= 0.032_768 * 0.99 && high > 90.0, "{high} {low}");
}
