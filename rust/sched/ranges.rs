// SPDX-License-Identifier: GPL-2.0-only

//! Shares as ranges of 32-bit numbers (ThemisIO, SC'23: the segments of statistical tokens).
//!
//! A leaf is an entity; an inner node is a group of entities; the root is the whole service. A node
//! is named by the hash of its path from the root.
//!
//! ```text
//!  reports ──► merged by id ──► without idle nodes ──► 2^32 split top-down ──► table
//! ```
//!
//! A table stores only the start of each range; its end is the next start, or 2^32. Ranges nest:
//! the ranges of the leaves below a node are adjacent.

mod builder;
#[cfg(test)]
mod tests;

use crate::sched::{
    mem::{Block, GrowingList},
    partition::slot_pool::PARTITIONS_MAX,
};

pub use builder::RangeBuilder;

/// Report of one partition about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Hash of the path of the node; not 0.
    pub id: u64,
    /// Hash of the path of the parent; 0 for the root.
    pub parent: u64,
    /// Weight among siblings; 0 counts as 1.
    pub weight: u32,
    /// True for a leaf.
    pub leaf: bool,
    /// True if the leaf has requests, queued or in flight; ignored for an inner node.
    pub active: bool,
    /// Index of the partition; an index of [`PARTITIONS_MAX`] or more counts as the last one.
    pub part: u16,
}

/// Maximum node reports gathered in one lock hold.
pub const BRIEFS: usize = 64;

/// Buffer for node reports.
pub type NodeReports = Block<NodeReport, BRIEFS>;

/// Count of all 32-bit numbers.
const WHOLE: u64 = 1 << 32;

/// Range of the numbers that select one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRange {
    /// First number.
    pub lo: u32,
    /// One above the last number, at most 2^32.
    pub end: u64,
}

impl LeafRange {
    /// Returns the length of the range.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(u64::from(self.lo))
    }
}

#[derive(Clone, Copy, Default)]
struct RangeEntry {
    id: u64,
    lo: u32,
}

/// Ranges of leaves; immutable once built.
///
/// # Invariants
///
/// Starts increase strictly, and the first start is 0. So every leaf has its own range, which is
/// not empty, and the ranges together cover 2^32 numbers. `by_id` has the indices of all entries,
/// ordered by id.
pub struct RangeTable {
    entries: GrowingList<RangeEntry>,
    by_id: GrowingList<u32>,
}

impl RangeTable {
    /// Returns the number of leaves.
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Returns true if there are no leaves.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the leaf whose range contains `draw`; `None` if the table is empty. O(log n).
    pub fn find(&self, draw: u32) -> Option<u64> {
        let entries = self.entries.as_slice();
        let above = entries.partition_point(|entry| entry.lo <= draw);
        Some(entries.get(above.checked_sub(1)?)?.id)
    }

    /// Returns the range of the leaf `id`; `None` if the leaf was not active. O(log n).
    pub fn range_of(&self, id: u64) -> Option<LeafRange> {
        let entries = self.entries.as_slice();
        let by_id = self.by_id.as_slice();
        let id_at = |index: &u32| entries.get(*index as usize).map_or(0, |entry| entry.id);
        let found = by_id.binary_search_by(|index| id_at(index).cmp(&id)).ok()?;
        let index = *by_id.get(found)? as usize;
        let lo = entries.get(index)?.lo;
        let next = entries.get(index.saturating_add(1));
        let end = next.map_or(WHOLE, |next| u64::from(next.lo));
        Some(LeafRange { lo, end })
    }
}

/// Shares that a service publishes.
pub struct PublishedRanges {
    /// Ranges of all active leaves.
    pub table: RangeTable,
    /// Share of each partition, of 2^32: the sum of the ranges of the leaves, each split evenly
    /// among the partitions where the leaf is active. All 0 if the table is empty.
    pub by_part: [u64; PARTITIONS_MAX],
}
