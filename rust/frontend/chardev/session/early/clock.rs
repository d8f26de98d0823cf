// SPDX-License-Identifier: GPL-2.0-only

//! The clock of a session's deadlines, and what the server says of them.

use kernel::{prelude::*, sync::Arc};

use super::{look::Moved, no_husks, now, Found};
use crate::{
    frontend::chardev::{session::Session, wire},
    sys::timer::{Expire, Timed},
};

/// Looks at deadlines when it is time.
#[pin_data]
pub(in crate::frontend::chardev::session) struct Clock {
    session: Arc<Session>,
}

impl Clock {
    /// Has the deadlines of `session` looked at until it is closed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::frontend::chardev::session) fn start(session: &Arc<Session>) -> Result {
        let clock = session.clone();
        let clock = Arc::pin_init(
            Timed::new(pin_init!(Self { session: clock })),
            GFP_KERNEL_ACCOUNT,
        )?;
        let none = session.inner.lock().deadlines.replace_clock(Some(clock));
        drop(none);
        Ok(())
    }
}

impl Expire for Clock {
    fn expired(timed: &Timed<Self>) {
        timed.session.look();
    }
}

impl Session {
    /// Looks at what is due. Any context.
    fn look(&self) {
        let terms = self.service.timeouts().terms();
        let mut husks = no_husks();
        let found = self.inner.lock().look(&terms, &mut husks);
        drop(husks);
        self.count_found(&found);
        if found.feed > 0 {
            self.service.timeouts().expect(found.feed);
        }
        if found.readable {
            self.readable.notify_one();
        }
    }

    /// Counts what was found.
    pub(in crate::frontend::chardev::session) fn count_found(&self, found: &Found) {
        let (own, all) = (&self.counters, self.service.timeouts().counts());
        if found.refused > 0 {
            own.early_refused.count(found.refused);
            all.early_refused.count(found.refused);
        }
        if found.late > 0 {
            own.early_late.count(found.late);
            all.early_late.count(found.late);
        }
        if found.expired > 0 {
            own.expired.count(found.expired);
            all.timeouts.count(found.expired);
        }
    }

    /// Counts `n` deadlines that passed.
    pub(in crate::frontend::chardev::session) fn count_expired(&self, n: u64) {
        self.count_found(&Found {
            expired: n,
            ..Found::default()
        });
    }

    /// Ends the clock.
    pub(in crate::frontend::chardev::session) fn stop_clock(&self) {
        let clock = self.inner.lock().deadlines.replace_clock(None);
        // Its end waits for a look, which takes the lock.
        drop(clock);
    }

    /// Takes the server's word that a request takes longer.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed.
    /// - `ENOENT`: no request with this cookie was read and not completed.
    pub(crate) fn busy(&self, record: &wire::Busy) -> Result {
        let fits = record.header.flags == 0
            && record.reserved == 0
            && (1..=wire::LEASE_MAX).contains(&record.extra_ms);
        if !fits {
            return Err(EINVAL);
        }
        let terms = self.service.timeouts().terms();
        let until = now().saturating_add(record.extra_ms.into());
        let moved = self.inner.lock().busy(&record.cookie, until, &terms);
        match moved.ok_or(ENOENT)? {
            Moved::Lease | Moved::Deadline { first: false } => {}
            Moved::Deadline { first: true } => self.readable.notify_one(),
            Moved::Refused => self.count_found(&Found {
                refused: 1,
                ..Found::default()
            }),
        }
        Ok(())
    }
}
