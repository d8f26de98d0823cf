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

    /// A request of `cost` went down past the queue of `slot`, whose next one is of cost `next`: it comes
    /// out of the share, up to a bound. Draws remember nothing.
    fn owe(&mut self, _entities: &mut impl Entities, _slot: u32, _cost: u32, _next: Option<u32>) {}

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

    fn owe(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        each!(self, s => s.owe(entities, slot, cost, next))
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Entities in a vector, each with the cost of its next request.
    pub(crate) struct Fake {
        pub(crate) entities: Vec<Entity>,
        pub(crate) next: Vec<Option<u32>>,
    }

    impl Fake {
        pub(crate) fn new(weights: &[u32]) -> Self {
            Self {
                entities: weights.iter().map(|&w| Entity::new(w, 0)).collect(),
                next: vec![None; weights.len()],
            }
        }
    }

    impl Entities for Fake {
        fn entity(&self, slot: u32) -> Option<&Entity> {
            self.entities.get(slot as usize)
        }

        fn entity_mut(&mut self, slot: u32) -> Option<&mut Entity> {
            self.entities.get_mut(slot as usize)
        }

        fn next_cost(&self, slot: u32) -> u32 {
            self.next[slot as usize].unwrap_or(0)
        }

        /// Slots are users here.
        fn find(&self, key: &Key) -> Option<u32> {
            match key {
                Key::Uid(slot) if (*slot as usize) < self.entities.len() => Some(*slot),
                _ => None,
            }
        }

        /// The lower the slot, the later.
        fn arrival(&self, slot: u32) -> Option<u64> {
            self.next[slot as usize].map(|_| u64::from(u32::MAX - slot))
        }
    }

    fn selector(select: Select, slots: u32) -> AnySelector {
        let mut selector = AnySelector::new(select, slots as usize).unwrap();
        assert_eq!(selector.capacity(), 0);
        let need = selector.wants(slots as usize);
        assert!(!need.is_empty());
        selector.feed(need.allocate().unwrap());
        assert!(selector.wants(slots as usize).is_empty());
        for slot in 0..slots {
            selector.create(slot);
        }
        selector
    }

    /// What all selectors promise: exactly those with requests are known and picked, the oldest request
    /// is found, a request taken at no charge leaves what is owed alone.
    #[test]
    fn only_those_with_requests_are_picked() {
        for &select in Select::ALL {
            let mut selector = selector(select, 20);
            let mut fake = Fake::new(&[4096; 20]);
            let mut rng = Rng::new(1);
            for step in 0..5_000u32 {
                let busy: Vec<u32> = (0..20)
                    .filter(|&s| fake.next[s as usize].is_some())
                    .collect();
                let mut members: Vec<u32> = (0..).map_while(|i| selector.nth(i)).collect();
                members.sort();
                assert_eq!(members, busy, "{select}");
                assert_eq!(selector.oldest(&fake), busy.last().copied(), "{select}");
                let slot = rng.below(20) as u32;
                if fake.next[slot as usize].is_none() && rng.below(2) == 0 {
                    fake.next[slot as usize] = Some(3);
                    selector.join(&mut fake, slot, 3);
                    continue;
                }
                let dice = Dice {
                    rng: &mut rng,
                    table: None,
                };
                let Some(slot) = selector.pick(&mut fake, dice) else {
                    assert!(busy.is_empty(), "{select}");
                    continue;
                };
                assert!(busy.contains(&slot), "{select}");
                let next = (step % 3 > 0).then_some(3);
                fake.next[slot as usize] = next;
                if step % 5 == 0 {
                    let lag = selector.lag(&fake.entities[slot as usize]);
                    selector.skip(&mut fake, slot, next);
                    let after = selector.lag(&fake.entities[slot as usize]);
                    // Surplus that expires is none.
                    assert!(after == lag || next.is_none(), "{select} {lag} {after}");
                } else {
                    selector.charge(&mut fake, slot, 3, next);
                }
            }
        }
    }

    /// Weights reach the draws and the tags, also when they change under way.
    #[test]
    fn weights_make_shares() {
        for (select, tolerance) in [
            (Select::Deadline, 2),
            (Select::DeadlineMemory, 2),
            // Four standard deviations of 20,000 draws.
            (Select::Random, 283),
        ] {
            let mut selector = selector(select, 3);
            let mut fake = Fake::new(&[4096; 3]);
            for slot in 0..3 {
                fake.next[slot as usize] = Some(1);
                selector.join(&mut fake, slot, 1);
            }
            let mut rng = Rng::new(9);
            for weights in [[1, 1, 2], [1, 100, 3], [7, 2, 1]] {
                for (slot, weight) in (0..).zip(weights) {
                    selector.reweight(&mut fake, slot, weight * 4096);
                }
                let mut served = [0i64; 3];
                for _ in 0..20_000 {
                    let dice = Dice {
                        rng: &mut rng,
                        table: None,
                    };
                    let slot = selector.pick(&mut fake, dice).unwrap();
                    selector.charge(&mut fake, slot, 1, Some(1));
                    served[slot as usize] += 1;
                }
                let whole = i64::from(weights.iter().sum::<u32>());
                for (got, weight) in served.into_iter().zip(weights) {
                    let ideal = 20_000 * i64::from(weight) / whole;
                    assert!(
                        (got - ideal).abs() <= tolerance,
                        "{select} {weights:?} {served:?}"
                    );
                }
            }
        }
    }
}
