// SPDX-License-Identifier: GPL-2.0-only

//! The manager: sees what clients use, and has the allocator give them more or less.
//!
//! # Vocabulary
//!
//! - *Look*: the manager meets clients for which classes have claimed gates ([`Manager::look`]).
//! - *Tick*: a look in which clients leave, restore, increase and decrease, too; groups are rebalanced and gates
//!   set once for all of that.
//! - *Shared gate*: that of the clients of a group that found none of their own; they are one client to the
//!   allocator, with what the group promises those that no line is for.
//! - *Fast* and *slow* period: [`usage`].
//!
//! # A client's life
//!
//! ```text
//!   a class claims its gate ──► registers: has its minimum, or what its class's rules leave
//!     │
//!     ├─ slept in half of the fast period, has less than it was given ──► restore
//!     ├─ used 80 % or more of what it had in a slow period ─────────────► increase by 30 %
//!     ├─ used less than 60 % ───────────────────────────────────────────► decrease by 10 %
//!     │
//!   no request queued or dispatched for a second ──► leaves; what it had is others'
//! ```
//!
//! These are the rules of StorNext's client; there each client follows them by itself and sends messages,
//! here the server sees the same and nobody has to be trusted.
//!
//! # Work
//!
//! A look meets the clients of the gates that were announced, a tick goes through all gates. In a tick any number of
//! clients restore what they gave up, which the allocator gives out once for all of them; a bounded number has its slow
//! period judged, which may cost O(clients of the group) each. The others have their turn in the next tick.

mod adjust;
mod client;
mod configure;
mod group;
mod movers;
mod rate;
mod report;
mod usage;

use super::{
    gate::{is_shared, Gates, Owner},
    plan::{Party, Plan, Scene, GROUPS_MAX},
    terms::{Terms, UNREGULATED},
};
use crate::sched::{
    mem::{Bulk, List, NoMemory, Owned, Shared},
    statistics::Stats,
};
#[cfg(not(MODULE))]
pub use client::GroupCounts;

use client::Client;
use group::{Clients, Group};
use movers::Load;
use usage::Clock;

/// The place of a group that is gone.
const NO_GROUP: u32 = u32::MAX;

/// Increases in a tick, at most;
const CHANGES: u32 = 512;

/// with many clients at least so many,
const CHANGES_MIN: u32 = 32;

/// and then as many as look at so many clients in all.
const LOOKS: u32 = 1 << 20;

/// Clients, their gates, and who has how much.
///
/// # Invariants
///
/// `Client::number` is the number of the group that is at `Client::group` in `groups`.
pub struct Manager {
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    clients: Clients,
    groups: List<Group>,
    /// Counts plans.
    generation: u32,
    /// The next group's number.
    number: u32,
    clock: Clock,
    /// When the last tick was, monotonic ns.
    ticked: u64,
    /// The place that is served first.
    turn: u32,
    /// What each group used, for a tick.
    loads: List<Load>,
    /// Whether a gate changed.
    changed: bool,
}

impl Manager {
    /// A manager without clients; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(plan: Shared<Plan>, gates: Shared<Gates>) -> Result<Self, NoMemory> {
        let mut manager = Self {
            clients: Bulk::filled(gates.len() as usize, || None)?,
            plan: plan.clone(),
            gates,
            groups: List::new(),
            generation: 0,
            number: 0,
            clock: Clock::new(),
            ticked: 0,
            turn: 0,
            loads: List::new(),
            changed: false,
        };
        manager.adopt(plan, 0)?;
        Ok(manager)
    }

    /// Meets the clients whose gates were announced since the last time; with `due`, meets all that are new, and judges
    /// what all clients did, too; sleeps. Wants to be called so five times in a fast period.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; the next look tries again.
    pub fn look(&mut self, scene: &dyn Scene, due: bool, now: u64) -> Result<(), NoMemory> {
        if !due && !self.gates.has_news() {
            return Ok(());
        }
        let gates = self.gates.clone();
        let all = 0..if due { gates.len() } else { 0 };
        let mut met = Ok(());
        for place in gates.take_news().chain(all) {
            let done = self.meet(place, scene, now);
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

    /// Meets the client of the gate at `place`, if there is one that has requests.
    fn meet(&mut self, place: u32, scene: &dyn Scene, now: u64) -> Result<(), NoMemory> {
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
            .filter(|_| !self.gates.is_double(place))
        else {
            // The class finds its gate gone, and claims another one.
            self.forget(place);
            self.gates.revoke(place);
            self.changed = true;
            return Ok(());
        };
        self.register(place, &owner, group, scene, now)
    }

    /// The place of the group of `owner`, if its target still is that group's.
    fn group_of(&self, owner: &Owner) -> Option<u32> {
        let mut groups = (0u32..).zip(self.groups.as_slice());
        let (place, _) = groups.find(|(_, group)| group.number == owner.group)?;
        let target = self.plan.groups().get(place as usize)?.target();
        let fits = match target {
            // A shared gate has no target of its own then.
            None if owner.who.target == u32::MAX => true,
            _ => self.plan.group_of(owner.who.target) == Some(place),
        };
        fits.then_some(place)
    }

    /// Registers the client of the gate at `place`, of the group at `group`, which comes for the first time or
    /// comes back.
    fn register(
        &mut self,
        place: u32,
        owner: &Owner,
        group: u32,
        scene: &dyn Scene,
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
            None => client.insert(Owned::new(Client::new(*owner, group.place, now))?),
        };
        client.id = terms.map(|terms| group.enrol(place, terms)).transpose()?;
        client.plan(terms, self.generation);
        client.here = true;
        client.busy = now;
        group.counters.joins = group.counters.joins.saturating_add(1);
        group.clients = group.clients.saturating_add((!is_shared(place)).into());
        let rate = client.id.map_or(UNREGULATED, |id| group.allocation(id));
        client.recent.begin(now);
        // Classes look at the gate only if it changed.
        self.changed |= client.set(gate, rate, now);
        gate.set_known(true);
        Ok(())
    }

    /// Looks up what `party` is promised in the group at `group`: O(lines of the plan).
    fn look_up(&self, group: u32, party: &Party, scene: &dyn Scene) -> Option<Terms> {
        scene.reschedule();
        self.plan.terms(group, party, scene)
    }

    /// The client at `place` leaves; what it had is others'.
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
            group.counters.leaves = group.counters.leaves.saturating_add(1);
            group.clients = group.clients.saturating_sub((!is_shared(place)).into());
            if let Some(id) = id {
                group.withdraw(id);
            }
            if let (Some(gate), Some(terms)) = (gate, client.terms) {
                let start = match group.movers {
                    Some(_) => group.allocator.setup().floor,
                    None => group.start(&terms),
                };
                self.changed |= client.set(gate, start, now);
            }
        }
        if let Some(gate) = gate {
            gate.set_known(false);
        }
    }

    /// Forgets the client at `place`; its gate is to be free.
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

    /// Sets the gates of all clients whose allocation changed; with `told`, what they lost is counted.
    fn apply(&mut self, told: bool, now: u64) {
        for group in self.groups.as_mut_slice() {
            self.changed |= group.apply(&mut self.clients, &self.gates, told, now);
        }
        self.set_starts(now);
    }

    /// Sets what newcomers of each group have.
    fn set_starts(&mut self, now: u64) {
        for group in self.groups.as_mut_slice() {
            let full = self.gates.take_full(group.place);
            group.counters.seatless = group.counters.seatless.saturating_add(full);
            if let Some(terms) = self.plan.default_terms(group.place) {
                let start = group.newcomers(&terms);
                self.gates.set_start(group.place, start, now);
            }
        }
    }

    /// Whether a gate changed since the last call: classes have to look at theirs. To be asked after each look.
    pub fn has_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Tells `each` of every client that is registered and has a gate of its own: its target, and its rate,
    /// bytes/s.
    pub fn each(&self, mut each: impl FnMut(&Party, u32, u64)) {
        for place in GROUPS_MAX..self.clients.len() {
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
