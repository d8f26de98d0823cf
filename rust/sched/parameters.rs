// SPDX-License-Identifier: GPL-2.0-only

//! The parameters of a service: what there is, what each takes, and all values that are set.
//!
//! Each is declared once, in a row beside what it is for ([`schema`]): policies have theirs in `policy/NAME`, timeouts in
//! `timeouts/terms.rs`, the rest is in [`service`]. From the rows come the files of the module, what they show and
//! take, the checks of `nrsctl`, the reference, and what fuzzers and storms write.
//!
//! # Vocabulary
//!
//! - *Parameter*: something of a service that is read, set or done by name ([`Parameter`]).
//! - *Values*: what all parameters that store something are set to ([`Values`]); replaced as a whole.
//! - *Text*: a parameter that the service itself shows or carries out, for example rules and statistics.
//! - *Check*: the parser that the module reads values with, so far as it needs no service. What a check refuses is
//!   refused by every service; what it takes may still be refused by one.
//!
//! ```text
//!            set: parse, then what values must satisfy together
//!   text ───────────────────────────────────────────────────────▶ new Values ──▶ in effect, as a whole
//!                 │ refused: reason and errno, nothing is changed
//! ```

use core::{ffi::CStr, fmt};

use crate::sched::{
    error::{Code, Error, Result},
    policy::{
        self,
        fairshare::weights::{self, Weights},
        params::BufferMax,
        Config, Kind, Tunables, Tuning,
    },
    qbm::plan::Plan,
    rules::{Action, Book, Command as RuleCommand, Fields, Rate, RuleError, Unit},
    text::Command,
    timeouts::terms::{self, Terms},
};

pub(crate) mod schema;
pub mod service;

/// What can be done with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It does something when it is written, and is not read.
    Write,
    /// It is read and written.
    Both,
}

impl Access {
    /// Whether it can be read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }

    /// Whether it can be written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }
}

/// Says whether any service could take a value.
pub type Check = fn(&str) -> Result;

/// How a parameter that stores a value is read and set.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Writes the value as it is shown, with the end of its last line.
    pub show: fn(&Values, &mut dyn fmt::Write) -> fmt::Result,
    /// Takes a value by itself; see [`Values::set`].
    pub set: fn(&mut Values, &str) -> Result,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static CStr,
    /// What can be done with it.
    pub access: Access,
    /// Unit, range or syntax of what it takes; of one that is only read, what it shows.
    pub takes: &'static str,
    /// Whether each head has a value.
    pub heads: bool,
    /// What it is to begin with, if that is not the default of [`Values`]; empty where there is no such thing.
    pub default: &'static str,
    /// What it can fail with beside `EINVAL`, separated by commas.
    pub errors: &'static str,
    /// What it is, one sentence, with blanks around it.
    pub help: &'static str,
    /// The page of the documentation that says more.
    pub page: &'static str,
    /// What can be said of a value without the service; none: every value is as good as another, or none is.
    pub check: Option<Check>,
    /// How its value is read and set; none: it is a text.
    pub value: Option<Stored>,
}

impl Parameter {
    /// One that is nothing, to be filled in.
    pub(crate) const NONE: Self = Self {
        name: c"",
        access: Access::Both,
        takes: "",
        heads: false,
        default: "",
        errors: "",
        help: "",
        page: "",
        check: None,
        value: None,
    };

    /// Its name as text.
    pub fn name(&self) -> &'static str {
        // All of them are ASCII.
        self.name.to_str().unwrap_or_default()
    }

    /// What it is, one sentence.
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    /// Writes what it is to begin with, as it is shown; nothing where there is no such thing.
    pub fn write_default(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        match &self.value {
            Some(value) if self.default.is_empty() => (value.show)(&Values::default(), out),
            _ => out.write_str(self.default),
        }
    }
}

/// `name`, which ends with the only zero byte in it.
pub(crate) const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        // The module and the tests find no parameter then.
        Err(_) => c"",
    }
}

/// `own`, or `common` if that is empty.
pub(crate) const fn either(own: &'static str, common: &'static str) -> &'static str {
    if own.is_empty() {
        common
    } else {
        own
    }
}

/// What the parameters of a service are set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Of policies.
    pub policies: Tunables,
    /// Of timeouts.
    pub timeouts: Terms,
    /// Of the service itself.
    pub service: service::Service,
}

impl Values {
    /// Takes the value `text` of `parameter`, which stores one.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the parameter does not take it, or it contradicts another value. Nothing is changed then.
    pub fn set(&mut self, stored: &Stored, text: &str) -> Result {
        let mut new = *self;
        (stored.set)(&mut new, text)?;
        new.check()?;
        new.policies.set_buffer_max(new.service.buffer_max);
        *self = new;
        Ok(())
    }

    /// Takes the value `text` of the parameter called `name`.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no parameter of this name stores a value.
    /// - As [`Values::set`].
    pub fn set_named(&mut self, name: &str, text: &str) -> Result {
        let stored = named(name).and_then(|parameter| parameter.value.as_ref());
        let stored = stored.ok_or(Error::new(Code::NoEntry, "no such parameter"))?;
        self.set(stored, text)
    }

    /// Sets how many requests are kept in an order of their own, for the service and its policies.
    pub fn set_buffer_max(&mut self, max: BufferMax) {
        self.service.buffer_max = max;
        self.policies.set_buffer_max(max);
    }

    /// Says whether the values go together.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: [`Terms::check`], or [`Tuning::check`] of a policy, refuses them.
    pub fn check(&self) -> Result {
        self.policies.check()?;
        self.timeouts.check()
    }
}

/// The parameters of all parts, in the order in which they are shown.
static GROUPS: [&[&[Parameter]]; 3] = [
    &[service::POLICIES],
    policy::PARAMETERS,
    &[service::PARAMETERS, terms::PARAMETERS],
];

/// All parameters, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    GROUPS.iter().copied().flatten().copied().flatten()
}

/// The parameter called `name`.
pub fn named(name: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.name.to_bytes() == name.as_bytes())
}

/// Takes what `nrs_policies` takes.
pub(crate) fn policy(text: &str) -> Result {
    let command = Command::parse(text.trim())?;
    let kind = Kind::from_name(command.policy)?;
    Config::parse(kind, command.argument, &Tunables::default()).map(|_| ())
}

/// Takes items of weights; what is removed need not be there.
pub(crate) fn items(text: &str) -> Result {
    match Weights::new().apply(text.trim()) {
        Err(error) if error.code == Code::NoEntry => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Takes a mode of fairshare, with or without weights.
pub(crate) fn mode(text: &str) -> Result {
    let (_, list) = weights::split(text)?;
    list.map_or(Ok(()), items)
}

/// Says whether `text` could be a command for rules of a service where `tbf` runs with whatever type, and there are
/// whatever rules; sleeps.
///
/// # Errors
///
/// What [`RuleCommand::parse`] refuses, and of a start what [`Book::apply`] refuses whichever rules there are.
pub fn check_rule(text: &str) -> core::result::Result<(), RuleError> {
    let command = RuleCommand::parse(text)?;
    let Action::Start(mut conditions, _) = command.action else {
        return Ok(());
    };
    conditions.blanks();
    if conditions.peek() != Some(b'{') {
        return start(&command, Fields::ALL);
    }
    // A list without a field is about the only one of the type, which may be any.
    let mut worst: Option<RuleError> = None;
    for field in Fields::ALL.iter() {
        match start(&command, Fields::only(field)) {
            Ok(()) => return Ok(()),
            Err(error) if worst.is_none_or(|other| other.column < error.column) => {
                worst = Some(error);
            }
            Err(_) => {}
        }
    }
    worst.map_or(Ok(()), Err)
}

/// Carries `command` out where there are no rules and the type is `fields`; what it says of other rules counts for
/// nothing.
fn start(command: &RuleCommand<'_>, fields: Fields) -> core::result::Result<(), RuleError> {
    let rate = Rate::new(1, Unit::Plain).ok_or(RuleError::no_memory())?;
    match Book::new(fields, rate, u32::MAX)?.apply(command) {
        Err(error) if error.code != Code::NoEntry => Err(error),
        _ => Ok(()),
    }
}

/// Says whether `text` could be a configuration of `qbm`; sleeps.
///
/// # Errors
///
/// What [`Plan::parse`] refuses.
pub fn check_plan(text: &str) -> Result {
    Plan::parse(text).map(|_| ())
}

/// Takes a command for rules.
pub(crate) fn rule(text: &str) -> Result {
    Ok(check_rule(text)?)
}

#[cfg(test)]
mod tests;
