// SPDX-License-Identifier: GPL-2.0-only

//! Fair share policy: divides the service among the entities with queued requests by weight.
//!
//! - Mode: levels of the tree, for example groups, then the users of each group ([`mode::Mode`]).
//! - Node: value of a level below a node of the previous level. *Leaves*, the nodes of the last
//!   level, hold the requests ([`node::TreeNode`]). A leaf is also a class.
//! - Entity: weight and tag of a node, which compete with the entities of its siblings
//!   ([`entity::Entity`]).
//! - Selector: chooses the leaf that is dispatched next ([`select::Selector`]).
//! - Opportunity: request dispatched without a decision at low load. The request is counted but not
//!   charged.
//! - Forced request: request dispatched without queueing while other requests are queued. The
//!   charge lowers the lag of the entity to no less than minus [`entity::DEBT_MAX`].
//! - Hold: a slot stays free for the next request of an entity that sends one at a time ([`hold`]).
//!
//! ```text
//!             enqueue                 get                        stop
//!  (request) ─────────► queue of its ─────► in flight ──────────────────► (completed)
//!      │                    leaf                ▲     the measured time corrects
//!      └───────────────── pass ─────────────────┘     the charge (cost model time)
//! ```
//!
//! Only nodes with queued requests compete. A leaf dispatches requests in the order of arrival, or
//! with locality in the order of offset within bounded batches ([`locality`]).

use crate::sched::{
    agent::{Account, Report},
    attr::Attrs,
    class::{ClassId, ClassNeed, DEFAULT},
    count::Count,
    item::{Cost, Item},
    key::Key,
    mem::{self, Grow, Need as _, NoMemory},
    policy::{
        classes::{each, fill},
        BypassOutcome, BypassReason, Decision, FreeSlots, Grant, Hold, Part, PartView, ReportBuf,
        ROWS,
    },
    ranges::{NodeReport, NodeReports},
    rng::Rng,
    statistics::Stats as _,
    units::NSEC_PER_USEC,
};

mod config;
pub(crate) mod control;
pub(crate) mod deadline;
pub(crate) mod device_time;
pub(crate) mod entity;
pub mod entity_stats;
pub mod entity_table;
pub mod factors;
pub(crate) mod hold;
pub mod job_size;
pub mod limits;
pub mod locality;
pub(crate) mod members;
pub mod mode;
pub(crate) mod node;
pub mod params;
pub(crate) mod select;
pub mod stats;
mod throttle;
pub(crate) mod timeline;
pub mod totals;
pub(crate) mod tree;

use deadline::RequestStep;
use entity_stats::{EntityStats, ServiceWindows};
use factors::ONE;
use hold::Holds;
use locality::LocalitySlice;
use members::{Members, NodeStats};
use node::{Leaf, PathId, TreeNode};
use params::CostModel;
use select::Selector;
use stats::NodeRow;
use throttle::Claim;

pub use crate::sched::policy::Nothing as Overseer;
pub use config::{Config, Shared, Update};
pub use control::PolicyData;
pub use params::{Tunables, PARAMETERS};
pub use stats::Counts;

/// Buffer of [`State::rows`].
pub type NodeRowBuf = mem::Block<NodeRow, ROWS>;

/// Memory that a part needs.
type Need<I> = (
    ClassNeed<PathId, TreeNode<I>>,
    <NodeStats as Grow>::Need,
    <Selector as Grow>::Need,
);

/// Memory for a part.
type Spare<I> = <Need<I> as mem::Need>::Spare;

/// State of the policy on one head.
///
/// # Invariants
///
/// - `queued` is the number of requests in the queues of all leaves.
/// - A leaf is in the selector if and only if the leaf has queued requests, or competes in the
///   place of an expected one ([`hold`]).
/// - The selector has memory for every index of the table.
pub struct State<I: Item> {
    members: Members<I>,
    selector: Selector,
    /// Leaf dispatched in a row, with locality.
    slice: LocalitySlice,
    /// Tokens of the request that is being dispatched, with limits.
    claim: Claim,
    /// Leaves for whose next requests slots may be kept free.
    holds: Holds,
    opp_threshold: u32,
    queued: u32,
    rng: Rng,
    sweep: u32,
    /// Time of the last call with a time, ns.
    time: u64,
    /// Service to all entities.
    total: ServiceWindows,
    /// See [`Part::terms`].
    terms: u64,
}

impl<I: Item> State<I> {
    /// Creates a part without requests, with a first reserve of memory; may sleep.
    pub fn new(
        config: &Config,
        seed: u64,
        shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let mut rng = Rng::new(seed);
        let mut members = Members::new(config, rng.next_u64(), shared)?;
        let entries = (tunables.classes_max.get() as usize).saturating_add(1);
        let opp_threshold = tunables.opp_threshold.get();
        let mut selector =
            Selector::new(tunables.select, entries, opp_threshold > 0, rng.next_u64())?;
        let entries = members.table.target();
        selector.feed(selector.wants(entries).allocate()?);
        members
            .details
            .feed(members.details.wants(entries).allocate()?);
        members.details.create(DEFAULT);
        selector.create(&mut members, DEFAULT);
        Ok(Self {
            members,
            selector,
            slice: LocalitySlice::new(config.slice_pages()),
            claim: Claim::NONE,
            holds: Holds::new(tunables, shared.parts)?,
            opp_threshold,
            queued: 0,
            rng,
            sweep: 0,
            time: 0,
            total: ServiceWindows::default(),
            terms: config.terms(&shared.hasher),
        })
    }

    /// Returns the service to all entities in the last second and minute.
    pub const fn total(&self) -> ServiceWindows {
        self.total
    }

    /// Copies the statistics of the nodes from index `from` on into `out` until `out` is full.
    /// Returns the index to continue from, or `None` at the end.
    pub fn rows(&self, from: u32, out: &mut NodeRowBuf) -> Option<u32> {
        let entries = self.members.table.entry_count();
        fill(out, entries, from, |idx| self.row(idx))
    }

    /// Returns the node at index `idx` if the node is reported to the agent. The default class and
    /// shared leaves are not, because their members differ between servers.
    fn reported_node(&self, idx: u32) -> Option<&TreeNode<I>> {
        let node = self.members.table.at(idx)?;
        (node.key != Key::Default).then_some(node)
    }

    /// Returns the account of `node`, at index `idx`, for the agent. Service and activity of a
    /// group are those of the shared leaf below the group.
    fn account(&self, idx: u32, node: &TreeNode<I>) -> Account {
        let is_leaf = node.leaf().is_some();
        let served = match is_leaf {
            true => Some(idx),
            false => self.members.find_shared(node.id),
        };
        let leaf = served.and_then(|idx| self.members.leaf(idx));
        let stats = served.and_then(|idx| self.members.stats(idx));
        Account {
            id: node.id.0,
            parent: self.parent_id(node),
            weight: self.members.weight_everywhere(node, self.time),
            leaf: is_leaf,
            service: stats.map_or(0, EntityStats::service),
            active: leaf.is_some_and(Leaf::is_active),
            waiting: leaf.is_some_and(|leaf| !leaf.queue.is_empty()),
        }
    }

    /// Samples the lag and the service of the leaf at index `idx`.
    fn sample(&mut self, idx: u32, now: u64) {
        let lag = self.selector.lag(&self.members, idx);
        let Some(is_active) = self.members.leaf(idx).map(Leaf::is_active) else {
            return;
        };
        if let Some(stats) = self.members.stats_mut(idx) {
            if is_active {
                stats.debt(lag);
            }
            let since = stats.sample(now);
            self.total.add(since, now);
        }
    }

    /// Returns the node at index `idx`; `None` for a default class that is idle and never
    /// dispatched.
    fn shown(&self, idx: u32) -> Option<&TreeNode<I>> {
        let node = self.members.table.at(idx)?;
        let quiet = |node: &TreeNode<I>| {
            let served = self.members.stats(idx).map(|stats| stats.counts.dispatched);
            served == Some(0) && node.leaf().is_some_and(|leaf| !leaf.is_active())
        };
        (idx != DEFAULT || !quiet(node)).then_some(node)
    }

    fn parent_id(&self, node: &TreeNode<I>) -> u64 {
        let parent = self.members.table.at(node.parent);
        parent.map_or(PathId::ROOT.0, |parent| parent.id.0)
    }

    /// Returns the statistics of the node at index `idx`.
    fn row(&self, idx: u32) -> Option<NodeRow> {
        let node = self.shown(idx)?;
        let level = self.members.mode.level(node.level);
        let level = match level {
            Some(level) if idx != DEFAULT => level.name(),
            _ => "default",
        };
        let (id, parent, weight) = (node.id.0, self.parent_id(node), node.entity.weight());
        let lag_decipages = self.selector.lag(&self.members, idx);
        let size = self.members.job_size(idx, self.time);
        let factor = match idx {
            DEFAULT => ONE,
            _ => self.members.factor_of(node.id),
        };
        Some(match node.leaf() {
            Some(leaf) => NodeRow {
                active: leaf.is_active(),
                size,
                factor,
                stats: *self.members.stats(idx)?,
                lag_decipages,
                queue_depth: leaf.queue.len(),
                requests: leaf.active,
                ..NodeRow::new(id, parent, level, node.key, weight)
            },
            None => NodeRow {
                size,
                factor,
                lag_decipages,
                ..NodeRow::inner(id, parent, level, node.key, weight)
            },
        })
    }

    /// Charges the leaf at index `idx` for the growth of one of its requests. The cost model
    /// `time` charges nothing here, because the measured time of the request is charged at its end.
    #[cold]
    fn merge(&mut self, idx: u32, cost: Cost) {
        let charge = match self.members.cost_model {
            CostModel::Pages => cost.pages,
            CostModel::Rpcs | CostModel::Time => 0,
        };
        if let Some(stats) = self.members.stats_mut(idx) {
            stats.count_passed(0, cost.pages.into(), charge.into());
        }
        if charge > 0 {
            self.owe(idx, charge);
        }
    }

    /// Charges the leaf at index `idx` for a request dispatched without queueing.
    #[cold]
    fn owe(&mut self, idx: u32, charge: u32) {
        if self.holds.is_expecting() {
            self.end_hold(idx, self.time);
        }
        let Some((leaf, charge_model)) = self.members.open(idx) else {
            bug!();
            return;
        };
        let next = charge_model.next(leaf);
        let step = RequestStep::Owe(charge);
        self.selector.step(&mut self.members, idx, step, next);
    }

    /// Dispatches a request of another leaf than the one at index `idx`, which was chosen and has
    /// none, because its next one is expected.
    #[cold]
    #[inline(never)]
    fn get_another(&mut self, idx: u32, view: &PartView<'_>) -> Decision<(I, Grant)> {
        // At most once for each expected leaf, which leaves the selector.
        match self.choose_expected(idx, view.now) {
            true => self.get(view),
            false => {
                bug!();
                Decision::Empty
            }
        }
    }

    /// Corrects the charge of a request by the time that the request took.
    fn correct(&mut self, idx: u32, grant: &Grant, cost: Cost, now: u64) {
        let elapsed = self.members.busy.end(grant.stamp, now);
        let part = &mut self.members.estimates;
        part.record(cost.direction, cost.pages, elapsed);
        let own = self.members.details.estimates.as_mut();
        if let Some(own) = own.and_then(|own| own.get_mut(idx)) {
            own.record(cost.direction, cost.pages, elapsed);
        }
        let leaf = self.members.table.at_mut(idx).and_then(TreeNode::leaf_mut);
        let stats = self.members.details.stats.get_mut(idx);
        let (Some(leaf), Some(stats)) = (leaf, stats) else {
            return;
        };
        stats.time(elapsed / NSEC_PER_USEC);
        if grant.charged == 0 {
            return;
        }
        let delta = device_time::correction(grant.charged, elapsed, &mut leaf.rest);
        stats.correct(delta);
        let step = RequestStep::Correct(delta);
        self.selector.step(&mut self.members, idx, step, None);
    }
}

impl<I: Item> Part<I> for State<I> {
    type Need = Need<I>;
    type Spare = Spare<I>;
    type Shared = Shared;
    type Update = Update;

    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
        self.members.classify(attrs, &mut self.selector, now)
    }

    fn record_interval(&self) -> Option<u64> {
        self.members.record_interval()
    }

    fn record_attrs(&mut self, class: ClassId, attrs: &Attrs, now: u64) {
        self.members
            .note_job_size(class.idx(), attrs, &mut self.selector, now);
    }

    fn is_live(&self, class: ClassId) -> bool {
        self.members.table.is_permanent(class)
    }

    /// Appends a request, without ever declining; the request of a stale class goes to the default
    /// class.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I> {
        self.time = now;
        let locality = self.members.locality;
        let idx = self.members.table.resolve(class);
        let Some((leaf, charge_model)) = self.members.open(idx) else {
            bug!();
            return Err(item);
        };
        let first = leaf.queue.is_empty();
        let idle = !leaf.is_active();
        let charge = charge_model.of(item.cost());
        leaf.queue.push(item, locality);
        self.queued.count(1);
        if idle {
            self.members.table.busy(idx);
        }
        let may_be_expected = idle || (first && self.holds.expects(idx));
        let has_pauses = self.members.details.pauses.is_some();
        if may_be_expected && has_pauses && self.expected_arrived(idx, charge, now) {
            return Ok(());
        }
        if first {
            self.selector.join(&mut self.members, idx, charge);
            if self.members.is_limited {
                self.join_floors(idx, now);
            }
        }
        Ok(())
    }

    /// Removes a request. The leaf continues with its remaining requests, or leaves the selector
    /// with its lag unchanged.
    fn dequeue(&mut self, class: ClassId, handle: &I::Handle, now: u64) -> Option<I> {
        self.time = now;
        let locality = self.members.locality;
        let idx = self.members.table.resolve(class);
        let arrival = self.members.arrival(idx);
        let (leaf, charge_model) = self.members.open(idx)?;
        let before = charge_model.next(leaf);
        let item = leaf.queue.remove(handle, locality)?;
        let next = charge_model.next(leaf);
        let idle = !leaf.is_active();
        self.queued = self.queued.saturating_sub(1);
        self.slice.check(idx, next.is_some());
        // A front with the same cost and arrival leaves the position of the leaf unchanged.
        if next != before || self.members.arrival(idx) != arrival {
            self.selector
                .step(&mut self.members, idx, RequestStep::Skip, next);
        }
        if self.members.is_limited && next.is_none() {
            self.drop_empty(idx, now);
        }
        if idle {
            self.members.table.idle(idx, now);
        }
        Some(item)
    }

    fn get(&mut self, view: &PartView<'_>) -> Decision<(I, Grant)> {
        if self.queued == 0 {
            return Decision::Empty;
        }
        self.time = view.now;
        let is_limited = self.members.is_limited;
        let opportunity = !view.force && !is_limited && self.queued < self.opp_threshold;
        let idx = if is_limited {
            match self.pick_within_limits(view) {
                Ok(idx) => Some(idx),
                Err(until) => return Decision::Throttled { until },
            }
        } else if opportunity {
            self.selector.oldest()
        } else {
            let kept = self.slice.holder();
            kept.or_else(|| {
                let nodes = &mut self.members;
                self.selector.pick(nodes, &mut self.rng, view.table)
            })
        };
        let Some(idx) = idx else {
            bug!();
            return Decision::Empty;
        };
        let locality = self.members.locality;
        let Some((id, leaf, charge_model)) = self.members.open_named(idx) else {
            bug!();
            return Decision::Empty;
        };
        let Some(item) = leaf.queue.pop(locality) else {
            return self.get_another(idx, view);
        };
        self.holds.note_dispatch(view.now);
        let cost = item.cost();
        let charge = charge_model.of(cost);
        let next = charge_model.next(leaf);
        leaf.active.count(1);
        let is_only = leaf.active == 1 && next.is_none();
        if let Some(stats) = self.members.stats_mut(idx) {
            stats.count(cost.pages, charge, opportunity);
            stats.waited(view.now.saturating_sub(item.arrival()));
        }
        self.queued = self.queued.saturating_sub(1);
        let mut withheld = 0;
        if opportunity {
            self.slice.check(idx, next.is_some());
            self.selector
                .step(&mut self.members, idx, RequestStep::Skip, next);
        } else {
            self.slice.serve(idx, cost.pages, next.is_some());
            if is_limited {
                withheld = self.serve_within_limits(idx, &item, charge, next, view);
                if withheld > 0 && self.holds.has_aim() {
                    self.members.details.forget_arrival(idx);
                }
            } else {
                let nodes = &mut self.members;
                self.selector.charge::<false>(nodes, idx, charge, next);
            }
            if is_only && self.holds.has_several(view.now) && !view.force {
                self.expect_after_dispatch(idx, charge, view.now);
            }
        }
        let stamp = match self.members.cost_model {
            CostModel::Time => self.members.busy.start(view.now),
            CostModel::Pages | CostModel::Rpcs => 0,
        };
        let grant = Grant {
            charged: if opportunity { 0 } else { charge },
            stamp,
            ..Grant::of(id).after(withheld)
        };
        Decision::Item((item, grant))
    }

    /// Counts a request that is not queued. A forced request is charged like a dispatched one if
    /// requests are queued at any partition of the target.
    fn pass(
        &mut self,
        class: ClassId,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        let owes = way == BypassReason::Forced { contended: true };
        let is_limited = self.members.is_limited;
        let Some((_, charge_model)) = self.members.pass(class) else {
            return BypassOutcome::Stale;
        };
        let charge = charge_model.of(cost);
        self.members.details.forget_end(class.idx());
        if is_limited {
            let now = now();
            if way != BypassReason::Opportunity {
                // The growth of a request is no further request.
                let is_piece = cost.is_piece || way == BypassReason::Merged;
                self.force_tokens(class.idx(), Cost { is_piece, ..cost }, now, false);
            } else if !self.pass_within_limits(class.idx(), cost, now) {
                return BypassOutcome::Refused;
            }
        }
        if way == BypassReason::Merged {
            self.merge(class.idx(), cost);
            return BypassOutcome::Counted;
        }
        if let Some(stats) = self.members.stats_mut(class.idx()) {
            stats.count(cost.pages, charge, !owes);
            if owes {
                stats.forced();
            }
        }
        if owes {
            self.owe(class.idx(), charge);
        }
        BypassOutcome::Counted
    }

    /// Returns false for the cost model `time`, whose charge depends on each request, and with
    /// limits.
    fn passes_freely(&self) -> bool {
        self.members.cost_model != CostModel::Time && !self.members.is_limited
    }

    fn throttled(&self, now: u64) -> Option<u64> {
        let tree = self.selector.tree.as_ref().filter(|_| self.queued > 0)?;
        tree.throttled_for().filter(|until| *until > now)
    }

    fn refund(&mut self, class: ClassId, cost: Cost, now: u64) {
        if self.members.table.is_live(class) {
            self.refund_tokens(class.idx(), cost, now);
        }
    }

    fn count_passed(&mut self, class: ClassId, requests: u32, pages: u64) {
        let service = match self.members.cost_model {
            CostModel::Rpcs => requests.into(),
            CostModel::Pages | CostModel::Time => pages,
        };
        if self.members.pass(class).is_none() {
            return;
        }
        self.members.details.forget_end(class.idx());
        if let Some(stats) = self.members.stats_mut(class.idx()) {
            stats.count_passed(requests, pages, service);
        }
    }

    fn stop(&mut self, grant: &Grant, cost: Cost, now: u64) -> bool {
        let idx = grant.class.idx();
        if self.members.cost_model == CostModel::Time && self.members.table.is_live(grant.class) {
            self.correct(idx, grant, cost, now);
        }
        let node = self.members.table.get_mut(grant.class);
        if let Some(leaf) = node.and_then(TreeNode::leaf_mut) {
            leaf.active = leaf.active.saturating_sub(1);
            let is_active = leaf.is_active();
            if !is_active && !self.expect(idx, cost, now) {
                self.members.table.idle(idx, now);
            }
            if is_active && self.holds.has_aim() {
                self.members.details.forget_arrival(idx);
            }
        }
        self.holds.note_end(now, self.queued > 0);
        self.holds.is_watching()
    }

    fn hold(&mut self, slots: &FreeSlots, now: u64) -> Option<Hold> {
        self.keep_free(slots, now)
    }

    fn len(&self) -> u32 {
        self.queued
    }

    fn need(&self) -> Need<I> {
        let entries = self.members.table.target();
        (
            self.members.table.need(),
            self.members.details.wants(entries),
            self.selector.wants(entries),
        )
    }

    fn grow(&mut self, (classes, details, selector): Spare<I>) -> Spare<I> {
        (
            self.members.table.grow(classes),
            self.members.details.feed(details),
            self.selector.feed(selector),
        )
    }

    /// Removes nodes that were idle for 10 s, and keeps the tags of the other nodes near the clock.
    fn age(&mut self, now: u64, max: u32) -> bool {
        self.time = now;
        self.expire_holds(now);
        self.count_holds(now);
        let more = self.members.expire(now, max, &mut self.selector);
        let entries = self.members.table.entry_count();
        for _ in 0..max.min(entries) {
            if self.sweep >= entries {
                self.sweep = 0;
            }
            self.selector.refresh(&mut self.members, self.sweep);
            self.members.upkeep(self.sweep);
            self.sweep = self.sweep.saturating_add(1);
        }
        more
    }

    /// Applies `update`; [`Part::refresh`] applies new weights to the nodes.
    fn update(&mut self, mut update: Update, now: u64) -> Update {
        // Draws have no order in which entities could be left out.
        update.limits = update.limits.filter(|_| self.selector.tree.is_some());
        // The threshold never changes between 0 and another value.
        if self.opp_threshold > 0 {
            self.opp_threshold = update.live.opp_threshold;
        }
        self.holds.set(update.live.hold, now);
        self.members.apply_update(update, now)
    }

    fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
        if from == 0 {
            self.members.follow_factors(now);
        }
        let next = each(self.members.table.entry_count(), from, max, |idx| {
            if idx != DEFAULT {
                self.members.reweigh(idx, &mut self.selector, now);
            }
            if self.members.is_limited {
                self.apply_limits(idx, now);
            }
        });
        if next.is_none() && self.members.update.limits.is_none() {
            // An upkeep that began before the change has not released all nodes.
            self.members.is_limited = self.has_parked();
        }
        next
    }

    fn reset(&mut self, from: u32, max: u32) -> Option<u32> {
        each(self.members.table.entry_count(), from, max, |idx| {
            if let Some(stats) = self.members.stats_mut(idx) {
                stats.reset();
            }
        })
    }

    fn overflow(&self) -> u64 {
        self.members.table.overflow()
    }

    fn add_counts(&self, sums: &mut [u64]) {
        self.counts().add_to(sums);
    }

    /// Returns true if weights depend on job sizes, or if factors have to return towards one.
    fn wants_refresh(&self, now: u64) -> bool {
        self.members.mode.has_size() || self.members.are_factors_stale(now)
    }

    fn wants_table(&self) -> bool {
        self.selector.tree.is_none()
    }

    fn node_reports(&mut self, from: u32, now: u64, out: &mut NodeReports) -> Option<u32> {
        fill(out, self.members.table.entry_count(), from, |idx| {
            self.sample(idx, now);
            let node = self.shown(idx)?;
            Some(NodeReport {
                id: node.id.0,
                parent: self.parent_id(node),
                weight: node.entity.weight(),
                leaf: node.leaf().is_some(),
                active: node.leaf().is_some_and(|leaf| leaf.is_active()),
                part: 0,
            })
        })
    }

    fn reports(&self, from: u32, out: &mut ReportBuf) -> Option<u32> {
        fill(out, self.members.table.entry_count(), from, |idx| {
            let node = self.reported_node(idx)?;
            Some(Report {
                account: self.account(idx, node),
                level: node.level,
                factor: self.members.factor_of(node.id),
            })
        })
    }

    fn name_of(&self, id: u64) -> Option<(&'static str, Key)> {
        let node = self.reported_node(self.members.find(id)?)?;
        let level = self.members.mode.level(node.level)?;
        Some((level.name(), node.key))
    }

    fn terms(&self) -> u64 {
        self.terms
    }
}
