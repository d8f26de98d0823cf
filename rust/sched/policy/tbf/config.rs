// SPDX-License-Identifier: GPL-2.0-only

//! Configuration of a start: the type, and the parameters at that time.

use super::{
    params::{GlobalRate, Tunables},
    plan::Update,
};
use crate::sched::{
    error::Result,
    key::Field,
    mem::NoMemory,
    policy::Configuration,
    rules::{Fields, Rate, RuleList, Unit},
};
use core::fmt;

/// Configuration of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    argument: Option<Fields>,
    /// Parameters at the time of the start.
    pub tunables: Tunables,
}

impl Configuration for Config {
    type Tunables = Tunables;
    type Update = Update;

    /// Parses the argument: fields joined by `+`; without an argument, the generic type.
    fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        let argument = arg.map(Fields::parse).transpose()?;
        Ok(Self {
            argument,
            tunables: *tunables,
        })
    }

    fn with(&self, tunables: &Tunables) -> Self {
        Self {
            argument: self.argument,
            tunables: *tunables,
        }
    }

    /// Returns true if type, maximum number of classes and scope of rates are unchanged, and the
    /// maximum number of rules is not higher. The tables are sized for these.
    fn follows(&self, new: &Self) -> bool {
        let (old, now) = (&self.tunables, &new.tunables);
        self.argument == new.argument
            && old.classes_max == now.classes_max
            && old.global_rate == now.global_rate
            && old.rules_max.get() >= now.rules_max.get()
    }

    fn wants_cgroup(&self) -> bool {
        self.fields().has(Field::Cgroup)
    }

    fn argument(&self) -> Option<&dyn fmt::Display> {
        let fields = self.argument.as_ref();
        fields.map(|fields| fields as &dyn fmt::Display)
    }
}

impl Config {
    /// Returns the type: the fields that make a class.
    pub fn fields(&self) -> Fields {
        self.argument.unwrap_or(Fields::GENERIC)
    }

    /// Returns the rate of the default rule, and of rules that are started without a rate.
    pub fn default_rate(&self) -> core::result::Result<Rate, NoMemory> {
        Rate::new(u64::from(self.tunables.rate.get()), Unit::Plain).ok_or(NoMemory)
    }

    /// Returns the initial rules: only the default rule.
    pub fn rule_list(&self) -> core::result::Result<RuleList, NoMemory> {
        let max = self.tunables.rules_max.get();
        RuleList::new(self.fields(), self.default_rate()?, max)
    }

    /// Returns true if partitions share rates.
    pub fn is_global(&self) -> bool {
        self.tunables.global_rate == GlobalRate::On
    }
}
