// SPDX-License-Identifier: GPL-2.0-only

//! Why a value is refused, in words.
//!
//! The parsers are those of the module (`nrs_sched::parameters`), so most of it can be said without the module.

use nrs_sched::error::Code;
use nrs_sched::parameters::{self, Parameter};

use crate::failure::{Failure, Kind, Result};

/// What kind of failure a refusal with `code` is.
fn kind(code: Code) -> Kind {
    match code {
        Code::NoEntry => Kind::NotFound,
        Code::Again | Code::Busy => Kind::Busy,
        Code::NoMemory => Kind::Other,
        _ => Kind::Refused,
    }
}

/// What is wrong with `value` for `parameter`, whatever the service; none if nothing is.
pub fn reason(parameter: &Parameter, value: &str) -> Option<(Kind, String)> {
    match parameter.name() {
        "nrs_tbf_rule" => parameters::check_rule(value).err().map(|error| {
            let found = error.found(value);
            let found = match found {
                "" => String::new(),
                _ => format!(", found '{found}'"),
            };
            (kind(error.code), format!("{error}{found}"))
        }),
        "nrs_qbm_config" => parameters::check_plan(value)
            .err()
            .map(|error| (kind(error.code), error.to_string())),
        _ => parameter
            .check
            .and_then(|check| check(value).err())
            .map(|error| (kind(error.code), bare(parameter, error.reason).to_owned())),
    }
}

/// What `parameter` takes or shows.
pub fn takes(parameter: &Parameter) -> String {
    let heads = if parameter.heads {
        ", for each head"
    } else {
        ""
    };
    format!("{}{heads}", parameter.takes)
}

/// What `parameter` is to begin with, on either head; empty where there is no such thing.
pub fn default(parameter: &Parameter) -> String {
    let mut text = String::new();
    // A string takes everything.
    let _ = parameter.write_default(&mut text);
    let first = text.lines().next().unwrap_or_default();
    let value = match first.split_once(':') {
        Some((_, value)) if parameter.heads => value,
        _ => first,
    };
    value.trim().to_owned()
}

/// `reason` of `parameter` without its name, which stands before it anyway.
pub fn bare<'a>(parameter: &Parameter, reason: &'a str) -> &'a str {
    let bare = reason.strip_prefix(parameter.name());
    bare.and_then(|rest| rest.strip_prefix(" is "))
        .unwrap_or(reason)
}

/// Where to read on about `parameter`.
pub fn hint(parameter: &Parameter) -> String {
    format!(
        "{} takes: {} ({})",
        parameter.name(),
        takes(parameter),
        parameter.page
    )
}

/// Says whether some service could take `value` for `parameter`.
///
/// # Errors
///
/// - [`Kind::NotFound`]: there is no such parameter, or what the value names is not there.
/// - [`Kind::Refused`]: it cannot be written, or the value is wrong.
pub fn check(parameter: &str, value: &str) -> Result {
    let Some(parameter) = parameters::named(parameter) else {
        let message = format!("there is no parameter '{parameter}'");
        return Err(Failure::new(Kind::NotFound, message).hint("see: nrsctl list_param -R '*'"));
    };
    if !parameter.access.writes() {
        let message = format!("{} can only be read", parameter.name());
        return Err(Failure::new(Kind::Refused, message));
    }
    match reason(parameter, value) {
        None => Ok(()),
        Some((kind, reason)) => {
            let message = format!("{}: {reason}", parameter.name());
            Err(Failure::new(kind, message).hint(hint(parameter)))
        }
    }
}
