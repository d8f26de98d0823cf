// SPDX-License-Identifier: GPL-2.0-only

//! The part of a policy that goes round.

use super::{
    ring::{Ring, RingNeed, RingSpare},
    store::{At, Store},
    Batch, Config, Rounds, Tag, Ties, Tuned, Turn, Update,
};
use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassSpare, ClassTable, Found, DEFAULT},
    item::{Cost, Item},
    key::Hashed,
    mem::{self, NoMemory},
    policy::{Get, Grant, Nothing, Part, Passed, View, Way},
};

/// Requests that one call sorts late, at most.
const REFILL: u32 = 2;

/// What makes a policy of the engine.
pub trait Robin<I: Item> {
    /// What tells classes apart.
    type Key: Copy + Eq + Hashed;

    /// How their requests are kept.
    type Store: Store<I>;

    /// What users can set.
    type Tunables: Tuned<Setting = <Self::Store as Store<I>>::Setting>;

    /// Whether it asks which file a request is for.
    const WANTS_FILE: bool = false;

    /// Which batch goes first in a round.
    const TIES: Ties;

    /// The key that the default class goes by; no other class has it.
    const DEFAULT: Self::Key;

    /// The class of a request.
    fn key(attrs: &Attrs) -> Self::Key;

    /// What breaks ties between classes, if they are broken by key: another one for each key.
    fn tie(key: &Self::Key) -> [u64; 2];
}

/// What a part keeps of a class.
struct Record<B> {
    bin: B,
    batch: Batch,
    tie: [u64; 2],
    queued: u32,
    /// Requests in service, of those that were queued.
    active: u32,
}

impl<B> Record<B> {
    fn new(bin: B, tie: [u64; 2]) -> Self {
        Self {
            bin,
            batch: Batch::default(),
            tie,
            queued: 0,
            active: 0,
        }
    }

    const fn is_active(&self) -> bool {
        self.queued != 0 || self.active != 0
    }

    /// The class, in `slot`.
    const fn at(&self, slot: u32, busy: u32) -> At {
        At {
            slot,
            key: self.tie,
            busy,
        }
    }

    /// Its turn to serve a request with `tag`.
    const fn turn(&self, ties: Ties, tag: Tag) -> Turn {
        Turn {
            round: tag.round,
            tie: match ties {
                Ties::Sequence => [tag.sequence, 0],
                Ties::Key => self.tie,
            },
        }
    }
}

/// The bin of policy `P`.
type Bin<I, P> = <<P as Robin<I>>::Store as Store<I>>::Bin;

/// What memory a part wants, in chunks.
pub struct Need<I: Item, P: Robin<I>> {
    classes: ClassNeed,
    ring: RingNeed,
    store: <P::Store as Store<I>>::Need,
}

impl<I: Item, P: Robin<I>> Clone for Need<I, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Item, P: Robin<I>> Copy for Need<I, P> {}

/// Memory for a part.
pub struct Spare<I: Item, P: Robin<I>> {
    classes: ClassSpare<P::Key, Record<Bin<I, P>>>,
    ring: RingSpare,
    store: <P::Store as Store<I>>::Spare,
}

impl<I: Item, P: Robin<I>> mem::Need for Need<I, P> {
    type Spare = Spare<I, P>;

    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.ring.is_empty() && self.store.is_empty()
    }

    fn allocate(&self) -> Result<Spare<I, P>, NoMemory> {
        Ok(Spare {
            classes: self.classes.allocate()?,
            ring: self.ring.allocate()?,
            store: self.store.allocate()?,
        })
    }
}

/// Round robin on one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the bins of all classes, each of which knows its own number.
/// - A class is in the ring exactly if its bin is not empty, with the turn of the front of the bin.
/// - It is busy in the table exactly if it has requests queued or in service.
/// - Ring and store have memory for every slot of the table.
pub struct State<I: Item, P: Robin<I>> {
    table: ClassTable<P::Key, Record<Bin<I, P>>>,
    ring: Ring,
    store: P::Store,
    rounds: Rounds,
    queued: u32,
}

impl<I: Item, P: Robin<I>> State<I, P> {
    /// A part with nothing queued and its first reserve of memory; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(
        config: &Config<P::Tunables>,
        seed: u64,
        _shared: &mem::Shared<Nothing>,
    ) -> Result<Self, NoMemory> {
        let (bounds, Update { quantum, setting }) = (config.bounds(), config.update());
        // Nobody is served after the default class, if ties are broken by key.
        let default = Record::new(P::Store::bin(), [u64::MAX; 2]);
        let mut part = Self {
            table: ClassTable::new(bounds.classes, seed, P::DEFAULT, default)?,
            ring: Ring::new((bounds.classes as usize).saturating_add(1))?,
            store: P::Store::new(bounds, setting)?,
            rounds: Rounds::new(P::TIES, quantum),
            queued: 0,
        };
        let spare = mem::Need::allocate(&part.need())?;
        part.grow(spare);
        part.create(DEFAULT);
        Ok(part)
    }

    /// There is a class in `slot`.
    fn create(&mut self, slot: u32) {
        self.ring.create(slot);
        self.store.create(slot);
    }

    /// Puts the class in `slot` where the front of its bin belongs.
    #[inline]
    fn place(&mut self, slot: u32) {
        let Some(record) = self.table.at(slot) else {
            return;
        };
        let front = self.store.front(&record.bin);
        let turn = front.map(|tag| record.turn(self.rounds.ties(), tag));
        self.ring.set(slot, turn);
    }

    /// A request of the class in `slot` was taken out.
    #[inline]
    fn taken(&mut self, slot: u32) {
        self.queued = self.queued.saturating_sub(1);
        self.place(slot);
        self.refill();
    }

    /// A request with `tag` is not waited for any more.
    #[inline]
    fn leave(&mut self, tag: Tag) {
        let next = self.ring.first().map(|(_, turn)| turn);
        self.rounds.leave(tag, next);
    }

    /// Sorts what could not be sorted when it came.
    #[inline]
    fn refill(&mut self) {
        for _ in 0..REFILL {
            let Some(slot) = self.store.refill() else {
                return;
            };
            if let Some(record) = self.table.at_mut(slot) {
                let at = record.at(slot, self.ring.len());
                self.store.draw(at, &mut record.bin);
            }
        }
    }
}

impl<I: Item, P: Robin<I>> Part<I> for State<I, P> {
    type Need = Need<I, P>;
    type Spare = Spare<I, P>;
    type Shared = Nothing;
    type Update = Update<<P::Store as Store<I>>::Setting>;

    const WANTS_FILE: bool = P::WANTS_FILE;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        let key = P::key(attrs);
        let limit = self.ring.capacity().min(self.store.capacity());
        let make = || Record::new(P::Store::bin(), P::tie(&key));
        match self.table.classify(key, now, limit, make) {
            Found::New(id) => {
                self.create(id.slot());
                id
            }
            Found::Known(id) | Found::Overflow(id) => id,
        }
    }

    fn is_live(&self, class: ClassId) -> bool {
        class.slot() != DEFAULT && self.table.is_live(class)
    }

    /// Declines what the policy does not support; a stale class is the default class.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> Result<(), I> {
        let slot = self.table.resolve(class);
        let Some(record) = self.table.at_mut(slot) else {
            return Err(item);
        };
        if !self.store.takes(item.cost()) {
            return Err(item);
        }
        let (first, idle) = (record.queued == 0, !record.is_active());
        let busy = self.ring.len().saturating_add(u32::from(first));
        let tag = self.rounds.admit(&mut record.batch, !first, busy, now);
        let at = record.at(slot, busy);
        self.store.push(at, &mut record.bin, item, tag);
        record.queued = record.queued.saturating_add(1);
        if first {
            let turn = record.turn(self.rounds.ties(), tag);
            self.ring.set(slot, Some(turn));
        }
        if idle {
            self.table.busy(slot);
        }
        self.queued = self.queued.saturating_add(1);
        self.refill();
        Ok(())
    }

    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I> {
        let slot = self.table.resolve(class);
        let first = self.ring.first().map(|(slot, turn)| (slot, *turn));
        let record = self.table.at_mut(slot)?;
        let at = record.at(slot, self.ring.len());
        let (item, tag) = self.store.remove(at, &mut record.bin, place)?;
        record.queued = record.queued.saturating_sub(1);
        if record.queued == 0 {
            self.rounds.dry(&mut record.batch, now);
        }
        let turn = record.turn(self.rounds.ties(), tag);
        let idle = !record.is_active();
        if idle {
            self.table.idle(slot, now);
        }
        self.taken(slot);
        // With ties by key, rounds go by what was served.
        if first == Some((slot, turn)) && self.rounds.ties() == Ties::Sequence {
            self.leave(tag);
        }
        Some(item)
    }

    fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)> {
        let Some((slot, _)) = self.ring.first() else {
            return Get::Empty;
        };
        let busy = self.ring.len();
        let id = self.table.id(slot);
        let Some(record) = self.table.at_mut(slot) else {
            return Get::Empty;
        };
        let at = record.at(slot, busy);
        let Some((item, tag)) = self.store.pop(at, &mut record.bin) else {
            return Get::Empty;
        };
        record.queued = record.queued.saturating_sub(1);
        record.active = record.active.saturating_add(1);
        let dry = record.queued == 0;
        self.taken(slot);
        self.leave(tag);
        if let Some(record) = self.table.at_mut(slot).filter(|_| dry) {
            self.rounds.dry(&mut record.batch, view.now);
        }
        Get::Item((item, Grant::of(id)))
    }

    /// Counts in the batch of its class, like a request that is queued and served at once.
    fn pass(&mut self, class: ClassId, cost: Cost, _way: Way, now: impl FnOnce() -> u64) -> Passed {
        let Some(record) = self.table.use_mut(class) else {
            return Passed::Stale;
        };
        if !self.store.takes(cost) {
            return Passed::Counted;
        }
        // Only who breaks ties by key looks at the time.
        let now = match self.rounds.ties() {
            Ties::Sequence => 0,
            Ties::Key => now(),
        };
        let waiting = record.queued != 0;
        let tag = self
            .rounds
            .admit(&mut record.batch, waiting, self.ring.len(), now);
        if self.queued == 0 {
            self.rounds.leave(tag, None);
        }
        if !waiting {
            self.rounds.dry(&mut record.batch, now);
        }
        Passed::Counted
    }

    fn stop(&mut self, grant: &Grant, _cost: Cost, now: u64) {
        let slot = grant.class.slot();
        if let Some(record) = self.table.get_mut(grant.class) {
            record.active = record.active.saturating_sub(1);
            if !record.is_active() {
                self.table.idle(slot, now);
            }
        }
    }

    fn len(&self) -> u32 {
        self.queued
    }

    fn need(&self) -> Need<I, P> {
        let slots = self.table.target();
        Need {
            classes: self.table.need(),
            ring: self.ring.wants(slots),
            store: self.store.wants(slots),
        }
    }

    fn grow(&mut self, spare: Spare<I, P>) -> Spare<I, P> {
        let rest = Spare {
            classes: self.table.grow(spare.classes),
            ring: self.ring.feed(spare.ring),
            store: self.store.feed(spare.store),
        };
        self.refill();
        rest
    }

    /// Forgets classes that were idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.table.age(now, max)
    }

    /// Batches that begin, and requests that come, from now on are treated as `update` says.
    fn update(&mut self, update: Self::Update, _now: u64) -> Self::Update {
        Update {
            quantum: self.rounds.set_quantum(update.quantum),
            setting: self.store.set(update.setting),
        }
    }

    fn overflow(&self) -> u64 {
        self.table.overflow()
    }
}
