// SPDX-License-Identifier: GPL-2.0-only

//! Partitions of one service that are fair together.
//!
//! Each partition has its own device of 25,000 pages/s, or they take turns at one device. A window
//! is 100 ms: 2,500 pages of each.

use nrs_sched::{
    arena::attrs,
    item::Cost,
    policy::{BypassReason, Part},
    sim::{assert_shares, worst_error, Setup, Sim, Source, Turns},
};

const WINDOW: u64 = 2_500;

/// Creates sources of `(uid, part)`.
fn placed(places: &[(u32, usize)]) -> Vec<Source> {
    let source = |&(uid, part): &(u32, usize)| Source::new(attrs(uid)).at(part);
    places.iter().map(source).collect()
}

/// Returns the number of pages served of each of the users 0, 1, ...
fn by_user(sim: &Sim, users: usize) -> Vec<u64> {
    let mut had = vec![0; users];
    for source in &sim.sources {
        let uid = source.attrs.uid.get().expect("a user");
        had[uid as usize] += source.served;
    }
    had
}

/// Runs a window with a device for each part; returns the service of each user.
fn window(sim: &mut Sim, users: usize) -> Vec<u64> {
    let before = by_user(sim, users);
    sim.run_apart(WINDOW);
    let after = by_user(sim, users);
    after.iter().zip(before).map(|(a, b)| a - b).collect()
}

/// User 0 on all parts, with 3, 2, 1 and 1 rivals.
const RIVALS: [(u32, usize); 11] = [
    (0, 0),
    (0, 1),
    (0, 2),
    (0, 3),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 1),
    (5, 1),
    (6, 2),
    (7, 3),
];

/// Max-min fair shares, in devices.
const RIVALS_WANTED: [f64; 8] = [
    2.0 / 3.0,
    1.0 / 3.0,
    1.0 / 3.0,
    1.0 / 3.0,
    0.5,
    0.5,
    2.0 / 3.0,
    2.0 / 3.0,
];

/// User 0 on all parts, another on one part.
const CORNER: [(u32, usize); 5] = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)];

const CORNER_WANTED: [f64; 2] = [3.0, 1.0];

/// Checks that shares are max-min fair from the second window on. A few requests are exempt,
/// because each entity is served everywhere from time to time.
#[test]
fn fair_over_four_parts() {
    type Case<'a> = (&'a str, &'a [(u32, usize)], &'a [f64]);
    let cases: [Case<'_>; 2] = [
        ("rivals", &RIVALS, &RIVALS_WANTED),
        ("corner", &CORNER, &CORNER_WANTED),
    ];
    for (name, places, wanted) in cases {
        for seed in 1..3 {
            let setup = Setup::new("uid_fair").seed(seed).parts(4);
            let mut sim = Sim::new(&setup, placed(places));
            window(&mut sim, wanted.len());
            for at in 1..8 {
                let had = window(&mut sim, wanted.len());
                // Each user is served on its last part too, which costs the others a little.
                assert_shares(&had, wanted, 2.0, &format!("{name}, {seed}, {at}"));
            }
        }
    }
}

/// Checks that without the option each part is fair by itself only, far from the common shares. The
/// option can be switched at any time.
#[test]
fn unfair_without() {
    let mut sim = Sim::new(&Setup::new("uid_fair").parts(4), placed(&RIVALS));
    for _ in 0..2 {
        sim.join_parts(false);
        window(&mut sim, 8);
        let had = window(&mut sim, 8);
        let off = worst_error(&had, &RIVALS_WANTED);
        assert!((100.0..160.0).contains(&off), "{off} %, {had:?}");
        sim.join_parts(true);
        window(&mut sim, 8);
        let had = window(&mut sim, 8);
        assert_shares(&had, &RIVALS_WANTED, 1.0, "together");
    }
}

/// Checks that each level is fair over all parts.
#[test]
fn levels_over_parts() {
    use nrs_sched::attr::{Attrs, Id};
    let user = |gid, uid, part| {
        let attrs = Attrs {
            gid: Id::new(gid),
            ..attrs(uid)
        };
        Source::new(attrs).at(part)
    };
    // The first group is one user on both parts; the second has one user on each part and one on
    // both.
    let who = || {
        vec![
            user(1, 0, 0),
            user(1, 0, 1),
            user(2, 1, 0),
            user(2, 2, 1),
            user(2, 3, 0),
            user(2, 3, 1),
        ]
    };
    let setup = Setup::new("gid_then_uid_fair").parts(2);
    let mut sim = Sim::new(&setup, who());
    // The division of the parts between the groups oscillates; shares within the groups follow with
    // a delay.
    window(&mut sim, 4);
    let wanted = [1.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0];
    let mut sums = [0; 4];
    for at in 0..20 {
        let had = window(&mut sim, 4);
        // Each part by itself would be 50 % off.
        assert_shares(&had, &wanted, 5.0, &format!("{at}"));
        for (sum, had) in sums.iter_mut().zip(had) {
            *sum += had;
        }
    }
    assert_shares(&sums, &wanted, 1.0, "mean");
}

/// Checks that each backlogged source is served on its part, even if its user has its share
/// elsewhere.
#[test]
fn no_starvation() {
    let both: &[(u32, usize)] = &[(0, 0), (0, 1), (1, 0), (1, 1)];
    for (places, parts) in [(both, 2), (&RIVALS[..], 4)] {
        let setup = Setup::new("uid_fair").parts(parts);
        let mut sim = Sim::new(&setup, placed(places));
        for at in 0..8 {
            let before = sim.served();
            sim.run_apart(WINDOW);
            for (source, (after, before)) in sim.served().iter().zip(before).enumerate() {
                assert!(*after > before, "{:?}, {at}", places[source]);
            }
        }
    }
}

/// Checks that clients on different parts share one device by the shares of the parts. The number
/// of clients and the size of requests do not matter.
#[test]
fn clients_on_different_parts() {
    for (places, pages) in [
        (vec![(0, 0), (1, 1)], [&[1][..], &[1]]),
        (vec![(0, 0), (1, 1)], [&[1], &[256]]),
        (vec![(0, 0), (1, 1), (2, 1), (3, 1)], [&[1], &[1]]),
        (vec![(0, 0), (1, 1), (2, 1), (3, 1)], [&[16], &[1, 16]]),
        (vec![(0, 0), (1, 0), (1, 1), (2, 1)], [&[1], &[1]]),
        (vec![(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)], [&[1], &[1]]),
    ] {
        let parts = places.iter().map(|(_, part)| part + 1).max().unwrap_or(1);
        let mut who = placed(&places);
        for source in &mut who {
            source.pages = pages[source.part.min(1)].to_vec();
        }
        let users = places.iter().map(|(uid, _)| uid + 1).max().unwrap_or(1) as usize;
        let mut sim = Sim::new(&Setup::new("uid_fair").parts(parts), who);
        sim.turns = Turns::Shares;
        sim.delta = 500;
        sim.run(20_000);
        let what = format!("{places:?}, {pages:?}");
        assert_shares(&by_user(&sim, users), &vec![1.0; users], 2.0, &what);
    }
}

/// Checks that debts do not oscillate. Over a hundred periods of 4 ms, they stay within a few
/// requests, and the second half is no worse than the first.
#[test]
fn debts_do_not_swing() {
    for places in [&RIVALS[..], &CORNER] {
        let setup = Setup::new("uid_fair").parts(4);
        let mut sim = Sim::new(&setup, placed(places));
        let mut worst = [0; 2];
        for at in 0..100 {
            sim.run_apart(WINDOW / 25);
            for part in 0..4 {
                for row in sim.rows(part) {
                    let debt = row.lag_decipages.unsigned_abs();
                    worst[at / 50] = debt.max(worst[at / 50]);
                }
            }
        }
        assert!(worst[0] <= 60, "{worst:?} tenths of a page");
        assert!(worst[1] <= worst[0] + 10, "{worst:?}");
    }
}

/// Checks that shares follow within two windows when a source leaves, and when it returns.
#[test]
fn shares_follow_departures() {
    let setup = Setup::new("uid_fair").parts(4);
    let mut sim = Sim::new(&setup, placed(&RIVALS));
    // Without the rival at the third part, the first user has all of that part and nothing
    // elsewhere.
    let without = [1.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.5, 0.5, 1.0];
    for _ in 0..3 {
        for (on, wanted) in [(true, &RIVALS_WANTED[..]), (false, &without)] {
            sim.switch(9, on);
            window(&mut sim, 8);
            window(&mut sim, 8);
            let mut had = window(&mut sim, 8);
            if !on {
                had.remove(6);
            }
            assert_shares(&had, wanted, 4.0, &format!("{on}"));
        }
    }
}

/// Checks that requests that bypass the queues of a partition count against the share of their
/// user, whose other requests compete at another partition.
#[test]
fn forced_service_counts_everywhere() {
    let setup = Setup::new("uid_fair").parts(2);
    let mut sim = Sim::new(&setup, placed(&[(0, 0), (1, 0)]));
    let mut forced = 0;
    for _ in 0..10_000 {
        sim.serve(0);
        let now = sim.now;
        let part = sim.part(1);
        let class = part.classify(&attrs(0), now);
        let _ = part.pass(
            class,
            Cost::of_bytes(4096),
            BypassReason::Forced { contended: true },
            || now,
        );
        forced += 1;
    }
    let had = by_user(&sim, 2);
    assert_shares(&[had[0] + forced, had[1]], &[1.0, 1.0], 5.0, "forced");
}
