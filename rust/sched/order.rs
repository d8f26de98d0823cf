// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests: which of them have to end before another one may start.
//!
//! # Vocabulary
//!
//! - *Serial*: the number of a record in the order of arrival.
//! - *Predecessor*: an earlier request that has to end before this one starts.
//! - *Blocked*: some predecessor has not ended. The request waits here, and no policy knows of it.
//! - *Owner*: who holds the table, the heads and the lock: a partition.
//! - *Overflowed*: it waits for a record, in front-end memory, behind all that overflowed before it.
//! - *Promoted*: it is to be served from the high-priority head, and so is all that it waits for.
//! - *Forced*: it must not be withheld, nor anything that it waits for: it goes down without a slot.
//! - *Chase*: the work of telling all predecessors of a request that it was promoted or forced.
//!
//! # Life of a request
//!
//! ```text
//!            enter: Full   overflowed ──────────────────┐
//!          ┌─────────────▶ (in a FIFO)                  │ next: a record is free
//!          │                                            ▼
//!  arrived ┼─ enter: Blocked, block ───────────────▶ blocked
//!          │                                            │ next: all predecessors have ended
//!          │                                            ▼ (Release)
//!          └─ enter: Free ─────────────────────────▶ with its owner ──── running ───▶ running ── finish ──▶ ended
//!                                                     │    ▲                             ▲
//!                                              queued │    │ next (Move: promoted;       │ running
//!                                                     ▼    │       Force: forced)        │
//!                                                    in a head ──────────────────────────┘
//! ```
//!
//! # Order
//!
//! A predecessor has always the smaller serial, so there is no cycle. A request is handed to a policy only after
//! all its predecessors have ended, so whatever a policy does, what is served is a linear extension.
//!
//! A blocked request waits for one predecessor at a time, the latest there is; when that has ended it is looked
//! at again. With k predecessors it is looked at 1 + k times at most, at O(log n) each.
//!
//! A promoted request tells all its predecessors, and they tell theirs, one by one ([`Order::next`]). It does not
//! tell those that conflict with a write which it has told: they are told by that.
//!
//! # Context
//!
//! All but [`Order::new`] and [`OrderNeed::allocate`] run under the partition's lock: nothing allocates, and each
//! call costs O(log n) at most.

use crate::sched::{
    attr::{Attrs, Priority},
    head::Ticket,
    item::{Fifo, Item},
    mem::{Need, NoMemory},
    policy::params::{choice, number},
    slab::{Handle, List, Slab, SlabNeed, NONE},
};

mod record;
mod relation;
mod steps;
mod tree;
mod waiting;

use record::{Record, State, Ties, Urgency};
use relation::Note;
pub use relation::Relation;
use tree::{Tree, TreeNeed};

choice! {
    /// What a service promises of the order of requests.
    Level, "nrs_pop":
    /// Nothing.
    #[default]
    None = "none",
    /// Requests that overlap keep their order, if one of them writes.
    Overlap = "overlap",
    /// Requests of one stream keep their order.
    Stream = "stream",
    /// Requests name those that come before them.
    Graph = "graph",
}

number! {
    /// How many requests that have ended are remembered, so that they can be named as predecessors.
    PopWindow, "nrs_pop_window": "requests of a file of /dev/nrs, ", 1..=65_536 = 1_024
}

/// Predecessors that a request can name.
pub const PREDECESSORS_MAX: usize = 8;

/// Names a record; it goes stale when the request has ended.
pub type RecordId = Handle;

/// Records that can be made without new memory, at least, as long as the worker keeps up.
const RESERVE: usize = 64;

/// Steps that [`Order::next`] makes at most before it answers.
const STEPS: u32 = 8;

/// What became of a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Entered {
    /// It may go on.
    Free(RecordId),
    /// It has to wait: [`Order::block`] is next.
    Blocked(RecordId),
    /// There is no record for it.
    Full,
}

/// Whether a request may be withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forced {
    /// It may.
    #[default]
    No,
    /// It may not; it takes turns with others like it.
    InTurn,
    /// It may not, and others wait for it who can do nothing else: it takes no turns.
    AtOnce,
}

/// What the owner has to do. It says what it did before it calls anything else: [`Order::queued`],
/// [`Order::running`] or [`Order::finish`].
#[must_use]
pub enum Act<I: Item> {
    /// Nothing stands before `item`: it goes to the head of `priority`, or down.
    Release {
        /// Its record.
        id: RecordId,
        /// The request.
        item: I,
        /// What [`Order::block`] was told; `None` for one that overflowed.
        attrs: Option<Attrs>,
        /// Which head it belongs to.
        priority: Priority,
        /// Unless it may be withheld, it goes down without a slot.
        forced: Forced,
    },
    /// A queued request was promoted: it goes from the regular head to the other one. If it is not found
    /// there, it is told to be [`Order::queued`] as before.
    Move {
        /// Its record.
        id: RecordId,
        /// Where it is queued.
        place: I::Place,
        /// What it was queued with.
        ticket: Ticket,
        /// What [`Order::block`] or [`Order::queued`] was told.
        attrs: Option<Attrs>,
    },
    /// A queued request must not be withheld: it goes from its head down, without a slot. If it is not found
    /// there, it is told to be [`Order::queued`] as before.
    Force {
        /// Its record.
        id: RecordId,
        /// Where it is queued.
        place: I::Place,
        /// What it was queued with.
        ticket: Ticket,
        /// The head that it is in.
        priority: Priority,
        /// How it goes down.
        forced: Forced,
    },
    /// Nothing this time; there is more to do.
    Again,
}

/// What an [`Order`] wants.
pub type OrderNeed<I> = (SlabNeed<Record<I>>, TreeNeed);

/// Memory for an [`Order`].
pub type OrderSpare<I> = <OrderNeed<I> as Need>::Spare;

/// The requests of a partition that keep an order.
///
/// # Invariants
///
/// - A record is blocked only while a record with a smaller serial has not ended, and is in its waiters.
/// - The extents of all records that have not ended, and of no others, are in the tree.
/// - `chase` is the first of the records whose chase is listed.
/// - `ended` are those that have ended and still have waiters.
/// - Requests that overflowed come after all records, in the order of arrival; `overflow_forced` of them, from
///   the front, are forced. Records with serials below `forced_before` are forced, those below `drained_before` at
///   once.
/// - `blocked` counts the blocked records.
pub struct Order<I: Item> {
    records: Slab<Record<I>>,
    tree: Tree,
    overflow: I::Fifo,
    overflow_forced: u32,
    /// Requests that overflowed, ever.
    overflows: u64,
    /// The serial of the next record.
    serial: u64,
    forced_before: u64,
    drained_before: u64,
    /// The slot from which on queued records are still to be forced; [`NONE`]: all are.
    sweep: u32,
    chase: u32,
    ended: List,
    blocked: u32,
    /// Records, at most.
    max: usize,
}

impl<I: Item> Order<I> {
    /// A table of at most `max` records, with its first reserve; sleeps.
    ///
    /// `seed` must not be known to those who choose ranges.
    pub fn new(max: u32, seed: u64) -> Result<Self, NoMemory> {
        let max = max as usize;
        let mut order = Self {
            records: Slab::new(max)?,
            tree: Tree::new(max, seed)?,
            overflow: I::Fifo::new(),
            overflow_forced: 0,
            overflows: 0,
            serial: 1,
            forced_before: 0,
            drained_before: 0,
            sweep: NONE,
            chase: NONE,
            ended: List::new(),
            blocked: 0,
            max,
        };
        let spare = order.need().allocate()?;
        order.grow(spare);
        Ok(order)
    }

    /// What memory is wanted: for the records there are and a reserve of a quarter, at least 64 vacant ones,
    /// within the bound.
    pub fn need(&self) -> OrderNeed<I> {
        let live = self.records.live() as usize;
        let reserve = RESERVE.max(live / 4);
        let target = live.saturating_add(reserve).min(self.max);
        let missing = target.saturating_sub(self.records.slots());
        (self.records.wants(missing), self.tree.wants(target))
    }

    /// Takes memory and hands back what there is no use for. There may be something to do then.
    pub fn grow(&mut self, (records, nodes): OrderSpare<I>) -> OrderSpare<I> {
        (self.records.feed(records), self.tree.feed(nodes))
    }

    /// Bounds the records by `max` from now on, or by what the table was made for, if that is less. There may
    /// be something to do then.
    pub fn set_max(&mut self, max: u32) {
        self.max = max as usize;
    }

    /// Takes a request that arrives; with `high` it and what it waits for belong in the high-priority head.
    ///
    /// While others wait for a record, nothing gets one but what is not related to them.
    pub fn enter(&mut self, relation: Relation, high: bool) -> Entered {
        if !matches!(relation, Relation::Free) && !self.overflow.is_empty() {
            return Entered::Full;
        }
        let Some(slot) = self.make(&relation) else {
            return Entered::Full;
        };
        let urgency = Urgency {
            high,
            forced: Forced::No,
        };
        let free = self.settle(slot, urgency);
        match self.records.handle(slot) {
            Some(id) if free => Entered::Free(id),
            Some(id) => Entered::Blocked(id),
            None => Entered::Full,
        }
    }

    /// Keeps the request `item` that has to wait, as [`Order::enter`] said.
    pub fn block(&mut self, id: RecordId, item: I, attrs: Attrs, forced: Forced) {
        if let Some(record) = self.records.get_mut(id) {
            record.attrs = Some(attrs);
        }
        self.keep(id.slot(), item);
        let urgency = Urgency {
            high: false,
            forced,
        };
        self.urge(id.slot(), urgency);
    }

    /// Keeps the request `item`, which [`Order::enter`] had no record for and which is related to others in
    /// `domain` as [`Relation::overlap`] says. Its mark is used until it is released.
    ///
    /// If it is forced, everything before it is.
    pub fn overflow(&mut self, mut item: I, domain: u64, high: bool, forced: bool) {
        let note = Note {
            domain,
            high,
            forced,
        };
        item.set_mark(note.mark());
        self.overflow.push(item);
        self.overflows = self.overflows.wrapping_add(1);
        if !forced {
            return;
        }
        // Later records were forced when they were made, those of the first time are.
        if self.overflow_forced == 0 {
            self.force_records();
        }
        self.overflow_forced = self.overflow.len();
    }

    /// Notes that the request was queued in the head of `priority` with `ticket`, and where it is found. Its
    /// attributes are asked for if it may have to be moved.
    pub fn queued(
        &mut self,
        id: RecordId,
        place: I::Place,
        ticket: Ticket,
        priority: Priority,
        attrs: impl FnOnce() -> Attrs,
    ) {
        if let Some(record) = self.records.get_mut(id) {
            if priority == Priority::Regular && record.attrs.is_none() {
                record.attrs = Some(attrs());
            }
            record.state = State::Queued {
                place,
                ticket,
                priority,
            };
        }
    }

    /// Notes that the request is on its way down; returns by what it was found while it was queued.
    pub fn running(&mut self, id: RecordId) -> Option<I::Place> {
        let record = self.records.get_mut(id)?;
        match core::mem::replace(&mut record.state, State::Running) {
            State::Queued { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Notes that the request has ended. There may be something to do then. One that is blocked does not end.
    pub fn finish(&mut self, id: RecordId) {
        let slot = id.slot();
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if matches!(record.state, State::Blocked(_) | State::Ended) {
            return;
        }
        record.state = State::Ended;
        let (waits, waited_for) = (record.waits, record.waiters.first().is_some());
        if let Ties::Range { node, .. } = record.ties {
            self.tree.remove(node);
        }
        if waits != NONE {
            // The owner did not block it after all.
            self.stop_waiting(slot);
        }
        if waited_for {
            self.ended.push(&mut self.records, slot);
        } else {
            self.forget(slot);
        }
    }

    /// Has the request, and all that it waits for, served from the high-priority head. There may be something
    /// to do then.
    pub fn promote(&mut self, id: RecordId) {
        if self.is_live(id) {
            let urgency = Urgency {
                high: true,
                forced: Forced::No,
            };
            self.urge(id.slot(), urgency);
        }
    }

    /// Has the request, and all that it waits for, go down without a slot as soon as it may. There may be something
    /// to do then.
    pub fn force(&mut self, id: RecordId) {
        if self.is_live(id) {
            let urgency = Urgency {
                high: false,
                forced: Forced::InTurn,
            };
            self.urge(id.slot(), urgency);
        }
    }

    /// Has everything that is here now, or queued, go down as soon as it may, at once. There may be something to do
    /// then.
    pub fn force_all(&mut self) {
        self.force_records();
        self.overflow_forced = self.overflow.len();
        // Those that overflowed have the next serials, or some after them.
        self.drained_before = self.serial.wrapping_add(self.overflow.len().into());
    }

    /// Whether the request has not ended.
    pub fn is_live(&self, id: RecordId) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|record| !record.has_ended())
    }

    /// Requests that wait for others, with a record.
    pub const fn blocked(&self) -> u32 {
        self.blocked
    }

    /// Requests that wait for a record.
    pub fn overflowed(&self) -> u32 {
        self.overflow.len()
    }

    /// Goes on counting where `before` is, in whose place it comes.
    pub const fn count_on(&mut self, before: &Self) {
        self.overflows = before.overflows;
    }

    /// Requests that had to wait for a record, ever.
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Records.
    pub const fn live(&self) -> u32 {
        self.records.live()
    }

    /// Nodes of the tree that were looked at, ever: what the table costs.
    pub const fn visits(&self) -> u64 {
        self.tree.visits()
    }
}
