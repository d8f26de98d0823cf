// SPDX-License-Identifier: GPL-2.0-only

//! Asynchronous I/O of Linux (`io_submit`), without a library or threads in between: requests reach
//! the device in the order of submission.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{io, mem, ptr, time::Duration};

use libc::{c_long, c_ulong};

pub use libc::iocb as Control;

/// Operations (linux/aio_abi.h).
pub const PREAD: u16 = 0;
pub const PWRITE: u16 = 1;

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Event {
    /// `aio_data` of the request.
    pub data: u64,
    control: u64,
    /// Number of bytes, or a negative error number.
    pub result: i64,
    more: i64,
}

const _: () = assert!(size_of::<Control>() == 64 && size_of::<Event>() == 32);

/// Returns the result of a system call.
fn checked(status: c_long) -> io::Result<usize> {
    usize::try_from(status).map_err(|_| io::Error::last_os_error())
}

/// Returns a control block without a request.
pub fn control() -> Control {
    // SAFETY: All fields are numbers.
    unsafe { mem::zeroed() }
}

/// Requests in flight; dropping it waits for them.
pub struct Context(c_ulong);

impl Context {
    /// Creates a context for up to `depth` requests.
    ///
    /// # Errors
    ///
    /// Errors of `io_setup`.
    pub fn new(depth: usize) -> io::Result<Self> {
        let mut context: c_ulong = 0;
        // SAFETY: The kernel writes one word to a variable of this stack.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) })?;
        Ok(Self(context))
    }

    /// Submits requests in this order; returns the number of those that are in flight.
    ///
    /// # Errors
    ///
    /// Errors of `io_submit`; no request is in flight.
    ///
    /// # Safety
    ///
    /// Until a request completes, its buffer is not freed and its content not used.
    pub unsafe fn submit(&self, controls: &mut [Control]) -> io::Result<usize> {
        let pointers: Vec<*mut Control> = controls.iter_mut().map(ptr::from_mut).collect();
        let (count, first) = (pointers.len(), pointers.as_ptr());
        // SAFETY: The kernel copies the controls; the caller keeps the buffers.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, first) })
    }

    /// Waits until `least` requests have completed, or for `timeout`; returns the number of
    /// completed requests in `events`, in order of completion.
    ///
    /// # Errors
    ///
    /// Errors of `io_getevents`.
    pub fn events(
        &self,
        least: usize,
        events: &mut [Event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (room, first) = (events.len(), events.as_mut_ptr());
        loop {
            // SAFETY: The buffer has room for this number of events; the timeout is read only.
            let status = checked(unsafe {
                libc::syscall(libc::SYS_io_getevents, self.0, least, room, first, timeout)
            });
            match status {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                status => return status,
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: The context is from io_setup. The call returns after all of its requests have
        // completed.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
