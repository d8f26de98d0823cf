// SPDX-License-Identifier: GPL-2.0-only

//! Computation of ranges from the node reports of partitions.
//!
//! # Terms
//!
//! - *Live*: an active leaf, or an inner node with a live leaf below.
//! - *Share*: count of numbers that a node gets of the range of its parent.
//! - *Running floor*: child `i` gets the numbers from `floor(before * len / total)` to just below
//!   `floor(after * len / total)`. `len` is the length of the range of its parent. `before` and
//!   `after` are the sums of the weights without and with child `i`; `total` is the sum of all. So
//!   the ranges of siblings cover the range of their parent without a gap.
//!
//! # Rounding error of shares
//!
//! The exact range of a leaf is 2^32 times a product over all levels. The factor of a level is the
//! weight of the ancestor divided by the sum of the weights of its live siblings. This is an
//! element of the product of the transition matrices of the levels (ThemisIO, SC'23). Each level
//! adds an error of less than one number, 2^-32 of the whole, and scales down the error of the
//! levels above. So a leaf deviates from the exact range by less than its depth. There is one
//! exception: the share of a node above the leaf may be less than one number per live leaf. Then
//! each live leaf first gets one number and only the rest is split by weight. This takes at most
//! one number per live leaf from the others.

use super::{NodeReport, PublishedRanges, RangeEntry, RangeTable, PARTITIONS_MAX, WHOLE};
use crate::sched::{
    mem::{GrowingList, NoMemory},
    sort::{merge_sorted, radix},
};

/// Index of the root in `nodes`.
const ROOT: u32 = 0;

/// Maximum levels of a tree; a deeper node, or a node in a cycle, gets no range.
const LEVELS: u32 = 32;

/// Node, merged from the reports of all partitions.
#[derive(Clone, Copy)]
struct BuilderNode {
    id: u64,
    parent: u64,
    weight: u32,
    leaf: bool,
    /// Partitions where the node is active, as bits.
    parts: u64,
    /// Index of the parent.
    up: u32,
    /// Live leaves of the subtree.
    leaves: u32,
    /// Table index of the first of these leaves.
    first: u32,
    /// First number of the range.
    lo: u32,
    /// Length of the range; 0 if none is assigned.
    len: u64,
}

impl BuilderNode {
    /// Root of the tree.
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

    fn new(report: &NodeReport) -> Self {
        let bit = u32::from(report.part).min(const { PARTITIONS_MAX as u32 - 1 });
        Self {
            id: report.id,
            parent: report.parent,
            weight: report.weight.max(1),
            leaf: report.leaf,
            parts: u64::from(report.active).wrapping_shl(bit),
            ..Self::ROOT
        }
    }

    /// Merges the node of another partition.
    fn add(&mut self, other: &Self) {
        self.weight = self.weight.max(other.weight);
        self.leaf &= other.leaf;
        self.parts |= other.parts;
    }

    /// Returns true unless the node is an idle leaf.
    const fn may_live(&self) -> bool {
        !self.leaf || self.parts != 0
    }

    /// Adds the range of the leaf to the shares of the partitions where the leaf is active, in
    /// equal parts. The first partitions get the remainder.
    fn share_out(&self, by_part: &mut [u64; PARTITIONS_MAX]) {
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

/// Node reports of all partitions, and working memory.
///
/// # Context
///
/// Created and used in a context that may sleep.
pub struct RangeBuilder {
    reports: GrowingList<NodeReport>,
    spare: GrowingList<NodeReport>,
    /// Root, then all nodes ordered by id.
    nodes: GrowingList<BuilderNode>,
    /// Id and index of each inner node, ordered by id.
    inner: GrowingList<(u64, u32)>,
    /// Key, made of level and parent, and index of each node that may be live, ordered by key.
    /// Parents precede their children, and siblings are adjacent, ordered by id.
    order: GrowingList<(u64, u32)>,
    spare_order: GrowingList<(u64, u32)>,
}

impl RangeBuilder {
    /// Creates a builder without reports; does not allocate.
    pub const fn new() -> Self {
        Self {
            reports: GrowingList::new(),
            spare: GrowingList::new(),
            nodes: GrowingList::new(),
            inner: GrowingList::new(),
            order: GrowingList::new(),
            spare_order: GrowingList::new(),
        }
    }

    /// Appends reports of any partition in any order; sleeps. On failure a part of the reports may
    /// have been appended.
    pub fn extend(&mut self, reports: &[NodeReport]) -> Result<(), NoMemory> {
        reports
            .iter()
            .try_for_each(|report| self.reports.push(*report))
    }

    /// Removes all reports and keeps their memory.
    pub fn clear(&mut self) {
        self.reports.truncate(0);
    }

    /// Computes the ranges of all active leaves; sleeps. O(n).
    ///
    /// Node reports of one id form one node. The node is active if any report is active, an inner
    /// node if any report is, and has the largest weight. A node whose parent is not an inner node
    /// of the tree becomes a child of the root. Siblings are ordered by id, so their order is the
    /// same in all tables.
    pub fn build(&mut self) -> Result<PublishedRanges, NoMemory> {
        self.merge()?;
        self.link()?;
        self.count();
        self.split();
        self.publish()
    }

    /// Creates the nodes from the reports.
    fn merge(&mut self) -> Result<(), NoMemory> {
        radix(&mut self.reports, &mut self.spare, |report| report.id)?;
        self.nodes.truncate(0);
        // A node with the id of the root is merged into the root.
        self.nodes.push(BuilderNode::ROOT)?;
        for report in self.reports.as_slice() {
            self.nodes.push(BuilderNode::new(report))?;
        }
        merge_sorted(&mut self.nodes, |a, b| a.id == b.id, BuilderNode::add);
        Ok(())
    }

    /// Finds the parent of each node and orders the nodes that may be live.
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

    /// Sorts the nodes that may be live by level and parent.
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

    /// Counts the live leaves of each node, bottom-up.
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

    /// Assigns a range to each node, top-down.
    fn split(&mut self) {
        let nodes = self.nodes.as_mut_slice();
        if let Some(root) = nodes.first_mut() {
            root.len = WHOLE;
        }
        for kids in self.order.as_slice().chunk_by(|a, b| a.0 == b.0) {
            // Low half of the key.
            let parent = kids.first().map_or(ROOT, |(key, _)| *key as u32);
            let Some(parent) = nodes.get(parent as usize).copied() else {
                continue;
            };
            // If a child got less than one number per leaf, repeats the split with one number
            // reserved for each leaf.
            if parent.leaves > 0 && !apportion(nodes, kids, &parent, 0) {
                apportion(nodes, kids, &parent, parent.leaves);
            }
        }
    }

    /// Builds the tables to publish.
    fn publish(&self) -> Result<PublishedRanges, NoMemory> {
        let nodes = self.nodes.as_slice();
        let total = nodes.first().map_or(0, |root| root.leaves);
        let mut entries = GrowingList::with_capacity(total as usize)?;
        let mut by_id = GrowingList::with_capacity(total as usize)?;
        let mut by_part = [0u64; PARTITIONS_MAX];
        for _ in 0..total {
            entries.push(RangeEntry::default())?;
        }
        for node in nodes.iter().filter(|node| node.leaf && node.len > 0) {
            if let Some(entry) = entries.as_mut_slice().get_mut(node.first as usize) {
                *entry = RangeEntry {
                    id: node.id,
                    lo: node.lo,
                };
            }
            by_id.push(node.first)?;
            node.share_out(&mut by_part);
        }
        Ok(PublishedRanges {
            table: RangeTable { entries, by_id },
            by_part,
        })
    }
}

/// Splits the range of `parent` among the live nodes of `kids` into adjacent ranges. `base` numbers
/// are assigned as one per live leaf, the others by weight at running floors. `base` is 0 or the
/// number of live leaves. Returns true if each child got at least one number per live leaf.
///
/// `parent` has at most 2^32 numbers and a weight is below 2^32, so their product fits into 64
/// bits. The remainder of each division is carried to the next child, so the running sum is never
/// multiplied.
fn apportion(
    nodes: &mut [BuilderNode],
    kids: &[(u64, u32)],
    parent: &BuilderNode,
    base: u32,
) -> bool {
    let live = |node: &&BuilderNode| node.leaves > 0;
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
        // A live node has a weight, so the sum is not 0.
        let share = product.checked_div(total).unwrap_or(0);
        rest = rest.saturating_add(product.checked_rem(total).unwrap_or(0));
        let carry = u64::from(rest >= total);
        rest = rest.saturating_sub(total.wrapping_mul(carry));
        node.len = each
            .wrapping_mul(node.leaves.into())
            .saturating_add(share)
            .saturating_add(carry);
        // Below 2^32 if each leaf got at least one number.
        node.lo = lo as u32;
        node.first = first;
        lo = lo.wrapping_add(node.len);
        first = first.wrapping_add(node.leaves);
        enough &= node.len >= u64::from(node.leaves);
    }
    enough
}
