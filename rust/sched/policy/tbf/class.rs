// SPDX-License-Identifier: GPL-2.0-only

//! Class of requests: its queue, its buckets, and the state of its front.
//!
//! Only the front, the oldest queued request of the class, is charged. The buckets are
//!
//! - the own bucket of the class. It has a level in the class, and with global rates a second level
//!   that the same class on other partitions shares.
//! - other buckets, one for each rule named in `also=`, which all classes whose rules name it
//!   share.
//! - the minimum, the bucket of the rate that the rule guarantees to all of its classes together.
//!
//! `due` is the instant from which the front is eligible, as far as it is paid.
//!
//! ```text
//!                 set_front               due, all paid               serve
//!  (becomes front) ───► waits for a bucket ───────────► eligible ──────────► (dispatched)
//!                        ▲              │ due, not all paid
//!                        └── advance ◄──┘
//! ```
//!
//! # Lateness
//!
//! The lateness of a backlogged class is the time for which its front has all tokens but is not
//! dispatched. Of each such delay the class keeps up to [`crate::sched::bucket::LATE`], or
//! [`super::plan::REALTIME`], as credit. A pause of at most 10 ms counts as backlogged, so that a
//! client that waits for replies also gets its rate. After a longer pause the depth limits the
//! credit.
//!
//! A bucket that several classes share may keep as much lateness beyond its depth while it is in
//! use. A class that resumes after a pause and finds the bucket with its full credit removes the
//! credit beyond the depth.

use super::{
    context::{Context, SharedBucketRef},
    plan::{CompiledRule, Minimum, RulePlan},
    queue::{ClassSet, TbfKeys},
};
use crate::sched::{
    bucket::{clock, nanoseconds, rate::RateUnit, table::BucketRef, BucketLevel, DEBT_MAX, LATE},
    count::Count,
    item::{Cost, Fifo},
    policy::withheld_time::WithheldUntil,
    rules::ALSO_MAX,
    statistics::stats,
};
use pay::{OWN, POOLED};

mod pay;

stats! {
    /// Counters of a class, and their sums for a rule.
    ClassCounts {
        dispatched: Counter Plain "nrs_*_dispatched_requests_total" "Dispatched requests";
        cost: Counter Cost "nrs_*_served_bytes_total"
            "Bytes of the dispatched requests, except those of rules in requests";
        throttled_ns: Counter Ns "nrs_*_throttled_seconds_total"
            "Time for which the first request of a class was throttled";
        limit_hits: Counter Plain "nrs_*_limit_hits_total" "Number of times a class was throttled";
        forced: Counter Plain "nrs_*_forced_requests_total" "Requests dispatched without queueing";
        borrowed: Counter Plain "nrs_*_borrowed_requests_total"
            "Requests dispatched with borrowed tokens";
    }
}

/// State of a class.
///
/// # Invariants
///
/// - `keys` are the keys that the class has in the queue of its part; the class has one exactly if
///   something is queued.
/// - `paid` names the buckets from which the front has taken; 0 if there is no front.
pub struct TbfClass<F> {
    /// Queued requests.
    pub fifo: F,
    /// Keys in the queue of the part.
    pub keys: TbfKeys,
    /// Generation of the rules against which the class was matched.
    pub generation: u64,
    /// Index of the rule.
    pub rule: u32,
    /// Counters for statistics.
    pub counters: ClassCounts,
    paid: u8,
    pool: u8,
    id: u32,
    window: u64,
    unit: u64,
    level: BucketLevel,
    /// Debt of forced requests, see [`BucketLevel::forced`].
    forced: BucketLevel,
    bucket: BucketRef,
    staged: u64,
    due: u64,
    span: u64,
    emptied: u64,
    kept: WithheldUntil,
    hash: u64,
    others: [SharedBucketRef; ALSO_MAX],
    floor: SharedBucketRef,
    /// Instant at which the minimum has the tokens that the front took; `None` if it took none.
    reserved: Option<u64>,
}

impl<F: Fifo> TbfClass<F> {
    /// Creates a class under rule `rule` with full buckets; `hash` is the hash of its key.
    pub fn new(context: &Context<'_>, hash: u64, rule: u32) -> Self {
        let mut record = Self {
            fifo: F::new(),
            keys: TbfKeys::default(),
            generation: 0,
            rule,
            counters: ClassCounts::ZERO,
            paid: 0,
            pool: 0,
            id: u32::MAX,
            window: 0,
            unit: 0,
            level: BucketLevel::FULL,
            forced: BucketLevel::FULL,
            bucket: BucketRef::NONE,
            staged: 0,
            due: 0,
            span: 0,
            emptied: 0,
            kept: WithheldUntil::NEVER,
            hash,
            others: [SharedBucketRef::NONE; ALSO_MAX],
            floor: SharedBucketRef::NONE,
            reserved: None,
        };
        if let Some(compiled) = context.plan.compiled(rule) {
            record.id = compiled.id;
            record.window = compiled.meter.window;
            record.unit = compiled.meter.unit;
            if context.global {
                record.bucket = context.own_bucket(compiled, hash);
            }
        }
        record.bind(context, rule);
        record
    }

    /// Returns the identifier of the rule.
    pub const fn rule_id(&self) -> u32 {
        self.id
    }

    /// Returns the time at which the own bucket is full, ns.
    pub fn full_at(&self) -> u64 {
        clock(self.level.0.saturating_add(self.window))
    }

    /// Returns the time that it takes to repay the debt of instant `now`, ns.
    pub fn debt(&self, now: u64) -> u64 {
        // Tokens that the front has taken ahead of time are no debt.
        let own = self.paid & (OWN | POOLED) == OWN;
        let ahead = if own { self.span } else { 0 };
        let level = self.level.refund(ahead);
        nanoseconds(level.0.saturating_sub(now))
    }

    /// Assigns the class to rule `rule`, with buckets as full as before; the front must not have
    /// taken any tokens.
    pub fn bind(&mut self, context: &Context<'_>, rule: u32) {
        self.generation = context.plan.rules().generation();
        self.rule = rule;
        let Some(compiled) = context.plan.compiled(rule) else {
            return;
        };
        let now = context.now;
        let meter = &compiled.meter;
        // An unchanged bucket also keeps its lateness.
        if (self.id, self.window, self.unit) != (compiled.id, meter.window, meter.unit) {
            let level = self.level.at_least(context.floor(self.window));
            let forced = self.forced;
            let rescale =
                |level: BucketLevel| level.rescale(forced, now, self.unit, meter.unit, DEBT_MAX);
            (self.level, self.forced) = (rescale(level), rescale(forced));
        }
        if context.global {
            self.bucket = context.own_bucket(compiled, self.hash).after(self.bucket);
        }
        self.id = compiled.id;
        (self.window, self.unit) = (meter.window, meter.unit);
        self.floor = SharedBucketRef::floor(context, compiled, &self.floor);
        let before = core::mem::replace(&mut self.others, [SharedBucketRef::NONE; ALSO_MAX]);
        for (other, &index) in self.others.iter_mut().zip(compiled.also()) {
            if let Some(compiled) = context.plan.compiled(index) {
                let was = before.iter().find(|other| other.id == compiled.id);
                *other = SharedBucketRef::new(context, compiled, was);
            }
        }
    }

    /// Removes credit beyond the depth after a pause.
    fn wake(&mut self, context: &Context<'_>, compiled: &CompiledRule) {
        if context.now.saturating_sub(self.emptied) > LATE {
            self.level = self.level.at_least(context.floor(self.window));
            let (buckets, now) = (context.buckets, context.now);
            if let Some(minimum) = &compiled.floor {
                let (window, depth) = (minimum.window(), minimum.meter.window);
                buckets.drop_lateness(&mut self.floor.bucket, window, depth, now);
            }
            if context.global {
                buckets.drop_lateness(&mut self.bucket, compiled.shared_window(), self.window, now);
            }
            for (other, &index) in self.others.iter_mut().zip(compiled.also()) {
                if let Some(compiled) = context.plan.compiled(index) {
                    let window = compiled.shared_window();
                    buckets.drop_lateness(&mut other.bucket, window, other.window, now);
                }
            }
        }
    }

    /// Stops throttling the front: counts the time throttled, and returns the tokens taken.
    pub fn unstage(&mut self, context: &mut Context<'_>) {
        self.waited(context.now);
        self.refund(context);
    }

    /// Counts the time until `now` for which the front was throttled.
    #[inline]
    fn waited(&mut self, now: u64) {
        let waited = self.due.min(now).saturating_sub(self.staged);
        let throttled = &mut self.counters.throttled_ns;
        throttled.count(nanoseconds(waited));
    }

    /// Returns the time, ms, for which the front was throttled. The front arrived at `arrival` and
    /// is dispatched at `now`, both ns.
    #[inline]
    pub fn withheld(&mut self, arrival: u64, now: u64) -> u32 {
        let (staged, due) = match self.due > self.staged {
            true => (clock(self.staged), clock(self.due)),
            false => (0, 0),
        };
        self.kept.front_goes(staged, due, arrival, now)
    }

    /// Makes a request of `cost` the front, and takes the tokens that can be taken for it; returns
    /// the keys of the class.
    pub fn set_front(&mut self, context: &mut Context<'_>, cost: Cost) -> TbfKeys {
        let keys = self.restage(context, cost);
        if self.due > context.now {
            self.counters.limit_hits.count(1);
        }
        keys
    }

    /// Takes tokens for the front again after [`TbfClass::unstage`]; returns the keys of the class.
    pub fn restage(&mut self, context: &mut Context<'_>, cost: Cost) -> TbfKeys {
        self.paid = 0;
        self.due = 0;
        self.staged = context.now;
        self.advance(context, cost)
    }

    /// Removes the front, which is not dispatched; the next front, if any, costs `next`. Returns
    /// the keys of the class.
    pub fn withdraw(&mut self, context: &mut Context<'_>, next: Option<Cost>) -> TbfKeys {
        self.unstage(context);
        match next {
            Some(next) => self.set_front(context, next),
            None => {
                self.emptied = context.now;
                TbfKeys::default()
            }
        }
    }

    /// Takes more tokens for the front, which costs `cost`; returns the keys of the class.
    pub fn advance(&mut self, context: &mut Context<'_>, cost: Cost) -> TbfKeys {
        let plan = context.plan;
        let Some(compiled) = plan.compiled(self.rule) else {
            return TbfKeys::default();
        };
        self.due = self.pay(context, compiled, cost).max(self.due);
        // Fronts are ordered by eligibility. If lateness counted here for all classes, a class that
        // is never short of tokens would always precede classes that are throttled.
        let floor = match &compiled.floor {
            Some(minimum) => self.reserve(context, minimum, cost),
            None => None,
        };
        let keys = TbfKeys {
            place: ClassSet::Due,
            minimum: compiled.floor.is_some(),
            key: clock(self.due),
            floor: floor.map(|floor| clock(floor.max(self.due))),
        };
        if self.due > context.now {
            return keys;
        }
        TbfKeys {
            place: ClassSet::Ready,
            key: self.deadline(plan, compiled),
            ..keys
        }
    }

    /// Returns the deadline of the class once its front has its tokens, ns.
    #[inline]
    fn deadline(&self, plan: &RulePlan, compiled: &CompiledRule) -> u64 {
        let staged = self.staged.saturating_sub(compiled.lead);
        let turn = staged.saturating_add(plan.deferral(self.span));
        clock(self.due.max(turn))
    }

    /// Returns the keys after the front, which was not due before, has got its tokens.
    pub fn ripe(&self, context: &Context<'_>) -> TbfKeys {
        let compiled = context.plan.compiled(self.rule);
        TbfKeys {
            place: ClassSet::Ready,
            key: compiled.map_or(0, |compiled| self.deadline(context.plan, compiled)),
            ..self.keys
        }
    }

    /// Takes tokens for the front from the minimum ahead of time, so that classes of the rule take
    /// turns. Returns the instant at which the tokens exist.
    #[cold]
    fn reserve(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) -> Option<u64> {
        if self.reserved.is_none() {
            let (window, charge) = (minimum.window(), minimum.meter.charge(cost));
            let bucket = &mut self.floor.bucket;
            self.reserved = context.buckets.take(bucket, window, charge, context.now);
            self.floor.span = charge.span;
        }
        self.reserved
    }

    /// Returns true if the front is eligible.
    #[inline]
    pub fn may_go(&self, context: &Context<'_>) -> bool {
        let compiled = context.plan.compiled(self.rule);
        self.due <= context.now && compiled.is_none_or(|compiled| self.is_paid(compiled))
    }

    /// Charges the front, which costs `cost` and is dispatched; the unpaid part becomes debt.
    #[inline]
    pub fn serve(&mut self, context: &mut Context<'_>, cost: Cost) {
        let plan = context.plan;
        let Some(compiled) = plan.compiled(self.rule) else {
            return;
        };
        let now = context.now;
        if self.due > now || !self.is_paid(compiled) {
            self.owe(context, compiled, cost, self.paid);
            self.counters.forced.count(1);
        }
        self.waited(now);
        // Lateness beyond the limit is lost.
        let late = now.saturating_sub(self.due.max(self.staged));
        let lost = late.saturating_sub(compiled.late);
        self.level = BucketLevel(self.level.0.saturating_add(lost));
        self.leave(context, compiled, cost);
        if self.fifo.is_empty() {
            self.emptied = now;
        }
    }

    /// Prepares the class after a pause; must be called before the first request is staged.
    pub fn begin(&mut self, context: &Context<'_>) {
        if let Some(compiled) = context.plan.compiled(self.rule) {
            self.wake(context, compiled);
        }
    }

    /// Charges a request of `cost` that is not queued, if there are tokens for it; returns true if
    /// there were.
    pub fn pass(&mut self, context: &mut Context<'_>, cost: Cost) -> bool {
        let plan = context.plan;
        let Some(compiled) = plan.compiled(self.rule) else {
            return false;
        };
        if !self.fifo.is_empty() {
            return false;
        }
        self.wake(context, compiled);
        self.paid = 0;
        let due = self.pay(context, compiled, cost);
        if due > context.now || !self.is_paid(compiled) {
            self.refund(context);
            return false;
        }
        self.leave(context, compiled, cost);
        true
    }

    /// Returns the compiled rule of the class after refreshing the buckets of an idle class; `None`
    /// if the class is not limited.
    #[inline]
    fn woken<'p>(&mut self, context: &mut Context<'p>) -> Option<&'p CompiledRule> {
        let compiled = context.plan.compiled(self.rule)?;
        if self.fifo.is_empty() {
            self.wake(context, compiled);
        }
        Some(compiled)
    }

    /// Charges a request of `cost` that is dispatched without queueing and without tokens.
    pub fn force(&mut self, context: &mut Context<'_>, cost: Cost) {
        let Some(compiled) = self.woken(context) else {
            return;
        };
        self.owe(context, compiled, cost, 0);
        context.pool_charge_forced(compiled, cost);
        self.counters.forced.count(1);
        self.count(context, compiled, cost);
    }

    /// Charges the growth of a request by `cost`, without tokens. Buckets that count requests are
    /// not charged.
    #[cold]
    pub fn merge(&mut self, context: &mut Context<'_>, cost: Cost) {
        let Some(compiled) = self.woken(context) else {
            return;
        };
        self.charge_growth_debt(context, compiled, cost);
        if compiled.count() != RateUnit::Requests {
            context.pool_charge_forced(compiled, cost);
            let counters = &mut self.counters;
            counters.cost.count(compiled.count().of(cost));
        }
        let floor = compiled.floor.as_ref();
        if let Some(minimum) = floor.filter(|floor| floor.meter.count() != RateUnit::Requests) {
            self.charge_minimum_debt(context, minimum, cost);
        }
    }

    /// Records a dispatched request of `cost`; charges the pool if the request was not paid
    /// from the pool.
    #[inline]
    fn leave(&mut self, context: &mut Context<'_>, compiled: &CompiledRule, cost: Cost) {
        if self.paid & POOLED != 0 {
            self.counters.borrowed.count(1);
        } else {
            context.pool_charge_forced(compiled, cost);
        }
        self.paid = 0;
        self.count(context, compiled, cost);
    }

    /// Counts a dispatched request.
    #[inline]
    fn count(&mut self, context: &Context<'_>, compiled: &CompiledRule, cost: Cost) {
        let counters = &mut self.counters;
        counters.dispatched.count(1);
        counters.cost.count(compiled.count().of(cost));
        if let Some(minimum) = &compiled.floor {
            self.count_minimum(context, minimum, cost);
        }
    }

    /// Charges the minimum, of which nothing was reserved.
    fn charge_minimum_debt(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) {
        let (bucket, charge) = (&mut self.floor.bucket, minimum.meter.charge(cost));
        let (now, window) = (context.now, minimum.window());
        let bound = now.saturating_add(window);
        context.buckets.owe(bucket, window, charge, bound, now);
    }

    /// Charges a dispatched request to the minimum, unless its class has reserved tokens. Requests
    /// that are dispatched before their turn create debt of at most the window, so that the minimum
    /// holds soon after the device becomes congested.
    #[cold]
    fn count_minimum(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) {
        let (buckets, now, window) = (context.buckets, context.now, minimum.window());
        let bound = now.saturating_add(window);
        match self.reserved.take() {
            None => self.charge_minimum_debt(context, minimum, cost),
            Some(ready) if ready > now => {
                let level = buckets.level(&self.floor.bucket);
                if level.is_some_and(|level| level.0 > bound) {
                    buckets.refund(&self.floor.bucket, self.floor.span);
                }
            }
            Some(_) => {}
        }
    }
}
