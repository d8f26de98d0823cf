// SPDX-License-Identifier: GPL-2.0-only

//! The form that all statistics of the module have, read line by line.
//!
//! It is the part of YAML that the module writes: mappings and sequences by indentation, a key and a value on a line,
//! `[]` for a sequence without elements, `{ key: value, ... }` of numbers and words on one line, strings bare or in
//! double quotes with `\"`, `\\` and `\xNN`. A reader of all of YAML takes ten times as long,
//! which 10,000 entities do not allow; tests compare the two.

use std::borrow::Cow;

/// A line that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// The number of the line, from 1.
    pub number: usize,
    /// The line, or how it begins.
    pub line: String,
    /// What was expected.
    pub want: &'static str,
}

/// The result of reading a text.
pub type Result<T = ()> = std::result::Result<T, Unexpected>;

/// Characters of a line that an error shows.
const SHOWN: usize = 80;

/// What stands behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing: what belongs to the key follows, deeper.
    Nothing,
    /// A bare word or number.
    Bare(&'a str),
    /// A string in double quotes, without them.
    Quoted(Cow<'a, str>),
    /// `[]`.
    Empty,
    /// What is between `{` and `}`.
    Pairs(&'a str),
}

/// A line with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number, from 1.
    number: usize,
    whole: &'a str,
    /// Blanks before its key; a dash and the blank behind it count.
    pub depth: usize,
    /// Whether a dash stands before its key: a new element of a sequence.
    pub item: bool,
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: Value<'a>,
}

impl<'a> Line<'a> {
    fn parse(number: usize, whole: &'a str) -> Result<Self> {
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
            [] => Value::Nothing,
            b"[]" => Value::Empty,
            [b'"', ..] => Value::Quoted(
                value
                    .get(1..value.len().saturating_sub(1))
                    .filter(|_| value.len() > 1 && value.ends_with('"'))
                    .and_then(unescape)
                    .ok_or_else(|| unexpected("a string in double quotes"))?,
            ),
            [b'{', .., b'}'] => Value::Pairs(&value[1..value.len() - 1]),
            _ => Value::Bare(value),
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

    /// That the line is not as expected.
    pub fn unexpected(&self, want: &'static str) -> Unexpected {
        unexpected(self.number, self.whole, want)
    }

    /// Its value, which is a string.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn text(&self) -> Result<String> {
        match &self.value {
            Value::Bare(text) => Ok((*text).into()),
            Value::Quoted(text) => Ok(text.clone().into_owned()),
            _ => Err(self.unexpected("a string")),
        }
    }

    /// Its value, which is a whole number from 0.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn number(&self) -> Result<u64> {
        match self.value {
            Value::Bare(text) => text.parse().ok(),
            _ => None,
        }
        .ok_or_else(|| self.unexpected("a number"))
    }

    /// Its value, which is a number with or without decimals.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn fraction(&self) -> Result<f64> {
        match self.value {
            Value::Bare(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
        .ok_or_else(|| self.unexpected("a number with decimals"))
    }

    /// Its value, which is `true` or `false`.
    ///
    /// # Errors
    ///
    /// It is neither.
    pub fn switch(&self) -> Result<bool> {
        match self.value {
            Value::Bare("true") => Ok(true),
            Value::Bare("false") => Ok(false),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// Calls `f` with each key of its value and what stands behind it.
    ///
    /// # Errors
    ///
    /// The value is not in braces, or has something else in it than keys with numbers or words.
    pub fn pairs(&self, mut f: impl FnMut(&'a str, &'a str) -> Option<()>) -> Result {
        let unexpected = || self.unexpected("{ KEY: NUMBER, ... }");
        let Value::Pairs(text) = self.value else {
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

    /// Calls `f` with each key of its value and the number behind it; what has a word behind it is passed over.
    ///
    /// # Errors
    ///
    /// The value is not in braces, or has something else in it than keys with numbers or words; a number is too large.
    pub fn numbers(&self, mut f: impl FnMut(&'a str, u64)) -> Result {
        self.pairs(|key, value| {
            if is_number(value) {
                f(key, value.parse().ok()?);
            }
            Some(())
        })
    }

    /// Its value, if it is a whole number from 0; none if it is a word, a string or a number of another kind.
    ///
    /// # Errors
    ///
    /// It is too large.
    pub fn counter(&self) -> Result<Option<u64>> {
        match self.value {
            Value::Bare(text) if is_number(text) => self.number().map(Some),
            _ => Ok(None),
        }
    }
}

/// Whether `text` has digits only.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// That line `number` is not as expected.
pub fn unexpected(number: usize, line: &str, want: &'static str) -> Unexpected {
    Unexpected {
        number,
        line: line.chars().take(SHOWN).collect(),
        want,
    }
}

/// The string that is written as `text` between double quotes.
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

/// The lines of `text` that have a key; what is empty, or `[]` alone, has none.
pub fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>>> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !matches!(line.trim_matches(' '), "" | "[]"))
        .map(|(number, line)| Line::parse(number, line))
}
