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
    entity::{Clock, Entity, Place, COST_MAX, DEBT_MAX},
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

    fn owe(&mut self, entities: &mut impl Entities, slot: u32, cost: u32, next: Option<u32>) {
        let now = self.clock.now();
        let Some(entity) = entities.entity_mut(slot) else {
            return;
        };
        let floor = (entity.advance(DEBT_MAX) as i64).wrapping_neg();
        if next.is_some() {
            if entity.lag(now) > floor {
                self.charge(entities, slot, cost, next);
            }
            return;
        }
        // What it is owed pays first; the rest is surplus, until the clock has passed it.
        let step = entity.advance(cost) as i64;
        let rest = step.saturating_sub(entity.owed.max(0)).max(0);
        if self.memory {
            entity.owed = entity.owed.saturating_sub(step).max(floor);
        } else {
            entity.owed = entity.owed.saturating_sub(step).max(0);
        }
        if rest > 0 {
            let lag = entity.lag(now).min(0).saturating_sub(rest).max(floor);
            entity.start = now.wrapping_sub(lag as u64);
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

#[cfg(test)]
mod tests {
    use super::{
        super::{entity::WEIGHT_ONE, select::tests::Fake},
        *,
    };
    use crate::sched::rng::Rng;

    /// Of two that always have requests one sends as much past its queue: it gets half in all, not more.
    #[test]
    fn what_was_forced_comes_out_of_the_share() {
        for memory in [false, true] {
            let (mut deadline, mut fake) = setup(&[WEIGHT_ONE; 2], memory);
            for slot in 0..2 {
                fake.next[slot as usize] = Some(4);
                deadline.join(&mut fake, slot, 4);
            }
            let mut served = [0u32; 2];
            for step in 0..3_000 {
                let (slot, cost) = serve(&mut deadline, &mut fake, Some(4)).unwrap();
                served[slot as usize] += cost;
                if step % 3 == 0 {
                    deadline.owe(&mut fake, 0, 4, Some(4));
                    served[0] += 4;
                }
            }
            assert!(served[0].abs_diff(served[1]) <= 8, "{served:?}");
        }
    }

    /// Debt is bounded, with requests queued and without: whoever owes more than anybody may is served
    /// again after the others had that much.
    #[test]
    fn debt_is_bounded() {
        for (memory, queued) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut deadline, mut fake) = setup(&[WEIGHT_ONE; 2], memory);
            for slot in if queued { 0..2 } else { 1..2 } {
                fake.next[slot as usize] = Some(COST_MAX);
                deadline.join(&mut fake, slot, COST_MAX);
            }
            for _ in 0..100 {
                deadline.owe(&mut fake, 0, COST_MAX, queued.then_some(COST_MAX));
            }
            if !queued {
                fake.next[0] = Some(COST_MAX);
                deadline.join(&mut fake, 0, COST_MAX);
            }
            let lag = deadline.lag(&fake.entities[0]);
            assert!(lag < 0 && lag >= -2 * (fake.entities[0].advance(DEBT_MAX) as i64));
            let waits = (0..100)
                .take_while(|_| serve(&mut deadline, &mut fake, Some(COST_MAX)).unwrap().0 == 1);
            let waits = waits.count();
            assert!((1..=5).contains(&waits), "{memory} {queued}: {waits}");
        }
    }

    /// A selector and as many entities without requests.
    fn setup(weights: &[u32], memory: bool) -> (Deadline, Fake) {
        let mut deadline = Deadline::new(weights.len(), memory).unwrap();
        let spare = deadline.wants(weights.len()).allocate().unwrap();
        deadline.feed(spare);
        assert!(deadline.capacity() >= weights.len());
        let mut fake = Fake::new(weights);
        for slot in 0..weights.len() as u32 {
            fake.entities[slot as usize].start = deadline.create(slot);
        }
        (deadline, fake)
    }

    /// Serves one request; the entity has more of them, of cost `next`, or leaves.
    fn serve(deadline: &mut Deadline, fake: &mut Fake, next: Option<u32>) -> Option<(u32, u32)> {
        let mut rng = Rng::new(0);
        let dice = Dice {
            rng: &mut rng,
            table: None,
        };
        let slot = deadline.pick(fake, dice)?;
        let cost = fake.next[slot as usize]?;
        fake.next[slot as usize] = next;
        deadline.charge(fake, slot, cost, next);
        Some((slot, cost))
    }

    /// The invariants of [`Deadline`], told from outside.
    fn check(deadline: &Deadline, fake: &Fake) {
        let mut weight = 0;
        for (slot, entity) in fake.entities.iter().enumerate() {
            let holds = |heap: &Heap| {
                let slots = (0..heap.len()).filter_map(|i| heap.nth(i));
                slots.filter(|entry| entry.slot as usize == slot).count()
            };
            let (wait, ready) = match (fake.next[slot], entity.place) {
                (None, Place::Out) => (0, 0),
                (Some(_), Place::Wait) => (1, 0),
                (Some(_), Place::Ready) => (0, 1),
                wrong => panic!("{slot}: {wrong:?}"),
            };
            assert_eq!(
                (holds(&deadline.wait), holds(&deadline.ready)),
                (wait, ready)
            );
            weight += u64::from(entity.weight()) * (wait + ready) as u64;
            if ready == 1 {
                assert!(entity.lag(deadline.clock.now()) >= 0);
            }
        }
        assert_eq!(deadline.clock.weight(), weight);
        let members = (0..).map_while(|i| deadline.nth(i)).count();
        assert_eq!(members, fake.next.iter().flatten().count());
    }

    /// Entities come, go, are served and get other weights; the invariants hold at each step and the
    /// clock never moves back, also around the wrap of virtual time.
    #[test]
    fn invariants() {
        for (seed, memory) in [(1, false), (2, false), (3, true), (4, true)] {
            let weights = [64, 100, 4096, 4096, 8192, 40_960, 1 << 20, 4096];
            let (mut deadline, mut fake) = setup(&weights, memory);
            deadline.clock.jump(u64::MAX >> 1);
            deadline.clock.jump(u64::MAX - (1 << 30));
            for entity in &mut fake.entities {
                entity.start = deadline.clock.now();
            }
            let mut rng = Rng::new(seed);
            let mut before = deadline.clock.now();
            for _ in 0..20_000 {
                let slot = rng.below(8) as u32;
                let cost = [1, 16, 256, COST_MAX][rng.below(4) as usize];
                match rng.below(8) {
                    0..=2 if fake.next[slot as usize].is_none() => {
                        fake.next[slot as usize] = Some(cost);
                        deadline.join(&mut fake, slot, cost);
                    }
                    3 => {
                        let weight = 1 << (6 + rng.below(15));
                        deadline.reweight(&mut fake, slot, weight);
                    }
                    4 => {
                        deadline.refresh(&mut fake.entities[slot as usize]);
                    }
                    _ => {
                        let next = (rng.below(4) > 0).then_some(cost);
                        let busy = fake.next.iter().any(Option::is_some);
                        assert_eq!(serve(&mut deadline, &mut fake, next).is_some(), busy);
                    }
                }
                check(&deadline, &fake);
                let now = deadline.clock.now();
                assert!(now.wrapping_sub(before) as i64 >= 0);
                before = now;
            }
        }
    }

    /// With a static set nobody is ever further from its share than the largest request (5 % for the
    /// rounding), whatever the weights; so shares are proportional.
    #[test]
    fn lag_is_below_one_request() {
        for memory in [false, true] {
            for (weights, costs) in [
                (&[4096, 4096][..], &[1, 256][..]),
                (&[4096, 16_384], &[1]),
                (&[4096, 409_600], &[1, 16]),
                (&[64, 1 << 20, 4096], &[1, 7, 64]),
                (&[4096, 1000, 640, 9000, 250, 64, 77, 5000], &[1, 16, 256]),
            ] {
                let (mut deadline, mut fake) = setup(weights, memory);
                let largest = i64::from(*costs.iter().max().unwrap());
                let cost_of = |slot: usize| Some(costs[slot % costs.len()]);
                for slot in 0..weights.len() {
                    fake.next[slot] = cost_of(slot);
                    deadline.join(&mut fake, slot as u32, costs[slot % costs.len()]);
                }
                let mut served = vec![0u64; weights.len()];
                for _ in 0..50_000 {
                    let slot = deadline.pick(
                        &mut fake,
                        Dice {
                            rng: &mut Rng::new(0),
                            table: None,
                        },
                    );
                    let next = cost_of(slot.unwrap() as usize);
                    let (slot, cost) = serve(&mut deadline, &mut fake, next).unwrap();
                    served[slot as usize] += u64::from(cost);
                    for entity in &fake.entities {
                        let lag = entity.decipages(deadline.lag(entity));
                        assert!(lag.abs() * 100 <= largest * 1050, "{weights:?}: {lag}");
                    }
                }
                // What was served is the share, up to one largest request.
                let total: u64 = served.iter().sum();
                let whole: u64 = weights.iter().map(|&w| u64::from(w)).sum();
                for (got, &weight) in served.iter().zip(weights) {
                    let ideal = total * u64::from(weight) / whole;
                    assert!(
                        got.abs_diff(ideal) <= largest as u64 + 2,
                        "{weights:?} {served:?}"
                    );
                }
            }
        }
    }

    /// An entity that did not use its share for a while goes first in line; with memory it takes its turn.
    #[test]
    fn sparse_entities_go_first() {
        let (mut deadline, mut fake) = setup(&[WEIGHT_ONE; 9], false);
        for slot in 1..9 {
            fake.next[slot as usize] = Some(1);
            deadline.join(&mut fake, slot, 1);
        }
        for round in 0..50 {
            for _ in 0..100 {
                let (slot, _) = serve(&mut deadline, &mut fake, Some(1)).unwrap();
                assert_ne!(slot, 0);
            }
            fake.next[0] = Some(1);
            deadline.join(&mut fake, 0, 1);
            assert_eq!(
                serve(&mut deadline, &mut fake, None),
                Some((0, 1)),
                "{round}"
            );
        }
    }

    /// Surplus expires, unless there is memory: then it is paid back after an idle spell.
    #[test]
    fn surplus_is_paid_back_with_memory_only() {
        for (memory, want) in [(false, 0), (true, 1)] {
            let (mut deadline, mut fake) = setup(&[WEIGHT_ONE; 3], memory);
            for slot in [1, 2] {
                fake.next[slot as usize] = Some(16);
                deadline.join(&mut fake, slot, 16);
            }
            // One large request, then idle for four of its fair periods.
            fake.next[0] = Some(64);
            deadline.join(&mut fake, 0, 64);
            let mut left = false;
            let mut after = 0;
            while after < 40 {
                let next = |slot| (slot != 0).then_some(16);
                let slot = deadline
                    .pick(
                        &mut fake,
                        Dice {
                            rng: &mut Rng::new(0),
                            table: None,
                        },
                    )
                    .unwrap();
                serve(&mut deadline, &mut fake, next(slot));
                left |= slot == 0;
                after += u32::from(left);
            }
            let lag = deadline.lag(&fake.entities[0]);
            assert_eq!(i32::from(lag < 0), want, "memory {memory}: {lag}");
        }
    }
}
