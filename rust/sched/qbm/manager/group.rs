// SPDX-License-Identifier: GPL-2.0-only

//! Stripe group: the allocator and the clients of one capacity.

use super::{
    client::{GroupCounts, ManagedClient},
    mover_strategy::MoverStrategy,
};
use crate::sched::{
    count::Count,
    mem::{Bulk, GrowingList, NoMemory, Owned},
    qbm::{
        allocator::{Allocator, AllocatorParameters, ClientId},
        gate::Gates,
        plan::{BandwidthParameters, PlanGroup as Settings},
        terms::{BandwidthClass, Entitlement, UNREGULATED},
    },
    statistics::Stats,
};

/// Clients of all groups, by the index of their gates.
pub type ManagedClients = Bulk<Option<Owned<ManagedClient>>>;

/// Index of no client.
const NOWHERE: u32 = u32::MAX;

/// Number of new clients that are served at once; later clients are served when gates are set.
const AT_ONCE: u32 = 16;

/// Group of clients.
pub struct ManagedGroup {
    /// Identifier of the group in the keys of clients, unique among existing groups.
    pub number: u32,
    /// Index in the plan.
    pub place: u32,
    /// Allocator of the group.
    pub allocator: Allocator,
    /// Indexes of clients by their identifiers at the allocator.
    places: GrowingList<u32>,
    /// Number of registered clients with a gate of their own, including clients that are only
    /// measured.
    pub clients: u32,
    /// State of the mover strategy, if the group uses it.
    pub movers: Option<MoverStrategy>,
    /// True if the allocator must settle before gates are set.
    pub stale: bool,
    /// Number of clients that registered since gates were last set.
    fresh: u32,
    /// Counters since the last reset, without those of existing gates.
    pub counters: GroupCounts,
}

impl ManagedGroup {
    /// Creates a group without clients.
    pub fn new(number: u32, place: u32, settings: &Settings, tuning: &BandwidthParameters) -> Self {
        Self {
            number,
            place,
            allocator: Allocator::new(parameters_of(settings, tuning, settings.capacity())),
            places: GrowingList::new(),
            clients: 0,
            movers: MoverStrategy::of(settings, tuning),
            stale: false,
            fresh: 0,
            counters: GroupCounts::ZERO,
        }
    }

    /// Applies `settings`, which are at index `place` of the plan.
    pub fn configure(&mut self, place: u32, settings: &Settings, tuning: &BandwidthParameters) {
        self.place = place;
        self.movers = match (&self.movers, MoverStrategy::of(settings, tuning)) {
            (Some(old), Some(new)) => Some(new.after(old)),
            (_, new) => new,
        };
        let capacity = match &self.movers {
            Some(movers) => movers.left(),
            None => settings.capacity(),
        };
        self.allocator
            .set_parameters(parameters_of(settings, tuning, capacity));
    }

    /// Returns the allocation of client `id`, bytes/s; the floor if the client is not yet served.
    pub fn allocation(&self, id: ClientId) -> u64 {
        self.allocator
            .allocation(id)
            .max(self.allocator.parameters().floor)
    }

    /// Unregisters client `id` at the allocator; the allocation is released when gates are set.
    pub fn withdraw(&mut self, id: ClientId) {
        self.allocator.withdraw(id);
        self.stale = true;
    }

    /// Returns the rate, bytes/s, and the rank of clients without a line until the manager
    /// registers them. `terms` are their terms.
    pub fn newcomers(&self, terms: &Entitlement) -> (u64, u8) {
        let rank = match self.movers {
            Some(_) => 0,
            None => terms.class.rank(),
        };
        (self.start(terms), rank)
    }

    /// Returns the rate of clients without a line, which have `terms`, until the manager registers
    /// them, bytes/s.
    pub fn start(&self, terms: &Entitlement) -> u64 {
        if self.movers.is_some() {
            return UNREGULATED;
        }
        let parameters = self.allocator.parameters();
        let all = u64::from(self.clients).saturating_add(1);
        let rate = match terms.class {
            BandwidthClass::FirstCome if self.allocator.free() < terms.min => 0,
            BandwidthClass::FirstCome => terms.min,
            _ => terms
                .min
                .min(parameters.capacity.checked_div(all).unwrap_or(0)),
        };
        rate.max(parameters.floor)
    }

    /// Registers the client at `place` with the allocator; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory; nothing has changed.
    pub fn enrol(&mut self, place: u32, terms: Entitlement) -> Result<ClientId, NoMemory> {
        // The table grows first, so that nothing has to be undone: a new identifier is reused or
        // equals the number of clients.
        while self.places.as_slice().len() <= self.allocator.len() as usize {
            self.places.push(NOWHERE)?;
        }
        // A few new clients are served at once. With many, the allocator settles once for all of
        // them.
        let id = if self.fresh < AT_ONCE {
            self.allocator.register(terms)?
        } else {
            self.allocator.enter(terms)?
        };
        if let Some(at) = self.places.as_mut_slice().get_mut(id as usize) {
            *at = place;
        }
        self.fresh.count(1);
        self.stale = true;
        Ok(id)
    }

    /// Sets the gates of clients whose allocation changed since the last call; if `count_losses`,
    /// counts losses of clients that did not decrease. Returns true if a gate changed.
    pub fn apply(
        &mut self,
        clients: &mut ManagedClients,
        gates: &Gates,
        count_losses: bool,
        now: u64,
    ) -> bool {
        if core::mem::take(&mut self.stale) {
            self.fresh = 0;
            self.allocator.apply_rules();
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
            if count_losses && !client.lowered && lost > 0 {
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

/// Creates the allocator's parameters for a group with an allocatable capacity of `capacity`
/// bytes/s.
pub fn parameters_of(
    settings: &Settings,
    tuning: &BandwidthParameters,
    capacity: u64,
) -> AllocatorParameters {
    let mut left = capacity;
    let reserves = settings.reserves().map(|reserve| {
        // In a group of movers the usage of other clients may leave less than the reserves.
        let reserve = reserve.min(left);
        left = left.saturating_sub(reserve);
        reserve
    });
    AllocatorParameters {
        capacity,
        reserves,
        floor: tuning.floor,
        grant: tuning.grant,
    }
}
