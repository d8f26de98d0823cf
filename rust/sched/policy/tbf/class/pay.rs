// SPDX-License-Identifier: GPL-2.0-only

//! Payment for a front: from every bucket, or from none.
//!
//! A front first takes from the bucket with the longest delay, ahead of time, and waits until that
//! token exists. Then it takes from the other buckets if all of them have enough, else again from
//! the bucket with the longest delay. So a front holds no tokens of a bucket while it waits for
//! another bucket, except for tokens that already exist. Each front changes its order in the queue
//! at most four times. Classes or partitions that wait for the same bucket get tokens in the order
//! of their requests. When rules change, the tokens that a front has taken are returned.

use super::{CompiledRule, Context, SharedBucketRef, TbfClass};
use crate::sched::{
    bucket::{rate::RateUnit, Charge, DEBT_MAX},
    item::{Cost, Fifo},
    policy::tbf::plan::{LATER_MAX, POOL},
};

/// Bit of the own bucket.
pub(super) const OWN: u8 = 1;
/// Bit of the own bucket paid by the pool.
pub(super) const POOLED: u8 = 2;
/// Bit of the first of the other buckets.
const OTHER: u8 = 4;

/// Returns the bit of the other bucket number `index`.
#[inline]
const fn other_bit(index: usize) -> u8 {
    OTHER.wrapping_shl(index as u32)
}

impl<F: Fifo> TbfClass<F> {
    /// Returns the instant from which on credit counts in the class's own level.
    #[inline]
    fn local_floor(&self, context: &Context<'_>, compiled: &CompiledRule) -> u64 {
        context.floor(self.window.max(compiled.late))
    }

    /// Returns the instant at which the own bucket or the pool has enough, and which of both.
    fn own_ready(
        &mut self,
        context: &mut Context<'_>,
        compiled: &CompiledRule,
        charge: Charge,
        cost: Cost,
    ) -> Own {
        let mut ready = self
            .level
            .ready(self.local_floor(context, compiled), charge);
        if context.global {
            let (window, now) = (compiled.shared_window(), context.now);
            let global = context.buckets.ready(&mut self.bucket, window, charge, now);
            ready = ready.max(global.unwrap_or(0));
        }
        if !compiled.borrow || ready <= context.now {
            return Own::Paid(ready);
        }
        let soon = context.now.saturating_add(POOL);
        match context.pool_ready(compiled, cost) {
            Some(pool) if pool < ready && pool <= soon => Own::Borrowed(pool),
            // The pause equals the time already waited, so that a long wait takes few checks.
            Some(_) if ready > soon => {
                let waited = context.now.saturating_sub(self.staged);
                let pause = waited.clamp(POOL, LATER_MAX);
                Own::Later(ready.min(context.now.saturating_add(pause)))
            }
            _ => Own::Paid(ready),
        }
    }

    /// Takes from the own bucket; returns the instant at which the tokens exist.
    #[inline]
    fn own_take(&mut self, context: &Context<'_>, compiled: &CompiledRule, charge: Charge) -> u64 {
        let floor = self.local_floor(context, compiled);
        let mut ready = self.level.ready(floor, charge);
        self.level = self.level.take(floor, charge);
        if context.global {
            let (window, now) = (compiled.shared_window(), context.now);
            let global = context.buckets.take(&mut self.bucket, window, charge, now);
            ready = ready.max(global.unwrap_or(0));
        }
        self.paid |= OWN;
        self.span = charge.span;
        ready
    }

    /// Takes from the pool instead of the own bucket; returns the instant at which the tokens
    /// exist.
    fn borrow(&mut self, context: &mut Context<'_>, compiled: &CompiledRule, cost: Cost) -> u64 {
        let Some((ready, span)) = context.pool_take(compiled, cost) else {
            return self.own_take(context, compiled, compiled.charge(cost));
        };
        self.paid |= OWN | POOLED;
        self.span = span;
        self.pool = compiled.count() as u8;
        ready
    }

    /// Returns true if the front is fully paid; `compiled` is that of its rule.
    #[inline]
    pub fn is_paid(&self, compiled: &CompiledRule) -> bool {
        let others = compiled.also().len();
        let all = OWN | other_bit(others).wrapping_sub(OTHER);
        self.paid & !POOLED == all
    }

    /// Takes for a request of `cost` from the bucket with the longest delay, or from all unpaid
    /// buckets if there is no delay. Returns the instant at which the tokens exist.
    #[inline]
    pub(super) fn pay(
        &mut self,
        context: &mut Context<'_>,
        compiled: &CompiledRule,
        cost: Cost,
    ) -> u64 {
        if !compiled.also().is_empty() || compiled.borrow {
            self.pay_some(context, compiled, cost)
        } else if self.paid & OWN == 0 {
            self.own_take(context, compiled, compiled.charge(cost))
        } else {
            context.now
        }
    }

    /// Takes as [`TbfClass::pay`] does, under a rule that borrows or names other rules.
    #[inline(never)]
    fn pay_some(&mut self, context: &mut Context<'_>, compiled: &CompiledRule, cost: Cost) -> u64 {
        let own = if self.paid & OWN == 0 {
            Some(self.own_ready(context, compiled, compiled.charge(cost), cost))
        } else {
            None
        };
        let mut last = own.as_ref().map_or(0, Own::ready);
        let mut slowest = None;
        for (index, &rule) in compiled.also().iter().enumerate() {
            let Some((other, compiled)) = self.unpaid(context, index, rule) else {
                continue;
            };
            let (window, now) = (compiled.shared_window(), context.now);
            let charge = compiled.charge(cost);
            let ready = context
                .buckets
                .ready(&mut other.bucket, window, charge, now);
            if let Some(ready) = ready.filter(|&ready| ready > last) {
                last = ready;
                slowest = Some(index);
            }
        }
        let wait = last > context.now;
        if wait && slowest.is_none() {
            if let Some(own) = own {
                return self.own_pay(context, compiled, cost, own);
            }
        }
        let mut due = 0;
        for (index, &rule) in compiled.also().iter().enumerate() {
            if wait && slowest != Some(index) {
                continue;
            }
            if let Some((other, compiled)) = self.unpaid(context, index, rule) {
                let (window, now) = (compiled.shared_window(), context.now);
                let charge = compiled.charge(cost);
                let ready = context.buckets.take(&mut other.bucket, window, charge, now);
                other.span = charge.span;
                self.paid |= other_bit(index);
                due = due.max(ready.unwrap_or(0));
            }
        }
        if !wait {
            if let Some(own) = own {
                due = due.max(self.own_pay(context, compiled, cost, own));
            }
        }
        due
    }

    /// Takes the own tokens as [`TbfClass::own_ready`] has chosen.
    fn own_pay(
        &mut self,
        context: &mut Context<'_>,
        compiled: &CompiledRule,
        cost: Cost,
        own: Own,
    ) -> u64 {
        match own {
            Own::Paid(_) => self.own_take(context, compiled, compiled.charge(cost)),
            Own::Borrowed(_) => self.borrow(context, compiled, cost),
            Own::Later(soon) => soon,
        }
    }

    /// Returns another rule's bucket, number `index`, if the front has not paid for it yet.
    fn unpaid<'a>(
        &mut self,
        context: &Context<'a>,
        index: usize,
        rule: u32,
    ) -> Option<(&mut SharedBucketRef, &'a CompiledRule)> {
        if self.paid & other_bit(index) != 0 {
            return None;
        }
        Some((self.others.get_mut(index)?, context.plan.compiled(rule)?))
    }

    /// Returns the tokens taken for the front to their buckets.
    pub(super) fn refund(&mut self, context: &mut Context<'_>) {
        if self.paid & POOLED != 0 {
            if let Some(bucket) = context.pools.get(usize::from(self.pool)) {
                context.buckets.refund(bucket, self.span);
            }
        } else if self.paid & OWN != 0 {
            self.level = self.level.refund(self.span);
            context.buckets.refund(&self.bucket, self.span);
        }
        for (index, other) in self.others.iter().enumerate() {
            if self.paid & other_bit(index) != 0 {
                context.buckets.refund(&other.bucket, other.span);
            }
        }
        if self.reserved.take().is_some() {
            context.buckets.refund(&self.floor.bucket, self.floor.span);
        }
        self.paid = 0;
    }

    /// Returns the tokens of a dispatched request of `cost` to the own bucket and to those of
    /// `also=`; there is no front with tokens.
    pub fn refund_dispatched(&mut self, context: &mut Context<'_>, cost: Cost) {
        let Some(compiled) = context.plan.compiled(self.rule) else {
            return;
        };
        self.paid = OWN;
        self.span = compiled.charge(cost).span;
        for (index, &rule) in compiled.also().iter().enumerate() {
            let other = self.others.get_mut(index).zip(context.plan.compiled(rule));
            if let Some((other, compiled)) = other {
                self.paid |= other_bit(index);
                other.span = compiled.charge(cost).span;
            }
        }
        self.refund(context);
    }

    /// Charges the growth of a request to all buckets that do not count requests, as [`Self::owe`]
    /// does.
    pub(super) fn charge_growth_debt(
        &mut self,
        context: &mut Context<'_>,
        compiled: &CompiledRule,
        cost: Cost,
    ) {
        let counts = |compiled: &CompiledRule| compiled.count() == RateUnit::Requests;
        let mut paid = if counts(compiled) { OWN } else { 0 };
        for (index, &rule) in compiled.also().iter().enumerate() {
            if context.plan.compiled(rule).is_some_and(counts) {
                paid |= other_bit(index);
            }
        }
        self.owe(context, compiled, cost, paid);
    }

    /// Charges a request to all buckets except those in `paid`, up to the maximum debt.
    pub(super) fn owe(
        &mut self,
        context: &mut Context<'_>,
        compiled: &CompiledRule,
        cost: Cost,
        paid: u8,
    ) {
        let now = context.now;
        let bound = now.saturating_add(DEBT_MAX);
        if paid & OWN == 0 {
            let charge = compiled.charge(cost);
            let floor = self.local_floor(context, compiled);
            let before = self.level;
            self.level = before.force(floor, charge, bound);
            self.forced = self.forced.forced(before, self.level, now);
            if context.global {
                let window = compiled.shared_window();
                let bucket = &mut self.bucket;
                context.buckets.owe(bucket, window, charge, bound, now);
            }
        }
        for (index, &rule) in compiled.also().iter().enumerate() {
            let other = self.others.get_mut(index).zip(context.plan.compiled(rule));
            if let Some((other, compiled)) = other.filter(|_| paid & other_bit(index) == 0) {
                let (window, charge) = (compiled.shared_window(), compiled.charge(cost));
                let bucket = &mut other.bucket;
                context.buckets.owe(bucket, window, charge, bound, now);
            }
        }
    }
}

/// Source of a front's own tokens, and the instant at which they exist.
enum Own {
    /// The own bucket.
    Paid(u64),
    /// The pool.
    Borrowed(u64),
    /// Neither soon: check again at this instant.
    Later(u64),
}

impl Own {
    fn ready(&self) -> u64 {
        match self {
            Self::Paid(at) | Self::Borrowed(at) | Self::Later(at) => *at,
        }
    }
}
