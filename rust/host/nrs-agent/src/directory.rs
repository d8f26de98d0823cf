// SPDX-License-Identifier: GPL-2.0-only

//! Directories that other users may change.
//!
//! A program of root that writes to the directory of another user must not follow a symbolic link
//! there, or the user chooses the file that root writes. A path is therefore resolved step by step,
//! and each directory is opened once.
//!
//! # Terms
//!
//! - *Trusted user*: root, and the user of this program.
//! - *Shared directory*: another user can change its entries, or the way to it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{fstat, mkdirat, openat, readlinkat, FileType, Mode, OFlags, Stat, CWD},
    io::Errno,
    process::geteuid,
};

/// Maximum number of symbolic links in a path, as in the kernel.
pub const LINKS_MAX: usize = 40;

/// Returns true if the user `uid` is root or the user of this program.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// An open directory.
pub struct Directory {
    fd: OwnedFd,
    /// True if another user can change the entries of the directory, or the way to it.
    is_shared: bool,
    /// True if only the owner of an entry can replace it: a sticky directory of a trusted user.
    is_sticky: bool,
}

impl Directory {
    /// Opens the directory `path`.
    ///
    /// # Errors
    ///
    /// A symbolic link in a shared directory, too many symbolic links, errors of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::resolve(path, false)
    }

    /// Opens the directory `path`. Missing directories are created, with access only for their
    /// owner.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`]; another user can change the directory.
    pub(crate) fn create_private(path: &Path) -> io::Result<Self> {
        let directory = Self::resolve(path, true)?;
        match directory.is_shared {
            true => Err(io::Error::other("another user can change the directory")),
            false => Ok(directory),
        }
    }

    /// Returns true if another user can change the entries of the directory, or the way to it.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns a path to the directory itself, whatever becomes of the names that led to it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    fn resolve(path: &Path, create: bool) -> io::Result<Self> {
        let mut here = Self::start(path)?;
        let mut names = names(path);
        let mut links = 0;
        while let Some(name) = names.pop() {
            let next = match here.entry(&name) {
                Err(Errno::NOENT) if create => {
                    match mkdirat(&here.fd, name.as_os_str(), Mode::RWXU) {
                        // Another process creates the same directory.
                        Ok(()) | Err(Errno::EXIST) => here.entry(&name)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                next => next?,
            };
            let stat = fstat(&next)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                let stays = !here.is_shared || here.is_sticky && is_trusted(stat.st_uid);
                here = Self::reached(next, &stat, stays);
                continue;
            }
            if here.is_shared {
                let link = "symbolic link in a directory that another user can change";
                return Err(io::Error::other(link));
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let link = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
            let link = Path::new(&link);
            if link.is_absolute() {
                here = Self::start(link)?;
            }
            names.extend(self::names(link));
        }
        Ok(here)
    }

    /// Opens the directory in which the resolution of `path` starts.
    fn start(path: &Path) -> io::Result<Self> {
        let first = if path.is_absolute() { "/" } else { "." };
        let fd = openat(CWD, first, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        Ok(Self::reached(fd, &stat, true))
    }

    /// Opens an entry, without following a symbolic link.
    fn entry(&self, name: &OsStr) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.fd, name, flags, Mode::empty())
    }

    /// Returns the directory `fd`; `stays` is true if no other user can put another one in its
    /// place.
    fn reached(fd: OwnedFd, stat: &Stat, stays: bool) -> Self {
        let is_own = stays && is_trusted(stat.st_uid);
        let mode = Mode::from_raw_mode(stat.st_mode);
        Self {
            fd,
            is_shared: !is_own || mode.intersects(Mode::WGRP | Mode::WOTH),
            is_sticky: is_own && mode.contains(Mode::SVTX),
        }
    }
}

/// Returns the names in `path`, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().into()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{symlink, MetadataExt as _, PermissionsExt as _},
    };

    /// Returns a directory with the directories `own` and, writable for all, `shared`; each of them
    /// has the directory `in`, and the links `near` and `far` to `own/in`.
    fn room() -> tempfile::TempDir {
        let room = tempfile::tempdir().unwrap();
        for (name, mode) in [("own", 0o755), ("shared", 0o777)] {
            let path = room.path().join(name);
            fs::create_dir_all(path.join("in")).unwrap();
            symlink("../own/in", path.join("near")).unwrap();
            symlink(room.path().join("own/in"), path.join("far")).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        room
    }

    /// Returns whether the directory is shared, or the error; checks that it is the right one.
    fn opened(path: &Path) -> Result<bool, String> {
        let directory = Directory::open(path).map_err(|error| error.to_string())?;
        let number = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(number(&directory.path()), number(path), "{path:?}");
        Ok(directory.is_shared())
    }

    #[test]
    fn links_are_followed_only_where_no_other_user_makes_them() {
        let room = room();
        let path = |name: &str| room.path().join(name);
        for own in [
            "",
            "own",
            "own/in",
            "own/near",
            "own/far",
            "own/../own/near/.",
        ] {
            assert_eq!(opened(&path(own)), Ok(false), "{own}");
        }
        for shared in ["shared", "shared/in", "shared/../own"] {
            assert_eq!(opened(&path(shared)), Ok(true), "{shared}");
        }
        for link in ["shared/near", "shared/far", "shared/../own/near"] {
            let error = opened(&path(link)).unwrap_err();
            assert!(
                error.starts_with("symbolic link in a directory"),
                "{link}: {error}"
            );
        }
        // The sticky bit protects entries of the same user, but not those that follow.
        fs::set_permissions(path("shared"), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(opened(&path("shared")), Ok(true));
        assert_eq!(opened(&path("shared/in")), Ok(false));
        assert!(opened(&path("shared/near")).is_err());
        symlink("cycle", path("own/cycle")).unwrap();
        assert_eq!(
            opened(&path("own/cycle")),
            Err(io::Error::from(Errno::LOOP).to_string())
        );
        assert!(opened(&path("own/none"))
            .unwrap_err()
            .contains("No such file"));
    }

    #[test]
    fn created_directories_are_private() {
        let room = room();
        let path = |name: &str| room.path().join(name);
        Directory::create_private(&path("own/near/a/b")).unwrap();
        let mode = fs::metadata(path("own/in/a/b")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        for name in ["shared", "shared/a", "shared/near/c"] {
            assert!(Directory::create_private(&path(name)).is_err(), "{name}");
        }
        assert!(!path("own/in/c").exists());
    }

    #[test]
    fn directories_of_other_users_are_shared() {
        let fd = || Directory::open(Path::new("/")).unwrap().fd;
        let mut stat = fstat(fd()).unwrap();
        for (uid, mode, stays, shared) in [
            (0, 0o755, true, false),
            (geteuid().as_raw(), 0o700, true, false),
            (0, 0o755, false, true),
            (geteuid().as_raw() + 1, 0o700, true, true),
            (0, 0o775, true, true),
            (0, 0o1777, true, true),
        ] {
            (stat.st_uid, stat.st_mode) = (uid, mode);
            let is_shared = Directory::reached(fd(), &stat, stays).is_shared();
            assert_eq!(is_shared, shared, "{uid} {mode:o} {stays}");
        }
    }
}
