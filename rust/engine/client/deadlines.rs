// SPDX-License-Identifier: GPL-2.0-only

//! How long a client waits for its device.
//!
//! # Vocabulary
//!
//! - *In flight*: submitted to the device and not completed ([`crate::sched::timeouts::in_flight`]).
//! - *Sign of life*: a completion of anything that was submitted to the device, by any client.
//! - *Timeout*: what follows from the service times of the client; other devices of the service may be
//!   slower.
//! - *Lost* client: it has requests in flight, and the device gave no sign of life for the timeout. *Found*
//!   again: there is one, or nothing is in flight.
//! - *Given up*: in flight when the client was lost. It is not lost again for these alone.
//! - *Lengthy* request: a discard, a secure erase or a write of zeroes, which takes a healthy device minutes. While one
//!   is in flight the timeout is that of `at_max`, and no history learns of its service time.
//!
//! ```text
//!            no sign of life for the timeout
//!      live ───────────────────────────────────▶ lost: new requests and those that are queued
//!        ▲                                         │   fail, if that was asked for
//!        └──────────── a sign of life ─────────────┘
//! ```
//!
//! Only what is in flight can time out: what is queued here is known to be alive. A request that was
//! submitted is left alone whatever happens; its memory belongs to its owner again only when the device says
//! so.
//!
//! # The timer
//!
//! A submission that finds it not armed, or armed for later than its own timeout, arms it; the timer arms
//! itself for as long as requests are in flight, and once a second while the client is lost. It is armed for no later
//! than the history ages: the timeout that a submission finds may be of a congestion that is forgotten by then.
//!
//! A submission first counts its request and then looks for what the timer is armed; the timer first says that
//! it is not armed and then looks at the count. All of that is in one total order, so at least one of them
//! sees the other.

use core::fmt;

use kernel::{cpu::nr_cpu_ids, prelude::*, sync::Arc};

use super::herald::Herald;
use crate::{
    engine::{
        partitions::cpt_of,
        target::Target,
        timeouts::{clock, History, Timeouts},
    },
    sched::{
        cpus::PerCpu,
        statistics::{DeadlineCounts, Stats},
        timeouts::in_flight::{InFlight, Submitted},
        units::NSEC_PER_MSEC,
    },
    sys::{
        atomic::{Counter, Hint, Word},
        disk::Disk,
        misc,
        node::Account,
        series::{new_spinlock_irq, SpinLockIrq},
        timer::{Expire, Timed},
    },
};

/// What the timer is armed for if it is not.
const ASLEEP: u64 = u64::MAX;

/// Time between two looks at a client that is lost, ms.
const POLL: u64 = 1000;

/// The coarse clock may lag behind by this, ms.
const TICK: u64 = 10;

/// Requests in flight that arrived on one CPU.
struct Flight {
    /// An [`InFlight`].
    in_flight: Word,
    /// Of those, the ones that were in flight when the client was lost.
    given_up: Word,
}

impl Flight {
    fn new() -> Self {
        Self {
            in_flight: Word::new(InFlight::NONE.bits()),
            given_up: Word::new(0),
        }
    }

    fn in_flight(&self) -> InFlight {
        InFlight::from_bits(self.in_flight.get())
    }

    /// Returns how many are given up.
    fn given_up(&self) -> u32 {
        self.given_up.get() as u32
    }

    /// Gives up all requests in flight. A request that ends meanwhile first leaves the count and then looks whether some
    /// are given up.
    fn give_up(&self) {
        self.given_up.set(self.in_flight().count().into());
        self.take_back(0, self.in_flight().count());
    }

    /// Requests have ended, `ended` of them given up; `left` are in flight.
    fn take_back(&self, ended: u64, left: u32) {
        self.given_up.change(|count| {
            let new = count.saturating_sub(ended).min(left.into());
            (new != count).then_some(new)
        });
    }
}

/// All requests in flight.
#[derive(Default)]
struct Sum {
    count: u32,
    given_up: u32,
    /// When the first one was submitted that is not given up, or else the first one, ms.
    since: Option<u64>,
}

/// What a client knows of its device.
#[pin_data(PinnedDrop)]
pub(crate) struct Deadlines {
    timeouts: Arc<Timeouts>,
    target: Arc<Target>,
    /// Requests in flight, by the CPU on which they arrived.
    flights: PerCpu<Flight>,
    /// Of those, the lengthy ones; counted before and until after they are in flight.
    lengthy: Word,
    /// When the timer expires, ms, at the latest; [`ASLEEP`].
    armed: Word,
    /// 1: it is lost.
    lost: Word,
    /// When it was lost last, ms.
    lost_at: Hint,
    /// What its requests take.
    #[pin]
    history: History,
    /// Arms the timer.
    #[pin]
    alarm: SpinLockIrq<()>,
    /// The last sign of life when it was lost.
    dead: Hint,
    /// Requests of a lost client fail.
    fails: Hint,
    /// Its requests that are queued.
    held: Arc<Word>,
    herald: Arc<Herald>,
    counts: DeadlineCounts<Counter>,
}

impl Deadlines {
    /// Those of a client that has `held` requests queued, sends to `target`, and is spoken of by `herald`.
    pub(crate) fn new(
        timeouts: Arc<Timeouts>,
        target: Arc<Target>,
        held: Arc<Word>,
        herald: Arc<Herald>,
    ) -> Result<Arc<Timed<Self>>> {
        let flights = PerCpu::new(nr_cpu_ids(), Flight::new).map_err(|_| ENOMEM)?;
        let deadlines = Arc::pin_init(
            Timed::new(pin_init!(Self {
                timeouts,
                target,
                flights,
                lengthy: Word::new(0),
                armed: Word::new(ASLEEP),
                lost: Word::new(0),
                lost_at: Hint::new(0),
                history <- History::new(),
                alarm <- new_spinlock_irq!((), "nrs_alarm"),
                dead: Hint::new(0),
                fails: Hint::new(0),
                held,
                herald,
                counts: DeadlineCounts::default(),
            })),
            GFP_KERNEL,
        )?;
        deadlines.follow();
        Ok(deadlines)
    }

    /// Where its requests go.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Has the client follow the terms of its service.
    pub(crate) fn follow(self: &Timed<Self>) {
        self.history.follow(&self.timeouts);
        if self.in_flight().count != 0 {
            // The client may be lost at another time now, or never.
            self.arm_for(misc::millis());
        }
    }

    /// Returns the requests in flight. A CPU that has none any more had a completion, which is a sign of life; so the
    /// device owes one since the earliest submission of a CPU that has some, or the last sign of life.
    fn in_flight(&self) -> Sum {
        let (mut sum, mut new) = (Sum::default(), None);
        let earlier = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        for flight in self.flights.iter() {
            let in_flight = flight.in_flight();
            // What one CPU gave up hides nothing of another one.
            let given_up = flight.given_up().min(in_flight.count());
            let since = in_flight.owed_since(0);
            sum.count = sum.count.saturating_add(in_flight.count());
            sum.given_up = sum.given_up.saturating_add(given_up);
            sum.since = earlier(sum.since, since);
            new = earlier(new, since.filter(|_| in_flight.count() > given_up));
        }
        sum.since = new.or(sum.since);
        sum
    }

    /// The client is `disk` for others; its requests fail while it is lost, if `fails`.
    pub(crate) fn open(&self, disk: Disk, fails: bool) {
        self.fails.set(fails.into());
        self.herald.open(disk, fails);
    }

    /// What its requests take.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn history(&self) -> &History {
        &self.history
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
        let withheld = match &account.placement.ticket {
            Some(ticket) => ticket.grant().withheld,
            None => 0,
        };
        account.waited = self.timeouts.queued(account.waited, withheld);
        self.enter(account);
        true
    }

    /// A request goes to the device now.
    pub(crate) fn enter(self: &Timed<Self>, account: &mut Account) {
        let timeout = self.history.last_timeout();
        if timeout == 0 {
            return;
        }
        let now = misc::millis();
        let Some(flight) = self.flights.of(account.cpu.into()) else {
            return;
        };
        if account.lengthy {
            self.lengthy.add(1);
        }
        let given_up = flight.given_up();
        let add = |bits| Some(InFlight::from_bits(bits).submitted(now, given_up)?.bits());
        if flight.in_flight.change(add) {
            account.submitted = Submitted::at(now);
            if now.saturating_add(timeout.into()) < self.armed.get() {
                self.watch(now);
            }
        } else if account.lengthy {
            self.lengthy.sub(1);
        }
    }

    /// Has the timer expire when the timeout of a request that is submitted at `now` is over, or may be another one.
    #[cold]
    fn watch(self: &Timed<Self>, now: u64) {
        let look = self.history.outlook(now).next_look(now, false, now);
        self.arm_for(look.unwrap_or(now));
    }

    /// A request has ended.
    #[inline]
    pub(crate) fn leave(&self, account: &Account) {
        let submitted = account.submitted;
        if submitted.is_none() {
            // It was not counted when it was submitted; that it ended is a sign of life all the same, for those that
            // were.
            if !account.refused && self.armed.get() != ASLEEP {
                self.target.note_life(account.cpu, misc::millis());
                if self.lost.get() != 0 {
                    self.find();
                }
            }
            return;
        }
        let now = misc::millis();
        // The timer reads the count first.
        self.target.note_life(account.cpu, now);
        let Some(flight) = self.flights.of(account.cpu.into()) else {
            return;
        };
        let before = InFlight::from_bits(flight.in_flight.sub(1));
        if flight.given_up() != 0 {
            self.take_back(flight, submitted, now, before.count().saturating_sub(1));
        }
        if self.lost.get() != 0 {
            self.find();
        }
        if account.lengthy {
            self.lengthy.sub(1);
            return;
        }
        let service = submitted.elapsed(now).saturating_add(account.waited).max(1);
        self.timeouts.measured(cpt_of(account.home), service, now);
        self.history.hear(service, now);
    }

    /// A request that was `submitted` has ended at `now`, which leaves `left` of its CPU in flight: if it was given up, it
    /// is not any more.
    #[cold]
    fn take_back(&self, flight: &Flight, submitted: Submitted, now: u64, left: u32) {
        let since = now.saturating_sub(self.lost_at.get());
        let ended = u64::from(u64::from(submitted.elapsed(now)) >= since);
        flight.take_back(ended, left);
    }

    /// Has the timer expire at `wake`, ms, unless it expires earlier anyway.
    fn arm_for(self: &Timed<Self>, wake: u64) {
        let now = misc::now();
        let delay = wake.saturating_sub(misc::millis()).saturating_add(TICK);
        let alarm = self.alarm.lock();
        if wake < self.armed.get() {
            self.armed.set(wake);
            self.arm(now.saturating_add(delay.saturating_mul(NSEC_PER_MSEC)));
        }
        drop(alarm);
    }

    /// The device gave no sign of life after `alive`, and owes completions, `late` of them since then.
    fn lose(&self, now: u64, alive: u64, late: u32) {
        self.lost_at.set(now);
        self.flights.iter().for_each(Flight::give_up);
        self.dead.set(alive);
        self.lost.set(1);
        self.counts.lost.count(1);
        self.counts.timeouts.count(late.into());
        self.timeouts.counts().lost.count(1);
        self.timeouts.counts().timeouts.count(late.into());
        self.herald.changed();
        // Who ended one meanwhile may have found it live.
        if self.target.life() != alive {
            self.find();
        }
    }

    /// There is a sign of life.
    #[cold]
    fn find(&self) {
        if self.lost.change(|lost| (lost != 0).then_some(0)) {
            self.counts.found.count(1);
            self.timeouts.counts().found.count(1);
            self.herald.changed();
        }
    }

    /// Writes the counters as `name: value` pairs on the line of others.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str(", ")?;
        self.counts.map(Counter::get).write_pairs(out)?;
        let state = if self.lost.get() == 0 { "live" } else { "lost" };
        write!(out, ", state: {state}")
    }

    /// Writes what it takes its device to need, in Lustre's format for clients.
    pub(crate) fn write_timeouts(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let clock = clock();
        let seen = self.history.outlook(clock.now).seen;
        let last = Some(self.target.life()).filter(|life| *life != 0);
        let terms = self.timeouts.terms();
        clock.write_client(&mut &mut *out, &terms, last, &seen)
    }
}

impl Expire for Deadlines {
    fn expired(timed: &Timed<Self>) {
        {
            let _alarm = timed.alarm.lock();
            timed.armed.set(ASLEEP);
        }
        let lengthy = timed.lengthy.get() != 0;
        let in_flight = timed.in_flight();
        let alive = timed.target.life();
        let now = misc::millis();
        let outlook = timed.history.outlook(now);
        let Some(since) = in_flight.since.filter(|_| outlook.timeout != 0) else {
            return timed.find();
        };
        let owed = since.max(alive);
        let look = outlook.next_look(owed, lengthy, now);
        if timed.lost.get() == 0 {
            if in_flight.count <= in_flight.given_up {
                // Who submits another one arms the timer.
                return;
            }
            if let Some(look) = look {
                return timed.arm_for(look);
            }
            let late = in_flight.count.saturating_sub(in_flight.given_up);
            timed.lose(now, alive, late);
        } else if alive != timed.dead.get() {
            timed.find();
            return timed.arm_for(look.unwrap_or(now));
        } else if timed.fails.get() != 0 && timed.held.get() != 0 {
            timed.herald.look_after();
        }
        timed.arm_for(now.saturating_add(POLL));
    }
}

/// Nothing is said of a client that is gone.
#[pinned_drop]
impl PinnedDrop for Deadlines {
    fn drop(self: Pin<&mut Self>) {
        self.herald.close();
    }
}
