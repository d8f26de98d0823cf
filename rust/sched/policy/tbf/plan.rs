// SPDX-License-Identifier: GPL-2.0-only

//! Rules with all derived numbers that requests need.
//!
//! # Lending
//!
//! The pool of a unit is a bucket that all rules with that unit share. Its rate is the sum of
//! their rates, without the default rule; its window is [`POOL`], 100 ms. All requests under these
//! rules are charged to it. A class of a rule with `borrow=1` that has no tokens of its own may
//! take tokens from the pool, if the pool has some.
//!
//! So borrowers get the rate that the rules leave unused. A rule without requests lends its rate
//! once, regardless of the number of its classes. More than the sum of all rates is never granted
//! for longer than the window. A lender never waits for the pool. When a lender becomes backlogged
//! again, its requests use up the pool, and borrowers get at most the contents of the pool, 100 ms.
//! This follows the root class of Hierarchical Token Bucket, with rates as `rate` and the pool as
//! `ceil`.
//!
//! Lateness is the credit that a class earns while it is backlogged although its front has its
//! tokens.

use super::{
    params::{CostModel, Overload},
    Config,
};
use crate::sched::{
    bucket::{
        rate::{RateDepth, RateUnit, COUNTS},
        span, Charge, Pace, LATE,
    },
    count::Count,
    item::Cost,
    mem::{self, GrowingList, NoMemory},
    rng::avalanche,
    rules::{Name, Rate, RuleLimits, RuleSet, Unit, ALSO_MAX},
    sort::sort_by,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

/// Maximum lateness that a class of a realtime rule keeps, 1 s in ticks.
pub const REALTIME: u64 = span(NSEC_PER_SEC);

/// Minimum lateness that a guaranteed minimum compensates, 100 ms in ticks.
pub const FLOOR: u64 = span(100 * NSEC_PER_MSEC);

/// Window and maximum debt of a pool, 100 ms in ticks.
pub const POOL: u64 = span(100 * NSEC_PER_MSEC);

/// Maximum interval at which a borrower checks the pool for tokens, 1 s in ticks.
pub const LATER_MAX: u64 = span(NSEC_PER_SEC);

/// Returns the unit that a rate in `unit` counts under `model`.
fn rate_unit(unit: Unit, model: CostModel) -> RateUnit {
    match (unit, model) {
        (Unit::Bytes, _) => RateUnit::Bytes,
        (Unit::Plain, CostModel::Pages) => RateUnit::Pages,
        (Unit::Plain, CostModel::Rpcs) | (Unit::Requests, _) => RateUnit::Requests,
    }
}

/// Guaranteed minimum of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Minimum {
    /// Rate and depth.
    pub meter: RateDepth,
}

impl Minimum {
    /// Returns the maximum credit of the bucket, and its maximum debt, ticks.
    #[inline]
    pub fn window(&self) -> u64 {
        self.meter.window.max(FLOOR)
    }
}

/// Rule with its values in ticks.
#[derive(Clone, Copy, Debug)]
pub struct CompiledRule {
    /// Identifier of the rule.
    pub id: u32,
    /// Name of the rule.
    pub name: Name,
    /// Rate of the rule, as written.
    pub rate: Rate,
    /// Rate and depth of the rule.
    pub meter: RateDepth,
    /// Maximum lateness that its classes keep, ticks.
    pub late: u64,
    /// Time by which lateness advances the deadlines of its classes among classes with tokens,
    /// ticks. Nonzero only for realtime rules, because lost time is then made up for at the expense
    /// of other classes.
    pub lead: u64,
    /// Rate and depth of the guaranteed minimum, which the classes of the rule share.
    pub floor: Option<Minimum>,
    /// True if its classes borrow from the pool.
    pub borrow: bool,
    /// True if its requests are charged to the pool.
    pub pooled: bool,
    also: [u32; ALSO_MAX],
    alsos: u8,
}

impl CompiledRule {
    /// Returns the charge to a class's bucket for a request that costs `cost`.
    #[inline]
    pub fn charge(&self, cost: Cost) -> Charge {
        self.meter.charge(cost)
    }

    /// Returns the unit that the rate counts.
    pub const fn count(&self) -> RateUnit {
        self.meter.count()
    }

    /// Returns the maximum credit of a bucket that several parts or classes share, ticks.
    #[inline]
    pub const fn shared_window(&self) -> u64 {
        self.meter.window.saturating_add(self.late)
    }

    /// Returns the indices of the rules to whose buckets a request is charged as well.
    #[inline]
    pub fn also(&self) -> &[u32] {
        self.also.get(..usize::from(self.alsos)).unwrap_or_default()
    }

    /// Returns a hash of the rule, which changes of the rule preserve.
    pub const fn hash(&self) -> u64 {
        avalanche(self.id as u64)
    }
}

/// Rules, compiled.
///
/// # Invariants
///
/// The compiled rules are in the order of the rules. `ids` contains the identifiers in ascending
/// order, with the indices.
pub struct RulePlan {
    rules: mem::Shared<RuleSet>,
    compiled: GrowingList<CompiledRule>,
    ids: GrowingList<(u32, u32)>,
    pools: [Option<Pace>; COUNTS],
    /// Maximum number of idle classes.
    pub idle_max: usize,
    /// Maximum number of consecutive dispatches under rules with a minimum before another dispatch.
    pub floor_ratio: u32,
    overload: Overload,
}

impl RulePlan {
    /// Creates the plan for `rules` under `config`; may sleep.
    pub fn new(rules: mem::Shared<RuleSet>, config: &Config) -> Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let depth = tunables.depth.get();
        let unit = |rate: Rate| rate_unit(rate.unit(), tunables.cost_model);
        let default = rules.default_index();
        let mut compiled = GrowingList::with_capacity(rules.len() as usize)?;
        let mut ids = GrowingList::with_capacity(rules.len() as usize)?;
        let (mut sums, mut borrowers) = ([0u64; COUNTS], [false; COUNTS]);
        for index in 0..rules.len() {
            let rule = rules.rule(index).ok_or(NoMemory)?;
            let limits: &RuleLimits = &rule.limits;
            let meter = RateDepth::new(limits.rate, unit(limits.rate), depth, limits.burst);
            let pooled = index != default;
            if pooled {
                if let Some(sum) = sums.get_mut(meter.count() as usize) {
                    sum.count(limits.rate.per_second());
                }
                if let Some(borrower) = borrowers.get_mut(meter.count() as usize) {
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
            compiled.push(CompiledRule {
                id: rule.id,
                name: rule.name,
                rate: limits.rate,
                meter,
                late: if limits.realtime { REALTIME } else { LATE },
                lead: if limits.realtime { REALTIME } else { 0 },
                floor: limits.minrate.map(|rate| Minimum {
                    meter: RateDepth::new(rate, unit(rate), depth, None),
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
            compiled,
            ids,
            pools,
            idle_max: tunables.cache_size.get() as usize,
            floor_ratio: tunables.floor_ratio.get(),
            overload: tunables.overload,
        })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Returns the compiled rule `index`.
    #[inline]
    pub fn compiled(&self, index: u32) -> Option<&CompiledRule> {
        self.compiled.as_slice().get(index as usize)
    }

    /// Returns the time, ticks, by which a class defers to other classes with tokens after a
    /// request of `span`. Lateness within the rest of the span is compensated, so that a class that
    /// waits less for its turn gets its whole rate.
    #[inline]
    pub const fn deferral(&self, span: u64) -> u64 {
        match self.overload {
            Overload::Rate => span.saturating_sub(span / 4),
            Overload::Equal => 0,
        }
    }

    /// Returns the identifier of rule `index`.
    pub fn id_of(&self, index: u32) -> Option<u32> {
        self.compiled(index).map(|compiled| compiled.id)
    }

    /// Returns the index of the rule with `id`.
    pub fn index_of(&self, id: u32) -> Option<u32> {
        let ids = self.ids.as_slice();
        let at = ids.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        ids.get(at).map(|&(_, index)| index)
    }

    /// Returns the charge to the pool of `count` for a request that costs `cost`; `None` if no rule
    /// borrows from it.
    #[inline]
    pub fn pool_charge(&self, count: RateUnit, cost: Cost) -> Option<Charge> {
        let pace = (*self.pools.get(count as usize)?)?;
        Some(Charge::new(pace, count.of(cost), POOL))
    }
}

/// New rules for a part; clones refer to the same plan.
#[derive(Clone)]
pub struct Update(mem::Shared<RulePlan>);

impl Update {
    /// Creates an update to `rules` for parts that were started with `config`; may sleep.
    pub fn new(rules: mem::Shared<RuleSet>, config: &Config) -> Result<Self, NoMemory> {
        Ok(Self(mem::Shared::new(RulePlan::new(rules, config)?)?))
    }

    /// Returns the plan.
    pub fn plan(&self) -> &RulePlan {
        &self.0
    }
}
