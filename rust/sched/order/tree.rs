// SPDX-License-Identifier: GPL-2.0-only

//! Index of requests by range.
//!
//! Two extents of one domain conflict if they overlap and at least one of them writes. Serials
//! number the requests in the order of arrival, from 1.
//!
//! The tree is a treap (Seidel and Aragon, "Randomized search trees", 1996) by domain, start and
//! serial. Its priorities come from a secret seed, so users who choose ranges cannot choose the
//! shape. The expected depth is O(log n).
//!
//! # Searching
//!
//! All extents of a domain that start before a given end are O(log n) whole subtrees and single
//! nodes. Such a subtree contains an overlap exactly if its largest end is after the given start.
//! Branch and bound over the largest serials finds the latest overlapping extent. That may visit
//! many nodes where long old extents overlap short new ones. Therefore the search stops after O(log
//! n) nodes and returns its best result ([`ExtentSearch`]); each search costs O(log n).

mod search;

use crate::sched::{
    mem::NoMemory,
    rng::Rng,
    slab::{Slab, SlabNeed, SlabPile, NONE},
};

/// Range and type of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Object that contains the range.
    pub domain: u64,
    /// First byte of the range.
    pub start: u64,
    /// First byte after the range.
    pub end: u64,
    /// True if the range is written.
    pub writes: bool,
}

impl Extent {
    /// Returns true if the order of the two requests matters.
    pub const fn conflicts(&self, other: &Self) -> bool {
        self.domain == other.domain
            && self.start < other.end
            && other.start < self.end
            && (self.writes || other.writes)
    }
}

/// Node found by a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHit {
    /// Owner of the extent, as passed to [`ExtentTree::insert`].
    pub owner: u32,
    /// Serial of the request.
    pub serial: u64,
    /// Extent of the request.
    pub extent: Extent,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentSearch {
    /// No conflict exists.
    Nothing,
    /// The latest conflict; or any conflict, if the search was stopped.
    Conflict(ExtentHit),
    /// The search was stopped before it found a conflict; another earlier extent of the same
    /// domain.
    StandIn(ExtentHit),
}

/// Summary of a set of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExtentDigest {
    /// Largest end.
    end: u64,
    /// Smallest serial.
    first: u64,
    /// Largest serial.
    last: u64,
}

impl ExtentDigest {
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

pub struct ExtentNode {
    extent: Extent,
    serial: u64,
    owner: u32,
    /// Heap priority; no child has a larger one.
    priority: u32,
    parent: u32,
    left: u32,
    right: u32,
    /// Digest of all extents in the subtree.
    all: ExtentDigest,
    /// Digest of the extents in the subtree that write.
    writers: ExtentDigest,
}

impl ExtentNode {
    const fn key(&self) -> (u64, u64, u64) {
        (self.extent.domain, self.extent.start, self.serial)
    }

    const fn hit(&self) -> ExtentHit {
        ExtentHit {
            owner: self.owner,
            serial: self.serial,
            extent: self.extent,
        }
    }

    /// Returns the digests of the node without children: of all accesses, and of writes.
    const fn own(&self) -> (ExtentDigest, ExtentDigest) {
        let all = ExtentDigest {
            end: self.extent.end,
            first: self.serial,
            last: self.serial,
        };
        let writers = if self.extent.writes {
            all
        } else {
            ExtentDigest::EMPTY
        };
        (all, writers)
    }
}

/// Extents by domain, start and serial.
///
/// # Invariants
///
/// - The left subtree of a node has smaller keys, the right one larger keys. The `parent` of a
///   child is the node, that of the root is [`NONE`].
/// - `all` and `writers` of a node cover its subtree.
pub struct ExtentTree {
    nodes: Slab<ExtentNode>,
    root: u32,
    rng: Rng,
    #[cfg(not(MODULE))]
    visits: u64,
}

/// Memory requirement of an [`ExtentTree`].
pub type TreeNeed = SlabNeed<ExtentNode>;

impl ExtentTree {
    /// Creates an empty tree that accepts memory for up to `max` extents; may sleep.
    pub fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            nodes: Slab::new(max)?,
            root: NONE,
            rng: Rng::new(seed),
            #[cfg(not(MODULE))]
            visits: 0,
        })
    }

    /// Returns the chunks missing for a total of `target` extents.
    pub fn wants(&self, target: usize) -> TreeNeed {
        self.nodes
            .wants(target.saturating_sub(self.nodes.entry_count()))
    }

    /// Returns the number of further extents that there is memory for.
    pub fn room(&self) -> usize {
        self.nodes.room()
    }

    /// Adds chunks; returns the unused ones.
    pub fn feed(&mut self, pile: SlabPile<ExtentNode>) -> SlabPile<ExtentNode> {
        self.nodes.feed(pile)
    }

    /// Returns the total number of visited nodes, as the cost of the tree.
    #[cfg(not(MODULE))]
    pub const fn visits(&self) -> u64 {
        self.visits
    }

    /// Inserts the extent of a request with `serial` and its `owner`. Returns the index for
    /// [`ExtentTree::remove`]; `None` without memory.
    pub fn insert(&mut self, extent: Extent, serial: u64, owner: u32) -> Option<u32> {
        let mut node = ExtentNode {
            extent,
            serial,
            owner,
            priority: self.rng.next_u32(),
            parent: NONE,
            left: NONE,
            right: NONE,
            all: ExtentDigest::EMPTY,
            writers: ExtentDigest::EMPTY,
        };
        (node.all, node.writers) = node.own();
        let (key, priority) = (node.key(), node.priority);

        let (mut parent, mut at, mut goes_left) = (NONE, self.root, false);
        while let Some(other) = self.nodes.at(at) {
            #[cfg(not(MODULE))]
            {
                self.visits = self.visits.wrapping_add(1);
            }
            goes_left = key < other.key();
            parent = at;
            at = if goes_left { other.left } else { other.right };
        }
        node.parent = parent;
        let idx = self.nodes.insert(node).ok()?.idx();
        match self.nodes.at_mut(parent) {
            Some(parent) if goes_left => parent.left = idx,
            Some(parent) => parent.right = idx,
            None => self.root = idx,
        }
        while let Some(above) = self.parent(idx) {
            if self
                .nodes
                .at(above)
                .is_none_or(|above| above.priority >= priority)
            {
                break;
            }
            self.lift(idx);
        }
        // INVARIANT: lowered nodes are digested in `lift`; this node and all nodes above it are
        // digested here.
        self.digest_up(idx);
        Some(idx)
    }

    /// Removes the extent at index `idx`, from [`ExtentTree::insert`].
    pub fn remove(&mut self, idx: u32) {
        // Lowered until it has no child. Nodes lifted over it are above it, and are digested below.
        while let Some(node) = self.nodes.at(idx) {
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
        if let Some(node) = self.nodes.remove(idx) {
            self.replace_child(node.parent, idx, NONE);
            self.digest_up(node.parent);
        }
    }

    fn visit(&mut self, idx: u32) -> Option<&ExtentNode> {
        let node = self.nodes.at(idx)?;
        #[cfg(not(MODULE))]
        {
            self.visits = self.visits.wrapping_add(1);
        }
        Some(node)
    }

    fn parent(&self, idx: u32) -> Option<u32> {
        let parent = self.nodes.at(idx)?.parent;
        (parent != NONE).then_some(parent)
    }

    /// Makes `new` the child of `parent` in place of `old`, or the root without a parent.
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

    /// Rotates a node above its parent, which becomes its child; computes the digests of the
    /// parent.
    fn lift(&mut self, idx: u32) {
        let Some(parent) = self.parent(idx) else {
            return;
        };
        let above = self.nodes.at(parent).map_or(NONE, |node| node.parent);
        let was_left = self.nodes.at(parent).is_some_and(|node| node.left == idx);
        let Some(node) = self.nodes.at_mut(idx) else {
            return;
        };
        let inner = if was_left {
            core::mem::replace(&mut node.right, parent)
        } else {
            core::mem::replace(&mut node.left, parent)
        };
        self.replace_child(above, parent, idx);
        if let Some(node) = self.nodes.at_mut(parent) {
            node.parent = idx;
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

    /// Computes the digests of a node from those of its children; returns its parent.
    fn digest(&mut self, idx: u32) -> Option<u32> {
        let node = self.nodes.at(idx)?;
        let (mut all, mut writers) = node.own();
        for child in [node.left, node.right] {
            if let Some(child) = self.nodes.at(child) {
                all = all.and(child.all);
                writers = writers.and(child.writers);
            }
        }
        #[cfg(not(MODULE))]
        {
            self.visits = self.visits.wrapping_add(1);
        }
        let node = self.nodes.at_mut(idx)?;
        node.all = all;
        node.writers = writers;
        Some(node.parent)
    }

    /// Computes the digests of a node and all nodes above it.
    fn digest_up(&mut self, idx: u32) {
        let mut at = idx;
        while let Some(parent) = self.digest(at) {
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests;
