// SPDX-License-Identifier: GPL-2.0-only

//! The seam between a part and the ways to choose the leaf that is served next.
//!
//! # Vocabulary
//!
//! - *Node*: a leaf or an inner node of the part's tree, named by slot ([`super::tree`]).
//! - *Nodes*: what a selector may ask about them ([`Nodes`]).
//! - *Selector*: chooses among the leaves that have requests ([`AnySelector`]): `deadline` descends the tree,
//!   `paper` draws a leaf by the published ranges ([`super::paper`]).
//!
//! ```text
//!            join                 pick, charge(next) / skip(next)
//!  (no requests) ──► in selector ◄───────────────────────────────┐
//!        ▲                │──────────────────────────────────────┘
//!        └────────────────┘ charge(none) / skip(none)
//! ```

use super::{deadline::Sched, entity::Entity, paper, params::Select, tree::Tree};
use crate::sched::{
    heap::Entry,
    leftist::{Forest, Knot, Root},
    mem::{NoMemory, Pile},
    ranges::Table,
    rng::Rng,
};

/// What a selector may ask about nodes; they are named by slot.
pub trait Nodes {
    /// The node's share among its siblings.
    fn entity(&self, slot: u32) -> Option<&Entity>;

    /// The node's share among its siblings, for writing.
    fn entity_mut(&mut self, slot: u32) -> Option<&mut Entity>;

    /// Slot of the node above; [`crate::sched::slab::NONE`] stands for the root.
    fn parent(&self, slot: u32) -> u32;

    /// The scheduler of an inner node; none for a leaf.
    fn sched(&self, slot: u32) -> Option<&Sched>;

    /// The scheduler of an inner node, for writing.
    fn sched_mut(&mut self, slot: u32) -> Option<&mut Sched>;

    /// When the request arrived that is served next from a leaf, ns; none if there is none.
    fn arrival(&self, slot: u32) -> Option<u64>;

    /// Slot of the node with the path `id`.
    fn find(&self, id: u64) -> Option<u32>;

    /// Whether this is the only partition: then nothing is served elsewhere.
    fn are_alone(&self) -> bool;

    /// Units of cost that other partitions served to the node since this was asked last; 0 if nothing is
    /// shared with them.
    fn elsewhere(&mut self, slot: u32) -> u64;

    /// Tells the other partitions that this one served `cost` units to the node, or took them back.
    fn note(&mut self, slot: u32, cost: i64);
}

/// What a draw may use.
pub struct Dice<'a> {
    /// Random numbers.
    pub rng: &'a mut Rng,
    /// The shares that were published last.
    pub table: Option<&'a Table>,
}

/// Chunks that a selector wants, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectNeed {
    /// For the queues of inner nodes.
    pub(super) knots: usize,
    /// For the first queue of the root.
    pub(super) wait: usize,
    /// For its second queue.
    pub(super) ready: usize,
    /// For the places in both.
    pub(super) places: usize,
    /// For the queue of arrivals.
    pub(super) arrivals: usize,
}

/// Memory for a selector, by kind.
pub struct SelectSpare {
    pub(super) knots: Pile<Knot>,
    pub(super) wait: Pile<Entry>,
    pub(super) ready: Pile<Entry>,
    pub(super) places: Pile<u32>,
    pub(super) arrivals: Pile<Knot>,
}

impl SelectNeed {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Allocates what is wanted; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn allocate(&self) -> Result<SelectSpare, NoMemory> {
        Ok(SelectSpare {
            knots: Pile::allocate(self.knots)?,
            wait: Pile::allocate(self.wait)?,
            ready: Pile::allocate(self.ready)?,
            places: Pile::allocate(self.places)?,
            arrivals: Pile::allocate(self.arrivals)?,
        })
    }
}

/// The leaves that have requests, by the arrival of the one that is served next.
///
/// # Invariants
///
/// A leaf is in the queue exactly if it is in the selector.
struct Arrivals {
    forest: Forest,
    root: Root,
}

impl Arrivals {
    fn join(&mut self, nodes: &impl Nodes, slot: u32) {
        let arrival = nodes.arrival(slot).unwrap_or(0);
        self.forest.push(&mut self.root, arrival, slot);
    }

    /// The leaf has another request, if `more`; otherwise it leaves.
    fn go_on(&mut self, nodes: &impl Nodes, slot: u32, more: bool) {
        if more {
            let arrival = nodes.arrival(slot).unwrap_or(0);
            self.forest.update(&mut self.root, arrival, slot);
        } else {
            self.forest.remove(&mut self.root, slot);
        }
    }
}

/// Any selector.
///
/// # Context
///
/// As for [`crate::sched::policy::Part`]: no memory is allocated but by `new`.
///
/// # Invariants
///
/// There are `arrivals` if there is no `tree`.
pub struct AnySelector {
    /// The schedulers of `deadline`; none for `paper`.
    tree: Option<Tree>,
    arrivals: Option<Arrivals>,
}

impl AnySelector {
    /// The selector called `select`, for up to `max` slots, which knows the [`AnySelector::oldest`] request
    /// if that is asked for (`oldest`) or needed; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(select: Select, max: usize, oldest: bool) -> Result<Self, NoMemory> {
        let tree = match select {
            Select::Deadline => Some(Tree::new(max)?),
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

    /// Number of slots there is memory for.
    pub fn capacity(&self) -> usize {
        let tree = self.tree.as_ref().map(Tree::capacity);
        let arrivals = self.arrivals.as_ref().map(|queue| queue.forest.capacity());
        tree.unwrap_or(usize::MAX)
            .min(arrivals.unwrap_or(usize::MAX))
    }

    /// Chunks wanted so that there is memory for `slots` slots.
    pub fn wants(&self, slots: usize) -> SelectNeed {
        let mut need = SelectNeed::default();
        if let Some(queue) = &self.arrivals {
            need.arrivals = queue.forest.wants(slots);
        }
        if let Some(tree) = &self.tree {
            tree.wants(slots, &mut need);
        }
        need
    }

    /// Takes memory and hands back what there is no use for.
    pub fn feed(&mut self, mut spare: SelectSpare) -> SelectSpare {
        if let Some(queue) = &mut self.arrivals {
            spare.arrivals = queue.forest.feed(spare.arrivals);
        }
        match &mut self.tree {
            Some(tree) => tree.feed(spare),
            None => spare,
        }
    }

    /// There is a new node in `slot`, below the capacity, whose parent is there.
    pub fn create(&mut self, nodes: &mut impl Nodes, slot: u32) {
        if let Some(queue) = &mut self.arrivals {
            queue.forest.create(slot);
        }
        if let Some(tree) = &mut self.tree {
            tree.create(nodes, slot);
        }
    }

    /// The leaf in `slot` has its first request, of `cost`.
    pub fn join(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32) {
        if let Some(queue) = &mut self.arrivals {
            queue.join(nodes, slot);
        }
        if let Some(tree) = &mut self.tree {
            tree.join(nodes, slot, cost);
        }
    }

    /// Chooses a leaf; none if nobody has requests.
    pub fn pick(&mut self, nodes: &mut impl Nodes, dice: Dice<'_>) -> Option<u32> {
        let picked = match &mut self.tree {
            Some(tree) => tree.pick(nodes),
            None => paper::pick(nodes, dice),
        };
        picked.or_else(|| self.oldest())
    }

    /// A request of `cost` was taken from the leaf in `slot`; the next one there is of cost `next`.
    pub fn charge(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32, next: Option<u32>) {
        if let Some(queue) = &mut self.arrivals {
            queue.go_on(nodes, slot, next.is_some());
        }
        if let Some(tree) = &mut self.tree {
            tree.charge(nodes, slot, cost, next);
        }
    }

    /// A request, or all, were taken from the leaf in `slot` at no charge; the next one there is of cost
    /// `next`.
    pub fn skip(&mut self, nodes: &mut impl Nodes, slot: u32, next: Option<u32>) {
        if let Some(queue) = &mut self.arrivals {
            queue.go_on(nodes, slot, next.is_some());
        }
        if let Some(tree) = &mut self.tree {
            tree.skip(nodes, slot, next);
        }
    }

    /// A request of `cost` was dispatched past the queue of the leaf in `slot`, whose next one is of cost
    /// `next`: it comes out of the share, up to a bound.
    pub fn owe(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32, next: Option<u32>) {
        if let Some(tree) = &mut self.tree {
            tree.owe(nodes, slot, cost, next);
        }
    }

    /// A request of the leaf in `slot` cost `delta` units more than was charged, limited to one largest
    /// request.
    pub fn correct(&mut self, nodes: &mut impl Nodes, slot: u32, delta: i64) {
        if let Some(tree) = &mut self.tree {
            tree.correct(nodes, slot, delta);
        }
    }

    /// Gives the node in `slot` another weight; what it is owed in units stays the same. Draws follow the
    /// weight from the next publication on.
    pub fn reweight(&mut self, nodes: &mut impl Nodes, slot: u32, weight: u32) {
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
    pub fn lag(&self, nodes: &impl Nodes, slot: u32) -> i64 {
        self.tree.as_ref().map_or(0, |tree| tree.lag(nodes, slot))
    }

    /// The node in `slot`, which has no requests, is about to be freed.
    pub fn forget(&mut self, nodes: &mut impl Nodes, slot: u32) {
        if let Some(tree) = &mut self.tree {
            tree.forget(nodes, slot);
        }
    }

    /// Brings the tag of a node without requests so near to the clock that it cannot wrap around.
    pub fn refresh(&mut self, nodes: &mut impl Nodes, slot: u32) {
        if let Some(tree) = &mut self.tree {
            tree.refresh(nodes, slot);
        }
    }

    /// The leaf whose next request arrived first; none if nobody has requests or it is not known.
    pub fn oldest(&self) -> Option<u32> {
        self.arrivals.as_ref()?.root.top()
    }
}

#[cfg(test)]
pub(super) mod tests;
