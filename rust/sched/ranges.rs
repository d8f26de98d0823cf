// SPDX-License-Identifier: GPL-2.0-only

//! Shares as ranges of 32-bit numbers (ThemisIO, SC'23: the segments of statistical tokens).
//!
//! A node is an entity, a leaf, or a group of entities, an inner node; the root is above all. It is named by
//! the hash of its path from the root.
//!
//! ```text
//!  briefs ──► merged by id ──► without what is idle ──► 2^32 split from the root down ──► table
//! ```
//!
//! A table stores the starts only; an end is the next start, or 2^32. Ranges nest: the leaves below a node
//! are side by side.

mod outline;
#[cfg(test)]
mod tests;

use crate::sched::mem::{Block, List};

pub use outline::Outline;

/// What one partition tells about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The node's path, hashed; not 0.
    pub id: u64,
    /// The path of the node above it; 0 for the root.
    pub parent: u64,
    /// Its weight among its siblings; 0 counts as 1.
    pub weight: u32,
    /// Whether it is a leaf.
    pub leaf: bool,
    /// Whether it has requests, queued or in service; not looked at for an inner node.
    pub active: bool,
    /// The partition, below [`PARTS`]; what is above counts as the last one.
    pub part: u16,
}

/// Briefs that one lock hold may gather.
pub const BRIEFS: usize = 64;

/// A buffer for briefs.
pub type BriefBuf = Block<Brief, BRIEFS>;

/// Partitions that shares are told apart for.
pub const PARTS: usize = 64;

/// All numbers of 32 bits.
const WHOLE: u64 = 1 << 32;

/// The numbers that draw one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First number.
    pub lo: u32,
    /// One above the last number, at most 2^32.
    pub end: u64,
}

impl Range {
    /// How many numbers there are.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(u64::from(self.lo))
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    id: u64,
    lo: u32,
}

/// Ranges of leaves; immutable once built.
///
/// # Invariants
///
/// Starts rise strictly, and the first one is 0: every leaf has a range of its own that is not empty, and
/// together they are 2^32 numbers. `by_id` is the indices of all entries, in the order of their ids.
pub struct Table {
    entries: List<Entry>,
    by_id: List<u32>,
}

impl Table {
    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The leaf whose range holds `draw`; none if the table is empty. O(log n).
    pub fn find(&self, draw: u32) -> Option<u64> {
        let entries = self.entries.as_slice();
        let above = entries.partition_point(|entry| entry.lo <= draw);
        Some(entries.get(above.checked_sub(1)?)?.id)
    }

    /// The range of the leaf `id`; none if it was not active. O(log n).
    pub fn range_of(&self, id: u64) -> Option<Range> {
        let entries = self.entries.as_slice();
        let by_id = self.by_id.as_slice();
        let id_at = |index: &u32| entries.get(*index as usize).map_or(0, |entry| entry.id);
        let found = by_id.binary_search_by(|index| id_at(index).cmp(&id)).ok()?;
        let index = *by_id.get(found)? as usize;
        let lo = entries.get(index)?.lo;
        let next = entries.get(index.saturating_add(1));
        let end = next.map_or(WHOLE, |next| u64::from(next.lo));
        Some(Range { lo, end })
    }
}

/// What a service publishes.
pub struct Published {
    /// The ranges of all leaves that are active.
    pub table: Table,
    /// Of 2^32, what each partition is due: the sum over the leaves of their ranges, each split evenly
    /// among the partitions where the leaf is active. All 0 if the table is empty.
    pub by_part: [u64; PARTS],
}
