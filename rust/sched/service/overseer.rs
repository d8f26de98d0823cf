// SPDX-License-Identifier: GPL-2.0-only

//! Overseer of the parts of a service, while a head runs a policy that needs one.
//!
//! ```text
//!              a head gets the policy           periodic polls           no head has the policy
//!   no overseer ─────────────────────▶ overseer ◀──┐ ─────────▶ ... ─────────────▶ no overseer
//!                                          │       │ new parts receive its latest update
//!                                          └───────┘
//! ```
//!
//! The overseer is locked over a whole look, so that no part receives an update of an overseer that
//! was replaced.

use super::{each_part, Primaries, ServiceHost, ServiceParts};
use crate::sched::{
    error::Result,
    mem::NoMemory,
    policy::{control::Parameters, AnyOverseer, AnyUpdate, Part, PoliciesData, ROWS},
};

/// Effect of a change of policies on the overseer.
pub(super) enum OverseerChange {
    /// The overseer, if any, stays; carries the update for new parts.
    Keep(Option<AnyUpdate>),
    /// A new overseer starts.
    Start(AnyOverseer),
    /// No head needs an overseer.
    End,
}

impl OverseerChange {
    /// Returns the effect of a change to `primaries`, under `parameters`.
    pub(super) fn of(
        host: &impl ServiceHost,
        primaries: &Primaries,
        parameters: &Parameters,
    ) -> Result<Self> {
        let kept = host.overseer(|overseer, _| {
            let overseer = overseer.as_ref().filter(|one| one.fits(primaries))?;
            Some(overseer.update())
        });
        if let Some(update) = kept {
            return Ok(Self::Keep(update));
        }
        let new = AnyOverseer::new(primaries, &parameters.kept, host.seed())?;
        Ok(new.map_or(Self::End, Self::Start))
    }

    /// Returns the update for new parts.
    pub(super) fn update(&self) -> Option<AnyUpdate> {
        match self {
            Self::Keep(update) => update.clone(),
            Self::Start(overseer) => overseer.update(),
            Self::End => None,
        }
    }

    /// Carries out the change under `kept`. `install` starts and stops parts, and must not fail.
    /// Returns the update for running parts.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: nothing was changed, and `install` was not called.
    pub(super) fn commit(
        self,
        host: &impl ServiceHost,
        kept: &PoliciesData,
        install: impl FnOnce(),
    ) -> Result<Option<AnyUpdate>> {
        let now = host.now();
        let (old, update) = host.overseer(|overseer, context| {
            if let (Self::Keep(_), Some(overseer)) = (&self, &mut *overseer) {
                overseer.sync(kept, context, now)?;
            }
            install();
            let old = match self {
                Self::Keep(_) => None,
                Self::Start(new) => overseer.replace(new),
                Self::End => overseer.take(),
            };
            let update = overseer.as_ref().and_then(AnyOverseer::update);
            Ok::<_, NoMemory>((old, update))
        })?;
        // Dropped without the lock.
        drop(old);
        Ok(update)
    }
}

/// Runs the overseer on new state; with `due`, the overseer also evaluates its interval. Returns
/// true if requests that were throttled may be eligible now, also with an error.
///
/// # Errors
///
/// `ENOMEM`: the next poll tries again.
pub fn poll(host: &impl ServiceParts, due: bool) -> (bool, core::result::Result<(), NoMemory>) {
    host.overseer(|overseer, context| {
        let Some(overseer) = overseer else {
            return (false, Ok(()));
        };
        let polled = match overseer.poll(host.now(), context, due) {
            Ok(polled) => polled,
            Err(NoMemory) => return (false, Err(NoMemory)),
        };
        let mut done = Ok(());
        if polled.refresh {
            refresh(host, overseer);
            // The refresh may have given parts new state.
            match overseer.poll(host.now(), context, false) {
                Ok(again) if again.refresh => refresh(host, overseer),
                Ok(_) => {}
                Err(NoMemory) => done = Err(NoMemory),
            }
        }
        (polled.moved, done)
    })
}

/// Refreshes the parts of the overseer's policy.
fn refresh(host: &impl ServiceParts, overseer: &AnyOverseer) {
    each_part(host.heads(), |part, from| {
        let is_its = part.kind() == overseer.kind();
        is_its.then(|| part.refresh(from, ROWS as u32, host.now()))?
    });
}
