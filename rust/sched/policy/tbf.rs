// SPDX-License-Identifier: GPL-2.0-only

//! Token bucket filter: limits the rate of each class of requests by rules.
//!
//! The type of a part is the set of request fields that make a class ([`Config::fields`]). A class
//! is subject to the first rule that matches it ([`crate::sched::rules`]). A [`plan`] contains the
//! rules with all derived numbers; an [`Update`] installs a new plan. Buckets exist per class, per
//! rule, and for all rules together ([`crate::sched::bucket`]). The front of a class is its oldest
//! queued request, which is eligible once it has its tokens ([`class`]).
//!
//! ```text
//!             enqueue                 get, when the front has its tokens         stop
//!  (request) ─────────► FIFO of its ─────────────────────────────────► in flight ───► (end)
//!      │                  class                                           ▲
//!      └───────────────── pass, if there are tokens or it is forced ──────┘
//! ```
//!
//! # Order of classes
//!
//! Backlogged classes are ordered by the time at which their front has its tokens ([`queue`]). A
//! class without tokens is therefore behind all classes with tokens and does not delay them.
//! Classes with tokens are ordered by deadline, which is the time of their last request. With
//! `nrs_tbf_overload` = `rate`, three quarters of the duration of their request at their rate are
//! added. So higher rates have an advantage, and the time that a class waits for another class is
//! bounded.
//!
//! Classes of a rule below its guaranteed minimum (`minrate`) precede other classes. But after
//! `nrs_tbf_floor_ratio` requests under rules with a minimum, a class of another rule is chosen.
//! The minimum is a bucket of the rule, so that clients cannot multiply it by choosing names.
//!
//! # Changes of rules
//!
//! [`Classful::update`] replaces the plan; [`Classful::sync`] matches a class again before its next
//! use, and all classes in batches. The tokens that a front has taken are returned and taken from
//! the new buckets. A bucket under a new rule or rate is as full as the old one, so that no change
//! grants tokens.

use crate::sched::{
    attr::{cgroup, Attrs},
    bucket::{
        instant,
        rate::COUNTS,
        table::{BucketRef, BucketTable, BucketTag},
    },
    class::DEFAULT,
    item::{Cost, Fifo, Item},
    key::{Field, Hashed, Hasher},
    mem::{self, NoMemory},
    policy::{
        classes::{self, each, fill, Class, Classful, CLASS_WORK},
        BypassOutcome, BypassReason, Decision, PartView, ROWS,
    },
    rng::{avalanche, Rng},
    rules::{Fields, Subject},
};

pub mod class;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod control;
pub mod params;
pub mod plan;
pub(crate) mod queue;
pub mod stats;

use class::{ClassCounts, TbfClass};
use context::Context;
use plan::POOL;
use queue::{NextClass, TbfQueue};
use stats::TbfRow;

pub use crate::sched::policy::Nothing as Overseer;
pub use config::Config;
pub use control::PolicyData;
pub use params::{Tunables, PARAMETERS};
pub use plan::Update;
pub use stats::Counts;

/// Maximum number of comparisons for classes that one `Part::get` examines without a result:
/// those of 64 classes.
const LOOKS: u32 = 64 * CLASS_WORK;

/// Time after which a part whose search ended without a result is called again, 50 us in ns: the
/// slack of timers.
const PAUSE: u64 = 50_000;

/// State that the parts of one head share.
pub struct Shared {
    buckets: BucketTable,
    start: Update,
}

impl Shared {
    /// False, because a rate applies to all targets together.
    pub const PER_TARGET: bool = false;

    /// Creates full buckets and the initial rules, for any number of parts; may sleep.
    pub fn new(config: &Config, seed: u64, _parts: u32) -> core::result::Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let rules = tunables.rules_max.get() as usize;
        let count = if config.is_global() {
            let classes = tunables.classes_max.get() as usize;
            rules.saturating_mul(2).saturating_add(classes)
        } else {
            // Each partition has its own buckets for minimums and for rules that other rules name.
            rules.saturating_mul(8)
        };
        let rules = mem::Shared::new(config.rule_list()?.compile(0)?)?;
        Ok(Self {
            buckets: BucketTable::new(count, seed)?,
            start: Update::new(rules, config)?,
        })
    }

    /// Returns the number of times that a bucket found no place in the table, so that its rate
    /// applied per partition only.
    pub fn full(&self) -> u64 {
        self.buckets.full()
    }
}

/// Buffer for [`State::rows`].
pub type TbfRowBuf = mem::Block<TbfRow, ROWS>;

/// Key of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassFields {
    /// Requests with the same fields.
    One(Subject),
    /// Requests under the rule with this identifier for which no class can be created.
    Rest(u32),
}

impl Hashed for ClassFields {
    fn mix(&self, hasher: &Hasher) -> u64 {
        match self {
            Self::One(subject) => subject.mix(hasher),
            Self::Rest(rule) => hasher.mix(hasher.word(REST), u64::from(*rule)),
        }
    }
}

/// First hashed word of [`ClassFields::Rest`]; no subject starts with it.
const REST: u64 = 1 << 32;

/// State of the policy on one head.
pub struct Tbf {
    update: Update,
    /// Generation of the rules in `update`.
    generation: u64,
    shared: mem::Shared<Shared>,
    pools: [BucketRef; COUNTS],
    fields: Fields,
    global: bool,
    salt: u64,
}

/// Token bucket filter on one head.
pub type State<I> = classes::State<I, Tbf>;

impl Tbf {
    fn context(&mut self, now: u64) -> Context<'_> {
        Context {
            plan: self.update.plan(),
            buckets: &self.shared.buckets,
            pools: &mut self.pools,
            global: self.global,
            salt: self.salt,
            now: instant(now),
        }
    }

    /// Returns the rule of a class and the hash of its bucket. The default class and the shared
    /// class of the default rule have one bucket on all partitions. That bucket differs from the
    /// bucket of requests without fields.
    fn terms(&self, key: Option<&ClassFields>) -> ClassTerms {
        let (plan, buckets) = (self.update.plan(), &self.shared.buckets);
        let default = plan.rules().default_index();
        let (rule, hash, work) = match key {
            Some(ClassFields::One(subject)) => {
                let (rule, work) = plan.rules().find_with_cost(subject);
                (rule, buckets.hash(subject), work)
            }
            Some(key @ ClassFields::Rest(id)) if plan.id_of(default) != Some(*id) => {
                let rule = plan.index_of(*id).unwrap_or(default);
                (rule, buckets.hash(key), 0)
            }
            _ => (default, avalanche(buckets.hash(&Subject::NONE)), 0),
        };
        ClassTerms { rule, hash, work }
    }
}

/// Rule and bucket of a class.
struct ClassTerms {
    /// Index of the rule.
    rule: u32,
    /// Hash of the bucket.
    hash: u64,
    /// Number of comparisons made to find the rule.
    work: u32,
}

impl<I: Item> State<I> {
    /// Copies the statistics of the classes from index `from` on into `out` until `out` is full.
    /// Returns the index to continue from, or `None` at the end.
    pub fn rows(&self, from: u32, now: u64, out: &mut TbfRowBuf) -> Option<u32> {
        fill(out, self.table.entry_count(), from, |idx| {
            self.row(idx, now)
        })
    }

    /// Returns the statistics of the class at `idx`; `None` for a default class that was never
    /// used.
    fn row(&self, idx: u32, now: u64) -> Option<TbfRow> {
        let class = self.table.at(idx)?;
        let record = &class.record;
        let key = self.table.key(idx).filter(|_| idx != DEFAULT);
        if idx == DEFAULT && record.counters.dispatched == 0 && !class.is_active() {
            return None;
        }
        let plan = self.policy.update.plan();
        // Matching could take long: until the class is matched again, its previous rule is shown.
        let rule = match record.generation == self.policy.generation {
            true => record.rule,
            false => {
                let known = plan.index_of(record.rule_id());
                known.unwrap_or(plan.rules().default_index())
            }
        };
        let compiled = plan.compiled(rule)?;
        let subject = match key {
            Some(ClassFields::One(subject)) => Some(*subject),
            _ => None,
        };
        Some(TbfRow {
            subject: subject.unwrap_or(Subject::NONE),
            high: false,
            default: subject.is_none(),
            id: compiled.id,
            rule: compiled.name,
            rate: compiled.rate,
            count: compiled.count(),
            counters: record.counters,
            queued: class.queued(),
            active: class.active(),
            debt: record.debt(instant(now)),
        })
    }

    /// Calls `count` with the identifier of the rule of each class, for at most `max` indices from
    /// `from` on. Returns the index to continue from, or `None` at the end. The default class
    /// counts only while it is in use.
    pub fn refs(&self, from: u32, max: u32, mut count: impl FnMut(u32)) -> Option<u32> {
        each(self.table.entry_count(), from, max, |idx| {
            let class = self.table.at(idx);
            if let Some(class) = class.filter(|class| idx != DEFAULT || class.is_active()) {
                count(class.record.rule_id());
            }
        })
    }

    /// Returns the rules in effect.
    #[cfg(not(MODULE))]
    pub fn rules(&self) -> &Update {
        &self.policy.update
    }

    /// Examines the first class. Returns the result of `Part::get`; if another class must be
    /// examined, returns the number of comparisons made as the error. With `last`, a class that has
    /// just got its tokens is chosen regardless of its deadline.
    fn examine_first(
        &mut self,
        view: &PartView<'_>,
        last: bool,
    ) -> core::result::Result<Decision<u32>, u32> {
        let now = view.now;
        let ratio = self.policy.update.plan().floor_ratio;
        let Some(first) = self.queue.first(ratio, now) else {
            return Ok(Decision::Empty);
        };
        let (idx, due) = match first {
            NextClass::Due(idx, due) => (idx, Some(due)),
            NextClass::Go(idx) => (idx, None),
        };
        if view.force {
            Tbf::sync(self, idx, now);
            return Ok(Decision::Item(idx));
        }
        if let Some(until) = due.filter(|due| *due > now) {
            return Ok(Decision::Throttled { until });
        }
        let Some(Class { record, .. }) = self.table.at_mut(idx) else {
            return Err(0);
        };
        if record.generation != self.policy.generation {
            return Err(Tbf::sync(self, idx, now));
        }
        let mut context = self.policy.context(now);
        if !record.may_go(&context) {
            let Some(cost) = record.fifo.front().map(Item::cost) else {
                return Err(0);
            };
            let keys = record.advance(&mut context, cost);
            let may_go = record.may_go(&context);
            self.queue.set(idx, &mut record.keys, keys);
            if !may_go {
                return Err(0);
            }
        }
        if due.is_some() && !last && self.queue.is_crowded() {
            let keys = record.ripe(&context);
            if !self.queue.is_first(&keys) {
                self.queue.set(idx, &mut record.keys, keys);
                return Err(0);
            }
        }
        self.queue.chosen(record.keys.minimum);
        Ok(Decision::Item(idx))
    }
}

impl<I: Item> Classful<I> for Tbf {
    type Key = ClassFields;
    type Record = TbfClass<I::Fifo>;
    type Queue = TbfQueue;
    type Config = Config;
    type Shared = Shared;
    type Update = Update;

    const OWNED: bool = true;
    const DEFAULT: ClassFields = ClassFields::One(Subject::NONE);

    fn new(
        config: &Config,
        _seed: u64,
        shared: &mem::Shared<Shared>,
    ) -> core::result::Result<Self, NoMemory> {
        let global = config.is_global();
        let salt = if global { 0 } else { shared.buckets.salt() };
        Ok(Self {
            generation: shared.start.plan().rules().generation(),
            update: shared.start.clone(),
            shared: shared.clone(),
            pools: core::array::from_fn(|count| {
                let hash = Rng::new(salt ^ ((count as u64) << 32)).next_u64();
                BucketRef::new(BucketTag::new(hash, POOL, POOL))
            }),
            fields: config.fields(),
            global,
            salt,
        })
    }

    fn classes_max(config: &Config) -> u32 {
        config.tunables.classes_max.get()
    }

    fn queue(_config: &Config, entries: usize) -> core::result::Result<TbfQueue, NoMemory> {
        TbfQueue::new(entries)
    }

    fn idle_max(&self) -> usize {
        self.update.plan().idle_max
    }

    /// Returns true if rates apply per partition: a class is then kept until its bucket is full. A
    /// bucket that partitions share outlives its class.
    fn keeps(&self) -> bool {
        !self.global
    }

    fn record_interval(&self) -> Option<u64> {
        self.fields.has(Field::Cgroup).then_some(cgroup::REFRESH)
    }

    fn keep_until(record: &TbfClass<I::Fifo>) -> u64 {
        record.full_at()
    }

    fn key(&self, attrs: &Attrs) -> ClassFields {
        let subject = Subject::of(attrs, self.fields);
        ClassFields::One(self.update.plan().rules().class_of(subject))
    }

    fn shared(&self, key: &ClassFields) -> Option<ClassFields> {
        let ClassTerms { rule, .. } = self.terms(Some(key));
        self.update.plan().id_of(rule).map(ClassFields::Rest)
    }

    /// Returns the record of a new class. The shared class identifies the rule, so that a new class
    /// is matched only once.
    fn record(
        &mut self,
        key: Option<&ClassFields>,
        shared: Option<&ClassFields>,
        now: u64,
    ) -> TbfClass<I::Fifo> {
        let (rule, hash) = match (key, shared) {
            (Some(ClassFields::One(subject)), Some(_)) => {
                (self.terms(shared).rule, self.shared.buckets.hash(subject))
            }
            _ => {
                let ClassTerms { rule, hash, .. } = self.terms(key);
                (rule, hash)
            }
        };
        TbfClass::new(&self.context(now), hash, rule)
    }

    #[inline]
    fn is_synced(&self, record: &TbfClass<I::Fifo>) -> bool {
        record.generation == self.generation
    }

    /// Matches the class against the rules in effect, unless that was done before.
    fn sync(state: &mut State<I>, idx: u32, now: u64) -> u32 {
        let policy = &mut state.policy;
        let class = state.table.at(idx);
        if class.is_none_or(|class| class.record.generation == policy.generation) {
            return 0;
        }
        let key = state.table.key(idx).filter(|_| idx != DEFAULT);
        let ClassTerms { mut rule, work, .. } = policy.terms(key);
        let plan = policy.update.plan();
        let is_unknown = match key {
            Some(ClassFields::One(subject)) => plan.rules().is_unknown(subject),
            _ => false,
        };
        let Some(Class { record, .. }) = state.table.at_mut(idx) else {
            return work;
        };
        if is_unknown {
            // The rule stays, because another one cannot be found.
            rule = plan.index_of(record.rule_id()).unwrap_or(rule);
        }
        let mut context = policy.context(now);
        let front = record.fifo.front().map(Item::cost);
        if front.is_some() {
            record.unstage(&mut context);
        }
        record.bind(&context, rule);
        if let Some(cost) = front {
            let keys = record.restage(&mut context, cost);
            state.queue.set(idx, &mut record.keys, keys);
        }
        work
    }

    /// Queues the request; never declines it.
    fn push(
        &mut self,
        queue: &mut TbfQueue,
        idx: u32,
        class: &mut Class<TbfClass<I::Fifo>>,
        item: I,
        now: u64,
    ) -> core::result::Result<(), I> {
        let (first, record) = (class.queued() == 0, &mut class.record);
        let cost = item.cost();
        record.fifo.push(item);
        if first {
            let mut context = self.context(now);
            record.begin(&context);
            let keys = record.set_front(&mut context, cost);
            queue.set(idx, &mut record.keys, keys);
        }
        Ok(())
    }

    /// Removes the request. A removed front returns its tokens, and the next front takes its own.
    fn remove(
        &mut self,
        queue: &mut TbfQueue,
        idx: u32,
        class: &mut Class<TbfClass<I::Fifo>>,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I> {
        let record = &mut class.record;
        let before = record.fifo.front().map(Item::cost);
        let item = record.fifo.remove(handle)?;
        let next = record.fifo.front().map(Item::cost);
        // A new front of the same cost takes over the tokens.
        if next != before {
            let keys = record.withdraw(&mut self.context(now), next);
            queue.set(idx, &mut record.keys, keys);
        }
        Some(item)
    }

    fn next(state: &mut State<I>, view: &PartView<'_>) -> Decision<u32> {
        let mut left = LOOKS;
        while left > 0 {
            match state.examine_first(view, left <= CLASS_WORK) {
                Ok(answer) => return answer,
                Err(work) => left = left.saturating_sub(CLASS_WORK.saturating_add(work)),
            }
        }
        Decision::Throttled {
            until: view.now.saturating_add(PAUSE),
        }
    }

    fn throttled(state: &State<I>, now: u64) -> Option<u64> {
        let ratio = state.policy.update.plan().floor_ratio;
        match state.queue.first(ratio, now)? {
            NextClass::Due(_, due) if due > now => Some(due),
            _ => None,
        }
    }

    fn pop(
        &mut self,
        queue: &mut TbfQueue,
        idx: u32,
        class: &mut Class<TbfClass<I::Fifo>>,
        now: u64,
    ) -> Option<(I, u32)> {
        let record = &mut class.record;
        let item = record.fifo.pop()?;
        let mut context = self.context(now);
        let withheld = record.withheld(item.arrival(), now);
        record.serve(&mut context, item.cost());
        let keys = match record.fifo.front().map(Item::cost) {
            Some(next) => record.set_front(&mut context, next),
            None => queue::TbfKeys::default(),
        };
        queue.set(idx, &mut record.keys, keys);
        Some((item, withheld))
    }

    fn pass(
        state: &mut State<I>,
        idx: u32,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome {
        let now = now();
        Self::sync(state, idx, now);
        let Some(Class { record, .. }) = state.table.at_mut(idx) else {
            return BypassOutcome::Stale;
        };
        let mut context = state.policy.context(now);
        match way {
            BypassReason::Merged => record.merge(&mut context, cost),
            BypassReason::Forced { .. } => record.force(&mut context, cost),
            BypassReason::Opportunity if record.pass(&mut context, cost) => {}
            BypassReason::Opportunity => return BypassOutcome::Refused,
        }
        state.keep(idx);
        BypassOutcome::Counted
    }

    fn refund(state: &mut State<I>, idx: u32, cost: Cost, now: u64) {
        Self::sync(state, idx, now);
        let Some(Class { record, .. }) = state.table.at_mut(idx) else {
            return;
        };
        let mut context = state.policy.context(now);
        let front = record.fifo.front().map(Item::cost);
        if front.is_some() {
            record.unstage(&mut context);
        }
        record.refund_dispatched(&mut context, cost);
        if let Some(front) = front {
            let keys = record.restage(&mut context, front);
            state.queue.set(idx, &mut record.keys, keys);
        }
    }

    fn update(state: &mut State<I>, update: Update) -> Update {
        state.policy.generation = update.plan().rules().generation();
        core::mem::replace(&mut state.policy.update, update)
    }

    fn reset(record: &mut TbfClass<I::Fifo>) {
        record.counters = ClassCounts::ZERO;
    }

    fn add_counts(&self, sums: &mut [u64]) {
        // All parts of the head share one table.
        if let [sum, ..] = sums {
            *sum = self.shared.full().max(*sum);
        }
    }
}
