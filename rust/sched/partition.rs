// SPDX-License-Identifier: GPL-2.0-only

//! State machine of one partition of a service: selects the next request and the time of its
//! dispatch.
//!
//! # Terms
//!
//! - [`head_cache`]: a head of a partition, regular or high-priority, with a cache of classes.
//! - [`slot_pool`]: the slots of a target, and the partitions that compete for them.
//! - [`slot_cache`]: slots cached by a CPU for its next requests.
//! - [`fast_path`]: requests of a CPU that were dispatched without the lock of the partition.
//! - [`round`]: partitions take turns at free slots.
//! - *Pump*: dispatches requests while slots are free.
//! - [`PartitionMark`]: state of a partition that other CPUs read without its lock.
//! - [`actions`]: queues requests whose predecessors in the order table have ended.
//! - [`Env`]: interface to the environment of a partition.
//!
//! ```text
//!            predecessors have not ended
//!   arrive ─┬──────────────────────────▶ blocked
//!           │                              │ predecessors end ([`actions`])
//!           │                              ▼
//!           ├────────────────────▶ queued in a head ─┬─ slot and turn ([`decide`]) ──▶ in flight
//!           │                                        └─ drain or stall, without slot ─────▲
//!           └─ passed: must not be throttled, or a slot is free and none is queued ([`admit`])
//! ```
//!
//! # Context
//!
//! The lock of a partition protects its [`PartitionMachine`]. Every function except the constructor
//! runs with this lock held and interrupts disabled, so nothing allocates or sleeps. The owner
//! submits the requests passed to its `Env` after it releases the lock. The kernel part
//! (`rust/engine/partition.rs`), the tests of `rust/host/nrs-sched`, the fuzzers,
//! `rust/host/nrs-sim` and `rust/host/nrs-model` run this code, each with its own `Env`.

use crate::sched::{
    attr::{Attrs, Priority},
    head::{Head, HeadTicket, InstanceId},
    health::PartitionHealth,
    item::{Cost, Item},
    mem::Owned,
    order::{Order, RecordId},
    policy::{Config, Part},
    ranges::RangeTable,
    slots::{HeadTurn, PendingHeads, SlotLimits},
};

pub mod actions;
pub mod admit;
pub mod decide;
pub mod fast_path;
pub mod head_cache;
pub mod ident;
pub mod pull;
pub mod round;
pub mod slot_cache;
pub mod slot_pool;

use head_cache::HeadCache;
use slot_pool::{PartitionMark, SlotPool};

/// Maximum dispatches per lock hold.
pub const BATCH: u32 = 64;

/// Right by which a request is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The request is not in flight.
    #[default]
    None,
    /// The request has a slot.
    Slot,
    /// The request must not be throttled. The number of such requests is bounded.
    Forced,
    /// The request frees memory. The number of such requests has a larger bound.
    Free,
    /// A drain or a stall dispatched the request without a limit.
    Over,
}

/// Data that a partition stores with a request until the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Instance and class of a request that was queued.
    pub ticket: Option<HeadTicket>,
    /// Record in the order table of the partition.
    pub record: Option<RecordId>,
    /// Head of the request.
    pub priority: Priority,
    /// Right by which the request is in flight.
    pub admission: Admission,
    /// True if the request ended unprocessed: what its class was charged is returned.
    pub refused: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self::new(Priority::Regular)
    }
}

impl Placement {
    /// Creates the placement of a request that arrives for the head of `priority`.
    pub const fn new(priority: Priority) -> Self {
        Self {
            ticket: None,
            record: None,
            priority,
            admission: Admission::None,
            refused: false,
        }
    }
}

/// A request that a partition can schedule.
pub trait Scheduled: Item {
    /// Returns the placement of the request.
    fn placement(&self) -> &Placement;

    /// Returns the placement of the request, for writing.
    fn placement_mut(&mut self) -> &mut Placement;

    /// Records that the request was queued until `now`, ns.
    fn note_wait(&mut self, _now: u64) {}
}

/// Returns the earlier of two times; `None` if there is none.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Environment of a partition. Requests passed to [`Env::send`] are submitted after the lock of the
/// partition is released.
pub trait Env<I: Item, T> {
    /// Returns the slots and the partitions of the target.
    fn slot_pool(&self) -> &SlotPool;

    /// Returns the index of the partition in the slot pool.
    fn index(&self) -> u16;

    /// Returns the number of the CPU whose slot cache is used.
    #[inline]
    fn cpu(&self) -> u32 {
        0
    }

    /// Returns the monotonic time, ns.
    fn now(&self) -> u64;

    /// Returns the coarse monotonic time, ms.
    fn millis(&self) -> u64;

    /// Returns the number of high-priority requests dispatched in a row while regular ones are
    /// pending.
    fn ratio(&self) -> u32;

    /// Arms the timer of the partition for `at`, ns, replacing its earlier expiry.
    fn arm(&mut self, at: u64);

    /// Calls `f` with the shares published last for heads of `priority`.
    fn with_table<R>(&self, priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R;

    /// Submits a request, whose admission is stored, to the target.
    fn send(&mut self, item: I);

    /// Returns the maximum number of requests that an event dispatches: 0 if it only finds out
    /// whether one could be dispatched, `None` if that is known ([`pull`]). The event has published
    /// its changes.
    #[inline]
    fn batch(&self) -> Option<u32> {
        Some(BATCH)
    }

    /// Records that one more request could be dispatched.
    #[inline]
    fn record_more(&mut self) {}

    /// Counts a request in flight without a slot, regardless of limits.
    fn admit_over(&mut self) -> Admission;

    /// Counts an arriving request that must not be throttled as in flight. Returns `None` at the
    /// limit of such requests; [`Env::bypass`] then takes the request.
    fn admit(&mut self) -> Option<Admission>;

    /// Takes a request that must not be throttled, to be submitted in order after earlier such
    /// requests.
    fn bypass(&mut self, item: I);

    /// Records that an arriving request is not dispatched at `now`, ns.
    fn begin_queueing(&mut self, item: &mut I, now: u64);

    /// Notes a request that is about to be queued in its head.
    #[inline]
    fn note_queued(&mut self, _item: &I) {}

    /// Returns true if requests are traced.
    #[inline]
    fn is_traced(&self) -> bool {
        false
    }

    /// Records the arrival of a request in the trace. `tag` is the tag of its policy, `None` if no
    /// policy has classified the request.
    fn trace_arrival(&self, _item: &mut I, _tag: Option<&T>, _attrs: &Attrs, _queued: bool) {}

    /// Records the dispatch of a request at `now`, ns, in the trace, with a slot or without; `tag`
    /// as for arrival.
    fn trace_dispatch(
        &self,
        _item: &mut I,
        _tag: Option<&T>,
        _now: u64,
        _queued: bool,
        _slot: bool,
    ) {
    }

    /// Records in the trace that the head of `priority` throttles all of its `queued` requests from
    /// `now` until `until`, ns. `tag` is the tag of the policy that takes new requests.
    #[inline]
    fn trace_throttle<'a>(
        &self,
        _priority: Priority,
        _tag: impl FnOnce() -> Option<&'a T>,
        _now: u64,
        _until: u64,
        _queued: u32,
    ) where
        T: 'a,
    {
    }

    /// Returns the current limits of the slots.
    #[inline]
    fn limits(&self) -> SlotLimits {
        self.slot_pool().limits(self.ratio(), self.millis())
    }
}

/// State of a partition.
///
/// # Examples
///
/// ```
/// use nrs_sched::{arena::{attrs, config_of, Request}, server::{Relate, Server}};
///
/// // A partition whose target has one slot; request 3 must not be throttled.
/// let mut server = Server::new(&config_of("fifo"), 1, 16, 1)?;
/// for id in 1..=3 {
///     server.arrive(Request::new(0, id, 1, 0), &attrs(1000), Relate::Not, id == 3);
/// }
/// assert_eq!(server.started, [1, 3]);
/// // Request 3 had no slot to return.
/// server.complete(3);
/// assert_eq!(server.started, [1, 3]);
/// server.complete(1);
/// assert_eq!(server.started, [1, 3, 2]);
/// # Ok::<(), nrs_sched::mem::NoMemory>(())
/// ```
pub struct PartitionMachine<I: Item, P, T> {
    regular: Owned<HeadCache<I, P, T>>,
    high: Owned<HeadCache<I, P, T>>,
    order: Owned<Order<I>>,
    /// Capacity of the order table, records.
    records: u32,
    turn: HeadTurn,
    /// Time of the last dispatch, or of an arrival at an empty queue, ns.
    moved: u64,
    /// Time at which a request last took or returned a slot, or arrived at an empty queue, ns.
    progress: u64,
    /// True if a stall was resolved by dispatches without slots, and no slot was taken or returned
    /// since.
    stalled: bool,
    /// Expiry of the timer, ns; 0 if the timer is not armed, or has expired and its handler waits
    /// for the lock.
    armed: u64,
    /// True if the regular head may keep slots free.
    may_hold: bool,
    /// Slots kept free for this partition, which others may not take; 0 unless `may_hold`.
    held: u32,
    /// True if slots that were kept free have become usable since the last dispatch attempt.
    is_released: bool,
    /// State published to other CPUs.
    mark: PartitionMark,
}

impl<I: Scheduled, P: Part<I>, T> PartitionMachine<I, P, T> {
    /// Creates a partition at `now`, ns, with empty queues; `order` has room for `records`
    /// requests.
    pub fn new(
        regular: Owned<HeadCache<I, P, T>>,
        high: Owned<HeadCache<I, P, T>>,
        order: Owned<Order<I>>,
        records: u32,
        now: u64,
    ) -> Self {
        Self {
            regular,
            high,
            order,
            records,
            turn: HeadTurn::default(),
            moved: 0,
            progress: now,
            stalled: false,
            armed: 0,
            may_hold: false,
            held: 0,
            is_released: false,
            mark: PartitionMark::default(),
        }
    }

    fn head_cache(&mut self, priority: Priority) -> &mut HeadCache<I, P, T> {
        match priority {
            Priority::Regular => &mut self.regular,
            Priority::High => &mut self.high,
        }
    }

    /// Returns the head of `priority` after counting all requests dispatched without the lock. The
    /// caller may change which requests form a class.
    pub fn head(&mut self, priority: Priority) -> &mut Head<I, P, T> {
        let head_cache = self.head_cache(priority);
        head_cache.clear();
        &mut head_cache.head
    }

    /// Returns the order table.
    pub fn order(&mut self) -> &mut Order<I> {
        &mut self.order
    }

    /// Returns the number of requests queued in heads.
    pub fn queued(&self) -> u32 {
        let high = self.high.head.queued();
        self.regular.head.queued().saturating_add(high)
    }

    /// Replaces the order table by `table`, with capacity `records`, if the present table is not in
    /// use; else limits the present table to `records`. Returns true if either was possible.
    pub fn set_records(&mut self, table: Option<&mut Owned<Order<I>>>, records: u32) -> bool {
        let idle = self.order.live() == 0 && self.order.overflowed() == 0;
        if let Some(table) = table.filter(|_| idle) {
            self.records = records;
            table.count_on(&self.order);
            core::mem::swap(&mut self.order, table);
        } else if records <= self.records {
            self.order.set_max(records);
        } else {
            return false;
        }
        true
    }

    /// Returns the heads that have eligible requests at `now`, as far as is known.
    pub fn pending(&self, now: u64) -> PendingHeads {
        PendingHeads {
            high: self.high.has_work(now),
            regular: self.regular.has_work(now),
        }
    }

    /// Returns the number of slots kept free for this partition.
    #[cfg(not(MODULE))]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns the earliest time, ns, at which a head that is throttled at `now` becomes eligible.
    pub fn next_expiry(&self, now: u64) -> Option<u64> {
        let expiry = |head_cache: &HeadCache<I, P, T>| {
            let throttled = head_cache.until > now && head_cache.head.queued() > 0;
            throttled.then_some(head_cache.until)
        };
        earlier(expiry(&self.regular), expiry(&self.high))
    }

    /// Returns the data from which the health check derives progress.
    pub fn seen(&self, now: u64) -> PartitionHealth {
        let moved = if self.stalled {
            self.progress
        } else {
            self.moved
        };
        PartitionHealth {
            queued: self.queued().into(),
            since: self.eligible_since(now, moved),
            decided: self.progress,
        }
    }

    /// Returns the time since which a head has had eligible requests at `now`, as far as is known,
    /// without a dispatch; the last one was at `moved`. All times are in ns.
    fn eligible_since(&self, now: u64, moved: u64) -> Option<u64> {
        let since = |head_cache: &HeadCache<I, P, T>| {
            let has_work = head_cache.has_work(now);
            has_work.then(|| head_cache.eligible_since().max(moved))
        };
        earlier(since(&self.regular), since(&self.high))
    }

    /// Records that a request took or returned a slot.
    fn progressed(&mut self, now: u64) {
        self.progress = now;
        self.stalled = false;
    }

    /// Publishes the mark of the partition to other CPUs, if the mark has changed.
    pub(super) fn publish_mark(&mut self, env: &mut impl Env<I, T>, now: u64) {
        let mut mark = PartitionMark::default();
        if self.regular.head.queued() > 0 {
            mark.waiting = true;
            mark.ready = self.regular.until <= now;
        }
        if self.high.head.queued() > 0 {
            mark.waiting = true;
            mark.urgent = self.high.until <= now;
            mark.ready |= mark.urgent;
        }
        if mark.urgent {
            env.slot_pool().note_high_priority(env.millis());
        }
        let old = core::mem::replace(&mut self.mark, mark);
        if mark != old {
            env.slot_pool().mark(env.index(), old, mark);
        }
        if self.may_hold && env.slot_pool().has_several_partitions() {
            self.update_held(env, now);
        }
    }

    /// Clears the throttling of heads after their limits changed; the next dispatch attempt queries
    /// them again.
    pub fn reconsider(&mut self, env: &mut impl Env<I, T>, now: u64) {
        self.regular.end_throttle(now);
        self.high.end_throttle(now);
        self.publish_mark(env, now);
    }

    /// Returns the tag of instance `id` of the head of `priority`; if `id` is `None`, of the
    /// instance that takes new requests.
    pub fn tag(&self, priority: Priority, id: Option<InstanceId>) -> Option<&T> {
        let head_cache = match priority {
            Priority::Regular => &self.regular,
            Priority::High => &self.high,
        };
        let mut all = head_cache.head.instances();
        match id {
            Some(id) => all.find(|one| one.id == id),
            // The fallback is the first instance.
            None => all.reduce(|first, one| if one.is_primary() { one } else { first }),
        }
        .map(|one| one.tag)
    }

    /// Counts the end, with the final `cost`, of a request that was queued or recorded in this
    /// partition.
    fn count_end(&mut self, placement: &Placement, cost: Cost, now: u64) {
        if let Some(ticket) = &placement.ticket {
            let head_cache = self.head_cache(placement.priority);
            if placement.refused {
                head_cache.refund(ticket, cost, now);
            }
            let may_hold = head_cache.head.stop(ticket, cost, now);
            // A high-priority head has a reserved slot.
            self.may_hold |= may_hold && placement.priority == Priority::Regular;
        }
        if placement.admission == Admission::Slot {
            self.progressed(now);
        }
        if let Some(id) = placement.record {
            self.order.finish(id);
        }
    }
}

impl<I: Scheduled, P: Part<I>> PartitionMachine<I, P, Config> {
    /// Clears the class cache of the head of `priority` at the interval that the policy requires.
    pub fn refresh_cache(&mut self, priority: Priority, now: u64) {
        self.head_cache(priority).refresh_cache(now);
    }
}
