// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service: the lock, the timer and the tracepoints around a [`Machine`].
//!
//! # Vocabulary
//!
//! - *Machine*: what the lock protects, which decides ([`crate::sched::partition`]).
//! - *Surroundings*: what the machine needs of the kernel, for one lock hold.
//! - *Kick*: the target got something to submit; it is kicked once the lock is released.
//!
//! # Locking
//!
//! Everything but the fixed fields and tabs is under one spinlock with interrupts off. Only a
//! target's lock is taken inside it.

use core::fmt::Display;

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{rcu, Arc},
};

use super::{
    arrival::Arrival,
    partitions,
    target::{Kick, Target},
};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        head::{Head, InstanceId, MAX_INSTANCES},
        health::Seen,
        item::{Cost, Item},
        mem::{Need, Owned, Shared},
        order::{Forced, Order},
        partition::{
            arrive::{Arrived, Terms, Went},
            decide::{Decided, Leave},
            lane::Lane,
            line::{Found, Line},
            tab::Tabs,
            Admission, Env, Machine, Scheduled, BATCH,
        },
        policy::{AnyPart, AnyShared, Config, Part},
        ranges::Table,
    },
    sys::{
        misc::{self, bug},
        node::{Account, Held},
        rcu::RcuBox,
        series::{new_spinlock_irq, SpinLockIrq},
        timer::{Expire, Timed},
        trace::{self, Life, Shown},
    },
};

/// The part of a policy in the kernel.
pub(crate) type KernelPart = AnyPart<Held>;

/// A head of a partition.
pub(crate) type KernelHead = Head<Held, KernelPart, Config>;

/// What the lock protects; the tag of an instance is the configuration that it was started with.
pub(crate) type Inner = Machine<Held, KernelPart, Config>;

/// The shares that a service's worker publishes, of each head.
pub(crate) struct Published {
    regular: RcuBox<Table>,
    high: RcuBox<Table>,
}

impl Published {
    /// Nothing is published yet.
    pub(crate) fn new() -> Self {
        Self {
            regular: RcuBox::new(),
            high: RcuBox::new(),
        }
    }

    /// Those of the heads of `priority`.
    pub(crate) fn of(&self, priority: Priority) -> &RcuBox<Table> {
        match priority {
            Priority::Regular => &self.regular,
            Priority::High => &self.high,
        }
    }
}

/// Creates a lane with a fallback made by `config`.
#[inline(never)]
fn lane(config: Config) -> Result<Owned<Lane<Held, KernelPart, Config>>> {
    let shared = AnyShared::new(&config, 0, 1).map_err(|_| ENOMEM)?;
    let fallback = KernelPart::new(&config, misc::random(), &shared).map_err(|_| ENOMEM)?;
    Lane::new(fallback, config).map_err(|_| ENOMEM)
}

/// Creates an order table with room for `records`.
#[inline(never)]
fn order_table(records: u32) -> Result<Owned<Order<Held>>> {
    let order = Order::new(records, misc::random());
    order.and_then(Owned::new).map_err(|_| ENOMEM)
}

/// One partition of a service.
#[pin_data]
pub(crate) struct Partition {
    cpt: u16,
    target: Arc<Target>,
    published: Arc<Published>,
    tabs: Shared<Tabs>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Partition {
    /// The partition of `cpt` at `target`, with a fallback for each head, made by `config`, and
    /// room for `records` in its order table.
    pub(crate) fn new(
        cpt: u16,
        target: Arc<Target>,
        published: Arc<Published>,
        config: Config,
        records: u32,
    ) -> Result<Arc<Timed<Self>>> {
        let order = order_table(records)?;
        let (mut regular, high) = (lane(config)?, lane(config)?);
        let tabs = Tabs::new(nr_cpu_ids()).map_err(|_| ENOMEM)?;
        regular.set_tabs(tabs.clone()).map_err(|_| ENOMEM)?;
        Arc::pin_init(
            Timed::new(pin_init!(Self {
                cpt,
                target,
                published,
                tabs,
                inner <- new_spinlock_irq!(
                    Machine::new(regular, high, order, records, misc::now()),
                    "nrs_partition"
                ),
            })),
            GFP_KERNEL,
        )
    }

    /// Its name among the partitions of its service.
    pub(crate) fn home(&self) -> u16 {
        partitions::home(self.target.index(), self.cpt)
    }

    /// Takes out instances that have stopped.
    pub(crate) fn reap(&self) {
        for priority in Priority::ALL {
            // Each is dropped here, without the lock.
            while self.with(|inner| inner.head(priority).reap()).is_some() {}
        }
    }

    /// Instances on the head of `priority`, for work that lets go of the lock in between.
    pub(crate) fn instances(&self, priority: Priority) -> impl Iterator<Item = InstanceId> {
        let mut ids = [None; MAX_INSTANCES];
        self.with(|inner| {
            for (id, status) in ids.iter_mut().zip(inner.head(priority).instances()) {
                *id = Some(status.id);
            }
        });
        ids.into_iter().flatten()
    }

    /// Its CPT.
    pub(crate) const fn cpt(&self) -> u16 {
        self.cpt
    }

    /// Whether it makes progress, as far as one can see.
    pub(crate) fn seen(&self) -> Seen {
        self.with(|inner| inner.seen(misc::now()))
    }

    /// Makes room for `records` in the order table, or leaves no more than that.
    ///
    /// # Errors
    ///
    /// Of more than there is room for: `EBUSY`: the table is in use. `ENOMEM`.
    pub(crate) fn set_records(&self, records: u32) -> Result {
        let mut table = order_table(records);
        let done = self.with(|inner| inner.set_records(table.as_mut().ok(), records));
        if done {
            Ok(())
        } else {
            Err(table.err().unwrap_or(EBUSY))
        }
        // What is not needed is freed without the lock.
    }

    /// Brings the part of the head of `priority` that `find` names, if it is there, the memory that it wants. May sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn feed(
        &self,
        priority: Priority,
        find: impl Fn(&mut KernelHead) -> Option<&mut KernelPart>,
    ) -> Result {
        let need = self.with(|inner| find(inner.head(priority)).map(|part| part.need()));
        let Some(need) = need.filter(|need| !need.is_empty()) else {
            return Ok(());
        };
        let spare = need.allocate().map_err(|_| ENOMEM)?;
        let left = self.with(|inner| match find(inner.head(priority)) {
            Some(part) => part.grow(spare),
            None => spare,
        });
        drop(left);
        Ok(())
    }

    /// Runs `f` with the lock held.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// Runs `f` with the lock held on the head of `priority`, the time, ns, and the shares that were published last.
    pub(crate) fn drive<R>(
        &self,
        priority: Priority,
        f: impl FnOnce(&mut KernelHead, u64, Option<&Table>) -> R,
    ) -> R {
        let guard = rcu::read_lock();
        let table = self.published.of(priority).get(&guard);
        let now = misc::now();
        f(self.inner.lock().head(priority), now, table)
    }

    /// Goes through something that is too long for one lock hold. `take` has the lock and takes as
    /// much as is allowed from where it is told on, and says where to go on, or `None` at the end;
    /// after each lock hold, `then` has what `take` left in `state`, and may sleep.
    ///
    /// # Errors
    ///
    /// That of `then`, which ends it.
    pub(crate) fn walk<S>(
        &self,
        state: &mut S,
        mut take: impl FnMut(&mut S, &mut Inner, u32) -> Option<u32>,
        mut then: impl FnMut(&mut S) -> Result,
    ) -> Result {
        let mut from = Some(0);
        while let Some(slot) = from {
            from = self.with(|inner| take(state, inner, slot));
            then(state)?;
            misc::cond_resched();
        }
        Ok(())
    }

    /// Goes through something like [`Self::walk`], with nothing to do between the lock holds.
    pub(crate) fn sweep(&self, mut take: impl FnMut(&mut Inner, u32) -> Option<u32>) {
        let done = self.walk(&mut (), |(), inner, from| take(inner, from), |()| Ok(()));
        bug!(done.is_err());
    }
}

/// What a machine needs of the kernel, for one lock hold.
struct Surroundings<'a> {
    partition: &'a Timed<Partition>,
    /// The request that arrives, if one does, and whether its client is being drained.
    arrival: Option<(&'a Arrival<'a>, bool)>,
    /// CPU on which it arrives.
    cpu: u16,
    /// What the target got.
    kick: Kick,
}

impl Env<Held, Config> for Surroundings<'_> {
    #[inline]
    fn line(&self) -> &Line {
        self.partition.target.line()
    }

    #[inline]
    fn index(&self) -> u16 {
        self.partition.cpt
    }

    #[inline]
    fn cpu(&self) -> u32 {
        self.cpu.into()
    }

    #[inline]
    fn now(&self) -> u64 {
        misc::now()
    }

    #[inline]
    fn millis(&self) -> u64 {
        misc::millis()
    }

    #[inline]
    fn ratio(&self) -> u32 {
        self.partition.target.ratio()
    }

    fn arm(&mut self, at: u64) {
        self.partition.arm(at);
    }

    #[inline]
    fn with_table<R>(&self, priority: Priority, f: impl FnOnce(Option<&Table>) -> R) -> R {
        let guard = rcu::read_lock();
        f(self.partition.published.of(priority).get(&guard))
    }

    #[inline]
    fn send(&mut self, held: Held) {
        self.kick.add(self.partition.target.send(held));
    }

    fn admit_over(&mut self) -> Admission {
        self.partition.target.admit_any()
    }

    fn admit(&mut self) -> Option<Admission> {
        match self.arrival {
            Some((arrival, false)) => self.partition.target.admit(arrival.reclaims),
            _ => Some(self.admit_over()),
        }
    }

    fn bypass(&mut self, held: Held) {
        self.kick.add(self.partition.target.bypass(held));
    }

    #[inline]
    fn hold(&mut self, held: &mut Held, now: u64) {
        held.hold(now);
        if let Some((arrival, _)) = self.arrival {
            arrival.client.count_queued(held.account().cpu);
        }
    }

    #[inline]
    fn is_traced(&self) -> bool {
        trace::follows()
    }

    #[cold]
    #[inline(never)]
    fn trace_arrival(&self, held: &mut Held, tag: Option<&Config>, attrs: &Attrs, queued: bool) {
        let life = Life::begin();
        held.account_mut().life = life;
        let (Some(id), priority) = (life.id(), held.placement().priority) else {
            return;
        };
        if trace::Enqueue::is_on() {
            let event = trace::Enqueue {
                head: self.event_head(priority, tag),
                jobid: Shown::of(Some(&attrs.jobid)),
                nid: Shown::of(attrs.nid.as_ref().map(|nid| nid as &dyn Display)),
                id,
                bytes: held.cost().bytes,
                offset: held.spot().offset,
                uid: attrs.uid,
                gid: attrs.gid,
                opcode: attrs.opcode,
                queued,
            };
            event.tell();
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_dispatch(
        &self,
        held: &mut Held,
        tag: Option<&Config>,
        now: u64,
        queued: bool,
        slot: bool,
    ) {
        held.account_mut().life.dispatched(now);
        let Some(id) = held.account().life.id() else {
            return;
        };
        if trace::Dispatch::is_on() {
            let event = trace::Dispatch {
                head: self.event_head(held.placement().priority, tag),
                id,
                bytes: held.cost().bytes,
                waited_ns: if queued {
                    now.saturating_sub(held.arrival())
                } else {
                    0
                },
                queued,
                slot,
                slots: self.partition.target.pool().active(),
                limit: self.partition.target.limit(),
            };
            event.tell();
        }
    }

    #[inline]
    fn trace_throttle<'a>(
        &self,
        priority: Priority,
        tag: impl FnOnce() -> Option<&'a Config>,
        now: u64,
        until: u64,
        queued: u32,
    ) {
        if trace::Throttle::is_on() {
            let event = trace::Throttle {
                head: self.event_head(priority, tag()),
                until_ns: until,
                delay_ns: until.saturating_sub(now),
                queued,
            };
            event.tell();
        }
    }
}

impl Surroundings<'_> {
    /// Returns what an event says of a head whose policy has `tag`.
    fn event_head(&self, priority: Priority, tag: Option<&Config>) -> trace::Head<'_> {
        trace::Head {
            service: self.partition.target.label(),
            policy: tag.map_or("", |tag| tag.kind().name()),
            cpt: self.partition.cpt,
            priority,
        }
    }
}

impl Timed<Partition> {
    /// Has a request pass without the lock, as [`Tabs::pass`] does; its admission is noted then.
    #[inline(always)]
    pub(crate) fn pass(&self, held: &mut Held, arrival: &Arrival<'_>) -> Found {
        let plain = arrival.may_pass && !arrival.must_pass && arrival.relation.is_none();
        let regular = held.placement().priority == Priority::Regular;
        if !plain || !regular || trace::follows() {
            return Found::default();
        }
        let (line, pages) = (self.target.line(), held.cost().pages);
        let limits = || self.target.limits();
        let cpu = held.account().cpu.into();
        let ident = arrival.ident.as_ref();
        let found = self.tabs.pass(line, cpu, ident, pages, limits);
        if found.slot {
            held.placement_mut().admission = Admission::Slot;
        }
        found
    }

    /// Takes a request, as [`Machine::arrive`] does. The target is to be kicked.
    pub(crate) fn arrive(
        &self,
        mut held: Held,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> (Arrived<Held>, Kick) {
        held.account_mut().home = self.home();
        let cpu = held.account().cpu;
        let mut inner = self.inner.lock();
        // Read under the lock: whoever drains has set it before it took the lock.
        let draining = arrival.is_draining();
        let forced = arrival.forced(draining);
        let mut env = Surroundings {
            partition: self,
            arrival: Some((arrival, draining)),
            cpu,
            kick: Kick::none(),
        };
        let terms = Terms {
            ident: arrival.ident.as_ref(),
            forced,
            may_pass: arrival.may_pass,
            relation: arrival.relation,
            may_overflow: arrival.may_overflow,
        };
        let arrived = inner.arrive(&mut env, held, &terms, attrs);
        drop(inner);
        if forced != Forced::No && !matches!(arrived.went, Went::Refused(_)) {
            arrival.client.count_forced(cpu);
        }
        (arrived, env.kick)
    }

    /// Charges for what a request has grown by, as [`Machine::merge`] does.
    #[cfg(feature = "elevator")]
    pub(crate) fn merge(&self, attrs: &Attrs, cost: Cost) -> bool {
        let now = misc::now();
        self.with(|inner| inner.merge(attrs, cost, now))
    }

    /// Runs `f` with the lock held and the time at which it was asked for, ns; adds to `kick` what
    /// the target got.
    #[inline]
    fn locked<R>(
        &self,
        kick: &mut Kick,
        f: impl FnOnce(&mut Inner, &mut Surroundings<'_>, u64) -> R,
    ) -> R {
        let now = misc::now();
        let mut env = Surroundings {
            partition: self,
            arrival: None,
            cpu: 0,
            kick: *kick,
        };
        let done = f(&mut self.inner.lock(), &mut env, now);
        *kick = env.kick;
        done
    }

    /// Counts the end of a request and dispatches up to `most`; returns whether
    /// [`Self::settle_all`] has something left.
    pub(crate) fn end(&self, account: &Account, cost: Cost, most: u32, kick: &mut Kick) -> bool {
        let placement = &account.placement;
        self.locked(kick, |inner, env, now| {
            inner.end(env, now, placement, cost, most)
        })
    }

    /// Makes a change in the order table, and carries out what follows; returns like [`Self::end`].
    pub(crate) fn reorder(&self, change: impl FnOnce(&mut Order<Held>), kick: &mut Kick) -> bool {
        self.locked(kick, |inner, env, now| inner.reorder(env, now, change))
    }

    /// Dispatches up to `most` requests while slots are free.
    pub(crate) fn decide_more(&self, most: u32, kick: &mut Kick) -> Decided {
        self.locked(kick, |inner, env, now| inner.decide_more(env, now, most))
    }

    /// Has heads that are throttled asked again, after a change of what throttles them, by whoever
    /// decides next.
    pub(crate) fn reconsider(&self) {
        self.locked(&mut Kick::none(), |inner, env, now| {
            inner.reconsider(env, now);
        });
    }

    /// Brings the order table the memory that it needs; returns whether it needed some. May sleep.
    pub(crate) fn feed_order(&self) -> Result<bool> {
        let need = self.with(|inner| inner.order().need());
        if need.is_empty() {
            return Ok(false);
        }
        let spare = need.allocate().map_err(|_| ENOMEM)?;
        drop(self.with(|inner| inner.order().grow(spare)));
        Ok(true)
    }

    /// Does all that the order table has to have done, letting go of the lock in between. May
    /// sleep.
    pub(crate) fn settle_all(&self) {
        let mut busy = true;
        while busy {
            let mut kick = Kick::none();
            busy = self.locked(&mut kick, |inner, env, now| inner.settle_some(env, now));
            self.target.kick(kick);
            misc::cond_resched();
        }
    }

    /// Dispatches everything that is queued, whether or not slots are free, a batch at a time;
    /// returns whether there was something. Requests that wait for others are dispatched as soon as
    /// those have ended.
    pub(crate) fn drain(&self) -> bool {
        self.with(|inner| inner.order().force_all());
        self.settle_all();
        let mut left = self.with(|inner| inner.queued());
        let any = left > 0;
        while left > 0 {
            let (mut kick, batch) = (Kick::none(), left.min(BATCH));
            self.locked(&mut kick, |inner, env, now| {
                inner.send_down(env, now, batch, Leave::Forced);
            });
            self.target.kick(kick);
            left = left.saturating_sub(batch);
            misc::cond_resched();
        }
        any
    }

    /// Dispatches a batch without slots after a stall of `stall`, ns, as [`Machine::unstall`] does;
    /// returns whether there was one.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let mut kick = Kick::none();
        let stalled = self.locked(&mut kick, |inner, env, now| inner.unstall(env, now, stall));
        self.target.kick(kick);
        stalled
    }
}

impl Expire for Partition {
    /// Requests that were throttled may be eligible now.
    fn expired(timed: &Timed<Self>) {
        let mut kick = Kick::none();
        timed.locked(&mut kick, |inner, env, now| inner.expired(env, now));
        timed.target.kick(kick);
        timed.target.look_after_others(timed.cpt);
    }
}
