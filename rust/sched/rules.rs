// SPDX-License-Identifier: GPL-2.0-only

//! Rule language: selects requests and sets their limits.
//!
//! A condition is one field and a list of values, such as `uid={1000 1001}`. A conjunction is one
//! or more conditions joined by `&`. [`Conditions`] are one or more conjunctions joined by `,`, of
//! which one must hold.
//!
//! ```text
//!  text ─parse─► RuleCommand ─RuleList::apply─► new RuleList ─compile─► RuleSet ─find─► Rule
//! ```
//!
//! # Grammar
//!
//! ```text
//! write    = [ "reg" | "hp" ] command
//! command  = "start" name conds *pair | "change" name 1*pair | "stop" name
//! name     = 1*15 ( letter | digit | "_" )
//! conds    = conj *( "," conj ) | list        ; a bare list refers to the policy's only field
//! conj     = expr *( "&" expr )
//! expr     = field "=" list
//! field    = "nid" | "jobid" | "opcode" | "uid" | "gid" | "projid" | "nodemap"
//!          | "cgroup"
//! list     = "{" 1*item "}"                   ; items are separated by blanks
//! pair     = "rate=" rate | "minrate=" ( rate | "0" ) | "burst=" burst | "rank=" name
//!          | "realtime=" number | "borrow=" ( "0" | "1" ) | "also=" [ name *( "+" name ) ] | rate
//! rate     = number [ "iops" | ( "B" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB" ) [ "/s" ] ]
//! burst    = number [ "s" | ( "B" | "KB" | … ) ]
//! ```
//!
//! Words are separated by blanks (spaces and tabs). Blanks are also allowed around `=`, `{`, `}`,
//! `,` and `&` of conditions, and line ends at the end of the text. Other non-printable characters
//! are rejected.
//!
//! | item of | form |
//! |---|---|
//! | `nid` | see [`crate::sched::nid::pattern`] |
//! | `jobid` | name of up to 31 bytes, or pattern with `*` or `?` ([`crate::sched::glob`]) |
//! | `opcode` | name such as `ost_read` ([`crate::sched::attr::Opcode::KNOWN`]) |
//! | `uid` `gid` `projid` `nodemap` | number to 4294967295: decimal, `0x` hex, `0` octal |
//! | `cgroup` | path from `/`, up to 383 bytes; `*` and `?` match within a name |
//!
//! A path names the cgroup and what is below it, except what the path of another rule names whose
//! conditions hold.
//!
//! 4294967295 is Lustre's value for "none", and has the same meaning here.

mod command;
mod conditions;
mod rule;
mod rule_list;
mod rule_set;
mod scanner;
mod subject;

use crate::sched::error::{Code, Error, ErrorPosition};
use core::fmt;

pub use command::{RuleAction, RuleCommand, RulePairs, COMMAND_MAX};
pub use conditions::{ConditionValue, Conditions};
pub use rule::{
    AlsoRules, Burst, Name, Rate, Rule, RuleLimits, Unit, ALSO_MAX, BURST_MAX, NAME_MAX,
};
pub use rule_list::{check, RuleList};
pub use rule_set::RuleSet;
pub(crate) use scanner::{is_blank, Scanner};
pub use subject::{Fields, Subject};

/// Error of a refused command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Code that becomes the writer's errno.
    pub code: Code,
    /// Column of the error; the first byte of the command is column 1. 0 if no part of the command
    /// is wrong.
    pub column: u16,
    /// Reason, one line: the text that was expected at the column, or what is wrong there.
    pub reason: &'static str,
    /// True if the reason is the text that was expected.
    pub is_syntax: bool,
}

impl RuleError {
    /// Returns the error `ENOMEM`, which no part of the text has caused.
    pub const fn no_memory() -> Self {
        Self::anywhere(Code::NoMemory, "out of memory")
    }

    /// Returns the syntax error `EINVAL` at the byte of offset `at`, where `expected` was expected.
    pub const fn invalid(at: usize, expected: &'static str) -> Self {
        Self {
            is_syntax: true,
            ..Self::new(Code::Invalid, at, expected)
        }
    }

    /// Returns an error with `code` and `reason` at the byte of offset `at`.
    pub const fn new(code: Code, at: usize, reason: &'static str) -> Self {
        let column = at.saturating_add(1);
        Self {
            code,
            column: if column > u16::MAX as usize {
                u16::MAX
            } else {
                column as u16
            },
            reason,
            is_syntax: false,
        }
    }

    /// Returns an error with `code` and `reason` that no part of the text has caused.
    pub const fn anywhere(code: Code, reason: &'static str) -> Self {
        Self {
            column: 0,
            ..Self::new(code, 0, reason)
        }
    }

    /// Returns the same error for a text that contains the present text at offset `at`.
    #[must_use]
    pub const fn after(self, at: usize) -> Self {
        let Some(offset) = (self.column as usize).checked_sub(1) else {
            return self;
        };
        Self {
            is_syntax: self.is_syntax,
            ..Self::new(self.code, offset.saturating_add(at), self.reason)
        }
    }

    /// Returns the first word at the column of the error in `text`, the refused command; at most 24
    /// bytes. Empty if the error has no column.
    #[cfg(not(MODULE))]
    pub fn found<'a>(&self, text: &'a str) -> &'a str {
        let at = usize::from(self.column).checked_sub(1);
        let rest = at.and_then(|at| text.get(at..)).unwrap_or_default();
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
        Self::new(error.code, error.reason).at(match error.column {
            0 => ErrorPosition::Anywhere,
            column if error.is_syntax => ErrorPosition::Expected(column),
            column => ErrorPosition::Column(column),
        })
    }
}

#[cfg(test)]
mod tests;
