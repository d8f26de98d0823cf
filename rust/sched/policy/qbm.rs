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
    class::DEFAULT,
    item::{Cost, Fifo, Item},
    mem::{self, NoMemory},
    policy::{
        classes::{self, ClassOf, Classful},
        BypassOutcome, BypassReason, Decision, NoArgument, PartView, Simple,
    },
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
pub use control::PolicyData;
pub use overseer::Overseer;
pub use params::{Tunables, PARAMETERS};

/// Update of a part: the gates of its service, and the plan; `None` means that nothing is limited.
pub type Update = Option<(mem::Shared<Gates>, mem::Shared<Plan>)>;

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

impl Simple for Tunables {
    type Update = Update;
}

/// Maximum number of classes whose time has come that one [`Part::get`] examines.
///
/// [`Part::get`]: crate::sched::policy::Part::get
const LOOKS: u32 = 64;

/// Time after which a part that examined [`LOOKS`] classes is called again, ns.
const PAUSE: u64 = 1;

/// Gates and plan on one head.
pub struct Qbm {
    gates: Option<mem::Shared<Gates>>,
    plan: Option<mem::Shared<Plan>>,
    /// Number of changes of the gates.
    generation: u32,
    /// Number of changes of the plan.
    plans: u32,
    by: By,
    /// Target of the requests in the default class.
    target: u32,
}

impl Qbm {
    /// Returns true if the plan has a line for `who`.
    fn lists(&self, who: &RequestOwner) -> bool {
        self.plan.as_deref().is_some_and(|plan| plan.lists(who))
    }

    /// Returns true if the class has a claim of the present gates that is valid.
    #[inline]
    fn holds<F>(&self, record: &QbmClass<F>) -> bool {
        let gates = self.gates.as_deref();
        record.generation == self.generation && gates.is_none_or(|gates| gates.holds(&record.claim))
    }

    /// Returns true if the class needs no other claim. A class that shares a gate claims a gate of
    /// its own as soon as one is free.
    #[inline]
    fn has_gate<F: Fifo>(&self, record: &QbmClass<F>) -> bool {
        self.holds(record) && !(record.claim.is_shared() && record.fifo.is_empty())
    }
}

/// Classes of one head.
///
/// # Invariants
///
/// A class is in the queue exactly if its FIFO is not empty.
pub type State<I> = classes::State<I, Qbm>;

impl<I: Item> State<I> {
    /// Returns the gates.
    #[cfg(not(MODULE))]
    pub const fn gates(&self) -> Option<&mem::Shared<Gates>> {
        self.policy.gates.as_ref()
    }

    /// Claims a gate for the class at `idx` if its current gate is not the right one; returns true
    /// if it did.
    #[inline]
    fn sync_gate(&mut self, idx: u32, now: u64) -> bool {
        let Some(class) = self.table.at(idx) else {
            return false;
        };
        if self.policy.has_gate(&class.record) {
            return false;
        }
        let own = |who: &RequestOwner| who.party != RequestOwner::SHARED.party;
        if self.policy.holds(&class.record) && !self.table.key(idx).is_some_and(own) {
            return false;
        }
        self.claim_gate(idx, now);
        true
    }

    /// Claims the gate of the class at `idx`.
    fn claim_gate(&mut self, idx: u32, now: u64) {
        let policy = &self.policy;
        let who = match self.table.key(idx) {
            Some(who) if idx != DEFAULT => *who,
            _ => RequestOwner {
                target: policy.target,
                ..RequestOwner::SHARED
            },
        };
        let Some(class) = self.table.at_mut(idx) else {
            return;
        };
        let active = class.active();
        let record = &mut class.record;
        let unlisted = Cell::new(record.unlisted == policy.plans);
        let is_listed = || {
            let lists = !unlisted.get() && policy.lists(&who);
            unlisted.set(!lists);
            lists
        };
        let gates = policy.gates.as_deref();
        let claim = |gates: &Gates| gates.claim(&who, &record.claim, is_listed, now);
        let claim = gates.map_or(GateClaim::NONE, claim);
        if unlisted.get() {
            record.unlisted = policy.plans;
        }
        let keys = record.claim_gate(gates, claim, policy.generation, active, now);
        self.queue.set(idx, &mut record.keys, keys);
    }

    /// Updates the position of the class at `idx` in the queue.
    #[inline]
    fn requeue(&mut self, idx: u32, now: u64) {
        if self.sync_gate(idx, now) {
            return;
        }
        let gates = self.policy.gates.as_deref();
        if let Some(class) = self.table.at_mut(idx) {
            let keys = class.record.refresh(gates, now);
            self.queue.set(idx, &mut class.record.keys, keys);
        }
    }
}

impl<I: Item> Classful<I> for Qbm {
    type Key = RequestOwner;
    type Record = QbmClass<I::Fifo>;
    type Queue = QbmQueue;
    type Config = Config;
    type Shared = Shared;
    type Update = Update;

    /// Entries for clients that the plan lists, and for shared classes.
    const KEPT: u32 = 4;
    const DEFAULT: RequestOwner = RequestOwner::SHARED;

    fn new(
        config: &Config,
        _seed: u64,
        _shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            gates: None,
            plan: None,
            generation: 0,
            plans: 0,
            by: config.tunables.by,
            target: RequestOwner::SHARED.target,
        })
    }

    fn classes_max(config: &Config) -> u32 {
        config.tunables.classes_max.get()
    }

    fn queue(_config: &Config, entries: usize) -> core::result::Result<QbmQueue, NoMemory> {
        QbmQueue::new(entries)
    }

    fn key(&self, attrs: &Attrs) -> RequestOwner {
        RequestOwner::of(self.by, attrs)
    }

    /// Returns the key of the class that clients without a line share for the target.
    fn shared(&self, who: &RequestOwner) -> Option<RequestOwner> {
        Some(RequestOwner {
            target: who.target,
            ..RequestOwner::SHARED
        })
    }

    fn is_promised(&self, who: &RequestOwner) -> bool {
        self.lists(who)
    }

    fn record(
        &mut self,
        _who: Option<&RequestOwner>,
        _shared: Option<&RequestOwner>,
        _now: u64,
    ) -> QbmClass<I::Fifo> {
        // The class claims its gate at the first use.
        QbmClass::new(self.generation.wrapping_sub(1))
    }

    /// Settles the class, and reports its client to the manager if the manager does not know it.
    fn classified(state: &mut State<I>, idx: u32, who: &RequestOwner, now: u64) {
        if idx == DEFAULT {
            let before = core::mem::replace(&mut state.policy.target, who.target);
            if before != who.target {
                state.claim_gate(idx, now);
            }
        }
        state.sync_gate(idx, now);
        if let Some(class) = state.table.at(idx) {
            class.record.announce(state.policy.gates.as_deref());
        }
    }

    /// Returns true if the manager knows the client: otherwise requests are classified, so that the
    /// worker is woken.
    fn is_reusable(&self, record: &QbmClass<I::Fifo>) -> bool {
        record.is_known(self.gates.as_deref())
    }

    /// Returns true while clients are unknown to the manager.
    fn calls_worker(&self) -> bool {
        self.gates.as_deref().is_some_and(Gates::has_pending)
    }

    #[inline]
    fn is_synced(&self, record: &QbmClass<I::Fifo>) -> bool {
        self.has_gate(record)
    }

    fn sync(state: &mut State<I>, idx: u32, now: u64) -> u32 {
        state.sync_gate(idx, now);
        0
    }

    /// Updates the front if its gate has another rate or rank, or is replaced.
    fn refresh(state: &mut State<I>, idx: u32, now: u64) -> u32 {
        // Classes without requests are updated when a request arrives.
        let class = state.table.at(idx);
        let Some(class) = class.filter(|class| class.queued() > 0) else {
            return 0;
        };
        if class.record.claim.is_shared() {
            state.claim_gate(idx, now);
        }
        if state.sync_gate(idx, now) {
            return 0;
        }
        let gates = state.policy.gates.as_deref();
        let class = state.table.at(idx);
        if class.is_some_and(|class| class.record.is_outdated(gates)) {
            state.requeue(idx, now);
        }
        0
    }

    /// Queues the request and never declines it.
    fn push(
        &mut self,
        queue: &mut QbmQueue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        item: I,
        now: u64,
    ) -> core::result::Result<(), I> {
        let record = &mut class.record;
        let first = record.fifo.is_empty();
        record.fifo.push(item);
        if first {
            let keys = record.begin(self.gates.as_deref(), now);
            queue.set(idx, &mut record.keys, keys);
        }
        Ok(())
    }

    /// Removes the request. A removed front returns its tokens, and the next front takes its own.
    fn remove(
        &mut self,
        queue: &mut QbmQueue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I> {
        let record = &mut class.record;
        let before = record.front();
        let item = record.fifo.remove(handle)?;
        // A new front of the same cost takes over the tokens.
        if record.front() != before {
            let keys = record.withdraw(self.gates.as_deref(), now);
            queue.set(idx, &mut record.keys, keys);
        }
        Some(item)
    }

    #[inline]
    fn next(state: &mut State<I>, view: &PartView<'_>) -> Decision<u32> {
        let now = view.now;
        let mut later = None;
        for _ in 0..LOOKS {
            later = state.queue.waiting();
            match later {
                Some((idx, until)) if until <= now => state.requeue(idx, now),
                _ => break,
            }
        }
        for _ in 0..LOOKS {
            let Some(idx) = state.queue.ready(now) else {
                break;
            };
            if !state.sync_gate(idx, now) {
                return Decision::Item(idx);
            }
        }
        if view.force {
            // A class that was ready may be throttled by now.
            let waiting = state.queue.waiting().map(|(idx, _)| idx);
            if let Some(idx) = waiting.or_else(|| state.queue.ready(now)) {
                state.sync_gate(idx, now);
                return Decision::Item(idx);
            }
        }
        let until = match later {
            Some((_, until)) if until > now => until,
            _ => now.saturating_add(PAUSE),
        };
        Decision::Throttled { until }
    }

    fn throttled(state: &State<I>, now: u64) -> Option<u64> {
        let (_, until) = state.queue.waiting()?;
        (until > now && state.queue.ready(now).is_none()).then_some(until)
    }

    #[inline]
    fn pop(
        &mut self,
        queue: &mut QbmQueue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        now: u64,
    ) -> Option<(I, u32)> {
        let record = &mut class.record;
        let item = record.fifo.pop()?;
        let withheld = record.withheld(item.arrival(), now);
        let keys = record.serve(self.gates.as_deref(), item.cost(), now);
        queue.set(idx, &mut record.keys, keys);
        Some((item, withheld))
    }

    fn pass(
        state: &mut State<I>,
        idx: u32,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        let now = now();
        state.sync_gate(idx, now);
        let gates = state.policy.gates.as_deref();
        let Some(class) = state.table.at_mut(idx) else {
            return BypassOutcome::Stale;
        };
        let record = &mut class.record;
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

    fn refund(state: &mut State<I>, idx: u32, cost: Cost, now: u64) {
        // Another gate was not charged.
        if state.sync_gate(idx, now) {
            return;
        }
        if let Some(class) = state.table.at_mut(idx) {
            let keys = class
                .record
                .refund(state.policy.gates.as_deref(), cost, now);
            state.queue.set(idx, &mut class.record.keys, keys);
        }
    }

    fn end(&mut self, record: &mut QbmClass<I::Fifo>) {
        record.end(self.gates.as_deref(), self.generation);
    }

    /// Installs gates and plan. With other gates, all classes claim their gates again.
    fn update(state: &mut State<I>, update: Update) -> Update {
        let policy = &mut state.policy;
        let (gates, plan) = update.unzip();
        let same = match (&policy.gates, &gates) {
            (Some(old), Some(new)) => old.ptr_eq(new),
            _ => false,
        };
        if !same {
            policy.generation = policy.generation.wrapping_add(1);
        }
        policy.plans = policy.plans.wrapping_add(1).max(1);
        let gates = core::mem::replace(&mut policy.gates, gates);
        gates.zip(core::mem::replace(&mut policy.plan, plan))
    }
}

#[cfg(test)]
mod tests;
