// SPDX-License-Identifier: GPL-2.0-only

//! What the draws share: the leaves that have requests and their weights.
//!
//! # Vocabulary
//!
//! - *Member*: a leaf that has requests.
//! - *Ticket*: what is kept of a leaf here ([`Ticket`]): its weight, which is its range in the published table,
//!   and how far ahead it is of a clock that all leaves share.
//! - *Sums*: for each slot the sum of the weights of a run of slots that ends there (Fenwick, "A new data
//!   structure for cumulative frequency tables", 1994), so that a draw and a change cost O(log n).
//!
//! Ranges change with each publication. The members that were there are gone through a few at each draw,
//! those that come later at the next draw. A leaf without a range has the mean weight of those with one.
//!
//! The tree is not descended, so a member that is idle leaves its share to all others, not to its siblings,
//! until the next publication.

use super::{
    entity::{Clock, Entity, Place, WEIGHT_MAX, WEIGHT_MIN},
    golden, paper, random,
    select::{Dice, Nodes, SelectNeed, SelectSpare},
};
use crate::sched::{
    mem::{Bulk, NoMemory},
    ranges::Table,
    slab::NONE,
};

/// Members whose weight is brought up to date at one draw, at most.
const SWEEP: u32 = 8;

/// The weight while nothing was published.
const UNKNOWN: u32 = 1 << 20;

/// What is kept of a leaf.
pub struct Ticket {
    entity: Entity,
    /// That of the table which the weight is from.
    generation: Option<u64>,
    /// Where it is among the members.
    place: u32,
}

/// How a leaf is drawn.
pub(super) enum Draw {
    /// [`golden`], with the last number.
    Golden(u64),
    /// [`random`].
    Random,
    /// [`paper`].
    Paper,
}

/// The members and their weights.
///
/// # Invariants
///
/// `members` holds the slots whose weight is in `sums`, each once, and their tickets say where; the clock's
/// weight is the sum of their weights. Members before `sweep` are up to date with the table of `generation`.
pub(super) struct Flat {
    clock: Clock,
    tickets: Bulk<Ticket>,
    members: Bulk<u32>,
    sums: Bulk<u64>,
    draw: Draw,
    generation: Option<u64>,
    average: u32,
    sweep: u32,
}

/// The lowest bit that is set.
const fn lowest(number: usize) -> usize {
    number & number.wrapping_neg()
}

/// Half of a number of draws as a weight.
fn weight_of(draws: u64) -> u32 {
    let half = draws >> 1;
    half.clamp(u64::from(WEIGHT_MIN), u64::from(WEIGHT_MAX)) as u32
}

/// Tells the other partitions that the leaf in `slot`, and so the nodes above it, were served `cost` units.
pub(super) fn note(nodes: &mut impl Nodes, mut slot: u32, cost: i64) {
    while slot != NONE {
        nodes.note(slot, cost);
        slot = nodes.parent(slot);
    }
}

impl Flat {
    /// Room for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub(super) fn new(max: usize, draw: Draw) -> Result<Self, NoMemory> {
        Ok(Self {
            clock: Clock::new(),
            tickets: Bulk::new(max)?,
            members: Bulk::new(max)?,
            sums: Bulk::new(max)?,
            draw,
            generation: None,
            average: UNKNOWN,
            sweep: 0,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        let lists = self.members.capacity().min(self.tickets.capacity());
        lists.min(self.sums.capacity())
    }

    /// Adds the chunks that are wanted so that there is memory for `slots` slots.
    pub(super) fn wants(&self, slots: usize, need: &mut SelectNeed) {
        fn missing<T>(bulk: &Bulk<T>, slots: usize) -> usize {
            bulk.wants(slots.saturating_sub(bulk.len()))
        }
        need.tickets = missing(&self.tickets, slots);
        need.members = missing(&self.members, slots);
        need.sums = missing(&self.sums, slots);
    }

    pub(super) fn feed(&mut self, spare: SelectSpare) -> SelectSpare {
        SelectSpare {
            tickets: self.tickets.feed(spare.tickets),
            members: self.members.feed(spare.members),
            sums: self.sums.feed(spare.sums),
            ..spare
        }
    }

    fn ticket(&self, slot: u32) -> Option<&Ticket> {
        self.tickets.get(slot as usize)
    }

    fn ticket_mut(&mut self, slot: u32) -> Option<&mut Ticket> {
        self.tickets.get_mut(slot as usize)
    }

    /// Whether the leaf in `slot` has requests.
    pub(super) fn is_member(&self, slot: u32) -> bool {
        self.ticket(slot)
            .is_some_and(|ticket| ticket.entity.place == Place::Ready)
    }

    /// What the leaf in `slot` is owed, in units of virtual time; negative if it had more than its share.
    pub(super) fn lag_of(&self, slot: u32) -> i64 {
        self.ticket(slot)
            .map_or(i64::MIN, |ticket| ticket.entity.lag(self.clock.now()))
    }

    /// Sum of the weights of the members.
    pub(super) const fn total(&self) -> u64 {
        self.clock.weight()
    }

    pub(super) fn create(&mut self, _nodes: &mut impl Nodes, slot: u32) {
        while self.tickets.len() <= slot as usize {
            let ticket = Ticket {
                entity: Entity::new(UNKNOWN),
                generation: None,
                place: NONE,
            };
            // Below the capacity, so there is room.
            if self.tickets.push(ticket).is_err() {
                return;
            }
            self.append();
        }
        let (now, average) = (self.clock.now(), self.average);
        if let Some(ticket) = self.ticket_mut(slot) {
            ticket.entity = Entity::new(average);
            ticket.entity.start = now;
            ticket.generation = None;
        }
    }

    pub(super) fn join(&mut self, _nodes: &mut impl Nodes, slot: u32) {
        let now = self.clock.now();
        let place = self.members.len() as u32;
        let Some(ticket) = self
            .ticket_mut(slot)
            .filter(|t| t.entity.place == Place::Out)
        else {
            return;
        };
        ticket.place = place;
        let entity = &mut ticket.entity;
        entity.place = Place::Ready;
        let more = entity.resume(now, 1, false);
        let (weight, more) = (entity.weight(), entity.service(more));
        self.clock.tilt(more);
        self.clock.enter(weight);
        self.add(slot, u64::from(weight));
        // The capacity covers all slots, so there is room.
        let _ = self.members.push(slot);
    }

    fn leave(&mut self, slot: u32) {
        let now = self.clock.now();
        let Some(ticket) = self
            .ticket_mut(slot)
            .filter(|t| t.entity.place != Place::Out)
        else {
            return;
        };
        let place = ticket.place;
        let entity = &mut ticket.entity;
        let more = entity.retire(now);
        let (weight, more) = (entity.weight(), entity.service(more));
        self.clock.tilt(more);
        self.clock.leave(weight);
        self.add(slot, u64::from(weight).wrapping_neg());
        // The last member takes the place of the one that leaves.
        let Some(last) = self.members.pop() else {
            return;
        };
        if let Some(member) = self.members.get_mut(place as usize) {
            *member = last;
            if let Some(moved) = self.ticket_mut(last) {
                moved.place = place;
            }
        }
        self.sweep = self.sweep.min(place);
    }

    pub(super) fn pick(&mut self, nodes: &mut impl Nodes, dice: Dice<'_>) -> Option<u32> {
        if let Some(table) = dice.table {
            self.follow(nodes, table);
        }
        match self.draw {
            Draw::Golden(ref mut last) => {
                let mut number = *last;
                let slot = golden::pick(self, &mut number);
                self.draw = Draw::Golden(number);
                slot
            }
            Draw::Random => random::pick(self, dice.rng),
            Draw::Paper => paper::pick(self, nodes, dice),
        }
    }

    /// Brings the weights of some members up to date with `table`.
    fn follow(&mut self, nodes: &impl Nodes, table: &Table) {
        if self.generation != Some(table.generation()) {
            self.generation = Some(table.generation());
            self.sweep = 0;
            let share = (1u64 << 32).checked_div(table.len() as u64);
            self.average = share.map_or(UNKNOWN, weight_of);
        }
        for _ in 0..SWEEP {
            let Some(&slot) = self.members.get(self.sweep as usize) else {
                return;
            };
            self.sweep = self.sweep.saturating_add(1);
            let (generation, now, average) = (self.generation, self.clock.now(), self.average);
            let Some(ticket) = self.ticket_mut(slot).filter(|t| t.generation != generation) else {
                continue;
            };
            ticket.generation = generation;
            let range = table.range_of(nodes.id(slot));
            let draws = range.map(|range| range.end.saturating_sub(u64::from(range.lo)));
            let before = ticket.entity.weight();
            ticket
                .entity
                .reweight(draws.map_or(average, weight_of), now);
            let after = ticket.entity.weight();
            self.clock.enter(after);
            self.clock.leave(before);
            self.add(slot, u64::from(after).wrapping_sub(u64::from(before)));
        }
    }

    pub(super) fn charge(
        &mut self,
        nodes: &mut impl Nodes,
        slot: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        note(nodes, slot, i64::from(cost));
        self.clock.serve(cost);
        if let Some(ticket) = self.ticket_mut(slot) {
            ticket.entity.charge(cost);
            ticket.entity.busy |= next.is_some();
        }
        self.skip(nodes, slot, next);
    }

    pub(super) fn skip(&mut self, _nodes: &mut impl Nodes, slot: u32, next: Option<u32>) {
        if next.is_none() {
            self.leave(slot);
        }
    }

    pub(super) fn correct(&mut self, nodes: &mut impl Nodes, slot: u32, delta: i64) {
        note(nodes, slot, delta);
        if self.members.len() == 0 {
            return;
        }
        self.clock.correct(delta);
        let now = self.clock.now();
        let Some(ticket) = self.ticket_mut(slot) else {
            return;
        };
        if ticket.entity.place == Place::Out {
            let more = ticket.entity.correct_idle(now, delta, false);
            self.clock.tilt(more);
        } else {
            ticket.entity.correct(delta);
        }
    }

    pub(super) fn forget(&mut self, _nodes: &mut impl Nodes, slot: u32) {
        if let Some(ticket) = self
            .ticket_mut(slot)
            .filter(|t| t.entity.place == Place::Out)
        {
            let owed = core::mem::take(&mut ticket.entity.owed);
            let service = ticket.entity.service(owed);
            self.clock.tilt(service.saturating_neg());
        }
    }

    /// Draws follow the published ranges; those of the next publication follow the weight.
    pub(super) fn reweight(&mut self, nodes: &mut impl Nodes, slot: u32, weight: u32) {
        if let Some(entity) = nodes.entity_mut(slot) {
            *entity = Entity::new(weight);
        }
    }

    pub(super) fn lag(&self, _nodes: &impl Nodes, slot: u32) -> i64 {
        self.ticket(slot)
            .map_or(0, |ticket| ticket.entity.tenths_at(self.clock.now(), false))
    }

    pub(super) fn refresh(&mut self, _nodes: &mut impl Nodes, slot: u32) {
        let now = self.clock.now();
        if let Some(ticket) = self
            .ticket_mut(slot)
            .filter(|t| t.entity.place == Place::Out)
        {
            ticket.entity.refresh(now);
        }
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
    pub(super) fn locate(&self, mut point: u64) -> u32 {
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
}

#[cfg(test)]
mod tests;
