// SPDX-License-Identifier: GPL-2.0-only

//! A new plan while clients are there.
//!
//! Groups are the same if they have the same name, and keep their allocators; clients are the same if their target
//! still is the same group's. Everything that can fail comes first, and gates are set when everybody has its new
//! terms: nobody is without bandwidth in between.

use super::{group::Group, movers::Load, Manager, NO_GROUP};
use crate::sched::{
    mem::{List, NoMemory, Shared},
    qbm::{
        gate::is_shared,
        plan::{Plan, Scene},
        terms::UNREGULATED,
    },
};

impl Manager {
    /// Makes the groups of `plan`; those that were there go on.
    pub(super) fn adopt(&mut self, plan: Shared<Plan>, now: u64) -> Result<(), NoMemory> {
        let tuning = plan.tuning();
        let mut groups = List::with_capacity(plan.groups().len())?;
        let mut loads = List::with_capacity(plan.groups().len())?;
        let mut number = self.number;
        for (place, settings) in (0u32..).zip(plan.groups()) {
            groups.push(Group::new(number, place, settings, tuning))?;
            loads.push(Load::default())?;
            number = number.wrapping_add(1);
        }
        // From here on nothing fails.
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

    /// Goes on with `plan`; sleeps. Clients of groups that stay keep what they have as far as their new
    /// terms and the group's new capacity allow, from one moment to the next. Classes whose target is another
    /// group's now claim a gate there when they look at theirs next.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; nothing changed.
    pub fn configure(
        &mut self,
        plan: Shared<Plan>,
        scene: &dyn Scene,
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

    /// Gives the client at `place` the terms of a new plan.
    fn move_on(&mut self, place: u32, scene: &dyn Scene, now: u64) {
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
                // It is that of the group that is there now.
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
                // The allocator tells what it changed when all have their new terms.
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
        // Its rank may be another one.
        client.set(gate, rate, now);
    }
}
