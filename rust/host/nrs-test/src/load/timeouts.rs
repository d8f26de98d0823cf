// SPDX-License-Identifier: GPL-2.0-only

//! Adaptive timeouts of the simulated clients.
//!
//! - *Expired*: the deadline of a request has passed without a reply, and the client has given up.
//! - *False timeout*: an expired request that has a reply later.
//! - *Lost*: an expired request without a reply.
//!
//! Times are ms since the start; cookies are those of uncompleted requests.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use nrs_client::{
    timeouts::{EstimateRule, Portal},
    Event,
};
use serde_json::{json, Value};

/// Timeouts of one client, and their results.
struct ClientTimeouts {
    portal: Portal,
    early_replies: u64,
    false_timeouts: u64,
    /// Time until each lost request expired, and its timeout, ms, by cookie.
    lost: HashMap<u64, (u64, u64)>,
}

/// Request without a reply.
struct SentRequest {
    player: usize,
    sent: u64,
    deadline: u64,
    /// Arrival at the service, and the estimate of the service; known from the release on.
    arrived: u64,
    estimate: u32,
}

/// Timeouts of all clients.
pub struct Timeouts {
    clients: Vec<ClientTimeouts>,
    requests: HashMap<u64, SentRequest>,
    /// Deadline and cookie of each request that has not expired.
    deadlines: BTreeSet<(u64, u64)>,
}

impl Timeouts {
    /// Creates the timeouts of `count` clients. The minimum and the initial estimate, and the
    /// increment of a timeout, are `seconds`.
    pub fn new(count: usize, seconds: u32) -> Self {
        let ms = seconds.saturating_mul(1000);
        let client = |_| ClientTimeouts {
            portal: Portal::new(EstimateRule {
                min_ms: ms,
                initial_ms: ms,
                increment_ms: ms,
                ..EstimateRule::default()
            }),
            early_replies: 0,
            false_timeouts: 0,
            lost: HashMap::new(),
        };
        Self {
            clients: (0..count).map(client).collect(),
            requests: HashMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Records a request that `player` sends at `now`; returns the timeout to state.
    pub fn sent(&mut self, now: u64, cookie: u64, player: usize) -> Duration {
        let portal = &mut self.clients[player].portal;
        let stated = portal.stated(now);
        let request = SentRequest {
            player,
            sent: now,
            deadline: now + u64::from(portal.timeout(now)),
            arrived: now,
            estimate: 0,
        };
        self.deadlines.insert((request.deadline, cookie));
        self.requests.insert(cookie, request);
        Duration::from_millis(stated.into())
    }

    /// Processes an event that was read at `now`. An early reply moves the deadline, unless the
    /// request has expired.
    pub fn event(&mut self, now: u64, event: &Event) {
        match event {
            Event::Released(released) => {
                if let Some(request) = self.requests.get_mut(&released.cookie) {
                    let wait = Duration::from_nanos(released.wait_ns).as_millis() as u64;
                    request.arrived = now.saturating_sub(wait).max(request.sent);
                    request.estimate = released.estimate_ms;
                }
            }
            Event::Early(early) => {
                let Some(request) = self.requests.get_mut(&early.cookie) else {
                    return;
                };
                let SentRequest { sent, deadline, .. } = *request;
                if self.deadlines.remove(&(deadline, early.cookie)) {
                    let client = &mut self.clients[request.player];
                    client.early_replies += 1;
                    request.deadline = client.portal.early(now, sent, deadline, early.timeout_ms);
                    self.deadlines.insert((request.deadline, early.cookie));
                }
            }
            Event::Recovered(_) => {}
        }
    }

    /// Records the reply to a request; returns false if the request had expired.
    pub fn replied(&mut self, now: u64, cookie: u64) -> bool {
        let Some(request) = self.requests.remove(&cookie) else {
            return false;
        };
        let since = |time| u32::try_from(now.saturating_sub(time)).unwrap_or(u32::MAX);
        let (round_trip, service) = (since(request.sent), since(request.arrived).max(1));
        let client = &mut self.clients[request.player];
        client
            .portal
            .replied(now, round_trip, service, request.estimate);
        client.false_timeouts += u64::from(client.lost.remove(&cookie).is_some());
        self.deadlines.remove(&(request.deadline, cookie))
    }

    /// Gives up the requests whose deadlines have passed; returns the player of each.
    pub fn expire(&mut self, now: u64) -> Vec<usize> {
        let mut players = Vec::new();
        while self.next().is_some_and(|deadline| deadline <= now) {
            let Some((deadline, cookie)) = self.deadlines.pop_first() else {
                break;
            };
            if let Some(SentRequest { player, sent, .. }) = self.requests.get(&cookie) {
                let times = (now.saturating_sub(*sent), deadline - sent);
                self.clients[*player].lost.insert(cookie, times);
                players.push(*player);
            }
        }
        players
    }

    /// Returns the next deadline.
    pub fn next(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the results of `player` at `now`. Of the lost requests, `noticed_ms` is the longest
    /// time until the client gave up, and `lost_timeout_ms` the timeout of that request.
    pub fn report(&mut self, now: u64, player: usize) -> Value {
        let client = &mut self.clients[player];
        let (noticed, timeout) = client.lost.values().max().copied().unwrap_or_default();
        json!({
            "early_replies": client.early_replies,
            "false": client.false_timeouts,
            "lost": client.lost.len(),
            "lost_timeout_ms": timeout,
            "noticed_ms": noticed,
            "timeout_ms": client.portal.timeout(now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nrs_client::{Early, Released};

    /// Returns the release of a request after `wait` ms, with `estimate`.
    fn release(cookie: u64, wait: u64, estimate: u32) -> Event {
        let mut released = Released::new(cookie, wait * 1_000_000, 0);
        released.estimate_ms = estimate;
        Event::Released(released)
    }

    fn early(cookie: u64, timeout: u32) -> Event {
        Event::Early(Early::new(cookie, timeout, 1000, 0))
    }

    /// Returns the numbers of the report on player 1, in its order.
    fn report(timeouts: &mut Timeouts, now: u64) -> Vec<u64> {
        let report = timeouts.report(now, 1);
        let numbers = report.as_object().unwrap().values();
        numbers.filter_map(Value::as_u64).collect()
    }

    #[test]
    fn early_replies_move_deadlines() {
        let mut timeouts = Timeouts::new(2, 1);
        assert_eq!(timeouts.sent(100, 7, 1), Duration::from_millis(2250));
        timeouts.sent(200, 8, 1);
        assert_eq!(timeouts.next(), Some(2350));
        timeouts.event(1350, &early(7, 9000));
        assert_eq!(timeouts.next(), Some(2450));
        // The request arrived 50 ms after it was sent: that is the estimate of the network.
        timeouts.event(2250, &release(8, 2000, 4000));
        assert!(timeouts.replied(2400, 8) && timeouts.expire(2500).is_empty());
        timeouts.event(2400, &early(8, 9000));
        timeouts.event(2400, &early(7, 10_000));
        assert_eq!(timeouts.next(), Some(10_150));
        assert_eq!(report(&mut timeouts, 2400), [2, 0, 0, 0, 0, 6050]);
        assert_eq!(timeouts.sent(2400, 8, 1), Duration::from_millis(6000));
        assert_eq!(timeouts.sent(2400, 9, 0), Duration::from_millis(2250));
    }

    #[test]
    fn expired_requests_are_lost_or_false() {
        let mut timeouts = Timeouts::new(2, 1);
        for (now, cookie, player) in [(0, 1, 1), (10, 2, 1), (20, 3, 1), (30, 4, 0)] {
            timeouts.sent(now, cookie, player);
        }
        assert!(timeouts.expire(2249).is_empty());
        assert_eq!(timeouts.expire(2265), [1, 1]);
        timeouts.event(2265, &early(2, 9000));
        assert_eq!(report(&mut timeouts, 2265), [0, 0, 2, 2250, 2265, 2250]);
        // The reply to an expired request counts for the estimate.
        timeouts.event(2266, &release(1, 2266, 0));
        assert!(!timeouts.replied(3200, 1) && !timeouts.replied(3200, 1));
        assert_eq!(report(&mut timeouts, 3200), [0, 1, 1, 2250, 2255, 5000]);
        assert_eq!((timeouts.expire(3200), timeouts.next()), (vec![1, 0], None));
        assert_eq!(report(&mut timeouts, 3200), [0, 1, 2, 2250, 3180, 5000]);
    }
}
