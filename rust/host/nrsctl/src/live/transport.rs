// SPDX-License-Identifier: GPL-2.0-only

//! What all ways to the parameters of the module have in common.

use std::fmt;

use crate::errno;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This way does not lead there; another one may. `denied`: it is there, but not for this user.
    Absent {
        /// Whether it is the rights that do not suffice.
        denied: bool,
    },
    /// There is no such service.
    NoService,
    /// The module refused it: errno, and the reason in one line if it told one.
    Errno(i32, Option<String>),
}

/// The result of transports.
pub type Result<T = ()> = std::result::Result<T, Refused>;

impl Refused {
    /// The way is not there.
    pub const ABSENT: Self = Self::Absent { denied: false };

    /// The way is there for others.
    pub const DENIED: Self = Self::Absent { denied: true };

    /// `errno` without a reason.
    pub const fn errno(errno: i32) -> Self {
        Self::Errno(errno, None)
    }

    /// Why a way could not be entered.
    pub fn entering(error: &std::io::Error) -> Self {
        match errno::of(error) {
            errno::EPERM | errno::EACCES | errno::EROFS => Self::DENIED,
            _ => Self::ABSENT,
        }
    }
}

/// A way to the parameters of the module.
pub trait Transport: fmt::Debug {
    /// The names of all services that can be reached this way.
    ///
    /// # Errors
    ///
    /// [`Refused::Absent`] if the way is not there, [`Refused::Errno`] if it could not be gone.
    fn services(&self) -> Result<Vec<String>>;

    /// The value of a parameter as the module shows it.
    ///
    /// # Errors
    ///
    /// As of [`Transport::services`]; [`Refused::NoService`].
    fn get(&self, service: &str, parameter: &str) -> Result<String>;

    /// Sets a parameter.
    ///
    /// # Errors
    ///
    /// As of [`Transport::get`].
    fn set(&self, service: &str, parameter: &str, value: &str) -> Result;
}
