// SPDX-License-Identifier: GPL-2.0-only

//! A service: its settings, and the changes that an administrator or an agent makes to them.
//!
//! # Terms
//!
//! - *Host*: what a service runs on ([`ServiceHost`]): partitions with their heads, a clock, random
//!   numbers. The kernel module is one host, a test is another.
//! - *Settings*: parameters, and the primaries of the heads ([`ServiceSettings`]).
//! - *Overseer*: periodic work over the parts of a policy ([`control::Oversee`]). It exists from
//!   the start of a policy that needs one until no head runs the policy, or until a change that
//!   the overseer cannot follow.
//!
//! # States of a change
//!
//! ```text
//!            prepare                         commit                      settle
//!   text ───────────────▶ ServiceChange ───────────────▶ new settings ───────────▶ (in effect)
//!           │ may allocate and sleep,        │ out of memory for the      classes are refreshed,
//!           │ touches nothing                │ overseer: nothing changed  decisions are retried
//!           ▼                                ▼
//!        refused                          refused
//! ```
//!
//! A change is validated completely, and parts for all heads are created, before anything is
//! replaced, so a refused change has no effect. If a change of parameters needs new parts, the
//! policy restarts with them, and the previous instance is drained.
//!
//! # Context
//!
//! All functions may sleep. The caller of [`ServiceSettings`] holds the lock of the settings. Under
//! it the overseer is locked, and under that one partition at a time.

use super::{
    attr::Priority,
    error::Result,
    head::Head,
    item::Item,
    mem::Shared,
    owners::Owners,
    parameters::Values,
    policy::{
        control::{self, ByHead, OverseerContext, Parameters, RefusalReason},
        AnyOverseer, AnyPart, Config, Kind, Part, PoliciesData, ROWS,
    },
};

pub mod agent;
mod change;
pub mod draft;
pub mod overseer;
pub mod policies;
pub mod settings;
pub mod text;
pub mod upkeep;

use agent::{AgentState, FactorState};
pub use settings::ServiceSettings;

/// Configurations of the primaries of the heads, regular first; `None`: the fallback serves.
pub type Primaries = ByHead<Option<Config>>;

/// Head of a partition of a service.
pub type ServiceHead<I> = Head<I, AnyPart<I>, Config>;

/// Access to one head of one partition.
pub trait HeadAccess {
    /// Type of its requests.
    type Item: Item;

    /// Returns the index of the partition's target.
    fn target(&self) -> u16;

    /// Returns the CPT of the partition.
    fn cpt(&self) -> u16;

    /// Returns the priority of the head.
    fn priority(&self) -> Priority;

    /// Runs `f` under the lock of the partition. Long operations must be split into several calls.
    fn with<R>(&self, f: impl FnOnce(&mut ServiceHead<Self::Item>) -> R) -> R;
}

impl<A: HeadAccess> control::RunningPart for A {
    type Item = A::Item;

    fn cpt(&self) -> u16 {
        HeadAccess::cpt(self)
    }

    fn priority(&self) -> Priority {
        HeadAccess::priority(self)
    }

    fn with<R>(&self, f: impl FnOnce(&mut AnyPart<A::Item>) -> Option<R>) -> Option<R> {
        HeadAccess::with(self, |head| f(head.primary_mut()?))
    }
}

/// The partitions of a service, and its overseer.
pub trait ServiceParts {
    /// Type of the requests.
    type Item: Item;

    /// Returns the time, monotonic ns.
    fn now(&self) -> u64;

    /// Returns the heads of all partitions, in the order of targets; always in the same order.
    fn heads(&self) -> impl Iterator<Item = impl HeadAccess<Item = Self::Item>>;

    /// Locks the overseer, with its context.
    fn overseer<R>(&self, f: impl FnOnce(&mut Option<AnyOverseer>, &dyn OverseerContext) -> R)
        -> R;
}

/// What a service runs on.
pub trait ServiceHost: ServiceParts {
    /// Error with which the service refuses an operation.
    type Refusal: RefusalReason;

    /// Returns a random number.
    fn random(&self) -> u64;

    /// Returns the seed of identifiers of class paths, the same for the life of the service, and
    /// unknown to clients.
    fn seed(&self) -> u64;

    /// Returns the number of partitions of each target.
    fn cpts(&self) -> u16;

    /// Locks the settings.
    fn settings<R>(&self, f: impl FnOnce(&mut ServiceSettings) -> R) -> R;

    /// Locks the agent, and traces the step of the factors that `f` returns. The settings may be
    /// locked.
    fn agent(&self, f: impl FnOnce(&mut AgentState) -> Option<FactorState>);

    /// Returns true if a framework drives the policies, so that an administrator must not start
    /// others.
    fn is_driven(&self) -> bool;

    /// Resizes the order tables to `max` records in all partitions together. Fewer records cannot
    /// fail.
    ///
    /// # Errors
    ///
    /// `EBUSY`: more records, while ordered requests exist. `ENOMEM`.
    fn set_records(&self, max: u32) -> Result;

    /// Applies the values of the service itself, after its policies and its order tables.
    fn values_changed(&self, old: &Values, new: &Values);

    /// Gives cgroups these owners.
    fn owners_changed(&self, owners: &Shared<Owners>);

    /// Follows a change of the primaries from `old` to `new`.
    fn primaries_changed(&self, old: &Primaries, new: &Primaries);

    /// Retries the decisions on all queued requests, and does the periodic work soon.
    fn retry_decisions(&self);
}

impl<S: ServiceParts> control::Parts for S {
    type Item = S::Item;

    fn now(&self) -> u64 {
        ServiceParts::now(self)
    }

    fn running(&self) -> impl Iterator<Item = impl control::RunningPart<Item = S::Item>> {
        self.heads()
    }
}

impl<S: ServiceHost> control::Host for S {
    type Refusal = S::Refusal;

    fn parameters(&self) -> Parameters {
        self.settings(|settings| settings.parameters().clone())
    }

    fn update_policy_data(&self, f: impl FnOnce(&mut PoliciesData)) {
        self.settings(|settings| settings.update_policy_data(f));
    }

    fn change(
        &self,
        f: impl FnOnce(&mut Parameters) -> Result,
    ) -> core::result::Result<(), S::Refusal> {
        Ok(self.settings(|settings| settings.change(self, f))?)
    }

    fn can_restart(&self, kind: Kind) -> bool {
        self.settings(|settings| settings.can_restart(self, kind))
    }

    fn cpts(&self) -> u16 {
        ServiceHost::cpts(self)
    }

    fn oversee<R>(&self, f: impl FnOnce(Option<&mut AnyOverseer>, &dyn OverseerContext) -> R) -> R {
        self.overseer(|overseer, context| f(overseer.as_mut(), context))
    }

    fn reset(&self, kind: Kind) {
        each_part(self.heads(), |part, from| {
            if part.kind() == kind {
                part.reset(from, ROWS as u32)
            } else {
                None
            }
        });
    }
}

/// Runs `f` on each part of each of `heads`, the stopping ones included, from class 0 on until it
/// returns `None`; releases the lock in between.
pub fn each_part<A: HeadAccess>(
    heads: impl Iterator<Item = A>,
    mut f: impl FnMut(&mut AnyPart<A::Item>, u32) -> Option<u32>,
) {
    for head in heads {
        for id in head.with(|head| head.ids()).into_iter().flatten() {
            let mut from = Some(0);
            while let Some(idx) = from {
                from = head.with(|head| f(head.part_mut(id)?, idx));
            }
        }
    }
}

/// Returns the entry of the head of `priority`.
pub(crate) fn of_head<T>([regular, high]: &mut ByHead<T>, priority: Priority) -> &mut T {
    match priority {
        Priority::Regular => regular,
        Priority::High => high,
    }
}
