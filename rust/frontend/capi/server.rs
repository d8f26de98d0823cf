// SPDX-License-Identifier: GPL-2.0-only

//! A server of another kernel module, as a client of its service.
//!
//! # Terms
//!
//! - *Reader*: the work item that reads the session and calls the server ([`ServerReader`]).
//!
//! ```text
//!   write(request) ──▶ session ──▶ policy ──▶ session ──▶ reader ──▶ dispatch ─▶ write(completion)
//! ```
//!
//! # Closing a server
//!
//! Queued requests are dispatched, and every request is completed. The task that counts a
//! completion may still be in [`capi::ServerOps::write`] then. The task is an RCU reader, and close
//! waits for it.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{rcu, Arc, Mutex},
    workqueue::{Work, WorkItem},
};

use crate::{
    frontend::chardev::{
        session::{Session, SessionReader},
        wire, Attached,
    },
    sys::{
        capi::{self, Callbacks, CallerModule},
        misc, queue,
        series::synchronize_rcu,
    },
};

/// Reader of a session that calls the server.
#[pin_data]
struct ServerReader {
    callbacks: Callbacks,
    /// `None`: not open yet, or closed.
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ServerReader { self.work }
}

impl ServerReader {
    fn new(callbacks: Callbacks) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                callbacks,
                session <- new_mutex!(None, "nrs_server_reader"),
                work <- new_work!("nrs_server_reader"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the session to read, or none; waits for a call of the server in progress.
    fn set(&self, session: Option<Arc<Session>>) {
        let before = core::mem::replace(&mut *self.session.lock(), session);
        drop(before);
    }
}

impl SessionReader for ServerReader {
    fn called(self: Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::calls().enqueue(self);
    }
}

impl WorkItem for ServerReader {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let session = this.session.lock();
        let Some(session) = &*session else {
            return;
        };
        // One at a time: a taken request may be completed, but the server knows the request only
        // after the call.
        while let Ok(mut taken) = session.take(1, true) {
            // A late early reply is left to the timer.
            let Some(item) = taken.next() else {
                break;
            };
            let mut room = [0; wire::Released::SIZE];
            this.callbacks.notify(item.kind(), item.encode(&mut room));
            misc::cond_resched();
        }
    }
}

/// A server of another kernel module.
pub(crate) struct Server {
    attached: Attached,
    reader: Arc<ServerReader>,
    owner: CallerModule,
}

impl capi::ServerOps for Server {
    const RECORD_MAX: usize = wire::SIZE_MAX;

    /// Opens a session for a server.
    ///
    /// # Errors
    ///
    /// Any error of [`Attached::new`].
    fn open(attach: &[u8], callbacks: Callbacks, owner: CallerModule) -> Result<Self> {
        let asked = wire::Attach::decode(attach).map_err(|_| EINVAL)?;
        let reader = ServerReader::new(callbacks)?;
        let (attached, _) = Attached::new(&asked, Some(reader.clone()))?;
        reader.set(Some(attached.session().clone()));
        Ok(Self {
            attached,
            reader,
            owner,
        })
    }

    /// Writes a record to the session.
    ///
    /// # Errors
    ///
    /// Any error of [`Session::write`]. `ENODEV`: a request of a module that is being removed.
    fn write(&self, record: &[u8], wait: bool) -> Result {
        let header = record.get(..wire::Header::SIZE).ok_or(EINVAL)?;
        let kind = wire::Header::decode(header).map_err(|_| EINVAL)?.kind;
        let session = self.attached.session();
        match kind {
            wire::TYPE_REQUEST => {
                self.owner.get()?;
                session
                    .write(kind, record, !wait)
                    .inspect_err(|_| self.owner.put())
            }
            wire::TYPE_COMPLETION => {
                let _guard = rcu::read_lock();
                let written = session.write(kind, record, true);
                written.inspect(|()| self.owner.put())
            }
            _ => session.write(kind, record, !wait),
        }
        .inspect_err(|error| session.count_refused(*error))
    }

    fn stats(&self) -> [u8; wire::Stats::SIZE] {
        self.attached.session().stats().encode()
    }

    fn close(&self) {
        self.attached.session().drain();
        self.reader.set(None);
        synchronize_rcu();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server reader owns the session, and the session its own reader.
        self.reader.set(None);
    }
}
