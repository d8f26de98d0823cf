// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl apply`

mod devices;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use similar::TextDiff;

use crate::configuration::carry_out::ServiceChange;
use crate::configuration::read::Wanted;
use crate::configuration::state::ServiceState;
use crate::configuration::{files, module, render, running, wanted};
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{exclude, is_gone, Device, Kernel};
use crate::show::{self, Report};
use crate::stats;

use devices::DeviceChanges;

/// Arguments of `nrsctl apply`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Prints the changes without making them; exit status 8 if there are any.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Prints a JSON object: differences as unified diffs, and the changes made.
    #[arg(long, conflicts_with = "verbose")]
    pub json: bool,
    /// Applies this service only; module parameters are not changed.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Removes services and devices that no file defines, except those in use.
    #[arg(long, conflicts_with = "service")]
    pub prune: bool,
    /// Prints what is written to the module.
    #[arg(long, short = 'v')]
    pub verbose: bool,
    /// Time limit in seconds for retrying busy services and for waiting for disks and devices.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u16,
    /// Files, or directories of *.toml (default /etc/nrs).
    #[arg(value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
}

/// Applies the configuration files, after showing the differences from the running state. SIGHUP,
/// SIGINT and SIGTERM end the command between two services. A failure of one service does not
/// prevent changes of the other services.
///
/// # Errors
///
/// - [`FailureKind::Refused`]: the files are wrong and nothing was changed, or a step was refused
///   and its service was restored.
/// - [`FailureKind::Differs`]: a dry run found differences.
/// - [`FailureKind::Other`]: a signal interrupted the command.
/// - Errors of reading the running state.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let told = Arc::new(AtomicBool::new(false));
    if !args.dry_run {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&told))?;
        }
    }
    until(args, kernel, out, &told)
}

/// Differences and changes made, as shown in JSON.
#[derive(Default, Serialize)]
struct Outcome {
    /// Unified diffs, one for the module, each service and each device that differs.
    differences: Vec<String>,
    /// Changes made, a line `NAME: CHANGE` each.
    done: Vec<String>,
}

/// Output of the command: text immediately, or an outcome that is shown at the end.
struct Output<'a> {
    report: Report<'a>,
    outcome: Option<&'a mut Outcome>,
}

impl Output<'_> {
    /// Shows the difference between two texts.
    fn difference(&mut self, name: &str, old: &str, new: &str) -> Result {
        let diff = TextDiff::from_lines(old, new);
        let mut unified = diff.unified_diff();
        let (old, new) = (format!("{name}, running"), format!("{name}, wanted"));
        let unified = unified.header(&old, &new);
        match &mut self.outcome {
            Some(outcome) => outcome.differences.push(unified.to_string()),
            None => write!(self.report, "{unified}")?,
        }
        Ok(())
    }

    /// Shows a change that was made.
    fn done(&mut self, line: String) -> Result {
        match &mut self.outcome {
            Some(outcome) => outcome.done.push(line),
            None => writeln!(self.report, "{line}")?,
        }
        Ok(())
    }
}

/// Runs as [`run`], until `told` is set.
///
/// # Errors
///
/// Errors of [`run`].
pub fn until(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write, told: &AtomicBool) -> Result {
    if !args.json {
        return apply(args, kernel, out, None, told);
    }
    let mut outcome = Outcome::default();
    let done = apply(args, kernel, out, Some(&mut outcome), told);
    let shown = show::json(out, &outcome);
    Failure::of(done.err().into_iter().chain(shown.err()).collect())
}

/// Runs as [`until`]; a given `outcome` is filled instead of writing text to `out`.
fn apply(
    args: &Args,
    kernel: &dyn Kernel,
    out: &mut dyn Write,
    outcome: Option<&mut Outcome>,
    told: &AtomicBool,
) -> Result {
    let exclusion = (!args.dry_run).then(|| exclude(kernel, told));
    let _exclusion = exclusion.transpose()?;
    let files = files::read(&args.paths)?;
    if files.is_empty() && args.service.is_none() {
        // Only the file for the agent exists, which defines no services.
        if outcome.is_none() {
            writeln!(out, "nothing to change")?;
        }
        return Ok(());
    }
    let mut wanted = wanted(&files, kernel.accounts())?;
    if let Some(only) = &args.service {
        wanted.services.retain(|name, _| name == only);
        for devices in [&mut wanted.disks, &mut wanted.devices] {
            devices.retain(|_, (_, device)| device.service == *only);
        }
        wanted.module.clear();
        if wanted.services.is_empty() && wanted.disks.is_empty() && wanted.devices.is_empty() {
            return Err(failure!(NotFound: "no file defines the service {only}"));
        }
    }
    // All changes are checked before the first change is made.
    let mut failures = Vec::new();
    let mut todo = Todo::new(args, kernel, &wanted, &mut failures)?;
    if todo.is_empty() {
        if failures.is_empty() && outcome.is_none() {
            writeln!(out, "nothing to change")?;
        }
        return Failure::of(failures);
    }
    let mut output = Output {
        report: Report::new(out),
        outcome,
    };
    todo.show(args.verbose, &mut output)?;
    if args.dry_run {
        todo.devices.missing(kernel, &mut failures);
        failures.extend(output.report.failed().map(Failure::from));
        Failure::of(failures)?;
        return Err(failure!(Differs: "the running state differs from the files"));
    }
    output.report.flush()?;
    if let Err(failure) = todo.set_parameters(kernel, told) {
        failures.push(failure);
    }
    let patience = Duration::from_secs(args.wait.into());
    let mut left: Vec<String> = Vec::new();
    for change in &todo.changes {
        if told.load(Ordering::Relaxed) {
            left.push(change.service.to_owned());
            continue;
        }
        match change.carry_out(kernel, patience, told) {
            Ok(()) => {
                let done = match change.from {
                    Some(_) => "changed",
                    None => "created",
                };
                output.done(format!("{}: {done}", change.service))?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    let Todo { devices, extra, .. } = &mut todo;
    devices.carry_out(
        kernel,
        patience,
        told,
        &mut output,
        &mut failures,
        &mut left,
    )?;
    let gone = devices.extra.iter().map(|device| (&device.name, false));
    for (name, is_service) in gone.chain(extra.iter().map(|(name, _)| (name, true))) {
        if told.load(Ordering::Relaxed) {
            left.push(name.clone());
            continue;
        }
        let done = match is_service {
            true => kernel.remove(name),
            false => kernel.remove_device(name),
        };
        match done {
            Ok(()) => output.done(format!("{name}: removed"))?,
            Err(failure) => failures.push(failure.prefixed(&format!("{name}: cannot be removed"))),
        }
    }
    if !left.is_empty() {
        let message = format!("interrupted; not changed: {}", left.join(", "));
        failures.push(Failure::new(FailureKind::Other, message));
    }
    output.report.end(failures)
}

/// Changes to be made.
struct Todo<'a> {
    /// Module parameters that the files set: current values and wanted values.
    module: [BTreeMap<&'static str, String>; 2],
    /// Value of `slots` for services whose section does not set the key.
    slots: String,
    changes: Vec<ServiceChange<'a>>,
    devices: DeviceChanges<'a>,
    /// Services to be removed.
    extra: Vec<(String, ServiceState)>,
}

impl<'a> Todo<'a> {
    /// Returns the changes for `wanted`; failures of services that cannot be changed are added to
    /// `failures`.
    ///
    /// # Errors
    ///
    /// Errors of reading the running state.
    fn new(
        args: &Args,
        kernel: &dyn Kernel,
        wanted: &'a Wanted,
        failures: &mut Vec<Failure>,
    ) -> Result<Self> {
        let services = kernel.services()?;
        let mut now = module(kernel)?;
        let named = wanted.module.get("default_slots");
        let slots = named.or(now.get("default_slots")).cloned();
        let slots = slots.unwrap_or_default();
        now.retain(|name, _| wanted.module.contains_key(name));
        let mut changes = Vec::new();
        for (name, section) in &wanted.services {
            let there = services.contains(name);
            let change = ServiceChange::new(kernel, name, &section.state, &slots, there);
            match change {
                Ok(change) => changes.extend(change.is_needed().then_some(change)),
                Err(failure) => failures.push(failure),
            }
        }
        let devices = DeviceChanges::new(kernel, wanted, args.prune, failures)?;
        let mut extra = Vec::new();
        let unwanted = |name: &&String| args.prune && !wanted.services.contains_key(*name);
        for name in services.iter().filter(unwanted) {
            match removable(kernel, name, &devices.extra) {
                Ok(state) => extra.extend(state.map(|state| (name.clone(), state))),
                Err(failure) if is_gone(kernel, name, &failure)? => {}
                Err(failure) => failures.push(failure),
            }
        }
        Ok(Self {
            module: [now, wanted.module.clone()],
            slots,
            changes,
            devices,
            extra,
        })
    }

    fn is_empty(&self) -> bool {
        let [now, wanted] = &self.module;
        let none = self.changes.is_empty() && self.devices.is_empty() && self.extra.is_empty();
        now == wanted && none
    }

    /// Shows the differences, and with `verbose` what is written.
    fn show(&self, verbose: bool, output: &mut Output<'_>) -> Result {
        let [now, wanted] = &self.module;
        let slots = &self.slots;
        if now != wanted {
            output.difference("module", &of_module(now), &of_module(wanted))?;
        }
        for change in &self.changes {
            let ServiceChange {
                service, from, to, ..
            } = change;
            let old = from.as_ref().map_or(String::new(), |from| {
                let mut from = from.clone();
                from.cpts = from.cpts.filter(|_| to.cpts.is_some());
                render::service(service, &from, slots)
            });
            output.difference(service, &old, &render::service(service, to, slots))?;
        }
        self.devices.show(output)?;
        for (name, state) in &self.extra {
            output.difference(name, &render::service(name, state, slots), "")?;
        }
        for change in self.changes.iter().filter(|_| verbose) {
            for line in change.lines() {
                writeln!(output.report, "{}: {line}", change.service)?;
            }
        }
        Ok(())
    }

    /// Sets the parameters of the module.
    ///
    /// # Errors
    ///
    /// The parameter that was refused and the reason, or the interruption. Parameters that were set
    /// before are restored; otherwise the message says why not.
    fn set_parameters(&self, kernel: &dyn Kernel, told: &AtomicBool) -> Result {
        let [now, wanted] = &self.module;
        let differs = |(name, value): &(&&'static str, &String)| now.get(*name) != Some(value);
        let mut set = Vec::new();
        for (name, value) in wanted.iter().filter(differs) {
            let done = match told.load(Ordering::Relaxed) {
                true => Err(failure!(Other: "interrupted")),
                false => kernel.set_module_parameter(name, value),
            };
            let Err(failure) = done else {
                set.push(name);
                continue;
            };
            let own = format!("module parameter {name}: ");
            let reason = failure.message.strip_prefix(&own);
            let reason = reason.unwrap_or(&failure.message);
            let mut message = format!("module parameter {name} = {value} was not set: {reason}");
            for name in set {
                let Some(before) = now.get(name) else {
                    continue;
                };
                let back = kernel.set_module_parameter(name, before);
                message += &match back {
                    Ok(()) => format!("; {name} was restored to {before}"),
                    Err(other) => format!("; restoring {name} failed: {}", other.message),
                };
            }
            return Err(Failure { message, ..failure });
        }
        Ok(())
    }
}

/// Returns the state of `service` if the service can be removed: it was created in configfs, and
/// all its clients are devices in `gone`.
fn removable(kernel: &dyn Kernel, service: &str, gone: &[Device]) -> Result<Option<ServiceState>> {
    let clients = stats::summary(kernel, service)?.clients;
    let goes = |name: &str| {
        let same = |device: &Device| device.name == name && device.service == service;
        gone.iter().any(same)
    };
    match kernel.is_made(service)? && clients.iter().all(|client| goes(&client.name)) {
        true => running::read(kernel, service).map(Some),
        false => Ok(None),
    }
}

/// Returns a section `[module]` with all `values`, including defaults.
fn of_module(values: &BTreeMap<&'static str, String>) -> String {
    let lines = values
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    format!("[module]\n{}", lines.collect::<String>())
}
