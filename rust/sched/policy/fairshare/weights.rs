// SPDX-License-Identifier: GPL-2.0-only

//! Weights: how many shares an entity gets where others get one.
//!
//! # Vocabulary
//!
//! - *Item*: what one word of the text says: set a weight, remove one, or `clear`.
//! - *Exact*: a weight of one value of a field ([`crate::sched::key::Key`]).
//! - *Wildcard*: a weight of all jobs whose identifier matches a pattern.
//! - *Table*: exact ones and wildcards ([`Weights`]); never changed, but replaced as a whole.
//!
//! ```text
//!  text ──items──► Edit ──┐
//!                         ├──apply──► new table ──of──► weight of a key
//!            old table ───┘              └──write──► text, which makes an equal table of an empty one
//! ```
//!
//! # Grammar
//!
//! ```text
//! text   = *separator [ item *( 1*separator item ) ] *separator
//! item   = field ":" value ":" weight | "-" field ":" value | "clear"
//! field  = "uid" | "gid" | "projid" | "nodemap" | "nid" | "jobid"
//! weight = 1..10000
//! ```
//!
//! Separators are commas and blanks (spaces, tabs, line ends). Items take effect from left to right, all of
//! them or none.
//!
//! | value of | form |
//! |---|---|
//! | `uid` `gid` `projid` `nodemap` | a decimal number up to 4294967295, which stands for "has none" |
//! | `nid` | `ADDRESS@NETWORK` ([`crate::sched::nid::Nid`]) |
//! | `jobid` | a name of up to 31 bytes that print; with `*` or `?` in it a pattern: `*` is any run of bytes, also none, `?` is any one byte |
//! | `jobid`, quoted | the same in `"`, with blanks and commas; `\"`, `\\` and `\xNN` for other bytes; `""` for "has none" |
//!
//! An exact weight goes before wildcards. Of the wildcards that match, the one that was added first counts; a
//! changed one keeps its turn. What nobody named has weight 1.

use super::mode::Mode;
use crate::sched::{
    error::{Code, Error, Result},
    glob,
    jobid::{JobId, JOBID_MAX},
    key::{escape, Field, Key},
    mem::{List, NoMemory},
    nid::Nid,
};
use core::{
    fmt::{self, Write},
    mem::swap,
};

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Exact weights and wildcards of a table, at most.
pub const WEIGHTS_MAX: usize = 4096;

/// Wildcards of a table, at most: a look-up of a job may try all of them.
pub const WILDCARDS_MAX: usize = 64;

/// Whose weight it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// That of one value.
    Exact(Key),
    /// That of all jobs that match the pattern.
    Wildcard(JobId),
}

/// What one item asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// A weight is added or changed.
    Set(Target, u32),
    /// A weight is removed.
    Remove(Target),
    /// All are removed.
    Clear,
}

/// A table of weights.
///
/// # Invariants
///
/// - `exact` is sorted by key, without a key twice, and without jobs whose identifier has `*` or `?`.
/// - `wildcards` has no pattern twice, and each has `*` or `?` in it.
/// - There are at most [`WEIGHTS_MAX`] of both, and at most [`WILDCARDS_MAX`] wildcards; all weights are from 1
///   to [`WEIGHT_MAX`].
pub struct Weights {
    exact: List<(Key, u32)>,
    wildcards: List<(JobId, u32)>,
}

impl Weights {
    /// An empty table: all have weight 1. Does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: nothing is in it.
        Self {
            exact: List::new(),
            wildcards: List::new(),
        }
    }

    /// The table after the items of `text`; sleeps. An item takes O(log n), and a new or removed one moves what
    /// is after it; the caller bounds the text.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an item that is none.
    /// - `ENOENT`: an item removes what is not there.
    /// - `ENOSPC`: more than [`WEIGHTS_MAX`] weights, or more than [`WILDCARDS_MAX`] wildcards.
    /// - `ENOMEM`.
    pub fn apply(&self, text: &str) -> Result<Self> {
        let mut next = Self {
            exact: copy(&self.exact)?,
            wildcards: copy(&self.wildcards)?,
        };
        let mut rest = text;
        while let Some(item) = next_item(&mut rest) {
            match Edit::parse(item)? {
                Edit::Set(Target::Exact(key), weight) => next.set_exact(key, weight)?,
                Edit::Set(Target::Wildcard(job), weight) => next.set_wildcard(job, weight)?,
                Edit::Remove(target) => next.remove(&target)?,
                Edit::Clear => {
                    next.exact.truncate(0);
                    next.wildcards.truncate(0);
                }
            }
        }
        Ok(next)
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        let wildcards = self.wildcards.as_slice().len();
        self.exact.as_slice().len().saturating_add(wildcards)
    }

    /// Whether all have weight 1 because nobody was named.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of `key`, 1 to [`WEIGHT_MAX`]: O(log n), and for jobs that have none of their own a look at
    /// each of at most [`WILDCARDS_MAX`] patterns, about 10 ns each, 130 ns where it was made to be slow. Does
    /// not sleep.
    pub fn of(&self, key: &Key) -> u32 {
        if let Ok(at) = self.search(key) {
            return weight_at(self.exact.as_slice(), at);
        }
        let job = match key {
            Key::Jobid(job) => job,
            Key::Absent(Field::Jobid) => &JobId::ABSENT,
            _ => return 1,
        };
        let mut wildcards = self.wildcards.as_slice().iter();
        let found =
            wildcards.find(|(pattern, _)| glob::matches(pattern.as_bytes(), job.as_bytes()));
        found.map_or(1, |(_, weight)| *weight)
    }

    /// Writes one item per line: exact ones in the order of their keys, then wildcards in that of their turns.
    ///
    /// # Errors
    ///
    /// What `out` answers.
    pub fn write<W: Write + ?Sized>(&self, out: &mut W) -> fmt::Result {
        for (key, weight) in self.exact.as_slice() {
            match key {
                Key::Jobid(job) => write_job(out, job)?,
                Key::Absent(Field::Jobid) => write_job(out, &JobId::ABSENT)?,
                Key::Absent(field) => write!(out, "{}:{}", field.name(), u32::MAX)?,
                other => write!(out, "{other}")?,
            }
            writeln!(out, ":{weight}")?;
        }
        for (pattern, weight) in self.wildcards.as_slice() {
            write_job(out, pattern)?;
            writeln!(out, ":{weight}")?;
        }
        Ok(())
    }

    /// Where `key` is, or belongs.
    fn search(&self, key: &Key) -> core::result::Result<usize, usize> {
        self.exact
            .as_slice()
            .binary_search_by(|(other, _)| other.cmp(key))
    }

    /// Where `pattern` is.
    fn find(&self, pattern: &JobId) -> Option<usize> {
        let mut wildcards = self.wildcards.as_slice().iter();
        wildcards.position(|(other, _)| other == pattern)
    }

    /// Whether one more fits.
    fn has_room(&self) -> Result {
        if self.len() >= WEIGHTS_MAX {
            return Err(Error::new(Code::NoSpace, "more than 4096 weights"));
        }
        Ok(())
    }

    fn set_exact(&mut self, key: Key, weight: u32) -> Result {
        match self.search(&key) {
            Ok(at) => set_weight(&mut self.exact, at, weight),
            Err(at) => {
                self.has_room()?;
                // INVARIANT: those after it move by one place, so the order stays.
                insert(&mut self.exact, at, (key, weight))?;
            }
        }
        Ok(())
    }

    fn set_wildcard(&mut self, pattern: JobId, weight: u32) -> Result {
        if let Some(at) = self.find(&pattern) {
            set_weight(&mut self.wildcards, at, weight);
            return Ok(());
        }
        self.has_room()?;
        if self.wildcards.as_slice().len() >= WILDCARDS_MAX {
            return Err(Error::new(Code::NoSpace, "more than 64 jobid wildcards"));
        }
        self.wildcards.push((pattern, weight)).map_err(no_memory)
    }

    fn remove(&mut self, target: &Target) -> Result {
        let gone = Error::new(Code::NoEntry, "no weight of this name to remove");
        match target {
            Target::Exact(key) => {
                let at = self.search(key).map_err(|_| gone)?;
                take(&mut self.exact, at);
            }
            Target::Wildcard(pattern) => {
                let at = self.find(pattern).ok_or(gone)?;
                take(&mut self.wildcards, at);
            }
        }
        Ok(())
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self::new()
    }
}

fn no_memory(_: NoMemory) -> Error {
    Error::new(Code::NoMemory, "no memory for weights")
}

/// A list with the same elements; sleeps.
fn copy<T: Copy>(list: &List<T>) -> Result<List<T>> {
    let mut copy = List::with_capacity(list.as_slice().len()).map_err(no_memory)?;
    for &value in list.as_slice() {
        copy.push(value).map_err(no_memory)?;
    }
    Ok(copy)
}

/// Puts `value` at index `at`, at most the number of elements.
fn insert<T: Copy>(list: &mut List<T>, at: usize, value: T) -> Result {
    let mut carried = value;
    for place in list.as_mut_slice().iter_mut().skip(at) {
        swap(place, &mut carried);
    }
    list.push(carried).map_err(no_memory)
}

/// Removes the element at index `at`; the others keep their order.
fn take<T>(list: &mut List<T>, at: usize) {
    let mut places = list.as_mut_slice().iter_mut().skip(at);
    if let Some(mut hole) = places.next() {
        for place in places {
            swap(hole, place);
            hole = place;
        }
        let len = list.as_slice().len();
        list.truncate(len.saturating_sub(1));
    }
}

fn set_weight<K>(list: &mut List<(K, u32)>, at: usize, weight: u32) {
    if let Some((_, old)) = list.as_mut_slice().get_mut(at) {
        *old = weight;
    }
}

fn weight_at<K>(list: &[(K, u32)], at: usize) -> u32 {
    list.get(at).map_or(1, |(_, weight)| *weight)
}

/// Whether `byte` separates items.
const fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r')
}

/// The next item of `text`, which becomes the rest.
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

impl Edit {
    /// Parses one item.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is none.
    fn parse(item: &str) -> Result<Self> {
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
            "unknown field, expected uid, gid, projid, nodemap, nid or jobid",
        ))?;
        let quoted = value.strip_prefix('"').filter(|_| field == Field::Jobid);
        let (target, weight) = if let Some(text) = quoted {
            let (job, rest) = unquote(text)?;
            let weight = match rest.strip_prefix(':') {
                None if !rest.is_empty() => {
                    return Err(Error::invalid("expected a colon after the quotes"));
                }
                weight => weight,
            };
            (Target::of_job(job), weight)
        } else {
            let (value, weight) = match value.rsplit_once(':') {
                Some((value, weight)) if !removes => (value, Some(weight)),
                _ => (value, None),
            };
            (Target::parse(field, value)?, weight)
        };
        match (removes, weight) {
            (true, None) => Ok(Self::Remove(target)),
            (true, Some(_)) => Err(Error::invalid("a removal takes no weight")),
            (false, None) => Err(Error::invalid("no weight, expected FIELD:VALUE:WEIGHT")),
            (false, Some(weight)) => Ok(Self::Set(target, parse_weight(weight)?)),
        }
    }
}

impl Target {
    /// The job `job`, or the jobs that match it.
    fn of_job(job: JobId) -> Self {
        let wild = |byte: &u8| matches!(byte, b'*' | b'?');
        if job.as_bytes().iter().any(wild) {
            Self::Wildcard(job)
        } else if job.is_empty() {
            Self::Exact(Key::Absent(Field::Jobid))
        } else {
            Self::Exact(Key::Jobid(job))
        }
    }

    /// Parses a value without quotes.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: not a value of `field`.
    fn parse(field: Field, value: &str) -> Result<Self> {
        let make = match field {
            Field::Jobid => {
                if value.is_empty() {
                    return Err(Error::invalid(
                        "empty jobid, write \"\" for jobs without one",
                    ));
                }
                let mut job = Name::new();
                for byte in value.bytes() {
                    if !byte.is_ascii_graphic() || byte == b'"' {
                        return Err(Error::invalid("jobid has a character that needs quotes"));
                    }
                    job.push(byte)?;
                }
                return Ok(Self::of_job(job.job()));
            }
            Field::Nid => return Ok(Self::Exact(Key::Nid(Nid::parse(value)?))),
            Field::Uid => Key::Uid,
            Field::Gid => Key::Gid,
            Field::Projid => Key::Projid,
            Field::Nodemap | Field::Opcode => Key::Nodemap,
        };
        let number = parse_number(value).ok_or(Error::invalid(
            "expected a decimal number from 0 to 4294967295 as uid, gid, projid or nodemap",
        ))?;
        Ok(Self::Exact(if number == u32::MAX {
            Key::Absent(field)
        } else {
            make(number)
        }))
    }
}

/// A decimal number without sign and without zeros before it, which elsewhere mean octal.
fn parse_number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| digits && plain)
}

/// A weight.
///
/// # Errors
///
/// - `EINVAL`: not a number from 1 to [`WEIGHT_MAX`].
fn parse_weight(text: &str) -> Result<u32> {
    let weight = parse_number(text).filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or(Error::invalid("weight is not a number from 1 to 10000"))
}

/// Bytes of a job identifier that is being read.
struct Name {
    bytes: [u8; JOBID_MAX],
    len: usize,
}

impl Name {
    const fn new() -> Self {
        Self {
            bytes: [0; JOBID_MAX],
            len: 0,
        }
    }

    /// Appends a byte that is not NUL.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there are [`JOBID_MAX`] already.
    fn push(&mut self, byte: u8) -> Result {
        let full = Error::invalid("jobid is longer than 31 bytes");
        *self.bytes.get_mut(self.len).ok_or(full)? = byte;
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// The identifier.
    fn job(&self) -> JobId {
        // All bytes that were not pushed are NUL.
        JobId::new(&self.bytes)
    }
}

/// The job identifier in `text` up to the closing quote, and the text after that.
///
/// # Errors
///
/// - `EINVAL`: no closing quote, an unknown escape, a NUL, a byte that does not print, or too many bytes.
fn unquote(text: &str) -> Result<(JobId, &str)> {
    let escape = Error::invalid("unknown escape, expected \\\", \\\\ or \\xNN except \\x00");
    let mut job = Name::new();
    let mut chars = text.chars();
    loop {
        let open = Error::invalid("no closing quote after jobid");
        match chars.next().ok_or(open)? {
            '"' => return Ok((job.job(), chars.as_str())),
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
                job.push(byte)?;
            }
            plain @ ' '..='~' => job.push(plain as u8)?,
            _ => {
                let reason = "jobid has a character that does not print, write \\xNN";
                return Err(Error::invalid(reason));
            }
        }
    }
}

/// Writes `jobid:` and an identifier or pattern, in quotes if it needs them.
fn write_job<W: Write + ?Sized>(out: &mut W, job: &JobId) -> fmt::Result {
    out.write_str("jobid:")?;
    let bytes = job.as_bytes();
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

/// The mode and the weights in `uid_fair weight=uid:1000:2,uid:1001:3`; blanks around it do not count. The
/// weights are text for [`Weights::apply`].
///
/// # Errors
///
/// - `EINVAL`: not a mode, something other than `weight=` after it, or nothing after that.
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

#[cfg(test)]
mod tests;
