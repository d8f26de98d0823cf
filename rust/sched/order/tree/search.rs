// SPDX-License-Identifier: GPL-2.0-only

//! Search for the latest conflict, by branch and bound.

use super::{Extent, ExtentDigest, ExtentHit, ExtentNode, ExtentSearch, ExtentTree};
use crate::sched::slab::NONE;

/// Maximum number of nodes that a search visits besides the two paths to the ends of its range:
/// constant part, ...
const VISITS: u32 = 32;

/// ... and part for each bit of the number of nodes.
const VISITS_PER_BIT: u32 = 8;

/// Maximum number of subtrees on the stack of a search.
const STACK: usize = 96;

/// Query: the latest request before serial `before` that conflicts with `extent`.
#[derive(Clone, Copy)]
pub(super) struct ExtentQuery {
    pub(super) extent: Extent,
    pub(super) before: u64,
}

impl ExtentQuery {
    /// Returns the digest of the accesses in the subtree of `node` that can conflict with the
    /// query.
    const fn digest<'a>(&self, node: &'a ExtentNode) -> &'a ExtentDigest {
        if self.extent.writes {
            &node.all
        } else {
            &node.writers
        }
    }

    fn wants(&self, node: &ExtentNode) -> bool {
        node.serial < self.before && node.extent.conflicts(&self.extent)
    }
}

/// Subtrees that are still to be visited.
struct Stack {
    nodes: [u32; STACK],
    len: usize,
    /// Subtree that did not fit.
    dropped: u32,
}

impl Stack {
    const fn new() -> Self {
        Self {
            nodes: [NONE; STACK],
            len: 0,
            dropped: NONE,
        }
    }

    fn push(&mut self, idx: u32) {
        match self.nodes.get_mut(self.len) {
            Some(place) => {
                *place = idx;
                self.len = self.len.wrapping_add(1);
            }
            None => self.dropped = idx,
        }
    }

    fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        self.nodes.get(self.len).copied()
    }
}

impl ExtentTree {
    /// Returns the latest request before serial `before` that conflicts with `extent`.
    pub fn latest(&mut self, extent: Extent, before: u64) -> ExtentSearch {
        let bits = u32::BITS.wrapping_sub(self.nodes.live().leading_zeros());
        let visits = VISITS.saturating_add(VISITS_PER_BIT.saturating_mul(bits));
        self.search(ExtentQuery { extent, before }, visits)
    }

    /// Searches like [`ExtentTree::latest`], but visits at most `left` nodes besides the two paths.
    pub(super) fn search(&mut self, asks: ExtentQuery, mut left: u32) -> ExtentSearch {
        let mut best = None;
        let mut stack = self.split(&asks, &mut best);
        while let Some(idx) = stack.pop() {
            let bound = best.map_or(0, |best: ExtentHit| best.serial);
            if !self.promises(idx, &asks, bound) {
                continue;
            }
            if left == 0 {
                stack.dropped = idx;
                break;
            }
            left = left.wrapping_sub(1);
            let Some(node) = self.visit(idx) else {
                continue;
            };
            let (first, second) = (node.left, node.right);
            self.consider(idx, &asks, &mut best);
            // The child with the later serial is visited first.
            let last = |child: u32| self.nodes.at(child).map(|child| asks.digest(child).last);
            let (first, second) = if last(first) < last(second) {
                (first, second)
            } else {
                (second, first)
            };
            self.put_off(&mut stack, first, &asks);
            self.put_off(&mut stack, second, &asks);
        }
        match best {
            Some(hit) => ExtentSearch::Conflict(hit),
            None if stack.dropped == NONE => ExtentSearch::Nothing,
            None => self.substitute(stack.dropped, &asks),
        }
    }

    /// Returns the subtrees in which all extents are in the domain and start before the end;
    /// considers the nodes between them.
    fn split(&mut self, asks: &ExtentQuery, best: &mut Option<ExtentHit>) -> Stack {
        let mut stack = Stack::new();
        let domain = asks.extent.domain;
        let from = (domain, 0, 0);
        let to = (domain, asks.extent.end, 0);
        // The node where the paths to both ends part.
        let mut at = self.root;
        while let Some(node) = self.visit(at) {
            at = if node.key() < from {
                node.right
            } else if node.key() >= to {
                node.left
            } else {
                break;
            };
        }
        let Some(node) = self.nodes.at(at) else {
            return stack;
        };
        let (mut low, mut high) = (node.left, node.right);
        self.consider(at, asks, best);
        while let Some(node) = self.visit(low) {
            let (left, right) = (node.left, node.right);
            if node.key() < from {
                low = right;
            } else {
                self.consider(low, asks, best);
                self.put_off(&mut stack, right, asks);
                low = left;
            }
        }
        while let Some(node) = self.visit(high) {
            let (left, right) = (node.left, node.right);
            if node.key() >= to {
                high = left;
            } else {
                self.consider(high, asks, best);
                self.put_off(&mut stack, left, asks);
                high = right;
            }
        }
        stack
    }

    /// Pushes the subtree of `idx` for a later visit, if it may contain a result.
    fn put_off(&self, stack: &mut Stack, idx: u32, asks: &ExtentQuery) {
        if self.promises(idx, asks, 0) {
            stack.push(idx);
        }
    }

    /// Makes the node at index `idx` the best result, if it matches and is later than the current
    /// one.
    fn consider(&self, idx: u32, asks: &ExtentQuery, best: &mut Option<ExtentHit>) {
        if let Some(node) = self.nodes.at(idx).filter(|node| asks.wants(node)) {
            if best.is_none_or(|best| best.serial < node.serial) {
                *best = Some(node.hit());
            }
        }
    }

    /// Returns true if the subtree of `idx` may contain a result later than serial `bound`.
    fn promises(&self, idx: u32, asks: &ExtentQuery, bound: u64) -> bool {
        self.nodes.at(idx).is_some_and(|node| {
            let digest = asks.digest(node);
            digest.end > asks.extent.start && digest.first < asks.before && digest.last > bound
        })
    }

    /// Returns a substitute from the subtree of `idx`, which may contain a result. This is the
    /// node with the largest end, which overlaps, if it is before the given serial; else the
    /// earliest node.
    fn substitute(&mut self, idx: u32, asks: &ExtentQuery) -> ExtentSearch {
        let widest = |node: &ExtentNode| asks.digest(node).end;
        if let Some(hit) = self.descend(idx, asks, widest) {
            if hit.serial < asks.before && hit.extent.conflicts(&asks.extent) {
                return ExtentSearch::Conflict(hit);
            }
        }
        let earliest = |node: &ExtentNode| u64::MAX.wrapping_sub(asks.digest(node).first);
        match self.descend(idx, asks, earliest) {
            Some(hit) => ExtentSearch::StandIn(hit),
            None => ExtentSearch::Nothing,
        }
    }

    /// Returns the node in the subtree of `idx` that gives the subtree its largest `figure`;
    /// `None` if the node cannot conflict with the query.
    fn descend(
        &mut self,
        idx: u32,
        asks: &ExtentQuery,
        figure: impl Fn(&ExtentNode) -> u64,
    ) -> Option<ExtentHit> {
        let want = self.nodes.at(idx).map(&figure)?;
        let mut at = idx;
        loop {
            let node = self.visit(at)?;
            let (left, right, hit) = (node.left, node.right, node.hit());
            let counts = asks.extent.writes || hit.extent.writes;
            let has = |child: u32| {
                self.nodes
                    .at(child)
                    .is_some_and(|child| figure(child) == want)
            };
            at = if has(left) {
                left
            } else if has(right) {
                right
            } else {
                return counts.then_some(hit);
            };
        }
    }
}
