// SPDX-License-Identifier: GPL-2.0-only

//! A new plan while clients are there.
//!
//! Groups are the same if they have the same name, and keep their allocators; clients are the same if they
//! are told apart in the same way and their target still is the same group's. Everything that can fail comes
//! first, and gates are set when everybody has its new terms: nobody is without bandwidth in between.

use super::{client::Stay, group::Group, movers::Load, seat_of, Manager, NO_GROUP};
use crate::sched::{
    mem::{List, NoMemory, Shared},
    qbm::{
        plan::{Plan, Scene},
        terms::UNREGULATED,
    },
};

impl Manager {
    /// Makes the groups of `plan`; those that were there go on.
    pub(super) fn adopt(&mut self, plan: Shared<Plan>) -> Result<(), NoMemory> {
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
        self.number = number;
        self.groups = groups;
        self.loads = loads;
        self.plan = plan;
        Ok(())
    }

    /// Goes on with `plan`; sleeps. Clients of groups that stay keep what they have as far as their new
    /// terms and the group's new capacity allow, from one moment to the next. Those whose target is another
    /// group's now register there with the next walk, which is to follow at once; until then their gates
    /// stay as they are.
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
        let same = plan.by() == self.plan.by();
        self.adopt(plan)?;
        for slot in 1..self.clients.slots() {
            self.move_on(slot, same, scene, now);
        }
        for place in 0..self.groups.as_slice().len() {
            self.crowd_moves_on(place);
            self.apply(place, None, now);
        }
        self.set_crowd(now);
        self.changed = true;
        Ok(())
    }

    /// Gives the client in `slot` the terms of a new plan, in which clients are told apart in the `same` way.
    fn move_on(&mut self, slot: u32, same: bool, scene: &dyn Scene, now: u64) {
        let Some(key) = self.clients.key(slot).copied() else {
            return;
        };
        let (Some(client), Some(gate)) = (self.clients.at_mut(slot), self.gates.get(seat_of(slot)))
        else {
            return;
        };
        let groups = self.groups.as_mut_slice();
        let stays = (0u32..)
            .zip(groups.iter())
            .find(|g| g.1.number == key.target);
        client.group = stays.map_or(NO_GROUP, |(place, _)| place);
        if client.stay != Stay::Here {
            return;
        }
        let number = scene.target_number(client.target);
        let belongs = self.plan.group_of(number).filter(|_| same);
        let Some(group) = groups.get_mut(client.group as usize) else {
            // The allocator is gone, and with it the client's name there.
            client.id = None;
            client.stay = Stay::Left;
            if belongs.is_none() {
                client.set(gate, UNREGULATED, now);
            }
            return;
        };
        if belongs != Some(client.group) {
            if belongs.is_none() {
                client.set(gate, UNREGULATED, now);
            }
            self.retire(slot, now);
            return;
        }
        let terms = self.plan.terms(client.group, &key.party, scene);
        let before = core::mem::replace(&mut client.terms, terms);
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
            (None, Some(terms)) => match group.enrol(slot, terms) {
                Ok(id) => {
                    client.id = Some(id);
                    client.recent.begin(now);
                    group.allocation(id)
                }
                Err(NoMemory) => {
                    self.retire(slot, now);
                    return;
                }
            },
            (None, None) => UNREGULATED,
        };
        // Its rank may be another one.
        client.set(gate, rate, now);
    }

    /// Gives the crowd of the group at `place` the terms of a new plan.
    fn crowd_moves_on(&mut self, place: usize) {
        let Some(group) = self.groups.as_mut_slice().get_mut(place) else {
            return;
        };
        let Some(id) = group.crowd.id else {
            return;
        };
        match self.plan.default_terms(group.place) {
            Some(terms) if group.movers.is_none() => {
                group.crowd.rank = terms.class.rank();
                group.allocator.set_terms(id, terms);
            }
            _ => group.disperse(),
        }
    }
}
