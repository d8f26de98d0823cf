// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl service`

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;

use crate::configuration::read::is_service;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::{self, Kernel};
use crate::stats::{self, Policy, HIGH, REGULAR};
use crate::{refusal, show};

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What can be done with services.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Shows all services.
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
    /// Makes a service that stays without clients.
    Add {
        /// The service: 1 to 31 letters, digits and '_ - . :', not starting with a dot.
        name: String,
        /// Partitions, 1 to the number of CPUs; one per NUMA node if it is not said.
        #[arg(long)]
        cpts: Option<u32>,
    },
    /// Removes a service that was made so.
    Remove {
        /// The service.
        name: String,
    },
    /// Sets parameters of a service.
    Set {
        /// The service.
        name: String,
        /// What to set: slots=16, nrs_policies='tbf uid', cpts=2; in this order.
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
    /// What `slots` is set to.
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
    let policies = heads.iter().flat_map(|head| &head.policies);
    Ok(Service {
        name: name.into(),
        made,
        cpts: made.then(|| kernel.cpts(name)).transpose()?,
        slots: shown.counter("slots"),
        limit: shown.counter("limit"),
        active: shown.counter("active"),
        health: health.lines().next().unwrap_or_default().into(),
        regular: serving(REGULAR).unwrap_or_default(),
        high: serving(HIGH).unwrap_or_default(),
        queued: policies.map(|policy| policy.queued).sum(),
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
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match &args.action {
        Action::List { json } => {
            let services = kernel::each(kernel, |name| read(kernel, name))?;
            match json {
                true => show::json(out, &services),
                false => table(&services, out),
            }
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
            let hint = "1 to 31 letters, digits and _ - . : not starting with a dot";
            Err(Failure::new(Kind::Refused, message).hint(hint))
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
        match key {
            "cpts" => {
                let wrong =
                    |_| Failure::new(Kind::Refused, format!("cpts: '{value}' is not a number"));
                value.parse::<u32>().map_err(wrong)?;
            }
            _ => refusal::check(key, value)?,
        }
        pairs.push((key, value));
    }
    for (key, value) in pairs {
        match value.parse() {
            Ok(cpts) if key == "cpts" => kernel.set_cpts(name, cpts)?,
            _ => kernel.set(name, key, value)?,
        }
    }
    Ok(())
}

/// Shows several.
fn table(services: &[Service], out: &mut dyn Write) -> Result {
    let rows: Vec<[String; 7]> = services
        .iter()
        .map(|service| {
            [
                service.name.clone(),
                service.regular.clone(),
                service.high.clone(),
                format!("{}", service.slots),
                format!("{}", service.queued),
                format!("{}", service.clients.len()),
                service.health.clone(),
            ]
        })
        .collect();
    let head = [
        "SERVICE", "REGULAR", "HIGH", "SLOTS", "QUEUED", "CLIENTS", "HEALTH",
    ];
    show::table(out, head, &rows)
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
                service.slots, service.limit, service.active
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{said, told};
    use crate::mock::Mock;

    const POLICIES: &str = "\nregular_requests:\n  - name: tbf uid\n    state: started\n    fallback: no\n    queued: 4\n    active: 1\n\n\
                            high_priority_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n    queued: 0\n    active: 0\n\n";
    const CLIENTS: &str = "service: { slots: 64, limit: 32, active: 1, overflow: 0, no_memory: 0, stalls: 0 }\nclients:\n\
                           - client: \"files\"\n  counters: { passed: 1 }\ntargets:\n";

    fn mock() -> Mock {
        let values = [
            ("nrs_policies", POLICIES),
            ("clients", CLIENTS),
            ("health", "healthy\n\n"),
        ];
        Mock::with(&[("san", &values)])
    }

    #[test]
    fn list_and_show() {
        let want = "SERVICE  REGULAR  HIGH  SLOTS  QUEUED  CLIENTS  HEALTH\n\
                    san      tbf uid  fifo     64       4        1  healthy\n";
        assert_eq!(said(&mock(), "service list"), Ok(want.into()));
        let text = said(&mock(), "service show san").unwrap();
        assert!(
            text.contains("slots:    64, 32 in effect, 1 in use\n"),
            "{text}"
        );
        assert!(
            text.contains("kept:     gone with its last client\nregular:  tbf uid\n"),
            "{text}"
        );
        let json = said(&mock(), "service list --json").unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value[0]["clients"][0], "files");
        assert_eq!(
            (value[0]["limit"].as_u64(), value[0]["cpts"].is_null()),
            (Some(32), true)
        );
        assert_eq!(
            said(&mock(), "service show nan").unwrap_err().kind,
            Kind::NotFound
        );
    }

    #[test]
    fn made_and_removed() {
        let mock = Mock::with(&[]);
        assert_eq!(said(&mock, "service add a --cpts 2"), Ok(String::new()));
        assert_eq!(mock.cpts("a"), Ok(2));
        assert_eq!(said(&mock, "service add a").unwrap_err().kind, Kind::Busy);
        assert_eq!(said(&mock, "service remove a"), Ok(String::new()));
        assert_eq!(
            said(&mock, "service remove a").unwrap_err().kind,
            Kind::NotFound
        );
    }

    /// A name is no path.
    #[test]
    fn names_are_checked() {
        let long = "x".repeat(32);
        for name in ["", ".", "..", "san/rules/r1", "../x", "a b", &long] {
            for verb in ["add", "remove"] {
                let mock = mock();
                let failure = told(&mock, &["service", verb, name]).unwrap_err();
                assert_eq!(failure.kind, Kind::Refused, "{name}");
                assert!(failure.message.contains("is no name for a service"));
                assert_eq!(mock.services().unwrap(), ["san"]);
            }
        }
    }

    #[test]
    fn settings_are_checked_before_any_is_set() {
        let words = [
            "service",
            "set",
            "san",
            "slots=8",
            "nrs_policies=tbf uid",
            "cpts=2",
        ];
        let mock = mock();
        assert_eq!(told(&mock, &words), Ok(String::new()));
        assert_eq!((mock.log().len(), mock.cpts("san")), (2, Ok(2)));
        for (line, kind) in [
            ("service set san at_min=1 slots=0", Kind::Refused),
            ("service set san at_min=1 cpts=x", Kind::Refused),
            ("service set san at_min=1 slots", Kind::Usage),
            ("service set san at_min=1 slot=5", Kind::NotFound),
        ] {
            assert_eq!(said(&mock, line).unwrap_err().kind, kind, "{line}");
        }
        assert_eq!(mock.log().len(), 2);
    }
}
