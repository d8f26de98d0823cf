// SPDX-License-Identifier: MIT OR Apache-2.0

//! Estimates of a client for one service.
//!
//! # Vocabulary
//!
//! - *Round trip*: time from sending a request to its reply, ms.
//! - *Latency*: part of the round trip that the network takes: the round trip without the service
//!   time, which the reply contains.
//! - *Told*: numbers in a reply; 0 if the server does not state them.
//!
//! ```text
//!             latency      service time      latency
//!   sent ├──────────────┼─────────────────┼───────────┤ replied
//!        ◄──────────────── round trip ────────────────►
//!
//!   waits for:   timeout(estimate of the service) + estimate of the latency
//! ```
//!
//! A server's own estimate replaces the client's: the server knows all clients, and need not
//! correct the timeout stated by the next request. Without such an estimate, service times are
//! measured.
//!
//! Times are milliseconds of any monotonic clock.

use crate::timeouts::estimator::{EstimateRule, Estimator, EstimatorView};

/// Largest excess of a service time over the round trip, ms: the clocks of two machines differ, and
/// a reply may be to a request that was sent twice.
const DIFFERENCE: u32 = 3000;

/// Estimates for one service: the service time and the latency of the network.
pub struct Portal {
    rule: EstimateRule,
    service: Estimator,
    network: Estimator,
    /// Last estimate in a reply, ms, and the time of that reply; `None` if the last reply had none.
    server_estimate: Option<(u32, u64)>,
    last_reply: Option<u64>,
}

impl Portal {
    /// Creates a portal to a service without measurements.
    pub const fn new(rule: EstimateRule) -> Self {
        Self {
            rule,
            service: Estimator::new(),
            network: Estimator::new(),
            server_estimate: None,
            last_reply: None,
        }
    }

    /// Processes a reply at `now`, `round_trip` ms after its request was sent. The reply contains
    /// the `service` time of the request, ms, and the server's `estimate`.
    ///
    /// A reply whose service time exceeds the round trip by more than 3 s, or is unlimited, is
    /// ignored.
    pub fn replied(&mut self, now: u64, round_trip: u32, service: u32, estimate: u32) {
        self.record_reply(now);
        if round_trip == u32::MAX || service > round_trip.saturating_add(DIFFERENCE) {
            return;
        }
        let estimate = (estimate != 0 && estimate != u32::MAX).then_some(estimate);
        let sample = estimate.unwrap_or(service);
        self.service.measure(sample, now, &self.rule);
        if sample != 0 {
            // An estimate is already the maximum of a history. With the maximum of several
            // estimates, a value that the server has dropped would count here for another history.
            self.server_estimate = estimate.map(|estimate| (estimate, now));
        }
        if service != 0 {
            let latency = round_trip.saturating_sub(service);
            self.network.measure(latency, now, &self.rule);
        }
    }

    /// Processes an early reply at `now` to a request that was `sent` and has a `deadline`. The
    /// reply states a `timeout`, ms from the arrival of the request. Returns the new deadline,
    /// which is not earlier.
    ///
    /// An early reply has no other effect. An invalid timeout is ignored.
    pub fn early(&mut self, now: u64, sent: u64, deadline: u64, timeout: u32) -> u64 {
        self.record_reply(now);
        if timeout == 0 || timeout == u32::MAX {
            return deadline;
        }
        let named = timeout.saturating_add(self.latency(now));
        deadline.max(sent.saturating_add(named.into()))
    }

    /// Returns the timeout to state in a request sent at `now`, ms: without the latency, because
    /// the server counts from the arrival.
    pub fn stated(&mut self, now: u64) -> u32 {
        let estimate = self.estimate(now);
        self.rule.timeout(estimate)
    }

    /// Returns the time for which the client waits for a request sent at `now`, ms.
    pub fn timeout(&mut self, now: u64) -> u32 {
        self.stated(now).saturating_add(self.latency(now))
    }

    /// Returns the estimate of the service now and the worst service time so far.
    pub fn service(&mut self, now: u64) -> EstimatorView {
        EstimatorView {
            current: self.estimate(now),
            ..self.service.seen(now, &self.rule)
        }
    }

    /// Returns the latency of the network now and the worst latency so far.
    pub fn network(&mut self, now: u64) -> EstimatorView {
        EstimatorView {
            current: self.latency(now),
            ..self.network.seen(now, &self.rule)
        }
    }

    /// Returns the time of the last reply, including early replies.
    pub const fn last_reply(&self) -> Option<u64> {
        self.last_reply
    }

    /// Returns the estimate of the service, ms.
    fn estimate(&mut self, now: u64) -> u32 {
        match self.server_estimate {
            Some((_, at)) if now.saturating_sub(at) >= self.rule.history_ms.into() => {
                self.rule.clamp(0)
            }
            Some((estimate, _)) => self.rule.clamp(estimate),
            None => self.service.estimate(now, &self.rule),
        }
    }

    /// Returns the estimate of the latency, ms; 0 without measurements.
    fn latency(&mut self, now: u64) -> u32 {
        let recent = self.network.recent(now, &self.rule).unwrap_or(0);
        recent.min(self.rule.max_ms)
    }

    fn record_reply(&mut self, now: u64) {
        self.last_reply = self.last_reply.max(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn portal() -> Portal {
        Portal::new(EstimateRule::default())
    }

    /// Processes replies to new clients and compares both estimates and the timeout.
    #[test]
    fn one_reply() {
        // Timeouts for an estimate of 10 s, the initial one, and of 5 s, the smallest.
        let (unknown, short) = (17_500, 11_250);
        for (round_trip, service, estimate, want) in [
            // The network takes 2 s of 12 s.
            (12_000, 10_000, 0, (10_000, 2000, 19_500)),
            // The server's estimate replaces the request's own time.
            (12_000, 10_000, 40_000, (40_000, 2000, 57_000)),
            (12_000, 10_000, u32::MAX, (10_000, 2000, 19_500)),
            // The service time is not stated, so the latency is unknown too.
            (12_000, 0, 0, (10_000, 0, unknown)),
            (12_000, 0, 30_000, (30_000, 0, 42_500)),
            // No network latency, as for a block device.
            (4, 4, 0, (5000, 0, short)),
            (0, 0, 0, (10_000, 0, unknown)),
            (0, 1, 0, (5000, 0, short)),
            // Clocks that differ by up to 3 s, and by more.
            (4000, 7000, 0, (7000, 0, 13_750)),
            (4000, 7001, 0, (10_000, 0, unknown)),
            (4000, 7001, 90_000, (10_000, 0, unknown)),
            (4000, u32::MAX, 0, (10_000, 0, unknown)),
            // Unlimited round trips.
            (u32::MAX, u32::MAX, 0, (10_000, 0, unknown)),
            (u32::MAX, 4, 0, (10_000, 0, unknown)),
            // Longer than any allowed time.
            (u32::MAX - 1, 4, 0, (5000, 600_000, 611_250)),
            (u32::MAX - 1, u32::MAX - 1, 0, (600_000, 0, 755_000)),
        ] {
            let mut portal = portal();
            portal.replied(NOW, round_trip, service, estimate);
            assert_eq!(portal.last_reply(), Some(NOW));
            let (current, network) = (portal.service(NOW).current, portal.network(NOW).current);
            let got = (current, network, portal.timeout(NOW));
            assert_eq!(got, want, "{round_trip} {service} {estimate}");
        }
    }

    /// Verifies that lower estimates of the server take effect immediately, and expire with the
    /// history.
    #[test]
    fn reported_estimates() {
        let mut portal = portal();
        for (now, estimate, want) in [
            (NOW, 60_000, 80_000),
            (NOW, 20_000, 30_000),
            (NOW, 0, 80_000),
            (NOW, 9000, 16_250),
        ] {
            portal.replied(now, 300, 300, estimate);
            assert_eq!(portal.timeout(now), want);
        }
        assert_eq!(portal.timeout(NOW + 599_999), 16_250);
        assert_eq!(portal.timeout(NOW + 600_000), 11_250);
        assert_eq!(portal.service(NOW).worst, Some((60_000, NOW)));
    }

    /// Verifies that the stated timeout does not contain the latency.
    #[test]
    fn stated() {
        let mut portal = portal();
        assert_eq!((portal.stated(0), portal.timeout(0)), (17_500, 17_500));
        portal.replied(5, 21_000, 20_000, 0);
        assert_eq!((portal.stated(5), portal.timeout(5)), (30_000, 31_000));
        // The history of both has expired.
        let later = 5 + 600_000;
        let both = (portal.stated(later), portal.timeout(later));
        assert_eq!(both, (11_250, 11_250));
        assert_eq!(portal.network(later).worst, Some((1000, 5)));
    }

    /// Verifies that an early reply moves one deadline and does not change the estimates.
    #[test]
    fn early_replies() {
        let mut portal = portal();
        portal.replied(0, 9000, 8000, 0);
        let before = (portal.service(0), portal.network(0));
        for (now, sent, deadline, timeout, want) in [
            // Sent at 1 s, with 40 s at the server and 1 s for the network.
            (15_000, 1000, 17_000, 40_000, 42_000),
            // The deadline never becomes earlier.
            (15_000, 1000, 90_000, 40_000, 90_000),
            (15_000, 1000, 17_000, 0, 17_000),
            (15_000, 1000, 17_000, 1, 17_000),
            // An unlimited timeout is ignored.
            (15_000, 1000, 17_000, u32::MAX, 17_000),
            (15_000, u64::MAX, 17_000, 5, u64::MAX),
            // The clock ran backwards.
            (9000, 1000, 17_000, 40_000, 42_000),
        ] {
            assert_eq!(portal.early(now, sent, deadline, timeout), want);
            assert_eq!(portal.last_reply(), Some(15_000), "a sign of life");
        }
        assert_eq!((portal.service(0), portal.network(0)), before);
    }

    /// Checks that for all replies, a client waits for a time within the limits of the rule.
    #[test]
    fn any_numbers() {
        let (mut portal, mut state) = (portal(), 1_u64);
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 32) as u32 >> (state >> 60)
        };
        for _ in 0..20_000 {
            let now = u64::from(random());
            portal.replied(now, random(), random(), random());
            let (stated, waits) = (portal.stated(now), portal.timeout(now));
            assert!((11_250..=755_000).contains(&stated));
            assert!(waits >= stated && waits <= stated + 600_000);
            let (sent, deadline) = (u64::from(random()), u64::from(random()));
            assert!(portal.early(now, sent, deadline, random()) >= deadline);
        }
    }
}
