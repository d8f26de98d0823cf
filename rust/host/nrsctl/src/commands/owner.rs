// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl owner`

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

use crate::failure::Result;
use crate::items::{ListArgs, OWNERS};
use crate::kernel::Kernel;
use crate::show;

/// Actions of `nrsctl owner`.
#[derive(Subcommand, Debug)]
pub enum OwnerAction {
    /// Lists the owners of cgroups in a service.
    List(ListArgs),
    /// Sets owners of cgroups, all of them or none.
    Set {
        /// Name of the service.
        service: String,
        /// Owners: /system.slice/nginx.service=www-data:www-data, '/machine.slice/*=1000:1000'.
        #[arg(required = true, value_name = "PATH=USER:GROUP")]
        owners: Vec<String>,
    },
    /// Removes owners of cgroups, all of them or none.
    Unset {
        /// Name of the service.
        service: String,
        /// Paths of cgroups, as listed.
        #[arg(required_unless_present = "all", value_name = "PATH")]
        paths: Vec<String>,
        /// Removes all owners of the service.
        #[arg(long, conflicts_with = "paths")]
        all: bool,
    },
}

/// Owner, as shown.
#[derive(Debug, Serialize)]
struct ListedOwner<'a> {
    path: &'a str,
    user: &'a str,
    group: &'a str,
}

/// Runs `nrsctl owner`.
///
/// # Errors
///
/// - [`NotFound`](crate::failure::FailureKind::NotFound): the service, user, group or owner does
///   not exist.
/// - [`Refused`](crate::failure::FailureKind::Refused): an owner is malformed, or there are too
///   many.
pub fn run(action: &OwnerAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        OwnerAction::List(args) => {
            let text = OWNERS.text(kernel, args)?;
            let listed = OWNERS.parse(args, &text, |path, ids| {
                let (user, group) = ids.split_once(':')?;
                Some(ListedOwner { path, user, group })
            })?;
            show::list(
                out,
                args.form.json,
                &listed,
                ["CGROUP", "USER", "GROUP"],
                |one| [one.path, one.user, one.group].map(str::to_owned),
            )
        }
        OwnerAction::Set { service, owners } => {
            let items = owners.iter().map(|text| OWNERS.item(kernel, text, text));
            OWNERS.set(kernel, service, items)
        }
        OwnerAction::Unset {
            service,
            all,
            paths,
        } => OWNERS.unset(kernel, service, *all, paths),
    }
}
