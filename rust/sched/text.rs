// SPDX-License-Identifier: GPL-2.0-only

//! Text of control files: what is read from them and what may be written to them.
//!
//! # Vocabulary
//!
//! - *Row*: one policy of one priority as `nrs_policies` shows it ([`Row`]).
//! - *Command*: what was written to `nrs_policies` ([`Command`]).
//! - *Tunable*: a file that holds one number or one word.
//!
//! # `nrs_policies`, read
//!
//! An empty line, `regular_requests:`, a block per policy; if the service has high-priority heads,
//! `high_priority_requests:` and the same blocks again. A block ends in an empty line, numbers are padded to
//! 20 columns:
//!
//! ```text
//!   - name: fairshare uid_fair
//!     state: started
//!     fallback: no
//!     queued: 3
//!     active: 1
//! ```
//!
//! Counters of the policy as a whole follow, if it has any.
//!
//! # `nrs_policies`, written
//!
//! `POLICY [reg|hp] [ARGUMENT...]`. The layout and the grammar are Lustre's, with these differences: blanks
//! (spaces and tabs) may be repeated and stand at either end, line ends may follow, an argument has up to
//! [`ARGUMENT_MAX`] bytes instead of 15, and characters that do not print are refused.
//!
//! Callers turn what was written into text first; what is no UTF-8 is `EINVAL` there.

use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    head::State,
    statistics::Stat,
};
use core::{
    fmt::{self, Write},
    ops::RangeInclusive,
};

/// Bytes of a command, at most: name, head and argument of 16 + 4 + 1024 bytes with their ends.
pub const COMMAND_MAX: usize = 1043;

/// Bytes of a policy's name, at most.
pub const NAME_MAX: usize = 15;

/// Bytes of a policy's argument, at most.
pub const ARGUMENT_MAX: usize = 63;

/// One policy of one priority, summed over the partitions of a service.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Argument it was started with.
    pub argument: Option<&'a dyn fmt::Display>,
    /// Its state.
    pub state: State,
    /// Whether it is the fallback.
    pub fallback: bool,
    /// Requests queued.
    pub queued: u64,
    /// Requests in service.
    pub active: u64,
    /// Counters of the policy as a whole.
    pub stats: &'static [Stat],
    /// Their values.
    pub counts: &'a [u64],
}

/// Writes what `nrs_policies` shows; `high` is `None` for a service without high-priority heads.
pub fn write_policies<W: Write>(
    out: &mut W,
    regular: &[Row<'_>],
    high: Option<&[Row<'_>]>,
) -> fmt::Result {
    out.write_str("\nregular_requests:\n")?;
    for row in regular {
        write_row(out, row)?;
    }
    let Some(high) = high else {
        return Ok(());
    };
    out.write_str("high_priority_requests:\n")?;
    for row in high {
        write_row(out, row)?;
    }
    Ok(())
}

/// Writes one block of `nrs_policies`.
fn write_row<W: Write>(out: &mut W, row: &Row<'_>) -> fmt::Result {
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

/// Heads that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All that the service has.
    All,
    /// `reg`: the regular heads.
    Regular,
    /// `hp`: the high-priority heads.
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

/// A change of policy, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Name of the policy, 1 to [`NAME_MAX`] bytes; whether there is one of that name is not known here.
    pub policy: &'a str,
    /// Heads it is for; whether the service has them is not known here.
    pub heads: Heads,
    /// What else was written, without blanks around it; 1 to [`ARGUMENT_MAX`] bytes.
    pub argument: Option<&'a str>,
}

impl<'a> Command<'a> {
    /// Parses `POLICY [reg|hp] [ARGUMENT...]`.
    ///
    /// A second word `reg` or `hp` names the heads; for an argument that starts with such a word, the heads
    /// have to be named before it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: longer than [`COMMAND_MAX`] bytes. As [`Self::new`].
    pub fn parse(text: &'a str) -> Result<Self> {
        if text.len() > COMMAND_MAX {
            return Err(Error::invalid("command is longer than 1043 bytes"));
        }
        let (policy, rest) = word(trim(text));
        let (heads, argument) = match word(rest) {
            ("reg", argument) => (Heads::Regular, argument),
            ("hp", argument) => (Heads::High, argument),
            _ => (Heads::All, rest),
        };
        Self::new(policy, heads, argument)
    }

    /// Creates the command that selects `policy`, one word, with `argument`, without blanks around it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a name that is empty or longer than [`NAME_MAX`], an argument longer than [`ARGUMENT_MAX`], or a
    /// character that is neither printable ASCII nor blank.
    pub fn new(policy: &'a str, heads: Heads, argument: &'a str) -> Result<Self> {
        let mut bytes = policy.bytes().chain(argument.bytes());
        if !bytes.all(|b| b.is_ascii_graphic() || is_blank(b)) {
            return Err(Error::invalid("command has an unprintable character"));
        }
        if policy.is_empty() {
            return Err(Error::invalid("command is empty, expected a policy"));
        }
        if policy.len() > NAME_MAX {
            return Err(Error::invalid("policy name is longer than 15 characters"));
        }
        if argument.len() > ARGUMENT_MAX {
            return Err(Error::invalid("argument is longer than 63 characters"));
        }
        Ok(Self {
            policy,
            heads,
            argument: (!argument.is_empty()).then_some(argument),
        })
    }
}

/// Parses a decimal number within `range`; blanks and line ends around it are ignored.
///
/// # Errors
///
/// - `EINVAL` with `reason`: empty, a sign, another character than a digit, or out of range. The reason
///   names the tunable and its range.
pub fn parse_u32(text: &str, range: RangeInclusive<u32>, reason: &'static str) -> Result<u32> {
    let text = trim(text);
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && range.contains(&number) => Ok(number),
        _ => Err(Error::invalid(reason)),
    }
}

/// The word that control files show for a switch.
pub const fn yes_no(value: bool) -> &'static str {
    if value {
        "yes"
    } else {
        "no"
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `text` without blanks around it and line ends after it.
fn trim(text: &str) -> &str {
    text.trim_end_matches([' ', '\t', '\n', '\r'])
        .trim_start_matches([' ', '\t'])
}

/// The first word of trimmed text, and the rest without the blanks before it.
fn word(text: &str) -> (&str, &str) {
    match text.split_once([' ', '\t']) {
        Some((word, rest)) => (word, rest.trim_start_matches([' ', '\t'])),
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
        state: State,
    ) -> Row<'static> {
        Row {
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
            Row {
                fallback: true,
                queued: 12,
                active: 3,
                ..row("fifo", None, State::Started)
            },
            Row {
                queued: u64::MAX,
                ..row("fairshare", Some(&"gid_then_uid_fair"), State::Stopping)
            },
        ];
        let high = [row("fifo", None, State::Starting)];
        let mut out = String::new();
        write_policies(&mut out, &regular, Some(&high)).unwrap();
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
            "    state: starting",
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
            let want = Command {
                policy,
                heads,
                argument,
            };
            assert_eq!(Command::parse(text), Ok(want), "{text:?}");
        }
    }

    #[test]
    fn commands_at_the_limits() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        for head in ["", "reg ", "hp "] {
            let text = format!("tbf {head}{long}");
            assert_eq!(Command::parse(&text).unwrap().argument, Some(&long[..]));
            assert!(Command::parse(&format!("tbf {head}{longer}")).is_err());
        }
        let padded = format!("fifo{}", " ".repeat(1039));
        assert_eq!(padded.len(), COMMAND_MAX);
        assert_eq!(Command::parse(&padded).unwrap().policy, "fifo");
        assert!(Command::parse(&(padded + "\n")).is_err());
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
            let error = Command::parse(text).unwrap_err();
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
