// SPDX-License-Identifier: GPL-2.0-only

//! Requests with protection information through io_uring (linux/io_uring.h), which needs Linux
//! 6.14.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    io_uring::{
        addr_or_splice_off_in_union, io_uring_cqe, io_uring_enter, io_uring_params, io_uring_ptr,
        io_uring_setup, io_uring_sqe, len_union, off_or_addr2_union, IoringEnterFlags, IoringOp,
        IoringSetupFlags, IORING_OFF_SQES, IORING_OFF_SQ_RING,
    },
    mm::{mmap, munmap, MapFlags, ProtFlags},
};

use super::{BLOCK, TUPLE};
use crate::direct::Buffer;

/// Attribute of an entry with a [`Protection`].
const WITH_PROTECTION: u64 = 1;
/// Flags of a [`Protection`]: check the CRC, and the number of the block.
const CHECKS: u16 = 3;

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

const _: () = assert!(size_of::<Protection>() == 32);

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
    fn new(ring: &OwnedFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: A new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                ring,
                offset,
            )
        };
        Ok(Self {
            start: start?.cast(),
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
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

/// Submits `requests` to `file` at once and waits for all of them; returns their results.
///
/// # Errors
///
/// Errors of `io_uring_setup`, `mmap` and `io_uring_enter`.
pub fn transfer(file: &File, requests: &mut [Transfer]) -> io::Result<Vec<io::Result<()>>> {
    let count = requests.len() as u32;
    let mut params = io_uring_params::default();
    params.flags = IoringSetupFlags::NO_SQARRAY;
    // SAFETY: The kernel reads and writes one structure of this stack.
    let ring = unsafe { io_uring_setup(count, &mut params)? };
    let completions = params.cq_off.cqes;
    let bytes = completions as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
    let queues = Mapping::new(&ring, IORING_OFF_SQ_RING, bytes)?;
    let bytes = params.sq_entries as usize * size_of::<io_uring_sqe>();
    let entries = Mapping::new(&ring, IORING_OFF_SQES, bytes)?;
    let protection = |request: &mut Transfer| Protection {
        flags: CHECKS,
        app_tag: 0,
        bytes: request.tuples().len() as u32,
        buffer: request.tuples().as_mut_ptr() as u64,
        seed: request.start,
        reserved: 0,
    };
    let attributes: Vec<Protection> = requests.iter_mut().map(protection).collect();
    for (idx, request) in requests.iter_mut().enumerate() {
        let mut entry = io_uring_sqe {
            opcode: if request.writes {
                IoringOp::Write
            } else {
                IoringOp::Read
            },
            fd: file.as_raw_fd(),
            off_or_addr2: off_or_addr2_union {
                off: request.start * BLOCK as u64,
            },
            addr_or_splice_off_in: addr_or_splice_off_in_union {
                addr: io_uring_ptr::new(request.data().as_mut_ptr().cast()),
            },
            len: len_union {
                len: request.data().len() as u32,
            },
            user_data: (idx as u64).into(),
            ..io_uring_sqe::default()
        };
        // `attr_ptr` and `attr_type_mask`.
        entry.addr3_or_cmd.addr3.addr3 = &raw const attributes[idx] as u64;
        entry.addr3_or_cmd.addr3.__pad2 = [WITH_PROTECTION];
        // SAFETY: In the mapping; the kernel reads the entries only during `io_uring_enter`.
        unsafe { entries.at::<io_uring_sqe>(0, idx).write(entry) };
    }
    // SAFETY: In the mapping, and aligned. The kernel accesses the word atomically.
    let tail = unsafe { &*queues.at::<AtomicU32>(params.sq_off.tail, 0) };
    tail.store(count, Ordering::Release);
    // SAFETY: The buffers and attributes stay valid until all requests have completed, which this
    // call waits for.
    let submitted = unsafe { io_uring_enter(&ring, count, count, IoringEnterFlags::GETEVENTS)? };
    assert_eq!(submitted, count, "the kernel refused an entry");
    let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
    for nth in 0..requests.len() {
        // SAFETY: In the mapping; the kernel has written as many completions as requests.
        let completion = unsafe { queues.at::<io_uring_cqe>(completions, nth).read() };
        let idx = completion.user_data.u64_() as usize;
        results[idx] = match usize::try_from(completion.res) {
            Ok(bytes) if bytes == requests[idx].blocks * BLOCK => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::from_raw_os_error(-completion.res)),
        };
    }
    Ok(results)
}
