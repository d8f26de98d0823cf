// SPDX-License-Identifier: GPL-2.0-only

//! A stripe group: its allocator, and what its clients do together.

use super::{
    client::{Client, GroupCounts},
    movers::Movers,
};
use crate::sched::{
    mem::{Bulk, List, NoMemory, Owned},
    qbm::{
        allocator::{Allocator, ClientId, Setup},
        gate::Gates,
        plan::{Group as Settings, Tuning},
        terms::{Class, Terms, UNREGULATED},
    },
    statistics::Stats,
};

/// The clients of all groups, by the places of their gates.
pub type Clients = Bulk<Option<Owned<Client>>>;

/// No place.
const NOWHERE: u32 = u32::MAX;

/// Clients that come before those that follow have to wait until gates are set.
const AT_ONCE: u32 = 16;

/// A group.
pub struct Group {
    /// Stands for it in the keys of clients; never another group's while one is there.
    pub number: u32,
    /// Its place in the plan.
    pub place: u32,
    /// Who has how much.
    pub allocator: Allocator,
    /// The places of clients by their names at the allocator.
    places: List<u32>,
    /// Clients with a gate of their own that are registered, those that are only measured too.
    pub clients: u32,
    /// What movers are left, if it is a group of movers.
    pub movers: Option<Movers>,
    /// Whether somebody came or left since gates were set last.
    pub stale: bool,
    /// How many came since then.
    fresh: u32,
    /// What was counted since the last reset, but for what gates of clients count that are not gone.
    pub counters: GroupCounts,
}

impl Group {
    /// A group without clients.
    pub fn new(number: u32, place: u32, settings: &Settings, tuning: &Tuning) -> Self {
        Self {
            number,
            place,
            allocator: Allocator::new(setup_of(settings, tuning, settings.capacity())),
            places: List::new(),
            clients: 0,
            movers: Movers::of(settings, tuning),
            stale: false,
            fresh: 0,
            counters: GroupCounts::ZERO,
        }
    }

    /// Goes on as `settings` say, which are at `place` in their plan.
    pub fn configure(&mut self, place: u32, settings: &Settings, tuning: &Tuning) {
        self.place = place;
        self.movers = match (&self.movers, Movers::of(settings, tuning)) {
            (Some(old), Some(new)) => Some(new.after(old)),
            (_, new) => new,
        };
        let capacity = match &self.movers {
            Some(movers) => movers.left(),
            None => settings.capacity(),
        };
        self.allocator
            .set_setup(setup_of(settings, tuning, capacity));
    }

    /// What the client called `id` has, bytes/s; one that came in a crowd has the floor for now.
    pub fn allocation(&self, id: ClientId) -> u64 {
        self.allocator
            .allocation(id)
            .max(self.allocator.setup().floor)
    }

    /// The client called `id` leaves; what it had is others' when gates are set.
    pub fn withdraw(&mut self, id: ClientId) {
        self.allocator.withdraw(id);
        self.stale = true;
    }

    /// Returns rate, bytes/s, and rank of clients without a line, which are promised `terms`, until the manager meets
    /// them.
    pub fn newcomers(&self, terms: &Terms) -> (u64, u8) {
        let rank = match self.movers {
            Some(_) => 0,
            None => terms.class.rank(),
        };
        (self.start(terms), rank)
    }

    /// What clients without a line have, where they are promised `terms`, until the manager meets them, bytes/s.
    pub fn start(&self, terms: &Terms) -> u64 {
        if self.movers.is_some() {
            return UNREGULATED;
        }
        let setup = self.allocator.setup();
        let all = u64::from(self.clients).saturating_add(1);
        let rate = match terms.class {
            Class::FirstCome if self.allocator.free() < terms.min => 0,
            Class::FirstCome => terms.min,
            _ => terms.min.min(setup.capacity.checked_div(all).unwrap_or(0)),
        };
        rate.max(setup.floor)
    }

    /// Registers the client at `place` with the allocator; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; nothing changed.
    pub fn enrol(&mut self, place: u32, terms: Terms) -> Result<ClientId, NoMemory> {
        // Room first, so that nothing has to be undone: a new name is the number of clients before.
        while self.places.as_slice().len() <= self.allocator.len() as usize {
            self.places.push(NOWHERE)?;
        }
        // A few have all they can get from the start, many when all are there: then it is shared once.
        let id = if self.fresh < AT_ONCE {
            self.allocator.register(terms)?
        } else {
            self.allocator.enter(terms)?
        };
        if let Some(at) = self.places.as_mut_slice().get_mut(id as usize) {
            *at = place;
        }
        self.fresh = self.fresh.saturating_add(1);
        self.stale = true;
        Ok(id)
    }

    /// Sets the gates of those whose allocation changed since the last time; with `told`, those that lost some
    /// without having asked for that are counted. Whether a gate changed.
    pub fn apply(&mut self, clients: &mut Clients, gates: &Gates, told: bool, now: u64) -> bool {
        if core::mem::take(&mut self.stale) {
            self.fresh = 0;
            self.allocator.settle();
        }
        let mut changed = false;
        let (places, counters) = (&self.places, &mut self.counters);
        self.allocator.drain_changed(|id, rate| {
            let place = places.as_slice().get(id as usize).copied();
            let place = place.unwrap_or(NOWHERE);
            let client = clients.get_mut(place as usize).and_then(Option::as_mut);
            let client = client.filter(|client| client.id == Some(id));
            let (Some(client), Some(gate)) = (client, gates.get(place)) else {
                return;
            };
            let lost = client.rate.saturating_sub(rate);
            if told && !client.lowered && lost > 0 {
                let counts = GroupCounts {
                    losses: 1,
                    taken_by_others: lost,
                    ..GroupCounts::ZERO
                };
                counters.merge(&counts);
                client.counters.merge(&counts);
            }
            changed |= client.set(gate, rate, now);
        });
        changed
    }
}

/// What the allocator is to know of a group of which `capacity` is to be allocated, bytes/s.
pub fn setup_of(settings: &Settings, tuning: &Tuning, capacity: u64) -> Setup {
    let mut left = capacity;
    let reserves = settings.reserves().map(|reserve| {
        // What others use in a group of movers may be more than was reserved beside.
        let reserve = reserve.min(left);
        left = left.saturating_sub(reserve);
        reserve
    });
    Setup {
        capacity,
        reserves,
        floor: tuning.floor,
        grant: tuning.grant,
    }
}
