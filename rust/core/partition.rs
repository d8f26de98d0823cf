// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a service: its heads, its lock, its timer.
//!
//! # Vocabulary
//!
//! - *Lane*: a head and which classes its requests had lately ([`lane`]).
//! - *Pump*: decide requests while slots are free.
//! - *Mark*: what others may know of the partition without its lock ([`Mark`]).
//! - *Kick*: the target got something to submit; it is kicked once the lock is released.
//! - *Order*: which requests have to wait for the end of others before a policy sees them ([`order`]).
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

use super::{
    partitions,
    target::{Kick, Mark, Target, BATCH},
};
use crate::{
    sched::{
        attr::Priority,
        head::{Head, InstanceId, MAX_INSTANCES},
        health::Seen,
        item::{Cost, Item},
        order::Order,
        policy::{AnyPart, Config, Get, View},
        ranges::Table,
        slots::{Pending, Turn},
        units::NSEC_PER_MSEC,
    },
    sys::{
        misc,
        node::{Account, Admission, Held},
        rcu::RcuBox,
        timer::{Expire, Timed},
        trace,
    },
};

mod arrive;
mod lane;
mod order;
mod watch;

pub(crate) use arrive::Went;
pub(crate) use lane::Ident;
use lane::Lane;
use watch::By;

/// The part of a policy in the kernel.
pub(crate) type KernelPart = AnyPart<Held>;

/// A head in the kernel; the tag is the configuration that an instance was started with.
pub(crate) type KernelHead = Head<Held, KernelPart, Config>;

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

/// What a partition did with the slots that were free.
#[derive(Clone, Copy, Default)]
pub(crate) struct Decided {
    /// Requests that it decided.
    pub(crate) count: u32,
    /// It has given one back: whoever looked for one meanwhile may have seen none.
    pub(crate) vain: bool,
}

/// Time between two interrupts of the timer of a partition, at least, ns.
const PAUSE: u64 = 20_000;

/// What the lock protects.
pub(crate) struct Inner {
    regular: KBox<Lane>,
    high: KBox<Lane>,
    order: KBox<Order<Held>>,
    /// What the order table was made for.
    records: u32,
    turn: Turn,
    /// When a request was last decided, or came to an empty queue (ns).
    moved: u64,
    /// When a request last had a slot or gave it back, or came to an empty queue (ns).
    progress: u64,
    /// What waited was sent down for lack of progress, and there has been none since.
    stalled: bool,
    /// When the timer is to expire (ns); 0 if it is not armed, or expires and waits for the lock.
    armed: u64,
    /// What others know.
    mark: Mark,
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

    /// The order table.
    pub(crate) fn order(&mut self) -> &mut Order<Held> {
        &mut self.order
    }

    /// Has everybody on the head of `priority` classified anew at times, if that is how clients are counted.
    pub(crate) fn count_clients(&mut self, priority: Priority, now: u64) {
        self.lane(priority).count_clients(now);
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

    /// Whether it makes progress, as far as one can see.
    fn seen(&self, now: u64) -> Seen {
        let moved = if self.stalled {
            self.progress
        } else {
            self.moved
        };
        let since = [&self.regular, &self.high]
            .into_iter()
            .filter(|lane| lane.has_work(now))
            .map(|lane| lane.until.max(moved))
            .min();
        Seen {
            queued: self.queued().into(),
            since,
            decided: self.progress,
        }
    }

    /// A request has a slot now, or gave it back.
    fn progressed(&mut self, now: u64) {
        self.progress = now;
        self.stalled = false;
    }

    fn queued(&self) -> u32 {
        self.regular
            .head
            .queued()
            .saturating_add(self.high.head.queued())
    }
}

/// By what leave a request goes down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It has a slot.
    Slot,
    /// It has none, though its policy would serve it.
    Over,
    /// It has none, and its policy is not asked.
    Forced,
}

/// One partition of a service.
#[pin_data]
pub(crate) struct Partition {
    cpt: u16,
    target: Arc<Target>,
    published: Arc<Published>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Partition {
    /// The partition of `cpt` at `target`, with a fallback for each head, made by `config`, and room for `records` in
    /// its order table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        cpt: u16,
        target: Arc<Target>,
        published: Arc<Published>,
        config: Config,
        records: u32,
    ) -> Result<Arc<Timed<Self>>> {
        let order = order::table(records)?;
        let regular = Lane::with_fallback(config)?;
        let high = Lane::with_fallback(config)?;
        Arc::pin_init(
            Timed::new(pin_init!(Self {
                cpt,
                target,
                published,
                inner <- new_spinlock_irq!(Inner {
                    regular,
                    high,
                    order,
                    records,
                    turn: Turn::new(),
                    moved: 0,
                    progress: misc::now(),
                    stalled: false,
                    armed: 0,
                    mark: Mark::default(),
                }, "nrs_partition"),
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
        let mut table = order::table(records);
        let done = self.with(|inner| {
            let idle = inner.order.live() == 0 && inner.order.overflowed() == 0;
            match &mut table {
                Ok(table) if idle => {
                    inner.records = records;
                    core::mem::swap(&mut inner.order, table);
                    Ok(())
                }
                _ if records <= inner.records => {
                    inner.order.set_max(records);
                    Ok(())
                }
                Ok(_) => Err(EBUSY),
                Err(error) => Err(*error),
            }
        });
        // What is not needed is freed without the lock.
        drop(table);
        done
    }

    /// Runs `f` with the lock held.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// Goes through something that is too long for one lock hold. `take` has the lock and takes as much as
    /// is allowed from where it is told on, and says where to go on, or `None` at the end; after each lock
    /// hold, `then` has what `take` left in `state`, and may sleep.
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
        kernel::warn_on!(done.is_err());
    }
}

impl Timed<Partition> {
    /// Counts the end of a request that was queued or recorded here; with `pump`, decides more. Also says whether
    /// [`Self::settle_all`] has something left.
    pub(crate) fn end(&self, account: &Account, cost: Cost, pump: bool) -> (Kick, bool) {
        let mut kick = Kick::none();
        let most = if pump { BATCH } else { 0 };
        let end = |inner: &mut Inner, now| {
            if let Some(ticket) = &account.ticket {
                inner.head(account.priority).stop(ticket, cost, now);
            }
            if account.has_slot() {
                inner.progressed(now);
            }
            if let Some(id) = account.record {
                inner.order.finish(id);
            }
        };
        let (_, busy) = self.decide_after(end, most, &mut kick);
        (kick, busy)
    }

    /// Makes a change in the order table, and carries out what follows; for the rest, returns like
    /// [`Self::end`].
    pub(crate) fn reorder(&self, change: impl FnOnce(&mut Order<Held>)) -> (Kick, bool) {
        let mut kick = Kick::none();
        let (_, busy) = self.decide_after(|inner, _| change(&mut inner.order), 0, &mut kick);
        (kick, busy)
    }

    /// Decides up to `most` requests while slots are free.
    pub(crate) fn decide_more(&self, most: u32, kick: &mut Kick) -> Decided {
        let (decided, _) = self.decide_after(|_, _| (), most, kick);
        decided
    }

    /// Has heads that withhold asked again, after a change of what holds them back: by whoever decides
    /// next.
    pub(crate) fn reconsider(&self) {
        let now = misc::now();
        let mut inner = self.inner.lock();
        inner.regular.until = 0;
        inner.high.until = 0;
        self.tell(&mut inner, now);
    }

    /// Makes a change, which is told the time (ns), and decides like [`Self::decide_more`]; also says whether
    /// [`Self::settle_all`] has something left.
    fn decide_after(
        &self,
        change: impl FnOnce(&mut Inner, u64),
        most: u32,
        kick: &mut Kick,
    ) -> (Decided, bool) {
        let now = misc::now();
        let mut inner = self.inner.lock();
        change(&mut inner, now);
        let settled = self.settle(&mut inner, now, kick);
        if most == 0 {
            if settled {
                self.tell(&mut inner, now);
            }
            return (Decided::default(), inner.order.is_busy());
        }
        // What was withheld may be ready by now: others learn of it before slots are looked for.
        self.tell(&mut inner, now);
        let decided = self.pump(&mut inner, now, most, kick);
        (decided, inner.order.is_busy())
    }

    /// Decides everything that is queued, whether or not slots are free, a batch at a time; whether there was
    /// something. What waits for the end of other requests goes down as soon as those have ended.
    pub(crate) fn drain(&self) -> bool {
        self.with(|inner| inner.order.force_all());
        self.settle_all();
        let mut left = self.with(|inner| inner.queued());
        let any = left > 0;
        while left > 0 {
            let now = misc::now();
            let batch = left.min(BATCH);
            let kick = self.send_down(&mut self.inner.lock(), now, batch, Leave::Forced);
            self.target.kick(kick);
            left = left.saturating_sub(batch);
            misc::cond_resched();
        }
        any
    }

    /// Whether requests that may be served have been waiting for `stall` (ns) without one being decided; then
    /// a batch of them is sent down, whether or not slots are free. What a policy withholds waits on.
    pub(crate) fn unstall(&self, stall: u64) -> bool {
        let now = misc::now();
        let mut kick = Kick::none();
        let stalled = {
            let mut inner = self.inner.lock();
            let waits = inner.regular.has_work(now) || inner.high.has_work(now);
            let stalled = waits && now.saturating_sub(inner.moved) >= stall;
            if stalled {
                let moved = inner.moved;
                kick = self.send_down(&mut inner, now, BATCH, Leave::Over);
                // Nothing moved by itself.
                inner.moved = moved;
                inner.stalled = true;
            }
            stalled
        };
        self.target.kick(kick);
        stalled
    }

    /// Decides up to `most` requests, with `leave`.
    fn send_down(&self, inner: &mut Inner, now: u64, most: u32, leave: Leave) -> Kick {
        let mut kick = Kick::none();
        for _ in 0..most {
            if !self.decide(inner, Priority::High, now, leave, &mut kick)
                && !self.decide(inner, Priority::Regular, now, leave, &mut kick)
            {
                break;
            }
        }
        self.tell(inner, now);
        kick
    }

    /// Tells others what they may know of the partition, if that has changed.
    fn tell(&self, inner: &mut Inner, now: u64) {
        let urgent = inner.high.has_work(now);
        let mark = Mark {
            waiting: inner.queued() > 0,
            ready: urgent || inner.regular.has_work(now),
            urgent,
        };
        if urgent {
            self.target.note_urgent();
        }
        let old = core::mem::replace(&mut inner.mark, mark);
        if mark != old {
            self.target.mark(self.cpt, old, mark);
        }
    }

    /// Decides up to `most` requests while slots are free. Others know what there is.
    fn pump(&self, inner: &mut Inner, now: u64, most: u32, kick: &mut Kick) -> Decided {
        let mut decided = Decided::default();
        let mut lent = None;
        let mut pending = Pending {
            high: inner.high.has_work(now),
            regular: inner.regular.has_work(now),
        };
        while decided.count < most {
            let limits = self.target.limits();
            let Some(priority) = inner.turn.first(pending, self.target.pool(), &limits) else {
                if pending.regular && limits.high_priority {
                    lent = self.target.lent_in();
                }
                break;
            };
            if !self.target.take(priority) {
                break;
            }
            if self.decide(inner, priority, now, Leave::Slot, kick) {
                inner.turn.served(priority);
                decided.count = decided.count.wrapping_add(1);
                if !inner.lane(priority).has_work(now) {
                    pending = pending.without(priority);
                }
            } else {
                self.target.put(priority);
                decided.vain = self.target.has_turns();
                pending = pending.without(priority);
            }
        }
        self.tell(inner, now);
        // Whichever head withholds for the shorter time; a head that may serve waits for a slot, or for the one that is kept.
        let lent =
            lent.map(|ms| now.saturating_add(ms.saturating_add(1).saturating_mul(NSEC_PER_MSEC)));
        if let Some(until) = [inner.next_expiry(now), lent].into_iter().flatten().min() {
            let until = until.max(now.saturating_add(PAUSE));
            // One that expires soon enough serves.
            if inner.armed < now || inner.armed > until {
                inner.armed = until;
                self.arm(until);
            }
        }
        decided
    }

    /// Takes one request out of a head and gives it to its target. With [`Leave::Slot`] the caller has taken a
    /// slot for it, which the request keeps.
    fn decide(
        &self,
        inner: &mut Inner,
        priority: Priority,
        now: u64,
        leave: Leave,
        kick: &mut Kick,
    ) -> bool {
        let slot = leave == Leave::Slot;
        let lane = inner.lane(priority);
        let guard = rcu::read_lock();
        let view = View {
            now,
            force: leave == Leave::Forced,
            table: self.published.of(priority).get(&guard),
        };
        let (mut held, ticket) = match lane.head.get(&view) {
            Get::Item(found) => found,
            Get::Empty => return false,
            Get::Throttled { until } => {
                lane.until = until;
                drop(guard);
                if trace::throttle_is_on() {
                    self.watch_throttle(inner, priority, now, until);
                }
                return false;
            }
        };
        lane.until = 0;
        inner.moved = now;
        if slot {
            inner.progressed(now);
        }
        if let Some(id) = held.account().record {
            inner.go(id, &mut held);
        }
        if slot && self.target.has_turns() {
            let charged = match ticket.grant().charged {
                0 => held.cost().pages,
                charged => charged,
            };
            self.target.charge(self.cpt, charged);
        }
        held.account_mut().ticket = Some(ticket);
        held.note_wait(now);
        if trace::follows() {
            let by = By::Instance(ticket.instance());
            self.watch_dispatch(inner, &mut held, now, by, true, slot);
        }
        let admission = if slot {
            Admission::Slot
        } else {
            self.target.admit_any()
        };
        kick.add(self.target.send(held, admission));
        true
    }
}

impl Expire for Partition {
    /// What was withheld may be served now.
    fn expired(timed: &Timed<Self>) {
        let mut kick = Kick::none();
        timed.decide_after(|inner, _| inner.armed = 0, BATCH, &mut kick);
        timed.target.kick(kick);
        timed.target.look_after_others(timed.cpt);
    }
}
