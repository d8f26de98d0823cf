// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines of a session's requests, and the early replies that move them.
//!
//! # Terms
//!
//! - *Deadline*: time at which the client of a request gives up, as far as the server knows.
//! - *Early reply*: record that the server passes on to the client, with a later deadline.
//! - *Granted*: the later deadline of an early reply that was not read yet.
//! - *Expired*: the deadline has passed.
//! - *Watch*: state of the deadline of a request ([`DeadlineWatch`]).
//! - *Look*: time at which a watch is checked: the margin before its deadline, then the deadline.
//!
//! ```text
//!              ┌──────────── read ◀─────────────┐
//!              ▼                                │
//!   taken ──▶ waiting ── margin, granted ──▶ reported ── deadline ──▶ expired, late
//!     │        │    └─── margin, refused ──▶ waiting, the last time
//!     │        └──────── deadline ──▶ expired      └── deadline ──▶ expired
//!     └── its timeout is under the estimate ──▶ reported
//! ```
//!
//! A watch is in one of two queues, by its next possible event: a look, or the read of an early
//! reply. So a request has at most one unread early reply. The session's timer processes due
//! watches in hard interrupt context, [`CHUNK`] at a time, so that deadlines depend on no task. A
//! work item only helps if more watches are due.

use kernel::prelude::*;

use super::{
    table::{RequestRow, TableState},
    watch::{DeadlineWatch, WatchQueue},
    Session, CHUNK,
};
use crate::{
    engine::timeouts::Timeouts,
    frontend::chardev::wire,
    sched::{
        slab::Handle,
        timeouts::{
            early::{self, EarlyRefusal, EarlyReply, RequestTimes},
            terms::{AtCountPolicyDelay, TimeoutMode, TimeoutTerms},
        },
        units::NSEC_PER_MSEC,
    },
    sys::misc::{self, bug},
};

/// Maximum number of early replies that one lock hold returns.
pub(super) const TOLD: usize = 16;

/// Returns the time between two instants, ms; 0 if `to` is not later.
pub(super) fn between(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

/// Deadline of a new request, from its record.
#[derive(Clone, Copy)]
pub(super) struct StatedDeadline {
    /// Time of the arrival.
    arrival: u64,
    /// Time at which the client gives up; `None`: unknown, or deadlines are off.
    deadline: Option<u64>,
    /// Deadline of an immediate early reply.
    granted: Option<u64>,
    /// Time of the first look; the deadline if there are no early replies.
    look: u64,
}

impl StatedDeadline {
    /// Returns the deadline of `record`.
    pub(super) fn of(record: &wire::Request, timeouts: &Timeouts) -> Self {
        let arrival = misc::millis().saturating_sub(record.elapsed_ms.into());
        let none = Self {
            arrival,
            deadline: None,
            granted: None,
            look: u64::MAX,
        };
        if record.timeout_ms == 0 {
            return none;
        }
        let terms = timeouts.terms();
        if terms.mode() == TimeoutMode::Off {
            return none;
        }
        let deadline = arrival.saturating_add(record.timeout_ms.into());
        Self {
            arrival,
            deadline: Some(deadline),
            granted: early::on_arrival(&terms, arrival, record.timeout_ms, timeouts.estimate())
                .filter(|granted| *granted > deadline),
            look: early::wake(&terms, deadline).clamp(arrival, deadline),
        }
    }
}

/// An early reply that was taken to be read.
#[derive(Clone, Copy)]
pub(crate) struct TakenReply {
    handle: Handle,
    /// The previous deadline.
    deadline: u64,
    pub(crate) record: wire::Early,
}

/// Result of a look.
#[derive(Clone, Copy, Default)]
pub(super) struct EarlyFindings {
    /// Early replies that would not have helped.
    pub(super) refused: u64,
    /// Early replies that were not read, or not made, before the deadline.
    pub(super) late: u64,
    /// Requests whose deadline has passed.
    pub(super) expired: u64,
    /// Sample for the estimator, ms; 0: none.
    pub(super) sample: u32,
    /// True if there was nothing to read before, and is now.
    pub(super) readable: bool,
}

/// Result of a server's report that it is busy.
pub(super) enum BusyOutcome {
    /// Only the lease was extended: the request has no deadline.
    Lease,
    /// The deadline could not be moved.
    Refused,
    /// The client gets an early reply; `first`: it is the first unread one.
    Deadline { first: bool },
}

impl RequestRow {
    /// Returns the arrival, plus the policy delay, which is unknown until the release, and the
    /// deadline.
    fn times(&self) -> RequestTimes {
        let withheld = self.served().map_or(0, |served| served.withheld);
        RequestTimes {
            arrival: self.arrival.saturating_add(withheld.into()),
            deadline: self.watch.deadline,
        }
    }
}

impl TableState {
    /// Stores the deadline of a request that was just entered. Returns true if its early reply is
    /// the first unread one, and true if its deadline has passed.
    pub(super) fn state(&mut self, idx: u32, statement: &StatedDeadline) -> (bool, bool) {
        let Some(row) = self.rows.at_mut(idx) else {
            bug!();
            return (false, false);
        };
        row.arrival = statement.arrival;
        let Some(deadline) = statement.deadline else {
            return (false, false);
        };
        if deadline <= misc::millis() {
            row.expired = true;
            return (false, true);
        }
        let (place, granted, flags) = match statement.granted {
            Some(granted) => (WatchQueue::Reported, granted, wire::EARLY_AT_ONCE),
            None => (WatchQueue::Waiting(statement.look), 0, 0),
        };
        row.watch = DeadlineWatch {
            deadline,
            granted,
            flags,
            last: statement.look >= deadline,
            ..DeadlineWatch::NONE
        };
        (self.move_watch(idx, place), false)
    }

    /// Returns the time until the deadline of a request, ms; `None`: it has passed; 0: there is
    /// none.
    pub(super) fn left(&self, idx: u32) -> Option<u32> {
        let row = self.rows.at(idx)?;
        if row.expired {
            return None;
        }
        if row.watch.place == WatchQueue::None {
            return Some(0);
        }
        Some(between(misc::millis(), row.watch.deadline)).filter(|left| *left > 0)
    }

    /// Marks the deadline of a request as passed.
    fn expire(&mut self, idx: u32, found: &mut EarlyFindings) {
        found.expired = found.expired.wrapping_add(1);
        self.move_watch(idx, WatchQueue::None);
        if let Some(row) = self.rows.at_mut(idx) {
            row.expired = true;
        }
    }

    /// Takes the most urgent early replies, at most `max`; late ones are left to the timer.
    /// `estimate` is the estimate to report.
    pub(super) fn take_replies(
        &mut self,
        max: u32,
        estimate: u32,
        terms: &TimeoutTerms,
    ) -> [Option<TakenReply>; TOLD] {
        let mut taken = [None; TOLD];
        let now = misc::millis();
        for to in taken.iter_mut().take(max as usize) {
            let Some((idx, deadline)) = self.watches.top(self.reported) else {
                break;
            };
            let (cookie, handle) = (self.rows.key(idx).copied(), self.rows.handle(idx));
            let row = self.rows.at_mut(idx).filter(|_| deadline > now);
            let (Some(cookie), Some(handle), Some(row)) = (cookie, handle, row) else {
                break;
            };
            let DeadlineWatch { granted, flags, .. } = row.watch;
            (row.watch.deadline, row.watch.granted, row.watch.flags) = (granted, 0, 0);
            let timeout = between(row.arrival, granted);
            let look = early::wake(terms, granted).clamp(now, granted);
            self.move_watch(idx, WatchQueue::Waiting(look));
            *to = Some(TakenReply {
                handle,
                deadline,
                record: wire::Early::new(cookie, timeout, estimate, flags),
            });
        }
        taken
    }

    /// Puts back an early reply that was not delivered.
    pub(super) fn put_back_reply(&mut self, reply: &TakenReply) {
        let Some(row) = self.rows.get_mut(reply.handle) else {
            return;
        };
        if matches!(row.watch.place, WatchQueue::Waiting(_)) {
            row.watch.granted = core::mem::replace(&mut row.watch.deadline, reply.deadline);
            row.watch.flags = reply.record.header.flags;
            self.move_watch(reply.handle.idx(), WatchQueue::Reported);
        }
    }

    /// Expires the most urgent early reply if its deadline has passed at `now`, ms; returns true if
    /// so.
    fn expire_late(&mut self, now: u64, found: &mut EarlyFindings) -> bool {
        let top = self.watches.top(self.reported);
        let Some((idx, _)) = top.filter(|(_, deadline)| *deadline <= now) else {
            return false;
        };
        found.late = found.late.wrapping_add(1);
        self.expire(idx, found);
        true
    }

    /// Expires the early replies whose deadlines have passed, at most [`CHUNK`].
    pub(super) fn expire_all_late(&mut self, found: &mut EarlyFindings) {
        let now = misc::millis();
        for _ in 0..CHUNK {
            if !self.expire_late(now, found) {
                break;
            }
        }
    }

    /// Processes due watches, at most [`CHUNK`].
    pub(super) fn process_watches(&mut self, terms: &TimeoutTerms) -> EarlyFindings {
        let mut found = EarlyFindings::default();
        let now = misc::millis();
        found.readable = self.window.close(now);
        let recovery = self.window.extra(terms, now);
        let due = |at: &(u32, u64)| at.1 <= now;
        for _ in 0..CHUNK {
            if self.expire_late(now, &mut found) {
                continue;
            }
            let Some((idx, _)) = self.watches.top(self.waiting).filter(due) else {
                break;
            };
            let Some(row) = self.rows.at_mut(idx) else {
                bug!();
                break;
            };
            let stated = row.times();
            match answer(terms, &row.watch, &stated, now, recovery) {
                EarlyReply::Grant { deadline, sample } => {
                    // A queued request may be throttled, so it is no sample unless throttled time
                    // counts.
                    let counted = terms.count_policy_delay == AtCountPolicyDelay::On;
                    if counted || row.served().is_some() {
                        found.sample = found.sample.max(sample);
                    }
                    row.watch.granted = deadline;
                    found.readable |= self.move_watch(idx, WatchQueue::Reported);
                }
                EarlyReply::Refuse(why) if stated.deadline <= now => {
                    if matches!(why, EarlyRefusal::Late) && !row.watch.last {
                        found.late = found.late.wrapping_add(1);
                    }
                    self.expire(idx, &mut found);
                }
                EarlyReply::Refuse(_) => {
                    found.refused = found.refused.wrapping_add(1);
                    row.watch.last = true;
                    self.move_watch(idx, WatchQueue::Waiting(stated.deadline));
                }
            }
        }
        found
    }

    /// Moves the deadline of a request that the server reports to take until `until`. `None`: the
    /// request was not read, or is completed.
    fn busy(&mut self, cookie: &u64, until: u64, terms: &TimeoutTerms) -> Option<BusyOutcome> {
        let now = misc::millis();
        let idx = self.find(cookie)?;
        self.rows.at(idx)?.served().filter(|served| served.read)?;
        let lasts = u64::from(between(now, until)).saturating_mul(NSEC_PER_MSEC);
        self.extend(idx, misc::now().saturating_add(lasts));
        let row = self.rows.at_mut(idx)?;
        let stated = row.times();
        if row.watch.place == WatchQueue::None {
            return Some(BusyOutcome::Lease);
        }
        let (limit, deadline) = (early::limit(terms, &stated), stated.deadline);
        let granted = until.min(limit).max(row.watch.granted);
        if deadline <= now || granted <= deadline || terms.mode() != TimeoutMode::Adaptive {
            return Some(BusyOutcome::Refused);
        }
        row.watch.granted = granted;
        row.watch.busy = until.max(row.watch.busy);
        row.watch.flags |= wire::EARLY_BUSY;
        row.watch.last = false;
        let first = self.move_watch(idx, WatchQueue::Reported);
        Some(BusyOutcome::Deadline { first })
    }
}

/// Returns the decision for a request whose margin is reached at `now`; `recovery`: extension
/// during a recovery, ms.
fn answer(
    terms: &TimeoutTerms,
    watch: &DeadlineWatch,
    stated: &RequestTimes,
    now: u64,
    recovery: Option<u32>,
) -> EarlyReply {
    if stated.deadline <= now {
        return EarlyReply::Refuse(EarlyRefusal::Late);
    }
    if watch.last || terms.mode() != TimeoutMode::Adaptive {
        return EarlyReply::Refuse(EarlyRefusal::Limit);
    }
    let answer = match recovery {
        Some(extra) => early::in_recovery(stated, now, extra),
        None => {
            let busy = Some(watch.busy).filter(|busy| *busy != 0);
            early::at_margin(terms, stated, now, true, busy)
        }
    };
    let limit = early::limit(terms, stated);
    match answer {
        EarlyReply::Grant { deadline, sample } if deadline.min(limit) > stated.deadline => {
            let deadline = deadline.min(limit);
            EarlyReply::Grant { deadline, sample }
        }
        EarlyReply::Grant { .. } => EarlyReply::Refuse(EarlyRefusal::Limit),
        answer => answer,
    }
}

impl Session {
    /// Counts the result of a look.
    pub(super) fn count_checked(&self, found: &EarlyFindings) {
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

    /// Handles the server's report that a request takes longer.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the record is malformed.
    /// - `ENOENT`: no request with this cookie was read and is not completed.
    pub(crate) fn busy(&self, record: &wire::Busy) -> Result {
        let fits = record.header.flags == 0
            && record.reserved == 0
            && (1..=wire::LEASE_MAX).contains(&record.extra_ms);
        if !fits {
            return Err(EINVAL);
        }
        let terms = self.service.timeouts().terms();
        let until = misc::millis().saturating_add(record.extra_ms.into());
        let moved = {
            let mut inner = self.inner.lock();
            let moved = inner.busy(&record.cookie, until, &terms);
            self.set_timer(&mut inner);
            moved
        };
        match moved.ok_or(ENOENT)? {
            BusyOutcome::Lease | BusyOutcome::Deadline { first: false } => {}
            BusyOutcome::Deadline { first: true } => self.call_reader(),
            BusyOutcome::Refused => self.count_checked(&EarlyFindings {
                refused: 1,
                ..EarlyFindings::default()
            }),
        }
        Ok(())
    }
}
