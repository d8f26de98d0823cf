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

use super::{
    message::{Record, Refusal, PRESENT},
    peers::{order, retain},
    Counts, Terms, Voice,
};
use crate::sched::mem::{List, NoMemory};

/// Service to one entity.
#[derive(Clone, Copy)]
struct Sum {
    id: u64,
    /// Sixteenths of a unit of cost, wrapping.
    counter: u64,
    /// Capacity of the servers where it is, units per second.
    capacity: u64,
    /// Steps since anybody told of it.
    unseen: u32,
}

/// A relay.
///
/// # Invariants
///
/// `sums` is sorted by id, without an id twice.
///
/// # Context
///
/// Made and used where sleeping is allowed, by one at a time.
pub struct Relay {
    voice: Voice,
    sums: List<Sum>,
    records: List<Record>,
    /// When the last step was, ns.
    stepped: Option<u64>,
}

impl Relay {
    /// The relay with number `id`, not 0 and not that of a server, which started as its `epoch`.
    pub fn new(id: u64, epoch: u64, terms: Terms) -> Self {
        Self {
            voice: Voice::new(id, epoch, terms),
            sums: List::new(),
            records: List::new(),
            stepped: None,
        }
    }

    /// Takes in a datagram that came at `now`, ns. Sleeps.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused; it is counted.
    pub fn hear(&mut self, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        self.voice.hear(bytes, now)
    }

    /// Sums up, once per delta, at `now`, ns. O(r log n) for r records of all servers. Sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; some of the service of this delta is not told.
    pub fn step(&mut self, now: u64) -> Result<(), NoMemory> {
        let us = match self.stepped {
            Some(before) => (now.saturating_sub(before) / 1000).min(1 << 22),
            None => 0,
        };
        self.stepped = Some(now);
        let terms = self.voice.terms;
        self.voice.seq = self.voice.seq.wrapping_add(1);
        self.voice.peers.forget(&terms, now);
        for sum in self.sums.as_mut_slice() {
            sum.capacity = 0;
            sum.unseen = sum.unseen.saturating_add(1);
        }
        for peer in self.voice.peers.live_mut(&terms, now) {
            let known = self.sums.as_slice().len();
            let mut from = 0usize;
            let capacity = peer.capacity;
            for record in peer.records_mut() {
                if !record.counts(&terms, now) {
                    continue;
                }
                // A rate is at most 2^40.
                let service = record.rate.wrapping_mul(us) / 1_000_000;
                let sorted = self.sums.as_mut_slice().get_mut(from..known);
                let sorted = sorted.unwrap_or_default();
                let found = sorted.binary_search_by(|sum| sum.id.cmp(&record.id));
                from = from.saturating_add(found.unwrap_or_else(|at| at));
                let counter = match found.ok().and_then(|at| sorted.get_mut(at)) {
                    Some(sum) => {
                        sum.counter = sum.counter.wrapping_add(service);
                        let here = record.part_of(capacity);
                        sum.capacity = sum.capacity.saturating_add(here);
                        sum.unseen = 0;
                        sum.counter
                    }
                    None => {
                        self.sums.push(Sum {
                            id: record.id,
                            counter: service,
                            capacity: record.part_of(capacity),
                            unseen: 0,
                        })?;
                        service
                    }
                };
                // Who is new starts with nothing told.
                record.given = Some(match record.given {
                    Some(given) => given.wrapping_add(service),
                    None => counter,
                });
            }
            // INVARIANT: new ones were not there, and differ.
            order(self.sums.as_mut_slice(), |sum| sum.id);
        }
        retain(&mut self.sums, |sum| sum.unseen <= terms.hold);
        Ok(())
    }

    /// Servers that are told something at `now`, ns, in the order of their numbers.
    pub fn servers(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        let peers = self.voice.peers.live(&self.voice.terms, now);
        peers.map(|peer| peer.server)
    }

    /// Hands `send` the datagrams for the server `to`, at `now`, ns; `scratch` holds one of them. Sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; nothing was sent.
    pub fn say(
        &mut self,
        to: u64,
        now: u64,
        scratch: &mut [u8],
        send: impl FnMut(&[u8]),
    ) -> Result<(), NoMemory> {
        let terms = self.voice.terms;
        let mut capacity = 0u64;
        let mut told = None;
        for peer in self.voice.peers.live(&terms, now) {
            if peer.server == to {
                told = Some(peer);
            } else {
                capacity = capacity.saturating_add(peer.capacity);
            }
        }
        let Some(told) = told else {
            return Ok(());
        };
        self.records.truncate(0);
        let mut sums = self.sums.as_slice().iter().peekable();
        for known in told.records() {
            while sums.next_if(|sum| sum.id < known.id).is_some() {}
            let (Some(sum), Some(given)) = (sums.next_if(|sum| sum.id == known.id), known.given)
            else {
                continue;
            };
            let there = sum.capacity.saturating_sub(known.part_of(told.capacity));
            // A capacity is below 2^40 for each of a bounded number of servers.
            let presence = there
                .saturating_mul(u64::from(PRESENT))
                .checked_div(capacity)
                .unwrap_or(0);
            self.records.push(Record {
                id: known.id,
                counter: sum.counter.wrapping_sub(given) >> super::peers::RATE_BITS,
                presence: presence.min(u64::from(PRESENT)) as u16,
            })?;
        }
        let head = (self.voice.epoch, capacity, now);
        self.voice.say(head, self.records.as_slice(), scratch, send);
        Ok(())
    }

    /// What happened.
    pub const fn counts(&self) -> Counts {
        self.voice.counts
    }
}
