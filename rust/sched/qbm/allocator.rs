// SPDX-License-Identifier: GPL-2.0-only

//! Who has how much of a group's bandwidth.
//!
//! # Vocabulary
//!
//! - *Allocation*: what a client has, bytes/s. *Goal*: what it is to have: its minimum, or what it asked for
//!   if that was less. *Extra*: what it has above its goal.
//! - *Unmet*: a client below its goal. *Wanting*: one that asked for more than its goal and was told to wait.
//! - *Floor*: the absolute minimum, which everybody has; it keeps a client from freezing.
//! - *Pool*: the free bandwidth of the group. *Reserve*: free bandwidth that only one class may draw from;
//!   what it gave, no other class ever takes from that class.
//! - *Oversubscription*: what was given beyond the capacity so that everybody has the floor.
//! - *Given*: what a client was told last that it has, before it said that it can do with less.
//!
//! # Where bandwidth flows
//!
//! ```text
//!   taken, in this order                      freed, in this order
//!
//!   1 reserve of the class ─┐               ┌─► 1 reserve of the class, what it gave
//!   2 pool ─────────────────┤               ├─► 2 oversubscription
//!   3 extra of others ──────┼─► a client ───┼─► 3 the unmet
//!     (lowest class first)  │               ├─► 4 the wanting
//!   4 stolen from lower     │               ├─► 5 movers, up to their maximums
//!     classes, to the floor ┘               └─► 6 pool
//! ```
//!
//! # Invariants
//!
//! After every request that settles:
//!
//! - allocations + pool + reserves = capacity + oversubscription;
//! - everybody has at least the floor and at most its maximum (or the floor, if that is more);
//! - while a client of a sharing class is unmet or there is oversubscription, nobody has extra;
//! - while a client of a sharing class is unmet, pool and reserve of its class are empty, and lower classes have
//!   just their floors or what their own reserves gave;
//! - nobody loses anything below its goal to a client of its own or a lower class, but by sharing;
//! - no first come client is unmet that could have all that it is missing.
//!
//! # What the rules leave open
//!
//! The rules are those of StorNext's QBM allocator ([`rules`], in its order). Decided here:
//!
//! - *First come is whole or nothing.* A request that cannot be met in full leaves the client with what it had,
//!   the floor at least. When bandwidth is freed, the oldest request is tried first; one that still does
//!   not fit does not keep a younger one from what it can use, as it would not have kept a newcomer.
//! - *Unmet comes before extra.* A first come client may wait for more than there is, even if others gave all their
//!   extra; meanwhile these have it, so nothing is idle. Once pool and extra are enough, they are the waiting client's
//!   at once.
//! - *Floors are never stolen from higher classes.* Those below, the client's own class by sharing, then
//!   oversubscription: 32 KiB/s too much harms nobody, while a first come client that is short by as much
//!   would be unmet.
//! - *Movers* have goals like everybody, after everybody else's. Beyond them they share what is left, in
//!   proportion to their minimums; others take it back as extra. What a mover asks for bounds its share,
//!   so that one with little to do leaves its part to the others.
//! - *Wanting* clients are given what is freed, if the pool has the least amount for it or their class's reserve
//!   has any. Extra of lower classes they get when they ask, again if need be: taken at each change
//!   of anything, it would flow from the reserve of a lower class through its extra to a higher one.
//! - *Restore* asks for what the client was told, by the rules of allocation, and ends the time in which it does
//!   with less: it counts with its whole minimum again. If it counted with what it was told only, each dip
//!   of a client of a shared class would cost it a part of its share for good.
//! - *What comes out of a reserve* is a sum of the class, not of each client: what is freed fills the reserve
//!   before anything else.
//! - *A new setup* gives out everything anew, to those that had it before those that wait. Nothing of it can be
//!   seen but the result.
//!
//! # Cost
//!
//! No request allocates memory but a registration. Each takes a few passes over the clients, and sorts those
//! that wait: O(n log n) at worst.

use crate::sched::{
    mem::{List, NoMemory},
    qbm::terms::{Class, Terms, CLASSES},
};
use book::{PerClass, Slot, Tally};
use client::{Client, RATE_MAX};
use rules::MORE;

mod book;
mod client;
mod rules;
mod share;

/// Names a client of an allocator; the name may be given to another one after it left.
pub type ClientId = u32;

/// The highest floor, bytes/s (2^32).
const FLOOR_MAX: u64 = 1 << 32;

/// What a group has, and how it is given.
///
/// Out of bounds, numbers count as the bound: rates up to 2^48, a floor of 1 to 2^32, reserves up to what those of
/// higher classes leave of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What there is to give, bytes/s.
    pub capacity: u64,
    /// What is kept for each class out of it, bytes/s, highest class first.
    pub reserves: [u64; CLASSES],
    /// What everybody has at least, bytes/s.
    pub floor: u64,
    /// The least free bandwidth that is given beyond minimums, bytes/s.
    pub grant: u64,
}

impl Setup {
    /// The same within bounds.
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

/// The answer to a request for more that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// As much as was asked for, or the maximum; the new allocation.
    Whole(u64),
    /// Less; the new allocation.
    Partly(u64),
}

/// The answer to a request for more when there is none: the client is marked as wanting it (`EAGAIN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again;

/// The bandwidth allocator of a group.
///
/// # Invariants
///
/// - Those above, but for clients that entered or were withdrawn without being settled.
/// - The tallies are the sums over the clients.
/// - Allocations + pool + reserves = capacity + oversubscription; while a rule is at work, what it has in hand beside.
/// - What a reserve has and what it has given are what was set up; the class has at least what was given.
pub struct Allocator {
    setup: Setup,
    slots: List<Slot>,
    /// Room for the number of each slot.
    queue: List<ClientId>,
    vacant: Option<ClientId>,
    tallies: PerClass<Tally>,
    /// Free bandwidth, bytes/s.
    pool: u64,
    /// What was given beyond the capacity, bytes/s.
    over: u64,
    /// Requests so far.
    clock: u64,
    changed: bool,
}

impl Allocator {
    /// The allocator of a group without clients.
    pub fn new(setup: Setup) -> Self {
        let setup = setup.bounded();
        let mut allocator = Self {
            setup,
            slots: List::new(),
            queue: List::new(),
            vacant: None,
            tallies: PerClass([Tally::default(); CLASSES]),
            pool: 0,
            over: 0,
            clock: 0,
            changed: false,
        };
        allocator.open(setup);
        allocator
    }

    /// Registers a client of `terms`, and allocates bandwidth to it; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: there was none, or there are 32,768 clients.
    pub fn register(&mut self, terms: Terms) -> Result<ClientId, NoMemory> {
        let id = self.enter(terms)?;
        self.settle();
        Ok(id)
    }

    /// Registers a client of `terms`, which has nothing before [`Allocator::settle`]; sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Allocator::register`].
    pub fn enter(&mut self, terms: Terms) -> Result<ClientId, NoMemory> {
        let id = self.reserve_slot()?;
        let now = self.now();
        self.insert(id, Client::new(terms, self.setup.floor, now));
        Ok(id)
    }

    /// Frees what a client has, and forgets it.
    pub fn leave(&mut self, id: ClientId) {
        self.withdraw(id);
        self.settle();
    }

    /// Forgets a client; others get what it has with [`Allocator::settle`].
    pub fn withdraw(&mut self, id: ClientId) {
        if let Some(client) = self.remove(id) {
            self.release(client.terms.class, client.allocation);
        }
    }

    /// A client that did with less needs what it was given again, and all it is to have.
    pub fn restore(&mut self, id: ClientId) {
        self.ask_back(id);
        self.settle();
    }

    /// The same; the client gets it with [`Allocator::settle`].
    pub fn ask_back(&mut self, id: ClientId) {
        self.ask(id, Client::ask_all);
    }

    /// A client asks for `by` bytes/s more than it has.
    ///
    /// Up to its minimum that is a request for bandwidth like its first one; beyond it, it gets what nobody needs
    /// for a minimum.
    ///
    /// # Errors
    ///
    /// - [`Again`]: it has no more than before, and is marked as wanting.
    pub fn increase(&mut self, id: ClientId, by: u64) -> Result<Raised, Again> {
        let client = self.client(id).ok_or(Again)?;
        let (before, class) = (client.allocation, client.terms.class);
        let most = client.terms.max.clamp(client.goal, RATE_MAX);
        let wish = before.saturating_add(by).min(most);
        if wish <= before {
            return Ok(Raised::Whole(before));
        }
        self.ask(id, |client, floor| client.ask_more(by, floor));
        self.settle();
        if class != Class::Mover && self.is_content() {
            self.give_more(&MORE, id, wish);
            self.settle();
        }
        match self.allocation(id) {
            allocation if allocation >= wish => Ok(Raised::Whole(allocation)),
            allocation if allocation > before => Ok(Raised::Partly(allocation)),
            _ => {
                self.mark_wanting(id, wish);
                Err(Again)
            }
        }
    }

    /// A client does with `by` bytes/s less than it has, down to the floor.
    pub fn decrease(&mut self, id: ClientId, by: u64) {
        let floor = self.setup.floor;
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
        self.settle();
    }

    /// A client has other terms from now on, and asks for all that they promise. Nothing happens if they are the
    /// same.
    pub fn set_terms(&mut self, id: ClientId, terms: Terms) {
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
            let mut moved = Client::new(terms, self.setup.floor, now);
            moved.reported = client.reported;
            self.insert(id, moved);
        }
        self.settle();
    }

    /// The group has other numbers from now on. Nothing happens if they are the same.
    pub fn set_setup(&mut self, setup: Setup) {
        let setup = setup.bounded();
        if self.setup != setup {
            self.open(setup);
            self.give_anew();
        }
    }

    /// What a client has, bytes/s.
    pub fn allocation(&self, id: ClientId) -> u64 {
        self.client(id).map_or(0, |client| client.allocation)
    }

    /// What a client was told last that it has, before it did with less; its allocation if it does not.
    pub fn given(&self, id: ClientId) -> u64 {
        self.client(id).map_or(0, Client::given)
    }

    /// Whether a client is marked as wanting more.
    pub fn wants(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(Client::wants)
    }

    /// Whether a client has less than its minimum, or than what it asked for if that is less.
    pub fn is_unmet(&self, id: ClientId) -> bool {
        self.client(id).is_some_and(Client::is_unmet)
    }

    /// What the group has, within bounds.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What is in the pool, bytes/s.
    pub fn free(&self) -> u64 {
        self.pool
    }

    /// What is in the reserve of `class`, bytes/s.
    pub fn reserve_left(&self, class: Class) -> u64 {
        self.tally(class).reserve
    }

    /// What was given beyond the capacity, bytes/s.
    pub fn oversubscribed(&self) -> u64 {
        self.over
    }

    /// Number of clients.
    pub fn len(&self) -> u32 {
        let clients = |class| self.tally(class).clients as u32;
        Class::ALL
            .into_iter()
            .map(clients)
            .fold(0, u32::wrapping_add)
    }

    /// Changes what a client asks for. One that becomes unmet by it queues behind those that are.
    fn ask(&mut self, id: ClientId, ask: impl FnOnce(&mut Client, u64)) {
        let floor = self.setup.floor;
        let now = self.now();
        self.change(id, |client| {
            let waited = client.is_unmet();
            ask(client, floor);
            if client.is_unmet() && !waited {
                client.since = now;
            }
        });
    }

    /// Notes that a client wants `wish` bytes/s; it keeps its place if it has been wanting.
    fn mark_wanting(&mut self, id: ClientId, wish: u64) {
        let now = self.now();
        self.change(id, |client| {
            if !client.wants() {
                client.wished = now;
            }
            client.wish = wish;
        });
    }

    /// Frees what a client has above its cap.
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
