// SPDX-License-Identifier: GPL-2.0-only

//! Manager: measures the usage of clients, and requests increases and decreases from the allocator.
//!
//! - A *look* registers clients for which request classes have claimed gates
//!   ([`BandwidthManager::poll`]).
//! - A *tick* is a look in which clients also leave, restore, increase and decrease. After all
//!   clients, the groups are rebalanced once and the gates are set once.
//! - The *shared gate* of a group serves the clients that found no gate of their own. To the
//!   allocator they are one client, with the terms of clients without a line.
//! - The *fast* and the *slow* period are described in [`usage`].
//!
//! # Life cycle of a client
//!
//! ```text
//!   a class claims a gate ──► register: gets the minimum, or what the rules of the class allow
//!     │
//!     ├─ throttled in half of the fast period, allocation below the given one ──► restore
//!     ├─ used 80 % or more of the allocation in a slow period ──────────────────► increase by 30 %
//!     ├─ used less than 60 % ───────────────────────────────────────────────────► decrease by 10 %
//!     │
//!   no request queued or dispatched for a second ──► leave: the allocation is released
//! ```
//!
//! These are the rules of StorNext's client. There each client applies the rules and sends
//! messages; here the server measures the same values, so that no client has to be trusted.
//!
//! # Work
//!
//! A look examines the announced gates, a tick examines all gates. In a tick any number of clients
//! may restore, and the allocator settles once for all of them. The number of slow periods
//! evaluated per tick is limited, because each evaluation may take O(clients of the group). The
//! remaining clients follow in the next tick.

mod adjust;
mod client;
mod configure;
mod group;
mod mover_strategy;
mod rate;
mod report;
mod usage;

use super::{
    gate::{is_shared, GateOwner, Gates},
    plan::{ClientKey, OverseerContext, Plan},
    terms::{Entitlement, UNREGULATED},
};
use crate::sched::{
    count::Count,
    mem::{Bulk, GrowingList, NoMemory, Owned, Shared},
    statistics::Stats,
};
#[cfg(not(MODULE))]
pub use client::GroupCounts;

use client::ManagedClient;
use group::{ManagedClients, ManagedGroup};
use mover_strategy::GroupLoad;
use usage::MarkTimes;

/// Index of a removed group.
const NO_GROUP: u32 = u32::MAX;

/// Maximum number of increases and decreases in a tick.
const CHANGES: u32 = 512;

/// Minimum of this limit with many clients.
const CHANGES_MIN: u32 = 32;

/// Maximum number of clients examined by all increases and decreases of a tick; lowers the limit if
/// there are many clients.
const LOOKS: u32 = 1 << 20;

/// Registered clients, their gates, and the allocators of the groups.
///
/// # Invariants
///
/// `ManagedClient::owner.group` is the number of the group at index `ManagedClient::group` of
/// `groups`, unless the latter is [`NO_GROUP`].
pub struct BandwidthManager {
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    clients: ManagedClients,
    groups: GrowingList<ManagedGroup>,
    /// Generation of the plan.
    generation: u32,
    /// Number of the next new group.
    number: u32,
    clock: MarkTimes,
    /// Time of the last tick, monotonic ns.
    ticked: u64,
    /// Index of the gate with which the next tick starts.
    turn: u32,
    /// Load of each group in a tick.
    loads: GrowingList<GroupLoad>,
    /// True if a gate changed.
    changed: bool,
}

impl BandwidthManager {
    /// Creates a manager without clients; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory.
    pub fn new(plan: Shared<Plan>, gates: Shared<Gates>) -> Result<Self, NoMemory> {
        let mut manager = Self {
            clients: Bulk::filled(gates.len() as usize, || None)?,
            plan: plan.clone(),
            gates,
            groups: GrowingList::new(),
            generation: 0,
            number: 0,
            clock: MarkTimes::new(),
            ticked: 0,
            turn: 0,
            loads: GrowingList::new(),
            changed: false,
        };
        manager.adopt(plan, 0)?;
        Ok(manager)
    }

    /// Registers the clients of the gates announced since the last call. If `due`, examines all
    /// gates and evaluates all clients, too; to be called so five times per fast period. May sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory; the next poll retries.
    pub fn poll(
        &mut self,
        scene: &dyn OverseerContext,
        due: bool,
        now: u64,
    ) -> Result<(), NoMemory> {
        if !due && !self.gates.has_pending() {
            return Ok(());
        }
        let gates = self.gates.clone();
        let all = 0..if due { gates.len() } else { 0 };
        let mut met = Ok(());
        for place in gates.take_pending().chain(all) {
            let done = self.register_announced(place, scene, now);
            if done.is_err() {
                gates.announce(place);
            }
            met = met.and(done);
        }
        if due {
            self.tick(now);
        }
        self.apply(true, now);
        met
    }

    /// Registers the client of the gate at `place`, if there is one with requests.
    fn register_announced(
        &mut self,
        place: u32,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> Result<(), NoMemory> {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        let Some(gate) = self.gates.get(place) else {
            return Ok(());
        };
        if gate.is_known() {
            return Ok(());
        }
        let Some(owner) = self.gates.owner(place) else {
            return Ok(());
        };
        let busy = gate.is_busy();
        match self.clients.get(place as usize).and_then(Option::as_ref) {
            Some(client) if !busy && !client.has_moved(gate) => return Ok(()),
            None if is_shared(place) && !busy && gate.usage().requests == 0 => return Ok(()),
            _ => {}
        }
        let Some(group) = self
            .group_of(&owner)
            .filter(|_| !self.gates.has_earlier_duplicate(place))
        else {
            // The class finds the gate revoked, and claims another gate.
            self.forget(place);
            self.gates.revoke(place);
            self.changed = true;
            return Ok(());
        };
        self.register(place, &owner, group, scene, now)
    }

    /// Finds the index of the group of `owner`, if the target still belongs to that group.
    fn group_of(&self, owner: &GateOwner) -> Option<u32> {
        let mut groups = (0u32..).zip(self.groups.as_slice());
        let (place, _) = groups.find(|(_, group)| group.number == owner.group)?;
        let target = self.plan.groups().get(place as usize)?.target();
        let fits = match target {
            // The shared gate of a group for all targets has no target.
            None if owner.who.target == u32::MAX => true,
            _ => self.plan.group_of(owner.who.target) == Some(place),
        };
        fits.then_some(place)
    }

    /// Registers the client of the gate at `place` in the group at index `group`, for the first
    /// time or again.
    fn register(
        &mut self,
        place: u32,
        owner: &GateOwner,
        group: u32,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> Result<(), NoMemory> {
        let party = owner.who.party;
        let client = self.clients.get(place as usize).and_then(Option::as_ref);
        let known = client.filter(|client| client.planned == self.generation);
        let terms = match known {
            Some(client) => client.terms,
            None => self.look_up(group, &party, scene),
        };
        let (Some(gate), Some(client), Some(group)) = (
            self.gates.get(place),
            self.clients.get_mut(place as usize),
            self.groups.as_mut_slice().get_mut(group as usize),
        ) else {
            return Ok(());
        };
        let client = match client {
            Some(client) => client,
            None => client.insert(Owned::new(ManagedClient::new(*owner, group.place, now))?),
        };
        client.id = terms.map(|terms| group.enrol(place, terms)).transpose()?;
        client.plan(terms, self.generation);
        client.here = true;
        client.busy = now;
        group.counters.joins.count(1);
        group.clients.count((!is_shared(place)).into());
        let rate = client.id.map_or(UNREGULATED, |id| group.allocation(id));
        client.recent.begin(now);
        // Classes examine their gates only after a change.
        self.changed |= client.set(gate, rate, now);
        gate.set_known(true);
        Ok(())
    }

    /// Looks up the terms of `party` in the group at index `group`: O(lines of the plan).
    fn look_up(
        &self,
        group: u32,
        party: &ClientKey,
        scene: &dyn OverseerContext,
    ) -> Option<Entitlement> {
        scene.reschedule();
        self.plan.terms(group, party, scene)
    }

    /// Unregisters the client at `place` and releases the allocation.
    fn retire(&mut self, place: u32, now: u64) {
        let client = self.clients.get_mut(place as usize);
        let Some(client) = client.and_then(Option::as_mut).filter(|client| client.here) else {
            return;
        };
        client.here = false;
        let id = client.id.take();
        let group = self.groups.as_mut_slice().get_mut(client.group as usize);
        let gate = self.gates.get(place);
        if let Some(group) = group {
            group.counters.leaves.count(1);
            group.clients = group.clients.saturating_sub((!is_shared(place)).into());
            if let Some(id) = id {
                group.withdraw(id);
            }
            if let (Some(gate), Some(terms)) = (gate, client.terms) {
                let start = match group.movers {
                    Some(_) => group.allocator.parameters().floor,
                    None => group.start(&terms),
                };
                self.changed |= client.set(gate, start, now);
            }
        }
        if let Some(gate) = gate {
            gate.set_known(false);
        }
    }

    /// Removes the client at `place`; the caller frees the gate.
    fn forget(&mut self, place: u32) {
        let client = self.clients.get_mut(place as usize);
        let Some(client) = client.and_then(Option::take) else {
            return;
        };
        let group = self.groups.as_mut_slice().get_mut(client.group as usize);
        if let (Some(gate), Some(group)) = (self.gates.get(place), group) {
            group.counters.merge(&client.traffic(gate));
        }
    }

    /// Sets the gates of all clients whose allocation changed; if `count_losses`, counts losses.
    fn apply(&mut self, count_losses: bool, now: u64) {
        for group in self.groups.as_mut_slice() {
            self.changed |= group.apply(&mut self.clients, &self.gates, count_losses, now);
        }
        self.set_starts(now);
    }

    /// Sets the start rate of new clients of each group.
    fn set_starts(&mut self, now: u64) {
        for group in self.groups.as_mut_slice() {
            let full = self.gates.take_full(group.place);
            group.counters.without_gate.count(full);
            if let Some(terms) = self.plan.default_terms(group.place) {
                let start = group.newcomers(&terms);
                self.gates.set_start(group.place, start, now);
            }
        }
    }

    /// Returns true if a gate changed since the last call, so that classes must examine their
    /// gates. To be called after each look.
    pub fn has_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Calls `each` for every registered client with a gate of its own: key, target and rate,
    /// bytes/s.
    #[cfg(not(MODULE))]
    pub fn each(&self, mut each: impl FnMut(&ClientKey, u32, u64)) {
        for place in super::plan::GROUPS_MAX..self.clients.len() {
            let client = self.clients.get(place).and_then(Option::as_ref);
            if let Some(client) = client.filter(|client| client.here) {
                let who = &client.owner.who;
                each(&who.party, who.target, client.rate);
            }
        }
    }
}

#[cfg(test)]
mod tests;
