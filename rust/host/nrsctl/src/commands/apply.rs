// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl apply`

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use similar::TextDiff;

use crate::configuration::carry_out::Change;
use crate::configuration::{files, module, render, running, wanted};
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only say what would change: status 0 if nothing, 8 if something.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Only this service, and nothing of the module.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Remove services that no file mentions, if they were made in configfs and have no clients.
    #[arg(long, conflicts_with = "service")]
    pub prune: bool,
    /// Say each step.
    #[arg(long, short = 'v')]
    pub verbose: bool,
    /// Seconds for which a step is tried again while earlier policies still stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u16,
    /// Files, or directories whose *.toml are meant; /etc/nrs unless given.
    #[arg(value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
}

/// Makes the running state what the files say, and shows first what differs.
///
/// # Errors
///
/// [`Kind::Refused`]: the files are wrong, nothing was changed, or a step was refused, and its service is as it
/// was; [`Kind::Differs`] of a dry run; what reading the running state returns. The other services are carried
/// out in spite of one that fails.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let files = files::read(&args.paths)?;
    let mut wanted = wanted(&files)?;
    if let Some(only) = &args.service {
        wanted.services.retain(|name, _| name == only);
        wanted.module.clear();
        if wanted.services.is_empty() {
            let message = format!("no file mentions the service {only}");
            return Err(Failure::new(Kind::NotFound, message));
        }
    }
    // Everything is looked at before anything is changed.
    let services = kernel.services()?;
    let mut now = module(kernel)?;
    now.retain(|name, _| *name == "default_slots" || wanted.module.contains_key(name));
    let before = now.get("default_slots").cloned().unwrap_or_default();
    let slots = wanted
        .module
        .get("default_slots")
        .unwrap_or(&before)
        .clone();
    now.retain(|name, _| wanted.module.contains_key(name));
    let mut changes = Vec::new();
    for (name, section) in &wanted.services {
        let there = services.contains(name);
        let change = Change::new(kernel, name, &section.state, &slots, there)?;
        if change.from.is_none() || !change.steps(&slots)?.is_empty() {
            changes.push(change);
        }
    }
    let mut extra = Vec::new();
    for name in services
        .iter()
        .filter(|name| args.prune && !wanted.services.contains_key(*name))
    {
        if kernel.is_made(name)? && !running::has_clients(&kernel.get(name, "clients")?) {
            extra.push((name, running::read(kernel, name)?));
        }
    }
    let differs = now != wanted.module;
    if !differs && changes.is_empty() && extra.is_empty() {
        writeln!(out, "nothing to change")?;
        return Ok(());
    }
    if differs {
        difference(out, "module", &of_module(&now), &of_module(&wanted.module))?;
    }
    for Change { service, from, to } in &changes {
        let old = from.as_ref().map_or(String::new(), |from| {
            let cpts = from.cpts.filter(|_| to.cpts.is_some());
            let from = crate::configuration::state::State {
                cpts,
                ..from.clone()
            };
            render::service(service, &from, &slots)
        });
        difference(out, service, &old, &render::service(service, to, &slots))?;
    }
    for (name, state) in &extra {
        difference(out, name, &render::service(name, state, &slots), "")?;
    }
    if args.verbose {
        for change in &changes {
            for step in change.steps(&slots)? {
                writeln!(out, "{}: {step}", change.service)?;
            }
        }
    }
    if args.dry_run {
        return Err(Failure::new(
            Kind::Differs,
            "the running state differs from the files",
        ));
    }
    out.flush()?;
    for (name, value) in wanted
        .module
        .iter()
        .filter(|(name, value)| now.get(*name) != Some(*value))
    {
        kernel
            .set_module_parameter(name, value)
            .map_err(|failure| Failure {
                message: format!(
                    "module parameter {name} = {value} was refused: {}",
                    failure.message
                ),
                ..failure
            })?;
    }
    let patience = Duration::from_secs(args.wait.into());
    let mut failures = Vec::new();
    for change in &changes {
        match change.carry_out(kernel, patience) {
            Ok(1) => writeln!(out, "{}: 1 change made", change.service)?,
            Ok(count) => writeln!(out, "{}: {count} changes made", change.service)?,
            Err(failure) => failures.push(failure),
        }
    }
    for (name, _) in extra {
        match kernel.remove(name) {
            Ok(()) => writeln!(out, "{name}: removed")?,
            Err(failure) => failures.push(Failure {
                message: format!("{name}: cannot be removed: {}", failure.message),
                ..failure
            }),
        }
    }
    Failure::of(failures)
}

/// All values of the module, be they the defaults.
fn of_module(values: &BTreeMap<&'static str, String>) -> String {
    let lines = values
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    format!("[module]\n{}", lines.collect::<String>())
}

/// Shows what differs between two texts.
fn difference(out: &mut dyn Write, name: &str, old: &str, new: &str) -> Result {
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    let (old, new) = (format!("{name}, running"), format!("{name}, wanted"));
    Ok(write!(out, "{}", unified.header(&old, &new))?)
}
