// SPDX-License-Identifier: GPL-2.0-only

//! Ten thousand clients at once.

use nrs_sched::{
    bandwidth::{Place, MS, SECOND, WALK},
    class::DEFAULT_ID,
    item::{Cost, Direction},
    key::Key,
    mem::Shared,
    policy::qbm::Brief,
    qbm::{
        gate::{Gates, NO_SEAT},
        manager::Manager,
        plan::{Party, Plan, Who},
    },
};
use std::time::{Duration, Instant};

fn brief(uid: u32, seat: u32, busy: bool) -> Brief {
    Brief {
        id: DEFAULT_ID,
        who: Who {
            party: Party::Key(Key::Uid(uid)),
            target: 0,
        },
        seat,
        busy,
    }
}

/// They join, are told of five times a second, ask for more and less, and go; no tick takes long.
#[test]
fn ten_thousand_join_and_go() {
    for (default, clients) in [
        ("class=first_come min=64KiB", 10_000),
        ("class=low_share min=64KiB max=1MB", 10_000),
        ("class=fair_share min=1MB", 10_000),
        ("class=mover min=1MB", 10_000),
    ] {
        let text = format!("by uid; tune slow=5s; group all capacity=1GB; default {default}");
        let plan = Shared::new(Plan::parse(&text).expect("a plan")).expect("memory");
        let gates = Shared::new(Gates::new(16_384).expect("memory")).expect("memory");
        let mut manager = Manager::new(plan, gates.clone(), 3).expect("memory");
        let begin = Instant::now();
        let mut now = SECOND;
        let mut seats = vec![NO_SEAT; clients as usize];
        for (uid, seat) in (0..).zip(&mut seats) {
            *seat = manager.meet(&brief(uid, *seat, true), &Place, now);
        }
        assert!(manager.has_changed());
        let joined = begin.elapsed();
        let mut own = seats.clone();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), seats.len(), "seats of their own");
        for (uid, seat) in (0..).zip(&seats) {
            // Nobody's gate was forgotten.
            let gate = gates.get(*seat).expect("a gate");
            assert!(
                gate.rate() >= 32 << 10 && gate.rate() <= 1_000_000_000,
                "{uid}"
            );
        }
        let mut longest = Duration::ZERO;
        // A slow period and a bit: all of them ask for something in one tick.
        for _ in 0..40 {
            now += WALK;
            for (uid, seat) in (0..).zip(&mut seats) {
                *seat = manager.meet(&brief(uid, *seat, true), &Place, now);
            }
            let tick = Instant::now();
            manager.tick(now);
            longest = longest.max(tick.elapsed());
            if let Some(gate) = gates.get(seats[77]) {
                gate.force(Cost::new(Direction::Read, 100_000), now);
            }
        }
        let mut walks = 0;
        while seats.iter().any(|seat| *seat != NO_SEAT) {
            now += WALK;
            for (uid, seat) in (0..).zip(&mut seats) {
                *seat = manager.meet(&brief(uid, *seat, false), &Place, now);
            }
            let tick = Instant::now();
            manager.tick(now);
            longest = longest.max(tick.elapsed());
            walks += 1;
            assert!(walks < 100, "they do not go");
        }
        println!("{clients}, {default}: joined in {joined:?}, longest tick {longest:?}, gone after {walks} walks");
        // Their seats are vacant again.
        now += 3 * WALK;
        manager.tick(now);
        manager.tick(now + MS);
        manager.tick(now + 2 * MS);
        let next = manager.meet(&brief(clients, NO_SEAT, true), &Place, now);
        assert!(own.contains(&next));
    }
}
