// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl owner`

use std::io::Write;

use clap::Subcommand;
use nrs_sched::owners::Owners;
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::show;

/// Parameter that has the owners.
pub const OWNERS: &str = "nrs_owners";

/// Actions of `nrsctl owner`.
#[derive(Subcommand, Debug)]
pub enum OwnerAction {
    /// Lists the owners of cgroups in a service.
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

impl<'a> ListedOwner<'a> {
    /// Parses the line `PATH=USER:GROUP`.
    fn parse(line: &'a str) -> Option<Self> {
        let (path, ids) = line.rsplit_once('=')?;
        let (user, group) = ids.split_once(':')?;
        Some(Self { path, user, group })
    }
}

/// Runs `nrsctl owner`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the service, user, group or owner does not exist.
/// - [`FailureKind::Refused`]: an owner is malformed, or there are too many.
pub fn run(action: &OwnerAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        OwnerAction::List {
            service,
            numeric,
            json,
        } => {
            let text = kernel.get(service, OWNERS)?;
            let text = match *numeric || *json {
                true => text.into(),
                false => kernel.accounts().names(OWNERS, &text),
            };
            let strange =
                || Failure::new(FailureKind::Other, format!("{service}: {OWNERS}: {text}"));
            let listed = text.lines().map(ListedOwner::parse);
            let listed = listed.collect::<Option<Vec<_>>>().ok_or_else(strange)?;
            show::list(out, *json, &listed, ["CGROUP", "USER", "GROUP"], |one| {
                [one.path, one.user, one.group].map(str::to_owned)
            })
        }
        OwnerAction::Set { service, owners } => {
            let items = owners.iter().map(|text| {
                let item = kernel.accounts().numbers(OWNERS, text)?.into_owned();
                check(text, &item)?;
                Ok(item)
            });
            set(kernel, service, items)
        }
        OwnerAction::Unset { service, all, .. } if *all => kernel.set(service, OWNERS, "clear"),
        OwnerAction::Unset { service, paths, .. } => {
            // A path is checked with an owner, because an empty table refuses removals.
            let items = paths.iter().map(|path| {
                check(path, &format!("{path}=0:0"))?;
                Ok(format!("-{path}"))
            });
            set(kernel, service, items)
        }
    }
}

/// Checks that `item`, which the user wrote as `text`, is one owner.
fn check(text: &str, item: &str) -> Result {
    let owners = Owners::new().apply(item).map_err(|error| error.reason);
    let one = owners.and_then(|owners| match owners.len() {
        1 => Ok(()),
        _ => Err("is not one owner"),
    });
    one.map_err(|reason| Failure::new(FailureKind::Refused, format!("{text}: {reason}")))
}

/// Writes all of `items` at once.
fn set(kernel: &dyn Kernel, service: &str, items: impl Iterator<Item = Result<String>>) -> Result {
    let items = items.collect::<Result<Vec<_>>>()?;
    kernel.set(service, OWNERS, &items.join(" "))
}
