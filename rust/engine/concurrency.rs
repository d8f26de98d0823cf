// SPDX-License-Identifier: GPL-2.0-only

//! How many requests the clients of a service may have in it.
//!
//! # Vocabulary
//!
//! - *Client*: whoever a request is for: a network identifier on a file of `/dev/nrs`, or a block device.
//! - *Active*: it has a request that is queued or in service.
//! - *Fan-out*: how many clients are active.
//! - *Credits*: requests that each active client may have in the service ([`Credits`]).
//! - *Pool*: what is shared out as credits: [`PER_SLOT`] requests for each slot, and no more than the buffer
//!   holds.
//! - *Room*: a place for a request of a program; there are `buffer_max`.
//!
//! ```text
//!   first request of a client ──▶ enter ──▶ active ──▶ leave ◀── its last one has ended
//!
//!   request ──▶ begin ──┬── a place ──▶ queued, in service ──▶ end ──▶ whoever waits is woken
//!                       └── none ──▶ wait, or EAGAIN
//! ```
//!
//! Few clients may have many requests each, so that one alone gets the full speed; many may have few each,
//! so that a newcomer finds about [`PER_SLOT`] rounds of requests before its own.
//!
//! Credits are advice to programs. If `nrs_enforce_credits` is set, a block device with that many requests queued holds back
//! its submitters, each for a second per request at most. Exempt are kernel threads, tasks that reclaim memory or are in a
//! transaction of a file system, and tasks with other requests to submit first: a queued request may depend on these.
//! The bound in time is for what cannot be seen, such as locks.
//!
//! # Locking
//!
//! All numbers are atomic. The lock is only for those who wait: who frees a place takes it before the wake-up if the
//! buffer was full, so that whoever found it full is asleep by then. The same where submitters are held back: by a request
//! that is dispatched one goes on, and by more credits one of each device, who calls the next.

use core::fmt;

use kernel::{
    fs,
    prelude::*,
    static_lock_class,
    sync::{poll::PollTable, Arc, CondVarTimeoutResult},
    time::msecs_to_jiffies,
};

use crate::{
    sched::{
        credits::Credits,
        statistics::{ConcurrencyCounts, Stats},
    },
    sys::{
        atomic::{Counter, Hint, Word},
        series::{new_spinlock_irq, PollCondVarBox, SpinLockIrq},
    },
};

/// Requests that the clients of a service may have together, for each of its slots.
const PER_SLOT: u32 = 8;

/// How long a submitter is held back at most, ms: whoever waits for what he has not submitted yet goes on.
const PATIENCE_MS: u32 = 1000;

/// Submitters of one block device that are held back.
pub(crate) struct Line {
    waiting: Word,
    bell: PollCondVarBox,
}

impl Line {
    /// Whether somebody is held back.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.get() != 0
    }
}

/// How many requests the clients of a service may have in it.
#[pin_data]
pub(crate) struct Concurrency {
    /// Clients that are active.
    active: Word,
    /// What is told to each, packed.
    credits: Word,
    /// 1: block devices hold back who submits more.
    enforced: Hint,
    /// Slots of the service.
    slots: Word,
    /// Requests of programs that may be there.
    buffer_max: Word,
    /// Requests of programs that are there.
    requests: Word,
    /// Not 0: records of requests have run out, so there is no room until some are freed or made.
    starved: Word,
    /// Requests that found no room at first.
    waits: Counter,
    /// Requests beyond what their clients were told.
    over: Counter,
    roomy: PollCondVarBox,
    /// Submitters that are held back, of all block devices.
    standing: Word,
    /// The lines of all block devices.
    #[pin]
    gate: SpinLockIrq<KVec<Arc<Line>>>,
}

impl Concurrency {
    /// Nobody is active in a service with `slots` slots and room for `buffer_max` requests of programs.
    pub(crate) fn new(slots: u32, buffer_max: u32) -> Result<Arc<Self>> {
        let roomy = PollCondVarBox::new(c"nrs_buffer", static_lock_class!())?;
        let this = Arc::pin_init(
            pin_init!(Self {
                active: Word::new(0),
                credits: Word::new(Credits::NONE.pack()),
                enforced: Hint::new(0),
                slots: Word::new(slots.into()),
                buffer_max: Word::new(buffer_max.into()),
                requests: Word::new(0),
                starved: Word::new(0),
                waits: Counter::new(),
                over: Counter::new(),
                roomy,
                standing: Word::new(0),
                gate <- new_spinlock_irq!(KVec::new(), "nrs_gate"),
            }),
            GFP_KERNEL,
        )?;
        this.update();
        Ok(this)
    }

    /// Sets the slots of the service.
    pub(crate) fn set_slots(&self, slots: u32) {
        self.slots.set(slots.into());
        self.update();
    }

    /// Sets how many requests of programs may be there; those that are there stay.
    pub(crate) fn set_buffer_max(&self, max: u32) {
        self.buffer_max.set(max.into());
        self.update();
        self.wake_all();
    }

    /// Sets whether block devices hold back who submits more than the credits of his device.
    pub(crate) fn enforce(&self, on: bool) {
        self.enforced.set(on.into());
        self.call_each();
    }

    /// Whether a block device with `held` requests queued is to take no more for now.
    #[inline]
    pub(crate) fn is_full(&self, held: u64) -> bool {
        self.enforced.get() != 0 && held >= self.credits(false).into()
    }

    /// A line for another block device; sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn open(&self) -> Result<Arc<Line>> {
        let line = Arc::new(
            Line {
                waiting: Word::new(0),
                bell: PollCondVarBox::new(c"nrs_crowd", static_lock_class!())?,
            },
            GFP_KERNEL,
        )?;
        loop {
            let len = self.gate.lock().len();
            let mut more = KVec::with_capacity(len.saturating_add(1), GFP_KERNEL)?;
            let mut lines = self.gate.lock();
            // Nothing allocates here. What has come meanwhile fits next time.
            if lines.len() <= len {
                for line in lines.drain_all() {
                    let _ = more.push_within_capacity(line);
                }
                let _ = more.push_within_capacity(line.clone());
                core::mem::swap(&mut *lines, &mut more);
                drop(lines);
                return Ok(line);
            }
        }
    }

    /// Takes away a line, in which nobody stands.
    pub(crate) fn close(&self, line: &Arc<Line>) {
        self.gate.lock().retain(|other| !Arc::ptr_eq(other, line));
    }

    /// Waits in `line` until `full` is over, or a signal came, or [`PATIENCE_MS`] have passed.
    #[cold]
    pub(crate) fn stand(&self, line: &Line, full: impl Fn() -> bool) {
        self.waits.count(1);
        line.waiting.add(1);
        self.standing.add(1);
        let mut left = msecs_to_jiffies(PATIENCE_MS);
        let mut gate = self.gate.lock();
        while full() {
            match line.bell.wait_interruptible_timeout(&mut gate, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout | CondVarTimeoutResult::Signal { .. } => {
                    self.count_over();
                    break;
                }
            }
        }
        drop(gate);
        self.standing.sub(1);
        line.waiting.sub(1);
    }

    /// Wakes one that stands in `line`, or `all`.
    #[cold]
    pub(crate) fn call(&self, line: &Line, all: bool) {
        drop(self.gate.lock());
        if all {
            line.bell.notify_all();
        } else {
            line.bell.notify_one();
        }
    }

    /// Wakes one in each line: credits have risen, or do not count any more. Any context.
    #[cold]
    fn call_each(&self) {
        let lines = self.gate.lock();
        for line in lines.iter().filter(|line| line.is_busy()) {
            line.bell.notify_one();
        }
    }

    fn wake_all(&self) {
        drop(self.gate.lock());
        self.roomy.notify_all();
    }

    /// A client is active from now on. Any context.
    pub(crate) fn enter(&self) {
        self.active.add(1);
        self.update();
    }

    /// A client that entered is not active any more. Any context.
    pub(crate) fn leave(&self) {
        self.active.sub(1);
        self.update();
    }

    /// Clients that are active.
    pub(crate) fn fan_out(&self) -> u32 {
        u32::try_from(self.active.get()).unwrap_or(u32::MAX)
    }

    /// What is shared out.
    fn pool(&self) -> u32 {
        let slots = self.slots.get().saturating_mul(PER_SLOT.into());
        u32::try_from(slots.min(self.buffer_max.get())).unwrap_or(u32::MAX)
    }

    /// Computes the credits anew where the fan-out or the pool asks for it, and tells who is held back.
    fn update(&self) {
        let changed = self.credits.change(|packed| {
            let old = Credits::unpack(packed);
            let new = old.at(self.fan_out(), self.pool());
            (new != old).then(|| new.pack())
        });
        // Who stands in line counts himself first.
        if changed && self.standing.get() != 0 {
            self.call_each();
        }
    }

    /// Requests that a client may have in the service; more if it is `urgent`, because others wait for one
    /// of them.
    pub(crate) fn credits(&self, urgent: bool) -> u32 {
        let credits = Credits::unpack(self.credits.get());
        if urgent {
            credits.urgent(self.pool())
        } else {
            credits.each()
        }
    }

    /// Counts a request beyond what its client was told.
    pub(crate) fn count_over(&self) {
        self.over.count(1);
    }

    /// Takes a place for a request of a program; whether there was one.
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

    /// Gives the place of a request back. Any context.
    pub(crate) fn end(&self) {
        self.withdraw();
        self.fed();
    }

    /// Gives the place of a request back that did not get a record, so that nothing is freed by it.
    pub(crate) fn withdraw(&self) {
        if self.requests.sub(1) >= self.buffer_max.get() {
            drop(self.gate.lock());
            self.roomy.notify_one();
        }
    }

    /// Records of requests have run out though the buffer is not full: there is no room until
    /// [`Self::fed`].
    pub(crate) fn starve(&self) {
        self.starved.set(1);
    }

    /// There may be records of requests again. Any context.
    pub(crate) fn fed(&self) {
        if self.starved.get() != 0 {
            self.starved.set(0);
            self.wake_all();
        }
    }

    /// Whether there is a place.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.get() < self.buffer_max.get() && self.starved.get() == 0
    }

    /// Waits until there is a place, which another may take; whoever waited hands on with
    /// [`Self::hand_on`] when it has its own, or wants none any more.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS`: a signal came.
    pub(crate) fn wait(&self) -> Result {
        let mut gate = self.gate.lock();
        while !self.has_room() {
            if self.roomy.wait_interruptible(&mut gate) && !self.has_room() {
                return Err(ERESTARTSYS);
            }
        }
        Ok(())
    }

    /// Wakes the next one that waits for a place if there still is one.
    pub(crate) fn hand_on(&self) {
        if self.has_room() {
            self.roomy.notify_one();
        }
    }

    /// Has `table` wait for a place.
    pub(crate) fn register(&self, file: &fs::File, table: &PollTable<'_>) {
        table.register_wait(file, &self.roomy);
    }

    /// Writes the numbers, one `name: number` per line.
    ///
    /// # Errors
    ///
    /// That of `out`.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let counts = ConcurrencyCounts {
            fan_out: self.fan_out().into(),
            credits: self.credits(false).into(),
            credits_high: self.credits(true).into(),
            pool: self.pool().into(),
            buffer_max: self.buffer_max.get(),
            requests: self.requests.get(),
            waits: self.waits.get(),
            over: self.over.get(),
        };
        counts.write_lines(out, "", &[])
    }
}
