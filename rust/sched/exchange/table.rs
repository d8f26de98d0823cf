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

use super::{
    log2::power,
    message::{Record, PRESENT},
    peers::{order, rate, retain, Peers, RATE_BITS, RATE_MAX},
    rule::{self, Member},
    Account, Factors, Terms,
};
use crate::sched::{
    mem::{List, NoMemory},
    sort::{merge_sorted, radix},
};

/// Grains of service after which a rate is new.
pub const GRAINS: u64 = 8;

/// The same, microseconds.
const SECOND_US: u64 = 1_000_000;

/// Levels of a tree, at most; what is deeper is not summed up.
const DEPTH: usize = 16;

/// Steps for which an entity that went idle is still told, so that others hear of it if messages are lost.
const TOLD_IDLE: u32 = 32;

/// Steps within which an entity that is new here may start from its home, once others are heard of.
const STARTS: u32 = 4;

/// What is kept of a node.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
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
    fn new(account: &Account) -> Self {
        Self {
            id: account.id,
            parent: account.parent,
            weight: account.weight.max(1),
            leaf: account.leaf,
            active: false,
            waiting: false,
            fresh: false,
            started: false,
            age: 0,
            unseen: 0,
            idle: 0,
            told: account.service,
            counter: 0,
            step: 0,
            elsewhere: 0,
            capacity: 0,
            sums: [0; 2],
            sums_us: 0,
            own: 0,
            service: 0,
            theta: 0,
            run: 0,
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
        *own = own.saturating_add(self.step << RATE_BITS);
        // A rate is below 2^41 and a step is below 2^22 us.
        let more = self.elsewhere.saturating_mul(us.min(1 << 22)) / SECOND_US;
        *elsewhere = elsewhere.saturating_add(more);
        self.sums_us = self.sums_us.saturating_add(us);
        let enough = u64::from(terms.grain).saturating_mul(const { GRAINS << RATE_BITS });
        if own.saturating_add(*elsewhere) >= enough || self.sums_us >= SECOND_US {
            let us = self.sums_us;
            self.own = rate(*own >> RATE_BITS, us);
            let elsewhere = rate(*elsewhere >> RATE_BITS, us);
            self.service = self.own.saturating_add(elsewhere);
            self.sums = [0; 2];
            self.sums_us = 0;
            self.fresh = us > 0;
        }
    }

    /// Home, Q16, of a server with `capacity`.
    fn home(&self, capacity: u64) -> u32 {
        let all = capacity.saturating_add(self.capacity);
        // A capacity is below 2^40.
        let home = (capacity << 16).checked_div(all).unwrap_or(1 << 16);
        home.clamp(1, 1 << 16) as u32
    }
}

/// The entities of a server.
///
/// # Invariants
///
/// `entries` is sorted by id, without an id twice.
pub struct Table {
    noted: List<Account>,
    spare: List<Account>,
    entries: List<Entry>,
    /// Parents and indices of all entries, group by group.
    groups: List<(u64, u32)>,
    groups_spare: List<(u64, u32)>,
    members: List<Member>,
    /// When the last step was, ns.
    stepped: Option<u64>,
    /// Service to all of late, units per second.
    capacity: u64,
}

impl Table {
    /// Nobody. Does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: nobody is in it.
        Self {
            noted: List::new(),
            spare: List::new(),
            entries: List::new(),
            groups: List::new(),
            groups_spare: List::new(),
            members: List::new(),
            stepped: None,
            capacity: 0,
        }
    }

    /// Number of entities.
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Service to all of late, units per second.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Notes an account.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn note(&mut self, account: &Account) -> Result<(), NoMemory> {
        if account.id == 0 || account.id == u64::MAX {
            return Ok(());
        }
        self.noted.push(*account)
    }

    /// A step at `now`, ns, from what was noted and what `peers` said. How many accounts found no room.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn step(&mut self, peers: &Peers, terms: &Terms, now: u64) -> Result<u64, NoMemory> {
        let us = match self.stepped {
            Some(before) => now.saturating_sub(before) / 1000,
            None => 0,
        };
        self.stepped = Some(now);
        let left_out = self.settle(terms)?;
        self.climb();
        self.gather(peers, terms, now);
        self.measure(us, terms);
        self.correct(terms)?;
        let hold = terms.hold;
        retain(&mut self.entries, |entry| entry.unseen <= hold);
        Ok(left_out)
    }

    /// Takes over what was noted.
    fn settle(&mut self, terms: &Terms) -> Result<u64, NoMemory> {
        radix(&mut self.noted, &mut self.spare, |account| account.id)?;
        merge_sorted(
            &mut self.noted,
            |a, b| a.id == b.id,
            |to, from| {
                to.service = to.service.wrapping_add(from.service);
                to.weight = to.weight.max(from.weight);
                to.active |= from.active;
                to.waiting |= from.waiting;
            },
        );
        for entry in self.entries.as_mut_slice() {
            entry.unseen = entry.unseen.saturating_add(1);
            entry.active = false;
            entry.waiting = false;
            entry.step = 0;
            entry.elsewhere = 0;
            entry.capacity = 0;
        }
        let known = self.entries.as_slice().len();
        let mut left_out = 0u64;
        for account in self.noted.as_slice() {
            let all = self.entries.as_slice().len();
            let sorted = self.entries.as_mut_slice().get_mut(..known);
            let sorted = sorted.unwrap_or_default();
            let found = sorted.binary_search_by(|entry| entry.id.cmp(&account.id));
            if let Some(entry) = found.ok().and_then(|at| sorted.get_mut(at)) {
                entry.note(account);
            } else if all >= terms.entities_max as usize {
                left_out = left_out.saturating_add(1);
            } else {
                let mut entry = Entry::new(account);
                entry.note(account);
                self.entries.push(entry)?;
            }
        }
        self.noted.truncate(0);
        // INVARIANT: new ones were not there, and differ.
        order(self.entries.as_mut_slice(), |entry| entry.id);
        Ok(left_out)
    }

    fn find(&self, id: u64) -> Option<usize> {
        let entries = self.entries.as_slice();
        entries.binary_search_by(|entry| entry.id.cmp(&id)).ok()
    }

    /// Adds what leaves are and got to all nodes above them.
    fn climb(&mut self) {
        for index in 0..self.len() {
            let Some(&leaf) = self.entries.as_slice().get(index) else {
                break;
            };
            if !leaf.leaf || !leaf.active && leaf.step == 0 {
                continue;
            }
            let mut up = leaf.parent;
            for _ in 0..DEPTH {
                let Some(at) = self.find(up) else {
                    break;
                };
                let Some(node) = self.entries.as_mut_slice().get_mut(at) else {
                    break;
                };
                if node.leaf {
                    break;
                }
                node.step = node.step.saturating_add(leaf.step);
                node.active |= leaf.active;
                node.waiting |= leaf.waiting;
                up = node.parent;
            }
        }
    }

    /// Adds what peers said; both are in the order of their ids.
    fn gather(&mut self, peers: &Peers, terms: &Terms, now: u64) {
        for peer in peers.live(terms, now) {
            let mut known = peer.records().iter().peekable();
            for entry in self.entries.as_mut_slice() {
                while known.next_if(|known| known.id < entry.id).is_some() {}
                let Some(known) = known.next_if(|known| known.id == entry.id) else {
                    continue;
                };
                if !known.counts(terms, now) {
                    continue;
                }
                let sum = entry.elsewhere.saturating_add(known.rate);
                entry.elsewhere = sum.min(RATE_MAX);
                let there = known.part_of(peer.capacity);
                entry.capacity = entry.capacity.saturating_add(there).min(RATE_MAX);
            }
        }
    }

    /// Makes rates.
    fn measure(&mut self, us: u64, terms: &Terms) {
        let mut all = 0u64;
        for entry in self.entries.as_mut_slice() {
            entry.measure(us, terms);
            if entry.leaf {
                all = all.saturating_add(entry.step);
            }
        }
        let fade = self.capacity.saturating_sub(self.capacity >> 6);
        self.capacity = (rate(all, us) >> RATE_BITS).max(fade);
    }

    /// The rule, group by group.
    fn correct(&mut self, terms: &Terms) -> Result<(), NoMemory> {
        self.groups.truncate(0);
        for (index, entry) in self.entries.as_slice().iter().enumerate() {
            self.groups.push((entry.parent, index as u32))?;
        }
        radix(&mut self.groups, &mut self.groups_spare, |group| group.0)?;
        let mut from = 0usize;
        while let Some(&(parent, _)) = self.groups.as_slice().get(from) {
            self.members.truncate(0);
            while let Some(&(other, index)) = self.groups.as_slice().get(from) {
                if other != parent {
                    break;
                }
                from = from.saturating_add(1);
                if let Some(entry) = self.entries.as_mut_slice().get_mut(index as usize) {
                    self.members.push(entry.member(index, self.capacity))?;
                }
            }
            rule::step(self.members.as_mut_slice(), &terms.gains);
            for member in self.members.as_slice() {
                let entry = self.entries.as_mut_slice().get_mut(member.index as usize);
                if let Some(entry) = entry {
                    entry.theta = member.theta;
                    entry.run = member.run;
                }
            }
        }
        Ok(())
    }

    /// The factors of all entities.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn factors(&self) -> Result<Factors, NoMemory> {
        let entries = self.entries.as_slice();
        let mut factors = Factors::with_capacity(entries.len())?;
        for entry in entries {
            factors.push(entry.id, power(entry.theta))?;
        }
        Ok(factors)
    }

    /// What others are to be told, in the order of the ids: entities that are active, or were of late.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let entries = self.entries.as_slice().iter();
        let told = entries.filter(|entry| entry.idle <= TOLD_IDLE);
        told.map(|entry| Record {
            id: entry.id,
            counter: entry.counter,
            presence: if entry.active { PRESENT } else { 0 },
        })
    }

    /// Service of `id` elsewhere, sixteenths of a unit per second.
    pub fn elsewhere(&self, id: u64) -> Option<u64> {
        Some(self.entries.as_slice().get(self.find(id)?)?.elsewhere)
    }
}

impl Entry {
    /// The entry, at `index`, for the rule of a server with `capacity`.
    fn member(&mut self, index: u32, capacity: u64) -> Member {
        let starts = !self.started && self.active && self.capacity > 0;
        if starts || self.age > STARTS {
            self.started = true;
        }
        Member {
            index,
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
