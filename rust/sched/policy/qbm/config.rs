// SPDX-License-Identifier: GPL-2.0-only

//! How a part was started: the parameters of that time, and what it is told afterwards.

use super::params::Tunables;
use crate::sched::{
    error::{Error, Result},
    mem::Shared,
    policy::Configuration,
    qbm::gate::Gates,
};

/// What a part is told: the gates of its service.
#[derive(Clone, Default)]
pub struct Update {
    gates: Option<Shared<Gates>>,
}

impl Update {
    /// The gates from now on.
    pub const fn new(gates: Shared<Gates>) -> Self {
        Self { gates: Some(gates) }
    }

    /// No gates: nobody is held back.
    pub const fn none() -> Self {
        Self { gates: None }
    }

    /// The gates.
    pub const fn gates(&self) -> Option<&Shared<Gates>> {
        self.gates.as_ref()
    }

    /// The same, to look at.
    #[inline]
    pub fn get(&self) -> Option<&Gates> {
        self.gates.as_deref()
    }
}

/// Configuration of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    tunables: Tunables,
}

impl Configuration for Config {
    type Tunables = Tunables;
    type Update = Update;

    fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        match arg {
            None => Ok(Self {
                tunables: *tunables,
            }),
            Some(_) => Err(Error::invalid("qbm takes no argument")),
        }
    }

    fn with(&self, tunables: &Tunables) -> Self {
        Self {
            tunables: *tunables,
        }
    }
}

impl Config {
    /// The parameters at the time of the start.
    pub const fn tunables(&self) -> &Tunables {
        &self.tunables
    }
}
