// SPDX-License-Identifier: GPL-2.0-only

//! The entities of one server: what it serves them, and what it makes of that.
//!
//! # Vocabulary
//!
//! - *Noted*: what all parts told of one node since the last step.
//! - *Entry*: what is kept of a node ([`Entry`]).
//! - *Grain*: a large request; a rate is new when [`GRAINS`] of them were served, or after a second.
//!
//! ```text
//!  note ──► noted ──merge──► entry: service ──climb──► of its ancestors too ──gather──► and elsewhere
//!                                                                                          │
//!              factors ◄── theta ◄── rule, group by group ◄── rates and presence ◄─────────┘
//! ```

use nrs_sched::units::USEC_PER_SEC;
use std::collections::BTreeMap;

use super::{
    log2::power,
    message::{Record, PRESENT},
    peers::{rate, Peers, RATE_BITS, RATE_MAX},
    rule::{self, Member},
    Account, Terms,
};

/// Grains of service after which a rate is new.
pub const GRAINS: u64 = 8;

/// Levels of a tree, at most; what is deeper is not summed up.
const DEPTH: usize = 16;

/// Steps for which an entity that went idle is still told, so that others hear of it if messages are lost.
const TOLD_IDLE: u32 = 32;

/// Steps within which an entity that is new here may start from its home, once others are heard of.
const STARTS: u32 = 4;

/// What is kept of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    parent: u64,
    weight: u32,
    leaf: bool,
    active: bool,
    waiting: bool,
    /// Whether its rates are of this step.
    fresh: bool,
    /// Whether it started from its home, or may not any more.
    started: bool,
    /// Steps since it was made.
    age: u32,
    /// Steps since it was noted.
    unseen: u32,
    /// Steps since it was active.
    idle: u32,
    /// What its parts told last.
    told: u64,
    /// Service here in all, units of cost, wrapping.
    counter: u64,
    /// Service here since the last step, units.
    step: u64,
    /// Service elsewhere now, sixteenths of a unit per second.
    elsewhere: u64,
    /// Capacity of the others where it is, units per second.
    capacity: u64,
    /// Service here and elsewhere since the rates were new, sixteenths, and for how long, us.
    sums: [u64; 2],
    sums_us: u64,
    /// Rates here and everywhere, sixteenths of a unit per second.
    own: u64,
    service: u64,
    theta: i32,
    /// Steps in which it was corrected the same way.
    run: i8,
}

impl Entry {
    /// The entry of a node that is new; [`Entry::note`] says the rest.
    fn new(account: &Account) -> Self {
        Self {
            told: account.service,
            ..Self::default()
        }
    }

    /// Takes over what was noted.
    fn note(&mut self, account: &Account) {
        let since = account.service.wrapping_sub(self.told);
        self.told = account.service;
        self.parent = account.parent;
        self.weight = account.weight.max(1);
        self.leaf = account.leaf;
        self.unseen = 0;
        if self.leaf {
            self.active = account.active;
            self.waiting = account.waiting;
            // What was taken back is no service, and a part that forgot a node starts it again.
            self.step = if since >> 36 == 0 { since } else { 0 };
        }
    }

    /// Adds what was served in the last `us`, and makes rates of it if it is enough.
    fn measure(&mut self, us: u64, terms: &Terms) {
        self.counter = self.counter.wrapping_add(self.step);
        self.age = self.age.saturating_add(1);
        // Who was served is there, even if it had nothing when it was asked.
        self.active |= self.step > 0;
        self.idle = if self.active {
            0
        } else {
            self.idle.saturating_add(1)
        };
        self.fresh = false;
        if self.age <= 1 {
            return;
        }
        let [own, elsewhere] = &mut self.sums;
        *own += self.step << RATE_BITS;
        // A rate is at most 2^40 and a step is below 2^22 us.
        *elsewhere += self.elsewhere * us.min(1 << 22) / USEC_PER_SEC;
        self.sums_us += us;
        let enough = u64::from(terms.grain) * (GRAINS << RATE_BITS);
        if *own + *elsewhere >= enough || self.sums_us >= USEC_PER_SEC {
            let us = self.sums_us;
            self.own = rate(*own >> RATE_BITS, us);
            self.service = self.own + rate(*elsewhere >> RATE_BITS, us);
            self.sums = [0; 2];
            self.sums_us = 0;
            self.fresh = us > 0;
        }
    }

    /// Home, Q16, of a server with `capacity`.
    fn home(&self, capacity: u64) -> u32 {
        let all = capacity + self.capacity;
        // A capacity is at most 2^40.
        let home = (capacity << 16).checked_div(all).unwrap_or(1 << 16);
        home.clamp(1, 1 << 16) as u32
    }
}

/// The entities of a server.
#[derive(Default)]
pub struct Table {
    /// By id, as are the entries.
    noted: BTreeMap<u64, Account>,
    entries: BTreeMap<u64, Entry>,
    /// When the last step was, ns.
    stepped: Option<u64>,
    /// Service to all of late, units per second.
    capacity: u64,
}

impl Table {
    /// Number of entities.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Service to all of late, units per second.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Notes an account.
    pub fn note(&mut self, account: &Account) {
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

    /// A step at `now`, ns, from what was noted and what `peers` said. How many accounts found no room.
    pub fn step(&mut self, peers: &Peers, terms: &Terms, now: u64) -> u64 {
        let us = match self.stepped {
            Some(before) => now.saturating_sub(before) / 1000,
            None => 0,
        };
        self.stepped = Some(now);
        let left_out = self.settle(terms);
        self.climb();
        self.gather(peers, terms, now);
        self.measure(us, terms);
        self.correct(terms);
        self.entries.retain(|_, entry| entry.unseen <= terms.hold);
        left_out
    }

    /// Takes over what was noted.
    fn settle(&mut self, terms: &Terms) -> u64 {
        for entry in self.entries.values_mut() {
            entry.unseen += 1;
            entry.active = false;
            entry.waiting = false;
            entry.step = 0;
            entry.elsewhere = 0;
            entry.capacity = 0;
        }
        let mut left_out = 0;
        for (id, account) in std::mem::take(&mut self.noted) {
            let is_full = self.entries.len() >= terms.entities_max as usize;
            if is_full && !self.entries.contains_key(&id) {
                left_out += 1;
                continue;
            }
            let entry = self.entries.entry(id);
            entry.or_insert_with(|| Entry::new(&account)).note(&account);
        }
        left_out
    }

    /// Adds what leaves are and got to all nodes above them.
    fn climb(&mut self) {
        let served = |entry: &&Entry| entry.leaf && (entry.active || entry.step > 0);
        let leaves: Vec<Entry> = self.entries.values().filter(served).copied().collect();
        for leaf in leaves {
            let mut up = leaf.parent;
            for _ in 0..DEPTH {
                let Some(node) = self.entries.get_mut(&up).filter(|node| !node.leaf) else {
                    break;
                };
                node.step += leaf.step;
                node.active |= leaf.active;
                node.waiting |= leaf.waiting;
                up = node.parent;
            }
        }
    }

    /// Adds what peers said.
    fn gather(&mut self, peers: &Peers, terms: &Terms, now: u64) {
        for (_, peer) in peers.live(terms, now) {
            for (id, known) in &peer.records {
                if !known.counts(terms, now) {
                    continue;
                }
                if let Some(entry) = self.entries.get_mut(id) {
                    let there = known.part_of(peer.capacity);
                    entry.elsewhere = (entry.elsewhere + known.rate).min(RATE_MAX);
                    entry.capacity = (entry.capacity + there).min(RATE_MAX);
                }
            }
        }
    }

    /// Makes rates.
    fn measure(&mut self, us: u64, terms: &Terms) {
        let mut all = 0;
        for entry in self.entries.values_mut() {
            entry.measure(us, terms);
            if entry.leaf {
                all += entry.step;
            }
        }
        let fade = self.capacity - (self.capacity >> 6);
        self.capacity = (rate(all, us) >> RATE_BITS).max(fade);
    }

    /// The rule, group by group.
    fn correct(&mut self, terms: &Terms) {
        let mut groups = BTreeMap::<u64, Vec<Member>>::new();
        for (&id, entry) in &mut self.entries {
            let member = entry.member(id, self.capacity);
            groups.entry(entry.parent).or_default().push(member);
        }
        for mut members in groups.into_values() {
            rule::step(&mut members, &terms.gains);
            for member in members {
                if let Some(entry) = self.entries.get_mut(&member.id) {
                    entry.theta = member.theta;
                    entry.run = member.run;
                }
            }
        }
    }

    /// The ids and factors of all entities, in the order of the ids.
    pub fn factors(&self) -> Vec<(u64, u32)> {
        let factor = |(id, entry): (&u64, &Entry)| (*id, power(entry.theta));
        self.entries.iter().map(factor).collect()
    }

    /// What others are to be told, in the order of the ids: entities that are active, or were of late.
    pub fn records(&self) -> Vec<Record> {
        let record = |(id, entry): (&u64, &Entry)| Record {
            id: *id,
            counter: entry.counter,
            presence: if entry.active { PRESENT } else { 0 },
        };
        let told = self.entries.iter();
        let told = told.filter(|(_, entry)| entry.idle <= TOLD_IDLE);
        told.map(record).collect()
    }

    /// Service of `id` elsewhere, sixteenths of a unit per second.
    pub fn elsewhere(&self, id: u64) -> Option<u64> {
        Some(self.entries.get(&id)?.elsewhere)
    }
}

impl Entry {
    /// The entry, with its `id`, for the rule of a server with `capacity`.
    fn member(&mut self, id: u64, capacity: u64) -> Member {
        let starts = !self.started && self.active && self.capacity > 0;
        if starts || self.age > STARTS {
            self.started = true;
        }
        Member {
            id,
            weight: self.weight,
            own: self.own,
            service: self.service,
            home: self.home(capacity),
            waiting: self.waiting,
            fresh: self.fresh,
            starts,
            theta: self.theta,
            run: self.run,
        }
    }
}

#[cfg(test)]
mod tests;
