// SPDX-License-Identifier: GPL-2.0-only

//! Requests that the kernel carries out while the program goes on: Linux's own asynchronous I/O, without a
//! library or threads in between, so that requests reach the device in the order in which they were handed in.
//!
//! # Vocabulary
//!
//! - *Slot*: the place of one request on its way, with a buffer of its own.

#![allow(unsafe_code, reason = "system calls take pointers")]

use std::{
    alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout},
    fs::File,
    io,
    os::fd::AsRawFd,
};

/// What asynchronous I/O asks for is aligned to this, bytes.
const ALIGN: usize = 4096;

/// Of the kernel's interface: read, write, and that the priority of the request counts.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FLAG_IOPRIO: u32 = 1 << 1;

/// I/O priority: class real-time, its highest level.
const REALTIME: i16 = 1 << 13;

/// A request as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Control {
    data: u64,
    /// In the other order on machines that store the high byte first; 0 in both words.
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// The end of a request as the kernel gives it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    more: i64,
}

const _: () = assert!(size_of::<Control>() == 64 && size_of::<Event>() == 32);

/// A request to be handed in.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which of the devices.
    pub device: usize,
    /// Its slot; its buffer holds what is to be written, or takes what is read.
    pub slot: usize,
    /// It writes.
    pub writes: bool,
    /// It has I/O priority class real-time.
    pub high: bool,
    /// Where on the device, bytes.
    pub offset: u64,
    /// How much, bytes; no more than a buffer holds.
    pub bytes: usize,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its slot.
    pub slot: usize,
    /// The bytes that were transferred.
    pub result: io::Result<usize>,
}

/// Requests on their way to one or more devices.
///
/// # Invariants
///
/// `memory` has `busy.len() * bytes` bytes. Only the kernel touches the buffer of a slot that is busy.
pub struct Ring {
    files: Vec<File>,
    context: libc::c_ulong,
    memory: *mut u8,
    layout: Layout,
    bytes: usize,
    busy: Vec<bool>,
    on_way: usize,
}

impl Ring {
    /// A ring of `depth` slots with buffers of `bytes` bytes each.
    ///
    /// # Errors
    ///
    /// Those of `io_setup`; `InvalidInput`: no slots, or buffers that are no multiple of 4096 bytes.
    pub fn new(files: Vec<File>, depth: usize, bytes: usize) -> io::Result<Self> {
        let size = depth
            .checked_mul(bytes)
            .filter(|&size| size > 0 && bytes % ALIGN == 0);
        let layout = size.and_then(|size| Layout::from_size_align(size, ALIGN).ok());
        let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: The kernel writes one word to a variable of this stack.
        let status = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: The size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Ok(Self {
            files,
            context,
            memory,
            layout,
            bytes,
            busy: vec![false; depth],
            on_way: 0,
        })
    }

    /// The first device.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn file(&self) -> &File {
        &self.files[0]
    }

    /// Requests on their way.
    pub fn on_way(&self) -> usize {
        self.on_way
    }

    /// Slots that are not on their way.
    pub fn free(&self) -> impl Iterator<Item = usize> + '_ {
        let slots = self.busy.iter().enumerate();
        slots.filter(|(_, busy)| !**busy).map(|(slot, _)| slot)
    }

    /// The buffer of `slot`.
    ///
    /// # Panics
    ///
    /// If the slot is busy or not there.
    pub fn buffer(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.busy[slot], "slot {slot} is on its way");
        // SAFETY: By the invariants these bytes are there, initialized, and only this program's as the slot is
        // not busy; the slice borrows the ring, so there is one at a time.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(slot * self.bytes), self.bytes) }
    }

    /// Hands requests in, in this order.
    ///
    /// # Errors
    ///
    /// Those of `io_submit`; the requests before the one that was refused are on their way then.
    ///
    /// # Panics
    ///
    /// If a slot is busy, a slot or device not there, or a request has more bytes than a buffer.
    pub fn submit(&mut self, requests: &[Request]) -> io::Result<()> {
        for request in requests {
            assert!(request.bytes <= self.bytes, "{request:?}");
            assert!(!self.busy[request.slot], "{request:?} twice");
            self.busy[request.slot] = true;
        }
        let mut controls: Vec<Control> = requests.iter().map(|r| self.control(r)).collect();
        let pointers: Vec<*mut Control> = controls.iter_mut().map(std::ptr::from_mut).collect();
        let mut done = 0;
        while done < requests.len() {
            let rest = &pointers[done..];
            // SAFETY: The kernel copies as many controls as it is given; their buffers are in `memory`, which
            // is there until the requests have ended, and nobody touches those of busy slots.
            let status = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            };
            match usize::try_from(status) {
                Ok(count) => {
                    done += count;
                    self.on_way += count;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    for request in &requests[done..] {
                        self.busy[request.slot] = false;
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn control(&self, request: &Request) -> Control {
        let high = request.high;
        Control {
            data: request.slot as u64,
            opcode: if request.writes { PWRITE } else { PREAD },
            priority: if high { REALTIME } else { 0 },
            flags: if high { FLAG_IOPRIO } else { 0 },
            file: self.files[request.device].as_raw_fd() as u32,
            buffer: self.memory.wrapping_add(request.slot * self.bytes) as u64,
            bytes: request.bytes as u64,
            offset: request.offset as i64,
            ..Control::default()
        }
    }

    /// Waits for the end of at least so many requests, none or one, and takes all that have ended, in the order of their ends.
    ///
    /// # Errors
    ///
    /// Those of `io_getevents`; `InvalidInput`: nothing is on its way.
    pub fn reap(&mut self, least: usize) -> io::Result<Vec<Ended>> {
        if self.on_way == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut events = vec![Event::default(); self.on_way];
        let count = loop {
            // SAFETY: There is room for that many events; no time limit.
            let status = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    least,
                    events.len(),
                    events.as_mut_ptr(),
                    std::ptr::null::<libc::timespec>(),
                )
            };
            match usize::try_from(status) {
                Ok(count) => break count,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        };
        self.on_way -= count;
        let ended = events[..count].iter().map(|event| {
            let slot = event.data as usize;
            self.busy[slot] = false;
            Ended {
                slot,
                result: usize::try_from(event.result)
                    .map_err(|_| io::Error::from_raw_os_error(-event.result as i32)),
            }
        });
        Ok(ended.collect())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: The context is that of io_setup. The call returns when all its requests have ended; only then
        // is the memory given back, once, with the layout that it was taken with.
        unsafe {
            libc::syscall(libc::SYS_io_destroy, self.context);
            dealloc(self.memory, self.layout);
        }
    }
}

/// From now on this thread's requests are those of user `uid`.
pub fn act_as(uid: u32) {
    // SAFETY: No pointers.
    unsafe { libc::setfsuid(uid) };
}

/// This thread runs on CPU `cpu` only.
///
/// # Errors
///
/// Those of `sched_setaffinity`, such as `EINVAL`: there is no such CPU.
pub fn move_to(cpu: usize) -> io::Result<()> {
    let mut words = [0u64; 16];
    let word = words.get_mut(cpu / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (cpu % 64);
    // SAFETY: The kernel reads as many bytes as the array has.
    let status = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(&words),
            words.as_ptr(),
        )
    };
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
