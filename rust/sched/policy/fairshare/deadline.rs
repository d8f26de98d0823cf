// SPDX-License-Identifier: GPL-2.0-only

//! Eligible earliest virtual deadline first, with a bled clock and a boost for sparse entities.
//!
//! # Vocabulary
//!
//! - *Eligible*: the tag of the entity is not ahead of the clock, so it has not had more than its share.
//! - *Deadline*: where its tag will be after its next request.
//! - *Bleed*: the clock runs at 0.5 to 1.5 times its speed until the lags of the entities sum to 0.
//! - *Boost*: an entity that left its share unused for at least one own request goes first in line.
//!
//! ```text
//!              join, tag ahead of the clock            join, else
//!                         │                                │
//!                         ▼    the clock reaches the tag   ▼
//!  out ◄── leave ──  wait (by tag) ───────────────► ready (by deadline) ── pick ──► served
//!                         ▲                                ▲                          │
//!                         └──── tag ahead of the clock ────┴────── else ── charge ────┘
//! ```
//!
//! After Stoica and Abdel-Wahab, "Earliest eligible virtual deadline first", 1995, and Bennett and Zhang,
//! "WF2Q", INFOCOM'96. The choice of rules and its measurements: Documentation/fairshare.md.
//!
//! # What is remembered of an entity without requests
//!
//! Service that it is owed is kept. Surplus expires when the clock passes its old tag. With *memory*
//! (`deadline_memory`) both are kept; then there is neither bleed nor boost.
//!
//! # How long an entity waits
//!
//! Let `c` be the cost of the largest request (pages, at most 2^14), `n` and `W` the largest number and sum
//! of weights of the entities that have requests, during the wait. The *fair period* of an entity with
//! weight `w` is `P = c * W / w` pages of service by everybody: as long as its share takes to earn one
//! largest request. A *round* is `n * c` pages: one largest request of everybody.
//!
//! Between two of its requests, and before the first, an entity waits at most `3 * P` and one round:
//!
//! 1. Its tag is at most one own request, `c / w` in virtual time, ahead of the clock. The bled clock
//!    moves on by at least `1 / (2 W)` per page, so it is eligible after at most `2 P`.
//! 2. Its deadline is at most `c / w` behind its tag. Those that are served before it have an earlier
//!    deadline; they are eligible too, so each has had no more than its share when it is chosen and gets
//!    at most one request beyond the share it has earned by that deadline. If the clock runs at its own
//!    speed that is `P`, and one round for the requests beyond.
//! 3. The clock runs at half speed only while the sum of lags is positive, that is, while service is owed;
//!    what is owed is paid to entities in the same order, one largest request each: it is part of the round.
//!
//! The bound is tested with entities that come and go and mixed request sizes; the longest waits seen are
//! 2.2 fair periods.

use super::{
    entity::{Clock, Entity, Place, COST_MAX},
    select::{missing, Dice, Entities, SelectNeed, SelectSpare, Selector},
};
use crate::sched::{
    heap::{Heap, Places},
    mem::NoMemory,
};

/// A distance of tags that is safely below half of the numbers there are.
const FAR: u64 = 1 << 62;

/// The selector.
///
/// # Invariants
///
/// - An entity with requests is in exactly one heap, the one its `place` says.
/// - The clock's weight is the sum of the weights of the entities in both heaps.
/// - Every tag in `ready` was not ahead of the clock when it was put there.
pub struct Deadline {
    clock: Clock,
    /// Sum of lag times weight, in units of 2^-32 pages; a control signal, not exact.
    owed: i64,
    wait: Heap,
    ready: Heap,
    places: Places,
    memory: bool,
}

/// `lag * weight`, saturating.
fn weighted(lag: i64, entity: &Entity) -> i64 {
    lag.saturating_mul(i64::from(entity.weight()))
}

impl Deadline {
    /// A selector for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: usize, memory: bool) -> Result<Self, NoMemory> {
        Ok(Self {
            clock: Clock::default(),
            owed: 0,
            wait: Heap::new(max)?,
            ready: Heap::new(max)?,
            places: Places::new(max)?,
            memory,
        })
    }

    /// Puts an entity that is in no heap where it belongs.
    fn insert(&mut self, entity: &mut Entity, slot: u32, deadline: u64) {
        // The capacity covers all slots, so there is always room.
        if entity.lag(self.clock.now()) >= 0 {
            entity.place = Place::Ready;
            self.ready.push(&mut self.places, deadline, slot);
        } else {
            entity.place = Place::Wait;
            self.wait.push(&mut self.places, entity.start, slot);
        }
    }

    /// Takes an entity out of its heap.
    fn extract(&mut self, entity: &mut Entity, slot: u32) {
        match entity.place {
            Place::Out => return,
            Place::Wait => self.wait.remove(&mut self.places, slot),
            Place::Ready => self.ready.remove(&mut self.places, slot),
        };
        entity.place = Place::Out;
    }

    /// Puts an entity in the right place of the right heap after its tag or its next cost changed.
    fn settle(&mut self, entity: &mut Entity, slot: u32, next: u32) {
        let ready = entity.lag(self.clock.now()) >= 0;
        let deadline = entity.deadline(next);
        match entity.place {
            Place::Ready if ready => self.ready.update(&mut self.places, deadline, slot),
            Place::Wait if !ready => self.wait.update(&mut self.places, entity.start, slot),
            _ => {
                self.extract(entity, slot);
                self.insert(entity, slot, deadline);
            }
        }
    }

    /// Takes out an entity without requests and remembers what it is owed.
    fn leave(&mut self, entity: &mut Entity, slot: u32) {
        self.extract(entity, slot);
        let bound = entity.advance(COST_MAX) as i64;
        let lag = entity.lag(self.clock.now());
        entity.owed = lag.clamp(bound.wrapping_neg(), bound);
        self.owed = self.owed.saturating_sub(weighted(entity.owed, entity));
        if self.clock.leave(entity.weight()) {
            self.owed = 0;
        }
    }

    /// Moves the entities that the clock has reached to the ready heap, by their next cost.
    fn release(&mut self, entities: &mut impl Entities) {
        while let Some(&top) = self.wait.top() {
            if top.key.wrapping_sub(self.clock.now()) as i64 > 0 {
                return;
            }
            self.promote(entities, top.slot);
        }
    }

    /// Moves one entity from the wait heap to the ready heap.
    fn promote(&mut self, entities: &mut impl Entities, slot: u32) {
        self.wait.remove(&mut self.places, slot);
        let cost = entities.next_cost(slot);
        if let Some(entity) = entities.entity_mut(slot) {
            entity.place = Place::Ready;
            let deadline = entity.deadline(cost);
            self.ready.push(&mut self.places, deadline, slot);
        }
    }
}

impl Selector for Deadline {
    fn capacity(&self) -> usize {
        let heaps = self.wait.capacity().min(self.ready.capacity());
        heaps.min(self.places.capacity())
    }

    fn wants(&self, slots: usize) -> SelectNeed {
        SelectNeed {
            first: self.wait.wants(slots.saturating_sub(self.wait.len())),
            second: self.ready.wants(slots.saturating_sub(self.ready.len())),
            places: missing(&self.places, slots),
            ..SelectNeed::default()
        }
    }

    fn feed(&mut self, spare: SelectSpare) -> SelectSpare {
        SelectSpare {
            first: self.wait.feed(spare.first),
            second: self.ready.feed(spare.second),
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

    fn join(&mut self, entities: &mut impl Entities, slot: u32, cost: u32) {
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let mut owed = core::mem::take(&mut entity.owed);
        let mut boost = false;
        if owed <= 0 && !self.memory {
            // Ahead of the clock still: that much surplus is left. Passed by a whole request: boost.
            let lag = entity.lag(now);
            owed = lag.min(0);
            boost = lag >= entity.advance(cost) as i64;
        }
        entity.start = now.wrapping_sub(owed as u64);
        self.owed = self.owed.saturating_add(weighted(owed, entity));
        self.clock.enter(entity.weight());
        let deadline = if boost {
            entity.start
        } else {
            entity.deadline(cost)
        };
        self.insert(entity, slot, deadline);
    }

    fn pick(&mut self, entities: &mut impl Entities, _dice: Dice<'_>) -> Option<u32> {
        self.release(entities);
        if self.ready.is_empty() {
            // Work conserving: the clock jumps to the first that waits.
            let first = *self.wait.top()?;
            self.clock.jump(first.key);
            self.promote(entities, first.slot);
        }
        self.ready.top().map(|entry| entry.slot)
    }

    fn charge(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let bleed = if self.memory {
            0
        } else {
            let half = i64::from(cost) << 31;
            (self.owed >> 3).clamp(half.wrapping_neg(), half)
        };
        self.owed = self.owed.saturating_sub(bleed);
        self.clock
            .run((u64::from(cost) << 32).wrapping_sub(bleed as u64));
        entity.charge(cost);
        match next {
            Some(next) => self.settle(entity, slot, next),
            None => self.leave(entity, slot),
        }
    }

    fn skip(&mut self, entities: &mut impl Entities, slot: u32, next: Option<u32>) {
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        match next {
            Some(next) => self.settle(entity, slot, next),
            None => self.leave(entity, slot),
        }
    }

    fn reweight(&mut self, entities: &mut impl Entities, slot: u32, weight: u32) {
        let next = entities.next_cost(slot);
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let before = entity.weight();
        entity.reweight(weight, now);
        if entity.place != Place::Out {
            self.clock.enter(entity.weight());
            self.clock.leave(before);
            self.settle(entity, slot, next);
        }
    }

    fn nth(&self, index: usize) -> Option<u32> {
        let waiting = self.wait.len();
        let entry = match index.checked_sub(waiting) {
            None => self.wait.nth(index),
            Some(index) => self.ready.nth(index),
        };
        entry.map(|entry| entry.slot)
    }

    fn lag(&self, entity: &Entity) -> i64 {
        let lag = entity.lag(self.clock.now());
        match entity.place {
            Place::Out if self.memory || entity.owed > 0 => entity.owed,
            Place::Out => lag.min(0),
            _ => lag,
        }
    }

    fn refresh(&self, entity: &mut Entity) {
        if entity.place == Place::Out && self.clock.now().wrapping_sub(entity.start) > FAR {
            entity.start = self.clock.now();
        }
    }
}
