// SPDX-License-Identifier: GPL-2.0-only

//! Who sees to it that clients have their bandwidth: the gates and the manager, from when `qbm` starts to when no
//! head has it any more, or to a change that tells clients apart in another way; parts that are drained then keep
//! their gates.
//!
//! # Vocabulary
//!
//! - *Walk*: telling the manager of every class of every part, and every class its seat.
//! - *Tick*: the manager judges what it has seen, after a walk.

use super::{control::Kept, BriefBuf, Config, State, Update};
use crate::sched::{
    class::ClassId,
    item::Item,
    mem::{Block, Need as _, NoMemory, Owned, Shared},
    policy::{
        control::{Looked, Oversee, Parts, Running, Scene},
        AnyPart, Part, ROWS,
    },
    qbm::{
        gate::{Gates, NO_SEAT},
        manager::Manager,
        plan::{By, Plan},
    },
};

/// The gates, who sets them, and memory for a walk.
pub struct Overseer {
    state: Owned<Regime>,
}

struct Regime {
    by: By,
    clients_max: u32,
    plan: Shared<Plan>,
    gates: Shared<Gates>,
    manager: Manager,
    briefs: BriefBuf,
    seats: Block<(ClassId, u32), ROWS>,
}

/// What came of a walk.
#[derive(Default)]
struct Walked {
    /// A class got another seat.
    moved: bool,
    /// One may have come back while it lost its seat.
    again: bool,
}

impl<I: Item> AnyPart<I> {
    /// The part, if it is one of `qbm`, to be seated.
    pub fn qbm_mut(&mut self) -> Option<&mut State<I>> {
        match self {
            Self::Qbm(part) => Some(part),
            _ => None,
        }
    }
}

impl Overseer {
    /// The manager.
    pub fn manager(&mut self) -> &mut Manager {
        &mut self.state.manager
    }
}

impl Regime {
    #[inline(never)]
    fn new(config: &Config, plan: &Shared<Plan>, seed: u64) -> Result<Self, NoMemory> {
        let (by, clients_max) = (config.tunables().by, config.tunables().clients_max.get());
        let gates = Shared::new(Gates::new(clients_max as usize)?)?;
        Ok(Self {
            by,
            clients_max,
            plan: plan.clone(),
            manager: Manager::new(plan.clone(), gates.clone(), seed)?,
            gates,
            briefs: BriefBuf::new()?,
            seats: Block::new()?,
        })
    }

    /// Tells the manager of all classes, and each its seat.
    ///
    /// Parts that are drained are left out: what they have goes without asking.
    fn walk(&mut self, parts: &impl Parts, scene: &dyn Scene) -> Walked {
        let mut walked = Walked::default();
        for part in parts.running() {
            let mut from = Some(0);
            while let Some(slot) = from {
                self.briefs.clear();
                from = part.with(|part| {
                    let part = part.qbm_mut()?;
                    part.seat_briefs(slot, parts.now(), &mut self.briefs)
                });
                self.seats.clear();
                let now = parts.now();
                for brief in self.briefs.iter() {
                    let seat = self.manager.meet(brief, scene, now);
                    if seat != brief.seat {
                        // There are as many places as in the other one.
                        let _ = self.seats.push((brief.id, seat));
                    }
                }
                if self.seats.as_slice().is_empty() {
                    continue;
                }
                walked.moved = true;
                let again = part.with(|part| {
                    let part = part.qbm_mut()?;
                    let (now, mut left) = (parts.now(), false);
                    for (id, seat) in self.seats.iter() {
                        part.seat(*id, *seat, now);
                        left |= *seat == NO_SEAT;
                    }
                    Some(left && !part.need().is_empty())
                });
                walked.again |= again == Some(true);
            }
        }
        walked
    }
}

impl Oversee<Config, Kept> for Overseer {
    fn new(config: &Config, kept: &Kept, seed: u64) -> Result<Option<Self>, NoMemory> {
        let state = Owned::new(Regime::new(config, &kept.plan, seed)?)?;
        Ok(Some(Self { state }))
    }

    /// Another way of telling clients apart, or another number of them, takes other gates.
    fn fits(&self, config: &Config) -> bool {
        let tunables = config.tunables();
        let state = &*self.state;
        (state.by, state.clients_max) == (tunables.by, tunables.clients_max.get())
    }

    fn follow(&mut self, kept: &Kept, scene: &dyn Scene, now: u64) -> Result<(), NoMemory> {
        let state = &mut *self.state;
        if !state.plan.ptr_eq(&kept.plan) {
            state.manager.configure(kept.plan.clone(), scene, now)?;
            state.plan = kept.plan.clone();
        }
        Ok(())
    }

    fn update(&self) -> Option<Update> {
        Some(Update::new(self.state.gates.clone()))
    }

    fn look(
        &mut self,
        parts: &impl Parts,
        scene: &dyn Scene,
        due: bool,
    ) -> Result<Looked, NoMemory> {
        let state = &mut *self.state;
        let walked = state.walk(parts, scene);
        if walked.again {
            state.walk(parts, scene);
        }
        if due {
            state.manager.tick(parts.now());
        }
        let refresh = state.manager.has_changed();
        Ok(Looked {
            moved: walked.moved || refresh,
            refresh,
        })
    }
}
