// SPDX-License-Identifier: GPL-2.0-only

//! An open file of `/dev/nrs`, or a server of another kernel module, as a client of its service.
//!
//! # Vocabulary
//!
//! - *Cookie*: what the server calls a request; one request at a time has it.
//! - *Released*: the policy has decided that the request is to be served.
//! - *Ready*: released, and not read yet.
//! - *Running*: read, and not completed yet.
//! - *Owed*: the slot and place that a released request must give back.
//! - *Late*: the lease is over; the request owes nothing any more, and may still be completed.
//!
//! ```text
//!   request ──▶ queued ──▶ ready ──▶ running ──▶ completed
//!                 │          │          │
//!                 │          └──────────┴─ lease over ──▶ late ──▶ completed, counted only
//!                 └─ the file is closed ──▶ ended as soon as it is decided
//! ```
//!
//! # Locking
//!
//! One spinlock per session, taken with interrupts off because a timer takes it. Nothing of the engine
//! that takes a lock is called and no task is woken under it; it is taken with no lock of the engine held. A mutex
//! keeps the requests of a file in their order where that matters ([`admit`]); it is taken first.
//!
//! # Time
//!
//! One timer per session, armed for the end of the oldest lease, the next deadline to look at, or the end of a
//! recovery, whichever comes first. It expires a thousand times a second at most. What is due then and too much for
//! one lock hold is left to a work item ([`remainder`]).
//!
//! # Memory
//!
//! A request has a box for the engine, which is freed when the request is read, and a row in the session's
//! [`table`], whose memory is freed with the session. Both are charged to the task that wrote it, the arrays of the
//! table to the task that attached the file, and [`Terms::limit`] bounds all of it.

use kernel::{
    fs, new_mutex,
    prelude::*,
    static_lock_class,
    sync::{poll::PollTable, Arc, Mutex},
};

use super::wire;
use crate::{
    engine::{
        client::Client, concurrency::Concurrency, partitions::cpt_of, registry::Attachment,
        service::Service, target::Target,
    },
    sched::{item::Cost, mem::NoMemory, order::Level, slab::Handle, units::NSEC_PER_MSEC},
    sys::{
        atomic::Hint,
        chardev::{
            boxed::{Boxed, Submit},
            READABLE, WRITABLE,
        },
        misc,
        series::{new_spinlock_irq, PollCondVarBox, SpinLockIrq},
        timer::{Expire, Timed},
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

use counters::Counters;
use early::Found;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) use reading::Item;
use remainder::Remainder;
use table::{Due, Finished, Gone, Inner, Owed, Served};

/// Requests that one lock hold hands out or looks at, at most.
pub(crate) const CHUNK: u32 = 64;

/// Time between two expiries of the timer, at least, ns.
const REST: u64 = NSEC_PER_MSEC;

/// Who reads, of a session that is no open file.
pub(crate) trait Reader: Send + Sync {
    /// There is something to read. Any context, without locks.
    fn called(self: Arc<Self>);
}

/// How a session is to be.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Requests may go at once when nobody waits.
    pub(crate) may_pass: bool,
    /// How long a released request may keep its slot, ns; 0: for ever.
    pub(crate) lease_ns: u64,
    /// Requests that it may have.
    pub(crate) limit: u32,
}

/// A request with the engine, or ready.
pub(crate) struct Queued {
    session: Arc<Session>,
    handle: Handle,
    cookie: u64,
    /// Not 0: others wait for a request of its peer, as was seen when it was read.
    urgent: Hint,
    /// Time until its deadline, ms, as was seen then; 0: it has none; [`PASSED`].
    left: Hint,
}

/// How a request ends whose file is closed.
const CANCELED: i32 = -(kernel::bindings::ECANCELED as i32);

/// [`Queued::left`]: the deadline has passed.
const PASSED: u64 = u64::MAX;

impl Expire for Open {
    fn expired(session: &Session) {
        if session.look(misc::now()) {
            session.remainder.call();
        }
    }
}

impl Submit for Queued {
    fn submitted(this: Boxed<Self>) {
        // The box may be the last that knows of the session.
        let session = this.value().session.clone();
        session.release(this);
    }
}

/// An open file that is a client.
pub(crate) type Session = Timed<Open>;

/// What a session and its timer have.
#[pin_data]
pub(crate) struct Open {
    service: Arc<Service>,
    concurrency: Arc<Concurrency>,
    client: Arc<Client>,
    target: Arc<Target>,
    terms: Terms,
    counters: Counters,
    remainder: Arc<Remainder>,
    /// `None`: whoever waits for `readable` reads.
    reader: Option<Arc<dyn Reader>>,
    readable: PollCondVarBox,
    /// Room for a request; while draining or closing: no request left.
    roomy: PollCondVarBox,
    #[pin]
    order: Mutex<()>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Session {
    /// A session without requests, of the client that `attachment` made; it must be [`Session::close`]d
    /// before that goes. `reader` reads, unless it is an open file.
    pub(crate) fn open(
        attachment: &Attachment,
        terms: Terms,
        reader: Option<Arc<dyn Reader>>,
    ) -> Result<Arc<Self>> {
        let (service, client, target) = attachment.parts();
        let readable = PollCondVarBox::new(c"nrs_readable", static_lock_class!())?;
        let roomy = PollCondVarBox::new(c"nrs_roomy", static_lock_class!())?;
        let table = Inner::new(
            terms.limit,
            terms.lease_ns,
            service.dispatch().pop_window(),
            misc::random(),
        )
        .map_err(|NoMemory| ENOMEM)?;
        let remainder = Remainder::new()?;
        let session = Arc::pin_init(
            Timed::new(pin_init!(Open {
                concurrency: service.concurrency().clone(),
                service,
                client,
                target,
                terms,
                counters: Counters::default(),
                remainder,
                reader,
                readable,
                roomy,
                order <- new_mutex!((), "nrs_order"),
                inner <- new_spinlock_irq!(table, "nrs_session"),
            })),
            GFP_KERNEL_ACCOUNT,
        )?;
        session.remainder.open(session.clone());
        Ok(session)
    }

    /// Has what can be read be read.
    fn call_reader(&self) {
        match &self.reader {
            Some(reader) => reader.clone().called(),
            None => self.readable.notify_one(),
        }
    }

    /// Takes `record`, which is of `kind`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed, or of another kind than those that are written.
    /// - What the record is refused with.
    pub(crate) fn write(self: &Arc<Self>, kind: u16, record: &[u8], nonblocking: bool) -> Result {
        /// A record, unless it is malformed.
        fn valid<T>(decoded: Result<T, wire::Malformed>) -> Result<T> {
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

    /// Name of its service.
    pub(crate) fn service_name(&self) -> &str {
        self.service.name()
    }

    /// A request is to be served now.
    fn release(&self, boxed: Boxed<Queued>) {
        let (account, cost, handle) = (boxed.account(), boxed.cost(), boxed.value().handle);
        let owed = Owed { account, cost };
        if boxed.arrival() != 0 {
            self.client.count_submitted();
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
                self.count_gone(gone);
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
        let served = Served {
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
    /// - `EINVAL`: malformed.
    /// - `ENOENT`: no request with this cookie was read and not completed.
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
        self.client.count_ended(misc::cpu(), cost, failed);
        if finished.owed.is_none() {
            self.counters.late.count(1);
        }
        if !failed {
            self.measure(&finished);
        }
        self.end_all(finished, record.status as i32);
        if impatient || drained {
            self.roomy.notify_all();
        } else if full {
            self.roomy.notify_one();
        }
        Ok(())
    }

    /// Gives back what a released request owes; `error` is how it failed, 0 if it did not.
    fn end(&self, owed: Owed, error: i32) {
        self.service
            .complete(&owed.account, owed.cost, &self.target, error, misc::cpu());
        self.concurrency.end();
    }

    /// Ends a request that was released, late or not; `error` as for [`Session::end`].
    fn end_all(&self, finished: Finished, error: i32) {
        match (finished.owed, finished.record) {
            (Some(owed), _) => self.end(owed, error),
            // What it owed it gave back when its lease was over.
            (None, Some(record)) => {
                self.service.finish(record);
                self.concurrency.fed();
            }
            (None, None) => {}
        }
        self.count_gone(finished.gone);
    }

    /// Tells how long a request took that was served.
    fn measure(&self, finished: &Finished) {
        let now = early::now();
        let took = early::between(finished.arrival, now);
        let timeouts = self.service.timeouts();
        let service = timeouts.queued(took, finished.served.withheld);
        timeouts.measured(finished.served.cpt, service.max(1), now);
    }

    /// Counts what ended with a request that was taken out.
    fn count_gone(&self, gone: Gone) {
        if gone.expired {
            self.count_found(&Found {
                expired: 1,
                ..Found::default()
            });
        }
        if gone.peer_idle {
            self.concurrency.leave();
        }
    }

    /// Counts a record that was refused with `error`, once its writer is told.
    pub(crate) fn count_refused(&self, error: Error) {
        let counter = match error {
            EINVAL => &self.counters.refused,
            EEXIST => &self.counters.duplicates,
            ENOENT => &self.counters.unknown,
            _ => return,
        };
        counter.count(1);
    }

    /// Arms the timer for what is due next, unless it expires before that anyway.
    fn set_timer(&self, inner: &mut Inner) {
        let due = inner.due();
        let sooner = due.look < inner.armed.look || due.lease < inner.armed.lease;
        if inner.closing || !sooner {
            return;
        }
        // INVARIANT: Armed for no later than both.
        inner.armed = due;
        let wait = due.look.saturating_sub(early::now());
        let look = misc::now().saturating_add(wait.saturating_mul(NSEC_PER_MSEC));
        self.arm(look.min(due.lease).max(inner.rest));
    }

    /// Has the timer not armed again, as if the session were closing.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn stop_timer(&self) {
        self.inner.lock().closing = true;
    }

    /// Looks at deadlines and ends leases that are over at `now` (ns), as many as one lock hold may; returns whether more
    /// is due. Any context.
    pub(crate) fn look(&self, now: u64) -> bool {
        let terms = self.service.timeouts().terms();
        let (found, over, more) = {
            let mut inner = self.inner.lock();
            let found = inner.look(&terms);
            let over = inner.end_leases(now);
            inner.armed = Due::NEVER;
            inner.rest = misc::now().saturating_add(REST);
            self.set_timer(&mut inner);
            (found, over, inner.is_due(now))
        };
        self.count_found(&found);
        if found.feed > 0 {
            self.service.timeouts().expect(found.feed);
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

    /// What is possible now; `table` waits for changes.
    pub(crate) fn poll(&self, file: &fs::File, table: PollTable<'_>) -> u32 {
        table.register_wait(file, &self.readable);
        table.register_wait(file, &self.roomy);
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

    /// What it has done.
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
            ..wire::Field::ZERO
        };
        self.counters.show(&mut stats);
        stats
    }
}
