// SPDX-License-Identifier: GPL-2.0-only

//! Reasons for refused values.
//!
//! The parsers are the module's (`nrs_sched::parameters`), so most reasons are available without
//! the module.

use nrs_sched::{
    error::Code,
    parameters::{self, Parameter},
    qbm::plan::Plan,
    rules,
};

use crate::failure::{failure, Failure, FailureKind, Result};

/// Returns the kind of failure of a refusal with `code`.
pub(crate) fn kind(code: Code) -> FailureKind {
    match code {
        Code::NoEntry | Code::NoDevice => FailureKind::NotFound,
        Code::Again | Code::Busy => FailureKind::Busy,
        Code::NoMemory => FailureKind::Other,
        _ => FailureKind::Refused,
    }
}

/// Returns the reason why `value` is invalid for `parameter` of any service; `None` if it is valid.
pub fn reason(parameter: &Parameter, value: &str) -> Option<(FailureKind, String)> {
    match parameter.name() {
        "nrs_tbf_rule" => rules::check(value).err().map(|error| {
            let found = error.found(value);
            let found = match found {
                "" => String::new(),
                _ if error.is_syntax => format!(", found '{found}'"),
                _ => format!(": '{found}'"),
            };
            (kind(error.code), format!("{error}{found}"))
        }),
        "nrs_qbm_config" => Plan::parse(value)
            .err()
            .map(|error| (kind(error.code), error.to_string())),
        _ => parameter
            .check
            .and_then(|check| check(value).err())
            .map(|error| {
                (
                    kind(error.code),
                    bare(parameter, &error.to_string()).to_owned(),
                )
            }),
    }
}

/// Returns the format of the values of `parameter`.
pub fn takes(parameter: &Parameter) -> String {
    let heads = if parameter.heads {
        ", for each head"
    } else {
        ""
    };
    format!("{}{heads}", parameter.takes)
}

/// Returns the default of `parameter`, which is the same on both heads; empty if there is no
/// default.
pub fn default(parameter: &Parameter) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = parameter.write_default(&mut text);
    let first = text.lines().next().unwrap_or_default();
    let value = match first.split_once(':') {
        Some((_, value)) if parameter.heads => value,
        _ => first,
    };
    value.trim().to_owned()
}

/// Returns `reason` without a leading name of `parameter`, because messages begin with this name.
pub fn bare<'a>(parameter: &Parameter, reason: &'a str) -> &'a str {
    let bare = reason.strip_prefix(parameter.name());
    bare.and_then(|rest| rest.strip_prefix(" is "))
        .unwrap_or(reason)
}

/// Returns a hint: the accepted values of `parameter` and the page of its documentation.
pub fn hint(parameter: &Parameter) -> String {
    format!(
        "{}: valid values: {} (see {})",
        parameter.name(),
        takes(parameter),
        parameter.page
    )
}

/// Checks that `value` is valid for `parameter`, independently of the service.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the parameter does not exist, or something named in the value does
///   not exist.
/// - [`FailureKind::Refused`]: the parameter is read only, or the value is invalid.
pub fn check(parameter: &str, value: &str) -> Result {
    let Some(parameter) = parameters::named(parameter) else {
        return Err(failure!(NotFound: "parameter '{parameter}' does not exist";
            "see: nrsctl list_param -R '*'"));
    };
    if !parameter.access.writes() {
        return Err(failure!(Refused: "{}: read-only parameter", parameter.name()));
    }
    match reason(parameter, value) {
        None => Ok(()),
        Some((kind, reason)) => {
            let message = format!("{}: {reason}", parameter.name());
            Err(Failure::new(kind, message).hint(hint(parameter)))
        }
    }
}
