// SPDX-License-Identifier: GPL-2.0-only

//! Text of control files: formats for reads, parsers for writes.
//!
//! A [`PolicyRow`] is one policy of one priority in `nrs_policies`. A [`PolicyCommand`] is the text
//! of a write to `nrs_policies`.
//!
//! # Reads of `nrs_policies`
//!
//! An empty line, `regular_requests:`, and a block per policy. If the service has high-priority
//! heads, `high_priority_requests:` and the same blocks follow. A block ends in an empty line;
//! numbers are padded to 20 columns:
//!
//! ```text
//!   - name: fairshare uid_fair
//!     state: started
//!     fallback: no
//!     queued: 3
//!     active: 1
//! ```
//!
//! The counters of the whole policy follow, if there are any.
//!
//! # Writes to `nrs_policies`
//!
//! `POLICY [reg|hp] [ARGUMENT...]`. Layout and grammar are those of Lustre, with these differences.
//! Blanks (spaces and tabs) may be repeated and may surround the text, and line ends may follow. An
//! argument has up to [`ARGUMENT_MAX`] bytes instead of 15, and unprintable characters are refused.
//!
//! # Settings
//!
//! Many settings are a text of lines `NAME VALUE`, which [`for_each_setting`] splits.
//!
//! Callers first decode the written bytes as UTF-8 and return `EINVAL` if this fails.

use crate::sched::{
    attr::Priority,
    error::{Error, ErrorPosition, Result},
    report::Report,
    statistics::Stat,
};
use core::{
    fmt::{self, Write},
    ops::RangeInclusive,
};

/// Maximum bytes of a command: name, head and argument of 16 + 4 + 1024 bytes with their
/// terminators.
pub const COMMAND_MAX: usize = 1043;

/// Maximum bytes of the name of a policy.
pub const NAME_MAX: usize = 15;

/// Maximum bytes of the argument of a policy.
pub const ARGUMENT_MAX: usize = 127;

/// State of a policy on a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// No instance of the policy exists.
    Stopped,
    /// The instance takes new requests.
    Started,
    /// The instance takes no new requests; its queue is drained.
    Stopping,
}

impl PolicyState {
    /// Returns the name of the state in control files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Started => "started",
            Self::Stopping => "stopping",
        }
    }
}

/// Policy of one priority, summed over the partitions of a service.
#[derive(Clone, Copy)]
pub struct PolicyRow<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Argument of the policy.
    pub argument: Option<&'a dyn fmt::Display>,
    /// State of the policy.
    pub state: PolicyState,
    /// True for the fallback.
    pub fallback: bool,
    /// Queued requests.
    pub queued: u64,
    /// Requests in flight.
    pub active: u64,
    /// Counters of the whole policy.
    pub stats: &'static [Stat],
    /// Values of the counters.
    pub counts: &'a [u64],
}

impl PolicyRow<'_> {
    /// Reports the row as an element of a list.
    pub fn report(&self, list: &mut Report<'_>) -> fmt::Result {
        list.entry(|row| {
            row.word("name", self.name)?;
            if let Some(argument) = self.argument {
                row.text("argument", argument)?;
            }
            row.word("state", self.state.name())?;
            row.field("fallback", self.fallback)?;
            row.field("queued", self.queued)?;
            row.field("active", self.active)?;
            for (stat, count) in self.stats.iter().zip(self.counts) {
                row.field(stat.name, count)?;
            }
            Ok(())
        })
    }
}

/// Writes the text of `nrs_policies`: the rows of the `regular` heads and of the `high` ones.
pub fn write_policies<'a, W: Write>(
    out: &mut W,
    mut regular: impl Iterator<Item = PolicyRow<'a>>,
    mut high: impl Iterator<Item = PolicyRow<'a>>,
) -> fmt::Result {
    out.write_str("\nregular_requests:\n")?;
    regular.try_for_each(|row| write_row(out, &row))?;
    out.write_str("high_priority_requests:\n")?;
    high.try_for_each(|row| write_row(out, &row))
}

/// Writes one block of `nrs_policies`.
fn write_row<W: Write>(out: &mut W, row: &PolicyRow<'_>) -> fmt::Result {
    write!(out, "  - name: {}", row.name)?;
    if let Some(argument) = row.argument {
        write!(out, " {argument}")?;
    }
    write!(
        out,
        "\n    state: {}\n    fallback: {}\n    queued: {:<20}\n    active: {:<20}\n",
        row.state.name(),
        yes_no(row.fallback),
        row.queued,
        row.active
    )?;
    for (stat, count) in row.stats.iter().zip(row.counts) {
        writeln!(out, "    {}: {count:<20}", stat.name)?;
    }
    out.write_char('\n')
}

/// Heads that a command addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All heads of the service.
    All,
    /// Regular heads: `reg`.
    Regular,
    /// High-priority heads: `hp`.
    High,
}

impl From<Priority> for Heads {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Regular => Self::Regular,
            Priority::High => Self::High,
        }
    }
}

/// Parsed command that changes a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyCommand<'a> {
    /// Name of the policy, 1 to [`NAME_MAX`] bytes; not checked against the existing policies.
    pub policy: &'a str,
    /// Heads of the command; not checked against the heads of the service.
    pub heads: Heads,
    /// Argument without surrounding blanks, 1 to [`ARGUMENT_MAX`] bytes.
    pub argument: Option<&'a str>,
}

impl<'a> PolicyCommand<'a> {
    /// Parses `POLICY [reg|hp] [ARGUMENT...]`.
    ///
    /// A second word `reg` or `hp` names the heads. If an argument starts with such a word, the
    /// heads must precede it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the text is longer than [`COMMAND_MAX`] bytes.
    /// - The errors of [`Self::new`].
    pub fn parse(text: &'a str) -> Result<Self> {
        if text.len() > COMMAND_MAX {
            return Err(Error::invalid("command is too long (limit: 1043 bytes)"));
        }
        let (policy, rest) = word(trim(text));
        let (heads, argument) = match word(rest) {
            ("reg", argument) => (Heads::Regular, argument),
            ("hp", argument) => (Heads::High, argument),
            _ => (Heads::All, rest),
        };
        Self::new(policy, heads, argument)
    }

    /// Creates the command that selects `policy`, one word, with `argument`, without surrounding
    /// blanks.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the name is empty or exceeds [`NAME_MAX`], the argument exceeds
    ///   [`ARGUMENT_MAX`], or a character is neither printable ASCII nor a blank.
    pub fn new(policy: &'a str, heads: Heads, argument: &'a str) -> Result<Self> {
        let mut bytes = policy.bytes().chain(argument.bytes());
        if !bytes.all(|b| b.is_ascii_graphic() || is_blank(b)) {
            return Err(Error::invalid("command has an unprintable character"));
        }
        if policy.is_empty() {
            return Err(Error::invalid(
                "command is empty (syntax: POLICY [reg|hp] [ARGUMENT])",
            ));
        }
        if policy.len() > NAME_MAX {
            return Err(Error::invalid(
                "policy name is too long (limit: 15 characters)",
            ));
        }
        if argument.len() > ARGUMENT_MAX {
            return Err(Error::invalid(
                "argument is too long (limit: 127 characters)",
            ));
        }
        Ok(Self {
            policy,
            heads,
            argument: (!argument.is_empty()).then_some(argument),
        })
    }
}

/// Parses a decimal number within `range`; surrounding blanks and line ends are ignored.
///
/// # Errors
///
/// - `EINVAL` with `reason`: the text is empty, has a sign or another character than a digit, or is
///   out of range. The reason names the parameter and its range.
pub fn parse_u32(text: &str, range: RangeInclusive<u32>, reason: &'static str) -> Result<u32> {
    let text = trim(text);
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && range.contains(&number) => Ok(number),
        _ => Err(Error::invalid(reason)),
    }
}

/// Calls `set` with name and value of each line `NAME VALUE` of `text`.
///
/// Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
///
/// The first error of `set`, with the position in the text.
pub fn for_each_setting(text: &str, mut set: impl FnMut(&str, &str) -> Result) -> Result {
    for (line, number) in text.lines().zip(1..) {
        let setting = trim(line);
        if setting.is_empty() || setting.starts_with('#') {
            continue;
        }
        let (name, value) = word(setting);
        let length = line.trim_end_matches(LINE_END).len();
        let before = length.saturating_sub(value.len());
        set(name, value).map_err(|error| in_line(error, number, before))?;
    }
    Ok(())
}

/// Returns `error` of the line `number`, whose value has `before` bytes before it, with its
/// position in the text.
fn in_line(error: Error, number: u32, before: usize) -> Error {
    let column = |column: u16| {
        let column = usize::from(column).saturating_add(before);
        column.try_into().unwrap_or(u16::MAX)
    };
    error.at(match error.place {
        ErrorPosition::Column(at) => ErrorPosition::Word(number, column(at)),
        ErrorPosition::Expected(at) => ErrorPosition::ExpectedWord(number, column(at)),
        _ => ErrorPosition::Line(number),
    })
}

/// Returns the text of a boolean in control files.
pub const fn yes_no(value: bool) -> &'static str {
    if value {
        "yes"
    } else {
        "no"
    }
}

/// Blanks in a line.
const BLANKS: [char; 2] = [' ', '\t'];

/// Blanks and line ends.
const LINE_END: [char; 4] = [' ', '\t', '\n', '\r'];

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns `text` without surrounding blanks and trailing line ends.
fn trim(text: &str) -> &str {
    text.trim_end_matches(LINE_END).trim_start_matches(BLANKS)
}

/// Splits trimmed text into the first word, and the rest without leading blanks.
fn word(text: &str) -> (&str, &str) {
    match text.split_once(BLANKS) {
        Some((word, rest)) => (word, rest.trim_start_matches(BLANKS)),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    fn row(
        name: &'static str,
        argument: Option<&'static dyn fmt::Display>,
        state: PolicyState,
    ) -> PolicyRow<'static> {
        PolicyRow {
            name,
            argument,
            state,
            fallback: false,
            queued: 0,
            active: 0,
            stats: &[],
            counts: &[],
        }
    }

    #[test]
    fn policies_with_both_heads() {
        let regular = [
            PolicyRow {
                fallback: true,
                queued: 12,
                active: 3,
                ..row("fifo", None, PolicyState::Started)
            },
            PolicyRow {
                queued: u64::MAX,
                ..row(
                    "fairshare",
                    Some(&"gid_then_uid_fair"),
                    PolicyState::Stopping,
                )
            },
        ];
        let high = [row("fifo", None, PolicyState::Stopped)];
        let mut out = String::new();
        write_policies(&mut out, regular.into_iter(), high.into_iter()).unwrap();
        let lines = [
            "",
            "regular_requests:",
            "  - name: fifo",
            "    state: started",
            "    fallback: yes",
            "    queued: 12                  ",
            "    active: 3                   ",
            "",
            "  - name: fairshare gid_then_uid_fair",
            "    state: stopping",
            "    fallback: no",
            "    queued: 18446744073709551615",
            "    active: 0                   ",
            "",
            "high_priority_requests:",
            "  - name: fifo",
            "    state: stopped",
            "    fallback: no",
            "    queued: 0                   ",
            "    active: 0                   ",
            "",
            "",
        ];
        assert_eq!(out, lines.join("\n"));
    }

    #[test]
    fn commands() {
        for (text, policy, heads, argument) in [
            ("fifo", "fifo", Heads::All, None),
            ("fifo\n", "fifo", Heads::All, None),
            ("  fifo \t\n", "fifo", Heads::All, None),
            ("tbf nid", "tbf", Heads::All, Some("nid")),
            ("tbf reg", "tbf", Heads::Regular, None),
            ("tbf\treg\tnid", "tbf", Heads::Regular, Some("nid")),
            (
                "tbf   hp   jobid+opcode",
                "tbf",
                Heads::High,
                Some("jobid+opcode"),
            ),
            ("tbf reg reg", "tbf", Heads::Regular, Some("reg")),
            ("tbf regular", "tbf", Heads::All, Some("regular")),
            ("tbf nid hp", "tbf", Heads::All, Some("nid hp")),
            ("fairshare a  b\n\n", "fairshare", Heads::All, Some("a  b")),
            ("x{}=\"'%", "x{}=\"'%", Heads::All, None),
            ("fifteen_letters", "fifteen_letters", Heads::All, None),
        ] {
            let want = PolicyCommand {
                policy,
                heads,
                argument,
            };
            assert_eq!(PolicyCommand::parse(text), Ok(want), "{text:?}");
        }
    }

    #[test]
    fn commands_at_the_limits() {
        let (long, longer) = ("a".repeat(ARGUMENT_MAX), "a".repeat(ARGUMENT_MAX + 1));
        for head in ["", "reg ", "hp "] {
            let text = format!("tbf {head}{long}");
            assert_eq!(
                PolicyCommand::parse(&text).unwrap().argument,
                Some(&long[..])
            );
            assert!(PolicyCommand::parse(&format!("tbf {head}{longer}")).is_err());
        }
        let padded = format!("fifo{}", " ".repeat(1039));
        assert_eq!(padded.len(), COMMAND_MAX);
        assert_eq!(PolicyCommand::parse(&padded).unwrap().policy, "fifo");
        assert!(PolicyCommand::parse(&(padded + "\n")).is_err());
    }

    #[test]
    fn commands_refused() {
        let huge = "9".repeat(1_000_000);
        for (text, word) in [
            ("", "empty"),
            (" \t \n", "empty"),
            ("sixteen_letters_", "15"),
            ("fifo\0", "unprintable"),
            ("fifo\nfifo", "unprintable"),
            ("tbf nid\x7f", "unprintable"),
            ("tbf n\u{ef}d", "unprintable"),
            ("tbf\u{a0}nid", "unprintable"),
            (&huge, "1043"),
        ] {
            let error = PolicyCommand::parse(text).unwrap_err();
            assert_eq!(error.code, Code::Invalid);
            assert!(error.reason.contains(word), "{text:.20}: {}", error.reason);
        }
    }

    #[test]
    fn numbers() {
        let digits = "9".repeat(100_000);
        for (text, want) in [
            ("5", Some(5)),
            (" 5 \r\n", Some(5)),
            ("005", Some(5)),
            ("10", None),
            ("0", None),
            ("", None),
            ("+5", None),
            ("-5", None),
            ("5 5", None),
            ("0x5", None),
            ("5\0", None),
            ("4294967296", None),
            ("18446744073709551621", None),
            (&digits, None),
        ] {
            let got = parse_u32(text, 1..=9, "quantum: expected 1 to 9");
            assert_eq!(got.ok(), want, "{text:.20}");
            if let Err(error) = got {
                assert_eq!(error, Error::invalid("quantum: expected 1 to 9"));
            }
        }
    }
}
