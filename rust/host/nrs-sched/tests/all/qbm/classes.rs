// SPDX-License-Identifier: GPL-2.0-only

//! Classes against each other: what is stolen, what comes back, and who has to wait.

use nrs_sched::{
    bandwidth::{Load, Setup, Sim, MB, SECOND},
    qbm::terms::Class,
};

const GREEDY: Load = Load::Greedy(8);

fn near(value: u64, want: u64, percent: u64) -> bool {
    value.abs_diff(want) * 100 <= want * percent
}

/// Megabytes/s in a span.
fn served(sim: &Sim, user: u32, span: (u64, u64)) -> f64 {
    sim.served(user, span.0, span.1) as f64 / 1e6
}

/// Every class takes what it needs from every class below it, and that one has it back when it is gone.
#[test]
fn steals_and_returns() {
    for (rank, high) in Class::ALL.into_iter().enumerate() {
        for low in Class::ALL.into_iter().skip(rank + 1) {
            let what = format!("{} over {}", high.name(), low.name());
            let text = format!(
                "by uid; group all capacity=100MB
                client 1 class={} min=70MB max=70MB
                client 2 class={} min=60MB",
                high.name(),
                low.name()
            );
            let mut sim = Sim::new(&text, Setup::default());
            sim.load(2, GREEDY);
            sim.run(3 * SECOND);
            let before = sim.run(2 * SECOND);
            let alone = served(&sim, 2, before);
            assert!(alone > 58.0, "{what}: alone {alone}");
            sim.load(1, GREEDY);
            sim.run(SECOND);
            let both = sim.run(3 * SECOND);
            let (first, second) = (served(&sim, 1, both), served(&sim, 2, both));
            assert!(first > 68.0 && first < 73.0, "{what}: {first}");
            assert!(second > 28.0 && second < 32.0, "{what}: {second}");
            sim.load(1, Load::Off);
            sim.run(2 * SECOND);
            let after = sim.run(2 * SECOND);
            let again = served(&sim, 2, after);
            assert!(again > 58.0, "{what}: again {again}");
        }
    }
}

/// Nobody takes from its own class or from one above.
#[test]
fn who_has_nothing_to_steal_waits() {
    for (rank, low) in Class::ALL.into_iter().enumerate() {
        for high in Class::ALL.into_iter().take(rank) {
            let what = format!("{} under {}", low.name(), high.name());
            let text = format!(
                "by uid; group all capacity=100MB
                client 1 class={} min=90MB max=90MB
                client 2 class={} min=60MB max=60MB",
                high.name(),
                low.name()
            );
            let mut sim = Sim::new(&text, Setup::default());
            sim.load(1, GREEDY);
            sim.run(SECOND);
            sim.load(2, GREEDY);
            sim.run(SECOND);
            let span = sim.run(3 * SECOND);
            let (first, second) = (served(&sim, 1, span), served(&sim, 2, span));
            assert!(first > 88.0, "{what}: {first}");
            if low == Class::FirstCome {
                assert!(second < 1.0, "{what}: {second}");
            } else {
                assert!(second > 8.0 && second < 11.0, "{what}: {second}");
            }
        }
    }
}

fn four_of_300(class: Class) -> Sim {
    let text = format!(
        "by uid; group all capacity=1000MB
        default class={} min=300MB max=300MB",
        class.name()
    );
    let setup = Setup {
        bandwidth: 1000 * MB,
        slots: 8,
        ..Setup::default()
    };
    let mut sim = Sim::new(&text, setup);
    for user in 1..=4 {
        sim.shape(user, 256, 0);
        sim.load(user, GREEDY);
        sim.run(SECOND);
    }
    sim
}

/// The method's own example: three have what they asked for, and the fourth waits until one of them goes.
#[test]
fn first_come_300_300_300_and_the_fourth_waits() {
    let mut sim = four_of_300(Class::FirstCome);
    let span = sim.run(5 * SECOND);
    for user in 1..=3 {
        assert_eq!(sim.allocated(user), Some(300 * MB));
        let rate = served(&sim, user, span);
        assert!(rate > 297.0 && rate < 303.0, "{user}: {rate}");
    }
    assert_eq!(sim.allocated(4), Some(32 << 10));
    assert!(served(&sim, 4, span) < 2.0);
    sim.load(2, Load::Off);
    sim.run(2 * SECOND);
    assert_eq!(sim.allocated(4), Some(300 * MB));
    let span = sim.run(3 * SECOND);
    assert!(served(&sim, 4, span) > 297.0);
}

/// The same with shares: 250 each, and 300 again for the three who stay.
#[test]
fn fair_share_250_each() {
    let mut sim = four_of_300(Class::FairShare);
    sim.run(SECOND);
    let span = sim.run(5 * SECOND);
    for user in 1..=4 {
        assert_eq!(sim.allocated(user), Some(250 * MB));
        let rate = served(&sim, user, span);
        assert!(rate > 245.0 && rate < 254.0, "{user}: {rate}");
    }
    sim.load(2, Load::Off);
    sim.run(2 * SECOND);
    for user in [1, 3, 4] {
        assert_eq!(sim.allocated(user), Some(300 * MB));
    }
}

/// Five that would have all share it, and so do two.
#[test]
fn five_have_200_and_two_500() {
    let text = "by uid; group all capacity=1000MB; default class=fair_share min=1000MB";
    let setup = Setup {
        bandwidth: 1000 * MB,
        slots: 8,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    for user in 1..=5 {
        sim.shape(user, 256, 0);
        sim.load(user, GREEDY);
    }
    sim.run(2 * SECOND);
    let span = sim.run(4 * SECOND);
    for user in 1..=5 {
        let rate = served(&sim, user, span);
        assert!(rate > 195.0 && rate < 204.0, "{user}: {rate}");
    }
    (3..=5).for_each(|user| sim.load(user, Load::Off));
    sim.run(2 * SECOND);
    let span = sim.run(4 * SECOND);
    for user in 1..=2 {
        let rate = served(&sim, user, span);
        assert!(rate > 490.0 && rate < 505.0, "{user}: {rate}");
    }
}

/// What is reserved for a class is there when one of it comes, nobody else has it, and it is kept again.
#[test]
fn reserves() {
    for class in [Class::FirstCome, Class::FairShare, Class::LowShare] {
        let other = if class == Class::FairShare {
            Class::FirstCome
        } else {
            Class::FairShare
        };
        let text = format!(
            "by uid; group all capacity=100MB reserve_{}=40%
            client 1 class={} min=30MB max=40MB
            default class={} min=60MB",
            class.name(),
            class.name(),
            other.name()
        );
        let mut sim = Sim::new(&text, Setup::default());
        sim.load(2, GREEDY);
        // Long enough to ask for more, in vain.
        sim.run(100 * SECOND);
        assert_eq!(sim.allocated(2), Some(60 * MB), "{}", class.name());
        sim.load(1, GREEDY);
        sim.run(SECOND);
        assert_eq!(sim.allocated(1), Some(30 * MB));
        assert_eq!(sim.allocated(2), Some(60 * MB));
        let span = sim.run(3 * SECOND);
        assert!(near(sim.served(1, span.0, span.1), 30 * MB, 3));
        assert!(near(sim.served(2, span.0, span.1), 60 * MB, 3));
        // It may have the rest of its reserve.
        sim.run(60 * SECOND);
        assert_eq!(sim.allocated(1), Some(40 * MB));
        sim.load(1, Load::Off);
        sim.run(2 * SECOND);
        let kept = format!("\"{}\": 40000000", class.name());
        assert!(sim.status().contains(&kept), "{}", sim.status());
        assert_eq!(sim.allocated(2), Some(60 * MB));
    }
}

/// Whatever a device cannot do is shared by rank, and nobody stands still: not even below the floor of all.
#[test]
fn an_overcommitted_device_starves_nobody() {
    let text = "by uid; group all capacity=100MB
        client 1 class=first_come min=50MB max=50MB
        client 2 class=low_share min=50MB max=50MB";
    let setup = Setup {
        bandwidth: 45 * MB,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    sim.load(1, GREEDY);
    sim.load(2, GREEDY);
    sim.run(2 * SECOND);
    let span = sim.run(20 * SECOND);
    let (high, low) = (served(&sim, 1, span), served(&sim, 2, span));
    assert!(high > 40.0, "{high}");
    assert!(low > 0.0, "{low}");
}

/// A request larger than what its client has in a period goes in debt, and the rate holds.
#[test]
fn large_requests_hold_the_rate() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=2MB max=2MB";
    let mut sim = Sim::new(text, Setup::default());
    for (user, pages) in [(1, 1), (2, 64), (3, 256), (4, 1024)] {
        sim.shape(user, pages, 0);
        sim.load(user, GREEDY);
    }
    sim.run(10 * SECOND);
    let span = sim.run(60 * SECOND);
    for user in 1..=4 {
        let rate = sim.served(user, span.0, span.1);
        assert!(near(rate, 2 * MB, 4), "{user}: {rate}");
    }
}

/// Two partitions share a client's gate.
#[test]
fn partitions_share_gates() {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=20MB max=20MB";
    let setup = Setup {
        parts: 3,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    (1..=3).for_each(|user| sim.load(user, Load::Greedy(12)));
    sim.run(2 * SECOND);
    let span = sim.run(10 * SECOND);
    for user in 1..=3 {
        let rate = sim.served(user, span.0, span.1);
        assert!(near(rate, 20 * MB, 2), "{user}: {rate}");
    }
}

/// Groups have capacities of their own; targets without a group are nobody's business.
#[test]
fn groups_by_target() {
    let text = "by uid
        group a capacity=20MB target=1
        group b capacity=10MB target=2
        default class=fair_share min=100%";
    let mut sim = Sim::new(text, Setup::default());
    for (user, target) in [(1, 1), (2, 2), (3, 3)] {
        sim.shape(user, 16, target);
        sim.load(user, GREEDY);
    }
    sim.load(3, Load::Rate(60 * MB));
    sim.run(2 * SECOND);
    let span = sim.run(5 * SECOND);
    for (user, want) in [(1, 20), (2, 10), (3, 60)] {
        let rate = sim.served(user, span.0, span.1);
        assert!(near(rate, want * MB, 2), "{user}: {rate}");
    }
    assert_eq!(sim.allocated(3), None);
}
