// SPDX-License-Identifier: GPL-2.0-only

//! How long a client waits for its device.
//!
//! # Vocabulary
//!
//! - *Cohort*: the requests of a client that went to its device in the same quarter second
//!   ([`crate::sched::timeouts::cohorts`]).
//! - *Sign of life*: a completion of anything that was sent to the device, whoever sent it.
//! - *Look*: near the deadline of a cohort it is decided whether it gets more time; that is the early reply
//!   of a server to itself.
//! - *Lost* client: a deadline passed, and the device gave no sign of life since the cohort was sent, or last
//!   got more time. *Found* again: there is one.
//!
//! ```text
//!            a deadline passed, no sign of life
//!      live ───────────────────────────────────▶ lost: new requests and those that are queued
//!        ▲                                         │   fail, if that was asked for
//!        └──────────── a sign of life ─────────────┘
//! ```
//!
//! Only what is at the device can expire: what is queued here is known to be alive. A request that was
//! submitted is left alone whatever happens; its memory belongs to its owner again only when the device says
//! so.
//!
//! # The timer
//!
//! It is armed for the first look that is due, by whoever sends something and finds that it is not, and by
//! itself; while a client is lost, once a second. It sleeps when nothing is at the device.
//!
//! Who sends something first enters a cohort and then looks for what the timer is armed; the timer first
//! says that it is not armed and then looks at the cohorts. All of that is in one total order, so at least
//! one of them sees the other.

use core::fmt;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

use super::herald::Herald;
use crate::{
    core::{
        partitions::cpt_of,
        target::Target,
        timeouts::{clock, History, Timeouts},
    },
    sched::{
        timeouts::{
            cohorts::{Cohort, Cohorts},
            early::{self, Answer, Stated},
            estimator::{Seen, BINS},
            terms::{Mode, Terms},
        },
        units::NSEC_PER_MSEC,
    },
    sys::{
        atomic::{Counter, Hint, Word},
        dm::Disk,
        misc,
        node::Account,
        timer::{Expire, Timed},
    },
};

/// What the timer is armed for if it is not.
const ASLEEP: u64 = u64::MAX;

/// A cohort that has expired.
const EXPIRED: u64 = u64::MAX;

/// Time between two looks at a client that is lost, ms.
const POLL: u64 = 1000;

/// The coarse clock may lag behind by this, ms.
const TICK: u64 = 10;

/// What a client knows of its device.
#[pin_data(PinnedDrop)]
pub(crate) struct Deadlines {
    timeouts: Arc<Timeouts>,
    target: Arc<Target>,
    cohorts: Cohorts,
    /// Requests with an earlier deadline are not looked at in time; [`ASLEEP`].
    armed: Word,
    /// When it was lost, ms; 0: it is not.
    lost: Word,
    /// What its requests take.
    #[pin]
    history: History,
    /// Arms the timer.
    #[pin]
    alarm: SpinLockIrq<()>,
    /// When the timer last looked; nobody else does.
    looked: Hint,
    /// The last estimate that the service told at once, ms.
    told: Hint,
    /// The last sign of life when it was lost.
    dead: Hint,
    /// Requests of a lost client fail.
    fails: Hint,
    /// Its requests that are queued.
    held: Arc<Word>,
    herald: Arc<Herald>,
    /// Requests that expired.
    timeouts_count: Counter,
    /// How often it was lost.
    lost_count: Counter,
    /// How often it was found.
    found_count: Counter,
    /// Requests that got more time.
    early_count: Counter,
}

/// What a look at all cohorts came to.
struct Round {
    now: u64,
    /// The look before.
    before: u64,
    /// The last sign of life.
    alive: u64,
    sent: u32,
    late: u32,
    refused: u32,
    expired: u32,
    /// What the estimator is told.
    feed: u32,
    /// There was no sign of life for some that expired.
    dead: bool,
    /// When the next look is due.
    next: u64,
}

impl Round {
    fn new(now: u64, before: u64, alive: u64) -> Self {
        Self {
            now,
            before,
            alive,
            sent: 0,
            late: 0,
            refused: 0,
            expired: 0,
            feed: 0,
            dead: false,
            next: ASLEEP,
        }
    }

    /// Looks at one cohort; returns its deadline if that is another one now.
    fn look(&mut self, cohort: &Cohort, terms: &Terms) -> Option<u64> {
        if cohort.deadline == EXPIRED {
            return None;
        }
        let due = early::wake(terms, cohort.deadline);
        if due > self.now {
            self.next = self.next.min(due);
            return None;
        }
        let over = self.now >= cohort.deadline;
        let alive = self.alive > cohort.since(terms);
        let stated = Stated {
            arrival: cohort.sent,
            // Who gives more time is who waits, so that works after the deadline, too.
            deadline: cohort.deadline.max(self.now.saturating_add(1)),
        };
        match early::at_margin(terms, &stated, self.now, alive, None) {
            Answer::Grant { deadline, feed } => {
                let count = if over { &mut self.late } else { &mut self.sent };
                *count = count.saturating_add(cohort.count);
                self.feed = self.feed.max(feed);
                self.next = self.next.min(early::wake(terms, deadline));
                return Some(deadline);
            }
            Answer::Refuse(_) if !over => {
                // Once; what was asked before is only waited for.
                if due > self.before && terms.mode() == Mode::Adaptive {
                    self.refused = self.refused.saturating_add(cohort.count);
                }
                self.next = self.next.min(cohort.deadline);
                return None;
            }
            Answer::Refuse(_) => {}
        }
        self.expired = self.expired.saturating_add(cohort.count);
        self.dead |= !alive;
        Some(EXPIRED)
    }
}

impl Deadlines {
    /// Those of a client that has `held` requests queued, sends to `target`, and is spoken of by `herald`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        timeouts: Arc<Timeouts>,
        target: Arc<Target>,
        held: Arc<Word>,
        herald: Arc<Herald>,
    ) -> Result<Arc<Timed<Self>>> {
        let cohorts = Cohorts::new().map_err(|_| ENOMEM)?;
        let deadlines = Arc::pin_init(
            Timed::new(pin_init!(Self {
                timeouts,
                target,
                cohorts,
                armed: Word::new(ASLEEP),
                lost: Word::new(0),
                history <- History::new(),
                alarm <- new_spinlock_irq!((), "nrs_alarm"),
                looked: Hint::new(0),
                told: Hint::new(0),
                dead: Hint::new(0),
                fails: Hint::new(0),
                held,
                herald,
                timeouts_count: Counter::new(),
                lost_count: Counter::new(),
                found_count: Counter::new(),
                early_count: Counter::new(),
            })),
            GFP_KERNEL,
        )?;
        deadlines.follow();
        Ok(deadlines)
    }

    /// Has the client follow the terms of its service.
    pub(crate) fn follow(self: &Timed<Self>) {
        self.history.follow(|| self.timeouts.terms());
        if self.timeouts.terms().mode() == Mode::Off {
            self.find();
        } else if self.cohorts.len() != 0 {
            // It may be due at another time now.
            self.wake_for(misc::millis());
        }
    }

    /// The client is `disk` for others; its requests fail while it is lost, if `fails`.
    pub(crate) fn open(&self, disk: Disk, fails: bool) {
        self.fails.set(fails.into());
        self.herald.open(disk, fails);
    }

    /// Whether the timer sleeps.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_asleep(&self) -> bool {
        self.armed.get() == ASLEEP
    }

    /// Whether the client is lost.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get() != 0
    }

    /// Has requests fail while the client is lost, or wait.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn set_fails(&self, fails: bool) {
        self.fails.set(fails.into());
    }

    /// Whether requests are to fail now.
    pub(crate) fn is_failing(&self) -> bool {
        self.lost.get() != 0 && self.fails.get() != 0
    }

    /// A request that was queued is about to be submitted; what its history is told of that goes to its
    /// `account`. Whether it is to be submitted.
    pub(crate) fn submits(self: &Timed<Self>, account: &mut Account) -> bool {
        if self.is_failing() {
            account.refused = true;
            return false;
        }
        let withheld = match &account.ticket {
            Some(ticket) => ticket.grant().withheld,
            None => 0,
        };
        account.waited = self.timeouts.queued(account.waited, withheld);
        self.enter(account);
        true
    }

    /// A request goes to the device now.
    pub(crate) fn enter(self: &Timed<Self>, account: &mut Account) {
        let (estimate, Some(theirs)) = self.timeouts.of(cpt_of(account.home)) else {
            return;
        };
        let now = misc::millis();
        let mut timeout = self.history.timeout();
        if timeout < estimate {
            // The service knows better, and says so at once; what it said counts for what follows, too.
            if self.told.get() != u64::from(estimate) {
                self.told.set(estimate.into());
                self.count_early(1);
            }
            timeout = timeout.max(theirs);
        }
        account.token = self.cohorts.enter(now, timeout);
        let deadline = now.saturating_add(timeout.into());
        if deadline < self.armed.get() {
            self.wake_for(deadline);
        }
    }

    /// A request has ended.
    pub(crate) fn leave(&self, account: &Account) {
        let token = account.token;
        if token.is_none() {
            // There were no deadlines when it was sent; that it ended is a sign of life all the same.
            if !account.refused && self.lost.get() != 0 {
                self.find();
            }
            return;
        }
        let now = misc::millis();
        self.target.note_life(now);
        self.cohorts.leave(token);
        if self.lost.get() != 0 {
            self.find();
        }
        let service = token.elapsed(now).saturating_add(account.waited).max(1);
        self.timeouts
            .measured_at(cpt_of(account.home), service, now);
        self.history.hear(service, now, || self.timeouts.terms());
    }

    #[cold]
    fn count_early(&self, count: u32) {
        self.early_count.count(count.into());
        self.timeouts.counts().early_sent.count(count.into());
    }

    /// Has the timer look at what has that `deadline`, ms.
    #[cold]
    fn wake_for(self: &Timed<Self>, deadline: u64) {
        self.arm_for(early::wake(&self.timeouts.terms(), deadline), deadline);
    }

    /// Has the timer expire at `wake`, ms, which serves all with a deadline from `serves` on, unless it
    /// expires earlier anyway.
    fn arm_for(self: &Timed<Self>, wake: u64, serves: u64) {
        let now = misc::now();
        let delay = wake.saturating_sub(misc::millis()).saturating_add(TICK);
        let alarm = self.alarm.lock();
        if serves < self.armed.get() {
            self.armed.set(serves);
            self.arm(now.saturating_add(delay.saturating_mul(NSEC_PER_MSEC)));
        }
        drop(alarm);
    }

    /// The device gave no sign of life after `alive`.
    fn lose(&self, now: u64, alive: u64) {
        if self.lost.get() != 0 {
            return;
        }
        self.dead.set(alive);
        self.lost.set(now.max(1));
        self.lost_count.count(1);
        self.timeouts.counts().lost.count(1);
        self.herald.changed();
    }

    /// There is a sign of life.
    #[cold]
    fn find(&self) {
        if self.lost.change(|lost| (lost != 0).then_some(0)) {
            self.found_count.count(1);
            self.timeouts.counts().found.count(1);
            self.herald.changed();
        }
    }

    /// Writes the counters as `name: value` pairs on the line of others.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(
            out,
            ", timeouts: {}, lost: {}, found: {}, early: {}, state: {}",
            self.timeouts_count.get(),
            self.lost_count.get(),
            self.found_count.get(),
            self.early_count.get(),
            if self.lost.get() == 0 { "live" } else { "lost" },
        )
    }

    /// Writes what it takes its device to need, in Lustre's format for clients.
    pub(crate) fn write_timeouts(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let seen = self.history.seen(|| self.timeouts.terms());
        // There is none.
        let network = Seen {
            current: 0,
            worst: None,
            bins: [0; BINS],
        };
        let last = Some(self.target.life()).filter(|life| *life != 0);
        let terms = self.timeouts.terms();
        clock().write_client(&mut &mut *out, &terms, last, &network, [(0, seen)])
    }
}

impl Expire for Deadlines {
    fn expired(timed: &Timed<Self>) {
        {
            let _alarm = timed.alarm.lock();
            timed.armed.set(ASLEEP);
        }
        let now = misc::millis();
        let terms = timed.timeouts.terms();
        if terms.mode() == Mode::Off {
            return;
        }
        let mut round = Round::new(now, timed.looked.get(), timed.target.life());
        timed.looked.set(now);
        timed.cohorts.visit(|cohort| round.look(&cohort, &terms));
        let counts = timed.timeouts.counts();
        if round.sent != 0 {
            timed.count_early(round.sent);
        }
        counts.early_late.count(round.late.into());
        counts.early_refused.count(round.refused.into());
        counts.timeouts.count(round.expired.into());
        timed.timeouts_count.count(round.expired.into());
        timed.timeouts.expect(round.feed);
        if round.dead {
            timed.lose(now, round.alive);
        }
        if timed.lost.get() != 0 {
            if timed.target.life() != timed.dead.get() || timed.cohorts.len() == 0 {
                timed.find();
            } else {
                round.next = round.next.min(now.saturating_add(POLL));
                if timed.fails.get() != 0 && timed.held.get() != 0 {
                    timed.herald.look_after();
                }
            }
        }
        if round.next != ASLEEP {
            // As far from its deadline as any other look.
            let margin = early::margin(&terms);
            timed.arm_for(round.next, round.next.saturating_add(margin.into()));
        }
    }
}

/// Nothing is said of a client that is gone.
#[pinned_drop]
impl PinnedDrop for Deadlines {
    fn drop(self: Pin<&mut Self>) {
        self.herald.close();
    }
}
