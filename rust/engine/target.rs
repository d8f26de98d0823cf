// SPDX-License-Identifier: GPL-2.0-only

//! A backing device of a service: slots, the partitions waiting for a slot, and submission of
//! requests.
//!
//! # Terms
//!
//! - *Slot*: the right to have one request in flight at the device. Each target has its own slots,
//!   so that a slow or hung device costs other devices nothing.
//! - *Forced*: a request without a slot, because no policy may throttle it.
//! - *Bypass*: list of queued forced requests in order of arrival. At most half as many as there
//!   are slots may be in flight, so that they leave the rest of the device to requests with slots.
//! - *Free*: a request in flight without a slot, because it frees memory. A blocked task waits for
//!   it, and requests submitted one by one would not be merged. At most half of the device's depth
//!   may be free requests, or [`FREE_MIN`]; further ones are queued in the bypass.
//! - *Deferred*: a request that ended in an interrupt while requests wait for its slot. The work
//!   item releases the slot, submits the next request with the slot, and only then ends the first
//!   one. Requests whose ends coincide in one interrupt are thus submitted apart, and end apart the
//!   next time. Otherwise a few slots would become free together forever, and the device would idle
//!   while each is filled.
//! - *Pause*: time between two requests that a device pulls, while several are ready for few slots.
//!   Their slots became free in one interrupt, and their ends would coincide again, as above. The
//!   delay of a request after its predecessor equals the delay of that predecessor after the event
//!   that made it ready. So each end is handled before the next one. Each request that is ready
//!   alone earns one pause, so a device whose ends coincide anyway has few pauses.
//! - *Over*: a request in flight without a slot, dispatched by a drain or after a stall.
//! - *Refused*: a request that failed unprocessed, because the device is offline, disconnected or
//!   removed. Policies return the charge of the request, so the next request follows at once.
//!   `ENODEV` means a refusal; `EIO` and `ENOLINK` may mean one, or a bad sector. They mean a
//!   refusal after [`REFUSALS`] such failures in a row, of any client, within a tick each. A device
//!   needs longer for a bad sector, and a success of any client ends the row. Only failed requests
//!   are free, so no user gets data beyond a limit.
//! - *Slot pool*: the slots and the partitions that wait for them, see
//!   [`crate::sched::partition::slot_pool`].
//!
//! ```text
//!             slot of the target               work item
//!   queued ───────────────────────▶ ready ───────────────▶ submitted ──▶ ended
//!                                     ▲
//!   forced ──▶ bypass ────────────────┘ another forced one has ended
//!   free, over ────────────────────────────────────────▶ submitted ──▶ ended
//! ```
//!
//! Each target has its own work item: submission may block, and a blocked device must not stop
//! others. A device may instead *pull* requests when a [`PullNotifier`] notifies it; then the work
//! item is not used, and requests with slots are dispatched when they are pulled
//! ([`crate::sched::partition::pull`]).

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

use super::target_parameters::{ClientKind, TargetParameters};
use crate::{
    sched::{
        attr::Priority,
        cpus::PerCpu,
        item::Fifo,
        knee::{DeviceLoad, Knee, SearchState, Totals},
        partition::{
            pull::PullGate, round, slot_cache::SlotCaches, slot_pool::SlotPool, Admission,
            Scheduled, BATCH,
        },
        slots::{Count, Pool, SlotLimits, Slots},
    },
    sys::{
        atomic::{AtomicWord, Hint},
        misc,
        node::{Held, NodeFifo},
        queue,
        rcu::RcuBox,
        series::{new_spinlock_irq, SpinLockIrq, ENOLINK},
        timer::{TimerCallback, WithTimer},
    },
};

/// Minimum limit of free requests at a device: twice the batch that reclaim writes
/// (`SWAP_CLUSTER_MAX`).
pub(crate) const FREE_MIN: u32 = 64;

/// Maximum number of slots with which ends are deferred. With more slots, the single work item
/// would limit a fast device, and the device idles little while a slot is filled.
const DEFER_MAX: u32 = 32;

/// Number of requests in a row that fail at once, with an error that bad sectors may have, before
/// the next one counts as refused.
const REFUSALS: u64 = 8;

/// Maximum length of a pause, ns.
#[cfg(feature = "elevator")]
const PAUSE_MAX: u64 = 100_000;

/// Requests between dispatch and submission.
struct Lists {
    /// Requests for the work item to submit.
    ready: NodeFifo,
    /// Requests whose end is deferred.
    ended: NodeFifo,
    /// Forced requests that are not admitted to the device yet.
    bypass: NodeFifo,
    /// Time at which a request of `bypass` was last admitted, or was added to the empty list (ns).
    moved: u64,
    /// True if the work item is queued or running and will read `ready` again.
    working: bool,
    /// Number of earned pauses, [`DEFER_MAX`] at most.
    #[cfg(feature = "elevator")]
    pauses: u32,
}

impl Lists {
    /// Marks the work item as needed; returns a pending submission if it is not running yet.
    fn wake(&mut self) -> PendingSubmission {
        PendingSubmission(!core::mem::replace(&mut self.working, true))
    }
}

/// Notifier of a device about ready requests at its target.
pub(crate) trait PullNotifier: Send + Sync {
    /// Makes the device pull soon. Any context, without locks, under RCU.
    fn run(&self);
}

impl TimerCallback for RcuBox<Arc<dyn PullNotifier>> {
    /// Makes the device pull, if there is a notifier.
    fn expired(timed: &WithTimer<Self>) {
        let guard = rcu::read_lock();
        if let Some(runner) = timed.get(&guard) {
            runner.run();
        }
    }
}

/// The device that processes the requests of a client.
pub(crate) struct LowerDevice<'a> {
    /// `major:minor`; empty: no device.
    pub(crate) name: &'a CStr,
    /// Device number.
    pub(crate) number: u32,
    /// Device number of the disk, if the device is a partition; else the same.
    pub(crate) whole: u32,
    /// Queue depth of the device; 0: unlimited.
    pub(crate) depth: u32,
    /// Notifier that makes the device pull its requests; `None`: requests are submitted to the
    /// device.
    pub(crate) runner: Option<Arc<dyn PullNotifier>>,
}

impl LowerDevice<'static> {
    /// No device: requests are served in user space.
    pub(crate) const NONE: Self = Self {
        name: c"",
        number: 0,
        whole: 0,
        depth: 0,
        runner: None,
    };
}

/// Notice that a target received requests to submit, and must be kicked.
#[derive(Clone, Copy)]
#[must_use = "dispatched requests are submitted only after a kick"]
pub(crate) struct PendingSubmission(bool);

impl PendingSubmission {
    /// Creates a pending submission without requests.
    pub(crate) const fn none() -> Self {
        Self(false)
    }

    /// Adds another pending submission of the same target.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A backing device of a service.
#[pin_data]
pub(crate) struct Target {
    index: u16,
    dispatch: Arc<TargetParameters>,
    number: Atomic<u32>,
    whole: Atomic<u32>,
    users: Atomic<u32>,
    depth: Atomic<u32>,
    /// Forced requests in flight. Incremented under the lock.
    forced: AtomicWord,
    /// Free requests in flight.
    free: AtomicWord,
    /// Requests in flight beyond the limits.
    over: AtomicWord,
    slot_pool: SlotPool,
    /// Time of the last sign of life of the device, by CPU, ms of the coarse clock.
    life: PerCpu<Hint>,
    /// Number of requests in a row that the device refused; other requests that ended reset it.
    refusals: Hint,
    /// Notifier that makes the device pull ready requests; if empty, the work item submits them.
    #[pin]
    runner: WithTimer<RcuBox<Arc<dyn PullNotifier>>>,
    /// 1: there is a notifier.
    pulls: Hint,
    /// 1: `ready` has a request to pull.
    listed: Hint,
    /// Whether the device may pull a request that is not dispatched yet.
    gate: PullGate,
    /// Time at which an interrupt found the first request to pull, or the end of the pause, ns; 0:
    /// no pause follows.
    since: Hint,
    /// Time from which requests may be pulled, ns; 0: now.
    paused_until: Hint,
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
    /// Creates a target without users, with `cpts` partitions.
    pub(crate) fn new(index: u16, dispatch: Arc<TargetParameters>, cpts: u16) -> Result<Arc<Self>> {
        let knee = Knee::new();
        let slots = match dispatch.slots() {
            Slots::Auto => knee.slots(),
            Slots::Fixed(slots) => slots.get(),
        };
        let caches = SlotCaches::new(nr_cpu_ids()).map_err(|_| ENOMEM)?;
        let life = PerCpu::new(nr_cpu_ids(), || Hint::new(0)).map_err(|_| ENOMEM)?;
        Arc::pin_init(
            try_pin_init!(Self {
                index,
                dispatch,
                number: Atomic::new(0),
                whole: Atomic::new(0),
                users: Atomic::new(0),
                depth: Atomic::new(0),
                forced: AtomicWord::new(0),
                free: AtomicWord::new(0),
                over: AtomicWord::new(0),
                slot_pool: SlotPool::with_caches(cpts, slots, caches),
                life,
                refusals: Hint::new(0),
                runner <- WithTimer::new(Ok::<_, Error>(RcuBox::new())),
                pulls: Hint::new(0),
                listed: Hint::new(0),
                gate: PullGate::new(),
                since: Hint::new(0),
                paused_until: Hint::new(0),
                knee <- new_spinlock!(knee, "nrs_knee"),
                lists <- new_spinlock_irq!(Lists {
                    ready: NodeFifo::new(),
                    ended: NodeFifo::new(),
                    bypass: NodeFifo::new(),
                    moved: 0,
                    working: false,
                    #[cfg(feature = "elevator")]
                    pauses: 0,
                }, "nrs_target"),
                work <- new_work!("nrs_target"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the index of the target in its service.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Returns the name of the service; empty if it has none.
    pub(crate) fn label(&self) -> &str {
        self.dispatch.label()
    }

    /// Returns the device number.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(ordering::Relaxed)
    }

    /// Returns the device number of the disk, if the device is a partition; else as
    /// [`Self::number`].
    pub(crate) fn whole(&self) -> u32 {
        self.whole.load(ordering::Relaxed)
    }

    /// Returns the number of clients of the target.
    pub(crate) fn users(&self) -> u32 {
        self.users.load(ordering::Relaxed)
    }

    /// Counts a user of the device `lower`. The first user sets the device number and the queue
    /// depth; each user of a device that pulls may set another depth.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the user was not counted.
    pub(crate) fn attach(&self, lower: &LowerDevice<'_>) -> Result {
        let pulls = lower.runner.is_some();
        if let Some(runner) = &lower.runner {
            // The state of a notifier must not be freed in a callback.
            self.runner.replace(Some(runner.clone()))?;
            self.pulls.set(1);
        }
        let first = self.users.fetch_add(1, ordering::Full) == 0;
        if first {
            *self.knee.lock() = Knee::new();
            self.number.store(lower.number, ordering::Relaxed);
            self.whole.store(lower.whole, ordering::Relaxed);
            self.life.iter().for_each(|life| life.set(0));
            self.refusals.set(0);
            self.gate.reset();
        }
        if first || pulls {
            self.set_depth(lower.depth);
        }
        Ok(())
    }

    /// Ends a use. After the last one, a device that pulls is not notified any more, and no
    /// notification is in progress. May sleep.
    pub(crate) fn detach(&self) {
        if self.users.fetch_sub(1, ordering::Full) == 1 && self.pulls() {
            self.pulls.set(0);
            // An empty cell needs no allocation.
            let _ = self.runner.replace(None);
        }
    }

    /// Returns true if the device pulls ready requests.
    pub(crate) fn pulls(&self) -> bool {
        self.pulls.get() != 0
    }

    /// Returns true if a framework dispatches the requests itself.
    pub(crate) fn is_driven(&self) -> bool {
        self.pulls() && self.dispatch.has_kind(ClientKind::Framework)
    }

    /// Notifies a framework that dispatches requests itself that some may be eligible. Call without
    /// locks.
    pub(crate) fn call_framework(&self) {
        if self.is_driven() {
            TimerCallback::expired(&self.runner);
        }
    }

    /// Sets the queue depth of the device (0: unlimited).
    pub(crate) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, ordering::Relaxed);
        self.follow_slots();
    }

    /// Sets the slots to the configured number, but at most the queue depth, so that the order is
    /// decided here and not in the device.
    pub(crate) fn follow_slots(&self) {
        // The tuner and a change of the setting may run at once: the later one reads both values
        // again, and so takes effect.
        let mut knee = self.knee.lock();
        let depth = match self.depth.load(ordering::Relaxed) {
            0 => Count::MAX,
            depth => depth,
        };
        let slots = match self.dispatch.slots() {
            Slots::Fixed(slots) => slots.get().min(depth),
            Slots::Auto => {
                knee.bound(depth.min(Count::MAX));
                knee.slots()
            }
        };
        self.slot_pool.set_slots(slots);
    }

    /// Updates the automatic slots from the completed requests in `totals`; returns true if the
    /// slots were increased. Called about every [`SAMPLE_MIN`](crate::sched::knee::SAMPLE_MIN)
    /// while requests are queued and slots are `auto`.
    pub(crate) fn tune(&self, totals: Totals) -> bool {
        let before = self.limit();
        let active = self.pool().active();
        // Some slots may be free for a moment only.
        let full = active.saturating_add(1) >= before.saturating_sub(before / 8);
        let load = match self.slot_pool.was_always_contended() && full {
            true if active > before => DeviceLoad::Over,
            true => DeviceLoad::Full,
            false => DeviceLoad::Light,
        };
        self.knee.lock().sample(totals, load);
        self.follow_slots();
        self.limit() > before
    }

    /// Returns the most requests and the most bytes per second that were measured with `auto`
    /// slots; 0 if unknown.
    pub(crate) fn capacity(&self) -> [u64; 2] {
        self.knee.lock().capacity()
    }

    /// Returns the measured number of slots that keep the device busy, if slots are `auto`.
    pub(crate) fn found(&self) -> SearchState {
        match self.dispatch.slots() {
            Slots::Auto => self.knee.lock().found(!self.slot_pool.is_uncontended()),
            Slots::Fixed(_) => SearchState::default(),
        }
    }

    /// Returns the slots in effect.
    pub(crate) fn limit(&self) -> u32 {
        self.slot_pool.slots()
    }

    /// Returns the number of requests in flight.
    pub(crate) fn active(&self) -> u32 {
        self.pool().active().saturating_add(self.forced())
    }

    /// Returns the number of requests in flight without a slot.
    pub(crate) fn forced(&self) -> u32 {
        let bounded = self.forced.get().saturating_add(self.free.get());
        bounded.saturating_add(self.over.get()) as u32
    }

    /// Returns the time of the last sign of life of the device, ms of the coarse clock; 0: none.
    pub(crate) fn life(&self) -> u64 {
        let each = self.life.iter().map(Hint::get);
        each.max().unwrap_or(0)
    }

    /// Records a completion of the device at `now`.
    pub(crate) fn note_completion(&self, cpu: u16, now: u64) {
        // Written only on change, because other CPUs read the value all the time.
        if let Some(life) = self.life.of(cpu.into()).filter(|life| life.get() != now) {
            life.set(now);
        }
    }

    /// Returns true if the device refused the last request that ended.
    #[inline]
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusals.get() != 0
    }

    /// Records the end of a request with the errno `error`, or 0; `service_ms` returns its service
    /// time by the coarse clock. Returns true if the device refused the request.
    #[inline]
    pub(crate) fn note_result(&self, error: i32, service_ms: impl FnOnce() -> u32) -> bool {
        if error != 0 {
            return self.note_failure(error, service_ms());
        }
        // Written only on change, because other CPUs read the value all the time.
        if self.is_refusing() {
            self.refusals.set(0);
        }
        false
    }

    /// Records the end of a failed request, see [`Self::note_result`].
    #[cold]
    fn note_failure(&self, error: i32, service_ms: u32) -> bool {
        let is = |one: Error| error == one.to_errno();
        let (is_gone, may_be_gone) = (is(ENODEV), is(EIO) || is(ENOLINK));
        let refusals = match self.refusals.get() {
            before if is_gone || (may_be_gone && service_ms == 0) => before.saturating_add(1),
            // The request took less than a tick, but a new one has begun meanwhile.
            before if may_be_gone && u64::from(service_ms) <= misc::MILLIS_LAG => before,
            _ => 0,
        };
        self.refusals.set(refusals);
        is_gone || refusals > REFUSALS
    }

    /// Returns the slots, and the partitions that wait for them.
    pub(crate) fn slot_pool(&self) -> &SlotPool {
        &self.slot_pool
    }

    /// Returns the number of high-priority requests in a row while a regular one is pending.
    pub(crate) fn ratio(&self) -> u32 {
        self.dispatch.ratio()
    }

    /// Returns the current limits of the slots.
    pub(crate) fn limits(&self) -> SlotLimits {
        self.slot_pool.limits(self.ratio(), misc::millis())
    }

    /// Returns the slots in use.
    pub(crate) fn pool(&self) -> Pool {
        self.slot_pool.used()
    }

    /// Calls the progress hook if a partition other than that of `cpt` may take a slot.
    pub(crate) fn notify_other_partitions(&self, cpt: u16) {
        if round::is_needed(&self.slot_pool, cpt, || self.limits()) {
            self.dispatch.call_progress_hook();
        }
    }

    /// Returns the maximum number of forced requests in flight.
    fn forced_max(&self) -> u64 {
        u64::from(self.limit() / 2).max(1)
    }

    /// Grants admission to a request without any limit.
    pub(crate) fn admit_any(&self) -> Admission {
        self.over.add(1);
        Admission::Over
    }

    /// Grants admission to a request that must not be throttled; `reclaims` is true if it frees
    /// memory. Returns `None` if the request has to queue in the bypass.
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

    /// Queues a forced request in the bypass.
    pub(crate) fn bypass(&self, held: Held) -> PendingSubmission {
        let mut lists = self.lists.lock();
        if lists.bypass.is_empty() {
            lists.moved = misc::now();
        }
        lists.bypass.push(held);
        self.admit_bypass(&mut lists, Admission::Forced)
    }

    /// Ends the admission of a request of `priority` that ended on `cpu`, or is not submitted.
    #[inline]
    pub(crate) fn leave(
        &self,
        admission: Admission,
        priority: Priority,
        cpu: u16,
    ) -> PendingSubmission {
        match admission {
            Admission::None => {}
            Admission::Slot => self.slot_pool.put_on(cpu.into(), priority),
            Admission::Free => {
                self.free.sub(1);
            }
            Admission::Over => {
                self.over.sub(1);
            }
            Admission::Forced => return self.leave_forced(),
        }
        PendingSubmission::none()
    }

    /// Ends the admission of a forced request.
    #[inline(never)]
    fn leave_forced(&self) -> PendingSubmission {
        let mut lists = self.lists.lock();
        self.forced.sub(1);
        self.admit_bypass(&mut lists, Admission::Forced)
    }

    /// Dispatches all forced requests in the bypass. May sleep.
    pub(crate) fn admit_all_bypass(self: &Arc<Self>) {
        let mut left = true;
        while left {
            let kick = {
                let mut lists = self.lists.lock();
                let kick = self.admit_bypass(&mut lists, Admission::Over);
                left = !lists.bypass.is_empty();
                kick
            };
            self.kick(kick);
            misc::cond_resched();
        }
    }

    /// Dispatches a batch of the bypass if no request left it for `stall` ns; returns true if so.
    pub(crate) fn unstall(&self, stall: u64) -> (bool, PendingSubmission) {
        let mut lists = self.lists.lock();
        let waited = misc::now().saturating_sub(lists.moved);
        if lists.bypass.is_empty() || waited < stall {
            return (false, PendingSubmission::none());
        }
        let moved = lists.moved;
        let kick = self.admit_bypass(&mut lists, Admission::Over);
        // A dispatch by a stall is no progress.
        lists.moved = moved;
        (true, kick)
    }

    /// Grants admission to a batch of the bypass: up to the limit of forced requests, or without
    /// limit if `admission` is `Over`.
    fn admit_bypass(&self, lists: &mut Lists, admission: Admission) -> PendingSubmission {
        let mut kick = PendingSubmission::none();
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

    /// Accepts an admitted request. The caller must pass the result to [`Self::kick`] after it has
    /// released its locks.
    pub(crate) fn send(&self, held: Held) -> PendingSubmission {
        let mut lists = self.lists.lock();
        self.push(&mut lists, held);
        lists.wake()
    }

    /// Adds a request to the ready requests.
    fn push(&self, lists: &mut Lists, held: Held) {
        if lists.ready.is_empty() && self.pulls() {
            self.begin_pause();
        }
        self.add(lists, held);
    }

    /// Adds a request to the ready requests, without a pause before the next one.
    #[inline]
    fn add(&self, lists: &mut Lists, held: Held) {
        if lists.ready.is_empty() {
            self.listed.set(1);
        }
        lists.ready.push(held);
    }

    /// Returns the maximum number of requests that an event dispatches, as
    /// [`Env::batch`](crate::sched::partition::Env::batch) does.
    #[inline]
    pub(crate) fn batch(&self) -> Option<u32> {
        if self.pulls() {
            self.gate.batch()
        } else {
            Some(BATCH)
        }
    }

    /// Records that the device may pull one more request after one that it pulls now.
    #[inline]
    pub(crate) fn record_next(&self) {
        self.gate.open();
    }

    /// Records that the device may pull one more request.
    #[inline]
    pub(crate) fn record_more(&self) -> PendingSubmission {
        let opened = self.gate.open();
        if opened {
            self.begin_pause();
        }
        PendingSubmission(opened)
    }

    /// Records that an interrupt found the first request to pull, if there are few slots.
    #[inline]
    fn begin_pause(&self) {
        if self.is_few_in_interrupt() {
            self.since.set(misc::now());
        }
    }

    /// Accepts an admitted request that its device pulls without a notification. A caller that adds
    /// a ready request meanwhile still notifies the device, because the inserter may sleep before
    /// it pulls.
    #[cfg(feature = "elevator")]
    pub(crate) fn offer(&self, held: Held) {
        self.add(&mut self.lists.lock(), held);
    }

    /// Returns the gate of the requests that the device may pull.
    #[cfg(feature = "elevator")]
    pub(crate) fn gate(&self) -> &PullGate {
        &self.gate
    }

    /// Returns the next request for a device that pulls: a ready one, or one that `dispatch`
    /// dispatches now.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn pull(&self, dispatch: impl FnOnce() -> Option<Held>) -> Option<Held> {
        let mut held = self.pop_ready();
        if held.is_none() && self.gate.is_open() {
            // Other requests may have become ready meanwhile.
            held = dispatch().or_else(|| self.pop_ready());
        }
        if self.since.get() != 0 {
            self.pause(held.as_ref());
        }
        held
    }

    /// Removes the next ready request.
    #[cfg(feature = "elevator")]
    #[inline]
    fn pop_ready(&self) -> Option<Held> {
        if self.listed.get() == 0 {
            return None;
        }
        let mut lists = self.lists.lock();
        let held = lists.ready.pop();
        // The next caller that adds a ready request notifies the device.
        lists.working = !lists.ready.is_empty();
        self.listed.set(lists.working.into());
        held
    }

    /// Returns true if there is a request to pull, in a pause or not.
    #[cfg(feature = "elevator")]
    #[inline]
    fn has_more(&self) -> bool {
        self.gate.is_open() || self.listed.get() != 0
    }

    /// Starts the pause after the request `held`, which the device has pulled, and arms the timer
    /// for its end.
    #[cfg(feature = "elevator")]
    #[inline(never)]
    fn pause(&self, held: Option<&Held>) {
        let mut lists = self.lists.lock();
        let is_slot = held.is_some_and(|held| held.placement().admission == Admission::Slot);
        let mut until = 0;
        if !self.has_more() {
            lists.pauses = DEFER_MAX.min(lists.pauses.wrapping_add(is_slot.into()));
            self.since.set(0);
        } else if is_slot && lists.pauses > 0 {
            lists.pauses = lists.pauses.wrapping_sub(1);
            let now = misc::now();
            let pause = now.saturating_sub(self.since.get()).min(PAUSE_MAX);
            until = now.saturating_add(pause);
            self.since.set(until);
            // Under the lock, so that the timer is armed for the last pause.
            self.runner.arm(until);
        }
        self.paused_until.set(until);
    }

    /// Returns true if there is a request to pull now, without the lock.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        let until = self.paused_until.get();
        self.has_more() && (until == 0 || until <= misc::now())
    }

    /// Returns true if the end of a request with `admission`, which is being handled, is to be
    /// deferred.
    #[inline]
    pub(crate) fn defers(&self, admission: Admission) -> bool {
        admission == Admission::Slot
            && !self.slot_pool.is_uncontended()
            && self.is_few_in_interrupt()
            && !self.pool().allows(Priority::Regular, &self.limits())
    }

    /// Returns true in an interrupt if there are few slots.
    #[inline(never)]
    fn is_few_in_interrupt(&self) -> bool {
        misc::in_interrupt() && self.limit() <= DEFER_MAX
    }

    /// Accepts a request whose end is deferred. Any context.
    pub(crate) fn defer(self: &Arc<Self>, held: Held) {
        let kick = {
            let mut lists = self.lists.lock();
            lists.ended.push(held);
            lists.wake()
        };
        self.kick(kick);
    }

    /// Makes the work item or the device process ready requests, if there are any. Call without
    /// locks.
    #[inline]
    pub(crate) fn kick(self: &Arc<Self>, kick: PendingSubmission) {
        if kick.0 {
            self.start();
        }
    }

    /// Starts the work item, or makes the device pull.
    #[inline(never)]
    fn start(self: &Arc<Self>) {
        if self.pulls() {
            return TimerCallback::expired(&self.runner);
        }
        // According to `working` the work item is not queued; if it is queued, it runs anyway.
        let _ = queue::dispatch().enqueue(self.clone());
    }

    /// Submits ready requests, and ends deferred ones.
    fn run_work(self: &Arc<Self>) {
        // The plug size doubles, so that the device does not idle while a long batch is prepared.
        let mut plug: u32 = 1;
        let mut ending: Option<Held> = None;
        loop {
            let mut batch = NodeFifo::new();
            let ended = {
                let mut lists = self.lists.lock();
                if self.pulls() {
                    // The target was assigned to another device since the work item was started.
                    lists.working = false;
                    let kick = if lists.ready.is_empty() {
                        PendingSubmission::none()
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
                // Releases the slot, so that the next request with this slot is ready.
                held.count_end();
            }
            misc::cond_resched();
        }
    }
}

impl WorkItem for Target {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_work();
    }
}
