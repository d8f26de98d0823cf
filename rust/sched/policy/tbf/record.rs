// SPDX-License-Identifier: GPL-2.0-only

//! What is kept for a class: its queue, its buckets, and how far its first request has come.
//!
//! # Vocabulary
//!
//! - *Front*: the class's oldest queued request. Only that one is charged.
//! - *Own bucket*: of the class alone. It has a level in the class, and with global rates a second one that
//!   the class's namesakes on other partitions take from, too.
//! - *Other buckets*: of the rules named in `also=`, one for each such rule, whoever takes from it.
//! - *Due*: the instant from which the front may go, as far as it was paid for.
//! - *Minimum*: the bucket of the rate that the rule guarantees to all of its classes together.
//!
//! ```text
//!                 stage                    due, all paid               serve
//!  (becomes front) ───► waits for one bucket ──────────► may go ──────────────► (gone)
//!                        ▲              │ due, something not paid
//!                        └── advance ◄──┘
//! ```
//!
//! # Lateness
//!
//! A class that has requests queued is *late* by the time that a front with all its tokens waits. Of each
//! wait it keeps [`super::plan::LATE`], or [`super::plan::REALTIME`], as credit. A pause of at most 10 ms
//! counts as having requests queued, so that a client that waits for answers gets its rate, too; after a
//! longer one the depth bounds what is left. A bucket that several take from may keep as much lateness
//! beside its depth, as long as somebody uses it; who comes after a pause and finds it full to that brim takes
//! what is beyond the depth away.

use super::{
    context::{Context, Other},
    plan::{Count, Gauge, Minimum, Plan, DEBT_MAX, LATE},
    queue::{Keys, Place},
    shared::Seat,
};
use crate::sched::{
    bucket::{clock, nanoseconds, Level},
    item::{Cost, Fifo},
    policy::kept::Kept,
    rules::ALSO_MAX,
    statistics::stats,
};
use pay::{OWN, POOLED};

mod pay;

stats! {
    /// Counters of a class, and the sums of those of a rule.
    ClassCounts {
        dispatched: Counter Plain "nrs_*_dispatched_requests_total" "Dispatched requests";
        cost: Counter Cost "nrs_*_served_bytes_total" "Bytes of the dispatched requests, unless the rule counts requests";
        throttled_ns: Counter Ns "nrs_*_throttled_seconds_total" "Time that the first request of a class waited for tokens";
        limit_hits: Counter Plain "nrs_*_limit_hits_total" "Waits of a class for tokens";
        forced: Counter Plain "nrs_*_forced_requests_total" "Requests dispatched without queueing";
        borrowed: Counter Plain "nrs_*_borrowed_requests_total" "Requests charged to unused rates of other rules";
    }
}

/// What is kept for a class.
///
/// # Invariants
///
/// - `keys` are those the class has in the queue of its part; it has one exactly if something is queued.
/// - `paid` says which buckets the front has taken from; nothing if there is no front.
pub struct Record<F> {
    /// Its requests.
    pub fifo: F,
    /// Where it is in the queue.
    pub keys: Keys,
    /// Generation of the rules it was matched against.
    pub generation: u64,
    /// Index of its rule.
    pub rule: u32,
    /// For statistics.
    pub counters: ClassCounts,
    paid: u8,
    pool: u8,
    id: u32,
    window: u64,
    unit: u64,
    level: Level,
    /// See [`Level::forced`].
    forced: Level,
    seat: Seat,
    staged: u64,
    due: u64,
    span: u64,
    emptied: u64,
    kept: Kept,
    hash: u64,
    others: [Other; ALSO_MAX],
    floor: Other,
    /// When the minimum has what the front took of it; none if it took nothing.
    reserved: Option<u64>,
}

impl<F: Fifo> Record<F> {
    /// A class whose key has hash `hash`, under rule `rule`, with full buckets.
    pub fn new(context: &Context<'_>, hash: u64, rule: u32) -> Self {
        let mut record = Self {
            fifo: F::new(),
            keys: Keys::default(),
            generation: 0,
            rule,
            counters: ClassCounts::ZERO,
            paid: 0,
            pool: 0,
            id: u32::MAX,
            window: 0,
            unit: 0,
            level: Level::FULL,
            forced: Level::FULL,
            seat: Seat::NONE,
            staged: 0,
            due: 0,
            span: 0,
            emptied: 0,
            kept: Kept::NEVER,
            hash,
            others: [Other::NONE; ALSO_MAX],
            floor: Other::NONE,
            reserved: None,
        };
        if let Some(gauge) = context.plan.gauge(rule) {
            record.id = gauge.id;
            record.window = gauge.meter.window;
            record.unit = gauge.meter.unit;
            if context.global {
                record.seat = context.own_seat(gauge, hash);
            }
        }
        record.bind(context, rule);
        record
    }

    /// Identifier of its rule.
    pub const fn rule_id(&self) -> u32 {
        self.id
    }

    /// When its own bucket is full, ns.
    pub fn full_at(&self) -> u64 {
        clock(self.level.0.saturating_add(self.window))
    }

    /// How long it would take to pay off what it owes at instant `now`, ns.
    pub fn debt(&self, now: u64) -> u64 {
        // What the front has taken ahead of time is no debt.
        let own = self.paid & (OWN | POOLED) == OWN;
        let ahead = if own { self.span } else { 0 };
        let level = self.level.refund(ahead);
        nanoseconds(level.0.saturating_sub(now))
    }

    /// Puts the class under rule `rule`, with buckets as full as they were; nothing may be paid.
    pub fn bind(&mut self, context: &Context<'_>, rule: u32) {
        self.generation = context.plan.rules().generation();
        self.rule = rule;
        let Some(gauge) = context.plan.gauge(rule) else {
            return;
        };
        let now = context.now;
        let meter = &gauge.meter;
        // What is the same keeps its lateness, too.
        if (self.id, self.window, self.unit) != (gauge.id, meter.window, meter.unit) {
            let level = self.level.at_least(context.floor(self.window));
            let forced = self.forced;
            let rescale =
                |level: Level| level.rescale(forced, now, self.unit, meter.unit, DEBT_MAX);
            (self.level, self.forced) = (rescale(level), rescale(forced));
        }
        if context.global {
            self.seat = context.own_seat(gauge, self.hash).after(self.seat);
        }
        self.id = gauge.id;
        (self.window, self.unit) = (meter.window, meter.unit);
        self.floor = Other::floor(context, gauge, &self.floor);
        let before = core::mem::replace(&mut self.others, [Other::NONE; ALSO_MAX]);
        for (other, &index) in self.others.iter_mut().zip(gauge.also()) {
            if let Some(gauge) = context.plan.gauge(index) {
                let was = before.iter().find(|other| other.id == gauge.id);
                *other = Other::new(context, gauge, was);
            }
        }
    }

    /// After a pause, credit beyond the depth is lost.
    fn wake(&mut self, context: &Context<'_>, gauge: &Gauge) {
        if context.now.saturating_sub(self.emptied) > LATE {
            self.level = self.level.at_least(context.floor(self.window));
            let (buckets, now) = (context.buckets, context.now);
            if let Some(minimum) = &gauge.floor {
                let (window, depth) = (minimum.window(), minimum.meter.window);
                buckets.calm(&mut self.floor.seat, window, depth, now);
            }
            if context.global {
                buckets.calm(&mut self.seat, gauge.shared_window(), self.window, now);
            }
            for (other, &index) in self.others.iter_mut().zip(gauge.also()) {
                if let Some(gauge) = context.plan.gauge(index) {
                    buckets.calm(&mut other.seat, gauge.shared_window(), other.window, now);
                }
            }
        }
    }

    /// The front waits no longer: counts how long it did, and gives back what was taken for it.
    pub fn unstage(&mut self, context: &mut Context<'_>) {
        self.waited(context.now);
        self.refund(context);
    }

    /// Counts the time that the front waited for tokens until `now`.
    #[inline]
    fn waited(&mut self, now: u64) {
        let waited = self.due.min(now).saturating_sub(self.staged);
        let throttled = &mut self.counters.throttled_ns;
        *throttled = throttled.saturating_add(nanoseconds(waited));
    }

    /// For how long the front, which arrived at `arrival` and goes at `now` (both ns), was kept for its rate, ms.
    #[inline]
    pub fn withheld(&mut self, arrival: u64, now: u64) -> u32 {
        let (staged, due) = match self.due > self.staged {
            true => (clock(self.staged), clock(self.due)),
            false => (0, 0),
        };
        self.kept.front_goes(staged, due, arrival, now)
    }

    /// A request of `cost` has become the front: pays what can be paid for it; returns its keys.
    pub fn stage(&mut self, context: &mut Context<'_>, cost: Cost) -> Keys {
        let keys = self.restage(context, cost);
        if self.due > context.now {
            self.counters.limit_hits = self.counters.limit_hits.saturating_add(1);
        }
        keys
    }

    /// The same after [`Record::unstage`].
    pub fn restage(&mut self, context: &mut Context<'_>, cost: Cost) -> Keys {
        self.paid = 0;
        self.due = 0;
        self.staged = context.now;
        self.advance(context, cost)
    }

    /// The front went away without going down; the next one, if there is one, costs `next`. Returns its keys.
    pub fn withdraw(&mut self, context: &mut Context<'_>, next: Option<Cost>) -> Keys {
        self.unstage(context);
        match next {
            Some(next) => self.stage(context, next),
            None => {
                self.emptied = context.now;
                Keys::default()
            }
        }
    }

    /// Pays more for the front, which costs `cost`; returns its keys.
    pub fn advance(&mut self, context: &mut Context<'_>, cost: Cost) -> Keys {
        let plan = context.plan;
        let Some(gauge) = plan.gauge(self.rule) else {
            return Keys::default();
        };
        self.due = self.pay(context, gauge, cost).max(self.due);
        // In the order in which fronts could go. Were lateness counted here for everybody, a class that is
        // never short of tokens would always be ahead of those that wait for theirs.
        let floor = match &gauge.floor {
            Some(minimum) => self.reserve(context, minimum, cost),
            None => None,
        };
        let keys = Keys {
            place: Place::Due,
            minimum: gauge.floor.is_some(),
            key: clock(self.due),
            floor: floor.map(|floor| clock(floor.max(self.due))),
        };
        if self.due > context.now {
            return keys;
        }
        Keys {
            place: Place::Ready,
            key: self.deadline(plan, gauge),
            ..keys
        }
    }

    /// By what the class is ordered once its front has its tokens, ns.
    #[inline]
    fn deadline(&self, plan: &Plan, gauge: &Gauge) -> u64 {
        let staged = self.staged.saturating_sub(gauge.lead);
        let turn = staged.saturating_add(plan.stands_back(self.span));
        clock(self.due.max(turn))
    }

    /// Its keys now that the front, which was not due before, has its tokens.
    pub fn ripe(&self, context: &Context<'_>) -> Keys {
        let gauge = context.plan.gauge(self.rule);
        Keys {
            place: Place::Ready,
            key: gauge.map_or(0, |gauge| self.deadline(context.plan, gauge)),
            ..self.keys
        }
    }

    /// Takes from the minimum for the front, ahead of time, so that classes of the rule take turns; returns when that
    /// is there.
    #[cold]
    fn reserve(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) -> Option<u64> {
        if self.reserved.is_none() {
            let (window, charge) = (minimum.window(), minimum.meter.charge(cost));
            let seat = &mut self.floor.seat;
            self.reserved = context.buckets.take(seat, window, charge, context.now);
            self.floor.span = charge.span;
        }
        self.reserved
    }

    /// Whether the front may go now.
    #[inline]
    pub fn may_go(&self, context: &Context<'_>) -> bool {
        let gauge = context.plan.gauge(self.rule);
        self.due <= context.now && gauge.is_none_or(|gauge| self.is_paid(gauge))
    }

    /// The front, which cost `cost`, goes; what was not paid for becomes debt.
    #[inline]
    pub fn serve(&mut self, context: &mut Context<'_>, cost: Cost) {
        let plan = context.plan;
        let Some(gauge) = plan.gauge(self.rule) else {
            return;
        };
        let now = context.now;
        if self.due > now || !self.is_paid(gauge) {
            self.owe(context, gauge, cost, self.paid);
            self.counters.forced = self.counters.forced.saturating_add(1);
        }
        self.waited(now);
        // Beyond what is kept, lateness is lost.
        let late = now.saturating_sub(self.due.max(self.staged));
        let lost = late.saturating_sub(gauge.late);
        self.level = Level(self.level.0.saturating_add(lost));
        self.leave(context, gauge, cost);
        if self.fifo.is_empty() {
            self.emptied = now;
        }
    }

    /// Becomes active after a pause: to be called before the first request is staged.
    pub fn begin(&mut self, context: &Context<'_>) {
        if let Some(gauge) = context.plan.gauge(self.rule) {
            self.wake(context, gauge);
        }
    }

    /// A request of `cost` that is not queued goes if there are tokens for it; whether it did.
    pub fn pass(&mut self, context: &mut Context<'_>, cost: Cost) -> bool {
        let plan = context.plan;
        let Some(gauge) = plan.gauge(self.rule) else {
            return false;
        };
        if !self.fifo.is_empty() {
            return false;
        }
        self.wake(context, gauge);
        self.paid = 0;
        let due = self.pay(context, gauge, cost);
        if due > context.now || !self.is_paid(gauge) {
            self.refund(context);
            return false;
        }
        self.leave(context, gauge, cost);
        true
    }

    /// Returns the gauge of the class, whose buckets are those of now; `None`: it is not limited.
    #[inline]
    fn woken<'p>(&mut self, context: &mut Context<'p>) -> Option<&'p Gauge> {
        let gauge = context.plan.gauge(self.rule)?;
        if self.fifo.is_empty() {
            self.wake(context, gauge);
        }
        Some(gauge)
    }

    /// A request of `cost` that is not queued goes without tokens.
    pub fn force(&mut self, context: &mut Context<'_>, cost: Cost) {
        let Some(gauge) = self.woken(context) else {
            return;
        };
        self.owe(context, gauge, cost, 0);
        context.pool_force(gauge, cost);
        self.counters.forced = self.counters.forced.saturating_add(1);
        self.count(context, gauge, cost);
    }

    /// A request has grown by `cost`, without tokens. Buckets that count requests do not notice.
    #[cold]
    pub fn merge(&mut self, context: &mut Context<'_>, cost: Cost) {
        let Some(gauge) = self.woken(context) else {
            return;
        };
        self.owe_growth(context, gauge, cost);
        if gauge.count() != Count::Requests {
            context.pool_force(gauge, cost);
            let counters = &mut self.counters;
            counters.cost = counters.cost.saturating_add(gauge.count().of(cost));
        }
        let floor = gauge.floor.as_ref();
        if let Some(minimum) = floor.filter(|floor| floor.meter.count() != Count::Requests) {
            self.owe_minimum(context, minimum, cost);
        }
    }

    /// A request of `cost` goes with what was paid for it; what the pool did not pay for counts there.
    #[inline]
    fn leave(&mut self, context: &mut Context<'_>, gauge: &Gauge, cost: Cost) {
        if self.paid & POOLED != 0 {
            self.counters.borrowed = self.counters.borrowed.saturating_add(1);
        } else {
            context.pool_force(gauge, cost);
        }
        self.paid = 0;
        self.count(context, gauge, cost);
    }

    /// Counts a request that goes.
    #[inline]
    fn count(&mut self, context: &Context<'_>, gauge: &Gauge, cost: Cost) {
        let counters = &mut self.counters;
        counters.dispatched = counters.dispatched.saturating_add(1);
        counters.cost = counters.cost.saturating_add(gauge.count().of(cost));
        if let Some(minimum) = &gauge.floor {
            self.count_minimum(context, minimum, cost);
        }
    }

    /// Charges the minimum, of which nothing was reserved.
    fn owe_minimum(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) {
        let (seat, charge) = (&mut self.floor.seat, minimum.meter.charge(cost));
        let (now, window) = (context.now, minimum.window());
        let bound = now.saturating_add(window);
        context.buckets.owe(seat, window, charge, bound, now);
    }

    /// Charges a request that goes to the minimum, of which its class may have reserved something. Requests that go
    /// before their turn take it into debt by its window at most, so that it holds soon when the device is congested.
    #[cold]
    fn count_minimum(&mut self, context: &Context<'_>, minimum: &Minimum, cost: Cost) {
        let (buckets, now, window) = (context.buckets, context.now, minimum.window());
        let bound = now.saturating_add(window);
        match self.reserved.take() {
            None => self.owe_minimum(context, minimum, cost),
            Some(ready) if ready > now => {
                let level = buckets.level(&self.floor.seat);
                if level.is_some_and(|level| level.0 > bound) {
                    buckets.refund(&self.floor.seat, self.floor.span);
                }
            }
            Some(_) => {}
        }
    }
}
