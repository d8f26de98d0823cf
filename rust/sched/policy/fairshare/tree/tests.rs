// SPDX-License-Identifier: GPL-2.0-only

use super::super::{
    entity::WEIGHT_ONE,
    params::Select,
    select::tests::{Fake, World},
};
use super::*;
use crate::sched::rng::Rng;

/// ThemisIO's composite: 2 groups, 4 users, 8 jobs by size (ThemisIO, SC'23).
fn composite() -> Vec<(u32, u32)> {
    let one = WEIGHT_ONE;
    let mut nodes = vec![(NONE, one), (NONE, one)];
    nodes.extend([(0, one), (1, one), (1, one), (1, one)]);
    let jobs = [
        (2, 1),
        (3, 2),
        (3, 3),
        (3, 2),
        (4, 3),
        (4, 2),
        (5, 1),
        (5, 2),
    ];
    nodes.extend(jobs.map(|(user, size)| (user, size * one)));
    nodes
}

/// The shares of the composite's jobs.
const SHARES: [f64; 8] = [
    1.0 / 2.0,
    1.0 / 21.0,
    1.0 / 14.0,
    1.0 / 21.0,
    1.0 / 10.0,
    1.0 / 15.0,
    1.0 / 18.0,
    1.0 / 9.0,
];

/// A world with the fluid service that each node should have had.
struct Fluid {
    world: World,
    ideal: Vec<f64>,
    served: Vec<f64>,
}

impl Fluid {
    fn new(nodes: &[(u32, u32)]) -> Self {
        Self {
            world: World::new(Select::Deadline, nodes),
            ideal: vec![0.0; nodes.len()],
            served: vec![0.0; nodes.len()],
        }
    }

    fn leaves(&self) -> Vec<u32> {
        let slots = 0..self.ideal.len() as u32;
        slots
            .filter(|&slot| self.world.fake.sched(slot).is_none())
            .collect()
    }

    /// What part of the service each node should have, by the leaves that have requests.
    fn shares(fake: &Fake) -> Vec<f64> {
        let count = fake.nodes.len();
        let mut busy: Vec<bool> = fake.nodes.iter().map(|node| node.next.is_some()).collect();
        // Parents come before their children.
        for slot in (0..count).rev() {
            if let Some(parent) = busy.get(fake.nodes[slot].parent as usize) {
                let parent_busy = *parent || busy[slot];
                busy[fake.nodes[slot].parent as usize] = parent_busy;
            }
        }
        let weight = |slot: usize| f64::from(fake.nodes[slot].entity.weight());
        let mut sums = vec![0.0; count + 1];
        for slot in (0..count).filter(|&slot| busy[slot]) {
            sums[(fake.nodes[slot].parent as usize).min(count)] += weight(slot);
        }
        let mut shares = vec![0.0; count];
        for slot in (0..count).filter(|&slot| busy[slot]) {
            let parent = fake.nodes[slot].parent as usize;
            let above = shares.get(parent).copied().unwrap_or(1.0);
            shares[slot] = above * weight(slot) / sums[parent.min(count)];
        }
        shares
    }

    /// Serves one request and counts it, and the ideal by `shares`.
    fn serve(&mut self, shares: &[f64], next: impl FnOnce(u32) -> Option<u32>) -> u32 {
        let (slot, cost) = self.world.serve(next).unwrap();
        self.served[slot as usize] += f64::from(cost);
        for (ideal, share) in self.ideal.iter_mut().zip(shares) {
            *ideal += share * f64::from(cost);
        }
        slot
    }

    /// Largest relative error of a leaf.
    fn error(&self) -> f64 {
        let error =
            |slot: u32| (self.served[slot as usize] / self.ideal[slot as usize] - 1.0).abs();
        self.leaves().into_iter().map(error).fold(0.0, f64::max)
    }
}

/// Leaves that always have requests get their shares, whatever the depth and the weights.
#[test]
fn shares_of_busy_leaves() {
    let flat = |weights: &[u32]| -> Vec<(u32, u32)> {
        weights
            .iter()
            .map(|weight| (NONE, weight * WEIGHT_ONE))
            .collect()
    };
    let mixed: &[u32] = &[1, 16, 256];
    for (name, nodes, costs, limit) in [
        ("equal", flat(&[1; 8]), &[1][..], 0.0001),
        ("1:2", flat(&[1, 2]), &[1], 0.001),
        ("1:8", flat(&[1, 8]), &[1], 0.001),
        ("1:100", flat(&[1, 100]), &[1], 0.01),
        ("1:10000", flat(&[1, 10_000]), &[1], 1.0),
        // 10,000 / 18 is 555 and 5/9: 555 are 0.1 % less.
        ("composite", composite(), &[1], 0.001_000_001),
        ("equal, mixed", flat(&[1; 8]), mixed, 0.01),
        ("composite, mixed", composite(), mixed, 0.01),
    ] {
        let mut fluid = Fluid::new(&nodes);
        let mut rng = Rng::new(3);
        for slot in fluid.leaves() {
            fluid
                .world
                .join(slot, costs[rng.below(costs.len() as u64) as usize]);
        }
        let shares = Fluid::shares(&fluid.world.fake);
        for _ in 0..10_000 {
            // Sizes are another mix for each leaf.
            fluid.serve(&shares, |slot| {
                let which = rng.below(4 + u64::from(slot % 3)) as usize;
                costs.get(which).or(costs.last()).copied()
            });
        }
        let error = fluid.error();
        println!("{name}: {:.4} %", error * 100.0);
        assert!(error <= limit, "{name}: {error}");
        if name.starts_with("composite") {
            for (share, want) in fluid
                .leaves()
                .iter()
                .map(|&s| shares[s as usize])
                .zip(SHARES)
            {
                assert!((share - want).abs() < 1e-12);
            }
        }
    }
}

/// The largest ratio of weights: the light one is served in its turn, and no sooner.
#[test]
fn weights_of_one_to_ten_thousand() {
    let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE, 10_000 * WEIGHT_ONE]);
    for slot in 0..2 {
        world.join(slot, 1);
    }
    for round in 1..=20 {
        let served = world.serve_many(10_001);
        assert!(served[0].abs_diff(1) <= 1, "{round} {served:?}");
    }
    let served = world.serve_many(200_020);
    assert!(served[0].abs_diff(20) <= 1, "{served:?}");
}

/// Members that switch on and off, 30 to 70 % of 400 requests: their service is that of a fluid that is
/// shared, at each level, by those who are on.
#[test]
fn members_on_and_off() {
    let equal = vec![(NONE, WEIGHT_ONE); 8];
    for (name, nodes) in [("equal", equal), ("composite", composite())] {
        for seed in 1..=4 {
            let mut fluid = Fluid::new(&nodes);
            let mut rng = Rng::new(seed);
            let leaves = fluid.leaves();
            // When the cycle began, and until when of it the leaf is on.
            let mut cycles: Vec<(u64, u64)> = leaves
                .iter()
                .map(|_| (rng.below(400), 120 + rng.below(161)))
                .collect();
            let mut shares = Vec::new();
            for _ in 0..100_000 {
                let mut changed = shares.is_empty();
                for (&slot, (at, duty)) in leaves.iter().zip(&mut cycles) {
                    *at += 1;
                    if *at == 400 {
                        (*at, *duty) = (0, 120 + rng.below(161));
                    }
                    let on = at < duty;
                    let was = fluid.world.fake.nodes[slot as usize].next.is_some();
                    if on && !was {
                        fluid.world.join(slot, 1);
                    } else if was && !on {
                        fluid.world.drop_all(slot);
                    }
                    changed |= on != was;
                }
                if changed {
                    shares = Fluid::shares(&fluid.world.fake);
                }
                if fluid
                    .world
                    .fake
                    .nodes
                    .iter()
                    .all(|node| node.next.is_none())
                {
                    assert!(fluid.world.pick().is_none());
                    continue;
                }
                fluid.serve(&shares, |_| Some(1));
            }
            let error = fluid.error();
            println!("{name}, {seed}: {:.3} %", error * 100.0);
            assert!(error <= 0.005, "{name}, {seed}: {error}");
        }
    }
}

/// A user's idle jobs give their share to the user's other jobs, not to other users.
#[test]
fn idle_members_do_not_distort_their_level() {
    let one = WEIGHT_ONE;
    // Two users, one with 2 jobs, one with 4.
    let mut nodes = vec![(NONE, one), (NONE, one)];
    nodes.extend([(0, one); 2]);
    nodes.extend([(1, one); 4]);
    let mut world = World::new(Select::Deadline, &nodes);
    for slot in 2..8 {
        world.join(slot, 1);
    }
    assert_eq!(
        world.serve_many(8000)[2..],
        [2000, 2000, 1000, 1000, 1000, 1000]
    );
    for slot in 5..8 {
        world.drop_all(slot);
    }
    let served = world.serve_many(8000);
    for (got, want) in served[2..].iter().zip([2000, 2000, 4000, 0, 0, 0]) {
        assert!(got.abs_diff(want) <= 2, "{served:?}");
    }
    // A job alone gets everything.
    for slot in [2, 3] {
        world.drop_all(slot);
    }
    assert_eq!(world.serve_many(100)[4], 100);
}

/// Nobody waits longer than three fair periods and one round, with members that come and go, costs of all
/// sizes, at each depth in the service of the level; `c` is one largest request.
#[test]
fn nobody_starves() {
    const LARGEST: u32 = 256;
    for seed in 1..=4 {
        let weights = [1, 1, 2, 5, 10, 1, 3, 40];
        let nodes = weights.map(|weight| (NONE, weight * WEIGHT_ONE));
        let mut world = World::new(Select::Deadline, &nodes);
        let mut rng = Rng::new(seed);
        let mut waited = [0u64; 8];
        // Of those that have requests: the largest number and sum of weights since the wait began.
        let mut most = [(0u64, 0u64); 8];
        let mut worst = 0.0f64;
        for _ in 0..60_000 {
            let slot = rng.below(8) as u32;
            let cost = [1, 16, LARGEST][rng.below(3) as usize];
            let queued = world.fake.nodes[slot as usize].next.is_some();
            match (rng.below(16), queued) {
                (0..8, false) => {
                    world.join(slot, cost);
                    waited[slot as usize] = 0;
                    most[slot as usize] = (0, 0);
                }
                (0, true) => world.drop_all(slot),
                _ => {}
            }
            let busy: Vec<usize> = (0..8)
                .filter(|&slot| world.fake.nodes[slot].next.is_some())
                .collect();
            let sum: u64 = busy.iter().map(|&slot| u64::from(weights[slot])).sum();
            let Some((slot, cost)) = world.serve(|_| Some(cost)) else {
                continue;
            };
            for &other in &busy {
                let (count, weight) = &mut most[other];
                *count = (*count).max(busy.len() as u64);
                *weight = (*weight).max(sum);
                waited[other] += u64::from(cost);
                let period = u64::from(LARGEST) * *weight / u64::from(weights[other]);
                let bound = 3 * period + *count * u64::from(LARGEST);
                assert!(waited[other] <= bound, "{seed} {other}");
                worst = worst.max(waited[other] as f64 / period as f64);
            }
            waited[slot as usize] = 0;
            most[slot as usize] = (0, 0);
        }
        println!("{seed}: {worst:.2} fair periods");
    }
}

/// One request per 100 beside eight that always have more: it never waits.
#[test]
fn sparse_entities_go_first() {
    let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 9]);
    for slot in 1..9 {
        world.join(slot, 1);
    }
    let mut waits = Vec::new();
    for _ in 0..1000 {
        for _ in 0..99 {
            assert_ne!(world.serve(|_| Some(1)).unwrap().0, 0);
        }
        world.join(0, 1);
        let mut wait = 0;
        while world.serve(|slot| (slot != 0).then_some(1)).unwrap().0 != 0 {
            wait += 1;
        }
        waits.push(wait);
    }
    waits.sort();
    assert_eq!(waits[989], 0);
}

/// Partitions of equal capacity that share counters: the shares over all of them are max-min fair.
#[test]
fn partitions_share() {
    // Who is on which of four partitions, and what they should get, in parts of one partition.
    let everywhere: &[u32] = &[0, 1, 2, 3];
    for (name, presence, ideal) in [
        (
            "case 1",
            &[everywhere, &[0], &[0], &[0], &[1], &[1], &[2], &[3]][..],
            &[
                2.0 / 3.0,
                1.0 / 3.0,
                1.0 / 3.0,
                1.0 / 3.0,
                0.5,
                0.5,
                2.0 / 3.0,
                2.0 / 3.0,
            ][..],
        ),
        ("case 3", &[everywhere, &[0]], &[3.0, 1.0]),
        ("two on two", &[&[0, 1], &[0, 1]], &[1.0, 1.0]),
        (
            "two apart",
            &[&[0, 1], &[0], &[1]],
            &[2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0],
        ),
    ] {
        for depth in [1, 2] {
            for costs in [&[1][..], &[1, 16, 64]] {
                // With two levels every node is alone below a parent, and the parents compete.
                let count = presence.len() as u32;
                let mut nodes = vec![(NONE, WEIGHT_ONE); presence.len()];
                if depth == 2 {
                    nodes.extend((0..count).map(|parent| (parent, WEIGHT_ONE)));
                }
                let leaf = |entity: u32| entity + (depth - 1) * count;
                let mut rng = Rng::new(4);
                let parts = presence
                    .iter()
                    .flat_map(|parts| parts.iter())
                    .max()
                    .unwrap()
                    + 1;
                let mut worlds = World::partitions(parts as usize, &nodes);
                for (entity, parts) in (0..).zip(presence) {
                    for &part in *parts {
                        worlds[part as usize].join(leaf(entity), 1);
                    }
                }
                let mut served = vec![0.0; presence.len()];
                let mut times = vec![0u64; worlds.len()];
                let mut total = 0.0;
                for step in 0..400_000 {
                    // Equal capacity: the one that has done the least is free first.
                    let part = (0..times.len()).min_by_key(|&part| times[part]).unwrap();
                    let cost = costs[rng.below(costs.len() as u64) as usize];
                    let (slot, cost) = worlds[part].serve(|_| Some(cost)).unwrap();
                    times[part] += u64::from(cost);
                    if step >= 20_000 {
                        served[(slot % count) as usize] += f64::from(cost);
                        total += f64::from(cost) / worlds.len() as f64;
                    }
                }
                let errors = served.iter().zip(ideal);
                let error = errors.map(|(got, want)| (got / total / want - 1.0).abs());
                let error = error.fold(0.0, f64::max);
                println!("{name}, depth {depth}, {costs:?}: {:.3} %", error * 100.0);
                // Nobody is shut out where it is served last, which costs the others a little.
                let limit = 0.02;
                assert!(error <= limit, "{name}, {depth}, {costs:?}: {served:?}");
            }
        }
    }
}

/// Charged are estimates that are wrong by four times in either direction; what is corrected when a request
/// ends makes the shares of the true cost right, though requests overlap.
#[test]
fn corrections_make_shares_of_true_cost() {
    for nodes in [vec![(NONE, WEIGHT_ONE); 4], {
        let mut nodes = vec![(NONE, WEIGHT_ONE); 2];
        nodes.extend([
            (0, WEIGHT_ONE),
            (0, WEIGHT_ONE),
            (1, WEIGHT_ONE),
            (1, WEIGHT_ONE),
        ]);
        nodes
    }] {
        let mut world = World::new(Select::Deadline, &nodes);
        let first = nodes.len() as u32 - 4;
        // True costs differ, estimates are 4 times too high for two, 4 times too low for the others.
        let truth = [40u32, 100, 40, 400];
        let charged = [160u32, 25, 10, 1600];
        for leaf in 0..4 {
            world.join(first + leaf, charged[leaf as usize]);
        }
        let mut served = [0u64; 4];
        let mut running = std::collections::VecDeque::new();
        for _ in 0..100_000 {
            let (slot, _) = world
                .serve(|slot| Some(charged[(slot - first) as usize]))
                .unwrap();
            running.push_back((slot - first) as usize);
            if running.len() > 8 {
                let leaf = running.pop_front().unwrap();
                let delta = i64::from(truth[leaf]) - i64::from(charged[leaf]);
                world
                    .selector
                    .correct(&mut world.fake, first + leaf as u32, delta);
                served[leaf] += u64::from(truth[leaf]);
            }
        }
        let mean = served.iter().sum::<u64>() as f64 / 4.0;
        let error = served.iter().map(|&got| (got as f64 / mean - 1.0).abs());
        let error = error.fold(0.0, f64::max);
        println!("{} nodes: {:.3} % {served:?}", nodes.len(), error * 100.0);
        assert!(error <= 0.005, "{served:?}");
    }
}

/// A correction of a leaf without requests is remembered like what it would have been charged.
#[test]
fn corrections_reach_idle_leaves() {
    let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 2]);
    world.join(1, 10);
    let mut served = [0u64; 2];
    // Leaf 0 has one request at a time, which is charged 40 and costs 10, and comes back at once.
    for _ in 0..40_000 {
        if world.fake.nodes[0].next.is_none() {
            world.join(0, 40);
        }
        let (slot, _) = world.serve(|slot| (slot == 1).then_some(10)).unwrap();
        served[slot as usize] += 10;
        if slot == 0 {
            world.selector.correct(&mut world.fake, 0, -30);
        }
    }
    assert!(
        served[0].abs_diff(served[1]) * 100 <= served[1],
        "{served:?}"
    );
}

/// A new weight under way leaves what each is owed alone, at each level.
#[test]
fn reweight_keeps_lags() {
    let mut world = World::new(Select::Deadline, &composite());
    let mut rng = Rng::new(8);
    for slot in 6..14 {
        world.join(slot, 100);
    }
    for step in 0..20_000u32 {
        world.serve(|_| Some(100)).unwrap();
        let slot = rng.below(14) as u32;
        let before = world.selector.lag(&world.fake, slot);
        let weight = WEIGHT_ONE * (1 + rng.below(10_000) as u32);
        let factor = if step % 2 == 0 { 1 } else { 40 };
        world
            .selector
            .reweight(&mut world.fake, slot, weight * factor);
        let after = world.selector.lag(&world.fake, slot);
        // Tags are whole numbers: one of them is up to half a unit.
        assert!(before.abs_diff(after) <= 12, "{slot}: {before} {after}");
        assert!(after.abs() <= 10 * 100 * 3, "{after}");
    }
}

/// A node is in its parent's scheduler exactly if something below it has requests.
#[test]
fn nodes_join_and_leave_with_their_members() {
    let mut world = World::new(Select::Deadline, &composite());
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        let slot = 6 + rng.below(8) as u32;
        match world.fake.nodes[slot as usize].next {
            None => world.join(slot, 1 + rng.below(300) as u32),
            Some(_) if rng.below(3) == 0 => world.drop_all(slot),
            Some(_) => {
                let more = (rng.below(2) == 0).then_some(7);
                world.serve(|_| more);
            }
        }
        for slot in 0..14u32 {
            let node = &world.fake.nodes[slot as usize];
            let busy = match &node.sched {
                Some(sched) => !sched.is_empty(),
                None => node.next.is_some(),
            };
            assert_eq!(node.entity.place != Place::Out, busy, "{slot}");
            if let Some(sched) = &node.sched {
                let below = world.fake.nodes.iter().filter(|other| other.parent == slot);
                let inside = below.filter(|other| other.entity.place != Place::Out);
                let weight: u64 = inside.map(|other| u64::from(other.entity.weight())).sum();
                assert_eq!(sched.weight(), weight);
            }
        }
    }
}

/// The same steps make the same choices.
#[test]
fn choices_repeat() {
    let run = || {
        let mut world = World::new(Select::Deadline, &composite());
        let mut rng = Rng::new(10);
        let mut order = Vec::new();
        for _ in 0..5000 {
            let slot = 6 + rng.below(8) as u32;
            if world.fake.nodes[slot as usize].next.is_none() {
                world.join(slot, 1 + rng.below(300) as u32);
            }
            let next = rng.below(3) as u32;
            order.push(world.serve(|_| (next > 0).then_some(next)));
        }
        order
    };
    assert_eq!(run(), run());
}
