// SPDX-License-Identifier: GPL-2.0-only

//! Early replies: when the server says "still busy", and what it grants.
//!
//! # Vocabulary
//!
//! - *Limit*: arrival + `at_max`; no early reply names a later deadline.
//! - *Sign of life*: something that ended for the same client or device, since the request was sent or its
//!   deadline last moved.
//!
//! ```text
//!                     wake               deadline
//!   arrival            │  at_early_margin   │
//!   ──┬────────────────┴────────────────────┴───────────► time
//!     │ on_arrival        at_margin
//!     │                   ├─ Grant:  deadline = now + at_extra, or what the server said itself
//!     └─ at once, if the  └─ Refuse: Late, Dead, Limit
//!        stated timeout is under the estimate
//! ```
//!
//! What the estimator is told of a request that is still busy is the time it has taken and the margin, at most
//! what was granted: so that the timeouts of others grow before it ends. Lustre tells it the time and `at_extra`,
//! and so has estimates that stay that much above all service times for a whole history; a dead server is
//! noticed 30 s later after congestion, and nobody needs fewer early replies for it.
//!
//! A request that a policy withheld has its arrival later by that time: then neither its limit nor what the
//! estimator is told counts what was kept on purpose.

use super::terms::{millis, Mode, Terms};

/// What client and server know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// When it arrived, ms; later by the time for which it was withheld.
    pub arrival: u64,
    /// When the client gives up, ms.
    pub deadline: u64,
}

/// Why there is no early reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The deadline passed: nobody waits any more.
    Late,
    /// The request has had all of `at_max`, or early replies are off: a reply would name no later deadline.
    Limit,
    /// There is no sign of life.
    Dead,
}

/// What becomes of a request whose deadline is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An early reply.
    Grant {
        /// The later deadline, ms.
        deadline: u64,
        /// What the estimator is told, ms; 0: nothing. Not for a request that is withheld now.
        feed: u32,
    },
    /// None.
    Refuse(Refusal),
}

/// The deadline of an early reply that is due as soon as a request arrives: its client states a `timeout`
/// (ms; 0: no deadline) under the server's `estimate` (ms). None if it need not or would not be later.
pub fn on_arrival(terms: &Terms, arrival: u64, timeout: u32, estimate: u32) -> Option<u64> {
    let (rule, adapts) = (terms.rule(), terms.mode() == Mode::Adaptive);
    if !adapts || timeout == 0 || timeout >= rule.clamp(estimate) {
        return None;
    }
    let longer = rule.timeout(estimate).min(rule.max_ms);
    (longer > timeout).then(|| arrival.saturating_add(longer.into()))
}

/// When a request with that `deadline` is to be looked at, ms: `at_early_margin` before, but never more than
/// half of what an early reply grants; at the deadline if there are no early replies.
pub fn wake(terms: &Terms, deadline: u64) -> u64 {
    deadline.saturating_sub(margin(terms).into())
}

/// How long before its deadline a request is looked at, ms.
pub fn margin(terms: &Terms) -> u32 {
    match terms.mode() {
        Mode::Adaptive => millis(terms.early_margin.get()).min(millis(terms.extra.get()) / 2),
        Mode::Fixed | Mode::Off => 0,
    }
}

/// The latest deadline that an early reply names, ms: the limit.
pub fn limit(terms: &Terms, stated: &Stated) -> u64 {
    let longest = millis(terms.max.get());
    stated.arrival.saturating_add(longest.into())
}

/// What becomes of a request at [`wake`] or later.
///
/// `alive`: there was a sign of life. `busy_until`: what the server said itself, which is one.
pub fn at_margin(
    terms: &Terms,
    stated: &Stated,
    now: u64,
    alive: bool,
    busy_until: Option<u64>,
) -> Answer {
    let busy = busy_until.filter(|until| *until > now);
    if now >= stated.deadline {
        return Answer::Refuse(Refusal::Late);
    }
    if !alive && busy.is_none() {
        return Answer::Refuse(Refusal::Dead);
    }
    let extra = millis(terms.extra.get());
    let wanted = now.saturating_add(extra.into()).max(busy.unwrap_or(0));
    let deadline = wanted.min(limit(terms, stated));
    if terms.mode() != Mode::Adaptive || deadline <= stated.deadline {
        return Answer::Refuse(Refusal::Limit);
    }
    let elapsed = now.saturating_sub(stated.arrival);
    let granted = deadline.saturating_sub(stated.arrival);
    let margin = millis(terms.early_margin.get());
    let feed = elapsed.saturating_add(margin.into()).min(granted);
    Answer::Grant {
        deadline,
        feed: u32::try_from(feed).unwrap_or(u32::MAX),
    }
}

/// The same while clients come back: `extra` is [`super::recovery::Recovery::extra`], the estimator is told
/// nothing, and the deadline never comes closer.
pub fn in_recovery(stated: &Stated, now: u64, extra: u32) -> Answer {
    if now >= stated.deadline {
        return Answer::Refuse(Refusal::Late);
    }
    match stated.deadline.checked_add(extra.into()) {
        Some(deadline) if extra != 0 => Answer::Grant { deadline, feed: 0 },
        _ => Answer::Refuse(Refusal::Limit),
    }
}

#[cfg(test)]
mod tests;
