// SPDX-License-Identifier: GPL-2.0-only

//! Limits on the requests that the clients of a service may have in it.
//!
//! # Terms
//!
//! - *Client*: a network identifier on a file of `/dev/nrs`, or a block device.
//! - *Active*: a client that has a request queued or in service.
//! - *Fan-out*: number of active clients.
//! - *Credits*: requests that each active client may have in the service ([`Credits`]).
//! - *Pool*: sum of the requests distributed as credits: [`PER_SLOT`] for each slot, at most
//!   `buffer_max`.
//! - *Room*: buffer space for one request of a program; the total is `buffer_max`.
//!
//! ```text
//!   first request of a client ──▶ enter ──▶ active ──▶ leave ◀── its last request has ended
//!
//!   request ──▶ begin ──┬── room ──▶ queued, in service ──▶ end ──▶ a waiting writer is woken
//!                       └── none ──▶ wait, or EAGAIN
//! ```
//!
//! With few active clients each may have many requests, so that a single one gets the full speed.
//! With many, each may have few, so that a new client finds about [`PER_SLOT`] rounds of requests
//! before its own.
//!
//! Credits are advice to programs. If `nrs_enforce_credits` is set, a block device with that many
//! requests queued blocks its submitters, for a second per request at most. Exempt are kernel
//! threads, tasks that reclaim memory or are in a transaction of a file system, and tasks with
//! other requests to submit first. A queued request may depend on these tasks. The time limit
//! covers dependencies that cannot be detected, such as locks.
//!
//! # Locking
//!
//! All numbers are atomic. The lock only serialises sleep and wake-up. If the buffer was full, a
//! task that frees room takes the lock before the wake-up. So every task that found the buffer full
//! is asleep by then. The same applies to blocked submitters. A dispatched request wakes one of
//! them; credits that rise as a client becomes inactive wake one of each device, which wakes the
//! next.

use kernel::{
    fs, new_condvar,
    prelude::*,
    static_lock_class,
    sync::{poll::PollTable, Arc, CondVar, CondVarTimeoutResult},
    time::msecs_to_jiffies,
};

use crate::{
    sched::{credits::Credits, statistics::ConcurrencyCounts},
    sys::{
        atomic::{AtomicWord, Counter, Hint},
        series::{new_spinlock_irq, PollCondVarBox, SpinLockIrq},
    },
};

/// Credits of all clients of a service together, for each slot.
const PER_SLOT: u32 = 8;

/// Maximum time for which a submitter is blocked, ms; a submitter that waits for its own later
/// requests continues then.
const PATIENCE_MS: u32 = 1000;

/// Blocked submitters of one block device.
pub(crate) struct HeldSubmitters {
    waiting: AtomicWord,
    bell: PollCondVarBox,
}

impl HeldSubmitters {
    /// Returns true if a submitter is blocked.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.get() != 0
    }
}

/// Limits on the requests of the clients of a service.
#[pin_data]
pub(crate) struct Concurrency {
    /// Number of active clients.
    active: AtomicWord,
    /// Credits of each client, packed.
    credits: AtomicWord,
    /// 1: block devices block submitters that exceed the credits.
    enforced: Hint,
    /// Slots of the service.
    slots: AtomicWord,
    /// Maximum number of requests of programs in the buffer.
    buffer_max: AtomicWord,
    /// Number of requests of programs in the buffer.
    requests: AtomicWord,
    /// Not 0: the records of requests have run out, so there is no room until records are freed or
    /// allocated.
    starved: AtomicWord,
    /// Number of requests that found no room at first.
    waits: Counter,
    /// Number of requests beyond the credits of their clients.
    over: Counter,
    /// Tasks that wait for room.
    #[pin]
    roomy: CondVar,
    /// Polls for room. Their queue is another one, because a poll consumes a notification of one
    /// waiter, though it may not use it (`EPOLLEXCLUSIVE`).
    polls: PollCondVarBox,
    /// Number of blocked submitters of all block devices.
    standing: AtomicWord,
    /// Blocked submitters of each block device.
    #[pin]
    gate: SpinLockIrq<KVec<Arc<HeldSubmitters>>>,
}

impl Concurrency {
    /// Creates the limits of a service with `slots` slots, room for `buffer_max` requests of
    /// programs, and no active client.
    pub(crate) fn new(slots: u32, buffer_max: u32) -> Result<Arc<Self>> {
        let polls = PollCondVarBox::new(c"nrs_buffer", static_lock_class!())?;
        let this = Arc::pin_init(
            pin_init!(Self {
                active: AtomicWord::new(0),
                credits: AtomicWord::new(Credits::NONE.pack()),
                enforced: Hint::new(0),
                slots: AtomicWord::new(slots.into()),
                buffer_max: AtomicWord::new(buffer_max.into()),
                requests: AtomicWord::new(0),
                starved: AtomicWord::new(0),
                waits: Counter::new(),
                over: Counter::new(),
                roomy <- new_condvar!("nrs_buffer"),
                polls,
                standing: AtomicWord::new(0),
                gate <- new_spinlock_irq!(KVec::new(), "nrs_gate"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        this.update();
        Ok(this)
    }

    /// Sets the slots of the service.
    pub(crate) fn set_slots(&self, slots: u32) {
        self.slots.set(slots.into());
        self.update();
        self.wake_each_device();
    }

    /// Sets the maximum number of requests of programs; existing requests stay.
    pub(crate) fn set_buffer_max(&self, max: u32) {
        self.buffer_max.set(max.into());
        self.update();
        self.wake_each_device();
        self.starved.set(0);
        self.wake_all();
    }

    /// Sets whether block devices block submitters that exceed the credits of their device.
    pub(crate) fn enforce(&self, on: bool) {
        self.enforced.set(on.into());
        self.wake_each_device();
    }

    /// Returns true if a block device with `held` requests queued has used up its credits, and
    /// credits are enforced.
    #[inline]
    pub(crate) fn is_full(&self, held: u64) -> bool {
        self.enforced.get() != 0 && held >= self.credits(false).into()
    }

    /// Creates the list of blocked submitters of another block device. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn open(&self) -> Result<Arc<HeldSubmitters>> {
        let queue = Arc::new(
            HeldSubmitters {
                waiting: AtomicWord::new(0),
                bell: PollCondVarBox::new(c"nrs_submitters", static_lock_class!())?,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        loop {
            let len = self.gate.lock().len();
            let mut more = KVec::with_capacity(len.saturating_add(1), GFP_KERNEL_ACCOUNT)?;
            let mut queues = self.gate.lock();
            // No allocation under the lock. If lists were added meanwhile, the next attempt has
            // room for them.
            if queues.len() <= len {
                for queue in queues.drain_all() {
                    let _ = more.push_within_capacity(queue);
                }
                let _ = more.push_within_capacity(queue.clone());
                core::mem::swap(&mut *queues, &mut more);
                drop(queues);
                return Ok(queue);
            }
        }
    }

    /// Removes a list without blocked submitters.
    pub(crate) fn close(&self, queue: &Arc<HeldSubmitters>) {
        self.gate.lock().retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Blocks in `queue` until `full` returns false, a signal arrives, or [`PATIENCE_MS`] have
    /// passed.
    #[cold]
    pub(crate) fn stand(&self, queue: &HeldSubmitters, full: impl Fn() -> bool) {
        self.waits.count(1);
        queue.waiting.add(1);
        self.standing.add(1);
        let mut left = msecs_to_jiffies(PATIENCE_MS);
        let mut gate = self.gate.lock();
        while full() {
            match queue.bell.wait_interruptible_timeout(&mut gate, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout | CondVarTimeoutResult::Signal { .. } => {
                    self.count_over();
                    break;
                }
            }
        }
        drop(gate);
        self.standing.sub(1);
        queue.waiting.sub(1);
    }

    /// Wakes one submitter that is blocked in `queue`, or `all`.
    #[cold]
    pub(crate) fn call(&self, queue: &HeldSubmitters, all: bool) {
        drop(self.gate.lock());
        if all {
            queue.bell.notify_all();
        } else {
            queue.bell.notify_one();
        }
    }

    /// Wakes one submitter of each block device after credits were raised or are no longer
    /// enforced. Any context.
    #[cold]
    fn wake_each_device(&self) {
        let queues = self.gate.lock();
        for queue in queues.iter().filter(|queue| queue.is_busy()) {
            queue.bell.notify_one();
        }
    }

    fn wake_all(&self) {
        drop(self.gate.lock());
        self.roomy.notify_all();
        self.polls.notify_all();
    }

    /// Counts a client that becomes active. Any context, also with the lock of a partition: wakes
    /// no submitter.
    pub(crate) fn enter(&self) {
        self.active.add(1);
        self.update();
    }

    /// Counts a client that is no longer active. Any context, without locks.
    pub(crate) fn leave(&self) {
        self.active.sub(1);
        // A submitter counts itself before it checks the credits.
        if self.update() && self.standing.get() != 0 {
            self.wake_each_device();
        }
    }

    /// Returns the number of active clients.
    pub(crate) fn fan_out(&self) -> u32 {
        u32::try_from(self.active.get()).unwrap_or(u32::MAX)
    }

    /// Returns the number of requests that are distributed as credits.
    fn pool(&self) -> u32 {
        let slots = self.slots.get().saturating_mul(PER_SLOT.into());
        u32::try_from(slots.min(self.buffer_max.get())).unwrap_or(u32::MAX)
    }

    /// Recomputes the credits if the fan-out or the pool requires it; returns true if they rose.
    fn update(&self) -> bool {
        Credits::update(&self.credits, || (self.fan_out(), self.pool()))
    }

    /// Returns the number of requests that a client may have in the service; more if it is
    /// `urgent`, because other requests depend on one of them.
    pub(crate) fn credits(&self, urgent: bool) -> u32 {
        let credits = Credits::unpack(self.credits.get());
        if urgent {
            credits.urgent(self.pool())
        } else {
            credits.each()
        }
    }

    /// Counts a request beyond the credits of its client.
    pub(crate) fn count_over(&self) {
        self.over.count(1);
    }

    /// Reserves room for a request of a program; returns true if there was room.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        let max = self.buffer_max.get();
        let began = self
            .requests
            .change(|requests| (requests < max).then(|| requests.wrapping_add(1)));
        if !began {
            self.waits.count(1);
        }
        began
    }

    /// Releases the room of a request. Any context.
    pub(crate) fn end(&self) {
        self.withdraw();
        self.fed();
    }

    /// Releases the room of a request that did not get a record, so that no record is freed with
    /// it.
    pub(crate) fn withdraw(&self) {
        if self.requests.sub(1) >= self.buffer_max.get() {
            drop(self.gate.lock());
            self.roomy.notify_one();
            self.polls.notify_all();
        }
    }

    /// Records that the records of requests have run out though the buffer is not full. There is no
    /// room until [`Self::fed`].
    pub(crate) fn records_exhausted(&self) {
        self.starved.set(1);
    }

    /// Records that there may be records of requests again. Any context.
    pub(crate) fn fed(&self) {
        if self.starved.get() != 0 {
            self.starved.set(0);
            self.wake_all();
        }
    }

    /// Returns true if there is room.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.get() < self.buffer_max.get() && self.starved.get() == 0
    }

    /// Waits until there is room, which another task may take. The caller must call
    /// [`Self::wake_next`] when it has reserved room, or gives up.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS`: a signal arrived.
    pub(crate) fn wait(&self) -> Result {
        let mut gate = self.gate.lock();
        while !self.has_room() {
            if self.roomy.wait_interruptible(&mut gate) && !self.has_room() {
                return Err(ERESTARTSYS);
            }
        }
        Ok(())
    }

    /// Wakes the next task that waits for room, if there is room left.
    pub(crate) fn wake_next(&self) {
        if self.has_room() {
            self.roomy.notify_one();
        }
    }

    /// Registers `table` to be woken when there is room.
    pub(crate) fn register(&self, file: &fs::File, table: &PollTable<'_>) {
        table.register_wait(file, &self.polls);
    }

    /// Returns the numbers.
    pub(crate) fn counts(&self) -> ConcurrencyCounts {
        ConcurrencyCounts {
            fan_out: self.fan_out().into(),
            credits: self.credits(false).into(),
            credits_high: self.credits(true).into(),
            pool: self.pool().into(),
            buffer_max: self.buffer_max.get(),
            requests: self.requests.get(),
            waits: self.waits.get(),
            over: self.over.get(),
        }
    }
}
