// SPDX-License-Identifier: GPL-2.0-only

//! Scheduler of one node of the tree: eligible earliest virtual deadline first. The clock corrects
//! the sum of the lags, and sparse entities have a boost.
//!
//! A *member* is a child with queued requests in its subtree. `Documentation/fairshare.md` has the
//! rules, their sources and their measurements.
//!
//! ```text
//!        join                   charge: new tag and deadline
//!  out ───────► in the timeline ◄────────────────────────────────┐
//!   ▲                  │ pick: first deadline of the members     │
//!   │                  │ with a tag not ahead of the clock       │
//!   └────── leave ─────┴─────────────────────────────────────────┘
//! ```
//!
//! # Lags of idle children
//!
//! The clock advances by the service divided by the members' weights, so the lags of all children
//! sum to 0 unless lags are dropped. [`VirtualClock::add_imbalance`] accumulates the deviation:
//! lags that expire, lags of children that are removed, service of an idle child without queueing,
//! and jumps of the clock. [`VirtualClock::serve`] runs slower or faster until the deviation is 0,
//! which spreads the deviation over all members by weight.
//!
//! # Corrections
//!
//! If a request cost more than its charge, tag and clock advance as for a charge. If the request
//! cost less, the tag moves back and the clock stops for that much service, because the clock never
//! moves back. A correction is at most one largest request. Without members there is nothing to
//! correct.
//!
//! # Bound of the delay of a child
//!
//! Let `c` be the cost of the largest request (units, at most 2^17). Let `n` and `W` be the largest
//! number of members and sum of their weights during the delay. The *fair period* of a child with
//! weight `w` is `P = c * W / w` units of this node's service. In a fair period the child earns one
//! largest request. A *round* is `n * c` units: one largest request of every member.
//!
//! A backlogged child is delayed by at most `3 * P` and one round before its first request and
//! between two of its requests:
//!
//! 1. The tag of the child is at most one of its requests, `c / w` in virtual time, ahead of the
//!    clock. The clock advances by at least `1 / (2 W)` per unit, so the child is eligible after at
//!    most `2 P`.
//! 2. The deadline of the child is at most `c / w` after its tag. Children dispatched before this
//!    child are eligible and have an earlier deadline. So each of them gets at most one request
//!    beyond its share up to that deadline. At normal speed the clock takes `P` to reach the
//!    deadline; the requests beyond the shares take one round.
//! 3. The clock runs at half speed only while service is owed; that service is part of the round.
//! 4. While no member is eligible, the member with the least tag is dispatched. So no other child
//!    is dispatched twice past this child's tag before this child.
//!
//! The node above serves this node within the same bound, so the delay of a leaf is at most the sum
//! over its levels. A pull moves a tag at most [`PULL_MAX`] largest requests ahead of the clock.
//! All pulls between two requests dispatched here move a tag by at most 16 times that. Debt moves a
//! tag by at most [`DEBT_MAX`]. Tests check the bound with children that come and go and with mixed
//! request sizes.

use super::{
    entity::{Entity, TimelineState, VirtualClock, COST_MAX, DEBT_MAX},
    members::Members,
    timeline::{Timeline, Timelines},
};
use crate::sched::{count::Count, item::Item, leftist_heap::HeapRoot, slab::NONE};

/// Largest distance, in largest requests, by which service elsewhere puts a child ahead of the
/// clock.
pub(super) const PULL_MAX: u32 = 4;

/// Largest service elsewhere charged between two requests dispatched here, as a multiple of
/// [`PULL_MAX`].
const PULLS_IN_A_ROW: u32 = 16;

/// Largest service elsewhere that is pending, as a multiple of [`PULL_MAX`].
const PENDING_MAX: u32 = 256;

/// Largest distance of a member from the clock, in requests of the member, when the member is
/// dispatched because no member is eligible. The clock jumps to that distance.
const SLACK: u64 = 4;

/// Clock and members of one node.
///
/// # Invariants
///
/// - A child is in the timeline if and only if its `place` is [`TimelineState::In`]. The timeline
///   has the tag and the deadline at the last change of either.
/// - The weight of the clock is the sum of the weights of the members.
/// - `chosen` is [`NONE`], or the eligible child with the first deadline.
#[derive(Clone, Copy, Debug)]
pub struct NodeScheduler {
    clock: VirtualClock,
    timeline: Timeline,
    chosen: u32,
    /// Members with a minimum ([`super::throttle`]), and some that have left.
    pub(super) floors: HeapRoot,
}

/// Event of a request other than a charged dispatch.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestStep {
    /// Dispatch or removal at no charge.
    Skip,
    /// Dispatch of this cost without queueing. The charge lowers the lag to no less than minus
    /// [`DEBT_MAX`].
    Owe(u32),
    /// End of a request that cost this much more than its charge.
    Correct(i64),
}

impl NodeScheduler {
    /// Creates a scheduler without members.
    pub(super) fn new() -> Self {
        Self {
            clock: VirtualClock::default(),
            timeline: Timeline::EMPTY,
            chosen: NONE,
            floors: HeapRoot::EMPTY,
        }
    }

    /// Returns true if there are no members.
    pub(super) const fn is_empty(&self) -> bool {
        self.clock.weight() == 0
    }

    /// Returns the sum of the weights of the members.
    #[cfg(test)]
    pub(super) const fn weight(&self) -> u64 {
        self.clock.weight()
    }

    /// Returns the virtual time.
    pub(super) const fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Updates the position of a member after a change of its tag or its next cost.
    fn update_position(&mut self, timelines: &mut Timelines, entity: &Entity, idx: u32) {
        if entity.place == TimelineState::In {
            timelines.set(&mut self.timeline, idx, entity.start, entity.deadline());
        }
    }

    /// Updates a member whose next request costs `next`; without a next request the member leaves.
    fn update_next(
        &mut self,
        timelines: &mut Timelines,
        entity: &mut Entity,
        idx: u32,
        next: Option<u32>,
    ) {
        match next {
            Some(next) => {
                entity.head = next;
                self.update_position(timelines, entity, idx);
            }
            None => self.leave(timelines, entity, idx),
        }
    }

    /// Removes a child without requests, and saves the child's lag.
    fn leave(&mut self, timelines: &mut Timelines, entity: &mut Entity, idx: u32) {
        if entity.place != TimelineState::In {
            return;
        }
        timelines.remove(&mut self.timeline, idx);
        let more = entity.retire(self.clock.now());
        self.clock.add_imbalance(entity.service(more));
        self.clock.leave(entity.weight());
    }

    /// Adds the child at index `idx`, whose first request costs `cost`, unless the child is a
    /// member or throttled. Returns true if the child is new.
    pub(super) fn join(
        &mut self,
        timelines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        idx: u32,
        cost: u32,
    ) -> bool {
        self.chosen = NONE;
        let now = self.clock.now();
        let Some(entity) = nodes
            .entity_mut(idx)
            .filter(|e| e.place == TimelineState::Out)
        else {
            return false;
        };
        // The clock has passed the old tag by a whole request.
        let boost = entity.owed <= 0 && entity.lag(now) >= entity.advance(cost) as i64;
        let more = entity.resume(now, cost);
        entity.head = cost;
        self.clock.add_imbalance(entity.service(more));
        self.clock.enter(entity.weight());
        let deadline = if boost && entity.lag(now) >= 0 {
            entity.start
        } else {
            entity.deadline()
        };
        entity.place = TimelineState::In;
        timelines.add(&mut self.timeline, idx, entity.start, deadline);
        true
    }

    /// Returns the eligible child with the first deadline.
    #[inline]
    pub(super) fn eligible(&self, timelines: &Timelines) -> Option<u32> {
        if self.chosen != NONE {
            return Some(self.chosen);
        }
        timelines.eligible(self.timeline, self.clock.now())
    }

    /// Chooses a child; `None` if there are no members.
    pub(super) fn pick(
        &mut self,
        timelines: &Timelines,
        nodes: &Members<impl Item>,
    ) -> Option<u32> {
        let eligible = self.eligible(timelines);
        if eligible.is_some() {
            return eligible;
        }
        // Work conserving: the children that are owed service have no requests now.
        let (idx, tag) = timelines.least(self.timeline)?;
        let slack = nodes.entity(idx).map_or(0, |entity| {
            entity.advance(entity.head).saturating_mul(SLACK)
        });
        self.clock.jump(tag.wrapping_sub(slack));
        Some(idx)
    }

    /// Applies `step` of a request below the child at index `idx`, which is `entity`; the child's
    /// next request costs `next`.
    pub(super) fn step(
        &mut self,
        timelines: &mut Timelines,
        entity: &mut Entity,
        idx: u32,
        step: RequestStep,
        next: Option<u32>,
    ) {
        self.chosen = NONE;
        match step {
            RequestStep::Skip => self.update_next(timelines, entity, idx, next),
            // Without members the request took no share here; other partitions are informed by
            // [`super::tree`].
            RequestStep::Owe(_) | RequestStep::Correct(_) if self.is_empty() => {}
            RequestStep::Owe(cost) if entity.place != TimelineState::In => {
                let more = entity.charge_idle(self.clock.now(), cost);
                self.clock.add_imbalance(entity.service(more));
            }
            RequestStep::Owe(cost) => {
                let floor = (entity.advance(DEBT_MAX) as i64).wrapping_neg();
                if entity.lag(self.clock.now()) > floor {
                    self.charge(timelines, entity, idx, cost, next);
                }
            }
            RequestStep::Correct(delta) => self.correct(timelines, entity, idx, delta),
        }
    }

    /// Corrects tag and clock after a request of a child that cost `delta` more than its charge.
    #[inline(never)]
    fn correct(&mut self, timelines: &mut Timelines, entity: &mut Entity, idx: u32, delta: i64) {
        self.clock.correct(delta);
        if entity.place != TimelineState::In {
            let more = entity.correct_idle(self.clock.now(), delta);
            self.clock.add_imbalance(more);
        } else {
            entity.correct(delta);
            self.update_position(timelines, entity, idx);
        }
    }

    /// Charges a member, whose next request costs `next`.
    #[inline]
    pub(super) fn charge(
        &mut self,
        timelines: &mut Timelines,
        entity: &mut Entity,
        idx: u32,
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
                timelines.replace(&mut self.timeline, idx, entity.start, entity.deadline());
            }
            None => self.leave(timelines, entity, idx),
        }
    }

    /// Charges a member as [`NodeScheduler::charge`] does, unless the member is far ahead of the
    /// clock because of its minimum: that service is taken off the whole, so that the member does
    /// not have to make up for it.
    pub(super) fn charge_bounded(
        &mut self,
        timelines: &mut Timelines,
        entity: &mut Entity,
        idx: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        let bound = entity.advance(cost).saturating_mul(SLACK) as i64;
        if entity.lag(self.clock.now()) < bound.saturating_neg() {
            self.step(timelines, entity, idx, RequestStep::Skip, next);
        } else {
            self.charge(timelines, entity, idx, cost, next);
        }
    }

    /// Charges `cost` units of service elsewhere, and pending units, to the child at index `idx`
    /// and to the clock. The tag stays at most `bound` units ahead of the clock; the rest is
    /// pending. Returns true if anything was charged.
    pub(super) fn pull(
        &mut self,
        timelines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        idx: u32,
        cost: u64,
        bound: u32,
    ) -> bool {
        let Some(entity) = nodes.entity_mut(idx) else {
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
        let due = entity
            .discount_remote(cost)
            .saturating_add(entity.pending.into());
        let taken = u64::from(entity.fits(room).min(left)).min(due) as u32;
        let kept = u64::from(bound.saturating_mul(PENDING_MAX));
        entity.pending = due.saturating_sub(taken.into()).min(kept) as u32;
        entity.pulled.count(taken);
        entity.charge(taken);
        self.clock.pull(taken);
        self.update_position(timelines, entity, idx);
        taken > 0
    }

    /// Sets the weight of the child at index `idx`; the child's lag in units stays the same.
    pub(super) fn reweight(
        &mut self,
        timelines: &mut Timelines,
        nodes: &mut Members<impl Item>,
        idx: u32,
        weight: u32,
    ) {
        let now = self.clock.now();
        let Some(entity) = nodes.entity_mut(idx) else {
            return;
        };
        self.chosen = NONE;
        let before = entity.weight();
        entity.reweight(weight, now);
        if entity.place == TimelineState::In {
            self.clock.enter(entity.weight());
            self.clock.leave(before);
            self.update_position(timelines, entity, idx);
        }
    }

    /// Drops the lag of the child at index `idx`, which is no member and is removed.
    pub(super) fn forget(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        if let Some(entity) = nodes
            .entity_mut(idx)
            .filter(|e| e.place == TimelineState::Out)
        {
            let owed = core::mem::take(&mut entity.owed);
            self.clock
                .add_imbalance(entity.service(owed).saturating_neg());
        }
    }

    /// Returns the child that is dispatched next if this node is; `None` without members.
    pub(super) fn choose(&mut self, timelines: &Timelines) -> Option<u32> {
        match self.eligible(timelines) {
            Some(idx) => {
                self.chosen = idx;
                Some(idx)
            }
            None => Some(timelines.least(self.timeline)?.0),
        }
    }
}
