// SPDX-License-Identifier: GPL-2.0-only

use super::super::entity::WEIGHT_ONE;
use super::*;
use crate::sched::{
    ranges::{Brief, Outline},
    slab::NONE,
};
use std::{cell::Cell, collections::BTreeMap, rc::Rc};

/// A node of [`Fake`].
pub(crate) struct Node {
    pub(crate) entity: Entity,
    pub(crate) parent: u32,
    pub(crate) sched: Option<Sched>,
    pub(crate) next: Option<u32>,
    pub(crate) arrival: u64,
    mine: u64,
    seen: u64,
}

/// Nodes in a vector; the path of a node is its slot plus one.
pub(crate) struct Fake {
    pub(crate) nodes: Vec<Node>,
    totals: Option<Rc<Vec<Cell<u64>>>>,
}

impl Nodes for Fake {
    fn entity(&self, slot: u32) -> Option<&Entity> {
        self.nodes.get(slot as usize).map(|node| &node.entity)
    }

    fn entity_mut(&mut self, slot: u32) -> Option<&mut Entity> {
        self.nodes
            .get_mut(slot as usize)
            .map(|node| &mut node.entity)
    }

    fn parent(&self, slot: u32) -> u32 {
        self.nodes[slot as usize].parent
    }

    fn sched(&self, slot: u32) -> Option<&Sched> {
        self.nodes[slot as usize].sched.as_ref()
    }

    fn sched_mut(&mut self, slot: u32) -> Option<&mut Sched> {
        self.nodes[slot as usize].sched.as_mut()
    }

    fn arrival(&self, slot: u32) -> Option<u64> {
        let node = &self.nodes[slot as usize];
        node.next.map(|_| node.arrival)
    }

    fn find(&self, id: u64) -> Option<u32> {
        let slot = id.checked_sub(1)?;
        (slot < self.nodes.len() as u64).then_some(slot as u32)
    }

    fn are_alone(&self) -> bool {
        false
    }

    fn elsewhere(&mut self, slot: u32) -> u64 {
        let Some(totals) = &self.totals else {
            return 0;
        };
        let node = &mut self.nodes[slot as usize];
        let more = totals[slot as usize].get() - node.mine - node.seen;
        node.seen += more;
        more
    }

    fn note(&mut self, slot: u32, cost: i64) {
        if let Some(totals) = &self.totals {
            let total = &totals[slot as usize];
            total.set(total.get().checked_add_signed(cost).unwrap());
            let mine = &mut self.nodes[slot as usize].mine;
            *mine = mine.checked_add_signed(cost).unwrap();
        }
    }
}

/// A selector with its nodes.
pub(crate) struct World {
    pub(crate) selector: AnySelector,
    pub(crate) fake: Fake,
    pub(crate) rng: Rng,
    pub(crate) table: Option<Table>,
    clock: u64,
}

impl World {
    /// Nodes given by their parent and weight, parents first.
    pub(crate) fn new(select: Select, nodes: &[(u32, u32)]) -> Self {
        let mut selector = AnySelector::new(select, nodes.len(), true).unwrap();
        assert_eq!(selector.capacity(), 0);
        let need = selector.wants(nodes.len());
        assert!(!need.is_empty());
        selector.feed(need.allocate().unwrap());
        assert!(selector.wants(nodes.len()).is_empty() && selector.capacity() >= nodes.len());
        let mut world = Self {
            selector,
            fake: Fake {
                nodes: Vec::new(),
                totals: None,
            },
            rng: Rng::new(1),
            table: None,
            clock: 0,
        };
        for &(parent, weight) in nodes {
            if let Some(parent) = world.fake.nodes.get_mut(parent as usize) {
                parent.sched.get_or_insert_with(Sched::new);
            }
            world.fake.nodes.push(Node {
                entity: Entity::new(weight),
                parent,
                sched: None,
                next: None,
                arrival: 0,
                mine: 0,
                seen: 0,
            });
        }
        for slot in 0..nodes.len() as u32 {
            world.selector.create(&mut world.fake, slot);
        }
        world
    }

    /// Leaves of these raw weights below the root.
    pub(crate) fn flat(select: Select, weights: &[u32]) -> Self {
        let nodes: Vec<_> = weights.iter().map(|&weight| (NONE, weight)).collect();
        Self::new(select, &nodes)
    }

    /// Several partitions with the same nodes and shared counters.
    pub(crate) fn partitions(count: usize, nodes: &[(u32, u32)]) -> Vec<Self> {
        let totals = Rc::new(vec![Cell::new(0); nodes.len()]);
        let world = || {
            let mut world = Self::new(Select::Deadline, nodes);
            world.fake.totals = Some(totals.clone());
            world
        };
        (0..count).map(|_| world()).collect()
    }

    fn arrive(&mut self, slot: u32, next: Option<u32>) {
        self.clock += 1;
        let node = &mut self.fake.nodes[slot as usize];
        (node.next, node.arrival) = (next, self.clock);
    }

    pub(crate) fn join(&mut self, slot: u32, cost: u32) {
        self.arrive(slot, Some(cost));
        self.selector.join(&mut self.fake, slot, cost);
    }

    /// Drops the requests of a leaf.
    pub(crate) fn drop_all(&mut self, slot: u32) {
        self.fake.nodes[slot as usize].next = None;
        self.selector.skip(&mut self.fake, slot, None);
    }

    pub(crate) fn pick(&mut self) -> Option<u32> {
        let dice = Dice {
            rng: &mut self.rng,
            table: self.table.as_ref(),
        };
        self.selector.pick(&mut self.fake, dice)
    }

    /// Serves one request; the leaf has another one of the cost that `next` says, or leaves.
    pub(crate) fn serve(&mut self, next: impl FnOnce(u32) -> Option<u32>) -> Option<(u32, u32)> {
        let slot = self.pick()?;
        let cost = self.fake.nodes[slot as usize].next.unwrap();
        let next = next(slot);
        self.arrive(slot, next);
        self.selector.charge(&mut self.fake, slot, cost, next);
        Some((slot, cost))
    }

    /// Serves `count` requests of one unit from leaves that always have more; how many each.
    pub(crate) fn serve_many(&mut self, count: u32) -> Vec<u32> {
        let mut served = vec![0; self.fake.nodes.len()];
        for _ in 0..count {
            let (slot, _) = self.serve(|_| Some(1)).unwrap();
            served[slot as usize] += 1;
        }
        served
    }

    /// Publishes the shares of the leaves that are not `left_out`, by weight.
    pub(crate) fn publish(&mut self, left_out: &[u32]) {
        let leaves = |slot: &u32| self.fake.sched(*slot).is_none() && !left_out.contains(slot);
        let slots: Vec<u32> = (0..self.fake.nodes.len() as u32).filter(leaves).collect();
        let weight = |slot: u32| u64::from(self.fake.entity(slot).unwrap().weight());
        let whole: u64 = slots.iter().map(|&slot| weight(slot)).sum();
        let (mut shares, mut done, mut sum) = (Vec::new(), 0, 0u64);
        for &slot in &slots {
            sum += weight(slot);
            let end = ((u128::from(sum) << 32) / u128::from(whole)) as u64;
            shares.push((u64::from(slot) + 1, end - done));
            done = end;
        }
        self.table = Some(table_of(&shares));
    }
}

/// The table in which each leaf, by its id, has this share of 2^32.
fn table_of(shares: &[(u64, u64)]) -> Table {
    let mut outline = Outline::new();
    for &(id, share) in shares {
        let brief = Brief {
            id,
            parent: 0,
            weight: (share >> 1) as u32,
            leaf: true,
            active: true,
            part: 0,
        };
        outline.extend(&[brief]).unwrap();
    }
    outline.build().unwrap().table
}

/// What all selectors promise: exactly those with requests are picked, the oldest request is found, a
/// request taken at no charge leaves what is owed alone.
#[test]
fn only_those_with_requests_are_picked() {
    for &select in Select::ALL {
        let mut nodes = vec![(NONE, WEIGHT_ONE); 2];
        nodes.extend(
            (0..18)
                .map(|i| (i % 3, WEIGHT_ONE))
                .map(|(p, w)| (if p == 2 { NONE } else { p }, w)),
        );
        let mut world = World::new(select, &nodes);
        let mut rng = Rng::new(1);
        for step in 0..20_000u32 {
            let busy: BTreeMap<u64, u32> = (2..20u32)
                .filter_map(|slot| Some((world.fake.arrival(slot)?, slot)))
                .collect();
            assert_eq!(
                world.selector.oldest(),
                busy.values().next().copied(),
                "{select}"
            );
            let slot = 2 + rng.below(18) as u32;
            let queued = world.fake.nodes[slot as usize].next.is_some();
            match (rng.below(8), queued) {
                (0..4, false) => {
                    world.join(slot, 3);
                    continue;
                }
                (0, true) => {
                    world.drop_all(slot);
                    continue;
                }
                (1, _) if step > 5000 => world.publish(&[7, 8]),
                (2, _) => {
                    let node = rng.below(20) as u32;
                    let weight = 1 + rng.below(1 << 22) as u32;
                    world.selector.reweight(&mut world.fake, node, weight);
                    assert_eq!(world.fake.entity(node).unwrap().weight(), weight);
                }
                (3, _) => {
                    let delta = rng.below(9) as i64 - 4;
                    world.selector.correct(&mut world.fake, slot, delta);
                    world.selector.refresh(&mut world.fake, slot);
                }
                (4, _) => {
                    let next = world.fake.nodes[slot as usize].next;
                    world.selector.owe(&mut world.fake, slot, 5, next);
                }
                _ => {}
            }
            let Some(slot) = world.pick() else {
                assert!(busy.is_empty(), "{select}");
                continue;
            };
            assert!(busy.values().any(|&other| other == slot), "{select}");
            let next = (step % 3 > 0).then_some(3);
            world.arrive(slot, next);
            let before = world.selector.lag(&world.fake, slot);
            if step % 5 == 0 {
                world.selector.skip(&mut world.fake, slot, next);
                let after = world.selector.lag(&world.fake, slot);
                // Surplus that expires is none.
                assert!(
                    after == before || next.is_none(),
                    "{select} {before} {after}"
                );
            } else {
                world.selector.charge(&mut world.fake, slot, 3, next);
            }
        }
        for slot in 2..20 {
            world.drop_all(slot);
        }
        assert_eq!((world.pick(), world.selector.oldest()), (None, None));
    }
}

/// Weights reach the draw and the tags, also when they change under way.
#[test]
fn weights_make_shares() {
    for (select, tolerance) in [
        (Select::Deadline, 2),
        // Four standard deviations of 20,000 draws.
        (Select::Paper, 283),
    ] {
        let mut world = World::flat(select, &[4096; 3]);
        for slot in 0..3 {
            world.join(slot, 1);
        }
        for weights in [[1, 1, 2], [1, 100, 3], [7, 2, 1]] {
            for (slot, weight) in (0..).zip(weights) {
                world
                    .selector
                    .reweight(&mut world.fake, slot, weight * 4096);
            }
            world.publish(&[]);
            let served = world.serve_many(20_000);
            let whole = i64::from(weights.iter().sum::<u32>());
            for (got, weight) in served.iter().zip(weights) {
                let ideal = 20_000 * i64::from(weight) / whole;
                assert!(
                    (i64::from(*got) - ideal).abs() <= tolerance,
                    "{select} {weights:?} {served:?}"
                );
            }
        }
    }
}

/// A draw for a leaf without requests, and any draw without a table, serves the oldest request.
#[test]
fn paper_falls_through_to_the_oldest() {
    for (table, first) in [(false, 0..=0), (true, 2200..=2800)] {
        let mut world = World::flat(Select::Paper, &[4096; 4]);
        for slot in [1, 0] {
            world.join(slot, 1);
        }
        if table {
            // A quarter each for 0, 2, 3 and for somebody who never came.
            let shares = [1, 3, 4, 9].map(|id| (id, 1 << 30));
            world.table = Some(table_of(&shares));
        }
        let mut served = [0; 4];
        for _ in 0..10_000 {
            let slot = world.pick().unwrap();
            // 1 stays the oldest: what is queued there came before.
            world.selector.charge(&mut world.fake, slot, 1, Some(1));
            served[slot as usize] += 1;
        }
        assert!(first.contains(&served[0]), "{served:?}");
        assert_eq!(served[0] + served[1], 10_000);
    }
}
