// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl weight`

use std::io::Write;

use clap::Subcommand;
use nrs_sched::policy::fairshare::weights::Weights;
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::show;

/// Parameter that has the weights.
const WEIGHTS: &str = "nrs_fairshare_weights";

/// Actions of `nrsctl weight`.
#[derive(Subcommand, Debug)]
pub enum WeightAction {
    /// Lists the weights of a service; unlisted weights are 1.
    List {
        /// Name of the service.
        service: String,
        /// Shows users and groups by number.
        #[arg(long, short)]
        numeric: bool,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Sets weights, all of them or none.
    Set {
        /// Name of the service.
        service: String,
        /// Weights, 1 to 10000: uid:alice=2, gid:staff=3, jobid:backup*=1.
        #[arg(required = true, value_name = "FIELD:VALUE=WEIGHT")]
        weights: Vec<String>,
    },
    /// Removes weights, all of them or none.
    Unset {
        /// Name of the service.
        service: String,
        /// Names of weights: uid:alice.
        #[arg(required_unless_present = "all", value_name = "FIELD:VALUE")]
        names: Vec<String>,
        /// Removes all weights of the service.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

/// Weight, as shown.
#[derive(Debug, Serialize)]
struct ListedWeight {
    /// Name of the weight: `uid:1000`.
    name: String,
    weight: u32,
}

/// Splits an item `FIELD:VALUE:WEIGHT` into name and weight.
fn parts(item: &str) -> (&str, &str) {
    item.rsplit_once(':').unwrap_or((item, ""))
}

/// Runs `nrsctl weight`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the service, user, group or weight does not exist.
/// - [`FailureKind::Refused`]: the name of a weight is malformed, or the weight is out of range.
pub fn run(action: &WeightAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        WeightAction::List {
            service,
            numeric,
            json,
        } => {
            let text = kernel.get(service, WEIGHTS)?;
            let text = match *numeric || *json {
                true => text.into(),
                false => kernel.accounts().names(WEIGHTS, &text),
            };
            let listed = text.lines().map(|line| {
                let (name, weight) = parts(line);
                let weight = weight.parse().ok()?;
                Some(ListedWeight {
                    name: name.into(),
                    weight,
                })
            });
            let strange =
                || Failure::new(FailureKind::Other, format!("{service}: {WEIGHTS}: {text}"));
            let listed = listed.collect::<Option<Vec<_>>>().ok_or_else(strange)?;
            show::list(out, *json, &listed, ["NAME", "WEIGHT"], |one| {
                [one.name.clone(), one.weight.to_string()]
            })
        }
        WeightAction::Set { service, weights } => {
            let items = weights.iter().map(|text| {
                let wrong = || {
                    let message = format!("{text}: missing =WEIGHT");
                    Failure::new(FailureKind::Usage, message)
                        .hint("write FIELD:VALUE=WEIGHT: uid:alice=2")
                };
                let (name, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
                item(kernel, text, format!("{name}:{weight}"))
            });
            set(kernel, service, items)
        }
        WeightAction::Unset { service, all, .. } if *all => kernel.set(service, WEIGHTS, "clear"),
        WeightAction::Unset { service, names, .. } => {
            // The item is checked with a weight, because a check against an empty table refuses
            // removals.
            let items = names.iter().map(|name| {
                let item = item(kernel, name, format!("{name}:1"))?;
                Ok(format!("-{}", parts(&item).0))
            });
            set(kernel, service, items)
        }
    }
}

/// Returns `item` with numbers for users and groups, after checking that it is a single item of the
/// form `FIELD:VALUE:WEIGHT`.
fn item(kernel: &dyn Kernel, text: &str, item: String) -> Result<String> {
    let item = kernel.accounts().numbers(WEIGHTS, &item)?.into_owned();
    let weights = Weights::new().apply(&item).map_err(|error| error.reason);
    let one = weights.and_then(|weights| match weights.len() {
        1 => Ok(()),
        _ => Err("is not one weight"),
    });
    one.map_err(|reason| Failure::new(FailureKind::Refused, format!("{text}: {reason}")))?;
    Ok(item)
}

/// Writes all of `items` at once.
fn set(kernel: &dyn Kernel, service: &str, items: impl Iterator<Item = Result<String>>) -> Result {
    let items = items.collect::<Result<Vec<_>>>()?;
    kernel.set(service, WEIGHTS, &items.join(" "))
}
