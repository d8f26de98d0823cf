// SPDX-License-Identifier: GPL-2.0-only

//! A weighted draw among the entities that have requests.
//!
//! # Vocabulary
//!
//! - *Sums*: for each slot the sum of the weights of a run of slots that ends there (Fenwick, "A new data
//!   structure for cumulative frequency tables", 1994), so that a draw and a change cost O(log n).
//! - *Members*: the slots of the entities that have requests, in no order.
//!
//! Shares of requests come out as the weights, with the spread of independent draws: of `n` draws an
//! entity with share `p` gets `n p`, give or take a few times `sqrt(n p (1 - p))`. A draw does not see
//! costs, so shares of pages do not come out if the request sizes of the entities differ.

use super::{
    entity::{Clock, Entity, Place},
    select::{missing, Dice, Entities, SelectNeed, SelectSpare, Selector},
};
use crate::sched::mem::{Bulk, NoMemory};

/// The selector.
///
/// # Invariants
///
/// `members` holds the slots whose weight is in `sums`, each once, and `places` where; the clock's weight is
/// the sum of their weights.
pub struct Random {
    clock: Clock,
    sums: Bulk<u64>,
    members: Bulk<u32>,
    places: Bulk<u32>,
}

/// The lowest bit that is set.
const fn lowest(number: usize) -> usize {
    number & number.wrapping_neg()
}

impl Random {
    /// A selector for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            clock: Clock::default(),
            sums: Bulk::new(max)?,
            members: Bulk::new(max)?,
            places: Bulk::new(max)?,
        })
    }

    /// Adds `weight` (wrapping) to the sums that cover `slot`.
    ///
    /// Numbers count from 1 here: number `i` covers the [`lowest`]`(i)` slots up to it.
    fn add(&mut self, slot: u32, weight: u64) {
        let mut number = (slot as usize).saturating_add(1);
        while let Some(sum) = self.sums.get_mut(number.wrapping_sub(1)) {
            *sum = sum.wrapping_add(weight);
            number = number.saturating_add(lowest(number));
        }
    }

    /// Appends a slot of weight 0: its sum is that of the runs that it covers.
    fn append(&mut self) {
        let number = self.sums.len().saturating_add(1);
        let stop = number.wrapping_sub(lowest(number));
        let mut at = number.wrapping_sub(1);
        let mut sum = 0u64;
        while at > stop {
            let part = self.sums.get(at.wrapping_sub(1)).copied();
            sum = sum.wrapping_add(part.unwrap_or(0));
            at = at.wrapping_sub(lowest(at));
        }
        // Below the capacity, so there is room.
        let _ = self.sums.push(sum);
    }

    /// The slot in which the running sum of weights passes `point`.
    fn locate(&self, mut point: u64) -> u32 {
        let mut below = 0usize;
        let mut step = match self.sums.len().checked_ilog2() {
            Some(log) => 1usize << log,
            None => 0,
        };
        while step > 0 {
            let number = below.saturating_add(step);
            if let Some(&sum) = self.sums.get(number.wrapping_sub(1)) {
                if sum <= point {
                    point = point.wrapping_sub(sum);
                    below = number;
                }
            }
            step >>= 1;
        }
        below as u32
    }

    fn leave(&mut self, entity: &mut Entity, slot: u32) {
        entity.place = Place::Out;
        self.add(slot, u64::from(entity.weight()).wrapping_neg());
        self.clock.leave(entity.weight());
        // The last member takes the place of the one that leaves.
        let place = self.places.get(slot as usize).copied();
        let (Some(place), Some(last)) = (place, self.members.pop()) else {
            return;
        };
        if let Some(member) = self.members.get_mut(place as usize) {
            *member = last;
            if let Some(moved) = self.places.get_mut(last as usize) {
                *moved = place;
            }
        }
    }
}

impl Selector for Random {
    fn capacity(&self) -> usize {
        let lists = self.members.capacity().min(self.places.capacity());
        lists.min(self.sums.capacity())
    }

    fn wants(&self, slots: usize) -> SelectNeed {
        SelectNeed {
            places: missing(&self.places, slots),
            members: missing(&self.members, slots),
            sums: missing(&self.sums, slots),
            ..SelectNeed::default()
        }
    }

    fn feed(&mut self, spare: SelectSpare) -> SelectSpare {
        SelectSpare {
            places: self.places.feed(spare.places),
            members: self.members.feed(spare.members),
            sums: self.sums.feed(spare.sums),
            ..spare
        }
    }

    fn create(&mut self, slot: u32) -> u64 {
        if self.places.len() <= slot as usize {
            // Below the capacity, so there is room.
            let _ = self.places.push(u32::MAX);
            self.append();
        }
        self.clock.now()
    }

    fn join(&mut self, entities: &mut impl Entities, slot: u32, _cost: u32) {
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        // The clock only tells how far ahead or behind an entity is; idle time is no claim.
        entity.start = now.wrapping_sub(core::mem::take(&mut entity.owed) as u64);
        entity.place = Place::Ready;
        let weight = entity.weight();
        self.clock.enter(weight);
        self.add(slot, u64::from(weight));
        if let Some(place) = self.places.get_mut(slot as usize) {
            *place = self.members.len() as u32;
        }
        // The capacity covers all slots, so there is room.
        let _ = self.members.push(slot);
    }

    fn pick(&mut self, _entities: &mut impl Entities, dice: Dice<'_>) -> Option<u32> {
        match self.clock.weight() {
            0 => None,
            total => Some(self.locate(dice.rng.below(total))),
        }
    }

    fn charge(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        self.clock.run(u64::from(cost) << 32);
        entity.charge(cost);
        if next.is_none() {
            entity.owed = entity.lag(self.clock.now());
            self.leave(entity, slot);
        }
    }

    fn skip(&mut self, entities: &mut impl Entities, slot: u32, next: Option<u32>) {
        if let (Some(entity), None) = (entities.entity_mut(slot), next) {
            entity.owed = entity.lag(self.clock.now());
            self.leave(entity, slot);
        }
    }

    fn reweight(&mut self, entities: &mut impl Entities, slot: u32, weight: u32) {
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let before = entity.weight();
        entity.reweight(weight, now);
        if entity.place != Place::Out {
            let after = entity.weight();
            self.clock.enter(after);
            self.clock.leave(before);
            self.add(slot, u64::from(after).wrapping_sub(u64::from(before)));
        }
    }

    fn nth(&self, index: usize) -> Option<u32> {
        self.members.get(index).copied()
    }

    fn lag(&self, entity: &Entity) -> i64 {
        match entity.place {
            Place::Out => entity.owed,
            _ => entity.lag(self.clock.now()),
        }
    }

    fn refresh(&self, _entity: &mut Entity) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums that grow slot by slot, and change meanwhile, against plain addition.
    #[test]
    fn sums_against_model() {
        use crate::sched::rng::Rng;
        let mut random = Random::new(3000).unwrap();
        let spare = random.wants(3000).allocate().unwrap();
        random.feed(spare);
        let mut model: Vec<u64> = Vec::new();
        let mut rng = Rng::new(4);
        for slot in 0..3000u32 {
            random.create(slot);
            model.push(0);
            for _ in 0..2 {
                let at = rng.below(model.len() as u64) as usize;
                let weight = [0u64, 1, 64, 1 << 20][rng.below(4) as usize];
                random.add(at as u32, weight.wrapping_sub(model[at]));
                model[at] = weight;
            }
            if slot % 100 != 99 {
                continue;
            }
            let mut sum = 0;
            for (slot, weight) in (0..).zip(&model) {
                if *weight > 0 {
                    assert_eq!(random.locate(sum), slot);
                    assert_eq!(random.locate(sum + weight - 1), slot);
                }
                sum += weight;
            }
        }
    }
}
