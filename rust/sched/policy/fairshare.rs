// SPDX-License-Identifier: GPL-2.0-only

//! Fair shares: every entity that has requests gets an equal part of the service.
//!
//! # Vocabulary
//!
//! - *Mode*: which field of a request makes its entity ([`params::Mode`]).
//! - *Entity*: a class with a weight and a tag ([`entity::Entity`]).
//! - *Selector*: chooses the entity that is served next ([`select::Selector`]); one file each:
//!   [`deadline`], [`random`], [`paper`].
//! - *Opportunity*: a request served without a decision, because the service was under-loaded; it counts
//!   but is not charged to the share.
//! - *Forced*: a request that must not be withheld, served while others waited; it is charged to the share,
//!   as debt if it is more than the share, up to [`entity::DEBT_MAX`].
//!
//! ```text
//!             enqueue                 get                        stop
//!  (request) ─────────► FIFO of its ──────► in service ─────────────────► (gone)
//!      │                  entity                ▲
//!      └───────────────── pass ─────────────────┘
//! ```
//!
//! Only entities with queued requests compete. Within an entity the order is that of arrival.

use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassSpare, ClassTable, Found, DEFAULT},
    error::Result,
    item::{Cost, Fifo, Item},
    key::Key,
    mem::{self, NoMemory},
    policy::{Get, Part, Passed, View, Way, ROWS},
    rng::Rng,
    stats::Row,
};
use core::{fmt, marker::PhantomData};

pub(crate) mod deadline;
pub(crate) mod entity;
pub(crate) mod paper;
pub(crate) mod params;
pub(crate) mod random;
pub(crate) mod select;

use entity::{Entity, COST_MAX, WEIGHT_ONE};
use params::{CostModel, Mode};
use select::{AnySelector, Dice, Entities, SelectNeed, SelectSpare, Selector};

pub use params::Tunables;

/// Configuration of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    argument: Option<Mode>,
    tunables: Tunables,
}

impl Config {
    /// The configuration of a start with argument `arg`, a mode; without one the mode of `tunables`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: unknown mode.
    pub fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        let argument = arg.map(Mode::parse).transpose()?;
        Ok(Self {
            argument,
            tunables: *tunables,
        })
    }

    /// The same argument with other parameters.
    pub const fn with(&self, tunables: &Tunables) -> Self {
        Self {
            argument: self.argument,
            tunables: *tunables,
        }
    }

    /// The mode, if it was given.
    pub fn argument(&self) -> Option<&dyn fmt::Display> {
        self.argument.as_ref().map(|mode| mode as &dyn fmt::Display)
    }

    /// The mode: that of the argument, else that of the parameters.
    pub const fn mode(&self) -> Mode {
        match self.argument {
            Some(mode) => mode,
            None => self.tunables.mode,
        }
    }

    /// The parameters at the time of the start.
    pub const fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}

/// Nothing is shared yet.
pub struct Shared;

impl Shared {
    /// Nothing.
    ///
    /// # Errors
    ///
    /// None.
    pub const fn new(_config: &Config, _seed: u64) -> core::result::Result<Self, NoMemory> {
        Ok(Self)
    }
}

/// Nothing to tell.
#[derive(Clone)]
pub struct Update;

/// A buffer for [`State::rows`].
pub type RowBuf = mem::Block<Row, ROWS>;

/// What a part keeps for each class.
struct Record<F> {
    entity: Entity,
    fifo: F,
    active: u32,
    dispatched: u64,
    cost_pages: u64,
    opportunity: u64,
    forced: u64,
}

impl<F: Fifo> Record<F> {
    fn new() -> Self {
        Self {
            entity: Entity::new(WEIGHT_ONE, 0),
            fifo: F::new(),
            active: 0,
            dispatched: 0,
            cost_pages: 0,
            opportunity: 0,
            forced: 0,
        }
    }

    /// Counts a request that goes down.
    fn count(&mut self, cost: Cost, opportunity: bool) {
        self.dispatched = self.dispatched.saturating_add(1);
        self.cost_pages = self.cost_pages.saturating_add(u64::from(cost.pages));
        self.opportunity = self.opportunity.saturating_add(u64::from(opportunity));
    }

    fn is_active(&self) -> bool {
        self.active > 0 || !self.fifo.is_empty()
    }
}

/// The classes as a selector sees them.
struct Classes<I: Item> {
    table: ClassTable<Key, Record<I::Fifo>>,
    cost_model: CostModel,
}

impl<I: Item> Classes<I> {
    /// What a request that costs `cost` is charged: pages up to [`COST_MAX`], or 1 per request.
    fn charge(&self, cost: Cost) -> u32 {
        match self.cost_model {
            CostModel::Pages => cost.pages.clamp(1, COST_MAX),
            CostModel::Rpcs => 1,
        }
    }

    fn charge_of(&self, item: &I) -> u32 {
        self.charge(item.cost())
    }
}

impl<I: Item> Entities for Classes<I> {
    fn entity(&self, slot: u32) -> Option<&Entity> {
        self.table.at(slot).map(|record| &record.entity)
    }

    fn entity_mut(&mut self, slot: u32) -> Option<&mut Entity> {
        self.table.at_mut(slot).map(|record| &mut record.entity)
    }

    fn next_cost(&self, slot: u32) -> u32 {
        let front = self.table.at(slot).and_then(|record| record.fifo.front());
        front.map_or(0, |item| self.charge_of(item))
    }

    fn find(&self, key: &Key) -> Option<u32> {
        match key {
            Key::Default => Some(DEFAULT),
            _ => self.table.find(key),
        }
    }

    fn arrival(&self, slot: u32) -> Option<u64> {
        let record = self.table.at(slot)?;
        record.fifo.front().map(Item::arrival)
    }
}

/// What memory a part wants, in chunks.
pub struct Need<I: Item> {
    classes: ClassNeed,
    selector: SelectNeed,
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
    classes: ClassSpare<Key, Record<I::Fifo>>,
    selector: SelectSpare,
}

/// Fair shares on one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the FIFOs of all classes.
/// - A class is in the selector exactly if its FIFO is not empty, and busy in the table exactly if it has
///   requests queued or in service.
/// - The selector has memory for every slot of the table.
pub struct State<I: Item> {
    classes: Classes<I>,
    selector: AnySelector,
    mode: Mode,
    opp_threshold: u32,
    queued: u32,
    rng: Rng,
    sweep: u32,
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
        let mut rng = Rng::new(seed);
        let max = tunables.classes_max.get();
        let mut table = ClassTable::new(max, rng.next_u64(), Key::Default, Record::new())?;
        let mut selector = AnySelector::new(tunables.select, (max as usize).saturating_add(1))?;
        let spare = selector.wants(table.target()).allocate()?;
        selector.feed(spare);
        let start = selector.create(DEFAULT);
        if let Some(record) = table.at_mut(DEFAULT) {
            record.entity.start = start;
        }
        let classes = Classes {
            table,
            cost_model: tunables.cost_model,
        };
        Ok(Self {
            classes,
            selector,
            mode: config.mode(),
            opp_threshold: tunables.opp_threshold.get(),
            queued: 0,
            rng,
            sweep: 0,
        })
    }

    /// Gives a class another weight, 4096 for one; limited to what is allowed.
    #[cfg_attr(
        MODULE,
        allow(dead_code, reason = "all weights are equal until rules set them")
    )]
    pub fn reweight(&mut self, class: ClassId, weight: u32) {
        if self.classes.table.is_live(class) {
            let slot = class.slot();
            self.selector.reweight(&mut self.classes, slot, weight);
        }
    }

    /// Copies the statistics of the classes from slot `from` on into `out` until it is full; returns the
    /// slot to go on from, or `None` at the end.
    pub fn rows(&self, from: u32, out: &mut RowBuf) -> Option<u32> {
        for slot in from..self.classes.table.slots() {
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

    /// Charges the class in `slot` for a request that went down past its queue.
    #[cold]
    fn owe(&mut self, slot: u32, cost: Cost) {
        if let Some(record) = self.classes.table.at_mut(slot) {
            record.forced = record.forced.saturating_add(1);
        }
        let cost = self.classes.charge(cost);
        let next = Some(self.classes.next_cost(slot)).filter(|&next| next > 0);
        self.selector.owe(&mut self.classes, slot, cost, next);
    }

    /// The statistics of the class in `slot`; none for a default class that never served.
    fn row(&self, slot: u32) -> Option<Row> {
        let record = self.classes.table.at(slot)?;
        let key = *self.classes.table.key(slot)?;
        if slot == DEFAULT && record.dispatched == 0 && !record.is_active() {
            return None;
        }
        let entity = &record.entity;
        Some(Row {
            active: record.is_active(),
            dispatched: record.dispatched,
            cost_pages: record.cost_pages,
            opportunity: record.opportunity,
            forced: record.forced,
            lag_decipages: entity.decipages(self.selector.lag(entity)),
            queue_depth: record.fifo.len(),
            requests: record.active,
            ..Row::new(key, entity.weight())
        })
    }
}

impl<I: Item> mem::Need for Need<I> {
    type Spare = Spare<I>;

    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.selector.is_empty()
    }

    fn allocate(&self) -> core::result::Result<Spare<I>, NoMemory> {
        Ok(Spare {
            classes: self.classes.allocate()?,
            selector: self.selector.allocate()?,
        })
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need<I>;
    type Spare = Spare<I>;
    type Shared = Shared;
    type Update = Update;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        let key = Key::of(self.mode.field(), attrs);
        let limit = self.selector.capacity();
        let table = &mut self.classes.table;
        match table.classify(key, now, limit, Record::new) {
            Found::New(id) => {
                let start = self.selector.create(id.slot());
                if let Some(record) = table.at_mut(id.slot()) {
                    record.entity.start = start;
                }
                id
            }
            Found::Known(id) | Found::Overflow(id) => id,
        }
    }

    fn is_live(&self, class: ClassId) -> bool {
        class.slot() != DEFAULT && self.classes.table.is_live(class)
    }

    /// Never declines; a stale class is the default class.
    fn enqueue(&mut self, item: I, class: ClassId, _now: u64) -> core::result::Result<(), I> {
        let slot = self.classes.table.resolve(class);
        let cost = self.classes.charge_of(&item);
        let Some(record) = self.classes.table.at_mut(slot) else {
            return Err(item);
        };
        let first = record.fifo.is_empty();
        let idle = !record.is_active();
        record.fifo.push(item);
        self.queued = self.queued.saturating_add(1);
        if idle {
            self.classes.table.busy(slot);
        }
        if first {
            self.selector.join(&mut self.classes, slot, cost);
        }
        Ok(())
    }

    fn get(&mut self, view: &View<'_>) -> Get<(I, ClassId)> {
        if self.queued == 0 {
            return Get::Empty;
        }
        let opportunity = !view.force && self.queued < self.opp_threshold;
        let slot = if opportunity {
            self.selector.oldest(&self.classes)
        } else {
            let dice = Dice {
                rng: &mut self.rng,
                table: view.table,
            };
            self.selector.pick(&mut self.classes, dice)
        };
        let Some(slot) = slot else {
            return Get::Empty;
        };
        let Some(record) = self.classes.table.at_mut(slot) else {
            return Get::Empty;
        };
        let Some(item) = record.fifo.pop() else {
            return Get::Empty;
        };
        record.count(item.cost(), opportunity);
        record.active = record.active.saturating_add(1);
        self.queued = self.queued.saturating_sub(1);
        let cost = self.classes.charge_of(&item);
        // A queued request costs at least 1.
        let next = Some(self.classes.next_cost(slot)).filter(|&next| next > 0);
        if opportunity {
            self.selector.skip(&mut self.classes, slot, next);
        } else {
            self.selector.charge(&mut self.classes, slot, cost, next);
        }
        Get::Item((item, self.classes.table.id(slot)))
    }

    /// What must not be withheld is charged like what was chosen if somebody waits, so that it comes out
    /// of the share of its entity.
    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, _now: impl FnOnce() -> u64) -> Passed {
        let Some(record) = self.classes.table.use_mut(class) else {
            return Passed::Stale;
        };
        let owes = way == Way::Forced && self.queued > 0;
        record.count(cost, !owes);
        if owes {
            self.owe(class.slot(), cost);
        }
        Passed::Counted
    }

    fn stop(&mut self, class: ClassId, _cost: Cost, now: u64) {
        let slot = class.slot();
        if !self.classes.table.is_live(class) {
            return;
        }
        if let Some(record) = self.classes.table.at_mut(slot) {
            record.active = record.active.saturating_sub(1);
            if !record.is_active() {
                self.classes.table.idle(slot, now);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    fn need(&self) -> Need<I> {
        Need {
            classes: self.classes.table.need(),
            selector: self.selector.wants(self.classes.table.target()),
            item: PhantomData,
        }
    }

    fn grow(&mut self, spare: Spare<I>) -> Spare<I> {
        Spare {
            classes: self.classes.table.grow(spare.classes),
            selector: self.selector.feed(spare.selector),
        }
    }

    /// Forgets classes that were idle for 10 s, and keeps the tags of the others near the clock.
    fn age(&mut self, now: u64, max: u32) {
        self.classes.table.age(now, max);
        for _ in 0..max.min(self.classes.table.slots()) {
            if self.sweep >= self.classes.table.slots() {
                self.sweep = 0;
            }
            if let Some(record) = self.classes.table.at_mut(self.sweep) {
                self.selector.refresh(&mut record.entity);
            }
            self.sweep = self.sweep.saturating_add(1);
        }
    }

    fn update(&mut self, update: Update, _now: u64) -> Update {
        update
    }

    fn refresh(&mut self, _from: u32, _max: u32, _now: u64) -> Option<u32> {
        None
    }

    fn reset(&mut self, from: u32, max: u32) -> Option<u32> {
        let slots = self.classes.table.slots();
        let end = from.saturating_add(max).min(slots);
        for slot in from..end {
            if let Some(record) = self.classes.table.at_mut(slot) {
                record.dispatched = 0;
                record.cost_pages = 0;
                record.opportunity = 0;
                record.forced = 0;
            }
        }
        (end < slots).then_some(end)
    }

    fn overflow(&self) -> u64 {
        self.classes.table.overflow()
    }
}
