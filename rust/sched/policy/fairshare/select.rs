// SPDX-License-Identifier: GPL-2.0-only

//! The seam between a part and the ways to choose the next entity.
//!
//! # Vocabulary
//!
//! - *Selector*: knows the slots of the entities that have requests, and chooses among them
//!   ([`Selector`]). It never looks at anybody else.
//! - *Entities*: what a selector may ask about them ([`Entities`]).
//!
//! ```text
//!            join                 pick, charge(next) / skip(next)
//!  (no requests) ──► in selector ◄───────────────────────────────┐
//!        ▲                │──────────────────────────────────────┘
//!        └────────────────┘ charge(none) / skip(none)
//! ```

use super::{deadline::Deadline, entity::Entity, paper::Paper, params::Select, random::Random};
use crate::sched::{
    key::Key,
    mem::{Bulk, NoMemory, Pile},
    ranges::Table,
    rng::Rng,
};

/// What a selector may ask about entities; they are named by slot.
pub trait Entities {
    /// The entity in `slot`.
    fn entity(&self, slot: u32) -> Option<&Entity>;

    /// The entity in `slot`, for writing.
    fn entity_mut(&mut self, slot: u32) -> Option<&mut Entity>;

    /// Cost of the request that is served next from `slot`; 0 if there is none.
    fn next_cost(&self, slot: u32) -> u32;

    /// Slot of the entity with `key`.
    fn find(&self, key: &Key) -> Option<u32>;

    /// When the request arrived that is served next from `slot`, ns; none if there is none.
    fn arrival(&self, slot: u32) -> Option<u64>;
}

/// What a draw may use.
pub struct Dice<'a> {
    /// Random numbers.
    pub rng: &'a mut Rng,
    /// The shares that were published last.
    pub table: Option<&'a Table>,
}

/// A way to choose the entity that is served next.
///
/// # Context
///
/// As for [`crate::sched::policy::Part`]: no memory is allocated but by `new`.
pub trait Selector {
    /// Number of slots there is memory for.
    fn capacity(&self) -> usize;

    /// Chunks wanted so that there is memory for `slots` slots, by kind.
    fn wants(&self, slots: usize) -> SelectNeed;

    /// Takes memory and hands back what there is no use for.
    fn feed(&mut self, spare: SelectSpare) -> SelectSpare;

    /// There is a new entity in `slot`, below the capacity; it starts at this virtual time.
    fn create(&mut self, slot: u32) -> u64;

    /// The entity in `slot` has its first request, of `cost`.
    fn join(&mut self, entities: &mut impl Entities, slot: u32, cost: u32);

    /// Chooses; none if nobody has requests.
    fn pick(&mut self, entities: &mut impl Entities, dice: Dice<'_>) -> Option<u32>;

    /// A request of `cost` was taken from `slot`; the next one there is of cost `next`.
    fn charge(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>);

    /// A request was taken from `slot` at no charge; the next one there is of cost `next`.
    fn skip(&mut self, entities: &mut impl Entities, slot: u32, next: Option<u32>);

    /// Gives the entity in `slot` another weight; what it is owed in pages stays the same.
    fn reweight(&mut self, entities: &mut impl Entities, slot: u32, weight: u32);

    /// Entity number `index` of those that have requests, in no particular order.
    fn nth(&self, index: usize) -> Option<u32>;

    /// What `entity` is owed, in units of virtual time.
    fn lag(&self, entity: &Entity) -> i64;

    /// Brings the tag of an entity without requests so near to the clock that it cannot wrap around.
    fn refresh(&self, entity: &mut Entity);

    /// The entity whose next request arrived first; O(n).
    fn oldest(&self, entities: &impl Entities) -> Option<u32> {
        let mut best = None;
        let mut index = 0usize;
        while let Some(slot) = self.nth(index) {
            if let Some(arrival) = entities.arrival(slot) {
                let earlier = match best {
                    Some((before, other)) => (arrival, slot) < (before, other),
                    None => true,
                };
                if earlier {
                    best = Some((arrival, slot));
                }
            }
            index = index.saturating_add(1);
        }
        best.map(|(_, slot)| slot)
    }
}

/// Chunks that a selector wants, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectNeed {
    /// For the first heap.
    pub first: usize,
    /// For the second heap.
    pub second: usize,
    /// For places.
    pub places: usize,
    /// For members of a list.
    pub members: usize,
    /// For sums of weights.
    pub sums: usize,
}

/// Memory for a selector, by kind.
pub struct SelectSpare {
    /// For the first heap.
    pub first: Pile<crate::sched::heap::Entry>,
    /// For the second heap.
    pub second: Pile<crate::sched::heap::Entry>,
    /// For places.
    pub places: Pile<u32>,
    /// For members of a list.
    pub members: Pile<u32>,
    /// For sums of weights.
    pub sums: Pile<u64>,
}

impl SelectNeed {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Allocates what is wanted; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn allocate(&self) -> Result<SelectSpare, NoMemory> {
        Ok(SelectSpare {
            first: Pile::allocate(self.first)?,
            second: Pile::allocate(self.second)?,
            places: Pile::allocate(self.places)?,
            members: Pile::allocate(self.members)?,
            sums: Pile::allocate(self.sums)?,
        })
    }
}

/// Chunks that `bulk` wants for `slots` elements in all.
pub(super) fn missing<T>(bulk: &Bulk<T>, slots: usize) -> usize {
    bulk.wants(slots.saturating_sub(bulk.len()))
}

/// Any selector.
pub enum AnySelector {
    /// `deadline`, `deadline_memory`.
    Deadline(Deadline),
    /// `random`.
    Random(Random),
    /// `paper`.
    Paper(Paper),
}

/// Runs `$body` on the selector inside.
macro_rules! each {
    ($any:expr, $selector:ident => $body:expr) => {
        match $any {
            AnySelector::Deadline($selector) => $body,
            AnySelector::Random($selector) => $body,
            AnySelector::Paper($selector) => $body,
        }
    };
}

impl AnySelector {
    /// The selector called `select`, for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(select: Select, max: usize) -> Result<Self, NoMemory> {
        Ok(match select {
            Select::Deadline => Self::Deadline(Deadline::new(max, false)?),
            Select::DeadlineMemory => Self::Deadline(Deadline::new(max, true)?),
            Select::Random => Self::Random(Random::new(max)?),
            Select::Paper => Self::Paper(Paper::new(max)?),
        })
    }
}

impl Selector for AnySelector {
    fn capacity(&self) -> usize {
        each!(self, s => s.capacity())
    }

    fn wants(&self, slots: usize) -> SelectNeed {
        each!(self, s => s.wants(slots))
    }

    fn feed(&mut self, spare: SelectSpare) -> SelectSpare {
        each!(self, s => s.feed(spare))
    }

    fn create(&mut self, slot: u32) -> u64 {
        each!(self, s => s.create(slot))
    }

    fn join(&mut self, entities: &mut impl Entities, slot: u32, cost: u32) {
        each!(self, s => s.join(entities, slot, cost))
    }

    fn pick(&mut self, entities: &mut impl Entities, dice: Dice<'_>) -> Option<u32> {
        each!(self, s => s.pick(entities, dice))
    }

    fn charge(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        each!(self, s => s.charge(entities, slot, cost, next))
    }

    fn skip(&mut self, entities: &mut impl Entities, slot: u32, next: Option<u32>) {
        each!(self, s => s.skip(entities, slot, next))
    }

    fn reweight(&mut self, entities: &mut impl Entities, slot: u32, weight: u32) {
        each!(self, s => s.reweight(entities, slot, weight))
    }

    fn nth(&self, index: usize) -> Option<u32> {
        each!(self, s => s.nth(index))
    }

    fn lag(&self, entity: &Entity) -> i64 {
        each!(self, s => s.lag(entity))
    }

    fn refresh(&self, entity: &mut Entity) {
        each!(self, s => s.refresh(entity))
    }

    fn oldest(&self, entities: &impl Entities) -> Option<u32> {
        each!(self, s => s.oldest(entities))
    }
}
