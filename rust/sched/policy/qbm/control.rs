// SPDX-License-Identifier: GPL-2.0-only

//! The plan of a service: groups, clients, and what they are promised.
//!
//! A service keeps one plan for both heads, whether or not `qbm` is started. A change makes a new plan and checks it
//! whole; only then it replaces the one before, and what clients have moves over to it.

use super::Config;
use crate::sched::{
    error::{Code, Error},
    mem::{NoMemory, Shared},
    policy::{
        control::{show_error, Host, Keep, Refusal, Scene, Text},
        AnyOverseer, Kind,
    },
    qbm::{manager::Manager, plan::Plan},
};
use core::fmt::Write;

/// Why a plan cannot be carried out that starts parts anew.
const STOPPING: Error = Error::new(
    Code::Again,
    "not carried out: earlier policies are still stopping, write it again",
);

/// What a service keeps.
#[derive(Clone)]
pub struct Kept {
    /// Of clients.
    pub plan: Shared<Plan>,
    /// Why the last plan was refused.
    error: Option<Error>,
}

impl Keep<Config> for Kept {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            plan: Shared::new(Plan::none())?,
            error: None,
        })
    }

    fn texts<H: Host + 'static>() -> &'static [Text<H>] {
        const {
            &[
                Text::both("nrs_qbm_config", show, set).in_lines(check),
                Text::read("nrs_qbm_config_error", |host, out| {
                    show_error(out, host.parameters().kept.qbm.error)
                }),
                Text::read("nrs_qbm_status", |host, out| {
                    let now = host.now();
                    managed(host, |manager, scene| {
                        Ok(manager.write_status(&mut &mut *out, scene, now)?)
                    })
                }),
                Text::read("nrs_qbm_stats", |host, out| {
                    managed(host, |manager, scene| {
                        Ok(manager.write_stats(&mut &mut *out, scene)?)
                    })
                }),
                Text::write("nrs_qbm_stats_reset", |host, _| {
                    host.oversee(|overseer, _| {
                        if let Some(AnyOverseer::Qbm(overseer)) = overseer {
                            overseer.manager().reset_stats();
                        }
                    });
                    Ok(())
                }),
            ]
        }
    }
}

/// Keeps why a plan was refused.
fn noted<H: Host, T>(
    host: &H,
    done: core::result::Result<T, Error>,
) -> core::result::Result<T, H::Refusal> {
    if let Err(error) = &done {
        host.note(|kept| kept.qbm.error = Some(*error));
    }
    Ok(done?)
}

fn show<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let plan = host.parameters().kept.qbm.plan;
    Ok(plan.write(&mut &mut *out).map_err(Error::from)?)
}

/// Has `f` look at who has what.
///
/// # Errors
///
/// `ENODEV`: `qbm` is started on no head. What `f` refuses.
fn managed<H: Host>(
    host: &H,
    f: impl FnOnce(&mut Manager, &dyn Scene) -> core::result::Result<(), Error>,
) -> core::result::Result<(), H::Refusal> {
    let done = host.oversee(|overseer, scene| match overseer {
        Some(AnyOverseer::Qbm(overseer)) => f(overseer.manager(), scene),
        _ => Err(Error::new(Code::NoDevice, "qbm is not started")),
    });
    Ok(done?)
}

/// Says whether a plan that begins with `text` could be set now.
///
/// # Errors
///
/// - What [`Plan::parse`] refuses.
/// - `EAGAIN`: it tells clients apart in another way, and earlier policies are still stopping.
fn check<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    let by = noted(host, Plan::parse(text))?.by();
    let anew = by != host.parameters().kept.qbm.plan.by();
    if anew && !host.can_restart(Kind::Qbm) {
        return noted(host, Err(STOPPING));
    }
    Ok(())
}

/// Carries out a whole plan.
///
/// # Errors
///
/// As [`check`]; `ENOMEM`.
fn set<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    let plan = noted(host, Plan::parse(text))?;
    let by = plan.by();
    let plan = noted(host, Shared::new(plan).map_err(Error::from))?;
    let done = host.change(|parameters| {
        parameters.values.policies.qbm.by = by;
        parameters.kept.qbm.plan = plan;
        parameters.kept.qbm.error = None;
        Ok(())
    });
    done.or_else(|refusal| {
        let stops = refusal.reason().is_some_and(|why| why.code == Code::Again);
        noted(host, Err(if stops { STOPPING } else { NoMemory.into() }))
    })
}
