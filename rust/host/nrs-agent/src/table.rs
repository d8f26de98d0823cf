// SPDX-License-Identifier: GPL-2.0-only

//! Entities of one server: their service, and the factors calculated from it.
//!
//! `noted` holds the combined accounts of all parts since the last step. An [`Entry`] is the state
//! of a node.
//!
//! ```text
//!  note ──► noted ──settle──► entry: service ──climb──► ancestors, too ──gather──► and elsewhere
//!                                                                                      │
//!              factors ◄── theta ◄── rule, group by group ◄── rates, by the plan ◄─────┘
//!                                        │
//!              records ◄── rates of the next delta ◄── plan
//! ```

use std::collections::BTreeMap;

use super::{
    log2::{power, scale},
    message::{round, Record},
    peers::{rate, Peers, RATE_BITS, RATE_MAX},
    plan,
    rule::{self, Member, DEEPEST, DELTAS},
    Account, EntityState, Terms,
};

/// Maximum number of levels of a tree; service is not propagated further.
const DEPTH: usize = 16;

/// Number of steps for which an idle entity is still sent, so that peers learn about it if messages
/// are lost.
const IDLE_STEPS_SENT: u32 = 32;

/// Maximum service between two steps that is counted, units.
const SERVICE_MAX: u64 = 1 << 36;

/// Maximum time between two steps that is counted, us.
const STEP_US_MAX: u64 = 1 << 32;

/// Magic number at the start of saved corrections.
const SAVED: &[u8] = b"NRST";

/// Size of a saved correction, bytes: id and theta, little endian.
const SAVED_EACH: usize = 12;

/// State of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    parent: u64,
    leaf: bool,
    active: bool,
    /// Number of steps since the last account of the node.
    unseen: u32,
    /// Number of steps since the node was active.
    idle: u32,
    /// Service in the last account, or the highest before service was taken back.
    reported: u64,
    /// Capacity of the other servers where the node is active, units per second.
    capacity: u64,
    member: Member,
}

impl Entry {
    /// Applies an account. A difference above `most` units is not service of this step. A decrease
    /// of up to `slack` units is service taken back by the cost model `time`, which is not counted
    /// again. A larger decrease means that a part has evicted the node.
    fn apply(&mut self, account: &Account, most: u64, slack: u64) {
        let since = account.service.wrapping_sub(self.reported);
        let counted = if since <= most { since } else { 0 };
        if since.wrapping_neg() > slack {
            self.reported = account.service;
        }
        self.parent = account.parent;
        self.leaf = account.leaf;
        self.unseen = 0;
        let member = &mut self.member;
        member.here = account.weight.max(1);
        member.weight = round(member.here);
        self.active = account.active;
        member.waiting = account.waiting;
        member.counted = counted;
    }

    /// Prepares the member for the rule on a server with `capacity`.
    fn prepare(&mut self, capacity: u64) {
        // A node that was served is active, even if it had no requests when the accounts were read.
        self.active |= self.member.counted > 0;
        self.idle = if self.active { 0 } else { self.idle + 1 };
        // A capacity is at most 2^36; the number of servers is limited by the terms.
        let home = (capacity << 16).checked_div(capacity.saturating_add(self.capacity));
        self.member.home = home.map_or(1 << 16, |home| home.clamp(1, 1 << 16) as u32);
    }
}

/// Entities of a server.
#[derive(Default)]
pub struct Table {
    /// Accounts since the last step, by id, like `entries`.
    noted: BTreeMap<u64, Account>,
    entries: BTreeMap<u64, Entry>,
    /// Saved thetas of entities without an account yet.
    saved: BTreeMap<u64, i32>,
    /// Time of the last step, ns.
    stepped: Option<u64>,
    /// Number of steps.
    steps: u32,
    /// Recent service to all entities, units per second.
    capacity: u64,
}

impl Table {
    /// Returns the number of entities.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the recent service to all entities, units per second.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns true if rates are known: after two steps.
    pub fn has_rates(&self) -> bool {
        self.steps >= 2
    }

    /// Records an account.
    pub fn record(&mut self, account: &Account) {
        if account.id == 0 || account.id == u64::MAX {
            return;
        }
        let noted = self.noted.entry(account.id);
        noted
            .and_modify(|noted| {
                noted.service = noted.service.wrapping_add(account.service);
                noted.weight = noted.weight.max(account.weight);
                noted.active |= account.active;
                noted.waiting |= account.waiting;
            })
            .or_insert(*account);
    }

    /// Makes a step at `now`, ns, from the recorded accounts and the records of `peers`; returns
    /// the number of accounts without room.
    pub fn step(&mut self, peers: &Peers, terms: &Terms, now: u64) -> u64 {
        let us = match self.stepped {
            Some(before) => (now.saturating_sub(before) / 1000).min(STEP_US_MAX),
            None => 0,
        };
        self.stepped = Some(now);
        self.steps = self.steps.saturating_add(1);
        let gone = terms.gone();
        if u64::from(self.steps) > gone {
            self.saved.clear();
        }
        let left_out = self.apply_accounts(terms, us);
        self.measure(us);
        self.climb();
        self.gather(peers, terms, now);
        self.correct(terms, us);
        self.entries
            .retain(|_, entry| u64::from(entry.unseen) <= gone);
        left_out
    }

    /// Applies the recorded accounts, after `us`; returns the number of accounts without room.
    fn apply_accounts(&mut self, terms: &Terms, us: u64) -> u64 {
        for entry in self.entries.values_mut() {
            entry.unseen += 1;
            entry.active = false;
            entry.capacity = 0;
            let member = &mut entry.member;
            member.waiting = false;
            member.counted = 0;
            member.elsewhere = 0;
            member.lag = 0;
        }
        // The service of a new node is counted for this step, unless it is too large.
        let slack = plan::slack(terms.grain).unsigned_abs();
        let most = (self.capacity * 2).saturating_mul(us) / 1_000_000;
        let mut left_out = 0;
        for (id, account) in std::mem::take(&mut self.noted) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.apply(&account, SERVICE_MAX, slack);
            } else if self.entries.len() < terms.entities_max as usize {
                let mut entry = Entry::default();
                entry.member.theta = self.saved.remove(&id).unwrap_or(0);
                entry.apply(&account, most, slack);
                self.entries.insert(id, entry);
            } else {
                left_out += 1;
            }
        }
        left_out
    }

    /// Updates the capacity from the service to all nodes in `us`.
    fn measure(&mut self, us: u64) {
        let counted = self.entries.values().map(|entry| entry.member.counted);
        let all: u64 = counted.sum();
        let fade = self.capacity - (self.capacity >> 6);
        let served = all.min(SERVICE_MAX) << RATE_BITS;
        self.capacity = (rate(served, us) >> RATE_BITS).max(fade);
    }

    /// Adds the service and the state of each node to all of its ancestors.
    fn climb(&mut self) {
        let served = |entry: &&Entry| entry.active || entry.member.counted > 0;
        let own: Vec<Entry> = self.entries.values().filter(served).copied().collect();
        for one in own {
            let mut up = one.parent;
            for _ in 0..DEPTH {
                let Some(node) = self.entries.get_mut(&up).filter(|node| !node.leaf) else {
                    break;
                };
                node.active |= one.active;
                node.member.counted += one.member.counted;
                node.member.waiting |= one.member.waiting;
                up = node.parent;
            }
        }
    }

    /// Adds the rates of peers. Each rate is scaled by the corrections made here since then,
    /// because the peer has made the same corrections.
    fn gather(&mut self, peers: &Peers, terms: &Terms, now: u64) {
        let delta = terms.delta_ns.max(1);
        for (_, peer) in peers.iter() {
            for (id, known) in &peer.records {
                let Some(entry) = self.entries.get_mut(id) else {
                    continue;
                };
                let member = &mut entry.member;
                // The rate is for the delta that begins when the record is sent; a rate of the last
                // delta has lag 0.
                let age = now.saturating_sub(known.sent).saturating_add(delta / 2) / delta;
                let deltas = (age.saturating_sub(1) as usize).min(DELTAS - 1);
                member.lag = member.lag.max(deltas as u8);
                let by = member.moved[0].wrapping_sub(member.moved[deltas]);
                let rate = scale(known.rate(terms, now), by);
                member.elsewhere = (member.elsewhere + rate).min(RATE_MAX);
                if known.active {
                    entry.capacity = entry.capacity.saturating_add(peer.capacity);
                    member.weight = member.weight.max(known.weight);
                }
            }
        }
    }

    /// Calculates rates and corrects thetas, group by group.
    fn correct(&mut self, terms: &Terms, us: u64) {
        let mut groups = BTreeMap::<u64, Vec<&mut Member>>::new();
        for entry in self.entries.values_mut() {
            entry.prepare(self.capacity);
            let group = groups.entry(entry.parent).or_default();
            group.push(&mut entry.member);
        }
        for members in groups.values_mut() {
            plan::measure(members, us, terms.grain);
            if us > 0 {
                rule::step(members, &terms.gains);
            }
            plan::foresee(members);
        }
    }

    /// Returns the ids and factors of all entities, ordered by id.
    pub fn factors(&self) -> Vec<(u64, u32)> {
        let factor = |(id, entry): (&u64, &Entry)| (*id, power(entry.member.theta));
        self.entries.iter().map(factor).collect()
    }

    /// Returns the state of all entities, ordered by id.
    pub fn states(&self) -> impl Iterator<Item = EntityState> + '_ {
        self.entries.iter().map(|(id, entry)| EntityState {
            id: *id,
            leaf: entry.leaf,
            waiting: entry.member.waiting,
            weight: entry.member.weight,
            factor: power(entry.member.theta),
            here: entry.member.own >> RATE_BITS,
            elsewhere: entry.member.elsewhere >> RATE_BITS,
        })
    }

    /// Returns the records to send, ordered by id: of entities that are or recently were active.
    pub fn records(&self) -> Vec<Record> {
        let record = |(id, entry): (&u64, &Entry)| Record {
            id: *id,
            rate: entry.member.next,
            weight: entry.member.here,
            active: entry.active,
        };
        let recent = self.entries.iter();
        let recent = recent.filter(|(_, entry)| entry.idle <= IDLE_STEPS_SENT);
        recent.map(record).collect()
    }

    /// Returns the service of `id` on other servers, 1/4096 units per second.
    pub fn elsewhere(&self, id: u64) -> Option<u64> {
        Some(self.entries.get(&id)?.member.elsewhere)
    }

    /// Returns the thetas of all entities as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut out = SAVED.to_vec();
        for (id, entry) in &self.entries {
            out.extend(id.to_le_bytes());
            out.extend(entry.member.theta.to_le_bytes());
        }
        out
    }

    /// Stores saved thetas for new entities; returns true if `bytes` are saved thetas.
    pub fn restore(&mut self, bytes: &[u8]) -> bool {
        let parse = |each: &[u8]| {
            let (id, theta) = each.split_first_chunk()?;
            let theta = i32::from_le_bytes(theta.try_into().ok()?);
            let valid = (DEEPEST..=0).contains(&theta);
            valid.then_some((u64::from_le_bytes(*id), theta))
        };
        let each = bytes
            .strip_prefix(SAVED)
            .map(|rest| rest.chunks(SAVED_EACH));
        let parsed = each.and_then(|each| each.map(parse).collect());
        let is_saved = parsed.is_some();
        self.saved = parsed.unwrap_or_default();
        is_saved
    }
}

#[cfg(test)]
mod tests;
