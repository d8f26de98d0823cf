// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl rule`

use std::io::Write;

use clap::Subcommand;

use super::policy::{Head, Listing};
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::names::near;
use crate::show;
use crate::stats::{self, rules::Listed};

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What a rule limits to; what is left out is as by default, or stays.
#[derive(clap::Args, Debug, Default)]
pub struct Limits {
    /// At most so much for each class: 200, 5000iops, 10MB/s, 20MiB/s.
    #[arg(long)]
    pub rate: Option<String>,
    /// So much comes before what others get beyond theirs; 0: none.
    #[arg(long)]
    pub minrate: Option<String>,
    /// The rule to stand before; else it stands in front.
    #[arg(long, value_name = "RULE")]
    pub rank: Option<String>,
    /// Whether what others leave unused may be used: 0 or 1.
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub borrow: Option<String>,
    /// Rules whose buckets are taken from, too, joined by '+'; empty: none.
    #[arg(long, value_name = "RULES")]
    pub also: Option<String>,
    /// Whether lost time is made up for, up to 1 s: 0 or 1.
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub realtime: Option<String>,
}

impl Limits {
    /// As commands have them, a blank before each.
    fn words(&self) -> String {
        let pairs = [
            ("rate", &self.rate),
            ("minrate", &self.minrate),
            ("rank", &self.rank),
            ("realtime", &self.realtime),
            ("borrow", &self.borrow),
            ("also", &self.also),
        ];
        let given = pairs
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.fold(String::new(), |text, (name, value)| {
            text + " " + name + "=" + value
        })
    }
}

/// What can be done with rules.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Shows the rules of a service in their order.
    List(Listing),
    /// Shows one rule.
    Show {
        /// The service.
        service: String,
        /// The rule.
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Starts a rule; without --rank it stands in front of all others.
    Start {
        /// The service.
        service: String,
        /// The rule: 1 to 15 letters, digits and '_'.
        name: String,
        /// Whom it is for: 'uid={1000 1001}', 'jobid={dd.*}&nid={10.0.0.*@tcp}'.
        #[arg(value_name = "MATCH")]
        conditions: String,
        /// Its limits.
        #[command(flatten)]
        limits: Limits,
        /// On one head only.
        #[arg(long, value_enum, default_value_t)]
        head: Head,
    },
    /// Changes limits of a rule, at once.
    Change {
        /// The service.
        service: String,
        /// The rule.
        name: String,
        /// Its new limits.
        #[command(flatten)]
        limits: Limits,
        /// On one head only.
        #[arg(long, value_enum, default_value_t)]
        head: Head,
    },
    /// Stops a rule.
    Stop {
        /// The service.
        service: String,
        /// The rule.
        name: String,
        /// On one head only.
        #[arg(long, value_enum, default_value_t)]
        head: Head,
    },
}

/// Carries it out.
///
/// # Errors
///
/// - [`Kind::NotFound`]: there is no such service or rule, or tbf is not started.
/// - [`Kind::Refused`]: what the command says is wrong; the column is that of the command in `nrs_tbf_rule`.
/// - [`Kind::Busy`]: another rule names the one that is to be stopped in `also=`.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let command = |service: &str, head: Head, text: String| {
        kernel.set(service, "nrs_tbf_rule", &format!("{}{text}", head.word()))
    };
    match &args.action {
        Action::List(Listing {
            service,
            head,
            json,
        }) => {
            let mut rules = stats::rules(kernel, service)?;
            rules.retain(|rule| head.has(&rule.head));
            list(&rules, *json, out)
        }
        Action::Show {
            service,
            name,
            json,
        } => {
            let rules = stats::rules(kernel, service)?;
            let found: Vec<Listed> = rules
                .iter()
                .filter(|rule| rule.name == *name)
                .cloned()
                .collect();
            match found.is_empty() {
                true => Err(missing(service, name, &rules)),
                false => list(&found, *json, out),
            }
        }
        Action::Start {
            service,
            name,
            conditions,
            limits,
            head,
        } => command(
            service,
            *head,
            format!("start {name} {conditions}{}", limits.words()),
        ),
        Action::Change {
            service,
            name,
            limits,
            head,
        } => {
            let words = limits.words();
            if words.is_empty() {
                let failure = Failure::new(Kind::Usage, format!("{name}: nothing to change"));
                return Err(
                    failure.hint("give --rate, --minrate, --rank, --borrow, --also or --realtime")
                );
            }
            let rules = stats::rules(kernel, service)?;
            let on = heads(&rules, name, *head).ok_or_else(|| missing(service, name, &rules))?;
            command(service, on, format!("change {name}{words}"))
        }
        Action::Stop {
            service,
            name,
            head,
        } => {
            // The module takes it for done if there is none.
            let rules = stats::rules(kernel, service)?;
            let on = heads(&rules, name, *head).ok_or_else(|| missing(service, name, &rules))?;
            command(service, on, format!("stop {name}"))
        }
    }
}

/// Those of `head` that have a rule of that name; none if no head has it. The module refuses a change on a head that has it not.
fn heads(rules: &[Listed], name: &str, head: Head) -> Option<Head> {
    let on = |side: Head, shown: &str| {
        head.has(shown)
            && rules
                .iter()
                .any(|rule| rule.name == name && side.has(&rule.head))
    };
    match (on(Head::Reg, "regular"), on(Head::Hp, "high")) {
        (true, true) => Some(head),
        (true, false) => Some(Head::Reg),
        (false, true) => Some(Head::Hp),
        (false, false) => None,
    }
}

/// That there is no rule of that name.
fn missing(service: &str, name: &str, rules: &[Listed]) -> Failure {
    let failure = Failure::new(
        Kind::NotFound,
        format!("{service}: there is no rule '{name}'"),
    );
    let mut near = near(name, rules.iter().map(|rule| &rule.name[..]));
    near.dedup();
    match near.is_empty() {
        true => failure.hint(format!("see: nrsctl rule list {service}")),
        false => failure.hint(format!("did you mean: {}", near.join(", "))),
    }
}

/// Shows `rules`.
fn list(rules: &[Listed], json: bool, out: &mut dyn Write) -> Result {
    if json {
        return show::json(out, &rules);
    }
    let rows: Vec<[String; 5]> = rules
        .iter()
        .map(|rule| {
            [
                rule.head.clone(),
                rule.name.clone(),
                rule.conditions.clone(),
                format!("{} {}", rule.rate, rule.limits)
                    .trim_end()
                    .to_string(),
                rule.classes.to_string(),
            ]
        })
        .collect();
    show::table(out, ["HEAD", "RULE", "MATCH", "RATE", "CLASSES"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refused, said, told};
    use crate::mock::Mock;

    const TEXT: &str = "regular_requests:\nCPT 0:\ngreedy uid={1002} 10MB/s, ref 1\nboth uid={5} 5, ref 0\ndefault * 10000, ref 0\nhigh_priority_requests:\nCPT 0:\nboth uid={5} 5, ref 0\n";

    fn mock() -> Mock {
        Mock::with(&[("san", &[("nrs_tbf_rule", TEXT)])])
    }

    #[test]
    fn list() {
        let want = "HEAD     RULE     MATCH       RATE    CLASSES\n\
                    regular  greedy   uid={1002}  10MB/s        1\n\
                    regular  both     uid={5}     5             0\n\
                    regular  default  *           10000         0\n\
                    high     both     uid={5}     5             0\n";
        assert_eq!(said(&mock(), "rule list san").unwrap(), want);
        let json = said(&mock(), "rule show san greedy --json").unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (value[0]["match"].as_str(), value[0]["classes"].as_u64()),
            (Some("uid={1002}"), Some(1))
        );
        let high = said(&mock(), "rule list san --head hp").unwrap();
        assert_eq!(high.lines().count(), 2);
        let failure = said(&mock(), "rule show san gredy").unwrap_err();
        assert_eq!(
            (failure.kind, failure.hint.as_deref()),
            (Kind::NotFound, Some("did you mean: greedy"))
        );
    }

    #[test]
    fn commands() {
        for (words, want) in [
            (
                &["start", "san", "a", "uid={1 2}", "--rate", "10MB/s"][..],
                "start a uid={1 2} rate=10MB/s",
            ),
            (
                &[
                    "start",
                    "san",
                    "b",
                    "uid={1}",
                    "--rate=10",
                    "--minrate=5",
                    "--rank=a",
                    "--borrow",
                    "--also=a",
                    "--realtime=0",
                    "--head",
                    "reg",
                ],
                "reg start b uid={1} rate=10 minrate=5 rank=a realtime=0 borrow=1 also=a",
            ),
            // A switch takes no word that follows.
            (
                &["start", "--borrow", "san", "a", "uid={5}"],
                "start a uid={5} borrow=1",
            ),
            (
                &["start", "--realtime=0", "--borrow=1", "san", "a", "uid={5}"],
                "start a uid={5} realtime=0 borrow=1",
            ),
            (
                &["change", "san", "both", "--rate", "20MB/s", "--head=hp"],
                "hp change both rate=20MB/s",
            ),
            (&["change", "san", "both", "--also="], "change both also="),
            (&["stop", "san", "both"], "stop both"),
            // Only one head has it.
            (
                &["change", "san", "greedy", "--rate=5"],
                "reg change greedy rate=5",
            ),
            (&["stop", "san", "greedy"], "reg stop greedy"),
        ] {
            let mock = mock();
            let words = [&["rule"], words].concat();
            assert_eq!(told(&mock, &words), Ok(String::new()), "{words:?}");
            assert_eq!(
                mock.log(),
                [("san".into(), "nrs_tbf_rule".into(), want.into())]
            );
        }
    }

    #[test]
    fn failures() {
        for (line, kind, message) in [
            (
                "rule change san greedy",
                Kind::Usage,
                "greedy: nothing to change",
            ),
            (
                "rule stop san nobody",
                Kind::NotFound,
                "san: there is no rule 'nobody'",
            ),
            (
                "rule change san greedy --rate 5 --head hp",
                Kind::NotFound,
                "san: there is no rule 'greedy'",
            ),
            (
                "rule stop san greedy --head hp",
                Kind::NotFound,
                "san: there is no rule 'greedy'",
            ),
            (
                "rule start san a uid={x}",
                Kind::Refused,
                "nrs_tbf_rule: column 14: expected a number, 0 to 4294967295, found 'x}'",
            ),
        ] {
            let mock = mock();
            refused(&mock, line, kind, message);
            assert!(mock.log().is_empty());
        }
    }
}
