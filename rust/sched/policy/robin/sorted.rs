// SPDX-License-Identifier: GPL-2.0-only

//! Store in which the requests of a class are sorted by their ranges, batch by batch.
//!
//! - *Record*: entry of a slab that holds a sorted request. The mark of the request identifies the
//!   record.
//! - *Line*: requests of a class without a record, in the order of arrival, linked through the
//!   memory of the requests.
//! - *Share*: number of records per class when all backlogged classes have the same number.
//!
//! ```text
//!            a record is free, the class has less
//!            than its share and no request in its line
//!  push ──┬──────────────────────────────────────────► sorted ──► pop
//!         │                                              ▲         ▲
//!         └──────► line ──────────── draw ───────────────┘         │
//!                   └───────── no request of the class is sorted ──┘
//! ```
//!
//! A record that becomes free goes to the class with the first turn among the classes with a line.
//! So at the limit no request is lost or declined; fewer requests are sorted at a time, always the
//! requests that are dispatched next.
//!
//! # Order
//!
//! Requests are sorted by batch, then by start of the range, then by end of the range, then by
//! arrival. Offsets on the device are compared without the object; offsets in files are compared
//! within one object.

use super::{
    params::{OffsetType, Sorting},
    store::{BinOwner, BinStore},
    BatchTag, BatchTurn, Bounds,
};
use crate::sched::{
    count::Count,
    heap::{Placed, Sort},
    item::{Cost, Fifo, Item, ItemHandle},
    leftist_heap::{HeapRoot, LeftistForest},
    mem::{Grow, Need, NoMemory},
    slab::{Handle, Slab, SlabNeed},
};
use core::cmp::Ordering;

/// Smallest number of records with memory beside the records in use, as long as the worker keeps
/// up.
const RESERVE: u32 = 64;

/// Sort key of the requests of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    round: u64,
    object: u64,
    start: u64,
    end: u64,
    arrival: u64,
}

impl Sort for Rank {
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Sorted request.
pub struct SortedRequest<I> {
    item: I,
    /// Index of the class.
    class: u32,
}

/// Requests of a class.
///
/// # Invariants
///
/// - `root` has `records` records, all of this class, each with the mark of its item.
/// - Requests in `line` arrived after the requests in `root`, and their mark is twice their round.
pub struct SortedBin<F> {
    root: HeapRoot,
    records: u32,
    line: F,
}

/// Store in which requests are sorted by their ranges.
///
/// # Invariants
///
/// - A class is in `lines` if and only if its line is not empty, with the turn of the oldest
///   request in the line.
/// - `waiting` is the number of requests in all lines.
/// - The forest has memory for every record.
pub struct Sorted<I> {
    records: Slab<SortedRequest<I>>,
    forest: LeftistForest<Rank>,
    lines: Placed<BatchTurn>,
    waiting: u32,
    max: u32,
    /// Number of ranks created.
    arrivals: u64,
    setting: Sorting,
}

impl<I: Item> Sorted<I> {
    /// Returns the sort key of `item` in `round`.
    fn rank(&mut self, item: &I, round: u64) -> Rank {
        let range = item.byte_range();
        let (object, start) = match self.setting.offset_type {
            OffsetType::Physical => (0, range.offset),
            OffsetType::Logical => (range.object, range.logical),
        };
        self.arrivals = self.arrivals.wrapping_add(1);
        Rank {
            round,
            object,
            start,
            end: start.saturating_add(range.length),
            arrival: self.arrivals,
        }
    }

    /// Returns true if there is memory for another record.
    fn has_room(&self) -> bool {
        let entries = self.records.entry_count();
        let capacity = self.records.capacity().min(self.forest.capacity());
        self.records.vacant() > 0 || entries < capacity
    }

    /// Sorts `item` into a bin; returns `item` as an error without memory.
    fn file(
        &mut self,
        at: BinOwner,
        bin: &mut SortedBin<I::Fifo>,
        item: I,
        round: u64,
    ) -> Result<(), I> {
        if !self.has_room() {
            return Err(item);
        }
        let rank = self.rank(&item, round);
        let record = SortedRequest {
            item,
            class: at.idx,
        };
        let handle = self.records.insert(record).map_err(|record| record.item)?;
        if let Some(record) = self.records.get_mut(handle) {
            record.item.set_mark(handle.bits());
        }
        self.forest.create(handle.idx());
        self.forest.push(&mut bin.root, rank, handle.idx());
        bin.records.count(1);
        Ok(())
    }

    /// Removes the record at index `idx` from a bin.
    fn take(&mut self, bin: &mut SortedBin<I::Fifo>, idx: u32) -> Option<(I, BatchTag)> {
        let round = self.forest.key(idx)?.round;
        self.forest.remove(&mut bin.root, idx);
        bin.records = bin.records.saturating_sub(1);
        let record = self.records.remove(idx)?;
        Some((record.item, BatchTag { round, sequence: 0 }))
    }

    /// Appends `item` to the line of a bin.
    fn join(&mut self, at: BinOwner, bin: &mut SortedBin<I::Fifo>, mut item: I, round: u64) {
        item.set_mark(round << 1);
        if bin.line.is_empty() {
            self.lines.set(at.idx, Some(at.turn(round)));
        }
        bin.line.push(item);
        self.waiting.count(1);
    }

    /// Updates the position of a class in `lines` after the removal of an item from its line.
    fn shorten(&mut self, at: BinOwner, bin: &SortedBin<I::Fifo>) {
        self.waiting = self.waiting.saturating_sub(1);
        let front = bin.line.front().map(|item| at.turn(item.mark() >> 1));
        self.lines.set(at.idx, front);
    }
}

impl<I> Grow for Sorted<I> {
    type Need = (
        SlabNeed<SortedRequest<I>>,
        <LeftistForest<Rank> as Grow>::Need,
        <Placed<BatchTurn> as Grow>::Need,
    );
    type Spare = <Self::Need as Need>::Spare;

    fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    fn create(&mut self, idx: u32) {
        self.lines.create(idx);
    }

    /// Returns the need of records for all requests in lines, and a reserve of a quarter, at least
    /// [`RESERVE`].
    fn wants(&self, entries: usize) -> Self::Need {
        let live = self.records.live();
        let bound = self.max.max(live).saturating_add(RESERVE);
        let reserve = RESERVE.max(live / 4).saturating_add(self.waiting);
        let target = live.saturating_add(reserve).min(bound) as usize;
        let target = target.max(self.records.entry_count());
        let extra = target.saturating_sub(self.records.entry_count());
        (
            self.records.wants(extra),
            self.forest.wants(target),
            self.lines.wants(entries),
        )
    }

    fn feed(&mut self, (records, nodes, lines): Self::Spare) -> Self::Spare {
        (
            self.records.feed(records),
            self.forest.feed(nodes),
            self.lines.feed(lines),
        )
    }
}

impl<I: Item> BinStore<I> for Sorted<I> {
    type Setting = Sorting;
    type Bin = SortedBin<I::Fifo>;

    fn new(bounds: Bounds, setting: Sorting) -> Result<Self, NoMemory> {
        let classes = (bounds.classes as usize).saturating_add(1);
        // One beyond the bound for each class.
        let records = classes.saturating_add(bounds.requests as usize);
        Ok(Self {
            records: Slab::new(records)?,
            forest: LeftistForest::new(records)?,
            lines: Placed::new(classes)?,
            waiting: 0,
            max: bounds.requests,
            arrivals: 0,
            setting,
        })
    }

    fn set(&mut self, setting: Sorting) -> Sorting {
        core::mem::replace(&mut self.setting, setting)
    }

    fn takes(&self, cost: Cost) -> bool {
        self.setting.supported.has(cost.direction)
    }

    fn bin() -> SortedBin<I::Fifo> {
        SortedBin {
            root: HeapRoot::EMPTY,
            records: 0,
            line: I::Fifo::new(),
        }
    }

    fn push(&mut self, at: BinOwner, bin: &mut SortedBin<I::Fifo>, mut item: I, tag: BatchTag) {
        let share = self.max.checked_div(at.busy).unwrap_or(self.max);
        let below = self.records.live() < self.max && bin.records < share;
        if bin.line.is_empty() && (bin.records == 0 || below) {
            item = match self.file(at, bin, item, tag.round) {
                Ok(()) => return,
                Err(item) => item,
            };
        }
        self.join(at, bin, item, tag.round);
    }

    #[inline]
    fn front(&self, bin: &SortedBin<I::Fifo>) -> Option<BatchTag> {
        let round = match self.forest.top(bin.root) {
            Some((_, rank)) => rank.round,
            None => bin.line.front()?.mark() >> 1,
        };
        Some(BatchTag { round, sequence: 0 })
    }

    #[inline]
    fn pop(&mut self, at: BinOwner, bin: &mut SortedBin<I::Fifo>) -> Option<(I, BatchTag)> {
        if let Some(idx) = bin.root.top() {
            return self.take(bin, idx);
        }
        let item = bin.line.pop()?;
        self.shorten(at, bin);
        let round = item.mark() >> 1;
        Some((item, BatchTag { round, sequence: 0 }))
    }

    fn remove(
        &mut self,
        at: BinOwner,
        bin: &mut SortedBin<I::Fifo>,
        handle: &I::Handle,
    ) -> Option<(I, BatchTag)> {
        let mark = handle.mark();
        if mark & 1 == 1 {
            let handle = Handle::from_bits(mark);
            self.records.get(handle).filter(|r| r.class == at.idx)?;
            return self.take(bin, handle.idx());
        }
        let item = bin.line.remove(handle)?;
        self.shorten(at, bin);
        let round = mark >> 1;
        Some((item, BatchTag { round, sequence: 0 }))
    }

    #[inline]
    fn refill(&self) -> Option<u32> {
        if self.waiting == 0 || self.records.live() >= self.max || !self.has_room() {
            return None;
        }
        self.lines.top().map(|entry| entry.idx)
    }

    fn draw(&mut self, at: BinOwner, bin: &mut SortedBin<I::Fifo>) {
        if !self.has_room() {
            return;
        }
        let Some(item) = bin.line.pop() else {
            return;
        };
        let round = item.mark() >> 1;
        self.shorten(at, bin);
        if let Err(item) = self.file(at, bin, item, round) {
            // Never happens, because there was room, but the request must not be lost.
            self.join(at, bin, item, round);
        }
    }
}

#[cfg(test)]
mod tests;
