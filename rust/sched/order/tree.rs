// SPDX-License-Identifier: GPL-2.0-only

//! Which requests touch which ranges.
//!
//! # Vocabulary
//!
//! - *Conflict*: two extents of one domain overlap, and at least one of them writes.
//! - *Serial*: the number of a request in the order of arrival, from 1 on.
//!
//! The tree is a treap (Seidel and Aragon, "Randomized search trees", 1996) by domain, start and serial; its
//! priorities come from a secret seed, so nobody who chooses ranges can choose its shape. It is expected to be
//! O(log n) deep.
//!
//! # Searching
//!
//! All extents of a domain that start before an end are O(log n) whole subtrees and single nodes. In such a
//! subtree something overlaps exactly if its largest end is after the start that is asked for. The latest of
//! those that overlap is found by branch and bound over the last serials. That may look at many nodes where
//! long old extents lie across short new ones; after O(log n) nodes the search settles for what it has
//! ([`Found`]), so that each costs O(log n).

mod search;

use crate::sched::{
    mem::NoMemory,
    rng::Rng,
    slab::{Slab, SlabNeed, SlabPile, NONE},
};

/// A range and what is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// What the range is in.
    pub domain: u64,
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Whether something is written.
    pub writes: bool,
}

impl Extent {
    /// Whether the order of both matters.
    pub const fn conflicts(&self, other: &Self) -> bool {
        self.domain == other.domain
            && self.start < other.end
            && other.start < self.end
            && (self.writes || other.writes)
    }
}

/// A node that a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// What the owner noted with it.
    pub owner: u32,
    /// Its serial.
    pub serial: u64,
    /// Its extent.
    pub extent: Extent,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No conflict.
    Nothing,
    /// The latest that conflicts; or one that conflicts, if the search was given up.
    Conflict(Hit),
    /// The search was given up before it came to one that conflicts; this is another earlier one of the same
    /// domain.
    StandIn(Hit),
}

/// Of a set of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest {
    /// Largest end.
    end: u64,
    /// Smallest serial.
    first: u64,
    /// Largest serial.
    last: u64,
}

impl Digest {
    const EMPTY: Self = Self {
        end: 0,
        first: u64::MAX,
        last: 0,
    };

    fn and(self, other: Self) -> Self {
        Self {
            end: self.end.max(other.end),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

pub struct Node {
    extent: Extent,
    serial: u64,
    owner: u32,
    /// No child has a larger one.
    priority: u32,
    parent: u32,
    left: u32,
    right: u32,
    /// Of the subtree.
    all: Digest,
    /// Of those in the subtree that write.
    writers: Digest,
}

impl Node {
    const fn key(&self) -> (u64, u64, u64) {
        (self.extent.domain, self.extent.start, self.serial)
    }

    const fn hit(&self) -> Hit {
        Hit {
            owner: self.owner,
            serial: self.serial,
            extent: self.extent,
        }
    }

    /// Of it alone.
    const fn own(&self) -> (Digest, Digest) {
        let all = Digest {
            end: self.extent.end,
            first: self.serial,
            last: self.serial,
        };
        let writers = if self.extent.writes {
            all
        } else {
            Digest::EMPTY
        };
        (all, writers)
    }
}

/// Extents by domain, start and serial.
///
/// # Invariants
///
/// - A node's left subtree has smaller keys, its right one larger; its children's `parent` is the node, the
///   root's is [`NONE`].
/// - A node's `all` and `writers` are those of its subtree.
pub struct Tree {
    nodes: Slab<Node>,
    root: u32,
    rng: Rng,
    visits: u64,
}

/// What a [`Tree`] wants.
pub type TreeNeed = SlabNeed<Node>;

impl Tree {
    /// An empty tree that can be fed for up to `max` extents; sleeps.
    pub fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            nodes: Slab::new(max)?,
            root: NONE,
            rng: Rng::new(seed),
            visits: 0,
        })
    }

    /// Returns the chunks missing for `target` extents in all.
    pub fn wants(&self, target: usize) -> TreeNeed {
        self.nodes.wants(target.saturating_sub(self.nodes.slots()))
    }

    /// Number of extents that there is memory for beside those there are.
    pub fn room(&self) -> usize {
        self.nodes.room()
    }

    /// Takes chunks and hands back those there is no use for.
    pub fn feed(&mut self, pile: SlabPile<Node>) -> SlabPile<Node> {
        self.nodes.feed(pile)
    }

    /// Nodes that were looked at, ever: what the tree costs.
    pub const fn visits(&self) -> u64 {
        self.visits
    }

    /// Adds the extent of a request with `serial`, with a note of whose it is; `None` if there is no memory.
    /// Returns the name for [`Tree::remove`].
    pub fn insert(&mut self, extent: Extent, serial: u64, owner: u32) -> Option<u32> {
        let mut node = Node {
            extent,
            serial,
            owner,
            priority: self.rng.next_u32(),
            parent: NONE,
            left: NONE,
            right: NONE,
            all: Digest::EMPTY,
            writers: Digest::EMPTY,
        };
        (node.all, node.writers) = node.own();
        let (key, priority) = (node.key(), node.priority);

        let (mut parent, mut at, mut goes_left) = (NONE, self.root, false);
        while let Some(other) = self.nodes.at(at) {
            self.visits = self.visits.wrapping_add(1);
            goes_left = key < other.key();
            parent = at;
            at = if goes_left { other.left } else { other.right };
        }
        node.parent = parent;
        let slot = self.nodes.insert(node).ok()?.slot();
        match self.nodes.at_mut(parent) {
            Some(parent) if goes_left => parent.left = slot,
            Some(parent) => parent.right = slot,
            None => self.root = slot,
        }
        while let Some(above) = self.parent(slot) {
            if self
                .nodes
                .at(above)
                .is_none_or(|above| above.priority >= priority)
            {
                break;
            }
            self.lift(slot);
        }
        // INVARIANT: those that were lowered are digested; the node and those above are now.
        self.digest_up(slot);
        Some(slot)
    }

    /// Removes the extent that [`Tree::insert`] named `slot`.
    pub fn remove(&mut self, slot: u32) {
        // Lowered until it has no child; what was lifted over it is above it, and digested below.
        while let Some(node) = self.nodes.at(slot) {
            let priority = |child: u32| self.nodes.at(child).map(|child| child.priority);
            let child = if priority(node.left) > priority(node.right) {
                node.left
            } else {
                node.right
            };
            if child == NONE {
                break;
            }
            self.lift(child);
        }
        if let Some(node) = self.nodes.remove(slot) {
            self.replace_child(node.parent, slot, NONE);
            self.digest_up(node.parent);
        }
    }

    fn visit(&mut self, slot: u32) -> Option<&Node> {
        let node = self.nodes.at(slot)?;
        self.visits = self.visits.wrapping_add(1);
        Some(node)
    }

    fn parent(&self, slot: u32) -> Option<u32> {
        let parent = self.nodes.at(slot)?.parent;
        (parent != NONE).then_some(parent)
    }

    /// Makes `new` the child of `parent` that `old` was; the root if there is no parent.
    fn replace_child(&mut self, parent: u32, old: u32, new: u32) {
        match self.nodes.at_mut(parent) {
            Some(parent) if parent.left == old => parent.left = new,
            Some(parent) => parent.right = new,
            None => self.root = new,
        }
        if let Some(new) = self.nodes.at_mut(new) {
            new.parent = parent;
        }
    }

    /// Swaps a node with its parent, which becomes its child and is digested.
    fn lift(&mut self, slot: u32) {
        let Some(parent) = self.parent(slot) else {
            return;
        };
        let above = self.nodes.at(parent).map_or(NONE, |node| node.parent);
        let was_left = self.nodes.at(parent).is_some_and(|node| node.left == slot);
        let Some(node) = self.nodes.at_mut(slot) else {
            return;
        };
        let inner = if was_left {
            core::mem::replace(&mut node.right, parent)
        } else {
            core::mem::replace(&mut node.left, parent)
        };
        self.replace_child(above, parent, slot);
        if let Some(node) = self.nodes.at_mut(parent) {
            node.parent = slot;
            if was_left {
                node.left = inner;
            } else {
                node.right = inner;
            }
        }
        if let Some(inner) = self.nodes.at_mut(inner) {
            inner.parent = parent;
        }
        self.digest(parent);
    }

    /// Makes the digests of a node from those of its children; returns its parent.
    fn digest(&mut self, slot: u32) -> Option<u32> {
        let node = self.nodes.at(slot)?;
        let (mut all, mut writers) = node.own();
        for child in [node.left, node.right] {
            if let Some(child) = self.nodes.at(child) {
                all = all.and(child.all);
                writers = writers.and(child.writers);
            }
        }
        self.visits = self.visits.wrapping_add(1);
        let node = self.nodes.at_mut(slot)?;
        node.all = all;
        node.writers = writers;
        Some(node.parent)
    }

    /// Digests a node and all above it.
    fn digest_up(&mut self, slot: u32) {
        let mut at = slot;
        while let Some(parent) = self.digest(at) {
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests;
