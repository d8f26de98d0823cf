// SPDX-License-Identifier: MIT OR Apache-2.0

//! Client of `/dev/nrs`, which schedules the requests of a server in user space.
//!
//! # Vocabulary
//!
//! - *Client*: an open file of `/dev/nrs` that belongs to a service ([`Client`]).
//! - *Request*: a request of the server, to be scheduled ([`Request`]), identified by a cookie.
//! - *Released*: a dispatched request, which the server serves now ([`Released`]).
//! - *Completion*: the end of a request ([`Completion`]); it frees a slot for the next request.
//! - *Deadline*: time at which the client of a request gives up, if stated ([`Request::timeout`]).
//! - *Early reply*: a later deadline that the server sends to the client of a request ([`Early`]).
//! - *Event*: a record read from the device ([`Event`]).
//!
//! ```text
//!   arrival ─▶ Client::submit ─▶ policy ─▶ Client::released ─▶ serve ─▶ Client::complete
//! ```
//!
//! All methods take `&self`: threads that receive, serve and complete may share one client. Reading
//! and writing allocate at most one buffer per call.
//!
//! # Example
//!
//! ```no_run
//! use nrs_client::{Completion, Options, Request};
//!
//! # fn main() -> std::io::Result<()> {
//! let client = Options::new("files").name("server0").open()?;
//! client.submit(&[Request::new(1).opcode(3).uid(1000).length(4096)])?;
//! for released in client.released(16)? {
//!     // ... serve the request with the cookie `released.cookie` ...
//!     client.complete(&[Completion::new(released.cookie, 0, 4096)])?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! If requests state timeouts, the server reads with [`Client::events`] and sends early replies:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use nrs_client::{Completion, Event, Options, Request};
//!
//! # fn tell_client(cookie: u64, wait: Duration) {}
//! # fn main() -> std::io::Result<()> {
//! let client = Options::new("files").name("server0").open()?;
//! client.submit(&[Request::new(1).timeout(Duration::from_secs(10))])?;
//! for event in client.events(16)? {
//!     match event {
//!         Event::Early(early) => tell_client(early.cookie, early.timeout()),
//!         Event::Released(released) if released.is_expired() => {
//!             // The client has given up.
//!             client.complete(&[Completion::new(released.cookie, 110, 0)])?;
//!         }
//!         Event::Released(released) => {
//!             // ... serve the request, and send `released.estimate()` with the reply ...
//!             client.complete(&[Completion::new(released.cookie, 0, 4096)])?;
//!         }
//!         Event::Recovered(_) => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `Documentation/dev-nrs.md` describes each errno. Agents of several servers, which read accounts
//! and set factors through `/dev/nrs-control`, use [`agent`].

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

pub mod agent;
mod event;
pub mod nid;
pub mod opcode;
mod sys;
pub mod timeouts;
pub mod wire;

use event::in_ms;
pub use event::Event;
pub use nid::Nid;
pub use sys::Ready;
pub use wire::{Busy, Completion, Early, Promotion, Reconnect, Recovered, Released, Stats};

/// Path of the device.
pub const DEVICE: &str = "/dev/nrs";

/// Options for opening a client of a service.
#[derive(Clone, Debug)]
pub struct Options {
    device: PathBuf,
    service: String,
    name: String,
    nonblocking: bool,
    queue_all: bool,
    lease: Duration,
    requests_max: u32,
}

impl Options {
    /// Creates options for `service`, which is created if it does not exist. A name has 1 to 31
    /// letters, digits and `_ - . :`.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            device: DEVICE.into(),
            service: service.into(),
            name: String::new(),
            nonblocking: false,
            queue_all: false,
            lease: Duration::ZERO,
            requests_max: 0,
        }
    }

    /// Sets the path of the device; the default is [`DEVICE`].
    pub fn device(mut self, device: impl AsRef<Path>) -> Self {
        self.device = device.as_ref().into();
        self
    }

    /// Sets the client's name in statistics; the default is the process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Makes calls fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    pub fn nonblocking(mut self, nonblocking: bool) -> Self {
        self.nonblocking = nonblocking;
        self
    }

    /// Queues every request, even if the queue is empty.
    pub fn queue_all(mut self, queue_all: bool) -> Self {
        self.queue_all = queue_all;
        self
    }

    /// Sets the time for which a released request may keep its slot, in whole ms, at most one hour;
    /// zero: no limit.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Limits the number of concurrent requests of the client, if below the limit of the module.
    pub fn requests_max(mut self, requests: u32) -> Self {
        self.requests_max = requests;
        self
    }

    /// Opens the device and becomes a client.
    ///
    /// # Errors
    ///
    /// The errors of `open` and `NRS_IOC_ATTACH`; `InvalidInput`: a name or the lease is too long.
    pub fn open(&self) -> io::Result<Client> {
        let mut open = OpenOptions::new();
        open.read(true).write(true);
        if self.nonblocking {
            open.custom_flags(libc::O_NONBLOCK);
        }
        let file = open.open(&self.device)?;
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let mut attach = wire::Attach {
            size: wire::Attach::SIZE as u32,
            version: wire::VERSION,
            flags: if self.queue_all {
                wire::ATTACH_QUEUE_ALL
            } else {
                0
            },
            lease_ms: u32::try_from(self.lease.as_millis()).map_err(too_long)?,
            requests_max: self.requests_max,
            reserved: 0,
            service: padded(&self.service)?,
            client: padded(&self.name)?,
        }
        .encode();
        sys::argument(&file, wire::IOC_ATTACH, &mut attach)?;
        let attach = wire::Attach::decode(&attach).map_err(bad)?;
        Ok(Client {
            file,
            requests_max: attach.requests_max,
        })
    }
}

/// Returns `text`, padded with NULs.
fn padded(text: &str) -> io::Result<[u8; 32]> {
    let mut field = [0; 32];
    let room = field.len() - 1;
    if text.len() > room || text.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    field[..text.len()].copy_from_slice(text.as_bytes());
    Ok(field)
}

fn bad(_: wire::WireError) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// A request to be scheduled; attributes that are not set are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(wire::Request);

impl Request {
    /// Creates a request with `cookie`, which is unique among the uncompleted requests of the
    /// client.
    pub const fn new(cookie: u64) -> Self {
        Self(wire::Request::new(cookie))
    }

    /// Returns the cookie of the request.
    pub const fn cookie(&self) -> u64 {
        self.0.cookie
    }

    /// Changes the cookie of the request.
    pub const fn named(mut self, cookie: u64) -> Self {
        self.0.cookie = cookie;
        self
    }

    /// Sets the network identifier of the client.
    pub fn nid(mut self, nid: &Nid) -> Self {
        (self.0.net, self.0.net_number) = (nid.net, nid.number);
        (self.0.address, self.0.address_len) = nid.address();
        self
    }

    /// Sets the job id, truncated at 31 bytes and at the first NUL.
    pub fn jobid(mut self, job: &str) -> Self {
        self.0.jobid = [0; 32];
        let bytes = job.bytes().take_while(|byte| *byte != 0).take(31);
        for (to, from) in self.0.jobid.iter_mut().zip(bytes) {
            *to = from;
        }
        self
    }

    /// Sets the charge of the request, bytes, instead of its length.
    pub const fn charge(mut self, bytes: u64) -> Self {
        self.0.charge = bytes;
        self.0.header.flags |= wire::REQUEST_CHARGE;
        self
    }

    /// Sets the cookies, not 0, of requests that must complete first; at most eight are used. For
    /// services of level `graph`.
    pub fn after(mut self, cookies: &[u64]) -> Self {
        self.0.predecessor = [0; 8];
        for (to, from) in self.0.predecessor.iter_mut().zip(cookies) {
            *to = *from;
        }
        self
    }

    /// Sets the timeout of the client from the arrival of the request, in whole ms; zero: unknown.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = in_ms(timeout);
        self
    }

    /// Sets the time since the arrival of the request, in whole ms.
    pub fn elapsed(mut self, elapsed: Duration) -> Self {
        self.0.elapsed_ms = in_ms(elapsed);
        self
    }

    /// Selects the high-priority head if `high`, else the regular head.
    pub const fn high_priority(mut self, high: bool) -> Self {
        self.0.header.flags &= !wire::REQUEST_HIGH;
        if high {
            self.0.header.flags |= wire::REQUEST_HIGH;
        }
        self
    }

    /// Encodes the request for the device.
    pub fn encode(&self) -> [u8; wire::Request::SIZE] {
        self.0.encode()
    }
}

/// Defines setters for fields with the same type in the wire format.
macro_rules! setters {
    ($($(#[$doc:meta])+ $field:ident: $type:ty,)+) => {
        impl Request {
            $(
                $(#[$doc])+
                pub const fn $field(mut self, $field: $type) -> Self {
                    self.0.$field = $field;
                    self
                }
            )+
        }
    };
}

setters! {
    /// Sets the RPC number of the operation; see [`opcode`].
    opcode: u32,
    /// Sets the number of nodes of the job.
    job_size: u32,
    /// Sets the user id of the client.
    uid: u32,
    /// Sets the group id of the client.
    gid: u32,
    /// Sets the project id.
    projid: u32,
    /// Sets the node map.
    nodemap: u32,
    /// Sets the object that contains the range, for example an inode.
    object: u64,
    /// Sets the first byte of the range.
    offset: u64,
    /// Sets the length of the range, bytes, which is also the charge.
    length: u64,
    /// Sets the stream, not 0: requests of a stream are scheduled together, and in order if the
    /// service's level requires it.
    stream: u64,
    /// Sets the target of the server.
    target: u32,
}

/// An open file of the device that is a client of a service.
///
/// Dropping the client ends all its requests, queued or running.
#[derive(Debug)]
pub struct Client {
    file: File,
    requests_max: u32,
}

impl Client {
    /// Returns the largest number of concurrent requests of the client.
    pub const fn requests_max(&self) -> u32 {
        self.requests_max
    }

    /// Submits requests in order, at most 256; returns the number accepted. If none was, returns
    /// the error of the first.
    ///
    /// # Errors
    ///
    /// `EEXIST`: the cookie is in use. `EINVAL`: the request is malformed. `EAGAIN`: there is no
    /// room.
    pub fn submit(&self, requests: &[Request]) -> io::Result<usize> {
        self.send(requests.iter().map(Request::encode))
    }

    /// Completes requests in order, at most 256; returns the number of accepted completions. If
    /// none was, returns the error of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no request with this cookie was released to this client and not completed.
    pub fn complete(&self, completions: &[Completion]) -> io::Result<usize> {
        self.send(completions.iter().map(Completion::encode))
    }

    /// Moves requests, in order and at most 256, to high priority, with all requests that must
    /// complete before them. Released requests and those with high priority are not changed.
    /// Returns the number of known requests; if there was none, returns the error of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no request with this cookie was submitted and not completed.
    pub fn promote(&self, cookies: &[u64]) -> io::Result<usize> {
        let all = cookies.iter();
        self.send(all.map(|cookie| Promotion::new(*cookie).encode()))
    }

    /// Extends the lease and the deadline of requests that were read, in order and at most 256, by
    /// a time from now. Returns the number of known requests; if there was none, returns the error
    /// of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no request with this cookie was read and not completed. `EINVAL`: the time is
    /// zero, or more than one hour.
    pub fn busy(&self, requests: &[(u64, Duration)]) -> io::Result<usize> {
        let all = requests.iter();
        self.send(all.map(|(cookie, extra)| Busy::new(*cookie, in_ms(*extra)).encode()))
    }

    /// Reports clients, at most 256, that reconnected after a restart of the server; the first
    /// report begins the recovery. Returns the number of accepted reports.
    /// # Errors
    ///
    /// `EINVAL`: the report is malformed.
    pub fn reconnect(&self, clients: &[Reconnect]) -> io::Result<usize> {
        self.send(clients.iter().map(Reconnect::encode))
    }

    /// Returns up to `max` released requests, at most 256. Waits for the first event, so that the
    /// result may be empty. All other events are lost, so the requests of the server should state
    /// no timeouts.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no event, and the client is nonblocking. `EINTR`: interrupted by a
    /// signal.
    pub fn released(&self, max: usize) -> io::Result<Vec<Released>> {
        let events = self.events(max)?.into_iter();
        let released = events.filter_map(|event| match event {
            Event::Released(released) => Some(released),
            Event::Early(_) | Event::Recovered(_) => None,
        });
        Ok(released.collect())
    }

    /// Returns up to `max` events, at most 256, the most urgent first; waits for the first one.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no event, and the client is nonblocking. `EINTR`: interrupted by a
    /// signal.
    pub fn events(&self, max: usize) -> io::Result<Vec<Event>> {
        let mut bytes = vec![0; max.clamp(1, wire::BATCH) * wire::Released::SIZE];
        let len = (&self.file).read(&mut bytes)?;
        let mut all = Vec::with_capacity(max.min(wire::BATCH));
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let mut header = rest;
            let header = <wire::Header as wire::WireField>::take(&mut header)
                .ok_or(io::ErrorKind::InvalidData)?;
            let size = usize::from(header.size).max(wire::Header::SIZE);
            let (record, next) = rest
                .split_at_checked(size)
                .ok_or(io::ErrorKind::InvalidData)?;
            // Later modules may have other types.
            let event = match header.kind {
                wire::TYPE_RELEASED => Released::decode(record).map(Event::Released),
                wire::TYPE_EARLY => Early::decode(record).map(Event::Early),
                wire::TYPE_RECOVERED => Recovered::decode(record).map(Event::Recovered),
                _ => {
                    rest = next;
                    continue;
                }
            };
            all.push(event.map_err(bad)?);
            rest = next;
        }
        Ok(all)
    }

    /// Writes up to 256 records of one size; returns the number accepted.
    fn send<const N: usize>(&self, records: impl Iterator<Item = [u8; N]>) -> io::Result<usize> {
        let bytes: Vec<u8> = records.take(wire::BATCH).flatten().collect();
        Ok(self.write(&bytes)? / N)
    }

    /// Writes encoded records; returns the number of bytes accepted.
    ///
    /// # Errors
    ///
    /// The error of the first record, if it was refused.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    /// Returns the statistics of the client.
    ///
    /// # Errors
    ///
    /// Only errors from which the caller cannot recover.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut bytes = [0; Stats::SIZE];
        bytes[..4].copy_from_slice(&(Stats::SIZE as u32).to_le_bytes());
        sys::argument(&self.file, wire::IOC_STATS, &mut bytes)?;
        Stats::decode(&bytes).map_err(bad)
    }

    /// Waits up to `timeout` (`None`: without limit) until there is an event to read or, with
    /// `room`, room for a request.
    ///
    /// # Errors
    ///
    /// `EINTR`: interrupted by a signal.
    pub fn wait(&self, room: bool, timeout: Option<Duration>) -> io::Result<Ready> {
        sys::poll(&self.file, room, timeout)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Client {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Executes an ioctl of the device on any file, with the bytes of its argument: for tests of
/// refused arguments.
///
/// # Errors
///
/// The errors of the ioctl; `InvalidInput`: `argument` is shorter than its stated size, or than the
/// structure that the device writes.
pub fn ioctl(file: &File, command: u32, argument: &mut [u8]) -> io::Result<()> {
    sys::argument(file, command, argument)
}
