// SPDX-License-Identifier: GPL-2.0-only

//! Minimal HTTP/1.1 server for a page of metrics: one request without a body and one answer per
//! connection.
//!
//! The thread that called [`serve`] makes the pages, because only this thread can access the
//! module. Requests for the same path that wait share a page. Another thread accepts connections,
//! receives requests and sends answers, without waiting for a single connection.
//!
//! The number of connections is bounded. A further connection closes the one of [`evict`], so that
//! no peer keeps others from an answer. Receiving a request, sending an answer, and receiving data
//! after a request may take [`PATIENCE`] each.
//!
//! `tiny_http` is not used: it starts an unlimited number of threads and has no timeout for slow
//! connections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::failure;

/// Maximum number of connections.
pub const CONNECTIONS_MAX: usize = 64;

/// Maximum number of connections whose answer the kernel has not accepted yet; each may hold a
/// page.
const SENDING_MAX: usize = 16;

/// Timeout for receiving a request and for sending an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a request, bytes.
const REQUEST_MAX: usize = 8 << 10;

/// Maximum number of bytes after a request that are read and discarded.
const DRAIN_MAX_BYTES: usize = 64 << 10;

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// True for HEAD: only the head of the answer is sent.
    pub head: bool,
    /// Path without the query (from the question mark).
    pub path: String,
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: String,
}

impl Answer {
    /// Creates an answer with a status and a short text.
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
        }
    }

    /// Returns the head of the answer.
    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed\r\nAllow: GET, HEAD",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let (status, kind, length) = (self.status, self.content_type, self.body.len());
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n",
        )
    }
}

/// Parses the head of a request.
///
/// # Errors
///
/// The answer that refuses the request.
fn parse(head: &[u8]) -> Result<Request, Answer> {
    let refuse = |status, text| Err(Answer::text(status, text));
    let Ok(head) = std::str::from_utf8(head) else {
        return refuse(400, "the request is not UTF-8");
    };
    let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return refuse(400, "not a valid HTTP/1.1 request line");
    };
    if !["GET", "HEAD"].contains(&method) {
        return refuse(405, "only GET and HEAD are allowed");
    }
    if !target.starts_with('/') {
        return refuse(400, "the path must begin with a slash");
    }
    Ok(Request {
        head: method == "HEAD",
        path: target.split('?').next().unwrap_or_default().into(),
    })
}

/// Returns the request in `bytes`, or the answer that refuses it; `None` if it is not complete.
fn request(bytes: &[u8]) -> Option<Result<Request, Answer>> {
    let end = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    if let Some(end) = end(b"\r\n\r\n").or_else(|| end(b"\n\n")) {
        return Some(parse(&bytes[..end]));
    }
    let text = format!("request too large (limit: {REQUEST_MAX} bytes)");
    (bytes.len() > REQUEST_MAX).then(|| Err(Answer::text(431, &text)))
}

/// Returns the number of a peer: its IPv4 address, or the network of its IPv6 address.
fn number_of(peer: IpAddr) -> u64 {
    match peer.to_canonical() {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64,
    }
}

/// Work on a connection. Of a peer's connections, those of a later variant are closed first.
enum Step {
    /// Wait for the page; the request, until the page is asked for.
    Wait(Option<Request>),
    /// Send the answer: its head, the page with the body, and the number of bytes sent.
    Send(String, Arc<Answer>, usize),
    /// Receive the request; the bytes received.
    Receive(Vec<u8>),
    /// Discard what follows the request; the maximum number of bytes. Unread data, such as a body,
    /// would make the kernel reset the connection and discard the answer.
    Drain(usize),
}

impl Step {
    fn rank(&self) -> usize {
        match self {
            Self::Wait(_) => 0,
            Self::Send(..) => 1,
            Self::Receive(_) => 2,
            Self::Drain(_) => 3,
        }
    }
}

/// A nonblocking connection.
struct Connection {
    id: u64,
    peer: u64,
    stream: TcpStream,
    /// True for HEAD: only the head of the answer is sent.
    head: bool,
    patience: Duration,
    /// End of the time for the step.
    end: Instant,
    step: Step,
}

impl Connection {
    fn new(id: u64, peer: u64, stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            id,
            peer,
            stream,
            head: false,
            patience,
            end: Instant::now() + patience,
            step: Step::Receive(Vec::new()),
        })
    }

    fn enter(&mut self, step: Step) {
        self.step = step;
        self.end = Instant::now() + self.patience;
    }

    /// Starts to send `answer`.
    fn answer(&mut self, answer: Arc<Answer>) {
        self.enter(Step::Send(answer.head(), answer, 0));
    }

    /// Starts to refuse the connection.
    fn refuse(&mut self, status: u16, text: &str) {
        self.answer(Arc::new(Answer::text(status, text)));
    }

    /// Continues as far as possible without waiting; returns false if the connection has ended.
    fn advance(&mut self) -> bool {
        loop {
            match self.advance_once() {
                Ok(()) => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return false,
                Err(_) if Instant::now() < self.end => return true,
                Err(_) => match self.step {
                    Step::Wait(_) => return true,
                    Step::Receive(_) => {
                        let text = format!("request timed out ({} s)", PATIENCE.as_secs());
                        self.refuse(408, &text);
                    }
                    _ => return false,
                },
            }
        }
    }

    /// Reads or writes once, or enters the next step.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: the connection has to wait. Any other error: the connection has ended.
    fn advance_once(&mut self) -> io::Result<()> {
        let mut chunk = [0; 1024];
        match &mut self.step {
            Step::Receive(bytes) => match request(bytes) {
                None => bytes.extend_from_slice(read(&mut self.stream, &mut chunk)?),
                Some(Ok(request)) => {
                    self.head = request.head;
                    self.enter(Step::Wait(Some(request)));
                }
                Some(Err(answer)) => self.answer(Arc::new(answer)),
            },
            Step::Wait(_) => return Err(io::ErrorKind::WouldBlock.into()),
            Step::Send(head, answer, sent) => {
                let body: &str = if self.head { "" } else { &answer.body };
                let rest = match sent.checked_sub(head.len()) {
                    None => &head.as_bytes()[*sent..],
                    Some(sent) => &body.as_bytes()[sent..],
                };
                if rest.is_empty() {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.enter(Step::Drain(DRAIN_MAX_BYTES));
                } else {
                    *sent += self.stream.write(rest)?;
                }
            }
            Step::Drain(left) => {
                let count = read(&mut self.stream, &mut chunk)?.len();
                *left = left.checked_sub(count).ok_or(io::ErrorKind::InvalidData)?;
            }
        }
        Ok(())
    }
}

/// Reads what has arrived; `UnexpectedEof` if the peer has closed the connection.
fn read<'a>(stream: &mut TcpStream, chunk: &'a mut [u8]) -> io::Result<&'a [u8]> {
    match stream.read(chunk)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(&chunk[..count]),
    }
}

/// Removes a connection if more than `max` have a step for which `is` returns true: one of the peer
/// that has most of all connections, of these the one with the last step, and of these the oldest.
fn evict(all: &mut Vec<Connection>, max: usize, is: impl Fn(&Step) -> bool) -> Option<Connection> {
    let these = (0..all.len()).rev().filter(|index| is(&all[*index].step));
    if these.clone().count() <= max {
        return None;
    }
    let count = |peer: u64| all.iter().filter(|other| other.peer == peer).count();
    // Of equal elements, the last one is found.
    let key = |index: &usize| (count(all[*index].peer), all[*index].step.rank());
    these.max_by_key(key).map(|index| all.remove(index))
}

/// Waits until a connection can be accepted or continued, a page is made, or a time has passed.
fn wait(listener: &TcpListener, woken: &UnixStream, all: &[Connection]) {
    let waits = all.iter().filter(|one| !matches!(one.step, Step::Wait(_)));
    let end = waits.clone().map(|one| one.end).min();
    let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let streams = waits.map(|one| match one.step {
        Step::Send(..) => (one.stream.as_fd(), PollFlags::OUT),
        _ => (one.stream.as_fd(), PollFlags::IN),
    });
    let own = [listener.as_fd(), woken.as_fd()].map(|fd| (fd, PollFlags::IN));
    let all = own.into_iter().chain(streams);
    let mut all: Vec<PollFd<'_>> = all
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
        .collect();
    // After an interruption or a lack of memory, the caller tries all connections.
    let _ = poll(&mut all, timeout.as_ref());
}

/// Accepts connections, asks for pages by `tasks`, and sends the answers of `done`, of which a byte
/// of `woken` tells. Fewer connections are accepted at a time than have room, so a request that
/// arrives with its connection is received. Pages are asked for when all earlier ones are made.
fn converse(
    listener: &TcpListener,
    tasks: &SyncSender<Vec<(u64, Request)>>,
    done: &Receiver<Vec<(u64, Arc<Answer>)>>,
    mut woken: &UnixStream,
) {
    let mut all: Vec<Connection> = Vec::new();
    let (mut ids, mut asked) = (0.., false);
    loop {
        wait(listener, woken, &all);
        let _ = woken.read(&mut [0; 64]);
        for (id, answer) in done.try_iter().flatten() {
            asked = false;
            if let Some(one) = all.iter_mut().find(|one| one.id == id) {
                one.answer(answer);
            }
        }
        for id in ids.by_ref().take(CONNECTIONS_MAX / 4) {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let one = Connection::new(id, number_of(peer.ip()), stream, PATIENCE);
                    all.extend(one);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A temporary failure, such as too many open files.
                Err(_) => {
                    thread::sleep(Duration::from_millis(100));
                    break;
                }
            }
        }
        all.retain_mut(Connection::advance);
        while evict(&mut all, SENDING_MAX, |step| matches!(step, Step::Send(..))).is_some() {}
        while let Some(mut one) = evict(&mut all, CONNECTIONS_MAX, |_| true) {
            if matches!(one.step, Step::Receive(_) | Step::Wait(_)) {
                let text = format!("too many connections (limit: {CONNECTIONS_MAX})");
                one.refuse(503, &text);
                one.advance();
            }
        }
        if !asked {
            let requests = all.iter_mut().filter_map(|one| match &mut one.step {
                Step::Wait(request) => request.take().map(|request| (one.id, request)),
                _ => None,
            });
            let requests: Vec<_> = requests.collect();
            asked = !requests.is_empty();
            if asked && tasks.send(requests).is_err() {
                return;
            }
        }
    }
}

/// Answers requests on `listener` with the results of `answer`, indefinitely.
///
/// # Errors
///
/// The thread of the connections could not be started, or has ended.
pub fn serve(listener: TcpListener, mut answer: impl FnMut(&Request) -> Answer) -> failure::Result {
    let (sender, tasks) = mpsc::sync_channel::<Vec<(u64, Request)>>(1);
    let (result, done) = mpsc::channel();
    let (mut wake, woken) = UnixStream::pair()?;
    listener.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let builder = thread::Builder::new().name("connections".into());
    builder.spawn(move || converse(&listener, &sender, &done, &woken))?;
    for requests in tasks {
        let mut pages = BTreeMap::new();
        let answers = requests.into_iter().map(|(id, request)| {
            let page = pages.entry(request.path.clone());
            let page = page.or_insert_with(|| Arc::new(answer(&request)));
            (id, Arc::clone(page))
        });
        let _ = result.send(answers.collect());
        wake.write_all(&[0])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a connection, and its client.
    fn connection(id: u64, peer: u64, step: Step) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let connection = Connection::new(id, peer, stream, Duration::from_millis(300)).unwrap();
        (Connection { step, ..connection }, client)
    }

    /// Returns the duration of a conversation in which the client repeats `peer` after its request.
    fn taken(body: usize, mut peer: impl FnMut(&mut TcpStream) -> io::Result<usize>) -> Duration {
        let (mut connection, mut client) = connection(0, 1, Step::Receive(Vec::new()));
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        let (start, mut steps) = (Instant::now(), 0);
        while connection.advance() {
            assert!(steps < 1_000, "the connection was not closed");
            steps += 1;
            if matches!(connection.step, Step::Wait(Some(_))) {
                connection.answer(Arc::new(Answer::text(200, &"x".repeat(body))));
            }
            let _ = peer(&mut client);
            thread::sleep(Duration::from_millis(20));
        }
        start.elapsed()
    }

    /// Verifies that a client is closed whose steps are fast but together exceed the timeout.
    #[test]
    fn slow_ones_are_closed() {
        let writes = taken(1, |client| client.write(b"x"));
        let reads = taken(64 << 20, |client| client.read(&mut [0; 1024]));
        for time in [writes, reads] {
            assert!(time >= Duration::from_millis(250), "{time:?}");
        }
    }

    #[test]
    fn the_greediest_peer_loses_its_oldest_connection() {
        let receive = || Step::Receive(Vec::new());
        let steps = [
            (1, Step::Wait(None)),
            (2, Step::Wait(None)),
            (1, receive()),
            (2, receive()),
            (2, receive()),
        ];
        let mut all = Vec::new();
        for (id, (peer, step)) in (0..).zip(steps) {
            all.push(connection(id, peer, step).0);
        }
        assert!(evict(&mut all, 5, |_| true).is_none());
        assert!(evict(&mut all, 0, |step| matches!(step, Step::Send(..))).is_none());
        for lost in [3, 2, 4, 0, 1] {
            let one = evict(&mut all, 0, |_| true);
            assert_eq!(one.map(|one| one.id), Some(lost));
        }
        let number = |text: &str| number_of(text.parse().unwrap());
        assert_eq!(number("::ffff:10.0.0.1"), number("10.0.0.1"));
        assert_eq!(number("fe80::1"), number("fe80::2"));
        assert_ne!(number("10.0.0.1"), number("10.0.0.2"));
    }
}
