// SPDX-License-Identifier: GPL-2.0-only

//! `config`: the text of a service.
//!
//! Each line is a parameter and its value, as the control node and debugfs take them. A read has
//! the lines that differ from a new service; a write makes the service exactly what the text says,
//! or changes nothing:
//!
//! ```text
//!   slots 16
//!   nrs_policies tbf uid
//!   nrs_tbf_rule start greedy uid={1002} rate=10MB/s
//! ```
//!
//! The order of lines matters where it does for writes: a policy precedes its rules. Equal services
//! have equal texts.

use super::{settings::Stored, Primaries};
use crate::sched::{
    attr::Priority,
    parameters::{all, ValueAccessors, Values},
    policy::Config,
};
use core::fmt::{self, Write};

/// Writes the settings `stored` of a service whose initial values are `defaults`.
pub(super) fn write(stored: &Stored, defaults: &Values, out: &mut dyn Write) -> fmt::Result {
    let Stored {
        parameters,
        primaries,
        ..
    } = stored;
    for parameter in all() {
        if let Some(value) = &parameter.value {
            if hash(value, &parameters.values) != hash(value, defaults) {
                write!(out, "{} ", parameter.name())?;
                (value.show)(&parameters.values, &mut OneLine::new(out, " "))?;
                out.write_char('\n')?;
            }
        }
    }
    parameters.owners.write_lines("nrs_owners ", out)?;
    let policies = &parameters.values.policies;
    parameters
        .kept
        .write_values(policies, &defaults.policies, out)?;
    match primaries
        .each_ref()
        .map(|config| config.as_ref().map(PolicyText))
    {
        [Some(one), Some(other)] if one.hash() == other.hash() => one.write("", out)?,
        policies => {
            for (policy, priority) in policies.into_iter().zip(Priority::ALL) {
                if let Some(policy) = policy {
                    policy.write(head_word(priority), out)?;
                }
            }
        }
    }
    parameters.kept.write_commands(out)
}

/// Returns true if each head runs the same policy with the same argument.
pub(super) fn are_same(one: &Primaries, other: &Primaries) -> bool {
    let hash = |config: &Option<Config>| config.as_ref().map(|config| PolicyText(config).hash());
    one.iter().map(hash).eq(other.iter().map(hash))
}

/// Returns the word for the head of `priority` in commands, with a blank after it.
pub const fn head_word(priority: Priority) -> &'static str {
    match priority {
        Priority::Regular => "reg ",
        Priority::High => "hp ",
    }
}

/// A policy as `nrs_policies` takes it.
struct PolicyText<'a>(&'a Config);

impl PolicyText<'_> {
    /// Writes the line for `heads`.
    fn write(&self, heads: &str, out: &mut dyn Write) -> fmt::Result {
        let name = self.0.kind().name();
        write!(&mut OneLine::new(out, ""), "nrs_policies {name} {heads}")?;
        if let Some(argument) = self.0.argument() {
            write!(out, " {argument}")?;
        }
        out.write_char('\n')
    }

    fn hash(&self) -> u64 {
        TextHash::of(|hash| self.write("", hash))
    }
}

/// Returns the hash of the text of a value.
fn hash(value: &ValueAccessors, values: &Values) -> u64 {
    TextHash::of(|hash| (value.show)(values, hash))
}

/// FNV-1a hash, 64 bits, of a text.
pub struct TextHash(pub u64);

impl TextHash {
    /// Returns the hash of the empty text.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TextHash {
    /// Returns the hash of the text that `write` writes.
    pub fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> u64 {
        let mut hash = Self::new();
        // A hash has no errors.
        let _ = write(&mut hash);
        hash.0
    }
}

impl Write for TextHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// Writes lines as one line, with `between` in place of line ends and of blanks before them.
pub struct OneLine<'a> {
    out: &'a mut dyn Write,
    between: &'static str,
    /// True if text was written.
    begun: bool,
    /// True if a line has ended since.
    ended: bool,
    /// Number of blanks since.
    blanks: usize,
}

impl<'a> OneLine<'a> {
    /// Creates a writer of one line to `out`.
    pub fn new(out: &'a mut dyn Write, between: &'static str) -> Self {
        Self {
            out,
            between,
            begun: false,
            ended: false,
            blanks: 0,
        }
    }
}

impl Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| self.write_char(char))
    }

    fn write_char(&mut self, char: char) -> fmt::Result {
        match char {
            ' ' => self.blanks = self.blanks.saturating_add(1),
            '\n' => (self.ended, self.blanks) = (true, 0),
            _ => {
                if self.begun && self.ended {
                    self.out.write_str(self.between)?;
                }
                for _ in 0..self.blanks {
                    self.out.write_char(' ')?;
                }
                (self.begun, self.ended, self.blanks) = (true, false, 0);
                self.out.write_char(char)?;
            }
        }
        Ok(())
    }
}
