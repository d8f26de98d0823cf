// SPDX-License-Identifier: GPL-2.0-only

//! Tree of schedulers of `deadline`.
//!
//! Nodes are identified by index. An inner node has a scheduler of its children
//! ([`NodeScheduler`]); the root has no index, and its scheduler is in [`SchedulerTree`]. A
//! *member* is a node with queued requests in its subtree.
//!
//! ```text
//!              root            pick: from the root to a leaf, at each level the child that the
//!             /    \                 scheduler chooses
//!         gid 7    gid 9       charge: from the leaf to the root, at each level the same cost
//!        /    \       \        join: up to the first node that has members already
//!    uid 1   uid 2   uid 3     leave: a node leaves with the last member below it
//! ```
//!
//! So an idle member's share goes to its siblings, and the shares of other nodes do not change. The
//! deadline of an inner node is the deadline of the request that would be dispatched from its
//! subtree. Each level gets that request's cost from the scheduler below, so a charge takes one
//! step per level.
//!
//! A node with requests in several partitions has one counter of service, which the partitions
//! share. Before a node is chosen, its service elsewhere since the last time is charged, up to
//! [`PULL_MAX`] of the largest recent requests. Up to 1,024 more of these are charged later; the
//! rest is dropped.

use super::{
    deadline::{NodeScheduler, RequestStep, PULL_MAX},
    entity::{Entity, TimelineState},
    members::Members,
    throttle::Throttle,
    timeline::Timelines,
};
use crate::sched::{
    count::Count,
    item::Item,
    mem::{grow, NoMemory},
    slab::NONE,
};

/// Largest number of repeated choices of a level because the chosen child was served elsewhere.
const REMOTE_RETRIES: u32 = 8;

/// Number of requests in a window of [`RecentMaxCost`].
const WINDOW: u32 = 4096;

/// Largest cost of the last one to two windows of requests, units.
#[derive(Clone, Copy, Debug, Default)]
struct RecentMaxCost {
    now: u32,
    before: u32,
    count: u32,
}

impl RecentMaxCost {
    fn see(&mut self, cost: u32) {
        self.now = self.now.max(cost);
        self.count.count(1);
        if self.count >= WINDOW {
            self.before = core::mem::take(&mut self.now);
            self.count = 0;
        }
    }

    fn get(&self) -> u32 {
        self.now.max(self.before).max(1)
    }
}

/// Schedulers of all nodes.
///
/// # Invariants
///
/// A leaf is a member of its parent's scheduler if and only if the leaf joined and did not leave.
/// An inner node is a member if and only if its own scheduler has members.
pub struct SchedulerTree {
    pub(super) root: NodeScheduler,
    timelines: Timelines,
    largest: RecentMaxCost,
    /// Nodes with limits.
    pub(super) throttle: Throttle,
}

/// Runs `$body` on the scheduler of the node at index `$idx`, or of the root.
///
/// The scheduler of a node is stored in the nodes that `$body` changes, so `$body` runs on a copy
/// that is stored afterwards.
macro_rules! at {
    ($tree:ident, $nodes:ident, $idx:expr, $sched:ident => $body:expr) => {
        if $idx == NONE {
            let $sched = &mut $tree.root;
            $body
        } else {
            let copy = $nodes.sched($idx).copied();
            let mut copy = copy.unwrap_or_else(NodeScheduler::new);
            let $sched = &mut copy;
            let result = $body;
            if let Some(stored) = $nodes.sched_mut($idx) {
                *stored = copy;
            }
            result
        }
    };
}

/// Chooses a child of one level without service elsewhere that is not charged yet.
fn choose(
    sched: &mut NodeScheduler,
    timelines: &mut Timelines,
    nodes: &mut Members<impl Item>,
    bound: u32,
) -> Option<u32> {
    if nodes.has_single_partition() {
        return sched.pick(timelines, nodes);
    }
    for _ in 0..REMOTE_RETRIES {
        let child = sched.pick(timelines, nodes)?;
        let cost = nodes.elsewhere(child);
        if !sched.pull(timelines, nodes, child, cost, bound) {
            return Some(child);
        }
    }
    sched.pick(timelines, nodes)
}

grow!(SchedulerTree {
    timelines: Timelines,
    throttle: Throttle,
});

impl SchedulerTree {
    /// Creates a tree for up to `max` nodes; may sleep.
    pub(super) fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            root: NodeScheduler::new(),
            timelines: Timelines::new(max, seed)?,
            largest: RecentMaxCost::default(),
            throttle: Throttle::new(max)?,
        })
    }

    /// Returns the virtual time of the scheduler above the node at index `idx`.
    fn now(&self, nodes: &Members<impl Item>, idx: u32) -> u64 {
        match nodes.parent(idx) {
            NONE => self.root.now(),
            parent => nodes.sched(parent).map_or(0, NodeScheduler::now),
        }
    }

    /// Charges `cost` units to the leaf at index `idx`, whose next request costs `next`, and to
    /// the nodes above it; if `BOUNDED`, by [`NodeScheduler::charge_bounded`].
    #[inline]
    pub(super) fn charge<const BOUNDED: bool>(
        &mut self,
        nodes: &mut Members<impl Item>,
        idx: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        self.largest.see(cost);
        self.climb(
            nodes,
            idx,
            cost.into(),
            next,
            |sched, timelines, entity, idx, next| match BOUNDED {
                true => sched.charge_bounded(timelines, entity, idx, cost, next),
                false => sched.charge(timelines, entity, idx, cost, next),
            },
        );
    }

    /// Applies `step` of a request of the leaf at index `idx`, whose next request costs `next`, to
    /// the schedulers above.
    #[inline(never)]
    pub(super) fn step(
        &mut self,
        nodes: &mut Members<impl Item>,
        idx: u32,
        step: RequestStep,
        next: Option<u32>,
    ) {
        let served = match step {
            RequestStep::Owe(cost) => cost.into(),
            RequestStep::Correct(delta) => delta,
            RequestStep::Skip => 0,
        };
        self.climb(
            nodes,
            idx,
            served,
            next,
            |sched, timelines, entity, idx, next| {
                sched.step(timelines, entity, idx, step, next);
            },
        );
    }

    /// Applies `step` to the schedulers above the leaf at index `idx`. Other partitions are
    /// informed of `served`, units of cost.
    #[inline(always)]
    fn climb(
        &mut self,
        nodes: &mut Members<impl Item>,
        mut idx: u32,
        served: i64,
        mut next: Option<u32>,
        step: impl Fn(&mut NodeScheduler, &mut Timelines, &mut Entity, u32, Option<u32>),
    ) {
        loop {
            nodes.record_service(idx, served);
            let Some(node) = nodes.table.at_mut(idx) else {
                bug!();
                return;
            };
            let parent = node.parent;
            let entity = &mut node.entity;
            if parent == NONE {
                step(&mut self.root, &mut self.timelines, entity, idx, next);
                return;
            }
            // The scheduler of the parent is stored in `nodes`, too.
            let mut entity = *entity;
            let Some(sched) = nodes.sched_mut(parent) else {
                bug!();
                return;
            };
            step(sched, &mut self.timelines, &mut entity, idx, next);
            let chosen = sched.choose(&self.timelines);
            if let Some(stored) = nodes.entity_mut(idx) {
                *stored = entity;
            }
            next = chosen.and_then(|idx| Some(nodes.entity(idx)?.head));
            idx = parent;
        }
    }

    pub(super) fn begin(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        let now = self.now(nodes, idx);
        if let Some(entity) = nodes.entity_mut(idx) {
            entity.start = now;
        }
    }

    pub(super) fn join(&mut self, nodes: &mut Members<impl Item>, mut idx: u32, cost: u32) {
        loop {
            // Service elsewhere before the node joined here is not charged.
            let _ = nodes.elsewhere(idx);
            let parent = nodes.parent(idx);
            let first = at!(self, nodes, parent, sched => {
                let first = sched.is_empty();
                sched.join(&mut self.timelines, nodes, idx, cost) && first
            });
            if parent == NONE || !first {
                return;
            }
            idx = parent;
        }
    }

    pub(super) fn pick(&mut self, nodes: &mut Members<impl Item>) -> Option<u32> {
        let mut at = NONE;
        if nodes.has_single_partition() {
            // Read-only access suffices as long as there is an eligible child.
            let mut sched = &self.root;
            while let Some(child) = sched.eligible(&self.timelines) {
                if nodes.are_flat() {
                    return Some(child);
                }
                match nodes.sched(child) {
                    Some(below) => (at, sched) = (child, below),
                    None => return Some(child),
                }
            }
        }
        self.descend(nodes, at, |_, _, _| None)
    }

    /// Returns the leaf that is dispatched next below the node at index `at`; at each level the
    /// child that `first` returns, or else the scheduler's choice.
    #[inline(never)]
    pub(super) fn descend<I: Item>(
        &mut self,
        nodes: &mut Members<I>,
        mut at: u32,
        mut first: impl FnMut(&mut Self, &mut Members<I>, u32) -> Option<u32>,
    ) -> Option<u32> {
        let bound = self.largest.get().saturating_mul(PULL_MAX);
        loop {
            let child = match first(self, nodes, at) {
                Some(child) => child,
                None => at!(self, nodes, at, sched => {
                    choose(sched, &mut self.timelines, nodes, bound)
                })?,
            };
            if nodes.sched(child).is_none() {
                return Some(child);
            }
            at = child;
        }
    }

    /// Returns the cost of the request that would be dispatched from the inner node at index `idx`.
    pub(super) fn front_cost(&mut self, nodes: &mut Members<impl Item>, idx: u32) -> Option<u32> {
        let chosen = at!(self, nodes, idx, sched => sched.choose(&self.timelines))?;
        Some(nodes.entity(chosen)?.head)
    }

    /// Returns true if no leaf can be chosen.
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    pub(super) fn reweight(&mut self, nodes: &mut Members<impl Item>, idx: u32, weight: u32) {
        let parent = nodes.parent(idx);
        at!(self, nodes, parent, sched => sched.reweight(&mut self.timelines, nodes, idx, weight));
    }

    pub(super) fn forget(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        self.drop_limits(nodes, idx);
        let parent = nodes.parent(idx);
        at!(self, nodes, parent, sched => sched.forget(nodes, idx));
    }

    pub(super) fn lag(&self, nodes: &Members<impl Item>, idx: u32) -> i64 {
        let now = self.now(nodes, idx);
        nodes.entity(idx).map_or(0, |entity| entity.tenths_at(now))
    }

    pub(super) fn refresh(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        let now = self.now(nodes, idx);
        if let Some(entity) = nodes.entity_mut(idx) {
            if entity.place != TimelineState::In {
                entity.refresh(now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
