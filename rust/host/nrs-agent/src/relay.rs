// SPDX-License-Identifier: GPL-2.0-only

//! One who hears all servers, and tells each what the others serve.
//!
//! # Vocabulary
//!
//! - *Sum*: service to one entity on all servers ([`Sum`]).
//!
//! ```text
//!  server 1 ─┐             ┌─► to 1: 2 + 3
//!  server 2 ─┼─► the sums ─┼─► to 2: 1 + 3       a message of the same form, of one server with the
//!  server 3 ─┘             └─► to 3: 1 + 2       number of the relay
//! ```
//!
//! With n servers each one sends and gets one message per delta instead of n - 1, at the price of a second way
//! for what is told. The time of its message is the mean of the times of the rates in it. A server is told of what
//! it tells itself, and of nothing else.

use std::collections::BTreeMap;

use super::{
    message::{Record, Refusal, PRESENT},
    Counts, Terms, Voice,
};

/// Service to one entity.
#[derive(Default)]
struct Sum {
    /// Service, 1/4096 units of cost per second.
    rate: u64,
    /// Capacity of the servers where it is, units per second.
    capacity: u64,
    /// The largest weight.
    weight: u32,
}

/// A relay.
pub struct Relay {
    voice: Voice,
    /// By the ids of the entities.
    sums: BTreeMap<u64, Sum>,
    /// When the last step was, ns.
    stepped: u64,
    /// Mean age of the rates then, ns.
    age: u64,
}

impl Relay {
    /// Creates the relay with number `id`, not 0 and not that of a server, which started as its `epoch`.
    pub fn new(id: u64, epoch: u64, terms: Terms) -> Self {
        Self {
            voice: Voice::new(id, epoch, terms),
            sums: BTreeMap::new(),
            stepped: 0,
            age: 0,
        }
    }

    /// Notes the time of the clock that all servers share; see [`super::Exchange::sync`].
    pub fn sync(&mut self, now: u64, shared: u64) {
        self.voice.sync(now, shared);
    }

    /// Takes in a datagram of the server `from` that came at `now`, ns.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused; it is counted.
    pub fn hear(&mut self, from: u64, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        self.voice.hear(from, bytes, now)
    }

    /// Sums up, once per delta, at `now`, ns. O(r log n) for r records of all servers.
    pub fn step(&mut self, now: u64) {
        self.stepped = now;
        self.voice.step(now);
        self.sums.clear();
        let Voice { terms, peers, .. } = &self.voice;
        let (mut ages, mut count) = (0u128, 0);
        for (_, peer) in peers.iter() {
            for (&id, known) in &peer.records {
                let sum = self.sums.entry(id).or_default();
                // A rate is at most 2^48 and a capacity 2^36, of as many servers as the terms say.
                sum.rate = sum.rate.saturating_add(known.rate(terms, now));
                sum.capacity = sum.capacity.saturating_add(known.part_of(peer.capacity));
                sum.weight = sum.weight.max(known.weight);
                ages += u128::from(now.saturating_sub(known.sent));
                count += 1;
            }
        }
        self.age = ages.checked_div(count).unwrap_or(0) as u64;
    }

    /// Returns the servers that were heard lately at `now`, ns, in the order of their numbers.
    pub fn servers(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        let Voice { terms, peers, .. } = &self.voice;
        let lately = move |peer: &super::peers::Peer| now - peer.heard.min(now) <= terms.hold_ns();
        let peers = peers.iter().filter(move |(_, peer)| lately(peer));
        peers.map(|(server, _)| server)
    }

    /// Returns the datagrams of the last step for the server `to`.
    pub fn say(&mut self, to: u64) -> Vec<Vec<u8>> {
        let Voice { terms, peers, .. } = &self.voice;
        let Some(told) = peers.get(to) else {
            return Vec::new();
        };
        let others = peers.iter().filter(|(server, _)| *server != to);
        let capacity = others.fold(0u64, |sum, (_, peer)| sum.saturating_add(peer.capacity));
        let mut records = Vec::new();
        for (&id, known) in &told.records {
            let Some(sum) = self.sums.get(&id) else {
                continue;
            };
            let there = sum.capacity.saturating_sub(known.part_of(told.capacity));
            let presence = there.saturating_mul(PRESENT.into());
            // Not 0 for an entity that is somewhere.
            let presence = presence.div_ceil(capacity.max(1)).min(PRESENT.into());
            records.push(Record {
                id,
                rate: sum.rate.saturating_sub(known.rate(terms, self.stepped)),
                weight: sum.weight,
                presence: presence as u8,
            });
        }
        let time = self.stepped.saturating_sub(self.age);
        self.voice.say(time, capacity, &records)
    }

    /// Returns what happened.
    pub fn counts(&self) -> Counts {
        self.voice.counts
    }
}
