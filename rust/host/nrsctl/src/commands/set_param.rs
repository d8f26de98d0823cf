// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl set_param`

use std::io::Write;

use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::names::{self, Found};

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

/// The names and values of `words`.
///
/// # Errors
///
/// [`Kind::Usage`]: a name without a value.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
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
    Ok(pairs)
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
    let pairs = pairs(&args.settings)?;
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
        for service in &services {
            for &parameter in &parameters {
                if names::is_pattern(name) && !parameter.access.writes() {
                    continue;
                }
                let found = Found { service, parameter };
                match kernel.set(&service.name, parameter.name(), value) {
                    Ok(()) if args.quiet => {}
                    Ok(()) => writeln!(out, "{}={value}", found.shown())?,
                    Err(failure) => failures.push(failure),
                }
            }
        }
    }
    Failure::of(failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refused, said};
    use crate::fake::Fake;

    fn fake() -> Fake {
        Fake::with(&[("ost_io", &[]), ("san", &[])])
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
            let (fake, mut out) = (fake(), Vec::new());
            run(&given, &fake, &mut out).unwrap();
            let log = fake.log();
            let log: Vec<_> = log.iter().map(|(a, b, c)| (&a[..], &b[..], &c[..])).collect();
            assert_eq!(log, want);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
        assert_eq!(said(&fake(), "set_param -n san.slots=8"), Ok(String::new()));
    }

    #[test]
    fn failures() {
        for (line, kind, message, set) in [
            ("set_param san.slots", Kind::Usage, "san.slots: no value", 0),
            (
                "set_param san.slots=0 san.slots=8",
                Kind::Refused,
                "slots: expected a number, 1 to 65535",
                1,
            ),
            (
                "set_param san.health=1 san.slots=8",
                Kind::Refused,
                "health can only be read",
                1,
            ),
            (
                "set_param nan.slots=8 san.slots=8",
                Kind::NotFound,
                "error: set_param: param_path 'nan/slots': No such file or directory",
                1,
            ),
        ] {
            let fake = fake();
            refused(&fake, line, kind, message);
            assert_eq!(fake.log().len(), set, "{line}");
        }
    }
}
