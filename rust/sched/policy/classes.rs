// SPDX-License-Identifier: GPL-2.0-only

//! Common code of policies with classes: the class table, memory, counters, and the life cycle of a
//! request.
//!
//! A policy with classes defines its classes and selects the class to dispatch from. It reacts when
//! a request is added to a class or removed from it ([`Classful`]). [`State`] implements the rest
//! and is the policy's part.

use crate::sched::{
    attr::Attrs,
    class::{ClassId, ClassNeed, ClassQuota, ClassSpare, ClassTable, DEFAULT, DEFAULT_ID, KEPT},
    count::Count,
    item::{Cost, Item},
    key::Hashed,
    mem::{self, Block, Grow, Need, NoMemory},
    policy::{BypassOutcome, BypassReason, Decision, Grant, Part, PartView},
};

/// Number of comparisons that take as long as processing one class without comparisons.
pub const CLASS_WORK: u32 = 64;

/// Class: the record of the policy, and the numbers of its requests.
pub struct Class<R> {
    /// Record of the policy.
    pub record: R,
    queued: u32,
    active: u32,
}

impl<R> Class<R> {
    const fn new(record: R) -> Self {
        Self {
            record,
            queued: 0,
            active: 0,
        }
    }

    /// Returns the number of queued requests.
    pub const fn queued(&self) -> u32 {
        self.queued
    }

    /// Returns the number of requests in flight.
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// Returns true if requests are queued or in flight.
    pub const fn is_active(&self) -> bool {
        self.queued != 0 || self.active != 0
    }
}

/// Call of the service's worker: a need of no memory.
#[derive(Clone, Copy)]
pub struct WorkerCall(bool);

impl Need for WorkerCall {
    type Spare = ();

    fn is_empty(&self) -> bool {
        !self.0
    }

    fn take(&self, _charged: bool) -> Result<(), NoMemory> {
        Ok(())
    }
}

/// Class of policy `P` in the class table.
pub type ClassOf<I, P> = Class<<P as Classful<I>>::Record>;

/// Class table of policy `P`.
pub type PolicyClasses<I, P> = ClassTable<<P as Classful<I>>::Key, ClassOf<I, P>>;

/// Policy with classes, without the code that all such policies share.
///
/// # Context
///
/// As for [`Part`]: all methods except [`Classful::new`] and [`Classful::queue`] run under the
/// partition's lock.
pub trait Classful<I: Item>: Sized {
    /// Key that distinguishes classes.
    type Key: Copy + Eq + Hashed;

    /// Record of a class, including its queued requests.
    type Record;

    /// Backlogged classes in the order of dispatch.
    type Queue: Grow;

    /// Configuration with which a part is started.
    type Config;

    /// See [`Part::Shared`].
    type Shared;

    /// See [`Part::Update`].
    type Update;

    /// See [`Part::WANTS_FILE`].
    const WANTS_FILE: bool = false;

    /// True if classes have an owner, see [`Classful::shared`].
    const OWNED: bool = false;

    /// Divisor of the table size for the reserved part; 0: there is none.
    const KEPT: u32 = if Self::OWNED { KEPT } else { 0 };

    /// Key under which the default class is shown.
    const DEFAULT: Self::Key;

    /// Creates the policy's own state.
    fn new(
        config: &Self::Config,
        seed: u64,
        shared: &mem::Shared<Self::Shared>,
    ) -> Result<Self, NoMemory>;

    /// Returns the maximum number of classes in the class table.
    fn classes_max(config: &Self::Config) -> u32;

    /// Returns an empty queue for up to `entries` classes.
    fn queue(config: &Self::Config, entries: usize) -> Result<Self::Queue, NoMemory>;

    /// Returns the maximum number of idle classes.
    fn idle_max(&self) -> usize {
        usize::MAX
    }

    /// Returns true if idle classes are retained because of their records, see
    /// [`Classful::keep_until`].
    fn keeps(&self) -> bool {
        false
    }

    /// As [`Part::record_interval`].
    fn record_interval(&self) -> Option<u64> {
        None
    }

    /// Returns the time until which an idle class is retained, ns.
    fn keep_until(_record: &Self::Record) -> u64 {
        0
    }

    /// Returns the key of the class of a request.
    fn key(&self, attrs: &Attrs) -> Self::Key;

    /// Returns the key of the shared class, for requests for which no class `key` can be created.
    /// This key also identifies the owner of the class. `None` means the default class.
    fn shared(&self, _key: &Self::Key) -> Option<Self::Key> {
        None
    }

    /// Returns true if the class `key` may be created in the reserved part of the table.
    fn is_promised(&self, _key: &Self::Key) -> bool {
        false
    }

    /// Prepares the class at `idx`, which was found or created for a request with `key`.
    fn classified(_state: &mut State<I, Self>, _idx: u32, _key: &Self::Key, _now: u64) {}

    /// Returns true if a cached class may be reused; see [`Part::is_live`].
    fn is_reusable(&self, _record: &Self::Record) -> bool {
        true
    }

    /// Returns true if the service's worker must be woken.
    fn calls_worker(&self) -> bool {
        false
    }

    /// Returns the record of a new class; without a key, of the default class. `shared` is the
    /// result of [`Classful::shared`] for `key`, if that was called.
    fn record(
        &mut self,
        key: Option<&Self::Key>,
        shared: Option<&Self::Key>,
        now: u64,
    ) -> Self::Record;

    /// Returns true if the last update was applied to the class, so that [`Classful::sync`] has
    /// nothing to do.
    fn is_synced(&self, _record: &Self::Record) -> bool {
        true
    }

    /// Applies the last update to the class at `idx`; called before other uses of the class.
    /// Returns the number of comparisons beyond the basic cost of a class.
    fn sync(_state: &mut State<I, Self>, _idx: u32, _now: u64) -> u32 {
        0
    }

    /// As [`Classful::sync`], for each class in turn; see [`Part::refresh`].
    fn refresh(state: &mut State<I, Self>, idx: u32, now: u64) -> u32 {
        Self::sync(state, idx, now)
    }

    /// Adds a request to a class, whose count does not include the request yet. Returns the request
    /// if the policy declines it.
    fn push(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        item: I,
        now: u64,
    ) -> Result<(), I>;

    /// Removes the request at `handle` from a class, which still counts the request; the request is
    /// not charged.
    fn remove(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I>;

    /// Selects the class to dispatch from; called only if requests are queued.
    fn next(state: &mut State<I, Self>, view: &PartView<'_>) -> Decision<u32>;

    /// Returns the time until which all classes are throttled; see [`Part::throttled`].
    fn throttled(_state: &State<I, Self>, _now: u64) -> Option<u64> {
        None
    }

    /// Removes the request to dispatch next from a class, which still counts the request. Also
    /// returns the time for which the policy throttled the request, ms.
    fn pop(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut ClassOf<I, Self>,
        now: u64,
    ) -> Option<(I, u32)>;

    /// Counts a request that is not queued; see [`Part::pass`]. The class at `idx` exists.
    fn pass(
        state: &mut State<I, Self>,
        idx: u32,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome;

    /// Records the end of a request in flight.
    fn end(&mut self, _record: &mut Self::Record) {}

    /// Returns the tokens of a dispatched request; see [`Part::refund`]. The class at `idx` exists.
    fn refund(_state: &mut State<I, Self>, _idx: u32, _cost: Cost, _now: u64) {}

    /// Continues deferred work after requests or memory were added or removed.
    fn resume_deferred(_state: &mut State<I, Self>) {}

    /// Installs `update`; see [`Part::update`].
    fn update(state: &mut State<I, Self>, update: Self::Update) -> Self::Update;

    /// Resets the counters of a class.
    fn reset(_record: &mut Self::Record) {}

    /// Adds the policy's own counters to `sums`; see [`Part::add_counts`].
    fn add_counts(&self, _sums: &mut [u64]) {}
}

/// Policy with classes on one head.
///
/// # Invariants
///
/// - `queued` is the sum of the numbers of queued requests of all classes.
/// - A class is busy in the table exactly if it has requests queued or in flight.
/// - The queue has memory for every index of the table.
pub struct State<I: Item, P: Classful<I>> {
    /// State of the policy.
    pub policy: P,
    /// Class table.
    pub table: PolicyClasses<I, P>,
    /// Backlogged classes.
    pub queue: P::Queue,
    queued: u32,
}

impl<I: Item, P: Classful<I>> State<I, P> {
    /// Creates a part with nothing queued and a first reserve of memory; may sleep.
    pub fn new(
        config: &P::Config,
        seed: u64,
        shared: &mem::Shared<P::Shared>,
    ) -> Result<Self, NoMemory> {
        let mut policy = P::new(config, seed, shared)?;
        let max = P::classes_max(config);
        let default = Class::new(policy.record(None, None, 0));
        let mut state = Self {
            policy,
            table: ClassTable::new(max, P::KEPT, seed, P::DEFAULT, default)?,
            queue: P::queue(config, (max as usize).saturating_add(1))?,
            queued: 0,
        };
        state.reserve()?;
        state.queue.create(DEFAULT);
        Ok(state)
    }

    /// Takes a first reserve of memory; may sleep. Not inlined, in order to save stack.
    #[inline(never)]
    fn reserve(&mut self) -> Result<(), NoMemory> {
        let spare = self.need().allocate()?;
        self.grow(spare);
        Ok(())
    }

    /// Creates the class with `key`, which does not exist. Without room, returns the shared or the
    /// default class.
    #[cold]
    fn create(&mut self, key: P::Key, now: u64) -> ClassId {
        let shared = self.policy.shared(&key);
        let place = match &shared {
            Some(shared) if P::OWNED => self.table.owned_by(shared),
            _ => ClassQuota::Free,
        };
        // Trim first, so that the new class is not evicted.
        self.table
            .trim(now, self.policy.idle_max().saturating_sub(1));
        if let Some(id) = self.make(key, shared.as_ref(), place, now) {
            return id;
        }
        if self.policy.is_promised(&key) {
            if let Some(id) = self.make(key, shared.as_ref(), ClassQuota::Promised, now) {
                return id;
            }
        }
        self.table.overflowed();
        let id = shared.and_then(|shared| {
            let known = self.table.lookup(&shared, now);
            known.or_else(|| self.make(shared, None, ClassQuota::Shared, now))
        });
        id.unwrap_or(DEFAULT_ID)
    }

    /// Creates the class with `key` in `place`, if there is room; `shared` is its owner.
    fn make(
        &mut self,
        key: P::Key,
        shared: Option<&P::Key>,
        place: ClassQuota,
        now: u64,
    ) -> Option<ClassId> {
        let limit = self.queue.capacity();
        let policy = &mut self.policy;
        let make = || Class::new(policy.record(Some(&key), shared, now));
        let id = self.table.create(key, place, limit, now, make)?;
        self.queue.create(id.idx());
        Some(id)
    }

    /// Returns the index of `class`, with the last update applied; that of the default class if
    /// `class` is stale.
    #[inline]
    fn open(&mut self, class: ClassId, now: u64) -> u32 {
        let known = self.table.get(class);
        if known.is_some_and(|class| self.policy.is_synced(&class.record)) {
            return class.idx();
        }
        let idx = self.table.resolve(class);
        P::sync(self, idx, now);
        idx
    }

    /// Marks the class at `idx` idle after its last request has left.
    fn idle(&mut self, idx: u32, now: u64) {
        self.table.idle(idx, now);
        self.keep(idx);
        self.table.trim(now, self.policy.idle_max());
    }

    /// Keeps the class at `idx` as long as its record requires.
    pub fn keep(&mut self, idx: u32) {
        if self.policy.keeps() {
            let class = self.table.at(idx);
            let until = class.map_or(0, |class| P::keep_until(&class.record));
            self.table.keep(idx, until);
        }
    }
}

impl<I: Item, P: Classful<I>> Part<I> for State<I, P> {
    type Need = (
        ClassNeed<P::Key, ClassOf<I, P>>,
        <P::Queue as Grow>::Need,
        WorkerCall,
    );
    type Spare = (
        ClassSpare<P::Key, ClassOf<I, P>>,
        <P::Queue as Grow>::Spare,
        (),
    );
    type Shared = P::Shared;
    type Update = P::Update;

    const WANTS_FILE: bool = P::WANTS_FILE;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        let key = self.policy.key(attrs);
        let known = self.table.lookup(&key, now);
        let id = known.unwrap_or_else(|| self.create(key, now));
        P::classified(self, id.idx(), &key, now);
        id
    }

    fn is_live(&self, class: ClassId) -> bool {
        let found = self.table.at(class.idx());
        self.table.is_permanent(class)
            && found.is_none_or(|class| self.policy.is_reusable(&class.record))
    }

    fn record_interval(&self) -> Option<u64> {
        self.policy.record_interval()
    }

    /// Enqueues into the default class if `class` is stale.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> Result<(), I> {
        let idx = self.open(class, now);
        let Some(class) = self.table.at_mut(idx) else {
            bug!();
            return Err(item);
        };
        self.policy.push(&mut self.queue, idx, class, item, now)?;
        let idle = !class.is_active();
        // INVARIANT: the class and the part have one more request, so the class is busy.
        class.queued.count(1);
        self.queued.count(1);
        if idle {
            self.table.busy(idx);
        }
        P::resume_deferred(self);
        Ok(())
    }

    fn dequeue(&mut self, class: ClassId, handle: &I::Handle, now: u64) -> Option<I> {
        let idx = self.open(class, now);
        let class = self.table.at_mut(idx)?;
        let queue = &mut self.queue;
        let item = self.policy.remove(queue, idx, class, handle, now)?;
        // INVARIANT: the class and the part have one request less.
        class.queued = class.queued.saturating_sub(1);
        self.queued = self.queued.saturating_sub(1);
        if !class.is_active() {
            self.idle(idx, now);
        }
        P::resume_deferred(self);
        Some(item)
    }

    fn get(&mut self, view: &PartView<'_>) -> Decision<(I, Grant)> {
        if self.queued == 0 {
            return Decision::Empty;
        }
        let idx = match P::next(self, view) {
            Decision::Item(idx) => idx,
            Decision::Throttled { until } => return Decision::Throttled { until },
            Decision::Empty => {
                bug!();
                return Decision::Empty;
            }
        };
        let Some((id, class)) = self.table.named_mut(idx) else {
            bug!();
            return Decision::Empty;
        };
        let popped = self.policy.pop(&mut self.queue, idx, class, view.now);
        let Some((item, withheld)) = popped else {
            bug!();
            return Decision::Empty;
        };
        // INVARIANT: a request changed from queued to in flight, so the class stays busy.
        class.queued = class.queued.saturating_sub(1);
        class.active.count(1);
        self.queued = self.queued.saturating_sub(1);
        P::resume_deferred(self);
        Decision::Item((item, Grant::of(id).after(withheld)))
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        P::throttled(self, now)
    }

    fn pass(
        &mut self,
        class: ClassId,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        match self.table.use_mut(class) {
            Some(_) => P::pass(self, class.idx(), cost, way, now),
            None => BypassOutcome::Stale,
        }
    }

    fn refund(&mut self, class: ClassId, cost: Cost, now: u64) {
        if self.table.get(class).is_some() {
            P::refund(self, class.idx(), cost, now);
        }
    }

    fn stop(&mut self, grant: &Grant, _cost: Cost, now: u64) -> bool {
        if let Some(class) = self.table.get_mut(grant.class) {
            self.policy.end(&mut class.record);
            class.active = class.active.saturating_sub(1);
            if !class.is_active() {
                self.idle(grant.class.idx(), now);
            }
        }
        false
    }

    fn len(&self) -> u32 {
        self.queued
    }

    fn need(&self) -> Self::Need {
        let entries = self.table.target();
        let call = WorkerCall(self.policy.calls_worker());
        (self.table.need(), self.queue.wants(entries), call)
    }

    fn grow(&mut self, (classes, queue, ()): Self::Spare) -> Self::Spare {
        let rest = (self.table.grow(classes), self.queue.feed(queue), ());
        P::resume_deferred(self);
        rest
    }

    /// Evicts classes that have been idle for 10 s.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.table.age(now, max)
    }

    fn update(&mut self, update: P::Update, _now: u64) -> P::Update {
        P::update(self, update)
    }

    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        let (entries, mut left) = (self.table.entry_count(), max.saturating_mul(CLASS_WORK));
        for idx in from..entries {
            if left == 0 {
                return Some(idx);
            }
            let work = P::refresh(self, idx, now);
            left = left.saturating_sub(CLASS_WORK.saturating_add(work));
        }
        None
    }

    fn reset(&mut self, from: u32, max: u32) -> Option<u32> {
        let table = &mut self.table;
        each(table.entry_count(), from, max, |idx| {
            if let Some(class) = table.at_mut(idx) {
                P::reset(&mut class.record);
            }
        })
    }

    fn overflow(&self) -> u64 {
        self.table.overflow()
    }

    fn add_counts(&self, sums: &mut [u64]) {
        self.policy.add_counts(sums);
    }
}

/// Calls `f` for at most `max` of `entries` indices from `from` on; returns the index to continue
/// from, or `None` at the end.
pub fn each(entries: u32, from: u32, max: u32, f: impl FnMut(u32)) -> Option<u32> {
    let end = from.saturating_add(max).min(entries);
    (from..end).for_each(f);
    (end < entries).then_some(end)
}

/// Fills `out` with the rows that `row` returns for the indices from `from` on, below `entries`.
/// Returns the index to continue from, or `None` at the end.
pub fn fill<T, const N: usize>(
    out: &mut Block<T, N>,
    entries: u32,
    from: u32,
    mut row: impl FnMut(u32) -> Option<T>,
) -> Option<u32> {
    for idx in from..entries {
        if out.is_full() {
            return Some(idx);
        }
        if let Some(row) = row(idx) {
            bug!(out.push(row).is_err());
        }
    }
    None
}
