// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl set_param`

use std::io::Write;

use crate::failure::{failure, Result};
use crate::kernel::{self, Kernel};
use crate::names::{self, Found};
use crate::show::Report;

/// Arguments of `nrsctl set_param`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Prints nothing.
    #[arg(short = 'n')]
    pub quiet: bool,
    /// Parameters and values, NAME=VALUE or NAME VALUE; names as for get_param.
    #[arg(required = true, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub settings: Vec<String>,
}

/// Returns the names and values in `words`, and true if the option `-n` is in the place of a name.
///
/// # Errors
///
/// `Usage`: a name has no value.
fn pairs(words: &[String]) -> Result<(Vec<(&str, &str)>, bool)> {
    let mut pairs = Vec::new();
    let mut quiet = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "-n" {
            quiet = true;
            continue;
        }
        pairs.push(match word.split_once('=') {
            Some(pair) => pair,
            None => {
                let missing =
                    || failure!(Usage: "{word}: no value"; "write NAME=VALUE or NAME VALUE");
                (word.as_str(), words.next().ok_or_else(missing)?.as_str())
            }
        });
    }
    Ok((pairs, quiet))
}

/// Runs `nrsctl set_param`.
///
/// # Errors
///
/// - `Usage`: a name has no value; nothing is set.
/// - `NotFound`: nothing matches a name.
/// - Errors of [`Kernel::set`].
///
/// All settings are processed; the first failure determines the kind.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let (pairs, quiet) = pairs(&args.settings)?;
    let quiet = quiet || args.quiet;
    let mut report = Report::new(out);
    let there = kernel.services()?;
    let mut failures = Vec::new();
    for (name, value) in pairs {
        let found = match selected(name, &there) {
            Ok(found) => found,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for found in found {
            match kernel::set(kernel, &found.service.name, found.parameter.name(), value) {
                Ok(()) if quiet => {}
                Ok(()) => writeln!(report, "{}={value}", found.shown())?,
                Err(failure) => failures.push(failure),
            }
        }
    }
    report.end(failures)
}

/// Returns the parameters that `name` selects; read-only ones are left out if it is a pattern.
fn selected(name: &str, there: &[String]) -> Result<Vec<Found>> {
    let mut found = names::parameters(name, there)?;
    if found.is_empty() {
        return Err(names::unmatched("set_param", name, there));
    }
    if names::is_pattern(name) {
        found.retain(|found| found.parameter.access.writes());
    }
    match found.is_empty() {
        true => Err(failure!(Refused:
            "{name}: nothing was set: all matching parameters are read-only";
            "see: nrsctl list_param -F '{name}'")),
        false => Ok(found),
    }
}
