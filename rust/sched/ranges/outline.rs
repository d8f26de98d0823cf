// SPDX-License-Identifier: GPL-2.0-only

//! From what partitions tell to ranges.
//!
//! # Vocabulary
//!
//! - *Live*: a leaf that is active, or an inner node with a live leaf below it.
//! - *Share*: how many of the numbers of its parent a node gets.
//! - *Running floor*: child `i` has the numbers from `floor(before * len / total)` to just below
//!   `floor(after * len / total)` of the `len` numbers of its parent. `before` and `after` are the
//!   sums of the weights without and with child `i`, `total` is the sum of all. So the ranges of
//!   siblings cover that of their parent without a gap.
//!
//! # How far shares are from exact ones
//!
//! The exact range of a leaf is 2^32 times the product, over all levels, of its ancestors' weights
//! divided by the sum of the weights of their live siblings: an element of the product of the
//! transition matrices of the levels (ThemisIO, SC'23). At each level the length of a range is off by
//! less than one number, 2^-32 of the whole, and an error above is only scaled down below. So a leaf
//! is less than its depth away from the exact range, unless somewhere above it a sibling's share was
//! less than one number for each live leaf there. Then each of them gets one first and only the rest
//! goes by weight, which takes at most one number for each live leaf from the others.

use super::{Brief, Entry, Published, Table, PARTS, WHOLE};
use crate::sched::{
    mem::{List, NoMemory},
    sort::{merge_sorted, radix},
};

/// Index of the root among the nodes.
const ROOT: u32 = 0;

/// Levels of a tree at most; what is deeper, or in a circle, has no range.
const LEVELS: u32 = 32;

/// A node, of all partitions.
#[derive(Clone, Copy)]
struct Node {
    id: u64,
    parent: u64,
    weight: u32,
    leaf: bool,
    /// Partitions where it is active, as bits.
    parts: u64,
    /// Index of its parent.
    up: u32,
    /// Live leaves from it down.
    leaves: u32,
    /// Index of the first entry of those.
    first: u32,
    /// First number.
    lo: u32,
    /// How many numbers; 0: none were given.
    len: u64,
}

impl Node {
    /// The root.
    const ROOT: Self = Self {
        id: 0,
        parent: 0,
        weight: 1,
        leaf: false,
        parts: 0,
        up: ROOT,
        leaves: 0,
        first: 0,
        lo: 0,
        len: 0,
    };

    fn new(brief: &Brief) -> Self {
        let bit = u32::from(brief.part).min(const { PARTS as u32 - 1 });
        Self {
            id: brief.id,
            parent: brief.parent,
            weight: brief.weight.max(1),
            leaf: brief.leaf,
            parts: u64::from(brief.active).wrapping_shl(bit),
            ..Self::ROOT
        }
    }

    /// Adds what another partition tells.
    fn add(&mut self, other: &Self) {
        self.weight = self.weight.max(other.weight);
        self.leaf &= other.leaf;
        self.parts |= other.parts;
    }

    /// Whether it is not a leaf that is idle.
    const fn may_live(&self) -> bool {
        !self.leaf || self.parts != 0
    }

    /// Adds its range to what partitions are due, the same to each where it is active; what does not divide
    /// goes to the first ones.
    fn share_out(&self, by_part: &mut [u64; PARTS]) {
        let count = u64::from(self.parts.count_ones());
        let share = self.len.checked_div(count).unwrap_or(0);
        let mut rest = self.len.checked_rem(count).unwrap_or(0);
        let mut parts = self.parts;
        while parts != 0 {
            if let Some(due) = by_part.get_mut(parts.trailing_zeros() as usize) {
                *due = due.saturating_add(share).saturating_add(rest.min(1));
            }
            rest = rest.saturating_sub(1);
            parts &= parts.wrapping_sub(1);
        }
    }
}

/// The briefs of all partitions, and memory to work with.
///
/// # Context
///
/// Made and used where sleeping is allowed.
pub struct Outline {
    briefs: List<Brief>,
    spare: List<Brief>,
    /// The root, then all nodes in the order of their ids.
    nodes: List<Node>,
    /// Identifier and index of each inner node, in the order of the identifiers.
    inner: List<(u64, u32)>,
    /// Level and parent, as one key, and index of each node that may be live, in that order: parents come
    /// before their children, and siblings are side by side in the order of their ids.
    order: List<(u64, u32)>,
    spare_order: List<(u64, u32)>,
}

impl Outline {
    /// No briefs; does not allocate.
    pub const fn new() -> Self {
        Self {
            briefs: List::new(),
            spare: List::new(),
            nodes: List::new(),
            inner: List::new(),
            order: List::new(),
            spare_order: List::new(),
        }
    }

    /// Appends briefs, of any partition and in any order; sleeps.
    /// After an error a part of the briefs may have been appended.
    pub fn extend(&mut self, briefs: &[Brief]) -> Result<(), NoMemory> {
        briefs.iter().try_for_each(|brief| self.briefs.push(*brief))
    }

    /// Removes all briefs; their memory stays.
    pub fn clear(&mut self) {
        self.briefs.truncate(0);
    }

    /// The ranges of all leaves that are active; sleeps. O(n).
    ///
    /// Briefs of one id are one node: it is active if any of them is, an inner node if any of them is, and
    /// has the largest of their weights. A node whose parent is not an inner node of the outline hangs below
    /// the root. The order of siblings is that of their ids, so it stays the same from table to table.
    pub fn build(&mut self) -> Result<Published, NoMemory> {
        self.merge()?;
        self.link()?;
        self.count();
        self.split();
        self.publish()
    }

    /// Makes nodes of briefs.
    fn merge(&mut self) -> Result<(), NoMemory> {
        radix(&mut self.briefs, &mut self.spare, |brief| brief.id)?;
        self.nodes.truncate(0);
        // A node with the identifier of the root becomes part of the root.
        self.nodes.push(Node::ROOT)?;
        for brief in self.briefs.as_slice() {
            self.nodes.push(Node::new(brief))?;
        }
        merge_sorted(&mut self.nodes, |a, b| a.id == b.id, Node::add);
        Ok(())
    }

    /// Finds the parents, and the children of each that are not idle leaves.
    fn link(&mut self) -> Result<(), NoMemory> {
        self.inner.truncate(0);
        for (index, node) in (0u32..).zip(self.nodes.as_slice()) {
            if !node.leaf {
                self.inner.push((node.id, index))?;
            }
        }
        let inner = self.inner.as_slice();
        for node in self.nodes.as_mut_slice() {
            let found = inner.binary_search_by(|(id, _)| id.cmp(&node.parent));
            let found = found.ok().and_then(|place| inner.get(place));
            node.up = found.map_or(ROOT, |(_, index)| *index);
            node.leaves = u32::from(node.leaf && node.parts != 0);
        }
        self.arrange()
    }

    /// Brings the nodes that may be live into the order of their levels and parents.
    fn arrange(&mut self) -> Result<(), NoMemory> {
        let nodes = self.nodes.as_slice();
        let up = |index: u32| nodes.get(index as usize).map_or(ROOT, |node| node.up);
        self.order.truncate(0);
        for (index, node) in (0u32..).zip(nodes).skip(1) {
            let (mut level, mut at) = (1u32, node.up);
            while at != ROOT && level < LEVELS {
                level = level.wrapping_add(1);
                at = up(at);
            }
            if at == ROOT && node.may_live() {
                let key = u64::from(level).wrapping_shl(u32::BITS) | u64::from(node.up);
                self.order.push((key, index))?;
            }
        }
        radix(&mut self.order, &mut self.spare_order, |(key, _)| *key)
    }

    /// Counts the live leaves of each node, from the bottom up.
    fn count(&mut self) {
        let nodes = self.nodes.as_mut_slice();
        for &(_, index) in self.order.as_slice().iter().rev() {
            let node = nodes.get(index as usize);
            let (up, leaves) = node.map_or((ROOT, 0), |node| (node.up, node.leaves));
            if let Some(parent) = nodes.get_mut(up as usize) {
                parent.leaves = parent.leaves.wrapping_add(leaves);
            }
        }
    }

    /// Gives numbers to each node, from the root down.
    fn split(&mut self) {
        let nodes = self.nodes.as_mut_slice();
        if let Some(root) = nodes.first_mut() {
            root.len = WHOLE;
        }
        for kids in self.order.as_slice().chunk_by(|a, b| a.0 == b.0) {
            // The low half of the key.
            let parent = kids.first().map_or(ROOT, |(key, _)| *key as u32);
            let Some(parent) = nodes.get(parent as usize).copied() else {
                continue;
            };
            // A second round with one number for each leaf first, if a child got fewer than that.
            if parent.leaves > 0 && !apportion(nodes, kids, &parent, 0) {
                apportion(nodes, kids, &parent, parent.leaves);
            }
        }
    }

    /// Copies what was found.
    fn publish(&self) -> Result<Published, NoMemory> {
        let nodes = self.nodes.as_slice();
        let total = nodes.first().map_or(0, |root| root.leaves);
        let mut entries = List::with_capacity(total as usize)?;
        let mut by_id = List::with_capacity(total as usize)?;
        let mut by_part = [0u64; PARTS];
        for _ in 0..total {
            entries.push(Entry::default())?;
        }
        for node in nodes.iter().filter(|node| node.leaf && node.len > 0) {
            if let Some(entry) = entries.as_mut_slice().get_mut(node.first as usize) {
                *entry = Entry {
                    id: node.id,
                    lo: node.lo,
                };
            }
            by_id.push(node.first)?;
            node.share_out(&mut by_part);
        }
        Ok(Published {
            table: Table { entries, by_id },
            by_part,
        })
    }
}

/// Splits the numbers of `parent` among the live ones of `kids`, side by side: `base` of them one for
/// each live leaf, the others by weight, at running floors. `base` is 0 or the number of live leaves.
/// Returns whether each child got at least one number for each live leaf.
///
/// `parent` has at most 2^32 numbers and a weight is below 2^32, so that their product takes 64 bits:
/// what rounding drops is carried to the next child, so that the running sum is never multiplied.
fn apportion(nodes: &mut [Node], kids: &[(u64, u32)], parent: &Node, base: u32) -> bool {
    let live = |node: &&Node| node.leaves > 0;
    let weights = kids
        .iter()
        .filter_map(|&(_, kid)| nodes.get(kid as usize).filter(live));
    let total = weights.fold(0u64, |sum, node| sum.saturating_add(node.weight.into()));
    let each = u64::from(base > 0);
    let whole = parent.len.saturating_sub(base.into());
    let (mut lo, mut first) = (u64::from(parent.lo), parent.first);
    let (mut rest, mut enough) = (0u64, true);
    for &(_, kid) in kids {
        let Some(node) = nodes.get_mut(kid as usize).filter(|node| node.leaves > 0) else {
            continue;
        };
        let product = u64::from(node.weight).wrapping_mul(whole);
        // A live one has a weight, so the sum is not 0.
        let share = product.checked_div(total).unwrap_or(0);
        rest = rest.saturating_add(product.checked_rem(total).unwrap_or(0));
        let carry = u64::from(rest >= total);
        rest = rest.saturating_sub(total.wrapping_mul(carry));
        node.len = each
            .wrapping_mul(node.leaves.into())
            .saturating_add(share)
            .saturating_add(carry);
        // Below 2^32 if each got at least one.
        node.lo = lo as u32;
        node.first = first;
        lo = lo.wrapping_add(node.len);
        first = first.wrapping_add(node.leaves);
        enough &= node.len >= u64::from(node.leaves);
    }
    enough
}
