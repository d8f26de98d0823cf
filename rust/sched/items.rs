// SPDX-License-Identifier: GPL-2.0-only

//! Texts that are lists of items, with names that may be in quotes: weights and owners.

use crate::sched::{
    attr::cgroup::{PathBuf, PATH_MAX},
    count::Count,
    error::{Code, Error, Result},
    key::{escape, Field},
};
use core::fmt::{self, Write};

/// Text of a name, a path, or a pattern.
#[derive(Clone, Copy)]
pub struct NameText {
    bytes: PathBuf,
    len: usize,
}

/// Returns true if `byte` separates items.
const fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r')
}

/// Position relative to the quotes of a text that is read byte by byte.
#[derive(Default)]
struct Quotes {
    quoted: bool,
    escaped: bool,
}

impl Quotes {
    /// Reads `byte`; returns true if it is behind an opening and not behind the closing quote.
    fn read(&mut self, byte: u8) -> bool {
        let was_quoted = self.quoted;
        self.quoted ^= byte == b'"' && !self.escaped;
        self.escaped = self.quoted && byte == b'\\' && !self.escaped;
        was_quoted
    }
}

/// Returns the next item of `text`, and advances `text` past the item.
pub fn next_item<'a>(text: &mut &'a str) -> Option<&'a str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii() && is_separator(c as u8));
    let mut quotes = Quotes::default();
    let ends = |byte: u8| !quotes.read(byte) && is_separator(byte);
    let end = rest.bytes().position(ends).unwrap_or(rest.len());
    // Separators are ASCII, so this is the boundary of a character.
    let (item, rest) = rest.split_at_checked(end)?;
    *text = rest;
    (!item.is_empty()).then_some(item)
}

/// Returns the text before the next `&` that separates names, and advances `text` past the `&`;
/// `None` at the end. A `&` in quotes, or without a field and a colon behind it, is part of a name.
pub fn next_name<'a>(text: &mut Option<&'a str>) -> Option<&'a str> {
    let rest = text.take()?;
    let mut quotes = Quotes::default();
    for (at, byte) in rest.bytes().enumerate() {
        if !quotes.read(byte) && byte == b'&' {
            let (name, behind) = rest.split_at_checked(at)?;
            let behind = behind.strip_prefix('&');
            let field = behind.and_then(|behind| behind.split_once(':'));
            if field.is_some_and(|(field, _)| Field::parse(field).is_some()) {
                *text = behind;
                return Some(name);
            }
        }
    }
    Some(rest)
}

impl NameText {
    /// Creates an empty text.
    pub const fn new() -> Self {
        Self {
            bytes: [0; PATH_MAX + 1],
            len: 0,
        }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Appends a byte.
    pub fn push(&mut self, byte: u8) -> Result {
        let place = self.bytes.get_mut(self.len).filter(|_| self.len < PATH_MAX);
        *place.ok_or(Error::invalid("name is too long (limit: 383 bytes)"))? = byte;
        self.len.count(1);
        Ok(())
    }

    /// Returns the name `text`, which has no quotes.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a byte that needs quotes, or too many bytes.
    pub fn plain(text: &str) -> Result<Self> {
        let mut name = Self::new();
        for byte in text.bytes() {
            if !byte.is_ascii_graphic() || byte == b'"' {
                return Err(Error::invalid("name has a character that needs quotes"));
            }
            name.push(byte)?;
        }
        Ok(name)
    }
}

impl Write for NameText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.bytes();
        bytes.try_for_each(|byte| self.push(byte).map_err(|_| fmt::Error))
    }
}

/// Parses a decimal number without a sign; leading zeros are refused, because they often mean
/// octal.
pub fn parse_number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| digits && plain)
}

/// Parses the name in `text` up to the closing quote; returns the text after the quote.
///
/// # Errors
///
/// `EINVAL`: no closing quote, an unknown escape, a NUL, an unprintable byte, or too many bytes.
pub fn unquote<'a>(text: &'a str, name: &mut NameText) -> Result<&'a str> {
    let escape = Error::invalid("unknown escape (escapes: \\\", \\\\, \\xNN except \\x00)");
    let mut chars = text.chars();
    loop {
        let open = Error::invalid("no closing quote after the name");
        match chars.next().ok_or(open)? {
            '"' => return Ok(chars.as_str()),
            '\\' => {
                let byte = match chars.next().ok_or(open)? {
                    '"' => b'"',
                    '\\' => b'\\',
                    'x' => {
                        let mut digit = || chars.next().and_then(|digit| digit.to_digit(16));
                        let (high, low) = (digit().ok_or(escape)?, digit().ok_or(escape)?);
                        ((high << 4) | low) as u8
                    }
                    _ => return Err(escape),
                };
                if byte == 0 {
                    return Err(escape);
                }
                name.push(byte)?;
            }
            plain @ ' '..='~' => name.push(plain as u8)?,
            _ => {
                let reason = "unprintable character in the name (write \\xNN)";
                return Err(Error::invalid(reason));
            }
        }
    }
}

/// Returns the result of a change of a list that may not exist: an item to remove is not missing.
pub fn check<T>(changed: Result<T>) -> Result {
    match changed {
        Err(error) if error.code == Code::NoEntry => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Writes a name or a pattern, in quotes if it needs them.
pub fn write_name(out: &mut dyn Write, bytes: &[u8]) -> fmt::Result {
    let plain = |&byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b'&');
    let quoted = bytes.is_empty() || !bytes.iter().all(plain);
    if quoted {
        out.write_char('"')?;
    }
    escape(bytes, out)?;
    if quoted {
        out.write_char('"')?;
    }
    Ok(())
}
