// SPDX-License-Identifier: GPL-2.0-only

//! Ten thousand concurrent clients.

use super::sim::{plan, WALK};
use nrs_sched::{
    item::{Cost, Direction},
    key::Key,
    mem::Shared,
    policy::Nothing,
    qbm::{
        gate::{GateClaim, Gates},
        manager::BandwidthManager,
        plan::{ClientKey, RequestOwner, GROUPS_MAX},
    },
    units::NSEC_PER_SEC as SECOND,
};

/// Checks that ten thousand clients join, use their rates, change their demand, and leave.
#[test]
fn ten_thousand_join_and_go() {
    let clients = 10_000;
    for default in [
        "class=first_come min=64KiB",
        "class=low_share min=64KiB max=1MB",
        "class=fair_share min=1MB",
        "class=mover min=1MB",
    ] {
        let text = format!("by uid; tune slow=5s; group all capacity=1GB; default {default}");
        let gates = Shared::new(Gates::new(16_384, 3).expect("memory")).expect("memory");
        let mut manager = BandwidthManager::new(plan(&text), gates.clone()).expect("memory");
        let mut now = SECOND;
        let claim = |uid, now| {
            let party = ClientKey::Key(Key::Uid(uid));
            let who = RequestOwner { party, target: 0 };
            let claim = gates.claim(&who, &GateClaim::NONE, || false, now);
            gates.get(claim.place()).expect("a gate").join(&claim);
            claim
        };
        let claims: Vec<GateClaim> = (0..clients).map(|uid| claim(uid, now)).collect();
        manager.look(&Nothing, false, now).expect("memory");
        let mut own: Vec<u32> = claims.iter().map(GateClaim::place).collect();
        own.retain(|place| *place as usize >= GROUPS_MAX);
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), clients as usize, "gates of their own");
        for place in &own {
            // Every gate was set up.
            let rate = gates.get(*place).expect("a gate").rate();
            assert!((32 << 10..=1_000_000_000).contains(&rate), "{rate}");
        }
        // Slightly more than a slow period: all clients receive a new rate in one tick.
        for _ in 0..40 {
            now += WALK;
            manager.look(&Nothing, true, now).expect("memory");
            if let Some(gate) = gates.get(own[77]) {
                gate.force(Cost::new(Direction::Read, 100_000), now);
            }
        }
        for claim in &claims {
            gates.get(claim.place()).expect("a gate").leave(claim);
        }
        let mut ticks = 0;
        while own.iter().any(|place| gates.owner(*place).is_some()) {
            now += WALK;
            manager.look(&Nothing, true, now).expect("memory");
            ticks += 1;
            assert!(ticks < 100, "clients are not removed");
        }
        // The gates are vacant again.
        assert!(!claim(clients, now).is_shared());
    }
}

/// Checks that ten thousand clients that gave up bandwidth have it restored after as many ticks as
/// a single client.
#[test]
fn ten_thousand_restore_in_time() {
    let clients = 10_000;
    let min = 90_000;
    let text = format!(
        "by uid; tune slow=1s idle=60s; group all capacity=1GB
        default class=fair_share min={min}"
    );
    let gates = Shared::new(Gates::new(16_384, 3).expect("memory")).expect("memory");
    let mut manager = BandwidthManager::new(plan(&text), gates.clone()).expect("memory");
    let mut now = SECOND;
    let places: Vec<u32> = (0..clients)
        .map(|uid| {
            let party = ClientKey::Key(Key::Uid(uid));
            let claim = gates.claim(
                &RequestOwner { party, target: 0 },
                &GateClaim::NONE,
                || false,
                now,
            );
            gates.get(claim.place()).expect("a gate").join(&claim);
            claim.place()
        })
        .collect();
    let mut tick = |now: &mut u64| {
        *now += WALK;
        manager.look(&Nothing, true, *now).expect("memory");
    };
    let have_all = || {
        let rate = |place: &u32| gates.get(*place).expect("a gate").rate();
        places.iter().filter(|place| rate(place) >= min).count()
    };
    while have_all() > 0 {
        tick(&mut now);
        assert!(now < 100 * SECOND, "unused bandwidth is not given up");
    }
    let mut ticks = 0;
    while have_all() < places.len() {
        for place in &places {
            gates.get(*place).expect("a gate").sleep(now, now + WALK);
        }
        tick(&mut now);
        ticks += 1;
        assert!(
            ticks < 8,
            "{} of {} after {ticks} ticks",
            have_all(),
            places.len()
        );
    }
}
