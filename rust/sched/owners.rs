// SPDX-License-Identifier: GPL-2.0-only

//! Users and groups that own cgroups, as the administrator says.
//!
//! A table ([`Owners`]) is immutable and replaced as a whole. The written form of a table, applied
//! to an empty table, makes an equal table.
//!
//! # Grammar
//!
//! ```text
//! text = *separator [ item *( 1*separator item ) ] *separator
//! item = path "=" uid ":" gid | "-" path | "clear"
//! ```
//!
//! Separators and paths are as in weights ([`crate::sched::policy::fairshare::entity_table`]), ids
//! are decimal numbers up to 4294967294. A path stands for the cgroup and what is below it, except
//! what another path stands for. A path precedes patterns of the same level; of the patterns that
//! match, the first one added applies.
//!
//! # Requests
//!
//! A look-up compares a path and its ancestors with all items, so its results are kept by the id of
//! the cgroup ([`OwnerCache`]) while the table is the same, which its *generation* tells.

use crate::sched::{
    atomic::Hint,
    attr::{
        cgroup::{self, Version},
        CgroupPath,
    },
    count::Count,
    error::{Code, Error, Result},
    glob,
    items::{self, next_item, parse_number, unquote, write_name, NameText},
    mem::{GrowingList, Shared},
    parameters::{schema::rows, Parameter},
    policy::control::{Host, TextParameter},
    rng::avalanche,
};
use core::{
    fmt::{self, Write},
    num::NonZeroU64,
};

/// Largest number of items of a table.
pub const OWNERS_MAX: usize = 256;

/// Number of look-ups that are kept.
const CACHED: usize = 64;

/// User and group, as the complement of `uid << 32 | gid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerIds(NonZeroU64);

impl OwnerIds {
    /// Creates the owner; `None` if both ids are 4294967295.
    pub fn new(uid: u32, gid: u32) -> Option<Self> {
        NonZeroU64::new(!((u64::from(uid) << 32) | u64::from(gid))).map(Self)
    }

    /// Returns user and group.
    pub const fn get(self) -> (u32, u32) {
        let ids = !self.0.get();
        ((ids >> 32) as u32, ids as u32)
    }
}

/// Item of a table.
#[derive(Clone)]
struct OwnedCgroup {
    path: CgroupPath,
    text: Shared<NameText>,
    ids: OwnerIds,
}

/// Edit that one item asks for.
enum OwnerEdit {
    Set(NameText, OwnerIds),
    Remove(NameText),
    Clear,
}

/// Table of owners.
///
/// # Invariants
///
/// The first `exact` items are paths, sorted by their texts; the others are patterns in the order
/// in which they were added. No text is there twice.
pub struct Owners {
    items: GrowingList<OwnedCgroup>,
    exact: usize,
}

impl Owners {
    /// Creates an empty table; does not allocate.
    pub const fn new() -> Self {
        // INVARIANT: there are no items.
        Self {
            items: GrowingList::new(),
            exact: 0,
        }
    }

    /// Returns the table after applying the items of `text`; may sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an invalid item.
    /// - `ENOENT`: the removal of an owner that does not exist.
    /// - `ENOSPC`: more than [`OWNERS_MAX`] owners.
    /// - `ENOMEM`: no memory.
    pub fn apply(&self, text: &str) -> Result<Self> {
        let mut next = Self {
            items: GrowingList::with_capacity(self.len())?,
            exact: self.exact,
        };
        for item in self.items.as_slice() {
            next.items.push(item.clone())?;
        }
        let mut rest = text;
        while let Some(item) = next_item(&mut rest) {
            match OwnerEdit::parse(item)? {
                OwnerEdit::Set(text, ids) => next.set(text, ids)?,
                OwnerEdit::Remove(text) => next.remove(text.as_bytes())?,
                OwnerEdit::Clear => next = Self::new(),
            }
        }
        Ok(next)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.as_slice().len()
    }

    /// Returns true if no cgroup has an owner.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the owner of the nearest cgroup that the table names: `path` itself, or one of its
    /// ancestors. Does not sleep.
    pub fn of(&self, path: CgroupPath) -> Option<OwnerIds> {
        let mut found = None;
        path.nearest(|path, text| {
            found = self.named(path, text);
            found.is_some()
        });
        found
    }

    /// Returns the owner of the cgroup `path` with this text, which is empty if it is not known.
    fn named(&self, path: CgroupPath, text: &[u8]) -> Option<OwnerIds> {
        let (exact, patterns) = self.items.as_slice().split_at_checked(self.exact)?;
        let mut matching = patterns.iter();
        let item = exact.iter().find(|item| item.path == path);
        let item =
            item.or_else(|| matching.find(|item| cgroup::matches(item.text.as_bytes(), text)));
        item.map(|item| item.ids)
    }

    /// Writes one item per line.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        self.write_lines("", out)
    }

    /// Writes one item per line, each after `before`.
    pub fn write_lines(&self, before: &str, out: &mut dyn Write) -> fmt::Result {
        for OwnedCgroup { text, ids, .. } in self.items.as_slice() {
            out.write_str(before)?;
            write_name(out, text.as_bytes())?;
            let (uid, gid) = ids.get();
            writeln!(out, "={uid}:{gid}")?;
        }
        Ok(())
    }

    /// Returns the index of the item with this text, or the index at which it belongs.
    fn search(&self, text: &[u8]) -> core::result::Result<usize, usize> {
        let (exact, patterns) = self
            .items
            .as_slice()
            .split_at_checked(self.exact)
            .unwrap_or_default();
        if !glob::is_pattern(text) {
            return exact.binary_search_by(|item| item.text.as_bytes().cmp(text));
        }
        let at = patterns
            .iter()
            .position(|item| item.text.as_bytes() == text);
        at.map(|at| self.exact.saturating_add(at)).ok_or(self.len())
    }

    fn set(&mut self, text: NameText, ids: OwnerIds) -> Result {
        let path = CgroupPath::parse(text.as_bytes()).ok_or(Error::invalid(cgroup::EXPECTED))?;
        let at = match self.search(text.as_bytes()) {
            Ok(at) => {
                if let Some(item) = self.items.as_mut_slice().get_mut(at) {
                    item.ids = ids;
                }
                return Ok(());
            }
            Err(at) => at,
        };
        if self.len() >= OWNERS_MAX {
            return Err(Error::new(Code::NoSpace, "too many owners (limit: 256)"));
        }
        let is_exact = !glob::is_pattern(text.as_bytes());
        let text = Shared::new(text)?;
        // INVARIANT: later items move by one position, so the order stays.
        self.items.insert(at, OwnedCgroup { path, text, ids })?;
        self.exact.count(is_exact.into());
        Ok(())
    }

    fn remove(&mut self, text: &[u8]) -> Result {
        let gone = Error::new(Code::NoEntry, "owner to remove does not exist");
        let at = self.search(text).map_err(|_| gone)?;
        // INVARIANT: later items move by one position, so the order stays.
        self.items.remove(at);
        if !glob::is_pattern(text) {
            self.exact = self.exact.saturating_sub(1);
        }
        Ok(())
    }
}

impl OwnerEdit {
    /// Parses one item.
    fn parse(item: &str) -> Result<Self> {
        if item == "clear" {
            return Ok(Self::Clear);
        }
        let form = Error::invalid("expected PATH=UID:GID, -PATH or clear");
        let (removes, item) = match item.strip_prefix('-') {
            Some(item) => (true, item),
            None => (false, item),
        };
        let (path, ids) = if let Some(quoted) = item.strip_prefix('"') {
            let mut name = NameText::new();
            let rest = unquote(quoted, &mut name)?;
            (name, rest)
        } else {
            let at = match removes {
                true => item.len(),
                false => item.rfind('=').ok_or(form)?,
            };
            let (path, ids) = item.split_at_checked(at).ok_or(form)?;
            (NameText::plain(path)?, ids)
        };
        match path.as_bytes() {
            [b'/'] => return Err(Error::invalid("the root of all cgroups has no owner")),
            [b'/', ..] => {}
            _ => return Err(Error::invalid(cgroup::EXPECTED)),
        }
        if removes {
            return ids.is_empty().then_some(Self::Remove(path)).ok_or(form);
        }
        let ids = ids.strip_prefix('=').and_then(|ids| ids.split_once(':'));
        let (uid, gid) = ids.ok_or(form)?;
        let number = |text| {
            let number = parse_number(text).filter(|number| *number != u32::MAX);
            number.ok_or(Error::invalid(
                "uid or gid is not a decimal number from 0 to 4294967294",
            ))
        };
        let ids = OwnerIds::new(number(uid)?, number(gid)?).ok_or(form)?;
        Ok(Self::Set(path, ids))
    }
}

/// Look-up that is kept.
struct CachedOwner {
    version: Version,
    generation: Hint,
    /// Id of the cgroup.
    id: Hint,
    /// The [`OwnerIds`]; 0: no owner.
    ids: Hint,
}

impl CachedOwner {
    const fn new() -> Self {
        Self {
            version: Version::new(),
            generation: Hint::new(0),
            id: Hint::new(0),
            ids: Hint::new(0),
        }
    }
}

/// Look-ups that are kept; has no lock and never allocates.
pub struct OwnerCache {
    rows: [CachedOwner; CACHED],
}

impl OwnerCache {
    /// Creates an empty cache.
    pub const fn new() -> Self {
        Self {
            rows: [const { CachedOwner::new() }; CACHED],
        }
    }

    /// Returns the owner of the cgroup `id` in the table of `generation`, which is not 0; asks
    /// `find` if it is not known, which returns `None` if the cgroup cannot be found.
    pub fn of(
        &self,
        generation: u64,
        id: u64,
        find: impl FnOnce() -> Option<Option<OwnerIds>>,
    ) -> Option<OwnerIds> {
        let row = self.rows.get(avalanche(id) as usize % CACHED)?;
        let known = row.version.read(|| {
            let is_same = row.id.get() == id && row.generation.get() == generation;
            is_same.then(|| row.ids.get())
        });
        if let Some(ids) = known {
            return NonZeroU64::new(ids).map(OwnerIds);
        }
        let found = find()?;
        let ids = found.map_or(0, |OwnerIds(ids)| ids.get());
        row.version.write(|| {
            row.generation.set(generation);
            row.id.set(id);
            row.ids.set(ids);
            true
        });
        found
    }
}

/// Parameter of the table.
pub const PARAMETERS: &[Parameter] = rows! {
    |values| values, "servers.md", "" {} {
        /// Owners of cgroups: all their requests are of the user and the group.
        "nrs_owners" Both "items PATH=UID:GID, -PATH, clear", "", "ENOENT, ENOSPC, ENOMEM",
            Some(check);
    }
};

/// Checks a list of owners; an item to remove need not exist.
fn check(text: &str) -> Result {
    items::check(Owners::new().apply(text.trim()))
}

/// Returns the accessors of the parameter.
pub fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
    const {
        &[TextParameter::both(
            "nrs_owners",
            |host, out| Ok(host.parameters().owners.write(out).map_err(Error::from)?),
            |host, text| {
                host.change(|parameters| {
                    parameters.owners = Shared::new(parameters.owners.apply(text.trim())?)?;
                    Ok(())
                })
            },
        )]
    }
}

#[cfg(test)]
mod tests;
