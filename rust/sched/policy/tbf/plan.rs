// SPDX-License-Identifier: GPL-2.0-only

//! Rules as the policy uses them: every number that a request needs, worked out before.
//!
//! # Vocabulary
//!
//! - *Pool*: what all rules together may use, per count; see below.
//! - *Lateness*: credit that a class earns while it waits although it has its tokens.
//!
//! # Lending
//!
//! A pool is a bucket whose rate is the sum of the rates of all rules with its count, the default rule
//! excepted, and whose window is [`POOL`], 100 ms. All requests under these rules are charged to it. A class
//! of a rule with `borrow=1` that has no tokens of its own may take them from the pool, if it has some.
//!
//! So a borrower gets what the rules leave unused: a rule without requests lends its rate once, however
//! many classes it is for; more than the sum of all rates is never granted for longer than the window. Who
//! lends never waits for the pool. When it comes back, its requests use the pool up, and the borrowers have
//! at most what the pool held, 100 ms worth. After Hierarchical Token Bucket's root class, with rates for
//! `rate` and the pool for `ceil`.

use super::{
    params::{CostModel, Overload},
    Config,
};
use crate::sched::{
    bucket::{span, Charge, Pace},
    item::Cost,
    mem::{self, List, NoMemory},
    rng::avalanche,
    rules::{Limits, Name, Rate, RuleSet, Unit, ALSO_MAX},
    sort::sort_by,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

/// Lateness that a backlogged class keeps, 10 ms in ticks.
pub const LATE: u64 = span(10 * NSEC_PER_MSEC);

/// Lateness that a class of a realtime rule keeps, 1 s in ticks.
pub const REALTIME: u64 = span(NSEC_PER_SEC);

/// Lateness that a guaranteed minimum makes up for, at least, 100 ms in ticks.
pub const FLOOR: u64 = span(100 * NSEC_PER_MSEC);

/// Window of a pool, and the debt that it can have, 100 ms in ticks.
pub const POOL: u64 = span(100 * NSEC_PER_MSEC);

/// Longest time between two looks of a borrower for tokens of the pool, 1 s in ticks.
pub const LATER_MAX: u64 = span(NSEC_PER_SEC);

/// How far forced requests take a class into debt, and how long a change makes what they owe, 10 s in ticks. What else is
/// owed was taken ahead of time, or for a large request; a change forgives nothing of that.
pub const DEBT_MAX: u64 = span(10_000_000_000);

/// Bytes that a token of the depth stands for where a rate is in bytes.
const DEPTH_BYTES: u64 = 4096;

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Requests.
    Requests,
    /// Pages, at least one per request.
    Pages,
    /// Bytes; a request without data is free.
    Bytes,
}

/// Number of counts.
pub const COUNTS: usize = 3;

impl Count {
    fn new(unit: Unit, model: CostModel) -> Self {
        match (unit, model) {
            (Unit::Bytes, _) => Self::Bytes,
            (Unit::Plain, CostModel::Pages) => Self::Pages,
            (Unit::Plain, CostModel::Rpcs) | (Unit::Requests, _) => Self::Requests,
        }
    }

    /// Tokens for a request that costs `cost`.
    #[inline]
    pub fn of(self, cost: Cost) -> u64 {
        match self {
            Self::Requests => 1,
            Self::Pages => u64::from(cost.pages.max(1)),
            Self::Bytes => cost.bytes,
        }
    }

    /// Tokens for `depth`.
    fn depth(self, depth: u32) -> u64 {
        let depth = u64::from(depth);
        match self {
            Self::Requests | Self::Pages => depth,
            Self::Bytes => depth.saturating_mul(DEPTH_BYTES),
        }
    }

    /// The word that statistics show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Pages => "pages",
            Self::Bytes => "bytes",
        }
    }
}

/// A bucket's rate and depth.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    pace: Pace,
    count: Count,
    /// Credit that a class keeps while it is idle, ticks.
    pub window: u64,
    /// Time for one request or page of the depth, or 4096 bytes, ticks: what stays the same amount when rate, depth or
    /// unit change.
    pub unit: u64,
}

impl Meter {
    fn new(rate: Rate, depth: u32, model: CostModel) -> Self {
        let pace = Pace::new(rate.per_second());
        let count = Count::new(rate.unit(), model);
        Self {
            pace,
            count,
            window: pace.span(count.depth(depth)),
            unit: pace.span(count.depth(1)),
        }
    }

    /// What its rate counts.
    pub const fn count(&self) -> Count {
        self.count
    }

    /// What a request that costs `cost` takes.
    #[inline]
    pub fn charge(&self, cost: Cost) -> Charge {
        Charge::new(self.pace, self.count.of(cost), self.window)
    }
}

/// A guaranteed minimum.
#[derive(Clone, Copy, Debug)]
pub struct Minimum {
    /// Its rate and depth.
    pub meter: Meter,
}

impl Minimum {
    /// Credit that counts in its bucket, and debt that it may have, ticks.
    #[inline]
    pub fn window(&self) -> u64 {
        self.meter.window.max(FLOOR)
    }
}

/// A rule in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    /// Which rule.
    pub id: u32,
    /// Its name.
    pub name: Name,
    /// Its rate, as it was written.
    pub rate: Rate,
    /// Its rate and depth.
    pub meter: Meter,
    /// Lateness that its classes keep, ticks.
    pub late: u64,
    /// How far lateness puts its classes before others that have their tokens, ticks: only what was asked
    /// to make up for lost time does so at the others' cost.
    pub lead: u64,
    /// Rate and depth of the guaranteed minimum, which the classes of the rule share.
    pub floor: Option<Minimum>,
    /// Whether its classes borrow from the pool.
    pub borrow: bool,
    /// Whether its requests are charged to the pool.
    pub pooled: bool,
    also: [u32; ALSO_MAX],
    alsos: u8,
}

impl Gauge {
    /// What a request that costs `cost` takes from the bucket of its class.
    #[inline]
    pub fn charge(&self, cost: Cost) -> Charge {
        self.meter.charge(cost)
    }

    /// What its rate counts.
    pub const fn count(&self) -> Count {
        self.meter.count()
    }

    /// Credit that counts in a bucket that several parts or classes take from, ticks.
    #[inline]
    pub const fn shared_window(&self) -> u64 {
        self.meter.window.saturating_add(self.late)
    }

    /// Indices of the rules whose buckets a request takes from as well.
    #[inline]
    pub fn also(&self) -> &[u32] {
        self.also.get(..usize::from(self.alsos)).unwrap_or_default()
    }

    /// A hash of the rule, the same after changes.
    pub const fn hash(&self) -> u64 {
        avalanche(self.id as u64)
    }
}

/// Rules and their gauges.
///
/// # Invariants
///
/// There is a gauge for each rule, in the same order; `ids` has the identifiers in order, each with its index.
pub struct Plan {
    rules: mem::Shared<RuleSet>,
    gauges: List<Gauge>,
    ids: List<(u32, u32)>,
    pools: [Option<Pace>; COUNTS],
    /// Idle classes that are kept.
    pub idle_max: usize,
    /// Dispatches under rules with a minimum in a row before another one.
    pub floor_ratio: u32,
    overload: Overload,
}

impl Plan {
    /// The plan for `rules` under `config`; sleeps.
    pub fn new(rules: mem::Shared<RuleSet>, config: &Config) -> Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let (depth, model) = (tunables.depth.get(), tunables.cost_model);
        let default = rules.default_index();
        let mut gauges = List::with_capacity(rules.len() as usize)?;
        let mut ids = List::with_capacity(rules.len() as usize)?;
        let (mut sums, mut borrowers) = ([0u64; COUNTS], [false; COUNTS]);
        for index in 0..rules.len() {
            let rule = rules.rule(index).ok_or(NoMemory)?;
            let limits: &Limits = &rule.limits;
            let meter = Meter::new(limits.rate, depth, model);
            let pooled = index != default;
            if pooled {
                if let Some(sum) = sums.get_mut(meter.count as usize) {
                    *sum = sum.saturating_add(limits.rate.per_second());
                }
                if let Some(borrower) = borrowers.get_mut(meter.count as usize) {
                    *borrower |= limits.borrow;
                }
            }
            let named = rules.also(index);
            let mut also = [0; ALSO_MAX];
            let mut alsos = 0u8;
            for (to, from) in also.iter_mut().zip(named) {
                *to = *from;
                alsos = alsos.saturating_add(1);
            }
            ids.push((rule.id, index))?;
            gauges.push(Gauge {
                id: rule.id,
                name: rule.name,
                rate: limits.rate,
                meter,
                late: if limits.realtime { REALTIME } else { LATE },
                lead: if limits.realtime { REALTIME } else { 0 },
                floor: limits.minrate.map(|rate| Minimum {
                    meter: Meter::new(rate, depth, model),
                }),
                borrow: limits.borrow && pooled,
                pooled,
                also,
                alsos,
            })?;
        }
        let mut pools = [None; COUNTS];
        for (pool, (sum, borrower)) in pools.iter_mut().zip(sums.into_iter().zip(borrowers)) {
            *pool = borrower.then(|| Pace::new(sum));
        }
        sort_by(ids.as_mut_slice(), Ord::cmp);
        Ok(Self {
            rules,
            gauges,
            ids,
            pools,
            idle_max: tunables.cache_size.get() as usize,
            floor_ratio: tunables.floor_ratio.get(),
            overload: tunables.overload,
        })
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The gauge of rule `index`.
    #[inline]
    pub fn gauge(&self, index: u32) -> Option<&Gauge> {
        self.gauges.as_slice().get(index as usize)
    }

    /// How long a class stands back for others with tokens after a request of `span`, ticks. Lateness of the rest of the
    /// span is made up for, so that a class that waits less for its turn has its whole rate.
    #[inline]
    pub const fn stands_back(&self, span: u64) -> u64 {
        match self.overload {
            Overload::Rate => span.saturating_sub(span / 4),
            Overload::Equal => 0,
        }
    }

    /// The identifier of rule `index`.
    pub fn id_of(&self, index: u32) -> Option<u32> {
        self.gauge(index).map(|gauge| gauge.id)
    }

    /// The index of the rule with `id`.
    pub fn index_of(&self, id: u32) -> Option<u32> {
        let ids = self.ids.as_slice();
        let at = ids.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        ids.get(at).map(|&(_, index)| index)
    }

    /// What a request that costs `cost` takes from the pool of `count`; none if nobody borrows from it.
    #[inline]
    pub fn pool_charge(&self, count: Count, cost: Cost) -> Option<Charge> {
        let pace = (*self.pools.get(count as usize)?)?;
        Some(Charge::new(pace, count.of(cost), POOL))
    }
}

/// New rules for a part; clones are the same.
#[derive(Clone)]
pub struct Update(mem::Shared<Plan>);

impl Update {
    /// An update to `rules` for parts that were started with `config`; sleeps.
    pub fn new(rules: mem::Shared<RuleSet>, config: &Config) -> Result<Self, NoMemory> {
        Ok(Self(mem::Shared::new(Plan::new(rules, config)?)?))
    }

    /// The rules and what they come to.
    pub fn plan(&self) -> &Plan {
        &self.0
    }
}
