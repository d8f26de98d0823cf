// SPDX-License-Identifier: GPL-2.0-only

//! What is wrong with a scenario, and where.
//!
//! A *path* names a key as in `job[1].io[0].size`; entries of a list count from 0. The TOML parser tells
//! places in the text only, and checks across keys know paths only; a tree of all keys and values with
//! their places leads from one to the other.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1; 0 when the place is not known.
    pub line: usize,
    /// In characters from 1; 0 when the place is not known.
    pub column: usize,
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

impl std::fmt::Display for Faults {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, fault) in self.list.iter().enumerate() {
            let line = if n == 0 { "" } else { "\n" };
            write!(to, "{line}{}:", self.file)?;
            if fault.line > 0 {
                write!(to, "{}:{}:", fault.line, fault.column)?;
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
    /// One fault of a file.
    pub fn one(file: &str, fault: Fault) -> Self {
        Self {
            file: file.to_string(),
            list: vec![fault],
        }
    }

    /// Faults found by their paths, with their places in `text`.
    pub fn located(file: &str, text: &str, found: Vec<(String, String)>) -> Self {
        let tree = toml::from_str::<Node>(text).ok();
        let list = found
            .into_iter()
            .map(|(key, reason)| {
                let offset = tree.as_ref().map(|tree| tree.place(&key));
                let (line, column) = offset.map_or((0, 0), |offset| position(text, offset));
                Fault {
                    line,
                    column,
                    key,
                    reason,
                }
            })
            .collect();
        Self {
            file: file.to_string(),
            list,
        }
    }
}

impl Fault {
    /// About a file as a whole.
    pub fn of_file(reason: String) -> Self {
        Self::of_key(String::new(), reason)
    }

    /// About a key whose place is not known.
    pub fn of_key(key: String, reason: String) -> Self {
        Self {
            line: 0,
            column: 0,
            key,
            reason,
        }
    }

    /// What the TOML parser says.
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let reason = error.message().trim().replace('\n', "; ");
        let Some(span) = error.span() else {
            return Self::of_file(reason);
        };
        let (line, column) = position(text, span.start);
        // A text that is no TOML has no tree, and its keys no paths.
        let missing = reason
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'));
        let mut key = toml::from_str::<Node>(text)
            .map(|tree| tree.path(span.start, missing.is_some()))
            .unwrap_or_default();
        if let Some(missing) = missing {
            key = join(&key, missing);
        }
        Self {
            line,
            column,
            key,
            reason,
        }
    }
}

/// `outer.key`, or `key` at the top.
fn join(outer: &str, key: &str) -> String {
    if outer.is_empty() {
        key.to_string()
    } else {
        format!("{outer}.{key}")
    }
}

/// Line and column of a byte of `text`.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

/// A key or an entry of a list, its place and what is in it.
struct Child {
    /// The key, or `[n]`.
    step: String,
    /// Where it begins.
    from: usize,
    value: Node,
}

/// A value of the document.
enum Node {
    /// Of tables and lists.
    Inner(Vec<Child>),
    /// Anything else.
    Leaf,
}

impl Node {
    fn children(&self) -> &[Child] {
        match self {
            Self::Inner(children) => children,
            Self::Leaf => &[],
        }
    }

    /// The path of the key whose value the place is in: the last one that begins at or before it. With
    /// `tables`, of the table or list.
    fn path(&self, offset: usize, tables: bool) -> String {
        self.last_before(offset, tables)
            .map(|(_, path)| path)
            .unwrap_or_default()
    }

    fn last_before(&self, offset: usize, tables: bool) -> Option<(usize, String)> {
        let mut best: Option<(usize, String)> = None;
        for child in self.children() {
            let own = (child.from <= offset && (!tables || matches!(child.value, Self::Inner(_))))
                .then(|| (child.from, String::new()));
            let inner = child.value.last_before(offset, tables);
            let Some((from, rest)) = inner.max(own) else {
                continue;
            };
            if best.as_ref().is_none_or(|(best, _)| *best <= from) {
                let path = if rest.is_empty() || rest.starts_with('[') {
                    format!("{}{rest}", child.step)
                } else {
                    format!("{}.{rest}", child.step)
                };
                best = Some((from, path));
            }
        }
        best
    }

    /// The place of a path, or of as much of it as is there.
    fn place(&self, path: &str) -> usize {
        let mut node = self;
        let mut place = 0;
        let path = path.replace('[', ".[");
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let Some(child) = node.children().iter().find(|child| child.step == step) else {
                break;
            };
            place = child.from;
            node = &child.value;
        }
        place
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut children = Vec::new();
                while let Some(entry) = list.next_element::<Spanned<Node>>()? {
                    let span = entry.span();
                    children.push(Child {
                        step: format!("[{}]", children.len()),
                        from: span.start,
                        value: entry.into_inner(),
                    });
                }
                Ok(Node::Inner(children))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Node, A::Error> {
                let mut children = Vec::new();
                while let Some(key) = table.next_key::<Spanned<String>>()? {
                    let value: Node = table.next_value()?;
                    let from = key.span().start;
                    children.push(Child {
                        step: key.into_inner(),
                        from,
                        value,
                    });
                }
                Ok(Node::Inner(children))
            }
        }

        from.deserialize_any(Any)
    }
}

/// `text` with keys overridden; entries of a list by their `name` or number.
///
/// # Errors
///
/// A key has no place, with the reason.
pub fn overridden(text: &str, set: &[(String, String)]) -> Result<String, (String, String)> {
    let mut root: toml::Table =
        toml::from_str(text).map_err(|error| (String::new(), error.to_string()))?;
    for (key, value) in set {
        let fault = |reason: String| (key.clone(), reason);
        // A word that is no TOML value is a string.
        let value = toml::from_str::<toml::Table>(&format!("v = {value}"))
            .ok()
            .and_then(|mut table| table.remove("v"))
            .unwrap_or_else(|| toml::Value::String(value.clone()));
        let steps: Vec<&str> = key.split('.').collect();
        let (last, inner) = steps.split_last().ok_or_else(|| fault("is empty".into()))?;
        let mut table = &mut root;
        let mut rest = inner.iter();
        while let Some(step) = rest.next() {
            let child = table
                .entry(*step)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            let entry = match child {
                toml::Value::Array(list) => {
                    let which = rest
                        .next()
                        .ok_or_else(|| fault(format!("`{step}` needs a name or a number")))?;
                    let at = list
                        .iter()
                        .position(|e| e.get("name").and_then(toml::Value::as_str) == Some(which))
                        .or_else(|| which.parse().ok())
                        .filter(|at| *at < list.len())
                        .ok_or_else(|| fault(format!("`{step}` has no entry `{which}`")))?;
                    &mut list[at]
                }
                other => other,
            };
            table = entry
                .as_table_mut()
                .ok_or_else(|| fault(format!("`{step}` is no table")))?;
        }
        table.insert((*last).to_string(), value);
    }
    toml::to_string(&root).map_err(|error| (String::new(), error.to_string()))
}
