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
//! item    = name ":" setting | "-" name | "clear"
//! name    = entity [ "&" entity ]
//! entity  = field ":" value
//! field   = "uid" | "gid" | "projid" | "nodemap" | "cgroup" | "nid" | "jobid"
//!         | "opcode" | "ioprio"
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
//! - `opcode`: `ost_read` and others ([`crate::sched::attr::Opcode`]), or `*`.
//! - `ioprio`: `rt-0` to `rt-7`, `be-0` to `be-7`, `idle`, or `*`.
//! - `jobid`: a name of up to 31 printable bytes. A name with `*` or `?` is a pattern: `*` matches
//!   any run of bytes, including none, `?` matches any one byte.
//! - `cgroup`, `jobid`, quoted: the same in `"`, with blanks and commas; `\"`, `\\` and `\xNN` for
//!   other bytes; `""` for requests without a value.
//!
//! A *pair* of names, of different fields, stands for the entities of one that are below one of the
//! other, whatever the order of the levels: `uid:1000&opcode:ost_write` are the writes of a user.
//!
//! Pairs precede exact items, and these wildcards. Of the pairs or wildcards that match, the first
//! one added applies; a changed one keeps its position. In a pair, `cgroup:*` stands for each
//! cgroup. The default weight is 1; that of an I/O priority with levels is 8 less its level.

use super::mode::Mode;
use crate::sched::{
    attr::{
        cgroup::{self, PATH_MAX},
        CgroupPath, IoClass, IoPriority, Opcode,
    },
    count::Count,
    error::{Code, Error, Result},
    glob,
    items::{self, next_item, next_name, parse_number, unquote, write_name, NameText},
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

/// Largest number of pairs of a table, because a look-up may try all of them.
pub const PAIRS_MAX: usize = 64;

/// Setting of an entity.
pub trait EntitySetting: Copy + fmt::Display {
    /// Returns the setting of an entity with `key` that the table does not list.
    fn unlisted(key: &Key) -> Self;

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
    fn unlisted(key: &Key) -> Self {
        match key {
            Key::IoPriority(priority) if priority.class() == Some(IoClass::Idle) => 1,
            Key::IoPriority(priority) => 8u32.saturating_sub(priority.level().into()),
            Key::Absent(Field::IoPriority) => 4,
            _ => 1,
        }
    }

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

/// Entities of two items, by field.
type EntityPair = [EntityKey; 2];

/// Name of an item.
#[derive(Clone, Copy)]
enum EntityName {
    /// One entity, or a wildcard.
    One(EntityKey),
    /// Entities of the one that are below the other.
    Pair(EntityPair),
}

/// Edit that one item asks for.
#[derive(Clone, Copy)]
enum EntityEdit<V> {
    /// Adds or changes an item.
    Set(EntityName, V),
    /// Removes an item.
    Remove(EntityName),
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
/// - There are at most [`PAIRS_MAX`] pairs, none twice, in the order in which they were added, and
///   at most [`ITEMS_MAX`] items and pairs, including at most [`WILDCARDS_MAX`] wildcards.
/// - The index of a pair in the table is that in `pairs`, plus the number of items.
pub struct EntityTable<V> {
    items: GrowingList<(EntityKey, V)>,
    pairs: GrowingList<(EntityPair, V)>,
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
            pairs: GrowingList::new(),
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
    /// - `ENOSPC`: more than [`ITEMS_MAX`] items, [`WILDCARDS_MAX`] wildcards, or [`PAIRS_MAX`]
    ///   pairs.
    /// - `ENOMEM`: no memory.
    pub fn apply(&self, text: &str) -> Result<Self> {
        let mut next = Self {
            items: GrowingList::with_capacity(self.len()).map_err(no_memory)?,
            pairs: GrowingList::new(),
            exact: self.exact,
            paths: GrowingList::new(),
        };
        for &item in self.items.as_slice() {
            next.items.push(item).map_err(no_memory)?;
        }
        for &pair in self.pairs.as_slice() {
            next.pairs.push(pair).map_err(no_memory)?;
        }
        for (digest, text) in self.paths.as_slice() {
            let exact = EntityKey::Exact(Key::Cgroup(*digest));
            let both = [exact, EntityKey::CgroupWildcard(*digest)];
            let mut in_pairs = self.pairs.as_slice().iter().flat_map(|(pair, _)| pair);
            if both.iter().any(|one| self.search(one).is_ok())
                || in_pairs.any(|one| both.contains(one))
            {
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
                EntityEdit::Remove(name) => next.remove(&name)?,
                EntityEdit::Clear => {
                    next.items.truncate(0);
                    next.pairs.truncate(0);
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

    /// Returns the nearest cgroup as [`Self::named_cgroup`] does, that this table or `other` names.
    pub fn named_cgroup_with<U: EntitySetting>(
        &self,
        other: &EntityTable<U>,
        path: CgroupPath,
    ) -> CgroupPath {
        path.nearest(|path, text| self.names_cgroup(path, text) || other.names_cgroup(path, text))
    }

    /// Returns true if the table names the cgroup `path` with the text `text`.
    pub fn names_cgroup(&self, path: CgroupPath, text: &[u8]) -> bool {
        let exact = EntityKey::Exact(Key::Cgroup(path));
        let mut in_pairs = self.pairs.as_slice().iter().flat_map(|(pair, _)| pair);
        self.search(&exact).is_ok()
            || self.wildcard_of(text).is_some()
            || in_pairs.any(|one| match one {
                EntityKey::CgroupWildcard(digest) => cgroup::matches(self.path_of(*digest), text),
                one => *one == exact,
            })
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

    /// Returns the number of items and pairs.
    pub fn len(&self) -> usize {
        let pairs = self.pairs.as_slice().len();
        self.items.as_slice().len().saturating_add(pairs)
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the setting of `key`; [`EntitySetting::UNLISTED`] if it is not known.
    #[cfg(not(MODULE))]
    pub fn of(&self, key: &Key) -> V {
        let item = self.index_of(key).flatten().and_then(|at| self.get(at));
        item.unwrap_or(V::unlisted(key))
    }

    /// Returns the setting of an entity; `None` if [`EntityTable::index_at`] does.
    pub fn find(&self, key: &Key, field: Field, above: &KeyAbove<'_>) -> Option<V> {
        let item = self.index_at(key, field, above)?;
        let item = item.and_then(|at| self.get(at));
        Some(item.unwrap_or(V::unlisted(key)))
    }

    /// Returns the index of the item that applies to an entity with `key` at a level of `field`, as
    /// [`EntityTable::index_of`] does; `above` returns the keys of the entities above it. A shared
    /// entity has the item of all values. A cgroup that stands for an unknown user, group or job
    /// has none.
    pub fn index_at(&self, key: &Key, field: Field, above: &KeyAbove<'_>) -> Option<Option<usize>> {
        for (at, (pair, _)) in self.pairs.as_slice().iter().enumerate() {
            let [first, second] = pair;
            for (own, other) in [(first, second), (second, first)] {
                let Some(other_key) = other.field().and_then(above) else {
                    continue;
                };
                let is_own = own.field() == Some(field) && self.matches(own, key, field)?;
                // An unknown text above does not change the item of the entity itself.
                let is_below = is_own && self.matches(other, &other_key, field).unwrap_or(false);
                if is_below {
                    return Some(Some(self.items.as_slice().len().saturating_add(at)));
                }
            }
        }
        match key {
            Key::Default => Some(self.any_value(field)),
            Key::Cgroup(_) if field != Field::Cgroup => Some(None),
            key => self.index_of(key),
        }
    }

    /// Returns true if `target` stands for an entity with `key` at a level of `field`; `None` if
    /// that is not known, because the text of a cgroup is not.
    fn matches(&self, target: &EntityKey, key: &Key, field: Field) -> Option<bool> {
        Some(match (target, key) {
            (EntityKey::AnyValue(all), Key::Default) => *all == field,
            (EntityKey::AnyValue(_), Key::Absent(_)) => false,
            (EntityKey::AnyValue(all), key) => key.field() == Some(*all),
            (EntityKey::Exact(exact), key) => exact == key,
            (EntityKey::Wildcard(pattern), Key::Jobid(job)) => {
                glob::matches(pattern.as_bytes(), job.as_bytes())
            }
            (EntityKey::CgroupWildcard(digest), Key::Cgroup(path)) => {
                let mut buf = [0; PATH_MAX + 1];
                cgroup::matches(self.path_of(*digest), path.text(&mut buf)?)
            }
            (EntityKey::Wildcard(_) | EntityKey::CgroupWildcard(_), _) => false,
        })
    }

    /// Returns the setting of the item or pair at index `at`.
    pub fn get(&self, at: usize) -> Option<V> {
        let items = self.items.as_slice();
        let item = items.get(at).map(|(_, setting)| *setting);
        item.or_else(|| {
            let pair = self.pairs.as_slice().get(at.checked_sub(items.len())?);
            pair.map(|(_, setting)| *setting)
        })
    }

    /// Returns the index of the item that applies to `key`, an inner `None` if none does; does not
    /// sleep. Takes O(log n). For keys without an exact item matches at most [`WILDCARDS_MAX`]
    /// patterns, about 10 ns each for jobs, 130 ns for the slowest patterns. Returns `None` if
    /// there are patterns of cgroups, and the text of the cgroup is not known.
    pub fn index_of(&self, key: &Key) -> Option<Option<usize>> {
        if let Ok(at) = self.search(&EntityKey::Exact(*key)) {
            return Some(Some(at));
        }
        if self.items.as_slice().len() == self.exact {
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
            Key::Uid(_)
            | Key::Gid(_)
            | Key::Projid(_)
            | Key::Nodemap(_)
            | Key::Opcode(_)
            | Key::IoPriority(_) => {
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

    /// Writes one item per line: exact items by key, then wildcards and pairs in the order in which
    /// they were added.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        for (target, setting) in self.items.as_slice() {
            self.write_key(out, target)?;
            writeln!(out, ":{setting}")?;
        }
        for ([first, second], setting) in self.pairs.as_slice() {
            self.write_key(out, first)?;
            out.write_char('&')?;
            self.write_key(out, second)?;
            writeln!(out, ":{setting}")?;
        }
        Ok(())
    }

    fn write_key(&self, out: &mut dyn Write, target: &EntityKey) -> fmt::Result {
        match target {
            EntityKey::AnyValue(field) => write!(out, "{}:*", field.name()),
            EntityKey::Wildcard(job) | EntityKey::Exact(Key::Jobid(job)) => {
                write_named(out, Field::Jobid, job.as_bytes())
            }
            EntityKey::CgroupWildcard(path) | EntityKey::Exact(Key::Cgroup(path)) => {
                write_named(out, Field::Cgroup, self.path_of(*path))
            }
            EntityKey::Exact(Key::Absent(field @ (Field::Jobid | Field::Cgroup))) => {
                write_named(out, *field, &[])
            }
            EntityKey::Exact(Key::Absent(field)) => write!(out, "{}:{}", field.name(), u32::MAX),
            EntityKey::Exact(key) => write!(out, "{key}"),
        }
    }

    /// Returns the index of the item of `target`, or the index at which the item belongs.
    fn search(&self, target: &EntityKey) -> core::result::Result<usize, usize> {
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
                None => Err(self.items.as_slice().len()),
            },
        }
    }

    /// Returns the index of `pair` in `pairs`.
    fn pair_at(&self, pair: &EntityPair) -> Option<usize> {
        let mut pairs = self.pairs.as_slice().iter();
        pairs.position(|(other, _)| other == pair)
    }

    fn set(&mut self, name: EntityName, setting: V) -> Result {
        let target = match name {
            EntityName::One(target) => target,
            EntityName::Pair(pair) => return self.set_pair(pair, setting),
        };
        let is_exact = matches!(target, EntityKey::Exact(_));
        let at = match self.search(&target) {
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
        let wildcards = self.items.as_slice().len().saturating_sub(self.exact);
        if !is_exact && wildcards >= WILDCARDS_MAX {
            return Err(Error::new(Code::NoSpace, "too many wildcards (limit: 64)"));
        }
        // INVARIANT: later items move by one position, so the order stays.
        self.items
            .insert(at, (target, setting))
            .map_err(no_memory)?;
        self.exact.count(is_exact.into());
        Ok(())
    }

    fn set_pair(&mut self, pair: EntityPair, setting: V) -> Result {
        if let Some(at) = self.pair_at(&pair) {
            if let Some((_, old)) = self.pairs.as_mut_slice().get_mut(at) {
                *old = setting;
            }
            return Ok(());
        }
        if self.len() >= ITEMS_MAX {
            return Err(Error::new(Code::NoSpace, V::REASONS.full));
        }
        if self.pairs.as_slice().len() >= PAIRS_MAX {
            return Err(Error::new(Code::NoSpace, "too many pairs (limit: 64)"));
        }
        self.pairs.push((pair, setting)).map_err(no_memory)
    }

    fn remove(&mut self, name: &EntityName) -> Result {
        let gone = Error::new(Code::NoEntry, V::REASONS.gone);
        let target = match name {
            EntityName::One(target) => target,
            EntityName::Pair(pair) => {
                self.pairs.remove(self.pair_at(pair).ok_or(gone)?);
                return Ok(());
            }
        };
        let at = self.search(target).map_err(|_| gone)?;
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
        let mut names = Some(item);
        let (mut name, mut setting) = (None, None);
        while let Some(text) = next_name(&mut names) {
            let is_last = names.is_none();
            let (key, rest) = EntityKey::read::<V>(text, is_last && !removes, path)?;
            if rest.is_some() && !is_last {
                return Err(Error::invalid(V::REASONS.form));
            }
            setting = rest;
            name = Some(match name {
                None => EntityName::One(key),
                Some(EntityName::One(first)) => EntityKey::pair(first, key)?,
                Some(EntityName::Pair(_)) => {
                    return Err(Error::invalid("more than two names in an item"));
                }
            });
        }
        let target = name.ok_or(Error::invalid(V::REASONS.form))?;
        match (removes, setting) {
            (true, None) => Ok(Self::Remove(target)),
            (true, Some(_)) => Err(Error::invalid(V::REASONS.removal)),
            (false, None) => Err(Error::invalid(V::REASONS.missing)),
            (false, Some(setting)) => Ok(Self::Set(target, V::parse(setting)?)),
        }
    }
}

/// Returns the key of the entity of a field above another entity; `None` if there is none.
pub type KeyAbove<'a> = dyn Fn(Field) -> Option<Key> + 'a;

impl EntityKey {
    /// Returns the field of the entities.
    fn field(&self) -> Option<Field> {
        match self {
            Self::Exact(key) => key.field(),
            Self::Wildcard(_) => Some(Field::Jobid),
            Self::CgroupWildcard(_) => Some(Field::Cgroup),
            Self::AnyValue(field) => Some(*field),
        }
    }

    /// Returns the pair of two names, in the order of the fields.
    fn pair(first: Self, second: Self) -> Result<EntityName> {
        let fields = (first.field(), second.field());
        Ok(EntityName::Pair(match fields.0.cmp(&fields.1) {
            Ordering::Less => [first, second],
            Ordering::Greater => [second, first],
            Ordering::Equal => return Err(Error::invalid("two names of the same field")),
        }))
    }

    /// Reads `field:value`, and with `is_set` the setting after a colon; stores the text of a
    /// cgroup in `path`.
    fn read<'a, V: EntitySetting>(
        text: &'a str,
        is_set: bool,
        path: &mut NameText,
    ) -> Result<(Self, Option<&'a str>)> {
        let (field, value) = text
            .split_once(':')
            .ok_or(Error::invalid(V::REASONS.form))?;
        let field = Field::parse(field).ok_or(Error::invalid(
            "unknown field (fields: uid gid projid nodemap cgroup nid jobid opcode ioprio)",
        ))?;
        let has_names = matches!(field, Field::Jobid | Field::Cgroup);
        if let Some(text) = value.strip_prefix('"').filter(|_| has_names) {
            let mut name = NameText::new();
            let rest = unquote(text, &mut name)?;
            let setting = match rest.strip_prefix(':') {
                None if !rest.is_empty() => {
                    return Err(Error::invalid("expected a colon after the quotes"));
                }
                setting => setting,
            };
            return Ok((Self::of_name(field, &name, path)?, setting));
        }
        let (value, setting) = match value.rsplit_once(':') {
            Some((value, setting)) if is_set => (value, Some(setting)),
            _ => (value, None),
        };
        Ok((Self::parse(field, value, path)?, setting))
    }

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
            Field::Opcode => {
                let opcode = Opcode::parse(value).ok_or(Error::invalid(
                    "value is not an operation, such as ost_read",
                ))?;
                return Ok(Self::Exact(Key::Opcode(opcode)));
            }
            Field::IoPriority => {
                let priority = IoPriority::parse(value).ok_or(Error::invalid(
                    "value is not an I/O priority: rt-0 to rt-7, be-0 to be-7, or idle",
                ))?;
                return Ok(Self::Exact(Key::IoPriority(priority)));
            }
            Field::Uid => Key::Uid,
            Field::Gid => Key::Gid,
            Field::Projid => Key::Projid,
            Field::Nodemap => Key::Nodemap,
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
