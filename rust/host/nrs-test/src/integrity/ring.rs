// SPDX-License-Identifier: GPL-2.0-only

//! Requests with protection information through io_uring (linux/io_uring.h), which needs Linux
//! 6.14.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{BLOCK, TUPLE};
use crate::overlap::Buffer;

const READ: u8 = 22;
const WRITE: u8 = 23;

/// Flag of the set-up: no array of indices of entries.
const NO_SQARRAY: u32 = 1 << 16;
/// Flag of a call that waits for completions.
const GETEVENTS: u32 = 1;
/// Offset of the entries in the file of the ring.
const ENTRIES: i64 = 0x1000_0000;
/// Attribute of an entry with a [`Protection`].
const WITH_PROTECTION: u64 = 1;
/// Flags of a [`Protection`]: check the CRC, and the number of the block.
const CHECKS: u16 = 3;

/// `struct io_sqring_offsets` or `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags_or_overflow: u32,
    dropped_or_completions: u32,
    more: [u32; 4],
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Params {
    entries: u32,
    completions: u32,
    flags: u32,
    more: [u32; 7],
    submission: Offsets,
    completion: Offsets,
}

/// `struct io_uring_sqe`.
#[repr(C)]
#[derive(Default)]
struct Entry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    buffer: u64,
    bytes: u32,
    rw_flags: u32,
    idx: u64,
    more: u64,
    attributes: u64,
    attribute_mask: u64,
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    idx: u64,
    result: i32,
    flags: u32,
}

/// `struct io_uring_attr_pi`.
#[repr(C)]
struct Protection {
    flags: u16,
    app_tag: u16,
    bytes: u32,
    buffer: u64,
    seed: u64,
    reserved: u64,
}

const _: () = assert!(
    size_of::<Params>() == 120
        && size_of::<Entry>() == 64
        && size_of::<Completion>() == 16
        && size_of::<Protection>() == 32
);

/// A request with its buffers.
pub struct Transfer {
    /// True for a write, false for a read.
    pub writes: bool,
    /// First block.
    pub start: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Buffer of the data.
    pub data: Buffer,
    /// Buffer of the protection information.
    pub tuples: Buffer,
}

impl Transfer {
    /// Returns the data.
    pub fn data(&mut self) -> &mut [u8] {
        self.data.first(self.blocks * BLOCK)
    }

    /// Returns the protection information.
    pub fn tuples(&mut self) -> &mut [u8] {
        self.tuples.first(self.blocks * TUPLE)
    }
}

/// Mapped part of a ring.
///
/// # Invariants
///
/// `start` is the address of a mapping of `bytes` bytes.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn new(ring: &OwnedFd, offset: i64, bytes: usize) -> io::Result<Self> {
        // SAFETY: A new mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                ring.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            bytes,
        })
    }

    /// Returns the address of the element `idx` of an array at `offset`.
    fn at<T>(&self, offset: u32, idx: usize) -> *mut T {
        let offset = offset as usize + idx * size_of::<T>();
        assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: The element is in the mapping.
        unsafe { self.start.add(offset) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; pointers into the mapping do not outlive it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Returns the result of a system call.
fn checked(status: libc::c_long) -> io::Result<i32> {
    i32::try_from(status)
        .ok()
        .filter(|status| *status >= 0)
        .ok_or_else(io::Error::last_os_error)
}

/// Submits `requests` to `file` at once and waits for all of them; returns their results.
///
/// # Errors
///
/// Errors of `io_uring_setup`, `mmap` and `io_uring_enter`.
pub fn transfer(file: &File, requests: &mut [Transfer]) -> io::Result<Vec<io::Result<()>>> {
    let count = requests.len() as u32;
    let mut params = Params {
        flags: NO_SQARRAY,
        ..Params::default()
    };
    // SAFETY: The kernel reads and writes one structure of this stack; the result is a new file.
    let ring = unsafe {
        let status = libc::syscall(libc::SYS_io_uring_setup, count, &raw mut params);
        OwnedFd::from_raw_fd(checked(status)?)
    };
    let completions = params.completion.dropped_or_completions;
    let bytes = completions as usize + params.completions as usize * size_of::<Completion>();
    let queues = Mapping::new(&ring, 0, bytes)?;
    let entries = Mapping::new(&ring, ENTRIES, params.entries as usize * size_of::<Entry>())?;
    let mut attributes: Vec<Protection> = Vec::with_capacity(requests.len());
    for (idx, request) in requests.iter_mut().enumerate() {
        attributes.push(Protection {
            flags: CHECKS,
            app_tag: 0,
            bytes: request.tuples().len() as u32,
            buffer: request.tuples().as_mut_ptr() as u64,
            seed: request.start,
            reserved: 0,
        });
        let entry = Entry {
            opcode: if request.writes { WRITE } else { READ },
            fd: file.as_raw_fd(),
            offset: request.start * BLOCK as u64,
            buffer: request.data().as_mut_ptr() as u64,
            bytes: request.data().len() as u32,
            idx: idx as u64,
            attributes: &raw const attributes[idx] as u64,
            attribute_mask: WITH_PROTECTION,
            ..Entry::default()
        };
        // SAFETY: In the mapping; the kernel reads the entries only during `io_uring_enter`.
        unsafe { entries.at::<Entry>(0, idx).write(entry) };
    }
    // SAFETY: In the mapping, and aligned. The kernel accesses the word atomically.
    let tail = unsafe { &*queues.at::<AtomicU32>(params.submission.tail, 0) };
    tail.store(count, Ordering::Release);
    // SAFETY: The buffers and attributes stay valid until all requests have completed, which this
    // call waits for.
    let submitted = checked(unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring.as_raw_fd(),
            count,
            count,
            GETEVENTS,
            ptr::null::<libc::sigset_t>(),
            0,
        )
    })?;
    assert_eq!(submitted as u32, count, "the kernel refused an entry");
    let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
    for (nth, _) in requests.iter().enumerate() {
        // SAFETY: In the mapping; the kernel has written as many completions as requests.
        let completion = unsafe { queues.at::<Completion>(completions, nth).read() };
        let idx = completion.idx as usize;
        let wanted = requests[idx].blocks * BLOCK;
        results[idx] = match usize::try_from(completion.result) {
            Ok(bytes) if bytes == wanted => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::from_raw_os_error(-completion.result)),
        };
    }
    Ok(results)
}
