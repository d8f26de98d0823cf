// SPDX-License-Identifier: GPL-2.0-only

//! Faults of a configuration, with their places.

use std::fmt;
use std::rc::Rc;

use serde::{Serialize, Serializer};

/// Place in a file, shown as `FILE:LINE:COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilePosition {
    /// Name of the file.
    #[serde(serialize_with = "text")]
    pub file: Rc<str>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Serialises a shared text.
fn text<S: Serializer>(text: &Rc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

impl FilePosition {
    /// Returns the place `more` characters after this place.
    pub fn behind(&self, more: usize) -> Self {
        Self {
            column: self.column.saturating_add(more),
            ..self.clone()
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

/// Fault, shown as `FILE:LINE:COLUMN: KEY: REASON`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Place of the fault.
    #[serde(flatten)]
    pub place: FilePosition,
    /// Path of the key, such as `service.ost_io.rule[0].rate`; empty if the fault is not about a
    /// key.
    pub key: String,
    /// Reason, in one line.
    pub reason: String,
}

impl Fault {
    /// Creates a fault at `place` for the value of `key`.
    pub fn new(place: FilePosition, key: impl Into<String>, reason: impl Into<String>) -> Self {
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
