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

use super::{
    message::{Header, Record, Records, Refusal, COUNTER_BITS},
    Terms,
};
use crate::sched::{mem::List, sort::sort_by};

/// Bits after the point of a rate.
pub const RATE_BITS: u32 = 4;

/// Largest rate, in sixteenths of a unit of cost per second; what is above counts as this.
pub const RATE_MAX: u64 = 1 << 40;

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

/// Largest difference of two counters that counts, units.
const SERVICE_MAX: u64 = 1 << 36;

/// Units of service in `us` as a rate, at most [`RATE_MAX`]; 0 if no time passed.
pub fn rate(service: u64, us: u64) -> u64 {
    let service = service.min(SERVICE_MAX) << RATE_BITS;
    let rate = service.saturating_mul(SECOND).checked_div(us);
    rate.unwrap_or(0).min(RATE_MAX)
}

/// What a peer said of one entity.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its path, hashed.
    pub id: u64,
    /// Service, in sixteenths of a unit per second.
    pub rate: u64,
    /// How much of the peer's capacity is where the entity has requests.
    pub presence: u16,
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
            id: record.id,
            rate: 0,
            presence: record.presence,
            based: true,
            counter: record.counter,
            time_us,
            heard: now,
            given: None,
        }
    }

    /// Of `capacity`, what is where the entity has requests.
    pub const fn part_of(&self, capacity: u64) -> u64 {
        capacity.saturating_mul(self.presence as u64) / 65_535
    }

    /// Whether it was heard lately enough to count at `now`, ns.
    pub const fn counts(&self, terms: &Terms, now: u64) -> bool {
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
            let service = record.counter.wrapping_sub(self.counter);
            let service = service & const { (1 << COUNTER_BITS) - 1 };
            // What was taken back is no service.
            let back = service >> const { COUNTER_BITS - 1 } == 1;
            self.rate = rate(if back { 0 } else { service }, elapsed);
        }
        self.based = true;
        self.counter = record.counter;
        self.time_us = time_us;
    }
}

/// A server that was heard.
///
/// # Invariants
///
/// `records` is sorted by id, without an id twice.
pub struct Peer {
    /// Its number.
    pub server: u64,
    /// Its capacity, units of cost per second.
    pub capacity: u64,
    epoch: u64,
    seq: u32,
    /// Which datagrams of the message `seq` were heard, as bits.
    parts: [u64; 4],
    /// When it was heard last, our ns.
    heard: u64,
    /// When its records were looked through for old ones, our ns.
    swept: u64,
    records: List<Known>,
}

impl Peer {
    /// What it said, in the order of the ids.
    pub fn records(&self) -> &[Known] {
        self.records.as_slice()
    }

    /// The same, for writing; the ids stay.
    pub fn records_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.records.as_mut_slice().iter_mut()
    }

    /// Whether the datagram is news; notes that it was heard.
    fn admit(&mut self, header: &Header) -> Result<(), Refusal> {
        if header.epoch < self.epoch {
            return Err(Refusal::Old);
        }
        if header.epoch > self.epoch {
            for known in self.records.as_mut_slice() {
                known.based = false;
            }
            self.epoch = header.epoch;
            self.seq = header.seq;
            self.parts = [0; 4];
        }
        let ahead = header.seq.wrapping_sub(self.seq) as i32;
        if ahead < 0 {
            return Err(Refusal::Old);
        }
        if ahead > 0 {
            self.seq = header.seq;
            self.parts = [0; 4];
        }
        let bit = 1u64.wrapping_shl(u32::from(header.part));
        let word = self.parts.get_mut(usize::from(header.part >> 6));
        let word = word.ok_or(Refusal::Malformed)?;
        if *word & bit != 0 {
            return Err(Refusal::Duplicate);
        }
        *word |= bit;
        Ok(())
    }

    /// Stores `records`, of which up to `room` may be new.
    fn store(
        &mut self,
        header: &Header,
        records: Records<'_>,
        room: usize,
        shortest_us: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        let known = self.records.as_slice().len();
        let mut fresh = 0usize;
        let mut left_out = false;
        let mut from = 0usize;
        for record in records {
            let sorted = self.records.as_mut_slice().get_mut(from..known);
            let sorted = sorted.unwrap_or_default();
            // Most follow each other here as there.
            let found = match sorted.first() {
                Some(first) if first.id == record.id => Ok(0),
                _ => sorted.binary_search_by(|known| known.id.cmp(&record.id)),
            };
            match found {
                Ok(at) => {
                    if let Some(known) = sorted.get_mut(at) {
                        known.hear(&record, header.time_us, shortest_us, now);
                    }
                    from = from.saturating_add(at).saturating_add(1);
                }
                Err(at) => {
                    from = from.saturating_add(at);
                    if fresh >= room {
                        left_out = true;
                        continue;
                    }
                    let new = Known::new(&record, header.time_us, now);
                    self.records.push(new).map_err(|_| Refusal::NoMemory)?;
                    fresh = fresh.saturating_add(1);
                }
            }
        }
        if fresh > 0 {
            // INVARIANT: new ones were not there, and differ.
            order(self.records.as_mut_slice(), |known| known.id);
        }
        if left_out {
            Err(Refusal::Crowded)
        } else {
            Ok(())
        }
    }

    /// Forgets records that were not heard for `old` ns, now and then.
    fn sweep(&mut self, old: u64, now: u64) {
        if now.saturating_sub(self.swept) < old {
            return;
        }
        self.swept = now;
        retain(&mut self.records, |known| {
            now.saturating_sub(known.heard) < old
        });
    }
}

/// Sorts `slice` by `key` if it is not.
pub fn order<T>(slice: &mut [T], key: impl Fn(&T) -> u64) {
    if !slice.is_sorted_by_key(&key) {
        sort_by(slice, |a, b| key(a).cmp(&key(b)));
    }
}

/// Keeps what `keep` says, in its order.
pub fn retain<T>(list: &mut List<T>, keep: impl Fn(&T) -> bool) {
    let slice = list.as_mut_slice();
    let mut kept = 0usize;
    for from in 0..slice.len() {
        if slice.get(from).is_some_and(&keep) {
            slice.swap(kept, from);
            kept = kept.wrapping_add(1);
        }
    }
    list.truncate(kept);
}

/// All servers that were heard.
///
/// # Invariants
///
/// `list` is sorted by server, without one twice; there are at most as many peers and records as the terms say.
pub struct Peers {
    list: List<Peer>,
}

impl Peers {
    /// Nobody. Does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: nobody is in it.
        Self { list: List::new() }
    }

    /// Peers that are not gone at `now`, ns.
    pub fn live<'a>(&'a self, terms: &Terms, now: u64) -> impl Iterator<Item = &'a Peer> + 'a {
        let hold = terms.hold_ns();
        let live = move |peer: &&Peer| now.saturating_sub(peer.heard) <= hold;
        self.list.as_slice().iter().filter(live)
    }

    /// The same, for writing.
    pub fn live_mut<'a>(
        &'a mut self,
        terms: &Terms,
        now: u64,
    ) -> impl Iterator<Item = &'a mut Peer> + 'a {
        let hold = terms.hold_ns();
        let live = move |peer: &&mut Peer| now.saturating_sub(peer.heard) <= hold;
        self.list.as_mut_slice().iter_mut().filter(live)
    }

    /// Number of peers, also of those that are gone.
    pub fn len(&self) -> usize {
        self.list.as_slice().len()
    }

    /// Number of records of all peers.
    pub fn records(&self) -> usize {
        let peers = self.list.as_slice().iter();
        peers.fold(0, |sum, peer| sum.saturating_add(peer.records().len()))
    }

    /// Takes in the datagram of `header` and `records` that came at `now`, ns. Sleeps.
    ///
    /// # Errors
    ///
    /// - [`Refusal::Old`], [`Refusal::Duplicate`]: it is no news.
    /// - [`Refusal::Crowded`]: there are too many peers, and nothing was stored; or too many records, and those
    ///   that were there already were.
    /// - [`Refusal::NoMemory`].
    pub fn hear(
        &mut self,
        header: &Header,
        records: Records<'_>,
        terms: &Terms,
        now: u64,
    ) -> Result<(), Refusal> {
        let all = self.records();
        let at = match self.find(header.server) {
            Ok(at) => at,
            Err(at) => {
                self.add(at, header, terms, now)?;
                at
            }
        };
        let peer = self.list.as_mut_slice().get_mut(at);
        let peer = peer.ok_or(Refusal::NoMemory)?;
        peer.admit(header)?;
        peer.heard = now;
        peer.capacity = header.capacity.min(const { RATE_MAX >> RATE_BITS });
        peer.sweep(terms.hold_ns(), now);
        // INVARIANT: no more than there is room for.
        let room = (terms.records_max as usize).saturating_sub(all);
        let own = (terms.entities_max as usize).saturating_sub(peer.records().len());
        peer.store(header, records, room.min(own), terms.delta_ns / 4000, now)
    }

    fn find(&self, server: u64) -> Result<usize, usize> {
        let list = self.list.as_slice();
        list.binary_search_by(|peer| peer.server.cmp(&server))
    }

    /// Adds the sender of `header` at `at`, where it belongs.
    fn add(&mut self, at: usize, header: &Header, terms: &Terms, now: u64) -> Result<(), Refusal> {
        if self.len() >= terms.servers_max as usize {
            return Err(Refusal::Crowded);
        }
        let peer = Peer {
            server: header.server,
            capacity: 0,
            epoch: header.epoch,
            seq: header.seq,
            parts: [0; 4],
            heard: now,
            swept: now,
            records: List::new(),
        };
        self.list.push(peer).map_err(|_| Refusal::NoMemory)?;
        // INVARIANT: those above it make room.
        if let Some(above) = self.list.as_mut_slice().get_mut(at..) {
            for from in (1..above.len()).rev() {
                above.swap(from, from.wrapping_sub(1));
            }
        }
        Ok(())
    }

    /// Forgets peers that are gone for long.
    pub fn forget(&mut self, terms: &Terms, now: u64) {
        let long = terms.hold_ns().saturating_mul(4);
        retain(&mut self.list, |peer| {
            now.saturating_sub(peer.heard) <= long
        });
    }
}

#[cfg(test)]
mod tests;
