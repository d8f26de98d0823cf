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
//! # Table of texts
//!
//! The table has no lock and never allocates. The version of a row is odd while the row is written;
//! a reader that sees two versions reads no text.
//!
//! ```text
//!  path ─────────► digest ────────────► keys of classes, rules, weights
//!           │                                  │
//!           └──► row of the table ──text──► patterns, displays
//! ```
//!
//! A digest selects [`WAYS`] rows. A text stays for [`KEPT_S`] after its last use, so that a user
//! with many cgroups displaces no other's. Half of the rows may be of one owner. A cgroup whose
//! text finds no row counts as its nearest ancestor that has one.
//!
//! Another table keeps the digests of the cgroups that made requests lately, by id, because a path
//! is read name by name. The path of a cgroup does not change.

use crate::sched::{
    atomic::{AtomicWord, Hint},
    glob,
    jobid::write_clean,
    key::{escape, Hasher},
    rng::avalanche,
    units::NSEC_PER_SEC,
};
use core::fmt;

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

/// Number of texts, and of rows that a digest selects.
const ROWS: usize = 1024;
const WAYS: usize = 8;

/// Time for which a text stays after its last use, s.
const KEPT_S: u64 = 600;

/// Words of a text.
const WORDS: usize = (PATH_MAX + 1) / 8;

static SECRET: AtomicWord = AtomicWord::new(0);
/// Tables of this module.
struct Tables {
    /// Time, s.
    clock: Hint,
    texts: [Row; ROWS],
    known: [KnownCgroup; ROWS],
}

impl Tables {
    const fn new() -> Self {
        Self {
            clock: Hint::new(0),
            texts: [const { Row::new() }; ROWS],
            known: [const { KnownCgroup::new() }; ROWS],
        }
    }
}

#[cfg(MODULE)]
fn tables() -> &'static Tables {
    static TABLES: Tables = Tables::new();
    &TABLES
}

/// Returns tables of the thread, so that tests do not depend on each other.
#[cfg(not(MODULE))]
fn tables() -> &'static Tables {
    std::thread_local! {
        static TABLES: &'static Tables = Box::leak(Box::new(Tables::new()));
    }
    TABLES.with(|tables| *tables)
}

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
        match self.text(&mut [0; PATH_MAX + 1]) {
            Some(text) => escape(text, f),
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
        let has = |row: &&Row| row.digest.get() == number && row.version.get() & 1 == 0;
        self.rows().filter(|_| number != 0).find(has)
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
        match self.text(&mut [0; PATH_MAX + 1]) {
            Some(text) => write_clean(text, f),
            None => write!(f, "#{:016x}", self.number()),
        }
    }
}

/// Digests of a cgroup that made requests lately.
struct KnownCgroup {
    version: AtomicWord,
    id: Hint,
    path: Hint,
    /// Digest of the owner, 0 for none, or the id of a user.
    owner: Hint,
    is_user: Hint,
}

impl KnownCgroup {
    const fn new() -> Self {
        Self {
            version: AtomicWord::new(0),
            id: Hint::new(0),
            path: Hint::new(0),
            owner: Hint::new(0),
            is_user: Hint::new(0),
        }
    }

    /// Returns the path and the owner of the cgroup `id`, if the row has them.
    fn read(&self, id: u64) -> Option<CgroupNames> {
        let version = self.version.get();
        if version & 1 != 0 || self.id.get() != id {
            return None;
        }
        let path = CgroupPath::from_number(self.path.get());
        let owner = match (self.is_user.get(), self.owner.get()) {
            (0, 0) => None,
            (0, path) => Some(CgroupOwner::Cgroup(CgroupPath::from_number(path))),
            (_, user) => Some(CgroupOwner::User(user as u32)),
        };
        (self.version.get() == version).then_some((path, owner))
    }

    /// Replaces the row, unless another task is writing it.
    fn write(&self, id: u64, (path, owner): CgroupNames) {
        let version = self.version.get();
        if version & 1 != 0 || !self.version.replace(version, version | 1) {
            return;
        }
        self.id.set(id);
        self.path.set(path.number());
        let (is_user, owner) = match owner {
            None => (0, 0),
            Some(CgroupOwner::Cgroup(path)) => (0, path.number()),
            Some(CgroupOwner::User(user)) => (1, user.into()),
        };
        self.is_user.set(is_user);
        self.owner.set(owner);
        self.version.set(version.wrapping_add(2));
    }
}

/// Row of the table.
struct Row {
    version: AtomicWord,
    /// Digest of the text; 0: none.
    digest: Hint,
    owner: Hint,
    /// Time of the last use, s.
    used: Hint,
    /// Length of the text, times 2, plus 1 if the text is all of the path.
    len: Hint,
    words: [Hint; WORDS],
}

impl Row {
    const fn new() -> Self {
        Self {
            version: AtomicWord::new(0),
            digest: Hint::new(0),
            owner: Hint::new(0),
            used: Hint::new(0),
            len: Hint::new(0),
            words: [const { Hint::new(0) }; WORDS],
        }
    }

    fn touch(&self) {
        set_if_new(&self.used, tables().clock.get());
    }

    /// Returns true if the row has no text, or one that was not used lately.
    fn is_free(&self) -> bool {
        let unused = tables().clock.get().saturating_sub(self.used.get());
        self.digest.get() == 0 || unused > KEPT_S
    }

    /// As [`CgroupPath::read`], if the row has the text of `digest`.
    fn read(&self, digest: u64, buf: &mut PathBuf) -> Option<(usize, bool)> {
        let version = self.version.get();
        if version & 1 != 0 || self.digest.get() != digest {
            return None;
        }
        let len = self.len.get();
        for (to, word) in buf.chunks_exact_mut(8).zip(&self.words) {
            to.copy_from_slice(&word.get().to_le_bytes());
        }
        if self.version.get() != version {
            return None;
        }
        self.touch();
        Some(((len >> 1) as usize, len & 1 != 0))
    }

    /// Replaces the text of a free row; returns false if another task does so.
    fn write(&self, digest: u64, owner: u64, text: &[u8], is_whole: bool) -> bool {
        let version = self.version.get();
        if version & 1 != 0 || !self.version.replace(version, version | 1) {
            return false;
        }
        if !self.is_free() {
            self.version.set(version.wrapping_add(2));
            return false;
        }
        self.owner.set(owner);
        self.digest.set(digest);
        self.len
            .set(((text.len() as u64) << 1) | u64::from(is_whole));
        for (word, bytes) in self.words.iter().zip(text.chunks(8)) {
            let mut padded = [0; 8];
            for (to, from) in padded.iter_mut().zip(bytes) {
                *to = *from;
            }
            word.set(u64::from_le_bytes(padded));
        }
        self.touch();
        self.version.set(version.wrapping_add(2));
        true
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

/// Sets `hint`, which other CPUs read, only if the value is new.
fn set_if_new(hint: &Hint, value: u64) {
    if hint.get() != value {
        hint.set(value);
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
            Some(CgroupOwner::User(user)) => (1 << 63) | u64::from(user),
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
mod tests {
    use super::*;

    /// Copies the names of `path`.
    fn names_in(path: &str) -> impl FnMut(i32, &mut [u8]) -> Option<usize> + '_ {
        |level, buf| {
            let mut parts = path.split_terminator('/');
            let part = parts.nth(level as usize)?.as_bytes();
            buf[..part.len()].copy_from_slice(part);
            Some(part.len())
        }
    }

    fn read(path: &str) -> CgroupNames {
        ReadPath::new(names_in(path)).keep()
    }

    fn shown(path: CgroupPath) -> String {
        path.to_string()
    }

    fn parse(path: &str) -> CgroupPath {
        CgroupPath::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn users_of_slices() {
        let user = |slice: &str| read(&format!("/user.slice/{slice}/session-1.scope")).1;
        for (slice, wanted) in [
            ("user-0.slice", 0),
            ("user-1000.slice", 1000),
            ("user-4294967294.slice", u32::MAX - 1),
        ] {
            assert_eq!(user(slice), Some(CgroupOwner::User(wanted)));
        }
        for (other, owner) in [
            ("user-.slice", "/session-1.scope"),
            ("user-01.slice", "/session-1.scope"),
            ("user-1", ""),
            ("user-1.slice.x", ""),
            ("user-+1.slice", "/session-1.scope"),
            ("user-1 .slice", "/session-1.scope"),
            ("user-4294967295.slice", "/session-1.scope"),
            ("user-4294967296.slice", "/session-1.scope"),
            ("user-99999999999999999999.slice", "/session-1.scope"),
            ("user.slice", "/session-1.scope"),
        ] {
            let owner = parse(&format!("/user.slice/{other}{owner}"));
            assert_eq!(user(other), Some(CgroupOwner::Cgroup(owner)), "{other}");
        }
        let container = "/machine.slice/user-1000.slice/x";
        let owner = CgroupOwner::Cgroup(parse(container));
        assert_eq!(read(container).1, Some(owner));
    }

    /// Verifies that cgroups which a service or a container makes belong to it.
    #[test]
    fn the_first_that_is_no_slice() {
        for (path, wanted) in [
            ("", None),
            ("/system.slice", Some("/system.slice")),
            ("/system.slice/a.service", Some("/system.slice/a.service")),
            (
                "/system.slice/a.service/b.slice/c",
                Some("/system.slice/a.service"),
            ),
            (
                "/machine.slice/machine-x.scope/payload/user.slice/user-5.slice",
                Some("/machine.slice/machine-x.scope"),
            ),
            (
                "/a.slice/a-b.slice/c.service/d",
                Some("/a.slice/a-b.slice/c.service"),
            ),
            ("/docker/0123/x", Some("/docker")),
        ] {
            let (_, owner) = read(path);
            assert_eq!(owner, wanted.map(|path| CgroupOwner::Cgroup(parse(path))));
            if let Some(CgroupOwner::Cgroup(owner)) = owner {
                assert_eq!(shown(owner), wanted.unwrap());
            }
        }
    }

    /// Verifies that a path has one digest, however it is read, and that its text is shown.
    #[test]
    fn a_path_has_one_digest() {
        for path in ["/", "/a", "/a/b", "/ab", "/system.slice/a\\x2db.service"] {
            let (read, _) = read(if path == "/" { "" } else { path });
            assert_eq!(read, parse(path));
            assert_eq!(shown(read), path);
            assert_eq!(CgroupPath::from_number(read.number()), read);
        }
        let long = "x".repeat(NAME_MAX);
        for wrong in ["", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a/./b"] {
            assert_eq!(CgroupPath::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(CgroupPath::parse(format!("/{long}x").as_bytes()), None);
        // A longer path has a digest, and no text.
        let deep = format!("/a/{long}/{long}");
        let (deep, known) = (parse(&deep), read(&deep).0);
        assert_eq!(known, deep);
        assert_eq!(shown(deep), format!("#{:016x}", deep.number()));
        let (deepest, owner) = read(&"/a.slice".repeat(99));
        assert_eq!(deepest, parse(&"/a.slice".repeat(32)));
        assert_eq!(owner, Some(CgroupOwner::Cgroup(deepest)));
        assert_eq!(CgroupPath::parse("/a".repeat(33).as_bytes()), None);
        assert_eq!(CgroupPath::ABSENT.get(), None);
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, path, wanted) in [
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/c", false),
            ("/*/b", "/a/b", true),
            ("/a/b-*.scope", "/a/b-1.scope", true),
            ("/a/b-*.scope", "/a/b-1/x.scope", false),
            ("/a?", "/ab", true),
            ("/a?b", "/a/b", false),
            ("/*", "/", false),
            ("/*", "", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), path.as_bytes()),
                wanted,
                "{pattern} {path}"
            );
        }
    }

    /// Verifies that requests of a cgroup belong to the nearest ancestor that is named, also if the
    /// text of the cgroup itself is too long to be known.
    #[test]
    fn the_nearest_named_ancestor() {
        let long = format!("/t/b/c/{0}/{0}", "x".repeat(NAME_MAX));
        for (path, named, wanted) in [
            ("/t/b/c", "/t/b", "/t/b"),
            ("/t/b/c", "/t/*", "/t/b"),
            ("/t/b/c", "/t/b/c", "/t/b/c"),
            ("/t/b/c", "/t", "/t"),
            ("/t/b/c", "/x", "/t/b/c"),
            ("/t/b/c", "/", "/"),
            ("/", "/", "/"),
            (&long, "/t/b/c", "/t/b/c"),
            (&long, "/t/*", "/t/b"),
            (&long, &long, &long),
            (&long, "/x", &long),
        ] {
            let (path, _) = read(if path == "/" { "" } else { path });
            let exact = CgroupPath::parse(named.as_bytes()).unwrap();
            let found = path.nearest(|path, text| {
                path == exact
                    || glob::is_pattern(named.as_bytes()) && matches(named.as_bytes(), text)
            });
            assert_eq!(found, parse(wanted), "{named}");
        }
    }

    /// Verifies that one owner displaces no text of others, and that further cgroups of the owner
    /// count as their ancestors; and that texts go when they are not used.
    #[test]
    fn more_paths_than_rows() {
        let start = tables().clock.get();
        let others: Vec<String> = (0..64).map(|i| format!("/o.slice/{i}.service")).collect();
        let kept: Vec<CgroupNames> = others.iter().map(|path| read(path)).collect();
        let many: Vec<CgroupNames> = (0..8 * ROWS)
            .map(|i| read(&format!("/many.slice/x.service/{i}")))
            .collect();
        let unit = parse("/many.slice/x.service");
        let own = many.iter().filter(|(path, _)| *path != unit).count();
        assert!((ROWS / 4..=ROWS / 2).contains(&own), "{own}");
        assert!(many
            .iter()
            .all(|(_, owner)| *owner == Some(CgroupOwner::Cgroup(unit))));
        for (path, (digest, _)) in others.iter().zip(&kept) {
            assert_eq!(shown(*digest), *path);
        }
        tables().clock.set(start + KEPT_S + 1);
        for i in 0..8 * ROWS {
            read(&format!("/later.slice/{i}.service"));
        }
        let left = kept
            .iter()
            .filter(|(path, _)| !shown(*path).starts_with('#'));
        assert!(left.count() < 8);
    }

    /// Verifies that the names of a cgroup are read once, again after their text was displaced, and
    /// never used if they are of several cgroups.
    #[test]
    fn known_cgroups_are_not_read_again() {
        for (id, path) in [
            (1, "/known.slice/a"),
            (2, "/user.slice/user-7.slice"),
            (3, ""),
        ] {
            let start = tables().clock.get() * NSEC_PER_SEC;
            let names = |now, is_same| names_of(id, now, names_in(path), || is_same);
            assert_eq!(names(start, false), None);
            let wanted = names(start, true);
            assert_eq!(wanted, Some(read(path)));
            // Nothing is read.
            let known = |now| names_of(id, now, |_, _| panic!("{path} is read"), || true);
            assert_eq!([known(start), known(start)], [wanted; 2]);
            let later = start + (KEPT_S + 2) * NSEC_PER_SEC;
            tables().clock.set(later / NSEC_PER_SEC);
            for i in 0..8 * ROWS {
                read(&format!("/displacing{id}.slice/{i}.service"));
            }
            let latest = later + (KEPT_S + 2) * NSEC_PER_SEC;
            let mut reads = 0;
            let mut name = names_in(path);
            let count = |level, buf: &mut [u8]| {
                reads += 1;
                name(level, buf)
            };
            assert_eq!(names_of(id, latest, count, || true), wanted);
            assert!(reads > 0, "{path}");
        }
    }

    /// Verifies that readers never see parts of two texts.
    #[test]
    fn texts_are_whole() {
        let row = Row::new();
        let text = |i: u64| i.to_string().repeat(60);
        std::thread::scope(|scope| {
            for start in 0..4 {
                let row = &row;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let digest = 1 + (start * 16 + round) % 64;
                        row.digest.set(0);
                        row.write(digest, 0, text(digest).as_bytes(), true);
                        for digest in 1..=64 {
                            let mut buf = [0; PATH_MAX + 1];
                            if let Some((len, _)) = row.read(digest, &mut buf) {
                                assert_eq!(buf[..len], *text(digest).as_bytes());
                            }
                        }
                    }
                });
            }
        });
    }
}
