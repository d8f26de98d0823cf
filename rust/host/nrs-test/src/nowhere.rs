// SPDX-License-Identifier: GPL-2.0-only

//! System calls with an unmapped address.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{
    io,
    os::fd::AsRawFd,
    ptr::{null, null_mut},
};

/// Size of a transfer, bytes.
const LEN: usize = 256;

/// Reads from the file to an unmapped address, then writes from an unmapped address; returns both
/// results.
pub fn transfer(file: &impl AsRawFd) -> (io::Result<usize>, io::Result<usize>) {
    let result = |len| usize::try_from(len).map_err(|_| io::Error::last_os_error());
    // SAFETY: Nothing is mapped at the address 0, so no memory of this process is read or written.
    let read = result(unsafe { libc::read(file.as_raw_fd(), null_mut(), LEN) });
    // SAFETY: As above.
    let written = result(unsafe { libc::write(file.as_raw_fd(), null(), LEN) });
    (read, written)
}
