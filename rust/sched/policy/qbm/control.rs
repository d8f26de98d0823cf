// SPDX-License-Identifier: GPL-2.0-only

//! Plan of a service: groups, clients, and their bandwidth.
//!
//! A service keeps one plan for both heads, whether or not `qbm` is started. A change creates a new
//! plan and checks it as a whole. Only then the new plan replaces the previous plan, and the state
//! of clients is transferred.

use super::Config;
use crate::sched::{
    error::{Code, Error},
    mem::{NoMemory, Shared},
    policy::{
        control::{
            show_error, ByHead, Host, Keep, OverseerContext, RefusalReason, TextParameter, TEXT_MAX,
        },
        AnyOverseer, Kind,
    },
    qbm::{manager::BandwidthManager, plan::Plan},
    service::text::{OneLine, TextHash},
};
use core::fmt::Write;

/// Error of a plan that requires a restart while earlier policies are still stopping.
const STOPPING: Error = Error::new(
    Code::Again,
    "not applied: earlier policies are still stopping; write the plan again",
);

/// State that a service keeps for `qbm`.
#[derive(Clone)]
pub struct PolicyData {
    /// Plan for clients.
    pub plan: Shared<Plan>,
    /// Error of the last plan.
    error: Option<Error>,
}

impl Keep<Config> for PolicyData {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            plan: Shared::new(Plan::none())?,
            error: None,
        })
    }

    fn resume(
        &mut self,
        old: &Self,
        _before: &ByHead<Option<Config>>,
        _after: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        let hash = |kept: &Self| TextHash::of(|out| kept.plan.write(out));
        if hash(self) == hash(old) {
            self.plan = old.plan.clone();
        }
        Ok(())
    }

    fn write_commands(&self, out: &mut dyn Write) -> core::fmt::Result {
        if TextHash::of(|out| self.plan.write(out)) == TextHash::new().0 {
            return Ok(());
        }
        out.write_str("nrs_qbm_config ")?;
        self.plan.write(&mut OneLine::new(out, "; "))?;
        out.write_char('\n')
    }

    fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
        const {
            &[
                TextParameter::both("nrs_qbm_config", show, set).in_lines(TEXT_MAX, check),
                TextParameter::read("nrs_qbm_config_error", |host, out| {
                    show_error(out, host.parameters().kept.qbm.error)
                }),
                TextParameter::report("nrs_qbm_status", |host, out| {
                    let now = host.now();
                    managed(host, |manager, scene| {
                        Ok(manager.report_status(out, scene, now)?)
                    })
                }),
                TextParameter::report("nrs_qbm_stats", |host, out| {
                    managed(host, |manager, scene| Ok(manager.report_stats(out, scene)?))
                }),
                TextParameter::write("nrs_qbm_stats_reset", |host, _| {
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

/// Stores the error of a refused plan.
fn noted<H: Host, T>(
    host: &H,
    done: core::result::Result<T, Error>,
) -> core::result::Result<T, H::Refusal> {
    if let Err(error) = &done {
        host.update_policy_data(|kept| kept.qbm.error = Some(*error));
    }
    Ok(done?)
}

fn show<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let plan = host.parameters().kept.qbm.plan;
    Ok(plan.write(out).map_err(Error::from)?)
}

/// Calls `f` with the manager.
///
/// # Errors
///
/// - `ENODEV`: `qbm` is not started on any head.
/// - The errors of `f`.
fn managed<H: Host>(
    host: &H,
    f: impl FnOnce(&mut BandwidthManager, &dyn OverseerContext) -> core::result::Result<(), Error>,
) -> core::result::Result<(), H::Refusal> {
    let done = host.oversee(|overseer, scene| match overseer {
        Some(AnyOverseer::Qbm(overseer)) => f(overseer.manager(), scene),
        _ => Err(Error::new(Code::NoDevice, "qbm is not started")),
    });
    Ok(done?)
}

/// Verifies that a plan that begins with `text` could be set now.
///
/// # Errors
///
/// - The errors of [`Plan::parse`].
/// - `EAGAIN`: the plan distinguishes clients in another way, and earlier policies are still
///   stopping.
fn check<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    let by = noted(host, Plan::parse(text))?.by();
    let restarts = by != host.parameters().kept.qbm.plan.by();
    if restarts && !host.can_restart(Kind::Qbm) {
        return noted(host, Err(STOPPING));
    }
    Ok(())
}

/// Sets a whole plan.
///
/// # Errors
///
/// - The errors of [`check`].
/// - `ENOMEM`: out of memory.
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
