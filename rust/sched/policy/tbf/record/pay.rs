// SPDX-License-Identifier: GPL-2.0-only

//! How a front is paid for: one token of each bucket, or none.
//!
//! A front takes from the bucket that makes it wait longest, ahead of time, and waits until that token is
//! there. Then it takes from the others if all have some, else again from the one it has to wait for
//! longest. So it holds no token of a bucket while it waits for another one, except for those whose time
//! came; each front is put elsewhere at most four times; and those who wait for the same bucket, classes
//! or partitions, get its tokens in the order in which they asked. When rules change, what a front has
//! taken is given back.

use super::{Context, Gauge, Other, Record};
use crate::sched::{
    bucket::Charge,
    item::{Cost, Fifo},
    policy::tbf::plan::{Count, DEBT_MAX, LATER_MAX, POOL},
};

/// The own bucket is paid for.
pub(super) const OWN: u8 = 1;
/// By the pool.
pub(super) const POOLED: u8 = 2;
/// The first of the other buckets is paid for.
const OTHER: u8 = 4;

/// The bit of another bucket, number `index`.
#[inline]
const fn other_bit(index: usize) -> u8 {
    OTHER.wrapping_shl(index as u32)
}

impl<F: Fifo> Record<F> {
    /// Credit that counts in the class's own level.
    #[inline]
    fn local_floor(&self, context: &Context<'_>, gauge: &Gauge) -> u64 {
        context.floor(self.window.max(gauge.late))
    }

    /// When the own bucket will have enough, and whether that is the pool's doing.
    fn own_ready(
        &mut self,
        context: &mut Context<'_>,
        gauge: &Gauge,
        charge: Charge,
        cost: Cost,
    ) -> Own {
        let mut ready = self.level.ready(self.local_floor(context, gauge), charge);
        if context.global {
            let (window, now) = (gauge.shared_window(), context.now);
            let global = context.buckets.ready(&mut self.seat, window, charge, now);
            ready = ready.max(global.unwrap_or(0));
        }
        if !gauge.borrow || ready <= context.now {
            return Own::Paid(ready);
        }
        let soon = context.now.saturating_add(POOL);
        match context.pool_ready(gauge, cost) {
            Some(pool) if pool < ready && pool <= soon => Own::Borrowed(pool),
            // For as long again as it waited already, so that a long wait takes few looks.
            Some(_) if ready > soon => {
                let waited = context.now.saturating_sub(self.staged);
                let pause = waited.clamp(POOL, LATER_MAX);
                Own::Later(ready.min(context.now.saturating_add(pause)))
            }
            _ => Own::Paid(ready),
        }
    }

    /// Takes from the own bucket; returns when the tokens are there.
    #[inline]
    fn own_take(&mut self, context: &Context<'_>, gauge: &Gauge, charge: Charge) -> u64 {
        let floor = self.local_floor(context, gauge);
        let mut ready = self.level.ready(floor, charge);
        self.level = self.level.take(floor, charge);
        if context.global {
            let (window, now) = (gauge.shared_window(), context.now);
            let global = context.buckets.take(&mut self.seat, window, charge, now);
            ready = ready.max(global.unwrap_or(0));
        }
        self.paid |= OWN;
        self.span = charge.span;
        ready
    }

    /// Takes from the pool in place of the own bucket.
    fn borrow(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost) -> u64 {
        let Some((ready, span)) = context.pool_take(gauge, cost) else {
            return self.own_take(context, gauge, gauge.charge(cost));
        };
        self.paid |= OWN | POOLED;
        self.span = span;
        self.pool = gauge.count() as u8;
        ready
    }

    /// Whether the front is paid for, whose rule has `gauge`.
    #[inline]
    pub fn is_paid(&self, gauge: &Gauge) -> bool {
        let others = gauge.also().len();
        let all = OWN | other_bit(others).wrapping_sub(OTHER);
        self.paid & !POOLED == all
    }

    /// Takes for a request of `cost` from the bucket it has to wait for longest, or from all that are left
    /// if it need not wait; returns when what it took is there.
    #[inline]
    pub(super) fn pay(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost) -> u64 {
        if !gauge.also().is_empty() || gauge.borrow {
            self.pay_some(context, gauge, cost)
        } else if self.paid & OWN == 0 {
            self.own_take(context, gauge, gauge.charge(cost))
        } else {
            context.now
        }
    }

    /// The same under a rule that borrows or names others.
    #[inline(never)]
    fn pay_some(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost) -> u64 {
        let own = if self.paid & OWN == 0 {
            Some(self.own_ready(context, gauge, gauge.charge(cost), cost))
        } else {
            None
        };
        let mut last = own.as_ref().map_or(0, Own::ready);
        let mut slowest = None;
        for (index, &rule) in gauge.also().iter().enumerate() {
            let Some((other, gauge)) = self.unpaid(context, index, rule) else {
                continue;
            };
            let (window, now) = (gauge.shared_window(), context.now);
            let charge = gauge.charge(cost);
            let ready = context.buckets.ready(&mut other.seat, window, charge, now);
            if let Some(ready) = ready.filter(|&ready| ready > last) {
                last = ready;
                slowest = Some(index);
            }
        }
        let wait = last > context.now;
        if wait && slowest.is_none() {
            if let Some(own) = own {
                return self.own_pay(context, gauge, cost, own);
            }
        }
        let mut due = 0;
        for (index, &rule) in gauge.also().iter().enumerate() {
            if wait && slowest != Some(index) {
                continue;
            }
            if let Some((other, gauge)) = self.unpaid(context, index, rule) {
                let (window, now) = (gauge.shared_window(), context.now);
                let charge = gauge.charge(cost);
                let ready = context.buckets.take(&mut other.seat, window, charge, now);
                other.span = charge.span;
                self.paid |= other_bit(index);
                due = due.max(ready.unwrap_or(0));
            }
        }
        if !wait {
            if let Some(own) = own {
                due = due.max(self.own_pay(context, gauge, cost, own));
            }
        }
        due
    }

    /// Takes as [`Record::own_ready`] said.
    fn own_pay(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost, own: Own) -> u64 {
        match own {
            Own::Paid(_) => self.own_take(context, gauge, gauge.charge(cost)),
            Own::Borrowed(_) => self.borrow(context, gauge, cost),
            Own::Later(soon) => soon,
        }
    }

    /// Another rule's bucket, number `index`, that is not paid for yet.
    fn unpaid<'a>(
        &mut self,
        context: &Context<'a>,
        index: usize,
        rule: u32,
    ) -> Option<(&mut Other, &'a Gauge)> {
        if self.paid & other_bit(index) != 0 {
            return None;
        }
        Some((self.others.get_mut(index)?, context.plan.gauge(rule)?))
    }

    /// Gives back what was taken for the front.
    pub(super) fn refund(&mut self, context: &mut Context<'_>) {
        if self.paid & POOLED != 0 {
            if let Some(seat) = context.pools.get(usize::from(self.pool)) {
                context.buckets.refund(seat, self.span);
            }
        } else if self.paid & OWN != 0 {
            self.level = self.level.refund(self.span);
            context.buckets.refund(&self.seat, self.span);
        }
        for (index, other) in self.others.iter().enumerate() {
            if self.paid & other_bit(index) != 0 {
                context.buckets.refund(&other.seat, other.span);
            }
        }
        if self.reserved.take().is_some() {
            context.buckets.refund(&self.floor.seat, self.floor.span);
        }
        self.paid = 0;
    }

    /// Charges what a request has grown by to all buckets that do not count requests, as [`Self::owe`] does.
    pub(super) fn owe_growth(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost) {
        let counts = |gauge: &Gauge| gauge.count() == Count::Requests;
        let mut paid = if counts(gauge) { OWN } else { 0 };
        for (index, &rule) in gauge.also().iter().enumerate() {
            if context.plan.gauge(rule).is_some_and(counts) {
                paid |= other_bit(index);
            }
        }
        self.owe(context, gauge, cost, paid);
    }

    /// Charges a request to all buckets but those in `paid`, up to the bound of debt.
    pub(super) fn owe(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost, paid: u8) {
        let now = context.now;
        let bound = now.saturating_add(DEBT_MAX);
        if paid & OWN == 0 {
            let charge = gauge.charge(cost);
            let floor = self.local_floor(context, gauge);
            let before = self.level;
            self.level = before.force(floor, charge, bound);
            self.forced = self.forced.forced(before, self.level, now);
            if context.global {
                let window = gauge.shared_window();
                let seat = &mut self.seat;
                context.buckets.owe(seat, window, charge, bound, now);
            }
        }
        for (index, &rule) in gauge.also().iter().enumerate() {
            let other = self.others.get_mut(index).zip(context.plan.gauge(rule));
            if let Some((other, gauge)) = other.filter(|_| paid & other_bit(index) == 0) {
                let (window, charge) = (gauge.shared_window(), gauge.charge(cost));
                let seat = &mut other.seat;
                context.buckets.owe(seat, window, charge, bound, now);
            }
        }
    }
}

/// How a front's own tokens are had, and when.
enum Own {
    /// From the own bucket.
    Paid(u64),
    /// From the pool.
    Borrowed(u64),
    /// Neither soon: ask again then.
    Later(u64),
}

impl Own {
    fn ready(&self) -> u64 {
        match self {
            Self::Paid(at) | Self::Borrowed(at) | Self::Later(at) => *at,
        }
    }
}
