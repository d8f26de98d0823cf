// SPDX-License-Identifier: GPL-2.0-only

//! Who sees to it that clients have their bandwidth: the gates and the manager, from when `qbm` starts to when no
//! head has it any more, or to a change that tells clients apart in another way; parts that are drained then keep
//! their gates.

use super::{control::Kept, Config, Update};
use crate::sched::{
    mem::{NoMemory, Owned, Shared},
    policy::control::{Looked, Oversee, Scene},
    qbm::{
        gate::Gates,
        manager::Manager,
        plan::{By, Plan},
    },
};

/// The gates, and who sets them.
pub struct Overseer {
    by: By,
    clients_max: u32,
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    manager: Owned<Manager>,
}

impl Overseer {
    /// The manager.
    pub fn manager(&mut self) -> &mut Manager {
        &mut self.manager
    }
}

impl Oversee<Config, Kept> for Overseer {
    fn new(config: &Config, kept: &Kept, seed: u64) -> Result<Option<Self>, NoMemory> {
        let (by, clients_max) = (config.tunables.by, config.tunables.clients_max.get());
        let gates = Shared::new(Gates::new(clients_max, seed)?)?;
        let manager = Manager::new(kept.plan.clone(), gates.clone())?;
        Ok(Some(Self {
            by,
            clients_max,
            plan: kept.plan.clone(),
            gates,
            manager: Owned::new(manager)?,
        }))
    }

    /// Another way of telling clients apart, or another number of them, takes other gates.
    fn fits(&self, config: &Config) -> bool {
        let tunables = &config.tunables;
        (self.by, self.clients_max) == (tunables.by, tunables.clients_max.get())
    }

    fn follow(&mut self, kept: &Kept, scene: &dyn Scene, now: u64) -> Result<(), NoMemory> {
        if !self.plan.ptr_eq(&kept.plan) {
            self.manager.configure(kept.plan.clone(), scene, now)?;
            self.plan = kept.plan.clone();
        }
        Ok(())
    }

    fn update(&self) -> Option<Update> {
        Some(Some((self.gates.clone(), self.plan.clone())))
    }

    fn look(&mut self, now: u64, scene: &dyn Scene, due: bool) -> Result<Looked, NoMemory> {
        // What has changed before an error is told by the next look.
        self.manager.look(scene, due, now)?;
        let refresh = self.manager.has_changed();
        Ok(Looked {
            moved: refresh,
            refresh,
        })
    }
}
