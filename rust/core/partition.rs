// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service: its heads, its lock, its timer.
//!
//! # Vocabulary
//!
//! - *Pump*: decide requests while slots are free.
//! - *Kicks*: the targets that got something to submit; they are kicked once the lock is released.
//! - *Cache*: who asked lately and which class that was, so that attributes need not be made anew.
//!
//! # Locking
//!
//! Everything but the fixed fields is under one spinlock with interrupts off. Only a target's lock is
//! taken inside it.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{rcu, Arc, SpinLockIrq},
};

use super::{dispatch::Dispatch, service::Arrival};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        head::{Head, InstanceId, Ticket, MAX_INSTANCES},
        item::{Cost, Item},
        mem::Need,
        policy::{AnyPart, AnyShared, Config, Get, Kind, Part, Passed, View, Way},
        ranges::Table,
        slots::{Pending, Turn},
    },
    sys::{
        misc,
        node::Held,
        rcu::RcuBox,
        timer::{Expire, Timed},
    },
};

/// The part of a policy in the kernel.
pub(crate) type KernelPart = AnyPart<Held>;

/// A head in the kernel; the tag is the configuration that an instance was started with.
pub(crate) type KernelHead = Head<Held, KernelPart, Config>;

/// The shares that a service's worker publishes.
pub(crate) type Published = RcuBox<Table>;

/// Decisions in one lock hold, at most.
const BATCH: u32 = 64;

/// Places of the cache; a power of two.
const CACHE: usize = 16;

/// Everything that the class of a request may depend on.
pub(crate) type Ident = [u64; 5];

/// Who asked, and which class that was.
#[derive(Clone, Copy)]
struct Cached {
    ident: Ident,
    ticket: Ticket,
}

/// One head and its cache.
struct Lane {
    head: KernelHead,
    cache: [Option<Cached>; CACHE],
    /// Nothing may be served before this time (ns); 0: whenever.
    until: u64,
}

impl Lane {
    fn new(fallback: KernelPart, config: Config) -> Self {
        Self {
            head: Head::new(fallback, config),
            cache: [None; CACHE],
            until: 0,
        }
    }

    /// Where the cache has the class of a request. Whoever shares a place with another costs both a
    /// look-up, nothing worse, so the mix is a cheap one.
    fn place([client, ids, low, high, detail]: &Ident) -> usize {
        let sum = client
            .wrapping_add(*ids)
            .wrapping_add(low.wrapping_mul(3))
            .wrapping_add(high.wrapping_mul(5))
            .wrapping_add(*detail);
        (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize & (CACHE - 1)
    }

    /// The class that a request had lately.
    fn cached(&self, place: usize, ident: &Ident) -> Option<Ticket> {
        let cached = self.cache.get(place)?.as_ref()?;
        let pairs = cached.ident.iter().zip(ident);
        let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
        (differ == 0).then_some(cached.ticket)
    }

    /// The class of a request, and whether its part wants memory now.
    fn classify(&mut self, place: usize, ident: &Ident, attrs: &Attrs) -> (Ticket, bool) {
        let ticket = self.head.classify(attrs, misc::now());
        // A class that only stands in for others is asked for again.
        let keep = self.head.is_live(&ticket);
        if let Some(slot) = self.cache.get_mut(place) {
            *slot = keep.then_some(Cached {
                ident: *ident,
                ticket,
            });
        }
        let wants = |part: &mut KernelPart| !part.need().is_empty();
        (ticket, self.head.primary_mut().is_some_and(wants))
    }

    /// Counts a request that goes down without queueing; whether it may, and whether its part wants memory
    /// now. `attrs` is asked only for somebody who did not ask lately.
    #[inline]
    fn pass(
        &mut self,
        ident: &Ident,
        attrs: &impl Fn() -> Attrs,
        cost: Cost,
        way: Way,
    ) -> (Passed, bool) {
        let place = Self::place(ident);
        if let Some(ticket) = self.cached(place, ident) {
            let passed = self.head.pass(&ticket, cost, way, misc::now);
            if passed != Passed::Stale {
                return (passed, false);
            }
        }
        self.pass_anew(place, ident, &attrs(), cost, way)
    }

    /// Like [`Lane::pass`], for somebody who did not ask lately.
    #[cold]
    fn pass_anew(
        &mut self,
        place: usize,
        ident: &Ident,
        attrs: &Attrs,
        cost: Cost,
        way: Way,
    ) -> (Passed, bool) {
        let (ticket, hungry) = self.classify(place, ident, attrs);
        (self.head.pass(&ticket, cost, way, misc::now), hungry)
    }

    /// Queues a request; whether its part wants memory now. `attrs` is asked only for somebody who did not
    /// ask lately.
    fn enqueue(
        &mut self,
        held: Held,
        ident: &Ident,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<bool, Held> {
        let place = Self::place(ident);
        let cached = self
            .cached(place, ident)
            .filter(|ticket| self.head.is_live(ticket));
        let (ticket, hungry) = match cached {
            Some(ticket) => (ticket, false),
            None => self.classify(place, ident, &attrs()),
        };
        self.head.enqueue(held, ticket, attrs, now)?;
        // It may be allowed what was not allowed to those before it.
        self.until = 0;
        Ok(hungry)
    }

    fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }
}

/// What the lock protects.
pub(crate) struct Inner {
    regular: Lane,
    high: Lane,
    turn: Turn,
    /// When a request was last decided, or came to an empty queue (ns).
    moved: u64,
    /// When the timer is to expire (ns); 0 if it is not armed, or expires and waits for the lock.
    armed: u64,
}

impl Inner {
    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Regular => &mut self.regular,
            Priority::High => &mut self.high,
        }
    }

    /// The head of `priority`.
    pub(crate) fn head(&mut self, priority: Priority) -> &mut KernelHead {
        &mut self.lane(priority).head
    }

    /// When the first of the heads that withhold at `now` may serve again, ns.
    fn next_expiry(&self, now: u64) -> Option<u64> {
        [&self.regular, &self.high]
            .into_iter()
            .filter(|lane| lane.head.queued() > 0)
            .map(|lane| lane.until)
            .filter(|until| *until > now)
            .min()
    }

    fn queued(&self) -> u32 {
        self.regular
            .head
            .queued()
            .saturating_add(self.high.head.queued())
    }
}

/// Targets to kick, as bits.
#[derive(Clone, Copy)]
#[must_use = "what was decided waits for a kick"]
pub(crate) struct Kicks(u64);

impl Kicks {
    /// None.
    pub(crate) const fn none() -> Self {
        Self(0)
    }

    /// Adds target `index`.
    pub(crate) fn add(&mut self, index: u16) {
        self.0 |= 1u64.wrapping_shl(index.into());
    }

    /// These and those.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Has the targets submit what they got. To be called without locks.
    pub(crate) fn kick(self, dispatch: &Dispatch) {
        let mut left = self.0;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            if let Some(target) = dispatch.target(index as u16) {
                target.kick();
            }
        }
    }
}

/// One partition of a service.
#[pin_data]
pub(crate) struct Partition {
    index: u16,
    dispatch: Arc<Dispatch>,
    published: Arc<Published>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Partition {
    /// Partition `index`, with a fallback for each head, made by `config`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        index: u16,
        dispatch: Arc<Dispatch>,
        published: Arc<Published>,
        config: Config,
    ) -> Result<Arc<Timed<Self>>> {
        let part = || {
            let shared = AnyShared::new(&config, misc::random())?;
            KernelPart::new(&config, misc::random(), &shared)
        };
        let regular = Lane::new(part().map_err(|_| ENOMEM)?, config);
        let high = Lane::new(part().map_err(|_| ENOMEM)?, config);
        Arc::pin_init(
            Timed::new(pin_init!(Self {
                index,
                dispatch,
                published,
                inner <- new_spinlock_irq!(Inner {
                    regular,
                    high,
                    turn: Turn::new(),
                    moved: 0,
                    armed: 0,
                }, "nrs_partition"),
            })),
            GFP_KERNEL,
        )
    }

    /// Takes out instances that have stopped.
    pub(crate) fn reap(&self) {
        for priority in [Priority::Regular, Priority::High] {
            // Each is dropped here, without the lock.
            while self.with(|inner| inner.head(priority).reap()).is_some() {}
        }
    }

    /// Instances on the head of `priority`, for work that lets go of the lock in between.
    pub(crate) fn instances(&self, priority: Priority) -> impl Iterator<Item = InstanceId> {
        self.instances_if(priority, |_| true)
    }

    /// Those of policy `kind`.
    pub(crate) fn instances_of(
        &self,
        priority: Priority,
        kind: Kind,
    ) -> impl Iterator<Item = InstanceId> {
        self.instances_if(priority, move |config| config.kind() == kind)
    }

    fn instances_if(
        &self,
        priority: Priority,
        fits: impl Fn(&Config) -> bool,
    ) -> impl Iterator<Item = InstanceId> {
        let mut ids = [None; MAX_INSTANCES];
        self.with(|inner| {
            let found = inner.head(priority).instances();
            for (id, status) in ids.iter_mut().zip(found.filter(|found| fits(found.tag))) {
                *id = Some(status.id);
            }
        });
        ids.into_iter().flatten()
    }

    /// Runs `f` with the lock held.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock())
    }
}

/// What [`Timed::arrive`] answers.
pub(crate) struct Arrived {
    /// The request, if it goes down at once; else it is queued.
    pub(crate) passed: Option<Held>,
    /// Targets to kick.
    pub(crate) kicks: Kicks,
    /// A part wants memory for new classes.
    pub(crate) hungry: bool,
    /// A slot was taken and given back: somebody may wait for it.
    pub(crate) freed: bool,
}

impl Timed<Partition> {
    /// Takes a request: it goes down at once if it must, or if it may and nobody waits; else it is
    /// queued.
    pub(crate) fn arrive(
        &self,
        mut held: Held,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> Arrived {
        let cost = held.cost();
        let priority = held.account().priority;
        held.account_mut().home = self.index;

        let mut inner = self.inner.lock();
        let lane = inner.lane(priority);
        // Read under the lock: whoever drains has set it before it took the lock.
        let forced = arrival.must_pass || arrival.is_draining();
        let slot = !forced
            && arrival.may_pass
            && self.dispatch.is_calm()
            && self.dispatch.take_both(priority, arrival.target);
        if forced {
            // No slot: should its device hang, it must not keep one from others.
            arrival.target.charge();
        }
        let mut hungry = false;
        if slot || forced {
            let way = if forced {
                Way::Forced
            } else {
                Way::Opportunity
            };
            let passed;
            (passed, hungry) = lane.pass(&arrival.ident, attrs, cost, way);
            if forced || passed != Passed::Refused {
                held.account_mut().slot = slot;
                held.account_mut().placed = true;
                drop(inner);
                if forced {
                    arrival.client.count_forced();
                }
                return Arrived {
                    passed: Some(held),
                    kicks: Kicks::none(),
                    hungry,
                    freed: false,
                };
            }
            arrival.target.put();
            self.dispatch.put(priority);
        }

        let now = misc::now();
        held.hold(now);
        arrival.client.count_queued();
        match lane.enqueue(held, &arrival.ident, attrs, now) {
            Ok(more) => hungry |= more,
            Err(held) => {
                // The fallback takes everything, so this does not happen; should it, the request goes
                // down.
                drop(inner);
                arrival.client.count_submitted();
                return Arrived {
                    passed: Some(held),
                    kicks: Kicks::none(),
                    hungry,
                    freed: slot,
                };
            }
        }
        if inner.queued() == 1 {
            inner.moved = now;
        }
        self.dispatch.set_pending(self.index);
        let kicks = self.pump(&mut inner, now);
        Arrived {
            passed: None,
            kicks,
            hungry,
            freed: slot,
        }
    }

    /// Counts the end of a request that was queued here; with `pump`, decides more.
    pub(crate) fn stop(
        &self,
        priority: Priority,
        ticket: &Ticket,
        cost: Cost,
        pump: bool,
    ) -> Kicks {
        let now = misc::now();
        let mut inner = self.inner.lock();
        inner.head(priority).stop(ticket, cost, now);
        if pump {
            self.pump(&mut inner, now)
        } else {
            Kicks::none()
        }
    }

    /// Decides requests while slots are free.
    pub(crate) fn decide_more(&self) -> Kicks {
        let now = misc::now();
        let mut inner = self.inner.lock();
        self.pump(&mut inner, now)
    }

    /// Decides requests after a change of what holds them back: heads that withhold are asked again.
    pub(crate) fn reconsider(&self) -> Kicks {
        let now = misc::now();
        let mut inner = self.inner.lock();
        inner.regular.until = 0;
        inner.high.until = 0;
        self.pump(&mut inner, now)
    }

    /// Decides everything that is queued, whether or not slots are free, a batch at a time.
    pub(crate) fn drain(&self) {
        let mut left = self.with(|inner| inner.queued());
        while left > 0 {
            let now = misc::now();
            let batch = left.min(BATCH);
            let mut kicks = Kicks::none();
            {
                let mut inner = self.inner.lock();
                for _ in 0..batch {
                    if !self.decide(&mut inner, Priority::High, now, true, &mut kicks)
                        && !self.decide(&mut inner, Priority::Regular, now, true, &mut kicks)
                    {
                        break;
                    }
                }
                if inner.queued() == 0 {
                    self.dispatch.clear_pending(self.index);
                }
            }
            kicks.kick(&self.dispatch);
            left = left.saturating_sub(batch);
            misc::cond_resched();
        }
    }

    /// Whether requests that may be served have been waiting for `stall` (ns) without one being decided; then
    /// a batch of them is sent down, whether or not slots are free.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let now = misc::now();
        let mut kicks = Kicks::none();
        let stalled = {
            let mut inner = self.inner.lock();
            let waits = inner.regular.has_work(now) || inner.high.has_work(now);
            let stalled = waits && now.saturating_sub(inner.moved) >= stall;
            if stalled {
                let moved = inner.moved;
                for _ in 0..BATCH {
                    if !self.decide(&mut inner, Priority::High, now, true, &mut kicks)
                        && !self.decide(&mut inner, Priority::Regular, now, true, &mut kicks)
                    {
                        break;
                    }
                }
                // Nothing moved by itself.
                inner.moved = moved;
                if inner.queued() == 0 {
                    self.dispatch.clear_pending(self.index);
                }
            }
            stalled
        };
        kicks.kick(&self.dispatch);
        stalled
    }

    fn pump(&self, inner: &mut Inner, now: u64) -> Kicks {
        let mut kicks = Kicks::none();
        let mut decided = 0;
        let mut pending = Pending {
            high: inner.high.has_work(now),
            regular: inner.regular.has_work(now),
        };
        while decided < BATCH {
            let limits = self.dispatch.limits();
            let Some(priority) = inner.turn.first(pending, self.dispatch.pool(), &limits) else {
                break;
            };
            if !self.dispatch.take(priority) {
                break;
            }
            if self.decide(inner, priority, now, false, &mut kicks) {
                inner.turn.served(priority);
                decided = decided.wrapping_add(1);
                if !inner.lane(priority).has_work(now) {
                    pending = pending.without(priority);
                }
            } else {
                self.dispatch.put(priority);
                pending = pending.without(priority);
            }
        }
        if inner.queued() == 0 {
            self.dispatch.clear_pending(self.index);
        }
        // Whichever head withholds for the shorter time; a head that may serve waits for a slot.
        if let Some(until) = inner.next_expiry(now).filter(|until| *until != inner.armed) {
            inner.armed = until;
            self.arm(until);
        }
        kicks
    }

    /// Takes one request out of a head and gives it to its target. Without `force` the caller has taken a
    /// slot for it, which the request keeps; with it, the request goes without.
    fn decide(
        &self,
        inner: &mut Inner,
        priority: Priority,
        now: u64,
        force: bool,
        kicks: &mut Kicks,
    ) -> bool {
        let lane = inner.lane(priority);
        let guard = rcu::read_lock();
        let view = View {
            now,
            force,
            table: self.published.get(&guard),
        };
        let (mut held, ticket) = match lane.head.get(&view) {
            Get::Item(found) => found,
            Get::Empty => return false,
            Get::Throttled { until } => {
                lane.until = until;
                return false;
            }
        };
        lane.until = 0;
        inner.moved = now;
        held.account_mut().ticket = Some(ticket);
        let index = held.account().target;
        if let Some(target) = self.dispatch.target(index) {
            if target.place(held, &self.dispatch, force) {
                kicks.add(index);
            }
        }
        true
    }
}

impl Expire for Partition {
    /// What was withheld may be served now.
    fn expired(timed: &Timed<Self>) {
        let now = misc::now();
        let kicks = {
            let mut inner = timed.inner.lock();
            inner.armed = 0;
            timed.pump(&mut inner, now)
        };
        kicks.kick(&timed.dispatch);
    }
}
