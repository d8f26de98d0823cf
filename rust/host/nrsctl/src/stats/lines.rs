// SPDX-License-Identifier: GPL-2.0-only

//! Line parser for the module's statistics.
//!
//! The format is the subset of YAML that the module writes. Mappings and sequences are indented,
//! with a key and a value per line. `[]` is an empty sequence. `{ key: value, ... }` holds numbers
//! and words on one line. Strings are bare or in double quotes with `\"`, `\\` and `\xNN`. A full
//! YAML reader takes ten times as long, which is too slow for 10,000 entities; tests compare the
//! two.

use std::borrow::Cow;

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// Number of the line, from 1.
    pub number: usize,
    /// The line, truncated.
    pub line: String,
    /// Expected content.
    pub want: &'static str,
}

/// Result of parsing a text.
pub type LinesResult<T = ()> = std::result::Result<T, Unexpected>;

/// Maximum number of characters of a line in an error.
const SHOWN: usize = 80;

/// Value after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineValue<'a> {
    /// No value; deeper lines that belong to the key follow.
    Nothing,
    /// A bare word or number.
    Bare(&'a str),
    /// A string in double quotes, without the quotes.
    Quoted(Cow<'a, str>),
    /// `[]`.
    Empty,
    /// Text between `{` and `}`.
    Pairs(&'a str),
}

/// A line with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine<'a> {
    /// Number of the line, from 1.
    number: usize,
    whole: &'a str,
    /// Column of the key: number of blanks before it, including a dash and its blank.
    pub depth: usize,
    /// True if a dash precedes the key: the line begins an element of a sequence.
    pub item: bool,
    /// Key.
    pub key: &'a str,
    /// Value.
    pub value: LineValue<'a>,
}

impl<'a> KeyLine<'a> {
    fn parse(number: usize, whole: &'a str) -> LinesResult<Self> {
        let unexpected = |want| unexpected(number, whole, want);
        let text = whole.trim_start_matches(' ');
        let (text, item) = match text.strip_prefix("- ") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let depth = whole.len() - text.len();
        let (key, value) = text
            .split_once(':')
            .filter(|(_, value)| value.is_empty() || value.starts_with(' '))
            .ok_or_else(|| unexpected("KEY: VALUE"))?;
        let value = value.trim_matches(' ');
        let value = match value.as_bytes() {
            [] => LineValue::Nothing,
            b"[]" => LineValue::Empty,
            [b'"', ..] => LineValue::Quoted(
                value
                    .get(1..value.len().saturating_sub(1))
                    .filter(|_| value.len() > 1 && value.ends_with('"'))
                    .and_then(unescape)
                    .ok_or_else(|| unexpected("a string in double quotes"))?,
            ),
            [b'{', .., b'}'] => LineValue::Pairs(&value[1..value.len() - 1]),
            _ => LineValue::Bare(value),
        };
        Ok(Self {
            number,
            whole,
            depth,
            item,
            key,
            value,
        })
    }

    /// Returns the error for this line; `want` is the expected content.
    pub fn unexpected(&self, want: &'static str) -> Unexpected {
        unexpected(self.number, self.whole, want)
    }

    /// Returns the value, which must be a string.
    ///
    /// # Errors
    ///
    /// The value is not a string.
    pub fn text(&self) -> LinesResult<String> {
        match &self.value {
            LineValue::Bare(text) => Ok((*text).into()),
            LineValue::Quoted(text) => Ok(text.clone().into_owned()),
            _ => Err(self.unexpected("a string")),
        }
    }

    /// Returns the value, which must be an unsigned integer.
    ///
    /// # Errors
    ///
    /// The value is not an unsigned integer.
    pub fn number(&self) -> LinesResult<u64> {
        match self.value {
            LineValue::Bare(text) => text.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| self.unexpected("a number"))
    }

    /// Returns the value, which must be a number with or without decimals.
    ///
    /// # Errors
    ///
    /// The value is not a finite number.
    pub fn fraction(&self) -> LinesResult<f64> {
        match self.value {
            LineValue::Bare(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
        .ok_or_else(|| self.unexpected("a number with decimals"))
    }

    /// Returns the value, which must be `true` or `false`.
    ///
    /// # Errors
    ///
    /// The value is neither `true` nor `false`.
    pub fn switch(&self) -> LinesResult<bool> {
        match self.value {
            LineValue::Bare("true") => Ok(true),
            LineValue::Bare("false") => Ok(false),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// Calls `f` with each key of the value in braces and the number or word after the key.
    ///
    /// # Errors
    ///
    /// The value is not in braces, contains something other than keys with numbers or words, or `f`
    /// returns `None`.
    pub fn pairs(&self, mut f: impl FnMut(&'a str, &'a str) -> Option<()>) -> LinesResult {
        let unexpected = || self.unexpected("{ KEY: NUMBER, ... }");
        let LineValue::Pairs(text) = self.value else {
            return Err(unexpected());
        };
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once(": ").ok_or_else(unexpected)?;
            let key = key.trim();
            let key = key
                .strip_prefix('"')
                .map_or(Some(key), |key| key.strip_suffix('"'));
            key.and_then(|key| f(key, value.trim()))
                .ok_or_else(unexpected)?;
        }
        Ok(())
    }

    /// Calls `f` with each key of the value in braces and its number; skips keys with words.
    ///
    /// # Errors
    ///
    /// The value is not in braces or contains something other than keys with numbers or words; a
    /// number is too large.
    pub fn numbers(&self, mut f: impl FnMut(&'a str, u64)) -> LinesResult {
        self.pairs(|key, value| {
            if is_number(value) {
                f(key, value.parse().ok()?);
            }
            Some(())
        })
    }

    /// Returns the value if it is an unsigned integer; `None` for words, strings and other numbers.
    ///
    /// # Errors
    ///
    /// The number is too large.
    pub fn counter(&self) -> LinesResult<Option<u64>> {
        match self.value {
            LineValue::Bare(text) if is_number(text) => self.number().map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns true if `text` consists of digits.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the error for line `number`; `want` is the expected content.
pub fn unexpected(number: usize, line: &str, want: &'static str) -> Unexpected {
    Unexpected {
        number,
        line: line.chars().take(SHOWN).collect(),
        want,
    }
}

/// Decodes the escapes of a string in double quotes, given without the quotes; `None` if it is
/// invalid.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['\\', '"']) {
        return Some(Cow::Borrowed(text));
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(['\\', '"']) {
        let (before, escape) = rest.split_at(place);
        plain.push_str(before);
        let escape = escape.strip_prefix('\\')?;
        let char = escape.chars().next()?;
        rest = escape.get(char.len_utf8()..)?;
        match char {
            '"' | '\\' => plain.push(char),
            'x' => {
                let digits = rest
                    .get(..2)
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                plain.push(char::from(u8::from_str_radix(digits, 16).ok()?));
                rest = rest.get(2..)?;
            }
            _ => return None,
        }
    }
    plain.push_str(rest);
    Some(Cow::Owned(plain))
}

/// Returns the lines of `text` that have a key; skips empty lines and lines with only `[]`.
pub fn lines(text: &str) -> impl Iterator<Item = LinesResult<KeyLine<'_>>> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !matches!(line.trim_matches(' '), "" | "[]"))
        .map(|(number, line)| KeyLine::parse(number, line))
}
