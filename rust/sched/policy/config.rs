// SPDX-License-Identifier: GPL-2.0-only

//! Parameters that users set for a policy, and the configuration of a start.

use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    policy::params::{BufferMax, ClassesMax},
};
use core::fmt;

/// Periodic work that the engine does for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// Interval of the upkeep, ms.
    pub delta_ms: u32,
    /// True if partitions take turns by the shares of the requests queued in them; false if all
    /// partitions have equal shares.
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

/// Parameters of a policy that users set.
pub trait Tuning {
    /// Verifies that the values are consistent.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the values are inconsistent.
    fn check(&self) -> Result {
        Ok(())
    }

    /// Sets the maximum number of classes in the class table.
    fn set_classes_max(&mut self, _max: ClassesMax) {}

    /// Sets the maximum number of requests that are sorted.
    fn set_buffer_max(&mut self, _max: BufferMax) {}

    /// Returns the periodic work that the engine does; defined by at most one policy.
    fn upkeep(&self) -> Option<Upkeep> {
        None
    }
}

/// Configuration of a start: parsed, checked and immutable.
pub trait Configuration: Copy + PartialEq {
    /// Parameters of the policy.
    type Tunables;

    /// Update for a running part.
    type Update;

    /// Returns the configuration of a start on the regular head with argument `arg`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the policy does not take the argument.
    fn parse(arg: Option<&str>, tunables: &Self::Tunables) -> Result<Self>;

    /// Returns the configuration with the same argument and head and other parameters; the argument
    /// overrides parameters.
    fn with(&self, tunables: &Self::Tunables) -> Self;

    /// Returns the same configuration for the head of `priority`.
    fn on(self, _priority: Priority) -> Self {
        self
    }

    /// Returns the update with which a part that was started with this configuration continues with
    /// `new`; `None` if a new part must be started.
    fn update_to(&self, _new: &Self) -> Option<Self::Update> {
        None
    }

    /// Returns true if a part that was started with this configuration continues with `new`. The
    /// part then gets updates from the state that the service keeps for the policy
    /// ([`super::control::Keep::update`]).
    fn follows(&self, _new: &Self) -> bool {
        false
    }

    /// Returns true if the policy uses the cgroup in which a request was made.
    fn wants_cgroup(&self) -> bool {
        false
    }

    /// Returns the argument of the start.
    fn argument(&self) -> Option<&dyn fmt::Display> {
        None
    }
}

/// Parameters of a policy that takes no argument.
pub trait Simple: Tuning + Copy + PartialEq {
    /// Update for a running part.
    type Update;

    /// Returns the update to `new`; see [`Configuration::update_to`].
    fn update_to(&self, _new: &Self, _priority: Priority) -> Option<Self::Update> {
        None
    }
}

/// Configuration of a policy that takes no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoArgument<T> {
    /// Parameters at the time of the start.
    pub tunables: T,
    /// Head on which the policy runs.
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
