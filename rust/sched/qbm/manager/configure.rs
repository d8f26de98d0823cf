// SPDX-License-Identifier: GPL-2.0-only

//! Replacement of the plan while there are clients.
//!
//! Groups with the same name are the same group and keep their allocators. A client is kept if its
//! target still belongs to the same group. All operations that can fail precede any change, except
//! for registrations with the allocator: a client that cannot be registered is retired. Gates are
//! set after all clients have their new terms, so that no client is without bandwidth in between.

use super::{group::ManagedGroup, mover_strategy::GroupLoad, BandwidthManager, NO_GROUP};
use crate::sched::{
    mem::{GrowingList, NoMemory, Shared},
    qbm::{
        gate::is_shared,
        plan::{OverseerContext, Plan},
        terms::UNREGULATED,
    },
};

impl BandwidthManager {
    /// Creates the groups of `plan`; existing groups continue.
    pub(super) fn adopt(&mut self, plan: Shared<Plan>, now: u64) -> Result<(), NoMemory> {
        let tuning = plan.tuning();
        let mut groups = GrowingList::with_capacity(plan.groups().len())?;
        let mut loads = GrowingList::with_capacity(plan.groups().len())?;
        let mut number = self.number;
        for (place, settings) in (0u32..).zip(plan.groups()) {
            groups.push(ManagedGroup::new(number, place, settings, tuning))?;
            loads.push(GroupLoad::default())?;
            number = number.wrapping_add(1);
        }
        // Nothing below can fail.
        for (new, settings) in groups.as_mut_slice().iter_mut().zip(plan.groups()) {
            let old = self.groups.as_mut_slice().iter_mut().find(|old| {
                let before = self.plan.groups().get(old.place as usize);
                before.is_some_and(|before| before.name() == settings.name())
            });
            if let Some(old) = old {
                let place = new.place;
                core::mem::swap(old, new);
                old.place = NO_GROUP;
                new.configure(place, settings, tuning);
            }
        }
        self.gates.set_period(tuning.period);
        self.gates.set_floor(tuning.floor);
        self.gates.keep(plan.listed_max());
        for (place, (group, settings)) in (0..).zip(groups.as_slice().iter().zip(plan.groups())) {
            let terms = plan.default_terms(place);
            let start = terms.map_or((UNREGULATED, 0), |terms| group.newcomers(&terms));
            let group = (group.number, settings.target());
            self.gates.open(place, group, start, now);
        }
        self.gates.opened(groups.as_slice().len() as u32);
        self.number = number;
        self.generation = self.generation.wrapping_add(1).max(1);
        self.groups = groups;
        self.loads = loads;
        self.plan = plan;
        Ok(())
    }

    /// Applies `plan`; may sleep. Clients of remaining groups keep their allocations as far as
    /// their new terms and the new capacity allow, without interruption. A class whose target has
    /// moved to another group claims a gate there when it next examines its gate.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory; nothing has changed.
    pub fn configure(
        &mut self,
        plan: Shared<Plan>,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> Result<(), NoMemory> {
        self.adopt(plan, now)?;
        for place in 0..self.gates.len() {
            self.move_on(place, scene, now);
        }
        self.apply(false, now);
        self.changed = true;
        Ok(())
    }

    /// Applies a new plan to the client at `place`.
    fn move_on(&mut self, place: u32, scene: &dyn OverseerContext, now: u64) {
        let client = self.clients.get_mut(place as usize);
        let (Some(client), Some(gate)) = (client.and_then(Option::as_mut), self.gates.get(place))
        else {
            return;
        };
        let (here, owner) = (client.here, client.owner);
        let groups = self.groups.as_slice();
        let there = groups.iter().find(|group| group.number == owner.group);
        client.group = there.map_or(NO_GROUP, |group| group.place);
        let moved = is_shared(place) && client.group != place;
        let Some(place_of) = self.group_of(&owner).filter(|_| !moved) else {
            self.retire(place, now);
            self.forget(place);
            if !is_shared(place) {
                self.gates.revoke(place);
            } else if let Some(gate) = self.gates.get(place) {
                // The shared gate now belongs to the group at this index.
                gate.clear(now);
            }
            return;
        };
        if !here {
            return;
        }
        let terms = self.look_up(place_of, &owner.who.party, scene);
        let client = self.clients.get_mut(place as usize);
        let Some(client) = client.and_then(Option::as_mut) else {
            return;
        };
        let Some(group) = self.groups.as_mut_slice().get_mut(place_of as usize) else {
            return;
        };
        let before = client.terms;
        client.plan(terms, self.generation);
        let rate = match (client.id, terms) {
            (Some(id), Some(terms)) => {
                if before != Some(terms) {
                    group.allocator.set_terms(id, terms);
                }
                // The allocator reports changes after all clients have their new terms.
                client.rate
            }
            (Some(id), None) => {
                client.id = None;
                group.withdraw(id);
                UNREGULATED
            }
            (None, Some(terms)) => match group.enrol(place, terms) {
                Ok(id) => {
                    client.id = Some(id);
                    client.recent.begin(now);
                    group.allocation(id)
                }
                Err(NoMemory) => {
                    self.retire(place, now);
                    return;
                }
            },
            (None, None) => UNREGULATED,
        };
        // The rank may have changed.
        client.set(gate, rate, now);
    }
}
