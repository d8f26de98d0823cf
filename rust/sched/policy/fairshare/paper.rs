// SPDX-License-Identifier: GPL-2.0-only

//! A draw over the published ranges (ThemisIO, SC'23, statistical tokens).
//!
//! A number of 32 bits is drawn and found in the table of ranges that the worker published. If the class
//! drawn has no request here, or there is no table, the oldest request is served, whoever sent it. So a
//! class that comes after the publication waits for the next one or for such a fall-through, and the
//! shares are off as far as draws fall through; that is why this is not the default
//! (Documentation/fairshare.md).

use super::{
    entity::{Clock, Entity, Place},
    select::{missing, Dice, Entities, SelectNeed, SelectSpare, Selector},
};
use crate::sched::{
    heap::{Heap, Places},
    mem::NoMemory,
};

/// The selector.
///
/// # Invariants
///
/// `queue` holds the entities that have requests, by the arrival of the next one.
pub struct Paper {
    clock: Clock,
    queue: Heap,
    places: Places,
}

impl Paper {
    /// A selector for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            clock: Clock::default(),
            queue: Heap::new(max)?,
            places: Places::new(max)?,
        })
    }
}

impl Selector for Paper {
    fn capacity(&self) -> usize {
        self.queue.capacity().min(self.places.capacity())
    }

    fn wants(&self, slots: usize) -> SelectNeed {
        SelectNeed {
            first: self.queue.wants(slots.saturating_sub(self.queue.len())),
            places: missing(&self.places, slots),
            ..SelectNeed::default()
        }
    }

    fn feed(&mut self, spare: SelectSpare) -> SelectSpare {
        SelectSpare {
            first: self.queue.feed(spare.first),
            places: self.places.feed(spare.places),
            ..spare
        }
    }

    fn create(&mut self, slot: u32) -> u64 {
        if self.places.len() <= slot as usize {
            // Below the capacity, so there is room.
            let _ = self.places.push(u32::MAX);
        }
        self.clock.now()
    }

    fn join(&mut self, entities: &mut impl Entities, slot: u32, _cost: u32) {
        let now = self.clock.now();
        let arrival = entities.arrival(slot).unwrap_or(0);
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        // The clock only tells how far ahead or behind an entity is; idle time is no claim.
        entity.start = now.wrapping_sub(core::mem::take(&mut entity.owed) as u64);
        entity.place = Place::Ready;
        self.clock.enter(entity.weight());
        self.queue.push(&mut self.places, arrival, slot);
    }

    fn pick(&mut self, entities: &mut impl Entities, dice: Dice<'_>) -> Option<u32> {
        let draw = dice.rng.next_u32();
        let drawn = dice.table.and_then(|table| table.find(draw));
        let slot = drawn.and_then(|key| entities.find(key));
        let busy = |slot: &u32| {
            let entity = entities.entity(*slot);
            entity.is_some_and(|entity| entity.place == Place::Ready)
        };
        slot.filter(busy).or_else(|| self.oldest(entities))
    }

    fn charge(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        if let Some(entity) = entities.entity_mut(slot) {
            self.clock.run(u64::from(cost) << 32);
            entity.charge(cost);
        }
        self.skip(entities, slot, next);
    }

    fn skip(&mut self, entities: &mut impl Entities, slot: u32, next: Option<u32>) {
        if next.is_some() {
            let arrival = entities.arrival(slot).unwrap_or(0);
            self.queue.update(&mut self.places, arrival, slot);
        } else if let Some(entity) = entities.entity_mut(slot) {
            entity.place = Place::Out;
            entity.owed = entity.lag(self.clock.now());
            self.clock.leave(entity.weight());
            self.queue.remove(&mut self.places, slot);
        }
    }

    /// Draws follow the published ranges; the weight only says what an entity is owed.
    fn reweight(&mut self, entities: &mut impl Entities, slot: u32, weight: u32) {
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let before = entity.weight();
        entity.reweight(weight, now);
        if entity.place != Place::Out {
            self.clock.enter(entity.weight());
            self.clock.leave(before);
        }
    }

    fn nth(&self, index: usize) -> Option<u32> {
        self.queue.nth(index).map(|entry| entry.slot)
    }

    fn lag(&self, entity: &Entity) -> i64 {
        match entity.place {
            Place::Out => entity.owed,
            _ => entity.lag(self.clock.now()),
        }
    }

    fn refresh(&self, _entity: &mut Entity) {}

    /// The top of the queue; O(1).
    fn oldest(&self, _entities: &impl Entities) -> Option<u32> {
        self.queue.top().map(|entry| entry.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::select::tests::Fake, *};
    use crate::sched::{key::Key, ranges::Table, rng::Rng, stats::Row};

    /// A draw for a class without requests, and any draw without a table, serves the oldest request.
    #[test]
    fn falls_through_to_the_oldest() {
        let mut paper = Paper::new(4).unwrap();
        let spare = paper.wants(4).allocate().unwrap();
        paper.feed(spare);
        let mut fake = Fake::new(&[4096; 4]);
        for slot in 0..4 {
            paper.create(slot);
        }
        for slot in [0, 1] {
            fake.next[slot as usize] = Some(1);
            paper.join(&mut fake, slot, 1);
        }
        // A quarter each for 0, 2, 3 and for somebody who never came.
        let rows = [0, 2, 3, 9].map(|uid| Row {
            active: true,
            ..Row::new(Key::Uid(uid), 4096)
        });
        let table = Table::build(&rows, 1).unwrap();
        let mut rng = Rng::new(2);
        for (table, first) in [(None, 0..=0), (Some(&table), 2200..=2800)] {
            let mut served = [0; 4];
            for _ in 0..10_000 {
                let dice = Dice {
                    rng: &mut rng,
                    table,
                };
                served[paper.pick(&mut fake, dice).unwrap() as usize] += 1;
            }
            // Slot 1 has the oldest request.
            assert!(
                first.contains(&served[0]) && served[0] + served[1] == 10_000,
                "{served:?}"
            );
        }
    }
}
