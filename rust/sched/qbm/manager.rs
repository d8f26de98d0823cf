// SPDX-License-Identifier: GPL-2.0-only

//! The manager: sees what clients use, and asks the allocator for more or less on their behalf.
//!
//! # Vocabulary
//!
//! - *Walk*: every class of requests of every part is told of once ([`Manager::meet`]).
//! - *Tick*: what follows a walk ([`Manager::tick`]): clients leave, restore, increase, decrease.
//! - *Seat*: the index of a client's gate. Seat [`CROWD`] is shared by clients that find none of their own,
//!   seat [`OPEN`] by those that nobody regulates.
//! - *Crowd*: the clients of a group that share seat 0; one client to the allocator, with what the group
//!   promises those that no line is for.
//! - *Fast* and *slow* period: [`usage`].
//!
//! # A client's life
//!
//! ```text
//!   a class of it is busy ──► registers: has its minimum, or what its class's rules leave
//!     │
//!     ├─ slept in half of the fast period, has less than it was given ──► restore
//!     ├─ used 80 % or more of what it had in a slow period ─────────────► increase by 30 %
//!     ├─ used less than 60 % ───────────────────────────────────────────► decrease by 10 %
//!     │
//!   no class of it is busy for a second ──► leaves; what it had is others'
//! ```
//!
//! These are the rules of StorNext's client; there each client follows them by itself and sends messages,
//! here the server sees the same and nobody has to be trusted.
//!
//! # Work
//!
//! A tick costs O(clients), and a bounded number of requests to the allocator, each O(clients of the group);
//! who is not served has its turn in the next one. Gates of others than who asks are set at the end of a walk,
//! when [`Manager::has_changed`] is asked; so a crowd that comes or leaves costs O(clients), too.

mod adjust;
mod client;
mod configure;
mod group;
mod movers;
mod rate;
mod report;
mod usage;

use super::{
    allocator::ClientId,
    gate::{Gates, NO_SEAT},
    plan::{Plan, Scene, Who},
    terms::{Terms, UNREGULATED},
};
use crate::sched::{
    class::DEFAULT,
    mem::{List, Need, NoMemory, Shared},
    policy::qbm::Brief,
};
use client::{count, Client, Stay, Traffic};
use group::{Clients, Group};
use movers::Load;
use usage::Clock;

/// The seat of clients that find none of their own.
pub const CROWD: u32 = 0;

/// The seat of clients that nobody regulates.
pub const OPEN: u32 = 1;

/// The place of a group that is gone.
const NO_GROUP: u32 = u32::MAX;

/// Requests to the allocator in a tick, at most;
const ASKS: u32 = 512;

/// with many clients at least so many,
const ASKS_MIN: u32 = 32;

/// and then as many as look at so many clients in all.
const LOOKS: u32 = 1 << 20;

/// Stands for clients that have no name at the allocator, where one asks.
const OTHERS: ClientId = ClientId::MAX;

/// The seat of a client in `slot`.
const fn seat_of(slot: u32) -> u32 {
    if slot == DEFAULT {
        CROWD
    } else {
        slot.saturating_add(OPEN)
    }
}

/// The slot of the client that has `seat`, if it is one of a client.
const fn slot_of(seat: u32) -> Option<u32> {
    match seat {
        CROWD | OPEN | NO_SEAT => None,
        seat => seat.checked_sub(OPEN),
    }
}

/// Clients, their seats, and who has how much.
///
/// # Invariants
///
/// - All clients in the table are busy in its sense, so that it forgets none by itself.
/// - `Client::group` is the place of the client's group in `groups`, the `target` of its key that group's
///   number.
pub struct Manager {
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    clients: Clients,
    groups: List<Group>,
    /// The next group's number.
    number: u32,
    clock: Clock,
    /// The slot that asks first.
    turn: u32,
    /// What each group used, for a tick.
    loads: List<Load>,
    /// What had gone through the open seat at the last mark, bytes.
    open: u64,
    /// Whether a gate changed.
    changed: bool,
    /// The latest time that was told, monotonic ns.
    seen: u64,
}

impl Manager {
    /// A manager without clients; sleeps. `seed` must not be known to those who name clients.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(plan: Shared<Plan>, gates: Shared<Gates>, seed: u64) -> Result<Self, NoMemory> {
        let seats = gates.len().saturating_sub(OPEN.saturating_add(1));
        let nobody = Client::new(NO_GROUP, 0, None, 0);
        let mut manager = Self {
            clients: Clients::new(seats, seed, Who::NOBODY, nobody)?,
            plan: plan.clone(),
            gates,
            groups: List::new(),
            number: 0,
            clock: Clock::new(),
            turn: 1,
            loads: List::new(),
            open: 0,
            changed: false,
            seen: 0,
        };
        manager.adopt(plan)?;
        Ok(manager)
    }

    /// The seat that the class in `brief` is to have, which is told of in a walk; sleeps. [`NO_SEAT`] for a
    /// class that is idle and whose client left. Clients register when they are met for the first time, or
    /// come back.
    pub fn meet(&mut self, brief: &Brief, scene: &dyn Scene, now: u64) -> u32 {
        let who = &brief.who;
        if let Some(slot) = slot_of(brief.seat) {
            let same = self
                .clients
                .key(slot)
                .is_some_and(|key| key.party == who.party);
            let client = self
                .clients
                .at_mut(slot)
                .filter(|client| same && client.target == who.target && client.stay == Stay::Here);
            if let Some(client) = client {
                if brief.busy {
                    client.busy = now;
                }
                return brief.seat;
            }
        }
        let Some(place) = self.plan.group_of(scene.target_number(who.target)) else {
            return OPEN;
        };
        let Some(group) = self.groups.as_slice().get(place as usize) else {
            return OPEN;
        };
        let key = Who {
            party: who.party,
            target: group.number,
        };
        let Some(slot) = self.clients.find(&key) else {
            return match brief.busy {
                true => self.join(key, place, brief, scene, now),
                false => NO_SEAT,
            };
        };
        let Some(client) = self.clients.at_mut(slot) else {
            return NO_SEAT;
        };
        client.target = who.target;
        if brief.busy {
            client.busy = now;
            if client.stay != Stay::Here {
                let terms = self.plan.terms(place, &who.party, scene);
                if !self.register(slot, place, terms, now) {
                    return self.join_crowd(place, terms, brief, now);
                }
            }
        } else if client.stay != Stay::Here {
            return NO_SEAT;
        }
        seat_of(slot)
    }

    /// Makes a client.
    fn join(&mut self, key: Who, place: u32, brief: &Brief, scene: &dyn Scene, now: u64) -> u32 {
        let terms = self.plan.terms(place, &key.party, scene);
        let need = self.clients.need();
        if !need.is_empty() {
            // Without memory the table says so.
            if let Ok(spare) = need.allocate() {
                drop(self.clients.grow(spare));
            }
        }
        let client = || Client::new(place, brief.who.target, terms, now);
        let made = self.clients.make(key, now, usize::MAX, client);
        let Some(slot) = made.map(|id| id.slot()) else {
            return self.join_crowd(place, terms, brief, now);
        };
        // INVARIANT: busy from the start.
        self.clients.busy(slot);
        if let Some(gate) = self.gates.get(seat_of(slot)) {
            gate.clear(now);
        }
        if !self.register(slot, place, terms, now) {
            self.forget(slot, now);
            return self.join_crowd(place, terms, brief, now);
        }
        seat_of(slot)
    }

    /// Registers the client in `slot` with its group's allocator; whether there was memory.
    fn register(&mut self, slot: u32, place: u32, terms: Option<Terms>, now: u64) -> bool {
        let (Some(client), Some(gate), Some(group)) = (
            self.clients.at_mut(slot),
            self.gates.get(seat_of(slot)),
            self.groups.as_mut_slice().get_mut(place as usize),
        ) else {
            return false;
        };
        client.group = place;
        client.terms = terms;
        let id = match terms.map(|terms| group.enrol(slot, terms)) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(NoMemory)) => return false,
        };
        client.id = id;
        client.stay = Stay::Here;
        for counters in [&mut client.counters, &mut group.counters] {
            count(&mut counters.joins);
        }
        group.clients = group.clients.saturating_add(1);
        let rate = id.map_or(UNREGULATED, |id| group.allocation(id));
        client.recent.begin(now);
        client.set(gate, rate, now);
        self.changed = true;
        self.seen = now;
        true
    }

    /// Takes note that a client of the group at `place`, with `terms`, has no seat of its own, and says which
    /// one it shares.
    fn join_crowd(&mut self, place: u32, terms: Option<Terms>, brief: &Brief, now: u64) -> u32 {
        let Some(group) = self.groups.as_mut_slice().get_mut(place as usize) else {
            return OPEN;
        };
        if !matches!(brief.seat, CROWD | OPEN) {
            count(&mut group.counters.seatless);
        }
        let (Some(terms), Some(default)) = (terms, self.plan.default_terms(place)) else {
            group.crowd.open = now;
            return OPEN;
        };
        group.crowd.busy = now;
        if group.crowd.id.is_none() {
            // What a group of movers promises those that no line is for is promised to nobody.
            let terms = if group.movers.is_some() {
                terms
            } else {
                default
            };
            let Ok(id) = group.enrol(DEFAULT, terms) else {
                return CROWD;
            };
            group.crowd.id = Some(id);
            group.crowd.rank = terms.class.rank();
            group.crowd.rate = group.allocation(id);
            self.seen = now;
            self.set_crowd(now);
        }
        CROWD
    }

    /// Sets the gate of seat 0 to what the crowds of all groups have.
    fn set_crowd(&mut self, now: u64) {
        let crowds = || self.groups.as_slice().iter().map(|group| &group.crowd);
        let rates = crowds().filter(|crowd| crowd.id.is_some());
        let rate = rates.fold(0u64, |sum, crowd| sum.saturating_add(crowd.rate));
        let rank = crowds().fold(0, |rank, crowd| rank.max(crowd.rank));
        if let Some(gate) = self.gates.get(CROWD) {
            let before = gate.version();
            gate.set(rate.max(self.plan.tuning().floor), rank, now);
            self.changed |= gate.version() != before;
        }
    }

    /// Sets the gates of those in the group at `place` whose allocation changed, by what `by` asked for.
    fn apply(&mut self, place: usize, by: Option<ClientId>, now: u64) {
        if let Some(group) = self.groups.as_mut_slice().get_mut(place) {
            let changed = group.apply(&mut self.clients, &self.gates, by, now);
            self.changed |= changed;
        }
    }

    /// The client in `slot` leaves; what it had is others'.
    fn retire(&mut self, slot: u32, now: u64) {
        let Some(client) = self.clients.at_mut(slot) else {
            return;
        };
        client.stay = Stay::Left;
        count(&mut client.counters.leaves);
        let (place, id) = (client.group as usize, client.id.take());
        let Some(group) = self.groups.as_mut_slice().get_mut(place) else {
            return;
        };
        count(&mut group.counters.leaves);
        group.clients = group.clients.saturating_sub(1);
        if let Some(id) = id {
            group.withdraw(id);
            self.seen = now;
        }
    }

    /// Forgets the client in `slot`; its seat is vacant.
    fn forget(&mut self, slot: u32, now: u64) {
        self.clients.idle(slot, now);
        let Some(client) = self.clients.forget(slot) else {
            return;
        };
        let gate = self.gates.get(seat_of(slot));
        let group = self.groups.as_mut_slice().get_mut(client.group as usize);
        if let (Some(gate), Some(group)) = (gate, group) {
            let traffic = Traffic::of(&gate.usage());
            group.gone.add(&traffic.since(&client.base));
        }
    }

    /// Sets the gates of those whose allocation changed since they were set last, by what others did.
    fn settle(&mut self, now: u64) {
        for group in self.groups.as_mut_slice() {
            if group.stale {
                let changed = group.apply(&mut self.clients, &self.gates, Some(OTHERS), now);
                self.changed |= changed;
            }
        }
    }

    /// Whether a gate changed since the last call: classes have to look at theirs. To be asked after each
    /// walk and tick.
    pub fn has_changed(&mut self) -> bool {
        self.settle(self.seen);
        core::mem::take(&mut self.changed)
    }
}
