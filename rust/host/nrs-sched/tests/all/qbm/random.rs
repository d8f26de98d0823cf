// SPDX-License-Identifier: GPL-2.0-only

//! Random histories of the manager: clients come, go and ask, plans change; after every walk and every tick
//! the books are right.

use nrs_sched::{
    bandwidth::{Place, MS, SECOND},
    class::DEFAULT_ID,
    item::{Cost, Direction},
    key::Key,
    mem::Shared,
    policy::qbm::Brief,
    qbm::{
        gate::{Gates, NO_SEAT},
        manager::{Manager, CROWD, OPEN},
        plan::{Party, Plan, Who},
        terms::UNREGULATED,
    },
    rng::Rng,
};
use std::collections::HashMap;
use yaml_rust2::YamlLoader;

const PLANS: [&str; 8] = [
    "by uid; group a capacity=100MB",
    "by uid; group a capacity=100MB reserve_first_come=20MB; default class=fs min=30MB max=60MB
     client 1 class=fc min=10MB; client 2 class=fc min=50MB; client 3 class=ls min=5MB
     client 4 class=mover min=1MB",
    "by uid; group a capacity=50MB; group b capacity=80MB target=1; default class=ls min=30MB
     client 1 class=fs min=40MB; client 2 group=b class=fc min=50MB; client 3 class=mover min=5MB",
    "by uid; group b capacity=80MB; group a capacity=10MB target=1; default class=fs min=1MB",
    "by uid; group a capacity=100MB strategy=mover; group c capacity=40MB target=2
     client 3 group=a class=mover min=5MB; client 4 group=a class=mover min=1MB",
    "by uid; group a capacity=300KB reserve_low_share=100KB; default class=fc min=100KB",
    "by uid; group c capacity=1GB target=2; tune idle=300ms fast=500ms slow=2s",
    "by uid; tune idle=300ms fast=500ms slow=2s; group a capacity=1GB; default class=fs min=60%
     client 5 class=ls min=10%; client 6 class=mover min=10%",
];

/// A class of requests in a part.
#[derive(Clone, Copy)]
struct Class {
    who: Who,
    seat: u32,
    busy: bool,
}

struct World {
    manager: Manager,
    gates: Shared<Gates>,
    plan: Shared<Plan>,
    classes: Vec<Class>,
    now: u64,
}

impl World {
    fn walk(&mut self) {
        for class in &mut self.classes {
            let brief = Brief {
                id: DEFAULT_ID,
                who: class.who,
                seat: class.seat,
                busy: class.busy,
            };
            class.seat = self.manager.meet(&brief, &Place, self.now);
            assert!(class.seat != NO_SEAT || !class.busy, "busy without a seat");
        }
        self.manager.has_changed();
    }

    /// No seat is two clients', no client has two.
    fn check_seats(&self) {
        let mut owners: HashMap<u32, (u32, Party)> = HashMap::new();
        let mut seats: HashMap<(u32, Party), u32> = HashMap::new();
        for class in &self.classes {
            let group = self.plan.group_of(u64::from(class.who.target));
            let Some(group) = group else {
                assert_eq!(class.seat, OPEN);
                continue;
            };
            if matches!(class.seat, CROWD | OPEN | NO_SEAT) {
                continue;
            }
            let owner = (group, class.who.party);
            assert_eq!(*owners.entry(class.seat).or_insert(owner), owner);
            assert_eq!(*seats.entry(owner).or_insert(class.seat), class.seat);
            let gate = self.gates.get(class.seat).expect("a gate");
            let terms = self.plan.terms(group, &class.who.party, &Place);
            match terms {
                None => assert_eq!(gate.rate(), UNREGULATED),
                Some(terms) => {
                    assert_eq!(gate.rank(), terms.class.rank());
                    assert!(gate.rate() <= terms.max, "{} of {terms:?}", gate.rate());
                    assert!(gate.rate() >= 32 << 10);
                }
            }
        }
    }

    /// What is allocated adds up.
    fn check_sums(&self) {
        let mut text = String::new();
        let written = self.manager.write_status(&mut text, &Place, self.now);
        written.expect("room");
        let documents = YamlLoader::load_from_str(&text).expect("YAML");
        for group in documents[0].as_vec().expect("a sequence") {
            let number = |field: &str| group[field].as_i64().unwrap_or(0);
            let reserves = ["first_come", "fair_share", "low_share", "mover"]
                .map(|class| group["reserves"][class].as_i64().expect("a number"));
            let clients = group["clients"].as_vec().expect("a sequence");
            let allocated = clients.iter().filter_map(|c| c["allocated"].as_i64());
            let sum = allocated.sum::<i64>()
                + number("without_seat")
                + number("free")
                + reserves.iter().sum::<i64>();
            let capacity = match group["strategy"].as_str() {
                Some("mover") => number("left_to_movers"),
                _ => number("capacity"),
            };
            assert_eq!(sum, capacity + number("oversubscribed"), "{text}");
            assert_eq!(clients.len() as i64, number("registered"), "{text}");
        }
        text.clear();
        let written = self.manager.write_stats(&mut text, &Place);
        written.expect("room");
        assert!(YamlLoader::load_from_str(&text).is_ok());
    }
}

#[test]
fn books_are_right() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut random = move |below: u64| rng.next_u64() % below;
        let plans: Vec<Shared<Plan>> = PLANS
            .iter()
            .map(|text| Plan::parse(text).unwrap_or_else(|error| panic!("{error}: {text}")))
            .map(|plan| Shared::new(plan).expect("memory"))
            .collect();
        let gates = Shared::new(Gates::new(16 + seed as usize * 8).expect("memory"));
        let gates = gates.expect("memory");
        let mut world = World {
            manager: Manager::new(plans[0].clone(), gates.clone(), seed).expect("memory"),
            gates,
            plan: plans[0].clone(),
            classes: Vec::new(),
            now: 5 * SECOND,
        };
        // Two parts with the same classes.
        for number in 0..2 * 30 * 3u32 {
            let who = Who {
                party: Party::Key(Key::Uid(number % 30)),
                target: number / 30 % 3,
            };
            world.classes.push(Class {
                who,
                seat: NO_SEAT,
                busy: false,
            });
        }
        for step in 0..1_500 {
            world.now += random(200) * MS;
            let some = random(12);
            for class in &mut world.classes {
                if random(12) < some.min(3) {
                    class.busy = random(10) < some;
                }
            }
            for class in &world.classes {
                if let (true, Some(gate)) = (class.busy, world.gates.get(class.seat)) {
                    let cost = Cost::new(Direction::Write, random(4 << 20));
                    gate.force(cost, world.now);
                    gate.sleep(world.now.saturating_sub(random(100) * MS), world.now);
                }
            }
            if random(25) == 0 {
                world.plan = plans[random(plans.len() as u64) as usize].clone();
                let plan = world.plan.clone();
                let configured = world.manager.configure(plan, &Place, world.now);
                configured.expect("memory");
            }
            world.walk();
            world.check_seats();
            if random(3) > 0 {
                world.manager.tick(world.now);
                world.manager.has_changed();
                world.check_seats();
            }
            if step % 10 == 0 {
                world.check_sums();
            }
            if random(200) == 0 {
                world.manager.reset_stats();
            }
        }
    }
}
