// SPDX-License-Identifier: GPL-2.0-only

//! Priority queues of table indices (`idx`) that share their memory.
//!
//! Each table index has a node; a queue is a leftist tree of nodes (C. A. Crane, "Linear lists and
//! priority queues as balanced binary trees", 1972; D. E. Knuth, "The Art of Computer Programming",
//! volume 3, section 5.2.3). The rank of a node is the number of nodes on its right path, including
//! itself; 0 for no node. Keys are as in [`crate::sched::heap`].
//!
//! No node comes out before its parent, and no node has a higher rank to the right than to the
//! left. Thus a right path has at most log2(n + 1) nodes, and two trees are merged along their
//! right paths:
//!
//! ```text
//!        1                         rank of a node = 1 + rank to its right
//!      /   \
//!     4     2      merge:   walk down both right paths, the lesser key first,
//!    / \   /                then walk back up: where the rank to the right became the higher one,
//!   9   5 7                 left and right change places
//! ```
//!
//! A node stores the ranks of its two children instead of its own, so the walk accesses only nodes
//! on the path. Each operation costs O(log n) in the worst case, uses no memory, and does not
//! recurse.

use crate::sched::{
    heap::Sort,
    mem::{Bulk, ChunkPile, Chunks, Grow, NoMemory},
    slab::NONE,
};
use core::cmp::Ordering;

/// Node of a queue, for one table index.
#[derive(Clone, Copy, Debug)]
pub struct LeftistNode<K = u64> {
    key: K,
    left: u32,
    right: u32,
    parent: u32,
    left_rank: u8,
    right_rank: u8,
}

impl<K: Copy> LeftistNode<K> {
    /// Creates a node that is alone in its queue, or in no queue.
    const fn single(key: K) -> Self {
        Self {
            key,
            left: NONE,
            right: NONE,
            parent: NONE,
            left_rank: 0,
            right_rank: 0,
        }
    }

    /// Returns the rank.
    const fn rank(&self) -> u8 {
        self.right_rank.saturating_add(1)
    }

    /// Swaps the children, if necessary, so that the one with the lower rank is to the right.
    fn lean(&mut self) {
        if self.left_rank < self.right_rank {
            core::mem::swap(&mut self.left, &mut self.right);
            core::mem::swap(&mut self.left_rank, &mut self.right_rank);
        }
    }
}

/// Queue, identified by the table index that comes out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRoot(u32);

impl HeapRoot {
    /// Empty queue.
    pub const EMPTY: Self = Self(NONE);

    /// Returns the table index that comes out first.
    #[inline]
    pub const fn top(self) -> Option<u32> {
        if self.0 == NONE {
            None
        } else {
            Some(self.0)
        }
    }
}

impl Default for HeapRoot {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Nodes of all table indices.
///
/// # Invariants
///
/// - No node comes out before its parent.
/// - No node has a higher rank to the right than to the left, and both ranks equal those of the
///   children.
/// - A node in no queue is single, as is the only node of a queue.
pub struct LeftistForest<K = u64> {
    nodes: Bulk<LeftistNode<K>>,
}

impl<K: Sort> Grow for LeftistForest<K> {
    type Need = Chunks<LeftistNode<K>>;
    type Spare = ChunkPile<LeftistNode<K>>;

    fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    fn create(&mut self, idx: u32) {
        while self.nodes.len() <= idx as usize
            && self.nodes.push(LeftistNode::single(K::default())).is_ok()
        {}
        bug!(self.nodes.len() <= idx as usize);
    }

    fn wants(&self, entries: usize) -> Self::Need {
        self.nodes.wants(entries.saturating_sub(self.nodes.len()))
    }

    fn feed(&mut self, spare: Self::Spare) -> Self::Spare {
        self.nodes.feed(spare)
    }
}

impl<K: Sort> LeftistForest<K> {
    /// Creates a forest that accepts memory for up to `max` table indices; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            nodes: Bulk::new(max)?,
        })
    }

    /// Returns the sort key of `idx`.
    #[inline]
    pub fn key(&self, idx: u32) -> Option<K> {
        Some(self.nodes.get(idx as usize)?.key)
    }

    /// Returns the table index that comes out of `root` first, and its key.
    #[inline]
    pub fn top(&self, root: HeapRoot) -> Option<(u32, K)> {
        let idx = root.top()?;
        Some((idx, self.key(idx)?))
    }

    /// Adds `idx`, which must be in no queue.
    pub fn push(&mut self, root: &mut HeapRoot, key: K, idx: u32) {
        let Some(node) = self.nodes.get_mut(idx as usize) else {
            bug!();
            return;
        };
        *node = LeftistNode::single(key);
        root.0 = self.merge(root.0, idx);
    }

    /// Removes `idx`, which must be in this queue.
    pub fn remove(&mut self, root: &mut HeapRoot, idx: u32) {
        let Some(node) = self.nodes.get_mut(idx as usize) else {
            bug!();
            return;
        };
        let gone = core::mem::replace(node, LeftistNode::single(node.key));
        for child in [gone.left, gone.right] {
            self.hang(child, NONE);
        }
        let rest = self.merge(gone.left, gone.right);
        if gone.parent == NONE {
            root.0 = rest;
            return;
        }
        self.hang(rest, gone.parent);
        let rank = self.nodes.get(rest as usize).map_or(0, LeftistNode::rank);
        if let Some(parent) = self.nodes.get_mut(gone.parent as usize) {
            if parent.left == idx {
                (parent.left, parent.left_rank) = (rest, rank);
            } else {
                (parent.right, parent.right_rank) = (rest, rank);
            }
        }
        self.climb(gone.parent, gone.parent);
    }

    /// Sets the key of `idx`, which must be in this queue; cheap if the node can stay in place.
    pub fn update(&mut self, root: &mut HeapRoot, key: K, idx: u32) {
        let Some(&node) = self.nodes.get(idx as usize) else {
            bug!();
            return;
        };
        let stays = match key.compare(&node.key) {
            Ordering::Equal => return,
            Ordering::Less => node.parent == NONE || self.key_before(node.parent, key, idx),
            Ordering::Greater => [node.left, node.right]
                .iter()
                .all(|&child| child == NONE || !self.key_before(child, key, idx)),
        };
        if !stays {
            self.remove(root, idx);
            self.push(root, key, idx);
        } else if let Some(node) = self.nodes.get_mut(idx as usize) {
            node.key = key;
        }
    }

    /// Returns true if `node` comes out before `idx` with `key`.
    fn key_before(&self, node: u32, key: K, idx: u32) -> bool {
        self.key(node)
            .is_some_and(|other| other.before(node, &key, idx))
    }

    /// Sets the parent of `child`, if there is a child.
    fn hang(&mut self, child: u32, parent: u32) {
        if let Some(node) = self.nodes.get_mut(child as usize) {
            node.parent = parent;
        }
    }

    /// Merges two trees without parents, given by their roots; returns the root of the result.
    fn merge(&mut self, one: u32, other: u32) -> u32 {
        if one == NONE {
            return other;
        }
        let (Some(a), Some(b)) = (
            self.nodes.get(one as usize).copied(),
            self.nodes.get(other as usize).copied(),
        ) else {
            return one;
        };
        // `at` is on the merged path; `over` is the tree that still has to be merged below it.
        let swap = b.key.before(other, &a.key, one);
        let (top, mut over) = if swap { (other, one) } else { (one, other) };
        let (mut right, mut tree) = if swap { (b.right, a) } else { (a.right, b) };
        let mut at = top;
        // Nothing was changed above this node.
        let mut first = NONE;
        while let Some(&next) = self.nodes.get(right as usize) {
            if next.key.before(right, &tree.key, over) {
                at = right;
                right = next.right;
                continue;
            }
            // `over` takes the place of `right`, which is merged below `over` in turn.
            self.attach(at, over, &tree);
            if first == NONE {
                first = at;
            }
            at = over;
            over = core::mem::replace(&mut right, tree.right);
            tree = next;
        }
        self.attach(at, over, &tree);
        if first == NONE {
            first = at;
        }
        self.climb(at, first);
        top
    }

    /// Makes `child`, which is `tree`, the right child of `at`.
    #[inline]
    fn attach(&mut self, at: u32, child: u32, tree: &LeftistNode<K>) {
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.right = child;
            node.right_rank = tree.rank();
        }
        self.hang(child, at);
    }

    /// Restores the order of ranks from `at`, whose ranks of children are up to date, up to
    /// `least`. Continues up to the root as long as ranks change.
    fn climb(&mut self, mut at: u32, least: u32) {
        let mut early = false;
        while let Some(node) = self.nodes.get_mut(at as usize) {
            node.lean();
            let (rank, parent) = (node.rank(), node.parent);
            let Some(above) = self.nodes.get_mut(parent as usize) else {
                return;
            };
            let stored = if above.left == at {
                &mut above.left_rank
            } else {
                &mut above.right_rank
            };
            early |= at == least;
            if early && *stored == rank {
                return;
            }
            *stored = rank;
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests;
