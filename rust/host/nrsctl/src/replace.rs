// SPDX-License-Identifier: GPL-2.0-only

//! Files in whose place others are put.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::failure::{Failure, Kind, Result};

/// Has `bytes` in the file `path`: whoever reads it sees the old content or the new one, whole, and it has the mode that it had.
///
/// Of a symbolic link the file that it leads to is replaced. What is there and is no file (a device, a pipe), or is open
/// already (`/dev/stdout`), is written to.
///
/// # Errors
///
/// [`Kind::Usage`] for a path without a name; else what the file system says, as [`Kind::of_file`]. A file that was there is
/// as it was then, and nothing is beside it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result {
    let failed = |error: io::Error| Failure::of_file(path, &error);
    if path.file_name().is_none() {
        let message = format!("'{}' is no name of a file", path.display());
        return Err(Failure::new(Kind::Usage, message));
    }
    if is_open(path) {
        // What is in it already stays.
        let file = OpenOptions::new().append(true).open(path);
        return file
            .and_then(|mut file| file.write_all(bytes))
            .map_err(failed);
    }
    let (target, old) = match fs::metadata(path) {
        Ok(old) if !old.is_file() => {
            let file = OpenOptions::new().write(true).open(path);
            return file
                .and_then(|mut file| file.write_all(bytes))
                .map_err(failed);
        }
        Ok(old) => (fs::canonicalize(path).map_err(failed)?, Some(old)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (leading_to(path), None),
        Err(error) => return Err(failed(error)),
    };
    let beside = beside(&target);
    let written = write(&beside, bytes, old.map(|old| old.permissions()))
        .and_then(|()| fs::rename(&beside, &target));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        failed(error)
    })?;
    // It is there already; that it stays after a failure of power is more than some file systems offer.
    let directory = target.parent().filter(|parent| *parent != Path::new(""));
    let _ = File::open(directory.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all());
    Ok(())
}

/// Whether `path` stands for a file that a process has open.
fn is_open(path: &Path) -> bool {
    let below_proc = |path: &Path| {
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        parent.is_some_and(|parent| parent.starts_with("/proc"))
    };
    let link = || fs::read_link(path).ok();
    below_proc(path) || link().is_some_and(|link| link.is_absolute() && below_proc(&link))
}

/// Where a file is made by writing to `path`, which is not there: a link that leads nowhere yet says it.
fn leading_to(path: &Path) -> PathBuf {
    match fs::read_link(path) {
        Ok(link) => path
            .parent()
            .map_or(link.clone(), |parent| parent.join(&link)),
        Err(_) => path.to_path_buf(),
    }
}

/// A name that whoever reads all files of the directory passes over.
fn beside(target: &Path) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(target.file_name().unwrap_or_default());
    hidden.push(format!(".{}", process::id()));
    target.with_file_name(hidden)
}

/// Makes the file `path`, all of it on the disk.
fn write(path: &Path, bytes: &[u8], mode: Option<fs::Permissions>) -> io::Result<()> {
    let mut file = File::create(path)?;
    if let Some(mode) = mode {
        file.set_permissions(mode)?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{symlink, FileTypeExt as _, PermissionsExt as _};

    use super::*;

    /// A directory that is gone at the end.
    struct Room(PathBuf);

    impl Room {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("nrsctl-replace-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_with_its_mode() {
        let room = Room::new("file");
        let file = room.0.join("a.toml");
        replace(&file, b"one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(room.names(), ["a.toml"]);
    }

    #[test]
    fn what_a_link_leads_to() {
        let room = Room::new("link");
        let (link, file) = (room.0.join("link"), room.0.join("file"));
        symlink("file", &link).unwrap();
        for text in ["one", "two"] {
            replace(&link, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        assert_eq!(room.names(), ["file", "link"]);
    }

    #[test]
    fn what_is_no_file_is_written_to() {
        let room = Room::new("device");
        let link = room.0.join("null");
        symlink("/dev/null", &link).unwrap();
        replace(&link, b"x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device());
        // As a shell has it: standard output is a pipe, or a file with something in it.
        let mut cat = process::Command::new("cat")
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .unwrap();
        let name = |file: &dyn std::os::fd::AsRawFd| format!("/dev/fd/{}", file.as_raw_fd());
        let pipe = cat.stdin.take().unwrap();
        replace(Path::new(&name(&pipe)), b"through").unwrap();
        drop(pipe);
        assert_eq!(cat.wait_with_output().unwrap().stdout, b"through");
        let file = room.0.join("out");
        fs::write(&file, "first ").unwrap();
        let open = OpenOptions::new().append(true).open(&file).unwrap();
        replace(Path::new(&name(&open)), b"second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "first second");
    }

    #[test]
    fn nothing_is_left_behind() {
        let room = Room::new("failed");
        fs::create_dir(room.0.join("taken")).unwrap();
        assert_eq!(
            replace(&room.0.join("taken"), b"x").unwrap_err().kind,
            Kind::Other
        );
        for path in ["/", "", ".."] {
            assert_eq!(
                replace(Path::new(path), b"x").unwrap_err().kind,
                Kind::Usage
            );
        }
        let missing = room.0.join("none/a");
        assert_eq!(replace(&missing, b"x").unwrap_err().kind, Kind::NotFound);
        // The name is too long for another beside it.
        let long = room.0.join("x".repeat(255));
        fs::write(&long, "old").unwrap();
        replace(&long, b"new").unwrap_err();
        assert_eq!(fs::read_to_string(&long).unwrap(), "old");
        assert_eq!(room.names().len(), 2);
    }
}
