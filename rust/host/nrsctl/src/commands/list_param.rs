// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl list_param`

use std::io::Write;

use nrs_sched::parameters::all;

use crate::failure::{Failure, Result};
use crate::kernel::Kernel;
use crate::names::{self, Found};

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Marks services with '/' and parameters that can be written with '='.
    #[arg(short = 'F')]
    pub marks: bool,
    /// Lists the parameters of services.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Lists services only.
    #[arg(short = 'D', conflicts_with = "recursive")]
    pub services: bool,
    /// Services or parameters, with * ? [...] {a,b}; all services if there are none.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// Carries it out.
///
/// # Errors
///
/// [`crate::failure::Kind::NotFound`]: a name that stands for nothing; what [`Kernel::services`] returns. All names are gone
/// through.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let there = kernel.services()?;
    let all = ["*".to_owned()];
    let (names, may_be_none) = match args.names.is_empty() {
        true => (&all[..], true),
        false => (&args.names[..], false),
    };
    let mut failures = Vec::new();
    if let Err(failure) = list(args, names, may_be_none, &there, out, &mut failures) {
        failures.push(failure);
    }
    Failure::of(failures)
}

/// Lists what `names` stand for; those that stand for nothing come to `failures`.
///
/// # Errors
///
/// What `out` refuses.
fn list(
    args: &Args,
    names: &[String],
    may_be_none: bool,
    there: &[String],
    out: &mut dyn Write,
    failures: &mut Vec<Failure>,
) -> Result {
    for name in names {
        let found = names::services(name, there)
            .and_then(|services| Ok((services, names::parameters(name, there)?)));
        let (services, (holders, parameters)) = match found {
            Ok(found) => found,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for service in &services {
            let mark = if args.marks { "/" } else { "" };
            writeln!(out, "{}{mark}", service.shown)?;
            let below = all().filter(|_| args.recursive);
            for parameter in below {
                one(args, Found { service, parameter }, out)?;
            }
        }
        let mut none = services.is_empty();
        for service in &holders {
            for &parameter in parameters.iter().filter(|_| !args.services) {
                none = false;
                one(args, Found { service, parameter }, out)?;
            }
        }
        if none && !may_be_none {
            failures.push(names::unmatched("list_param", name, there));
        }
    }
    Ok(())
}

/// Lists one parameter.
fn one(args: &Args, found: Found<'_>, out: &mut dyn Write) -> Result {
    let mark = match args.marks && found.parameter.access.writes() {
        true => "=",
        false => "",
    };
    Ok(writeln!(out, "{}{mark}", found.shown())?)
}
