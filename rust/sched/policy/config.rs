// SPDX-License-Identifier: GPL-2.0-only

//! What a policy is started with: what users set of it, and the configuration of a start.

use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    policy::params::{BufferMax, ClassesMax},
};
use core::fmt;

/// What the engine does for a policy at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// Time between two looks at everything, ms.
    pub delta_ms: u32,
    /// Whether partitions take turns by the shares of those who wait in them; else each has the same.
    pub by_shares: bool,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            delta_ms: 100,
            by_shares: false,
        }
    }
}

/// What users set of a policy.
pub trait Tuning {
    /// Says whether the values go together.
    /// `EINVAL`: they do not.
    fn check(&self) -> Result {
        Ok(())
    }

    /// Sets the bound of the class table.
    fn set_classes_max(&mut self, _max: ClassesMax) {}

    /// Sets the bound of the requests that are sorted.
    fn set_buffer_max(&mut self, _max: BufferMax) {}

    /// What the engine is to do at intervals; of one policy at most.
    fn upkeep(&self) -> Option<Upkeep> {
        None
    }
}

/// The configuration of a start: parsed, checked and never changed.
pub trait Configuration: Copy + PartialEq {
    /// What users set of the policy.
    type Tunables;

    /// What a running part is told.
    type Update;

    /// The configuration of a start on the regular head with argument `arg`.
    /// `EINVAL`: the policy does not take the argument.
    fn parse(arg: Option<&str>, tunables: &Self::Tunables) -> Result<Self>;

    /// The same argument on the same head with other parameters; the argument wins where they say different
    /// things.
    fn with(&self, tunables: &Self::Tunables) -> Self;

    /// The same on the head of `priority`.
    fn on(self, _priority: Priority) -> Self {
        self
    }

    /// What a part that was started with this is told so that it goes on with `new`; none: a new part has to
    /// be started.
    fn update_to(&self, _new: &Self) -> Option<Self::Update> {
        None
    }

    /// Whether a part that was started with this goes on with `new` by what the service keeps for the policy
    /// ([`super::control::Keep::update`]).
    fn follows(&self, _new: &Self) -> bool {
        false
    }

    /// Whether it matters in which cgroup a request was made.
    fn wants_cgroup(&self) -> bool {
        false
    }

    /// The argument of the start.
    fn argument(&self) -> Option<&dyn fmt::Display> {
        None
    }
}

/// Parameters of a policy that takes no argument.
pub trait Simple: Tuning + Copy + PartialEq {
    /// What a running part is told.
    type Update;

    /// See [`Configuration::update_to`].
    fn update_to(&self, _new: &Self, _priority: Priority) -> Option<Self::Update> {
        None
    }
}

/// Configuration of a policy that takes no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoArgument<T> {
    /// The parameters at the time of the start.
    pub tunables: T,
    /// The head.
    pub priority: Priority,
}

impl<T: Simple> Configuration for NoArgument<T> {
    type Tunables = T;
    type Update = T::Update;

    fn parse(arg: Option<&str>, tunables: &T) -> Result<Self> {
        match arg {
            None => Ok(Self {
                tunables: *tunables,
                priority: Priority::Regular,
            }),
            Some(_) => Err(Error::invalid("this policy takes no argument")),
        }
    }

    fn with(&self, tunables: &T) -> Self {
        Self {
            tunables: *tunables,
            ..*self
        }
    }

    fn on(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    fn update_to(&self, new: &Self) -> Option<T::Update> {
        self.tunables.update_to(&new.tunables, self.priority)
    }
}
