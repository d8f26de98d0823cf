// SPDX-License-Identifier: GPL-2.0-only

//! Members of each scheduler ordered by deadline, and the search of the first eligible member.
//!
//! # Data structure
//!
//! A timeline is a treap (R. Seidel, C. R. Aragon, "Randomized search trees", Algorithmica 16,
//! 1996). This is a binary search tree by deadline, in which no node has a lower priority than the
//! nodes below. Priorities are drawn when a node is added, so the tree has the shape of a tree
//! with random insertions, whatever the order of insertions. As in EEVDF, each node has the least
//! tag of its subtree:
//!
//! ```text
//!                 deadline 5, tag 3             eligible at 4:
//!                 least tag 1                   the left subtree has a tag of 4 or less: descend;
//!                /            \                 else the node, if the tag is 4 or less;
//!     deadline 2, tag 1    deadline 9, tag 7    else the right subtree
//!     least tag 1          least tag 7
//! ```
//!
//! So the eligible node with the first deadline is found on one path. A node is added and removed
//! along one path, too. Each operation takes O(log n) steps on average, however many nodes become
//! eligible at a time. For 100,000 nodes the probability of more than 100 steps is below 10^-9.
//!
//! Tags and deadlines are wrapping numbers as in [`crate::sched::heap`]; equal deadlines are
//! ordered by index. All timelines share one table of nodes, so a timeline has no memory of its
//! own.

use crate::sched::{
    heap::Sort,
    mem::{Bulk, ChunkPile, Chunks, Grow, NoMemory},
    slab::NONE,
};

/// Entry of a node in a timeline.
#[derive(Clone, Copy, Debug)]
pub struct TimelineNode {
    deadline: u64,
    tag: u64,
    /// Least tag of the node and of the nodes below.
    least: u64,
    left: u32,
    right: u32,
    parent: u32,
    priority: u32,
}

/// Timeline, identified by its root node.
#[derive(Clone, Copy, Debug)]
pub struct Timeline(u32);

impl Timeline {
    /// Timeline without nodes.
    pub(super) const EMPTY: Self = Self(NONE);
}

/// Timeline nodes of all tree nodes.
///
/// # Invariants
///
/// - Every node comes after all nodes to its left and before all nodes to its right, by deadline
///   and index.
/// - No node has a lower priority than the nodes below it.
/// - `least` is the least tag of the subtree, and `parent` the node above, or [`NONE`].
pub struct Timelines {
    points: Bulk<TimelineNode>,
    /// Priority that was drawn last.
    drawn: u32,
}

impl Grow for Timelines {
    type Need = Chunks<TimelineNode>;
    type Spare = ChunkPile<TimelineNode>;

    fn capacity(&self) -> usize {
        self.points.capacity()
    }

    fn create(&mut self, idx: u32) {
        while self.points.len() <= idx as usize
            && self.points.push(TimelineNode::new(0, 0, 0)).is_ok()
        {}
        bug!(self.points.len() <= idx as usize);
    }

    fn wants(&self, entries: usize) -> Self::Need {
        self.points.wants(entries.saturating_sub(self.points.len()))
    }

    fn feed(&mut self, spare: Self::Spare) -> Self::Spare {
        self.points.feed(spare)
    }
}

impl TimelineNode {
    /// Creates a node without parent and children.
    const fn new(tag: u64, deadline: u64, priority: u32) -> Self {
        Self {
            deadline,
            tag,
            least: tag,
            left: NONE,
            right: NONE,
            parent: NONE,
            priority,
        }
    }

    /// Returns true if the root node of a timeline is its only node.
    #[inline]
    const fn is_alone(&self) -> bool {
        self.left == NONE && self.right == NONE
    }
}

/// Returns true if `time` is after `other`.
#[inline]
const fn is_after(time: u64, other: u64) -> bool {
    time.wrapping_sub(other) as i64 > 0
}

/// Returns the earlier of two times.
#[inline]
const fn earlier(one: u64, other: u64) -> u64 {
    if is_after(one, other) {
        other
    } else {
        one
    }
}

impl Timelines {
    /// Creates a table for up to `max` nodes, with priorities derived from `seed`; may sleep.
    pub(super) fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            points: Bulk::new(max)?,
            // Not 0, because xorshift maps 0 to 0.
            drawn: seed as u32 | 1,
        })
    }

    #[inline]
    fn get(&self, idx: u32) -> Option<&TimelineNode> {
        #[cfg(test)]
        tests::count();
        self.points.get(idx as usize)
    }

    #[inline]
    fn get_mut(&mut self, idx: u32) -> Option<&mut TimelineNode> {
        #[cfg(test)]
        tests::count();
        self.points.get_mut(idx as usize)
    }

    /// Draws a priority (G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14),
    /// 2003).
    #[inline]
    fn draw(&mut self) -> u32 {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 17;
        self.drawn ^= self.drawn << 5;
        self.drawn
    }

    /// Returns the eligible node with the first deadline at virtual time `now`.
    #[inline]
    pub(super) fn eligible(&self, timeline: Timeline, now: u64) -> Option<u32> {
        let mut at = timeline.0;
        let mut point = self.get(at)?;
        if is_after(point.least, now) {
            return None;
        }
        loop {
            let left = if point.left == NONE {
                None
            } else {
                self.get(point.left)
            };
            if let Some(left) = left.filter(|left| !is_after(left.least, now)) {
                at = point.left;
                point = left;
            } else if is_after(point.tag, now) {
                at = point.right;
                point = self.get(at)?;
            } else {
                return Some(at);
            }
        }
    }

    /// Returns the node with the least tag, among equal tags the node with the first deadline,
    /// and the tag.
    pub(super) fn least(&self, timeline: Timeline) -> Option<(u32, u64)> {
        let tag = self.get(timeline.0)?.least;
        Some((self.eligible(timeline, tag)?, tag))
    }

    /// Adds a node that is in no timeline.
    pub(super) fn add(&mut self, timeline: &mut Timeline, idx: u32, tag: u64, deadline: u64) {
        let mut new = TimelineNode::new(tag, deadline, self.draw());
        // Descend to the node that is to be below the new one.
        let mut at = timeline.0;
        let mut is_left = false;
        while let Some(point) = self.get_mut(at) {
            let least = earlier(point.least, tag);
            if point.priority < new.priority {
                new.least = least;
                if point.left == NONE && point.right == NONE {
                    point.parent = idx;
                    match point.deadline.before(at, &deadline, idx) {
                        true => new.left = at,
                        false => new.right = at,
                    }
                } else {
                    (new.left, new.right) = self.split(at, idx, deadline);
                }
                break;
            }
            point.least = least;
            new.parent = at;
            is_left = deadline.before(idx, &point.deadline, at);
            at = if is_left { point.left } else { point.right };
            if at == NONE {
                break;
            }
        }
        let above = new.parent;
        match self.get_mut(idx) {
            Some(point) => *point = new,
            None => bug!(),
        }
        match self.get_mut(above) {
            Some(point) if is_left => point.left = idx,
            Some(point) => point.right = idx,
            None => timeline.0 = idx,
        }
    }

    /// Removes a node of this timeline.
    pub(super) fn remove(&mut self, timeline: &mut Timeline, idx: u32) {
        let Some(&TimelineNode {
            left,
            right,
            parent,
            tag,
            ..
        }) = self.get(idx)
        else {
            bug!();
            return;
        };
        let rest = match (left, right) {
            (NONE, rest) | (rest, NONE) => rest,
            _ => self.merge(left, right),
        };
        if rest != NONE {
            if let Some(point) = self.get_mut(rest) {
                point.parent = parent;
            }
        }
        let Some(point) = self.get_mut(parent) else {
            timeline.0 = rest;
            return;
        };
        if point.left == idx {
            point.left = rest;
        } else {
            point.right = rest;
        }
        // The tag may have been the least one of the nodes above.
        let mut is_other = point.least == tag;
        let mut at = parent;
        while is_other && self.renew(at) {
            let parent = self.get(at).map_or(NONE, |point| point.parent);
            is_other = self.get(parent).is_some_and(|point| point.least == tag);
            at = parent;
        }
    }

    /// Sets the tag and the deadline of a node of this timeline.
    pub(super) fn set(&mut self, timeline: &mut Timeline, idx: u32, tag: u64, deadline: u64) {
        let point = self.get(idx);
        if point.is_some_and(|point| (point.tag, point.deadline) != (tag, deadline)) {
            self.replace(timeline, idx, tag, deadline);
        }
    }

    /// Sets the tag and the deadline of a node of this timeline, at least one of which changes.
    #[inline]
    pub(super) fn replace(&mut self, timeline: &mut Timeline, idx: u32, tag: u64, deadline: u64) {
        if timeline.0 == idx {
            if let Some(point) = self.get_mut(idx).filter(|point| point.is_alone()) {
                *point = TimelineNode::new(tag, deadline, point.priority);
                return;
            }
        }
        self.remove(timeline, idx);
        self.add(timeline, idx, tag, deadline);
    }

    /// Merges the subtree at `left` with the subtree at `right`, all of whose nodes come after;
    /// returns the root node.
    fn merge(&mut self, mut left: u32, mut right: u32) -> u32 {
        let (mut top, mut above) = (NONE, NONE);
        let mut was_left = false;
        loop {
            let (Some(one), Some(other)) = (self.get(left), self.get(right)) else {
                break;
            };
            let least = earlier(one.least, other.least);
            let is_left = one.priority >= other.priority;
            let upper = if is_left { left } else { right };
            if is_left {
                left = one.right;
            } else {
                right = other.left;
            }
            self.hang(above, was_left, upper, &mut top);
            if let Some(point) = self.get_mut(upper) {
                (point.parent, point.least) = (above, least);
            }
            (above, was_left) = (upper, is_left);
        }
        let rest = if left == NONE { right } else { left };
        self.hang(above, was_left, rest, &mut top);
        if let Some(point) = self.get_mut(rest) {
            point.parent = above;
        }
        top
    }

    /// Makes `child` the inner child of `above`, which is of the left part if `is_left`; without
    /// `above`, the root node.
    fn hang(&mut self, above: u32, is_left: bool, child: u32, top: &mut u32) {
        match self.get_mut(above) {
            Some(point) if is_left => point.right = child,
            Some(point) => point.left = child,
            None => *top = child,
        }
    }

    /// Splits the subtree at `top` into the nodes before and after `idx` with `deadline`, as
    /// subtrees of `idx`; returns the root node of each.
    fn split(&mut self, top: u32, idx: u32, deadline: u64) -> (u32, u32) {
        let (mut left, mut right) = (NONE, NONE);
        // Parent of the next node of each part.
        let (mut low, mut high) = (NONE, NONE);
        let mut at = top;
        while let Some(point) = self.get_mut(at) {
            if point.deadline.before(at, &deadline, idx) {
                let next = point.right;
                point.parent = if low == NONE { idx } else { low };
                self.hang(low, true, at, &mut left);
                (low, at) = (at, next);
            } else {
                let next = point.left;
                point.parent = if high == NONE { idx } else { high };
                self.hang(high, false, at, &mut right);
                (high, at) = (at, next);
            }
            if at == NONE {
                break;
            }
        }
        if low != NONE {
            self.hang(low, true, NONE, &mut left);
            self.renew_up(low, idx);
        }
        if high != NONE {
            self.hang(high, false, NONE, &mut right);
            self.renew_up(high, idx);
        }
        (left, right)
    }

    /// Recomputes the least tags of the nodes from `at` up to, but without, `end`.
    fn renew_up(&mut self, mut at: u32, end: u32) {
        while at != end {
            self.renew(at);
            at = self.get(at).map_or(end, |point| point.parent);
        }
    }

    /// Recomputes the least tag of a node; returns true if the tag changed.
    fn renew(&mut self, idx: u32) -> bool {
        let Some(&TimelineNode {
            tag,
            least: known,
            left,
            right,
            ..
        }) = self.get(idx)
        else {
            return false;
        };
        let mut least = tag;
        for child in [left, right] {
            if child != NONE {
                least = self
                    .get(child)
                    .map_or(least, |child| earlier(child.least, least));
            }
        }
        if least == known {
            return false;
        }
        if let Some(point) = self.get_mut(idx) {
            point.least = least;
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests;
