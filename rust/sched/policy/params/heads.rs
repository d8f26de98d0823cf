// SPDX-License-Identifier: GPL-2.0-only

//! Parameters with a value for each head, in the text form that Lustre gives them.
//!
//! A parameter is written as one value for both heads, or as values by name, each at most once, in any
//! order, with blanks between and, if one likes, behind the colon:
//!
//! ```text
//! 16
//! reg_quantum:16
//! hp_quantum: 8 reg_quantum: 16
//! ```
//!
//! and it is shown as two lines, of which the second form is made. Either all of a text is taken or nothing.

use super::Value;
use crate::sched::{
    attr::Priority,
    error::{Error, Result},
};
use core::fmt;

/// A value for each head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerHead<T> {
    /// Of the regular head.
    pub regular: T,
    /// Of the high-priority head.
    pub high: T,
}

impl<T: Copy> PerHead<T> {
    /// The same for both heads.
    pub const fn both(value: T) -> Self {
        Self {
            regular: value,
            high: value,
        }
    }

    /// That of the head of `priority`.
    pub const fn of(&self, priority: Priority) -> T {
        match priority {
            Priority::Regular => self.regular,
            Priority::High => self.high,
        }
    }
}

/// A word, and what stands behind the blanks that end it.
fn word(text: &str) -> (&str, &str) {
    let end = |c: char| c.is_ascii_whitespace();
    match text.split_once(end) {
        Some((word, rest)) => (word, rest.trim_ascii_start()),
        None => (text, ""),
    }
}

impl<T: Value> PerHead<T> {
    /// These values with those of `text`, which is for the parameter called `name` and has at most as many bytes as a
    /// text with both values, not counting a newline at its end.
    /// `EINVAL`: malformed, too long, a head that comes twice, or a value that is none.
    pub fn with(&self, name: &str, text: &str) -> Result<Self> {
        let values = const { "reg_: hp_:".len() + 2 * T::LONGEST };
        let longest = name.len().saturating_mul(2).saturating_add(values);
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.len() > longest {
            return Err(Error::invalid("longer than any value of this parameter"));
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
                return Err(Error::invalid("two values for one head"));
            }
            rest = after;
        }
        Ok(Self {
            regular: regular.unwrap_or(self.regular),
            high: high.unwrap_or(self.high),
        })
    }

    /// Writes the two lines of the parameter called `name`.
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
