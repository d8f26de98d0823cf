// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth classes with guaranteed minimums: every client gets what its class promises.
//!
//! # Vocabulary
//!
//! - *Class*: the requests of one client for one target ([`Who`]); not to be confused with the class of
//!   bandwidth that the client is promised, which is here only a *rank*.
//! - *Gate*, *seat*: the leaky bucket of a client in a group, and its index ([`crate::sched::qbm::gate`]); an
//!   [`Update`] brings the gates.
//! - *Walk*: the service's worker looks at all classes ([`State::seat_briefs`]) and gives each its seat
//!   ([`State::seat`]).
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
//! # Without a seat
//!
//! Who a client is to the plan, only the worker finds out. Until it has, the requests of a new class wait;
//! [`Part::need`] says so, which is what wakes the worker. After a second they go all the same, and are
//! charged later. A class whose client was away for a while has lost its seat and is new again.

use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassTable, Found, DEFAULT},
    item::{Cost, Fifo, Item},
    mem::{self, Grow, Need as _, NoMemory},
    policy::{Get, Grant, Part, Passed, View, Way, ROWS},
    qbm::{
        gate::{Gates, NO_SEAT},
        plan::{By, Who},
    },
};

pub(crate) mod config;
pub(crate) mod control;
mod overseer;
pub mod params;
pub(crate) mod queue;
pub(crate) mod record;

use queue::{Keys, Queue};
use record::{Hold, Record};

pub use crate::sched::policy::{Nothing as Counts, Nothing as Shared};
pub use config::{Config, Update};
pub use control::Kept;
pub use overseer::Overseer;
pub use params::{Tunables, PARAMETERS};

/// Classes whose time has come that one [`Part::get`] looks at.
const LOOKS: u32 = 64;

/// Slots that one call of [`State::seat_briefs`] looks at.
const SLOTS: u32 = 4 * ROWS as u32;

/// Time after which a part that looked at many classes is to be asked again, ns.
const PAUSE: u64 = 1;

/// What the worker is told of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The class.
    pub id: ClassId,
    /// Whose requests they are.
    pub who: Who,
    /// Its gate, or [`NO_SEAT`].
    pub seat: u32,
    /// Requests are queued or in service, or went since the last walk.
    pub busy: bool,
}

/// A buffer for [`State::seat_briefs`].
pub type BriefBuf = mem::Block<Brief, ROWS>;

/// Whether classes want seats, which are no memory.
#[derive(Clone, Copy)]
pub struct Seats(bool);

impl mem::Need for Seats {
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
    Seats,
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
    update: Update,
    /// Counts updates.
    epoch: u32,
    by: By,
    queued: u32,
    /// A class without a seat came since the last walk began.
    asking: bool,
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
        let tunables = config.tunables();
        let max = tunables.classes_max.get();
        let table = ClassTable::new(max, seed, Who::NOBODY, Record::new(0))?;
        let mut queue = Queue::new((max as usize).saturating_add(1))?;
        let spare = queue.wants(table.target()).allocate()?;
        queue.feed(spare);
        queue.create(DEFAULT);
        Ok(Self {
            table,
            queue,
            update: Update::none(),
            epoch: 0,
            by: tunables.by,
            queued: 0,
            asking: false,
        })
    }

    /// The gates.
    pub const fn gates(&self) -> Option<&mem::Shared<Gates>> {
        self.update.gates()
    }

    /// Tells of classes from slot `from` on until `out` is full or many were looked at; returns the slot to
    /// go on from, or `None` at the end. Also tells the gates of those that wait that they do.
    pub fn seat_briefs(&mut self, from: u32, now: u64, out: &mut BriefBuf) -> Option<u32> {
        if from == 0 {
            self.asking = false;
        }
        let slots = self.table.slots();
        let end = from.saturating_add(SLOTS).min(slots);
        for slot in from..end {
            if out.is_full() {
                return Some(slot);
            }
            self.renew(slot, now);
            let (id, who) = (self.table.id(slot), self.table.key(slot).copied());
            let (Some(who), Some(record)) = (who, self.table.at_mut(slot)) else {
                continue;
            };
            record.sleep(self.update.get(), now);
            let busy = core::mem::replace(&mut record.used, false) || record.is_active();
            if slot == DEFAULT && !busy && record.seat == NO_SEAT {
                continue;
            }
            let seat = record.seat;
            // There is room.
            let _ = out.push(Brief {
                id,
                who,
                seat,
                busy,
            });
        }
        (end < slots).then_some(end)
    }

    /// Gives a class its gate, another one, or none; nothing if the class is gone.
    pub fn seat(&mut self, id: ClassId, seat: u32, now: u64) {
        if !self.table.is_live(id) {
            return;
        }
        let slot = id.slot();
        self.renew(slot, now);
        let gates = self.update.get();
        if let Some(record) = self.table.at_mut(slot).filter(|record| record.seat != seat) {
            let front = record.fifo.front().map(Item::cost);
            let keys = record.sit(gates, seat, front, now);
            self.queue.set(slot, &mut record.keys, keys);
            if front.is_some() {
                self.ask(slot);
            }
        }
    }

    /// Notes whether the class in `slot` wants a seat.
    #[inline]
    fn ask(&mut self, slot: u32) {
        let gates = self.update.get();
        let record = self.table.at(slot);
        if record.is_some_and(|record| matches!(Hold::of(gates, record.seat), Hold::Unseated)) {
            self.asking = true;
        }
    }

    /// Has the class in `slot` forget its seat if that was among gates of before; whether it did.
    #[inline]
    fn renew(&mut self, slot: u32, now: u64) -> bool {
        let epoch = self.epoch;
        let gates = self.update.get();
        let Some(record) = self.table.at_mut(slot) else {
            return false;
        };
        if record.epoch == epoch {
            return false;
        }
        let front = record.fifo.front().map(Item::cost);
        let keys = record.renew(gates, epoch, front, now);
        self.queue.set(slot, &mut record.keys, keys);
        true
    }

    /// Looks again where the class in `slot` is.
    #[inline]
    fn look(&mut self, slot: u32, now: u64) {
        if self.renew(slot, now) {
            return;
        }
        let gates = self.update.get();
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
        let gates = self.update.get();
        let record = self.table.at_mut(slot)?;
        let item = record.fifo.pop()?;
        // INVARIANT: one request less is queued; the class stays busy, as one more is in service.
        self.queued = self.queued.saturating_sub(1);
        record.active = record.active.saturating_add(1);
        let withheld = record.withheld(item.arrival(), now);
        record.serve(gates, item.cost(), now);
        let keys = match record.fifo.front().map(Item::cost) {
            Some(next) => record.stage(gates, next, now),
            None => Keys::Away,
        };
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
            if !self.renew(slot, now) {
                return Ok(slot);
            }
        }
        match later {
            Some((slot, _)) if view.force => Ok(slot),
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
        let limit = self.queue.capacity();
        let epoch = self.epoch;
        let found = self.table.classify(who, now, limit, || Record::new(epoch));
        let id = match found {
            Found::New(id) => {
                self.queue.create(id.slot());
                id
            }
            Found::Known(id) | Found::Overflow(id) => id,
        };
        self.renew(id.slot(), now);
        self.ask(id.slot());
        id
    }

    /// A class that waits for a seat is asked for again, so that the worker hears of it.
    fn is_live(&self, class: ClassId) -> bool {
        let gates = self.update.get();
        class.slot() != DEFAULT
            && self.table.is_live(class)
            && self.table.at(class.slot()).is_some_and(|record| {
                record.epoch == self.epoch
                    && !matches!(Hold::of(gates, record.seat), Hold::Unseated)
            })
    }

    /// Never declines; a stale class is the default class.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I> {
        let slot = self.table.resolve(class);
        self.renew(slot, now);
        self.ask(slot);
        let gates = self.update.get();
        let Some(record) = self.table.at_mut(slot) else {
            return Err(item);
        };
        let (first, idle) = (record.fifo.is_empty(), !record.is_active());
        let cost = item.cost();
        record.fifo.push(item);
        self.queued = self.queued.saturating_add(1);
        if first {
            record.begin(Hold::of(gates, record.seat), now);
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
        self.renew(slot, now);
        let gates = self.update.get();
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

    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed {
        if self.table.use_mut(class).is_none() {
            return Passed::Stale;
        }
        let (slot, now) = (class.slot(), now());
        self.renew(slot, now);
        let gates = self.update.get();
        let Some(record) = self.table.at_mut(slot) else {
            return Passed::Stale;
        };
        match way {
            Way::Forced => record.force(gates, cost, now),
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
            record.active = record.active.saturating_sub(1);
            if !record.is_active() {
                self.table.idle(slot, now);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    /// Also not empty while classes want seats.
    fn need(&self) -> Need<I> {
        let queue = self.queue.wants(self.table.target());
        (self.table.need(), queue, Seats(self.asking))
    }

    fn grow(&mut self, (classes, queue, ()): Spare<I>) -> Spare<I> {
        (self.table.grow(classes), self.queue.feed(queue), ())
    }

    /// Forgets classes that were idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.table.age(now, max)
    }

    /// With other gates, all classes are without a seat.
    fn update(&mut self, update: Update, _now: u64) -> Update {
        self.epoch = self.epoch.wrapping_add(1);
        core::mem::replace(&mut self.update, update)
    }

    /// Looks at the fronts whose gate has another rate or rank.
    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        let slots = self.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            let gates = self.update.get();
            let record = self.table.at(slot);
            if record.is_some_and(|record| record.epoch != self.epoch || record.is_outdated(gates))
            {
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
