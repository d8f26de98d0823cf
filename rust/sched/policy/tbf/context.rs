// SPDX-License-Identifier: GPL-2.0-only

//! The surroundings of a class: rules, shared buckets and the time.

use super::{
    plan::{Gauge, Meter, Plan, COUNTS, POOL},
    shared::{Buckets, Seat, Tag},
};
use crate::sched::{item::Cost, rng::avalanche};

/// In place of the hash of a class: the bucket is for all who name the rule in `also=`.
const RULE: u64 = 0;

/// In place of the hash of a class: the bucket is the minimum of the rule.
const MINIMUM: u64 = 1;

/// What a part lends a class for one operation.
pub struct Context<'a> {
    /// The rules.
    pub plan: &'a Plan,
    /// Buckets outside of classes.
    pub buckets: &'a Buckets,
    /// Seats of the pools.
    pub pools: &'a mut [Seat; COUNTS],
    /// Whether own buckets are shared over partitions.
    pub global: bool,
    /// Tells the buckets of this part from those of others, where they are not shared.
    pub salt: u64,
    /// The instant.
    pub now: u64,
}

impl Context<'_> {
    /// When credit began that counts in a bucket of `window`.
    #[inline]
    pub fn floor(&self, window: u64) -> u64 {
        self.now.saturating_sub(window)
    }

    /// The seat of the bucket with `hash`, of `window` and `unit`.
    fn seat(&self, hash: u64, window: u64, unit: u64) -> Seat {
        let hash = avalanche(hash.wrapping_add(self.salt));
        Seat::new(Tag::new(hash, window, unit))
    }

    /// The seat of the bucket of a class under `gauge` whose key has hash `hash`; the same one under any rule.
    pub fn own_seat(&self, gauge: &Gauge, hash: u64) -> Seat {
        self.seat(hash, gauge.shared_window(), gauge.meter.unit)
    }

    /// When the pool will have enough for a request of `cost`; none if nobody borrows.
    pub fn pool_ready(&mut self, gauge: &Gauge, cost: Cost) -> Option<u64> {
        let charge = self.plan.pool_charge(gauge.count(), cost)?;
        let seat = self.pools.get_mut(gauge.count() as usize)?;
        self.buckets.ready(seat, POOL, charge, self.now)
    }

    /// Takes for a request of `cost` from the pool; returns when the tokens are there, and the span taken.
    pub fn pool_take(&mut self, gauge: &Gauge, cost: Cost) -> Option<(u64, u64)> {
        let charge = self.plan.pool_charge(gauge.count(), cost)?;
        let seat = self.pools.get_mut(gauge.count() as usize)?;
        let ready = self.buckets.take(seat, POOL, charge, self.now)?;
        Some((ready, charge.span))
    }

    /// Charges a request to the pool that did not ask it.
    #[inline]
    pub fn pool_force(&mut self, gauge: &Gauge, cost: Cost) {
        if !gauge.pooled {
            return;
        }
        let Some(charge) = self.plan.pool_charge(gauge.count(), cost) else {
            return;
        };
        if let Some(seat) = self.pools.get_mut(gauge.count() as usize) {
            let bound = self.now.saturating_add(POOL);
            self.buckets.force(seat, POOL, charge, bound, self.now);
        }
    }
}

/// A bucket that classes have together: of a rule that the class's rule names in `also=`, or the minimum of the rule.
#[derive(Clone, Copy)]
pub struct Other {
    /// Where its bucket is.
    pub seat: Seat,
    /// What the front has taken, ticks.
    pub span: u64,
    /// Which rule.
    pub id: u32,
    /// Credit that counts, beside lateness, ticks.
    pub window: u64,
}

impl Other {
    /// None.
    pub const NONE: Self = Self {
        seat: Seat::NONE,
        span: 0,
        id: u32::MAX,
        window: 0,
    };

    /// The bucket of the rule of `gauge`, which was `was` if it was named before.
    pub fn new(context: &Context<'_>, gauge: &Gauge, was: Option<&Self>) -> Self {
        let shared = gauge.shared_window();
        Self::with(context, gauge, RULE, &gauge.meter, shared, was)
    }

    /// The bucket of the minimum of the rule of `gauge`, as [`Other::new`].
    pub fn floor(context: &Context<'_>, gauge: &Gauge, was: &Self) -> Self {
        let Some(minimum) = &gauge.floor else {
            return Self::NONE;
        };
        let was = Some(was).filter(|was| was.id == gauge.id);
        let (meter, window) = (&minimum.meter, minimum.window());
        Self::with(context, gauge, MINIMUM, meter, window, was)
    }

    /// The bucket with `hash`, filled by `meter`, of the rule of `gauge`.
    fn with(
        context: &Context<'_>,
        gauge: &Gauge,
        hash: u64,
        meter: &Meter,
        shared: u64,
        was: Option<&Self>,
    ) -> Self {
        let seat = context.seat(hash ^ gauge.hash(), shared, meter.unit);
        Self {
            seat: was.map_or(seat, |was| seat.after(was.seat)),
            span: 0,
            id: gauge.id,
            window: meter.window,
        }
    }
}
