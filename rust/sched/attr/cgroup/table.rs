// SPDX-License-Identifier: GPL-2.0-only

//! Texts of paths, and digests of the cgroups that made requests lately.
//!
//! The tables have no lock and never allocate: the words of a row have a version, which is odd
//! while they are written, and a reader that sees two versions reads nothing.
//!
//! A text stays for [`KEPT_S`] after its last use, so that a user with many cgroups displaces no
//! other's. Digests are kept by the id of the cgroup, because a path is read name by name. The path
//! of a cgroup does not change.

use super::{CgroupNames, CgroupOwner, CgroupPath, PathBuf, PATH_MAX};
use crate::sched::{
    atomic::{AtomicWord, Hint},
    key::words_of,
};

/// Number of texts, and of rows that a digest selects.
pub const ROWS: usize = 1024;
pub const WAYS: usize = 8;

/// Time for which a text stays after its last use, s.
pub const KEPT_S: u64 = 600;

/// Words of a text.
const WORDS: usize = (PATH_MAX + 1) / 8;

/// Tables of this module.
pub struct Tables {
    /// Time, s.
    pub clock: Hint,
    pub texts: [Row; ROWS],
    pub known: [KnownCgroup; ROWS],
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
pub fn tables() -> &'static Tables {
    static TABLES: Tables = Tables::new();
    &TABLES
}

/// Returns tables of the thread, so that tests do not depend on each other.
#[cfg(not(MODULE))]
pub fn tables() -> &'static Tables {
    std::thread_local! {
        static TABLES: &'static Tables = Box::leak(Box::new(Tables::new()));
    }
    TABLES.with(|tables| *tables)
}

/// Version of words that readers see as they were written, or not at all.
pub struct Version(AtomicWord);

impl Version {
    /// Creates the version of words that are zero.
    pub const fn new() -> Self {
        Self(AtomicWord::new(0))
    }

    /// Returns the result of `read`; `None` if the words were written meanwhile.
    pub fn read<R>(&self, read: impl FnOnce() -> Option<R>) -> Option<R> {
        let version = self.0.get();
        if version & 1 != 0 {
            return None;
        }
        let seen = read()?;
        (self.0.get() == version).then_some(seen)
    }

    /// Returns the result of `write`; false if another task is writing.
    pub fn write(&self, write: impl FnOnce() -> bool) -> bool {
        let version = self.0.get();
        if version & 1 != 0 || !self.0.replace(version, version | 1) {
            return false;
        }
        let is_done = write();
        self.0.set(version.wrapping_add(2));
        is_done
    }
}

/// Digests of a cgroup that made requests lately.
pub struct KnownCgroup {
    version: Version,
    id: Hint,
    path: Hint,
    /// Digest of the owner, 0 for none, or the id of a user.
    owner: Hint,
    is_user: Hint,
}

impl KnownCgroup {
    const fn new() -> Self {
        Self {
            version: Version::new(),
            id: Hint::new(0),
            path: Hint::new(0),
            owner: Hint::new(0),
            is_user: Hint::new(0),
        }
    }

    /// Returns the path and the owner of the cgroup `id`, if the row has them.
    pub fn read(&self, id: u64) -> Option<CgroupNames> {
        self.version.read(|| {
            let path = CgroupPath::from_number(self.path.get());
            let owner = match (self.is_user.get(), self.owner.get()) {
                (0, 0) => None,
                (0, path) => Some(CgroupOwner::Cgroup(CgroupPath::from_number(path))),
                (_, user) => Some(CgroupOwner::User(user as u32)),
            };
            (self.id.get() == id).then_some((path, owner))
        })
    }

    /// Replaces the row, unless another task is writing it.
    pub fn write(&self, id: u64, (path, owner): CgroupNames) {
        let (is_user, owner) = match owner {
            None => (0, 0),
            Some(CgroupOwner::Cgroup(path)) => (0, path.number()),
            Some(CgroupOwner::User(user)) => (1, user.into()),
        };
        self.version.write(|| {
            self.id.set(id);
            self.path.set(path.number());
            self.is_user.set(is_user);
            self.owner.set(owner);
            true
        });
    }
}

/// Row of the table.
pub struct Row {
    version: Version,
    /// Digest of the text; 0: none.
    pub digest: Hint,
    pub owner: Hint,
    /// Time of the last use, s.
    used: Hint,
    /// Length of the text, times 2, plus 1 if the text is all of the path.
    len: Hint,
    words: [Hint; WORDS],
}

impl Row {
    pub const fn new() -> Self {
        Self {
            version: Version::new(),
            digest: Hint::new(0),
            owner: Hint::new(0),
            used: Hint::new(0),
            len: Hint::new(0),
            words: [const { Hint::new(0) }; WORDS],
        }
    }

    pub fn touch(&self) {
        set_if_new(&self.used, tables().clock.get());
    }

    /// Returns true if the row has no text, or one that was not used lately.
    pub fn is_free(&self) -> bool {
        let unused = tables().clock.get().saturating_sub(self.used.get());
        self.digest.get() == 0 || unused > KEPT_S
    }

    /// Returns true if the row has the text of `digest`.
    pub fn has(&self, digest: u64) -> bool {
        let has = || (self.digest.get() == digest).then_some(());
        self.version.read(has).is_some()
    }

    /// As [`CgroupPath::read`], if the row has the text of `digest`.
    pub fn read(&self, digest: u64, buf: &mut PathBuf) -> Option<(usize, bool)> {
        let len = self.version.read(|| {
            if self.digest.get() != digest {
                return None;
            }
            for (to, word) in buf.chunks_exact_mut(8).zip(&self.words) {
                to.copy_from_slice(&word.get().to_le_bytes());
            }
            Some(self.len.get())
        })?;
        self.touch();
        Some(((len >> 1) as usize, len & 1 != 0))
    }

    /// Replaces the text of a free row; returns false if another task does so.
    pub fn write(&self, digest: u64, owner: u64, text: &[u8], is_whole: bool) -> bool {
        self.version.write(|| {
            let is_free = self.is_free();
            if is_free {
                self.owner.set(owner);
                self.digest.set(digest);
                let len = ((text.len() as u64) << 1) | u64::from(is_whole);
                self.len.set(len);
                for (to, word) in self.words.iter().zip(words_of(text)) {
                    to.set(word);
                }
                self.touch();
            }
            is_free
        })
    }
}

/// Sets `hint`, which other CPUs read, only if the value is new.
pub fn set_if_new(hint: &Hint, value: u64) {
    if hint.get() != value {
        hint.set(value);
    }
}
