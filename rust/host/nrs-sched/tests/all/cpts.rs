// SPDX-License-Identifier: GPL-2.0-only

//! Partitions of one service that are fair together.
//!
//! Each has a device of its own here, of 25,000 pages a second, or they take turns at one. A window is
//! 100 ms: 2,500 pages of each.

use nrs_sched::{
    arena::attrs,
    item::Cost,
    policy::{Part, Way},
    sim::{assert_shares, worst_error, Setup, Sim, Source, Turns},
};

const WINDOW: u64 = 2_500;

/// Sources of `(uid, part)`.
fn placed(places: &[(u32, usize)]) -> Vec<Source> {
    let source = |&(uid, part): &(u32, usize)| Source::new(attrs(uid)).at(part);
    places.iter().map(source).collect()
}

/// Pages that each of the users 0, 1, ... had.
fn by_user(sim: &Sim, users: usize) -> Vec<u64> {
    let mut had = vec![0; users];
    for source in &sim.sources {
        let uid = source.attrs.uid.get().expect("a user");
        had[uid as usize] += source.served;
    }
    had
}

/// A window, each part on a device of its own; what each user had.
fn window(sim: &mut Sim, users: usize) -> Vec<u64> {
    let before = by_user(sim, users);
    sim.run_apart(WINDOW);
    let after = by_user(sim, users);
    after.iter().zip(before).map(|(a, b)| a - b).collect()
}

/// One user everywhere, and 3, 2, 1 and 1 rivals.
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

/// Max-min fair, in devices.
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

/// One user everywhere, another in one place.
const CORNER: [(u32, usize); 5] = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)];

const CORNER_WANTED: [f64; 2] = [3.0, 1.0];

/// From the second window on everybody has what is max-min fair, but for the few requests that are served
/// where nobody has to, so that they do not wait for ever.
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
                // Nobody is shut out where it is served last, which costs the others a little.
                assert_shares(&had, wanted, 2.0, &format!("{name}, {seed}, {at}"));
            }
        }
    }
}

/// Without it each part is fair by itself, which is far off; it can be switched at any time.
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

/// Levels are fair over all parts, each of them.
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
    // The first group is one user, on both parts; the second has one user on each and one on both.
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
    // How the groups divide the parts swings; what is in them follows, a little behind.
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

/// Whoever has requests on a part is served there some time, though it has its share elsewhere.
#[test]
fn nobody_starves() {
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

/// Clients that are each on a part of their own share one device by the shares of the parts, however many
/// there are on each and however large their requests.
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

/// Debts do not swing: for a hundred times 4 ms, all of them stay within what a few requests make, and the
/// second half of the time is no worse than the first.
#[test]
fn debts_do_not_swing() {
    for places in [&RIVALS[..], &CORNER] {
        let setup = Setup::new("uid_fair").parts(4);
        let mut sim = Sim::new(&setup, placed(places));
        let mut worst = [0; 2];
        for at in 0..100 {
            sim.run_apart(WINDOW / 25);
            for lane in 0..4 {
                for row in sim.rows(lane) {
                    let debt = row.lag_decipages.unsigned_abs();
                    worst[at / 50] = debt.max(worst[at / 50]);
                }
            }
        }
        assert!(worst[0] <= 60, "{worst:?} tenths of a page");
        assert!(worst[1] <= worst[0] + 10, "{worst:?}");
    }
}

/// Somebody leaves and comes back: shares follow within two windows, both times.
#[test]
fn shares_follow_departures() {
    let setup = Setup::new("uid_fair").parts(4);
    let mut sim = Sim::new(&setup, placed(&RIVALS));
    // Without the rival at the third part, the first user has all of it and nothing elsewhere.
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

/// What bypasses the queues of a partition without a queue of its own comes out of the share of its user, whose other
/// requests compete at another partition.
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
            Way::Forced { contended: true },
            || now,
        );
        forced += 1;
    }
    let had = by_user(&sim, 2);
    assert_shares(&[had[0] + forced, had[1]], &[1.0, 1.0], 5.0, "forced");
}
