// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl weight`

mod follow;

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

use crate::failure::{failure, Result};
use crate::items::{note_unused, ListArgs, WEIGHTS};
use crate::kernel::Kernel;
use crate::show;

/// Actions of `nrsctl weight`.
#[derive(Subcommand, Debug)]
pub enum WeightAction {
    /// Lists the weights of a service; unlisted weights are 1.
    List(ListArgs),
    /// Sets weights, all of them or none.
    Set {
        /// Name of the service.
        service: String,
        /// Weights, 1 to 10000: uid:alice=2, gid:staff=3, jobid:backup*=1.
        #[arg(required = true, value_name = "FIELD:VALUE=WEIGHT")]
        weights: Vec<String>,
    },
    /// Keeps the weights of cgroups as in io.weight of the kernel and IOWeight= of systemd.
    Follow(follow::FollowArgs),
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

/// Runs `nrsctl weight`.
///
/// # Errors
///
/// - `NotFound`: the service, user, group or weight does not exist.
/// - `Refused`: the name of a weight is malformed, or the weight is out of range.
pub fn run(action: &WeightAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        WeightAction::List(args) => {
            let text = WEIGHTS.text(kernel, args)?;
            let listed = WEIGHTS.parse(args, &text, |name, weight| {
                let weight = weight.parse().ok()?;
                Some(ListedWeight {
                    name: name.into(),
                    weight,
                })
            })?;
            show::list(out, args.form.json, &listed, ["NAME", "WEIGHT"], |one| {
                [one.name.clone(), one.weight.to_string()]
            })
        }
        WeightAction::Set { service, weights } => {
            let items = weights.iter().map(|text| {
                let wrong = || {
                    failure!(Usage: "{text}: missing =WEIGHT";
                        "write FIELD:VALUE=WEIGHT: uid:alice=2")
                };
                let (name, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
                WEIGHTS.item(kernel, text, &format!("{name}:{weight}"))
            });
            WEIGHTS.set(kernel, service, items)?;
            let names = weights.iter().filter_map(|weight| weight.rsplit_once('='));
            note_unused(kernel, service, names.map(|(name, _)| name), out)
        }
        WeightAction::Follow(args) => follow::run(args, kernel),
        WeightAction::Unset {
            service,
            all,
            names,
        } => WEIGHTS.unset(kernel, service, *all, names),
    }
}
