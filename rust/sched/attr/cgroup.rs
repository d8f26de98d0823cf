// SPDX-License-Identifier: GPL-2.0-only

//! Cgroups, by their paths.
//!
//! # Terms
//!
//! - *Path*: names of the cgroup and its ancestors from the root of the hierarchy, as in
//!   `/system.slice/a.service`. A cgroup that is removed and made again has the same path.
//! - *Digest* of a path: [`CgroupPath`]. It stands for the path wherever requests are compared. It
//!   depends on a secret ([`set_secret`]), so that no user can make a path with a given digest.
//! - *Text*: the path as bytes, in a table of recently used ones. Only patterns and displays need
//!   it.
//! - *Owner* of a cgroup ([`CgroupOwner`]): root makes the slices of systemd, and the cgroup in a
//!   slice that is none: of a service, a container, or a machine. What is below may belong to a
//!   user, who may make as many cgroups as he likes. So the owner is the first cgroup of a path
//!   that is no slice.
//!
//! ```text
//!  path ─────────► digest ────────────► keys of classes, rules, weights
//!           │                                  │
//!           └──► row of the table ──text──► patterns, displays
//! ```
//!
//! A digest selects the rows of the [`table`] that may have its text. Half of them may be of one
//! owner. A cgroup whose text finds no row counts as its nearest ancestor that has one.

mod table;

use crate::sched::{
    atomic::AtomicWord,
    glob,
    items::NameText,
    jobid::write_clean,
    key::{escape, Hasher},
    rng::avalanche,
    units::NSEC_PER_SEC,
};
use core::fmt::{self, Write};
pub use table::Version;
use table::{set_if_new, tables, Row, KEPT_S, ROWS, WAYS};

/// Maximum length of a text, bytes.
pub const PATH_MAX: usize = 383;

/// Maximum length of a name in a path, bytes.
const NAME_MAX: usize = 255;

/// Time after which the cgroups of requests must be seen again, so that their texts stay, ns.
pub const REFRESH: u64 = KEPT_S / 10 * NSEC_PER_SEC;

/// Maximum number of names in a path; deeper cgroups count as their ancestor at this level.
const LEVELS_MAX: i32 = 32;

/// What a refused path should have been.
pub const EXPECTED: &str = "the path of a cgroup, such as /system.slice/*, up to 383 bytes";

static SECRET: AtomicWord = AtomicWord::new(0);

/// Sets the secret of all digests, once and before the first one.
#[cfg(MODULE)]
pub(crate) fn set_secret(secret: u64) {
    SECRET.set(secret);
}

/// Buffer for a text.
pub type PathBuf = [u8; PATH_MAX + 1];

/// Digest of the path of a cgroup, or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath([u32; 2]);

/// Owner of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupOwner {
    /// The user of a slice that systemd makes for a user.
    User(u32),
    /// The cgroup, or one of its ancestors.
    Cgroup(CgroupPath),
}

/// Path and owner of a cgroup; the root has no owner.
pub type CgroupNames = (CgroupPath, Option<CgroupOwner>);

impl CgroupPath {
    /// No cgroup.
    pub const ABSENT: Self = Self([0; 2]);

    /// Returns the digest of `text`; `None` if it is no path of a cgroup.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut builder = PathBuilder::new();
        for name in names(text)? {
            let is_name = matches!(name.len(), 1..=NAME_MAX) && name != b"." && name != b"..";
            if !is_name || name.contains(&0) || !builder.push(name) {
                return None;
            }
        }
        Some(builder.digest())
    }

    /// Returns the digest of `text`, as [`Self::parse`] does, and keeps the text for displays.
    #[cfg(not(MODULE))]
    pub fn intern(text: &[u8]) -> Option<Self> {
        let path = Self::parse(text)?;
        path.keep(path.number(), text, true);
        Some(path)
    }

    /// Returns the path, unless it is absent.
    pub fn get(self) -> Option<Self> {
        (self != Self::ABSENT).then_some(self)
    }

    /// Returns the digest as a number, 0 if absent.
    pub const fn number(self) -> u64 {
        let Self([low, high]) = self;
        ((high as u64) << 32) | low as u64
    }

    /// Returns the digest with this [`Self::number`].
    pub const fn from_number(number: u64) -> Self {
        Self([number as u32, (number >> 32) as u32])
    }

    /// Returns the text; `None` if it is not in the table, or longer than [`PATH_MAX`].
    pub fn text(self, buf: &mut PathBuf) -> Option<&[u8]> {
        let (len, is_whole) = self.read(buf)?;
        buf.get(..len).filter(|_| is_whole)
    }

    /// Writes the text as part of a double-quoted string, or `#` and the digest.
    pub fn write_escaped(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |text, f| escape(text, f))
    }

    /// Writes the text by `write`, or `#` and the digest.
    fn write(
        self,
        f: &mut fmt::Formatter<'_>,
        write: impl FnOnce(&[u8], &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self.text(&mut [0; PATH_MAX + 1]) {
            Some(text) => write(text, f),
            None => write!(f, "#{:016x}", self.number()),
        }
    }

    /// Returns the cgroup itself or the nearest of its ancestors for which `is_named` returns true;
    /// itself if there is none. `is_named` gets a digest and the text, which is empty if it is not
    /// known.
    pub fn nearest(self, mut is_named: impl FnMut(Self, &[u8]) -> bool) -> Self {
        let mut buf = [0; PATH_MAX + 1];
        let known = self.read(&mut buf);
        if !matches!(known, Some((_, true))) && is_named(self, &[]) {
            return self;
        }
        let mut text = buf.get(..known.map_or(0, |(len, _)| len)).unwrap_or(&[]);
        while !text.is_empty() {
            let path = Self::parse(text).unwrap_or(Self::ABSENT);
            if is_named(path, text) {
                path.keep(path.number(), text, true);
                return path;
            }
            text = parent(text);
        }
        self
    }

    /// Returns the slice that systemd makes for `user`, and keeps its text for displays.
    pub fn user_slice(user: u32) -> Self {
        let mut text = NameText::new();
        let is_whole = write!(text, "/user.slice/user-{user}.slice").is_ok();
        let path = Self::parse(text.as_bytes()).unwrap_or(Self::ABSENT);
        path.keep(owner_of_user(user), text.as_bytes(), is_whole);
        path
    }

    /// Copies the known part of the text to `buf`; returns its length, and true if it is all.
    fn read(self, buf: &mut PathBuf) -> Option<(usize, bool)> {
        self.rows().find_map(|row| row.read(self.number(), buf))
    }

    /// Adds `text` to the table for `owner`, all of the path if `is_whole`, else its first names;
    /// returns false if there is no row.
    fn keep(self, owner: u64, text: &[u8], is_whole: bool) -> bool {
        if let Some(row) = self.row() {
            row.touch();
            return true;
        }
        let taken = self
            .rows()
            .filter(|row| row.owner.get() == owner && !row.is_free());
        if taken.count() >= WAYS / 2 {
            return false;
        }
        let mut free = self.rows().filter(|row| row.is_free());
        free.any(|row| row.write(self.number(), owner, text, is_whole))
    }

    /// Returns the row that has the text.
    fn row(self) -> Option<&'static Row> {
        let number = self.number();
        self.rows().find(|row| number != 0 && row.has(number))
    }

    /// Returns the rows that may have the text.
    fn rows(self) -> impl Iterator<Item = &'static Row> {
        let set = self.number() as usize % (ROWS / WAYS);
        tables()
            .texts
            .iter()
            .skip(set.wrapping_mul(WAYS))
            .take(WAYS)
    }
}

/// The text, with `_` in place of blanks and non-printable characters, or `#` and the digest.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, write_clean)
    }
}

/// Path that is read name by name.
struct PathBuilder {
    hasher: Hasher,
    state: u64,
    levels: i32,
}

impl PathBuilder {
    fn new() -> Self {
        let hasher = Hasher::new(SECRET.get());
        Self {
            state: hasher.word(11),
            hasher,
            levels: 0,
        }
    }

    /// Appends a name; returns false if the path has all names it can have.
    fn push(&mut self, name: &[u8]) -> bool {
        if self.levels >= LEVELS_MAX {
            return false;
        }
        self.levels = self.levels.wrapping_add(1);
        self.state = self.hasher.mix_bytes(self.state, name);
        true
    }

    fn digest(&self) -> CgroupPath {
        CgroupPath::from_number(self.state.max(1))
    }
}

/// Returns the names of a path; `None` without a slash at the front.
fn names(path: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let names = path.strip_prefix(b"/")?;
    let count = if names.is_empty() { 0 } else { usize::MAX };
    Some(names.split(|byte| *byte == b'/').take(count))
}

/// Returns true if `path` matches `pattern`, whose `*` and `?` match within a name.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (Some(mut patterns), Some(mut path)) = (names(pattern), names(path)) else {
        return false;
    };
    loop {
        match (patterns.next(), path.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if glob::matches(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Returns the path above `text`; empty for the root.
fn parent(text: &[u8]) -> &[u8] {
    let at = text.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    match text.get(..at) {
        Some([]) if text.len() > 1 => b"/",
        above => above.unwrap_or(&[]),
    }
}

/// Returns the path and the owner of the cgroup `id` at `now`, ns. If they are not known, `name`
/// copies the name at a level of the path, 1 below the root, and returns its length, or `None` past
/// the cgroup; then `is_same` returns true if all names were of that cgroup. Returns `None` if not.
pub fn names_of(
    id: u64,
    now: u64,
    name: impl FnMut(i32, &mut [u8]) -> Option<usize>,
    is_same: impl FnOnce() -> bool,
) -> Option<CgroupNames> {
    set_if_new(&tables().clock, now / NSEC_PER_SEC);
    let known = tables().known.get(avalanche(id) as usize % ROWS);
    let has_text = |path: CgroupPath| path.row().map(Row::touch).is_some();
    let is_kept = |(path, owner): &CgroupNames| match owner {
        Some(CgroupOwner::Cgroup(owner)) => has_text(*path) && has_text(*owner),
        _ => has_text(*path),
    };
    if let Some(names) = known.and_then(|known| known.read(id)).filter(is_kept) {
        return Some(names);
    }
    let path = ReadPath::new(name);
    if !is_same() {
        return None;
    }
    let names = path.keep();
    if let Some(known) = known.filter(|_| names.0 == path.path) {
        known.write(id, names);
    }
    Some(names)
}

/// Names of a cgroup, and what is known of its text, for a request that is made later.
#[derive(Clone, Copy, PartialEq)]
pub struct ReadPath {
    path: CgroupPath,
    /// `None` for the root.
    owner: Option<CgroupOwner>,
    /// Length of the owner's path in the text; 0: longer.
    owner_len: usize,
    text: PathBuf,
    len: usize,
    is_whole: bool,
}

impl ReadPath {
    /// Reads a path by `name`, as in [`names_of`].
    pub fn new(mut name: impl FnMut(i32, &mut [u8]) -> Option<usize>) -> Self {
        let mut buf = [0; NAME_MAX + 1];
        let mut builder = PathBuilder::new();
        let mut read = Self {
            path: CgroupPath::ABSENT,
            owner: None,
            owner_len: 0,
            text: [0; PATH_MAX + 1],
            len: 0,
            is_whole: true,
        };
        let (mut is_user_slice, mut is_in_slices) = (false, true);
        for level in 1..=LEVELS_MAX {
            let Some(part) = name(level, &mut buf).and_then(|len| buf.get(..len)) else {
                break;
            };
            builder.push(part);
            let end = read.len.saturating_add(part.len()).saturating_add(1);
            match read.text.get_mut(read.len..end) {
                Some([slash, to @ ..]) if read.is_whole && end <= PATH_MAX => {
                    *slash = b'/';
                    to.copy_from_slice(part);
                    read.len = end;
                }
                _ => read.is_whole = false,
            }
            if !is_in_slices {
                continue;
            }
            if let Some(user) = slice_user(part).filter(|_| is_user_slice) {
                read.owner = Some(CgroupOwner::User(user));
                is_in_slices = false;
                continue;
            }
            read.owner = Some(CgroupOwner::Cgroup(builder.digest()));
            read.owner_len = if read.is_whole { read.len } else { 0 };
            is_in_slices = part.ends_with(b".slice");
            is_user_slice = level == 1 && part == b"user.slice";
        }
        if builder.levels == 0 {
            if let Some(slash) = read.text.first_mut() {
                *slash = b'/';
            }
            read.len = 1;
        }
        read.path = builder.digest();
        read
    }

    /// Keeps the texts of the path and its owner; returns the path, or its nearest ancestor for
    /// which there is room, and the owner.
    pub fn keep(&self) -> CgroupNames {
        let quota = match self.owner {
            None => 0,
            Some(CgroupOwner::User(user)) => owner_of_user(user),
            Some(CgroupOwner::Cgroup(owner)) => {
                let text = self.text.get(..self.owner_len).unwrap_or(&[]);
                owner.keep(owner.number(), text, !text.is_empty());
                owner.number()
            }
        };
        let mut text = self.text.get(..self.len).unwrap_or(&[]);
        if self.path.keep(quota, text, self.is_whole) {
            return (self.path, self.owner);
        }
        if self.is_whole {
            text = parent(text);
        }
        loop {
            let path = CgroupPath::parse(text).unwrap_or(CgroupPath::ABSENT);
            let above = parent(text);
            if above.is_empty() || path.keep(quota, text, true) {
                return (path, self.owner);
            }
            text = above;
        }
    }
}

/// Returns the number of the owner of the texts of a user's slice.
fn owner_of_user(user: u32) -> u64 {
    (1 << 63) | u64::from(user)
}

/// Returns the user of a slice with this name in `user.slice`, such as `user-1000.slice`.
fn slice_user(name: &[u8]) -> Option<u32> {
    let number = name.strip_prefix(b"user-")?.strip_suffix(b".slice")?;
    let is_canonical = matches!(number, [b'0'] | [b'1'..=b'9', ..]);
    number
        .iter()
        .try_fold(0_u32, |user, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            user.checked_mul(10)?.checked_add(digit.into())
        })
        .filter(|user| is_canonical && *user != u32::MAX)
}

#[cfg(test)]
mod tests;
