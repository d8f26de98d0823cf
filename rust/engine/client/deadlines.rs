// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines of a client's requests at its device.
//!
//! # Terms
//!
//! - *In flight*: submitted to the device and not completed
//!   ([`crate::sched::timeouts::in_flight`]).
//! - *Sign of life*: a completion of any request that any client submitted to the device.
//! - *Timeout*: derived from the service times of this client, because other devices of the service
//!   may be slower.
//! - *Lost* client: has requests in flight, and the device completed nothing for the timeout. The
//!   client is *found* again after a sign of life, or when nothing is in flight.
//! - *Given up*: in flight when the client was lost. Given-up requests alone do not make the client
//!   lost again.
//! - *Lengthy* request: a discard, a secure erase or a write of zeroes, which takes a healthy
//!   device minutes. While one is in flight, the timeout is that of `at_max`; its service time is
//!   in no history.
//!
//! ```text
//!            no sign of life for the timeout
//!      live ───────────────────────────────────▶ lost: new and queued requests fail,
//!        ▲                                         │   if so configured
//!        └──────────── a sign of life ─────────────┘
//! ```
//!
//! Only requests in flight can time out; queued requests are known to be alive. A submitted request
//! is never touched: its memory returns to its owner only when the device completes the request.
//!
//! # The timer
//!
//! A submission arms the timer if it is not armed, or armed for later than the timeout of the
//! submission. The timer rearms itself while requests are in flight, and once a second while the
//! client is lost. It expires no later than the history ages, because the timeout that a submission
//! reads may reflect a congestion that is evicted by then.
//!
//! A submission first counts its request and then reads the expiry of the timer. The timer first
//! marks itself as not armed and then reads the count. All these accesses are in one total order,
//! so at least one side sees the other.

use core::fmt;

use kernel::{cpu::nr_cpu_ids, prelude::*, sync::Arc};

use super::notify::ClientNotifier;
use crate::{
    engine::{
        cpt::cpt_of,
        target::Target,
        timeouts::{clock, History, Timeouts},
    },
    sched::{
        cpus::PerCpu,
        report::Report,
        statistics::DeadlineCounts,
        timeouts::in_flight::{InFlight, Submitted},
        units::NSEC_PER_MSEC,
    },
    sys::{
        atomic::{AtomicWord, Counter, Hint},
        disk::Disk,
        misc,
        node::NodeAccount,
        series::{new_spinlock_irq, SpinLockIrq},
        timer::{TimerCallback, WithTimer},
    },
};

/// Value of `armed` if the timer is not armed.
const ASLEEP: u64 = u64::MAX;

/// Time between two checks of a lost client, ms.
const POLL: u64 = 1000;

/// Requests in flight that arrived on one CPU.
struct InFlightCpu {
    /// The bits of an [`InFlight`].
    in_flight: AtomicWord,
    /// Number of these requests that were in flight when the client was lost.
    given_up: AtomicWord,
}

impl InFlightCpu {
    fn new() -> Self {
        Self {
            in_flight: AtomicWord::new(InFlight::NONE.bits()),
            given_up: AtomicWord::new(0),
        }
    }

    fn in_flight(&self) -> InFlight {
        InFlight::from_bits(self.in_flight.get())
    }

    /// Returns the number of requests that were given up.
    fn given_up(&self) -> u32 {
        self.given_up.get() as u32
    }

    /// Gives up all requests in flight. A request that ends meanwhile first decrements the count
    /// and then checks for given-up requests.
    fn give_up(&self) {
        self.given_up.set(self.in_flight().count().into());
        self.take_back(0, self.in_flight().count());
    }

    /// Reduces the given-up requests after `ended` of them have ended; `left` requests are in
    /// flight.
    fn take_back(&self, ended: u64, left: u32) {
        self.given_up.change(|count| {
            let new = count.saturating_sub(ended).min(left.into());
            (new != count).then_some(new)
        });
    }
}

/// All requests in flight.
#[derive(Default)]
struct InFlightSum {
    count: u32,
    given_up: u32,
    /// Time of the earliest submission that is not given up, or else the earliest of all, ms.
    since: Option<u64>,
}

/// Deadlines of a client and the state of its device.
#[pin_data(PinnedDrop)]
pub(crate) struct Deadlines {
    timeouts: Arc<Timeouts>,
    target: Arc<Target>,
    /// Requests in flight, by the CPU on which they arrived.
    flights: PerCpu<InFlightCpu>,
    /// Number of lengthy requests in flight; incremented before and decremented after they are in
    /// flight.
    lengthy: AtomicWord,
    /// Latest expiry of the timer, ms; [`ASLEEP`] if the timer is not armed.
    armed: AtomicWord,
    /// 1: the client is lost.
    lost: AtomicWord,
    /// Time of the last loss, ms.
    lost_at: Hint,
    /// Service times of the client's requests.
    #[pin]
    history: History,
    /// Lock that serialises arming of the timer.
    #[pin]
    alarm: SpinLockIrq<()>,
    /// Time of the last sign of life before the loss, ms.
    dead: Hint,
    /// 1: requests of a lost client fail.
    fails: Hint,
    /// Number of queued requests of the client.
    held: Arc<AtomicWord>,
    notifier: Arc<ClientNotifier>,
    counts: DeadlineCounts<Counter>,
}

impl Deadlines {
    /// Creates the deadlines of a client that has `held` requests queued, dispatches to `target`,
    /// and is reported by `notifier`.
    pub(crate) fn new(
        timeouts: Arc<Timeouts>,
        target: Arc<Target>,
        held: Arc<AtomicWord>,
        notifier: Arc<ClientNotifier>,
    ) -> Result<Arc<WithTimer<Self>>> {
        let flights = PerCpu::new(nr_cpu_ids(), InFlightCpu::new).map_err(|_| ENOMEM)?;
        let deadlines = Arc::pin_init(
            WithTimer::new(pin_init!(Self {
                timeouts,
                target,
                flights,
                lengthy: AtomicWord::new(0),
                armed: AtomicWord::new(ASLEEP),
                lost: AtomicWord::new(0),
                lost_at: Hint::new(0),
                history <- History::new(),
                alarm <- new_spinlock_irq!((), "nrs_alarm"),
                dead: Hint::new(0),
                fails: Hint::new(0),
                held,
                notifier,
                counts: DeadlineCounts::default(),
            })),
            GFP_KERNEL_ACCOUNT,
        )?;
        deadlines.sync();
        Ok(deadlines)
    }

    /// Updates the client to the terms of its service.
    pub(crate) fn sync(self: &WithTimer<Self>) {
        self.history.sync(&self.timeouts);
        if self.in_flight().count != 0 {
            // The new terms may change the time of the loss, or prevent the loss.
            self.arm_for(misc::millis());
        }
    }

    /// Returns the requests in flight. A CPU without requests in flight had a completion, which is
    /// a sign of life. So the device owes one since the earliest submission of a CPU with requests
    /// in flight, or since the last sign of life.
    fn in_flight(&self) -> InFlightSum {
        let (mut sum, mut new) = (InFlightSum::default(), None);
        let earlier = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        for flight in self.flights.iter() {
            let in_flight = flight.in_flight();
            // Requests that one CPU gave up do not hide requests of another CPU.
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

    /// Sets the device for reports of the client. With `fails`, requests fail while the client is
    /// lost.
    pub(crate) fn open(&self, disk: Disk, fails: bool) {
        self.fails.set(fails.into());
        self.notifier.open(disk, fails);
    }

    /// Returns the service times of the client's requests.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns true if the timer is not armed.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_asleep(&self) -> bool {
        self.armed.get() == ASLEEP
    }

    /// Returns true if the client is lost.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get() != 0
    }

    /// Sets whether requests fail while the client is lost, or stay queued.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn set_fails(&self, fails: bool) {
        self.fails.set(fails.into());
    }

    /// Returns true if requests are to fail now.
    pub(crate) fn is_failing(&self) -> bool {
        self.lost.get() != 0 && self.fails.get() != 0
    }

    /// Starts the deadline of a queued request that is about to be submitted, and records its
    /// queueing time in `account`. Returns true if the request is to be submitted.
    pub(crate) fn begin_queued(self: &WithTimer<Self>, account: &mut NodeAccount) -> bool {
        if self.is_failing() {
            account.placement.refused = true;
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

    /// Starts the deadline of a request that is submitted now.
    pub(crate) fn enter(self: &WithTimer<Self>, account: &mut NodeAccount) {
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

    /// Arms the timer for the end of the timeout of a request submitted at `now`, or for an earlier
    /// change of the timeout.
    #[cold]
    fn watch(self: &WithTimer<Self>, now: u64) {
        let look = self.history.outlook(now).next_check(now, false, now);
        self.arm_for(look.unwrap_or(now));
    }

    /// Ends the deadline of a request that has ended.
    #[inline]
    pub(crate) fn leave(&self, account: &NodeAccount) {
        let submitted = account.submitted;
        if submitted.is_none() {
            // The request was not counted at submission, but its end is a sign of life for the
            // requests that were.
            if !account.placement.refused && self.armed.get() != ASLEEP {
                self.target.note_completion(account.cpu, misc::millis());
                if self.lost.get() != 0 {
                    self.find();
                }
            }
            return;
        }
        let now = misc::millis();
        // The timer reads the count first.
        self.target.note_completion(account.cpu, now);
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
        self.history.add_sample(service, now);
    }

    /// Removes a request from the given-up requests, if it is one. The request was `submitted` and
    /// ended at `now`; `left` requests of its CPU are in flight.
    #[cold]
    fn take_back(&self, flight: &InFlightCpu, submitted: Submitted, now: u64, left: u32) {
        let since = now.saturating_sub(self.lost_at.get());
        let ended = u64::from(u64::from(submitted.elapsed(now)) >= since);
        flight.take_back(ended, left);
    }

    /// Arms the timer for `wake`, ms, unless it expires earlier.
    fn arm_for(self: &WithTimer<Self>, wake: u64) {
        let now = misc::now();
        let delay = wake.saturating_sub(misc::millis());
        let delay = delay.saturating_add(misc::MILLIS_LAG);
        let alarm = self.alarm.lock();
        if wake < self.armed.get() {
            self.armed.set(wake);
            self.arm(now.saturating_add(delay.saturating_mul(NSEC_PER_MSEC)));
        }
        drop(alarm);
    }

    /// Marks the client as lost. The last sign of life was at `alive`; `late` requests are overdue.
    fn lose(&self, now: u64, alive: u64, late: u32) {
        self.lost_at.set(now);
        self.flights.iter().for_each(InFlightCpu::give_up);
        self.dead.set(alive);
        self.lost.set(1);
        self.counts.lost.count(1);
        self.counts.timeouts.count(late.into());
        self.timeouts.counts().lost.count(1);
        self.timeouts.counts().timeouts.count(late.into());
        self.notifier.changed();
        // A request that ended meanwhile may have seen the client as not lost.
        if self.target.life() != alive {
            self.find();
        }
    }

    /// Marks the client as found, after a sign of life or when nothing is in flight.
    #[cold]
    fn find(&self) {
        if self.lost.change(|lost| (lost != 0).then_some(0)) {
            self.counts.found.count(1);
            self.timeouts.counts().found.count(1);
            self.notifier.changed();
        }
    }

    /// Reports the counters and the state.
    pub(crate) fn report(&self, map: &mut Report<'_>) -> fmt::Result {
        map.stats(&self.counts.map(Counter::get), &[])?;
        let state = if self.lost.get() == 0 { "live" } else { "lost" };
        map.word("state", state)
    }

    /// Writes the estimates of the device, in Lustre's format for clients.
    pub(crate) fn write_timeouts(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let clock = clock();
        let seen = self.history.outlook(clock.now).seen;
        let last = Some(self.target.life()).filter(|life| *life != 0);
        let terms = self.timeouts.terms();
        clock.write_client(&mut &mut *out, &terms, last, &seen)
    }
}

impl TimerCallback for Deadlines {
    fn expired(timed: &WithTimer<Self>) {
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
        let look = outlook.next_check(owed, lengthy, now);
        if timed.lost.get() == 0 {
            if in_flight.count <= in_flight.given_up {
                // The next submission arms the timer.
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
            timed.notifier.look_after();
        }
        timed.arm_for(now.saturating_add(POLL));
    }
}

/// Stops the reports of a client that is removed.
#[pinned_drop]
impl PinnedDrop for Deadlines {
    fn drop(self: Pin<&mut Self>) {
        self.notifier.close();
    }
}
