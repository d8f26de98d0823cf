// SPDX-License-Identifier: GPL-2.0-only

//! What other servers said.
//!
//! # Vocabulary
//!
//! - *Peer*: a server that was heard ([`Peer`]).
//! - *Base*: the last counter of a record, and when it was read by the peer's clock; the next one makes a rate
//!   with it.
//! - *Held*: of a peer that is silent the last rates count on.
//! - *Gone*: it was silent for so long that nothing of it counts.
//!
//! ```text
//!              first datagram               silent for `hold` deltas        silent for four times that
//!  (unknown) ────────────────► rates held ──────────────────────────► gone ───────────────────────────► (unknown)
//!                               │  ▲   ▲                               │
//!             another message   │  │   └───────────────────────────────┘ any later message
//!             of the same epoch └──┘
//!                                  a larger epoch: bases are forgotten, rates held until there are new ones
//! ```
//!
//! A rate is the difference of two counters by the difference of two times, both the sender's: what is lost in
//! between costs nothing but time, and neither the receiver's clock nor an uneven delta matters.

use nrs_sched::units::USEC_PER_SEC;
use std::collections::{btree_map::Entry, BTreeMap, BTreeSet};

use super::{
    message::{Header, Record, Refusal, COUNTER_BITS, COUNTER_MASK},
    Terms,
};

/// Bits after the point of a rate.
pub const RATE_BITS: u32 = 4;

/// Largest rate, in sixteenths of a unit of cost per second; what is above counts as this.
pub const RATE_MAX: u64 = 1 << 40;

/// Largest difference of two counters that counts, units.
const SERVICE_MAX: u64 = 1 << 36;

/// Units of service in `us` as a rate, at most [`RATE_MAX`]; 0 if no time passed.
pub fn rate(service: u64, us: u64) -> u64 {
    let service = service.min(SERVICE_MAX) << RATE_BITS;
    let rate = (service * USEC_PER_SEC).checked_div(us);
    rate.unwrap_or(0).min(RATE_MAX)
}

/// What a peer said of one entity.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Service, in sixteenths of a unit per second.
    pub rate: u64,
    /// How much of the peer's capacity is where the entity has requests.
    presence: u16,
    /// Whether there is a base.
    based: bool,
    /// Counter of the base.
    counter: u64,
    /// Time of the base, the peer's us.
    time_us: u64,
    /// When it was heard, our ns.
    heard: u64,
    /// What a relay added to its sum of this, sixteenths of a unit, wrapping; none if there was no step yet.
    pub given: Option<u64>,
}

impl Known {
    /// Heard for the first time.
    fn new(record: &Record, time_us: u64, now: u64) -> Self {
        Self {
            rate: 0,
            presence: record.presence,
            based: true,
            counter: record.counter,
            time_us,
            heard: now,
            given: None,
        }
    }

    /// Of the `capacity` of a peer, what is where the entity has requests.
    pub fn part_of(&self, capacity: u64) -> u64 {
        capacity * u64::from(self.presence) / 65_535
    }

    /// Whether it was heard lately enough to count at `now`, ns.
    pub fn counts(&self, terms: &Terms, now: u64) -> bool {
        now.saturating_sub(self.heard) <= terms.hold_ns()
    }

    /// Heard again.
    fn hear(&mut self, record: &Record, time_us: u64, shortest_us: u64, now: u64) {
        self.presence = record.presence;
        self.heard = now;
        let elapsed = time_us.wrapping_sub(self.time_us);
        if self.based && elapsed < shortest_us {
            // Too soon for a rate; the base stays.
            return;
        }
        if self.based && elapsed >> 63 == 0 {
            let service = record.counter.wrapping_sub(self.counter) & COUNTER_MASK;
            // What was taken back is no service.
            let back = service >> (COUNTER_BITS - 1) == 1;
            self.rate = rate(if back { 0 } else { service }, elapsed);
        }
        self.based = true;
        self.counter = record.counter;
        self.time_us = time_us;
    }
}

/// A server that was heard.
pub struct Peer {
    /// Its capacity, units of cost per second; at most that of [`RATE_MAX`].
    pub capacity: u64,
    /// What it said, by the ids of the entities.
    pub records: BTreeMap<u64, Known>,
    epoch: u64,
    seq: u32,
    /// Which datagrams of the message `seq` were heard.
    parts: BTreeSet<u16>,
    /// When it was heard last, our ns.
    heard: u64,
    /// When its records were looked through for old ones, our ns.
    swept: u64,
}

impl Peer {
    /// The sender of `header`, of which nothing is known yet.
    fn new(header: &Header, now: u64) -> Self {
        Self {
            capacity: 0,
            records: BTreeMap::new(),
            epoch: header.epoch,
            seq: header.seq,
            parts: BTreeSet::new(),
            heard: now,
            swept: now,
        }
    }

    /// Whether the datagram is news; notes that it was heard.
    fn admit(&mut self, header: &Header) -> Result<(), Refusal> {
        if header.epoch < self.epoch {
            return Err(Refusal::Old);
        }
        if header.epoch > self.epoch {
            for known in self.records.values_mut() {
                known.based = false;
            }
            self.epoch = header.epoch;
            self.seq = header.seq;
            self.parts.clear();
        }
        let ahead = header.seq.wrapping_sub(self.seq) as i32;
        if ahead < 0 {
            return Err(Refusal::Old);
        }
        if ahead > 0 {
            self.seq = header.seq;
            self.parts.clear();
        }
        if !self.parts.insert(header.part) {
            return Err(Refusal::Duplicate);
        }
        Ok(())
    }

    /// Stores `records`, of which up to `room` may be new.
    fn store(
        &mut self,
        header: &Header,
        records: &[Record],
        mut room: usize,
        shortest_us: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        let mut result = Ok(());
        for record in records {
            if let Some(known) = self.records.get_mut(&record.id) {
                known.hear(record, header.time_us, shortest_us, now);
            } else if room > 0 {
                room -= 1;
                let known = Known::new(record, header.time_us, now);
                self.records.insert(record.id, known);
            } else {
                result = Err(Refusal::Crowded);
            }
        }
        result
    }

    /// Forgets records that were not heard for `old` ns, now and then.
    fn sweep(&mut self, old: u64, now: u64) {
        if now.saturating_sub(self.swept) >= old {
            self.swept = now;
            self.records
                .retain(|_, known| now.saturating_sub(known.heard) < old);
        }
    }
}

/// All servers that were heard, by their numbers.
///
/// # Invariants
///
/// There are at most as many peers and records as the terms say.
#[derive(Default)]
pub struct Peers {
    peers: BTreeMap<u64, Peer>,
}

impl Peers {
    /// Peers that are not gone at `now`, ns, and their numbers.
    pub fn live(&self, terms: &Terms, now: u64) -> impl Iterator<Item = (u64, &Peer)> {
        let hold = terms.hold_ns();
        let peers = self.peers.iter().map(|(&server, peer)| (server, peer));
        peers.filter(move |(_, peer)| now.saturating_sub(peer.heard) <= hold)
    }

    /// The same without the numbers, for writing.
    pub fn live_mut(&mut self, terms: &Terms, now: u64) -> impl Iterator<Item = &mut Peer> {
        let hold = terms.hold_ns();
        let peers = self.peers.values_mut();
        peers.filter(move |peer| now.saturating_sub(peer.heard) <= hold)
    }

    /// Number of peers, also of those that are gone.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Number of records of all peers.
    fn records(&self) -> usize {
        self.peers.values().map(|peer| peer.records.len()).sum()
    }

    /// Takes in the datagram of `header` and `records` that came at `now`, ns.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Old`], [`Refusal::Duplicate`]: it is no news.
    /// - [`Refusal::Crowded`]: there are too many peers, and nothing was stored; or too many records, and those
    ///   that were there already were.
    pub fn hear(
        &mut self,
        header: &Header,
        records: &[Record],
        terms: &Terms,
        now: u64,
    ) -> Result<(), Refusal> {
        let all = self.records();
        let known = self.peers.len();
        let peer = match self.peers.entry(header.server) {
            Entry::Occupied(peer) => peer.into_mut(),
            Entry::Vacant(_) if known >= terms.servers_max as usize => {
                return Err(Refusal::Crowded);
            }
            Entry::Vacant(place) => place.insert(Peer::new(header, now)),
        };
        peer.admit(header)?;
        peer.heard = now;
        peer.capacity = header.capacity.min(RATE_MAX >> RATE_BITS);
        peer.sweep(terms.hold_ns(), now);
        // INVARIANT: no more than there is room for.
        let room = (terms.records_max as usize).saturating_sub(all);
        let own = (terms.entities_max as usize).saturating_sub(peer.records.len());
        peer.store(header, records, room.min(own), terms.delta_ns / 4000, now)
    }

    /// Forgets peers that are gone for long.
    pub fn forget(&mut self, terms: &Terms, now: u64) {
        let long = terms.hold_ns().saturating_mul(4);
        self.peers
            .retain(|_, peer| now.saturating_sub(peer.heard) <= long);
    }
}

#[cfg(test)]
mod tests;
