// SPDX-License-Identifier: GPL-2.0-only

//! The nodes of a part's tree.
//!
//! # Vocabulary
//!
//! - *Path*: the values of the levels of the mode from the first one down, for example a group and one of
//!   its users; a [`PathId`] names it, the same in all parts of a service.
//! - *Leaf*: a path with a value for every level; it has requests ([`Leaf`]).
//! - *Inner node*: a shorter path; it has children, and a scheduler for them ([`Inner`]).
//!
//! ```text
//!                    (root)                     its scheduler is the selector's
//!                   /      \
//!             gid:100      gid:200              inner nodes
//!             /     \          \
//!     uid:1000    uid:1001    uid:1002          leaves of gid_then_uid_fair
//! ```

use super::{deadline::Sched, entity::Entity, locality::Batches, shared::Tally};
use crate::sched::{
    item::Item,
    key::{Hashed, Hasher, Key},
};

/// Names a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(pub u64);

impl PathId {
    /// Of the root.
    pub const ROOT: Self = Self(0);

    /// Of the default class.
    pub const DEFAULT: Self = Self(u64::MAX);
}

impl Hashed for PathId {
    fn mix(&self, hasher: &Hasher) -> u64 {
        hasher.word(self.0)
    }
}

/// A node of the tree.
///
/// # Invariants
///
/// `parent` is the slot of an inner node that counts this one among its children, or [`crate::sched::slab::NONE`] for a
/// child of the root.
pub struct Node<I: Item> {
    /// Its share among its siblings.
    pub entity: Entity,
    /// Its path.
    pub id: PathId,
    /// Slot of the node above.
    pub parent: u32,
    /// What it and other parts served of it.
    pub tally: Tally,
    /// Value of its level.
    pub key: Key,
    /// Its level, 0 for the first.
    pub level: u8,
    /// Size of the job as its requests say; 0 if they do not.
    pub size: u32,
    /// What it has.
    pub body: Body<I>,
}

/// What a node has.
#[allow(
    clippy::large_enum_variant,
    reason = "most nodes are leaves, which are the large ones"
)]
pub enum Body<I: Item> {
    /// Requests.
    Leaf(Leaf<I>),
    /// Children.
    Inner(Inner),
}

/// Requests of a node; what was done for it is kept apart ([`super::members::Details`]).
pub struct Leaf<I: Item> {
    /// Those that wait.
    pub queue: Batches<I::Fifo>,
    /// Requests in service.
    pub active: u32,
    /// Measured time that is not yet charged.
    pub rest: u16,
}

/// Children of a node.
pub struct Inner {
    /// Chooses among them.
    pub sched: Sched,
    /// How many there are.
    pub children: u32,
}

impl<I: Item> Node<I> {
    /// A node without requests or children.
    pub fn new(
        entity: Entity,
        id: PathId,
        parent: u32,
        key: Key,
        level: u8,
        body: Body<I>,
    ) -> Self {
        Self {
            entity,
            id,
            parent,
            tally: Tally::default(),
            key,
            level,
            size: 0,
            body,
        }
    }

    /// Its requests, if it is a leaf.
    pub fn leaf(&self) -> Option<&Leaf<I>> {
        match &self.body {
            Body::Leaf(leaf) => Some(leaf),
            Body::Inner(_) => None,
        }
    }

    /// Its requests, for writing.
    pub fn leaf_mut(&mut self) -> Option<&mut Leaf<I>> {
        match &mut self.body {
            Body::Leaf(leaf) => Some(leaf),
            Body::Inner(_) => None,
        }
    }

    /// Its children, if it is no leaf.
    pub fn inner(&self) -> Option<&Inner> {
        match &self.body {
            Body::Leaf(_) => None,
            Body::Inner(inner) => Some(inner),
        }
    }

    /// Its children, for writing.
    pub fn inner_mut(&mut self) -> Option<&mut Inner> {
        match &mut self.body {
            Body::Leaf(_) => None,
            Body::Inner(inner) => Some(inner),
        }
    }
}

impl<I: Item> Leaf<I> {
    /// No requests.
    pub fn new() -> Self {
        Self {
            queue: Batches::new(),
            active: 0,
            rest: 0,
        }
    }

    /// Whether requests are queued or in service.
    pub fn is_active(&self) -> bool {
        self.active > 0 || !self.queue.is_empty()
    }
}
