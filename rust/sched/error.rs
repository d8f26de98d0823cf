// SPDX-License-Identifier: GPL-2.0-only

//! Errors of the scheduler: an errno and a reason of one line.

use core::fmt;

/// Errno of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// `EINVAL`: malformed or out of range.
    Invalid,
    /// `ENOENT`: no policy or rule has this name.
    NoEntry,
    /// `ENODEV`: the addressed head does not exist, or the policy is not started.
    NoDevice,
    /// `EAGAIN`: starting or stopping is in progress.
    Again,
    /// `EBUSY`: in use.
    Busy,
    /// `EPERM`: not allowed.
    Permission,
    /// `ENOMEM`: out of memory.
    NoMemory,
    /// `EEXIST`: the name exists already.
    Exists,
    /// `ENAMETOOLONG`: the name is too long.
    NameTooLong,
    /// `ENOSPC`: the maximum number is reached.
    NoSpace,
    /// `E2BIG`: longer than the maximum.
    TooLong,
    /// `ESTALE`: refers to an object that was removed.
    Stale,
}

/// Position of an error in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPosition {
    /// No position; the reason names the wrong part.
    Anywhere,
    /// Byte of a line, counted from 1.
    Column(u16),
    /// Byte of a line, counted from 1; the reason says what was expected there.
    Expected(u16),
    /// Line, counted from 1.
    Line(u32),
    /// Line and byte of the line, both counted from 1.
    Word(u32, u16),
    /// Line and byte of the line, both counted from 1; the reason says what was expected there.
    ExpectedWord(u32, u16),
}

/// Errno with a reason for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Errno that the caller returns.
    pub code: Code,
    /// Reason: one line that names the wrong part.
    pub reason: &'static str,
    /// Position of the error.
    pub place: ErrorPosition,
}

/// Result type of the scheduler.
pub type Result<T = ()> = core::result::Result<T, Error>;

impl Error {
    /// Creates an error with `code` and `reason`.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            place: ErrorPosition::Anywhere,
        }
    }

    /// Returns the same error at `place`.
    pub const fn at(self, place: ErrorPosition) -> Self {
        Self { place, ..self }
    }

    /// Returns the line, counted from 1; 0 if the error has no line.
    #[cfg(not(MODULE))]
    pub const fn line(&self) -> u32 {
        match self.place {
            ErrorPosition::Line(line)
            | ErrorPosition::Word(line, _)
            | ErrorPosition::ExpectedWord(line, _) => line,
            _ => 0,
        }
    }

    /// Returns the byte of the line, counted from 1; 0 if the error has no column.
    #[cfg(not(MODULE))]
    pub const fn column(&self) -> u16 {
        match self.place {
            ErrorPosition::Column(column)
            | ErrorPosition::Expected(column)
            | ErrorPosition::Word(_, column)
            | ErrorPosition::ExpectedWord(_, column) => column,
            _ => 0,
        }
    }

    /// Creates an `EINVAL` error with `reason`.
    pub const fn invalid(reason: &'static str) -> Self {
        Self::new(Code::Invalid, reason)
    }
}

/// Examples: `column 7: expected a rate`, `column 7: no rule of this name`, `line 3: capacity is
/// missing`, `line 3: column 9: duplicate setting`, or the reason alone.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            ErrorPosition::Anywhere => {}
            ErrorPosition::Column(column) => write!(f, "column {column}: ")?,
            ErrorPosition::Expected(column) => write!(f, "column {column}: expected ")?,
            ErrorPosition::Line(line) => write!(f, "line {line}: ")?,
            ErrorPosition::Word(line, column) => write!(f, "line {line}: column {column}: ")?,
            ErrorPosition::ExpectedWord(line, column) => {
                write!(f, "line {line}: column {column}: expected ")?;
            }
        }
        f.write_str(self.reason)
    }
}
