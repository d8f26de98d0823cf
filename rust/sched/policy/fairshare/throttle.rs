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
//! Buckets are shared by all partitions and devices. A chosen request takes its tokens from the
//! buckets of its whole path, ahead of time if need be: those are *reserved* at the node until the
//! request, or another one of the node, is dispatched. So each partition gets tokens in turn. The
//! topmost node in debt is parked. One call examines at most [`LOOKS`] leaves; then the caller has
//! to ask again after [`PAUSE`].
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
    bucket::{clock, instant, nanoseconds, scale, DEBT_MAX},
    count::Count,
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
    /// requests or members, and returns their reserved tokens.
    fn drop_empty(&mut self, nodes: &mut Members<impl Item>, mut idx: u32, now: u64) {
        while let Some(node) = nodes.table.at(idx) {
            let (leaf, inner, parent) = (node.leaf(), node.inner(), node.parent);
            let has_requests = leaf.is_some_and(|leaf| !leaf.queue.is_empty());
            if has_requests || inner.is_some_and(|inner| !inner.sched.is_empty()) {
                return;
            }
            self.drop_parked(nodes, idx);
            nodes.with_limits(idx, now, |limits, plan, id, kept| {
                kept.release(limits, plan, id, now);
            });
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
    /// Looks up the limits of the node at index `idx` in a new plan.
    #[cold]
    fn consult(&mut self, idx: u32, now: u64) {
        let (Some(node), Some(plan)) = (self.table.at(idx), &self.update.limits) else {
            return;
        };
        let above = |field| self.key_above(node.parent, field);
        let level = self.mode.level(node.level);
        let index_of = |key: &Key| plan.index_of(key, level?.field(), &above);
        let found = index_of(&node.key);
        // While the text of a cgroup is not known, it has the limits of all cgroups, and is looked
        // up again. The index is of another plan.
        let known = found.or_else(|| index_of(&Key::Default));
        let Some(node) = self.table.at_mut(idx) else {
            return;
        };
        node.limit.idx = known.flatten().unwrap_or(NONE);
        // Without limits, the reserved tokens stay for the next ones.
        if let Some(limits) = plan.compiled(node.limit.idx) {
            node.limit.rescale(limits, now);
        }
        if found.is_some() {
            node.limit.generation = plan.generation;
        }
    }

    /// Calls `f` with the limits of the node at index `idx`, the hash of its path, and what the
    /// node keeps; an inner `None` without limits.
    #[inline]
    fn with_limits<R>(
        &mut self,
        idx: u32,
        now: u64,
        f: impl FnOnce(&CompiledLimits, &LimitPlan, u64, &mut NodeLimit) -> R,
    ) -> Option<Option<R>> {
        let known = self.table.at(idx)?.limit.generation;
        let generation = self.update.limits.as_ref().map(|plan| plan.generation);
        if generation.is_some_and(|generation| generation != known) {
            self.consult(idx, now);
        }
        let node = self.table.at_mut(idx)?;
        let Some(plan) = &self.update.limits else {
            return Some(None);
        };
        let compiled = plan.compiled(node.limit.idx);
        Some(compiled.map(|compiled| f(compiled, plan, node.id.0, &mut node.limit)))
    }

    /// Returns the instant from which the minimum of the node at index `idx` is out of debt; an
    /// inner `None` without a minimum.
    fn minimum_ready(&mut self, idx: u32, now: u64) -> Option<Option<u64>> {
        let ready = self.with_limits(idx, now, |limits, plan, id, _| {
            let meters = limits.min.iter().flatten();
            let ready = meters.map(|meter| meter.ready(plan, id, &mut { NONE }, now));
            ready.min()
        })?;
        Some(ready.flatten())
    }

    /// Returns true if the leaf at index `idx`, or a node above it, is at its maximum at `now`, and
    /// still will be at `later`, both instants.
    pub(super) fn is_at_maximum(&mut self, mut idx: u32, now: u64, later: u64) -> bool {
        if !self.is_limited {
            return false;
        }
        while let Some(ready) = self.with_limits(idx, now, |limits, plan, id, kept| {
            let maximums = limits.maximums(&mut kept.places);
            let ready = maximums.map(|(meter, place)| meter.ready(plan, id, place, now));
            ready.max().unwrap_or(0).max(instant(kept.until))
        }) {
            if ready.is_some_and(|ready| ready > later) {
                return true;
            }
            idx = self.parent(idx);
        }
        false
    }

    /// Takes the tokens of the next request of the leaf at index `idx`, which costs `cost`, from
    /// the buckets of all maximums of its path, except where they are reserved. If the request may
    /// not be dispatched at `now`, they are reserved, up to the first node at a maximum, and the
    /// error is that node, or a node above it with tokens reserved for later, and the instant from
    /// which that node may dispatch.
    fn claim(&mut self, idx: u32, cost: Cost, now: u64) -> Result<Claim, (u32, u64)> {
        let is_flat = self.are_flat();
        let mut claim = Claim {
            until: 0,
            is_reserved: !is_flat,
        };
        let (mut at, mut wait, mut is_full) = (idx, None, false);
        while let Some(ready) = self.with_limits(at, now, |limits, plan, id, kept| {
            if kept.reserved.is_some() {
                claim.is_reserved = true;
                claim.until = claim.until.max(kept.until);
                return instant(kept.until);
            }
            if wait.is_some() {
                return 0;
            }
            let ready = kept.take(limits, plan, id, (cost, now), &mut is_full);
            if ready > now {
                kept.until = clock(ready);
                kept.reserved = Some(cost);
            } else {
                kept.reserved = (!is_flat).then_some(cost);
                kept.until = kept.until.min(clock(now));
            }
            claim.until = claim.until.max(kept.until);
            ready
        }) {
            if let Some(ready) = ready.filter(|ready| *ready > now) {
                wait = Some((at, ready));
            }
            at = self.parent(at);
        }
        let full = u64::from(is_full);
        self.counts.limits_full.count(full);
        wait.map_or(Ok(claim), Err)
    }

    /// Uses the reserved tokens of `claim` for a request of the leaf at index `idx`, which costs
    /// `cost`; tokens that are reserved for another request are exchanged.
    fn use_reserved(&mut self, claim: &Claim, idx: u32, cost: Cost, now: u64) {
        if !claim.is_reserved {
            return;
        }
        self.each_limit(idx, now, |limits, plan, id, kept| {
            if kept.reserved != Some(cost) {
                kept.release(limits, plan, id, now);
                kept.take(limits, plan, id, (cost, now), &mut false);
            }
            kept.reserved = None;
        });
    }

    /// Calls `f` for the limits of the leaf at index `idx` and of the nodes above it.
    fn each_limit(
        &mut self,
        mut idx: u32,
        now: u64,
        mut f: impl FnMut(&CompiledLimits, &LimitPlan, u64, &mut NodeLimit),
    ) {
        while self.with_limits(idx, now, &mut f).is_some() {
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

/// Tokens taken for a request that may be dispatched.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// Time until which the path of the request was throttled last, ns.
    until: u64,
    /// True if nodes of the path may have reserved the tokens.
    is_reserved: bool,
}

impl Claim {
    /// Claim of a request that is dispatched without regard to limits.
    pub(super) const NONE: Self = Self {
        until: 0,
        is_reserved: false,
    };
}

impl NodeLimit {
    /// Takes the tokens of a request of `cost` from the buckets of the maximums of the node `id`.
    /// Returns the instant from which they exist; sets `is_full` if a bucket has no place.
    #[inline]
    fn take(
        &mut self,
        limits: &CompiledLimits,
        plan: &LimitPlan,
        id: u64,
        (cost, now): (Cost, u64),
        is_full: &mut bool,
    ) -> u64 {
        let mut ready = 0;
        self.taken = 0;
        for (meter, place) in limits.maximums(&mut self.places) {
            let Some(at) = meter.take(plan, id, place, cost, now) else {
                *is_full = true;
                continue;
            };
            self.taken |= meter.bit();
            if at > ready {
                (self.unit, self.last) = (meter.unit, meter.bit());
                ready = at;
            }
        }
        ready
    }

    /// Applies a change of the limits: reserved tokens exist earlier or later, as the levels of the
    /// buckets move. Without the bucket that determined the time, the request takes tokens again.
    fn rescale(&mut self, limits: &CompiledLimits, now: u64) {
        match limits.maximum(self.last) {
            Some(meter) => {
                let ahead = instant(self.until).saturating_sub(now);
                if ahead > 0 {
                    let ahead = scale(ahead, self.unit, meter.unit);
                    self.until = clock(now.saturating_add(ahead));
                }
                self.unit = meter.unit;
            }
            None => {
                self.reserved = None;
                self.until = self.until.min(clock(now));
            }
        }
    }

    /// Returns the reserved tokens to the buckets of the maximums of the node `id`.
    #[cold]
    fn release(&mut self, limits: &CompiledLimits, plan: &LimitPlan, id: u64, now: u64) {
        if let Some(cost) = self.reserved.take() {
            let meters = limits.max.iter().flatten();
            for meter in meters.filter(|meter| self.taken & meter.bit() != 0) {
                meter.refund(plan, id, cost, now);
            }
            self.until = self.until.min(clock(now));
        }
    }
}

impl<I: Item> State<I> {
    /// Returns the leaf to dispatch from, whose next request gets the tokens of `claim`; without an
    /// eligible leaf, returns the time until which to wait, ns, as the error.
    #[inline(never)]
    pub(super) fn pick_within_limits(&mut self, view: &PartView<'_>) -> Result<u32, u64> {
        let again = view.now.saturating_add(PAUSE);
        let (now, nodes) = (instant(view.now), &mut self.members);
        let tree = self.selector.tree.as_mut().ok_or(again)?;
        if view.force || tree.throttle.first().is_some_and(|(_, due)| due <= now) {
            tree.release(nodes, now, view.force);
        }
        for _ in 0..LOOKS {
            let picked = match self.slice.holder() {
                Some(idx) => Some(idx),
                None if nodes.has_minimums() => tree.pick_with_minimums(nodes, now),
                None => tree.pick(nodes),
            };
            let Some(idx) = picked else {
                break;
            };
            let front = nodes.leaf(idx).and_then(|leaf| leaf.queue.front());
            let Some(cost) = front.filter(|_| !view.force).map(Item::cost) else {
                return Ok(idx);
            };
            let (node, due) = match nodes.claim(idx, cost, now) {
                Ok(claim) => {
                    self.claim = claim;
                    return Ok(idx);
                }
                Err(wait) => wait,
            };
            if let Some(stats) = nodes.stats_mut(idx) {
                stats.throttled(nanoseconds(due.saturating_sub(now)));
            }
            self.slice.check(idx, false);
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
            self.force_tokens(idx, item.cost(), view.now, true);
            return 0;
        }
        self.spend(self.claim, idx, item.cost(), view.now);
        withheld(item.arrival(), self.claim.until.min(view.now))
    }

    /// Uses the tokens of `claim` for a request of `cost` of the leaf at index `idx`, and takes
    /// those of its minimums.
    #[inline]
    fn spend(&mut self, claim: Claim, idx: u32, cost: Cost, now: u64) {
        self.members.use_reserved(&claim, idx, cost, instant(now));
        if self.members.has_minimums() {
            self.take_minimums(idx, cost, now);
        }
    }

    /// Takes the tokens of a request of `cost` from the buckets of all minimums of the leaf at
    /// index `idx`.
    fn take_minimums(&mut self, idx: u32, cost: Cost, now: u64) {
        let now = instant(now);
        let mut at = idx;
        while let Some(taken) = self.members.with_limits(at, now, |limits, plan, id, kept| {
            let minimums = limits.min.iter().flatten();
            let taken = minimums.map(|meter| meter.take_minimum(plan, id, cost, now));
            taken.min().filter(|_| kept.is_in_floors)
        }) {
            let ready = taken.flatten();
            if let Some((tree, ready)) = self.selector.tree.as_mut().zip(ready) {
                tree.set_floor(&mut self.members, at, Some(ready));
            }
            at = self.members.parent(at);
        }
    }

    /// Takes the tokens of a request of `cost` that is dispatched without queueing, if its entities
    /// are below their maximums and no earlier request is queued. Returns true if they are.
    pub(super) fn pass_within_limits(&mut self, idx: u32, cost: Cost, now: u64) -> bool {
        let is_first = self.members.arrival(idx).is_none() && !self.members.is_parked(idx);
        let claim = is_first.then(|| self.members.claim(idx, cost, instant(now)));
        let Some(Ok(claim)) = claim else {
            return false;
        };
        self.spend(claim, idx, cost, now);
        true
    }

    /// Takes the tokens of a request that is dispatched without regard to limits; the debt is at
    /// most 10 s. A queued request has the reserved tokens.
    #[cold]
    pub(super) fn force_tokens(&mut self, idx: u32, cost: Cost, now: u64, is_queued: bool) {
        self.members
            .each_limit(idx, instant(now), |limits, plan, id, kept| {
                if is_queued {
                    kept.release(limits, plan, id, instant(now));
                }
                for meter in limits.meters() {
                    meter.force(plan, id, cost, DEBT_MAX, instant(now));
                }
            });
    }

    /// Returns the tokens of a request that ended unprocessed; its entities may dispatch again.
    pub(super) fn refund_tokens(&mut self, mut idx: u32, cost: Cost, now: u64) {
        self.members
            .each_limit(idx, instant(now), |limits, plan, id, kept| {
                for meter in limits.meters() {
                    meter.refund(plan, id, cost, instant(now));
                }
                // The next request takes the place of the one that ended.
                let last = limits.maximum(kept.last);
                let span = last.map_or(0, |meter| meter.span(plan, cost));
                kept.until = kept.until.saturating_sub(nanoseconds(span));
            });
        while self.members.entity(idx).is_some() {
            self.apply_limits(idx, now);
            idx = self.members.parent(idx);
        }
    }

    /// Ends the parking of the leaf at index `idx`, which has lost its last request.
    #[cold]
    pub(super) fn drop_empty(&mut self, idx: u32, now: u64) {
        if let Some(tree) = &mut self.selector.tree {
            tree.drop_empty(&mut self.members, idx, instant(now));
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
