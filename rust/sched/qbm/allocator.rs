// SPDX-License-Identifier: GPL-2.0-only

//! Allocator: divides the bandwidth of a group among the clients.
//!
//! - The *allocation* of a client is its current bandwidth, bytes/s. The *goal* is the bandwidth
//!   due to the client: the minimum, or the requested amount if less. *Extra* is allocation beyond
//!   the goal.
//! - A client below its goal is *unmet*. A *wanting* client has requested more than its goal and
//!   received `EAGAIN`.
//! - The *floor* is the absolute minimum that each client has; it prevents starvation.
//! - The *pool* is the free bandwidth of the group. A *reserve* is free bandwidth that only one
//!   class may draw from; no other class takes away bandwidth that was drawn from a reserve.
//! - *Oversubscription* is bandwidth allocated beyond the capacity, so that each client has the
//!   floor.
//! - The *given* bandwidth is the last allocation reported to a client before the client gave up
//!   some.
//!
//! # Sources and sinks of bandwidth
//!
//! ```text
//!   allocated, in this order                  released, in this order
//!
//!   1 reserve of the class ─┐               ┌─► 1 reserve of the class, as far as drawn
//!   2 pool ─────────────────┤               ├─► 2 oversubscription
//!   3 extra of others ──────┼─► a client ───┼─► 3 unmet clients
//!     (lowest class first)  │               ├─► 4 wanting clients
//!   4 stolen from lower     │               ├─► 5 movers, up to their maximums
//!     classes, to the floor ┘               └─► 6 pool
//! ```
//!
//! # Invariants
//!
//! After every request that settles:
//!
//! - allocations + pool + reserves = capacity + oversubscription;
//! - every client has at least the floor and at most its maximum (or the floor, if that is larger);
//! - while a client of a sharing class is unmet or there is oversubscription, no client has extra;
//! - while a client of a sharing class is unmet, the pool and the reserve of the class are empty;
//! - meanwhile lower classes have only their floors or bandwidth from their own reserves;
//! - no client loses bandwidth below its goal to a client of its own or a lower class, except by
//!   sharing;
//! - no unmet first come client could be given everything it is missing.
//!
//! # Decisions that the rules leave open
//!
//! The rules are those of StorNext's QBM allocator ([`rules`], in its order). Decided here:
//!
//! - *First come is all or nothing.* If a request cannot be met in full, the client keeps its
//!   allocation, at least the floor. Released bandwidth is offered to the oldest request first. If
//!   that request still does not fit, younger requests are tried, just as a new client would be.
//! - *Unmet clients precede extra.* A first come client may be missing more than pool and all extra
//!   can supply. Meanwhile other clients keep the extra, so that no bandwidth is idle. As soon as
//!   pool and extra suffice, the unmet client gets them.
//! - *Floors are never stolen from higher classes.* They come from lower classes, then from the
//!   client's own class by sharing, then from oversubscription. An excess of 32 KiB/s is harmless,
//!   while a first come client that lacks as much would be unmet.
//! - *Movers* have goals like other clients, served after all other classes. Movers share the
//!   remaining bandwidth in proportion to their minimums; other clients take it back as extra. The
//!   amount that a mover requests limits its share, so that a mover with little load leaves its
//!   share to the others.
//! - *Wanting* clients receive released bandwidth, if the pool reaches the grant threshold or the
//!   reserve of their class is not empty. They get extra of lower classes only on request, and
//!   repeat the request if necessary. If extra were taken at each change, bandwidth would move from
//!   a lower class's reserve through its extra to a higher class.
//! - *Restore* requests the given bandwidth, by the rules of allocation, and ends the reduction:
//!   the client counts with its full minimum again. If it counted with the given bandwidth only,
//!   each dip of a client of a sharing class would reduce its share permanently.
//! - *Bandwidth drawn from a reserve* is accounted per class, not per client: released bandwidth
//!   refills the reserve first.
//! - *New parameters* reallocate everything; clients whose goals were met precede clients that were
//!   unmet. Only the final result is visible.
//!
//! # Cost
//!
//! Only a registration allocates memory. Each request takes a few passes over the clients and sorts
//! the unmet or wanting clients: O(n log n) in the worst case.

use crate::sched::{
    mem::{GrowingList, NoMemory},
    qbm::terms::{BandwidthClass, Entitlement, CLASSES},
};
use accounts::{ClassTally, ClientEntry, PerClass};
use client::{AllocatorClient, RATE_MAX};
use rules::MORE;

mod accounts;
mod client;
mod rules;
mod share;

/// Identifier of a client of an allocator; reused after the client has left.
pub type ClientId = u32;

/// Highest floor, bytes/s (2^32).
const FLOOR_MAX: u64 = 1 << 32;

/// Bandwidth of a group and parameters of allocation.
///
/// Numbers are clamped: rates to 2^48, the floor to 1 to 2^32. A reserve is clamped to the capacity
/// that the reserves of higher classes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorParameters {
    /// Bandwidth of the group, bytes/s.
    pub capacity: u64,
    /// Part of the capacity reserved for each class, bytes/s, highest class first.
    pub reserves: [u64; CLASSES],
    /// Absolute minimum of each client, bytes/s.
    pub floor: u64,
    /// Grant threshold: pool below which none is given beyond minimums, bytes/s.
    pub grant: u64,
}

impl AllocatorParameters {
    /// Returns the parameters, clamped to the bounds.
    fn bounded(mut self) -> Self {
        self.capacity = self.capacity.min(RATE_MAX);
        self.floor = self.floor.clamp(1, FLOOR_MAX);
        let mut left = self.capacity;
        for reserve in &mut self.reserves {
            *reserve = left.min(*reserve);
            left = left.wrapping_sub(*reserve);
        }
        self
    }
}

/// Result of an increase that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Increase {
    /// Requested amount or maximum reached; the new allocation, bytes/s.
    Whole(u64),
    /// Less than requested; the new allocation, bytes/s.
    Partly(u64),
}

/// Error of an increase that found no bandwidth (`EAGAIN`); the client is marked as wanting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBandwidth;

/// The bandwidth allocator of a group.
///
/// # Invariants
///
/// - The invariants of this module hold, except after `enter` or `withdraw` until `apply_rules`.
/// - The tallies are the sums over the clients.
/// - Allocations + pool + reserves = capacity + oversubscription; while a rule runs, bandwidth in
///   transit belongs to the sum.
/// - Remaining and drawn bandwidth of a reserve add up to the reserve of the parameters; the class
///   has at least the drawn amount.
pub struct Allocator {
    parameters: AllocatorParameters,
    entries: GrowingList<ClientEntry>,
    /// Work queue, with room for all clients.
    queue: GrowingList<ClientId>,
    vacant: Option<ClientId>,
    tallies: PerClass<ClassTally>,
    /// Free bandwidth, bytes/s.
    pool: u64,
    /// Oversubscription, bytes/s.
    over: u64,
    /// Number of requests so far.
    clock: u64,
    changed: bool,
}

impl Allocator {
    /// Creates the allocator of a group without clients.
    pub fn new(parameters: AllocatorParameters) -> Self {
        let parameters = parameters.bounded();
        let mut allocator = Self {
            parameters,
            entries: GrowingList::new(),
            queue: GrowingList::new(),
            vacant: None,
            tallies: PerClass([ClassTally::default(); CLASSES]),
            pool: 0,
            over: 0,
            clock: 0,
            changed: false,
        };
        allocator.open(parameters);
        allocator
    }

    /// Registers a client with `terms` and allocates bandwidth; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory, or there are already 32,768 clients.
    pub fn register(&mut self, terms: Entitlement) -> Result<ClientId, NoMemory> {
        let id = self.enter(terms)?;
        self.apply_rules();
        Ok(id)
    }

    /// Registers a client with `terms`, without an allocation until [`Allocator::apply_rules`]; may
    /// sleep.
    ///
    /// # Errors
    ///
    /// As for [`Allocator::register`].
    pub fn enter(&mut self, terms: Entitlement) -> Result<ClientId, NoMemory> {
        let id = self.reserve_entry()?;
        let now = self.now();
        self.insert(id, AllocatorClient::new(terms, self.parameters.floor, now));
        Ok(id)
    }

    /// Removes a client and releases the allocation.
    #[cfg(test)]
    pub fn leave(&mut self, id: ClientId) {
        self.withdraw(id);
        self.apply_rules();
    }

    /// Removes a client; [`Allocator::apply_rules`] distributes the released allocation.
    pub fn withdraw(&mut self, id: ClientId) {
        if let Some(client) = self.remove(id) {
            self.release(client.terms.class, client.allocation);
        }
    }

    /// Restores the given bandwidth of a client that had given up some, and its full goal.
    #[cfg(test)]
    pub fn restore(&mut self, id: ClientId) {
        self.restore_deferred(id);
        self.apply_rules();
    }

    /// Does the same without settling; the client is served by [`Allocator::apply_rules`].
    pub fn restore_deferred(&mut self, id: ClientId) {
        self.ask(id, AllocatorClient::ask_all);
    }

    /// Increases the allocation of a client by `by` bytes/s.
    ///
    /// Up to the minimum this is handled like the request at registration; beyond it the client
    /// gets bandwidth that no minimum needs.
    ///
    /// # Errors
    ///
    /// - [`NoBandwidth`]: the allocation did not grow, and the client is marked as wanting.
    pub fn increase(&mut self, id: ClientId, by: u64) -> Result<Increase, NoBandwidth> {
        let client = self.client(id).ok_or(NoBandwidth)?;
        let (before, class) = (client.allocation, client.terms.class);
        let most = client.terms.max.clamp(client.goal, RATE_MAX);
        let wish = before.saturating_add(by).min(most);
        if wish <= before {
            return Ok(Increase::Whole(before));
        }
        self.ask(id, |client, floor| client.ask_more(by, floor));
        self.apply_rules();
        if class != BandwidthClass::Mover && self.all_goals_met() {
            self.give_more(&MORE, id, wish);
            self.apply_rules();
        }
        match self.allocation(id) {
            allocation if allocation >= wish => Ok(Increase::Whole(allocation)),
            allocation if allocation > before => Ok(Increase::Partly(allocation)),
            _ => {
                self.mark_wanting(id, wish);
                Err(NoBandwidth)
            }
        }
    }

    /// Decreases the allocation of a client by `by` bytes/s, but not below the floor.
    pub fn decrease(&mut self, id: ClientId, by: u64) {
        let floor = self.parameters.floor;
        let Some(client) = self.client(id) else {
            return;
        };
        let (class, before) = (client.terms.class, client.allocation);
        let less = before.saturating_sub(by).max(floor);
        if less >= before {
            return;
        }
        self.change(id, |client| {
            client.ask_less(less, floor);
            client.set(less);
        });
        self.release(class, before.wrapping_sub(less));
        self.apply_rules();
    }

    /// Changes the terms of a client, which then requests its full goal. Equal terms have no
    /// effect.
    pub fn set_terms(&mut self, id: ClientId, terms: Entitlement) {
        let Some(client) = self.client(id).copied() else {
            return;
        };
        if client.terms == terms {
            return;
        }
        if client.terms.class == terms.class {
            self.ask(id, |client, floor| {
                client.terms = terms;
                client.ask_all(floor);
            });
            self.free_above_cap(id);
        } else {
            self.remove(id);
            self.release(client.terms.class, client.allocation);
            let now = self.now();
            let mut moved = AllocatorClient::new(terms, self.parameters.floor, now);
            moved.reported = client.reported;
            self.insert(id, moved);
        }
        self.apply_rules();
    }

    /// Changes the parameters of the group. Equal parameters have no effect.
    pub fn set_parameters(&mut self, parameters: AllocatorParameters) {
        let parameters = parameters.bounded();
        if self.parameters != parameters {
            self.open(parameters);
            self.reallocate();
        }
    }

    /// Returns the allocation of a client, bytes/s.
    pub fn allocation(&self, id: ClientId) -> u64 {
        self.client(id).map_or(0, |client| client.allocation)
    }

    /// Returns the last allocation reported to a client before it gave up bandwidth, bytes/s; else
    /// its allocation.
    pub fn given(&self, id: ClientId) -> u64 {
        self.client(id).map_or(0, AllocatorClient::given)
    }

    /// Returns true if a client is marked as wanting.
    pub fn wants(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(AllocatorClient::wants)
    }

    /// Returns true if a client is below the goal: the minimum, or the requested amount if less.
    pub fn is_unmet(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(AllocatorClient::is_unmet)
    }

    /// Returns the parameters, clamped to the bounds.
    pub const fn parameters(&self) -> &AllocatorParameters {
        &self.parameters
    }

    /// Returns the free bandwidth in the pool, bytes/s.
    pub fn free(&self) -> u64 {
        self.pool
    }

    /// Returns the remaining bandwidth in the reserve of `class`, bytes/s.
    pub fn reserve_left(&self, class: BandwidthClass) -> u64 {
        self.tally(class).reserve
    }

    /// Returns the oversubscription, bytes/s.
    pub fn oversubscribed(&self) -> u64 {
        self.over
    }

    /// Returns the number of clients.
    pub fn len(&self) -> u32 {
        let clients = |class| self.tally(class).clients as u32;
        BandwidthClass::ALL
            .into_iter()
            .map(clients)
            .fold(0, u32::wrapping_add)
    }

    /// Changes the requested amount of a client. A client that becomes unmet queues behind the
    /// clients that already are.
    fn ask(&mut self, id: ClientId, ask: impl FnOnce(&mut AllocatorClient, u64)) {
        let floor = self.parameters.floor;
        let now = self.now();
        self.change(id, |client| {
            let waited = client.is_unmet();
            ask(client, floor);
            if client.is_unmet() && !waited {
                client.since = now;
            }
        });
    }

    /// Marks a client as wanting `wish` bytes/s; a client that was already wanting keeps its queue
    /// position.
    fn mark_wanting(&mut self, id: ClientId, wish: u64) {
        let now = self.now();
        self.change(id, |client| {
            if !client.wants() {
                client.wished = now;
            }
            client.wish = wish;
        });
    }

    /// Releases the allocation above the cap of a client.
    fn free_above_cap(&mut self, id: ClientId) {
        let Some(client) = self.client(id) else {
            return;
        };
        let (class, cap) = (client.terms.class, client.cap);
        let excess = client.allocation.saturating_sub(cap);
        if excess > 0 {
            self.change(id, |client| client.set(cap));
            self.release(class, excess);
        }
    }
}

#[cfg(test)]
mod tests;
