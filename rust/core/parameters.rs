// SPDX-License-Identifier: GPL-2.0-only

//! The parameters of a service by name, whichever way they are reached.
//!
//! What there is, and what stores a value, is declared in [`crate::sched::parameters`]; here is what a service shows or
//! carries out itself ([`Text`]). debugfs makes one file of each ([`crate::control::debugfs`]); device-mapper messages
//! and `/dev/nrs-control` go through [`set`] and [`show`]. A value is one line of text; blanks around it do not
//! count. Only a configuration of `qbm` may have several lines.
//!
//! # Context
//!
//! Everything here may sleep, and must not be called with the registry locked: it is waited for under that
//! lock.

use core::fmt::Write;

use kernel::prelude::*;

use super::{refused, service::Service};
use crate::sched::{
    parameters::{named, Parameter},
    policy::Kind,
    qbm::plan,
};

/// Bytes that most values may have.
const VALUE_MAX: usize = 4095;

/// Writes a text.
type Show = fn(&Service, &mut dyn Write) -> Result;

/// Carries a text out.
type Store = fn(&Service, &str) -> refused::Result;

/// A parameter that stores no value of its own.
struct Text {
    name: &'static str,
    show: Option<Show>,
    store: Option<Store>,
    /// Says whether a text may be carried out of which there are only the first lines so far; with it, a text may have
    /// several lines and [`plan::TEXT_MAX`] bytes.
    check: Option<Store>,
}

impl Text {
    const fn new(name: &'static str, show: Option<Show>, store: Option<Store>) -> Self {
        Self {
            name,
            show,
            store,
            check: None,
        }
    }

    const fn read(name: &'static str, show: Show) -> Self {
        Self::new(name, Some(show), None)
    }

    const fn write(name: &'static str, store: Store) -> Self {
        Self::new(name, None, Some(store))
    }

    const fn both(name: &'static str, show: Show, store: Store) -> Self {
        Self::new(name, Some(show), Some(store))
    }

    const fn in_lines(self, check: Store) -> Self {
        Self {
            check: Some(check),
            ..self
        }
    }
}

/// All texts of [`crate::sched::parameters`]; a test says so.
static TEXTS: [Text; 21] = [
    Text::both(
        "nrs_policies",
        |service, out| service.write_policies(out),
        |service, text| service.set_policy(text.trim()),
    ),
    Text::both(
        "nrs_fairshare_mode",
        |service, out| {
            let mode = service.values().policies.fairshare.mode;
            writeln!(out, "{mode}").map_err(|_| ENOSPC)
        },
        |service, text| service.set_mode(text.trim()),
    ),
    Text::both(
        "nrs_fairshare_weights",
        |service, out| service.write_weights(out),
        |service, text| service.set_weights(text.trim()),
    ),
    Text::read("nrs_fairshare_stats", |service, out| {
        service.write_stats(out)
    }),
    Text::write("nrs_fairshare_stats_reset", |service, _| {
        service.reset_stats(Kind::Fairshare);
        Ok(())
    }),
    Text::both(
        "nrs_tbf_rule",
        |service, out| service.write_rules(out),
        |service, text| service.command_rules(text),
    ),
    Text::read("nrs_tbf_rule_error", |service, out| {
        service.write_rule_error(out)
    }),
    Text::read("nrs_tbf_stats", |service, out| service.write_tbf_stats(out)),
    Text::write("nrs_tbf_stats_reset", |service, _| {
        service.reset_stats(Kind::Tbf);
        Ok(())
    }),
    Text::both(
        "nrs_qbm_config",
        |service, out| service.write_plan(out),
        |service, text| service.set_plan(text),
    )
    .in_lines(|service, text| service.check_plan(text)),
    Text::read("nrs_qbm_config_error", |service, out| {
        service.write_plan_error(out)
    }),
    Text::read("nrs_qbm_status", |service, out| {
        service.write_bandwidth(out)
    }),
    Text::read("nrs_qbm_stats", |service, out| {
        service.write_bandwidth_stats(out)
    }),
    Text::write("nrs_qbm_stats_reset", |service, _| {
        service.reset_bandwidth_stats();
        Ok(())
    }),
    Text::read("nrs_concurrency", |service, out| {
        service.write_concurrency(out)
    }),
    Text::read("health", |service, out| service.write_health(out)),
    Text::read("timeouts", |service, out| service.timeouts().write(out)),
    Text::read("client_timeouts", |service, out| {
        service.write_client_timeouts(out)
    }),
    Text::read("at_stats", |service, out| {
        service.timeouts().write_counts(out)
    }),
    Text::write("at_stats_reset", |service, _| {
        service.timeouts().reset();
        Ok(())
    }),
    Text::read("clients", |service, out| service.write_clients(out)),
];

fn text_of(parameter: &Parameter) -> Result<&'static Text> {
    let mut texts = TEXTS.iter();
    let found = texts.find(|text| text.name.as_bytes() == parameter.name.to_bytes());
    kernel::warn_on!(found.is_none());
    found.ok_or(ENOENT)
}

/// Returns how many bytes a value of `parameter` may have.
pub(crate) fn most(parameter: &Parameter) -> usize {
    if takes_lines(parameter) {
        plan::TEXT_MAX
    } else {
        VALUE_MAX
    }
}

/// Whether a value of `parameter` may have several lines, so that it may come in pieces.
pub(crate) fn takes_lines(parameter: &Parameter) -> bool {
    parameter.value.is_none() && text_of(parameter).is_ok_and(|text| text.check.is_some())
}

/// Says whether a value of `parameter` may be taken that begins with the lines `value`.
///
/// # Errors
///
/// What the parameter refuses.
pub(crate) fn check(service: &Service, parameter: &Parameter, value: &str) -> refused::Result {
    match text_of(parameter)?.check {
        Some(check) => check(service, value),
        None => Ok(()),
    }
}

/// Sets `parameter` of `service` to `value`.
///
/// # Errors
///
/// - `EACCES`: it cannot be written.
/// - `E2BIG`: the value has more bytes than the parameter takes.
/// - What the parameter refuses, mostly `EINVAL`.
pub(crate) fn store(service: &Service, parameter: &Parameter, value: &str) -> refused::Result {
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
/// - `EACCES`: it cannot be read.
/// - `ENOSPC`: `out` is full.
/// - What the parameter returns.
pub(crate) fn load(service: &Service, parameter: &Parameter, out: &mut dyn Write) -> Result {
    if !parameter.access.reads() {
        return Err(EACCES);
    }
    match &parameter.value {
        Some(stored) => (stored.show)(&service.values(), out).map_err(|_| ENOSPC),
        None => text_of(parameter)?.show.ok_or(EACCES)?(service, out),
    }
}

/// Sets the parameter `name` of `service` to `value`.
///
/// # Errors
///
/// `ENOENT`: there is no such parameter. As [`store`].
pub(crate) fn set(service: &Service, name: &str, value: &str) -> refused::Result {
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
