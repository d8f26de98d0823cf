// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service: the lock, the timer and the tracepoints around a
//! [`PartitionMachine`].
//!
//! # Terms
//!
//! - *Machine*: the state under the lock; makes the decisions ([`crate::sched::partition`]).
//! - *Environment*: the kernel services for the machine during one lock hold ([`KernelEnv`]).
//! - *Pending submission*: records that the target has requests to submit; the target is kicked
//!   after the lock is released ([`PendingSubmission`]).
//!
//! # Locking
//!
//! All state except the fixed fields and the fast path is under one spinlock with interrupts off.
//! Only a target's lock is taken inside it.

use core::fmt::Display;

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{rcu, Arc},
};

use super::{
    arrival::Arrival,
    cpt,
    target::{PendingSubmission, Target},
};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        head::Head,
        health::PartitionHealth,
        item::{Cost, Item},
        mem::{Need, Owned, Shared},
        order::{Forced, Order},
        partition::{
            admit::{AdmissionOutcome, ArrivalEffects, ArrivalTerms},
            decide::{Decided, Leave},
            fast_path::FastPath,
            head_cache::HeadCache,
            slot_pool::{SlotPool, SlotSearch},
            Admission, Env, PartitionMachine, Scheduled, BATCH,
        },
        policy::{AnyPart, AnyShared, Config},
        ranges::RangeTable,
    },
    sys::{
        misc,
        node::{Held, NodeAccount},
        rcu::RcuBox,
        series::{new_spinlock_irq, SpinLockIrq},
        timer::{TimerCallback, WithTimer},
        trace::{self, RequestTrace},
    },
};

/// The part of a policy in the kernel.
pub(crate) type KernelPart = AnyPart<Held>;

/// A head of a partition.
pub(crate) type KernelHead = Head<Held, KernelPart, Config>;

/// State under the lock; the tag of an instance is the configuration that it was started with.
pub(crate) type PartitionState = PartitionMachine<Held, KernelPart, Config>;

/// The shares that a service's worker publishes, for each head.
pub(crate) struct PublishedShares {
    regular: RcuBox<RangeTable>,
    high: RcuBox<RangeTable>,
}

impl PublishedShares {
    /// Creates empty tables.
    pub(crate) fn new() -> Self {
        Self {
            regular: RcuBox::new(),
            high: RcuBox::new(),
        }
    }

    /// Returns the shares of the heads of `priority`.
    pub(crate) fn of(&self, priority: Priority) -> &RcuBox<RangeTable> {
        match priority {
            Priority::Regular => &self.regular,
            Priority::High => &self.high,
        }
    }
}

/// Creates a head cache with a fallback made by `config`.
#[inline(never)]
fn head_cache(config: Config) -> Result<Owned<HeadCache<Held, KernelPart, Config>>> {
    let shared = AnyShared::new(&config, 0, 1).map_err(|_| ENOMEM)?;
    let fallback = KernelPart::new(&config, misc::random(), &shared).map_err(|_| ENOMEM)?;
    HeadCache::new(fallback, config).map_err(|_| ENOMEM)
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
    published: Arc<PublishedShares>,
    fast_path: Shared<FastPath>,
    #[pin]
    inner: SpinLockIrq<PartitionState>,
}

impl Partition {
    /// Creates the partition of `cpt` at `target`. Each head has a fallback made by `config`; the
    /// order table has room for `records`.
    pub(crate) fn new(
        cpt: u16,
        target: Arc<Target>,
        published: Arc<PublishedShares>,
        config: Config,
        records: u32,
    ) -> Result<Arc<WithTimer<Self>>> {
        let order = order_table(records)?;
        let (mut regular, high) = (head_cache(config)?, head_cache(config)?);
        let fast_path = FastPath::new(nr_cpu_ids()).map_err(|_| ENOMEM)?;
        regular
            .set_fast_path(fast_path.clone())
            .map_err(|_| ENOMEM)?;
        Arc::pin_init(
            WithTimer::new(pin_init!(Self {
                cpt,
                target,
                published,
                fast_path,
                inner <- new_spinlock_irq!(
                    PartitionMachine::new(regular, high, order, records, misc::now()),
                    "nrs_partition"
                ),
            })),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the identifier of the partition in its service.
    pub(crate) fn home(&self) -> u16 {
        cpt::home(self.target.index(), self.cpt)
    }

    /// Returns the CPT of the partition.
    pub(crate) const fn cpt(&self) -> u16 {
        self.cpt
    }

    /// Returns the observed progress of the partition.
    pub(crate) fn seen(&self) -> PartitionHealth {
        self.with(|inner| inner.seen(misc::now()))
    }

    /// Runs `f` with the lock held.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut PartitionState) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// Runs `f` under the lock with the head of `priority`, the time, ns, and the latest published
    /// shares.
    pub(crate) fn drive<R>(
        &self,
        priority: Priority,
        f: impl FnOnce(&mut KernelHead, u64, Option<&RangeTable>) -> R,
    ) -> R {
        let guard = rcu::read_lock();
        let table = self.published.of(priority).get(&guard);
        let now = misc::now();
        f(self.inner.lock().head(priority), now, table)
    }
}

/// Kernel services for a machine during one lock hold.
struct KernelEnv<'a> {
    partition: &'a WithTimer<Partition>,
    /// The request that arrives, if any, and true if its client is being drained.
    arrival: Option<(&'a Arrival<'a>, bool)>,
    /// CPU on which the request arrives.
    cpu: u16,
    /// Requests that the target received.
    kick: PendingSubmission,
    /// The request that the device pulls, once it is dispatched; `None` outside of a pull.
    pulled: Option<&'a mut Option<Held>>,
}

impl Env<Held, Config> for KernelEnv<'_> {
    #[inline]
    fn slot_pool(&self) -> &SlotPool {
        self.partition.target.slot_pool()
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
    fn with_table<R>(&self, priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        let guard = rcu::read_lock();
        f(self.partition.published.of(priority).get(&guard))
    }

    #[inline]
    fn send(&mut self, held: Held) {
        match &mut self.pulled {
            Some(pulled) if pulled.is_none() => **pulled = Some(held),
            _ => self.kick.add(self.partition.target.send(held)),
        }
    }

    #[inline]
    fn batch(&self) -> Option<u32> {
        self.partition.target.batch()
    }

    #[inline]
    fn record_more(&mut self) {
        match self.pulled {
            Some(_) => self.partition.target.record_next(),
            None => self.kick.add(self.partition.target.record_more()),
        }
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
    fn begin_queueing(&mut self, held: &mut Held, now: u64) {
        held.prepare_queued(now);
        if let Some((arrival, _)) = self.arrival {
            arrival.load.count_queued(held.account().cpu);
        }
    }

    #[inline]
    fn is_traced(&self) -> bool {
        trace::follows()
    }

    #[cold]
    #[inline(never)]
    fn trace_arrival(&self, held: &mut Held, tag: Option<&Config>, attrs: &Attrs, queued: bool) {
        let life = RequestTrace::begin();
        held.account_mut().life = life;
        let (Some(id), priority) = (life.id(), held.placement().priority) else {
            return;
        };
        if trace::Enqueue::is_on() {
            let event = trace::Enqueue {
                service: trace::text(Some(&self.partition.target.label())),
                policy: event_policy(tag),
                cpt: self.partition.cpt,
                high: trace::is_high(priority),
                jobid: trace::text(Some(&attrs.jobid)),
                nid: trace::text(attrs.nid.as_ref().map(|nid| nid as &dyn Display)),
                id,
                bytes: held.cost().bytes,
                offset: held.byte_range().offset,
                uid: attrs.uid.get().unwrap_or(u32::MAX),
                gid: attrs.gid.get().unwrap_or(u32::MAX),
                opcode: attrs.opcode.number(),
                queued: queued.into(),
            };
            event.emit();
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
                service: trace::text(Some(&self.partition.target.label())),
                policy: event_policy(tag),
                cpt: self.partition.cpt,
                high: trace::is_high(held.placement().priority),
                id,
                bytes: held.cost().bytes,
                waited_ns: if queued {
                    now.saturating_sub(held.arrival())
                } else {
                    0
                },
                queued: queued.into(),
                slot: slot.into(),
                slots: self.partition.target.pool().active(),
                limit: self.partition.target.limit(),
            };
            event.emit();
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
                service: trace::text(Some(&self.partition.target.label())),
                policy: event_policy(tag()),
                cpt: self.partition.cpt,
                high: trace::is_high(priority),
                until_ns: until,
                delay_ns: until.saturating_sub(now),
                queued,
            };
            event.emit();
        }
    }
}

/// Returns the name of the policy that has `tag`; nothing if no policy is involved.
fn event_policy<const SIZE: usize>(tag: Option<&Config>) -> [u8; SIZE] {
    trace::text(Some(&tag.map_or("", |tag| tag.kind().name())))
}

impl WithTimer<Partition> {
    /// Dispatches a request without the lock, as [`FastPath::pass`] does, and records its
    /// admission.
    #[inline(always)]
    pub(crate) fn pass(&self, held: &mut Held, arrival: &Arrival<'_>) -> SlotSearch {
        let plain = arrival.may_pass && !arrival.must_pass && arrival.relation.is_none();
        let regular = held.placement().priority == Priority::Regular;
        if !plain || !regular || trace::follows() {
            return SlotSearch::default();
        }
        let (slot_pool, pages) = (self.target.slot_pool(), held.cost().pages);
        let limits = || self.target.limits();
        let cpu = held.account().cpu.into();
        let ident = arrival.ident.as_ref();
        let found = self.fast_path.pass(slot_pool, cpu, ident, pages, limits);
        if found.slot {
            held.placement_mut().admission = Admission::Slot;
        }
        found
    }

    /// Accepts a request, as [`PartitionMachine::arrive`] does. The caller must kick the target.
    pub(crate) fn arrive(
        &self,
        mut held: Held,
        arrival: &Arrival<'_>,
        attrs: &impl Fn() -> Attrs,
    ) -> (ArrivalEffects<Held>, PendingSubmission) {
        held.account_mut().home = self.home();
        let cpu = held.account().cpu;
        let mut inner = self.inner.lock();
        // Read under the lock: a drain sets the flag before it takes the lock.
        let draining = arrival.is_draining();
        let forced = arrival.forced(draining);
        let mut env = KernelEnv {
            partition: self,
            arrival: Some((arrival, draining)),
            cpu,
            kick: PendingSubmission::none(),
            pulled: None,
        };
        let terms = ArrivalTerms {
            ident: arrival.ident.as_ref(),
            forced,
            may_pass: arrival.may_pass,
            relation: arrival.relation,
            may_overflow: arrival.may_overflow,
        };
        let arrived = inner.arrive(&mut env, held, &terms, attrs);
        drop(inner);
        if forced != Forced::No && !matches!(arrived.went, AdmissionOutcome::Refused(_)) {
            arrival.load.count_forced(cpu);
        }
        (arrived, env.kick)
    }

    /// Charges for the growth of a request, as [`PartitionMachine::merge`] does.
    #[cfg(feature = "elevator")]
    pub(crate) fn merge(&self, attrs: &Attrs, cost: Cost) -> bool {
        let now = misc::now();
        self.with(|inner| inner.merge(attrs, cost, now))
    }

    /// Runs `f` under the lock with the time, ns, at which the lock was requested; adds to `kick`
    /// the requests that the target received.
    #[inline]
    fn locked<R>(
        &self,
        kick: &mut PendingSubmission,
        f: impl FnOnce(&mut PartitionState, &mut KernelEnv<'_>, u64) -> R,
    ) -> R {
        self.locked_for(None, kick, f)
    }

    /// Runs `f` as [`Self::locked`] does; the first request goes to `pulled` if that is given.
    #[inline]
    fn locked_for<R>(
        &self,
        pulled: Option<&mut Option<Held>>,
        kick: &mut PendingSubmission,
        f: impl FnOnce(&mut PartitionState, &mut KernelEnv<'_>, u64) -> R,
    ) -> R {
        let now = misc::now();
        let mut env = KernelEnv {
            partition: self,
            arrival: None,
            cpu: 0,
            kick: *kick,
            pulled,
        };
        let done = f(&mut self.inner.lock(), &mut env, now);
        *kick = env.kick;
        done
    }

    /// Counts the end of a request and dispatches as [`PartitionMachine::end`] does. Returns true
    /// if [`Self::complete_order_work`] has work left.
    pub(crate) fn end(
        &self,
        account: &NodeAccount,
        cost: Cost,
        most: Option<u32>,
        kick: &mut PendingSubmission,
    ) -> bool {
        let placement = &account.placement;
        self.locked(kick, |inner, env, now| {
            inner.end(env, now, placement, cost, most)
        })
    }

    /// Changes the order table, and carries out the consequences; returns as [`Self::end`] does.
    pub(crate) fn reorder(
        &self,
        change: impl FnOnce(&mut Order<Held>),
        kick: &mut PendingSubmission,
    ) -> bool {
        self.locked(kick, |inner, env, now| inner.reorder(env, now, change))
    }

    /// Dispatches up to `most` requests while slots are free.
    pub(crate) fn decide_more(&self, most: u32, kick: &mut PendingSubmission) -> Decided {
        self.locked(kick, |inner, env, now| inner.decide_more(env, now, most))
    }

    /// Dispatches up to `most` requests while slots are free; the first one goes to `pulled`.
    #[cfg(feature = "elevator")]
    pub(crate) fn pull(&self, most: u32, pulled: &mut Option<Held>) -> Decided {
        // The device pulls until no request is ready, so that it needs no notification.
        let mut kick = PendingSubmission::none();
        self.locked_for(Some(pulled), &mut kick, |inner, env, now| {
            inner.pull(env, now, most)
        })
    }

    /// Marks throttled heads to be reconsidered by the next decision, after a change of their
    /// limits.
    pub(crate) fn reconsider(&self) {
        self.locked(&mut PendingSubmission::none(), |inner, env, now| {
            inner.reconsider(env, now);
        });
    }

    /// Allocates the memory that the order table needs; returns true if any was needed. May sleep.
    pub(crate) fn feed_order(&self) -> Result<bool> {
        let need = self.with(|inner| inner.order().need());
        if need.is_empty() {
            return Ok(false);
        }
        let spare = need.allocate().map_err(|_| ENOMEM)?;
        drop(self.with(|inner| inner.order().grow(spare)));
        Ok(true)
    }

    /// Resizes the order table to `records`.
    ///
    /// # Errors
    ///
    /// If the table has to grow: `EBUSY`: the table is in use; `ENOMEM`.
    pub(crate) fn set_records(&self, records: u32) -> Result {
        let mut table = order_table(records);
        let done = self.with(|inner| inner.set_records(table.as_mut().ok(), records));
        if done {
            // Requests that overflowed may get a record now.
            self.complete_order_work();
            let mut kick = PendingSubmission::none();
            self.locked(&mut kick, |inner, env, now| inner.decide_batch(env, now));
            self.target.kick(kick);
            Ok(())
        } else {
            Err(table.err().unwrap_or(EBUSY))
        }
        // A table that is not needed is freed without the lock.
    }

    /// Completes the pending work of the order table, and releases the lock in between. May sleep.
    pub(crate) fn complete_order_work(&self) {
        let mut busy = true;
        while busy {
            let mut kick = PendingSubmission::none();
            busy = self.locked(&mut kick, |inner, env, now| {
                inner.run_some_actions(env, now)
            });
            self.target.kick(kick);
            misc::cond_resched();
        }
    }

    /// Dispatches all queued requests in batches without taking slots; returns true if there were
    /// any. Requests with ordering constraints are dispatched as soon as their predecessors have
    /// ended.
    pub(crate) fn drain(&self) -> bool {
        self.with(|inner| inner.order().force_all());
        self.complete_order_work();
        let mut left = self.with(|inner| inner.queued());
        let any = left > 0;
        while left > 0 {
            let (mut kick, batch) = (PendingSubmission::none(), left.min(BATCH));
            self.locked(&mut kick, |inner, env, now| {
                inner.dispatch_without_slots(env, now, batch, Leave::Forced);
            });
            self.target.kick(kick);
            left = left.saturating_sub(batch);
            misc::cond_resched();
        }
        any
    }

    /// Dispatches a batch without slots after a stall of `stall` ns, as
    /// [`PartitionMachine::unstall`] does; returns true if there was a stall.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let mut kick = PendingSubmission::none();
        let stalled = self.locked(&mut kick, |inner, env, now| inner.unstall(env, now, stall));
        self.target.kick(kick);
        stalled
    }
}

impl TimerCallback for Partition {
    /// Dispatches throttled requests that are eligible now.
    fn expired(timed: &WithTimer<Self>) {
        let mut kick = PendingSubmission::none();
        timed.locked(&mut kick, |inner, env, now| inner.expired(env, now));
        timed.target.kick(kick);
        timed.target.notify_other_partitions(timed.cpt);
    }
}
