// SPDX-License-Identifier: GPL-2.0-only

//! Devices and buffers for direct I/O.

use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, path::Path};

/// Alignment of buffers, bytes.
pub const ALIGN: usize = 4096;

/// Opens `device` for direct reads and writes.
///
/// # Errors
///
/// Errors of `open`.
pub fn open(device: impl AsRef<Path>) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true);
    options.custom_flags(libc::O_DIRECT).open(device)
}

/// Buffer with the alignment required by direct I/O.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Creates a buffer of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGN];
        Self {
            start: memory.as_ptr().align_offset(ALIGN),
            memory,
        }
    }

    /// Returns the first `bytes` bytes.
    pub fn first(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes]
    }
}
