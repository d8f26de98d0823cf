// SPDX-License-Identifier: GPL-2.0-only

//! Overseer of the parts of a service, while a head runs a policy that needs one
//! ([`crate::sched::policy::control::Oversee`]).
//!
//! # Terms
//!
//! - *Overseer*: exists from the start of such a policy until no head runs the policy, or until a
//!   change that the overseer cannot follow.
//!
//! ```text
//!              a head gets the policy           periodic looks           no head has the policy
//!   no overseer ─────────────────────▶ overseer ◀──┐ ─────────▶ ... ─────────────▶ no overseer
//!                                          │       │ new parts receive its latest update
//!                                          └───────┘
//! ```
//!
//! # Context
//!
//! All functions here may sleep. The overseer's mutex is held over a whole look, so that no part
//! receives an update of an overseer that was replaced. A request may depend on the end of that
//! look, so nothing under the mutex starts I/O.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

use super::{
    client_list::ClientList,
    partition::{KernelPart, Partition},
    partitions::Partitions,
    refusal,
};
use crate::{
    sched::{
        attr::Priority,
        policy::{
            control::{OverseerContext, Parameters, Parts, RunningPart},
            AnyOverseer, AnyUpdate, Config, Part, ROWS,
        },
    },
    sys::{misc, mutex::NoIoMutex, node::Held, timer::WithTimer},
};

impl OverseerContext for ClientList {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        self.name_of(device, f);
    }
}

/// The primary policy of a head of a partition.
struct Primary<'a> {
    partition: &'a WithTimer<Partition>,
    priority: Priority,
}

impl RunningPart for Primary<'_> {
    type Item = Held;

    fn cpt(&self) -> u16 {
        self.partition.cpt()
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn with<R>(&self, f: impl FnOnce(&mut KernelPart) -> Option<R>) -> Option<R> {
        let done = self
            .partition
            .with(|inner| f(inner.head(self.priority).primary_mut()?));
        misc::cond_resched();
        done
    }
}

impl Parts for Partitions {
    type Item = Held;

    fn now(&self) -> u64 {
        misc::now()
    }

    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = Held>> {
        self.iter().flat_map(|partition| {
            Priority::ALL.into_iter().map(|priority| Primary {
                partition,
                priority,
            })
        })
    }
}

/// Effect of a change of policies on the overseer.
pub(crate) enum OverseerChange {
    /// The overseer stays; carries the update for new parts.
    Keep(Option<AnyUpdate>),
    /// A new overseer starts.
    Start(AnyOverseer),
    /// No head needs an overseer.
    End,
}

impl OverseerChange {
    /// Returns the update for new parts.
    pub(crate) fn update(&self) -> Option<AnyUpdate> {
        match self {
            Self::Keep(update) => update.clone(),
            Self::Start(overseer) => overseer.update(),
            Self::End => None,
        }
    }
}

/// The overseer of a service, if it has one.
#[pin_data]
pub(crate) struct OverseerState {
    partitions: Arc<Partitions>,
    clients: Arc<ClientList>,
    seed: u64,
    /// True if there is an overseer.
    running: Atomic<bool>,
    #[pin]
    overseer: NoIoMutex<Option<AnyOverseer>>,
}

impl OverseerState {
    /// Creates the state of a service without an overseer; `clients` lists the clients. `seed` must
    /// be unknown to those who name clients.
    pub(crate) fn new(
        partitions: Arc<Partitions>,
        clients: Arc<ClientList>,
        seed: u64,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                partitions,
                clients,
                seed,
                running: Atomic::new(false),
                overseer <- NoIoMutex::new(new_mutex!(None, "nrs_overseer")),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns true if there is an overseer.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(ordering::Relaxed)
    }

    /// Determines the effect on the overseer of a change to primaries started with `configs`, under
    /// `parameters`. [`Self::change`] carries out the result; no other change may occur in between.
    pub(crate) fn prepare(
        &self,
        configs: &[Option<Config>],
        parameters: &Parameters,
    ) -> Result<OverseerChange> {
        let kept = self.with(|overseer| {
            let overseer = overseer.as_ref().filter(|one| one.fits(configs))?;
            Some(overseer.update())
        });
        if let Some(update) = kept {
            return Ok(OverseerChange::Keep(update));
        }
        let new = AnyOverseer::new(configs, &parameters.kept, self.seed).map_err(|_| ENOMEM)?;
        Ok(new.map_or(OverseerChange::End, OverseerChange::Start))
    }

    /// Carries out a change. `install` starts and stops parts, and must not fail.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: nothing was changed, and `install` was not called.
    pub(crate) fn change(
        &self,
        change: OverseerChange,
        parameters: &Parameters,
        install: impl FnOnce(),
    ) -> Result {
        let old = self.with(|overseer| {
            if let (OverseerChange::Keep(_), Some(overseer)) = (&change, &mut *overseer) {
                self.lead(overseer, parameters)?;
            }
            install();
            let new = match change {
                OverseerChange::Keep(_) => return Ok(None),
                OverseerChange::Start(overseer) => Some(overseer),
                OverseerChange::End => None,
            };
            self.running.store(new.is_some(), ordering::Relaxed);
            Ok::<_, Error>(core::mem::replace(overseer, new))
        })?;
        // Dropped without the mutex.
        drop(old);
        Ok(())
    }

    /// Updates the overseer to `parameters`, while the policies stay.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: nothing was changed.
    pub(crate) fn follow(&self, parameters: &Parameters) -> refusal::Result {
        if !self.is_running() {
            return Ok(());
        }
        let done = self.with(|overseer| match overseer {
            Some(overseer) => self.lead(overseer, parameters),
            None => Ok(()),
        });
        Ok(done?)
    }

    /// Returns the update for new parts.
    pub(crate) fn update(&self) -> Option<AnyUpdate> {
        self.with(|overseer| overseer.as_ref()?.update())
    }

    /// Updates `overseer` to `parameters`.
    fn lead(&self, overseer: &mut AnyOverseer, parameters: &Parameters) -> Result {
        let followed = overseer.follow(&parameters.kept, &*self.clients, misc::now());
        followed.map_err(|_| ENOMEM)
    }

    /// Runs the overseer on new state; with `due`, the overseer also evaluates its interval.
    /// Dispatches requests that become eligible.
    pub(crate) fn look(&self, due: bool) -> Result {
        if !self.is_running() {
            return Ok(());
        }
        let (moved, done) = self.with(|overseer| {
            let Some(overseer) = overseer else {
                return (false, Ok(()));
            };
            let Ok(looked) = overseer.look(misc::now(), &*self.clients, due) else {
                return (false, Err(ENOMEM));
            };
            let mut done = Ok(());
            if looked.refresh {
                self.refresh(overseer);
                // The refresh may have given parts new state.
                match overseer.look(misc::now(), &*self.clients, false) {
                    Ok(again) if again.refresh => self.refresh(overseer),
                    Ok(_) => {}
                    Err(_) => done = Err(ENOMEM),
                }
            }
            (looked.moved, done)
        });
        if moved {
            self.partitions.run_all();
        }
        done
    }

    /// Refreshes the parts of the overseer's policy.
    fn refresh(&self, overseer: &AnyOverseer) {
        self.partitions.each_part(|part, from| {
            let is_its = part.kind() == overseer.kind();
            is_its.then(|| part.refresh(from, ROWS as u32, misc::now()))?
        });
    }

    /// Runs `f` on the overseer, if there is one.
    pub(crate) fn show<R>(
        &self,
        f: impl FnOnce(Option<&mut AnyOverseer>, &dyn OverseerContext) -> R,
    ) -> R {
        self.with(|overseer| f(overseer.as_mut(), &*self.clients))
    }

    /// Runs `f` with the mutex held.
    fn with<R>(&self, f: impl FnOnce(&mut Option<AnyOverseer>) -> R) -> R {
        f(&mut self.overseer.lock())
    }
}
