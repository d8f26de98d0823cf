// SPDX-License-Identifier: GPL-2.0-only

//! The tree of schedulers: `deadline`.
//!
//! Nodes are named by slot. An inner node has a scheduler for the nodes below it ([`Sched`]); the root has no
//! slot, its scheduler is here. A *member* is a node with requests, itself or below it.
//!
//! ```text
//!              root            pick: from the root to a leaf, at each level the child that its
//!             /    \                 scheduler chooses
//!         gid 7    gid 9       charge: from the leaf to the root, at each level the same cost
//!        /    \       \        join: up to the first node that has members already
//!    uid 1   uid 2   uid 3     leave: a node leaves with the last member below it
//! ```
//!
//! So an idle member gives its share to its siblings, and nobody else's share changes. The deadline of an
//! inner node is that of the request which would be served if the node were; each level learns its cost
//! from the scheduler below, so a charge costs one step per level.
//!
//! A node that has requests in several partitions has one counter of service, shared by them. A node that is about
//! to be chosen here is charged first for what it got elsewhere since the last time, up to [`PULL_MAX`] of the
//! largest requests seen lately. What is above that is charged later, up to 1,024 of them; the rest is forgotten.

use super::{
    deadline::{Sched, Step, PULL_MAX},
    entity::{Entity, Place},
    members::Members,
    timeline::Timelines,
};
use crate::sched::{
    item::Item,
    mem::{grow, NoMemory},
    slab::NONE,
};

/// How many times a level chooses again because its choice was served elsewhere.
const PULLS: u32 = 8;

/// Requests after which the largest of those before is forgotten.
const WINDOW: u32 = 4096;

/// The largest cost of the last one to two windows of requests, units.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    now: u32,
    before: u32,
    count: u32,
}

impl Largest {
    fn see(&mut self, cost: u32) {
        self.now = self.now.max(cost);
        self.count = self.count.saturating_add(1);
        if self.count >= WINDOW {
            self.before = core::mem::take(&mut self.now);
            self.count = 0;
        }
    }

    fn get(&self) -> u32 {
        self.now.max(self.before).max(1)
    }
}

/// The schedulers of all nodes, seen as one.
///
/// # Invariants
///
/// A node is a member of its parent's scheduler exactly if it is a leaf that joined and did not leave, or
/// if its own scheduler has members.
pub struct Tree {
    root: Sched,
    lines: Timelines,
    largest: Largest,
}

/// Runs `$body` on the scheduler of the node in `$slot`, or of the root.
///
/// That of a node is a part of the nodes that it changes, so it is a copy which is put back.
macro_rules! at {
    ($tree:ident, $nodes:ident, $slot:expr, $sched:ident => $body:expr) => {
        if $slot == NONE {
            let $sched = &mut $tree.root;
            $body
        } else {
            let copy = $nodes.sched($slot).copied();
            let mut copy = copy.unwrap_or_else(Sched::new);
            let $sched = &mut copy;
            let result = $body;
            if let Some(stored) = $nodes.sched_mut($slot) {
                *stored = copy;
            }
            result
        }
    };
}

/// Chooses a child of one level that was not served elsewhere.
fn choose(
    sched: &mut Sched,
    lines: &mut Timelines,
    nodes: &mut Members<impl Item>,
    bound: u32,
) -> Option<u32> {
    if nodes.are_alone() {
        return sched.pick(lines, nodes);
    }
    for _ in 0..PULLS {
        let child = sched.pick(lines, nodes)?;
        let cost = nodes.elsewhere(child);
        if !sched.pull(lines, nodes, child, cost, bound) {
            return Some(child);
        }
    }
    sched.pick(lines, nodes)
}

grow!(Tree { lines: Timelines });

impl Tree {
    /// A tree for up to `max` slots; sleeps.
    pub(super) fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            root: Sched::new(),
            lines: Timelines::new(max, seed)?,
            largest: Largest::default(),
        })
    }

    /// The virtual time of the scheduler above the node in `slot`.
    fn now(&self, nodes: &Members<impl Item>, slot: u32) -> u64 {
        match nodes.parent(slot) {
            NONE => self.root.now(),
            parent => nodes.sched(parent).map_or(0, Sched::now),
        }
    }

    /// Charges the leaf in `slot`, whose next request costs `next`, and the nodes above it `cost` units.
    #[inline]
    pub(super) fn charge(
        &mut self,
        nodes: &mut Members<impl Item>,
        slot: u32,
        cost: u32,
        next: Option<u32>,
    ) {
        self.largest.see(cost);
        self.climb(
            nodes,
            slot,
            cost.into(),
            next,
            |sched, lines, entity, slot, next| {
                sched.charge(lines, entity, slot, cost, next);
            },
        );
    }

    /// Tells the schedulers above the leaf in `slot`, whose next request costs `next`, what else happened to one of its
    /// requests.
    #[inline(never)]
    pub(super) fn step(
        &mut self,
        nodes: &mut Members<impl Item>,
        slot: u32,
        step: Step,
        next: Option<u32>,
    ) {
        let served = match step {
            Step::Owe(cost) => cost.into(),
            Step::Correct(delta) => delta,
            Step::Skip => 0,
        };
        self.climb(
            nodes,
            slot,
            served,
            next,
            |sched, lines, entity, slot, next| {
                sched.step(lines, entity, slot, step, next);
            },
        );
    }

    /// Has the schedulers above the leaf in `slot` take a `step`; `served`, units of cost, is what other partitions are
    /// told of.
    #[inline(always)]
    fn climb(
        &mut self,
        nodes: &mut Members<impl Item>,
        mut slot: u32,
        served: i64,
        mut next: Option<u32>,
        step: impl Fn(&mut Sched, &mut Timelines, &mut Entity, u32, Option<u32>),
    ) {
        loop {
            nodes.note(slot, served);
            let Some(node) = nodes.table.at_mut(slot) else {
                bug!();
                return;
            };
            let parent = node.parent;
            let entity = &mut node.entity;
            if parent == NONE {
                step(&mut self.root, &mut self.lines, entity, slot, next);
                return;
            }
            // Its scheduler is a part of the nodes, too.
            let mut entity = *entity;
            let Some(sched) = nodes.sched_mut(parent) else {
                bug!();
                return;
            };
            step(sched, &mut self.lines, &mut entity, slot, next);
            let chosen = sched.choose(&self.lines);
            if let Some(stored) = nodes.entity_mut(slot) {
                *stored = entity;
            }
            next = chosen.and_then(|slot| Some(nodes.entity(slot)?.head));
            slot = parent;
        }
    }

    pub(super) fn begin(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        let now = self.now(nodes, slot);
        if let Some(entity) = nodes.entity_mut(slot) {
            entity.start = now;
        }
    }

    pub(super) fn join(&mut self, nodes: &mut Members<impl Item>, mut slot: u32, cost: u32) {
        loop {
            // What it got elsewhere before it came here is no debt.
            let _ = nodes.elsewhere(slot);
            let parent = nodes.parent(slot);
            let first = at!(self, nodes, parent, sched => {
                let first = sched.is_empty();
                sched.join(&mut self.lines, nodes, slot, cost);
                first
            });
            if parent == NONE || !first {
                return;
            }
            slot = parent;
        }
    }

    pub(super) fn pick(&mut self, nodes: &mut Members<impl Item>) -> Option<u32> {
        let mut at = NONE;
        if nodes.are_alone() {
            // A look is enough as long as there is an eligible child.
            let mut sched = &self.root;
            while let Some(child) = sched.eligible(&self.lines) {
                if nodes.are_flat() {
                    return Some(child);
                }
                match nodes.sched(child) {
                    Some(below) => (at, sched) = (child, below),
                    None => return Some(child),
                }
            }
        }
        let bound = self.largest.get().saturating_mul(PULL_MAX);
        loop {
            let child =
                at!(self, nodes, at, sched => choose(sched, &mut self.lines, nodes, bound))?;
            if nodes.sched(child).is_none() {
                return Some(child);
            }
            at = child;
        }
    }

    pub(super) fn reweight(&mut self, nodes: &mut Members<impl Item>, slot: u32, weight: u32) {
        let parent = nodes.parent(slot);
        at!(self, nodes, parent, sched => sched.reweight(&mut self.lines, nodes, slot, weight));
    }

    pub(super) fn forget(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        let parent = nodes.parent(slot);
        at!(self, nodes, parent, sched => sched.forget(nodes, slot));
    }

    pub(super) fn lag(&self, nodes: &Members<impl Item>, slot: u32) -> i64 {
        let now = self.now(nodes, slot);
        nodes.entity(slot).map_or(0, |entity| entity.tenths_at(now))
    }

    pub(super) fn refresh(&mut self, nodes: &mut Members<impl Item>, slot: u32) {
        let now = self.now(nodes, slot);
        if let Some(entity) = nodes.entity_mut(slot) {
            if entity.place == Place::Out {
                entity.refresh(now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
