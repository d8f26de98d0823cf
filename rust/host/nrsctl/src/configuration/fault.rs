// SPDX-License-Identifier: GPL-2.0-only

//! What is wrong with a configuration, and where.

use std::fmt;
use std::rc::Rc;

use serde::{Serialize, Serializer};

/// Where something is said: shown as `FILE:LINE:COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    #[serde(serialize_with = "text")]
    pub file: Rc<str>,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// A text that is shared, as JSON.
fn text<S: Serializer>(text: &Rc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

impl Place {
    /// The same `more` characters behind.
    pub fn behind(&self, more: usize) -> Self {
        Self {
            column: self.column.saturating_add(more),
            ..self.clone()
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

/// One thing that is wrong: shown as `FILE:LINE:COLUMN: KEY: REASON`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The path of the key, such as `service.ost_io.rule[0].rate`; empty when it is not about one.
    pub key: String,
    /// One line.
    pub reason: String,
}

impl Fault {
    /// A fault at `place`, in what `key` says.
    pub fn new(place: Place, key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place,
            key: key.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}
