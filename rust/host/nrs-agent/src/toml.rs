// SPDX-License-Identifier: GPL-2.0-only

//! TOML files as trees in which each key and each value has its place, and tables of keys.
//!
//! The agent, `nrsctl` and `nrs-sim` read their files with this parser.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use serde::{Serialize, Serializer};
use toml_edit::{ImDocument, Item};

/// Place in a file, shown as `FILE:LINE:COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilePosition {
    /// Name of the file.
    #[serde(serialize_with = "text")]
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Serialises a shared text.
fn text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
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

/// Fault of a file, shown as `FILE:LINE:COLUMN: KEY: REASON`.
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
    /// Creates a fault at `position` for the value of `key`.
    pub fn new(place: &FilePosition, key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
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

/// Value with its key and places.
#[derive(Clone, Debug)]
pub struct TomlNode {
    /// Name of the key; empty for elements of lists.
    pub key: String,
    /// Path of the key; empty for the whole file.
    pub path: String,
    /// Start of the key; of the value if there is no key.
    pub key_place: FilePosition,
    /// Start of the value; of the key if the value is a table with a header.
    pub place: FilePosition,
    /// Start of the value, or of the header.
    pub start: FilePosition,
    /// Name of the type in TOML.
    pub kind: &'static str,
    /// Content of the value.
    pub value: TomlValue,
}

/// Content of a value.
#[derive(Clone, Debug)]
pub enum TomlValue {
    /// String; true if its characters are in the file unescaped, one for one after the quote.
    Text(String, bool),
    /// Integer.
    Number(i64),
    /// Boolean.
    Truth(bool),
    /// List, or the tables of `[[…]]`.
    List(Vec<TomlNode>),
    /// Table.
    Table(Vec<TomlNode>),
    /// Value of a type that no key accepts.
    Other,
}

impl TomlNode {
    /// Parses `text`; `file` is used for places only.
    ///
    /// # Errors
    ///
    /// A fault if the text is not TOML.
    pub fn parse(file: &str, text: &str) -> Result<Self, Fault> {
        let source = TomlSource {
            file: file.into(),
            text,
        };
        match ImDocument::parse(text) {
            Ok(document) => Ok(source.node(String::new(), "", None, document.as_item())),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let reason = error.message().trim().replace('\n', "; ");
                Err(Fault::new(&source.position(at), "", reason))
            }
        }
    }

    /// Returns the fault that the value is wrong for `reason`.
    pub fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(&self.place, &self.path, reason)
    }

    /// Returns the fault that the key is wrong for `reason`.
    pub fn key_fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(&self.key_place, &self.path, reason)
    }

    /// Returns the fault that the value is not `want`.
    pub fn other(&self, want: &str) -> Fault {
        let kind = match self.kind {
            "string" => "a string",
            "integer" => "a number",
            "boolean" => "true or false",
            "array" | "array of tables" => "a list",
            "table" | "inline table" => "a table",
            "float" => "a floating-point number",
            _ => "a date",
        };
        self.fault(format!("is {kind}, not {want}"))
    }

    /// Returns the value of `key` if the value is a table that has the key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let entries = self.entries().ok()?;
        entries.iter().find(|entry| entry.key == key)
    }

    /// Returns the entries of a table.
    ///
    /// # Errors
    ///
    /// A fault if the value is not a table.
    pub fn entries(&self) -> Result<&[Self], Fault> {
        match &self.value {
            TomlValue::Table(entries) => Ok(entries),
            _ => Err(self.other("a table")),
        }
    }

    /// Returns the elements of a list of tables.
    ///
    /// # Errors
    ///
    /// A fault if the value is not a list.
    pub fn tables(&self) -> Result<&[Self], Fault> {
        match &self.value {
            TomlValue::List(nodes) => Ok(nodes),
            _ => Err(self.other(&format!("a list of tables: write [[{}]]", self.path))),
        }
    }

    /// Returns a string.
    ///
    /// # Errors
    ///
    /// A fault if the value is not a string.
    pub fn text(&self) -> Result<&str, Fault> {
        match &self.value {
            TomlValue::Text(text, _) => Ok(text),
            _ => Err(self.other("a string")),
        }
    }

    /// Returns a value as the text for the module: a string, a number, or 1 and 0 for true and
    /// false.
    ///
    /// # Errors
    ///
    /// A fault if the value is a list or a table, or of a type that no key accepts.
    pub fn scalar(&self) -> Result<String, Fault> {
        match &self.value {
            TomlValue::Text(text, _) => Ok(text.clone()),
            TomlValue::Number(number) => Ok(number.to_string()),
            TomlValue::Truth(truth) => Ok(u8::from(*truth).to_string()),
            _ => Err(self.other("a string or a number")),
        }
    }

    /// Returns a boolean: `true`, `false`, 1 or 0.
    ///
    /// # Errors
    ///
    /// A fault if the value is another one.
    pub fn truth(&self) -> Result<bool, Fault> {
        match self.value {
            TomlValue::Truth(truth) => Ok(truth),
            TomlValue::Number(number @ 0..=1) => Ok(number == 1),
            _ => Err(self.fault("is not true or false")),
        }
    }

    /// Returns a number in `range`.
    ///
    /// # Errors
    ///
    /// A fault if the value is not such a number.
    pub fn number(&self, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let TomlValue::Number(number) = self.value else {
            return Err(self.other("a number"));
        };
        let found = u64::try_from(number).ok();
        let found = found.filter(|number| range.contains(number));
        let (low, high) = range.into_inner();
        found.ok_or_else(|| self.fault(format!("{number} is out of range ({low} to {high})")))
    }
}

/// Returns line and column of the byte at offset `at` in `text`.
pub fn line_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Text that is parsed.
struct TomlSource<'a> {
    file: Arc<str>,
    text: &'a str,
}

impl TomlSource<'_> {
    /// Returns the place of the byte at offset `at`.
    fn position(&self, at: usize) -> FilePosition {
        let (line, column) = line_column(self.text, at);
        FilePosition {
            file: self.file.clone(),
            line,
            column,
        }
    }

    /// Converts `item`, whose key is `name` at the offset `key`.
    fn node(&self, path: String, name: &str, key: Option<usize>, item: &Item) -> TomlNode {
        let start = item.span().map(|span| span.start).or(key).unwrap_or(0);
        let key = key.unwrap_or(start);
        let elements = |items: &mut dyn Iterator<Item = Item>| {
            let items = items.enumerate();
            let node = |(index, item)| self.node(format!("{path}[{index}]"), "", None, &item);
            TomlValue::List(items.map(node).collect())
        };
        let value = if let Some(table) = item.as_table_like() {
            let entry = |(name, item): (&str, &Item)| {
                let span = table.key(name).and_then(|key| key.span());
                let path = match path.is_empty() {
                    true => name.to_owned(),
                    false => format!("{path}.{name}"),
                };
                self.node(path, name, Some(span.map_or(key, |span| span.start)), item)
            };
            TomlValue::Table(table.iter().map(entry).collect())
        } else if let Some(tables) = item.as_array_of_tables() {
            elements(&mut tables.iter().cloned().map(Item::Table))
        } else if let Some(array) = item.as_array() {
            elements(&mut array.iter().cloned().map(Item::Value))
        } else if let Some(text) = item.as_str() {
            let source = self.text.get(start.saturating_add(1)..);
            TomlValue::Text(
                text.into(),
                source.is_some_and(|source| source.starts_with(text)),
            )
        } else if let Some(number) = item.as_integer() {
            TomlValue::Number(number)
        } else {
            item.as_bool().map_or(TomlValue::Other, TomlValue::Truth)
        };
        TomlNode {
            key: name.to_owned(),
            path,
            key_place: self.position(key),
            place: self.position(if item.is_value() { start } else { key }),
            start: self.position(start),
            kind: item.type_name(),
            value,
        }
    }
}

/// Key of a table of kind `T`; a row of a reference.
#[derive(Debug)]
pub struct TomlKey<T, S = ()> {
    /// Table of the key.
    pub table: T,
    /// Name of the key.
    pub name: &'static str,
    /// Accepted values.
    pub takes: &'static str,
    /// Effect of a missing key.
    pub default: &'static str,
    /// Meaning of the key.
    pub about: &'static str,
    /// Setter of the value.
    pub set: S,
}

impl<T: Copy + PartialEq, S> TomlKey<T, S> {
    /// Returns the reference of `keys` in Markdown, for `tables` with their headings.
    pub fn reference(keys: &[Self], tables: &[(T, &str)]) -> String {
        let mut out = String::new();
        for (table, title) in tables {
            out += &format!("\n### `{title}`\n\n");
            out += "| key | takes | without it | meaning |\n|---|---|---|---|\n";
            for key in keys.iter().filter(|key| key.table == *table) {
                let Self {
                    name,
                    takes,
                    default,
                    about,
                    ..
                } = key;
                out += &format!("| `{name}` | {takes} | {default} | {about} |\n");
            }
        }
        out
    }

    /// Returns a key that occurs twice in `keys`, or breaks the reference.
    pub fn wrong(keys: &[Self]) -> Option<&'static str> {
        let is_wrong = |(index, key): &(usize, &Self)| {
            let mut before = keys.iter().take(*index);
            let twice = before.any(|other| other.table == key.table && other.name == key.name);
            twice || key.takes.contains('|') || key.about.contains('|')
        };
        let mut keys = keys.iter().enumerate();
        keys.find(is_wrong).map(|(_, key)| key.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the places of all keys and values.
    fn places(node: &TomlNode, out: &mut Vec<String>) {
        let (TomlValue::Table(nodes) | TomlValue::List(nodes)) = &node.value else {
            return;
        };
        for node in nodes {
            let all = [&node.key_place, &node.place, &node.start];
            let all = all.map(|place| format!("{}:{}", place.line, place.column));
            out.push(format!("{} {}", node.path, all.join(" ")));
            places(node, out);
        }
    }

    #[test]
    fn everything_has_its_place() {
        let text = "a = 1\n[s.\"x.y\"]\n  p = \"\u{e9}\" # c\n  h.q = [ \"z\", 2 ]\n[[s.r]]\n\
                    n = { m = true }\n[[s.r]]\n";
        let mut out = Vec::new();
        places(&TomlNode::parse("f", text).unwrap(), &mut out);
        let want = [
            "a 1:1 1:5 1:5",
            "s 2:2 2:2 2:2",
            "s.x.y 2:4 2:4 2:1",
            "s.x.y.p 3:3 3:7 3:7",
            "s.x.y.h 4:3 4:3 4:3",
            "s.x.y.h.q 4:5 4:9 4:9",
            "s.x.y.h.q[0] 4:11 4:11 4:11",
            "s.x.y.h.q[1] 4:16 4:16 4:16",
            "s.r 5:5 5:5 5:1",
            "s.r[0] 5:1 5:1 5:1",
            "s.r[0].n 6:1 6:5 6:5",
            "s.r[0].n.m 6:7 6:11 6:11",
            "s.r[1] 7:1 7:1 7:1",
        ];
        assert_eq!(out, want);
    }

    #[test]
    fn strings_that_stand_as_they_are() {
        let text =
            "a = \"uid={1}\"\nb = 'uid={1}'\nc = \"a\\\"b\"\nd = \"a\\u0062\"\ne = \"\"\"a\"\"\"\n";
        let file = TomlNode::parse("f", text).unwrap();
        let entries = file.entries().unwrap().iter();
        let plain = entries.map(|entry| matches!(entry.value, TomlValue::Text(_, true)));
        assert_eq!(plain.collect::<Vec<_>>(), [true, true, false, false, false]);
    }

    #[test]
    fn what_is_no_toml() {
        for (text, at, reason) in [
            ("a = \n", "f:1:5", "expected"),
            ("a = 1\na = 2\n", "f:2:1", "duplicate key"),
            ("[s]\n[s]\n", "f:2:1", "duplicate key"),
            ("a = \"x\nb\"\n", "f:1:7", "invalid basic string"),
            ("\u{e9} = 1\n", "f:1:1", "invalid"),
        ] {
            let fault = TomlNode::parse("f", text).unwrap_err();
            assert_eq!(fault.place.to_string(), at, "{text:?}: {fault}");
            assert!(fault.reason.contains(reason), "{text:?}: {fault}");
            assert!(!fault.reason.contains('\n'), "{text:?}");
        }
    }
}
