// SPDX-License-Identifier: GPL-2.0-only

//! Portals: the client's half, what it knows of one service and how long it waits for it.
//!
//! # Vocabulary
//!
//! - *Round trip*: from when a request was sent to its reply, ms.
//! - *Latency*: what the network took of it: the round trip without the service time, which the reply tells.
//! - *Told*: numbers in a reply; 0 if the server does not say.
//!
//! ```text
//!             latency      service time      latency
//!   sent ├──────────────┼─────────────────┼───────────┤ replied
//!        ◄──────────────── round trip ────────────────►
//!
//!   waits for:   timeout(estimate of the service) + estimate of the latency
//! ```
//!
//! If the server tells its own estimate, that is the client's, too: it has seen all clients, and the next
//! request states a timeout that it need not correct. Otherwise service times are measured.
//!
//! An early reply moves the deadline of its request and nothing else. Numbers that cannot be are ignored.

use super::{
    estimator::{Estimator, Filter, Seen},
    terms::{millis, Mode, Terms},
};

/// How much longer than the round trip a service time may be, ms: clocks of two machines differ, and a reply
/// may be to a request that was sent twice.
const DIFFERENCE: u32 = 3000;

/// What a client knows of one service.
pub struct Portal {
    service: Estimator,
    network: Estimator,
    last_reply: Option<u64>,
}

impl Portal {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            service: Estimator::new(),
            network: Estimator::new(),
            last_reply: None,
        }
    }

    /// A reply came at `now`, `total` ms after its request was sent. It tells that the request was at the
    /// service for `service` ms, withheld time included, and the `estimate` there.
    ///
    /// One whose service time exceeds the round trip by more than 3 s, or has no end, is ignored.
    pub fn replied(&mut self, now: u64, total: u32, service: u32, estimate: u32, terms: &Terms) {
        self.heard(now);
        if total == u32::MAX || service > total.saturating_add(DIFFERENCE) {
            return;
        }
        match estimate {
            0 | u32::MAX => self.service.measure(service, now, terms),
            _ => self.service.told(estimate, now, terms),
        }
        if service != 0 {
            self.network
                .measure(total.saturating_sub(service), now, terms);
        }
    }

    /// An early reply came at `now` to a request that was `sent` and has a `deadline`: it names a `timeout`,
    /// ms from when the request arrived. Returns the deadline from now on, which is not earlier.
    pub fn early(
        &mut self,
        now: u64,
        sent: u64,
        deadline: u64,
        timeout: u32,
        terms: &Terms,
    ) -> u64 {
        self.heard(now);
        if timeout == 0 || timeout == u32::MAX {
            return deadline;
        }
        let named = timeout.saturating_add(self.latency(now, terms));
        deadline.max(sent.saturating_add(named.into()))
    }

    /// The timeout that a request states which is sent at `now`, ms: without what the network takes, as the
    /// server counts from its arrival. 0: no deadline.
    pub fn stated(&mut self, now: u64, terms: &Terms) -> u32 {
        let estimate = self.service.estimate(now, terms);
        terms.timeout(estimate)
    }

    /// How long the client waits for a request that is sent at `now`, ms; 0: for ever.
    pub fn timeout(&mut self, now: u64, terms: &Terms) -> u32 {
        let stated = self.stated(now, terms);
        match terms.mode() {
            Mode::Adaptive => stated.saturating_add(self.latency(now, terms)),
            Mode::Fixed | Mode::Off => stated,
        }
    }

    /// Replies that change nothing but the instant of the last one: those whose round trip is the service time,
    /// that tell no estimate and take no longer than the limit.
    pub fn filter(&mut self, now: u64, terms: &Terms) -> Filter {
        self.service.filter(now, terms)
    }

    /// What there is to show of the service.
    pub fn service(&mut self, now: u64, terms: &Terms) -> Seen {
        self.service.seen(now, terms)
    }

    /// What there is to show of the network.
    pub fn network(&mut self, now: u64, terms: &Terms) -> Seen {
        Seen {
            current: self.latency(now, terms),
            ..self.network.seen(now, terms)
        }
    }

    /// When the last reply came, ms, early ones included.
    pub const fn last_reply(&self) -> Option<u64> {
        self.last_reply
    }

    /// The estimate of the latency, ms: 0 before any was measured, at most `at_max`.
    fn latency(&mut self, now: u64, terms: &Terms) -> u32 {
        let recent = self.network.recent(now, terms).unwrap_or(0);
        recent.min(millis(terms.max.get()))
    }

    /// Notes that there was a reply at `now`.
    fn heard(&mut self, now: u64) {
        self.last_reply = self.last_reply.max(Some(now));
    }
}

#[cfg(test)]
mod tests;
