// SPDX-License-Identifier: GPL-2.0-only

//! Random histories of the manager: clients join and leave, plans change. After every tick the
//! accounts are checked.

use nrs_sched::{
    item::{Cost, Direction},
    key::Key,
    managed::{plan, yaml},
    mem::Shared,
    policy::Nothing,
    qbm::{
        gate::{GateClaim, Gates},
        manager::BandwidthManager,
        plan::{ClientKey, Plan, RequestOwner, GROUPS_MAX},
        terms::UNREGULATED,
    },
    rng::Rng,
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use serde_yaml_ng::{from_str, Value};
use std::collections::HashMap;

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
    who: RequestOwner,
    claim: GateClaim,
    busy: bool,
}

struct World {
    manager: BandwidthManager,
    gates: Shared<Gates>,
    plan: Shared<Plan>,
    classes: Vec<Class>,
    now: u64,
}

impl World {
    /// Makes class `index` busy or idle, and finds its gate.
    fn set(&mut self, index: usize, busy: bool) {
        let class = &mut self.classes[index];
        let gate = self.gates.get(class.claim.idx());
        if class.busy {
            gate.inspect(|gate| gate.leave(&class.claim));
        }
        if busy {
            if !self.gates.holds(&class.claim) || class.claim.is_shared() {
                class.claim = self
                    .gates
                    .claim(&class.who, &class.claim, || false, self.now);
            }
            let gate = self.gates.get(class.claim.idx());
            if let Some(gate) = gate {
                gate.join(&class.claim);
                if !gate.is_known() {
                    self.gates.announce(class.claim.idx());
                }
            }
        }
        class.busy = busy;
    }

    fn poll(&mut self, due: bool) {
        let polled = self.manager.poll(&Nothing, due, self.now);
        polled.expect("memory");
        self.manager.has_changed();
    }

    /// Checks that each gate has one client, each client one gate, and each gate the rate that its
    /// terms allow.
    fn check_gates(&self) {
        let mut places: HashMap<(u32, ClientKey), u32> = HashMap::new();
        for place in GROUPS_MAX as u32..self.gates.len() {
            let gate = self.gates.get(place).expect("a gate");
            let Some(owner) = self.gates.owner(place).filter(|_| gate.is_known()) else {
                continue;
            };
            let who = owner.who;
            assert_eq!(places.insert((owner.group, who.party), place), None);
            let group = self.plan.group_of(who.target).expect("a group");
            match self.plan.terms(group, &who.party, &Nothing) {
                None => assert_eq!(gate.rate(), UNREGULATED),
                Some(terms) => {
                    assert_eq!(gate.rank(), terms.class.rank());
                    assert!(gate.rate() <= terms.max, "{} of {terms:?}", gate.rate());
                    assert!(gate.rate() >= 32 << 10);
                }
            }
        }
        for class in self.classes.iter().filter(|class| class.busy) {
            let group = self.plan.group_of(class.who.target);
            if !self.gates.holds(&class.claim) {
                continue;
            }
            match self.gates.get(class.claim.idx()) {
                None => assert_eq!(group, None),
                Some(gate) => assert!(gate.users() > 0 && gate.is_known()),
            }
        }
    }

    /// Checks that allocations, reserves and free bandwidth add up to the capacity.
    fn check_sums(&self) {
        let manager = &self.manager;
        let text = yaml(|report| manager.report_status(report, &Nothing, self.now));
        let groups: Vec<Value> = from_str(&text).expect("YAML");
        for group in &groups {
            let number = |field: &str| group[field].as_i64().unwrap_or(0);
            let reserves = ["first_come", "fair_share", "low_share", "mover"]
                .map(|class| group["reserves"][class].as_i64().expect("a number"));
            let clients = group["clients"].as_sequence().expect("a sequence");
            let allocated = clients.iter().filter_map(|c| c["allocated"].as_i64());
            let sum = allocated.sum::<i64>()
                + number("without_gate")
                + number("free")
                + reserves.iter().sum::<i64>();
            let capacity = match group["strategy"].as_str() {
                Some("mover") => number("left_to_movers"),
                _ => number("capacity"),
            };
            assert_eq!(sum, capacity + number("oversubscribed"), "{text}");
            assert_eq!(clients.len() as i64, number("registered"), "{text}");
        }
        let text = yaml(|report| manager.report_stats(report, &Nothing));
        assert!(from_str::<Value>(&text).is_ok());
    }
}

#[test]
fn books_are_right() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut random = move |below: u64| rng.next_u64() % below;
        let plans = PLANS.map(plan);
        let gates = Gates::new(16 + seed as u32 * 8, seed).expect("memory");
        let gates = Shared::new(gates).expect("memory");
        let mut world = World {
            manager: BandwidthManager::new(plans[0].clone(), gates.clone()).expect("memory"),
            gates,
            plan: plans[0].clone(),
            classes: Vec::new(),
            now: 5 * SECOND,
        };
        // Two parts with the same classes.
        for number in 0..2 * 30 * 3u32 {
            let who = RequestOwner {
                party: ClientKey::Key(Key::Uid(number % 30)),
                target: number / 30 % 3,
            };
            world.classes.push(Class {
                who,
                claim: GateClaim::NONE,
                busy: false,
            });
        }
        for step in 0..1_500 {
            world.now += random(200) * MS;
            let some = random(12);
            for index in 0..world.classes.len() {
                if random(12) < some.min(3) {
                    let busy = random(10) < some;
                    world.set(index, busy);
                } else if world.classes[index].busy {
                    world.set(index, true);
                }
            }
            for class in world.classes.iter().filter(|class| class.busy) {
                if let Some(gate) = world.gates.get(class.claim.idx()) {
                    let cost = Cost::new(Direction::Write, random(4 << 20));
                    gate.force(cost, world.now);
                    gate.sleep(world.now.saturating_sub(random(100) * MS), world.now);
                }
            }
            if random(25) == 0 {
                world.plan = plans[random(plans.len() as u64) as usize].clone();
                let plan = world.plan.clone();
                let configured = world.manager.configure(plan, &Nothing, world.now);
                configured.expect("memory");
            }
            world.poll(random(3) > 0);
            world.check_gates();
            if step % 10 == 0 {
                world.check_sums();
            }
            if random(200) == 0 {
                world.manager.reset_stats();
            }
        }
    }
}
