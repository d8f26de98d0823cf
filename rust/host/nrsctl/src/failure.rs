// SPDX-License-Identifier: GPL-2.0-only

//! Why a command failed, what to do next, and the exit status that scripts see.

use std::fmt;
use std::io;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something else: reading or writing failed.
    Other,
    /// The command line is wrong.
    Usage,
    /// There is no such service, parameter, rule, policy or file.
    NotFound,
    /// A value or a configuration is wrong; nothing was changed.
    Refused,
    /// The rights do not suffice, or the kernel is locked down.
    Permission,
    /// The module is not loaded.
    NotLoaded,
    /// Something is in use, or old requests still drain: the same may succeed later.
    Busy,
    /// The running state differs from the file (`apply --dry-run`).
    Differs,
}

impl Kind {
    /// All, in the order of their exit statuses.
    pub const ALL: [Kind; 8] = [
        Kind::Other,
        Kind::Usage,
        Kind::NotFound,
        Kind::Refused,
        Kind::Permission,
        Kind::NotLoaded,
        Kind::Busy,
        Kind::Differs,
    ];

    /// The exit status.
    pub const fn exit_status(self) -> u8 {
        match self {
            Kind::Other => 1,
            Kind::Usage => 2,
            Kind::NotFound => 3,
            Kind::Refused => 4,
            Kind::Permission => 5,
            Kind::NotLoaded => 6,
            Kind::Busy => 7,
            Kind::Differs => 8,
        }
    }

    /// What it means, for the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            Kind::Other => "reading or writing failed",
            Kind::Usage => "the command line is wrong",
            Kind::NotFound => "there is no such service, parameter, rule, policy or file",
            Kind::Refused => "a value or a configuration is wrong; nothing was changed",
            Kind::Permission => "the rights do not suffice, or the kernel is locked down",
            Kind::NotLoaded => "the module nrs is not loaded",
            Kind::Busy => "something is in use or still drains; try again",
            Kind::Differs => "the running state differs from the file",
        }
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub kind: Kind,
    /// One line: what was wrong.
    pub message: String,
    /// One line: what to do next.
    pub hint: Option<String>,
}

/// The result of commands.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// One for all of `failures`, which are of the kind of the first; none if there are none.
    pub fn of(failures: Vec<Failure>) -> Result {
        let mut failures = failures.into_iter();
        let Some(mut all) = failures.next() else {
            return Ok(());
        };
        for next in failures {
            // A line each, as if each had been shown by itself.
            all.message = format!("{all}\nnrsctl: {}", next.message);
            all.hint = next.hint;
        }
        Err(all)
    }

    /// The same with `hint`.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Kind::Other, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_what_is_documented() {
        let statuses = Kind::ALL.map(Kind::exit_status);
        assert_eq!(statuses, [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut meanings = Kind::ALL.map(Kind::meaning);
        meanings.sort_unstable();
        assert!(meanings.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn several_are_shown_one_below_the_other() {
        assert_eq!(Failure::of(Vec::new()), Ok(()));
        let first = Failure::new(Kind::NotFound, "no a").hint("try b");
        let second = Failure::new(Kind::Busy, "c is busy");
        assert_eq!(Failure::of(vec![first.clone()]), Err(first.clone()));
        let both = Failure::of(vec![first, second]).unwrap_err();
        assert_eq!(both.kind, Kind::NotFound);
        assert_eq!(both.to_string(), "no a\n  try b\nnrsctl: c is busy");
    }
}
