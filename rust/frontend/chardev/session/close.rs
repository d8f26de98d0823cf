// SPDX-License-Identifier: GPL-2.0-only

//! How a session ends.
//!
//! ```text
//!   closing ──▶ all that is released ends ──▶ all that is queued is forced ──▶ nothing left
//! ```
//!
//! What is decided while a session is closing ends at once ([`Session::release`]), and with that what comes after it
//! may be decided. So all that is forced ends, whatever waits for what, and nothing of other clients is sent out for it.
//! Classes owe for what is forced, as always.

use kernel::sync::Arc;

use super::{Session, CANCELED};
use crate::sys::{chardev::boxed::BoxFifo, misc};

impl Session {
    /// Ends everything that is queued or running; nothing arrives any more. May sleep.
    pub(crate) fn close(self: &Arc<Self>) {
        self.stop_clock();
        let mut ready = BoxFifo::new();
        {
            let mut inner = self.inner.lock();
            inner.closing = true;
            ready.append(&mut inner.ready);
        }
        drop(ready);
        loop {
            let Some((entry, gone)) = self.inner.lock().finish_any() else {
                break;
            };
            self.end_all(&entry, gone, CANCELED);
            misc::cond_resched();
        }
        // Those have left the queue by then that went to be served meanwhile.
        let mut from = Some(0);
        while let Some(cookie) = from {
            let records;
            (from, records) = self.inner.lock().queued_from(cookie);
            for record in records.into_iter().flatten() {
                self.service.force(record);
            }
            misc::cond_resched();
        }
        let mut inner = self.inner.lock();
        while inner.live != 0 {
            self.roomy.wait(&mut inner);
        }
    }
}
