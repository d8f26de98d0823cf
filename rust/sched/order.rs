// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests: constraints on which requests have to end before another one may start.
//!
//! - Serial: number of a record in the order of arrival.
//! - Predecessor: earlier request that has to end before a request starts.
//! - Blocked: some predecessor has not ended. The request is queued here and unknown to any policy.
//! - Owner: the partition, which owns the table, the heads and the lock.
//! - Overflowed: the request needs a record, and is queued in front-end memory, in FIFO order.
//! - Promoted: the request, with all its predecessors, is to be served from the high-priority head.
//! - Forced: the request, with all its predecessors, must not be withheld, and is dispatched
//!   without a slot.
//! - Propagation: of a promotion or a force to all predecessors of a request.
//!
//! # States of a request
//!
//! ```text
//!            enter: Full   overflowed ──────────────────┐
//!          ┌─────────────▶ (in a FIFO)                  │ next: a record is free
//!          │                                            ▼
//!  arrived ┼─ enter: Blocked, block ───────────────▶ blocked
//!          │                                            │ next: all predecessors have ended
//!          │                                            ▼ (Release)
//!          └─ enter: Free ─────────────────────────▶ owner ── running ──▶ running ─ finish ▶ ended
//!                                                     │ ▲                     ▲
//!                                              queued │ │ next (Move or       │ running
//!                                                     ▼ │       Force)        │
//!                                                  in a head ─────────────────┘
//! ```
//!
//! # Order
//!
//! A predecessor always has the smaller serial, so there is no cycle. A request reaches a policy
//! only after all its predecessors have ended. Therefore the order of service is a linear extension
//! of the constraints, whatever the policy does.
//!
//! A blocked request waits for one predecessor at a time, the latest one. When that predecessor has
//! ended, the request is checked again. A request with k predecessors is checked at most 1 + k
//! times, at O(log n) each.
//!
//! A promoted or forced request passes its urgency on to all its predecessors, and these to theirs,
//! one by one ([`Order::next`]). It skips predecessors that conflict with a write that has
//! inherited the urgency, because these inherit the urgency from the write.
//!
//! # Context
//!
//! The caller of all functions but [`Order::new`] and [`OrderNeed::allocate`] must hold the
//! partition's lock. They do not allocate, and each call costs O(log n) at most.

use crate::sched::{
    attr::{Attrs, Priority},
    head::HeadTicket,
    item::{Fifo, Item},
    mem::{Need, NoMemory},
    slab::{Handle, Slab, SlabList, SlabNeed, NONE},
};

mod dependencies;
mod record;
mod relation;
mod tree;
mod work_list;

use record::{OrderRecord, OrderState, StandsFor, Urgency};
use relation::OverflowMark;
pub use relation::Relation;
use tree::{ExtentTree, TreeNeed};

/// Maximum number of predecessors that a request can name.
pub const PREDECESSORS_MAX: usize = 8;

/// Handle of a record; becomes stale when the request has ended.
pub type RecordId = Handle;

/// Minimum number of records that can be created without new memory, as long as the worker keeps
/// up.
const RESERVE: usize = 64;

/// Maximum number of steps that one call of [`Order::next`] makes.
const STEPS: u32 = 8;

/// Outcome of the arrival of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum OrderOutcome {
    /// The request can be queued in a head or dispatched.
    Free(RecordId),
    /// The request is blocked; the caller must call [`Order::block`].
    Blocked(RecordId),
    /// No record is available.
    Full,
}

/// Forced dispatch of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forced {
    /// Not forced: the request may be withheld.
    #[default]
    No,
    /// Dispatched without a slot, in turn with other such requests.
    InTurn,
    /// Dispatched without a slot at once, because other requests depend on it and cannot continue.
    AtOnce,
}

/// Action that the owner has to perform. The owner must call [`Order::queued`], [`Order::running`]
/// or [`Order::finish`] for the request before any other call.
#[must_use]
pub enum OrderAction<I: Item> {
    /// No predecessor blocks `item`: queue it in the head of `priority`, or dispatch it.
    Release {
        /// Record of the request.
        id: RecordId,
        /// Unblocked request.
        item: I,
        /// Attributes passed to [`Order::block`]; `None` if the request overflowed.
        attrs: Option<Attrs>,
        /// Head that the request belongs to.
        priority: Priority,
        /// Forced dispatch; if not `No`, dispatch without a slot.
        forced: Forced,
    },
    /// A queued request was promoted: move it from the regular to the high-priority head. If it is
    /// not found there, the owner calls [`Order::queued`] with the same arguments as before.
    Move {
        /// Record of the request.
        id: RecordId,
        /// Place of the queued request.
        handle: I::Handle,
        /// Ticket of the queued request.
        ticket: HeadTicket,
        /// Attributes passed to [`Order::block`] or [`Order::queued`].
        attrs: Option<Attrs>,
    },
    /// A queued request must not be withheld: remove it from its head and dispatch it without a
    /// slot. If it is not found there, the owner calls [`Order::queued`] with the same arguments as
    /// before.
    Force {
        /// Record of the request.
        id: RecordId,
        /// Place of the queued request.
        handle: I::Handle,
        /// Ticket of the queued request.
        ticket: HeadTicket,
        /// Head that contains the request.
        priority: Priority,
        /// Way of the forced dispatch.
        forced: Forced,
    },
    /// No action; there is more to do.
    Again,
}

/// Memory requirement of an [`Order`].
pub type OrderNeed<I> = (SlabNeed<OrderRecord<I>>, TreeNeed);

/// Memory for an [`Order`].
pub type OrderSpare<I> = <OrderNeed<I> as Need>::Spare;

/// Requests of a partition with ordering constraints.
///
/// # Invariants
///
/// - A record is blocked only while a record with a smaller serial has not ended, and is in that
///   record's `waiters`.
/// - The tree contains the extents of exactly the records that have not ended.
/// - `propagation` is the first record with a listed propagation.
/// - `ended` contains the records that have ended and still have waiters.
/// - Requests that overflowed come after all records, in the order of arrival. The first
///   `overflow_forced` of them are forced.
/// - Records with serials below `forced_before` are forced, those below `drained_before` at once.
/// - `blocked` is the number of blocked records.
pub struct Order<I: Item> {
    records: Slab<OrderRecord<I>>,
    tree: ExtentTree,
    overflow: I::Fifo,
    overflow_forced: u32,
    /// Total number of requests that have overflowed.
    overflows: u64,
    /// Serial of the next record.
    serial: u64,
    forced_before: u64,
    drained_before: u64,
    /// Index from which on queued records still have to be forced; [`NONE`]: no records are left.
    sweep: u32,
    propagation: u32,
    ended: SlabList,
    blocked: u32,
    /// Maximum number of records.
    max: usize,
}

impl<I: Item> Order<I> {
    /// Creates a table of at most `max` records, with its first reserve; may sleep.
    ///
    /// `seed` must not be known to parties that choose ranges.
    pub fn new(max: u32, seed: u64) -> Result<Self, NoMemory> {
        let max = max as usize;
        let mut order = Self {
            records: Slab::new(max)?,
            tree: ExtentTree::new(max, seed)?,
            overflow: I::Fifo::new(),
            overflow_forced: 0,
            overflows: 0,
            serial: 1,
            forced_before: 0,
            drained_before: 0,
            sweep: NONE,
            propagation: NONE,
            ended: SlabList::new(),
            blocked: 0,
            max,
        };
        let spare = order.need().allocate()?;
        order.grow(spare);
        Ok(order)
    }

    /// Returns the memory requirement: for the existing records and a reserve of a quarter, with at
    /// least 64 vacant records, within the bound.
    pub fn need(&self) -> OrderNeed<I> {
        let live = self.records.live() as usize;
        let reserve = RESERVE.max(live / 4);
        let target = live.saturating_add(reserve).min(self.max);
        let missing = target.saturating_sub(self.records.entry_count());
        (self.records.wants(missing), self.tree.wants(target))
    }

    /// Adds memory and returns the unused rest. Afterwards [`Order::next`] may have actions.
    pub fn grow(&mut self, (records, nodes): OrderSpare<I>) -> OrderSpare<I> {
        (self.records.feed(records), self.tree.feed(nodes))
    }

    /// Sets the maximum number of records, limited by the maximum given at creation. Afterwards
    /// [`Order::next`] may have actions.
    pub fn set_max(&mut self, max: u32) {
        self.max = max as usize;
    }

    /// Enters an arriving request; with `high` the request and its predecessors belong in the
    /// high-priority head.
    ///
    /// While other requests are queued for a record, only requests with [`Relation::Free`] get one.
    pub fn enter(&mut self, relation: Relation, high: bool) -> OrderOutcome {
        if !matches!(relation, Relation::Free) && !self.overflow.is_empty() {
            return OrderOutcome::Full;
        }
        let Some(idx) = self.make(&relation) else {
            return OrderOutcome::Full;
        };
        let urgency = Urgency {
            high,
            forced: Forced::No,
        };
        let free = self.find_predecessor(idx, urgency);
        match self.records.handle(idx) {
            Some(id) if free => OrderOutcome::Free(id),
            Some(id) => OrderOutcome::Blocked(id),
            None => OrderOutcome::Full,
        }
    }

    /// Queues `item` as blocked, after [`Order::enter`] returned `Blocked`.
    pub fn block(&mut self, id: RecordId, item: I, attrs: Attrs, forced: Forced) {
        if let Some(record) = self.records.get_mut(id) {
            record.attrs = Some(attrs);
        }
        self.keep(id.idx(), item);
        let urgency = Urgency {
            high: false,
            forced,
        };
        self.urge(id.idx(), urgency);
    }

    /// Queues `item`, for which [`Order::enter`] had no record, and which is ordered in `domain` as
    /// in [`Relation::overlap`]. Uses the item's mark until the item is released.
    ///
    /// If `item` is forced, all earlier requests are.
    pub fn overflow(&mut self, mut item: I, domain: u64, high: bool, forced: Forced) {
        let note = OverflowMark {
            domain,
            high,
            forced,
        };
        item.set_mark(note.mark());
        self.overflow.push(item);
        self.overflows = self.overflows.wrapping_add(1);
        if forced == Forced::No {
            return;
        }
        // Later records were forced at creation; force the existing ones at the first forced
        // request.
        if self.overflow_forced == 0 {
            self.force_records();
        }
        self.overflow_forced = self.overflow.len();
    }

    /// Records that the request was queued in the head of `priority` with `ticket`, at `handle`.
    /// Calls `attrs` if the request may have to be moved.
    pub fn queued(
        &mut self,
        id: RecordId,
        handle: I::Handle,
        ticket: HeadTicket,
        priority: Priority,
        attrs: impl FnOnce() -> Attrs,
    ) {
        if let Some(record) = self.records.get_mut(id) {
            if priority == Priority::Regular && record.attrs.is_none() {
                record.attrs = Some(attrs());
            }
            record.state = OrderState::Queued {
                handle,
                ticket,
                priority,
            };
        }
    }

    /// Records that the request is dispatched; returns the handle of the request if it was queued.
    pub fn running(&mut self, id: RecordId) -> Option<I::Handle> {
        let record = self.records.get_mut(id)?;
        match core::mem::replace(&mut record.state, OrderState::Running) {
            OrderState::Queued { handle, .. } => Some(handle),
            _ => None,
        }
    }

    /// Records that the request has ended; a blocked request does not end. Afterwards
    /// [`Order::next`] may have actions.
    pub fn finish(&mut self, id: RecordId) {
        let idx = id.idx();
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if matches!(record.state, OrderState::Blocked(_) | OrderState::Ended) {
            return;
        }
        record.state = OrderState::Ended;
        let (waits, waited_for) = (record.waits, record.waiters.first().is_some());
        if let StandsFor::Range { node, .. } = record.ties {
            self.tree.remove(node);
        }
        if waits != NONE {
            // The owner has not blocked the request after all.
            self.stop_waiting(idx);
        }
        if waited_for {
            self.ended.push(&mut self.records, idx);
        } else {
            self.forget(idx);
        }
    }

    /// Promotes the request with all its predecessors to the high-priority head. Afterwards
    /// [`Order::next`] may have actions.
    pub fn promote(&mut self, id: RecordId) {
        if self.is_live(id) {
            let urgency = Urgency {
                high: true,
                forced: Forced::No,
            };
            self.urge(id.idx(), urgency);
        }
    }

    /// Forces the request with all its predecessors: they are dispatched without a slot as soon as
    /// possible. Afterwards [`Order::next`] may have actions.
    pub fn force(&mut self, id: RecordId) {
        if self.is_live(id) {
            let urgency = Urgency {
                high: false,
                forced: Forced::InTurn,
            };
            self.urge(id.idx(), urgency);
        }
    }

    /// Forces all present requests, to be dispatched at once as soon as they are eligible.
    /// Afterwards [`Order::next`] may have actions.
    pub fn force_all(&mut self) {
        self.force_records();
        self.overflow_forced = self.overflow.len();
        // The overflowed requests have the next serials, or some after these.
        self.drained_before = self.serial.wrapping_add(self.overflow.len().into());
    }

    /// Returns true if the request has not ended.
    pub fn is_live(&self, id: RecordId) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|record| !record.has_ended())
    }

    /// Returns the number of blocked requests with a record.
    pub const fn blocked(&self) -> u32 {
        self.blocked
    }

    /// Returns the number of requests that are queued for a record.
    pub fn overflowed(&self) -> u32 {
        self.overflow.len()
    }

    /// Continues the counter of `before`, which this table replaces.
    pub const fn count_on(&mut self, before: &Self) {
        self.overflows = before.overflows;
    }

    /// Returns the total number of requests that were queued for a record.
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns the number of records.
    pub const fn live(&self) -> u32 {
        self.records.live()
    }

    /// Returns the total number of visited tree nodes, as the cost of the table.
    #[cfg(not(MODULE))]
    pub const fn visits(&self) -> u64 {
        self.tree.visits()
    }
}
