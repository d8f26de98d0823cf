// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth classes with guaranteed minimums: every client gets what its class promises.
//!
//! # Vocabulary
//!
//! - *Class*: the requests of one client for one target ([`Who`]); not to be confused with the class of
//!   bandwidth that the client is promised, which is here only a *rank*.
//! - *Gate*: the leaky bucket of a client in a group, which classes of all partitions share; an [`Update`] brings
//!   the gates. A class claims the gate of its client when it needs it ([`crate::sched::qbm::gate::table`]).
//! - *Front*: the oldest queued request of a class; its gate decides when it may go ([`record`]).
//!
//! ```text
//!             enqueue            the gate lets it go          its turn         stop
//!  (request) ─────────► FIFO of ─────────────────────► ready ─────────► in service ───► (gone)
//!      │                 class                                             ▲
//!      └─────────────── pass, if there are tokens or it must ──────────────┘
//! ```
//!
//! # Which class goes first
//!
//! Of the fronts that have their tokens, those that nothing holds back, then those of first_come, fair_share,
//! low_share and mover; within a rank whoever has had them for longest ([`queue`]). A front that has had its
//! tokens for longer than it would have waited for them at the floor, the least rate that anybody has, goes
//! before all others. So no rank takes the floor from another, whatever is asked of the device.
//!
//! # New clients
//!
//! What the plan promises a client, the worker finds out. Until it has, the client has what newcomers of its group
//! start with; [`Part::need`] says that there is somebody to meet, which wakes the worker.
//!
//! # When tables are full
//!
//! A part asks the plan only for whom few places are left: a quarter of its classes and part of the gates are kept for
//! clients that have a line ([`Plan::lists`]). Others share one class for each target, which is charged to the shared gate of
//! its group.

use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassTable, Place, DEFAULT, DEFAULT_ID},
    item::{Cost, Fifo, Item},
    mem::{self, Grow, Need as _, NoMemory},
    policy::{Get, Grant, NoArgument, Part, Passed, Simple, View, Way},
    qbm::{
        gate::{Gates, Seat},
        plan::{By, Plan, Who},
    },
};
use core::cell::Cell;

pub(crate) mod control;
mod overseer;
pub mod params;
pub(crate) mod queue;
pub(crate) mod record;

use queue::Queue;
use record::Record;

pub use crate::sched::policy::{Nothing as Counts, Nothing as Shared};
pub use control::Kept;
pub use overseer::Overseer;
pub use params::{Tunables, PARAMETERS};

/// What a part is told: the gates of its service, and the plan; none: nobody is held back.
pub type Update = Option<(mem::Shared<Gates>, mem::Shared<Plan>)>;

/// One place in so many of the table is kept for clients that the plan lists, and for shared classes.
const KEPT: u32 = 4;

/// Configuration of a part.
pub type Config = NoArgument<Tunables>;

impl Simple for Tunables {
    type Update = Update;
}

/// Classes whose time has come that one [`Part::get`] looks at.
const LOOKS: u32 = 64;

/// Time after which a part that looked at many classes is to be asked again, ns.
const PAUSE: u64 = 1;

/// Whether there are clients for the worker to meet, which takes no memory.
#[derive(Clone, Copy)]
pub struct News(bool);

impl mem::Need for News {
    type Spare = ();

    fn is_empty(&self) -> bool {
        !self.0
    }

    fn take(&self, _charged: bool) -> core::result::Result<(), NoMemory> {
        Ok(())
    }
}

/// What memory a part wants, and whether classes want seats.
type Need<I> = (
    ClassNeed<Who, Record<<I as Item>::Fifo>>,
    <Queue as Grow>::Need,
    News,
);

/// Memory for a part.
type Spare<I> = <Need<I> as mem::Need>::Spare;

/// The classes of one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the FIFOs of all classes.
/// - A class is in the queue exactly if its FIFO is not empty, and busy in the table exactly if it has
///   requests queued or in service.
/// - The queue has memory for every slot of the table.
pub struct State<I: Item> {
    table: ClassTable<Who, Record<I::Fifo>>,
    queue: Queue,
    gates: Option<mem::Shared<Gates>>,
    plan: Option<mem::Shared<Plan>>,
    /// Counts gates.
    generation: u32,
    /// Counts plans.
    plans: u32,
    by: By,
    /// The target of what the default class serves.
    target: u32,
    queued: u32,
}

impl<I: Item> State<I> {
    /// A part with nothing queued and its first reserve of memory; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(
        config: &Config,
        seed: u64,
        _shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let tunables = config.tunables;
        let max = tunables.classes_max.get();
        let table = ClassTable::new(max, KEPT, seed, Who::NOBODY, Record::new(0))?;
        let mut queue = Queue::new((max as usize).saturating_add(1))?;
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
            target: Who::NOBODY.target,
            queued: 0,
        })
    }

    /// The gates.
    pub const fn gates(&self) -> Option<&mem::Shared<Gates>> {
        self.gates.as_ref()
    }

    /// Has the class in `slot` look for its gate, if the one it has is not the right one any more; whether it did.
    #[inline]
    fn settle(&mut self, slot: u32, now: u64) -> bool {
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at(slot) else {
            return false;
        };
        let holds = record.generation == self.generation
            && gates.is_none_or(|gates| gates.holds(&record.seat));
        // A class that shares a gate takes its own as soon as there is one.
        let own = |who: &Who| who.party != Who::NOBODY.party;
        let shares = record.seat.is_shared()
            && record.fifo.is_empty()
            && self.table.key(slot).is_some_and(own);
        if holds && !shares {
            return false;
        }
        self.sit(slot, now);
        true
    }

    /// Makes the class of `who`; without room it is the class that clients without a line share for the target.
    #[cold]
    fn create(&mut self, who: Who, now: u64) -> ClassId {
        if let Some(id) = self.make(who, Place::Free, now) {
            return id;
        }
        let is_listed = self.plan.as_deref().is_some_and(|plan| plan.lists(&who));
        let promised = || self.make(who, Place::Promised, now);
        if let Some(id) = is_listed.then(promised).flatten() {
            return id;
        }
        self.table.overflowed();
        let shared = Who {
            target: who.target,
            ..Who::NOBODY
        };
        let known = self.table.look(&shared, now);
        let id = known.or_else(|| self.make(shared, Place::Shared, now));
        id.unwrap_or_else(|| {
            if core::mem::replace(&mut self.target, who.target) != who.target {
                self.sit(DEFAULT, now);
            }
            DEFAULT_ID
        })
    }

    /// Makes the class of `who` in `place`, if there is room.
    fn make(&mut self, who: Who, place: Place, now: u64) -> Option<ClassId> {
        let (limit, generation) = (self.queue.capacity(), self.generation);
        let make = || Record::new(generation);
        let id = self.table.create(who, place, limit, now, make)?;
        self.queue.create(id.slot());
        self.sit(id.slot(), now);
        Some(id)
    }

    /// Tells the manager of the client of the class in `slot`, if it does not know of it.
    #[inline]
    fn announce(&self, slot: u32) {
        if let Some(record) = self.table.at(slot) {
            record.announce(self.gates.as_deref());
        }
    }

    /// Has the class in `slot` claim its gate.
    fn sit(&mut self, slot: u32, now: u64) {
        let gates = self.gates.as_deref();
        let who = match self.table.key(slot) {
            Some(who) if slot != DEFAULT => *who,
            _ => Who {
                target: self.target,
                ..Who::NOBODY
            },
        };
        let Some(record) = self.table.at_mut(slot) else {
            return;
        };
        let (plan, plans) = (self.plan.as_deref(), self.plans);
        let unlisted = Cell::new(record.unlisted == plans);
        let is_listed = || {
            let lists = !unlisted.get() && plan.is_some_and(|plan| plan.lists(&who));
            unlisted.set(!lists);
            lists
        };
        let claim = |gates: &Gates| gates.claim(&who, &record.seat, is_listed, now);
        let seat = gates.map_or(Seat::NONE, claim);
        if unlisted.get() {
            record.unlisted = plans;
        }
        let front = record.fifo.front().map(Item::cost);
        let keys = record.sit(gates, seat, self.generation, front, now);
        self.queue.set(slot, &mut record.keys, keys);
    }

    /// Looks again where the class in `slot` is.
    #[inline]
    fn look(&mut self, slot: u32, now: u64) {
        if self.settle(slot, now) {
            return;
        }
        let gates = self.gates.as_deref();
        if let Some(record) = self.table.at_mut(slot) {
            if let Some(cost) = record.fifo.front().map(Item::cost) {
                let keys = record.look(gates, cost, now);
                self.queue.set(slot, &mut record.keys, keys);
            }
        }
    }

    /// Takes the front of the class in `slot` out, and books for the next.
    fn serve(&mut self, slot: u32, now: u64) -> Option<(I, Grant)> {
        let id = self.table.id(slot);
        let gates = self.gates.as_deref();
        let record = self.table.at_mut(slot)?;
        let item = record.fifo.pop()?;
        // INVARIANT: one request less is queued; the class stays busy, as one more is in service.
        self.queued = self.queued.saturating_sub(1);
        record.active = record.active.saturating_add(1);
        let withheld = record.withheld(item.arrival(), now);
        let next = record.fifo.front().map(Item::cost);
        let keys = record.serve(gates, item.cost(), next, now);
        self.queue.set(slot, &mut record.keys, keys);
        Some((item, Grant::of(id).after(withheld)))
    }

    /// The class that goes next, at the price of a few looks; or until when all wait.
    #[inline]
    fn next(&mut self, view: &View<'_>) -> core::result::Result<u32, u64> {
        let now = view.now;
        let mut later = None;
        for _ in 0..LOOKS {
            later = self.queue.waiting();
            match later {
                Some((slot, until)) if until <= now => self.look(slot, now),
                _ => break,
            }
        }
        for _ in 0..LOOKS {
            let Some(slot) = self.queue.ready(now) else {
                break;
            };
            if !self.settle(slot, now) {
                return Ok(slot);
            }
        }
        if view.force {
            // What was ready may wait by now.
            let waiting = self.queue.waiting().map(|(slot, _)| slot);
            if let Some(slot) = waiting.or_else(|| self.queue.ready(now)) {
                self.settle(slot, now);
                return Ok(slot);
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
        let who = Who::of(self.by, attrs);
        let known = self.table.look(&who, now);
        let id = known.unwrap_or_else(|| self.create(who, now));
        self.settle(id.slot(), now);
        self.announce(id.slot());
        id
    }

    /// Also not while the manager does not know of the client: its requests are classified, so that the worker is woken.
    fn is_live(&self, class: ClassId) -> bool {
        let gates = self.gates.as_deref();
        let knows = |record: &Record<I::Fifo>| record.is_known(gates);
        self.table.is_settled(class) && self.table.at(class.slot()).is_some_and(knows)
    }

    /// Never declines; a stale class is the default class.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I> {
        let slot = self.table.resolve(class);
        self.settle(slot, now);
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at_mut(slot) else {
            return Err(item);
        };
        let (first, idle) = (record.fifo.is_empty(), !record.is_active());
        let cost = item.cost();
        record.fifo.push(item);
        self.queued = self.queued.saturating_add(1);
        if first {
            record.begin(gates, now);
            let keys = record.stage(gates, cost, now);
            self.queue.set(slot, &mut record.keys, keys);
        }
        if idle {
            self.table.busy(slot);
        }
        Ok(())
    }

    /// A front gives back what it has taken, and the next one takes for itself.
    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I> {
        let slot = self.table.resolve(class);
        self.settle(slot, now);
        let gates = self.gates.as_deref();
        let record = self.table.at_mut(slot)?;
        let before = record.fifo.front().map(Item::cost);
        let item = record.fifo.remove(place)?;
        let next = record.fifo.front().map(Item::cost);
        self.queued = self.queued.saturating_sub(1);
        // A front that costs as much takes over what was taken.
        if next != before {
            let keys = record.withdraw(gates, next, now);
            self.queue.set(slot, &mut record.keys, keys);
        }
        if !record.is_active() {
            self.table.idle(slot, now);
        }
        Some(item)
    }

    fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)> {
        if self.queued == 0 {
            return Get::Empty;
        }
        match self.next(view) {
            Ok(slot) => match self.serve(slot, view.now) {
                Some(found) => Get::Item(found),
                None => Get::Empty,
            },
            Err(until) => Get::Throttled { until },
        }
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        let (_, until) = self.queue.waiting()?;
        (until > now && self.queue.ready(now).is_none()).then_some(until)
    }

    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed {
        if self.table.use_mut(class).is_none() {
            return Passed::Stale;
        }
        let (slot, now) = (class.slot(), now());
        self.settle(slot, now);
        let gates = self.gates.as_deref();
        let Some(record) = self.table.at_mut(slot) else {
            return Passed::Stale;
        };
        // Classified once more, so that the worker is woken.
        if record.announce(gates) {
            return Passed::Stale;
        }
        match way {
            Way::Merged => record.merge(gates, cost, now),
            Way::Forced { .. } => record.force(gates, cost, now),
            Way::Opportunity if record.pass(gates, cost, now) => {}
            Way::Opportunity => return Passed::Refused,
        }
        Passed::Counted
    }

    fn stop(&mut self, grant: &Grant, _cost: Cost, now: u64) {
        if !self.table.is_live(grant.class) {
            return;
        }
        let slot = grant.class.slot();
        if let Some(record) = self.table.at_mut(slot) {
            record.end(self.gates.as_deref(), self.generation);
            if !record.is_active() {
                self.table.idle(slot, now);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    /// Also not empty while there are clients for the worker to meet.
    fn need(&self) -> Need<I> {
        let queue = self.queue.wants(self.table.target());
        let news = self.gates.as_deref().is_some_and(Gates::has_news);
        (self.table.need(), queue, News(news))
    }

    fn grow(&mut self, (classes, queue, ()): Spare<I>) -> Spare<I> {
        (self.table.grow(classes), self.queue.feed(queue), ())
    }

    /// Forgets classes that were idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.table.age(now, max)
    }

    /// With other gates, all classes look for theirs.
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

    /// Looks at the fronts whose gate has another rate or rank, or is another one.
    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        let slots = self.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            // Those without requests look when they have some.
            let record = self.table.at(slot);
            let Some(record) = record.filter(|record| !record.fifo.is_empty()) else {
                continue;
            };
            if record.seat.is_shared() {
                self.sit(slot, now);
            }
            if self.settle(slot, now) {
                continue;
            }
            let gates = self.gates.as_deref();
            let record = self.table.at(slot);
            if record.is_some_and(|record| record.is_outdated(gates)) {
                self.look(slot, now);
            }
        }
        (end < slots).then_some(end)
    }

    /// The gates count.
    fn overflow(&self) -> u64 {
        self.table.overflow()
    }
}

#[cfg(test)]
mod tests;
