// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::{mem::Need, rng::Rng};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn forest(entries: u32) -> LeftistForest {
    let mut forest = LeftistForest::new(entries as usize).unwrap();
    forest.feed(forest.wants(entries as usize).allocate().unwrap());
    assert!(forest.wants(entries as usize).is_empty());
    (0..entries).for_each(|idx| forest.create(idx));
    forest
}

impl LeftistForest {
    fn at(&self, idx: u32) -> LeftistNode {
        *self.nodes.get(idx as usize).unwrap()
    }

    /// Checks the invariants of one queue with ranks computed by definition; returns the number of
    /// nodes.
    fn check(&self, root: HeapRoot) -> usize {
        let Some(top) = root.top() else {
            return 0;
        };
        assert_eq!(self.at(top).parent, NONE);
        let mut order = vec![top];
        let mut next = 0;
        while next < order.len() {
            let node = self.at(order[next]);
            for child in [node.left, node.right] {
                if child != NONE {
                    assert_eq!(self.at(child).parent, order[next]);
                    assert!(!self.key_before(child, node.key, order[next]));
                    order.push(child);
                }
            }
            next += 1;
        }
        let mut ranks = BTreeMap::from([(NONE, 0u8)]);
        for &idx in order.iter().rev() {
            let node = self.at(idx);
            assert_eq!(
                (node.left_rank, node.right_rank),
                (ranks[&node.left], ranks[&node.right])
            );
            assert!(node.left_rank >= node.right_rank);
            ranks.insert(idx, node.right_rank + 1);
        }
        let bound = (order.len() + 1).ilog2();
        assert!(u32::from(ranks[&top]) <= bound);
        order.len()
    }
}

/// Two queues in a forest, and their expected contents.
struct ForestModel {
    forest: LeftistForest,
    roots: [HeapRoot; 2],
    held: [BTreeMap<(i64, u32), ()>; 2],
    place: Vec<Option<(usize, i64)>>,
    base: u64,
}

impl ForestModel {
    fn new(entries: u32, base: u64) -> Self {
        Self {
            forest: forest(entries),
            roots: [HeapRoot::EMPTY; 2],
            held: Default::default(),
            place: vec![None; entries as usize],
            base,
        }
    }

    /// Adds, moves or removes `idx`; afterwards `idx` is in the queue and has the key given by
    /// `to`, or is in no queue.
    fn set(&mut self, idx: u32, to: Option<(usize, i64)>) {
        let key = |key: i64| self.base.wrapping_add(key as u64);
        let from = std::mem::replace(&mut self.place[idx as usize], to);
        match (from, to) {
            (Some((one, _)), Some((other, new))) if one == other => {
                self.forest.update(&mut self.roots[one], key(new), idx);
            }
            _ => {
                if let Some((queue, _)) = from {
                    self.forest.remove(&mut self.roots[queue], idx);
                }
                if let Some((queue, new)) = to {
                    self.forest.push(&mut self.roots[queue], key(new), idx);
                }
            }
        }
        if let Some((queue, old)) = from {
            self.held[queue].remove(&(old, idx));
        }
        if let Some((queue, new)) = to {
            self.held[queue].insert((new, idx), ());
        }
        for queue in 0..2 {
            let first = self.held[queue].first_key_value();
            let want = first.map(|(&(key, idx), ())| (idx, self.base.wrapping_add(key as u64)));
            assert_eq!(self.forest.top(self.roots[queue]), want);
        }
    }

    fn check(&self) {
        for queue in 0..2 {
            let count = self.forest.check(self.roots[queue]);
            assert_eq!(count, self.held[queue].len());
        }
    }
}

proptest! {
    /// Performs random steps on two queues, with equal keys and keys around the wrap.
    #[test]
    fn any_steps(
        base in prop_oneof![Just(0u64), Just(u64::MAX), Just(1 << 63), any::<u64>()],
        steps in proptest::collection::vec(
            (0u32..40, proptest::option::of((0usize..2, -20i64..20))), 1..300),
    ) {
        let mut model = ForestModel::new(40, base);
        for (idx, to) in steps {
            model.set(idx, to);
            model.check();
        }
    }
}

/// Key of a table index.
type TestKey = Box<dyn Fn(u32, &mut Rng) -> i64>;

/// Inserts many table indices in rising, falling, equal, tent-shaped and random order. Then empties
/// the queue from the top or in the order of indices.
#[test]
fn orders() {
    const ENTRIES: u32 = 30_000;
    let mut rng = Rng::new(5);
    let orders: [TestKey; 5] = [
        Box::new(|idx, _| i64::from(idx)),
        Box::new(|idx, _| -i64::from(idx)),
        Box::new(|_, _| 7),
        Box::new(|idx, _| (15_000 - i64::from(idx)).abs()),
        Box::new(|_, rng| rng.below(1 << 40) as i64),
    ];
    for order in &orders {
        for from_top in [false, true] {
            let mut model = ForestModel::new(ENTRIES, u64::MAX - 1000);
            for idx in 0..ENTRIES {
                model.set(idx, Some((0, order(idx, &mut rng))));
            }
            model.check();
            for idx in 0..ENTRIES {
                let next = match from_top {
                    true => model.roots[0].top().unwrap(),
                    false => idx,
                };
                model.set(next, None);
                if idx % 5000 == 0 {
                    model.check();
                }
            }
            assert_eq!(model.roots[0], HeapRoot::EMPTY);
        }
    }
}

#[test]
fn knots_are_small() {
    assert_eq!(size_of::<LeftistNode>(), 24);
}

#[test]
#[should_panic = "impossible state"]
fn a_push_without_memory_is_reported() {
    let mut forest = LeftistForest::<u64>::new(100).unwrap();
    forest.push(&mut HeapRoot::default(), 5, 3);
}
