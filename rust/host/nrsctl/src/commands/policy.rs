// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl policy`

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use nrs_sched::parameters;
use nrs_sched::policy::{self, Config, Tunables};
use nrs_sched::rules::Name;
use serde::Serialize;

use crate::failure::{FailureKind, Result};
use crate::kernel::Kernel;
use crate::stats::rules::{self, ListedRule};
use crate::{refusal, show, stats};

/// Highest rate of a rule, requests per second.
const RATE_MAX: u32 = 10_000_000;

/// Heads that an action applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HeadArg {
    /// Both heads.
    #[default]
    All,
    /// The regular head.
    Reg,
    /// The high-priority head.
    Hp,
}

impl HeadArg {
    /// Returns the word for the head in commands, with a trailing blank unless it is empty.
    pub fn word(self) -> &'static str {
        match self {
            HeadArg::All => "",
            HeadArg::Reg => "reg ",
            HeadArg::Hp => "hp ",
        }
    }

    /// Returns true if `name`, `regular` or `high`, is among the heads.
    pub fn has(self, name: &str) -> bool {
        match self {
            HeadArg::All => true,
            HeadArg::Reg => name == "regular",
            HeadArg::Hp => name == "high",
        }
    }
}

/// Arguments of listing verbs.
#[derive(clap::Args, Debug)]
pub struct Listing {
    /// Name of the service.
    pub service: String,
    /// Lists one head only.
    #[arg(long, value_enum, default_value_t)]
    pub head: HeadArg,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Actions of `nrsctl policy`.
#[derive(Subcommand, Debug)]
pub enum PolicyAction {
    /// Lists the policies of a service and their queues.
    List(Listing),
    /// Selects the policy of a service; fifo stops other policies.
    Set {
        /// Name of the service.
        service: String,
        /// Name of the policy.
        #[arg(help = meaning())]
        policy: String,
        /// Argument of the policy: a mode of fairshare, fields of tbf.
        argument: Vec<String>,
        /// Changes one head only.
        #[arg(long, value_enum, default_value_t)]
        head: HeadArg,
    },
}

/// Returns the names of all policies except test policies; the last name is separate.
fn names() -> (String, &'static str) {
    let kinds = policy::Kind::ALL.iter().filter(|kind| !kind.is_for_tests());
    let mut names: Vec<&str> = kinds.map(|kind| kind.name()).collect();
    let last = names.pop().unwrap_or_default();
    (names.join(", "), last)
}

/// Returns the help of the argument `policy`.
fn meaning() -> String {
    let (names, last) = names();
    format!("{names} or {last}")
}

/// Policy, as shown.
#[derive(Debug, Serialize)]
struct ListedPolicy<'a> {
    /// `regular` or `high`.
    head: &'a str,
    #[serde(flatten)]
    policy: &'a stats::Policy,
}

/// Runs `nrsctl policy`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the service or policy does not exist.
/// - [`FailureKind::Refused`]: the policy does not accept the argument.
/// - [`FailureKind::Busy`]: earlier policies are still stopping.
pub fn run(action: &PolicyAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        PolicyAction::List(Listing {
            service,
            head,
            json,
        }) => {
            let heads = stats::heads(kernel, service)?;
            let heads = heads.iter().filter(|of| head.has(&of.name));
            let policies: Vec<ListedPolicy<'_>> = heads
                .flat_map(|head| {
                    head.policies.iter().map(|policy| ListedPolicy {
                        head: &head.name,
                        policy,
                    })
                })
                .collect();
            let head = ["HEAD", "POLICY", "STATE", "QUEUED", "ACTIVE"];
            show::list(
                out,
                *json,
                &policies,
                head,
                |ListedPolicy { head, policy }| {
                    [
                        (*head).into(),
                        policy.full(),
                        policy.state.clone(),
                        policy.queued.to_string(),
                        policy.active.to_string(),
                    ]
                },
            )
        }
        PolicyAction::Set {
            service,
            policy,
            argument,
            head,
        } => {
            let text = format!("{policy} {}{}", head.word(), argument.join(" "));
            let done = kernel.set(service, "nrs_policies", text.trim_end());
            done.map_err(|failure| match (failure.kind, &failure.hint) {
                (FailureKind::NotFound, _) if failure.message.contains("no policy") => {
                    let (names, last) = names();
                    failure.hint(format!("policies: {names}, {last}"))
                }
                (FailureKind::Refused, _) if policy == "fairshare" => {
                    let mode = format!("{}_fair", argument.concat());
                    let kind = policy::Kind::Fairshare;
                    match Config::parse(kind, Some(&mode), &Tunables::default()) {
                        Ok(_) => failure.hint(format!("did you mean: fairshare {mode}")),
                        Err(_) => failure,
                    }
                }
                _ => failure,
            })?;
            match policy.as_str() {
                "tbf" => show_default_limit(kernel, service, *head, out),
                _ => Ok(()),
            }
        }
    }
}

/// Shows the limit of the rule `default` and how to lift the limit, if `tbf` has no other rule and
/// this rule was not changed.
fn show_default_limit(
    kernel: &dyn Kernel,
    service: &str,
    head: HeadArg,
    out: &mut dyn Write,
) -> Result {
    // The policy is selected, even if the rules cannot be read.
    let mut rules = rules::list(kernel, service).unwrap_or_default();
    rules.retain(|rule| head.has(&rule.head));
    let rate = parameters::named("nrs_tbf_rate").map(refusal::default);
    let rate = rate.unwrap_or_default();
    let default = Name::DEFAULT.as_str();
    let initial = |rule: &ListedRule| rule.name == default && rule.rate == rate;
    if rules.is_empty() || !rules.iter().all(initial) {
        return Ok(());
    }
    let unit = match kernel.get(service, "nrs_tbf_cost_model") {
        Ok(model) if model.trim() == "pages" => "pages",
        _ => "requests",
    };
    let option = match head {
        HeadArg::All => "",
        HeadArg::Reg => " --head reg",
        HeadArg::Hp => " --head hp",
    };
    Ok(writeln!(
        out,
        "{service}: the rule default limits each class to {rate} {unit}/s\n  \
         to lift this limit: nrsctl rule change {service} default --rate {RATE_MAX}{option}"
    )?)
}
