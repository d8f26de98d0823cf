// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two system calls that the standard library lacks.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{fs::File, io, os::fd::AsRawFd, time::Duration};

use crate::wire;

/// Operations possible without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// True if there is an event to read.
    pub readable: bool,
    /// True if there is room for a request.
    pub writable: bool,
    /// True if the file is not a client.
    pub broken: bool,
}

/// Executes ioctl `command` of the device with an argument that starts with its size.
///
/// # Errors
///
/// The errors of the ioctl; `InvalidInput`: `argument` is shorter than its stated size, or than the
/// structure.
pub(crate) fn argument(file: &File, command: u32, argument: &mut [u8]) -> io::Result<()> {
    let size = argument
        .first_chunk()
        .map_or(usize::MAX, |size| u32::from_le_bytes(*size) as usize);
    // The device reads the stated number of bytes, up to a maximum, and writes the structure.
    let known = match command {
        wire::IOC_ATTACH => wire::Attach::SIZE,
        wire::IOC_STATS => wire::Stats::SIZE,
        _ => 0,
    };
    if argument.len() < size.min(wire::SIZE_MAX) || argument.len() < known {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: The device accesses only the bytes of the argument that were checked above to exist.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), command.into(), argument.as_mut_ptr()) };
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Waits until the file can be read or, with `room`, written.
///
/// # Errors
///
/// `EINTR`: interrupted by a signal.
pub(crate) fn poll(file: &File, room: bool, timeout: Option<Duration>) -> io::Result<Ready> {
    let mut entry = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN | if room { libc::POLLOUT } else { 0 },
        revents: 0,
    };
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: One entry on this stack; the timeout is null or on this stack; no signal mask.
    let status = unsafe { libc::ppoll(&mut entry, 1, timeout, std::ptr::null()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let has = |bit| entry.revents & bit != 0;
    Ok(Ready {
        readable: has(libc::POLLIN),
        writable: has(libc::POLLOUT),
        broken: has(libc::POLLERR) || has(libc::POLLHUP) || has(libc::POLLNVAL),
    })
}
