// SPDX-License-Identifier: GPL-2.0-only

//! Structured text, by the same calls as YAML for people or as JSON for programs.
//!
//! - A *document* is a map ([`Report::map`]) or a list of maps ([`Report::list`]).
//! - A *field* is a key with a number, a word, a quoted text, a short map on the same line, or a
//!   list of maps.
//!
//! ```text
//!   list(entry(text("group"), field("free"), entries("clients", entry(text("client")))))
//!
//!   - group: "a"                          [{"group":"a","free":5,"clients":[{"client":"b"}]}]
//!     free: 5
//!     clients:
//!     - client: "b"
//! ```
//!
//! A document of JSON takes no line end; it may be a part of another one ([`Report::part`]). Texts
//! are given as [`escape`](crate::sched::key::escape) writes them; JSON has `\u00NN` for `\xNN`.

use crate::sched::{key::escape, statistics::Stats};
use core::{
    fmt::{self, Display, Write},
    mem::replace,
};

/// Format of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportFormat {
    Yaml,
    Json,
}

/// Writer of a structured text.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    format: ReportFormat,
    /// Name of the part that has not begun.
    part: Option<&'static str>,
    /// True if nothing precedes in the map or list.
    is_first: bool,
    /// True in a map on one line.
    is_inline: bool,
    /// True if the next key begins an element of a list.
    is_element: bool,
    /// True if the next list has a key before it.
    has_key: bool,
    /// Columns before a key.
    indent: usize,
}

impl<'a> Report<'a> {
    fn new(out: &'a mut dyn Write, format: ReportFormat) -> Self {
        Self {
            out,
            format,
            part: None,
            is_first: true,
            is_inline: false,
            is_element: false,
            has_key: false,
            indent: 0,
        }
    }

    /// Creates a report in YAML.
    pub fn yaml(out: &'a mut dyn Write) -> Self {
        Self::new(out, ReportFormat::Yaml)
    }

    /// Creates a report in JSON.
    pub fn json(out: &'a mut dyn Write) -> Self {
        Self::new(out, ReportFormat::Json)
    }

    /// Creates a report of fields on one line, without braces and line end.
    pub fn line(out: &'a mut dyn Write) -> Self {
        Self {
            is_inline: true,
            ..Self::yaml(out)
        }
    }

    /// Writes a map by `f`.
    pub fn map(&mut self, f: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.between('{', '}', f)
    }

    /// Writes a list by `f`, which writes the elements by [`Self::entry`].
    pub fn list(&mut self, f: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        let has_key = self.has_key;
        self.between('[', ']', |list| {
            f(list)?;
            match (list.format, list.is_first) {
                (ReportFormat::Yaml, true) if has_key => list.out.write_str(" []\n"),
                (ReportFormat::Yaml, true) => list.out.write_str("[]\n"),
                _ => Ok(()),
            }
        })
    }

    /// Writes a map by `f` as an element of a list.
    pub fn entry(&mut self, f: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        let is_first = replace(&mut self.is_first, false);
        match self.format {
            ReportFormat::Json if !is_first => self.out.write_char(',')?,
            // The line of the key of the list ends.
            ReportFormat::Yaml if is_first && replace(&mut self.has_key, false) => {
                self.out.write_char('\n')?;
            }
            _ => {}
        }
        self.is_element = true;
        self.indent = self.indent.saturating_add(INDENT);
        let done = self.map(f);
        self.indent = self.indent.saturating_sub(INDENT);
        done
    }

    /// Calls `f` to write a document that becomes the field `name` of a map in JSON. If `f` writes
    /// nothing, there is no field.
    pub fn part<R>(&mut self, name: &'static str, f: impl FnOnce(&mut Self) -> R) -> R {
        self.part = Some(name);
        let done = f(self);
        self.part = None;
        done
    }

    /// Writes a number or a truth value.
    pub fn field(&mut self, key: &str, value: impl Display) -> fmt::Result {
        self.key(key)?;
        self.value(format_args!("{value}"))
    }

    /// Writes a word, which needs no quotes in YAML.
    pub fn word(&mut self, key: &str, word: &str) -> fmt::Result {
        self.key(key)?;
        match self.format {
            ReportFormat::Yaml => self.value(format_args!("{word}")),
            ReportFormat::Json => self.value(format_args!("\"{word}\"")),
        }
    }

    /// Writes a text in quotes, in which `text` is escaped already.
    pub fn text(&mut self, key: &str, text: impl Display) -> fmt::Result {
        self.key(key)?;
        match self.format {
            ReportFormat::Yaml => self.value(format_args!("\"{text}\"")),
            ReportFormat::Json => {
                self.out.write_char('"')?;
                write!(JsonText::new(self.out), "{text}")?;
                self.out.write_char('"')
            }
        }
    }

    /// Writes a number whose key is quoted in YAML, too.
    pub fn quoted(&mut self, key: impl Display, value: u64) -> fmt::Result {
        match self.format {
            ReportFormat::Yaml => self.key(format_args!("\"{key}\""))?,
            ReportFormat::Json => self.key(key)?,
        }
        self.value(format_args!("{value}"))
    }

    /// Writes `bytes` as a text in quotes.
    pub fn name(&mut self, key: &str, bytes: &[u8]) -> fmt::Result {
        self.text(key, Escaped(bytes))
    }

    /// Writes a map by `f`, on one line in YAML.
    pub fn inline(&mut self, key: &str, f: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.key(key)?;
        if self.format == ReportFormat::Yaml {
            self.out.write_str(" { ")?;
        }
        self.is_inline = true;
        self.map(f)?;
        self.is_inline = false;
        match self.format {
            ReportFormat::Yaml => self.out.write_str(" }\n"),
            ReportFormat::Json => Ok(()),
        }
    }

    /// Writes a list of maps by `f`, which writes the elements by [`Self::entry`].
    pub fn entries(&mut self, key: &str, f: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.key(key)?;
        self.has_key = true;
        let done = self.list(f);
        self.has_key = false;
        done
    }

    /// Writes the rows of `stats`, except those in `placed`, which are written elsewhere.
    pub fn stats(&mut self, stats: &impl Stats, placed: &[&str]) -> fmt::Result {
        for (row, value) in stats.pairs() {
            if !placed.contains(&row.name) {
                self.field(row.name, value)?;
            }
        }
        Ok(())
    }

    /// Writes a map or a list, with these characters around it in JSON.
    fn between(
        &mut self,
        open: char,
        close: char,
        f: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        if let Some(part) = self.part.take() {
            self.key(part)?;
        }
        let is_json = self.format == ReportFormat::Json;
        if is_json {
            self.out.write_char(open)?;
        }
        self.is_first = true;
        f(self)?;
        self.is_first = false;
        match is_json {
            true => self.out.write_char(close),
            false => Ok(()),
        }
    }

    fn key(&mut self, key: impl Display) -> fmt::Result {
        let is_first = replace(&mut self.is_first, false);
        if self.format == ReportFormat::Json {
            let comma = if is_first { "" } else { "," };
            return write!(self.out, "{comma}\"{key}\":");
        }
        if self.is_inline {
            let comma = if is_first { "" } else { ", " };
            return write!(self.out, "{comma}{key}:");
        }
        let (columns, dash) = match replace(&mut self.is_element, false) {
            true => (self.indent.saturating_sub(INDENT), "- "),
            false => (self.indent, ""),
        };
        write!(self.out, "{:columns$}{dash}{key}:", "")
    }

    fn value(&mut self, value: fmt::Arguments<'_>) -> fmt::Result {
        match (self.format, self.is_inline) {
            (ReportFormat::Json, _) => self.out.write_fmt(value),
            (ReportFormat::Yaml, true) => write!(self.out, " {value}"),
            (ReportFormat::Yaml, false) => writeln!(self.out, " {value}"),
        }
    }
}

/// Columns of an element of a list before its keys.
const INDENT: usize = 2;

/// Bytes that are shown as [`escape`] writes them.
struct Escaped<'a>(&'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, f)
    }
}

/// Writer that turns escapes of YAML into those of JSON.
struct JsonText<'a> {
    out: &'a mut dyn Write,
    is_escaped: bool,
}

impl<'a> JsonText<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            is_escaped: false,
        }
    }
}

impl Write for JsonText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| self.write_char(char))
    }

    fn write_char(&mut self, char: char) -> fmt::Result {
        let was_escaped = self.is_escaped;
        self.is_escaped = char == '\\' && !was_escaped;
        match char {
            'x' if was_escaped => self.out.write_str("u00"),
            _ => self.out.write_char(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(report: &mut Report<'_>) -> fmt::Result {
        report.list(|list| {
            for free in [5, 6] {
                list.entry(|group| {
                    group.name("group", b"a\"\x01\\x")?;
                    group.field("free", free)?;
                    group.word("state", "on")?;
                    group.inline("reserves", |map| {
                        map.field("x", 1)?;
                        map.field("y", 2)
                    })?;
                    group.entries("clients", |list| {
                        for name in ["c", "d"].into_iter().take(free - 5) {
                            list.entry(|client| {
                                client.text("client", name)?;
                                client.field("unmet", true)
                            })?;
                        }
                        Ok(())
                    })?;
                    group.field("after", 0)
                })?;
            }
            Ok(())
        })
    }

    #[test]
    fn both_formats() {
        let mut out = String::new();
        example(&mut Report::yaml(&mut out)).unwrap();
        let want = "- group: \"a\\\"\\x01\\\\x\"\n  free: 5\n  state: on\n  \
                    reserves: { x: 1, y: 2 }\n  clients: []\n  after: 0\n\
                    - group: \"a\\\"\\x01\\\\x\"\n  free: 6\n  state: on\n  \
                    reserves: { x: 1, y: 2 }\n  clients:\n  - client: \"c\"\n    unmet: true\n  \
                    after: 0\n";
        assert_eq!(out, want);
        let mut out = String::new();
        let mut report = Report::json(&mut out);
        let document = report.map(|report| {
            report.part("absent", |_| Ok(()))?;
            report.part("groups", example)?;
            report.part("none", |report| report.list(|_| Ok(())))
        });
        document.unwrap();
        let group = |free, clients| {
            format!(
                "{{\"group\":\"a\\\"\\u0001\\\\x\",\"free\":{free},\"state\":\"on\",\
                 \"reserves\":{{\"x\":1,\"y\":2}},\"clients\":[{clients}],\"after\":0}}"
            )
        };
        let (one, other) = (group(5, ""), group(6, "{\"client\":\"c\",\"unmet\":true}"));
        assert_eq!(out, format!("{{\"groups\":[{one},{other}],\"none\":[]}}"));
    }

    #[test]
    fn empty_documents() {
        for (yaml, want) in [(true, "[]\n"), (false, "[]")] {
            let mut out = String::new();
            let mut report = match yaml {
                true => Report::yaml(&mut out),
                false => Report::json(&mut out),
            };
            report.list(|_| Ok(())).unwrap();
            assert_eq!(out, want);
        }
    }
}
