// SPDX-License-Identifier: GPL-2.0-only

//! Early replies: extensions of the deadlines of requests that the server is still processing.
//!
//! # Terms
//!
//! - *Limit*: arrival + `at_max`, the latest deadline of any early reply.
//! - *Sign of life*: a completion for the same client or device, since the request was sent or its
//!   deadline last moved.
//!
//! ```text
//!                     wake               deadline
//!   arrival            │  at_early_margin   │
//!   ──┬────────────────┴────────────────────┴───────────► time
//!     │ on_arrival        at_margin
//!     │                   ├─ Grant:  deadline = now + at_extra, or as announced by the server
//!     └─ early, if the    └─ Refuse: Late, Dead, Limit
//!        stated timeout is below the estimate
//! ```
//!
//! The estimator receives a sample for a busy request: the elapsed time plus the margin, at most
//! the granted time. So the timeouts of other requests grow before this request ends. Lustre adds
//! `at_extra` instead of the margin, so its estimates exceed all service times by that much for a
//! whole history. A dead server is then detected 30 s later after congestion, and the number of
//! early replies is not smaller.
//!
//! The arrival of a request is moved by the time for which a policy withheld the request. So
//! neither the limit nor the samples include policy delays.

use super::terms::{millis, TimeoutMode, TimeoutTerms};

/// Times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// Arrival, ms, moved by the time for which the request was withheld.
    pub arrival: u64,
    /// Deadline after which the client gives up, ms.
    pub deadline: u64,
}

/// Reason for the absence of an early reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyRefusal {
    /// The deadline has passed: the client has given up.
    Late,
    /// The request has used up `at_max`, or early replies are off: a reply could not move the
    /// deadline.
    Limit,
    /// There is no sign of life.
    Dead,
}

/// Decision for a request near its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyReply {
    /// Send an early reply.
    Grant {
        /// New deadline, ms.
        deadline: u64,
        /// Sample for the estimator, ms; 0 for none. The sample is not used for a request that is
        /// withheld now.
        sample: u32,
    },
    /// Send no early reply.
    Refuse(EarlyRefusal),
}

/// Returns the deadline of the early reply to a request on arrival. The reply is due if the
/// client's `timeout` (ms; 0: no deadline) is below the server's `estimate` (ms). Returns `None` if
/// no later deadline is needed or possible.
pub fn on_arrival(terms: &TimeoutTerms, arrival: u64, timeout: u32, estimate: u32) -> Option<u64> {
    let (rule, adapts) = (terms.rule(), terms.mode() == TimeoutMode::Adaptive);
    if !adapts || timeout == 0 || timeout >= rule.clamp(estimate) {
        return None;
    }
    let longer = rule.timeout(estimate).min(rule.max_ms);
    (longer > timeout).then(|| arrival.saturating_add(longer.into()))
}

/// Returns the time, ms, at which to check a request with `deadline`: `at_early_margin` before it,
/// but at most half of `at_extra`. Returns the deadline itself if early replies are off.
pub fn wake(terms: &TimeoutTerms, deadline: u64) -> u64 {
    deadline.saturating_sub(margin(terms).into())
}

/// Returns the time from the check of a request to its deadline, ms.
pub fn margin(terms: &TimeoutTerms) -> u32 {
    match terms.mode() {
        TimeoutMode::Adaptive => {
            millis(terms.early_margin.get()).min(millis(terms.extra.get()) / 2)
        }
        TimeoutMode::Fixed | TimeoutMode::Off => 0,
    }
}

/// Returns the limit of a request: the latest deadline of an early reply, ms.
pub fn limit(terms: &TimeoutTerms, stated: &RequestTimes) -> u64 {
    let longest = millis(terms.max.get());
    stated.arrival.saturating_add(longest.into())
}

/// Decides on an early reply to a request at [`wake`] or later.
///
/// `alive` is true after a sign of life. `busy_until` is a deadline that the server itself
/// announced, which is a sign of life as well.
pub fn at_margin(
    terms: &TimeoutTerms,
    stated: &RequestTimes,
    now: u64,
    alive: bool,
    busy_until: Option<u64>,
) -> EarlyReply {
    let busy = busy_until.filter(|until| *until > now);
    if now >= stated.deadline {
        return EarlyReply::Refuse(EarlyRefusal::Late);
    }
    if !alive && busy.is_none() {
        return EarlyReply::Refuse(EarlyRefusal::Dead);
    }
    let extra = millis(terms.extra.get());
    let wanted = now.saturating_add(extra.into()).max(busy.unwrap_or(0));
    let deadline = wanted.min(limit(terms, stated));
    if terms.mode() != TimeoutMode::Adaptive || deadline <= stated.deadline {
        return EarlyReply::Refuse(EarlyRefusal::Limit);
    }
    let elapsed = now.saturating_sub(stated.arrival);
    let granted = deadline.saturating_sub(stated.arrival);
    let margin = millis(terms.early_margin.get());
    let sample = elapsed.saturating_add(margin.into()).min(granted);
    EarlyReply::Grant {
        deadline,
        sample: u32::try_from(sample).unwrap_or(u32::MAX),
    }
}

/// Decides on an early reply in a recovery window. `extra` is [`super::recovery::Recovery::extra`].
/// The estimator receives no sample, and the deadline never becomes earlier.
pub fn in_recovery(stated: &RequestTimes, now: u64, extra: u32) -> EarlyReply {
    if now >= stated.deadline {
        return EarlyReply::Refuse(EarlyRefusal::Late);
    }
    match stated.deadline.checked_add(extra.into()) {
        Some(deadline) if extra != 0 => EarlyReply::Grant {
            deadline,
            sample: 0,
        },
        _ => EarlyReply::Refuse(EarlyRefusal::Limit),
    }
}

#[cfg(test)]
mod tests;
