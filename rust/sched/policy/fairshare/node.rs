// SPDX-License-Identifier: GPL-2.0-only

//! Nodes of a part's tree.
//!
//! - *Path*: values of the levels of the mode from the first level on, for example a group and one
//!   of its users. A [`PathId`] identifies a path in all parts of a service.
//! - *Leaf*: node of a path with a value for every level, with the requests ([`Leaf`]).
//! - *Inner node*: node of a shorter path, with children and a scheduler of the children
//!   ([`InnerNode`]).
//!
//! ```text
//!                    (root)                     scheduled by the selector
//!                   /      \
//!             gid:100      gid:200              inner nodes
//!             /     \          \
//!     uid:1000    uid:1001    uid:1002          leaves of gid_then_uid_fair
//! ```

use super::{deadline::NodeScheduler, entity::Entity, locality::OffsetQueue, totals::TotalView};
use crate::sched::{
    item::{Cost, Item},
    key::{Hashed, Hasher, Key},
    slab::NONE,
};

/// Identifier of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(pub u64);

impl PathId {
    /// Identifier of the root.
    pub const ROOT: Self = Self(0);

    /// Identifier of the default class.
    pub const DEFAULT: Self = Self(u64::MAX);
}

impl Hashed for PathId {
    fn mix(&self, hasher: &Hasher) -> u64 {
        hasher.word(self.0)
    }
}

/// Node of the tree.
///
/// # Invariants
///
/// `parent` is the index of an inner node that counts this node among its children, or
/// [`crate::sched::slab::NONE`] for a child of the root.
pub struct TreeNode<I: Item> {
    /// Weight and tag among the siblings.
    pub entity: Entity,
    /// Path of the node.
    pub id: PathId,
    /// Index of the parent.
    pub parent: u32,
    /// Service of the node here and at other partitions.
    pub tally: TotalView,
    /// Value of the node's level.
    pub key: Key,
    /// Level of the node, 0 for the first.
    pub level: u8,
    /// Job size that requests report; 0 if requests report none.
    pub size: u32,
    /// Limits of the node.
    pub limit: NodeLimit,
    /// Requests or children.
    pub body: NodeBody<I>,
}

/// Limits of a node, as far as a plan of them was consulted.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimit {
    /// Number of the plan; 0 before the first.
    pub generation: u32,
    /// Index in the plan; [`NONE`] without limits.
    pub idx: u32,
    /// Last known places of the buckets of the maximums.
    pub places: [u32; 3],
    /// Time until which the node was throttled last, ns.
    pub until: u64,
    /// Cost of a request whose tokens were taken, for the time `until`.
    pub reserved: Option<Cost>,
    /// Duration of a unit of the bucket that determines `until`, ticks.
    pub unit: u64,
    /// Set of that bucket alone.
    pub last: u8,
    /// Set of the buckets from which tokens are reserved.
    pub taken: u8,
    /// True if the node is in the heap of minimums of its parent.
    pub is_in_floors: bool,
}

impl NodeLimit {
    /// Value before a plan was consulted.
    pub const NONE: Self = Self {
        generation: 0,
        idx: NONE,
        places: [NONE; 3],
        until: 0,
        reserved: None,
        unit: 0,
        last: 0,
        taken: 0,
        is_in_floors: false,
    };
}

/// Content of a node.
#[allow(
    clippy::large_enum_variant,
    reason = "most nodes are leaves, which are the large ones"
)]
pub enum NodeBody<I: Item> {
    /// Requests.
    Leaf(Leaf<I>),
    /// Children.
    Inner(InnerNode),
}

/// Requests of a node. Statistics are stored apart, in [`super::members::NodeStats`].
pub struct Leaf<I: Item> {
    /// Queued requests.
    pub queue: OffsetQueue<I::Fifo>,
    /// Number of requests in flight.
    pub active: u32,
    /// Remainder of measured time that is not yet charged.
    pub rest: u16,
}

/// Children of a node.
pub struct InnerNode {
    /// Scheduler of the children.
    pub sched: NodeScheduler,
    /// Number of children.
    pub children: u32,
}

impl<I: Item> TreeNode<I> {
    /// Creates a node.
    pub fn new(
        entity: Entity,
        id: PathId,
        parent: u32,
        key: Key,
        level: u8,
        body: NodeBody<I>,
    ) -> Self {
        Self {
            entity,
            id,
            parent,
            tally: TotalView::default(),
            key,
            level,
            size: 0,
            limit: NodeLimit::NONE,
            body,
        }
    }

    /// Returns the key, the level and the index of the parent.
    pub fn named(&self) -> (&Key, u8, u32) {
        (&self.key, self.level, self.parent)
    }

    /// Returns the requests of a leaf.
    pub fn leaf(&self) -> Option<&Leaf<I>> {
        match &self.body {
            NodeBody::Leaf(leaf) => Some(leaf),
            NodeBody::Inner(_) => None,
        }
    }

    /// Returns the requests of a leaf, for writing.
    pub fn leaf_mut(&mut self) -> Option<&mut Leaf<I>> {
        match &mut self.body {
            NodeBody::Leaf(leaf) => Some(leaf),
            NodeBody::Inner(_) => None,
        }
    }

    /// Returns the children of an inner node.
    pub fn inner(&self) -> Option<&InnerNode> {
        match &self.body {
            NodeBody::Leaf(_) => None,
            NodeBody::Inner(inner) => Some(inner),
        }
    }

    /// Returns the children of an inner node, for writing.
    pub fn inner_mut(&mut self) -> Option<&mut InnerNode> {
        match &mut self.body {
            NodeBody::Leaf(_) => None,
            NodeBody::Inner(inner) => Some(inner),
        }
    }
}

impl<I: Item> Leaf<I> {
    /// Creates a leaf without requests.
    pub fn new() -> Self {
        Self {
            queue: OffsetQueue::new(),
            active: 0,
            rest: 0,
        }
    }

    /// Returns true if requests are queued or in flight.
    pub fn is_active(&self) -> bool {
        self.active > 0 || !self.queue.is_empty()
    }
}
