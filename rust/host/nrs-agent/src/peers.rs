// SPDX-License-Identifier: GPL-2.0-only

//! What other servers said.
//!
//! # Vocabulary
//!
//! - *Peer*: a server that was heard ([`Peer`]).
//! - *Silence*: the time since a record was heard.
//!
//! ```text
//!              first datagram               silent for `hold` deltas             silent for eight times that
//!  (unknown) ────────────────► rates count ──────────────────────────► rates fade ────────────────────────► (unknown)
//!                               │  ▲    ▲                               │
//!               another message │  │    └───────────────────────────────┘ any later message
//!                               └──┘
//! ```
//!
//! Rates of a silent peer halve every `hold` deltas. A farewell ends them at once.

use nrs_sched::units::USEC_PER_SEC;
use std::collections::{btree_map::Entry, BTreeMap, BTreeSet};

use super::{
    log2::{power, Q16},
    message::{Header, Record, Refusal},
    Terms,
};

/// Bits after the point of a rate.
pub const RATE_BITS: u32 = 12;

/// Largest rate, in 1/4096 units of cost per second; what is above counts as this.
pub const RATE_MAX: u64 = 1 << 48;

/// Returns `service` in `us` as a rate, at most [`RATE_MAX`]; 0 if no time passed.
pub fn rate(service: u64, us: u64) -> u64 {
    let service = u128::from(service) * u128::from(USEC_PER_SEC);
    let rate = service.checked_div(us.into()).unwrap_or(0);
    rate.min(RATE_MAX.into()) as u64
}

/// What a peer said of one entity.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Service, in 1/4096 units per second.
    rate: u64,
    /// Its weight there.
    pub weight: u32,
    /// Whether the entity is active there.
    pub active: bool,
    /// When it was heard, our ns.
    heard: u64,
    /// The time of the rate, our ns.
    pub sent: u64,
}

impl Known {
    /// Returns the rate that counts at `now`, ns.
    pub fn rate(&self, terms: &Terms, now: u64) -> u64 {
        let hold = terms.hold_ns().max(1);
        let over = now.saturating_sub(self.heard).saturating_sub(hold);
        let octaves = (u128::from(over) * Q16 as u128 / u128::from(hold)).min(i32::MAX as u128);
        ((u128::from(self.rate) * u128::from(power(-(octaves as i32)))) >> 31) as u64
    }
}

/// A server that was heard.
pub struct Peer {
    /// Its capacity, units of cost per second; at most that of [`RATE_MAX`].
    pub capacity: u64,
    /// What it said, by the ids of the entities.
    pub records: BTreeMap<u64, Known>,
    /// When it was heard last, our ns.
    pub heard: u64,
    /// Whether its last message was a farewell.
    pub left: bool,
    /// Datagrams heard.
    pub datagrams: u64,
    /// Datagrams lost: those missing between the datagrams heard.
    pub lost: u64,
    epoch: u64,
    seq: u32,
    /// Number of datagrams of the message `seq`.
    parts_all: u16,
    /// Datagrams of the message `seq` that were heard.
    parts: BTreeSet<u16>,
    /// When its records were looked through for old ones, our ns.
    swept: u64,
}

impl Peer {
    /// Creates the sender of `header`, of which nothing is known yet.
    fn new(header: &Header, now: u64) -> Self {
        Self {
            capacity: 0,
            records: BTreeMap::new(),
            epoch: header.epoch,
            seq: header.seq,
            parts_all: header.parts,
            parts: BTreeSet::new(),
            heard: now,
            left: false,
            datagrams: 0,
            lost: 0,
            swept: now,
        }
    }

    /// Notes that the datagram was heard, if it is news.
    fn admit(&mut self, header: &Header) -> Result<(), Refusal> {
        if header.epoch < self.epoch {
            return Err(Refusal::Old);
        }
        let ahead = header.seq.wrapping_sub(self.seq) as i32;
        if header.epoch > self.epoch || ahead > 0 {
            if header.epoch == self.epoch {
                let all = u64::from(self.parts_all);
                let missing = all.saturating_sub(self.parts.len() as u64);
                let skipped = u64::from(ahead.unsigned_abs() - 1) * all;
                self.lost = self.lost.saturating_add(missing + skipped);
            }
            self.epoch = header.epoch;
            self.seq = header.seq;
            self.parts_all = header.parts;
            self.parts.clear();
        } else if ahead < 0 {
            return Err(Refusal::Old);
        }
        if !self.parts.insert(header.part) {
            return Err(Refusal::Duplicate);
        }
        self.datagrams += 1;
        Ok(())
    }

    /// Stores `records` of the time `sent`, of which up to `room` may be new.
    fn store(
        &mut self,
        records: &[Record],
        mut room: usize,
        sent: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        let mut result = Ok(());
        for record in records {
            let known = Known {
                rate: record.rate.min(RATE_MAX),
                weight: record.weight,
                active: record.active,
                heard: now,
                sent,
            };
            match self.records.entry(record.id) {
                Entry::Occupied(mut place) => {
                    place.insert(known);
                }
                Entry::Vacant(place) if room > 0 => {
                    room -= 1;
                    place.insert(known);
                }
                Entry::Vacant(_) => result = Err(Refusal::Crowded),
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
    /// Returns all peers, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Peer)> {
        self.peers.iter().map(|(&server, peer)| (server, peer))
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns the number of records of all peers.
    fn records(&self) -> usize {
        self.peers.values().map(|peer| peer.records.len()).sum()
    }

    /// Takes in the datagram of `header` and `records` that came at `now`, ns, and was sent `age` ns before.
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
        age: u64,
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
        peer.left = header.bye;
        if header.bye {
            peer.capacity = 0;
            peer.records.clear();
            return Ok(());
        }
        peer.capacity = header.capacity.min(RATE_MAX >> RATE_BITS);
        peer.sweep(terms.gone_ns(), now);
        // INVARIANT: no more than there is room for.
        let room = (terms.records_max as usize).saturating_sub(all);
        let own = (terms.entities_max as usize).saturating_sub(peer.records.len());
        peer.store(records, room.min(own), now.saturating_sub(age), now)
    }

    /// Forgets peers that were silent for so long that nothing of them counts.
    pub fn forget(&mut self, terms: &Terms, now: u64) {
        let gone = terms.gone_ns();
        self.peers
            .retain(|_, peer| now.saturating_sub(peer.heard) <= gone);
    }
}

#[cfg(test)]
mod tests;
