// SPDX-License-Identifier: GPL-2.0-only

//! Tables of settings of entities: [`Weights`], and [`super::limits::Limits`].
//!
//! A table is immutable and replaced as a whole. The written form of a table, applied to an empty
//! table, makes an equal table.
//!
//! # Grammar
//!
//! ```text
//! text    = *separator [ item *( 1*separator item ) ] *separator
//! item    = field ":" value ":" setting | "-" field ":" value | "clear"
//! field   = "uid" | "gid" | "projid" | "nodemap" | "cgroup" | "nid" | "jobid"
//! setting = 1..10000                                              ; a weight
//!         | see super::limits                                     ; limits
//! ```
//!
//! Separators are commas and blanks (spaces, tabs, line ends). Items are applied from left to
//! right, either all of them or none.
//!
//! Forms of values:
//!
//! - `uid` `gid` `projid` `nodemap`: a decimal number up to 4294967295, which stands for requests
//!   without a value, or `*` for all numbers.
//! - `cgroup`: a path from `/`, up to 383 bytes. `*` and `?` match within a name. A path stands for
//!   the cgroup and what is below it, except what another path stands for. `*` alone stands for
//!   each cgroup that no path stands for.
//! - `nid`: `ADDRESS@NETWORK` ([`crate::sched::nid::Nid`]).
//! - `jobid`: a name of up to 31 printable bytes. A name with `*` or `?` is a pattern: `*` matches
//!   any run of bytes, including none, `?` matches any one byte.
//! - `cgroup`, `jobid`, quoted: the same in `"`, with blanks and commas; `\"`, `\\` and `\xNN` for
//!   other bytes; `""` for requests without a value.
//!
//! An exact item precedes wildcards. Of the wildcards that match, the first one added applies; a
//! changed wildcard keeps its position. The default weight is 1.

use super::mode::Mode;
use crate::sched::{
    attr::{
        cgroup::{self, PATH_MAX},
        CgroupPath,
    },
    error::{Code, Error, Result},
    glob,
    items::{self, next_item, parse_number, unquote, write_name, NameText},
    jobid::JobId,
    key::{Field, Key},
    mem::{GrowingList, NoMemory, Shared},
    nid::Nid,
};
use core::{
    cmp::Ordering,
    fmt::{self, Write},
};

/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Largest number of items of a table.
pub const ITEMS_MAX: usize = 4096;

/// Largest number of wildcards of a table, because a look-up may try all of them.
pub const WILDCARDS_MAX: usize = 64;

/// Setting of an entity.
pub trait EntitySetting: Copy + fmt::Display {
    /// Setting of an entity that the table does not list.
    const UNLISTED: Self;

    /// Reasons of refusals.
    const REASONS: SettingReasons;

    /// Parses the setting.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not a setting.
    fn parse(text: &str) -> Result<Self>;
}

/// Reasons with which a table refuses changes.
pub struct SettingReasons {
    /// Item that is not in the form of an item.
    pub form: &'static str,
    /// Item without a setting.
    pub missing: &'static str,
    /// Setting behind an item to remove.
    pub removal: &'static str,
    /// Item to remove that does not exist.
    pub gone: &'static str,
    /// More than [`ITEMS_MAX`] items.
    pub full: &'static str,
}

/// A weight, 1 to [`WEIGHT_MAX`].
impl EntitySetting for u32 {
    const UNLISTED: Self = 1;

    const REASONS: SettingReasons = SettingReasons {
        form: "expected FIELD:VALUE:WEIGHT, -FIELD:VALUE or clear",
        missing: "no weight, expected FIELD:VALUE:WEIGHT",
        removal: "a removal takes no weight",
        gone: "weight to remove does not exist",
        full: "too many weights (limit: 4096)",
    };

    fn parse(text: &str) -> Result<Self> {
        let weight = parse_number(text).filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        weight.ok_or(Error::invalid("weight is not a number from 1 to 10000"))
    }
}

/// Entities of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntityKey {
    /// Entity with one value.
    Exact(Key),
    /// All jobs that match the pattern.
    Wildcard(JobId),
    /// All cgroups that match the pattern with this digest.
    CgroupWildcard(CgroupPath),
    /// All entities with a value in the field: a number, or a cgroup that no pattern matches.
    AnyValue(Field),
}

/// Edit that one item asks for.
#[derive(Clone, Copy)]
enum EntityEdit<V> {
    /// Adds or changes an item.
    Set(EntityKey, V),
    /// Removes an item.
    Remove(EntityKey),
    /// Removes all items.
    Clear,
}

/// Table of weights.
pub type Weights = EntityTable<u32>;

/// Table of settings of entities.
///
/// # Invariants
///
/// - The first `exact` items are exact, sorted by key, without a key twice. The key is never a job
///   identifier with `*` or `?`.
/// - The other items are wildcards, without a pattern twice, in the order in which they were added.
/// - There are at most [`ITEMS_MAX`] items, including at most [`WILDCARDS_MAX`] wildcards.
pub struct EntityTable<V> {
    items: GrowingList<(EntityKey, V)>,
    exact: usize,
    /// Texts of all paths and patterns of cgroups, sorted by their digests; also of some removed
    /// ones.
    paths: GrowingList<(CgroupPath, Shared<NameText>)>,
}

impl<V: EntitySetting> EntityTable<V> {
    /// Creates an empty table; does not allocate.
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
    /// - `ENOENT`: the removal of an item that does not exist.
    /// - `ENOSPC`: more than [`ITEMS_MAX`] items, or more than [`WILDCARDS_MAX`] wildcards.
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
            let (exact, wildcard) = (Key::Cgroup(*digest), EntityKey::CgroupWildcard(*digest));
            if self.place(&EntityKey::Exact(exact)).is_ok() || self.place(&wildcard).is_ok() {
                let kept = (*digest, text.clone());
                next.paths.push(kept).map_err(no_memory)?;
            }
        }
        let mut rest = text;
        while let Some(item) = next_item(&mut rest) {
            let mut path = NameText::new();
            match EntityEdit::parse(item, &mut path)? {
                EntityEdit::Set(target, setting) => {
                    next.set(target, setting)?;
                    if !path.as_bytes().is_empty() {
                        next.keep(path)?;
                    }
                }
                EntityEdit::Remove(target) => next.remove(&target)?,
                EntityEdit::Clear => {
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
            self.paths.insert(at, (digest, path)).map_err(no_memory)?;
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
        path.nearest(|path, text| self.names_cgroup(path, text))
    }

    /// Returns true if the table names the cgroup `path` with the text `text`.
    pub fn names_cgroup(&self, path: CgroupPath, text: &[u8]) -> bool {
        let exact = EntityKey::Exact(Key::Cgroup(path));
        self.place(&exact).is_ok() || self.wildcard_of(text).is_some()
    }

    /// Returns the index of the first pattern of cgroups that matches `path`.
    fn wildcard_of(&self, path: &[u8]) -> Option<usize> {
        self.wildcard(|target| match target {
            EntityKey::CgroupWildcard(digest) => cgroup::matches(self.path_of(*digest), path),
            _ => false,
        })
    }

    /// Returns the index of the first wildcard for which `matches` returns true.
    fn wildcard(&self, matches: impl Fn(&EntityKey) -> bool) -> Option<usize> {
        let wildcards = self.items.as_slice().iter().enumerate().skip(self.exact);
        let mut matching = wildcards.filter(|(_, (target, _))| matches(target));
        matching.next().map(|(at, _)| at)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.as_slice().len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the setting of `key`; [`EntitySetting::UNLISTED`] if it is not known.
    #[cfg(not(MODULE))]
    pub fn of(&self, key: &Key) -> V {
        let item = self.index_of(key).flatten().and_then(|at| self.get(at));
        item.unwrap_or(V::UNLISTED)
    }

    /// Returns the setting of an entity; `None` if [`EntityTable::index_at`] does.
    pub fn find(&self, key: &Key, field: Field) -> Option<V> {
        let item = self.index_at(key, field)?.and_then(|at| self.get(at));
        Some(item.unwrap_or(V::UNLISTED))
    }

    /// Returns the index of the item that applies to an entity with `key` at a level of `field`, as
    /// [`EntityTable::index_of`] does. A shared entity has the item of all values. A cgroup that
    /// stands for an unknown user, group or job has none.
    pub fn index_at(&self, key: &Key, field: Field) -> Option<Option<usize>> {
        match key {
            Key::Default => Some(self.any_value(field)),
            Key::Cgroup(_) if field != Field::Cgroup => Some(None),
            key => self.index_of(key),
        }
    }

    /// Returns the setting of the item at index `at`.
    pub fn get(&self, at: usize) -> Option<V> {
        self.items.as_slice().get(at).map(|(_, setting)| *setting)
    }

    /// Returns the index of the item that applies to `key`, an inner `None` if none does; does not
    /// sleep. Takes O(log n). For keys without an exact item matches at most [`WILDCARDS_MAX`]
    /// patterns, about 10 ns each for jobs, 130 ns for the slowest patterns. Returns `None` if
    /// there are patterns of cgroups, and the text of the cgroup is not known.
    pub fn index_of(&self, key: &Key) -> Option<Option<usize>> {
        if let Ok(at) = self.place(&EntityKey::Exact(*key)) {
            return Some(Some(at));
        }
        if self.len() == self.exact {
            return Some(None);
        }
        let job = match key {
            Key::Jobid(job) => job,
            Key::Absent(Field::Jobid) => &JobId::ABSENT,
            Key::Cgroup(path) => {
                let is_pattern =
                    |target: &EntityKey| matches!(target, EntityKey::CgroupWildcard(_));
                let mut buf = [0; PATH_MAX + 1];
                let pattern = match self.wildcard(is_pattern) {
                    Some(_) => self.wildcard_of(path.text(&mut buf)?),
                    None => None,
                };
                return Some(pattern.or_else(|| self.any_value(Field::Cgroup)));
            }
            Key::Uid(_) | Key::Gid(_) | Key::Projid(_) | Key::Nodemap(_) => {
                return Some(key.field().and_then(|field| self.any_value(field)));
            }
            _ => return Some(None),
        };
        Some(self.wildcard(|target| match target {
            EntityKey::Wildcard(pattern) => glob::matches(pattern.as_bytes(), job.as_bytes()),
            _ => false,
        }))
    }

    /// Returns the index of the item for all values of `field`.
    fn any_value(&self, field: Field) -> Option<usize> {
        self.wildcard(|target| *target == EntityKey::AnyValue(field))
    }

    /// Writes one item per line: exact items by key, then wildcards in the order in which they were
    /// added.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        for (target, setting) in self.items.as_slice() {
            match target {
                EntityKey::AnyValue(field) => write!(out, "{}:*", field.name())?,
                EntityKey::Wildcard(job) | EntityKey::Exact(Key::Jobid(job)) => {
                    write_named(out, Field::Jobid, job.as_bytes())?
                }
                EntityKey::CgroupWildcard(path) | EntityKey::Exact(Key::Cgroup(path)) => {
                    write_named(out, Field::Cgroup, self.path_of(*path))?
                }
                EntityKey::Exact(Key::Absent(field @ (Field::Jobid | Field::Cgroup))) => {
                    write_named(out, *field, &[])?
                }
                EntityKey::Exact(Key::Absent(field)) => {
                    write!(out, "{}:{}", field.name(), u32::MAX)?
                }
                EntityKey::Exact(key) => write!(out, "{key}")?,
            }
            writeln!(out, ":{setting}")?;
        }
        Ok(())
    }

    /// Returns the index of the item of `target`, or the index at which the item belongs.
    fn place(&self, target: &EntityKey) -> core::result::Result<usize, usize> {
        let (exact, wildcards) = self
            .items
            .as_slice()
            .split_at_checked(self.exact)
            .unwrap_or_default();
        match target {
            EntityKey::Exact(key) => exact.binary_search_by(|(other, _)| match other {
                EntityKey::Exact(other) => other.cmp(key),
                _ => Ordering::Greater,
            }),
            _ => match wildcards.iter().position(|(other, _)| other == target) {
                Some(at) => Ok(self.exact.saturating_add(at)),
                None => Err(self.len()),
            },
        }
    }

    fn set(&mut self, target: EntityKey, setting: V) -> Result {
        let is_exact = matches!(target, EntityKey::Exact(_));
        let at = match self.place(&target) {
            Ok(at) => {
                if let Some((_, old)) = self.items.as_mut_slice().get_mut(at) {
                    *old = setting;
                }
                return Ok(());
            }
            Err(at) => at,
        };
        if self.len() >= ITEMS_MAX {
            return Err(Error::new(Code::NoSpace, V::REASONS.full));
        }
        if !is_exact && self.len().saturating_sub(self.exact) >= WILDCARDS_MAX {
            return Err(Error::new(Code::NoSpace, "too many wildcards (limit: 64)"));
        }
        // INVARIANT: later items move by one position, so the order stays.
        self.items
            .insert(at, (target, setting))
            .map_err(no_memory)?;
        self.exact = self.exact.saturating_add(is_exact.into());
        Ok(())
    }

    fn remove(&mut self, target: &EntityKey) -> Result {
        let gone = Error::new(Code::NoEntry, V::REASONS.gone);
        let at = self.place(target).map_err(|_| gone)?;
        // INVARIANT: later items move by one position, so the order stays.
        self.items.remove(at);
        if matches!(target, EntityKey::Exact(_)) {
            self.exact = self.exact.saturating_sub(1);
        }
        Ok(())
    }
}

fn no_memory(_: NoMemory) -> Error {
    Error::new(Code::NoMemory, "no memory for settings of entities")
}

impl<V: EntitySetting> EntityEdit<V> {
    /// Parses one item; stores the text of a cgroup in `path`.
    fn parse(item: &str, path: &mut NameText) -> Result<Self> {
        if item == "clear" {
            return Ok(Self::Clear);
        }
        let (removes, item) = match item.strip_prefix('-') {
            Some(item) => (true, item),
            None => (false, item),
        };
        let form = Error::invalid(V::REASONS.form);
        let (field, value) = item.split_once(':').ok_or(form)?;
        let field = Field::parse(field).filter(|field| *field != Field::Opcode);
        let field = field.ok_or(Error::invalid(
            "unknown field (fields: uid gid projid nodemap cgroup nid jobid)",
        ))?;
        let has_names = matches!(field, Field::Jobid | Field::Cgroup);
        let quoted = value.strip_prefix('"').filter(|_| has_names);
        let (target, setting) = if let Some(text) = quoted {
            let mut name = NameText::new();
            let rest = unquote(text, &mut name)?;
            let setting = match rest.strip_prefix(':') {
                None if !rest.is_empty() => {
                    return Err(Error::invalid("expected a colon after the quotes"));
                }
                setting => setting,
            };
            (EntityKey::of_name(field, &name, path)?, setting)
        } else {
            let (value, setting) = match value.rsplit_once(':') {
                Some((value, setting)) if !removes => (value, Some(setting)),
                _ => (value, None),
            };
            (EntityKey::parse(field, value, path)?, setting)
        };
        match (removes, setting) {
            (true, None) => Ok(Self::Remove(target)),
            (true, Some(_)) => Err(Error::invalid(V::REASONS.removal)),
            (false, None) => Err(Error::invalid(V::REASONS.missing)),
            (false, Some(setting)) => Ok(Self::Set(target, V::parse(setting)?)),
        }
    }
}

impl EntityKey {
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
        if value == "*" && !matches!(field, Field::Jobid | Field::Nid) {
            return Ok(Self::AnyValue(field));
        }
        let make = match field {
            Field::Jobid | Field::Cgroup => {
                if value.is_empty() {
                    return Err(Error::invalid(
                        "empty name (\"\" stands for requests without a name)",
                    ));
                }
                return Self::of_name(field, &NameText::plain(value)?, path);
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

/// Writes a field and a name or pattern, in quotes if it needs them.
fn write_named(out: &mut dyn Write, field: Field, bytes: &[u8]) -> fmt::Result {
    write!(out, "{}:", field.name())?;
    write_name(out, bytes)
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

/// Checks a list of items; an item to remove need not exist.
pub fn check<V: EntitySetting>(text: &str) -> Result {
    items::check(EntityTable::<V>::new().apply(text.trim()))
}

/// Checks a mode of fairshare, with or without weights.
pub fn check_mode(text: &str) -> Result {
    let (_, list) = split(text)?;
    list.map_or(Ok(()), check::<u32>)
}

#[cfg(test)]
mod tests;
