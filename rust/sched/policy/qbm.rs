// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth classes with guaranteed minimums for clients.
//!
//! A class of this policy is the requests of one client for one target ([`RequestOwner`]). The
//! bandwidth class that the plan assigns to a client is only a rank here. A gate is the leaky
//! bucket of a client in a group, which classes of all partitions share; an [`Update`] installs the
//! gates. A class claims the gate of its client when it needs the gate
//! ([`crate::sched::qbm::gate::table`]). The front of a class is its oldest queued request, which
//! is eligible once it has tokens of the gate ([`class`]).
//!
//! ```text
//!             enqueue            the gate has tokens         its turn          stop
//!  (request) ─────────► FIFO of ─────────────────────► ready ─────────► in flight ───► (end)
//!      │                 class                                              ▲
//!      └─────────────── pass, if there are tokens or it is forced ──────────┘
//! ```
//!
//! # Order of classes
//!
//! Among the fronts with tokens, those without a limit are first, then those of first_come,
//! fair_share, low_share and mover. Within a rank, the front that has had its tokens for longest is
//! first ([`queue`]).
//!
//! The floor is the lowest rate of any client. A front becomes overdue when it has had its tokens
//! for longer than the time that its bytes take at the floor. Overdue fronts precede all others. So
//! no rank takes the floor from another rank, regardless of the load of the device.
//!
//! # New clients
//!
//! The worker determines the rate that the plan gives to a client. Until then, the client has the
//! initial rate of its group. [`Part::need`] reports that new clients exist, which wakes the
//! worker.
//!
//! # Full tables
//!
//! A quarter of a part's classes and some of the gates are reserved for clients with a line in the
//! plan ([`Plan::lists`]). The plan is consulted only when no other class or gate is left. Other
//! clients share one class for each target, which is charged to the shared gate of its group.

use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassQuota, ClassTable, DEFAULT, DEFAULT_ID},
    item::{Cost, Fifo, Item},
    mem::{self, Grow, Need as _, NoMemory},
    policy::{BypassOutcome, BypassReason, Decision, Grant, NoArgument, Part, PartView, Simple},
    qbm::{
        gate::{GateClaim, Gates},
        plan::{By, Plan, RequestOwner},
    },
};
use core::cell::Cell;

pub(crate) mod class;
pub(crate) mod control;
mod overseer;
pub mod params;
pub(crate) mod queue;

use class::QbmClass;
use queue::QbmQueue;

pub use crate::sched::policy::{Nothing as Counts, Nothing as Shared};
pub use control::Kept;
pub use overseer::Overseer;
pub use params::{Tunables, PARAMETERS};

/// Update of a part: the gates of its service, and the plan; `None` means that nothing is limited.
pub type Update = Option<(mem::Shared<Gates>, mem::Shared<Plan>)>;

/// Divisor of the table size for the part reserved for clients that the plan lists, and for shared
/// classes.
const KEPT: u32 = 4;

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

impl Simple for Tunables {
    type Update = Update;
}

/// Maximum number of classes whose time has come that one [`Part::get`] examines.
const LOOKS: u32 = 64;

/// Time after which a part that examined [`LOOKS`] classes is called again, ns.
const PAUSE: u64 = 1;

/// True if there are clients unknown to the manager; a need that takes no memory.
#[derive(Clone, Copy)]
pub struct UnknownClients(bool);

impl mem::Need for UnknownClients {
    type Spare = ();

    fn is_empty(&self) -> bool {
        !self.0
    }

    fn take(&self, _charged: bool) -> core::result::Result<(), NoMemory> {
        Ok(())
    }
}

/// Memory that a part needs, and whether the manager must be woken.
type Need<I> = (
    ClassNeed<RequestOwner, QbmClass<<I as Item>::Fifo>>,
    <QbmQueue as Grow>::Need,
    UnknownClients,
);

/// Memory for a part.
type Spare<I> = <Need<I> as mem::Need>::Spare;

/// Classes of one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the FIFOs of all classes.
/// - A class is in the queue exactly if its FIFO is not empty.
/// - A class is busy in the table exactly if it has requests queued or in flight.
/// - The queue has memory for every index of the table.
pub struct State<I: Item> {
    table: ClassTable<RequestOwner, QbmClass<I::Fifo>>,
    queue: QbmQueue,
    gates: Option<mem::Shared<Gates>>,
    plan: Option<mem::Shared<Plan>>,
    /// Number of changes of the gates.
    generation: u32,
    /// Number of changes of the plan.
    plans: u32,
    by: By,
    /// Target of the requests in the default class.
    target: u32,
    queued: u32,
}

impl<I: Item> State<I> {
    /// Creates a part with nothing queued and a first reserve of memory; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: out of memory.
    pub fn new(
        config: &Config,
        seed: u64,
        _shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let tunables = config.tunables;
        let max = tunables.classes_max.get();
        let table = ClassTable::new(max, KEPT, seed, RequestOwner::SHARED, QbmClass::new(0))?;
        let mut queue = QbmQueue::new((max as usize).saturating_add(1))?;
        let spare = queue.wants(table.target()).allocate()?;
        queue.feed(spare);
        queue.create(DEFAULT);
        Ok(Self {
            table,
            queue,
            gates: None,
            plan: None,
            generation: 0,
            plans: 0,
            by: tunables.by,
            target: RequestOwner::SHARED.target,
            queued: 0,
        })
    }

    /// Returns the gates.
    #[cfg(not(MODULE))]
    pub const fn gates(&self) -> Option<&mem::Shared<Gates>> {
        self.gates.as_ref()
    }

    /// Claims a gate for the class at `idx` if its current gate is not the right one; returns true
    /// if it did.
    #[inline]
    fn settle(&mut self, idx: u32, now: u64) -> bool {
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at(idx) else {
            return false;
        };
        let holds = record.generation == self.generation
            && gates.is_none_or(|gates| gates.holds(&record.claim));
        // A class that shares a gate claims its own gate as soon as one is free.
        let own = |who: &RequestOwner| who.party != RequestOwner::SHARED.party;
        let shares = record.claim.is_shared()
            && record.fifo.is_empty()
            && self.table.key(idx).is_some_and(own);
        if holds && !shares {
            return false;
        }
        self.claim_gate(idx, now);
        true
    }

    /// Creates the class of `who`. Without room, returns the class that clients without a line
    /// share for the target.
    #[cold]
    fn create(&mut self, who: RequestOwner, now: u64) -> ClassId {
        if let Some(id) = self.make(who, ClassQuota::Free, now) {
            return id;
        }
        let is_listed = self.plan.as_deref().is_some_and(|plan| plan.lists(&who));
        let promised = || self.make(who, ClassQuota::Promised, now);
        if let Some(id) = is_listed.then(promised).flatten() {
            return id;
        }
        self.table.overflowed();
        let shared = RequestOwner {
            target: who.target,
            ..RequestOwner::SHARED
        };
        let known = self.table.look(&shared, now);
        let id = known.or_else(|| self.make(shared, ClassQuota::Shared, now));
        id.unwrap_or_else(|| {
            if core::mem::replace(&mut self.target, who.target) != who.target {
                self.claim_gate(DEFAULT, now);
            }
            DEFAULT_ID
        })
    }

    /// Creates the class of `who` in `place`, if there is room.
    fn make(&mut self, who: RequestOwner, place: ClassQuota, now: u64) -> Option<ClassId> {
        let (limit, generation) = (self.queue.capacity(), self.generation);
        let make = || QbmClass::new(generation);
        let id = self.table.create(who, place, limit, now, make)?;
        self.queue.create(id.idx());
        self.claim_gate(id.idx(), now);
        Some(id)
    }

    /// Reports the client of the class at `idx` to the manager, if the manager does not know it.
    #[inline]
    fn announce(&self, idx: u32) {
        if let Some(record) = self.table.at(idx) {
            record.announce(self.gates.as_deref());
        }
    }

    /// Claims the gate of the class at `idx`.
    fn claim_gate(&mut self, idx: u32, now: u64) {
        let gates = self.gates.as_deref();
        let who = match self.table.key(idx) {
            Some(who) if idx != DEFAULT => *who,
            _ => RequestOwner {
                target: self.target,
                ..RequestOwner::SHARED
            },
        };
        let Some(record) = self.table.at_mut(idx) else {
            return;
        };
        let (plan, plans) = (self.plan.as_deref(), self.plans);
        let unlisted = Cell::new(record.unlisted == plans);
        let is_listed = || {
            let lists = !unlisted.get() && plan.is_some_and(|plan| plan.lists(&who));
            unlisted.set(!lists);
            lists
        };
        let claim = |gates: &Gates| gates.claim(&who, &record.claim, is_listed, now);
        let claim = gates.map_or(GateClaim::NONE, claim);
        if unlisted.get() {
            record.unlisted = plans;
        }
        let front = record.fifo.front().map(Item::cost);
        let keys = record.claim_gate(gates, claim, self.generation, front, now);
        self.queue.set(idx, &mut record.keys, keys);
    }

    /// Updates the position of the class at `idx` in the queue.
    #[inline]
    fn look(&mut self, idx: u32, now: u64) {
        if self.settle(idx, now) {
            return;
        }
        let gates = self.gates.as_deref();
        if let Some(record) = self.table.at_mut(idx) {
            if let Some(cost) = record.fifo.front().map(Item::cost) {
                let keys = record.look(gates, cost, now);
                self.queue.set(idx, &mut record.keys, keys);
            }
        }
    }

    /// Removes the front of the class at `idx`, and books for the next front.
    fn serve(&mut self, idx: u32, now: u64) -> Option<(I, Grant)> {
        let id = self.table.id(idx);
        let gates = self.gates.as_deref();
        let record = self.table.at_mut(idx)?;
        let item = record.fifo.pop()?;
        // INVARIANT: one request less is queued; the class stays busy, because one more is in
        // flight.
        self.queued = self.queued.saturating_sub(1);
        record.active = record.active.saturating_add(1);
        let withheld = record.withheld(item.arrival(), now);
        let next = record.fifo.front().map(Item::cost);
        let keys = record.serve(gates, item.cost(), next, now);
        self.queue.set(idx, &mut record.keys, keys);
        Some((item, Grant::of(id).after(withheld)))
    }

    /// Returns the class to dispatch from after a bounded number of checks, or the time until which
    /// all are throttled.
    #[inline]
    fn next(&mut self, view: &PartView<'_>) -> core::result::Result<u32, u64> {
        let now = view.now;
        let mut later = None;
        for _ in 0..LOOKS {
            later = self.queue.waiting();
            match later {
                Some((idx, until)) if until <= now => self.look(idx, now),
                _ => break,
            }
        }
        for _ in 0..LOOKS {
            let Some(idx) = self.queue.ready(now) else {
                break;
            };
            if !self.settle(idx, now) {
                return Ok(idx);
            }
        }
        if view.force {
            // A class that was ready may be throttled by now.
            let waiting = self.queue.waiting().map(|(idx, _)| idx);
            if let Some(idx) = waiting.or_else(|| self.queue.ready(now)) {
                self.settle(idx, now);
                return Ok(idx);
            }
        }
        match later {
            Some((_, until)) if until > now => Err(until),
            _ => Err(now.saturating_add(PAUSE)),
        }
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need<I>;
    type Spare = Spare<I>;
    type Shared = Shared;
    type Update = Update;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        let who = RequestOwner::of(self.by, attrs);
        let known = self.table.look(&who, now);
        let id = known.unwrap_or_else(|| self.create(who, now));
        self.settle(id.idx(), now);
        self.announce(id.idx());
        id
    }

    /// Returns true if `class` may be reused. The class is not reusable while the manager does not
    /// know the client: requests are then classified, so that the worker is woken.
    fn is_live(&self, class: ClassId) -> bool {
        let gates = self.gates.as_deref();
        let knows = |record: &QbmClass<I::Fifo>| record.is_known(gates);
        self.table.is_permanent(class) && self.table.at(class.idx()).is_some_and(knows)
    }

    /// Queues the request and never declines it; uses the default class if `class` is stale.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I> {
        let idx = self.table.resolve(class);
        self.settle(idx, now);
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at_mut(idx) else {
            return Err(item);
        };
        let (first, idle) = (record.fifo.is_empty(), !record.is_active());
        let cost = item.cost();
        record.fifo.push(item);
        self.queued = self.queued.saturating_add(1);
        if first {
            record.begin(gates, now);
            let keys = record.set_front(gates, cost, now);
            self.queue.set(idx, &mut record.keys, keys);
        }
        if idle {
            self.table.busy(idx);
        }
        Ok(())
    }

    /// Removes the request. A removed front returns its tokens, and the next front takes its own.
    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I> {
        let idx = self.table.resolve(class);
        self.settle(idx, now);
        let gates = self.gates.as_deref();
        let record = self.table.at_mut(idx)?;
        let before = record.fifo.front().map(Item::cost);
        let item = record.fifo.remove(place)?;
        let next = record.fifo.front().map(Item::cost);
        self.queued = self.queued.saturating_sub(1);
        // A new front of the same cost takes over the tokens.
        if next != before {
            let keys = record.withdraw(gates, next, now);
            self.queue.set(idx, &mut record.keys, keys);
        }
        if !record.is_active() {
            self.table.idle(idx, now);
        }
        Some(item)
    }

    fn get(&mut self, view: &PartView<'_>) -> Decision<(I, Grant)> {
        if self.queued == 0 {
            return Decision::Empty;
        }
        match self.next(view) {
            Ok(idx) => match self.serve(idx, view.now) {
                Some(found) => Decision::Item(found),
                None => Decision::Empty,
            },
            Err(until) => Decision::Throttled { until },
        }
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        let (_, until) = self.queue.waiting()?;
        (until > now && self.queue.ready(now).is_none()).then_some(until)
    }

    fn pass(
        &mut self,
        class: ClassId,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        if self.table.use_mut(class).is_none() {
            return BypassOutcome::Stale;
        }
        let (idx, now) = (class.idx(), now());
        self.settle(idx, now);
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at_mut(idx) else {
            return BypassOutcome::Stale;
        };
        // The request is classified again, so that the worker is woken.
        if record.announce(gates) {
            return BypassOutcome::Stale;
        }
        match way {
            BypassReason::Merged => record.merge(gates, cost, now),
            BypassReason::Forced { .. } => record.force(gates, cost, now),
            BypassReason::Opportunity if record.pass(gates, cost, now) => {}
            BypassReason::Opportunity => return BypassOutcome::Refused,
        }
        BypassOutcome::Counted
    }

    fn refund(&mut self, class: ClassId, cost: Cost, now: u64) {
        let idx = class.idx();
        // Another gate was not charged.
        if !self.table.is_live(class) || self.settle(idx, now) {
            return;
        }
        let gates = self.gates.as_deref();
        if let Some(record) = self.table.at_mut(idx) {
            let front = record.fifo.front().map(Item::cost);
            let keys = record.refund(gates, cost, front, now);
            self.queue.set(idx, &mut record.keys, keys);
        }
    }

    fn stop(&mut self, grant: &Grant, _cost: Cost, now: u64) {
        if !self.table.is_live(grant.class) {
            return;
        }
        let idx = grant.class.idx();
        if let Some(record) = self.table.at_mut(idx) {
            record.end(self.gates.as_deref(), self.generation);
            if !record.is_active() {
                self.table.idle(idx, now);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    /// Returns the memory needed; not empty while clients are unknown to the manager.
    fn need(&self) -> Need<I> {
        let queue = self.queue.wants(self.table.target());
        let news = self.gates.as_deref().is_some_and(Gates::has_pending);
        (self.table.need(), queue, UnknownClients(news))
    }

    fn grow(&mut self, (classes, queue, ()): Spare<I>) -> Spare<I> {
        (self.table.grow(classes), self.queue.feed(queue), ())
    }

    /// Evicts classes that have been idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.table.age(now, max)
    }

    /// Installs gates and plan. With other gates, all classes claim their gates again.
    fn update(&mut self, update: Update, _now: u64) -> Update {
        let (gates, plan) = update.unzip();
        let same = match (&self.gates, &gates) {
            (Some(old), Some(new)) => old.ptr_eq(new),
            _ => false,
        };
        if !same {
            self.generation = self.generation.wrapping_add(1);
        }
        self.plans = self.plans.wrapping_add(1).max(1);
        let gates = core::mem::replace(&mut self.gates, gates);
        gates.zip(core::mem::replace(&mut self.plan, plan))
    }

    /// Updates the fronts whose gate has another rate or rank, or is replaced.
    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        let entries = self.table.entry_count();
        let end = from.saturating_add(max).min(entries);
        for idx in from..end {
            // Classes without requests are updated when a request arrives.
            let record = self.table.at(idx);
            let Some(record) = record.filter(|record| !record.fifo.is_empty()) else {
                continue;
            };
            if record.claim.is_shared() {
                self.claim_gate(idx, now);
            }
            if self.settle(idx, now) {
                continue;
            }
            let gates = self.gates.as_deref();
            let record = self.table.at(idx);
            if record.is_some_and(|record| record.is_outdated(gates)) {
                self.look(idx, now);
            }
        }
        (end < entries).then_some(end)
    }

    /// Returns the number of requests for which no class could be created.
    fn overflow(&self) -> u64 {
        self.table.overflow()
    }
}

#[cfg(test)]
mod tests;
