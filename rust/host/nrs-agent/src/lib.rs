// SPDX-License-Identifier: GPL-2.0-only

//! Fair shares over several servers: each tells the others what it served, and corrects its own weights.
//!
//! The crate has two halves. The protocol ([`Exchange`]) has neither sockets nor clocks: accounts of the local nodes go
//! in, datagrams come and go, factors for the local weights come out. The [`daemon`] runs it between the module
//! ([`kernel`]) and other servers ([`transport`]) as `agent.toml` says ([`config`]). With the feature `zenoh` there is a
//! transport, with the feature `daemon` the program `nrs-agent`.
//!
//! # Vocabulary
//!
//! - *Server*: one of those that share entities; it has a number, and an *epoch* that is larger each time it
//!   starts.
//! - *Realm*: servers that understand each other: the same secret of path ids, the same mode and cost model.
//! - *Delta*: the time between two messages of a server, and between two steps of its rule.
//! - *Account*: what one part tells about one node of its tree ([`Account`]).
//! - *Message*: what a server tells the others, once per delta ([`message`]).
//! - *Peer*: what is known of another server ([`peers`]).
//! - *Level*: the service of an entity on all servers, per second, by its weight. Shares are fair if all
//!   entities that a server serves have the same level, and nobody waits there with a lower one.
//! - *Factor*: what a server multiplies the weight of an entity by, so that levels become equal:
//!   above 0 and at most 1, in Q31 ([`nrs_sched::policy::fairshare::factors::Factors`]).
//!
//! ```text
//!   fairshare parts                        once per delta
//!  ┌───────────────┐ accounts
//!  │ id, weight,   ├─────────► note ─┐                               ┌─► say ──► datagrams to other servers
//!  │ service,      │                 ├─► step: rates, levels, rule ──┤
//!  │ requests      │◄─ factors ──────┼───────────────────────────────┘
//!  └───────────────┘   (Update)      │
//!                          hear ─────┴───────────────────────────────────── datagrams of other servers
//! ```
//!
//! Nothing is acknowledged and nothing is sent again: a message tells rates, and the next one tells them anew.
//!
//! # Trust
//!
//! The transport says who sent a datagram, and a datagram of any other server is refused: a server speaks only for
//! itself. Every server of the realm is believed. A liar can make entities appear to be served elsewhere, or to be
//! heavier, which pushes factors on other servers down, not below the floor. A correction is at most four octaves per
//! delta. A liar cannot starve an entity, cannot stop a server, and cannot make the protocol use more memory than the
//! terms allow.
//!
//! # Hierarchies
//!
//! The rule is used for each group of siblings by itself, at every level of the mode: see [`rule`].

pub mod config;
pub mod daemon;
pub mod inbox;
pub mod kernel;
mod log2;
pub mod message;
pub mod nodes;
pub mod pace;
mod peers;
mod plan;
mod rule;
pub mod secret;
pub mod socket;
pub mod status;
pub mod store;
mod table;
pub mod transport;
#[cfg(feature = "zenoh")]
pub mod zenoh;

use message::Header;
use peers::Peers;
use table::Table;

pub use message::Refusal;
pub use nrs_sched::agent::Account;
pub use rule::Gains;

/// Age above which saved corrections are not used, ns.
pub const SAVED_NS: u64 = 60_000_000_000;

/// What a server is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Who understands each other; equal on all servers.
    pub realm: u64,
    /// Time between two steps, ns.
    pub delta_ns: u64,
    /// Deltas after which the rates of a silent server start to fade; they halve every so many deltas.
    pub hold: u32,
    /// Other servers, at most; the memory for each is below 200 bytes, and records.
    pub servers_max: u32,
    /// Entities of this server, and of each other one, at most.
    pub entities_max: u32,
    /// Records of all other servers, at most; about 100 bytes each.
    pub records_max: u32,
    /// Bytes of a datagram, at most; at least one record is sent.
    pub datagram_max: u32,
    /// Units of cost of a large request.
    pub grain: u32,
    /// How strongly weights are corrected.
    pub gains: Gains,
}

impl Default for Terms {
    /// A delta of 100 ms, 256 servers and 16,384 entities, datagrams for an Ethernet, requests of 1 MiB.
    fn default() -> Self {
        Self {
            realm: 0,
            delta_ns: 100_000_000,
            hold: 16,
            servers_max: 256,
            entities_max: 16_384,
            records_max: 1 << 20,
            datagram_max: 1400,
            grain: 256,
            gains: Gains::default(),
        }
    }
}

impl Terms {
    /// Returns the time after which the rates of a silent server start to fade, ns.
    fn hold_ns(&self) -> u64 {
        self.delta_ns.saturating_mul(u64::from(self.hold))
    }

    /// Returns the deltas after which a silent server, or an entity that is not noted, is forgotten.
    fn gone(&self) -> u64 {
        u64::from(self.hold) * 8
    }

    /// Returns the time of those, ns.
    fn gone_ns(&self) -> u64 {
        self.delta_ns.saturating_mul(self.gone())
    }

    /// Records that fit into a datagram.
    fn records_per_datagram(&self) -> usize {
        let bytes = (self.datagram_max as usize).saturating_sub(message::HEADER);
        (bytes / message::RECORD).clamp(1, usize::from(u16::MAX))
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent.
    pub said: u64,
    /// Bytes of those.
    pub said_bytes: u64,
    /// Datagrams taken in.
    pub heard: u64,
    /// Bytes of those.
    pub heard_bytes: u64,
    /// Datagrams that are no messages, or of another version.
    pub malformed: u64,
    /// Datagrams of another realm, of this server, or of another one than their sender.
    pub foreign: u64,
    /// Datagrams that are no news.
    pub stale: u64,
    /// Datagrams for which there was no room.
    pub crowded: u64,
    /// Accounts for which there was no room.
    pub left_out: u64,
}

impl Counts {
    /// Counts how a datagram of `bytes` ended.
    fn hear(&mut self, result: Result<(), Refusal>, bytes: usize) {
        let count = match result {
            Ok(()) => {
                self.heard_bytes += bytes as u64;
                &mut self.heard
            }
            Err(Refusal::Malformed | Refusal::Version) => &mut self.malformed,
            Err(Refusal::Foreign | Refusal::Own | Refusal::Forged) => &mut self.foreign,
            Err(Refusal::Old | Refusal::Duplicate) => &mut self.stale,
            Err(Refusal::Crowded) => &mut self.crowded,
        };
        *count += 1;
    }
}

/// State of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Its number.
    pub server: u64,
    /// Time since it was heard, ns.
    pub age_ns: u64,
    /// Whether it said that it leaves.
    pub left: bool,
    /// Its capacity, units of cost per second.
    pub capacity: u64,
    /// Entities that it told.
    pub records: usize,
    /// Datagrams heard.
    pub datagrams: u64,
    /// Datagrams lost.
    pub lost: u64,
}

/// State of an entity after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityState {
    /// Its id.
    pub id: u64,
    /// Whether it is a leaf.
    pub leaf: bool,
    /// Whether it has requests that wait here.
    pub waiting: bool,
    /// The weight that counts on all servers.
    pub weight: u32,
    /// Its factor, Q31.
    pub factor: u32,
    /// Service here, units of cost per second.
    pub here: u64,
    /// Service by others, units of cost per second.
    pub elsewhere: u64,
}

/// One server's part in sharing over servers.
pub struct Exchange {
    server: u64,
    epoch: u64,
    terms: Terms,
    /// Number of the message of the last step, wrapping.
    seq: u32,
    /// What the clock that all servers share is ahead of ours, ns, wrapping.
    ahead: u64,
    peers: Peers,
    table: Table,
    counts: Counts,
}

impl Exchange {
    /// Creates the server with number `server`, not 0, which started as its `epoch`.
    pub fn new(server: u64, epoch: u64, terms: Terms) -> Self {
        Self {
            server,
            epoch,
            terms,
            seq: 0,
            ahead: 0,
            peers: Peers::default(),
            table: Table::default(),
            counts: Counts::default(),
        }
    }

    /// Notes that the clock that all servers share says `shared`, ns, at `now`.
    ///
    /// All other times are of a clock of the caller that never jumps; without a call it is the shared one. The age of
    /// messages is found with the shared clock. If that is wrong, corrections are slower or rougher; shares
    /// become the same.
    pub fn sync(&mut self, now: u64, shared: u64) {
        self.ahead = shared.wrapping_sub(now);
    }

    /// Notes what a part tells of one node, since the last step; each node of each part once, in any order. Nodes
    /// with the same path are one.
    pub fn note(&mut self, account: &Account) {
        self.table.note(account);
    }

    /// Takes in a datagram of the server `from`, as the transport knows it, that came at `now`, ns.
    ///
    /// # Errors
    ///
    /// The reason for which it is refused; it is counted.
    pub fn hear(&mut self, from: u64, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        let result = self.admit(from, bytes, now);
        self.counts.hear(result, bytes.len());
        result
    }

    fn admit(&mut self, from: u64, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        let (header, records) = message::parse(bytes)?;
        if header.realm != self.terms.realm {
            return Err(Refusal::Foreign);
        }
        if header.server == self.server {
            return Err(Refusal::Own);
        }
        if header.server != from {
            return Err(Refusal::Forged);
        }
        let sent = header.time_us.wrapping_mul(1000);
        let age = now.wrapping_add(self.ahead).wrapping_sub(sent) as i64;
        // What comes from the future is new.
        let age = age.max(0) as u64;
        self.peers.hear(&header, &records, &self.terms, age, now)
    }

    /// Makes a step of the rule at `now`, ns, from what was noted since the last one and from what was heard.
    ///
    /// O((n + r) log n) for n entities and r records of all peers.
    pub fn step(&mut self, now: u64) {
        self.seq = self.seq.wrapping_add(1);
        self.peers.forget(&self.terms, now);
        self.counts.left_out += self.table.step(&self.peers, &self.terms, now);
    }

    /// The ids and factors (Q31) after the last step, of all entities that are known here, in the order of the ids.
    pub fn factors(&self) -> Vec<(u64, u32)> {
        self.table.factors()
    }

    /// Returns the datagrams of the message of the last step, at `now`, ns; none before rates are known.
    pub fn say(&mut self, now: u64) -> Vec<Vec<u8>> {
        if !self.table.has_rates() {
            return Vec::new();
        }
        let records = self.table.records();
        let each = self.terms.records_per_datagram();
        let parts = records.len().div_ceil(each);
        let parts = parts.clamp(1, usize::from(message::DATAGRAMS_MAX)) as u16;
        let mut chunks = records.chunks(each);
        let mut datagram = |part| {
            let header = Header {
                part,
                parts,
                capacity: self.table.capacity(),
                ..self.header(now)
            };
            message::write(&header, chunks.next().unwrap_or_default())
        };
        let datagrams: Vec<Vec<u8>> = (0..parts).map(&mut datagram).collect();
        self.count(&datagrams);
        datagrams
    }

    /// Returns the last datagram of a server that leaves at `now`, ns: the others stop to count what it said.
    pub fn bye(&mut self, now: u64) -> Vec<u8> {
        self.seq = self.seq.wrapping_add(1);
        let header = Header {
            bye: true,
            ..self.header(now)
        };
        let datagram = message::write(&header, &[]);
        self.count(std::slice::from_ref(&datagram));
        datagram
    }

    /// Returns the header of the only datagram of a message with rates of `time`, ns.
    fn header(&self, time: u64) -> Header {
        Header {
            realm: self.terms.realm,
            server: self.server,
            epoch: self.epoch,
            seq: self.seq,
            part: 0,
            parts: 1,
            time_us: time.wrapping_add(self.ahead) / 1000,
            capacity: 0,
            bye: false,
        }
    }

    /// Counts datagrams as sent.
    fn count(&mut self, datagrams: &[Vec<u8>]) {
        self.counts.said += datagrams.len() as u64;
        let bytes = datagrams.iter().map(|bytes| bytes.len() as u64);
        self.counts.said_bytes += bytes.sum::<u64>();
    }

    /// Returns the corrections of all entities as bytes, for [`Self::restore`] after a restart.
    pub fn save(&self) -> Vec<u8> {
        self.table.save()
    }

    /// Takes over corrections that were saved `age` ns ago; entities begin with them. Returns whether they are used:
    /// not if they are older than [`SAVED_NS`] or no corrections at all.
    pub fn restore(&mut self, bytes: &[u8], age: u64) -> bool {
        age <= SAVED_NS && self.table.restore(bytes)
    }

    /// What happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of other servers that are known.
    pub fn servers(&self) -> usize {
        self.peers.len()
    }

    /// Returns the state of each other server at `now`, ns, in the order of their numbers.
    pub fn peers(&self, now: u64) -> impl Iterator<Item = PeerState> + '_ {
        self.peers.iter().map(move |(server, peer)| PeerState {
            server,
            age_ns: now.saturating_sub(peer.heard),
            left: peer.left,
            capacity: peer.capacity,
            records: peer.records.len(),
            datagrams: peer.datagrams,
            lost: peer.lost,
        })
    }

    /// Returns the state of all entities, in the order of the ids.
    pub fn states(&self) -> impl Iterator<Item = EntityState> + '_ {
        self.table.states()
    }

    /// Entities of this server.
    pub fn entities(&self) -> usize {
        self.table.len()
    }

    /// Returns the service of the entity `id` by others, 1/4096 units of cost per second.
    pub fn elsewhere(&self, id: u64) -> Option<u64> {
        self.table.elsewhere(id)
    }
}

#[cfg(test)]
mod tests;
