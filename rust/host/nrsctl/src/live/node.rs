// SPDX-License-Identifier: GPL-2.0-only

//! The control node `/dev/nrs-control`: a command is one write, its answer is read from the beginning.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use super::errno;

/// Bytes of an answer that are read at once.
const CHUNK: usize = 64 << 10;

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The node could not be opened: the error number.
    Unopened(i32),
    /// The module refused the command: the error number, and the reason in one line if there is one.
    Command(i32, Option<String>),
}

/// An open node: takes a command, then has its answer.
pub trait Channel {
    /// Writes a command, whole.
    ///
    /// # Errors
    ///
    /// What the module refuses the command with.
    fn write(&self, command: &[u8]) -> io::Result<usize>;

    /// Reads the answer to the last command from offset `at`.
    ///
    /// # Errors
    ///
    /// What the module returns.
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

/// Opens a channel to the node at a path.
type Open = fn(&Path) -> io::Result<Box<dyn Channel>>;

/// The node.
#[derive(Debug)]
pub struct Node {
    path: PathBuf,
    open: Open,
}

impl Node {
    /// Returns the node of the system at `root`, which `open` opens.
    pub fn new(root: &Path, open: Open) -> Self {
        Self {
            path: root.join("dev/nrs-control"),
            open,
        }
    }

    /// Has the module carry out `command`; returns the answer.
    ///
    /// # Errors
    ///
    /// Why it was not carried out.
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
                // The errno has to do where no reason is answered.
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

/// Opens the node, which is a device.
///
/// # Errors
///
/// What opening returns; `ENODEV`: the file is no device.
pub fn open(path: &Path) -> io::Result<Box<dyn Channel>> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    match file.metadata()?.file_type().is_char_device() {
        true => Ok(Box::new(file)),
        false => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// Returns the answer to the last command.
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
