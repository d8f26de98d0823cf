// SPDX-License-Identifier: GPL-2.0-only

//! Minimal HTTP/1.1 server for a page of metrics: one request without a body and one answer per
//! connection.
//!
//! Each connection has a thread; connections beyond [`CONNECTIONS_MAX`] are refused immediately.
//! These threads read requests and write answers. The thread that called [`serve`] makes the pages
//! one after the other, because only this thread can access the module. Slow connections are
//! closed: the request, the answer, and the data after the request may take [`PATIENCE`] each.
//!
//! `tiny_http` is not used: it starts an unlimited number of threads and has no timeout for slow
//! connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure;

/// Maximum number of simultaneous connections.
pub const CONNECTIONS_MAX: usize = 16;

/// Timeout for receiving a request and for sending an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a request, bytes.
const REQUEST_MAX: usize = 8 << 10;

/// Maximum number of bytes after a request that are read and discarded.
const DRAIN_MAX_BYTES: u64 = 64 << 10;

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

/// A request and the channel for its answer.
type Task = (Request, SyncSender<Answer>);

impl Answer {
    /// Creates an answer with a status and a short text.
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
        }
    }

    /// Writes the answer, without the body if `head` is true.
    fn write(&self, out: &mut impl Write, head: bool) -> io::Result<()> {
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
        write!(
            out,
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n",
        )?;
        if !head {
            out.write_all(self.body.as_bytes())?;
        }
        out.flush()
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

/// A stream with a deadline that covers all reads and writes.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    /// Returns the remaining time; fails with `TimedOut` if there is none.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.checked_duration_since(Instant::now());
        let left = left.filter(|left| !left.is_zero());
        left.ok_or_else(|| io::ErrorKind::TimedOut.into()).map(Some)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a request.
///
/// # Errors
///
/// The answer that refuses the request; `None` if the peer has closed the connection.
fn read(from: &mut impl Read) -> Result<Request, Option<Answer>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let end = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
        if let Some(end) = end(b"\r\n\r\n").or_else(|| end(b"\n\n")) {
            return Ok(parse(&bytes[..end])?);
        }
        if bytes.len() > REQUEST_MAX {
            return Err(Some(Answer::text(
                431,
                &format!("request too large (limit: {REQUEST_MAX} bytes)"),
            )));
        }
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match from.read(&mut chunk) {
            Ok(0) => return Err(None),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == Interrupted => {}
            Err(error) if [TimedOut, WouldBlock].contains(&error.kind()) => {
                return Err(Some(Answer::text(
                    408,
                    &format!("request timed out ({} s)", PATIENCE.as_secs()),
                )));
            }
            Err(_) => return Err(None),
        }
    }
}

/// Reads a request, obtains the answer from the serving thread, and writes it. `patience` is the
/// timeout of reading and of writing.
fn converse(stream: &TcpStream, sender: &SyncSender<Task>, patience: Duration) -> io::Result<()> {
    let until = || Until {
        stream,
        end: Instant::now() + patience,
    };
    let (answer, head) = match read(&mut until()) {
        Ok(request) => {
            let (reply, result) = mpsc::sync_channel(1);
            let head = request.head;
            let sent = sender.send((request, reply)).ok();
            let answer = sent.and_then(|()| result.recv().ok());
            let answer =
                answer.unwrap_or_else(|| Answer::text(503, "the exporter is shutting down"));
            (answer, head)
        }
        Err(Some(answer)) => (answer, false),
        Err(None) => return Ok(()),
    };
    answer.write(&mut until(), head)?;
    stream.shutdown(Shutdown::Write)?;
    // Unread data, such as a body, would make the kernel reset the connection and discard the
    // answer.
    let _ = io::copy(&mut until().take(DRAIN_MAX_BYTES), &mut io::sink());
    Ok(())
}

/// Accepts connections and starts a thread for each.
fn accept(listener: &TcpListener, sender: &SyncSender<Task>) {
    // Each connection holds a reference.
    let permits = Arc::new(());
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // A temporary failure, such as too many open files.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if Arc::strong_count(&permits) > CONNECTIONS_MAX {
            let _ = stream.set_nonblocking(true);
            let text = format!("too many connections (limit: {CONNECTIONS_MAX})");
            let _ = Answer::text(503, &text).write(&mut stream, false);
            continue;
        }
        let (sender, permit) = (sender.clone(), Arc::clone(&permits));
        let builder = thread::Builder::new().name("connection".into());
        // If no thread can be started, the connection is closed.
        let _ = builder.spawn(move || {
            let _ = converse(&stream, &sender, PATIENCE);
            drop(permit);
        });
    }
}

/// Answers requests on `listener` with the results of `answer`, indefinitely.
///
/// # Errors
///
/// The thread that accepts connections could not be started or has ended.
pub fn serve(listener: TcpListener, mut answer: impl FnMut(&Request) -> Answer) -> failure::Result {
    let (sender, tasks): (SyncSender<Task>, Receiver<Task>) = mpsc::sync_channel(CONNECTIONS_MAX);
    let builder = thread::Builder::new().name("accept".into());
    builder.spawn(move || accept(&listener, &sender))?;
    for (request, reply) in tasks {
        // The peer may have closed the connection.
        let _ = reply.send(answer(&request));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the duration of a conversation in which the client repeats `peer` after its request.
    fn taken(body: usize, mut peer: impl FnMut(&mut TcpStream) -> io::Result<usize>) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let (sender, tasks): (SyncSender<Task>, Receiver<Task>) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for (_, reply) in tasks {
                let _ = reply.send(Answer::text(200, &"x".repeat(body)));
            }
        });
        let talk = thread::spawn(move || {
            let start = Instant::now();
            let _ = converse(&stream, &sender, Duration::from_millis(300));
            start.elapsed()
        });
        let mut steps = 0;
        while !talk.is_finished() {
            assert!(steps < 1_000, "the connection was not closed");
            steps += 1;
            let _ = peer(&mut client);
            thread::sleep(Duration::from_millis(20));
        }
        talk.join().unwrap()
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
}
