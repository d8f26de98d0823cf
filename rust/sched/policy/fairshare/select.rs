// SPDX-License-Identifier: GPL-2.0-only

//! Choice of the leaf that is dispatched next.
//!
//! `deadline` descends the tree of schedulers ([`super::tree`]). `paper` draws a number of 32 bits
//! and looks up the number in the published ranges (ThemisIO, SC'23, statistical tokens). If the
//! leaf drawn has no request in this part, or no ranges are published, the oldest request is
//! dispatched. A draw ignores costs and keeps no state, so no leaf has a lag.
//!
//! ```text
//!            join              pick, charge, step(next)
//!  (no requests) ──► in selector ◄────────────────┐
//!        ▲                │───────────────────────┘
//!        └────────────────┘ charge, step(none)
//! ```

use super::{
    deadline::RequestStep, entity::Entity, members::Members, params::Select, tree::SchedulerTree,
};
use crate::sched::{
    item::Item,
    leftist_heap::{HeapRoot, LeftistForest},
    mem::{grow, Grow, NoMemory},
    ranges::RangeTable,
    rng::Rng,
};

/// Leaves with queued requests, by the arrival of each leaf's next request.
pub struct Arrivals {
    forest: LeftistForest,
    root: HeapRoot,
}

grow!(Arrivals {
    forest: LeftistForest
});

/// Choice among the leaves with queued requests; nodes are identified by index.
///
/// # Context
///
/// As for [`crate::sched::policy::Part`]: only `new` allocates memory.
///
/// # Invariants
///
/// - `arrivals` exists if `tree` does not.
/// - A leaf is in `arrivals` if and only if the leaf has queued requests.
pub struct Selector {
    /// Schedulers of `deadline`; `None` for `paper`.
    pub(super) tree: Option<SchedulerTree>,
    arrivals: Option<Arrivals>,
}

grow!(Selector {
    tree: Option<SchedulerTree>,
    arrivals: Option<Arrivals>,
});

impl Selector {
    /// Creates the selector `select` for up to `max` nodes; may sleep. [`Selector::oldest`] returns
    /// a leaf only if `oldest` is true or `select` needs the oldest request.
    pub fn new(select: Select, max: usize, oldest: bool, seed: u64) -> Result<Self, NoMemory> {
        let tree = match select {
            Select::Deadline => Some(SchedulerTree::new(max, seed)?),
            Select::Paper => None,
        };
        let arrivals = if oldest || tree.is_none() {
            Some(Arrivals {
                forest: LeftistForest::new(max)?,
                root: HeapRoot::EMPTY,
            })
        } else {
            None
        };
        Ok(Self { tree, arrivals })
    }

    /// Adds the new node at index `idx`, below the capacity, whose parent exists.
    pub fn create(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        Grow::create(self, idx);
        if let Some(tree) = &mut self.tree {
            tree.begin(nodes, idx);
        }
    }

    /// Adds the leaf at index `idx`, whose first request costs `cost`.
    #[inline]
    pub fn join(&mut self, nodes: &mut Members<impl Item>, idx: u32, cost: u32) {
        if let Some(queue) = &mut self.arrivals {
            let arrival = nodes.arrival(idx).unwrap_or(0);
            queue.forest.push(&mut queue.root, arrival, idx);
        }
        if let Some(tree) = &mut self.tree {
            tree.join(nodes, idx, cost);
        }
    }

    /// Chooses a leaf; `None` if no leaf has requests. `paper` draws from `rng` over `table`.
    #[inline]
    pub fn pick(
        &mut self,
        nodes: &mut Members<impl Item>,
        rng: &mut Rng,
        table: Option<&RangeTable>,
    ) -> Option<u32> {
        let picked = match &mut self.tree {
            Some(tree) => tree.pick(nodes),
            None => {
                let draw = rng.next_u32();
                let drawn = table.and_then(|table| table.find(draw));
                let idx = drawn.and_then(|id| nodes.find(id));
                idx.filter(|idx| nodes.arrival(*idx).is_some())
            }
        };
        picked.or_else(|| self.oldest())
    }

    /// Charges `cost` to the leaf at index `idx`, whose next request costs `next`; without a next
    /// request the leaf leaves. `BOUNDED` as in [`SchedulerTree::charge`].
    #[inline]
    pub(super) fn charge<const BOUNDED: bool>(
        &mut self,
        nodes: &mut Members<impl Item>,
        idx: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        if self.arrivals.is_some() {
            self.arrange(nodes, idx);
        }
        if let Some(tree) = &mut self.tree {
            tree.charge::<BOUNDED>(nodes, idx, cost, next);
        }
    }

    /// Applies `step` to a request of the leaf at index `idx`, whose next request costs `next`;
    /// without a next request the leaf leaves.
    pub(super) fn step(
        &mut self,
        nodes: &mut Members<impl Item>,
        idx: u32,
        step: RequestStep,
        next: Option<u32>,
    ) {
        if let (Some(_), RequestStep::Skip) = (&self.arrivals, step) {
            self.arrange(nodes, idx);
        }
        if let Some(tree) = &mut self.tree {
            tree.step(nodes, idx, step, next);
        }
    }

    /// Updates the position of the leaf at index `idx` after the removal of one of the leaf's
    /// requests.
    #[inline(never)]
    fn arrange(&mut self, nodes: &Members<impl Item>, idx: u32) {
        let Some(queue) = &mut self.arrivals else {
            return;
        };
        match nodes.arrival(idx) {
            Some(arrival) => queue.forest.update(&mut queue.root, arrival, idx),
            None => queue.forest.remove(&mut queue.root, idx),
        }
    }

    /// Sets the weight of the node at index `idx`; the node's lag in units stays the same. Draws
    /// use the weight from the next publication on.
    pub fn reweight(&mut self, nodes: &mut Members<impl Item>, idx: u32, weight: u32) {
        match &mut self.tree {
            Some(tree) => tree.reweight(nodes, idx, weight),
            None => {
                if let Some(entity) = nodes.entity_mut(idx) {
                    *entity = Entity::new(weight);
                }
            }
        }
    }

    /// Returns the lag of the node at index `idx`, tenths of a unit of cost; 0 for `paper`.
    pub fn lag(&self, nodes: &Members<impl Item>, idx: u32) -> i64 {
        self.tree.as_ref().map_or(0, |tree| tree.lag(nodes, idx))
    }

    /// Removes the node at index `idx`, which has no requests.
    pub fn forget(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        if let Some(tree) = &mut self.tree {
            tree.forget(nodes, idx);
        }
    }

    /// Limits the distance of an idle node's tag from the clock, so that the tag cannot wrap
    /// around.
    pub fn refresh(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        if let Some(tree) = &mut self.tree {
            tree.refresh(nodes, idx);
        }
    }

    /// Returns the leaf with the oldest request; `None` if no leaf has requests or arrivals are not
    /// tracked.
    pub fn oldest(&self) -> Option<u32> {
        self.arrivals.as_ref()?.root.top()
    }
}
