// SPDX-License-Identifier: GPL-2.0-only

//! Accounts of an allocator: allocations of clients, and sums over them that are always current.
//!
//! [`Allocator::change`] and [`Allocator::each`] make every change of a client: they subtract the
//! client from the sums before the change and add it again afterwards. Methods that return an
//! amount taken from pool or reserve pass this bandwidth to the caller, who must allocate or
//! release it.

use super::{
    client::{AllocatorClient, CLIENTS_MAX},
    Allocator, AllocatorParameters, ClientId,
};
use crate::sched::{
    mem::NoMemory,
    qbm::terms::{BandwidthClass, CLASSES},
};

/// Sums over the clients of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassTally {
    /// Number of clients.
    pub(super) clients: u64,
    /// Number of clients without an allocation yet.
    pub(super) empty: u64,
    /// Sum of the allocations, bytes/s.
    pub(super) allocated: u64,
    /// Sum of the goals, bytes/s.
    pub(super) goals: u64,
    /// Sum of the differences between goal and allocation of unmet clients, bytes/s.
    pub(super) missing: u64,
    /// Sum of extra, bytes/s.
    pub(super) extra: u64,
    /// Number of clients that want more than their goal.
    pub(super) wanting: u64,
    /// Remaining bandwidth of the class's reserve, bytes/s.
    pub(super) reserve: u64,
    /// Bandwidth drawn from the class's reserve, bytes/s.
    pub(super) lent: u64,
}

impl ClassTally {
    /// Adds `client` to the sums. Sums of [`CLIENTS_MAX`] rates do not wrap.
    fn add(&mut self, client: &AllocatorClient) {
        self.count(client, u64::wrapping_add);
    }

    /// Subtracts `client` from the sums.
    fn sub(&mut self, client: &AllocatorClient) {
        self.count(client, u64::wrapping_sub);
    }

    fn count(&mut self, client: &AllocatorClient, by: impl Fn(u64, u64) -> u64) {
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

    /// Applies `change` to `client`, which is counted; returns true if the allocation changed.
    fn change(
        &mut self,
        client: &mut AllocatorClient,
        change: impl FnOnce(&mut AllocatorClient),
    ) -> bool {
        let before = client.allocation;
        self.sub(client);
        change(client);
        self.add(client);
        client.allocation != before
    }

    /// Returns the bandwidth that other classes may take: all but the amount drawn from the class's
    /// reserve.
    pub(super) const fn loose(&self) -> u64 {
        self.allocated.saturating_sub(self.lent)
    }
}

/// Array with one entry per class.
pub(super) struct PerClass<T>(pub(super) [T; CLASSES]);

impl<T> PerClass<T> {
    /// Returns the entry of `class`.
    pub(super) const fn of(&self, class: BandwidthClass) -> &T {
        let [first_come, fair_share, low_share, mover] = &self.0;
        match class {
            BandwidthClass::FirstCome => first_come,
            BandwidthClass::FairShare => fair_share,
            BandwidthClass::LowShare => low_share,
            BandwidthClass::Mover => mover,
        }
    }

    /// Returns the entry of `class`, for writing.
    pub(super) fn of_mut(&mut self, class: BandwidthClass) -> &mut T {
        let [first_come, fair_share, low_share, mover] = &mut self.0;
        match class {
            BandwidthClass::FirstCome => first_come,
            BandwidthClass::FairShare => fair_share,
            BandwidthClass::LowShare => low_share,
            BandwidthClass::Mover => mover,
        }
    }
}

/// Table entry for a client.
pub(super) enum ClientEntry {
    Taken(AllocatorClient),
    /// Next vacant entry, if any.
    Vacant(Option<ClientId>),
}

impl Allocator {
    /// Resets to `parameters`, which is within bounds, with all allocations 0.
    ///
    /// Oversubscribed bandwidth moves to the pool and stays oversubscribed.
    pub(super) fn open(&mut self, parameters: AllocatorParameters) {
        self.parameters = parameters;
        let floor = parameters.floor;
        self.pool = parameters.capacity.wrapping_add(self.over);
        for (class, reserve) in BandwidthClass::ALL.into_iter().zip(parameters.reserves) {
            self.each(class, |client| {
                client.had = client.allocation;
                client.set(0);
                client.update_goal(floor);
            });
            self.pool = self.pool.wrapping_sub(reserve);
            let tally = self.tallies.of_mut(class);
            (tally.reserve, tally.lent) = (reserve, 0);
        }
    }

    /// Returns the sums over the clients of `class`.
    pub(super) const fn tally(&self, class: BandwidthClass) -> &ClassTally {
        self.tallies.of(class)
    }

    /// Returns the sum of the floors of the clients of `class`, bytes/s.
    pub(super) const fn floors(&self, class: BandwidthClass) -> u64 {
        self.tally(class)
            .clients
            .saturating_mul(self.parameters.floor)
    }

    /// Returns the logical time of a request, for comparison with other requests.
    pub(super) fn now(&mut self) -> u64 {
        self.clock = self.clock.wrapping_add(1);
        self.clock
    }

    /// Reserves a vacant entry for a client; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory, or the maximum number of clients is reached.
    pub(super) fn reserve_entry(&mut self) -> Result<ClientId, NoMemory> {
        if let Some(id) = self.vacant {
            return Ok(id);
        }
        let entries = self.entries.as_slice().len();
        if entries >= CLIENTS_MAX {
            return Err(NoMemory);
        }
        let id = entries as ClientId;
        if self.queue.as_slice().len() <= entries {
            self.queue.push(id)?;
        }
        self.entries.push(ClientEntry::Vacant(None))?;
        self.vacant = Some(id);
        Ok(id)
    }

    /// Inserts `client` into the first vacant entry, which is `id`.
    pub(super) fn insert(&mut self, id: ClientId, client: AllocatorClient) {
        if let Some(entry) = self.entries.as_mut_slice().get_mut(id as usize) {
            if let ClientEntry::Vacant(next) = entry {
                self.vacant = *next;
            }
            *entry = ClientEntry::Taken(client);
            self.tallies.of_mut(client.terms.class).add(&client);
        }
    }

    /// Removes client `id` from the accounts; the caller must release its allocation.
    pub(super) fn remove(&mut self, id: ClientId) -> Option<AllocatorClient> {
        let entry = self.entries.as_mut_slice().get_mut(id as usize)?;
        let ClientEntry::Taken(client) = entry else {
            return None;
        };
        let client = *client;
        *entry = ClientEntry::Vacant(self.vacant);
        self.vacant = Some(id);
        self.tallies.of_mut(client.terms.class).sub(&client);
        Some(client)
    }

    /// Returns client `id`.
    pub(super) fn client(&self, id: ClientId) -> Option<&AllocatorClient> {
        match self.entries.as_slice().get(id as usize)? {
            ClientEntry::Taken(client) => Some(client),
            ClientEntry::Vacant(_) => None,
        }
    }

    /// Iterates over all clients and their identifiers.
    pub(super) fn clients(&self) -> impl Iterator<Item = (ClientId, &AllocatorClient)> {
        let entries = (0..).zip(self.entries.as_slice());
        entries.filter_map(|(id, entry)| match entry {
            ClientEntry::Taken(client) => Some((id, client)),
            ClientEntry::Vacant(_) => None,
        })
    }

    /// Iterates over the clients of `class`.
    pub(super) fn members(&self, class: BandwidthClass) -> impl Iterator<Item = &AllocatorClient> {
        let clients = self.clients().map(|(_, client)| client);
        clients.filter(move |client| client.terms.class == class)
    }

    /// Changes client `id`, but not its class.
    pub(super) fn change(&mut self, id: ClientId, change: impl FnOnce(&mut AllocatorClient)) {
        if let Some(ClientEntry::Taken(client)) = self.entries.as_mut_slice().get_mut(id as usize) {
            let tally = self.tallies.of_mut(client.terms.class);
            self.changed |= tally.change(client, change);
        }
    }

    /// Changes all clients of `class`, but not their class.
    pub(super) fn each(
        &mut self,
        class: BandwidthClass,
        mut change: impl FnMut(&mut AllocatorClient),
    ) {
        let tally = self.tallies.of_mut(class);
        for entry in self.entries.as_mut_slice() {
            match entry {
                ClientEntry::Taken(client) if client.terms.class == class => {
                    self.changed |= tally.change(client, &mut change);
                }
                _ => {}
            }
        }
    }

    /// Gives client `id` `more` bytes/s, which the caller has taken.
    pub(super) fn give(&mut self, id: ClientId, more: u64) {
        self.change(id, |client| {
            client.set(client.allocation.wrapping_add(more));
        });
    }

    /// Takes up to `most` bytes/s from the pool.
    pub(super) fn draw_pool(&mut self, most: u64) -> u64 {
        let found = self.pool.min(most);
        self.pool = self.pool.wrapping_sub(found);
        found
    }

    /// Takes up to `most` bytes/s from the reserve of `class`, for its clients.
    pub(super) fn draw_reserve(&mut self, class: BandwidthClass, most: u64) -> u64 {
        let tally = self.tallies.of_mut(class);
        let found = tally.reserve.min(most);
        tally.reserve = tally.reserve.wrapping_sub(found);
        tally.lent = tally.lent.wrapping_add(found);
        found
    }

    /// Returns up to `most` bytes/s to the reserve of `class`; returns the amount.
    pub(super) fn refill_reserve(&mut self, class: BandwidthClass, most: u64) -> u64 {
        let tally = self.tallies.of_mut(class);
        let back = tally.lent.min(most);
        tally.lent = tally.lent.wrapping_sub(back);
        tally.reserve = tally.reserve.wrapping_add(back);
        back
    }

    /// Calls `say` with each client whose allocation changed since the last call, and the new
    /// allocation, bytes/s.
    pub fn drain_changed(&mut self, mut say: impl FnMut(ClientId, u64)) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        for (id, entry) in (0..).zip(self.entries.as_mut_slice()) {
            if let ClientEntry::Taken(client) = entry {
                if client.allocation != client.reported {
                    client.reported = client.allocation;
                    say(id, client.allocation);
                }
            }
        }
    }
}
