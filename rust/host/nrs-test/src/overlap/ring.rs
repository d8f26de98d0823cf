// SPDX-License-Identifier: GPL-2.0-only

//! Asynchronous requests with their buffers.

#![allow(unsafe_code, reason = "the kernel fills the buffers of requests")]

use std::{collections::BTreeMap, fs::File, io, os::fd::AsRawFd, time::Instant};

use super::Range;
use crate::{
    aio::{self, Context, Control, Event, PREAD, PWRITE},
    direct::Buffer,
};

/// Flag for requests with a priority (linux/aio_abi.h).
const FLAG_IOPRIO: u32 = 1 << 1;

/// I/O priority: class real-time, highest level.
const REALTIME: i16 = 1 << 13;

/// Request in flight, or completed.
pub struct Request {
    /// Unique number, in order of submission.
    pub number: u64,
    /// Index of the device.
    pub device: usize,
    /// Blocks to read or write.
    pub range: Range,
    /// True if the I/O priority class is real-time.
    pub high: bool,
    /// Time of the submission.
    pub since: Instant,
    /// Expected tags of a read; empty for a write.
    pub expected: Vec<u64>,
    /// Numbers of the requests in flight that this request must not overtake.
    pub before: Vec<u64>,
    /// Buffer to write or fill.
    pub buffer: Buffer,
    /// Number of bytes transferred; `None` until the request completes.
    pub result: Option<io::Result<usize>>,
}

/// Requests in flight to one or more devices.
///
/// # Invariants
///
/// Only the kernel accesses the buffers of requests without a result. Their memory does not move.
pub struct Ring {
    files: Vec<File>,
    context: Context,
    requests: BTreeMap<u64, Request>,
}

impl Ring {
    /// Creates a ring for up to `depth` requests to `files`.
    ///
    /// # Errors
    ///
    /// Errors of `io_setup`.
    pub fn new(files: Vec<File>, depth: usize) -> io::Result<Self> {
        Ok(Self {
            files,
            context: Context::new(depth)?,
            requests: BTreeMap::new(),
        })
    }

    /// Returns the devices.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the requests that were submitted and not taken, by number.
    pub fn requests(&self) -> &BTreeMap<u64, Request> {
        &self.requests
    }

    /// Submits requests without a result, in this order.
    ///
    /// # Errors
    ///
    /// Errors of `io_submit`; the requests before the refused one are in flight.
    pub fn submit(&mut self, mut requests: Vec<Request>) -> io::Result<()> {
        let mut controls: Vec<Control> = requests.iter_mut().map(|r| self.control(r)).collect();
        let mut rest = requests.into_iter();
        while rest.len() > 0 {
            let from = controls.len() - rest.len();
            // SAFETY: By the invariants only the kernel accesses the buffers of submitted requests.
            // It does not keep buffers of refused requests.
            let count = unsafe { self.context.submit(&mut controls[from..]) }?;
            let submitted = rest.by_ref().take(count);
            self.requests
                .extend(submitted.map(|request| (request.number, request)));
        }
        Ok(())
    }

    /// Returns the control block of `request`.
    fn control(&self, request: &mut Request) -> Control {
        assert!(request.result.is_none());
        let range = &request.range;
        let mut control = aio::control();
        control.aio_data = request.number;
        control.aio_lio_opcode = if range.writes { PWRITE } else { PREAD };
        if request.high {
            control.aio_reqprio = REALTIME;
            control.aio_flags = FLAG_IOPRIO;
        }
        control.aio_fildes = self.files[request.device].as_raw_fd() as u32;
        control.aio_buf = request.buffer.first(range.bytes()).as_mut_ptr() as u64;
        control.aio_nbytes = range.bytes() as u64;
        control.aio_offset = range.offset() as i64;
        control
    }

    /// Waits until `least` requests (0 or 1) have completed; returns the numbers of all completed
    /// requests, in order of completion.
    ///
    /// # Errors
    ///
    /// Errors of `io_getevents`; `InvalidInput`: no request is in flight.
    pub fn reap(&mut self, least: usize) -> io::Result<Vec<u64>> {
        if self.requests.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut events = vec![Event::default(); self.requests.len()];
        let count = self.context.events(least, &mut events, None)?;
        let done = events[..count].iter().map(|event| {
            if let Some(request) = self.requests.get_mut(&event.data) {
                let result = usize::try_from(event.result);
                request.result =
                    Some(result.map_err(|_| io::Error::from_raw_os_error(-event.result as i32)));
            }
            event.data
        });
        Ok(done.collect())
    }

    /// Returns the completed request `number`; `None` if it is in flight.
    pub fn take(&mut self, number: u64) -> Option<Request> {
        self.requests.get(&number)?.result.as_ref()?;
        self.requests.remove(&number)
    }
}

/// Sets the user of requests of this thread to `uid`.
pub fn act_as(uid: u32) {
    // SAFETY: No pointers.
    unsafe { libc::setfsuid(uid) };
}
