// SPDX-License-Identifier: GPL-2.0-only

//! Work left by an expiry of the timer, completed in process context.
//!
//! All leases of a hung server may end together. The timer ends as many as one lock hold may; a
//! work item ends the rest, in several lock holds.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{Arc, Mutex},
    workqueue::{Work, WorkItem},
};

use super::Session;
use crate::sys::{misc, queue};

/// The work item of a session.
#[pin_data]
pub(super) struct SessionWork {
    /// Session to process; `None` after its close.
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for SessionWork { self.work }
}

impl SessionWork {
    /// Creates the work item of a session that [`Self::open`] sets.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session <- new_mutex!(None, "nrs_remainder"),
                work <- new_work!("nrs_remainder"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Sets the session to process until [`Self::close`].
    pub(super) fn open(&self, session: Arc<Session>) {
        *self.session.lock() = Some(session);
    }

    /// Waits for a run in progress, and disables further runs. May sleep.
    pub(super) fn close(&self) {
        let session = self.session.lock().take();
        drop(session);
    }

    /// Schedules a run soon. Any context.
    pub(super) fn call(self: &Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::progress().enqueue(self.clone());
    }
}

impl WorkItem for SessionWork {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let session = this.session.lock();
        let Some(session) = &*session else {
            return;
        };
        while session.check_deadlines(misc::now()) {
            misc::cond_resched();
        }
    }
}
