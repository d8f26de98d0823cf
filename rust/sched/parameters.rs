// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of a service: their declarations and their values.
//!
//! A parameter is declared once, in a row of a [`schema`] table. Parameters of policies are in
//! `policy/NAME`, those of timeouts in `timeouts/terms.rs`, the others in [`service`]. The rows
//! generate the control files, their text, the checks of `nrsctl`, the reference, and the input of
//! fuzzers and stress tests.
//!
//! # Terms
//!
//! - *Parameter*: a named value, text or action of a service ([`Parameter`]).
//! - *Values*: all stored values of a service ([`Values`]), replaced as a whole.
//! - *Text*: a parameter that the service formats or executes itself, for example rules and
//!   statistics.
//! - *Check*: the part of the module's parser that needs no service. Every service refuses a value
//!   that fails the check; a service may still refuse a value that passes.
//!
//! ```text
//!            set: parse, then check all values together
//!   text ───────────────────────────────────────────────▶ new Values ──▶ in effect, as a whole
//!                 │ refused: reason and errno, no change
//! ```

use core::{ffi::CStr, fmt};

use crate::sched::{
    error::{Code, Error, Result},
    owners,
    policy::{self, params::BufferMax, Tunables, Tuning},
    timeouts::terms::{self, TimeoutTerms},
};

pub(crate) mod schema;
pub mod service;

/// Access mode of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Read only.
    Read,
    /// Write only: a write executes an action.
    Write,
    /// Read and write.
    Both,
}

impl AccessMode {
    /// Returns true if the parameter can be read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }

    /// Returns true if the parameter can be written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }
}

/// Check of a value without a service; see the module's documentation.
pub type ValueCheck = fn(&str) -> Result;

/// Accessors of a parameter that stores a value.
#[derive(Clone, Copy, Debug)]
pub struct ValueAccessors {
    /// Formats the value, with the end of its last line.
    pub show: fn(&Values, &mut dyn fmt::Write) -> fmt::Result,
    /// Parses and stores the value without checking the other values; see [`Values::set`].
    pub set: fn(&mut Values, &str) -> Result,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    MODULE,
    expect(
        dead_code,
        reason = "the module parses and shows values, the host describes them"
    )
)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static CStr,
    /// Access mode.
    pub access: AccessMode,
    /// Unit, range or syntax of the value; for a read-only parameter, its content.
    pub takes: &'static str,
    /// True if each head has a value of its own.
    pub heads: bool,
    /// Initial value if it is not the default of [`Values`]; empty if there is none.
    pub default: &'static str,
    /// Errors of a write beside `EINVAL`, separated by commas.
    pub errors: &'static str,
    /// Help text: one sentence, with blanks around it.
    pub help: &'static str,
    /// Page of the documentation.
    pub page: &'static str,
    /// Check of a value without the service; `None` if no value is checked.
    pub check: Option<ValueCheck>,
    /// Accessors of the stored value; `None` for a text.
    pub value: Option<ValueAccessors>,
}

impl Parameter {
    /// Empty parameter that rows fill in.
    pub(crate) const NONE: Self = Self {
        name: c"",
        access: AccessMode::Both,
        takes: "",
        heads: false,
        default: "",
        errors: "",
        help: "",
        page: "",
        check: None,
        value: None,
    };

    /// Returns the name as text.
    pub fn name(&self) -> &'static str {
        // All names are ASCII.
        self.name.to_str().unwrap_or_default()
    }

    /// Returns the help text, one sentence.
    #[cfg(not(MODULE))]
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    /// Writes the initial value as a read shows it; nothing if there is none.
    #[cfg(not(MODULE))]
    pub fn write_default(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match &self.value {
            Some(value) if self.default.is_empty() => (value.show)(&Values::default(), out),
            _ => out.write_str(self.default),
        }
    }
}

/// Returns `name`, whose only zero byte is its last, as a C string.
pub(crate) const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        // The tests and the module do not find such a parameter.
        Err(_) => c"",
    }
}

/// Returns `own`, or `common` if `own` is empty.
pub(crate) const fn either(own: &'static str, common: &'static str) -> &'static str {
    if own.is_empty() {
        common
    } else {
        own
    }
}

/// Stored values of the parameters of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Values of policies.
    pub policies: Tunables,
    /// Values of timeouts.
    pub timeouts: TimeoutTerms,
    /// Values of the service itself.
    pub service: service::ServiceParameters,
}

impl Values {
    /// Sets a stored value from `text`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `text` is not a value of the parameter, or contradicts another value. No value
    ///   is changed.
    pub fn set(&mut self, stored: &ValueAccessors, text: &str) -> Result {
        let mut new = *self;
        (stored.set)(&mut new, text)?;
        new.check()?;
        new.policies.set_buffer_max(new.service.buffer_max);
        *self = new;
        Ok(())
    }

    /// Sets the parameter called `name` from `text`.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no parameter of this name stores a value.
    /// - As [`Values::set`].
    #[cfg(not(MODULE))]
    pub fn set_named(&mut self, name: &str, text: &str) -> Result {
        let stored = named(name).and_then(|parameter| parameter.value.as_ref());
        let stored = stored.ok_or(Error::new(Code::NoEntry, "no such parameter"))?;
        self.set(stored, text)
    }

    /// Sets the limit of sorted and ordered requests, for the service and its policies.
    pub fn set_buffer_max(&mut self, max: BufferMax) {
        self.service.buffer_max = max;
        self.policies.set_buffer_max(max);
    }

    /// Checks that the values do not contradict each other.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: [`TimeoutTerms::check`] or [`Tuning::check`] of a policy refuses the values.
    pub fn check(&self) -> Result {
        self.policies.check()?;
        self.timeouts.check()
    }
}

/// Parameters of all tables, in the order in which they are shown.
static GROUPS: [&[&[Parameter]]; 3] = [
    &[service::POLICIES],
    policy::PARAMETERS,
    &[owners::PARAMETERS, service::PARAMETERS, terms::PARAMETERS],
];

/// Returns all parameters, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    GROUPS.iter().copied().flatten().copied().flatten()
}

/// Returns the parameter called `name`.
pub fn named(name: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.name.to_bytes() == name.as_bytes())
}

/// Error of a name that [`settable`] does not find.
pub const UNSETTABLE: Error = Error::new(Code::NoEntry, "no parameter of this name can be set");

/// Returns the parameter `name` that a line of `config` may set.
///
/// # Errors
///
/// `ENOENT`: there is none, it cannot be both read and written, or it is `config` itself.
pub fn settable(name: &str) -> Result<&'static Parameter> {
    named(name)
        .filter(|one| one.access == AccessMode::Both && name != service::CONFIG)
        .ok_or(UNSETTABLE)
}

#[cfg(test)]
mod tests;
