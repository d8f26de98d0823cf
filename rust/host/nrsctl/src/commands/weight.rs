// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl weight`

use std::io::Write;

use clap::Subcommand;
use nrs_sched::policy::fairshare::entity_table::Weights;
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::show;

/// Parameter with a setting for each of several entities.
pub(super) struct EntityParameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// Setting that is valid for any entity.
    pub any: &'static str,
    /// Reason to refuse several items in place of one.
    pub several: &'static str,
    /// Returns the number of entities in a text, or why it is not valid.
    pub count: fn(&str) -> std::result::Result<usize, &'static str>,
}

/// Weights of entities.
const WEIGHTS: EntityParameter = EntityParameter {
    name: "nrs_fairshare_weights",
    any: "1",
    several: "is not one weight",
    count: |text| match Weights::new().apply(text) {
        Ok(weights) => Ok(weights.len()),
        Err(error) => Err(error.reason),
    },
};

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

/// Splits an item `FIELD:VALUE:SETTING` into name and setting.
pub(super) fn parts(item: &str) -> (&str, &str) {
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
            let text = WEIGHTS.text(kernel, service, *numeric || *json)?;
            let listed = text.lines().map(|line| {
                let (name, weight) = parts(line);
                let weight = weight.parse().ok()?;
                Some(ListedWeight {
                    name: name.into(),
                    weight,
                })
            });
            let strange = || {
                let message = format!("{service}: {}: {text}", WEIGHTS.name);
                Failure::new(FailureKind::Other, message)
            };
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
                WEIGHTS.item(kernel, text, format!("{name}:{weight}"))
            });
            WEIGHTS.set(kernel, service, items)
        }
        WeightAction::Unset {
            service,
            all,
            names,
        } => WEIGHTS.unset(kernel, service, *all, names),
    }
}

impl EntityParameter {
    /// Returns all items of a service, one per line; users and groups by name unless `numeric`.
    pub fn text(&self, kernel: &dyn Kernel, service: &str, numeric: bool) -> Result<String> {
        let text = kernel.get(service, self.name)?;
        Ok(match numeric {
            true => text,
            false => kernel.accounts().names(self.name, &text).into_owned(),
        })
    }

    /// Returns `item` with numbers for users and groups, after checking that it is a single item of
    /// the form `FIELD:VALUE:SETTING`.
    pub fn item(&self, kernel: &dyn Kernel, text: &str, item: String) -> Result<String> {
        let item = kernel.accounts().numbers(self.name, &item)?.into_owned();
        let one = (self.count)(&item).and_then(|count| match count {
            1 => Ok(()),
            _ => Err(self.several),
        });
        one.map_err(|reason| Failure::new(FailureKind::Refused, format!("{text}: {reason}")))?;
        Ok(item)
    }

    /// Writes all of `items` at once.
    pub fn set(
        &self,
        kernel: &dyn Kernel,
        service: &str,
        items: impl Iterator<Item = Result<String>>,
    ) -> Result {
        let items = items.collect::<Result<Vec<_>>>()?;
        kernel.set(service, self.name, &items.join(" "))
    }

    /// Removes the items of `names`, or with `all` all of them.
    pub fn unset(&self, kernel: &dyn Kernel, service: &str, all: bool, names: &[String]) -> Result {
        if all {
            return kernel.set(service, self.name, "clear");
        }
        // The item is checked with a setting, because a check against an empty table refuses
        // removals.
        let items = names.iter().map(|name| {
            let item = self.item(kernel, name, format!("{name}:{}", self.any))?;
            Ok(format!("-{}", parts(&item).0))
        });
        self.set(kernel, service, items)
    }
}
