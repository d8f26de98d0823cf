// SPDX-License-Identifier: GPL-2.0-only

//! Data that a class needs for one operation: rules, shared buckets and the time.

use super::plan::{CompiledRule, RulePlan, POOL};
use crate::sched::{
    bucket::{
        rate::{RateDepth, COUNTS},
        table::{BucketRef, BucketTable, BucketTag},
    },
    item::Cost,
    rng::avalanche,
};

/// Hash in place of that of a class: the bucket of a rule for all classes whose rules name it in
/// `also=`.
const RULE: u64 = 0;

/// Hash in place of that of a class: the bucket of a rule's guaranteed minimum.
const MINIMUM: u64 = 1;

/// Data that a part lends to a class for one operation.
pub struct Context<'a> {
    /// Rules in effect.
    pub plan: &'a RulePlan,
    /// Buckets outside of classes.
    pub buckets: &'a BucketTable,
    /// References to the pools.
    pub pools: &'a mut [BucketRef; COUNTS],
    /// True if partitions share the buckets of classes.
    pub global: bool,
    /// Value that distinguishes the buckets of this part from those of other parts; 0 if buckets
    /// are shared.
    pub salt: u64,
    /// Current instant.
    pub now: u64,
}

impl Context<'_> {
    /// Returns the instant from which on credit counts in a bucket of `window`.
    #[inline]
    pub fn floor(&self, window: u64) -> u64 {
        self.now.saturating_sub(window)
    }

    /// Returns the reference to the bucket with `hash`, `window` and `unit`.
    fn bucket_ref(&self, hash: u64, window: u64, unit: u64) -> BucketRef {
        let hash = avalanche(hash.wrapping_add(self.salt));
        BucketRef::new(BucketTag::new(hash, window, unit))
    }

    /// Returns the reference to a class's own bucket under `compiled`; `hash` is that of the key,
    /// and is the same under any rule.
    pub fn own_bucket(&self, compiled: &CompiledRule, hash: u64) -> BucketRef {
        self.bucket_ref(hash, compiled.shared_window(), compiled.meter.unit)
    }

    /// Returns the instant at which the pool has enough for a request of `cost`; `None` if no rule
    /// borrows.
    pub fn pool_ready(&mut self, compiled: &CompiledRule, cost: Cost) -> Option<u64> {
        let charge = self.plan.pool_charge(compiled.count(), cost)?;
        let bucket = self.pools.get_mut(compiled.count() as usize)?;
        self.buckets.ready(bucket, POOL, charge, self.now)
    }

    /// Takes tokens for a request of `cost` from the pool; returns the instant at which they exist,
    /// and the span taken.
    pub fn pool_take(&mut self, compiled: &CompiledRule, cost: Cost) -> Option<(u64, u64)> {
        let charge = self.plan.pool_charge(compiled.count(), cost)?;
        let bucket = self.pools.get_mut(compiled.count() as usize)?;
        let ready = self.buckets.take(bucket, POOL, charge, self.now)?;
        Some((ready, charge.span))
    }

    /// Charges a request to the pool without checking the pool's credit.
    #[inline]
    pub fn pool_charge_forced(&mut self, compiled: &CompiledRule, cost: Cost) {
        if !compiled.pooled {
            return;
        }
        let Some(charge) = self.plan.pool_charge(compiled.count(), cost) else {
            return;
        };
        if let Some(bucket) = self.pools.get_mut(compiled.count() as usize) {
            let bound = self.now.saturating_add(POOL);
            self.buckets.force(bucket, POOL, charge, bound, self.now);
        }
    }
}

/// Bucket that classes share: of a rule that the class's rule names in `also=`, or of the minimum
/// of the rule.
#[derive(Clone, Copy)]
pub struct SharedBucketRef {
    /// Location of the bucket.
    pub bucket: BucketRef,
    /// Span that the front has taken, ticks.
    pub span: u64,
    /// Identifier of the rule.
    pub id: u32,
    /// Maximum credit without lateness, ticks.
    pub window: u64,
}

impl SharedBucketRef {
    /// No bucket.
    pub const NONE: Self = Self {
        bucket: BucketRef::NONE,
        span: 0,
        id: u32::MAX,
        window: 0,
    };

    /// Creates the reference to the bucket of the rule of `compiled`; `was` is the previous
    /// reference, if the rule was named before.
    pub fn new(context: &Context<'_>, compiled: &CompiledRule, was: Option<&Self>) -> Self {
        let shared = compiled.shared_window();
        Self::with(context, compiled, RULE, &compiled.meter, shared, was)
    }

    /// Creates the reference to the bucket of the minimum of the rule of `compiled`; `was` is the
    /// previous reference.
    pub fn floor(context: &Context<'_>, compiled: &CompiledRule, was: &Self) -> Self {
        let Some(minimum) = &compiled.floor else {
            return Self::NONE;
        };
        let was = Some(was).filter(|was| was.id == compiled.id);
        let (meter, window) = (&minimum.meter, minimum.window());
        Self::with(context, compiled, MINIMUM, meter, window, was)
    }

    /// Creates the reference to the bucket with `hash` of the rule of `compiled`, which `meter`
    /// fills.
    fn with(
        context: &Context<'_>,
        compiled: &CompiledRule,
        hash: u64,
        meter: &RateDepth,
        shared: u64,
        was: Option<&Self>,
    ) -> Self {
        let bucket = context.bucket_ref(hash ^ compiled.hash(), shared, meter.unit);
        Self {
            bucket: was.map_or(bucket, |was| bucket.after(was.bucket)),
            span: 0,
            id: compiled.id,
            window: meter.window,
        }
    }
}
