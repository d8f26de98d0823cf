// SPDX-License-Identifier: GPL-2.0-only

//! How a session ends.
//!
//! A server of a kernel module is drained first: it is told of each request, and ends it.
//!
//! ```text
//!   draining ──▶ what is queued is forced, and released ──▶ no request left
//!
//!   closing ──▶ what is released ends, what is queued is forced ──▶ no request left
//! ```
//!
//! What is decided while a session is closing ends at once ([`Session::release`]), and with that what comes after it
//! may be decided. So all that is forced ends, whatever waits for what, and nothing of other clients is sent out for it.
//! Classes owe for what is forced, as always.

use super::{table::Rest, Session, CANCELED};
use crate::sys::{chardev::boxed::BoxFifo, misc};

impl Session {
    /// Releases everything that is queued, whatever the policy says, and waits until each request is completed; nothing
    /// arrives any more. May sleep.
    pub(crate) fn drain(&self) {
        let slots = {
            let mut inner = self.inner.lock();
            inner.draining = true;
            inner.rows.slots()
        };
        for slot in 0..slots {
            let queued = self.inner.lock().queued(slot);
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

    /// Ends everything that is queued or running; nothing arrives any more. May sleep.
    pub(crate) fn close(&self) {
        let mut ready = BoxFifo::new();
        let slots = {
            let mut inner = self.inner.lock();
            inner.closing = true;
            ready.append(&mut inner.ready);
            inner.rows.slots()
        };
        // Not armed again: it is closing.
        self.cancel();
        self.remainder.close();
        drop(ready);
        for slot in 0..slots {
            let rest = self.inner.lock().close(slot);
            match rest {
                Rest::Nothing => {}
                Rest::End(finished) => self.end_all(finished, CANCELED),
                Rest::Force(record) => self.service.force(record),
            }
            misc::cond_resched();
        }
        self.wait_for_all();
    }
}
