// SPDX-License-Identifier: GPL-2.0-only

//! Reader of the tables and values of files, which collects all faults.

use std::borrow::Cow;

use crate::accounts::Accounts;
use crate::names::near;

use super::document::{TableEntry, TomlValue, ValueNode};
use super::fault::{Fault, FilePosition};
use super::keys::Table;

/// Returns the entry of `key`.
pub fn at<'a>(entries: &'a [TableEntry], key: &str) -> Option<&'a TableEntry> {
    entries.iter().find(|entry| entry.key == key)
}

/// Reader that collects faults.
pub struct FileReader<'r> {
    /// Users and groups of the machine.
    pub accounts: &'r Accounts,
    /// Faults, without duplicates.
    pub faults: Vec<Fault>,
    /// Number of faults found, including duplicates.
    pub found: usize,
}

impl FileReader<'_> {
    /// Adds a fault.
    pub fn add(&mut self, place: &FilePosition, key: &str, reason: impl Into<String>) {
        self.found += 1;
        let fault = Fault::new(place.clone(), key, reason);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Adds the fault that `node` is not of the wanted kind.
    fn other<T>(&mut self, path: &str, node: &ValueNode, want: &str) -> Option<T> {
        let reason = format!("is {}, not {want}", node.value.kind());
        self.add(&node.place, path, reason);
        None
    }

    /// Returns the value of `found`; an error is added as a fault.
    pub fn take<T>(
        &mut self,
        place: &FilePosition,
        path: &str,
        found: Result<T, impl Into<String>>,
    ) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(reason) => {
                self.add(place, path, reason);
                None
            }
        }
    }

    /// Adds the fault that `entry` at `path` is not one of the keys `known`.
    pub fn unknown<'a>(
        &mut self,
        path: &str,
        entry: &TableEntry,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let reason = match near(&entry.key, known).first() {
            Some(other) => format!("unknown key; did you mean `{other}`?"),
            None => "unknown key".to_string(),
        };
        self.add(&entry.place, &format!("{path}.{}", entry.key), reason);
    }

    /// Returns the entries of a table; keys that are not in `table` are faults.
    pub fn table<'a>(
        &mut self,
        path: &str,
        node: &'a ValueNode,
        table: Table,
    ) -> Option<&'a [TableEntry]> {
        let entries = self.free(path, node)?;
        for entry in entries {
            if !table.names().any(|name| name == entry.key) {
                let path = if path.is_empty() { "the file" } else { path };
                self.unknown(path, entry, table.names());
            }
        }
        let mut required = table.required().iter();
        if let Some(key) = required.find(|key| at(entries, key).is_none()) {
            self.add(&node.place, path, format!("missing key `{key}`"));
            return None;
        }
        Some(entries)
    }

    /// Returns the entries of a table with arbitrary keys.
    pub fn free<'a>(&mut self, path: &str, node: &'a ValueNode) -> Option<&'a [TableEntry]> {
        match &node.value {
            TomlValue::Table(entries) => Some(entries),
            _ => self.other(path, node, "a table"),
        }
    }

    /// Returns the elements of a list of tables.
    pub fn list<'a>(&mut self, path: &str, node: &'a ValueNode) -> &'a [ValueNode] {
        match &node.value {
            TomlValue::List(nodes) => nodes,
            _ => {
                let want = format!("a list of tables: write [[{path}]]");
                self.other(path, node, &want).unwrap_or_default()
            }
        }
    }

    /// Returns a value as the text for the module: a string, a number, or 1 and 0 for true and
    /// false.
    pub fn scalar(&mut self, path: &str, node: &ValueNode) -> Option<String> {
        match &node.value {
            TomlValue::Text(text, _) => Some(text.clone()),
            TomlValue::Number(number) => Some(number.to_string()),
            TomlValue::Truth(truth) => Some(u8::from(*truth).to_string()),
            _ => self.other(path, node, "a string or a number"),
        }
    }

    /// Returns `text`, a value of `parameter`, with numbers in place of names of users and groups.
    pub fn numbers<'a>(
        &mut self,
        place: &FilePosition,
        path: &str,
        parameter: &str,
        text: &'a str,
    ) -> Option<Cow<'a, str>> {
        let found = self.accounts.numbers(parameter, text);
        self.take(place, path, found.map_err(|failure| failure.message))
    }

    /// Returns a string.
    pub fn text<'a>(&mut self, path: &str, node: &'a ValueNode) -> Option<&'a str> {
        match &node.value {
            TomlValue::Text(text, _) => Some(text),
            _ => self.other(path, node, "a string"),
        }
    }

    /// Returns a boolean: `true`, `false`, 1 or 0.
    pub fn truth(&mut self, path: &str, node: &ValueNode) -> Option<bool> {
        match node.value {
            TomlValue::Truth(truth) => Some(truth),
            TomlValue::Number(0) => Some(false),
            TomlValue::Number(1) => Some(true),
            _ => self.take(&node.place, path, Err("is not true or false")),
        }
    }

    /// Returns a number from `low` to `high`.
    pub fn number(&mut self, path: &str, node: &ValueNode, low: u64, high: u64) -> Option<u64> {
        let TomlValue::Number(number) = node.value else {
            return self.other(path, node, "a number");
        };
        let found = u64::try_from(number).ok();
        let found = found.filter(|number| (low..=high).contains(number));
        let found = found.ok_or_else(|| format!("{number} is out of range ({low} to {high})"));
        self.take(&node.place, path, found)
    }
}
