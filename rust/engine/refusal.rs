// SPDX-License-Identifier: GPL-2.0-only

//! Refusals: an errno, and optionally a reason of one line.
//!
//! Functions that refuse a request return [`RefusedError`]; the interface that received the request
//! reports the reason. `/dev/nrs-control` returns it; debugfs, configfs and device-mapper messages
//! write it to the kernel log ([`RefusedError::report`]).

use core::fmt;

use kernel::{alloc::AllocError, prelude::*};

use crate::{
    sched::error::{self, Code},
    sys::{
        misc,
        series::{ENAMETOOLONG, ESTALE},
    },
};

/// A refusal.
#[derive(Clone, Copy)]
pub(crate) struct RefusedError {
    errno: Error,
    pub(super) reason: Option<error::Error>,
}

/// A result whose error may have a reason.
pub(crate) type Result<T = ()> = core::result::Result<T, RefusedError>;

impl RefusedError {
    /// Creates a refusal with `errno` and `reason`.
    pub(crate) const fn because(errno: Error, reason: &'static str) -> Self {
        Self {
            errno,
            // Only the reason is used; the code is ignored.
            reason: Some(error::Error::invalid(reason)),
        }
    }

    /// Returns the errno.
    pub(crate) const fn errno(&self) -> Error {
        self.errno
    }

    /// Returns true if there is a reason.
    pub(crate) const fn has_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// Adds `reason` if there is none.
    pub(crate) fn or_because(self, reason: Option<&'static str>) -> Self {
        Self {
            reason: self.reason.or(reason.map(error::Error::invalid)),
            ..self
        }
    }

    /// Returns the errno and writes the reason, if any, to the kernel log, at a limited rate.
    /// `service` is the name of the service that refused. May sleep.
    pub(crate) fn report(self, service: &str) -> Error {
        if let Some(reason) = self.reason.filter(|_| misc::may_print()) {
            pr_info!(
                "service {}: refused: {}\n",
                service,
                format_args!("{reason}")
            );
        }
        self.errno
    }
}

/// Displays the reason; empty if there is none.
impl fmt::Display for RefusedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => reason.fmt(f),
            None => Ok(()),
        }
    }
}

impl From<Error> for RefusedError {
    fn from(errno: Error) -> Self {
        Self {
            errno,
            reason: None,
        }
    }
}

impl From<AllocError> for RefusedError {
    fn from(_: AllocError) -> Self {
        ENOMEM.into()
    }
}

impl From<error::Error> for RefusedError {
    fn from(error: error::Error) -> Self {
        Self {
            errno: errno_of(error.code),
            reason: Some(error),
        }
    }
}

/// Lets tests return a refusal as its errno.
#[cfg(CONFIG_KUNIT = "y")]
impl From<RefusedError> for Error {
    fn from(refused: RefusedError) -> Self {
        refused.errno
    }
}

/// Returns the errno of `code`.
pub(crate) const fn errno_of(code: Code) -> Error {
    match code {
        Code::Invalid => EINVAL,
        Code::NoEntry => ENOENT,
        Code::NoDevice => ENODEV,
        Code::Again => EAGAIN,
        Code::Busy => EBUSY,
        Code::Permission => EPERM,
        Code::NoMemory => ENOMEM,
        Code::Exists => EEXIST,
        Code::NameTooLong => ENAMETOOLONG,
        Code::NoSpace => ENOSPC,
        Code::TooLong => E2BIG,
        Code::Stale => ESTALE,
    }
}
