// SPDX-License-Identifier: GPL-2.0-only

//! What clients and servers of the simulation have in common: time, events, messages, counters.

use crate::engine::queue::Queue;
use nrs_sched::rng::Rng;

/// A millisecond, us.
pub const MS: u64 = 1_000;

/// A second, us.
pub const SECOND: u64 = 1_000 * MS;

/// When simulations begin, us; instants are never near 0, as on a machine that is up for a day.
pub const START: u64 = 86_400 * SECOND;

/// What messages go through.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// Time that a message takes at least, one way, us.
    pub latency: u64,
    /// Mean of what comes on top of it, exponential, us.
    pub jitter: u64,
    /// Messages that are lost, of a million.
    pub loss: u32,
}

/// What goes to the server and to a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Message {
    /// A request; its client waits for so many ms, without what the network takes.
    Request { xid: u32, stated: u32 },
    /// A client that has lost the server is there again; what it would wait for now, ms.
    Connect { stated: u32 },
    /// The reply: the request's own time at the service, all of it, and the service's estimate, ms.
    Reply {
        xid: u32,
        service: u32,
        estimate: u32,
    },
    /// An early reply: the whole timeout from the arrival on, ms.
    Early { xid: u32, timeout: u32 },
    /// The answer to `Connect`.
    Welcome,
    /// The answer to a request of a client that is not connected.
    Stranger,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    ToServer(u32, Message),
    ToClient(u32, Message),
    /// A client has thought enough.
    Think(u32),
    /// A client looks at its deadline.
    Deadline(u32),
    /// A client tries to connect again.
    Retry(u32),
    /// The device has carried out a request of a client.
    Done {
        client: u32,
        life: u32,
    },
    /// The server looks at the deadline of a client's request.
    Margin {
        client: u32,
        life: u32,
    },
    /// The next withheld request may go.
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

/// What has happened; differences of two of these say what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent for the first time.
    pub sent: u64,
    /// Requests whose reply arrived.
    pub replied: u64,
    /// Messages of all kinds, either way, lost ones too.
    pub messages: u64,
    /// Early replies: a request's timeout was short of the estimate when it arrived.
    pub at_once: u64,
    /// Early replies: a deadline was near.
    pub at_margin: u64,
    /// Early replies that were refused.
    pub refused: u64,
    /// A client gave up while the server was alive and had its request, or the reply was on its way.
    pub false_timeouts: u64,
    /// Of these, those whose client had missed an early reply that was lost.
    pub after_lost_early: u64,
    /// A client gave up on a request or a reply that was lost.
    pub lost: u64,
    /// Clients that waited for a server when it died, and came too late to its recovery.
    pub missed: u64,
}

impl Counts {
    /// Early replies of both kinds.
    pub fn early(&self) -> u64 {
        self.at_once + self.at_margin
    }

    /// What happened after `before`.
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

/// Time, events and messages.
pub(super) struct World {
    /// us.
    pub(super) now: u64,
    pub(super) net: Net,
    pub(super) counts: Counts,
    pub(super) rng: Rng,
    events: Queue<Event>,
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

    /// The time as the clock of timeouts shows it, ms.
    pub(super) fn millis(&self) -> u64 {
        self.now / MS
    }

    pub(super) fn schedule(&mut self, time: u64, event: Event) {
        self.events.push(time, event);
    }

    /// The next event until `end`; it is that late then.
    pub(super) fn next(&mut self, end: u64) -> Option<Event> {
        let (time, event) = self.events.pop_until(end)?;
        self.now = time;
        Some(event)
    }

    /// A number with about an exponential distribution, from integers alone, so that it is the same everywhere.
    pub(super) fn exponential(&mut self, mean: u64) -> u64 {
        let bits = self.rng.next_u64() | 1;
        let whole = u64::from(bits.leading_zeros());
        // The logarithm is a straight line between powers of two; its mean is 3/2 then.
        let part = (1 << 16) - (((bits << whole) >> 47) & 0xffff);
        mean * ((whole << 16) + part) / (3 << 15)
    }

    /// Sends; whether it arrives.
    pub(super) fn send(&mut self, event: Event) -> bool {
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
