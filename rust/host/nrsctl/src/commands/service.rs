// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl service`

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

use crate::configuration::read::is_service;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::{self, Kernel};
use crate::names::NAME;
use crate::stats::{self, Policy, HIGH, REGULAR};
use crate::{refusal, show};

/// What can be done with services.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Lists all services.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one service.
    Show {
        /// The service.
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Creates a service that exists without clients.
    Add {
        /// The service: 1 to 31 letters, digits and '_ - . :', not starting with a dot.
        name: String,
        /// Partitions, 1 to the number of CPUs (default: one per NUMA node).
        #[arg(long)]
        cpts: Option<u32>,
    },
    /// Removes a service created by add.
    Remove {
        /// The service.
        name: String,
    },
    /// Sets parameters of a service.
    Set {
        /// The service.
        name: String,
        /// Settings, in order: slots=16, nrs_policies='tbf uid', cpts=2.
        #[arg(required = true, value_name = "PARAMETER=VALUE")]
        settings: Vec<String>,
    },
}

/// A service, as it is shown.
#[derive(Debug, Serialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Whether it was made, and stays without clients.
    pub made: bool,
    /// How many partitions it has; unknown of one that was not made.
    pub cpts: Option<u32>,
    /// What `slots` is set to, as the module shows it.
    #[serde(skip)]
    pub setting: String,
    /// What `slots` is set to; with `auto` as many as are in effect.
    pub slots: u64,
    /// How many slots are in effect.
    pub limit: u64,
    /// How many are in use.
    pub active: u64,
    /// Whether it gets on, as the first line of `health` says.
    pub health: String,
    /// The policy that serves the regular head.
    pub regular: String,
    /// The policy that serves the high-priority head.
    pub high: String,
    /// Requests queued on both.
    pub queued: u64,
    /// The names of its clients.
    pub clients: Vec<String>,
}

/// What stands above the columns of [`Service::row`].
const HEADINGS: [&str; 7] = [
    "SERVICE", "REGULAR", "HIGH", "SLOTS", "QUEUED", "CLIENTS", "HEALTH",
];

impl Service {
    /// Returns its row of a table.
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

/// What is shown of `name`.
fn read(kernel: &dyn Kernel, name: &str) -> Result<Service> {
    let heads = stats::heads(kernel, name)?;
    let shown = stats::clients(kernel, name)?;
    let health = kernel.get(name, "health")?;
    let made = kernel.is_made(name)?;
    let serving = |on: &str| {
        let head = heads.iter().find(|head| head.name == on)?;
        head.serving().map(Policy::full)
    };
    Ok(Service {
        name: name.into(),
        made,
        cpts: made.then(|| kernel.cpts(name)).transpose()?,
        setting: kernel.get(name, "slots")?.trim().into(),
        slots: shown.counter("slots"),
        limit: shown.counter("limit"),
        active: shown.counter("active"),
        health: health.lines().next().unwrap_or_default().into(),
        regular: serving(REGULAR).unwrap_or_default(),
        high: serving(HIGH).unwrap_or_default(),
        queued: stats::queued(&heads),
        clients: shown.clients.into_iter().map(|one| one.name).collect(),
    })
}

/// Carries it out.
///
/// # Errors
///
/// - [`Kind::NotFound`]: there is no such service or parameter.
/// - [`Kind::Refused`]: a name or value is wrong; of several settings those before it are set.
/// - [`Kind::Busy`]: the service has clients.
pub fn run(action: &Action, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        Action::List { json } => {
            let services = kernel::each(kernel, |name| read(kernel, name))?;
            show::list(out, *json, &services, HEADINGS, Service::row)
        }
        Action::Show { name, json } => {
            let service = read(kernel, name)?;
            match json {
                true => show::json(out, &service),
                false => one(&service, out),
            }
        }
        Action::Add { name, cpts } => {
            checked(name)?;
            kernel.make(name)?;
            let Some(cpts) = cpts else {
                return Ok(());
            };
            // All of it or nothing.
            kernel.set_cpts(name, *cpts).inspect_err(|_| {
                let _ = kernel.remove(name);
            })
        }
        Action::Remove { name } => {
            checked(name)?;
            kernel.remove(name)
        }
        Action::Set { name, settings } => set(kernel, name, settings),
    }
}

/// Sees that `name` is one that a service may have.
///
/// # Errors
///
/// [`Kind::Refused`]: it is not.
pub fn checked(name: &str) -> Result {
    match is_service(name) {
        true => Ok(()),
        false => {
            let message = format!("'{name}' is no name for a service");
            Err(Failure::new(Kind::Refused, message).hint(NAME))
        }
    }
}

/// Sets what `settings` say, if none of them is wrong.
fn set(kernel: &dyn Kernel, name: &str, settings: &[String]) -> Result {
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            Failure::new(Kind::Usage, format!("{setting}: no value")).hint("write PARAMETER=VALUE")
        })?;
        let wrong = |_| Failure::new(Kind::Refused, format!("cpts: '{value}' is not a number"));
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

/// Shows one.
fn one(service: &Service, out: &mut dyn Write) -> Result {
    let kept = match (service.made, service.cpts) {
        (true, Some(1)) => "made, 1 partition".into(),
        (true, Some(cpts)) => format!("made, {cpts} partitions"),
        _ => "gone with its last client".to_owned(),
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
