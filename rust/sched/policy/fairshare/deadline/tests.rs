// SPDX-License-Identifier: GPL-2.0-only

use super::super::{
    entity::{Entity, WEIGHT_ONE},
    params::Select,
    select::tests::{Fake, World},
};
use super::*;
use crate::sched::{
    leftist::{Forest, Knot},
    mem::Pile,
    rng::Rng,
    slab::NONE,
};

/// Of two that always have requests one sends as much past its queue: it gets half in all, not more.
#[test]
fn what_was_forced_comes_out_of_the_share() {
    let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 2]);
    for slot in 0..2 {
        world.join(slot, 4);
    }
    let mut served = [0u32; 2];
    for step in 0..3_000 {
        let (slot, cost) = world.serve(|_| Some(4)).unwrap();
        served[slot as usize] += cost;
        if step % 3 == 0 {
            world.selector.owe(&mut world.fake, 0, 4, Some(4));
            served[0] += 4;
        }
    }
    assert!(served[0].abs_diff(served[1]) <= 8, "{served:?}");
}

/// Debt is bounded, with requests queued and without: whoever owes more than anybody may is served again
/// after the others had about that much; what it owes while nobody waits is none.
#[test]
fn debt_is_bounded() {
    for (queued, others) in [(false, true), (true, true), (false, false)] {
        let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 2]);
        if queued {
            world.join(0, DEBT_MAX);
        }
        if others {
            world.join(1, DEBT_MAX);
        }
        for _ in 0..100 {
            let next = queued.then_some(DEBT_MAX);
            world.selector.owe(&mut world.fake, 0, DEBT_MAX, next);
        }
        for slot in 0..2 {
            if world.fake.nodes[slot as usize].next.is_none() {
                world.join(slot, DEBT_MAX);
            }
        }
        let lag = world.selector.lag(&world.fake, 0);
        if !others {
            assert_eq!(lag, 0);
            continue;
        }
        assert!(lag < 0 && lag >= -20 * i64::from(DEBT_MAX), "{lag}");
        let other = |_: &u32| world.serve(|_| Some(DEBT_MAX)).unwrap().0 == 1;
        let waits = (0..100).take_while(other).count();
        assert!((1..=5).contains(&waits), "{queued}: {waits}");
    }
}

/// With a static set nobody is ever further from its share than the largest request (5 % for the rounding),
/// whatever the weights; so shares are proportional.
#[test]
fn lag_is_below_one_request() {
    for (weights, costs) in [
        (&[4096, 4096][..], &[1, 256][..]),
        (&[4096, 16_384], &[1]),
        (&[4096, 409_600], &[1, 16]),
        (&[64, 1 << 20, 4096], &[1, 7, 64]),
        (&[4, 40_960_000], &[1]),
        (&[4096, 1000, 640, 9000, 250, 64, 77, 5000], &[1, 16, 256]),
    ] {
        let mut world = World::flat(Select::Deadline, weights);
        let largest = *costs.iter().max().unwrap();
        let cost_of = |slot: u32| costs[slot as usize % costs.len()];
        for slot in 0..weights.len() as u32 {
            world.join(slot, cost_of(slot));
        }
        let mut served = vec![0u64; weights.len()];
        for _ in 0..50_000 {
            let (slot, cost) = world.serve(|slot| Some(cost_of(slot))).unwrap();
            served[slot as usize] += u64::from(cost);
            for slot in 0..weights.len() as u32 {
                let lag = world.selector.lag(&world.fake, slot);
                let bound = 1050 * i64::from(largest);
                assert!(lag.abs() * 100 <= bound, "{weights:?}: {lag}");
            }
        }
        // What was served is the share, up to one largest request.
        let total: u64 = served.iter().sum();
        let whole: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        for (got, &weight) in served.iter().zip(weights) {
            let ideal = total * u64::from(weight) / whole;
            let off = got.abs_diff(ideal);
            assert!(off <= u64::from(largest) + 2, "{weights:?} {served:?}");
        }
    }
}

/// The surplus of one large request expires; what is left by a member that was busy is paid back, for a
/// while.
#[test]
fn surplus_is_paid_back_by_those_who_were_busy() {
    for (requests, idle, paid) in [(1, 40, false), (2, 40, true), (2, 4000, false)] {
        let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 3]);
        for slot in [1, 2] {
            world.join(slot, 16);
        }
        world.join(0, 64);
        let mut left = requests;
        while left > 0 {
            let (slot, _) = world
                .serve(|slot| match slot {
                    0 => (left > 1).then_some(16),
                    _ => Some(16),
                })
                .unwrap();
            left -= u32::from(slot == 0);
        }
        assert!(world.selector.lag(&world.fake, 0) < 0);
        for _ in 0..idle {
            world.serve(|_| Some(16)).unwrap();
        }
        world.join(0, 16);
        let lag = world.selector.lag(&world.fake, 0);
        assert_eq!(lag < 0, paid, "{requests} {idle}: {lag}");
    }
}

/// What is forgotten, or leaves for good, is put back to the others: their lags sum to 0 again.
#[test]
fn lags_sum_to_nothing_again() {
    let mut world = World::flat(Select::Deadline, &[WEIGHT_ONE; 40]);
    let mut rng = Rng::new(3);
    // Some always have requests, the others come, are served once or more, and are freed.
    for slot in 0..8 {
        world.join(slot, 10);
    }
    for _ in 0..20_000 {
        let slot = 8 + rng.below(32) as u32;
        if world.fake.nodes[slot as usize].next.is_none() {
            world.selector.forget(&mut world.fake, slot);
            world.fake.nodes[slot as usize].entity = Entity::new(WEIGHT_ONE);
            world.selector.create(&mut world.fake, slot);
            world.join(slot, 10);
        }
        let more = rng.below(2) == 0;
        world
            .serve(|slot| (slot < 8 || more).then_some(10))
            .unwrap();
    }
    for slot in 8..40 {
        world.drop_all(slot);
        world.selector.forget(&mut world.fake, slot);
    }
    for _ in 0..1000 {
        world.serve(|_| Some(10)).unwrap();
    }
    let sum: i64 = (0..8)
        .map(|slot| world.selector.lag(&world.fake, slot))
        .sum();
    assert!(sum.abs() <= 10, "{sum}");
}

/// A scheduler of an inner node beside its nodes.
struct Alone {
    sched: Sched,
    forest: Forest,
    fake: Fake,
}

impl Alone {
    /// The invariants of [`Sched`], told from outside.
    fn check(&mut self) {
        let mut weight = 0;
        for (slot, node) in (0..).zip(&self.fake.nodes) {
            let entity = &node.entity;
            assert_eq!(entity.place == Place::Out, node.next.is_none(), "{slot}");
            if entity.place == Place::Out {
                continue;
            }
            weight += u64::from(entity.weight());
            if entity.place == Place::Ready {
                assert!(entity.lag(self.sched.now()) >= 0);
            } else {
                assert_eq!(self.forest.key(slot), Some(entity.start));
            }
        }
        assert_eq!(self.sched.weight(), weight);
    }
}

/// Children come, go, are served, corrected and get other weights; the invariants hold at each step and the
/// clock never moves back, also around the wrap of virtual time.
#[test]
fn invariants() {
    for seed in 1..5 {
        let weights = [1, 100, 4096, 4096, 8192, 40_960, 1 << 20, (1 << 31) - 1];
        let world = World::flat(Select::Deadline, &weights);
        let mut forest = Forest::new(8).unwrap();
        forest.feed(Pile::<Knot>::allocate(1).unwrap());
        (0..8).for_each(|slot| forest.create(slot));
        let mut alone = Alone {
            sched: Sched::new(),
            forest,
            fake: world.fake,
        };
        alone.sched.clock.jump(u64::MAX >> 1);
        alone.sched.clock.jump(u64::MAX - (1 << 52));
        for node in &mut alone.fake.nodes {
            assert_eq!(node.parent, NONE);
            node.entity.start = alone.sched.now();
        }
        let mut rng = Rng::new(seed);
        let mut before = alone.sched.now();
        for _ in 0..40_000 {
            let slot = rng.below(8) as u32;
            let cost = [1, 16, 256, COST_MAX][rng.below(4) as usize];
            let queued = alone.fake.nodes[slot as usize].next.is_some();
            let Alone {
                sched,
                forest,
                fake,
            } = &mut alone;
            match rng.below(8) {
                0..=2 if !queued => {
                    fake.nodes[slot as usize].next = Some(cost);
                    sched.join(forest, fake, slot, cost);
                }
                3 => {
                    let weight = 1 << rng.below(31);
                    sched.reweight(forest, fake, slot, weight);
                }
                4 => {
                    let delta = i64::from(cost) - 100;
                    let next = fake.nodes[slot as usize].next;
                    sched.step(forest, fake, slot, Step::Correct(delta), next);
                    sched.step(forest, fake, slot, Step::Owe(cost), next);
                }
                _ => {
                    let busy = fake.nodes.iter().any(|node| node.next.is_some());
                    let picked = sched.pick(forest, fake);
                    assert_eq!(picked.is_some(), busy);
                    if let Some(slot) = picked {
                        let now = fake.nodes[slot as usize].next.unwrap();
                        let next = (rng.below(4) > 0).then_some(cost);
                        fake.nodes[slot as usize].next = next;
                        sched.step(forest, fake, slot, Step::Charge(now), next);
                    }
                }
            }
            alone.check();
            let now = alone.sched.now();
            assert!(now.wrapping_sub(before) as i64 >= 0);
            before = now;
        }
        assert!(before < u64::MAX >> 1, "never wrapped");
    }
}
