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
//! is called and nobody is woken under it; it is taken with no lock of the core held.
//!
//! # Memory
//!
//! A request has a box for the core and a node that finds it by its cookie, both charged to the task that
//! wrote it. The box goes when the request is read, the node when it is completed. [`Session::limit`]
//! bounds both.

use kernel::{
    fs, new_spinlock_irq,
    prelude::*,
    rbtree::RBTreeNode,
    static_lock_class,
    sync::{
        poll::{PollCondVarBox, PollTable},
        Arc, SpinLockIrq,
    },
    time::{delay::fsleep, Delta},
};

use super::{about::About, wire};
use crate::{
    core::{
        client::Client,
        registry::Attachment,
        service::{Arrival, Service},
        target::Target,
    },
    sched::{
        attr::Attrs,
        item::{Cost, Spot},
    },
    sys::{
        chardev::{
            boxed::{BoxFifo, Boxed, Submit},
            READABLE, WRITABLE,
        },
        misc,
        node::Account,
    },
};

mod counters;
mod table;

use counters::Counters;
use table::{Entry, Inner, Owed};

/// Requests that one lock hold hands out or looks at, at most.
pub(crate) const CHUNK: u32 = 64;

/// How long a closing file leaves its requests to their turn while others use the service: in all, and
/// between looks, ms.
const GRACE_MS: i64 = 1000;
const LOOK_MS: i64 = 5;

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
}

impl Submit for Queued {
    fn submitted(this: Boxed<Self>) {
        // The box may be the last that knows of the session.
        let session = this.value().session.clone();
        session.release(this);
    }
}

/// Requests that were taken to be read.
pub(crate) struct Taken(BoxFifo<Queued>);

impl Taken {
    /// The next one as the reader sees it, if it is there.
    pub(crate) fn next(&mut self) -> Option<(Boxed<Queued>, wire::Released)> {
        let boxed = self.0.pop()?;
        let account = boxed.account();
        let (wait, flags) = match account.ticket {
            None => (0, wire::RELEASED_PASSED),
            Some(_) => (
                misc::now().saturating_sub(boxed.arrival()),
                if account.slot {
                    0
                } else {
                    wire::RELEASED_FORCED
                },
            ),
        };
        let record = wire::Released::new(boxed.value().cookie, wait, flags);
        Some((boxed, record))
    }
}

/// An open file that is a client.
#[pin_data]
pub(crate) struct Session {
    service: Arc<Service>,
    client: Arc<Client>,
    target: Arc<Target>,
    terms: Terms,
    counters: Counters,
    readable: PollCondVarBox,
    /// Room for a request; while closing: no request left.
    roomy: PollCondVarBox,
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
        Arc::pin_init(
            pin_init!(Self {
                service,
                client,
                target,
                terms,
                counters: Counters::new(),
                readable,
                roomy,
                inner <- new_spinlock_irq!(Inner::new(), "nrs_session"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its terms.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Name of its service.
    pub(crate) fn service_name(&self) -> &str {
        self.service.name()
    }

    /// Takes a request. Waits for room unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed.
    /// - `EEXIST`: a request with this cookie has not been completed.
    /// - `EAGAIN`: no room, and `nonblocking`. `ERESTARTSYS`: a signal came while waiting.
    /// - `ENOMEM`.
    pub(crate) fn request(self: &Arc<Self>, record: &wire::Request, nonblocking: bool) -> Result {
        let about = About::of(record)?;
        let cookie = record.cookie;
        let node = RBTreeNode::new(cookie, Entry::new(), GFP_KERNEL_ACCOUNT)?;
        let queued = Queued {
            session: self.clone(),
            cookie,
        };
        let Attrs {
            object,
            offset,
            length,
            ..
        } = about.attrs;
        let spot = Spot::new(object, offset, length);
        let account = Account::new(self.target.index(), about.attrs.priority);
        let boxed = Boxed::new(queued, about.cost, spot, account, GFP_KERNEL_ACCOUNT)?;
        self.admit(node, cookie, nonblocking)?;
        self.counters.requests.count(1);
        self.client.count_arrived(about.attrs.opcode);
        let arrival = Arrival {
            // All that a class may depend on does not fit, and what is said of each request is at hand anyway.
            ident: None,
            client: &self.client,
            target: &self.target,
            must_pass: false,
            may_pass: self.terms.may_pass,
            // Nothing arrives while a file is being closed.
            draining: None,
        };
        let passed = self
            .service
            .arrive(boxed.into_held(), &arrival, || about.attrs);
        if let Some(held) = passed {
            held.submit();
        }
        Ok(())
    }

    /// Enters a request, once there is room.
    fn admit(&self, node: RBTreeNode<u64, Entry>, cookie: u64, nonblocking: bool) -> Result {
        let mut inner = self.inner.lock();
        let mut waited = false;
        loop {
            if inner.knows(&cookie) {
                return Err(EEXIST);
            }
            if inner.live < self.terms.limit {
                break;
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            waited = true;
            let signal = self.roomy.wait_interruptible(&mut inner);
            // Who was woken for room takes it, or nobody else would.
            if signal && inner.live >= self.terms.limit {
                return Err(ERESTARTSYS);
            }
        }
        // INVARIANT: The cookie was in no tree.
        let replaced = inner.queued.insert(node);
        inner.live = inner.live.wrapping_add(1);
        let more = waited && inner.live < self.terms.limit;
        drop(inner);
        drop(replaced);
        if more {
            self.roomy.notify_one();
        }
        Ok(())
    }

    /// A request is to be served now.
    fn release(&self, boxed: Boxed<Queued>) {
        let (account, cost, cookie) = (boxed.account(), boxed.cost(), boxed.value().cookie);
        if account.ticket.is_some() {
            self.client.count_submitted();
            if !account.slot {
                self.counters.forced.count(1);
            }
        } else {
            self.counters.passed.count(1);
        }
        let now = misc::now();
        let mut inner = self.inner.lock();
        let node = inner.queued.remove_node(&cookie);
        if inner.closing {
            drop(inner);
            drop(node);
            self.end(Owed { account, cost });
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
        let replaced = node.and_then(|node| inner.released.insert(node));
        // INVARIANT: It was in `queued`, so in no other tree.
        if let Some(entry) = inner.released.get_mut(&cookie) {
            entry.owed = Some(Owed { account, cost });
            entry.since = now;
        }
        inner.ready.push(boxed);
        let first = inner.ready.len() == 1;
        drop(inner);
        drop(replaced);
        if first {
            self.readable.notify_one();
        }
    }

    /// Takes up to `max` requests that are ready, at most [`CHUNK`]. Waits for one unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: none, and `nonblocking`. `ERESTARTSYS`: a signal came while waiting.
    pub(crate) fn take(&self, max: u32, nonblocking: bool) -> Result<Taken> {
        let mut taken = Taken(BoxFifo::new());
        let mut inner = self.inner.lock();
        while inner.ready.is_empty() {
            if nonblocking {
                return Err(EAGAIN);
            }
            let signal = self.readable.wait_interruptible(&mut inner);
            // Who was woken for a request takes it, or nobody else would.
            if signal && inner.ready.is_empty() {
                return Err(ERESTARTSYS);
            }
        }
        for _ in 0..max.min(CHUNK) {
            let Some(boxed) = inner.ready.pop() else {
                break;
            };
            // Known from now on: the reader may complete it before this call returns.
            if let Some(entry) = inner.released_mut(&boxed.value().cookie) {
                entry.read = true;
                inner.running = inner.running.wrapping_add(1);
            }
            taken.0.push(boxed);
        }
        let more = !inner.ready.is_empty();
        drop(inner);
        if more {
            self.readable.notify_one();
        }
        Ok(taken)
    }

    /// Puts back `first` and the rest of `taken`: nobody was told of them.
    pub(crate) fn put_back(&self, first: Boxed<Queued>, mut taken: Taken) {
        let (mut back, mut gone) = (BoxFifo::new(), BoxFifo::new());
        let mut next = Some(first);
        let mut inner = self.inner.lock();
        while let Some(boxed) = next {
            let known = match inner.released_mut(&boxed.value().cookie) {
                Some(entry) => core::mem::replace(&mut entry.read, false),
                None => false,
            };
            if known {
                inner.running = inner.running.wrapping_sub(1);
                back.push(boxed);
            } else {
                // Somebody guessed its cookie and completed it.
                gone.push(boxed);
            }
            next = taken.0.pop();
        }
        back.append(&mut inner.ready);
        inner.ready.append(&mut back);
        let some = !inner.ready.is_empty();
        drop(inner);
        drop(gone);
        if some {
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
        let mut inner = self.inner.lock();
        let full = inner.live >= self.terms.limit;
        let Some(node) = inner.finish(&record.cookie) else {
            return Err(ENOENT);
        };
        drop(inner);
        let (_, entry) = node.to_key_value();
        let failed = record.status != 0;
        self.counters.completed.count(1);
        self.counters.bytes.count(record.bytes);
        if failed {
            self.counters.failed.count(1);
        }
        self.client
            .count_ended(Cost::of_bytes(record.bytes), failed);
        match entry.owed {
            Some(owed) => self.end(owed),
            None => self.counters.late.count(1),
        }
        if full {
            self.roomy.notify_one();
        }
        Ok(())
    }

    /// Gives back what a released request owes.
    fn end(&self, owed: Owed) {
        self.service.complete(owed.account, owed.cost, &self.target);
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
        for owed in owed.into_iter().flatten() {
            self.counters.reclaimed.count(1);
            self.end(owed);
        }
        next
    }

    /// What is possible now; `table` waits for changes.
    pub(crate) fn poll(&self, file: &fs::File, table: PollTable<'_>) -> u32 {
        table.register_wait(file, &self.readable);
        table.register_wait(file, &self.roomy);
        let inner = self.inner.lock();
        let mut mask = 0;
        if !inner.ready.is_empty() {
            mask |= READABLE;
        }
        if inner.live < self.terms.limit {
            mask |= WRITABLE;
        }
        mask
    }

    /// What it has done.
    pub(crate) fn stats(&self) -> wire::Stats {
        let (live, ready, running) = {
            let inner = self.inner.lock();
            (inner.live, inner.ready.len(), inner.running)
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
        }
    }

    /// Ends everything that is queued or running; nothing arrives any more. May sleep.
    pub(crate) fn close(&self) {
        let mut ready = BoxFifo::new();
        {
            let mut inner = self.inner.lock();
            inner.closing = true;
            ready.append(&mut inner.ready);
        }
        drop(ready);
        loop {
            let Some(node) = self.inner.lock().finish_any() else {
                break;
            };
            if let (
                _,
                Entry {
                    owed: Some(owed), ..
                },
            ) = node.to_key_value()
            {
                self.end(owed);
            }
            misc::cond_resched();
        }
        // What is queued ends as soon as it is decided. A drain would be felt by all clients of the
        // service, so those are spared it for a while.
        let mut left = if self.service.users() > 1 {
            GRACE_MS
        } else {
            0
        };
        while left > 0 && self.live() != 0 {
            fsleep(Delta::from_millis(LOOK_MS));
            left = left.saturating_sub(LOOK_MS);
        }
        if self.live() != 0 {
            self.service.drain();
            let mut inner = self.inner.lock();
            while inner.live != 0 {
                self.roomy.wait(&mut inner);
            }
        }
    }

    fn live(&self) -> u32 {
        self.inner.lock().live
    }
}
