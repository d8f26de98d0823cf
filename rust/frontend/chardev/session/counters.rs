// SPDX-License-Identifier: GPL-2.0-only

//! What a session counts.

use crate::sys::atomic::Counter;

/// What a session has done.
#[derive(Default)]
pub(super) struct Counters {
    /// Requests that were taken.
    pub(super) requests: Counter,
    /// Of these, those that did not queue.
    pub(super) passed: Counter,
    /// Requests that were completed.
    pub(super) completed: Counter,
    /// Of these, those with an error.
    pub(super) failed: Counter,
    /// Bytes transferred by those.
    pub(super) bytes: Counter,
    /// Malformed records.
    pub(super) refused: Counter,
    /// Requests with a cookie in use.
    pub(super) duplicates: Counter,
    /// Completions of what is not running.
    pub(super) unknown: Counter,
    /// Slots taken back when a lease was over.
    pub(super) reclaimed: Counter,
    /// Completions after that.
    pub(super) late: Counter,
    /// Requests that were sent out without a slot.
    pub(super) forced: Counter,
    /// Requests that were moved to high priority.
    pub(super) promoted: Counter,
    /// Requests that had to wait for others that come before them.
    pub(super) blocked: Counter,
    /// Requests beyond what their peers were told.
    pub(super) over: Counter,
    /// Requests for which the service had no room at first.
    pub(super) room_waits: Counter,
    /// Early replies that were read.
    pub(super) early_sent: Counter,
    /// Early replies that would not have helped.
    pub(super) early_refused: Counter,
    /// Early replies that were not read before the deadline.
    pub(super) early_late: Counter,
    /// Requests whose deadline passed.
    pub(super) expired: Counter,
    /// Reports of clients that came back.
    pub(super) reconnected: Counter,
}
