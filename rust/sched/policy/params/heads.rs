// SPDX-License-Identifier: GPL-2.0-only

//! Parameters with a value for each head, in Lustre's text form.
//!
//! A parameter is written as one value for both heads, or as values by name. Names occur at most
//! once, in any order, with blanks between values and optional blanks after the colon:
//!
//! ```text
//! 16
//! reg_quantum:16
//! hp_quantum: 8 reg_quantum: 16
//! ```
//!
//! A parameter is shown as two lines in the second form. A text is accepted as a whole or not at
//! all.

use super::ParameterValue;
use crate::sched::{
    attr::Priority,
    error::{Error, Result},
};
use core::fmt;

/// Values for both heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerHead<T> {
    /// Value of the regular head.
    pub regular: T,
    /// Value of the high-priority head.
    pub high: T,
}

impl<T: Copy> PerHead<T> {
    /// Returns the same value for both heads.
    pub const fn both(value: T) -> Self {
        Self {
            regular: value,
            high: value,
        }
    }

    /// Returns the value of the head of `priority`.
    pub const fn of(&self, priority: Priority) -> T {
        match priority {
            Priority::Regular => self.regular,
            Priority::High => self.high,
        }
    }
}

/// Splits off the first word; returns the word, and the rest without leading blanks.
fn word(text: &str) -> (&str, &str) {
    let end = |c: char| c.is_ascii_whitespace();
    match text.split_once(end) {
        Some((word, rest)) => (word, rest.trim_ascii_start()),
        None => (text, ""),
    }
}

impl<T: ParameterValue> PerHead<T> {
    /// Returns these values, overridden by the values in `text` for the parameter called `name`.
    /// Without a trailing newline, `text` may be at most as long as a text with both values.
    ///
    /// # Errors
    ///
    /// `EINVAL`: malformed, too long, more than one value for a head, or an invalid value.
    pub fn with(&self, name: &str, text: &str) -> Result<Self> {
        let values = const { "reg_: hp_:".len() + 2 * T::LONGEST };
        let longest = name.len().saturating_mul(2).saturating_add(values);
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.len() > longest {
            return Err(Error::invalid("value is too long for this parameter"));
        }
        let text = text.trim_ascii();
        if !text.contains(':') {
            return T::parse(text).map(Self::both);
        }
        let (mut regular, mut high) = (None, None);
        let mut rest = text;
        while !rest.is_empty() {
            let wrong = Error::invalid("expected a value, reg_NAME:VALUE or hp_NAME:VALUE");
            let (head, after) = rest.split_once(':').ok_or(wrong)?;
            let place = match head.strip_suffix(name) {
                Some("reg_") => &mut regular,
                Some("hp_") => &mut high,
                _ => return Err(wrong),
            };
            let (value, after) = word(after.trim_ascii_start());
            if place.replace(T::parse(value)?).is_some() {
                return Err(Error::invalid("more than one value for a head"));
            }
            rest = after;
        }
        Ok(Self {
            regular: regular.unwrap_or(self.regular),
            high: high.unwrap_or(self.high),
        })
    }

    /// Writes the parameter called `name` as two lines.
    pub fn write(&self, name: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        for (head, value) in [("reg", self.regular), ("hp", self.high)] {
            let columns = T::COLUMNS;
            writeln!(out, "{head}_{name}:{value:<columns$}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
