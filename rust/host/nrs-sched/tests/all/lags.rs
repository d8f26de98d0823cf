// SPDX-License-Identifier: GPL-2.0-only

//! Lags of entities: forced service, debts and surplus, and a sum of 0.

use nrs_sched::{
    arena::attrs,
    attr::Id,
    item::{ByteRange, Cost, Direction},
    key::Key,
    policy::{BypassReason, Part},
    sim::{Setup, Sim, Source},
};

/// Largest debt due to forced requests, pages.
const DEBT_MAX: u32 = 1 << 14;

/// Creates users 0, 1, ... with requests of `pages`, `depth` of them queued.
fn users(count: u32, pages: u32, depth: u32) -> Vec<Source> {
    let user = |uid| {
        let mut user = Source::new(attrs(uid)).of(&[pages]);
        user.depth = depth;
        user
    };
    (0..count).map(user).collect()
}

/// Returns the lag of user `uid`, tenths of a page.
fn lag(sim: &Sim, uid: u32) -> i64 {
    let rows = sim.rows(0);
    let row = rows.iter().find(|row| row.key == Key::Uid(uid));
    row.map_or(0, |row| row.lag_decipages)
}

/// Passes a request of user `uid` outside the queues, or grows one that is queued.
fn pass(sim: &mut Sim, uid: u32, pages: u32, way: BypassReason) {
    let now = sim.now;
    let cost = Cost::new(Direction::Write, u64::from(pages) * 4096);
    let part = sim.part(0);
    let class = part.classify(&attrs(uid), now);
    let _ = part.pass(class, cost, way, || now);
}

/// Checks one of two backlogged users that passes as many pages outside its queue, or whose
/// requests grow: it gets half in all.
#[test]
fn what_is_not_queued_comes_out_of_the_share() {
    for (way, requests) in [
        (BypassReason::Forced { contended: true }, 1_000),
        // Two merged requests count as one.
        (BypassReason::Merged, 0),
    ] {
        let mut sim = Sim::new(&Setup::new("uid_fair"), users(2, 4, 8));
        let mut passed = 0;
        for step in 0..3_000 {
            sim.serve(0);
            if step % 3 == 0 {
                pass(&mut sim, 0, 4, way);
                passed += 4;
            }
        }
        let (served, rows) = (sim.served(), sim.rows(0));
        assert!((served[0] + passed).abs_diff(served[1]) <= 8, "{served:?}");
        let counts = rows.iter().map(|row| row.stats.counts);
        let (dispatched, pages) = counts.fold((0, 0), |(dispatched, pages), counts| {
            (dispatched + counts.dispatched, pages + counts.cost_pages)
        });
        assert_eq!(dispatched, 3_000 + requests);
        assert_eq!(pages, served[0] + served[1] + passed);
    }
}

/// Returns the lag of each row, tenths of a page, by id.
fn lags(sim: &Sim) -> Vec<(u64, i64)> {
    let rows = sim.rows(0);
    rows.iter().map(|row| (row.id, row.lag_decipages)).collect()
}

/// Checks that the lag of each member of a level is at most one largest request in a fixed set.
/// Thus shares are proportional. The tolerance for rounding is 5 %.
#[test]
fn lag_is_below_one_request_per_level() {
    for (mode, weights, costs) in [
        ("uid_fair", &[1, 1][..], &[1, 256][..]),
        ("uid_fair", &[1, 4], &[1]),
        ("uid_fair", &[1, 100], &[1, 16]),
        ("uid_fair", &[1, 10_000, 64], &[1, 7, 64]),
        ("uid_fair", &[1, 10_000], &[1]),
        ("uid_fair", &[64, 16, 10, 141, 4, 1, 2, 78], &[1, 16, 256]),
        ("gid_then_uid_fair", &[1, 10_000, 64, 5, 1, 9], &[1, 7, 64]),
    ] {
        let is_flat = mode == "uid_fair";
        let largest = u64::from(*costs.iter().max().unwrap());
        let mut who = users(weights.len() as u32, 1, 2);
        for (uid, user) in who.iter_mut().enumerate() {
            user.pages = vec![costs[uid % costs.len()]];
            user.attrs.gid = Id::new(uid as u32 / 3);
        }
        let mut sim = Sim::new(&Setup::new(mode), who);
        let items = weights.iter().enumerate();
        let items = items.map(|(uid, weight)| format!("uid:{uid}:{weight}"));
        sim.weigh(&items.collect::<Vec<_>>().join(","));
        let whole: u64 = weights.iter().sum();
        for _ in 0..50_000 {
            sim.serve(0);
            for (id, lag) in lags(&sim) {
                assert!(
                    lag.unsigned_abs() * 100 <= 1050 * largest,
                    "{weights:?}: {id} {lag}"
                );
            }
            let total: u64 = sim.served().iter().sum();
            for (got, weight) in sim.served().iter().zip(weights) {
                let off = got.abs_diff(total * weight / whole);
                assert!(!is_flat || off <= largest + 2, "{weights:?}: {off}");
            }
        }
    }
}

/// Checks that a new weight leaves all lags unchanged, at each level.
#[test]
fn reweight_keeps_lags() {
    let mut who = users(8, 100, 8);
    for (uid, user) in who.iter_mut().enumerate() {
        user.attrs.gid = Id::new(uid as u32 / 4);
    }
    let mut sim = Sim::new(&Setup::new("gid_then_uid_fair"), who);
    for _ in 0..20_000 {
        sim.serve(0);
        let before = lags(&sim);
        let weight = 1 + sim.rng.below(10_000);
        let item = match sim.rng.below(10) {
            gid @ 0..2 => format!("gid:{gid}:{weight}"),
            uid => format!("uid:{}:{weight}", uid - 2),
        };
        sim.weigh(&item);
        for ((id, before), (same, after)) in before.into_iter().zip(lags(&sim)) {
            assert_eq!(id, same);
            // Tags are integers: the rounding error of each is up to half a unit.
            assert!(before.abs_diff(after) <= 12, "{item}: {before} {after}");
            assert!(after.abs() <= 10 * 100 * 3, "{item}: {after}");
        }
    }
}

/// Checks that debt is bounded, with and without queued requests. Forced service without competing
/// requests makes no debt.
#[test]
fn debt_is_bounded() {
    for (queued, others) in [(false, true), (true, true), (false, false)] {
        let mut who = users(2, DEBT_MAX, 1);
        (who[0].on, who[1].on) = (queued, others);
        let mut sim = Sim::new(&Setup::new("uid_fair"), who);
        for _ in 0..100 {
            pass(
                &mut sim,
                0,
                DEBT_MAX,
                BypassReason::Forced { contended: true },
            );
        }
        (0..2).for_each(|source| sim.switch(source, true));
        let lag = lag(&sim, 0);
        if !others {
            assert_eq!(lag, 0);
            continue;
        }
        assert!(lag < 0 && lag >= -20 * i64::from(DEBT_MAX), "{lag}");
        let waits = (0..100).take_while(|_| sim.serve(0) == Some(1)).count();
        assert!((1..=5).contains(&waits), "{queued}: {waits}");
    }
}

/// Checks that the surplus of one large request expires, but that of a backlogged entity is paid
/// back for a while.
#[test]
fn surplus_is_paid_back_by_those_who_were_busy() {
    for (requests, idle, paid) in [
        (&[256][..], 3, false),
        (&[64, 256], 3, true),
        (&[64, 256], 4000, false),
    ] {
        let mut who = users(3, 16, 8);
        who[0].on = false;
        let mut sim = Sim::new(&Setup::new("uid_fair"), who);
        // The entity is served before the virtual time reaches its deadline.
        sim.weigh("uid:0:32");
        for pages in requests {
            sim.enqueue_at(0, *pages, ByteRange::default());
        }
        while sim.sources[0].queued > 0 {
            sim.serve(0);
        }
        assert!(lag(&sim, 0) < 0);
        sim.run(idle);
        sim.enqueue_at(0, 16, ByteRange::default());
        let lag = lag(&sim, 0);
        assert_eq!(lag < 0, paid, "{requests:?} {idle}: {lag}");
    }
}

/// Checks that the lags of evicted entities are redistributed: the lags of the others sum to 0
/// again.
#[test]
fn lags_sum_to_nothing_again() {
    let mut who = users(40, 10, 8);
    for guest in &mut who[8..] {
        guest.on = false;
    }
    let mut sim = Sim::new(&Setup::new("uid_fair"), who);
    for _ in 0..300 {
        for _ in 0..40 {
            let guest = 8 + sim.rng.below(32) as usize;
            sim.bring(guest);
            sim.run(2);
        }
        sim.run(40);
        // All guests are evicted.
        sim.idle(12);
    }
    sim.run(1000);
    let sum: i64 = (0..8).map(|uid| lag(&sim, uid)).sum();
    assert!(sum.abs() <= 10, "{sum}");
}
