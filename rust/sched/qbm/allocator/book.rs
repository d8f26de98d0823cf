// SPDX-License-Identifier: GPL-2.0-only

//! The accounts: who has what, and sums over them that are always right.
//!
//! Every change of a client goes through [`Allocator::change`] or [`Allocator::each`], which take what the client
//! adds to the sums out of them before the change and put it back after it.

use super::{
    client::{Client, CLIENTS_MAX},
    Allocator, ClientId, Setup,
};
use crate::sched::{
    mem::NoMemory,
    qbm::terms::{Class, CLASSES},
};

/// Sums over the clients of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Clients.
    pub(super) clients: u64,
    /// Those that have nothing yet.
    pub(super) empty: u64,
    /// What they have, bytes/s.
    pub(super) allocated: u64,
    /// Their goals.
    pub(super) goals: u64,
    /// What they have below their goals.
    pub(super) missing: u64,
    /// What they have above their goals.
    pub(super) extra: u64,
    /// Those that want more than their goal.
    pub(super) wanting: u64,
    /// What the class's reserve has not given.
    pub(super) reserve: u64,
    /// What the class's reserve has given.
    pub(super) lent: u64,
}

impl Tally {
    /// Counts what `client` adds. No sum of [`CLIENTS_MAX`] rates wraps.
    fn add(&mut self, client: &Client) {
        self.count(client, u64::wrapping_add);
    }

    /// Takes back what [`Tally::add`] counted for `client`.
    fn sub(&mut self, client: &Client) {
        self.count(client, u64::wrapping_sub);
    }

    fn count(&mut self, client: &Client, by: impl Fn(u64, u64) -> u64) {
        for (sum, part) in [
            (&mut self.clients, 1),
            (&mut self.empty, client.is_empty().into()),
            (&mut self.allocated, client.allocation),
            (&mut self.goals, client.goal),
            (&mut self.missing, client.missing()),
            (&mut self.extra, client.extra()),
            (&mut self.wanting, client.wants().into()),
        ] {
            *sum = by(*sum, part);
        }
    }

    /// Changes `client`, which is counted; returns whether its allocation changed.
    fn change(&mut self, client: &mut Client, change: impl FnOnce(&mut Client)) -> bool {
        let before = client.allocation;
        self.sub(client);
        change(client);
        self.add(client);
        client.allocation != before
    }

    /// What other classes may take: never what came from the class's reserve.
    pub(super) const fn loose(&self) -> u64 {
        self.allocated.saturating_sub(self.lent)
    }
}

/// One of something for each class.
pub(super) struct PerClass<T>(pub(super) [T; CLASSES]);

impl<T> PerClass<T> {
    /// That of `class`.
    pub(super) const fn of(&self, class: Class) -> &T {
        let [first_come, fair_share, low_share, mover] = &self.0;
        match class {
            Class::FirstCome => first_come,
            Class::FairShare => fair_share,
            Class::LowShare => low_share,
            Class::Mover => mover,
        }
    }

    /// That of `class`, for writing.
    pub(super) fn of_mut(&mut self, class: Class) -> &mut T {
        let [first_come, fair_share, low_share, mover] = &mut self.0;
        match class {
            Class::FirstCome => first_come,
            Class::FairShare => fair_share,
            Class::LowShare => low_share,
            Class::Mover => mover,
        }
    }
}

/// A place for a client.
pub(super) enum Slot {
    Taken(Client),
    /// The next vacant one, if there is one.
    Vacant(Option<ClientId>),
}

impl Allocator {
    /// Starts anew with `setup`, which is within bounds, and with whatever clients there are having nothing.
    ///
    /// What was given beyond the capacity is in the pool, and still beyond it.
    pub(super) fn open(&mut self, setup: Setup) {
        self.setup = setup;
        let floor = setup.floor;
        self.pool = setup.capacity.wrapping_add(self.over);
        for (class, reserve) in Class::ALL.into_iter().zip(setup.reserves) {
            self.each(class, |client| {
                client.had = client.allocation;
                client.set(0);
                client.aim(floor);
            });
            self.pool = self.pool.wrapping_sub(reserve);
            let tally = self.tallies.of_mut(class);
            (tally.reserve, tally.lent) = (reserve, 0);
        }
    }

    /// Sums over the clients of `class`.
    pub(super) const fn tally(&self, class: Class) -> &Tally {
        self.tallies.of(class)
    }

    /// What the clients of `class` have if all have just the floor.
    pub(super) const fn floors(&self, class: Class) -> u64 {
        self.tally(class).clients.saturating_mul(self.setup.floor)
    }

    /// The time of a request, for comparisons with others.
    pub(super) fn now(&mut self) -> u64 {
        self.clock = self.clock.wrapping_add(1);
        self.clock
    }

    /// A place for a client, vacant so far; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none, or there are as many clients as there may be.
    pub(super) fn reserve_slot(&mut self) -> Result<ClientId, NoMemory> {
        if let Some(id) = self.vacant {
            return Ok(id);
        }
        let slots = self.slots.as_slice().len();
        if slots >= CLIENTS_MAX {
            return Err(NoMemory);
        }
        let id = slots as ClientId;
        if self.queue.as_slice().len() <= slots {
            self.queue.push(id)?;
        }
        self.slots.push(Slot::Vacant(None))?;
        self.vacant = Some(id);
        Ok(id)
    }

    /// Puts `client` into the first vacant place, which is `id`.
    pub(super) fn insert(&mut self, id: ClientId, client: Client) {
        if let Some(slot) = self.slots.as_mut_slice().get_mut(id as usize) {
            if let Slot::Vacant(next) = slot {
                self.vacant = *next;
            }
            *slot = Slot::Taken(client);
            self.tallies.of_mut(client.terms.class).add(&client);
        }
    }

    /// Takes `id` out of the accounts; what it had is in the caller's hand.
    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let slot = self.slots.as_mut_slice().get_mut(id as usize)?;
        let Slot::Taken(client) = slot else {
            return None;
        };
        let client = *client;
        *slot = Slot::Vacant(self.vacant);
        self.vacant = Some(id);
        self.tallies.of_mut(client.terms.class).sub(&client);
        Some(client)
    }

    /// The client called `id`.
    pub(super) fn client(&self, id: ClientId) -> Option<&Client> {
        match self.slots.as_slice().get(id as usize)? {
            Slot::Taken(client) => Some(client),
            Slot::Vacant(_) => None,
        }
    }

    /// All clients and their names.
    pub(super) fn clients(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        let slots = (0..).zip(self.slots.as_slice());
        slots.filter_map(|(id, slot)| match slot {
            Slot::Taken(client) => Some((id, client)),
            Slot::Vacant(_) => None,
        })
    }

    /// The clients of `class`.
    pub(super) fn members(&self, class: Class) -> impl Iterator<Item = &Client> {
        let clients = self.clients().map(|(_, client)| client);
        clients.filter(move |client| client.terms.class == class)
    }

    /// Changes the client called `id`, but not its class.
    pub(super) fn change(&mut self, id: ClientId, change: impl FnOnce(&mut Client)) {
        if let Some(Slot::Taken(client)) = self.slots.as_mut_slice().get_mut(id as usize) {
            let tally = self.tallies.of_mut(client.terms.class);
            self.changed |= tally.change(client, change);
        }
    }

    /// Changes all clients of `class`, but not their class.
    pub(super) fn each(&mut self, class: Class, mut change: impl FnMut(&mut Client)) {
        let tally = self.tallies.of_mut(class);
        for slot in self.slots.as_mut_slice() {
            match slot {
                Slot::Taken(client) if client.terms.class == class => {
                    self.changed |= tally.change(client, &mut change);
                }
                _ => {}
            }
        }
    }

    /// Gives the client called `id` `more` from the hand.
    pub(super) fn give(&mut self, id: ClientId, more: u64) {
        self.change(id, |client| {
            client.set(client.allocation.wrapping_add(more));
        });
    }

    /// Up to `most` from the pool into the hand.
    pub(super) fn draw_pool(&mut self, most: u64) -> u64 {
        let found = self.pool.min(most);
        self.pool = self.pool.wrapping_sub(found);
        found
    }

    /// Up to `most` from the reserve of `class` into the hand, for its clients.
    pub(super) fn draw_reserve(&mut self, class: Class, most: u64) -> u64 {
        let tally = self.tallies.of_mut(class);
        let found = tally.reserve.min(most);
        tally.reserve = tally.reserve.wrapping_sub(found);
        tally.lent = tally.lent.wrapping_add(found);
        found
    }

    /// Up to `most` from the hand back to the reserve of `class`.
    pub(super) fn refill_reserve(&mut self, class: Class, most: u64) -> u64 {
        let tally = self.tallies.of_mut(class);
        let back = tally.lent.min(most);
        tally.lent = tally.lent.wrapping_sub(back);
        tally.reserve = tally.reserve.wrapping_add(back);
        back
    }

    /// Says whose allocation changed since the last call, and what it is now: the messages to other clients
    /// than the one that asked.
    pub fn drain_changed(&mut self, mut say: impl FnMut(ClientId, u64)) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        for (id, slot) in (0..).zip(self.slots.as_mut_slice()) {
            if let Slot::Taken(client) = slot {
                if client.allocation != client.reported {
                    client.reported = client.allocation;
                    say(id, client.allocation);
                }
            }
        }
    }
}
