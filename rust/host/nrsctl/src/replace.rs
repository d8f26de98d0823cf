// SPDX-License-Identifier: GPL-2.0-only

//! Atomic replacement of files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind, Result};

/// Replaces the file `path` by a file with `bytes`. Readers see either the whole old file or the
/// whole new file. The mode is preserved.
///
/// For a symbolic link its target is replaced or created. Devices, pipes and files directly in
/// `/dev` or below `/proc` (`/dev/stdout`) are written to instead.
///
/// # Errors
///
/// [`FailureKind::Usage`] for a path without a file name; otherwise the error of the file system,
/// see [`FailureKind::of_file`]. After an error the old file is unchanged, and no temporary file
/// remains.
pub fn replace(path: &Path, bytes: &[u8]) -> Result {
    if path.file_name().is_none() {
        let message = format!("'{}' has no file name", path.display());
        return Err(Failure::new(FailureKind::Usage, message));
    }
    write(path, bytes).map_err(|error| Failure::of_file(path, &error))
}

/// Returns the directory of `path`.
fn directory_of(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new(".")).canonicalize()
}

/// Returns true if the files of `directory` are devices or open files of processes.
fn is_special(directory: &Path) -> bool {
    directory == Path::new("/dev") || directory.starts_with("/proc")
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = match fs::metadata(path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let (mut target, mut parent) = (path.to_path_buf(), directory_of(path)?);
    // The loop ends: for a cycle of links, `fs::metadata` has failed with another error than
    // `NotFound`.
    while !is_special(&parent) {
        let Ok(link) = fs::read_link(&target) else {
            break;
        };
        target = parent.join(link);
        parent = directory_of(&target)?;
    }
    if is_special(&parent) || old.as_ref().is_some_and(|old| !old.is_file()) {
        return OpenOptions::new().append(true).open(path)?.write_all(bytes);
    }
    // The name begins with a dot, so that programs that read all files of the directory skip the
    // file.
    let mut new = tempfile::Builder::new()
        .prefix(".")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(&parent)?;
    if let Some(old) = old {
        new.as_file().set_permissions(old.permissions())?;
    }
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(&target)?;
    // The file is replaced. Some file systems do not support syncing a directory, which is needed
    // to survive a power failure.
    let _ = File::open(&parent).and_then(|parent| parent.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

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
