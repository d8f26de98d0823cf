// SPDX-License-Identifier: GPL-2.0-only

//! Nodes of a part's tree, and the interface of selectors to the nodes.

use super::{
    config::{size_level, Config, Shared, Update},
    deadline::NodeScheduler,
    device_time::{DeviceClock, Estimates},
    entity::{Entity, COST_MAX, WEIGHT_ONE},
    entity_stats::EntityStats,
    entity_table::Weights,
    factors::ONE,
    hold::Pauses,
    job_size,
    limits::EntityClass,
    mode::{Level, Mode},
    node::{InnerNode, Leaf, NodeBody, PathId, TreeNode},
    params::{CostModel, Locality, SizeSource},
    select::Selector,
    stats::Counts,
};
use crate::sched::{
    agent::scaled,
    attr::{cgroup::REFRESH, Attrs, CgroupPath},
    class::{ClassId, ClassQuota, ClassRoom, ClassTable, DEFAULT, DEFAULT_ID, KEPT},
    count::Count,
    item::{Cost, Item},
    key::{Field, Key},
    mem::{self, grow, Grow, NoMemory, PerIndex},
    slab::NONE,
};

/// Largest weight as a multiple of one: weight of a table entry times size of a job.
const WEIGHT_LIMIT: u32 = (1 << 19) - 1;

/// Step of a path.
#[derive(Clone, Copy)]
struct PathStep {
    /// Value of the level; [`Key::Default`] leads to the shared leaf.
    key: Key,
    level: u8,
    leaf: bool,
}

/// Charges of requests: pages, 1, or microseconds, up to [`COST_MAX`].
#[derive(Clone, Copy)]
pub struct ChargeModel<'a> {
    model: CostModel,
    /// Estimates of the leaf's requests, if time is measured.
    own: Option<&'a Estimates>,
    /// Estimates of all requests of the part.
    part: &'a Estimates,
}

impl ChargeModel<'_> {
    /// Returns the charge for a request of the leaf that costs `cost`.
    #[inline]
    pub fn of(&self, cost: Cost) -> u32 {
        match self.model {
            CostModel::Pages => cost.pages.clamp(1, COST_MAX),
            CostModel::Rpcs => 1,
            CostModel::Time => {
                let own = self.own.unwrap_or(self.part);
                own.estimate(self.part, cost.direction, cost.pages)
            }
        }
    }

    /// Returns the charge for the next request of `leaf`; `None` without requests.
    #[inline]
    pub fn next<I: Item>(&self, leaf: &Leaf<I>) -> Option<u32> {
        let next = leaf.queue.front()?;
        Some(self.of(next.cost()))
    }
}

/// Data of nodes that decisions do not read, by index. The data is stored outside the tree to keep
/// the data that decisions read close together.
pub struct NodeStats {
    /// Statistics of leaves.
    pub(super) stats: PerIndex<EntityStats>,
    /// Estimates of the time of leaves' requests, if time is measured.
    pub(super) estimates: Option<PerIndex<Estimates>>,
    /// Pauses of leaves, if slots may be kept free.
    pub(super) pauses: Option<PerIndex<Pauses>>,
}

grow!(NodeStats {
    stats: PerIndex<EntityStats>,
    estimates: Option<PerIndex<Estimates>>,
    pauses: Option<PerIndex<Pauses>>,
});

impl NodeStats {
    /// Creates tables for up to `max` nodes; may sleep.
    fn new(config: &Config, max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            stats: PerIndex::new(max)?,
            estimates: match config.tunables.cost_model {
                CostModel::Time => Some(PerIndex::new(max)?),
                CostModel::Pages | CostModel::Rpcs => None,
            },
            pauses: match config.has_holds() {
                true => Some(PerIndex::new(max)?),
                false => None,
            },
        })
    }

    /// Returns the pauses of the leaf at index `idx`, for writing, if slots may be kept free.
    #[inline]
    pub(super) fn pauses_mut(&mut self, idx: u32) -> Option<&mut Pauses> {
        self.pauses.as_mut()?.get_mut(idx)
    }

    /// Forgets when the last request of the leaf at index `idx` ended, because one passed since.
    #[inline]
    pub(super) fn forget_end(&mut self, idx: u32) {
        if let Some(pauses) = self.pauses_mut(idx) {
            pauses.forget_end();
        }
    }

    /// Forgets when the only request of the leaf at index `idx` arrived, because it has others.
    #[inline]
    pub(super) fn forget_arrival(&mut self, idx: u32) {
        if let Some(pauses) = self.pauses_mut(idx) {
            pauses.forget_arrival();
        }
    }

    /// Returns the charges by `model` for requests of the leaf at index `idx`; `part` has the
    /// estimates of the part.
    #[inline]
    fn charge_model<'a>(
        &'a self,
        idx: u32,
        model: CostModel,
        part: &'a Estimates,
    ) -> ChargeModel<'a> {
        let own = match model {
            CostModel::Time => self.estimates.as_ref().and_then(|own| own.get(idx)),
            CostModel::Pages | CostModel::Rpcs => None,
        };
        ChargeModel { model, own, part }
    }
}

/// Nodes of a part.
///
/// # Invariants
///
/// - Every class but the default class is a node. A leaf has as many ancestors as the mode has
///   levels before the last; a shared leaf may have fewer.
/// - A node is busy in the table if and only if it has requests queued or in flight, or children,
///   or its next request is expected ([`super::hold`]).
pub struct Members<I: Item> {
    pub(super) table: ClassTable<PathId, TreeNode<I>>,
    pub(super) shared: mem::Shared<Shared>,
    pub(super) mode: Mode,
    pub(super) cost_model: CostModel,
    pub(super) locality: bool,
    /// Estimates of the time of requests in this part.
    pub(super) estimates: Estimates,
    pub(super) details: NodeStats,
    /// Division of the device time among the requests in flight.
    pub(super) busy: DeviceClock,
    /// Numbers of failures to find room in tables that the parts share.
    pub(super) counts: Counts,
    pub(super) update: Update,
    /// True if there are limits, or nodes that limits have parked.
    pub(super) is_limited: bool,
    /// Number of steps towards one in the factors that [`Members::reweigh`] applies.
    steps: u32,
    size_level: Option<u8>,
    size_source: SizeSource,
}

impl<I: Item> Members<I> {
    /// Creates a table with the default class and a first reserve of memory; may sleep. Not
    /// inlined, to keep a second node off the caller's stack.
    #[inline(never)]
    pub fn new(config: &Config, seed: u64, shared: &mem::Shared<Shared>) -> Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let mode = config.mode();
        let (entity, body) = (Entity::new(WEIGHT_ONE), NodeBody::Leaf(Leaf::new()));
        let default = TreeNode::new(entity, PathId::DEFAULT, NONE, Key::Default, 0, body);
        let max = tunables.classes_max.get();
        Ok(Self {
            table: ClassTable::new(
                max,
                if mode.depth() > 1 { KEPT } else { 0 },
                seed,
                PathId::DEFAULT,
                default,
            )?,
            shared: shared.clone(),
            mode,
            cost_model: tunables.cost_model,
            locality: tunables.locality == Locality::On,
            estimates: Estimates::default(),
            details: NodeStats::new(config, (max as usize).saturating_add(1))?,
            busy: DeviceClock::default(),
            counts: Counts::ZERO,
            update: Update::new(mem::Shared::new(Weights::new())?, tunables),
            is_limited: false,
            steps: 0,
            size_level: size_level(&mode),
            size_source: tunables.size_source,
        })
    }

    /// Returns the leaf at index `idx`, for writing, and its charges.
    #[inline]
    pub fn open(&mut self, idx: u32) -> Option<(&mut Leaf<I>, ChargeModel<'_>)> {
        let charge_model = self
            .details
            .charge_model(idx, self.cost_model, &self.estimates);
        Some((self.table.at_mut(idx)?.leaf_mut()?, charge_model))
    }

    /// Returns the class id of the leaf at index `idx`, the leaf, for writing, and its charges.
    #[inline]
    pub fn open_named(&mut self, idx: u32) -> Option<(ClassId, &mut Leaf<I>, ChargeModel<'_>)> {
        let charge_model = self
            .details
            .charge_model(idx, self.cost_model, &self.estimates);
        let (id, node) = self.table.named_mut(idx)?;
        Some((id, node.leaf_mut()?, charge_model))
    }

    /// Returns the leaf of `class` and its charges, without keeping the class busy; `None` if
    /// `class` is stale.
    #[inline]
    pub fn pass(&mut self, class: ClassId) -> Option<(&mut Leaf<I>, ChargeModel<'_>)> {
        let idx = class.idx();
        let charge_model = self
            .details
            .charge_model(idx, self.cost_model, &self.estimates);
        Some((self.table.use_mut(class)?.leaf_mut()?, charge_model))
    }

    /// Returns the leaf at index `idx`.
    #[inline]
    pub fn leaf(&self, idx: u32) -> Option<&Leaf<I>> {
        self.table.at(idx)?.leaf()
    }

    /// Returns the statistics of the leaf at index `idx`.
    #[inline]
    pub fn stats(&self, idx: u32) -> Option<&EntityStats> {
        self.details.stats.get(idx)
    }

    /// Returns the statistics of the leaf at index `idx`, for writing.
    #[inline]
    pub fn stats_mut(&mut self, idx: u32) -> Option<&mut EntityStats> {
        self.details.stats.get_mut(idx)
    }

    /// Returns the leaf of a request with `attrs`; creates missing nodes of its path from reserved
    /// memory. Without room, returns the shared leaf of the lowest existing node of the path, or
    /// the default class without any node.
    pub fn classify(&mut self, attrs: &Attrs, selector: &mut Selector, now: u64) -> ClassId {
        let mut id = PathId::ROOT;
        for level in self.mode.levels() {
            let key = self.key_of(*level, attrs);
            id = PathId(self.shared.hasher.path(id.0, &key));
        }
        let leaf = self.table.lookup(&id, now);
        leaf.unwrap_or_else(|| self.create_path(attrs, selector, now))
    }

    /// Returns the key of a node at `level`: the nearest cgroup with a weight, else the value of
    /// the attribute.
    #[inline]
    fn key_of(&self, level: Level, attrs: &Attrs) -> Key {
        match Key::of(level.field(), attrs) {
            Key::Cgroup(path) if level == Level::Cgroup => Key::Cgroup(self.named_cgroup(path)),
            key => key,
        }
    }

    /// Returns the nearest cgroup with a weight or limits: `path` itself, or one of its ancestors.
    fn named_cgroup(&self, path: CgroupPath) -> CgroupPath {
        let weights = &self.update.weights;
        match &self.update.limits {
            None => weights.named_cgroup(path),
            Some(plan) => weights.named_cgroup_with(plan.limits(), path),
        }
    }

    /// Creates the missing nodes of the path of `attrs`.
    #[cold]
    fn create_path(&mut self, attrs: &Attrs, selector: &mut Selector, now: u64) -> ClassId {
        let mode = self.mode;
        let mut parent = NONE;
        let mut last = DEFAULT_ID;
        for (level, field) in (0..).zip(mode.levels()) {
            let step = PathStep {
                key: self.key_of(*field, attrs),
                level,
                leaf: usize::from(level).saturating_add(1) == mode.depth(),
            };
            let Some(node) = self.take_step(step, parent, selector, now) else {
                self.table.overflowed();
                return self.shared_leaf(parent, selector, now);
            };
            parent = node.idx();
            last = node;
        }
        last
    }

    /// Returns the shared leaf below the node at index `above`, or without room for that leaf,
    /// below the nodes above it.
    fn shared_leaf(&mut self, mut above: u32, selector: &mut Selector, now: u64) -> ClassId {
        while let Some(node) = self.table.at(above) {
            let (level, next) = (node.level.saturating_add(1), node.parent);
            let step = PathStep {
                key: Key::Default,
                level,
                leaf: true,
            };
            if let Some(leaf) = self.take_step(step, above, selector, now) {
                return leaf;
            }
            above = next;
        }
        DEFAULT_ID
    }

    /// Returns the node that `step` leads to from `parent`; creates a missing node if there is
    /// room.
    fn take_step(
        &mut self,
        step: PathStep,
        parent: u32,
        selector: &mut Selector,
        now: u64,
    ) -> Option<ClassId> {
        let above = self.table.at(parent).map_or(PathId::ROOT, |node| node.id);
        let id = PathId(self.shared.hasher.path(above.0, &step.key));
        let known = self.table.lookup(&id, now);
        known.or_else(|| self.create_node(id, step, parent, selector, now))
    }

    /// Creates the node `id`, which `step` leads to from `parent`.
    #[inline(never)]
    fn create_node(
        &mut self,
        id: PathId,
        step: PathStep,
        parent: u32,
        selector: &mut Selector,
        now: u64,
    ) -> Option<ClassId> {
        let place = match self.table.at(parent) {
            _ if step.key == Key::Default => ClassQuota::Shared,
            Some(parent) => ClassQuota::owned(parent.id.0),
            None if step.leaf => ClassQuota::Free,
            None => ClassQuota::Promised,
        };
        // The child is counted first, so that the parent is not evicted to make room.
        self.add_child(parent);
        let limit = selector.capacity().min(self.details.capacity());
        let room = self.table.room(place, limit, now);
        if let ClassRoom::After(idx) = room {
            self.forget(idx, selector, now);
        }
        let made = match room {
            ClassRoom::No => None,
            _ => self.make(id, step, place, parent, now),
        };
        let Some(made) = made else {
            self.drop_child(parent, selector, now);
            return None;
        };
        if let (Some(counters), Some(node)) = (&self.shared.counters, self.table.at_mut(made.idx()))
        {
            let full = !node.tally.open(counters, id.0);
            self.counts.counters_full.count(full.into());
        }
        self.details.create(made.idx());
        selector.create(self, made.idx());
        Some(made)
    }

    /// Inserts the node `id` into the table.
    fn make(
        &mut self,
        id: PathId,
        step: PathStep,
        place: ClassQuota,
        parent: u32,
        now: u64,
    ) -> Option<ClassId> {
        let PathStep { key, level, leaf } = step;
        let weight = self.some_weight_of((&key, level, parent), 0, now);
        let entity = Entity::new(self.weight_here(id, weight));
        self.table.make(id, place, now, || {
            let body = if leaf {
                NodeBody::Leaf(Leaf::new())
            } else {
                NodeBody::Inner(InnerNode {
                    sched: NodeScheduler::new(),
                    children: 0,
                })
            };
            TreeNode::new(entity, id, parent, key, level, body)
        })
    }

    /// Adds one to the number of children of the inner node at index `parent`.
    fn add_child(&mut self, parent: u32) {
        if let Some(inner) = self.table.at_mut(parent).and_then(TreeNode::inner_mut) {
            inner.children.count(1);
            self.table.busy(parent);
        }
    }

    /// Subtracts one from the number of children of the inner node at index `parent`. Removes the
    /// node without children, and then does the same for its parent.
    fn drop_child(&mut self, mut parent: u32, selector: &mut Selector, now: u64) {
        while let Some(inner) = self.table.at_mut(parent).and_then(TreeNode::inner_mut) {
            inner.children = inner.children.saturating_sub(1);
            if inner.children > 0 {
                return;
            }
            self.table.idle(parent, now);
            parent = self.remove(parent, selector);
        }
    }

    /// Removes the idle node at index `idx`, and the nodes above it that have no other child.
    fn forget(&mut self, idx: u32, selector: &mut Selector, now: u64) {
        let parent = self.remove(idx, selector);
        self.drop_child(parent, selector, now);
    }

    /// Removes the idle node at index `idx` from the table; returns the index of its parent.
    fn remove(&mut self, idx: u32, selector: &mut Selector) -> u32 {
        selector.forget(self, idx);
        match (self.table.forget(idx), &self.shared.counters) {
            (Some(mut node), Some(counters)) => {
                node.tally.close(counters);
                node.parent
            }
            (Some(node), None) => node.parent,
            (None, _) => NONE,
        }
    }

    /// Removes at most `max` leaves that were idle for long. Returns true if there may be more such
    /// leaves.
    pub fn expire(&mut self, now: u64, max: u32, selector: &mut Selector) -> bool {
        for _ in 0..max {
            match self.table.expired(now) {
                Some(idx) => self.forget(idx, selector, now),
                None => return false,
            }
        }
        true
    }

    /// Applies the changes in `update` at `now`, ns; [`Members::reweigh`] applies new weights.
    /// Returns the replaced update.
    pub fn apply_update(&mut self, update: Update, now: u64) -> Update {
        if let Some(sizes) = &self.shared.sizes {
            sizes.set_window(update.live.size_window);
        }
        self.steps = update.steps(now);
        self.is_limited |= update.limits.is_some();
        core::mem::replace(&mut self.update, update)
    }

    /// Advances the factors to `now`, ns, for [`Members::reweigh`].
    pub fn follow_factors(&mut self, now: u64) {
        self.steps = self.update.steps(now);
    }

    /// Returns true if the factors at `now`, ns, differ from the applied factors.
    pub fn are_factors_stale(&self, now: u64) -> bool {
        self.update.steps(now) != self.steps
    }

    /// Returns the time after which attributes must be seen again, ns: a quarter of the window of
    /// job sizes, so that each client is noted four times per window; and for cgroups, so that
    /// their texts stay known.
    pub fn record_interval(&self) -> Option<u64> {
        let by_size = self.size_window().map(|window| window / 4);
        let by_cgroup = self.mode.levels().contains(&Level::Cgroup);
        let by_cgroup = by_cgroup.then_some(REFRESH);
        by_size.into_iter().chain(by_cgroup).min()
    }

    /// Returns the window in which a client of a job counts, ns; `None` if the mode has no job
    /// sizes.
    pub fn size_window(&self) -> Option<u64> {
        self.mode.has_size().then_some(self.update.live.size_window)
    }

    /// Updates the weight of the node at index `idx`.
    pub fn reweigh(&mut self, idx: u32, selector: &mut Selector, now: u64) {
        let Some(node) = self.table.at(idx) else {
            return;
        };
        // The weight of a cgroup stays while it cannot be found.
        let Some(weight) = self.weight_of(node.named(), node.size, now) else {
            return;
        };
        let weight = self.weight_here(node.id, weight);
        if node.entity.weight() != weight {
            selector.reweight(self, idx, weight);
        }
    }

    /// Returns the key of the node at the level of `field`, at or above the node at index `idx`.
    pub(super) fn key_above(&self, mut idx: u32, field: Field) -> Option<Key> {
        while let Some(node) = self.table.at(idx) {
            if self.mode.level(node.level)?.field() == field {
                return Some(node.key);
            }
            idx = node.parent;
        }
        None
    }

    /// Returns the weight of a node with a key, level and parent, whose job has `size` according to
    /// its requests; `None` if it is not known.
    fn weight_of(&self, named: (&Key, u8, u32), size: u32, now: u64) -> Option<u32> {
        let (key, level, parent) = named;
        let field = self.mode.level(level)?.field();
        let above = |field| self.key_above(parent, field);
        let mut weight = self.update.weights.find(key, field, &above)?;
        if self.size_level == Some(level) {
            weight = weight.saturating_mul(self.size_of(key, size, now));
        }
        let class = match &self.update.limits {
            Some(plan) => plan.class_of(key, field, &above),
            None => EntityClass::of(key),
        };
        Some(class.weight(weight, WEIGHT_LIMIT))
    }

    /// Returns the weight as [`Self::weight_of`] does; of a cgroup whose text is not known, that of
    /// all cgroups.
    fn some_weight_of(&self, named: (&Key, u8, u32), size: u32, now: u64) -> u32 {
        let known = self.weight_of(named, size, now);
        let (_, level, parent) = named;
        let all = (&Key::Default, level, parent);
        let weight = known.or_else(|| self.weight_of(all, size, now));
        weight.unwrap_or(WEIGHT_ONE)
    }

    /// Returns `weight` of the node `id` on this server, which is less if other servers serve the
    /// node more.
    fn weight_here(&self, id: PathId, weight: u32) -> u32 {
        match &self.update.factors {
            Some(_) => scaled(weight, self.factor_of(id)),
            None => weight,
        }
    }

    /// Returns the factor of the node `id`; [`ONE`] without a factor.
    pub fn factor_of(&self, id: PathId) -> u32 {
        let factors = self.update.factors.as_ref();
        factors.map_or(ONE, |factors| factors.of(id.0, self.steps))
    }

    /// Returns the weight of the node at index `idx` on all servers together.
    pub fn weight_everywhere(&self, node: &TreeNode<I>, now: u64) -> u32 {
        self.some_weight_of(node.named(), node.size, now)
    }

    /// Returns the size of the job `key`: the size reported by requests, else the counted size,
    /// else 1.
    fn size_of(&self, key: &Key, size: u32, now: u64) -> u32 {
        let counted = || {
            let sizes = self.shared.sizes.as_ref()?;
            Some(sizes.estimate(self.shared.hasher.wide(key), now))
        };
        let size = match size {
            0 => counted().unwrap_or(1),
            size => size,
        };
        size.clamp(1, self.update.live.size_max)
    }

    /// Returns the job size in the weight of the node at index `idx`; 0 if the node's level has no
    /// sizes.
    pub fn job_size(&self, idx: u32, now: u64) -> u32 {
        match self.table.at(idx) {
            Some(node) if self.size_level == Some(node.level) && idx != DEFAULT => {
                self.size_of(&node.key, node.size, now)
            }
            _ => 0,
        }
    }

    /// Notes the job size that a request with `attrs` of the leaf at index `idx` reports, or else
    /// counts the client of the request.
    pub fn note_job_size(&mut self, idx: u32, attrs: &Attrs, selector: &mut Selector, now: u64) {
        let Some(level) = self.size_level.filter(|_| idx != DEFAULT) else {
            return;
        };
        let said = match (attrs.size, self.size_source) {
            (0, SizeSource::Suffix) => job_size::suffix(attrs.jobid.as_bytes()).unwrap_or(0),
            (said, _) => said,
        };
        if said == 0 {
            if let (Some(sizes), Some(nid)) = (&self.shared.sizes, attrs.nid) {
                let hasher = &self.shared.hasher;
                let job = Key::of(Field::Jobid, attrs);
                let full = !sizes.see(hasher.wide(&job), hasher.wide(&Key::Nid(nid)), now);
                self.counts.sizes_full.count(full.into());
            }
            return;
        }
        let mut at = idx;
        while let Some(node) = self.table.at_mut(at) {
            if node.level == level {
                // A shared leaf has no size, because its requests are of several jobs.
                if node.size != said && node.key != Key::Default {
                    node.size = said;
                    self.reweigh(at, selector, now);
                }
                return;
            }
            at = node.parent;
        }
    }

    /// Maintains the service counter of the node at index `idx`, every few seconds.
    pub fn upkeep(&mut self, idx: u32) {
        if let (Some(counters), Some(node)) = (&self.shared.counters, self.table.at_mut(idx)) {
            if idx != DEFAULT {
                node.tally.upkeep(counters, node.id.0);
            }
        }
    }
}

/// Interface of selectors; nodes are identified by index.
impl<I: Item> Members<I> {
    /// Returns the weight and the tag of the node.
    pub(super) fn entity(&self, idx: u32) -> Option<&Entity> {
        self.table.at(idx).map(|node| &node.entity)
    }

    /// Returns the weight and the tag of the node, for writing.
    pub(super) fn entity_mut(&mut self, idx: u32) -> Option<&mut Entity> {
        self.table.at_mut(idx).map(|node| &mut node.entity)
    }

    /// Returns the index of the parent; [`NONE`] stands for the root.
    pub(super) fn parent(&self, idx: u32) -> u32 {
        self.table.at(idx).map_or(NONE, |node| node.parent)
    }

    /// Returns the scheduler of an inner node; `None` for a leaf.
    pub(super) fn sched(&self, idx: u32) -> Option<&NodeScheduler> {
        Some(&self.table.at(idx)?.inner()?.sched)
    }

    /// Returns the scheduler of an inner node, for writing.
    pub(super) fn sched_mut(&mut self, idx: u32) -> Option<&mut NodeScheduler> {
        Some(&mut self.table.at_mut(idx)?.inner_mut()?.sched)
    }

    /// Returns the arrival time of a leaf's next request, ns; `None` without requests.
    pub(super) fn arrival(&self, idx: u32) -> Option<u64> {
        self.leaf(idx)?.queue.front().map(Item::arrival)
    }

    /// Returns the index of the node with the path `id`.
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        match PathId(id) {
            PathId::DEFAULT => Some(DEFAULT),
            id => self.table.find(&id),
        }
    }

    /// Returns the index of the shared leaf below the node `above`.
    pub(super) fn find_shared(&self, above: PathId) -> Option<u32> {
        let id = self.shared.hasher.path(above.0, &Key::Default);
        self.table.find(&PathId(id))
    }

    /// Returns true if all nodes are leaves.
    #[inline]
    pub(super) fn are_flat(&self) -> bool {
        self.mode.depth() == 1
    }

    /// Returns true if the head has one partition, so that no other partition serves its nodes.
    #[inline]
    pub(super) fn has_single_partition(&self) -> bool {
        self.shared.counters.is_none()
    }

    /// Returns the units of cost that other partitions served to the node since the last call; 0 if
    /// shares apply to each partition.
    pub(super) fn elsewhere(&mut self, idx: u32) -> u64 {
        let Some(counters) = &self.shared.counters else {
            return 0;
        };
        // The counter is read in any case, to keep that service from being charged later.
        let node = self.table.at_mut(idx);
        let cost = node.map_or(0, |node| node.tally.elsewhere(counters));
        if self.update.live.cross_cpt {
            cost
        } else {
            0
        }
    }

    /// Reports to the other partitions that this partition served `cost` units to the node, or took
    /// them back.
    #[inline]
    pub(super) fn record_service(&mut self, idx: u32, cost: i64) {
        let Some(counters) = &self.shared.counters else {
            return;
        };
        if let Some(node) = self.table.at_mut(idx) {
            node.tally.add(counters, cost);
        }
    }
}
