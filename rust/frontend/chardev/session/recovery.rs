// SPDX-License-Identifier: GPL-2.0-only

//! Recovery of a session's clients after a restart of the server.
//!
//! # Terms
//!
//! - *Window*: time from the first report of a reconnected client until no further client is
//!   expected.
//!
//! ```text
//!   nothing ── report ──▶ open ── its end, reported by a record ──▶ nothing
//!                         │  ▲
//!                         └──┘ report: the end moves with the largest timeout
//! ```

use kernel::prelude::*;

use super::Session;
use crate::{
    frontend::chardev::{decode, wire},
    sched::timeouts::{recovery::Recovery, terms::TimeoutTerms},
    sys::misc,
};

/// The window of a session.
pub(super) struct RecoveryWindow {
    recovery: Recovery,
    /// True if the window is open, and its end was not noticed.
    open: bool,
    /// Unread record of the end of a window.
    ended: Option<wire::Recovered>,
}

impl RecoveryWindow {
    /// Creates a closed window.
    pub(super) const fn new() -> Self {
        Self {
            recovery: Recovery::new(),
            open: false,
            ended: None,
        }
    }

    /// Adds a client with a timeout of `timeout` ms that reconnected at `now`.
    fn join(&mut self, now: u64, timeout: u32, terms: &TimeoutTerms) {
        // The timer may not have noticed the end of the window yet.
        self.close(now);
        self.open = true;
        self.recovery.join(now, timeout, terms);
    }

    /// Closes the window if it is over at `now`; returns true if it was.
    pub(super) fn close(&mut self, now: u64) -> bool {
        let over = self.open && self.recovery.is_over(now);
        if over {
            let (clients, largest) = (self.recovery.clients(), self.recovery.largest());
            self.ended = Some(wire::Recovered::new(clients, largest));
            self.open = false;
        }
        over
    }

    /// Returns the end of the window, if it is open.
    pub(super) fn ends(&self) -> Option<u64> {
        self.open.then(|| self.recovery.ends())
    }

    /// Returns the extension by an early reply while the window is open at `now`, ms.
    pub(super) fn extra(&self, terms: &TimeoutTerms, now: u64) -> Option<u32> {
        let open = self.open && !self.recovery.is_over(now);
        open.then(|| self.recovery.extra(terms))
    }

    /// Returns true if the end of a window is to be read.
    pub(super) fn is_readable(&self) -> bool {
        self.ended.is_some()
    }

    /// Takes the record of the end of a window.
    pub(super) fn take(&mut self) -> Option<wire::Recovered> {
        self.ended.take()
    }

    /// Puts the record back, unless there is a newer one.
    pub(super) fn put_back(&mut self, ended: wire::Recovered) {
        self.ended.get_or_insert(ended);
    }
}

impl Session {
    /// Handles the report of a reconnected client.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the record is malformed.
    pub(crate) fn reconnect(&self, record: &wire::Reconnect) -> Result {
        if record.header.flags != 0 {
            return Err(EINVAL);
        }
        decode::nid_of(
            record.net,
            record.address_len,
            record.net_number,
            &record.address,
        )
        .ok_or(EINVAL)?;
        let terms = self.service.timeouts().terms();
        let mut inner = self.inner.lock();
        inner.window.join(misc::millis(), record.timeout_ms, &terms);
        self.set_timer(&mut inner);
        let readable = inner.window.is_readable();
        drop(inner);
        self.counters.reconnected.count(1);
        if readable {
            self.call_reader();
        }
        Ok(())
    }
}
