// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl list_param`

use std::io::Write;

use crate::failure::{Failure, Result};
use crate::kernel::Kernel;
use crate::names;

/// Arguments of `nrsctl list_param`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Marks services with '/' and writable parameters with '='.
    #[arg(short = 'F')]
    pub marks: bool,
    /// Includes the parameters of the matching services.
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Lists services only.
    #[arg(short = 'D', conflicts_with = "recursive")]
    pub services: bool,
    /// Names of services or parameters, with * ? [...] {a,b} (default: all services).
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// Runs `nrsctl list_param`; all names are processed.
///
/// # Errors
///
/// - [`crate::failure::FailureKind::NotFound`]: nothing matches a name.
/// - Errors of [`Kernel::services`].
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let there = kernel.services()?;
    let mut failures = Vec::new();
    if args.names.is_empty() {
        list(args, "*", &there, out)?;
    }
    for name in &args.names {
        match list(args, name, &there, out) {
            Ok(true) => {}
            Ok(false) => failures.push(names::unmatched("list_param", name, &there)),
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of(failures)
}

/// Lists what `name` matches; returns true if anything does.
fn list(args: &Args, name: &str, there: &[String], out: &mut dyn Write) -> Result<bool> {
    let services = names::services(name, there)?;
    let found = names::parameters(name, there)?;
    let mut show = |name: &str, mark: &str| {
        let mark = if args.marks { mark } else { "" };
        writeln!(out, "{name}{mark}")
    };
    let any = !services.is_empty() || !found.is_empty() && !args.services;
    for service in services {
        show(&service.shown, "/")?;
        for found in names::each(&[service], |_| args.recursive) {
            show(&found.shown(), found.mark())?;
        }
    }
    for found in found.iter().filter(|_| !args.services) {
        show(&found.shown(), found.mark())?;
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use nrs_sched::policy::{self, Kind};

    use crate::cli::output_of;
    use crate::failure;
    use crate::mock::Mock;

    /// Lists and starts policies that exist only in tests, and sets and reads their parameters.
    #[test]
    fn a_policy_of_tests() {
        let kinds = Kind::ALL.iter().zip(policy::PARAMETERS);
        for (kind, parameters) in kinds.filter(|(kind, _)| kind.is_for_tests()) {
            let mock = Mock::of(&["san"]);
            let set = format!("policy set san {}", kind.name());
            assert_eq!(output_of(&mock, &set), Ok(String::new()));
            let list = output_of(&mock, "policy list san").unwrap();
            assert!(list.contains(&format!(" {} ", kind.name())), "{list}");
            let all = output_of(&mock, "list_param -R san").unwrap();
            assert!(!parameters.is_empty());
            for parameter in *parameters {
                let name = format!("san.{}", parameter.name());
                assert!(all.lines().any(|line| line == name), "{name}");
                let shown = Ok(format!("{name}=7\n"));
                assert_eq!(output_of(&mock, &format!("set_param {name}=7")), shown);
                assert_eq!(output_of(&mock, &format!("get_param {name}")), shown);
                let wrong = format!("set_param {name}=x");
                let kind = output_of(&mock, &wrong).map_err(|failure| failure.kind);
                assert_eq!(kind, Err(failure::FailureKind::Refused));
            }
        }
        assert!(Kind::ALL.iter().any(|kind| kind.is_for_tests()));
    }
}
