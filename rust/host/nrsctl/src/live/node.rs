// SPDX-License-Identifier: GPL-2.0-only

//! Control node `/dev/nrs-control`: a command is one write; the answer is read from offset 0.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use super::errno;

/// Chunk size for reading an answer, bytes.
const CHUNK: usize = 64 << 10;

/// Failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The node could not be opened: error number.
    Unopened(i32),
    /// The module refused the command: error number, and the reason (one line) if the module gives
    /// one.
    Command(i32, Option<String>),
}

/// An open node: accepts a command and holds its answer.
pub trait Channel {
    /// Writes a whole command in one call.
    ///
    /// # Errors
    ///
    /// The error with which the module refuses the command.
    fn write(&self, command: &[u8]) -> io::Result<usize>;

    /// Reads the answer to the last command from offset `at`.
    ///
    /// # Errors
    ///
    /// The module's error.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Channel for File {
    fn write(&self, command: &[u8]) -> io::Result<usize> {
        self.write_at(command, 0)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(buffer, at)
    }
}

/// Function that opens a channel to the node at a path.
type Open = fn(&Path) -> io::Result<Box<dyn Channel>>;

/// Control node.
#[derive(Debug)]
pub struct ModuleNode {
    path: PathBuf,
    open: Open,
}

impl ModuleNode {
    /// Creates the node of the system at `root`; `open` opens it.
    pub fn new(root: &Path, open: Open) -> Self {
        Self {
            path: root.join("dev/nrs-control"),
            open,
        }
    }

    /// Sends `command` to the module and returns the answer.
    ///
    /// # Errors
    ///
    /// The failure of opening the node or of the command.
    pub fn ask(&self, command: &str) -> Result<String, Refused> {
        let channel =
            (self.open)(&self.path).map_err(|error| Refused::Unopened(errno::of(&error)))?;
        let refused = |errno| Refused::Command(errno, None);
        match channel.write(command.as_bytes()) {
            Ok(len) if len == command.len() => {
                answer(&*channel).map_err(|error| refused(errno::of(&error)))
            }
            Ok(_) => Err(refused(libc::EIO)),
            Err(error) => {
                // The reason is empty if no answer can be read.
                let reason = answer(&*channel).unwrap_or_default();
                let reason = reason.lines().next().filter(|line| !line.is_empty());
                Err(Refused::Command(
                    errno::of(&error),
                    reason.map(str::to_owned),
                ))
            }
        }
    }
}

/// Opens the node, a character device.
///
/// # Errors
///
/// The error of opening the file; `ENODEV`: the file is not a character device.
pub fn open(path: &Path) -> io::Result<Box<dyn Channel>> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    match file.metadata()?.file_type().is_char_device() {
        true => Ok(Box::new(file)),
        false => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// Reads the answer to the last command.
fn answer(channel: &dyn Channel) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match channel.read(&mut chunk, bytes.len() as u64) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
