// SPDX-License-Identifier: GPL-2.0-only

//! How a part was started: its type, and the parameters of that time.

use super::{
    params::{GlobalRate, Tunables},
    plan::Update,
};
use crate::sched::{
    error::Result,
    key::Field,
    mem::NoMemory,
    policy::Configuration,
    rules::{Book, Fields, Rate, Unit},
};
use core::fmt;

/// Configuration of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    argument: Option<Fields>,
    /// The parameters at the time of the start.
    pub tunables: Tunables,
}

impl Configuration for Config {
    type Tunables = Tunables;
    type Update = Update;

    /// The argument is fields joined by `+`; the generic type without one.
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

    /// Tables are made for as many classes and rules as there may be, and partitions share rates or do not.
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
    /// The type: the fields that make a class.
    pub fn fields(&self) -> Fields {
        self.argument.unwrap_or(Fields::GENERIC)
    }

    /// The rate of the default rule, and of rules that are started without one.
    pub fn default_rate(&self) -> core::result::Result<Rate, NoMemory> {
        Rate::new(u64::from(self.tunables.rate.get()), Unit::Plain).ok_or(NoMemory)
    }

    /// The rules of a start: only the default rule.
    pub fn book(&self) -> core::result::Result<Book, NoMemory> {
        let max = self.tunables.rules_max.get();
        Book::new(self.fields(), self.default_rate()?, max)
    }

    /// Whether partitions share rates.
    pub fn is_global(&self) -> bool {
        self.tunables.global_rate == GlobalRate::On
    }
}
