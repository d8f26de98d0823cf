// SPDX-License-Identifier: GPL-2.0-only

//! Overseer of `qbm`: owns the gates and the manager.
//!
//! The overseer exists from the start of `qbm` until no head runs the policy. It is replaced after
//! a change of the way in which clients are distinguished, or of their maximum number. Parts that
//! are being drained keep their gates.

use super::{control::PolicyData, Config, Update};
use crate::sched::{
    mem::{NoMemory, Owned, Shared},
    policy::control::{Oversee, OverseerContext, OverseerOutcome},
    qbm::{
        gate::Gates,
        manager::BandwidthManager,
        plan::{By, Plan},
    },
};

/// Gates and their manager.
pub struct Overseer {
    by: By,
    clients_max: u32,
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    manager: Owned<BandwidthManager>,
}

impl Overseer {
    /// Returns the manager.
    pub fn manager(&mut self) -> &mut BandwidthManager {
        &mut self.manager
    }
}

impl Oversee<Config, PolicyData> for Overseer {
    fn new(config: &Config, kept: &PolicyData, seed: u64) -> Result<Option<Self>, NoMemory> {
        let (by, clients_max) = (config.tunables.by, config.tunables.clients_max.get());
        let gates = Shared::new(Gates::new(clients_max, seed)?)?;
        let manager = BandwidthManager::new(kept.plan.clone(), gates.clone())?;
        Ok(Some(Self {
            by,
            clients_max,
            plan: kept.plan.clone(),
            gates,
            manager: Owned::new(manager)?,
        }))
    }

    /// Returns true if clients are distinguished in the same way and their maximum number is the
    /// same; otherwise new gates are needed.
    fn fits(&self, config: &Config) -> bool {
        let tunables = &config.tunables;
        (self.by, self.clients_max) == (tunables.by, tunables.clients_max.get())
    }

    fn sync(
        &mut self,
        kept: &PolicyData,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> Result<(), NoMemory> {
        if !self.plan.ptr_eq(&kept.plan) {
            self.manager.configure(kept.plan.clone(), scene, now)?;
            self.plan = kept.plan.clone();
        }
        Ok(())
    }

    fn update(&self) -> Option<Update> {
        Some(Some((self.gates.clone(), self.plan.clone())))
    }

    fn poll(
        &mut self,
        now: u64,
        scene: &dyn OverseerContext,
        due: bool,
    ) -> Result<OverseerOutcome, NoMemory> {
        // Changes made before an error are reported by the next call.
        self.manager.poll(scene, due, now)?;
        let refresh = self.manager.has_changed();
        Ok(OverseerOutcome {
            moved: refresh,
            refresh,
        })
    }
}
