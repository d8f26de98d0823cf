// SPDX-License-Identifier: GPL-2.0-only

//! Weights of entities: shares relative to entities of weight 1.
//!
//! A table ([`Weights`]) is immutable and replaced as a whole. The written form of a table, applied
//! to an empty table, makes an equal table.
//!
//! # Grammar
//!
//! ```text
//! text   = *separator [ item *( 1*separator item ) ] *separator
//! item   = field ":" value ":" weight | "-" field ":" value | "clear"
//! field  = "uid" | "gid" | "projid" | "nodemap" | "cgroup" | "nid" | "jobid"
//! weight = 1..10000
//! ```
//!
//! Separators are commas and blanks (spaces, tabs, line ends). Items are applied from left to
//! right, either all of them or none.
//!
//! Forms of values:
//!
//! - `uid` `gid` `projid` `nodemap`: a decimal number up to 4294967295, which stands for requests
//!   without a value.
//! - `cgroup`: a path from `/`, up to 383 bytes. `*` and `?` match within a name. A path stands for
//!   the cgroup and what is below it, except what another path stands for.
//! - `nid`: `ADDRESS@NETWORK` ([`crate::sched::nid::Nid`]).
//! - `jobid`: a name of up to 31 printable bytes. A name with `*` or `?` is a pattern: `*` matches
//!   any run of bytes, including none, `?` matches any one byte.
//! - `cgroup`, `jobid`, quoted: the same in `"`, with blanks and commas; `\"`, `\\` and `\xNN` for
//!   other bytes; `""` for requests without a value.
//!
//! An exact weight precedes wildcards. Of the wildcards that match, the first one added applies; a
//! changed wildcard keeps its position. The default weight is 1.

use super::mode::Mode;
use crate::sched::{
    attr::{
        cgroup::{self, PathBuf, PATH_MAX},
        CgroupPath,
    },
    error::{Code, Error, Result},
    glob,
    jobid::JobId,
    key::{escape, Field, Key},
    mem::{GrowingList, NoMemory, Shared},
    nid::Nid,
};
use core::{
    cmp::Ordering,
    fmt::{self, Write},
    mem::swap,
};

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Largest number of items of a table.
pub const WEIGHTS_MAX: usize = 4096;

/// Largest number of wildcards of a table, because a look-up may try all of them.
pub const WILDCARDS_MAX: usize = 64;

/// Entities of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightKey {
    /// Entity with one value.
    Exact(Key),
    /// All jobs that match the pattern.
    Wildcard(JobId),
    /// All cgroups that match the pattern with this digest.
    CgroupWildcard(CgroupPath),
}

/// Text of a name, a path, or a pattern.
#[derive(Clone, Copy)]
struct NameText {
    bytes: PathBuf,
    len: usize,
}

/// Edit that one item asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightEdit {
    /// Adds or changes a weight.
    Set(WeightKey, u32),
    /// Removes a weight.
    Remove(WeightKey),
    /// Removes all weights.
    Clear,
}

/// Table of weights.
///
/// # Invariants
///
/// - The first `exact` items are exact, sorted by key, without a key twice. The key is never a job
///   identifier with `*` or `?`.
/// - The other items are wildcards, without a pattern twice, in the order in which they were added.
/// - There are at most [`WEIGHTS_MAX`] items, including at most [`WILDCARDS_MAX`] wildcards; all
///   weights are from 1 to [`WEIGHT_MAX`].
pub struct Weights {
    items: GrowingList<(WeightKey, u32)>,
    exact: usize,
    /// Texts of all paths and patterns of cgroups, sorted by their digests; also of some removed
    /// ones.
    paths: GrowingList<(CgroupPath, Shared<NameText>)>,
}

impl Weights {
    /// Creates an empty table, in which all weights are 1; does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: there are no items.
        Self {
            items: GrowingList::new(),
            exact: 0,
            paths: GrowingList::new(),
        }
    }

    /// Returns the table after applying the items of `text`; may sleep. An item takes O(log n),
    /// plus O(n) to insert or remove an item; the caller bounds the text.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an invalid item.
    /// - `ENOENT`: the removal of a weight that does not exist.
    /// - `ENOSPC`: more than [`WEIGHTS_MAX`] weights, or more than [`WILDCARDS_MAX`] wildcards.
    /// - `ENOMEM`: no memory.
    pub fn apply(&self, text: &str) -> Result<Self> {
        let mut next = Self {
            items: GrowingList::with_capacity(self.len()).map_err(no_memory)?,
            exact: self.exact,
            paths: GrowingList::new(),
        };
        for &item in self.items.as_slice() {
            next.items.push(item).map_err(no_memory)?;
        }
        for (digest, text) in self.paths.as_slice() {
            let (exact, wildcard) = (Key::Cgroup(*digest), WeightKey::CgroupWildcard(*digest));
            if self.place(&WeightKey::Exact(exact)).is_ok() || self.place(&wildcard).is_ok() {
                let kept = (*digest, text.clone());
                next.paths.push(kept).map_err(no_memory)?;
            }
        }
        let mut rest = text;
        while let Some(item) = next_item(&mut rest) {
            let mut path = NameText::new();
            match WeightEdit::parse(item, &mut path)? {
                WeightEdit::Set(target, weight) => {
                    next.set(target, weight)?;
                    if !path.as_bytes().is_empty() {
                        next.keep(path)?;
                    }
                }
                WeightEdit::Remove(target) => next.remove(&target)?,
                WeightEdit::Clear => {
                    next.items.truncate(0);
                    next.exact = 0;
                    next.paths.truncate(0);
                }
            }
        }
        Ok(next)
    }

    /// Keeps the text of a path or a pattern.
    fn keep(&mut self, path: NameText) -> Result {
        let Some(digest) = CgroupPath::parse(path.as_bytes()) else {
            return Ok(());
        };
        let paths = self.paths.as_slice();
        if let Err(at) = paths.binary_search_by_key(&digest, |(digest, _)| *digest) {
            let path = Shared::new(path).map_err(no_memory)?;
            insert(&mut self.paths, at, (digest, path))?;
        }
        Ok(())
    }

    /// Returns the kept text with this digest.
    fn path_of(&self, digest: CgroupPath) -> &[u8] {
        let paths = self.paths.as_slice();
        let at = paths.binary_search_by_key(&digest, |(digest, _)| *digest);
        let path = at.ok().and_then(|at| paths.get(at));
        path.map_or(&[], |(_, path)| path.as_bytes())
    }

    /// Returns the nearest cgroup that the table names: `path` itself, or one of its ancestors.
    pub fn named_cgroup(&self, path: CgroupPath) -> CgroupPath {
        if self.paths.as_slice().is_empty() {
            return path;
        }
        path.nearest(|path, text| {
            let exact = WeightKey::Exact(Key::Cgroup(path));
            self.place(&exact).is_ok() || self.wildcard_of(text).is_some()
        })
    }

    /// Returns the weight of the first pattern of cgroups that matches `path`.
    fn wildcard_of(&self, path: &[u8]) -> Option<u32> {
        let wildcards = self.items.as_slice().iter().skip(self.exact);
        let mut matching = wildcards.filter(|(target, _)| match target {
            WeightKey::CgroupWildcard(digest) => cgroup::matches(self.path_of(*digest), path),
            _ => false,
        });
        matching.next().map(|(_, weight)| *weight)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.as_slice().len()
    }

    /// Returns true if all weights are 1.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the weight of `key`; 1 if it is not known.
    #[cfg(not(MODULE))]
    pub fn of(&self, key: &Key) -> u32 {
        self.find(key).unwrap_or(1)
    }

    /// Returns the weight of `key`, 1 to [`WEIGHT_MAX`]; does not sleep. Takes O(log n). For jobs
    /// and cgroups without an exact weight matches at most [`WILDCARDS_MAX`] patterns, about 10 ns
    /// each for jobs, 130 ns for the slowest patterns. Returns `None` if there are patterns, and
    /// the text of the cgroup is not known.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let items = self.items.as_slice();
        let found = match self.place(&WeightKey::Exact(*key)) {
            Ok(at) => items.get(at),
            Err(_) => {
                let job = match key {
                    Key::Jobid(job) => job,
                    Key::Absent(Field::Jobid) => &JobId::ABSENT,
                    Key::Cgroup(path) => {
                        if self.len() == self.exact {
                            return Some(1);
                        }
                        let mut buf = [0; PATH_MAX + 1];
                        let text = path.text(&mut buf)?;
                        return Some(self.wildcard_of(text).unwrap_or(1));
                    }
                    _ => return Some(1),
                };
                let mut wildcards = items.iter().skip(self.exact);
                wildcards.find(|(target, _)| match target {
                    WeightKey::Wildcard(pattern) => {
                        glob::matches(pattern.as_bytes(), job.as_bytes())
                    }
                    WeightKey::Exact(_) | WeightKey::CgroupWildcard(_) => false,
                })
            }
        };
        Some(found.map_or(1, |(_, weight)| *weight))
    }

    /// Writes one item per line: exact items by key, then wildcards in the order in which they were
    /// added.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        for (target, weight) in self.items.as_slice() {
            match target {
                WeightKey::Wildcard(job) | WeightKey::Exact(Key::Jobid(job)) => {
                    write_name(out, Field::Jobid, job.as_bytes())?
                }
                WeightKey::CgroupWildcard(path) | WeightKey::Exact(Key::Cgroup(path)) => {
                    write_name(out, Field::Cgroup, self.path_of(*path))?
                }
                WeightKey::Exact(Key::Absent(field @ (Field::Jobid | Field::Cgroup))) => {
                    write_name(out, *field, &[])?
                }
                WeightKey::Exact(Key::Absent(field)) => {
                    write!(out, "{}:{}", field.name(), u32::MAX)?
                }
                WeightKey::Exact(key) => write!(out, "{key}")?,
            }
            writeln!(out, ":{weight}")?;
        }
        Ok(())
    }

    /// Returns the index of the item of `target`, or the index at which the item belongs.
    fn place(&self, target: &WeightKey) -> core::result::Result<usize, usize> {
        let (exact, wildcards) = self
            .items
            .as_slice()
            .split_at_checked(self.exact)
            .unwrap_or_default();
        match target {
            WeightKey::Exact(key) => exact.binary_search_by(|(other, _)| match other {
                WeightKey::Exact(other) => other.cmp(key),
                _ => Ordering::Greater,
            }),
            _ => match wildcards.iter().position(|(other, _)| other == target) {
                Some(at) => Ok(self.exact.saturating_add(at)),
                None => Err(self.len()),
            },
        }
    }

    fn set(&mut self, target: WeightKey, weight: u32) -> Result {
        let is_exact = matches!(target, WeightKey::Exact(_));
        let at = match self.place(&target) {
            Ok(at) => {
                if let Some((_, old)) = self.items.as_mut_slice().get_mut(at) {
                    *old = weight;
                }
                return Ok(());
            }
            Err(at) => at,
        };
        if self.len() >= WEIGHTS_MAX {
            return Err(Error::new(Code::NoSpace, "too many weights (limit: 4096)"));
        }
        if !is_exact && self.len().saturating_sub(self.exact) >= WILDCARDS_MAX {
            return Err(Error::new(Code::NoSpace, "too many wildcards (limit: 64)"));
        }
        // INVARIANT: later items move by one position, so the order stays.
        insert(&mut self.items, at, (target, weight))?;
        self.exact = self.exact.saturating_add(is_exact.into());
        Ok(())
    }

    fn remove(&mut self, target: &WeightKey) -> Result {
        let gone = Error::new(Code::NoEntry, "weight to remove does not exist");
        let at = self.place(target).map_err(|_| gone)?;
        let len = self.len().saturating_sub(1);
        let mut places = self.items.as_mut_slice().iter_mut().skip(at);
        if let Some(mut hole) = places.next() {
            // INVARIANT: later items move by one position, so the order stays.
            for place in places {
                swap(hole, place);
                hole = place;
            }
        }
        self.items.truncate(len);
        if matches!(target, WeightKey::Exact(_)) {
            self.exact = self.exact.saturating_sub(1);
        }
        Ok(())
    }
}

fn no_memory(_: NoMemory) -> Error {
    Error::new(Code::NoMemory, "no memory for weights")
}

/// Inserts `item` at the index `at` of `list`.
fn insert<T>(list: &mut GrowingList<T>, at: usize, mut item: T) -> Result {
    for place in list.as_mut_slice().iter_mut().skip(at) {
        swap(place, &mut item);
    }
    list.push(item).map_err(no_memory)
}

/// Returns true if `byte` separates items.
const fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the next item of `text`, and advances `text` past the item.
fn next_item<'a>(text: &mut &'a str) -> Option<&'a str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii() && is_separator(c as u8));
    let (mut quoted, mut escaped) = (false, false);
    let ends = |byte: u8| {
        let ends = !quoted && is_separator(byte);
        quoted ^= byte == b'"' && !escaped;
        escaped = quoted && byte == b'\\' && !escaped;
        ends
    };
    let end = rest.bytes().position(ends).unwrap_or(rest.len());
    // Separators are ASCII, so this is the boundary of a character.
    let (item, rest) = rest.split_at_checked(end)?;
    *text = rest;
    (!item.is_empty()).then_some(item)
}

impl WeightEdit {
    /// Parses one item; stores the text of a cgroup in `path`.
    fn parse(item: &str, path: &mut NameText) -> Result<Self> {
        if item == "clear" {
            return Ok(Self::Clear);
        }
        let (removes, item) = match item.strip_prefix('-') {
            Some(item) => (true, item),
            None => (false, item),
        };
        let (field, value) = item.split_once(':').ok_or(Error::invalid(
            "expected FIELD:VALUE:WEIGHT, -FIELD:VALUE or clear",
        ))?;
        let field = Field::parse(field).filter(|field| *field != Field::Opcode);
        let field = field.ok_or(Error::invalid(
            "unknown field (fields: uid gid projid nodemap cgroup nid jobid)",
        ))?;
        let has_names = matches!(field, Field::Jobid | Field::Cgroup);
        let quoted = value.strip_prefix('"').filter(|_| has_names);
        let (target, weight) = if let Some(text) = quoted {
            let mut name = NameText::new();
            let rest = unquote(text, &mut name)?;
            let weight = match rest.strip_prefix(':') {
                None if !rest.is_empty() => {
                    return Err(Error::invalid("expected a colon after the quotes"));
                }
                weight => weight,
            };
            (WeightKey::of_name(field, &name, path)?, weight)
        } else {
            let (value, weight) = match value.rsplit_once(':') {
                Some((value, weight)) if !removes => (value, Some(weight)),
                _ => (value, None),
            };
            (WeightKey::parse(field, value, path)?, weight)
        };
        match (removes, weight) {
            (true, None) => Ok(Self::Remove(target)),
            (true, Some(_)) => Err(Error::invalid("a removal takes no weight")),
            (false, None) => Err(Error::invalid("no weight, expected FIELD:VALUE:WEIGHT")),
            (false, Some(weight)) => Ok(Self::Set(target, parse_weight(weight)?)),
        }
    }
}

impl WeightKey {
    /// Returns the target of `name`: one job or cgroup, or all that match a pattern. Stores the
    /// text of a cgroup in `path`.
    fn of_name(field: Field, name: &NameText, path: &mut NameText) -> Result<Self> {
        let bytes = name.as_bytes();
        if bytes.is_empty() {
            return Ok(Self::Exact(Key::Absent(field)));
        }
        let is_pattern = glob::is_pattern(bytes);
        if field == Field::Cgroup {
            let digest = CgroupPath::parse(bytes).ok_or(Error::invalid(
                "cgroup is not a path, such as /system.slice/a.service",
            ))?;
            *path = *name;
            return Ok(match is_pattern {
                true => Self::CgroupWildcard(digest),
                false => Self::Exact(Key::Cgroup(digest)),
            });
        }
        let mut job = JobId::ABSENT;
        if !bytes.iter().all(|byte| job.push(*byte)) {
            return Err(Error::invalid("jobid is too long (limit: 31 bytes)"));
        }
        Ok(match is_pattern {
            true => Self::Wildcard(job),
            false => Self::Exact(Key::Jobid(job)),
        })
    }

    /// Parses a value without quotes; stores the text of a cgroup in `path`.
    fn parse(field: Field, value: &str, path: &mut NameText) -> Result<Self> {
        let make = match field {
            Field::Jobid | Field::Cgroup => {
                if value.is_empty() {
                    return Err(Error::invalid(
                        "empty name (\"\" stands for requests without a name)",
                    ));
                }
                let mut name = NameText::new();
                for byte in value.bytes() {
                    if !byte.is_ascii_graphic() || byte == b'"' {
                        return Err(Error::invalid("name has a character that needs quotes"));
                    }
                    name.push(byte)?;
                }
                return Self::of_name(field, &name, path);
            }
            Field::Nid => return Ok(Self::Exact(Key::Nid(Nid::parse(value)?))),
            Field::Uid => Key::Uid,
            Field::Gid => Key::Gid,
            Field::Projid => Key::Projid,
            Field::Nodemap | Field::Opcode => Key::Nodemap,
        };
        let number = parse_number(value).ok_or(Error::invalid(
            "value is not a decimal number from 0 to 4294967295",
        ))?;
        Ok(Self::Exact(if number == u32::MAX {
            Key::Absent(field)
        } else {
            make(number)
        }))
    }
}

/// Parses a decimal number without a sign; leading zeros are refused, because they often mean
/// octal.
fn parse_number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| digits && plain)
}

/// Parses a weight.
fn parse_weight(text: &str) -> Result<u32> {
    let weight = parse_number(text).filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or(Error::invalid("weight is not a number from 1 to 10000"))
}

impl NameText {
    const fn new() -> Self {
        Self {
            bytes: [0; PATH_MAX + 1],
            len: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Appends a byte.
    fn push(&mut self, byte: u8) -> Result {
        let place = self.bytes.get_mut(self.len).filter(|_| self.len < PATH_MAX);
        *place.ok_or(Error::invalid("name is too long (limit: 383 bytes)"))? = byte;
        self.len = self.len.saturating_add(1);
        Ok(())
    }
}

/// Parses the name in `text` up to the closing quote; returns the text after the quote.
///
/// # Errors
///
/// `EINVAL`: no closing quote, an unknown escape, a NUL, an unprintable byte, or too many bytes.
fn unquote<'a>(text: &'a str, name: &mut NameText) -> Result<&'a str> {
    let escape = Error::invalid("unknown escape (escapes: \\\", \\\\, \\xNN except \\x00)");
    let mut chars = text.chars();
    loop {
        let open = Error::invalid("no closing quote after the name");
        match chars.next().ok_or(open)? {
            '"' => return Ok(chars.as_str()),
            '\\' => {
                let byte = match chars.next().ok_or(open)? {
                    '"' => b'"',
                    '\\' => b'\\',
                    'x' => {
                        let mut digit = || chars.next().and_then(|digit| digit.to_digit(16));
                        let (high, low) = (digit().ok_or(escape)?, digit().ok_or(escape)?);
                        ((high << 4) | low) as u8
                    }
                    _ => return Err(escape),
                };
                if byte == 0 {
                    return Err(escape);
                }
                name.push(byte)?;
            }
            plain @ ' '..='~' => name.push(plain as u8)?,
            _ => {
                let reason = "unprintable character in the name (write \\xNN)";
                return Err(Error::invalid(reason));
            }
        }
    }
}

/// Writes a field and a name or pattern, in quotes if it needs them.
fn write_name(out: &mut dyn Write, field: Field, bytes: &[u8]) -> fmt::Result {
    write!(out, "{}:", field.name())?;
    let plain = |&byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',');
    let quoted = bytes.is_empty() || !bytes.iter().all(plain);
    if quoted {
        out.write_char('"')?;
    }
    escape(bytes, out)?;
    if quoted {
        out.write_char('"')?;
    }
    Ok(())
}

/// Splits text such as `uid_fair weight=uid:1000:2,uid:1001:3` into the mode and the weights, which
/// are text for [`Weights::apply`]; surrounding blanks are ignored.
///
/// # Errors
///
/// `EINVAL`: an invalid mode, text other than `weight=` after the mode, or nothing after `weight=`.
pub fn split(text: &str) -> Result<(Mode, Option<&str>)> {
    let blank = [' ', '\t', '\n', '\r'];
    let text = text.trim_matches(blank);
    let (mode, rest) = match text.split_once(blank) {
        Some((mode, rest)) => (mode, rest.trim_start_matches(blank)),
        None => (text, ""),
    };
    let mode = Mode::parse(mode)?;
    if rest.is_empty() {
        return Ok((mode, None));
    }
    let weights = rest.strip_prefix("weight=").ok_or(Error::invalid(
        "expected weight=FIELD:VALUE:WEIGHT,... after the mode",
    ))?;
    if weights.is_empty() {
        return Err(Error::invalid("weight= is empty"));
    }
    Ok((mode, Some(weights)))
}

/// Checks a list of weights; an item to remove need not exist.
pub fn check(text: &str) -> Result {
    match Weights::new().apply(text.trim()) {
        Err(error) if error.code == Code::NoEntry => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Checks a mode of fairshare, with or without weights.
pub fn check_mode(text: &str) -> Result {
    let (_, list) = split(text)?;
    list.map_or(Ok(()), check)
}

#[cfg(test)]
mod tests;
