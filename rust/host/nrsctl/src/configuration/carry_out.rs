// SPDX-License-Identifier: GPL-2.0-only

//! Application of the changes of a service: all of them, or none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::plan::{steps, Step};
use super::running;
use super::state::ServiceState;
use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;

/// Delay before a busy step is retried.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Service with its current and its wanted state.
pub struct ServiceChange<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Current state; `None` if the service does not exist.
    pub from: Option<ServiceState>,
    /// Wanted state.
    pub to: ServiceState,
}

impl<'a> ServiceChange<'a> {
    /// Returns the change of `service` to `wanted`; `slots` is the value of a section without that
    /// key.
    ///
    /// # Errors
    ///
    /// - [`FailureKind::Busy`]: `cpts` is set for a service that its clients created.
    /// - Errors of reading the running state.
    pub fn new(
        kernel: &dyn Kernel,
        service: &'a str,
        wanted: &ServiceState,
        slots: &str,
        there: bool,
    ) -> Result<Self> {
        let from = match there {
            true => Some(running::read(kernel, service)?),
            false => None,
        };
        let to = wanted.clone().with_slots(slots);
        if let (Some(from), Some(_)) = (&from, to.cpts) {
            if from.cpts.is_none() {
                let message =
                    format!("{service}: `cpts` cannot be set: clients created the service");
                let hint = "remove `cpts`, or apply before the first client is added";
                return Err(Failure::new(FailureKind::Busy, message).hint(hint));
            }
        }
        Ok(Self { service, from, to })
    }

    /// Returns the steps that are needed after the service is created.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Refused`]: the module would refuse a rule.
    pub fn steps(&self, slots: &str) -> Result<Vec<Step>> {
        let fresh = ServiceState::new().with_slots(slots);
        plan(self.service, self.from.as_ref().unwrap_or(&fresh), &self.to)
    }

    /// Applies the change, and returns the number of changes, including the creation of the
    /// service. Busy steps are retried for `patience`; no step is started once `told` is set.
    ///
    /// # Errors
    ///
    /// The refusal with its reason, or the interruption. The previous state is restored; otherwise
    /// the message says why not.
    pub fn carry_out(
        &self,
        kernel: &dyn Kernel,
        patience: Duration,
        told: &AtomicBool,
    ) -> Result<usize> {
        if self.from.is_none() {
            kernel.make(self.service)?;
        }
        self.walk(kernel, patience, told).map_err(|failure| {
            let Failure {
                kind,
                message,
                hint,
            } = failure;
            // The message of a failed read starts with the name of the service.
            let own = format!("{}: ", self.service);
            let message = message.strip_prefix(&own).unwrap_or(&message);
            match self.put_back(kernel, patience) {
                Ok(()) => {
                    let state = match self.from {
                        Some(_) => "the service was not changed",
                        None => "the service was removed",
                    };
                    Failure {
                        kind,
                        message: format!("{}: {message}; {state}", self.service),
                        hint,
                    }
                }
                Err(other) => {
                    let message = format!(
                        "{}: {message}; restoring the previous state failed: {}; \
                         the service is partly changed",
                        self.service, other.message
                    );
                    let hint = format!(
                        "see the running state: nrsctl save --service {}",
                        self.service
                    );
                    Failure::new(kind, message).hint(hint)
                }
            }
        })
    }

    fn walk(&self, kernel: &dyn Kernel, patience: Duration, told: &AtomicBool) -> Result<usize> {
        let now = match &self.from {
            Some(state) => state.clone(),
            None => running::read(kernel, self.service)?,
        };
        let steps = plan(self.service, &now, &self.to)?;
        for step in &steps {
            take(kernel, self.service, step, patience, told)?;
        }
        let now = running::read(kernel, self.service)?;
        match plan(self.service, &now, &self.to)?.first() {
            None => Ok(steps.len() + usize::from(self.from.is_none())),
            Some(step) => {
                let message = format!("`{step}` had no effect");
                Err(Failure::new(FailureKind::Other, message)
                    .hint("another program may have changed the service"))
            }
        }
    }

    /// Restores the previous state, even if the command is interrupted.
    fn put_back(&self, kernel: &dyn Kernel, patience: Duration) -> Result {
        let told = AtomicBool::new(false);
        let Some(from) = &self.from else {
            return kernel.remove(self.service);
        };
        let now = running::read(kernel, self.service)?;
        for step in plan(self.service, &now, from)? {
            take(kernel, self.service, &step, patience, &told)?;
        }
        Ok(())
    }
}

fn plan(service: &str, from: &ServiceState, to: &ServiceState) -> Result<Vec<Step>> {
    steps(from, to).map_err(|refusal| {
        let message = format!("{service}: rule {}: {refusal}", refusal.name);
        Failure::new(FailureKind::Refused, message)
    })
}

/// Takes a step; a busy step is retried until `patience` expires or `told` is set.
fn take(
    kernel: &dyn Kernel,
    service: &str,
    step: &Step,
    patience: Duration,
    told: &AtomicBool,
) -> Result {
    let end = Instant::now() + patience;
    loop {
        if told.load(Ordering::Relaxed) {
            let message = format!("interrupted before `{step}`");
            return Err(Failure::new(FailureKind::Other, message));
        }
        let done = match step {
            Step::Cpts(cpts) => kernel.set_cpts(service, *cpts),
            Step::Set(name, value) => kernel.set(service, name, value),
        };
        // Retries do not help with `cpts`: the service keeps its clients.
        let again = matches!(step, Step::Set(..)) && Instant::now() < end;
        match done {
            Err(failure) if failure.kind == FailureKind::Busy && again => sleep(PAUSE),
            Err(failure) => {
                // The module's message may start with the name of the parameter.
                let known = match step {
                    Step::Cpts(_) => format!("{service}: "),
                    Step::Set(name, _) => format!("{service}.{name}: "),
                };
                let reason = failure.message.strip_prefix(&known);
                let reason = reason.unwrap_or(&failure.message);
                return Err(Failure {
                    message: format!("`{step}` was refused: {reason}"),
                    ..failure
                });
            }
            Ok(()) => return Ok(()),
        }
    }
}
