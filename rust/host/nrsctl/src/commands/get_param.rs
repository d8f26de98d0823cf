// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl get_param`

use std::collections::BTreeMap;
use std::io::Write;

use nrs_sched::parameters::all;

use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::names::{self, Found};
use crate::show;

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Shows values only.
    #[arg(short = 'n', conflicts_with_all = ["names", "marks"])]
    pub values: bool,
    /// Shows names only.
    #[arg(short = 'N')]
    pub names: bool,
    /// Shows names only, with '=' after writable parameters.
    #[arg(short = 'F')]
    pub marks: bool,
    /// Shows all parameters of services.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// An object of names and values.
    #[arg(long, conflicts_with_all = ["values", "names", "marks"])]
    pub json: bool,
    /// Parameters: SERVICE.PARAMETER or ost.OSS.SERVICE.PARAMETER, with * ? [...] {a,b}.
    #[arg(required = true, value_name = "NAME")]
    pub parameters: Vec<String>,
}

/// Carries it out.
///
/// # Errors
///
/// - [`Kind::NotFound`]: a name that stands for nothing; what is said of a parameter that cannot be read now.
/// - What [`Kernel::get`] returns.
///
/// All names are gone through; the first failure says the kind. Of what a pattern fits, parameters that cannot be read now are
/// left out.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let there = kernel.services()?;
    let (mut failures, mut object) = (Vec::new(), BTreeMap::new());
    for name in &args.parameters {
        if let Err(failure) = show(args, kernel, name, &there, out, &mut object, &mut failures) {
            let closed = failure.kind == Kind::Closed;
            failures.push(failure);
            // Nobody would see what else there is.
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

/// Shows what `name` stands for, or puts it into `object` for JSON; what cannot be read comes to `failures`.
fn show(
    args: &Args,
    kernel: &dyn Kernel,
    name: &str,
    there: &[String],
    out: &mut dyn Write,
    object: &mut BTreeMap<String, String>,
    failures: &mut Vec<Failure>,
) -> Result {
    let (mut services, mut parameters) = names::parameters(name, there)?;
    let mut many = names::is_pattern(name);
    if args.recursive && (services.is_empty() || parameters.is_empty()) {
        services = names::services(name, there)?;
        (parameters, many) = (all().collect(), true);
    }
    if services.is_empty() || parameters.is_empty() {
        return Err(names::unmatched("get_param", name, there));
    }
    for found in names::each(&services, &parameters) {
        match shown(args, kernel, found) {
            Ok(shown) if args.json => drop(object.insert(found.shown(), shown)),
            Ok(shown) => writeln!(out, "{shown}")?,
            // Of a policy that is not started, or one that is only written.
            Err(failure) if many && [Kind::NotFound, Kind::Refused].contains(&failure.kind) => {}
            Err(failure) => failures.push(failure),
        }
    }
    Ok(())
}

/// One, as it is shown.
fn shown(args: &Args, kernel: &dyn Kernel, found: Found<'_>) -> Result<String> {
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
    // Several lines stand below the name.
    let between = if value.contains('\n') { "\n" } else { "" };
    Ok(format!("{name}={between}{value}"))
}
