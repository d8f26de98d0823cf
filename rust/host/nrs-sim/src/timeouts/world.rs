// SPDX-License-Identifier: GPL-2.0-only

//! Common state of clients and server: time, events, messages, counters.

use crate::engine::queue::Queue;
use nrs_sched::rng::Rng;

/// Microseconds per millisecond.
pub const MS: u64 = 1_000;

/// Microseconds per second.
pub const SECOND: u64 = 1_000 * MS;

/// Start of simulations, us: times are never near 0, as after an uptime of one day.
pub const START: u64 = 86_400 * SECOND;

/// Parameters of the network.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// Minimum one-way time of a message, us.
    pub latency: u64,
    /// Mean of the exponential time added to the latency, us.
    pub jitter: u64,
    /// Lost messages per million.
    pub loss: u32,
}

/// Message between a client and the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Message {
    /// Request; the client's timeout without network time is `stated` ms.
    Request { xid: u32, stated: u32 },
    /// Connection of a client that has lost the server; the timeout of its next request is `stated`
    /// ms.
    Connect { stated: u32 },
    /// Reply: the total service time of this request and the service's estimate, ms.
    Reply {
        xid: u32,
        service: u32,
        estimate: u32,
    },
    /// Early reply: the extended timeout, ms from the arrival.
    Early { xid: u32, timeout: u32 },
    /// Answer to `Connect`.
    Welcome,
    /// Answer to a request of a client that is not connected.
    Stranger,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldEvent {
    ToServer(u32, Message),
    ToClient(u32, Message),
    /// The think time of a client is over.
    Think(u32),
    /// A client checks its deadline.
    Deadline(u32),
    /// A client retries to connect.
    Retry(u32),
    /// The device completes the request of a client.
    Done {
        client: u32,
        life: u32,
    },
    /// The server checks the deadline of a client's request.
    Margin {
        client: u32,
        life: u32,
    },
    /// The next request of the rate-limited class becomes eligible.
    Release {
        life: u32,
    },
    /// Recovery may be over.
    Recovered {
        life: u32,
    },
    /// A second has passed.
    Tick,
}

/// Totals since the start; the difference of two describes the time in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent for the first time.
    pub sent: u64,
    /// Requests whose reply arrived.
    pub replied: u64,
    /// Messages of all kinds in both directions, including lost messages.
    pub messages: u64,
    /// Early replies on arrival: the request's timeout was shorter than the estimate.
    pub at_once: u64,
    /// Early replies because a deadline was near.
    pub at_margin: u64,
    /// Early replies that were refused.
    pub refused: u64,
    /// False timeouts: the client gave up although the live server had the request or had sent the
    /// reply.
    pub false_timeouts: u64,
    /// False timeouts after the loss of an early reply.
    pub after_lost_early: u64,
    /// Timeouts because a request or a reply was lost.
    pub lost: u64,
    /// Clients that waited when the server restarted, and reconnected after the end of recovery.
    pub missed: u64,
}

impl Counts {
    /// Returns the number of early replies of both kinds.
    pub fn early(&self) -> u64 {
        self.at_once + self.at_margin
    }

    /// Returns the difference to `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            replied: self.replied - before.replied,
            messages: self.messages - before.messages,
            at_once: self.at_once - before.at_once,
            at_margin: self.at_margin - before.at_margin,
            refused: self.refused - before.refused,
            false_timeouts: self.false_timeouts - before.false_timeouts,
            after_lost_early: self.after_lost_early - before.after_lost_early,
            lost: self.lost - before.lost,
            missed: self.missed - before.missed,
        }
    }
}

/// Time, events and messages of a simulation.
pub(super) struct World {
    /// Current time, us.
    pub(super) now: u64,
    pub(super) net: Net,
    pub(super) counts: Counts,
    pub(super) rng: Rng,
    events: Queue<WorldEvent>,
}

impl World {
    pub(super) fn new(seed: u64, net: Net) -> Self {
        Self {
            now: START,
            net,
            counts: Counts::default(),
            rng: Rng::new(seed),
            events: Queue::default(),
        }
    }

    /// Returns the time of the timeout clock, ms.
    pub(super) fn millis(&self) -> u64 {
        self.now / MS
    }

    pub(super) fn schedule(&mut self, time: u64, event: WorldEvent) {
        self.events.push(time, event);
    }

    /// Removes the next event up to `end` and advances the time to it.
    pub(super) fn next(&mut self, end: u64) -> Option<WorldEvent> {
        let (time, event) = self.events.pop_until(end)?;
        self.now = time;
        Some(event)
    }

    /// Draws from an approximately exponential distribution; integer arithmetic gives equal results
    /// on every machine.
    pub(super) fn exponential(&mut self, mean: u64) -> u64 {
        let bits = self.rng.next_u64() | 1;
        let whole = u64::from(bits.leading_zeros());
        // The logarithm is linear between powers of two, so its mean is 3/2.
        let part = (1 << 16) - (((bits << whole) >> 47) & 0xffff);
        mean * ((whole << 16) + part) / (3 << 15)
    }

    /// Sends a message; returns false if the message is lost.
    pub(super) fn send(&mut self, event: WorldEvent) -> bool {
        self.counts.messages += 1;
        let lost = self.net.loss > 0 && self.rng.below(1_000_000) < self.net.loss.into();
        if !lost {
            let time = self.net.latency + self.exponential(self.net.jitter);
            self.schedule(self.now + time, event);
        }
        !lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is() {
        let net = Net {
            latency: 0,
            jitter: 0,
            loss: 0,
        };
        let mut world = World::new(1, net);
        let samples: Vec<u64> = (0..100_000).map(|_| world.exponential(1_000)).collect();
        let mean = samples.iter().sum::<u64>() / 100_000;
        assert!((980..1_020).contains(&mean), "{mean}");
        for (at, percent) in [(693, 50), (2_303, 10), (4_605, 1)] {
            let above = samples.iter().filter(|&&sample| sample > at).count() / 100;
            assert!(above.abs_diff(percent * 10) < 30, "{at}: {above}");
        }
    }
}
