// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl set_param`

use std::io::Write;

use nrs_sched::parameters::Parameter;

use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::names::{self, Found};
use crate::show::Report;

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Does not show what was set.
    #[arg(short = 'n')]
    pub quiet: bool,
    /// What to set: NAME=VALUE or NAME VALUE, several at once; names as for get_param.
    #[arg(required = true, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub settings: Vec<String>,
}

/// The names and values of `words`, and whether the option `-n` is among them where a name is expected.
///
/// # Errors
///
/// [`Kind::Usage`]: a name without a value.
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
                let missing = || {
                    Failure::new(Kind::Usage, format!("{word}: no value"))
                        .hint("write NAME=VALUE or NAME VALUE")
                };
                (word.as_str(), words.next().ok_or_else(missing)?.as_str())
            }
        });
    }
    Ok((pairs, quiet))
}

/// Carries it out.
///
/// # Errors
///
/// - [`Kind::Usage`]: a name without a value; nothing is set then.
/// - [`Kind::NotFound`]: a name that stands for nothing.
/// - What [`Kernel::set`] returns.
///
/// All settings are gone through; the first failure says the kind.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let (pairs, quiet) = pairs(&args.settings)?;
    let quiet = quiet || args.quiet;
    let mut report = Report::new(out);
    let there = kernel.services()?;
    let mut failures = Vec::new();
    for (name, value) in pairs {
        let (services, parameters) = match names::parameters(name, &there) {
            Ok(found) => found,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        if services.is_empty() || parameters.is_empty() {
            failures.push(names::unmatched("set_param", name, &there));
        }
        let read_only = |parameter: &&Parameter| !parameter.access.writes();
        let fits = !services.is_empty() && !parameters.is_empty();
        if names::is_pattern(name) && fits && parameters.iter().all(read_only) {
            let message = format!("{name}: nothing was set: what it fits can only be read");
            let failure = Failure::new(Kind::Refused, message);
            failures.push(failure.hint(format!("see: nrsctl list_param -F '{name}'")));
            continue;
        }
        for service in &services {
            for &parameter in &parameters {
                if names::is_pattern(name) && !parameter.access.writes() {
                    continue;
                }
                let found = Found { service, parameter };
                match kernel.set(&service.name, parameter.name(), value) {
                    Ok(()) if quiet => {}
                    Ok(()) => writeln!(report, "{}={value}", found.shown())?,
                    Err(failure) => failures.push(failure),
                }
            }
        }
    }
    report.end(failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refused, said};
    use crate::mock::Mock;
    use crate::show::Unread;

    fn mock() -> Mock {
        Mock::with(&[("ost_io", &[]), ("san", &[])])
    }

    #[test]
    fn set_as_lctl_does() {
        let words = |words: &[&str]| Args {
            quiet: false,
            settings: words.iter().map(|word| word.to_string()).collect(),
        };
        for (given, want, shown) in [
            (
                words(&["ost.OSS.ost_io.nrs_policies=tbf nid"]),
                vec![("ost_io", "nrs_policies", "tbf nid")],
                "ost.OSS.ost_io.nrs_policies=tbf nid\n",
            ),
            (
                words(&["ost_io.nrs_tbf_rule=reg start a uid={5} rate=10", "san.slots", "8"]),
                vec![("ost_io", "nrs_tbf_rule", "reg start a uid={5} rate=10"), ("san", "slots", "8")],
                "ost_io.nrs_tbf_rule=reg start a uid={5} rate=10\nsan.slots=8\n",
            ),
            (
                words(&["*.nrs_tbf_rule", "start a uid={5} rate=10"]),
                vec![
                    ("ost_io", "nrs_tbf_rule", "start a uid={5} rate=10"),
                    ("san", "nrs_tbf_rule", "start a uid={5} rate=10"),
                ],
                "ost_io.nrs_tbf_rule=start a uid={5} rate=10\nsan.nrs_tbf_rule=start a uid={5} rate=10\n",
            ),
            (
                words(&["san.nrs_fairshare_weights", "-uid:5"]),
                vec![("san", "nrs_fairshare_weights", "-uid:5")],
                "san.nrs_fairshare_weights=-uid:5\n",
            ),
        ] {
            let (mock, mut out) = (mock(), Vec::new());
            run(&given, &mock, &mut out).unwrap();
            let log = mock.log();
            let log: Vec<_> = log.iter().map(|(a, b, c)| (&a[..], &b[..], &c[..])).collect();
            assert_eq!(log, want);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
        for line in [
            "set_param -n san.slots=8",
            "set_param san.slots=8 -n",
            "set_param san.slots 8 -n san.at_min=1",
        ] {
            assert_eq!(said(&mock(), line), Ok(String::new()), "{line}");
        }
    }

    #[test]
    fn goes_on_when_nobody_reads() {
        let settings = ["san.slots=8", "san.slots=0", "ost_io.slots=8"];
        let given = Args {
            quiet: false,
            settings: settings.map(str::to_owned).to_vec(),
        };
        let mock = mock();
        let failure = run(&given, &mock, &mut Unread).unwrap_err();
        assert_eq!((mock.log().len(), failure.kind), (2, Kind::Refused));
        assert!(
            failure.message.contains("\nnrsctl: standard output: "),
            "{failure}"
        );
    }

    #[test]
    fn failures() {
        for (line, kind, message, set) in [
            ("set_param san.slots", Kind::Usage, "san.slots: no value", 0),
            (
                "set_param san.slots=0 san.slots=8",
                Kind::Refused,
                "slots: not a number from 1 to 65535",
                1,
            ),
            (
                "set_param san.health=1 san.slots=8",
                Kind::Refused,
                "health can only be read",
                1,
            ),
            (
                "set_param *.hea*=1 san.slots=8",
                Kind::Refused,
                "*.hea*: nothing was set: what it fits can only be read",
                1,
            ),
            (
                "set_param nan.slots=8 san.slots=8",
                Kind::NotFound,
                "error: set_param: param_path 'nan/slots': No such file or directory",
                1,
            ),
        ] {
            let mock = mock();
            refused(&mock, line, kind, message);
            assert_eq!(mock.log().len(), set, "{line}");
        }
    }
}
