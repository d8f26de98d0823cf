// SPDX-License-Identifier: GPL-2.0-only

//! How a part was started, and what it is told when that changes.

use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    policy::Configuration,
};

/// Bounds of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Classes beside the default class.
    pub classes: u32,
    /// Requests that are sorted, beside one for each class.
    pub requests: u32,
}

/// Parameters of a policy that goes round.
pub trait Tuned: Copy + PartialEq {
    /// What the store of its requests is told.
    type Setting: Copy + PartialEq;

    /// Requests of a batch on the head of `priority`.
    fn quantum(&self, priority: Priority) -> u32;

    /// What the store is told on the head of `priority`.
    fn setting(&self, priority: Priority) -> Self::Setting;

    /// What only a new part takes over.
    fn bounds(&self) -> Bounds;
}

/// What a running part is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<S> {
    /// Requests of batches that begin from now on.
    pub quantum: u32,
    /// For the store, about requests that come from now on.
    pub setting: S,
}

/// Configuration of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<T> {
    tunables: T,
    priority: Priority,
}

impl<T: Tuned> Configuration for Config<T> {
    type Tunables = T;
    type Update = Update<T::Setting>;

    fn parse(arg: Option<&str>, tunables: &T) -> Result<Self> {
        match arg {
            None => Ok(Self {
                tunables: *tunables,
                priority: Priority::Regular,
            }),
            Some(_) => Err(Error::invalid("this policy takes no argument")),
        }
    }

    fn on(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    fn with(&self, tunables: &T) -> Self {
        Self {
            tunables: *tunables,
            priority: self.priority,
        }
    }

    fn update_to(&self, new: &Self) -> Option<Update<T::Setting>> {
        (self.bounds() == new.bounds()).then(|| new.update())
    }
}

impl<T: Tuned> Config<T> {
    /// What a part with this configuration was told last.
    pub fn update(&self) -> Update<T::Setting> {
        Update {
            quantum: self.tunables.quantum(self.priority),
            setting: self.tunables.setting(self.priority),
        }
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.tunables.bounds()
    }
}
