// SPDX-License-Identifier: GPL-2.0-only

//! Faults of a scenario file and their places.
//!
//! A *path* names a key, as in `job[1].io[0].size`; list indices count from 0. Type errors have a
//! path (`serde_path_to_error`) and a place. Checks across keys know only paths; the parsed
//! document gives the place.

use nrs_agent::toml::{line_column, TomlNode, TomlValue};
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use toml_edit::{de, DocumentMut, Item};

/// Error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line and column in characters, from 1; `None` if unknown.
    pub place: Option<(usize, usize)>,
    /// Path of the key; empty if the fault concerns no key.
    pub key: String,
    /// Reason, one line.
    pub reason: String,
}

/// All faults found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Name of the file.
    pub file: String,
    /// Faults; at least one.
    pub list: Vec<Fault>,
}

impl fmt::Display for Faults {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.list.iter().enumerate() {
            let line = if n == 0 { "" } else { "\n" };
            write!(to, "{line}{}:", self.file)?;
            if let Some((line, column)) = fault.place {
                write!(to, "{line}:{column}:")?;
            }
            if !fault.key.is_empty() {
                write!(to, " key `{}`:", fault.key)?;
            }
            write!(to, " {}", fault.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Faults {
    /// Creates one fault of `file` without a place.
    pub fn of(file: &str, key: &str, reason: impl fmt::Display) -> Self {
        let fault = Fault {
            place: None,
            key: key.to_string(),
            reason: reason.to_string(),
        };
        Self {
            file: file.to_string(),
            list: vec![fault],
        }
    }

    /// Creates faults from their paths; finds their places in `text`.
    pub fn located(file: &str, text: &str, found: Vec<(String, String)>) -> Self {
        let document = TomlNode::parse(file, text).ok();
        let list = found.into_iter().map(|(key, reason)| Fault {
            place: document.as_ref().map(|root| {
                let place = &nearest(root, &key).key_place;
                (place.line, place.column)
            }),
            key,
            reason,
        });
        Self {
            file: file.to_string(),
            list: list.collect(),
        }
    }
}

/// Returns the name of a file, for messages, and its text.
///
/// # Errors
///
/// The file cannot be read.
pub fn load(path: &Path) -> Result<(String, String), Faults> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((file, text)),
        Err(error) => Err(Faults::of(&file, "", error)),
    }
}

/// Parses a value from TOML; `file` is used in messages only.
///
/// # Errors
///
/// `text` is not TOML or does not match the type.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Faults> {
    let fault = |path: &str, error: &de::Error| {
        let reason = error.message().trim().replace('\n', "; ");
        let missing = reason.strip_prefix("missing field `");
        let key = match (path, missing.and_then(|rest| rest.strip_suffix('`'))) {
            (".", None) => String::new(),
            (".", Some(missing)) => missing.to_string(),
            (table, Some(missing)) => format!("{table}.{missing}"),
            (_, None) => path.to_string(),
        };
        let place = error.span().map(|span| line_column(text, span.start));
        Faults {
            file: file.to_string(),
            list: vec![Fault { place, key, reason }],
        }
    };
    let document = de::Deserializer::parse(text).map_err(|error| fault(".", &error))?;
    serde_path_to_error::deserialize(document)
        .map_err(|error| fault(&error.path().to_string(), error.inner()))
}

/// Returns the value at `path`, or at the longest prefix of the path that exists.
fn nearest<'a>(node: &'a TomlNode, path: &str) -> &'a TomlNode {
    let (TomlValue::Table(nodes) | TomlValue::List(nodes)) = &node.value else {
        return node;
    };
    let leads = |node: &&TomlNode| {
        let rest = path.strip_prefix(&node.path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    nodes
        .iter()
        .find(leads)
        .map_or(node, |node| nearest(node, path))
}

/// Overrides keys in `text`; returns the new text. Path steps into a list are the `name` of an
/// entry or its index.
///
/// # Errors
///
/// The key and the reason: the key does not exist, or `text` is not TOML.
pub fn overridden(text: &str, set: &[(String, String)]) -> Result<String, (String, String)> {
    let parsed = text.parse::<DocumentMut>();
    let mut root = parsed.map_err(|error| (String::new(), error.to_string()))?;
    for (key, value) in set {
        let fault = |reason: String| (key.clone(), reason);
        // A word that is not a TOML value is taken as a string.
        let value = value.parse().unwrap_or_else(|_| value.as_str().into());
        let mut item = root.as_item_mut();
        let mut last = "";
        for step in key.split('.') {
            if item.is_array_of_tables() || item.is_array() {
                let name = |entry: &Item| entry.get("name").and_then(Item::as_str) == Some(step);
                let mut entries = (0..).map_while(|index: usize| item.get(index));
                let index = entries.position(name).or_else(|| step.parse().ok());
                let index = index.filter(|index| item.get(*index).is_some());
                let index =
                    index.ok_or_else(|| fault(format!("`{last}` has no entry `{step}`")))?;
                item = &mut item[index];
            } else if item.is_none() || item.is_table_like() {
                item = &mut item[step];
            } else {
                return Err(fault(format!("`{last}` is not a table")));
            }
            last = step;
        }
        *item = Item::Value(value);
    }
    Ok(root.to_string())
}
