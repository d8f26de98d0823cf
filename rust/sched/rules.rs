// SPDX-License-Identifier: GPL-2.0-only

//! The rule language: which requests are limited, and to what.
//!
//! # Vocabulary
//!
//! - *Condition*: one field and a list of values, `uid={1000 1001}`; a *conjunction* is conditions joined
//!   by `&`, *conditions* are conjunctions joined by `,`, of which one must hold ([`Conditions`]).
//!
//! ```text
//!  text ──Command::parse──► Command ──Book::apply──► new Book ──Book::compile──► RuleSet ──find──► Rule
//! ```
//!
//! # Grammar
//!
//! ```text
//! write    = [ "reg" | "hp" ] command
//! command  = "start" name conds *pair | "change" name 1*pair | "stop" name
//! name     = 1*15 ( letter | digit | "_" )
//! conds    = conj *( "," conj ) | list        ; a bare list asks about the policy's only field
//! conj     = expr *( "&" expr )
//! expr     = field "=" list
//! field    = "nid" | "jobid" | "opcode" | "uid" | "gid" | "projid" | "nodemap"
//!          | "cgroup"
//! list     = "{" 1*item "}"                   ; items are separated by blanks
//! pair     = "rate=" rate | "minrate=" ( rate | "0" ) | "rank=" name | "realtime=" number
//!          | "borrow=" ( "0" | "1" ) | "also=" [ name *( "+" name ) ] | rate
//! rate     = number [ "iops" | ( "B" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB" ) [ "/s" ] ]
//! ```
//!
//! Words are separated by blanks (spaces and tabs); blanks may also stand around `=`, `{`, `}`, `,` and `&`
//! of conditions. Line ends may follow. What does not print is refused.
//!
//! | item of | form |
//! |---|---|
//! | `nid` | see [`crate::sched::nid::range`] |
//! | `jobid` | a name of up to 31 bytes; with `*` or `?` in it a pattern ([`crate::sched::glob`]) |
//! | `opcode` | a name such as `ost_read` ([`crate::sched::attr::Opcode::KNOWN`]) |
//! | `uid` `gid` `projid` `nodemap` `cgroup` | a number up to 4294967295, decimal, `0x` hexadecimal or `0` octal |
//!
//! 4294967295 is Lustre's number for "has none", and stands for that here too.

mod book;
mod command;
mod conditions;
mod rule;
mod scan;
mod set;
mod subject;

use crate::sched::error::{Code, Error, Place};
use core::fmt;

pub use book::Book;
pub use command::{Action, Command, Pairs, COMMAND_MAX};
pub use conditions::{Conditions, Item};
pub use rule::{Also, Limits, Name, Rate, Rule, Unit, ALSO_MAX, NAME_MAX};
pub(crate) use scan::Scan;
pub use set::RuleSet;
pub use subject::{Fields, Subject};

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// What the writer's errno becomes.
    pub code: Code,
    /// Where: the first byte of the command is 1.
    pub column: u16,
    /// What was expected there, one line.
    pub expected: &'static str,
}

impl RuleError {
    /// `ENOMEM`; no text is to blame.
    pub const fn no_memory() -> Self {
        Self::new(Code::NoMemory, 0, "more memory")
    }

    /// `EINVAL` at the byte of offset `at`, where `expected` was expected.
    pub const fn invalid(at: usize, expected: &'static str) -> Self {
        Self::new(Code::Invalid, at, expected)
    }

    /// An error with `code` at the byte of offset `at`.
    pub const fn new(code: Code, at: usize, expected: &'static str) -> Self {
        let column = at.saturating_add(1);
        Self {
            code,
            column: if column > u16::MAX as usize {
                u16::MAX
            } else {
                column as u16
            },
            expected,
        }
    }

    /// The same error in a text in which this one starts at offset `at`.
    #[must_use]
    pub const fn after(self, at: usize) -> Self {
        let offset = (self.column as usize).saturating_sub(1);
        Self::new(self.code, offset.saturating_add(at), self.expected)
    }

    /// What stands there in `text`, the command that was refused: the first word, 24 bytes of it at most.
    pub fn found<'a>(&self, text: &'a str) -> &'a str {
        let at = usize::from(self.column).saturating_sub(1);
        let rest = text.get(at..).unwrap_or_default();
        let len = rest.bytes().take_while(u8::is_ascii_graphic).take(24);
        rest.get(..len.count()).unwrap_or_default()
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl From<RuleError> for Error {
    fn from(error: RuleError) -> Self {
        Self::new(error.code, error.expected).at(Place::Column(error.column))
    }
}

#[cfg(test)]
mod tests;
