// SPDX-License-Identifier: GPL-2.0-only

//! TOML file as a tree in which each key and each value has its place, and text of TOML values.

use std::rc::Rc;

use toml_edit::{ImDocument, Item, TableLike, Value as Toml};

use super::fault::{Fault, FilePosition};

/// Value with its place.
#[derive(Clone, Debug)]
pub struct ValueNode {
    /// Start of the value.
    pub place: FilePosition,
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
    List(Vec<ValueNode>),
    /// Table.
    Table(Vec<TableEntry>),
    /// Value of a kind that no key accepts, with the name of the kind.
    Other(&'static str),
}

impl TomlValue {
    /// Returns the name of the kind for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(..) => "a string",
            Self::Number(_) => "a number",
            Self::Truth(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// Key with its value.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// Name of the key.
    pub key: String,
    /// Start of the key.
    pub place: FilePosition,
    /// Value of the key.
    pub node: ValueNode,
}

/// Parses `text`; `file` is used for places only.
///
/// # Errors
///
/// A fault if the text is not TOML.
pub fn parse(file: &str, text: &str) -> Result<ValueNode, Fault> {
    let source = SourceText {
        file: file.into(),
        text,
    };
    match ImDocument::parse(text) {
        Ok(document) => Ok(source.node(document.as_item(), source.place(0))),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let reason = error.message().trim().replace('\n', "; ");
            Err(Fault::new(source.place(at), "", reason))
        }
    }
}

/// Returns `text` as a TOML string.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c != '\\' && c != '"' && !c.is_control();
    if text.chars().all(plain) {
        return format!("\"{text}\"");
    }
    if !text.contains('\'') && !text.chars().any(char::is_control) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Returns `text` as a number if it is one, else as a string.
pub fn value(text: &str) -> String {
    match text.parse::<u32>() {
        Ok(number) if number.to_string() == text => text.to_string(),
        _ => quote(text),
    }
}

/// Text that is parsed.
struct SourceText<'a> {
    file: Rc<str>,
    text: &'a str,
}

impl SourceText<'_> {
    /// Returns line and column of the byte at offset `at`.
    fn place(&self, at: usize) -> FilePosition {
        let before = self
            .text
            .get(..at.min(self.text.len()))
            .unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        FilePosition {
            file: self.file.clone(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }

    /// Converts `item`; `place` is used if `item` has no span.
    fn node(&self, item: &Item, place: FilePosition) -> ValueNode {
        match item {
            Item::Value(value) => self.value(value, place),
            Item::Table(table) => self.table(table, place),
            Item::ArrayOfTables(tables) => {
                let node = |table: &toml_edit::Table| {
                    let at = table.span().map(|span| self.place(span.start));
                    self.table(table, at.unwrap_or_else(|| place.clone()))
                };
                let nodes = tables.iter().map(node).collect();
                ValueNode {
                    value: TomlValue::List(nodes),
                    place,
                }
            }
            Item::None => ValueNode {
                value: TomlValue::Other("nothing"),
                place,
            },
        }
    }

    fn value(&self, value: &Toml, place: FilePosition) -> ValueNode {
        let span = value.span();
        let place = span.clone().map_or(place, |span| self.place(span.start));
        let value = match value {
            Toml::String(text) => {
                let source = span.and_then(|span| self.text.get(span.start.saturating_add(1)..));
                let plain = source.is_some_and(|source| source.starts_with(text.value()));
                TomlValue::Text(text.value().clone(), plain)
            }
            Toml::Integer(number) => TomlValue::Number(*number.value()),
            Toml::Boolean(truth) => TomlValue::Truth(*truth.value()),
            Toml::Array(array) => {
                let node = |value| self.value(value, place.clone());
                TomlValue::List(array.iter().map(node).collect())
            }
            Toml::InlineTable(table) => return self.table(table, place),
            Toml::Float(_) => TomlValue::Other("a floating-point number"),
            Toml::Datetime(_) => TomlValue::Other("a date"),
        };
        ValueNode { place, value }
    }

    fn table(&self, table: &dyn TableLike, place: FilePosition) -> ValueNode {
        let entry = |(key, item): (&str, &Item)| {
            let span = table.key(key).and_then(|key| key.span());
            let at = span.map_or_else(|| place.clone(), |span| self.place(span.start));
            TableEntry {
                key: key.to_string(),
                node: self.node(item, at.clone()),
                place: at,
            }
        };
        ValueNode {
            value: TomlValue::Table(table.iter().map(entry).collect()),
            place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the places of all keys and values.
    fn places(node: &ValueNode, path: &str, out: &mut Vec<String>) {
        match &node.value {
            TomlValue::Table(entries) => {
                for entry in entries {
                    let path = format!("{path}.{}", entry.key);
                    let (key, value) = (&entry.place, &entry.node.place);
                    out.push(format!(
                        "{path} {}:{} {}:{}",
                        key.line, key.column, value.line, value.column
                    ));
                    places(&entry.node, &path, out);
                }
            }
            TomlValue::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    out.push(format!("{path} {}:{}", node.place.line, node.place.column));
                    places(node, &path, out);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn everything_has_its_place() {
        let text = "a = 1\n[s.\"x.y\"]\n  p = \"\u{e9}\" # c\n  h.q = [ \"z\", 2 ]\n[[s.r]]\n\
                    n = { m = true }\n[[s.r]]\n";
        let mut out = Vec::new();
        places(&parse("f", text).unwrap(), "", &mut out);
        let want = [
            ".a 1:1 1:5",
            ".s 2:2 2:2",
            ".s.x.y 2:4 2:4",
            ".s.x.y.p 3:3 3:7",
            ".s.x.y.h 4:3 4:3",
            ".s.x.y.h.q 4:5 4:9",
            ".s.x.y.h.q[0] 4:11",
            ".s.x.y.h.q[1] 4:16",
            ".s.r 5:5 5:5",
            ".s.r[0] 5:1",
            ".s.r[0].n 6:1 6:5",
            ".s.r[0].n.m 6:7 6:11",
            ".s.r[1] 7:1",
        ];
        assert_eq!(out, want);
    }

    #[test]
    fn strings_that_stand_as_they_are() {
        let text =
            "a = \"uid={1}\"\nb = 'uid={1}'\nc = \"a\\\"b\"\nd = \"a\\u0062\"\ne = \"\"\"a\"\"\"\n";
        let TomlValue::Table(entries) = parse("f", text).unwrap().value else {
            panic!();
        };
        let plain = entries
            .iter()
            .map(|entry| matches!(entry.node.value, TomlValue::Text(_, true)));
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
            let fault = parse("f", text).unwrap_err();
            assert_eq!(fault.place.to_string(), at, "{text:?}: {fault}");
            assert!(fault.reason.contains(reason), "{text:?}: {fault}");
            assert!(!fault.reason.contains('\n'), "{text:?}");
        }
    }
}
