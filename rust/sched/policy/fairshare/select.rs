// SPDX-License-Identifier: GPL-2.0-only

//! The seam between a part and the ways to choose the leaf that is served next.
//!
//! # Vocabulary
//!
//! - *Node*: a leaf or an inner node of the part's tree, named by slot ([`super::tree`]).
//! - *Nodes*: what a selector may ask about them ([`Nodes`]).
//! - *Selector*: knows the leaves that have requests, and chooses among them ([`AnySelector`]). It never
//!   looks at anybody else.
//! - *Flat*: a selector that draws among the leaves by their published shares ([`super::flat`]); the others
//!   descend the tree.
//!
//! ```text
//!            join                 pick, charge(next) / skip(next)
//!  (no requests) ──► in selector ◄───────────────────────────────┐
//!        ▲                │──────────────────────────────────────┘
//!        └────────────────┘ charge(none) / skip(none)
//! ```

use super::{
    deadline::Sched,
    entity::Entity,
    flat::{Draw, Flat, Ticket},
    params::Select,
    tree::Tree,
};
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

    /// The path of the node, the same in all partitions.
    fn id(&self, slot: u32) -> u64;

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
    /// For the shares of a flat selector.
    pub(super) tickets: usize,
    /// For its members.
    pub(super) members: usize,
    /// For its sums of weights.
    pub(super) sums: usize,
}

/// Memory for a selector, by kind.
pub struct SelectSpare {
    pub(super) knots: Pile<Knot>,
    pub(super) wait: Pile<Entry>,
    pub(super) ready: Pile<Entry>,
    pub(super) places: Pile<u32>,
    pub(super) arrivals: Pile<Knot>,
    pub(super) tickets: Pile<Ticket>,
    pub(super) members: Pile<u32>,
    pub(super) sums: Pile<u64>,
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
            tickets: Pile::allocate(self.tickets)?,
            members: Pile::allocate(self.members)?,
            sums: Pile::allocate(self.sums)?,
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

/// The ways to choose.
enum Way {
    /// `deadline`, `deadline_memory`.
    Tree(Tree),
    /// `golden`, `random`, `paper`.
    Flat(Flat),
}

/// Any selector.
///
/// # Context
///
/// As for [`crate::sched::policy::Part`]: no memory is allocated but by `new`.
pub struct AnySelector {
    way: Way,
    arrivals: Option<Arrivals>,
}

/// Runs `$body` on what chooses.
macro_rules! each {
    ($any:expr, $way:ident => $body:expr) => {
        match $any {
            Way::Tree($way) => $body,
            Way::Flat($way) => $body,
        }
    };
}

impl AnySelector {
    /// The selector called `select`, for up to `max` slots, which knows the [`AnySelector::oldest`] request
    /// if that is asked for (`oldest`) or needed; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(select: Select, max: usize, oldest: bool) -> Result<Self, NoMemory> {
        let way = match select {
            Select::Deadline => Way::Tree(Tree::new(max, false)?),
            Select::DeadlineMemory => Way::Tree(Tree::new(max, true)?),
            Select::Golden => Way::Flat(Flat::new(max, Draw::Golden(0))?),
            Select::Random => Way::Flat(Flat::new(max, Draw::Random)?),
            Select::Paper => Way::Flat(Flat::new(max, Draw::Paper)?),
        };
        let arrivals = if oldest || select == Select::Paper {
            Some(Arrivals {
                forest: Forest::new(max)?,
                root: Root::EMPTY,
            })
        } else {
            None
        };
        Ok(Self { way, arrivals })
    }

    /// Number of slots there is memory for.
    pub fn capacity(&self) -> usize {
        let way = each!(&self.way, way => way.capacity());
        let arrivals = self.arrivals.as_ref().map(|queue| queue.forest.capacity());
        way.min(arrivals.unwrap_or(usize::MAX))
    }

    /// Chunks wanted so that there is memory for `slots` slots.
    pub fn wants(&self, slots: usize) -> SelectNeed {
        let arrivals = self
            .arrivals
            .as_ref()
            .map(|queue| queue.forest.wants(slots));
        let mut need = SelectNeed {
            arrivals: arrivals.unwrap_or(0),
            ..SelectNeed::default()
        };
        each!(&self.way, way => way.wants(slots, &mut need));
        need
    }

    /// Takes memory and hands back what there is no use for.
    pub fn feed(&mut self, mut spare: SelectSpare) -> SelectSpare {
        if let Some(queue) = &mut self.arrivals {
            spare.arrivals = queue.forest.feed(spare.arrivals);
        }
        each!(&mut self.way, way => way.feed(spare))
    }

    /// There is a new node in `slot`, below the capacity, whose parent is there.
    pub fn create(&mut self, nodes: &mut impl Nodes, slot: u32) {
        if let Some(queue) = &mut self.arrivals {
            queue.forest.create(slot);
        }
        each!(&mut self.way, way => way.create(nodes, slot));
    }

    /// The leaf in `slot` has its first request, of `cost`.
    pub fn join(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32) {
        if let Some(queue) = &mut self.arrivals {
            queue.join(nodes, slot);
        }
        match &mut self.way {
            Way::Tree(tree) => tree.join(nodes, slot, cost),
            Way::Flat(flat) => flat.join(nodes, slot),
        }
    }

    /// Chooses a leaf; none if nobody has requests.
    pub fn pick(&mut self, nodes: &mut impl Nodes, dice: Dice<'_>) -> Option<u32> {
        let picked = match &mut self.way {
            Way::Tree(tree) => tree.pick(nodes),
            Way::Flat(flat) => flat.pick(nodes, dice),
        };
        picked.or_else(|| self.oldest())
    }

    /// A request of `cost` was taken from the leaf in `slot`; the next one there is of cost `next`.
    pub fn charge(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32, next: Option<u32>) {
        if let Some(queue) = &mut self.arrivals {
            queue.go_on(nodes, slot, next.is_some());
        }
        each!(&mut self.way, way => way.charge(nodes, slot, cost, next));
    }

    /// A request, or all, were taken from the leaf in `slot` at no charge; the next one there is of cost
    /// `next`.
    pub fn skip(&mut self, nodes: &mut impl Nodes, slot: u32, next: Option<u32>) {
        if let Some(queue) = &mut self.arrivals {
            queue.go_on(nodes, slot, next.is_some());
        }
        each!(&mut self.way, way => way.skip(nodes, slot, next));
    }

    /// A request of `cost` went down past the queue of the leaf in `slot`, whose next one is of cost `next`:
    /// it comes out of the share, up to a bound. Draws remember nothing.
    pub fn owe(&mut self, nodes: &mut impl Nodes, slot: u32, cost: u32, next: Option<u32>) {
        match &mut self.way {
            Way::Tree(tree) => tree.owe(nodes, slot, cost, next),
            Way::Flat(_) => super::flat::note(nodes, slot, i64::from(cost)),
        }
    }

    /// A request of the leaf in `slot` cost `delta` units more than was charged, limited to one largest
    /// request.
    pub fn correct(&mut self, nodes: &mut impl Nodes, slot: u32, delta: i64) {
        each!(&mut self.way, way => way.correct(nodes, slot, delta));
    }

    /// Gives the node in `slot` another weight; what it is owed in units stays the same.
    pub fn reweight(&mut self, nodes: &mut impl Nodes, slot: u32, weight: u32) {
        each!(&mut self.way, way => way.reweight(nodes, slot, weight));
    }

    /// What the node in `slot` is owed, tenths of a unit of cost; 0 for an inner node of a flat selector.
    pub fn lag(&self, nodes: &impl Nodes, slot: u32) -> i64 {
        each!(&self.way, way => way.lag(nodes, slot))
    }

    /// The node in `slot`, which has no requests, is about to be freed.
    pub fn forget(&mut self, nodes: &mut impl Nodes, slot: u32) {
        each!(&mut self.way, way => way.forget(nodes, slot));
    }

    /// Brings the tag of a node without requests so near to the clock that it cannot wrap around.
    pub fn refresh(&mut self, nodes: &mut impl Nodes, slot: u32) {
        each!(&mut self.way, way => way.refresh(nodes, slot));
    }

    /// The leaf whose next request arrived first; none if nobody has requests or it is not known.
    pub fn oldest(&self) -> Option<u32> {
        self.arrivals.as_ref()?.root.top()
    }
}

#[cfg(test)]
pub(super) mod tests;
