// SPDX-License-Identifier: GPL-2.0-only

//! Failures of commands: reason, hint, and exit status.

use std::fmt;
use std::io;
use std::path::Path;

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Reading or writing failed, or another failure.
    Other,
    /// The command line is wrong.
    Usage,
    /// There is no such service, parameter, rule, policy or file.
    NotFound,
    /// A value or a configuration is invalid; it was not set.
    Refused,
    /// The user lacks privileges.
    Permission,
    /// The module is not loaded or has no control node.
    NotLoaded,
    /// Something is in use, or old requests still drain; a retry may succeed.
    Busy,
    /// The running state differs from the file (`apply --dry-run`).
    Differs,
    /// A service makes no progress, or a client is lost (`status`).
    Unhealthy,
    /// Standard output was closed by its reader; no message is printed.
    Closed,
}

/// Kinds with their exit statuses and descriptions for the manual.
const KINDS: [(FailureKind, u8, &str); 10] = [
    (FailureKind::Other, 1, "reading or writing failed"),
    (FailureKind::Usage, 2, "invalid command line"),
    (
        FailureKind::NotFound,
        3,
        "a service, parameter, rule, policy or file does not exist; a policy is not started",
    ),
    (
        FailureKind::Refused,
        4,
        "a value or a configuration is invalid; it was not set",
    ),
    (FailureKind::Permission, 5, "root privileges are required"),
    (
        FailureKind::NotLoaded,
        6,
        "the module nrs is not loaded, or has no /dev/nrs-control",
    ),
    (
        FailureKind::Busy,
        7,
        "a service or device is in use, or a policy is still stopping; retry",
    ),
    (
        FailureKind::Differs,
        8,
        "the running state differs from the file",
    ),
    (
        FailureKind::Unhealthy,
        9,
        "a service is not healthy, or a client is lost",
    ),
    // Exit status that a shell reports for a program ended by SIGPIPE.
    (
        FailureKind::Closed,
        141,
        "standard output was closed by its reader; no message is printed",
    ),
];

impl FailureKind {
    /// Returns all kinds in the order of their exit statuses.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.into_iter().map(|(kind, ..)| kind)
    }

    /// Returns the exit status.
    pub const fn exit_status(self) -> u8 {
        KINDS[self as usize].1
    }

    /// Returns the description for the manual.
    pub const fn meaning(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// Returns the kind of `error`, which concerns a file.
    pub fn of_file(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => FailureKind::NotFound,
            io::ErrorKind::PermissionDenied => FailureKind::Permission,
            _ => FailureKind::Other,
        }
    }
}

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of failure.
    pub kind: FailureKind,
    /// Reason, one line.
    pub message: String,
    /// Next step for the user, one line.
    pub hint: Option<String>,
}

/// Result of commands.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Creates the failure for `error` of the file `path`.
    pub fn of_file(path: &Path, error: &io::Error) -> Self {
        Self::new(
            FailureKind::of_file(error),
            format!("{}: {error}", path.display()),
        )
    }

    /// Combines `failures`.
    ///
    /// # Errors
    ///
    /// One failure with all messages, one below the other, and the kind of the first. The hint of
    /// each failure follows its message.
    /// [`FailureKind::Closed`] is left out unless it is the only kind.
    pub fn of(mut failures: Vec<Failure>) -> Result {
        if failures
            .iter()
            .any(|failure| failure.kind != FailureKind::Closed)
        {
            failures.retain(|failure| failure.kind != FailureKind::Closed);
        }
        let mut failures = failures.into_iter();
        let Some(mut all) = failures.next() else {
            return Ok(());
        };
        for next in failures {
            // A line for each failure, as if the failures had been printed separately.
            all.message = format!("{all}\nnrsctl: {}", next.message);
            all.hint = next.hint;
        }
        Err(all)
    }

    /// Returns the failure with `subject` before its message.
    pub fn prefixed(self, subject: &str) -> Self {
        let message = format!("{subject}: {}", self.message);
        Self { message, ..self }
    }

    /// Returns the failure with `hint`.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Creates a failure: `failure!(KIND: MESSAGE; HINT)`, with texts as of `format!`; the hint may be
/// missing.
macro_rules! failure {
    ($kind:ident: $text:literal $(, $value:expr)* $(; $hint:literal $(, $part:expr)*)?) => {
        $crate::failure::Failure::new(
            $crate::failure::FailureKind::$kind,
            format_args!($text $(, $value)*).to_string(),
        )
        $(.hint(format_args!($hint $(, $part)*).to_string()))?
    };
}
pub(crate) use failure;

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
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => FailureKind::Closed,
            _ => FailureKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_shown_one_below_the_other() {
        assert!(FailureKind::all()
            .map(|kind| kind as usize)
            .eq(0..KINDS.len()));
        assert_eq!(Failure::of(Vec::new()), Ok(()));
        let first = Failure::new(FailureKind::NotFound, "no a").hint("try b");
        let second = Failure::new(FailureKind::Busy, "c is busy");
        let both = Failure::of(vec![first.clone(), second]).unwrap_err();
        assert_eq!(both.kind, FailureKind::NotFound);
        assert_eq!(both.to_string(), "no a\n  try b\nnrsctl: c is busy");
        // A closed output is not reported together with other failures.
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(Failure::of(vec![closed.clone(), first.clone()]), Err(first));
        assert_eq!(Failure::of(vec![closed.clone()]), Err(closed));
    }
}
