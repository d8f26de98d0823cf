// SPDX-License-Identifier: GPL-2.0-only

//! Ten thousand concurrent clients.

use super::sim::WALK;
use nrs_sched::{
    attr::CgroupPath,
    item::{Cost, Direction},
    key::Key,
    managed::{user, Managed},
    qbm::{
        gate::GateClaim,
        plan::{ClientKey, GROUPS_MAX},
    },
    units::NSEC_PER_SEC as SECOND,
};

const CLIENTS: u32 = 10_000;

/// Checks that ten thousand clients join, use their rates, change their demand, and leave.
#[test]
fn ten_thousand_join_and_go() {
    for default in [
        "class=first_come min=64KiB",
        "class=low_share min=64KiB max=1MB",
        "class=fair_share min=1MB",
        "class=mover min=1MB",
    ] {
        let text = format!("by uid; tune slow=5s; group all capacity=1GB; default {default}");
        let mut service = Managed::new(&text, 16_384);
        let mut now = SECOND;
        let claims = service.queue_users(CLIENTS, now);
        service.poll(false, now);
        let mut own: Vec<u32> = claims.iter().map(GateClaim::idx).collect();
        own.retain(|place| *place as usize >= GROUPS_MAX);
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), CLIENTS as usize, "gates of their own");
        for claim in &claims {
            // Every gate was set up.
            let rate = service.gate(claim).rate();
            assert!((32 << 10..=1_000_000_000).contains(&rate), "{rate}");
        }
        // Slightly more than a slow period: all clients receive a new rate in one tick.
        for _ in 0..40 {
            now += WALK;
            service.poll(true, now);
            let cost = Cost::new(Direction::Read, 100_000);
            service.gate(&claims[77]).force(cost, now);
        }
        service.leave(&claims);
        let mut ticks = 0;
        while own
            .iter()
            .any(|place| service.gates.owner(*place).is_some())
        {
            now += WALK;
            service.poll(true, now);
            ticks += 1;
            assert!(ticks < 100, "clients are not removed");
        }
        // The gates are vacant again.
        assert!(!service.queue(user(CLIENTS), 0, now).is_shared());
    }
}

/// Checks that cgroups that stand for users are clients: they have the line of requests without a
/// user, and their gates are vacant after they have gone, whatever their number in all.
#[test]
fn cgroups_join_and_go() {
    let text = "by uid; group all capacity=1GB; client 4294967295 class=low_share min=7MB max=7MB
        default class=fair_share min=1MB";
    let mut service = Managed::new(text, 128);
    let mut now = SECOND;
    for round in 0..8_u32 {
        let party = |id: u32| {
            ClientKey::Key(Key::Cgroup(CgroupPath::from_number(
                (100 * round + id).into(),
            )))
        };
        let claims: Vec<_> = (0..100)
            .map(|id| service.queue(party(id), 0, now))
            .collect();
        service.poll(false, now);
        for claim in &claims {
            assert!(!claim.is_shared(), "round {round}");
            assert_eq!(service.gate(claim).rate(), 7_000_000);
        }
        service.leave(&claims);
        for _ in 0..100 {
            now += WALK;
            service.poll(true, now);
        }
    }
}

/// Checks that ten thousand clients that gave up bandwidth have it restored after as many ticks as
/// a single client.
#[test]
fn ten_thousand_restore_in_time() {
    let text = "by uid; tune slow=1s idle=60s; group all capacity=1GB
        default class=fair_share min=90000";
    let mut service = Managed::new(text, 16_384);
    let mut now = SECOND;
    let claims = service.queue_users(CLIENTS, now);
    let have_all = |service: &Managed| {
        let rates = claims.iter().map(|claim| service.gate(claim).rate());
        rates.filter(|rate| *rate >= 90_000).count()
    };
    while have_all(&service) > 0 {
        now += WALK;
        service.poll(true, now);
        assert!(now < 100 * SECOND, "unused bandwidth is not given up");
    }
    let mut ticks = 0;
    while have_all(&service) < claims.len() {
        for claim in &claims {
            service.gate(claim).sleep(now, now + WALK);
        }
        now += WALK;
        service.poll(true, now);
        ticks += 1;
        assert!(ticks < 8, "{} after {ticks} ticks", have_all(&service));
    }
}
