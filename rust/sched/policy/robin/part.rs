// SPDX-License-Identifier: GPL-2.0-only

//! Part of a round-robin policy.

use super::{
    store::{BinOwner, BinStore},
    Batch, BatchTag, BatchTurn, Config, Rounds, TieBreak, Tuned, Update,
};
use crate::sched::{
    attr::Attrs,
    heap::Placed,
    item::{Cost, Item},
    key::Hashed,
    mem::{self, grow, NoMemory},
    policy::{
        classes::{self, Class, Classful},
        BypassOutcome, BypassReason, Decision, Nothing, PartView,
    },
};
use core::marker::PhantomData;

/// Largest number of requests that one call sorts late.
const REFILL: u32 = 2;

/// Definition of a round-robin policy.
pub trait Robin<I: Item> {
    /// Key of a class.
    type Key: Copy + Eq + Hashed;

    /// Store of the requests of classes.
    type Store: BinStore<I>;

    /// Parameters of the policy.
    type Tunables: Tuned<Setting = <Self::Store as BinStore<I>>::Setting>;

    /// True if the policy asks for the file of a request.
    const WANTS_FILE: bool = false;

    /// Order of the batches of a round.
    const TIES: TieBreak;

    /// Key of the default class; no other class has this key.
    const DEFAULT: Self::Key;

    /// Returns the key of the class of a request.
    fn key(attrs: &Attrs) -> Self::Key;

    /// Returns the tie-break of a class, different for each key; used only if ties are broken by
    /// key.
    fn tie(key: &Self::Key) -> [u64; 2];
}

/// Data of a class.
pub struct RobinClass<B> {
    bin: B,
    batch: Batch,
    tie: [u64; 2],
}

impl<B> RobinClass<B> {
    /// Returns the class at index `idx`, for the store.
    const fn at(&self, idx: u32, busy: u32) -> BinOwner {
        BinOwner {
            idx,
            key: self.tie,
            busy,
        }
    }

    /// Returns the turn of the class if the class's next request has `tag`.
    const fn turn(&self, ties: TieBreak, tag: BatchTag) -> BatchTurn {
        BatchTurn {
            round: tag.round,
            tie: match ties {
                TieBreak::Sequence => [tag.sequence, 0],
                TieBreak::Key => self.tie,
            },
        }
    }
}

/// Classes with queued requests by turn, and the requests of all classes.
pub struct RoundQueue<S> {
    ring: Placed<BatchTurn>,
    store: S,
}

grow!(RoundQueue<S> { ring: Placed<BatchTurn>, store: S } [S: mem::Grow]);

impl<S> RoundQueue<S> {
    /// Returns the number of classes with queued requests.
    fn busy(&self) -> u32 {
        self.ring.len() as u32
    }

    /// Updates the position of a class in the ring to the turn of the front of its bin.
    #[inline]
    fn update_position<I: Item>(&mut self, ties: TieBreak, idx: u32, record: &RobinClass<S::Bin>)
    where
        S: BinStore<I>,
    {
        let front = self.store.front(&record.bin);
        let turn = front.map(|tag| record.turn(ties, tag));
        self.ring.set(idx, turn);
    }
}

/// Rounds of policy `P`.
pub struct RobinPolicy<P> {
    rounds: Rounds,
    policy: PhantomData<fn() -> P>,
}

/// State of a round-robin policy on one head.
///
/// # Invariants
///
/// A class is in the ring if and only if its bin is not empty, with the turn of the front of the
/// bin.
pub type State<I, P> = classes::State<I, RobinPolicy<P>>;

impl<P> RobinPolicy<P> {
    /// Notes that a request with `tag` left the queue.
    #[inline]
    fn leave<S>(&mut self, queue: &RoundQueue<S>, tag: BatchTag) {
        let next = queue.ring.top().map(|entry| &entry.key);
        self.rounds.leave(tag, next);
    }
}

impl<I: Item, P: Robin<I>> Classful<I> for RobinPolicy<P> {
    type Key = P::Key;
    type Record = RobinClass<<P::Store as BinStore<I>>::Bin>;
    type Queue = RoundQueue<P::Store>;
    type Config = Config<P::Tunables>;
    type Shared = Nothing;
    type Update = Update<<P::Store as BinStore<I>>::Setting>;

    const WANTS_FILE: bool = P::WANTS_FILE;
    const DEFAULT: P::Key = P::DEFAULT;

    fn new(
        config: &Self::Config,
        _seed: u64,
        _shared: &mem::Shared<Nothing>,
    ) -> Result<Self, NoMemory> {
        Ok(Self {
            rounds: Rounds::new(P::TIES, config.tunables.update(config.priority).quantum),
            policy: PhantomData,
        })
    }

    fn classes_max(config: &Self::Config) -> u32 {
        config.tunables.bounds().classes
    }

    fn queue(config: &Self::Config, entries: usize) -> Result<Self::Queue, NoMemory> {
        Ok(RoundQueue {
            ring: Placed::new(entries)?,
            store: P::Store::new(
                config.tunables.bounds(),
                config.tunables.update(config.priority).setting,
            )?,
        })
    }

    fn key(&self, attrs: &Attrs) -> P::Key {
        P::key(attrs)
    }

    fn record(
        &mut self,
        key: Option<&P::Key>,
        _shared: Option<&P::Key>,
        _now: u64,
    ) -> Self::Record {
        RobinClass {
            bin: P::Store::bin(),
            batch: Batch::default(),
            // With ties by key the default class is the last class of a round.
            tie: key.map_or([u64::MAX; 2], P::tie),
        }
    }

    /// Queues a request; declines a request that the policy does not support.
    fn push(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut Class<Self::Record>,
        item: I,
        now: u64,
    ) -> Result<(), I> {
        if !queue.store.takes(item.cost()) {
            return Err(item);
        }
        let (first, record) = (class.queued() == 0, &mut class.record);
        let busy = queue.busy().saturating_add(u32::from(first));
        let tag = self.rounds.admit(&mut record.batch, !first, busy, now);
        let at = record.at(idx, busy);
        queue.store.push(at, &mut record.bin, item, tag);
        if first {
            let turn = record.turn(self.rounds.ties(), tag);
            queue.ring.set(idx, Some(turn));
        }
        Ok(())
    }

    fn remove(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut Class<Self::Record>,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I> {
        let first = queue.ring.top().map(|entry| (entry.idx, entry.key));
        let (last, record) = (class.queued() == 1, &mut class.record);
        let at = record.at(idx, queue.busy());
        let (item, tag) = queue.store.remove(at, &mut record.bin, handle)?;
        if last {
            self.rounds.dry(&mut record.batch, now);
        }
        let ties = self.rounds.ties();
        queue.update_position(ties, idx, record);
        // With ties by key, only dispatched requests advance the round.
        if first == Some((idx, record.turn(ties, tag))) && ties == TieBreak::Sequence {
            self.leave(queue, tag);
        }
        Some(item)
    }

    fn next(state: &mut State<I, P>, _view: &PartView<'_>) -> Decision<u32> {
        let first = state.queue.ring.top();
        first.map_or(Decision::Empty, |entry| Decision::Item(entry.idx))
    }

    fn pop(
        &mut self,
        queue: &mut Self::Queue,
        idx: u32,
        class: &mut Class<Self::Record>,
        now: u64,
    ) -> Option<(I, u32)> {
        let (last, record) = (class.queued() == 1, &mut class.record);
        let at = record.at(idx, queue.busy());
        let (item, tag) = queue.store.pop(at, &mut record.bin)?;
        queue.update_position(self.rounds.ties(), idx, record);
        self.leave(queue, tag);
        if last {
            self.rounds.dry(&mut record.batch, now);
        }
        Some((item, 0))
    }

    /// Counts a request in the batch of its class, like a request that is queued and dispatched at
    /// once.
    fn pass(
        state: &mut State<I, P>,
        idx: u32,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        let Some(class) = state.table.at_mut(idx) else {
            return BypassOutcome::Stale;
        };
        if way == BypassReason::Merged || !state.queue.store.takes(cost) {
            return BypassOutcome::Counted;
        }
        let rounds = &mut state.policy.rounds;
        // The time is needed only if ties are broken by key.
        let now = match rounds.ties() {
            TieBreak::Sequence => 0,
            TieBreak::Key => now(),
        };
        let (waiting, busy) = (class.queued() != 0, state.queue.busy());
        let batch = &mut class.record.batch;
        let tag = rounds.admit(batch, waiting, busy, now);
        if busy == 0 {
            rounds.leave(tag, None);
        }
        if !waiting {
            rounds.dry(batch, now);
        }
        BypassOutcome::Counted
    }

    /// Sorts requests that could not be sorted at their arrival.
    #[inline]
    fn resume_deferred(state: &mut State<I, P>) {
        for _ in 0..REFILL {
            let Some(idx) = state.queue.store.refill() else {
                return;
            };
            if let Some(class) = state.table.at_mut(idx) {
                let at = class.record.at(idx, state.queue.busy());
                state.queue.store.draw(at, &mut class.record.bin);
            }
        }
    }

    /// Applies `update` to later batches and later requests.
    fn update(state: &mut State<I, P>, update: Self::Update) -> Self::Update {
        Update {
            quantum: state.policy.rounds.set_quantum(update.quantum),
            setting: state.queue.store.set(update.setting),
        }
    }
}
