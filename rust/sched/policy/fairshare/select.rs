// SPDX-License-Identifier: GPL-2.0-only

//! The choice of the leaf that is served next.
//!
//! `deadline` descends the tree of schedulers ([`super::tree`]). `paper` draws a number of 32 bits and finds it
//! in the published ranges (ThemisIO, SC'23, statistical tokens). If the leaf drawn has no request in this part,
//! or no ranges are published, the oldest request is served. A draw ignores costs and has no memory, so no leaf
//! has a lag.
//!
//! ```text
//!            join              pick, charge, step(next)
//!  (no requests) ──► in selector ◄────────────────┐
//!        ▲                │───────────────────────┘
//!        └────────────────┘ charge, step(none)
//! ```

use super::{deadline::Step, entity::Entity, members::Members, params::Select, tree::Tree};
use crate::sched::{
    item::Item,
    leftist::{Forest, Root},
    mem::{grow, Grow, NoMemory},
    ranges::Table,
    rng::Rng,
};

/// The leaves that have requests, by the arrival of the one that is served next.
pub struct Arrivals {
    forest: Forest,
    root: Root,
}

grow!(Arrivals { forest: Forest });

/// Chooses among the leaves that have requests; nodes are named by slot.
///
/// # Context
///
/// As for [`crate::sched::policy::Part`]: no memory is allocated but by `new`.
///
/// # Invariants
///
/// - There are `arrivals` if there is no `tree`.
/// - A leaf is in `arrivals` exactly if it has requests.
pub struct Selector {
    /// The schedulers of `deadline`; none for `paper`.
    pub(super) tree: Option<Tree>,
    arrivals: Option<Arrivals>,
}

grow!(Selector {
    tree: Option<Tree>,
    arrivals: Option<Arrivals>,
});

impl Selector {
    /// The selector called `select`, for up to `max` slots, which knows the [`Selector::oldest`] request if
    /// that is asked for (`oldest`) or needed; sleeps.
    pub fn new(select: Select, max: usize, oldest: bool, seed: u64) -> Result<Self, NoMemory> {
        let tree = match select {
            Select::Deadline => Some(Tree::new(max, seed)?),
            Select::Paper => None,
        };
        let arrivals = if oldest || tree.is_none() {
            Some(Arrivals {
                forest: Forest::new(max)?,
                root: Root::EMPTY,
            })
        } else {
            None
        };
        Ok(Self { tree, arrivals })
    }

    /// Adds the new node in `slot`, below the capacity, whose parent exists.
    pub fn create(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        Grow::create(self, slot);
        if let Some(tree) = &mut self.tree {
            tree.begin(nodes, slot);
        }
    }

    /// The leaf in `slot` has its first request, of `cost`.
    #[inline]
    pub fn join(&mut self, nodes: &mut Members<impl Item>, slot: u32, cost: u32) {
        if let Some(queue) = &mut self.arrivals {
            let arrival = nodes.arrival(slot).unwrap_or(0);
            queue.forest.push(&mut queue.root, arrival, slot);
        }
        if let Some(tree) = &mut self.tree {
            tree.join(nodes, slot, cost);
        }
    }

    /// Chooses a leaf; none if no leaf has requests. `paper` draws from `rng` over `table`.
    #[inline]
    pub fn pick(
        &mut self,
        nodes: &mut Members<impl Item>,
        rng: &mut Rng,
        table: Option<&Table>,
    ) -> Option<u32> {
        let picked = match &mut self.tree {
            Some(tree) => tree.pick(nodes),
            None => {
                let draw = rng.next_u32();
                let drawn = table.and_then(|table| table.find(draw));
                let slot = drawn.and_then(|id| nodes.find(id));
                slot.filter(|slot| nodes.arrival(*slot).is_some())
            }
        };
        picked.or_else(|| self.oldest())
    }

    /// A request of the leaf in `slot` was chosen and costs `cost`; the next one costs `next`, without one the leaf leaves.
    #[inline]
    pub(super) fn charge(
        &mut self,
        nodes: &mut Members<impl Item>,
        slot: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        if self.arrivals.is_some() {
            self.arrange(nodes, slot);
        }
        if let Some(tree) = &mut self.tree {
            tree.charge(nodes, slot, cost, next);
        }
    }

    /// Tells of `step` at a request of the leaf in `slot`, whose next request costs `next`; without one it
    /// leaves.
    pub(super) fn step(
        &mut self,
        nodes: &mut Members<impl Item>,
        slot: u32,
        step: Step,
        next: Option<u32>,
    ) {
        if let (Some(_), Step::Skip) = (&self.arrivals, step) {
            self.arrange(nodes, slot);
        }
        if let Some(tree) = &mut self.tree {
            tree.step(nodes, slot, step, next);
        }
    }

    /// Puts the leaf in `slot`, of which a request was taken out, where the next one arrived.
    #[inline(never)]
    fn arrange(&mut self, nodes: &Members<impl Item>, slot: u32) {
        let Some(queue) = &mut self.arrivals else {
            return;
        };
        match nodes.arrival(slot) {
            Some(arrival) => queue.forest.update(&mut queue.root, arrival, slot),
            None => queue.forest.remove(&mut queue.root, slot),
        }
    }

    /// Gives the node in `slot` another weight; what it is owed in units stays the same. Draws follow the
    /// weight from the next publication on.
    pub fn reweight(&mut self, nodes: &mut Members<impl Item>, slot: u32, weight: u32) {
        match &mut self.tree {
            Some(tree) => tree.reweight(nodes, slot, weight),
            None => {
                if let Some(entity) = nodes.entity_mut(slot) {
                    *entity = Entity::new(weight);
                }
            }
        }
    }

    /// What the node in `slot` is owed, tenths of a unit of cost; 0 for `paper`.
    pub fn lag(&self, nodes: &Members<impl Item>, slot: u32) -> i64 {
        self.tree.as_ref().map_or(0, |tree| tree.lag(nodes, slot))
    }

    /// Removes the node in `slot`, which has no requests.
    pub fn forget(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        if let Some(tree) = &mut self.tree {
            tree.forget(nodes, slot);
        }
    }

    /// Brings the tag of a node without requests so near to the clock that it cannot wrap around.
    pub fn refresh(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        if let Some(tree) = &mut self.tree {
            tree.refresh(nodes, slot);
        }
    }

    /// The leaf whose next request arrived first; none if no leaf has requests, or if that is not known.
    pub fn oldest(&self) -> Option<u32> {
        self.arrivals.as_ref()?.root.top()
    }
}
