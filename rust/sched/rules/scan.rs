// SPDX-License-Identifier: GPL-2.0-only

//! Reading the text of a command from left to right.

use crate::sched::rules::RuleError;

/// Where a text is read.
///
/// # Invariants
///
/// The text is ASCII, so that each of its bytes starts a character.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The start of `text`, without the blanks and line ends after it.
    /// `EINVAL`: a character that is neither printable ASCII nor a blank.
    pub fn new(text: &'a str) -> Result<Self, RuleError> {
        let text = text.trim_end_matches([' ', '\t', '\n', '\r']);
        let bad = |b: u8| !(b.is_ascii_graphic() || is_blank(b));
        match text.bytes().position(bad) {
            Some(at) => Err(RuleError::invalid(at, "a printable character")),
            // INVARIANT: all are printable ASCII or blanks.
            None => Ok(Self { text, at: 0 }),
        }
    }

    /// The start of `text`, a part of a text that was checked.
    pub const fn part(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Offset of the next byte.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The text from offset `from` up to here.
    pub fn since(&self, from: usize) -> &'a str {
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// The text up to here, to be read from offset `at` on.
    pub fn back_to(&self, at: usize) -> Self {
        Self {
            text: self.since(0),
            at: at.min(self.at),
        }
    }

    /// The next byte, if there is one.
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes `byte`, if it is the next.
    pub fn skip(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        if next {
            self.at = self.at.saturating_add(1);
        }
        next
    }

    /// Passes the bytes that `takes` takes.
    pub fn take(&mut self, takes: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.bytes().take_while(|&b| takes(b)).count();
        let from = self.at;
        self.at = from.saturating_add(len);
        self.since(from)
    }

    /// Passes blanks.
    pub fn blanks(&mut self) {
        self.take(is_blank);
    }

    /// Passes blanks and the word after them; its offset and the word.
    pub fn word(&mut self) -> (usize, &'a str) {
        self.blanks();
        (self.at, self.take(|b| !is_blank(b)))
    }

    /// `EINVAL` at the next byte.
    pub const fn expected(&self, expected: &'static str) -> RuleError {
        RuleError::invalid(self.at, expected)
    }
}

/// Whether `byte` separates words.
pub const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
