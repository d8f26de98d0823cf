// SPDX-License-Identifier: GPL-2.0-only

//! How a session ends.
//!
//! ```text
//!   closing ──▶ all that is released ends ──▶ grace: the rest by its turn ──▶ drain ──▶ nothing left
//!                                                         │                                ▲
//!                                                         └────────────────────────────────┘
//! ```
//!
//! What is decided while a session is closing ends at once ([`Session::release`]), and with that what comes after it
//! may be decided. So all that a drain sends out ends, whatever waits for what.

use kernel::{prelude::*, sync::Arc};

use super::{Session, CANCELED};
use crate::sys::{
    chardev::boxed::BoxFifo,
    misc,
    timer::{Expire, Timed},
};

/// How long a closing file leaves its requests to their turn while others use the service, ns.
const GRACE: u64 = 1_000_000_000;

/// Says when the grace is over.
#[pin_data]
struct Grace {
    session: Arc<Session>,
}

impl Grace {
    /// From now on; `None`: there is no memory for it, so there is no grace.
    fn start(session: &Arc<Session>) -> Option<Arc<Timed<Self>>> {
        let session = session.clone();
        let grace =
            Arc::pin_init(Timed::new(pin_init!(Self { session })), GFP_KERNEL_ACCOUNT).ok()?;
        grace.session.inner.lock().patient = true;
        grace.arm(misc::now().saturating_add(GRACE));
        Some(grace)
    }
}

impl Expire for Grace {
    fn expired(timed: &Timed<Self>) {
        timed.session.inner.lock().patient = false;
        timed.session.roomy.notify_all();
    }
}

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
        if self.inner.lock().live == 0 {
            return;
        }
        // A drain would be felt by all clients of the service, so those are spared it for a while.
        if self.service.users() > 1 {
            if let Some(_grace) = Grace::start(self) {
                let mut inner = self.inner.lock();
                while inner.live != 0 && inner.patient {
                    self.roomy.wait(&mut inner);
                }
            }
        }
        if self.inner.lock().live != 0 {
            self.service.drain();
            let mut inner = self.inner.lock();
            while inner.live != 0 {
                self.roomy.wait(&mut inner);
            }
        }
    }
}
