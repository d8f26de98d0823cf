// SPDX-License-Identifier: GPL-2.0-only

//! Weights: how many shares an entity gets where others get one.
//!
//! A table ([`Weights`]) is never changed, but replaced as a whole. Written out, it makes an equal table of an
//! empty one.
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
//! Separators are commas and blanks (spaces, tabs, line ends). Items take effect from left to right, all of
//! them or none.
//!
//! | value of | form |
//! |---|---|
//! | `uid` `gid` `projid` `nodemap` `cgroup` | a decimal number up to 4294967295, which stands for "has none" |
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
    jobid::JobId,
    key::{escape, Field, Key},
    mem::{List, NoMemory},
    nid::Nid,
};
use core::{
    cmp::Ordering,
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
/// - The first `exact` items are exact, sorted by key, without a key twice. None is of a job whose identifier
///   has `*` or `?`.
/// - The others are wildcards, without a pattern twice, in the order in which they were added.
/// - There are at most [`WEIGHTS_MAX`] items, at most [`WILDCARDS_MAX`] of them wildcards; all weights are from
///   1 to [`WEIGHT_MAX`].
pub struct Weights {
    items: List<(Target, u32)>,
    exact: usize,
}

impl Weights {
    /// An empty table: all have weight 1. Does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: it has no items.
        Self {
            items: List::new(),
            exact: 0,
        }
    }

    /// The table after the items of `text`; sleeps. An item takes O(log n), and a new or removed one moves what
    /// is after it; the caller bounds the text.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an item that is none.
    /// - `ENOENT`: an item removes a weight that does not exist.
    /// - `ENOSPC`: more than [`WEIGHTS_MAX`] weights, or more than [`WILDCARDS_MAX`] wildcards.
    /// - `ENOMEM`.
    pub fn apply(&self, text: &str) -> Result<Self> {
        let mut next = Self {
            items: List::with_capacity(self.len()).map_err(no_memory)?,
            exact: self.exact,
        };
        for &item in self.items.as_slice() {
            next.items.push(item).map_err(no_memory)?;
        }
        let mut rest = text;
        while let Some(item) = next_item(&mut rest) {
            match Edit::parse(item)? {
                Edit::Set(target, weight) => next.set(target, weight)?,
                Edit::Remove(target) => next.remove(&target)?,
                Edit::Clear => {
                    next.items.truncate(0);
                    next.exact = 0;
                }
            }
        }
        Ok(next)
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        self.items.as_slice().len()
    }

    /// Whether all have weight 1.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of `key`, 1 to [`WEIGHT_MAX`]: O(log n), and for jobs that have none of their own a look at
    /// each of at most [`WILDCARDS_MAX`] patterns, about 10 ns each, 130 ns where it was made to be slow. Does
    /// not sleep.
    pub fn of(&self, key: &Key) -> u32 {
        let items = self.items.as_slice();
        let found = match self.place(&Target::Exact(*key)) {
            Ok(at) => items.get(at),
            Err(_) => {
                let job = match key {
                    Key::Jobid(job) => job,
                    Key::Absent(Field::Jobid) => &JobId::ABSENT,
                    _ => return 1,
                };
                let mut wildcards = items.iter().skip(self.exact);
                wildcards.find(|(target, _)| match target {
                    Target::Wildcard(pattern) => glob::matches(pattern.as_bytes(), job.as_bytes()),
                    Target::Exact(_) => false,
                })
            }
        };
        found.map_or(1, |(_, weight)| *weight)
    }

    /// Writes one item per line: exact ones in the order of their keys, then wildcards in that of their turns.
    pub fn write<W: Write + ?Sized>(&self, out: &mut W) -> fmt::Result {
        for (target, weight) in self.items.as_slice() {
            match target {
                Target::Wildcard(job) | Target::Exact(Key::Jobid(job)) => write_job(out, job)?,
                Target::Exact(Key::Absent(Field::Jobid)) => write_job(out, &JobId::ABSENT)?,
                Target::Exact(Key::Absent(field)) => write!(out, "{}:{}", field.name(), u32::MAX)?,
                Target::Exact(key) => write!(out, "{key}")?,
            }
            writeln!(out, ":{weight}")?;
        }
        Ok(())
    }

    /// Where the item of `target` is, or belongs.
    fn place(&self, target: &Target) -> core::result::Result<usize, usize> {
        let (exact, wildcards) = self
            .items
            .as_slice()
            .split_at_checked(self.exact)
            .unwrap_or_default();
        match target {
            Target::Exact(key) => exact.binary_search_by(|(other, _)| match other {
                Target::Exact(other) => other.cmp(key),
                Target::Wildcard(_) => Ordering::Greater,
            }),
            Target::Wildcard(_) => match wildcards.iter().position(|(other, _)| other == target) {
                Some(at) => Ok(self.exact.saturating_add(at)),
                None => Err(self.len()),
            },
        }
    }

    fn set(&mut self, target: Target, weight: u32) -> Result {
        let is_exact = matches!(target, Target::Exact(_));
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
            return Err(Error::new(Code::NoSpace, "more than 4096 weights"));
        }
        if !is_exact && self.len().saturating_sub(self.exact) >= WILDCARDS_MAX {
            return Err(Error::new(Code::NoSpace, "more than 64 jobid wildcards"));
        }
        // INVARIANT: those after it move by one place, so the order stays.
        let mut carried = (target, weight);
        for place in self.items.as_mut_slice().iter_mut().skip(at) {
            swap(place, &mut carried);
        }
        self.items.push(carried).map_err(no_memory)?;
        self.exact = self.exact.saturating_add(is_exact.into());
        Ok(())
    }

    fn remove(&mut self, target: &Target) -> Result {
        let gone = Error::new(Code::NoEntry, "no weight of this name to remove");
        let at = self.place(target).map_err(|_| gone)?;
        let len = self.len().saturating_sub(1);
        let mut places = self.items.as_mut_slice().iter_mut().skip(at);
        if let Some(mut hole) = places.next() {
            // INVARIANT: those after it move by one place, so the order stays.
            for place in places {
                swap(hole, place);
                hole = place;
            }
        }
        self.items.truncate(len);
        if matches!(target, Target::Exact(_)) {
            self.exact = self.exact.saturating_sub(1);
        }
        Ok(())
    }
}

fn no_memory(_: NoMemory) -> Error {
    Error::new(Code::NoMemory, "no memory for weights")
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
            "unknown field, expected uid, gid, projid, nodemap, cgroup, nid or jobid",
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
    fn parse(field: Field, value: &str) -> Result<Self> {
        let make = match field {
            Field::Jobid => {
                if value.is_empty() {
                    return Err(Error::invalid(
                        "empty jobid, write \"\" for jobs without one",
                    ));
                }
                let mut job = JobId::ABSENT;
                for byte in value.bytes() {
                    if !byte.is_ascii_graphic() || byte == b'"' {
                        return Err(Error::invalid("jobid has a character that needs quotes"));
                    }
                    push(&mut job, byte)?;
                }
                return Ok(Self::of_job(job));
            }
            Field::Nid => return Ok(Self::Exact(Key::Nid(Nid::parse(value)?))),
            Field::Uid => Key::Uid,
            Field::Gid => Key::Gid,
            Field::Projid => Key::Projid,
            Field::Nodemap | Field::Opcode => Key::Nodemap,
            Field::Cgroup => Key::Cgroup,
        };
        let number = parse_number(value).ok_or(Error::invalid(
            "expected a decimal number from 0 to 4294967295 as uid, gid, projid, nodemap or cgroup",
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
fn parse_weight(text: &str) -> Result<u32> {
    let weight = parse_number(text).filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or(Error::invalid("weight is not a number from 1 to 10000"))
}

/// Appends a byte that is not NUL to a job identifier.
fn push(job: &mut JobId, byte: u8) -> Result {
    if job.push(byte) {
        Ok(())
    } else {
        Err(Error::invalid("jobid is longer than 31 bytes"))
    }
}

/// The job identifier in `text` up to the closing quote, and the text after that.
/// `EINVAL`: no closing quote, an unknown escape, a NUL, a byte that does not print, or too many bytes.
fn unquote(text: &str) -> Result<(JobId, &str)> {
    let escape = Error::invalid("unknown escape, expected \\\", \\\\ or \\xNN except \\x00");
    let mut job = JobId::ABSENT;
    let mut chars = text.chars();
    loop {
        let open = Error::invalid("no closing quote after jobid");
        match chars.next().ok_or(open)? {
            '"' => return Ok((job, chars.as_str())),
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
                push(&mut job, byte)?;
            }
            plain @ ' '..='~' => push(&mut job, plain as u8)?,
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
/// `EINVAL`: not a mode, something other than `weight=` after it, or nothing after that.
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
