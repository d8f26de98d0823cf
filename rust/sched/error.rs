// SPDX-License-Identifier: GPL-2.0-only

//! Errors of the pure part: an errno and a one-line reason.

/// The errno an error maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// `EINVAL`: malformed or out of range.
    Invalid,
    /// `ENOENT`: no policy or rule of that name.
    NoEntry,
    /// `ENODEV`: the head addressed does not exist or the policy is not started.
    NoDevice,
    /// `EAGAIN`: busy starting or stopping.
    Again,
    /// `EBUSY`: in use.
    Busy,
    /// `EPERM`: not allowed.
    Permission,
    /// `ENOMEM`: out of memory.
    NoMemory,
    /// `EEXIST`: there is one of that name already.
    Exists,
    /// `ENAMETOOLONG`: a name has too many characters.
    NameTooLong,
    /// `ENOSPC`: as many as there may be.
    NoSpace,
}

/// An errno with a reason for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What the caller's errno becomes.
    pub code: Code,
    /// One line that names the wrong part.
    pub reason: &'static str,
}

/// The result type of the pure part.
pub type Result<T = ()> = core::result::Result<T, Error>;

impl Error {
    /// An error with `code` and `reason`.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// `EINVAL` with `reason`.
    pub const fn invalid(reason: &'static str) -> Self {
        Self::new(Code::Invalid, reason)
    }
}
