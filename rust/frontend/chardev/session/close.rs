// SPDX-License-Identifier: GPL-2.0-only

//! Draining and closing of a session.
//!
//! A server of a kernel module is drained first, so that the server receives and completes each
//! request.
//!
//! ```text
//!   draining ──▶ queued requests are forced, and released ──▶ no request left
//!
//!   closing ──▶ released requests end, queued requests are forced ──▶ no request left
//! ```
//!
//! A request that is dispatched while its session is closing ends immediately
//! ([`Session::release`]), and thereby its successors may be dispatched. So all forced requests
//! end, whatever their ordering constraints, and no requests of other clients are dispatched for
//! them. Classes are charged for forced requests, as always.

use super::{table::CloseAction, Session, CANCELED};
use crate::sys::{chardev::boxed::BoxFifo, misc};

impl Session {
    /// Releases all queued requests, whatever the policy decides, and waits until each request is
    /// completed. No request may arrive any more. May sleep.
    pub(crate) fn drain(&self) {
        let entries = {
            let mut inner = self.inner.lock();
            inner.draining = true;
            inner.rows.entry_count()
        };
        for idx in 0..entries {
            let queued = self.inner.lock().queued(idx);
            if let Some(record) = queued {
                self.service.force(record);
            }
            misc::cond_resched();
        }
        self.wait_for_all();
    }

    /// Waits until there is no request.
    fn wait_for_all(&self) {
        let mut inner = self.inner.lock();
        while inner.live != 0 {
            self.roomy.wait(&mut inner);
        }
    }

    /// Ends all requests, queued or running. No request may arrive any more. May sleep.
    pub(crate) fn close(&self) {
        let mut ready = BoxFifo::new();
        let entries = {
            let mut inner = self.inner.lock();
            inner.closing = true;
            ready.append(&mut inner.ready);
            inner.rows.entry_count()
        };
        // The timer is not armed again, because the session is closing.
        self.cancel();
        self.remainder.close();
        drop(ready);
        for idx in 0..entries {
            let rest = self.inner.lock().close(idx);
            match rest {
                CloseAction::Nothing => {}
                CloseAction::End(finished) => self.end_all(finished, CANCELED),
                CloseAction::Force(record) => self.service.force(record),
            }
            misc::cond_resched();
        }
        self.wait_for_all();
    }
}
