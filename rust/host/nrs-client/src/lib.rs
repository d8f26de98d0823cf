// SPDX-License-Identifier: MIT OR Apache-2.0

//! Client of `/dev/nrs`: has the requests of a server in user space scheduled by nrs.
//!
//! # Vocabulary
//!
//! - *Client*: an open file of `/dev/nrs` that belongs to a service ([`Client`]).
//! - *Request*: what the server wants to serve and for whom ([`Request`]); it names it with a cookie.
//! - *Released*: a request that is to be served now ([`Released`]).
//! - *Completion*: the end of a request ([`Completion`]); it frees a slot for the next.
//! - *Deadline*: when the client of a request gives up, if the request says so ([`Request::timeout`]).
//! - *Early reply*: what the server passes on to that client: a later deadline ([`Early`]).
//! - *Event*: anything that is read ([`Event`]).
//!
//! ```text
//!   a request arrives ──▶ Client::submit ──▶ policy ──▶ Client::released ──▶ serve it ──▶ Client::complete
//! ```
//!
//! All methods take `&self`: threads that receive, serve and complete may share one client. Reading and
//! writing never allocate more than one buffer per call.
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
//!     // ... serve the request that `released.cookie` names ...
//!     client.complete(&[Completion::new(released.cookie, 0, 4096)])?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A server whose requests state timeouts reads with [`Client::events`], and passes early replies on:
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
//!             // Nobody waits for it any more.
//!             client.complete(&[Completion::new(released.cookie, 110, 0)])?;
//!         }
//!         Event::Released(released) => {
//!             // ... serve it, and tell its client `released.estimate()` with the reply ...
//!             client.complete(&[Completion::new(released.cookie, 0, 4096)])?;
//!         }
//!         Event::Recovered(_) => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What each errno means is in `Documentation/dev-nrs.md`. Agents of several servers, which read accounts and set factors
//! through `/dev/nrs-control`, use [`agent`].

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

/// Where the device is.
pub const DEVICE: &str = "/dev/nrs";

/// How to become a client of a service.
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
    /// A client of `service`, which is made if it is not there: 1 to 31 letters, digits and `_ - . :`.
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

    /// Where the device is, if not at [`DEVICE`].
    pub fn device(mut self, device: impl AsRef<Path>) -> Self {
        self.device = device.as_ref().into();
        self
    }

    /// The client's name in statistics; without one it is called after the process.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether calls fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    pub fn nonblocking(mut self, nonblocking: bool) -> Self {
        self.nonblocking = nonblocking;
        self
    }

    /// Whether every request queues, even when nobody waits.
    pub fn queue_all(mut self, queue_all: bool) -> Self {
        self.queue_all = queue_all;
        self
    }

    /// How long a released request may keep its slot, in whole milliseconds, at most an hour; zero: for
    /// ever.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Requests that the client may have at a time, if fewer than the module allows.
    pub fn requests_max(mut self, requests: u32) -> Self {
        self.requests_max = requests;
        self
    }

    /// Opens the device and becomes a client.
    ///
    /// # Errors
    ///
    /// Those of `open`, and of `NRS_IOC_ATTACH`; `InvalidInput`: a name or a lease that is too long.
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

/// `text` and then NULs.
fn padded(text: &str) -> io::Result<[u8; 32]> {
    let mut field = [0; 32];
    let room = field.len() - 1;
    if text.len() > room || text.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    field[..text.len()].copy_from_slice(text.as_bytes());
    Ok(field)
}

fn bad(_: wire::Malformed) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// A request that wants to be served; what is not set is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(wire::Request);

impl Request {
    /// A request named `cookie`, which no other one has that was not completed.
    pub const fn new(cookie: u64) -> Self {
        Self(wire::Request::new(cookie))
    }

    /// Its name.
    pub const fn cookie(&self) -> u64 {
        self.0.cookie
    }

    /// The same request under another name.
    pub const fn named(mut self, cookie: u64) -> Self {
        self.0.cookie = cookie;
        self
    }

    /// Network identifier of the client it is for.
    pub fn nid(mut self, nid: &Nid) -> Self {
        (self.0.net, self.0.net_number) = (nid.net, nid.number);
        (self.0.address, self.0.address_len) = nid.address();
        self
    }

    /// Job it is for, cut at 31 bytes and at the first NUL.
    pub fn jobid(mut self, job: &str) -> Self {
        self.0.jobid = [0; 32];
        let bytes = job.bytes().take_while(|byte| *byte != 0).take(31);
        for (to, from) in self.0.jobid.iter_mut().zip(bytes) {
            *to = from;
        }
        self
    }

    /// Bytes that it is charged for, instead of its length.
    pub const fn charge(mut self, bytes: u64) -> Self {
        self.0.charge = bytes;
        self.0.header.flags |= wire::REQUEST_CHARGE;
        self
    }

    /// Requests that have to be completed before it is served, by their cookies, which are not 0; the first
    /// eight of them count. For services of level `graph`.
    pub fn after(mut self, cookies: &[u64]) -> Self {
        self.0.predecessor = [0; 8];
        for (to, from) in self.0.predecessor.iter_mut().zip(cookies) {
            *to = *from;
        }
        self
    }

    /// How long its client waits, from its arrival on, in milliseconds; zero: it does not say.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = in_ms(timeout);
        self
    }

    /// How long ago it arrived, in milliseconds.
    pub fn elapsed(mut self, elapsed: Duration) -> Self {
        self.0.elapsed_ms = in_ms(elapsed);
        self
    }

    /// Whether it goes through the high-priority head.
    pub const fn high_priority(mut self, high: bool) -> Self {
        self.0.header.flags &= !wire::REQUEST_HIGH;
        if high {
            self.0.header.flags |= wire::REQUEST_HIGH;
        }
        self
    }

    /// Its bytes on the device.
    pub fn encode(&self) -> [u8; wire::Request::SIZE] {
        self.0.encode()
    }
}

/// Setters of the fields of a request that are as on the wire.
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
    /// RPC number of the operation; see [`opcode`].
    opcode: u32,
    /// Nodes of the job it is for.
    job_size: u32,
    /// User it is for.
    uid: u32,
    /// Group it is for.
    gid: u32,
    /// Project it is for.
    projid: u32,
    /// Node map it is for.
    nodemap: u32,
    /// What its range is in, for example an inode.
    object: u64,
    /// First byte of its range.
    offset: u64,
    /// Bytes of its range, which it is charged for.
    length: u64,
    /// Stream that it belongs to, not 0: related requests are kept together, and in their order if
    /// the service's level says so.
    stream: u64,
    /// Which of the server's targets it is for.
    target: u32,
}

/// An open file of the device that is a client of a service.
///
/// Dropping it ends all its requests, queued or running.
#[derive(Debug)]
pub struct Client {
    file: File,
    requests_max: u32,
}

impl Client {
    /// Requests that it may have at a time.
    pub const fn requests_max(&self) -> u32 {
        self.requests_max
    }

    /// Submits requests in order, up to 256 of them; returns how many were taken. The error, if none was,
    /// is that of the first.
    ///
    /// # Errors
    ///
    /// `EEXIST`: its cookie is in use. `EINVAL`: it is malformed. `EAGAIN`: there is no room.
    pub fn submit(&self, requests: &[Request]) -> io::Result<usize> {
        self.send(requests.iter().map(Request::encode))
    }

    /// Completes requests in order, up to 256 of them; returns how many completions were taken. The
    /// error, if none was, is that of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such request was released to this client and not completed.
    pub fn complete(&self, completions: &[Completion]) -> io::Result<usize> {
        self.send(completions.iter().map(Completion::encode))
    }

    /// Moves requests, in order and up to 256 of them, to high priority, with all that has to be completed
    /// before them; returns how many were known. Nothing happens to those that are released or have high priority. The
    /// error, if none was known, is that of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such request was submitted and not completed.
    pub fn promote(&self, cookies: &[u64]) -> io::Result<usize> {
        let all = cookies.iter();
        self.send(all.map(|cookie| Promotion::new(*cookie).encode()))
    }

    /// Says of requests that were read, in order and up to 256 of them, that each takes so much longer from now: its lease
    /// and its deadline move. Returns how many were known. The error, if none was known, is that of the first.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such request was read and not completed. `EINVAL`: zero, or more than an hour.
    pub fn busy(&self, requests: &[(u64, Duration)]) -> io::Result<usize> {
        let all = requests.iter();
        self.send(all.map(|(cookie, extra)| Busy::new(*cookie, in_ms(*extra)).encode()))
    }

    /// Says of clients, up to 256 of them, that they have come back after a restart of the server; the first one begins the
    /// recovery. Returns how many reports were taken.
    ///
    /// # Errors
    ///
    /// `EINVAL`: malformed.
    pub fn reconnect(&self, clients: &[Reconnect]) -> io::Result<usize> {
        self.send(clients.iter().map(Reconnect::encode))
    }

    /// Takes up to `max` requests (at most 256) that are to be served now; waits for the first one, or for something else, so
    /// that there may be none. For servers whose requests state no timeouts: all other events are lost.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none, and the client does not wait. `EINTR`: a signal came.
    pub fn released(&self, max: usize) -> io::Result<Vec<Released>> {
        let events = self.events(max)?.into_iter();
        let released = events.filter_map(|event| match event {
            Event::Released(released) => Some(released),
            Event::Early(_) | Event::Recovered(_) => None,
        });
        Ok(released.collect())
    }

    /// Takes up to `max` events (at most 256), those that cannot wait first; waits for the first one.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none, and the client does not wait. `EINTR`: a signal came.
    pub fn events(&self, max: usize) -> io::Result<Vec<Event>> {
        let mut bytes = vec![0; max.clamp(1, wire::BATCH) * wire::Released::SIZE];
        let len = (&self.file).read(&mut bytes)?;
        let mut all = Vec::with_capacity(max.min(wire::BATCH));
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let mut header = rest;
            let header = <wire::Header as wire::Field>::take(&mut header)
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

    /// Writes up to 256 records of one size; returns how many were taken.
    fn send<const N: usize>(&self, records: impl Iterator<Item = [u8; N]>) -> io::Result<usize> {
        let bytes: Vec<u8> = records.take(wire::BATCH).flatten().collect();
        Ok(self.write(&bytes)? / N)
    }

    /// Writes records as they are; returns the bytes that were taken.
    ///
    /// # Errors
    ///
    /// That of the first record, if it was not taken.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    /// What the client has done.
    ///
    /// # Errors
    ///
    /// None that can be helped.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut bytes = [0; Stats::SIZE];
        bytes[..4].copy_from_slice(&(Stats::SIZE as u32).to_le_bytes());
        sys::argument(&self.file, wire::IOC_STATS, &mut bytes)?;
        Stats::decode(&bytes).map_err(bad)
    }

    /// Waits up to `timeout` (`None`: for ever) until there is something to read or, with `room`, room for
    /// a request.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came.
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

/// Carries out an ioctl of the device on a file that may be no client, with the bytes of its argument:
/// for tests of what is refused.
///
/// # Errors
///
/// Those of the ioctl; `InvalidInput`: `argument` is shorter than the size that it states, or than what
/// the device writes.
pub fn ioctl(file: &File, command: u32, argument: &mut [u8]) -> io::Result<()> {
    sys::argument(file, command, argument)
}
