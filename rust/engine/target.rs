// SPDX-License-Identifier: GPL-2.0-only

//! A backing device of a service: its slots, who waits for one, and how requests go down.
//!
//! # Vocabulary
//!
//! - *Slot*: the right to have one request at the device. Each target has its own, so that a device that is slow, or
//!   hangs, costs no other one anything.
//! - *Forced*: a request that has no slot, because no policy may withhold it.
//! - *Bypass*: forced requests that wait, in the order in which they came. Half as many as there are slots may be at the
//!   device at a time, so that they leave the rest of the device to those that have slots.
//! - *Free*: at the device without a slot: what frees memory. Somebody waits for it who can do nothing else, and one after the
//!   other they would not be merged. Half of what the device keeps in flight may be such, or [`FREE_MIN`]; more wait in the bypass.
//! - *Deferred*: has ended in an interrupt while requests wait for its slot. The work item gives the slot back, submits what has
//!   the slot next, and only then ends the request. Requests whose ends meet in one interrupt are so submitted apart, and end
//!   apart the next time. Otherwise few slots become free together for ever, and the device idles while each is filled.
//! - *Pause*: time between two requests that a device pulls, while several are ready for few slots. Their slots became free in one
//!   interrupt, and the ends of what goes down together would meet for ever, as above. A request follows the one before as late as
//!   that followed what made it ready: then each end is handled before the next one. Each request that is ready alone pays for one
//!   pause, so a device whose ends meet all the same has few.
//! - *Over*: at the device without a slot, because everything that was queued had to go: a drain, or a stall.
//! - *Line*: the slots and the partitions that wait for them, see [`crate::sched::partition::line`].
//!
//! ```text
//!             slot of the target               work item
//!   queued ───────────────────────▶ ready ───────────────▶ submitted ──▶ ended
//!                                     ▲
//!   forced ──▶ bypass ────────────────┘ another forced one has ended
//!   free, over ────────────────────────────────────────▶ submitted ──▶ ended
//! ```
//!
//! Each target has its own work item: submitting may block, and a device that blocks stops nobody else. The device may
//! also *pull* what is ready by itself, when a [`Runner`] tells it to: then the work item is not used.

use kernel::{
    cpu::nr_cpu_ids,
    impl_has_work, new_spinlock, new_work,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu, Arc, SpinLock,
    },
    workqueue::{Work, WorkItem},
};

use super::dispatch::{Dispatch, Feed};
use crate::{
    sched::{
        attr::Priority,
        cpus::PerCpu,
        item::Fifo,
        knee::{Found, Knee, Load, Totals},
        partition::{line::Line, round, stock::Stocks, Admission, Scheduled, BATCH},
        slots::{Count, Limits, Pool, Slots},
    },
    sys::{
        atomic::{Hint, Word},
        misc,
        node::{Held, NodeFifo},
        queue,
        rcu::RcuBox,
        series::{new_spinlock_irq, SpinLockIrq},
        timer::{Expire, Timed},
    },
};

/// Requests that free memory may be at a device, at least: what reclaim writes at a time (`SWAP_CLUSTER_MAX`), twice.
pub(crate) const FREE_MIN: u32 = 64;

/// Slots with which ends are deferred, at most: with more, one task at a time is what limits a fast device, and what idles
/// while a slot is filled is a small part.
const DEFER_MAX: u32 = 32;

/// What is ready may be pulled now.
const AT_ONCE: u64 = 1;

/// How long a pause is, ns, at most.
#[cfg(feature = "elevator")]
const PAUSE_MAX: u64 = 100_000;

/// Requests on their way down.
struct Lists {
    /// The work item submits them.
    ready: NodeFifo,
    /// Deferred.
    ended: NodeFifo,
    /// Forced, and not yet let to the device.
    bypass: NodeFifo,
    /// When one of those was let to the device last, or came to an empty list (ns).
    moved: u64,
    /// The work item is queued or running and will look at `ready` again.
    working: bool,
    /// When a request was added to an empty `ready` in an interrupt, or when the pause ends (ns); 0: there is to be no pause.
    #[cfg(feature = "elevator")]
    since: u64,
    /// Pauses that are paid for, [`DEFER_MAX`] at most.
    #[cfg(feature = "elevator")]
    pauses: u32,
}

impl Lists {
    /// Has what is ready looked at, if the work item does not do so by itself.
    fn wake(&mut self) -> Kick {
        Kick(!core::mem::replace(&mut self.working, true))
    }
}

/// Has a device pull what is ready at its target.
pub(crate) trait Runner: Send + Sync {
    /// Has the device pull, soon. Any context, without locks, under RCU.
    fn run(&self);
}

impl Expire for RcuBox<Arc<dyn Runner>> {
    /// Has the device pull, if there is one.
    fn expired(timed: &Timed<Self>) {
        let guard = rcu::read_lock();
        if let Some(runner) = timed.get(&guard) {
            runner.run();
        }
    }
}

/// Whether a target got something to submit.
#[derive(Clone, Copy)]
#[must_use = "what was decided waits for a kick"]
pub(crate) struct Kick(bool);

impl Kick {
    /// It did not.
    pub(crate) const fn none() -> Self {
        Self(false)
    }

    /// Adds another one, of the same target.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A backing device of a service.
#[pin_data]
pub(crate) struct Target {
    index: u16,
    dispatch: Arc<Dispatch>,
    number: Atomic<u32>,
    users: Atomic<u32>,
    depth: Atomic<u32>,
    /// Forced requests at the device. Grows under the lock.
    forced: Word,
    /// Free requests at the device.
    free: Word,
    /// Requests at the device that went over the bounds.
    over: Word,
    line: Line,
    /// When something last came back from the device, by CPU, ms of the coarse clock.
    life: PerCpu<Hint>,
    /// Has the device pull what is ready; nothing: the work item submits that.
    #[pin]
    runner: Timed<RcuBox<Arc<dyn Runner>>>,
    /// 1: there is a runner.
    pulls: Hint,
    /// From when what is ready may be pulled (ns), or [`AT_ONCE`]; 0: nothing is ready.
    ready: Hint,
    #[pin]
    knee: SpinLock<Knee>,
    #[pin]
    lists: SpinLockIrq<Lists>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Target { self.work }
}

impl Target {
    /// A target without users, with `cpts` partitions.
    pub(crate) fn new(index: u16, dispatch: Arc<Dispatch>, cpts: u16) -> Result<Arc<Self>> {
        let knee = Knee::new();
        let slots = match dispatch.slots() {
            Slots::Auto => knee.slots(),
            Slots::Fixed(slots) => slots.get(),
        };
        let stocks = Stocks::new(nr_cpu_ids()).map_err(|_| ENOMEM)?;
        let life = PerCpu::new(nr_cpu_ids(), || Hint::new(0)).map_err(|_| ENOMEM)?;
        Arc::pin_init(
            try_pin_init!(Self {
                index,
                dispatch,
                number: Atomic::new(0),
                users: Atomic::new(0),
                depth: Atomic::new(0),
                forced: Word::new(0),
                free: Word::new(0),
                over: Word::new(0),
                line: Line::with_stocks(cpts, slots, stocks),
                life,
                runner <- Timed::new(Ok::<_, Error>(RcuBox::new())),
                pulls: Hint::new(0),
                ready: Hint::new(0),
                knee <- new_spinlock!(knee, "nrs_knee"),
                lists <- new_spinlock_irq!(Lists {
                    ready: NodeFifo::new(),
                    ended: NodeFifo::new(),
                    bypass: NodeFifo::new(),
                    moved: 0,
                    working: false,
                    #[cfg(feature = "elevator")]
                    since: 0,
                    #[cfg(feature = "elevator")]
                    pauses: 0,
                }, "nrs_target"),
                work <- new_work!("nrs_target"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Its place in the service.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The name of its service; empty if that has none.
    pub(crate) fn label(&self) -> &str {
        self.dispatch.label()
    }

    /// Device number.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(ordering::Relaxed)
    }

    /// Clients that use it.
    pub(crate) fn users(&self) -> u32 {
        self.users.load(ordering::Relaxed)
    }

    /// Counts a user; the first one says which device it is and how many requests it keeps in flight
    /// (0: any number). A device that pulls has a `runner`; it may have another depth for each user.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing is counted.
    pub(crate) fn attach(
        &self,
        number: u32,
        depth: u32,
        runner: Option<Arc<dyn Runner>>,
    ) -> Result {
        let pulls = runner.is_some();
        if let Some(runner) = runner {
            // What a runner keeps is not to go in a callback.
            self.runner.replace(Some(runner))?;
            self.pulls.set(1);
        }
        let first = self.users.fetch_add(1, ordering::Full) == 0;
        if first {
            *self.knee.lock() = Knee::new();
            self.number.store(number, ordering::Relaxed);
            self.life.iter().for_each(|life| life.set(0));
        }
        if first || pulls {
            self.set_depth(depth);
        }
        Ok(())
    }

    /// Ends a use. When the last one ends, a device that pulls is not told to any more, and is not being told. May sleep.
    pub(crate) fn detach(&self) {
        if self.users.fetch_sub(1, ordering::Full) == 1 && self.pulls() {
            self.pulls.set(0);
            // Nothing is allocated for nothing.
            let _ = self.runner.replace(None);
        }
    }

    /// Returns whether the device pulls what is ready.
    pub(crate) fn pulls(&self) -> bool {
        self.pulls.get() != 0
    }

    /// Returns whether a framework takes requests out itself.
    pub(crate) fn is_driven(&self) -> bool {
        self.pulls() && self.dispatch.is_fed_by(Feed::Framework)
    }

    /// Tells a framework that takes requests out itself that it may find some. To be called without locks.
    pub(crate) fn call_framework(&self) {
        if self.is_driven() {
            Expire::expired(&self.runner);
        }
    }

    /// Has the device keep `depth` requests in flight (0: any number).
    pub(crate) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, ordering::Relaxed);
        self.follow_slots();
    }

    /// Has as many slots as are configured, but no more than the device keeps in flight, so that order is decided
    /// here and not in its queue.
    pub(crate) fn follow_slots(&self) {
        let depth = match self.depth.load(ordering::Relaxed) {
            0 => Count::MAX,
            depth => depth,
        };
        let slots = match self.dispatch.slots() {
            Slots::Fixed(slots) => slots.get().min(depth),
            Slots::Auto => {
                let mut knee = self.knee.lock();
                knee.bound(depth.min(Count::MAX));
                knee.slots()
            }
        };
        self.line.set_slots(slots);
    }

    /// Learns what has ended by now; returns whether there are more slots. Called every
    /// [`LOOK_MIN`](crate::sched::knee::LOOK_MIN) or so while requests wait and slots are `auto`.
    pub(crate) fn tune(&self, totals: Totals) -> bool {
        let before = self.limit();
        let active = self.pool().active();
        // Some slots are just being taken.
        let full = active.saturating_add(1) >= before.saturating_sub(before / 8);
        let load = match self.line.stayed_busy() && full {
            true if active > before => Load::Over,
            true => Load::Full,
            false => Load::Light,
        };
        self.knee.lock().look(totals, load);
        self.follow_slots();
        self.limit() > before
    }

    /// Returns what was found of the slots that keep the device busy, if slots are `auto`.
    pub(crate) fn found(&self) -> Found {
        match self.dispatch.slots() {
            Slots::Auto => self.knee.lock().found(!self.line.is_calm()),
            Slots::Fixed(_) => Found::default(),
        }
    }

    /// Slots in effect.
    pub(crate) fn limit(&self) -> u32 {
        self.line.slots()
    }

    /// Requests at the device.
    pub(crate) fn active(&self) -> u32 {
        self.pool().active().saturating_add(self.forced())
    }

    /// Requests at the device without a slot.
    pub(crate) fn forced(&self) -> u32 {
        let bounded = self.forced.get().saturating_add(self.free.get());
        bounded.saturating_add(self.over.get()) as u32
    }

    /// The last sign of life of the device, ms of the coarse clock; 0: there was none.
    pub(crate) fn life(&self) -> u64 {
        let each = self.life.iter().map(Hint::get);
        each.max().unwrap_or(0)
    }

    /// Something came back from the device at `now`.
    pub(crate) fn note_life(&self, cpu: u16, now: u64) {
        // Others read it all the time.
        if let Some(life) = self.life.of(cpu.into()).filter(|life| life.get() != now) {
            life.set(now);
        }
    }

    /// Returns the slots, and the partitions that wait for them.
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Returns the high-priority requests in a row while a regular one waits.
    pub(crate) fn ratio(&self) -> u32 {
        self.dispatch.ratio()
    }

    /// Returns what the slots are bound by now.
    pub(crate) fn limits(&self) -> Limits {
        self.line.limits(self.ratio(), misc::millis())
    }

    /// The slots in use.
    pub(crate) fn pool(&self) -> Pool {
        self.line.used()
    }

    /// Has the caretaker called if a partition other than that of `cpt` may have a slot.
    pub(crate) fn look_after_others(&self, cpt: u16) {
        if round::is_needed(&self.line, cpt, || self.limits()) {
            self.dispatch.call_caretaker();
        }
    }

    /// Forced requests that may be at the device.
    fn forced_max(&self) -> u64 {
        u64::from(self.limit() / 2).max(1)
    }

    /// Lets a request to the device, whatever else is there.
    pub(crate) fn admit_any(&self) -> Admission {
        self.over.add(1);
        Admission::Over
    }

    /// Lets a request to the device that must not be withheld, and that `reclaims` memory or not; `None`: it has to take
    /// its turn.
    pub(crate) fn admit(&self, reclaims: bool) -> Option<Admission> {
        let lists = self.lists.lock();
        let most = (self.depth.load(ordering::Relaxed) / 2).max(FREE_MIN);
        if reclaims && self.free.get() < most.into() {
            self.free.add(1);
            return Some(Admission::Free);
        }
        if !lists.bypass.is_empty() || self.forced.get() >= self.forced_max() {
            return None;
        }
        self.forced.add(1);
        Some(Admission::Forced)
    }

    /// Takes a forced request that goes down by its turn.
    pub(crate) fn bypass(&self, held: Held) -> Kick {
        let mut lists = self.lists.lock();
        if lists.bypass.is_empty() {
            lists.moved = misc::now();
        }
        lists.bypass.push(held);
        self.let_through(&mut lists, Admission::Forced)
    }

    /// A request of `priority` that had `admission` has ended on `cpu`, or will not go down.
    #[inline]
    pub(crate) fn leave(&self, admission: Admission, priority: Priority, cpu: u16) -> Kick {
        match admission {
            Admission::None => {}
            Admission::Slot => self.line.put_on(cpu.into(), priority),
            Admission::Free => {
                self.free.sub(1);
            }
            Admission::Over => {
                self.over.sub(1);
            }
            Admission::Forced => return self.leave_forced(),
        }
        Kick::none()
    }

    /// A forced request has ended.
    #[inline(never)]
    fn leave_forced(&self) -> Kick {
        let mut lists = self.lists.lock();
        self.forced.sub(1);
        self.let_through(&mut lists, Admission::Forced)
    }

    /// Sends down all forced requests that wait. May sleep.
    pub(crate) fn let_all_through(self: &Arc<Self>) {
        let mut left = true;
        while left {
            let kick = {
                let mut lists = self.lists.lock();
                let kick = self.let_through(&mut lists, Admission::Over);
                left = !lists.bypass.is_empty();
                kick
            };
            self.kick(kick);
            misc::cond_resched();
        }
    }

    /// Sends down a batch of the forced requests that wait, if they have for `stall` (ns) without one going down; whether
    /// they have.
    pub(crate) fn unstall(&self, stall: u64) -> (bool, Kick) {
        let mut lists = self.lists.lock();
        let waited = misc::now().saturating_sub(lists.moved);
        if lists.bypass.is_empty() || waited < stall {
            return (false, Kick::none());
        }
        let moved = lists.moved;
        let kick = self.let_through(&mut lists, Admission::Over);
        // Nothing moved by itself.
        lists.moved = moved;
        (true, kick)
    }

    /// Lets a batch of the forced requests that wait to the device, with `admission`: as many as may be there, or over that.
    fn let_through(&self, lists: &mut Lists, admission: Admission) -> Kick {
        let mut kick = Kick::none();
        let over = admission == Admission::Over;
        for _ in 0..BATCH {
            if !over && self.forced.get() >= self.forced_max() {
                break;
            }
            let Some(mut held) = lists.bypass.pop() else {
                break;
            };
            let there = if over { &self.over } else { &self.forced };
            there.add(1);
            lists.moved = misc::now();
            held.note_wait(lists.moved);
            held.placement_mut().admission = admission;
            held.account_mut().life.dispatched(lists.moved);
            self.push(lists, held);
            kick.add(lists.wake());
        }
        kick
    }

    /// Takes a request that was admitted. What is returned is to be carried out once the caller holds no lock.
    pub(crate) fn send(&self, held: Held) -> Kick {
        let mut lists = self.lists.lock();
        self.push(&mut lists, held);
        lists.wake()
    }

    /// Adds a request to what is ready.
    fn push(&self, lists: &mut Lists, held: Held) {
        #[cfg(feature = "elevator")]
        if lists.ready.is_empty() && self.pulls() && self.is_few_in_interrupt() {
            lists.since = misc::now();
        }
        self.add(lists, held);
    }

    /// The same without a pause before what is added next.
    #[inline]
    fn add(&self, lists: &mut Lists, held: Held) {
        if lists.ready.is_empty() {
            self.ready.set(AT_ONCE);
        }
        lists.ready.push(held);
    }

    /// Takes a request that was admitted, and that its device pulls without being told to. Whoever
    /// makes something ready meanwhile tells the device all the same: the inserter may sleep before
    /// it pulls.
    #[cfg(feature = "elevator")]
    pub(crate) fn offer(&self, held: Held) {
        self.add(&mut self.lists.lock(), held);
    }

    /// Takes what a device that pulls is to have next.
    #[cfg(feature = "elevator")]
    pub(crate) fn pull(&self) -> Option<Held> {
        let mut lists = self.lists.lock();
        let held = lists.ready.pop();
        // Who makes something ready from now on tells the device.
        lists.working = !lists.ready.is_empty();
        let from = match &held {
            Some(held) if lists.since != 0 => self.pause(&mut lists, held.placement().admission),
            _ if lists.working => AT_ONCE,
            _ => 0,
        };
        self.ready.set(from);
        held
    }

    /// Returns from when the next request may be pulled after one that had `admission` and was made ready in an interrupt, as
    /// [`Self::ready`] says it, and has the device pull it then.
    #[cfg(feature = "elevator")]
    #[inline(never)]
    fn pause(&self, lists: &mut Lists, admission: Admission) -> u64 {
        if !lists.working {
            lists.pauses = DEFER_MAX.min(lists.pauses.wrapping_add(1));
            lists.since = 0;
            return 0;
        }
        if admission != Admission::Slot || lists.pauses == 0 {
            return AT_ONCE;
        }
        lists.pauses = lists.pauses.wrapping_sub(1);
        let now = misc::now();
        let pause = now.saturating_sub(lists.since).min(PAUSE_MAX);
        lists.since = now.saturating_add(pause);
        // With the lock, so that the timer is armed for the last pause.
        self.runner.arm(lists.since);
        lists.since
    }

    /// Returns whether there is something to pull, without the lock.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        let from = self.ready.get();
        from == AT_ONCE || from != 0 && from <= misc::now()
    }

    /// Returns whether the end of a request that had `admission`, which is handled now, is to be deferred.
    #[inline]
    pub(crate) fn defers(&self, admission: Admission) -> bool {
        admission == Admission::Slot
            && !self.line.is_calm()
            && self.is_few_in_interrupt()
            && !self.pool().allows(Priority::Regular, &self.limits())
    }

    /// Returns whether an interrupt is handled, and there are few slots.
    #[inline(never)]
    fn is_few_in_interrupt(&self) -> bool {
        misc::in_interrupt() && self.limit() <= DEFER_MAX
    }

    /// Takes a request whose end is deferred. Any context.
    pub(crate) fn defer(self: &Arc<Self>, held: Held) {
        let kick = {
            let mut lists = self.lists.lock();
            lists.ended.push(held);
            lists.wake()
        };
        self.kick(kick);
    }

    /// Has the work item submit what is ready, if there is something. To be called without locks.
    #[inline]
    pub(crate) fn kick(self: &Arc<Self>, kick: Kick) {
        if kick.0 {
            self.start();
        }
    }

    /// Starts the work item, or has the device pull.
    #[inline(never)]
    fn start(self: &Arc<Self>) {
        if self.pulls() {
            return Expire::expired(&self.runner);
        }
        // `working` says that it is not queued; should it be, it runs anyway.
        let _ = queue::dispatch().enqueue(self.clone());
    }

    /// Submits what is ready, and ends what is deferred.
    fn work_off(self: &Arc<Self>) {
        // What a plug collects doubles: the device does not idle while the last one of many is prepared.
        let mut plug: u32 = 1;
        let mut ending: Option<Held> = None;
        loop {
            let mut batch = NodeFifo::new();
            let ended = {
                let mut lists = self.lists.lock();
                if self.pulls() {
                    // The target is for another device since the work item was started.
                    lists.working = false;
                    let kick = if lists.ready.is_empty() {
                        Kick::none()
                    } else {
                        lists.wake()
                    };
                    drop(lists);
                    return self.kick(kick);
                }
                batch.append(&mut lists.ready);
                let ended = lists.ended.pop();
                if batch.is_empty() && ended.is_none() && ending.is_none() {
                    lists.working = false;
                    return;
                }
                ended
            };
            while !batch.is_empty() {
                misc::plugged(|| {
                    for _ in 0..plug {
                        let Some(held) = batch.pop() else {
                            break;
                        };
                        held.submit();
                    }
                });
                plug = BATCH.min(plug.saturating_mul(2));
            }
            if let Some(held) = ending.take() {
                held.end();
            }
            ending = ended;
            if let Some(held) = &mut ending {
                // What has its slot next is ready then.
                held.count_end();
            }
            misc::cond_resched();
        }
    }
}

impl WorkItem for Target {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.work_off();
    }
}
