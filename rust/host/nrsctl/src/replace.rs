// SPDX-License-Identifier: GPL-2.0-only

//! Atomic replacement of files.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nrs_agent::directory::{Directory, LINKS_MAX};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::failure::{failure, Failure, Result};

/// Replaces the file `path` by a file with `bytes`. Readers see either the whole old file or the
/// whole new file. The mode is preserved, except for others' right to write.
///
/// For a symbolic link its target is replaced or created. Devices, pipes and files directly in
/// `/dev` or below `/proc` (`/dev/stdout`) are written to instead. In a directory that another user
/// can change, links and all other files are replaced themselves.
///
/// # Errors
///
/// `Usage` for a path without a file name; otherwise the error of the file system,
/// see `of_file`. After an error the old file is unchanged, and no temporary file
/// remains.
pub fn replace(path: &Path, bytes: &[u8]) -> Result {
    with(path, |output| match output {
        Output::Open(mut file) => file.write_all(bytes),
        Output::New(mut new) => {
            new.file.write_all(bytes)?;
            new.file.as_file().sync_all()?;
            let directory = File::open(new.directory.path());
            new.persist()?;
            // The file is replaced. Some file systems do not support syncing a directory, which is
            // needed to survive a power failure.
            let _ = directory.and_then(|directory| directory.sync_all());
            Ok(())
        }
    })
}

/// Replaces the file `path` by an empty file, as [`replace`] does, and returns the new file.
///
/// # Errors
///
/// As for [`replace`].
pub fn create(path: &Path) -> Result<File> {
    with(path, |output| match output {
        Output::Open(file) => Ok(file),
        Output::New(new) => new.persist(),
    })
}

/// Destination of bytes.
enum Output {
    /// Device, pipe or open file of a process, to append to.
    Open(File),
    New(NewFile),
}

/// File that is still to get its name.
struct NewFile {
    file: NamedTempFile,
    directory: Directory,
    target: PathBuf,
}

impl NewFile {
    /// Creates a file in `directory` that is to replace `old` at `target`.
    fn new(directory: Directory, target: PathBuf, old: Option<&Metadata>) -> io::Result<Self> {
        // The name begins with a dot, so that programs that read all files of the directory skip
        // the file.
        let file = tempfile::Builder::new()
            .prefix(".")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory.path())
            .map_err(|error| error.kind())?;
        if let Some(old) = old.filter(|old| old.is_file()) {
            let kept = if directory.is_shared() { 0o755 } else { 0o777 };
            let mode = old.permissions().mode() & kept;
            file.as_file()
                .set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(Self {
            file,
            directory,
            target,
        })
    }

    /// Gives the file its name.
    fn persist(self) -> io::Result<File> {
        Ok(self.file.persist(self.target)?)
    }
}

/// Calls `write` with the destination for the file `path`.
fn with<T>(path: &Path, write: impl FnOnce(Output) -> io::Result<T>) -> Result<T> {
    if path.file_name().is_none() {
        return Err(failure!(Usage: "'{}' has no file name", path.display()));
    }
    let written = output(path).and_then(write);
    written.map_err(|error| Failure::of_file(path, &error))
}

/// Returns true if the files of `directory` are devices or open files of processes.
fn is_special(directory: &Path) -> bool {
    directory == Path::new("/dev") || directory.starts_with("/proc")
}

/// Returns the destination for the file `path`.
fn output(path: &Path) -> io::Result<Output> {
    let mut path = path.to_path_buf();
    for _ in 0..=LINKS_MAX {
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = Directory::open(parent)?;
        let Some(name) = path.file_name() else {
            return Err(Errno::ISDIR.into());
        };
        let target = directory.path().join(name);
        let old = match fs::symlink_metadata(&target) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if !directory.is_shared() {
            let is_special = is_special(&fs::read_link(directory.path())?);
            if !is_special && old.as_ref().is_some_and(Metadata::is_symlink) {
                path = parent.join(fs::read_link(&target)?);
                continue;
            }
            if is_special || old.as_ref().is_some_and(|old| !old.is_file()) {
                let open = OpenOptions::new().append(true).open(target)?;
                return Ok(Output::Open(open));
            }
        }
        return NewFile::new(directory, target, old.as_ref()).map(Output::New);
    }
    Err(Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::{mknodat, FileType, Mode, CWD};

    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn files_and_links() {
        let room = tempfile::tempdir().unwrap();
        let (link, file) = (room.path().join("link"), room.path().join("file"));
        replace(&file, b"one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        for (path, text) in [(&file, "two"), (&link, "three")] {
            replace(path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(room.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn a_dangling_link_stays() {
        let room = tempfile::tempdir().unwrap();
        symlink("second", room.path().join("first")).unwrap();
        symlink("file", room.path().join("second")).unwrap();
        replace(&room.path().join("first"), b"one").unwrap();
        for link in ["first", "second"] {
            let link = fs::symlink_metadata(room.path().join(link)).unwrap();
            assert!(link.is_symlink());
        }
        assert_eq!(fs::read_to_string(room.path().join("file")).unwrap(), "one");
    }

    /// Verifies that no entry of a directory that another user can change makes root write or
    /// create another file, or wait.
    #[test]
    fn in_the_directory_of_another_user_entries_are_replaced() {
        let room = tempfile::tempdir().unwrap();
        let (ours, theirs) = (room.path().join("ours"), room.path().join("theirs"));
        let own = ours.join("own");
        for path in [&ours, &theirs] {
            fs::create_dir(path).unwrap();
        }
        fs::write(&own, "own").unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o4777)).unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
        let at = |name: &str| theirs.join(name);
        symlink(&own, at("link")).unwrap();
        symlink(ours.join("new"), at("dangling")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        fs::hard_link(&own, at("hard")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["link", "dangling", "null", "hard", "pipe", "none"] {
            replace(&at(name), b"one").unwrap();
            create(&at(name)).unwrap().write_all(b"two").unwrap();
            let new = fs::symlink_metadata(at(name)).unwrap();
            assert!(new.is_file(), "{name}");
            assert_eq!(new.permissions().mode() & 0o7002, 0, "{name}");
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "two", "{name}");
        }
        assert_eq!(fs::read_to_string(&own).unwrap(), "own");
        symlink(&ours, at("way")).unwrap();
        let failure = replace(&at("way/own"), b"x").unwrap_err();
        assert!(
            failure.message.contains("symbolic link in a directory"),
            "{failure}"
        );
        assert_eq!(ours.read_dir().unwrap().count(), 1);
        assert_eq!(theirs.read_dir().unwrap().count(), 7);
    }

    #[test]
    fn special_directories() {
        for (directory, wanted) in [
            ("/dev", true),
            ("/dev/shm", false),
            ("/device", false),
            ("/proc/1/fd", true),
            ("/process", false),
        ] {
            assert_eq!(is_special(Path::new(directory)), wanted, "{directory}");
        }
        if let Ok(room) = tempfile::tempdir_in("/dev/shm") {
            let file = room.path().join("x.prom");
            for text in ["one", "two"] {
                replace(&file, text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), text);
            }
        }
    }

    #[test]
    fn devices_and_open_files() {
        let room = tempfile::tempdir().unwrap();
        let (null, file) = (room.path().join("null"), room.path().join("out"));
        symlink("/dev/null", &null).unwrap();
        replace(&null, b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::write(&file, "first ").unwrap();
        let open = OpenOptions::new().append(true).open(&file).unwrap();
        let name = format!("/dev/fd/{}", open.as_raw_fd());
        replace(Path::new(&name), b"second").unwrap();
        let link = room.path().join("link");
        symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
        replace(&link, b" third").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "first second third");
    }

    #[test]
    fn nothing_is_left_behind() {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("taken")).unwrap();
        for (path, kind) in [
            (room.path().join("taken"), FailureKind::Other),
            (room.path().join("none/a"), FailureKind::NotFound),
            ("/".into(), FailureKind::Usage),
            ("..".into(), FailureKind::Usage),
        ] {
            assert_eq!(replace(&path, b"x").unwrap_err().kind, kind, "{path:?}");
        }
        assert_eq!(room.path().read_dir().unwrap().count(), 1);
    }
}
