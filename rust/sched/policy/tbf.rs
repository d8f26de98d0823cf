// SPDX-License-Identifier: GPL-2.0-only

//! Token bucket filter: no class of requests goes faster than its rule says.
//!
//! # Vocabulary
//!
//! - *Type*: the fields of a request that make its class ([`Config::fields`]).
//! - *Rule*: whom a limit is for, and what it is; the first rule that matches a class counts
//!   ([`crate::sched::rules`]).
//! - *Bucket*: tokens of a class, of a rule, or of all rules together ([`crate::sched::bucket`]).
//! - *Plan*: the rules, ready for use ([`plan`]); an [`Update`] brings a new one.
//! - *Front*: the oldest queued request of a class; what its buckets have for it decides when it may go
//!   ([`record`]).
//!
//! ```text
//!             enqueue                 get, when the front has its tokens         stop
//!  (request) ─────────► FIFO of its ─────────────────────────────────► in service ───► (gone)
//!      │                  class                                            ▲
//!      └───────────────── pass, if there are tokens or it must ────────────┘
//! ```
//!
//! # Which class goes first
//!
//! Classes with queued requests are in a heap by the time at which their front has its tokens
//! ([`queue`]). A class without tokens is therefore behind all that have some, and delays nobody. Classes
//! below their floor (`minrate`) go before all others.
//!
//! # When rules change
//!
//! [`Part::update`] swaps the plan; [`Part::refresh`] matches the classes anew, a few at a time, and so does
//! whatever touches a class before. What a front has taken is given back and taken from the new buckets; a
//! bucket under a new rule or rate is as full as the old one was, so that no change gives anybody a token.

use crate::sched::{
    attr::Attrs,
    bucket::instant,
    class::{ClassId, ClassNeed, ClassSpare, ClassTable, Found, DEFAULT},
    item::{Cost, Fifo, Item},
    mem::{self, NoMemory},
    policy::{Get, Grant, Part, Passed, View, Way, ROWS},
    rng::{avalanche, Rng},
    rules::{Fields, Subject},
};
use core::marker::PhantomData;

pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod control;
pub mod params;
pub mod plan;
pub(crate) mod queue;
pub mod record;
pub(crate) mod shared;
pub mod stats;

use context::Context;
use plan::{COUNTS, POOL};
use queue::{Queue, QueueNeed, QueueSpare};
use record::{ClassCounts, Record};
use shared::{Buckets, Seat, Tag};
use stats::Row;

pub use crate::sched::policy::Nothing as Overseer;
pub use config::Config;
pub use control::Kept;
pub use params::{Tunables, PARAMETERS};
pub use plan::Update;

/// Classes that one [`Part::get`] may look at in vain.
const LOOKS: u32 = 64;

/// Time after which a part that looked in vain is to be asked again, ns.
const PAUSE: u64 = 1;

/// What the parts of one head share.
pub struct Shared {
    buckets: Buckets,
    start: Update,
}

impl Shared {
    /// A rate holds for what goes to all targets together.
    pub const PER_TARGET: bool = false;

    /// Full buckets, and the rules of a start, for any number of parts; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(config: &Config, seed: u64, _parts: u32) -> core::result::Result<Self, NoMemory> {
        let tunables = config.tunables();
        let rules = tunables.rules_max.get() as usize;
        let count = if config.is_global() {
            rules.saturating_add(tunables.classes_max.get() as usize)
        } else {
            // Each partition has its own buckets for rules that others name.
            rules.saturating_mul(8)
        };
        let rules = mem::Shared::new(config.book()?.compile(0)?)?;
        Ok(Self {
            buckets: Buckets::new(count, seed)?,
            start: Update::new(rules, config)?,
        })
    }

    /// How often a bucket found no place in the table, so that its rate held per partition only.
    pub fn crowded(&self) -> u64 {
        self.buckets.crowded()
    }
}

/// A buffer for [`State::rows`].
pub type RowBuf = mem::Block<Row, ROWS>;

/// What memory a part wants, in chunks.
pub struct Need<I: Item> {
    classes: ClassNeed,
    queue: QueueNeed,
    item: PhantomData<fn(I)>,
}

impl<I: Item> Clone for Need<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Item> Copy for Need<I> {}

/// Memory for a part.
pub struct Spare<I: Item> {
    classes: ClassSpare<Subject, Record<I::Fifo>>,
    queue: QueueSpare,
}

impl<I: Item> mem::Need for Need<I> {
    type Spare = Spare<I>;

    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.queue.is_empty()
    }

    fn allocate(&self) -> core::result::Result<Spare<I>, NoMemory> {
        Ok(Spare {
            classes: self.classes.allocate()?,
            queue: self.queue.allocate()?,
        })
    }
}

/// Rules and buckets: what classes refer to.
struct Setting {
    update: Update,
    /// That of the rules in `update`.
    generation: u64,
    shared: mem::Shared<Shared>,
    pools: [Seat; COUNTS],
    fields: Fields,
    global: bool,
    salt: u64,
}

impl Setting {
    fn context(&mut self, now: u64) -> Context<'_> {
        Context {
            plan: self.update.plan(),
            buckets: &self.shared.buckets,
            pools: &mut self.pools,
            global: self.global,
            salt: self.salt,
            now: instant(now),
        }
    }

    /// The record of a new class.
    fn record<F: Fifo>(&mut self, subject: &Subject, now: u64) -> Record<F> {
        let rule = self.update.plan().rules().find(subject);
        let hash = self.shared.buckets.hash(subject);
        Record::new(&self.context(now), hash, rule)
    }
}

/// Token buckets on one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the FIFOs of all classes.
/// - A class is in the queue exactly if its FIFO is not empty, and busy in the table exactly if it has
///   requests queued or in service.
/// - The queue has memory for every slot of the table.
pub struct State<I: Item> {
    table: ClassTable<Subject, Record<I::Fifo>>,
    queue: Queue,
    setting: Setting,
    queued: u32,
    cache: usize,
    /// The latest time that was told, ns.
    seen: u64,
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
        shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let tunables = config.tunables();
        let global = config.is_global();
        let salt = if global { 0 } else { shared.buckets.salt() };
        let mut setting = Setting {
            generation: shared.start.plan().rules().generation(),
            update: shared.start.clone(),
            shared: shared.clone(),
            pools: core::array::from_fn(|count| {
                let hash = Rng::new(salt ^ ((count as u64) << 32)).next_u64();
                Seat::new(Tag::new(hash, POOL))
            }),
            fields: config.fields(),
            global,
            salt,
        };
        let rule = setting.update.plan().rules().default_index();
        // The default classes of all partitions share a bucket, which is not that of requests by nobody.
        let hash = avalanche(shared.buckets.hash(&Subject::NONE));
        let default = Record::new(&setting.context(0), hash, rule);
        let max = tunables.classes_max.get();
        let table = ClassTable::new(max, seed, Subject::NONE, default)?;
        let mut queue = Queue::new((max as usize).saturating_add(1))?;
        let spare = queue.wants(table.target()).allocate()?;
        queue.feed(spare);
        queue.create(DEFAULT);
        Ok(Self {
            table,
            queue,
            setting,
            queued: 0,
            cache: tunables.cache_size.get() as usize,
            seen: 0,
        })
    }

    /// Copies the statistics of the classes from slot `from` on into `out` until it is full; returns the
    /// slot to go on from, or `None` at the end.
    pub fn rows(&self, from: u32, out: &mut RowBuf) -> Option<u32> {
        for slot in from..self.table.slots() {
            if out.is_full() {
                return Some(slot);
            }
            if let Some(row) = self.row(slot) {
                // There is room.
                let _ = out.push(row);
            }
        }
        None
    }

    /// The statistics of the class in `slot`; none for a default class that never served.
    fn row(&self, slot: u32) -> Option<Row> {
        let record = self.table.at(slot)?;
        let default = slot == DEFAULT;
        if default && record.counters.dispatched == 0 && !record.is_active() {
            return None;
        }
        let subject = *self.table.key(slot)?;
        let plan = self.setting.update.plan();
        let rule = if record.generation == self.setting.generation {
            record.rule
        } else if default {
            plan.rules().default_index()
        } else {
            plan.rules().find(&subject)
        };
        let gauge = plan.gauge(rule)?;
        Some(Row {
            subject,
            high: false,
            default,
            id: gauge.id,
            rule: gauge.name,
            rate: gauge.rate,
            count: gauge.count(),
            counters: record.counters,
            queued: record.fifo.len(),
            active: record.active,
            debt: record.debt(instant(self.seen)),
        })
    }

    /// Tells `count` the identifier of the rule of each class, of those in at most `max` slots from `from`
    /// on; returns the slot to go on from, or `None` at the end. The default class counts while it is in
    /// use.
    pub fn refs(&self, from: u32, max: u32, mut count: impl FnMut(u32)) -> Option<u32> {
        let slots = self.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            if let Some(record) = self.table.at(slot) {
                if slot != DEFAULT || record.is_active() {
                    count(record.rule_id());
                }
            }
        }
        (end < slots).then_some(end)
    }

    /// The rules in effect.
    pub fn rules(&self) -> &Update {
        &self.setting.update
    }

    /// Matches the class in `slot` against the rules in effect, if it was not yet.
    fn rematch(&mut self, slot: u32, now: u64) {
        let Some(record) = self.table.at(slot) else {
            return;
        };
        if record.generation == self.setting.generation {
            return;
        }
        let rules = self.setting.update.plan().rules();
        let rule = match self.table.key(slot) {
            Some(subject) if slot != DEFAULT => rules.find(subject),
            _ => rules.default_index(),
        };
        let Some(record) = self.table.at_mut(slot) else {
            return;
        };
        let mut context = self.setting.context(now);
        let front = record.fifo.front().map(Item::cost);
        if front.is_some() {
            record.unstage(&mut context);
        }
        record.bind(&context, rule);
        if let Some(cost) = front {
            let keys = record.restage(&mut context, cost);
            self.queue.set(slot, &mut record.keys, keys);
        }
    }

    /// Takes the front of the class in `slot` out, and prepares the next.
    fn serve(&mut self, slot: u32, now: u64) -> Option<(I, Grant)> {
        let id = self.table.id(slot);
        let record = self.table.at_mut(slot)?;
        let item = record.fifo.pop()?;
        // INVARIANT: one request less is queued; the class stays busy, as one more is in service.
        self.queued = self.queued.saturating_sub(1);
        record.active = record.active.saturating_add(1);
        let mut context = self.setting.context(now);
        let withheld = record.withheld(item.arrival(), now);
        record.serve(&mut context, item.cost());
        let keys = match record.fifo.front().map(Item::cost) {
            Some(next) => record.stage(&mut context, next),
            None => queue::Keys::default(),
        };
        self.queue.set(slot, &mut record.keys, keys);
        Some((item, Grant::of(id).after(withheld)))
    }

    /// Looks at the first class by time; says what to answer, or nothing if another is to be looked at.
    fn look(&mut self, view: &View<'_>) -> Option<Get<(I, Grant)>> {
        let now = view.now;
        let Some((slot, time)) = self.queue.first(now) else {
            return Some(Get::Empty);
        };
        if view.force {
            self.rematch(slot, now);
        } else {
            if time > now {
                return Some(Get::Throttled { until: time });
            }
            let record = self.table.at_mut(slot)?;
            if record.generation != self.setting.generation {
                self.rematch(slot, now);
                return None;
            }
            let mut context = self.setting.context(now);
            if !record.may_go(&context) {
                let cost = record.fifo.front().map(Item::cost)?;
                let keys = record.advance(&mut context, cost);
                let may_go = record.may_go(&context);
                self.queue.set(slot, &mut record.keys, keys);
                if !may_go {
                    return None;
                }
            }
        }
        Some(match self.serve(slot, now) {
            Some(found) => Get::Item(found),
            None => Get::Empty,
        })
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need<I>;
    type Spare = Spare<I>;
    type Shared = Shared;
    type Update = Update;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        let subject = Subject::of(attrs, self.setting.fields);
        let limit = self.queue.capacity();
        let setting = &mut self.setting;
        let make = || setting.record(&subject, now);
        match self.table.classify(subject, now, limit, make) {
            Found::New(id) => {
                self.queue.create(id.slot());
                self.table.trim(now, self.cache);
                id
            }
            Found::Known(id) | Found::Overflow(id) => id,
        }
    }

    fn is_live(&self, class: ClassId) -> bool {
        class.slot() != DEFAULT && self.table.is_live(class)
    }

    /// Never declines; a stale class is the default class.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I> {
        self.seen = self.seen.max(now);
        let slot = self.table.resolve(class);
        self.rematch(slot, now);
        let Some(record) = self.table.at_mut(slot) else {
            return Err(item);
        };
        let (first, idle) = (record.fifo.is_empty(), !record.is_active());
        let cost = item.cost();
        record.fifo.push(item);
        self.queued = self.queued.saturating_add(1);
        if first {
            let mut context = self.setting.context(now);
            record.begin(&context);
            let keys = record.stage(&mut context, cost);
            self.queue.set(slot, &mut record.keys, keys);
        }
        if idle {
            self.table.busy(slot);
        }
        Ok(())
    }

    /// A front gives back what it has taken, and the next one takes for itself.
    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I> {
        self.seen = self.seen.max(now);
        let slot = self.table.resolve(class);
        self.rematch(slot, now);
        let record = self.table.at_mut(slot)?;
        let before = record.fifo.front().map(Item::cost);
        let item = record.fifo.remove(place)?;
        let next = record.fifo.front().map(Item::cost);
        self.queued = self.queued.saturating_sub(1);
        // A front that costs as much takes over what was taken.
        if next != before {
            let mut context = self.setting.context(now);
            let keys = record.withdraw(&mut context, next);
            self.queue.set(slot, &mut record.keys, keys);
        }
        if !record.is_active() {
            self.table.idle(slot, now);
            self.table.trim(now, self.cache);
        }
        Some(item)
    }

    fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)> {
        if self.queued == 0 {
            return Get::Empty;
        }
        self.seen = self.seen.max(view.now);
        for _ in 0..LOOKS {
            if let Some(answer) = self.look(view) {
                return answer;
            }
        }
        Get::Throttled {
            until: view.now.saturating_add(PAUSE),
        }
    }

    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed {
        if self.table.use_mut(class).is_none() {
            return Passed::Stale;
        }
        let (slot, now) = (class.slot(), now());
        self.seen = self.seen.max(now);
        self.rematch(slot, now);
        let Some(record) = self.table.at_mut(slot) else {
            return Passed::Stale;
        };
        let mut context = self.setting.context(now);
        match way {
            Way::Forced => record.force(&mut context, cost),
            Way::Opportunity if record.pass(&mut context, cost) => {}
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
                self.table.trim(now, self.cache);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    fn need(&self) -> Need<I> {
        Need {
            classes: self.table.need(),
            queue: self.queue.wants(self.table.target()),
            item: PhantomData,
        }
    }

    fn grow(&mut self, spare: Spare<I>) -> Spare<I> {
        Spare {
            classes: self.table.grow(spare.classes),
            queue: self.queue.feed(spare.queue),
        }
    }

    /// Forgets classes that were idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.seen = self.seen.max(now);
        self.table.age(now, max)
    }

    fn update(&mut self, update: Update, _now: u64) -> Update {
        self.setting.generation = update.plan().rules().generation();
        core::mem::replace(&mut self.setting.update, update)
    }

    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        let slots = self.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            self.rematch(slot, now);
        }
        (end < slots).then_some(end)
    }

    fn reset(&mut self, from: u32, max: u32) -> Option<u32> {
        let slots = self.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            if let Some(record) = self.table.at_mut(slot) {
                record.counters = ClassCounts::ZERO;
            }
        }
        (end < slots).then_some(end)
    }

    fn overflow(&self) -> u64 {
        self.table.overflow()
    }
}
