// SPDX-License-Identifier: GPL-2.0-only

//! Fair shares over several servers: each server sends its service rates to the others, and
//! corrects its own weights.
//!
//! The crate has two parts. The protocol ([`Exchange`]) uses neither sockets nor clocks. Its inputs
//! are accounts of the local nodes and received datagrams; its outputs are datagrams to send and
//! factors for the local weights. The [`daemon`] connects the protocol to the module ([`kernel`])
//! and to other servers ([`transport`]), as configured in `agent.toml` ([`config`]). The feature
//! `zenoh` adds a transport, the feature `daemon` the program `nrs-agent`.
//!
//! # Terms
//!
//! - *Server*: a participant, identified by a number. Its *epoch* increases with each start.
//! - *Realm*: servers that exchange messages. They have the same secret for path ids, the same mode
//!   and cost model.
//! - *Delta*: the time between two messages of a server, and between two steps of its rule.
//! - *Account*: the record of one part about one node of its tree ([`Account`]).
//! - *Message*: the datagrams that a server sends to the others in one delta ([`message`]).
//! - *Peer*: another server, and the records received from it ([`peers`]).
//! - *Level*: the service of an entity on all servers, per second, divided by its weight. Shares
//!   are fair if all entities served by a server have the same level, and no entity backlogged on
//!   the server has a lower level.
//! - *Factor*: multiplier of the weight of an entity on one server, which makes levels equal: above
//!   0 and at most 1, in Q31 ([`nrs_sched::policy::fairshare::factors::Factors`]).
//!
//! ```text
//!   fairshare parts                        once per delta
//!  ┌───────────────┐ accounts
//!  │ id, weight,   ├─────────► note ─┐                               ┌─► say ──► datagrams sent
//!  │ service,      │                 ├─► step: rates, levels, rule ──┤
//!  │ requests      │◄─ factors ──────┼───────────────────────────────┘
//!  └───────────────┘   (Update)      │
//!                          hear ─────┴───────────────────────────────── datagrams from servers
//! ```
//!
//! Messages are neither acknowledged nor retransmitted: each message contains current rates, and
//! the next one replaces them.
//!
//! # Trust
//!
//! The transport authenticates the sender of a datagram. A datagram that names another server as
//! its sender is refused, so a server sends records only for itself. The records of every server in
//! the realm are trusted. A malicious server can claim service to entities, or larger weights. Both
//! lower factors on other servers, but not below the floor, and by at most four octaves per delta.
//! A malicious server cannot starve an entity or stop a server. It cannot make the protocol use
//! more memory than the terms allow.
//!
//! # Hierarchies
//!
//! The rule is applied separately to each group of siblings, at every level of the mode: see
//! [`rule`].

pub mod config;
pub mod daemon;
pub mod directory;
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
pub mod toml;
pub mod transport;
#[cfg(feature = "zenoh")]
pub mod zenoh;

use message::Header;
use peers::Peers;
use table::Table;

pub use message::Refusal;
pub use nrs_sched::agent::Account;
pub use rule::Gains;

/// Maximum age at which saved corrections are used, ns.
pub const SAVED_NS: u64 = 60_000_000_000;

/// Parameters of a server in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Number of the realm; equal on all of its servers.
    pub realm: u64,
    /// Time between two steps, ns.
    pub delta_ns: u64,
    /// Number of deltas after which the rates of a silent server start to fade. Rates halve every
    /// `hold` deltas.
    pub hold: u32,
    /// Maximum number of other servers. Each needs less than 200 bytes of memory, plus its records.
    pub servers_max: u32,
    /// Maximum number of entities of this server, and of each other server.
    pub entities_max: u32,
    /// Maximum number of records of all other servers together; about 100 bytes of memory each.
    pub records_max: u32,
    /// Maximum size of a datagram, bytes; at least one record is sent.
    pub datagram_max: u32,
    /// Cost of a large request, in units of cost.
    pub grain: u32,
    /// Gains of the correction of weights.
    pub gains: Gains,
}

impl Default for Terms {
    /// Returns terms with a delta of 100 ms, 256 servers, 16,384 entities, Ethernet datagrams, and
    /// requests of 1 MiB.
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

    /// Returns the number of deltas after which a silent server, or an entity without accounts, is
    /// evicted.
    fn gone(&self) -> u64 {
        u64::from(self.hold) * 8
    }

    /// Returns the time after which a silent server is evicted, ns.
    fn eviction_ns(&self) -> u64 {
        self.delta_ns.saturating_mul(self.gone())
    }

    /// Returns the number of records that fit into a datagram.
    fn records_per_datagram(&self) -> usize {
        let bytes = (self.datagram_max as usize).saturating_sub(message::HEADER);
        (bytes / message::RECORD).clamp(1, usize::from(u16::MAX))
    }
}

/// Event counters of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of datagrams sent.
    pub said: u64,
    /// Bytes of the datagrams sent.
    pub said_bytes: u64,
    /// Number of datagrams accepted.
    pub heard: u64,
    /// Bytes of the datagrams accepted.
    pub heard_bytes: u64,
    /// Number of datagrams that are not messages, or have another version.
    pub malformed: u64,
    /// Number of datagrams from another realm, from this server, or naming a server that is not
    /// their sender.
    pub foreign: u64,
    /// Number of datagrams that are old or duplicates.
    pub stale: u64,
    /// Number of datagrams for which there was no room.
    pub crowded: u64,
    /// Number of accounts for which there was no room.
    pub left_out: u64,
}

impl Counts {
    /// Counts the outcome of a datagram of `bytes`.
    fn count_datagram(&mut self, result: Result<(), Refusal>, bytes: usize) {
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
    /// Number of the server.
    pub server: u64,
    /// Time since the last datagram of the server, ns.
    pub age_ns: u64,
    /// True if the server announced that it leaves.
    pub left: bool,
    /// Capacity of the server, units of cost per second.
    pub capacity: u64,
    /// Number of entities in the records of the server.
    pub records: usize,
    /// Number of datagrams received.
    pub datagrams: u64,
    /// Number of datagrams lost.
    pub lost: u64,
}

/// State of an entity after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityState {
    /// Id of the entity.
    pub id: u64,
    /// True if the entity is a leaf.
    pub leaf: bool,
    /// True if the entity has queued requests on this server.
    pub waiting: bool,
    /// Weight that applies on all servers.
    pub weight: u32,
    /// Factor of the entity, Q31.
    pub factor: u32,
    /// Service on this server, units of cost per second.
    pub here: u64,
    /// Service on other servers, units of cost per second.
    pub elsewhere: u64,
}

/// State machine of one server in the protocol.
pub struct Exchange {
    server: u64,
    epoch: u64,
    terms: Terms,
    /// Number of the message of the last step, wrapping.
    seq: u32,
    /// Shared clock of all servers minus the local clock, ns, wrapping.
    ahead: u64,
    peers: Peers,
    table: Table,
    counts: Counts,
}

impl Exchange {
    /// Creates the server with number `server`, not 0, and the given `epoch`.
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

    /// Sets the offset of the clock that all servers share: it reads `shared`, ns, at `now`.
    ///
    /// All other times are of a clock of the caller that never jumps; without a call of `sync` it
    /// is the shared clock. The shared clock determines the age of messages. If the age is wrong,
    /// corrections are slower or less exact, but converge to the same shares.
    pub fn sync(&mut self, now: u64, shared: u64) {
        self.ahead = shared.wrapping_sub(now);
    }

    /// Records the account of one node in one part since the last step. Each node of each part is
    /// recorded once, in any order. Nodes with the same path are combined.
    pub fn record(&mut self, account: &Account) {
        self.table.record(account);
    }

    /// Processes a datagram from the server `from`, as authenticated by the transport, which
    /// arrived at `now`, ns.
    ///
    /// # Errors
    ///
    /// The reason for which the datagram is refused; the refusal is counted.
    pub fn receive(&mut self, from: u64, bytes: &[u8], now: u64) -> Result<(), Refusal> {
        let result = self.admit(from, bytes, now);
        self.counts.count_datagram(result, bytes.len());
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
        // A timestamp in the future counts as an age of 0.
        let age = age.max(0) as u64;
        self.peers.receive(&header, &records, &self.terms, age, now)
    }

    /// Makes a step of the rule at `now`, ns, from the accounts since the last step and the records
    /// of peers.
    ///
    /// O((n + r) log n) for n entities and r records of all peers.
    pub fn step(&mut self, now: u64) {
        self.seq = self.seq.wrapping_add(1);
        self.peers.forget(&self.terms, now);
        self.counts.left_out += self.table.step(&self.peers, &self.terms, now);
    }

    /// Returns the ids and factors (Q31) of all entities of this server after the last step,
    /// ordered by id.
    pub fn factors(&self) -> Vec<(u64, u32)> {
        self.table.factors()
    }

    /// Returns the datagrams of the message of the last step, at `now`, ns; none before rates are
    /// known.
    pub fn encode(&mut self, now: u64) -> Vec<Vec<u8>> {
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

    /// Returns the farewell of a server that leaves at `now`, ns: the others stop counting the
    /// rates it has sent.
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

    /// Returns the header of a message of one datagram, with rates of `time`, ns.
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

    /// Restores corrections that were saved `age` ns ago, as initial values of entities. Returns
    /// true if they are used: not if they are older than [`SAVED_NS`] or malformed.
    pub fn restore(&mut self, bytes: &[u8], age: u64) -> bool {
        age <= SAVED_NS && self.table.restore(bytes)
    }

    /// Returns the event counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of other servers that are known.
    pub fn servers(&self) -> usize {
        self.peers.len()
    }

    /// Returns the state of each other server at `now`, ns, ordered by server number.
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

    /// Returns the state of all entities, ordered by id.
    pub fn states(&self) -> impl Iterator<Item = EntityState> + '_ {
        self.table.states()
    }

    /// Returns the number of entities of this server.
    pub fn entities(&self) -> usize {
        self.table.len()
    }

    /// Returns the service of the entity `id` on other servers, 1/4096 units of cost per second.
    pub fn elsewhere(&self, id: u64) -> Option<u64> {
        self.table.elsewhere(id)
    }
}

#[cfg(test)]
mod tests;
