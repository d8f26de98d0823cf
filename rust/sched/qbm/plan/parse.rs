// SPDX-License-Identifier: GPL-2.0-only

//! Reading the text of a plan.

use super::{
    parts::{Group, Parts},
    settings::{Promise, Set, Setting, Settings},
    tune, By, Plan, PlanError, TEXT_MAX,
};
use crate::sched::error::Code;

/// Whether `character` separates words.
const fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

/// `line` without its comment: a `#` at the start of a word and all that follows.
fn without_comment(line: &str) -> &str {
    let mut before = b' ';
    for (at, byte) in line.bytes().enumerate() {
        if byte == b'#' && matches!(before, b' ' | b'\t' | b';') {
            return line.get(..at).unwrap_or_default();
        }
        before = byte;
    }
    line
}

/// The words of `statement`.
fn words(statement: &str) -> impl Iterator<Item = &str> {
    statement.split(is_blank).filter(|word| !word.is_empty())
}

impl Plan {
    /// Reads a plan; see [`crate::sched::qbm::plan`] for the grammar; sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: what the grammar does not take, numbers that are out of range or do not fit together, a
    ///   character that does not print.
    /// - `ENOENT`: a group that no line before makes.
    /// - `EEXIST`: a group, a target or a client for the second time.
    /// - `ENAMETOOLONG`: a name with too many characters.
    /// - `ENOSPC`: a text of more than [`TEXT_MAX`] bytes, too many groups, lines of clients or ranges of
    ///   addresses.
    /// - `ENOMEM`: the allocator had none.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > TEXT_MAX {
            let reason = "the text is longer than 262144 bytes";
            return Err(PlanError::new(0, Code::NoSpace, reason));
        }
        let mut read = Read {
            parts: Parts::new(),
            has_by: false,
            has_default: false,
            tuned: 0,
            tuned_line: 0,
        };
        let one_line = !text.trim_end().contains('\n');
        for (line, content) in (1u32..).zip(text.split('\n')) {
            let content = content.strip_suffix('\r').unwrap_or(content);
            for (place, statement) in (1u32..).zip(without_comment(content).split(';')) {
                let line = if one_line { place } else { line };
                let printable = |b: u8| b.is_ascii_graphic() || is_blank(char::from(b));
                if !statement.bytes().all(printable) {
                    return Err(PlanError::invalid(line, "a character that does not print"));
                }
                read.statement(line, statement)?;
            }
        }
        if let Some(reason) = tune::wrong(&read.parts.tuning) {
            return Err(PlanError::invalid(read.tuned_line, reason));
        }
        read.parts.check()
    }
}

/// A text that is being read.
struct Read {
    parts: Parts,
    has_by: bool,
    has_default: bool,
    /// Bits of what `tune` has set.
    tuned: u32,
    /// The last line with `tune`.
    tuned_line: u32,
}

impl Read {
    fn statement(&mut self, line: u32, statement: &str) -> Result<(), PlanError> {
        let mut words = words(statement);
        match words.next() {
            None => Ok(()),
            Some("by") => self.by(line, words),
            Some("tune") => self.tune(line, words),
            Some("default") => self.default(line, words),
            Some("group") => self.group(line, words),
            Some("client") => self.client(line, words),
            Some(_) => {
                let reason = "expected by, tune, default, group or client";
                Err(PlanError::invalid(line, reason))
            }
        }
    }

    fn by<'a>(
        &mut self,
        line: u32,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        if self.has_by {
            return Err(PlanError::invalid(line, "by is there twice"));
        }
        if !self.parts.clients.as_slice().is_empty() {
            return Err(PlanError::invalid(line, "by has to be before all clients"));
        }
        let by = By::parse(words.next().unwrap_or_default());
        self.parts.by = by.map_err(|error| PlanError::invalid(line, error.reason))?;
        self.has_by = true;
        match words.next() {
            None => Ok(()),
            Some(_) => Err(PlanError::invalid(
                line,
                "expected nothing after by and its word",
            )),
        }
    }

    fn tune<'a>(
        &mut self,
        line: u32,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        let mut none = true;
        for word in words {
            let (name, value) = pair(line, word)?;
            let key = tune::Key::parse(name).ok_or(PlanError::invalid(
                line,
                "tune has period, fast, slow, idle, floor, grant, sleep, high, low, raise, lower, headroom",
            ))?;
            if self.tuned & key.bit() != 0 {
                return Err(twice(line));
            }
            self.tuned |= key.bit();
            let set = key.set(&mut self.parts.tuning, value);
            set.map_err(|reason| PlanError::invalid(line, reason))?;
            none = false;
        }
        self.tuned_line = line;
        if none {
            return Err(PlanError::invalid(line, "tune sets nothing"));
        }
        Ok(())
    }

    fn default<'a>(
        &mut self,
        line: u32,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        if self.has_default {
            return Err(PlanError::invalid(line, "default is there twice"));
        }
        let mut pairs = Pairs::new(line);
        for word in words {
            pairs.set(word, &mut self.parts.defaults)?;
        }
        if self.parts.defaults == Promise::NONE {
            return Err(PlanError::invalid(line, "default sets nothing"));
        }
        self.has_default = true;
        self.parts.defaults_line = line;
        Ok(())
    }

    fn group<'a>(
        &mut self,
        line: u32,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        let name = name(line, words.next(), "the group's name is missing")?;
        let mut settings = Settings::default();
        let mut pairs = Pairs::new(line);
        for word in words {
            pairs.set(word, &mut settings)?;
        }
        self.parts.add_group(Group::new(name, settings, line)?)
    }

    fn client<'a>(
        &mut self,
        line: u32,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        let name = name(line, words.next(), "the client's name is missing")?;
        let mut promise = Promise::NONE;
        let mut group = None;
        let mut pairs = Pairs::new(line);
        for word in words {
            let Some(wanted) = word.strip_prefix("group=") else {
                pairs.set(word, &mut promise)?;
                continue;
            };
            if group.is_some() {
                return Err(twice(line));
            }
            group = Some(self.parts.group_named(wanted).ok_or(PlanError::new(
                line,
                Code::NoEntry,
                "no line before this one makes that group",
            ))?);
        }
        self.parts.add_client(name, group, promise, line)
    }
}

/// The first word after `group` or `client`.
fn name<'a>(line: u32, word: Option<&'a str>, missing: &'static str) -> Result<&'a str, PlanError> {
    let word = word.ok_or(PlanError::invalid(line, missing))?;
    // A pair in its place.
    match word.split_once('=') {
        Some((key, _)) if Setting::parse(key).is_some() || key == "group" => {
            Err(PlanError::invalid(line, missing))
        }
        _ => Ok(word),
    }
}

/// Something for the second time.
const fn twice(line: u32) -> PlanError {
    PlanError::invalid(line, "a setting is there twice")
}

/// The parts of `NAME=VALUE`.
fn pair(line: u32, word: &str) -> Result<(&str, &str), PlanError> {
    let refused = |reason| Err(PlanError::invalid(line, reason));
    match word.split_once('=') {
        None => refused("expected NAME=VALUE"),
        Some((_, "")) => refused("there is no value after '='"),
        Some(pair) => Ok(pair),
    }
}

/// The pairs of a line.
struct Pairs {
    line: u32,
    /// Bits of those that are set, by their places in [`Setting::ALL`].
    seen: u32,
}

impl Pairs {
    const fn new(line: u32) -> Self {
        Self { line, seen: 0 }
    }

    /// Sets in `to` what `word` says.
    fn set<T: Set>(&mut self, word: &str, to: &mut T) -> Result<(), PlanError> {
        let (name, value) = pair(self.line, word)?;
        let mut all = (0u32..).zip(Setting::ALL);
        let found = all.find(|(_, setting)| setting.name() == name);
        let Some((place, setting)) = found else {
            return Err(PlanError::invalid(self.line, T::NAMES));
        };
        let bit = 1u32.wrapping_shl(place);
        if self.seen & bit != 0 {
            return Err(twice(self.line));
        }
        self.seen |= bit;
        let set = to.set(setting, value);
        set.map_err(|reason| PlanError::invalid(self.line, reason))
    }
}
