// SPDX-License-Identifier: GPL-2.0-only

//! Eligible earliest virtual deadline first, with a bled clock and a boost for sparse entities: the
//! scheduler of one node of the tree.
//!
//! A *member* is a child that has requests, itself or below it. The rules, what they are taken from and their
//! measurements: Documentation/fairshare.md.
//!
//! ```text
//!        join                   charge: another tag and deadline
//!  out ───────► in the timeline ◄────────────────────────────────┐
//!   ▲                  │ pick: the first deadline of those whose │
//!   │                  │ tag is not ahead of the clock           │
//!   └────── leave ─────┴─────────────────────────────────────────┘
//! ```
//!
//! # Lags of idle children
//!
//! The clock moves on by the service divided by the members' weights; so the lags of all children sum to 0
//! as long as nothing is forgotten. [`Clock::tilt`] counts what expires, what is owed to a child that is
//! removed, service past the lines of an idle child, and what a jump of the clock gives. The bleed returns
//! that to all members by weight.
//!
//! # Corrections
//!
//! If a request cost more than its charge, tag and clock move on as for a charge. If it cost less, the tag
//! moves back, and the clock stands still for the service that it is ahead: it never runs back. No correction
//! is larger than one largest request. Without members there is nothing to correct.
//!
//! # How long a child waits
//!
//! Let `c` be the cost of the largest request (units, at most 2^17), `n` and `W` the largest number and sum
//! of weights of the members during the wait. The *fair period* of a child with weight `w` is
//! `P = c * W / w` units of service by this node: as long as its share takes to earn one largest request. A
//! *round* is `n * c` units: one largest request of every member.
//!
//! Between two of its requests, and before the first, a child waits at most `3 * P` and one round:
//!
//! 1. Its tag is at most one own request, `c / w` in virtual time, ahead of the clock. The bled clock
//!    moves on by at least `1 / (2 W)` per unit, so it is eligible after at most `2 P`.
//! 2. Its deadline is at most `c / w` behind its tag. Children that are served before it have an earlier
//!    deadline and are eligible, so each gets at most one request beyond the share it has earned by that
//!    deadline. At its own speed the clock takes `P` for that, and one round for the requests beyond.
//! 3. The clock runs at half speed only while service is owed; that service is part of the round.
//! 4. While no member is eligible the one with the lowest tag is served, so this child is served before any
//!    other is served twice past its tag.
//!
//! A node gets its own service by the same bound from the node above, so a leaf at depth `d` waits at most as
//! long as the bounds of the `d` levels take. A pull moves a tag at most [`PULL_MAX`] largest requests ahead of
//! the clock, and all pulls between two requests that are served here at most 16 times that; debt moves it at
//! most [`DEBT_MAX`]. The bound is tested with children that come and go and mixed request sizes.

use super::{
    entity::{Clock, Entity, Place, COST_MAX, DEBT_MAX},
    members::Members,
    timeline::{Timeline, Timelines},
};
use crate::sched::{item::Item, slab::NONE};

/// How far ahead of the clock service elsewhere puts a child, in largest requests.
pub(super) const PULL_MAX: u32 = 4;

/// How much service elsewhere is charged between two requests that are served here, as a multiple of
/// [`PULL_MAX`].
const PULLS_IN_A_ROW: u32 = 16;

/// How much service elsewhere is remembered until it is charged, as a multiple of [`PULL_MAX`].
const PENDING_MAX: u32 = 256;

/// How far a member may be ahead of the clock when it is served because nobody is eligible, in its own
/// requests; the clock jumps to that.
const SLACK: u64 = 4;

/// The scheduler of one node: its clock and its members.
///
/// # Invariants
///
/// - A child is in the timeline exactly if its `place` says so, by its tag and the deadline that it had when either
///   changed last.
/// - The clock's weight is the sum of the weights of the members.
/// - `chosen` is [`NONE`], or the eligible child with the first deadline.
#[derive(Clone, Copy, Debug)]
pub struct Sched {
    clock: Clock,
    line: Timeline,
    chosen: u32,
}

/// What happened to a request, other than that it was taken from its queue and charged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// It was taken from its queue at no charge.
    Skip,
    /// It went down past its queue and costs this much: it comes out of the share, up to [`DEBT_MAX`].
    Owe(u32),
    /// It ended and cost this much more than was charged.
    Correct(i64),
}

impl Sched {
    /// A scheduler without members.
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::default(),
            line: Timeline::EMPTY,
            chosen: NONE,
        }
    }

    /// Whether it has no members.
    pub(super) const fn is_empty(&self) -> bool {
        self.clock.weight() == 0
    }

    /// Sum of the weights of the members.
    #[cfg(test)]
    pub(super) const fn weight(&self) -> u64 {
        self.clock.weight()
    }

    /// The virtual time.
    pub(super) const fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Puts a member where it belongs after its tag or its next cost changed.
    fn settle(&mut self, lines: &mut Timelines, entity: &Entity, slot: u32) {
        if entity.place == Place::In {
            lines.set(&mut self.line, slot, entity.start, entity.deadline());
        }
    }

    /// Settles a member whose next request costs `next`; without one it leaves.
    fn go_on(&mut self, lines: &mut Timelines, entity: &mut Entity, slot: u32, next: Option<u32>) {
        match next {
            Some(next) => {
                entity.head = next;
                self.settle(lines, entity, slot);
            }
            None => self.leave(lines, entity, slot),
        }
    }

    /// Takes out a child without requests and remembers what it is owed.
    fn leave(&mut self, lines: &mut Timelines, entity: &mut Entity, slot: u32) {
        if entity.place == Place::Out {
            return;
        }
        lines.remove(&mut self.line, slot);
        let more = entity.retire(self.clock.now());
        self.clock.tilt(entity.service(more));
        self.clock.leave(entity.weight());
    }

    /// The child in `slot` has its first request, of `cost`; nothing if it is a member.
    pub(super) fn join(
        &mut self,
        lines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        slot: u32,
        cost: u32,
    ) {
        self.chosen = NONE;
        let now = self.clock.now();
        let Some(entity) = nodes.entity_mut(slot).filter(|e| e.place == Place::Out) else {
            return;
        };
        // Passed by a whole request.
        let boost = entity.owed <= 0 && entity.lag(now) >= entity.advance(cost) as i64;
        let more = entity.resume(now, cost);
        entity.head = cost;
        self.clock.tilt(entity.service(more));
        self.clock.enter(entity.weight());
        let deadline = if boost && entity.lag(now) >= 0 {
            entity.start
        } else {
            entity.deadline()
        };
        entity.place = Place::In;
        lines.add(&mut self.line, slot, entity.start, deadline);
    }

    /// The eligible child with the first deadline.
    #[inline]
    pub(super) fn eligible(&self, lines: &Timelines) -> Option<u32> {
        if self.chosen != NONE {
            return Some(self.chosen);
        }
        lines.eligible(self.line, self.clock.now())
    }

    /// Chooses a child; none if there are no members.
    pub(super) fn pick(&mut self, lines: &Timelines, nodes: &Members<impl Item>) -> Option<u32> {
        let eligible = self.eligible(lines);
        if eligible.is_some() {
            return eligible;
        }
        // Work conserving: those who are owed service have no requests now.
        let (slot, tag) = lines.least(self.line)?;
        let slack = nodes.entity(slot).map_or(0, |entity| {
            entity.advance(entity.head).saturating_mul(SLACK)
        });
        self.clock.jump(tag.wrapping_sub(slack));
        Some(slot)
    }

    /// Something happened to a request from below the child in `slot`, which is `entity`; the next one there costs
    /// `next`.
    pub(super) fn step(
        &mut self,
        lines: &mut Timelines,
        entity: &mut Entity,
        slot: u32,
        step: Step,
        next: Option<u32>,
    ) {
        self.chosen = NONE;
        match step {
            Step::Skip => self.go_on(lines, entity, slot, next),
            // Without members the request took no share here; other partitions are told of it ([`super::tree`]).
            Step::Owe(_) | Step::Correct(_) if self.is_empty() => {}
            Step::Owe(cost) if entity.place == Place::Out => {
                let more = entity.absorb(self.clock.now(), cost);
                self.clock.tilt(entity.service(more));
            }
            Step::Owe(cost) => {
                let floor = (entity.advance(DEBT_MAX) as i64).wrapping_neg();
                if entity.lag(self.clock.now()) > floor {
                    self.charge(lines, entity, slot, cost, next);
                }
            }
            Step::Correct(delta) => self.correct(lines, entity, slot, delta),
        }
    }

    /// A request of a child ended and cost `delta` more than was charged.
    #[inline(never)]
    fn correct(&mut self, lines: &mut Timelines, entity: &mut Entity, slot: u32, delta: i64) {
        self.clock.correct(delta);
        if entity.place == Place::Out {
            let more = entity.correct_idle(self.clock.now(), delta);
            self.clock.tilt(more);
        } else {
            entity.correct(delta);
            self.settle(lines, entity, slot);
        }
    }

    /// Charges a member, whose next request costs `next`.
    #[inline]
    pub(super) fn charge(
        &mut self,
        lines: &mut Timelines,
        entity: &mut Entity,
        slot: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        self.chosen = NONE;
        self.clock.serve(cost);
        entity.charge(cost);
        entity.pulled = 0;
        match next {
            Some(next) => {
                entity.busy = true;
                entity.head = next;
                lines.replace(&mut self.line, slot, entity.start, entity.deadline());
            }
            None => self.leave(lines, entity, slot),
        }
    }

    /// The child in `slot` was served `cost` units elsewhere; of these, and of those still pending, its tag
    /// and the clock take as many as put it at most `bound` units ahead of the clock. Whether there were any.
    pub(super) fn pull(
        &mut self,
        lines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        slot: u32,
        cost: u64,
        bound: u32,
    ) -> bool {
        let Some(entity) = nodes.entity_mut(slot) else {
            return false;
        };
        if cost == 0 && entity.pending == 0 {
            return false;
        }
        self.chosen = NONE;
        let ahead = entity.advance(bound) as i64;
        let room = entity.lag(self.clock.now()).saturating_add(ahead).max(0) as u64;
        let most = bound.saturating_mul(PULLS_IN_A_ROW);
        let left = most.saturating_sub(entity.pulled).min(COST_MAX);
        let due = entity.ease(cost).saturating_add(entity.pending.into());
        let taken = u64::from(entity.fits(room).min(left)).min(due) as u32;
        let kept = u64::from(bound.saturating_mul(PENDING_MAX));
        entity.pending = due.saturating_sub(taken.into()).min(kept) as u32;
        entity.pulled = entity.pulled.saturating_add(taken);
        entity.charge(taken);
        self.clock.pull(taken);
        self.settle(lines, entity, slot);
        taken > 0
    }

    /// Gives the child in `slot` another weight; what it is owed in units stays the same.
    pub(super) fn reweight(
        &mut self,
        lines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        slot: u32,
        weight: u32,
    ) {
        let now = self.clock.now();
        let Some(entity) = nodes.entity_mut(slot) else {
            return;
        };
        self.chosen = NONE;
        let before = entity.weight();
        entity.reweight(weight, now);
        if entity.place != Place::Out {
            self.clock.enter(entity.weight());
            self.clock.leave(before);
            self.settle(lines, entity, slot);
        }
    }

    /// The child in `slot`, which is no member, does not come again.
    pub(super) fn forget(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        if let Some(entity) = nodes.entity_mut(slot).filter(|e| e.place == Place::Out) {
            let owed = core::mem::take(&mut entity.owed);
            self.clock.tilt(entity.service(owed).saturating_neg());
        }
    }

    /// The child that is served next if this node is served; none without members.
    pub(super) fn choose(&mut self, lines: &Timelines) -> Option<u32> {
        match self.eligible(lines) {
            Some(slot) => {
                self.chosen = slot;
                Some(slot)
            }
            None => Some(lines.least(self.line)?.0),
        }
    }
}
