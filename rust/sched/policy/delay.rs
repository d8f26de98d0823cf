// SPDX-License-Identifier: GPL-2.0-only

//! Delay policy: requests are delayed for a random time, to test programs against a slow server.
//!
//! - *Due*: end of a request's delay, monotonic ns.
//! - *Record*: table entry that orders a delayed request by [`DueKey`]; at most `buffer_max` of
//!   them.
//! - *Line*: delayed requests without a record, in the order of arrival; the first request of the
//!   line gets the next record.
//!
//! ```text
//!             draw: is delayed                        due
//!  (request) ─────────────────► record ──────────────────────► in flight ────► (completed)
//!      │                  │       ▲ a record is free     ▲
//!      │                  └────► line ───────────────────┘ due, and the part has no record
//!      └── declined: the fallback dispatches the request
//! ```
//!
//! Whether a request is delayed is drawn once, when the request is queued. The delay is evenly
//! distributed from the shortest to the longest delay, both included, in nanoseconds. A request
//! that gets a record late keeps its due time, but the requests before it in the line may delay it
//! further. Requests due at the same time are dispatched in the order of arrival. A part that is
//! drained ignores due times.

use crate::sched::{
    attr::Attrs,
    class::ClassId,
    count::Count,
    heap::Sort,
    item::{Cost, Fifo, Item, ItemHandle},
    leftist_heap::{HeapRoot, LeftistForest},
    mem::{self, Grow, Need as _, NoMemory},
    policy::{
        withheld_time::withheld, BypassOutcome, BypassReason, Decision, Grant, Part, PartView,
    },
    rng::Rng,
    slab::{Handle, Slab, SlabNeed},
};
use core::cmp::Ordering;

mod config;
pub mod params;

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as PolicyData, Nothing as Overseer, Nothing as Shared,
};
pub use config::{Config, Setting, Update};
pub use params::{Tunables, PARAMETERS};

/// Number of records with memory, beside the records in use.
const RESERVE: usize = 256;

/// Largest number of requests of the line that get a record in one call; twice the number of
/// arrivals in a call.
const STEP: u32 = 2;

/// Largest number of requests of the line that get a record when memory arrives.
const BATCH: u32 = 64;

/// The only class.
const CLASS: ClassId = ClassId::new(0, 1);

/// Sort key of delayed requests: due time, then arrival.
#[derive(Clone, Copy, Debug, Default)]
pub struct DueKey {
    due: u64,
    turn: u64,
}

impl Sort for DueKey {
    fn compare(&self, other: &Self) -> Ordering {
        (self.due, self.turn).cmp(&(other.due, other.turn))
    }
}

/// Memory that a part needs.
type Need<I> = (SlabNeed<I>, <LeftistForest<DueKey> as Grow>::Need);

/// Memory for a part.
type Spare<I> = <Need<I> as mem::Need>::Spare;

/// Delayed requests of one head.
///
/// # Invariants
///
/// - Every occupied entry of `records` is in `queue`, and there are at most `max` of them.
/// - The mark of a request with a record is its handle, which is odd. The mark of a request in
///   `line` is its due time, rounded up to an even number.
pub struct State<I: Item> {
    records: Slab<I>,
    forest: LeftistForest<DueKey>,
    queue: HeapRoot,
    line: I::Fifo,
    setting: Setting,
    rng: Rng,
    max: usize,
    turn: u64,
    overflow: u64,
}

impl<I: Item> State<I> {
    /// Creates a part without requests, with a first reserve of memory; may sleep.
    pub fn new(
        config: &Config,
        seed: u64,
        _shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let mut state = Self::without_memory(config, seed)?;
        let spare = state.need().allocate()?;
        state.grow(spare);
        Ok(state)
    }

    /// Creates a part without requests and without memory for records.
    fn without_memory(config: &Config, seed: u64) -> core::result::Result<Self, NoMemory> {
        let max = config.tunables.buffer_max.get() as usize;
        Ok(Self {
            records: Slab::new(max)?,
            forest: LeftistForest::new(max)?,
            queue: HeapRoot::EMPTY,
            line: I::Fifo::new(),
            setting: config.tunables.setting(config.priority),
            rng: Rng::new(seed),
            max,
            turn: 0,
            overflow: 0,
        })
    }

    /// Returns true if there is room for another record.
    fn has_room(&self) -> bool {
        let entries = self.records.entry_count();
        let vacant = self.records.vacant() > 0;
        let new = entries < self.max
            && entries < self.forest.capacity()
            && self.records.wants(1).is_empty();
        vacant || new
    }

    /// Creates a record of `item`, which is due at `due`; there must be room.
    fn record(&mut self, item: I, due: u64) {
        let handle = match self.records.insert(item) {
            Ok(handle) => handle,
            Err(item) => return self.line.push(item),
        };
        let idx = handle.idx();
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        self.forest.create(idx);
        // INVARIANT: the record joins the queue, and the mark is its handle.
        self.forest.push(&mut self.queue, DueKey { due, turn }, idx);
        if let Some(item) = self.records.at_mut(idx) {
            item.set_mark(handle.bits());
        }
    }

    /// Removes the request with the record at index `idx`.
    fn take(&mut self, idx: u32) -> Option<I> {
        self.forest.remove(&mut self.queue, idx);
        self.records.remove(idx)
    }

    /// Creates records for at most `most` requests of the line.
    fn refill(&mut self, most: u32) {
        for _ in 0..most {
            if self.line.is_empty() || !self.has_room() {
                return;
            }
            if let Some(item) = self.line.pop() {
                let due = item.mark();
                self.record(item, due);
            }
        }
    }

    /// Returns the due time of the request that is dispatched next, and the index of its record, if
    /// there is one.
    fn first(&self) -> Option<(u64, Option<u32>)> {
        match self.forest.top(self.queue) {
            Some((idx, key)) => Some((key.due, Some(idx))),
            None => self.line.front().map(|item| (item.mark(), None)),
        }
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need<I>;
    type Spare = Spare<I>;
    type Shared = Shared;
    type Update = Update;

    fn classify(&mut self, _attrs: &Attrs, _now: u64) -> ClassId {
        CLASS
    }

    fn is_live(&self, class: ClassId) -> bool {
        class == CLASS
    }

    /// Queues a request that is to be delayed; declines other requests.
    fn enqueue(&mut self, mut item: I, _class: ClassId, now: u64) -> core::result::Result<(), I> {
        let Some(delay) = self.setting.draw(&mut self.rng) else {
            return Err(item);
        };
        let due = now.saturating_add(delay);
        self.refill(STEP);
        if self.line.is_empty() && self.has_room() {
            self.record(item, due);
        } else {
            self.overflow.count(1);
            // INVARIANT: even, and not before the request is due.
            item.set_mark(due.saturating_add(1) & !1);
            self.line.push(item);
        }
        Ok(())
    }

    fn dequeue(&mut self, _class: ClassId, handle: &I::Handle, _now: u64) -> Option<I> {
        let mark = handle.mark();
        let item = if mark & 1 == 0 {
            self.line.remove(handle)
        } else {
            let handle = Handle::from_bits(mark);
            self.records.get(handle)?;
            self.take(handle.idx())
        };
        self.refill(STEP);
        item
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        let (due, _) = self.first()?;
        (due > now).then_some(due)
    }

    fn get(&mut self, view: &PartView<'_>) -> Decision<(I, Grant)> {
        let Some((due, idx)) = self.first() else {
            return Decision::Empty;
        };
        if due > view.now && !view.force {
            return Decision::Throttled { until: due };
        }
        let item = match idx {
            Some(idx) => self.take(idx),
            None => self.line.pop(),
        };
        self.refill(STEP);
        match item {
            Some(item) => {
                let withheld = withheld(item.arrival(), due.min(view.now));
                Decision::Item((item, Grant::of(CLASS).after(withheld)))
            }
            None => Decision::Empty,
        }
    }

    /// Refuses requests without queueing while any request may be delayed, because delays are drawn
    /// once, when a request is queued.
    fn pass(
        &mut self,
        class: ClassId,
        _cost: Cost,
        way: BypassReason,
        _now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        if class != CLASS {
            BypassOutcome::Stale
        } else if way != BypassReason::Opportunity || !self.setting.delays() {
            BypassOutcome::Counted
        } else {
            BypassOutcome::Refused
        }
    }

    fn stop(&mut self, _grant: &Grant, _cost: Cost, _now: u64) -> bool {
        false
    }

    fn len(&self) -> u32 {
        self.records.live().saturating_add(self.line.len())
    }

    fn need(&self) -> Need<I> {
        let live = self.len() as usize;
        let entries = live.saturating_add(RESERVE).min(self.max);
        let missing = entries.saturating_sub(self.records.entry_count());
        (self.records.wants(missing), self.forest.wants(entries))
    }

    fn grow(&mut self, (records, nodes): Spare<I>) -> Spare<I> {
        let spare = (self.records.feed(records), self.forest.feed(nodes));
        self.refill(BATCH);
        spare
    }

    fn age(&mut self, _now: u64, max: u32) -> bool {
        self.refill(max.min(BATCH));
        false
    }

    /// Applies `update` to later requests; queued requests keep their due times.
    fn update(&mut self, update: Update, _now: u64) -> Update {
        Update(core::mem::replace(&mut self.setting, update.0))
    }

    /// Returns the number of requests without room for a record at their arrival.
    fn overflow(&self) -> u64 {
        self.overflow
    }
}

#[cfg(test)]
mod tests;
