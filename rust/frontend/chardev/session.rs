// SPDX-License-Identifier: GPL-2.0-only

//! An open file of `/dev/nrs`, or a server of another kernel module, as a client of its service.
//!
//! # Terms
//!
//! - *Cookie*: the server's identifier of a request, unique among requests that are not completed.
//! - *Released*: dispatched by the policy.
//! - *Ready*: released, and not read yet.
//! - *Running*: read, and not completed yet.
//! - *Owed*: the slot and the room that a released request must give back.
//! - *Late*: a request whose lease has expired; it owes nothing any more, and may still be
//!   completed.
//!
//! ```text
//!   request ──▶ queued ──▶ ready ──▶ running ──▶ completed
//!                 │          │          │
//!                 │          └──────────┴─ lease expired ──▶ late ──▶ completed, counted only
//!                 └─ the file is closed ──▶ ended as soon as it is dispatched
//! ```
//!
//! # Locking
//!
//! One spinlock per session, taken with interrupts off because a timer takes it. It is taken
//! without any lock of the engine; no engine function that takes a lock is called and no task is
//! woken under it. A mutex serialises the requests of a file where their order matters ([`admit`]);
//! it is taken first.
//!
//! One timer per session, armed for the first of these: the end of the oldest lease, the next check
//! of a deadline, the end of a recovery. It expires at most a thousand times a second. A work item
//! completes due work that is too much for one lock hold ([`remainder`]).
//!
//! A request has a box for the engine and a row in the session's [`table`]. The box is freed when
//! the request is read, the memory of the row with the session. Both are charged to the task that
//! wrote the request, the arrays of the table to the task that attached the file.
//! [`SessionTerms::limit`] bounds all of this memory.

use kernel::{
    fs, new_condvar, new_mutex,
    prelude::*,
    static_lock_class,
    sync::{poll::PollTable, Arc, CondVar, Mutex},
};

use super::wire;
use crate::{
    engine::{
        client::Client, concurrency::Concurrency, cpt::cpt_of, registry::Attachment,
        service::Service, target::Target,
    },
    sched::{
        item::Cost, mem::NoMemory, parameters::service::Level, slab::Handle, units::NSEC_PER_MSEC,
    },
    sys::{
        atomic::Hint,
        chardev::{
            boxed::{BoxedRequest, Submit},
            READABLE, WRITABLE,
        },
        misc,
        series::{new_spinlock_irq, PollCondVarBox, SpinLockIrq},
        timer::{TimerCallback, WithTimer},
    },
};

mod admit;
mod close;
mod counters;
mod early;
mod reading;
mod recovery;
mod remainder;
mod table;
mod watch;

use counters::Counters;
use early::EarlyFindings;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) use reading::ReadItem;
use remainder::SessionWork;
use table::{DueTimes, FinishedRequest, ReleaseKind, RemovalEvents, RequestResources, TableState};

/// Maximum number of requests that one lock hold returns or checks.
pub(crate) const CHUNK: u32 = 64;

/// Minimum time between two expiries of the timer, ns.
const REST: u64 = NSEC_PER_MSEC;

/// Reader of a session that is no open file.
pub(crate) trait SessionReader: Send + Sync {
    /// Schedules a read of the session. Any context, without locks.
    fn called(self: Arc<Self>);
}

/// Parameters of a session.
#[derive(Clone, Copy)]
pub(crate) struct SessionTerms {
    /// True if requests may be dispatched immediately while no request is queued.
    pub(crate) may_pass: bool,
    /// Time for which a released request may keep its slot, ns; 0: unlimited.
    pub(crate) lease_ns: u64,
    /// Maximum number of requests of the session.
    pub(crate) limit: u32,
}

/// A request that the engine owns, or that is ready.
pub(crate) struct SessionRequest {
    session: Arc<Session>,
    handle: Handle,
    cookie: u64,
    /// Not 0: requests depend on a request of the same peer, as of the read.
    urgent: Hint,
    /// Time until the deadline, ms, as of the read; 0: no deadline; [`PASSED`].
    left: Hint,
}

/// Status of a request whose file is closed.
const CANCELED: i32 = -(kernel::bindings::ECANCELED as i32);

/// [`SessionRequest::left`]: the deadline has passed.
const PASSED: u64 = u64::MAX;

impl TimerCallback for SessionState {
    fn expired(session: &Session) {
        if session.check_deadlines(misc::now()) {
            session.remainder.call();
        }
    }
}

impl Submit for SessionRequest {
    fn submitted(this: BoxedRequest<Self>) {
        // The box may own the last reference to the session.
        let session = this.value().session.clone();
        session.release(this);
    }
}

/// An open file that is a client.
pub(crate) type Session = WithTimer<SessionState>;

/// State of a session, without its timer.
#[pin_data]
pub(crate) struct SessionState {
    service: Arc<Service>,
    concurrency: Arc<Concurrency>,
    client: Arc<Client>,
    target: Arc<Target>,
    terms: SessionTerms,
    counters: Counters,
    remainder: Arc<SessionWork>,
    /// Reader of a server; `None`: tasks that wait for `readable` read.
    reader: Option<Arc<dyn SessionReader>>,
    #[pin]
    readable: CondVar,
    /// Wait queue for room for a request; while draining or closing, for the end of all requests.
    #[pin]
    roomy: CondVar,
    /// Wait queue of polls. A poll consumes a notification of one waiter, though it may not use it
    /// (`EPOLLEXCLUSIVE`).
    polls: PollCondVarBox,
    #[pin]
    order: Mutex<()>,
    #[pin]
    inner: SpinLockIrq<TableState>,
}

impl Session {
    /// Creates a session without requests for the client of `attachment`. [`Session::close`] must
    /// be called before the attachment is dropped. `reader` reads the session, unless it is an open
    /// file.
    pub(crate) fn open(
        attachment: &Attachment,
        terms: SessionTerms,
        reader: Option<Arc<dyn SessionReader>>,
    ) -> Result<Arc<Self>> {
        let (service, client, target) = attachment.parts();
        let polls = PollCondVarBox::new(c"nrs_polls", static_lock_class!())?;
        let table = TableState::new(
            terms.limit,
            terms.lease_ns,
            service.dispatch().pop_window(),
            misc::random(),
        )
        .map_err(|NoMemory| ENOMEM)?;
        let remainder = SessionWork::new()?;
        let session = Arc::pin_init(
            WithTimer::new(pin_init!(SessionState {
                concurrency: service.concurrency().clone(),
                service,
                client,
                target,
                terms,
                counters: Counters::default(),
                remainder,
                reader,
                readable <- new_condvar!("nrs_readable"),
                roomy <- new_condvar!("nrs_roomy"),
                polls,
                order <- new_mutex!((), "nrs_order"),
                inner <- new_spinlock_irq!(table, "nrs_session"),
            })),
            GFP_KERNEL_ACCOUNT,
        )?;
        session.remainder.open(session.clone());
        Ok(session)
    }

    /// Notifies the reader of readable records.
    fn call_reader(&self) {
        match &self.reader {
            Some(reader) => reader.clone().called(),
            None => {
                self.readable.notify_one();
                self.polls.notify_all();
            }
        }
    }

    /// Notifies a writer, or all, and polls of room for a request.
    fn call_writers(&self, all: bool) {
        match all {
            true => self.roomy.notify_all(),
            false => self.roomy.notify_one(),
        }
        self.polls.notify_all();
    }

    /// Accepts `record` of type `kind`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the record is malformed, or of a type that is not written.
    /// - Any error of the type of record.
    pub(crate) fn write(self: &Arc<Self>, kind: u16, record: &[u8], nonblocking: bool) -> Result {
        /// Returns the record, or `EINVAL` if it is malformed.
        fn valid<T>(decoded: Result<T, wire::WireError>) -> Result<T> {
            decoded.map_err(|_| EINVAL)
        }
        match kind {
            wire::TYPE_REQUEST => self.request(&valid(wire::Request::decode(record))?, nonblocking),
            wire::TYPE_COMPLETION => self.complete(&valid(wire::Completion::decode(record))?),
            wire::TYPE_PROMOTE => self.promote(&valid(wire::Promotion::decode(record))?),
            wire::TYPE_BUSY => self.busy(&valid(wire::Busy::decode(record))?),
            wire::TYPE_RECONNECT => self.reconnect(&valid(wire::Reconnect::decode(record))?),
            _ => Err(EINVAL),
        }
    }

    /// Returns the name of the service.
    pub(crate) fn service_name(&self) -> &str {
        self.service.name()
    }

    /// Makes a dispatched request ready, or ends the request if the session is closing.
    fn release(&self, boxed: BoxedRequest<SessionRequest>) {
        let (account, cost, handle) = (boxed.account(), boxed.cost(), boxed.value().handle);
        let owed = RequestResources { account, cost };
        if boxed.arrival() != 0 {
            self.client.load().count_submitted();
            if !account.has_slot() {
                self.counters.forced.count(1);
            }
        } else {
            self.counters.passed.count(1);
        }
        let now = misc::now();
        let mut inner = self.inner.lock();
        if inner.closing {
            let gone = inner.take_out_queued(handle);
            drop(inner);
            self.end(owed, CANCELED);
            if let Some(gone) = gone {
                self.count_removed(gone);
            }
            drop(boxed);
            let mut inner = self.inner.lock();
            inner.live = inner.live.wrapping_sub(1);
            let last = inner.live == 0;
            drop(inner);
            if last {
                self.roomy.notify_all();
            }
            return;
        }
        let ticket = account.placement.ticket;
        let served = ReleaseKind {
            cpt: cpt_of(account.home),
            withheld: ticket.map_or(0, |ticket| ticket.grant().withheld),
            read: false,
        };
        inner.release(handle, owed, served, now);
        inner.ready.push(boxed);
        let first = inner.ready.len() == 1;
        self.set_timer(&mut inner);
        drop(inner);
        if first {
            self.call_reader();
        }
    }

    /// Ends a request.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the record is malformed.
    /// - `ENOENT`: no request with this cookie was read and is not completed.
    pub(crate) fn complete(&self, record: &wire::Completion) -> Result {
        if record.reserved != 0 || record.header.flags != 0 {
            return Err(EINVAL);
        }
        let remember = self.service.dispatch().level() == Level::Graph;
        let mut inner = self.inner.lock();
        let full = inner.live >= self.terms.limit;
        let impatient = inner.impatient > 0;
        let Some(finished) = inner.finish(&record.cookie, remember) else {
            return Err(ENOENT);
        };
        let drained = inner.draining && inner.live == 0;
        drop(inner);
        let failed = record.status != 0;
        self.counters.completed.count(1);
        self.counters.bytes.count(record.bytes);
        if failed {
            self.counters.failed.count(1);
        }
        let cost = Cost::of_bytes(record.bytes);
        self.client.load().count_ended(misc::cpu(), cost, failed);
        if finished.owed.is_none() {
            self.counters.late.count(1);
        }
        if !failed {
            self.measure(&finished);
        }
        self.end_all(finished, record.status as i32);
        if full || impatient || drained {
            self.call_writers(impatient || drained);
        }
        Ok(())
    }

    /// Releases what a released request owes; `error` is the errno of a failed request, or 0.
    fn end(&self, owed: RequestResources, error: i32) {
        self.service
            .complete(&owed.account, owed.cost, &self.target, error, misc::cpu());
        self.concurrency.end();
    }

    /// Ends a request that was released, late or not; `error` as for [`Session::end`].
    fn end_all(&self, finished: FinishedRequest, error: i32) {
        match (finished.owed, finished.record) {
            (Some(owed), _) => self.end(owed, error),
            // A late request gave back what it owed when its lease expired.
            (None, Some(record)) => {
                self.service.finish(record);
                self.concurrency.fed();
            }
            (None, None) => {}
        }
        self.count_removed(finished.gone);
    }

    /// Adds the service time of a request to the estimates.
    fn measure(&self, finished: &FinishedRequest) {
        let now = misc::millis();
        let took = early::between(finished.arrival, now);
        let timeouts = self.service.timeouts();
        let service = timeouts.queued(took, finished.served.withheld);
        timeouts.measured(finished.served.cpt, service.max(1), now);
    }

    /// Counts the consequences of the removal of a request.
    fn count_removed(&self, gone: RemovalEvents) {
        if gone.expired {
            self.count_checked(&EarlyFindings {
                expired: 1,
                ..EarlyFindings::default()
            });
        }
        if gone.peer_idle {
            self.concurrency.leave();
        }
    }

    /// Counts a record that was refused with `error`, when the error is returned to the writer.
    pub(crate) fn count_refused(&self, error: Error) {
        let counter = match error {
            EINVAL => &self.counters.refused,
            EEXIST => &self.counters.duplicates,
            ENOENT => &self.counters.unknown,
            _ => return,
        };
        counter.count(1);
    }

    /// Arms the timer for the next due event, unless it expires earlier.
    fn set_timer(&self, inner: &mut TableState) {
        let due = inner.due();
        let sooner = due.look < inner.armed.look || due.lease < inner.armed.lease;
        if inner.closing || !sooner {
            return;
        }
        // INVARIANT: Armed for no later than the due times.
        inner.armed = due;
        let wait = due.look.saturating_sub(misc::millis());
        let look = misc::now().saturating_add(wait.saturating_mul(NSEC_PER_MSEC));
        self.arm(look.min(due.lease).max(inner.rest));
    }

    /// Prevents the timer from being armed again, as if the session were closing.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn stop_timer(&self) {
        self.inner.lock().closing = true;
    }

    /// Checks deadlines and ends leases that have expired at `now` (ns), as many as one lock hold
    /// may; returns true if more is due. Any context.
    pub(crate) fn check_deadlines(&self, now: u64) -> bool {
        let terms = self.service.timeouts().terms();
        let (found, over, more) = {
            let mut inner = self.inner.lock();
            let found = inner.process_watches(&terms);
            let over = inner.end_leases(now);
            inner.armed = DueTimes::NEVER;
            inner.rest = misc::now().saturating_add(REST);
            self.set_timer(&mut inner);
            (found, over, inner.is_due(now))
        };
        self.count_checked(&found);
        if found.sample > 0 {
            self.service.timeouts().expect(found.sample);
        }
        if found.readable {
            self.call_reader();
        }
        for (owed, peer_idle) in over.into_iter().flatten() {
            self.counters.reclaimed.count(1);
            self.end(owed, ETIMEDOUT.to_errno());
            if peer_idle {
                self.concurrency.leave();
            }
        }
        more
    }

    /// Returns the events that are possible now; registers `table` for changes.
    pub(crate) fn poll(&self, file: &fs::File, table: PollTable<'_>) -> u32 {
        table.register_wait(file, &self.polls);
        self.concurrency.register(file, &table);
        let inner = self.inner.lock();
        let mut mask = 0;
        if inner.is_readable() {
            mask |= READABLE;
        }
        if inner.live < self.terms.limit && self.concurrency.has_room() {
            mask |= WRITABLE;
        }
        mask
    }

    /// Returns the counters of the session.
    pub(crate) fn stats(&self) -> wire::Stats {
        let (live, ready, running, peers) = {
            let inner = self.inner.lock();
            let ready = inner.ready.len();
            (inner.live, ready, inner.running, inner.peers.len())
        };
        let mut stats = wire::Stats {
            size: wire::Stats::SIZE as u32,
            queued: live.saturating_sub(ready).saturating_sub(running).into(),
            ready: ready.into(),
            running: running.into(),
            peers,
            fan_out: self.concurrency.fan_out(),
            credits: self.concurrency.credits(false),
            credits_high: self.concurrency.credits(true),
            ..wire::WireField::ZERO
        };
        self.counters.show(&mut stats);
        stats
    }
}
