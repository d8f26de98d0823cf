// SPDX-License-Identifier: GPL-2.0-only

//! One who hears all servers, and tells each what the others served.
//!
//! # Vocabulary
//!
//! - *Sum*: service to one entity on all servers ([`Sum`]).
//! - *Given*: what of a sum came from one server; the rest is what that server is told.
//!
//! ```text
//!  server 1 ─┐             ┌─► to 1: 2 + 3
//!  server 2 ─┼─► the sums ─┼─► to 2: 1 + 3       a message of the same form, of one server with the
//!  server 3 ─┘             └─► to 3: 1 + 2       number of the relay
//! ```
//!
//! With n servers each one sends and gets one message per delta instead of n - 1, at the price of a second way
//! for what is told. Sums grow by the rates of the servers, so that those of a silent one are held like
//! everywhere. A server is told of what it tells itself, and of nothing else.

use nrs_sched::units::USEC_PER_SEC;
use std::collections::BTreeMap;

use super::{
    message::{Record, Refusal, PRESENT},
    peers::RATE_BITS,
    Counts, Terms, Voice,
};

/// Service to one entity.
#[derive(Default)]
struct Sum {
    /// Sixteenths of a unit of cost, wrapping.
    counter: u64,
    /// Capacity of the servers where it is, units per second.
    capacity: u64,
    /// Steps since anybody told of it.
    unseen: u32,
}

/// A relay.
pub struct Relay {
    voice: Voice,
    /// By the ids of the entities.
    sums: BTreeMap<u64, Sum>,
    /// When the last step was, ns.
    stepped: Option<u64>,
}

impl Relay {
    /// The relay with number `id`, not 0 and not that of a server, which started as its `epoch`.
    pub fn new(id: u64, epoch: u64, terms: Terms) -> Self {
        Self {
            voice: Voice::new(id, epoch, terms),
            sums: BTreeMap::new(),
            stepped: None,
        }
    }

    /// Takes in a datagram that came at `now`, ns.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused; it is counted.
    pub fn hear(&mut self, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        self.voice.hear(bytes, now)
    }

    /// Sums up, once per delta, at `now`, ns. O(r log n) for r records of all servers.
    pub fn step(&mut self, now: u64) {
        let us = match self.stepped {
            Some(before) => (now.saturating_sub(before) / 1000).min(1 << 22),
            None => 0,
        };
        self.stepped = Some(now);
        self.voice.step(now);
        for sum in self.sums.values_mut() {
            sum.capacity = 0;
            sum.unseen += 1;
        }
        let Voice { terms, peers, .. } = &mut self.voice;
        for peer in peers.live_mut(terms, now) {
            for (&id, known) in &mut peer.records {
                if !known.counts(terms, now) {
                    continue;
                }
                // A rate is at most 2^40.
                let service = known.rate * us / USEC_PER_SEC;
                let sum = self.sums.entry(id).or_default();
                sum.counter = sum.counter.wrapping_add(service);
                // A capacity is at most 2^36, of as many servers as the terms say.
                sum.capacity = sum.capacity.saturating_add(known.part_of(peer.capacity));
                sum.unseen = 0;
                // Who is new starts with nothing told.
                known.given = Some(match known.given {
                    Some(given) => given.wrapping_add(service),
                    None => sum.counter,
                });
            }
        }
        let hold = terms.hold;
        self.sums.retain(|_, sum| sum.unseen <= hold);
    }

    /// Servers that are told something at `now`, ns, in the order of their numbers.
    pub fn servers(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        let peers = self.voice.peers.live(&self.voice.terms, now);
        peers.map(|(server, _)| server)
    }

    /// Returns the datagrams for the server `to`, at `now`, ns.
    pub fn say(&mut self, to: u64, now: u64) -> Vec<Vec<u8>> {
        let Voice { terms, peers, .. } = &self.voice;
        let mut capacity = 0u64;
        let mut told = None;
        for (server, peer) in peers.live(terms, now) {
            if server == to {
                told = Some(peer);
            } else {
                capacity = capacity.saturating_add(peer.capacity);
            }
        }
        let Some(told) = told else {
            return Vec::new();
        };
        let mut records = Vec::new();
        for (&id, known) in &told.records {
            let (Some(sum), Some(given)) = (self.sums.get(&id), known.given) else {
                continue;
            };
            let there = sum.capacity.saturating_sub(known.part_of(told.capacity));
            let presence = there
                .saturating_mul(u64::from(PRESENT))
                .checked_div(capacity)
                .unwrap_or(0);
            records.push(Record {
                id,
                counter: sum.counter.wrapping_sub(given) >> RATE_BITS,
                presence: presence.min(u64::from(PRESENT)) as u16,
            });
        }
        self.voice.say(now, capacity, &records)
    }

    /// What happened.
    pub fn counts(&self) -> Counts {
        self.voice.counts
    }
}
