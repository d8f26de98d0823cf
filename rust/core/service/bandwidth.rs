// SPDX-License-Identifier: GPL-2.0-only

//! The configuration of `qbm`: groups, clients, and what they are promised.
//!
//! A service keeps one plan for both heads, whether or not `qbm` is started. A change makes a new plan and
//! checks it whole; only then it replaces the one before, and what clients have moves over to it.

use core::fmt::Write;

use kernel::prelude::*;

use super::{config::Settings, Service};
use crate::{
    core::refused::{self, Refused},
    sched::{
        error::Code,
        mem::{NoMemory, Shared},
        policy::Kind,
        qbm::plan::{Plan, PlanError},
    },
};

/// Why a plan cannot be carried out that starts parts anew.
const STOPPING: PlanError = PlanError {
    line: 0,
    code: Code::Again,
    reason: "not carried out: earlier policies are still stopping, write it again",
};

impl Service {
    /// Refuses a plan; keeps why.
    fn refuse(settings: &mut Settings, error: PlanError) -> Refused {
        settings.plan_error = Some(error);
        error.into()
    }

    /// Says whether a plan that begins with `text` could be set now; nothing is changed.
    ///
    /// # Errors
    ///
    /// As [`Service::set_plan`].
    pub(crate) fn check_plan(&self, text: &str) -> refused::Result {
        let plan = Plan::parse(text);
        let mut settings = self.settings.lock();
        let plan = plan.map_err(|error| Self::refuse(&mut settings, error))?;
        let anew = plan.by() != settings.parameters.plan.by();
        if anew && !self.can_restart(&settings, Kind::Qbm) {
            return Err(Self::refuse(&mut settings, STOPPING));
        }
        Ok(())
    }

    /// Carries out a write to `nrs_qbm_config`: a whole plan.
    ///
    /// # Errors
    ///
    /// - What [`Plan::parse`] refuses; why is kept for [`Service::write_plan_error`].
    /// - `EAGAIN`: it tells clients apart in another way, and earlier policies are still stopping.
    /// - `ENOMEM`.
    ///
    /// Nothing is changed then.
    pub(crate) fn set_plan(&self, text: &str) -> refused::Result {
        let plan = Plan::parse(text);
        let mut settings = self.settings.lock();
        let plan = plan.map_err(|error| Self::refuse(&mut settings, error))?;
        let by = plan.by();
        let plan = Shared::new(plan).map_err(|_| ENOMEM.into());
        let change = plan.and_then(|plan| {
            self.change(&mut settings, |parameters| {
                parameters.values.policies.qbm.by = by;
                parameters.plan = plan;
            })
        });
        change.map_err(|refused: Refused| match refused.errno() {
            EAGAIN => Self::refuse(&mut settings, STOPPING),
            _ => Self::refuse(&mut settings, PlanError::from(NoMemory)),
        })?;
        settings.plan_error = None;
        Ok(())
    }

    /// Writes the plan as a text that can be written back.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_plan(&self, out: &mut dyn Write) -> Result {
        let plan = self.settings.lock().parameters.plan.clone();
        plan.write(&mut &mut *out).map_err(|_| ENOSPC)
    }

    /// Writes why the last plan was refused, nothing if it was not.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_plan_error(&self, out: &mut dyn Write) -> Result {
        match &self.settings.lock().plan_error {
            Some(error) => writeln!(out, "{error}").map_err(|_| ENOSPC),
            None => Ok(()),
        }
    }

    /// Writes who has what, YAML.
    ///
    /// # Errors
    ///
    /// `ENODEV`: `qbm` is started on no head; `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_bandwidth(&self, out: &mut dyn Write) -> Result {
        self.bandwidth.write_status(out)
    }

    /// Writes what clients did and what was asked for them, YAML.
    ///
    /// # Errors
    ///
    /// As [`Service::write_bandwidth`].
    pub(crate) fn write_bandwidth_stats(&self, out: &mut dyn Write) -> Result {
        self.bandwidth.write_stats(out)
    }

    /// Sets the counters of clients to zero.
    pub(crate) fn reset_bandwidth_stats(&self) {
        self.bandwidth.reset_stats();
    }
}
