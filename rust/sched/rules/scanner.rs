// SPDX-License-Identifier: GPL-2.0-only

//! Scanner for the text of a command.

use crate::sched::rules::RuleError;

/// Position in a text.
///
/// # Invariants
///
/// The text is ASCII, so that each byte is a character.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of `text`, without trailing blanks and line ends.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a character that is neither printable ASCII nor a blank.
    pub fn new(text: &'a str) -> Result<Self, RuleError> {
        let text = text.trim_end_matches([' ', '\t', '\n', '\r']);
        let bad = |b: u8| !(b.is_ascii_graphic() || is_blank(b));
        match text.bytes().position(bad) {
            Some(at) => Err(RuleError::invalid(at, "a printable character")),
            // INVARIANT: all characters are printable ASCII or blanks.
            None => Ok(Self { text, at: 0 }),
        }
    }

    /// Creates a scanner at the start of `text`, a part of a text that was checked.
    pub const fn part(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Returns the text from offset `from` up to the position.
    pub fn since(&self, from: usize) -> &'a str {
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Returns a scanner for the text up to the position, starting at offset `at`.
    pub fn rewound(&self, at: usize) -> Self {
        Self {
            text: self.since(0),
            at: at.min(self.at),
        }
    }

    /// Returns the next byte, if there is one.
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips the next byte if it is `byte`; returns true if it was skipped.
    pub fn skip(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        if next {
            self.at = self.at.saturating_add(1);
        }
        next
    }

    /// Consumes the longest run of bytes for which `takes` returns true, and returns it.
    pub fn take(&mut self, takes: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.bytes().take_while(|&b| takes(b)).count();
        let from = self.at;
        self.at = from.saturating_add(len);
        self.since(from)
    }

    /// Skips blanks.
    pub fn blanks(&mut self) {
        self.take(is_blank);
    }

    /// Skips blanks and consumes the word after them; returns the word and its offset.
    pub fn word(&mut self) -> (usize, &'a str) {
        self.blanks();
        (self.at, self.take(|b| !is_blank(b)))
    }

    /// Returns the error `EINVAL` at the next byte.
    pub const fn expected(&self, expected: &'static str) -> RuleError {
        RuleError::invalid(self.at, expected)
    }
}

/// Returns true if `byte` separates words.
pub const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
