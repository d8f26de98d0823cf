// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service as a state machine: which request is dispatched when.
//!
//! # Vocabulary
//!
//! - *Lane*: one head of a partition, regular or high-priority ([`lane`]).
//! - *Line*: the slots of the target, and the partitions that wait for them ([`line`]).
//! - *Stock*: slots that a CPU keeps for its next requests ([`stock`]).
//! - *Tab*: requests of a CPU that passed without the lock of the partition ([`tab`]).
//! - *Round*: partitions take turns for free slots ([`round`]).
//! - *Pump*: dispatch requests while slots are free.
//! - *Mark*: what other CPUs know of a partition without its lock ([`Mark`]).
//! - *Order*: which requests have to wait for the end of others before a policy sees them
//!   ([`settle`]).
//! - *Env*: what a partition needs of its surroundings ([`Env`]).
//!
//! ```text
//!            predecessors have not ended
//!   arrive ─┬──────────────────────────▶ blocked
//!           │                              │ they have ended ([`settle`])
//!           │                              ▼
//!           ├────────────────────▶ queued in a head ─┬─ a slot, its turn ([`decide`]) ─▶ in flight
//!           │                                        └─ drain or stall: without a slot ────▲
//!           └─ passed: must not be throttled, or a slot is free and no request waits ([`arrive`])
//! ```
//!
//! # Context
//!
//! A [`Machine`] is what the lock of a partition protects. All but its creation runs with that lock
//! held and interrupts off: nothing allocates or sleeps. The owner carries out what its `Env` was
//! told once the lock is released. The kernel part (`rust/engine/partition.rs`), the tests of
//! `rust/host/nrs-sched`, the fuzzers, `rust/host/nrs-sim` and `rust/host/nrs-model` run this code,
//! each with an `Env` of its own.

use crate::sched::{
    attr::{Attrs, Priority},
    head::{Head, InstanceId, Ticket},
    health::Seen,
    item::{Cost, Item},
    mem::Owned,
    order::{Order, RecordId},
    policy::{Config, Part},
    ranges::Table,
    slots::{Limits, Pending, Turn},
};

pub mod arrive;
pub mod decide;
pub mod lane;
pub mod line;
pub mod round;
pub mod settle;
pub mod stock;
pub mod tab;

use lane::Lane;
use line::{Line, Mark};

/// Decisions in one lock hold, at most.
pub const BATCH: u32 = 64;

/// By what right a request is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The request is not in flight.
    #[default]
    None,
    /// The request has a slot.
    Slot,
    /// No policy may throttle the request; it is one of a bounded number.
    Forced,
    /// The request frees memory; it is one of a bounded number, which is larger.
    Free,
    /// The request is in flight whatever else is: a drain, or a stall.
    Over,
}

/// What a partition notes with a request, and needs back at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Instance and class, of a request that was queued.
    pub ticket: Option<Ticket>,
    /// Record in the order table of the partition.
    pub record: Option<RecordId>,
    /// Head of the request.
    pub priority: Priority,
    /// Right by which the request is in flight.
    pub admission: Admission,
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
        }
    }
}

/// A request that a partition can schedule.
pub trait Scheduled: Item {
    /// Returns what the partition noted.
    fn placement(&self) -> &Placement;

    /// Returns what the partition noted, for writing.
    fn placement_mut(&mut self) -> &mut Placement;

    /// Notes that the request was queued until `now`, ns.
    fn note_wait(&mut self, _now: u64) {}
}

/// Returns the earlier of two times, if any.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What a partition needs of its surroundings. What is sent leaves once the lock of the partition
/// is released.
pub trait Env<I: Item, T> {
    /// Returns the slots of the target, and its partitions.
    fn line(&self) -> &Line;

    /// Returns the index of the partition in the line.
    fn index(&self) -> u16;

    /// Returns the number of the CPU whose stock of slots is used.
    #[inline]
    fn cpu(&self) -> u32 {
        0
    }

    /// Returns the monotonic time, ns.
    fn now(&self) -> u64;

    /// Returns the coarse monotonic time, ms.
    fn millis(&self) -> u64;

    /// Returns how many high-priority requests are dispatched in a row while regular ones are
    /// pending.
    fn ratio(&self) -> u32;

    /// Arms the timer of the partition for `at`, ns, instead of what it was armed for.
    fn arm(&mut self, at: u64);

    /// Runs `f` with the shares that were published last for heads of `priority`.
    fn with_table<R>(&self, priority: Priority, f: impl FnOnce(Option<&Table>) -> R) -> R;

    /// Submits a request, whose admission is noted, to the target.
    fn send(&mut self, item: I);

    /// Counts a request in flight that has no slot, whatever else is in flight.
    fn admit_over(&mut self) -> Admission;

    /// Counts an arriving request in flight that must not be throttled; `None`: there are too many,
    /// and [`Env::bypass`] takes it.
    fn admit(&mut self) -> Option<Admission>;

    /// Takes a request that must not be throttled, to be submitted in its turn among such requests.
    fn bypass(&mut self, item: I);

    /// Notes that an arriving request is not dispatched at `now`, ns.
    fn hold(&mut self, item: &mut I, now: u64);

    /// Notes that a request is about to be queued in its head.
    #[inline]
    fn note_queued(&mut self, _item: &I) {}

    /// Returns whether requests are traced.
    #[inline]
    fn is_traced(&self) -> bool {
        false
    }

    /// Traces the arrival of a request; `tag` is that of its policy, `None` if no policy sees it
    /// yet.
    fn trace_arrival(&self, _item: &mut I, _tag: Option<&T>, _attrs: &Attrs, _queued: bool) {}

    /// Traces the dispatch of a request at `now`, ns, with a slot or without; `tag` as for arrival.
    fn trace_dispatch(
        &self,
        _item: &mut I,
        _tag: Option<&T>,
        _now: u64,
        _queued: bool,
        _slot: bool,
    ) {
    }

    /// Traces that the head of `priority` throttles all of its `queued` requests from `now` until
    /// `until`, ns; `tag` is that of the policy which takes new requests.
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

    /// Returns what bounds the slots now.
    #[inline]
    fn limits(&self) -> Limits {
        self.line().limits(self.ratio(), self.millis())
    }
}

/// The state of a partition.
pub struct Machine<I: Item, P, T> {
    regular: Owned<Lane<I, P, T>>,
    high: Owned<Lane<I, P, T>>,
    order: Owned<Order<I>>,
    /// Records that the order table was made for.
    records: u32,
    turn: Turn,
    /// When a request was dispatched last, or came to an empty queue, ns.
    moved: u64,
    /// When a request last took or gave back a slot, or came to an empty queue, ns.
    progress: u64,
    /// Requests were dispatched for lack of progress, and there has been none since.
    stalled: bool,
    /// When the timer expires, ns; 0 if it is not armed, or has expired and waits for the lock.
    armed: u64,
    /// What other CPUs know.
    mark: Mark,
}

impl<I: Scheduled, P: Part<I>, T> Machine<I, P, T> {
    /// Creates a partition at `now`, ns, with nothing queued; `order` has room for `records`
    /// requests.
    pub fn new(
        regular: Owned<Lane<I, P, T>>,
        high: Owned<Lane<I, P, T>>,
        order: Owned<Order<I>>,
        records: u32,
        now: u64,
    ) -> Self {
        Self {
            regular,
            high,
            order,
            records,
            turn: Turn::default(),
            moved: 0,
            progress: now,
            stalled: false,
            armed: 0,
            mark: Mark::default(),
        }
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane<I, P, T> {
        match priority {
            Priority::Regular => &mut self.regular,
            Priority::High => &mut self.high,
        }
    }

    /// Returns the head of `priority`, with all counted that passed without the lock.
    pub fn head(&mut self, priority: Priority) -> &mut Head<I, P, T> {
        let lane = self.lane(priority);
        lane.fold();
        &mut lane.head
    }

    /// Returns the order table.
    pub fn order(&mut self) -> &mut Order<I> {
        &mut self.order
    }

    /// Returns how many requests are queued in heads.
    pub fn queued(&self) -> u32 {
        let high = self.high.head.queued();
        self.regular.head.queued().saturating_add(high)
    }

    /// Returns when the timer expires, ns; 0 if it is not armed.
    pub const fn armed(&self) -> u64 {
        self.armed
    }

    /// Makes `table`, made for `records`, the order table if the present one is not in use, or else
    /// bounds the present one by `records`; returns whether either was possible.
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

    /// Returns which heads have eligible requests at `now`, as far as is known.
    pub fn pending(&self, now: u64) -> Pending {
        Pending {
            high: self.high.has_work(now),
            regular: self.regular.has_work(now),
        }
    }

    /// Returns when the first of the heads that are throttled at `now` has eligible requests again,
    /// ns.
    pub fn next_expiry(&self, now: u64) -> Option<u64> {
        let expiry = |lane: &Lane<I, P, T>| {
            let throttled = lane.until > now && lane.head.queued() > 0;
            throttled.then_some(lane.until)
        };
        earlier(expiry(&self.regular), expiry(&self.high))
    }

    /// Returns what tells whether the partition makes progress.
    pub fn seen(&self, now: u64) -> Seen {
        let moved = if self.stalled {
            self.progress
        } else {
            self.moved
        };
        let since = [&self.regular, &self.high]
            .into_iter()
            .filter(|lane| lane.has_work(now))
            .map(|lane| lane.until.max(moved))
            .min();
        Seen {
            queued: self.queued().into(),
            since,
            decided: self.progress,
        }
    }

    /// Notes that a request took a slot, or gave it back.
    fn progressed(&mut self, now: u64) {
        self.progress = now;
        self.stalled = false;
    }

    /// Marks the partition for other CPUs, if its mark has changed.
    pub(super) fn tell(&mut self, env: &mut impl Env<I, T>, now: u64) {
        let mut mark = Mark::default();
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
            env.line().note_urgent(env.millis());
        }
        let old = core::mem::replace(&mut self.mark, mark);
        if mark != old {
            env.line().mark(env.index(), old, mark);
        }
    }

    /// Has heads that are throttled asked again, after a change of what throttles them, by whoever
    /// decides next.
    pub fn reconsider(&mut self, env: &mut impl Env<I, T>, now: u64) {
        self.regular.until = 0;
        self.high.until = 0;
        self.tell(env, now);
    }

    /// Returns the tag of instance `id` of the head of `priority`, or of the instance that takes
    /// new requests.
    pub fn tag(&self, priority: Priority, id: Option<InstanceId>) -> Option<&T> {
        let lane = match priority {
            Priority::Regular => &self.regular,
            Priority::High => &self.high,
        };
        let mut all = lane.head.instances();
        match id {
            Some(id) => all.find(|one| one.id == id),
            // The fallback is the first one.
            None => all.reduce(|first, one| if one.is_primary() { one } else { first }),
        }
        .map(|one| one.tag)
    }

    /// Counts the end of a request that was queued or recorded here; returns the cost that was
    /// noted.
    fn count_end(&mut self, placement: &Placement, cost: Cost, now: u64) {
        if let Some(ticket) = &placement.ticket {
            let head = &mut self.lane(placement.priority).head;
            head.stop(ticket, cost, now);
        }
        if placement.admission == Admission::Slot {
            self.progressed(now);
        }
        if let Some(id) = placement.record {
            self.order.finish(id);
        }
    }
}

impl<I: Scheduled, P: Part<I>> Machine<I, P, Config> {
    /// Has requests of the head of `priority` noted again from time to time, if the policy asks for that.
    pub fn refresh_cache(&mut self, priority: Priority, now: u64) {
        self.lane(priority).refresh_cache(now);
    }
}
