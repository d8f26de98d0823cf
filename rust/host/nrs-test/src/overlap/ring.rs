// SPDX-License-Identifier: GPL-2.0-only

//! Asynchronous requests through `io_submit` of Linux, without a library or threads in between:
//! requests reach the device in the order of submission.
//!
//! An *entry* holds one request in flight, with its buffer.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{fs::File, io, mem, os::fd::AsRawFd, ptr};

use libc::{c_long, c_ulong, iocb};

use crate::direct::{Buffer, ALIGN};

/// Operations, and the flag for requests with a priority (linux/aio_abi.h).
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FLAG_IOPRIO: u32 = 1 << 1;

/// I/O priority: class real-time, highest level.
const REALTIME: i16 = 1 << 13;

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    more: i64,
}

const _: () = assert!(size_of::<iocb>() == 64 && size_of::<Event>() == 32);

/// Request to submit.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Index of the device.
    pub device: usize,
    /// Index of the entry with the buffer to write or fill.
    pub idx: usize,
    /// True for a write, false for a read.
    pub writes: bool,
    /// True if the I/O priority class is real-time.
    pub high: bool,
    /// Offset on the device, bytes.
    pub offset: u64,
    /// Length, bytes; at most the size of a buffer.
    pub bytes: usize,
}

/// Completed request.
#[derive(Debug)]
pub struct Ended {
    /// Index of the entry of the request.
    pub idx: usize,
    /// Number of bytes transferred.
    pub result: io::Result<usize>,
}

/// Buffer, and whether its request is in flight.
struct Entry {
    buffer: Buffer,
    busy: bool,
}

/// Requests in flight to one or more devices.
///
/// # Invariants
///
/// Only the kernel accesses the memory of a busy entry, and the memory does not move.
pub struct Ring {
    files: Vec<File>,
    context: c_ulong,
    entries: Vec<Entry>,
    bytes: usize,
    in_flight: usize,
}

/// Returns the result of a system call.
fn checked(status: c_long) -> io::Result<usize> {
    usize::try_from(status).map_err(|_| io::Error::last_os_error())
}

impl Ring {
    /// Creates a ring of `depth` entries with buffers of `bytes` bytes each.
    ///
    /// # Errors
    ///
    /// Errors of `io_setup`; `InvalidInput`: no entries, or the buffer size is not a multiple of
    /// 4096 bytes.
    pub fn new(files: Vec<File>, depth: usize, bytes: usize) -> io::Result<Self> {
        if depth == 0 || bytes == 0 || bytes % ALIGN != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut context: c_ulong = 0;
        // SAFETY: The kernel writes one word to a variable of this stack.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) })?;
        let entry = |_| Entry {
            buffer: Buffer::new(bytes),
            busy: false,
        };
        Ok(Self {
            files,
            context,
            entries: (0..depth).map(entry).collect(),
            bytes,
            in_flight: 0,
        })
    }

    /// Returns the first device.
    pub fn file(&self) -> &File {
        &self.files[0]
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the indices of the free entries.
    pub fn free(&self) -> impl Iterator<Item = usize> + '_ {
        let entries = self.entries.iter().enumerate();
        entries.filter(|(_, entry)| !entry.busy).map(|(idx, _)| idx)
    }

    /// Returns the buffer of the entry at `idx`, which must be free.
    pub fn buffer(&mut self, idx: usize) -> &mut [u8] {
        let free = &mut self.entries[idx];
        assert!(!free.busy, "entry {idx} is in flight");
        free.buffer.first(self.bytes)
    }

    /// Submits requests to free entries, in this order.
    ///
    /// # Errors
    ///
    /// Errors of `io_submit`; the requests before the refused one are in flight.
    pub fn submit(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut controls: Vec<iocb> = requests.iter().map(|r| self.control(r)).collect();
        let pointers: Vec<*mut iocb> = controls.iter_mut().map(ptr::from_mut).collect();
        let mut done = 0;
        while done < requests.len() {
            let rest = &pointers[done..];
            // SAFETY: The kernel copies the controls. Their buffers do not move, and by the
            // invariants only the kernel accesses buffers of busy entries.
            let count = checked(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            });
            let count = count.inspect_err(|_| {
                for request in &requests[done..] {
                    self.entries[request.idx].busy = false;
                }
            })?;
            done += count;
            self.in_flight += count;
        }
        Ok(())
    }

    /// Returns the control block of `request`, and marks its entry as busy.
    fn control(&mut self, request: &Request) -> iocb {
        let buffer = &mut self.buffer(request.idx)[..request.bytes];
        let buffer = buffer.as_mut_ptr() as u64;
        self.entries[request.idx].busy = true;
        // SAFETY: All fields are numbers.
        let mut control: iocb = unsafe { mem::zeroed() };
        control.aio_data = request.idx as u64;
        control.aio_lio_opcode = if request.writes { PWRITE } else { PREAD };
        if request.high {
            control.aio_reqprio = REALTIME;
            control.aio_flags = FLAG_IOPRIO;
        }
        control.aio_fildes = self.files[request.device].as_raw_fd() as u32;
        control.aio_buf = buffer;
        control.aio_nbytes = request.bytes as u64;
        control.aio_offset = request.offset as i64;
        control
    }

    /// Waits until `least` requests (0 or 1) have completed; returns all completed requests, in
    /// order of completion.
    ///
    /// # Errors
    ///
    /// Errors of `io_getevents`; `InvalidInput`: no request is in flight.
    pub fn reap(&mut self, least: usize) -> io::Result<Vec<Ended>> {
        if self.in_flight == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut events = vec![Event::default(); self.in_flight];
        let count = loop {
            // SAFETY: The buffer has room for this number of events; no timeout.
            let status = checked(unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    least,
                    events.len(),
                    events.as_mut_ptr(),
                    ptr::null::<libc::timespec>(),
                )
            });
            match status {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                status => break status?,
            }
        };
        self.in_flight -= count;
        let ended = events[..count].iter().map(|event| {
            let idx = event.data as usize;
            self.entries[idx].busy = false;
            Ended {
                idx,
                result: usize::try_from(event.result)
                    .map_err(|_| io::Error::from_raw_os_error(-event.result as i32)),
            }
        });
        Ok(ended.collect())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: The context is from io_setup. The call returns after all of its requests have
        // completed, before the buffers are dropped.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Sets the user of requests of this thread to `uid`.
pub fn act_as(uid: u32) {
    // SAFETY: No pointers.
    unsafe { libc::setfsuid(uid) };
}
