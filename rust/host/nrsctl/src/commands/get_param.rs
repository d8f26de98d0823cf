// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl get_param`

use std::collections::BTreeMap;
use std::io::Write;

use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::names::{self, Found};
use crate::show;

/// Arguments of `nrsctl get_param`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Prints values only.
    #[arg(short = 'n', conflicts_with_all = ["names", "marks"])]
    pub values: bool,
    /// Prints names only.
    #[arg(short = 'N')]
    pub names: bool,
    /// Prints names only, with '=' after writable parameters.
    #[arg(short = 'F')]
    pub marks: bool,
    /// Includes all parameters of the matching services.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Prints a JSON object of names and values.
    #[arg(long, conflicts_with_all = ["values", "names", "marks"])]
    pub json: bool,
    /// Names of parameters: SERVICE.PARAMETER or ost.OSS.SERVICE.PARAMETER, with * ? [...] {a,b}.
    #[arg(required = true, value_name = "NAME")]
    pub parameters: Vec<String>,
}

/// Runs `nrsctl get_param`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: nothing matches a name; the error of a named parameter that cannot
///   be read now.
/// - Errors of [`Kernel::get`].
///
/// All names are processed; the first failure determines the kind. Parameters that match a pattern
/// and cannot be read now are skipped.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let there = kernel.services()?;
    let (mut failures, mut object) = (Vec::new(), BTreeMap::new());
    for name in &args.parameters {
        if let Err(failure) = show(args, kernel, name, &there, out, &mut object, &mut failures) {
            let closed = failure.kind == FailureKind::Closed;
            failures.push(failure);
            // The output is closed: further output would be lost.
            if closed {
                break;
            }
        }
    }
    if args.json {
        failures.extend(show::json(out, &object).err());
    }
    Failure::of(failures)
}

/// Shows what `name` matches, or adds it to `object` for JSON; read errors are added to `failures`.
fn show(
    args: &Args,
    kernel: &dyn Kernel,
    name: &str,
    there: &[String],
    out: &mut dyn Write,
    object: &mut BTreeMap<String, String>,
    failures: &mut Vec<Failure>,
) -> Result {
    let mut found = names::parameters(name, there)?;
    let mut many = names::is_pattern(name);
    if args.recursive && found.is_empty() {
        found = names::each(&names::services(name, there)?, |_| true);
        many = true;
    }
    if found.is_empty() {
        return Err(names::unmatched("get_param", name, there));
    }
    for found in &found {
        match shown(args, kernel, found) {
            Ok(shown) if args.json => drop(object.insert(found.shown(), shown)),
            Ok(shown) => writeln!(out, "{shown}")?,
            // The parameter belongs to a policy that is not started, or is write-only.
            Err(failure)
                if many
                    && [FailureKind::NotFound, FailureKind::Refused].contains(&failure.kind) => {}
            Err(failure) => failures.push(failure),
        }
    }
    Ok(())
}

/// Returns the line or text of the parameter `found`.
fn shown(args: &Args, kernel: &dyn Kernel, found: &Found) -> Result<String> {
    let name = found.shown();
    if args.names || args.marks {
        let mark = if args.marks { found.mark() } else { "" };
        return Ok(format!("{name}{mark}"));
    }
    let value = kernel.get(&found.service.name, found.parameter.name())?;
    let value = value.strip_suffix('\n').unwrap_or(&value);
    if args.values || args.json {
        return Ok(value.to_owned());
    }
    // A value of several lines is printed below the name.
    let between = if value.contains('\n') { "\n" } else { "" };
    Ok(format!("{name}={between}{value}"))
}
