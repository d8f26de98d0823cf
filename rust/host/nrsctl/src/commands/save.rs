// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl save`

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::configuration::plan::steps;
use crate::configuration::state::State;
use crate::configuration::{module, read, render, running};
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only this service, and nothing of the module.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Where to write it; standard output unless given. What is there is replaced.
    pub file: Option<PathBuf>,
}

/// Writes what runs as a configuration: only what is not the default.
///
/// # Errors
///
/// [`Kind::NotFound`]: no such service; what reading the running state and writing the file return.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let values = module(kernel)?;
    let slots = values.get("default_slots").map_or("", String::as_str);
    let mut names = kernel.services()?;
    if let Some(only) = &args.service {
        names.retain(|name| name == only);
        if names.is_empty() {
            let message = format!("there is no service {only}");
            return Err(Failure::new(Kind::NotFound, message).hint("nrsctl service list"));
        }
    }
    let mut states = BTreeMap::new();
    for name in names {
        let state = running::read(kernel, &name)?;
        states.insert(name, state);
    }
    let mut parts = Vec::new();
    if args.service.is_none() {
        parts.push(render::module(&values));
    }
    parts.extend(
        states
            .iter()
            .map(|(name, state)| render::service(name, state, slots)),
    );
    parts.retain(|part| !part.is_empty());
    let text = format!("# Written by nrsctl save.\n\n{}", parts.join("\n"));
    prove(&text, &states, slots)?;
    match &args.file {
        None => out.write_all(text.as_bytes())?,
        Some(path) => replace(path, &text)?,
    }
    Ok(())
}

/// Reads `text` again: it has to ask for what runs.
fn prove(text: &str, states: &BTreeMap<String, State>, slots: &str) -> Result {
    let wrong = |reason: String| {
        let message = format!("what runs cannot be written as a configuration: {reason}");
        Err(Failure::new(Kind::Other, message))
    };
    let (wanted, faults) = read::read([("the text", text)]);
    if let Some(fault) = faults.first() {
        return wrong(fault.to_string());
    }
    for (name, state) in states {
        let again = wanted.services.get(name);
        let again = again.map(|section| section.state.clone().with_slots(slots));
        let same =
            again.is_some_and(|again| steps(state, &again).is_ok_and(|steps| steps.is_empty()));
        if !same {
            return wrong(format!("the service {name} would be another one"));
        }
    }
    Ok(())
}

/// Puts `text` in the place of the file `path`, all of it or nothing.
fn replace(path: &Path, text: &str) -> Result {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = path.with_file_name(name);
    let failed = |error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::PermissionDenied => Kind::Permission,
            _ => Kind::Other,
        };
        Failure::new(kind, format!("{}: {error}", path.display()))
    };
    fs::write(&new, text).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}
