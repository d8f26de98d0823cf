// SPDX-License-Identifier: GPL-2.0-only

//! What is wrong with a scenario, and where.
//!
//! A *path* names a key as in `job[1].io[0].size`; entries of a list count from 0. Errors of types come with the
//! path (`serde_path_to_error`) and the place; checks across keys know paths only, and the document tells the place.

use serde::de::DeserializeOwned;
use std::fmt;
use toml_edit::{DocumentMut, ImDocument, Item};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line and column of the place in characters from 1, if it is known.
    pub place: Option<(usize, usize)>,
    /// The path of the key; empty when it is not about one.
    pub key: String,
    /// One line.
    pub reason: String,
}

/// All that was found wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Its name.
    pub file: String,
    /// At least one.
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
    /// A fault of `file` whose place is not known.
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

    /// Faults found by their paths, with their places in `text`.
    pub fn located(file: &str, text: &str, found: Vec<(String, String)>) -> Self {
        let document = ImDocument::parse(text).ok();
        let list = found.into_iter().map(|(key, reason)| Fault {
            place: document
                .as_ref()
                .map(|tree| position(text, place(tree.as_item(), &key))),
            key,
            reason,
        });
        Self {
            file: file.to_string(),
            list: list.collect(),
        }
    }
}

/// Reads a value from TOML; `file` is for messages only.
///
/// # Errors
///
/// What is no TOML, or not of the type.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Faults> {
    serde_path_to_error::deserialize(toml::Deserializer::new(text)).map_err(|error| {
        let reason = error.inner().message().trim().replace('\n', "; ");
        let path = error.path().to_string();
        let missing = reason.strip_prefix("missing field `");
        let key = match (
            path.as_str(),
            missing.and_then(|rest| rest.strip_suffix('`')),
        ) {
            (".", None) => String::new(),
            (".", Some(missing)) => missing.to_string(),
            (table, Some(missing)) => format!("{table}.{missing}"),
            (_, None) => path,
        };
        let place = error.inner().span().map(|span| position(text, span.start));
        Faults {
            file: file.to_string(),
            list: vec![Fault { place, key, reason }],
        }
    })
}

/// Line and column of a byte of `text`.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// The byte where the key of `path` begins, or as much of the path as there is.
fn place(root: &Item, path: &str) -> usize {
    let (mut item, mut place) = (root, 0);
    for step in path.replace('[', ".[").split('.') {
        let index = step
            .strip_prefix('[')
            .and_then(|step| step.strip_suffix(']'));
        let (next, span) = match index.and_then(|index| index.parse::<usize>().ok()) {
            Some(index) => match item.get(index) {
                Some(entry) => (Some(entry), entry.span()),
                None => break,
            },
            None => {
                let table = item.as_table_like();
                let Some((key, value)) = table.and_then(|table| table.get_key_value(step)) else {
                    break;
                };
                (Some(value), key.span())
            }
        };
        let Some(next) = next else { break };
        (item, place) = (next, span.map_or(place, |span| span.start));
    }
    place
}

/// `text` with keys overridden; entries of a list by their `name` or number.
///
/// # Errors
///
/// A key has no place: the key and the reason.
pub fn overridden(text: &str, set: &[(String, String)]) -> Result<String, (String, String)> {
    let parsed = text.parse::<DocumentMut>();
    let mut root = parsed.map_err(|error| (String::new(), error.to_string()))?;
    for (key, value) in set {
        let fault = |reason: String| (key.clone(), reason);
        // A word that is no TOML value is a string.
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
                return Err(fault(format!("`{last}` is no table")));
            }
            last = step;
        }
        *item = Item::Value(value);
    }
    Ok(root.to_string())
}
