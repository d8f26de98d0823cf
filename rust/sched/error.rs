// SPDX-License-Identifier: GPL-2.0-only

//! Errors of the pure part: an errno and a one-line reason.

use core::fmt;

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
    /// `E2BIG`: longer than it may be.
    TooLong,
    /// `ESTALE`: about something that is gone.
    Stale,
}

/// Where in a text something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere; the reason names it.
    Anywhere,
    /// At a byte of a line, the first one is 1; the reason is what was expected there.
    Column(u16),
    /// In a line, the first one is 1.
    Line(u32),
    /// At a byte of a line; both are counted from 1.
    Word(u32, u16),
}

/// An errno with a reason for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What the caller's errno becomes.
    pub code: Code,
    /// One line that names the wrong part.
    pub reason: &'static str,
    /// Where it is.
    pub place: Place,
}

/// The result type of the pure part.
pub type Result<T = ()> = core::result::Result<T, Error>;

impl Error {
    /// An error with `code` and `reason`.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            place: Place::Anywhere,
        }
    }

    /// The same at `place`.
    pub const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Returns the line, from 1; 0 if the error is not about a line.
    pub const fn line(&self) -> u32 {
        match self.place {
            Place::Line(line) | Place::Word(line, _) => line,
            _ => 0,
        }
    }

    /// Returns the byte of the line, from 1; 0 if the error is not about one.
    pub const fn column(&self) -> u16 {
        match self.place {
            Place::Column(column) | Place::Word(_, column) => column,
            _ => 0,
        }
    }

    /// `EINVAL` with `reason`.
    pub const fn invalid(reason: &'static str) -> Self {
        Self::new(Code::Invalid, reason)
    }
}

/// Shows `column 7: expected a rate`, `line 3: capacity is missing`, `line 3: column 9: a setting is there
/// twice`, or the reason alone.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Anywhere => {}
            Place::Column(column) => write!(f, "column {column}: expected ")?,
            Place::Line(line) => write!(f, "line {line}: ")?,
            Place::Word(line, column) => write!(f, "line {line}: column {column}: ")?,
        }
        f.write_str(self.reason)
    }
}
