// SPDX-License-Identifier: GPL-2.0-only

//! An open file of `/dev/nrs` as a client of its service.
//!
//! # Vocabulary
//!
//! - *Cookie*: what the server calls a request; one request at a time has it.
//! - *Released*: the policy has decided that the request is to be served.
//! - *Ready*: released, and not read yet.
//! - *Running*: read, and not completed yet.
//! - *Owed*: the slot and place that a released request must give back.
//! - *Late*: the lease is over; the request owes nothing any more, and may still be completed.
//! - *Peer*: who requests are for ([`peers`]).
//! - *Before*: what has to be completed before a request is served ([`past`]).
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
//! One spinlock per session, taken with interrupts off because leases end in a timer. Nothing of the core
//! that takes a lock is called and nobody is woken under it; it is taken with no lock of the core held. A mutex
//! keeps the requests of a file in their order where that matters ([`admit`]); it is taken first.
//!
//! # Memory
//!
//! A request has a box for the core and a node that finds it by its cookie, both charged to the task that
//! wrote it. The box goes when the request is read, the node when it is completed. [`Session::limit`]
//! bounds both.

use kernel::{
    fs, new_mutex, new_spinlock_irq,
    prelude::*,
    static_lock_class,
    sync::{
        poll::{PollCondVarBox, PollTable},
        Arc, Mutex, SpinLockIrq,
    },
};

use super::wire;
use crate::{
    engine::{
        client::Client, concurrency::Concurrency, partitions::cpt_of, registry::Attachment,
        service::Service, target::Target,
    },
    sched::{item::Cost, order::Level},
    sys::{
        atomic::Hint,
        chardev::{
            boxed::{Boxed, Submit},
            READABLE, WRITABLE,
        },
        misc,
    },
};

mod admit;
mod close;
mod counters;
mod early;
mod past;
mod peers;
mod reading;
mod recovery;
mod table;

use counters::Counters;
use early::Clock;
use past::Past;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) use reading::Item;
use table::{Entry, Gone, Inner, Owed};

/// Requests that one lock hold hands out or looks at, at most.
pub(crate) const CHUNK: u32 = 64;

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

/// A request in the core's hands or ready.
pub(crate) struct Queued {
    session: Arc<Session>,
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

impl Queued {
    /// Request `cookie` of `session`.
    fn new(session: Arc<Session>, cookie: u64) -> Self {
        Self {
            session,
            cookie,
            urgent: Hint::new(0),
            left: Hint::new(0),
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
#[pin_data]
pub(crate) struct Session {
    service: Arc<Service>,
    concurrency: Arc<Concurrency>,
    client: Arc<Client>,
    target: Arc<Target>,
    terms: Terms,
    counters: Counters,
    readable: PollCondVarBox,
    /// Room for a request; while closing: no request left.
    roomy: PollCondVarBox,
    #[pin]
    order: Mutex<()>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Session {
    /// A session without requests, of the client that `attachment` made; it must be [`Session::close`]d
    /// before that goes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(attachment: &Attachment, terms: Terms) -> Result<Arc<Self>> {
        let (service, client, target) = attachment.parts();
        let readable = PollCondVarBox::new(c"nrs_readable", static_lock_class!())?;
        let roomy = PollCondVarBox::new(c"nrs_roomy", static_lock_class!())?;
        let past = Past::new(service.pop_window())?;
        let session = Arc::pin_init(
            pin_init!(Self {
                concurrency: service.concurrency().clone(),
                service,
                client,
                target,
                terms,
                counters: Counters::new(),
                readable,
                roomy,
                order <- new_mutex!((), "nrs_order"),
                inner <- new_spinlock_irq!(Inner::new(past), "nrs_session"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        Clock::start(&session)?;
        Ok(session)
    }

    /// Its terms.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Name of its service.
    pub(crate) fn service_name(&self) -> &str {
        self.service.name()
    }

    /// A request is to be served now.
    fn release(&self, boxed: Boxed<Queued>) {
        let (account, cost, cookie) = (boxed.account(), boxed.cost(), boxed.value().cookie);
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
            let gone = inner.take_out_queued(&cookie);
            drop(inner);
            self.end(Owed { account, cost }, CANCELED);
            if let Some(gone) = gone {
                self.bury(gone);
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
        let node = inner.queued.remove_node(&cookie);
        let replaced = node.and_then(|node| inner.released.insert(node));
        // INVARIANT: It was in `queued`, so in no other tree.
        if let Some(entry) = inner.released.get_mut(&cookie) {
            entry.owed = Some(Owed { account, cost });
            entry.since = now;
            entry.cpt = cpt_of(account.home);
            let ticket = account.placement.ticket;
            entry.withheld = ticket.map_or(0, |ticket| ticket.grant().withheld);
        }
        inner.ready.push(boxed);
        let first = inner.ready.len() == 1;
        drop(inner);
        drop(replaced);
        if first {
            self.readable.notify_one();
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
        let remember = self.service.level() == Level::Graph;
        let mut inner = self.inner.lock();
        let full = inner.live >= self.terms.limit;
        let impatient = inner.impatient > 0;
        let Some((entry, gone)) = inner.finish(&record.cookie, remember) else {
            return Err(ENOENT);
        };
        drop(inner);
        let failed = record.status != 0;
        self.counters.completed.count(1);
        self.counters.bytes.count(record.bytes);
        if failed {
            self.counters.failed.count(1);
        }
        self.client
            .count_ended(Cost::of_bytes(record.bytes), failed);
        if entry.owed.is_none() {
            self.counters.late.count(1);
        }
        if !failed {
            self.measure(&entry);
        }
        self.end_all(&entry, gone, record.status as i32);
        if impatient {
            self.roomy.notify_all();
        } else if full {
            self.roomy.notify_one();
        }
        Ok(())
    }

    /// Gives back what a released request owes; `error` is how it failed, 0 if it did not.
    fn end(&self, owed: Owed, error: i32) {
        self.service
            .complete(&owed.account, owed.cost, &self.target, error);
        self.concurrency.end();
    }

    /// Ends a request that was released, late or not; `error` as for [`Session::end`].
    fn end_all(&self, entry: &Entry, gone: Gone, error: i32) {
        match (entry.owed, entry.record) {
            (Some(owed), _) => self.end(owed, error),
            // What it owed it gave back when its lease was over.
            (None, Some(record)) => {
                self.service.finish(record);
                self.concurrency.fed();
            }
            (None, None) => {}
        }
        self.bury(gone);
    }

    /// Tells how long a request took that was served.
    fn measure(&self, entry: &Entry) {
        let now = early::now();
        let took = early::between(entry.arrival, now);
        let timeouts = self.service.timeouts();
        let service = timeouts.queued(took, entry.withheld);
        timeouts.measured(entry.cpt, service.max(1), now);
    }

    /// Frees what was taken out.
    fn bury(&self, gone: Gone) {
        if gone.is_expired() {
            self.count_expired(1);
        }
        if gone.is_peer_idle() {
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

    /// Ends leases that are over at `now`, of the requests from cookie `from` on; returns the cookie to go
    /// on from, or `None` at the end. Any context.
    pub(crate) fn reclaim(&self, from: u64, now: u64) -> Option<u64> {
        let (next, owed) = self.inner.lock().end_leases(from, now, self.terms.lease_ns);
        for (owed, idle) in owed.into_iter().flatten() {
            self.counters.reclaimed.count(1);
            self.end(owed, ETIMEDOUT.to_errno());
            if idle.is_some() {
                self.concurrency.leave();
            }
        }
        next
    }

    /// What is possible now; `table` waits for changes.
    pub(crate) fn poll(&self, file: &fs::File, table: PollTable<'_>) -> u32 {
        table.register_wait(file, &self.readable);
        table.register_wait(file, &self.roomy);
        self.concurrency.register(file, &table);
        let inner = self.inner.lock();
        let mut mask = 0;
        if !inner.ready.is_empty() || inner.deadlines.is_readable() {
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
            let peers = inner.peers.len();
            (inner.live, inner.ready.len(), inner.running, peers)
        };
        let counters = &self.counters;
        wire::Stats {
            size: wire::Stats::SIZE as u32,
            reserved: 0,
            requests: counters.requests.get(),
            passed: counters.passed.get(),
            queued: live.saturating_sub(ready).saturating_sub(running).into(),
            ready: ready.into(),
            running: running.into(),
            completed: counters.completed.get(),
            failed: counters.failed.get(),
            bytes: counters.bytes.get(),
            refused: counters.refused.get(),
            duplicates: counters.duplicates.get(),
            unknown: counters.unknown.get(),
            reclaimed: counters.reclaimed.get(),
            late: counters.late.get(),
            forced: counters.forced.get(),
            promoted: counters.promoted.get(),
            blocked: counters.blocked.get(),
            over: counters.over.get(),
            room_waits: counters.room_waits.get(),
            peers,
            fan_out: self.concurrency.fan_out(),
            credits: self.concurrency.credits(false),
            credits_high: self.concurrency.credits(true),
            early_sent: counters.early_sent.get(),
            early_refused: counters.early_refused.get(),
            early_late: counters.early_late.get(),
            expired: counters.expired.get(),
            reconnected: counters.reconnected.get(),
        }
    }
}
