// SPDX-License-Identifier: GPL-2.0-only

//! Entities at their limits, and entities below their minimums.
//!
//! A node at its maximum is *parked*: it leaves the scheduler of its parent with its lag, and
//! returns when its bucket is out of debt. A parent without other members leaves, too, so that a
//! limited entity's share goes to its siblings, and shares of others stay exact.
//!
//! ```text
//!              pick: a bucket on the path is in debt
//!  in timeline ─────────────────────────────────────► parked, ordered by the end of the debt
//!       ▲                                                │ now, or a change of limits
//!       └────────────────────────────────────────────────┘
//! ```
//!
//! Buckets are shared by all partitions and devices, so each choice is checked against the buckets
//! of its whole path. The topmost node in debt is parked. One call examines at most [`LOOKS`]
//! leaves; then the caller has to ask again after [`PAUSE`].
//!
//! A node that finds its bucket in debt again when it returns has lost the tokens to a request that
//! other partitions or devices dispatched earlier. It then *reserves* them: takes those of its next
//! request ahead of time, and is parked until they exist. So each partition gets tokens.
//!
//! # Minimums
//!
//! The members of a scheduler that have a minimum are in a heap by the time from which the bucket
//! of the minimum is out of debt. The first whose time has come precedes the scheduler's choice. At
//! most [`FLOORS_IN_A_ROW`] requests are chosen so before one is chosen by weights: minimums above
//! the capacity are scaled, and no sibling starves. All requests of an entity count for its
//! minimum.

use super::{
    deadline::RequestStep,
    entity::TimelineState,
    limits::{CompiledLimits, LimitPlan},
    members::Members,
    node::NodeLimit,
    tree::SchedulerTree,
    State,
};
use crate::sched::{
    bucket::{clock, instant, nanoseconds, DEBT_MAX},
    item::{Cost, Item},
    key::Key,
    leftist_heap::{HeapRoot, LeftistForest},
    mem::{grow, NoMemory},
    policy::{withheld_time::withheld, PartView},
    slab::NONE,
};

/// Maximum number of leaves that one choice examines, and of nodes that return at once.
const LOOKS: u32 = 64;

/// Time after which a choice without result is repeated, 50 us in ns: the slack of timers.
const PAUSE: u64 = 50_000;

/// Maximum number of consecutive requests chosen because of minimums.
const FLOORS_IN_A_ROW: u32 = 8;

/// Parked nodes, and members with minimums.
///
/// # Invariants
///
/// A node is in `parked` if and only if its place is [`TimelineState::Parked`]. A parked node has
/// requests or members.
pub struct Throttle {
    parked: LeftistForest,
    root: HeapRoot,
    /// Heaps of the schedulers' `floors`.
    floors: LeftistForest,
    /// Number of requests chosen because of minimums since the last one that was not.
    in_a_row: u32,
}

grow!(Throttle {
    parked: LeftistForest,
    floors: LeftistForest,
});

impl Throttle {
    /// Creates heaps for up to `max` nodes; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            parked: LeftistForest::new(max)?,
            root: HeapRoot::EMPTY,
            floors: LeftistForest::new(max)?,
            in_a_row: 0,
        })
    }

    /// Returns the first parked node and the instant at which it returns.
    fn first(&self) -> Option<(u32, u64)> {
        self.parked.top(self.root)
    }
}

impl SchedulerTree {
    /// Parks the node at index `idx` until `due`.
    fn park(&mut self, nodes: &mut Members<impl Item>, idx: u32, due: u64) {
        self.step(nodes, idx, RequestStep::Skip, None);
        if let Some(node) = nodes.table.at_mut(idx) {
            node.entity.place = TimelineState::Parked;
            (node.limit.until, node.limit.waits) = (clock(due), true);
            let throttle = &mut self.throttle;
            throttle.parked.push(&mut throttle.root, due, idx);
        }
    }

    /// Ends the parking of the node at index `idx`, without requests in the timeline.
    fn drop_parked(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        let Some(entity) = nodes.entity_mut(idx) else {
            return;
        };
        if entity.place == TimelineState::Parked {
            entity.place = TimelineState::Out;
            let throttle = &mut self.throttle;
            throttle.parked.remove(&mut throttle.root, idx);
        }
    }

    /// Ends the parking of the leaf at index `idx` and of the nodes above it, up to the first with
    /// requests or members.
    fn drop_empty(&mut self, nodes: &mut Members<impl Item>, mut idx: u32) {
        while let Some(node) = nodes.table.at(idx) {
            let (leaf, inner, parent) = (node.leaf(), node.inner(), node.parent);
            let has_requests = leaf.is_some_and(|leaf| !leaf.queue.is_empty());
            if has_requests || inner.is_some_and(|inner| !inner.sched.is_empty()) {
                return;
            }
            self.drop_parked(nodes, idx);
            idx = parent;
        }
    }

    /// Lets the node at index `idx` return to the timeline at `now`, if it has requests.
    fn unpark(&mut self, nodes: &mut Members<impl Item>, idx: u32, now: u64) {
        self.drop_parked(nodes, idx);
        let cost = match nodes.open(idx) {
            Some((leaf, charge_model)) => charge_model.next(leaf),
            None => self.front_cost(nodes, idx),
        };
        if let Some(cost) = cost {
            self.join(nodes, idx, cost);
            self.join_floors(nodes, idx, now);
        }
    }

    /// Removes the node at index `idx`, which leaves the tree, from all heaps.
    pub(super) fn drop_limits(&mut self, nodes: &mut Members<impl Item>, idx: u32) {
        self.drop_parked(nodes, idx);
        self.set_floor(nodes, idx, None);
    }

    /// Adds the member at index `idx` and the members above it to the heaps of minimums.
    fn join_floors(&mut self, nodes: &mut Members<impl Item>, mut idx: u32, now: u64) {
        while let Some(ready) = nodes.minimum_ready(idx, now) {
            self.set_floor(nodes, idx, ready);
            idx = nodes.parent(idx);
        }
    }

    /// Sets the instant at which the minimum of the node at index `idx` is out of debt; `None`
    /// without a minimum.
    fn set_floor(&mut self, nodes: &mut Members<impl Item>, idx: u32, ready: Option<u64>) {
        let parent = nodes.parent(idx);
        let Some(node) = nodes.table.at_mut(idx) else {
            return;
        };
        let was = core::mem::replace(&mut node.limit.is_in_floors, ready.is_some());
        let floors = match parent {
            NONE => Some(&mut self.root.floors),
            parent => nodes.sched_mut(parent).map(|sched| &mut sched.floors),
        };
        let Some(floors) = floors else {
            return;
        };
        match ready {
            Some(ready) if was => self.throttle.floors.update(floors, ready, idx),
            Some(ready) => self.throttle.floors.push(floors, ready, idx),
            None if was => self.throttle.floors.remove(floors, idx),
            None => {}
        }
    }

    /// Returns the child of the node at index `at` whose minimum is due at `now`; removes nodes
    /// that are no members, at most [`LOOKS`].
    fn first_floor(&mut self, nodes: &mut Members<impl Item>, at: u32, now: u64) -> Option<u32> {
        for _ in 0..LOOKS {
            let floors = match at {
                NONE => self.root.floors,
                at => nodes.sched(at)?.floors,
            };
            let (idx, ready) = self.throttle.floors.top(floors)?;
            if nodes.entity(idx)?.place == TimelineState::In {
                return (ready <= now).then_some(idx);
            }
            self.set_floor(nodes, idx, None);
        }
        None
    }

    /// Chooses a leaf: at each level the child whose minimum is due at `now`, or else by weights.
    fn pick_with_minimums(&mut self, nodes: &mut Members<impl Item>, now: u64) -> Option<u32> {
        let by_floors = self.throttle.in_a_row < FLOORS_IN_A_ROW;
        let mut is_chosen = false;
        let idx = self.descend(nodes, NONE, |tree, nodes, at| {
            let child = tree.first_floor(nodes, at, now).filter(|_| by_floors);
            is_chosen |= child.is_some();
            child
        });
        self.throttle.in_a_row = match is_chosen {
            true => self.throttle.in_a_row.saturating_add(1),
            false => 0,
        };
        idx
    }

    /// Lets parked nodes return whose time has come, at most [`LOOKS`]; with `force` also the first
    /// ones, until a leaf can be chosen.
    fn release(&mut self, nodes: &mut Members<impl Item>, now: u64, force: bool) {
        for _ in 0..LOOKS {
            match self.throttle.first() {
                Some((idx, due)) if due <= now || (force && self.is_empty()) => {
                    self.unpark(nodes, idx, now);
                }
                _ => return,
            }
        }
    }

    /// Returns the time until which all queued requests are throttled, ns; `None` if a request may
    /// be eligible.
    pub(super) fn throttled_for(&self) -> Option<u64> {
        let (_, due) = self.throttle.first().filter(|_| self.is_empty())?;
        Some(clock(due))
    }
}

/// Limits of nodes; all functions return `None` for an index without a node, such as [`NONE`].
impl<I: Item> Members<I> {
    /// Calls `f` with the limits of the node at index `idx`, the hash of its path, and what the
    /// node keeps; an inner `None` without limits.
    #[inline]
    fn with_limits<R>(
        &mut self,
        idx: u32,
        f: impl FnOnce(&CompiledLimits, &LimitPlan, u64, &mut NodeLimit) -> R,
    ) -> Option<Option<R>> {
        let node = self.table.at_mut(idx)?;
        let Some(plan) = &self.update.limits else {
            return Some(None);
        };
        if node.limit.generation != plan.generation {
            let level = self.mode.level(node.level);
            let index_of = |key: &Key| plan.index_of(key, level?.field());
            let found = index_of(&node.key);
            // While the text of a cgroup is not known, it has the limits of all cgroups, and is
            // looked up again. The index is of another plan.
            let known = found.or_else(|| index_of(&Key::Default));
            node.limit.idx = known.flatten().unwrap_or(NONE);
            node.limit.reserved = None;
            if found.is_some() {
                node.limit.generation = plan.generation;
            }
        }
        let compiled = plan.compiled(node.limit.idx);
        Some(compiled.map(|compiled| f(compiled, plan, node.id.0, &mut node.limit)))
    }

    /// Returns the instant from which the maximums of the node at index `idx` allow a request.
    fn maximum_ready(&mut self, idx: u32, now: u64) -> Option<u64> {
        let ready = self.with_limits(idx, |limits, plan, id, kept| {
            if kept.reserved.is_some() {
                return instant(kept.until);
            }
            let maximums = limits.maximums(&mut kept.places);
            let ready = maximums.map(|(meter, place)| meter.ready(&plan.buckets, id, place, now));
            ready.max().unwrap_or(0)
        })?;
        Some(ready.unwrap_or(0))
    }

    /// Returns the instant from which the minimum of the node at index `idx` is out of debt; an
    /// inner `None` without a minimum.
    fn minimum_ready(&mut self, idx: u32, now: u64) -> Option<Option<u64>> {
        let ready = self.with_limits(idx, |limits, plan, id, _| {
            let meters = limits.min.iter().flatten();
            let ready = meters.map(|meter| meter.ready(&plan.buckets, id, &mut { NONE }, now));
            ready.min()
        })?;
        Some(ready.flatten())
    }

    /// Returns the topmost node above and including the leaf at index `idx` that is at a maximum,
    /// and the instant until which it is.
    fn at_maximum(&mut self, mut idx: u32, now: u64) -> Option<(u32, u64)> {
        let mut found = None;
        while let Some(ready) = self.maximum_ready(idx, now) {
            if ready > now {
                found = Some((idx, ready));
            }
            idx = self.parent(idx);
        }
        found
    }

    /// Takes tokens ahead of time for the next request of the leaf at index `idx`, from the buckets
    /// of the node at index `at`, if others used up its buckets until the node returned. Returns
    /// the instant from which the request may be dispatched; `due` if nothing was taken.
    fn reserve(&mut self, idx: u32, at: u32, due: u64, now: u64) -> u64 {
        let front = self.leaf(idx).and_then(|leaf| leaf.queue.front());
        let Some(cost) = front.map(Item::cost) else {
            return due;
        };
        let ready = self.with_limits(at, |limits, plan, id, kept| {
            if !kept.waits || kept.reserved.is_some() || instant(kept.until) > now {
                return due;
            }
            kept.reserved = Some(cost);
            let maximums = limits.maximums(&mut kept.places);
            let ready = maximums.map(|(meter, place)| {
                let after = meter.take(&plan.buckets, id, place, cost, now);
                after.saturating_sub(meter.span(cost))
            });
            ready.fold(due, u64::max)
        });
        ready.flatten().unwrap_or(due)
    }

    /// Calls `f` for the limits of the leaf at index `idx` and of the nodes above it.
    fn each_limit(
        &mut self,
        mut idx: u32,
        mut f: impl FnMut(&CompiledLimits, &LimitPlan, u64, &mut NodeLimit),
    ) {
        while self.with_limits(idx, &mut f).is_some() {
            idx = self.parent(idx);
        }
    }

    /// Returns true if the leaf at index `idx` or a node above it is parked.
    fn is_parked(&self, mut idx: u32) -> bool {
        while let Some(node) = self.table.at(idx) {
            if node.entity.place == TimelineState::Parked {
                return true;
            }
            idx = node.parent;
        }
        false
    }

    /// Returns true if an entity may have a minimum, or may be in a heap of minimums.
    #[inline]
    fn has_minimums(&self) -> bool {
        let plan = self.update.limits.as_ref();
        plan.is_none_or(|plan| plan.has_minimums)
    }
}

impl<I: Item> State<I> {
    /// Returns the leaf to dispatch from; without an eligible leaf, returns the time until which to
    /// wait, ns, as the error.
    #[inline(never)]
    pub(super) fn pick_within_limits(&mut self, view: &PartView<'_>) -> Result<u32, u64> {
        let again = view.now.saturating_add(PAUSE);
        let (now, nodes) = (instant(view.now), &mut self.members);
        let tree = self.selector.tree.as_mut().ok_or(again)?;
        tree.release(nodes, now, view.force);
        for _ in 0..LOOKS {
            let picked = match self.slice.holder() {
                Some(idx) => Some(idx),
                None if nodes.has_minimums() => tree.pick_with_minimums(nodes, now),
                None => tree.pick(nodes),
            };
            let Some(idx) = picked else {
                break;
            };
            let at_maximum = nodes.at_maximum(idx, now).filter(|_| !view.force);
            let Some((node, due)) = at_maximum else {
                return Ok(idx);
            };
            if let Some(stats) = nodes.stats_mut(idx) {
                stats.throttled(nanoseconds(due.saturating_sub(now)));
            }
            self.slice.check(idx, false);
            let due = nodes.reserve(idx, node, due, now);
            tree.park(nodes, node, due);
        }
        Err(tree.throttled_for().unwrap_or(again))
    }

    /// Adds the leaf at index `idx`, which has its first request, to the heaps of minimums.
    #[cold]
    pub(super) fn join_floors(&mut self, idx: u32, now: u64) {
        if !self.members.has_minimums() {
            return;
        }
        if let Some(tree) = &mut self.selector.tree {
            tree.join_floors(&mut self.members, idx, instant(now));
        }
    }

    /// Charges `item`, which the leaf at index `idx` dispatches, `charge` units and the tokens; the
    /// next request costs `next`. Returns the time for which the limits throttled the request, ms.
    #[inline(never)]
    pub(super) fn serve_within_limits(
        &mut self,
        idx: u32,
        item: &I,
        charge: u32,
        next: Option<u32>,
        view: &PartView<'_>,
    ) -> u32 {
        let nodes = &mut self.members;
        self.selector.charge::<true>(nodes, idx, charge, next);
        if view.force {
            self.force_tokens(idx, item.cost(), view.now);
            return 0;
        }
        self.take_tokens(idx, item.cost(), view.now, item.arrival())
    }

    /// Takes the tokens of a request of `cost` from all buckets of the leaf at index `idx`. Returns
    /// the time for which a request that arrived at `arrival` was throttled, ms.
    fn take_tokens(&mut self, idx: u32, cost: Cost, now: u64, arrival: u64) -> u32 {
        let mut until = 0;
        let (time, now) = (now, instant(now));
        let mut at = idx;
        while let Some(taken) = self.members.with_limits(at, |limits, plan, id, kept| {
            kept.waits = false;
            if let Some(cost) = kept.reserved.take() {
                for meter in limits.max.iter().flatten() {
                    meter.refund(&plan.buckets, id, cost, now);
                }
            }
            for (meter, place) in limits.maximums(&mut kept.places) {
                meter.take(&plan.buckets, id, place, cost, now);
            }
            until = kept.until.max(until);
            if !plan.has_minimums {
                return None;
            }
            let minimums = limits.min.iter().flatten();
            let taken =
                minimums.map(|meter| meter.take(&plan.buckets, id, &mut { NONE }, cost, now));
            taken.min().filter(|_| kept.is_in_floors)
        }) {
            let ready = taken.flatten();
            if let Some((tree, ready)) = self.selector.tree.as_mut().zip(ready) {
                tree.set_floor(&mut self.members, at, Some(ready));
            }
            at = self.members.parent(at);
        }
        withheld(arrival, until.min(time))
    }

    /// Takes the tokens of a request of `cost` that is dispatched without queueing, if its entities
    /// are below their maximums and no earlier request is queued. Returns true if they are.
    pub(super) fn pass_within_limits(&mut self, idx: u32, cost: Cost, now: u64) -> bool {
        let is_first = self.members.arrival(idx).is_none() && !self.members.is_parked(idx);
        let is_eligible = is_first && self.members.at_maximum(idx, instant(now)).is_none();
        if is_eligible {
            self.take_tokens(idx, cost, now, now);
        }
        is_eligible
    }

    /// Takes the tokens of a request that is dispatched without regard to limits; the debt is at
    /// most 10 s.
    #[cold]
    pub(super) fn force_tokens(&mut self, idx: u32, cost: Cost, now: u64) {
        self.members.each_limit(idx, |limits, plan, id, _| {
            for meter in limits.meters() {
                meter.force(&plan.buckets, id, cost, DEBT_MAX, instant(now));
            }
        });
    }

    /// Returns the tokens of a request that ended unprocessed; its entities may dispatch again.
    pub(super) fn refund_tokens(&mut self, mut idx: u32, cost: Cost, now: u64) {
        self.members.each_limit(idx, |limits, plan, id, _| {
            for meter in limits.meters() {
                meter.refund(&plan.buckets, id, cost, instant(now));
            }
        });
        while self.members.entity(idx).is_some() {
            self.apply_limits(idx, now);
            idx = self.members.parent(idx);
        }
    }

    /// Ends the parking of the leaf at index `idx`, which has lost its last request.
    #[cold]
    pub(super) fn drop_empty(&mut self, idx: u32) {
        if let Some(tree) = &mut self.selector.tree {
            tree.drop_empty(&mut self.members, idx);
        }
    }

    /// Returns true if nodes are parked.
    pub(super) fn has_parked(&self) -> bool {
        let tree = self.selector.tree.as_ref();
        tree.is_some_and(|tree| tree.throttle.first().is_some())
    }

    /// Applies changed limits to the node at index `idx`.
    pub(super) fn apply_limits(&mut self, idx: u32, now: u64) {
        let place = self.members.entity(idx).map(|entity| entity.place);
        let Some(tree) = &mut self.selector.tree else {
            return;
        };
        match place {
            Some(TimelineState::Parked) => tree.unpark(&mut self.members, idx, instant(now)),
            Some(TimelineState::In) => tree.join_floors(&mut self.members, idx, instant(now)),
            Some(TimelineState::Out) | None => {}
        }
    }
}
