// SPDX-License-Identifier: GPL-2.0-only

//! Records received from other servers.
//!
//! A *peer* is a server from which a datagram was accepted ([`Peer`]). A peer is *silent* since its
//! last datagram.
//!
//! ```text
//!          first datagram              silent for hold deltas            8 * hold deltas
//! (unknown) ─────────────► rates count ─────────────────────► rates fade ──────────────► (unknown)
//!                           │  ▲    ▲                          │
//!           another message │  │    └──────────────────────────┘ any later message
//!                           └──┘
//! ```
//!
//! Rates of a silent peer halve every `hold` deltas. A farewell removes the rates immediately.

use nrs_sched::units::USEC_PER_SEC;
use std::collections::{btree_map::Entry, BTreeMap, BTreeSet};

use super::{
    log2::{power, Q16},
    message::{Header, Record, Refusal},
    Terms,
};

/// Number of fractional bits of a rate.
pub const RATE_BITS: u32 = 12;

/// Maximum rate, in 1/4096 units of cost per second; larger rates are clamped.
pub const RATE_MAX: u64 = 1 << 48;

/// Returns `service` in `us` as a rate, at most [`RATE_MAX`]; 0 if no time passed.
pub fn rate(service: u64, us: u64) -> u64 {
    let service = u128::from(service) * u128::from(USEC_PER_SEC);
    let rate = service.checked_div(us.into()).unwrap_or(0);
    rate.min(RATE_MAX.into()) as u64
}

/// Record of a peer about one entity.
#[derive(Clone, Copy, Debug)]
pub struct PeerEntity {
    /// Service of the entity on the peer, in 1/4096 units per second.
    rate: u64,
    /// Weight of the entity on the peer.
    pub weight: u32,
    /// True if the entity is active on the peer.
    pub active: bool,
    /// Time at which the record was received, ns, local clock.
    heard: u64,
    /// Time of the rate, ns, local clock.
    pub sent: u64,
}

impl PeerEntity {
    /// Returns the faded rate at `now`, ns.
    pub fn rate(&self, terms: &Terms, now: u64) -> u64 {
        let hold = terms.hold_ns().max(1);
        let over = now.saturating_sub(self.heard).saturating_sub(hold);
        let octaves = (u128::from(over) * Q16 as u128 / u128::from(hold)).min(i32::MAX as u128);
        ((u128::from(self.rate) * u128::from(power(-(octaves as i32)))) >> 31) as u64
    }
}

/// Server from which a datagram was accepted.
pub struct Peer {
    /// Capacity of the peer, units of cost per second; at most [`RATE_MAX`] in these units.
    pub capacity: u64,
    /// Records of the peer, by entity id.
    pub records: BTreeMap<u64, PeerEntity>,
    /// Time of the last datagram, ns, local clock.
    pub heard: u64,
    /// True if the last message was a farewell.
    pub left: bool,
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Number of datagrams lost: gaps between the received datagrams.
    pub lost: u64,
    epoch: u64,
    seq: u32,
    /// Number of datagrams of the message `seq`.
    parts_all: u16,
    /// Indexes of the received datagrams of the message `seq`.
    parts: BTreeSet<u16>,
    /// Time of the last removal of old records, ns, local clock.
    swept: u64,
}

impl Peer {
    /// Creates the peer that sent `header`, without records.
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

    /// Records that a datagram was received, if it is new.
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

    /// Stores `records` of the time `sent`; at most `room` of them may be new.
    fn store(
        &mut self,
        records: &[Record],
        mut room: usize,
        sent: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        let mut result = Ok(());
        for record in records {
            let known = PeerEntity {
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

    /// Evicts records that were not received for `old` ns; scans at most once per `old` ns.
    fn sweep(&mut self, old: u64, now: u64) {
        if now.saturating_sub(self.swept) >= old {
            self.swept = now;
            self.records
                .retain(|_, known| now.saturating_sub(known.heard) < old);
        }
    }
}

/// All peers, by server number.
///
/// # Invariants
///
/// There are at most as many peers and records as the terms allow.
#[derive(Default)]
pub struct Peers {
    peers: BTreeMap<u64, Peer>,
}

impl Peers {
    /// Returns all peers, ordered by server number.
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

    /// Processes the datagram of `header` and `records`, which arrived at `now`, ns, and was sent
    /// `age` ns before.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Old`], [`Refusal::Duplicate`]: the datagram is not new.
    /// - [`Refusal::Crowded`]: there are too many peers, and nothing was stored. Or there are too
    ///   many records; known records, and new ones up to the limit, were stored.
    pub fn receive(
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
        peer.sweep(terms.eviction_ns(), now);
        // INVARIANT: at most `records_max` records of all peers, and `entities_max` of each peer.
        let room = (terms.records_max as usize).saturating_sub(all);
        let own = (terms.entities_max as usize).saturating_sub(peer.records.len());
        peer.store(records, room.min(own), now.saturating_sub(age), now)
    }

    /// Evicts peers that have been silent so long that their rates have faded.
    pub fn forget(&mut self, terms: &Terms, now: u64) {
        let gone = terms.eviction_ns();
        self.peers
            .retain(|_, peer| now.saturating_sub(peer.heard) <= gone);
    }
}

#[cfg(test)]
mod tests;
