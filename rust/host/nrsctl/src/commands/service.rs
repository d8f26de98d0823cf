// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl service`

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

use crate::failure::{failure, Result};
use crate::kernel::{self, Kernel};
use crate::names::{is_service, NAME};
use crate::stats::{self, Policy, HIGH, REGULAR};
use crate::{refusal, show};

/// Actions of `nrsctl service`.
#[derive(Subcommand, Debug)]
pub enum ServiceAction {
    /// Lists all services.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one service.
    Show {
        /// Name of the service.
        name: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Creates a service that exists without clients.
    Add {
        /// Name of the service: 1 to 31 letters, digits and '_ - . :', not starting with a dot.
        name: String,
        /// Number of partitions, up to the number of CPUs (default: one per NUMA node).
        #[arg(long)]
        cpts: Option<u32>,
    },
    /// Removes a service created by add.
    Remove {
        /// Name of the service.
        name: String,
    },
    /// Sets parameters of a service.
    Set {
        /// Name of the service.
        name: String,
        /// Settings, in order: slots=16, nrs_policies='tbf uid', cpts=2.
        #[arg(required = true, value_name = "PARAMETER=VALUE")]
        settings: Vec<String>,
    },
}

/// Service, as shown.
#[derive(Debug, Serialize)]
pub struct ListedService {
    /// Name of the service.
    pub name: String,
    /// True if the service was created in configfs and exists without clients.
    pub made: bool,
    /// Number of partitions; `None` for a service not created in configfs.
    pub cpts: Option<u32>,
    /// Setting of `slots`, as the module shows it.
    #[serde(skip)]
    pub setting: String,
    /// Setting of `slots`; with `auto`, the number in effect.
    pub slots: u64,
    /// Number of slots in effect.
    pub limit: u64,
    /// Number of slots in use.
    pub active: u64,
    /// First line of `health`.
    pub health: String,
    /// Policy of the regular head.
    pub regular: String,
    /// Policy of the high-priority head.
    pub high: String,
    /// Requests queued on both heads.
    pub queued: u64,
    /// Names of the clients.
    pub clients: Vec<String>,
}

/// Headings of the columns of [`ListedService::row`].
const HEADINGS: [&str; 7] = [
    "SERVICE", "REGULAR", "HIGH", "SLOTS", "QUEUED", "CLIENTS", "HEALTH",
];

impl ListedService {
    /// Returns the row of the service in a table.
    fn row(&self) -> [String; 7] {
        [
            self.name.clone(),
            self.regular.clone(),
            self.high.clone(),
            self.setting.clone(),
            self.queued.to_string(),
            self.clients.len().to_string(),
            self.health.clone(),
        ]
    }
}

/// Reads the service `name`.
fn read(kernel: &dyn Kernel, name: &str) -> Result<ListedService> {
    let shown = stats::summary(kernel, name)?;
    let made = kernel.is_made(name)?;
    let serving = |on: &str| {
        let head = shown.heads.iter().find(|head| head.name == on)?;
        head.serving().map(Policy::full)
    };
    Ok(ListedService {
        name: name.into(),
        made,
        cpts: made.then(|| kernel.cpts(name)).transpose()?,
        setting: kernel.get(name, "slots")?.trim().into(),
        slots: shown.counter("slots"),
        limit: shown.counter("limit"),
        active: shown.counter("active"),
        health: shown.health().into(),
        regular: serving(REGULAR).unwrap_or_default(),
        high: serving(HIGH).unwrap_or_default(),
        queued: stats::queued(&shown.heads),
        clients: shown.clients.into_iter().map(|one| one.name).collect(),
    })
}

/// Runs `nrsctl service`.
///
/// # Errors
///
/// - `NotFound`: the service or parameter does not exist.
/// - `Refused`: a name or value is wrong; settings before the refused setting are in
///   effect.
/// - `Busy`: the service has clients.
pub fn run(action: &ServiceAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        ServiceAction::List { json } => {
            let services = kernel::each(kernel, |name| read(kernel, name))?;
            show::list(out, *json, &services, HEADINGS, ListedService::row)
        }
        ServiceAction::Show { name, json } => {
            let service = read(kernel, name)?;
            match json {
                true => show::json(out, &service),
                false => one(&service, out),
            }
        }
        ServiceAction::Add { name, cpts } => {
            checked(name)?;
            kernel.make(name)?;
            let Some(cpts) = cpts else {
                return Ok(());
            };
            // A service without the given number of partitions is removed again.
            kernel.set_cpts(name, *cpts).inspect_err(|_| {
                let _ = kernel.remove(name);
            })
        }
        ServiceAction::Remove { name } => {
            checked(name)?;
            kernel.remove(name)
        }
        ServiceAction::Set { name, settings } => set(kernel, name, settings),
    }
}

/// Checks that `name` is a valid name of a service.
///
/// # Errors
///
/// `Refused`: the name is not valid.
pub fn checked(name: &str) -> Result {
    match is_service(name) {
        true => Ok(()),
        false => Err(failure!(Refused: "'{name}' is not a valid service name").hint(NAME)),
    }
}

/// Sets the parameters in `settings`, none of them if one is malformed.
fn set(kernel: &dyn Kernel, name: &str, settings: &[String]) -> Result {
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| failure!(Usage: "{setting}: no value"; "write PARAMETER=VALUE"))?;
        let wrong = |_| failure!(Refused: "cpts: '{value}' is not a number");
        let cpts = match key {
            "cpts" => Some(value.parse().map_err(wrong)?),
            _ => None,
        };
        let value = kernel.accounts().numbers(key, value)?;
        if cpts.is_none() {
            refusal::check(key, &value)?;
        }
        pairs.push((key, value, cpts));
    }
    for (key, value, cpts) in pairs {
        match cpts {
            Some(cpts) => kernel.set_cpts(name, cpts)?,
            None => kernel.set(name, key, &value)?,
        }
    }
    Ok(())
}

/// Shows one service.
fn one(service: &ListedService, out: &mut dyn Write) -> Result {
    let kept = match (service.made, service.cpts) {
        (true, Some(1)) => "created in configfs, 1 partition".into(),
        (true, Some(cpts)) => format!("created in configfs, {cpts} partitions"),
        _ => "removed with the last client".to_owned(),
    };
    let clients = match service.clients.is_empty() {
        true => "none".into(),
        false => service.clients.join(", "),
    };
    for (what, value) in [
        ("service", &service.name),
        ("kept", &kept),
        ("regular", &service.regular),
        ("high", &service.high),
        (
            "slots",
            &format!(
                "{}, {} in effect, {} in use",
                service.setting, service.limit, service.active
            ),
        ),
        ("queued", &service.queued.to_string()),
        ("clients", &clients),
        ("health", &service.health),
    ] {
        writeln!(out, "{:<10}{value}", format!("{what}:"))?;
    }
    Ok(())
}
