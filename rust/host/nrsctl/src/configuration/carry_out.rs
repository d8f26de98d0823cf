// SPDX-License-Identifier: GPL-2.0-only

//! Application of the changes of a service: all of them, or none.
//!
//! The module replaces all settings by one write of the parameter `config`. Only the number of
//! partitions is set before, by itself, and restored if the write is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nrs_sched::parameters::service::CONFIG;

use super::running;
use super::state::ServiceState;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::Kernel;

/// Delay before a busy write is retried; it doubles up to [`LONG_PAUSE`].
pub const PAUSE: Duration = Duration::from_millis(50);

/// Longest delay before a busy write is retried.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Characters of a refused line in a message.
const SHOWN: usize = 120;

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
                return Err(failure!(Busy:
                    "{service}: `cpts` cannot be set: clients created the service";
                    "remove `cpts`, or apply before the first client is added"));
            }
        }
        Ok(Self { service, from, to })
    }

    /// Returns true if the current state is not the wanted one.
    pub fn is_needed(&self) -> bool {
        !self.from.as_ref().is_some_and(|from| from.is(&self.to))
    }

    /// Returns what is written to the module, a line for each setting.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let cpts = self.cpts().map(|cpts| format!("cpts {cpts}"));
        let text = self.to.text();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        cpts.into_iter().chain(lines)
    }

    /// Returns the number of partitions if it has to be set.
    fn cpts(&self) -> Option<u32> {
        let now = self.from.as_ref().and_then(|from| from.cpts);
        self.to.cpts.filter(|cpts| now != Some(*cpts))
    }

    /// Applies the change. A busy write is retried for `patience`, unless `told` is set.
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
    ) -> Result<()> {
        if self.from.is_none() {
            kernel.make(self.service)?;
        }
        let service = self.service;
        let Err(failure) = self.write(kernel, patience, told) else {
            return Ok(());
        };
        // The message of a failed read starts with the name of the service.
        let message = bare(&failure.message, service);
        match self.restore(kernel, patience) {
            Ok(()) => {
                let state = match self.from {
                    Some(_) => "the service was not changed",
                    None => "the service was removed",
                };
                Err(Failure {
                    message: format!("{service}: {message}; {state}"),
                    ..failure
                })
            }
            Err(other) => {
                let message = format!(
                    "{service}: {message}; restoring the previous state failed: {}; \
                     the service is partly changed",
                    other.message
                );
                let hint = format!("see the running state: nrsctl save --service {service}");
                Err(Failure::new(failure.kind, message).hint(hint))
            }
        }
    }

    fn write(&self, kernel: &dyn Kernel, patience: Duration, told: &AtomicBool) -> Result {
        if let Some(cpts) = self.cpts() {
            let done = kernel.set_cpts(self.service, cpts);
            done.map_err(|failure| {
                let reason = bare(&failure.message, self.service);
                let message = format!("`cpts = {cpts}` was refused: {reason}");
                Failure { message, ..failure }
            })?;
        }
        replace(kernel, self.service, &self.to.text(), patience, told)
    }

    /// Restores the previous state, even if the command is interrupted.
    fn restore(&self, kernel: &dyn Kernel, patience: Duration) -> Result {
        let Some(from) = &self.from else {
            return kernel.remove(self.service);
        };
        let now = kernel
            .is_made(self.service)?
            .then(|| kernel.cpts(self.service));
        let Some(cpts) = from.cpts.filter(|cpts| now != Some(Ok(*cpts))) else {
            // The module has changed nothing.
            return Ok(());
        };
        // New partitions have lost policies and rules.
        kernel.set_cpts(self.service, cpts)?;
        let told = AtomicBool::new(false);
        replace(kernel, self.service, &from.text(), patience, &told)
    }
}

/// Makes `service` what `text` says; a busy module is asked again until `patience` expires or
/// `told` is set.
fn replace(
    kernel: &dyn Kernel,
    service: &str,
    text: &str,
    patience: Duration,
    told: &AtomicBool,
) -> Result {
    let end = Instant::now() + patience;
    let mut pause = PAUSE;
    loop {
        if told.load(Ordering::Relaxed) {
            return Err(failure!(Other: "interrupted"));
        }
        let Err(failure) = kernel.set(service, CONFIG, text) else {
            return Ok(());
        };
        if failure.kind == FailureKind::Busy && Instant::now() < end {
            sleep(pause);
            pause = (2 * pause).min(LONG_PAUSE);
            continue;
        }
        let message = refusal(service, text, &failure.message);
        return Err(Failure { message, ..failure });
    }
}

/// Returns the message that the module refuses `text` because of `message`: with the line that is
/// wrong, if it names one.
pub fn refusal(service: &str, text: &str, message: &str) -> String {
    let reason = bare(message, &format!("{service}.{CONFIG}"));
    let numbered = reason.strip_prefix("line ");
    let numbered = numbered.and_then(|rest| rest.split_once(": "));
    let line = numbered.and_then(|(number, reason)| {
        let line = text
            .lines()
            .nth(number.parse::<usize>().ok()?.checked_sub(1)?)?;
        let end = line
            .char_indices()
            .nth(SHOWN)
            .map_or(line.len(), |(at, _)| at);
        let more = if end < line.len() { " ..." } else { "" };
        Some((format!("`{}{more}`", line.get(..end)?.trim_end()), reason))
    });
    let (what, reason) = line.unwrap_or(("the configuration".into(), reason));
    format!("{what} was refused: {reason}")
}

/// Returns `message` without a leading `name`.
fn bare<'a>(message: &'a str, name: &str) -> &'a str {
    let rest = message.strip_prefix(name);
    rest.and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(message)
}
