// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of a service by name, for all interfaces.
//!
//! [`crate::sched::parameters`] declares the parameters, and those that store a value. This module
//! has the texts that a service shows or executes itself ([`ServiceText`]); policies add theirs
//! ([`PoliciesData::texts`]). debugfs has one file for each ([`crate::control::debugfs`]);
//! device-mapper messages and `/dev/nrs-control` use [`set`] and [`show`]. A value is one line of
//! text without surrounding blanks; a few texts may have several lines.
//!
//! # Context
//!
//! All functions may sleep. They must not be called with the registry locked, because their end is
//! waited for under that lock.

use core::fmt::{self, Write};

use kernel::prelude::*;

use super::{refusal, service::Service};
#[cfg(CONFIG_KUNIT = "y")]
use crate::sched::parameters::AccessMode;
use crate::{
    sched::{
        health::HealthDetails,
        parameters::{named, Parameter},
        policy::{control, PoliciesData},
        report::Report,
    },
    sys::misc::bug,
};

/// A parameter that stores no value of its own.
type ServiceText = control::TextParameter<Service>;

pub(crate) use crate::sched::parameters::service::CONFIG;

/// Texts of the service itself.
static TEXTS: [ServiceText; 12] = [
    ServiceText::both(
        "nrs_policies",
        |service, out| Ok(service.write_policies(out)?),
        |service, text| service.set_policy(text.trim()),
    )
    .reported(|service, report| Ok(service.report_policies(report)?)),
    ServiceText::both(CONFIG, Service::write_text, Service::apply)
        .in_lines(control::CONFIG_MAX, Service::check_text),
    ServiceText::report("nrs_concurrency", |service, report| {
        Ok(service.report_concurrency(report)?)
    }),
    ServiceText::read("snapshot", |service, out| {
        Ok(write_reports(service, out, |_| true)?)
    }),
    ServiceText::read("summary", |service, out| {
        Ok(write_reports(service, out, |name| {
            ["clients", "nrs_policies", "health"].contains(&name)
        })?)
    }),
    ServiceText::read("health", |service, out| {
        Ok(write!(out, "{}", service.health()).map_err(|_| ENOSPC)?)
    })
    .reported(|service, report| {
        let health = service.health();
        let written = report.map(|report| {
            report.field("healthy", health.is_healthy())?;
            report.text("progress", HealthDetails(&health))
        });
        Ok(written.map_err(|_| ENOSPC)?)
    }),
    ServiceText::read("timeouts", |service, out| {
        Ok(service.timeouts().write(out)?)
    }),
    ServiceText::read("client_timeouts", |service, out| {
        Ok(service.write_client_timeouts(out)?)
    }),
    ServiceText::report("at_stats", |service, report| {
        Ok(service.timeouts().report_counts(report)?)
    }),
    ServiceText::write("at_stats_reset", |service, _| {
        service.timeouts().reset();
        Ok(())
    }),
    ServiceText::report("clients", |service, report| {
        Ok(service.report_clients(report)?)
    }),
    ServiceText::write("drain", |service, _| {
        service.drain();
        Ok(())
    }),
];

fn text_of(parameter: &Parameter) -> Result<&'static ServiceText> {
    let mut texts = Iterator::chain(TEXTS.iter(), PoliciesData::texts());
    let found = texts.find(|text| text.name == parameter.name());
    bug!(found.is_none());
    found.ok_or(ENOENT)
}

/// Returns the access that the implementation of `parameter` supports; `None` if there is no
/// implementation.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn serves(parameter: &Parameter) -> Option<AccessMode> {
    let (show, store) = match parameter.value {
        Some(_) => (true, true),
        None => {
            let text = text_of(parameter).ok()?;
            let shows = text.text.is_some() || text.report.is_some();
            (shows, text.store.is_some())
        }
    };
    match (show, store) {
        (true, true) => Some(AccessMode::Both),
        (true, false) => Some(AccessMode::Read),
        (false, true) => Some(AccessMode::Write),
        (false, false) => None,
    }
}

/// Returns the maximum length of a value of `parameter`, bytes.
pub(crate) fn most(parameter: &Parameter) -> usize {
    if parameter.value.is_some() {
        return ServiceText::LONGEST;
    }
    text_of(parameter).map_or(0, |text| text.longest)
}

/// Returns true if a value of `parameter` may have several lines, and so may be written in pieces.
pub(crate) fn takes_lines(parameter: &Parameter) -> bool {
    parameter.value.is_none() && text_of(parameter).is_ok_and(|text| text.check.is_some())
}

/// Checks if a value of `parameter` may begin with the lines `value`.
///
/// # Errors
///
/// Any error of the parameter.
pub(crate) fn check(service: &Service, parameter: &Parameter, value: &str) -> refusal::Result {
    match text_of(parameter)?.check {
        Some(check) => check(service, value),
        None => Ok(()),
    }
}

/// Sets `parameter` of `service` to `value`.
///
/// # Errors
///
/// - `EACCES`: the parameter is not writable.
/// - `E2BIG`: the value is longer than the parameter allows.
/// - Any error of the parameter, mostly `EINVAL`.
pub(crate) fn store(service: &Service, parameter: &Parameter, value: &str) -> refusal::Result {
    if !parameter.access.writes() {
        return Err(EACCES.into());
    }
    if value.len() > most(parameter) {
        return Err(E2BIG.into());
    }
    match &parameter.value {
        Some(stored) => service.set(stored, value),
        None => text_of(parameter)?.store.ok_or(EACCES)?(service, value),
    }
}

/// Writes the value of `parameter` of `service` to `out`.
///
/// # Errors
///
/// - `EACCES`: the parameter is not readable.
/// - `ENOSPC`: `out` is full.
/// - Any error of the parameter.
pub(crate) fn load(service: &Service, parameter: &Parameter, out: &mut dyn Write) -> Result {
    if !parameter.access.reads() {
        return Err(EACCES);
    }
    match &parameter.value {
        Some(stored) => (stored.show)(&service.values(), out).map_err(|_| ENOSPC),
        None => {
            let shown = text_of(parameter)?.show(service, out);
            shown.map_err(|refused| refused.errno())
        }
    }
}

/// Writes the reports of `service` that are `wanted` by name, as a JSON object. Policies that are
/// not started have no report.
fn write_reports(service: &Service, out: &mut dyn Write, wanted: fn(&str) -> bool) -> Result {
    let mut failed = Ok(());
    let written = Report::json(out).map(|map| {
        for text in Iterator::chain(TEXTS.iter(), PoliciesData::texts()) {
            if let Some(report) = text.report.filter(|_| wanted(text.name)) {
                let done = map.part(text.name, |map| report(service, map));
                let done = done.map_err(|refused| refused.errno());
                if done != Err(ENODEV) && done.is_err() {
                    failed = done;
                    return Err(fmt::Error);
                }
            }
        }
        Ok(())
    });
    failed.and(written.map_err(|_| ENOSPC))
}

/// Sets the parameter `name` of `service` to `value`.
///
/// # Errors
///
/// `ENOENT`: there is no such parameter. As [`store`].
pub(crate) fn set(service: &Service, name: &str, value: &str) -> refusal::Result {
    store(service, named(name).ok_or(ENOENT)?, value)
}

/// Writes the value of the parameter `name` of `service` to `out`.
///
/// # Errors
///
/// `ENOENT`: there is no such parameter. As [`load`].
pub(crate) fn show(service: &Service, name: &str, out: &mut dyn Write) -> Result {
    load(service, named(name).ok_or(ENOENT)?, out)
}
