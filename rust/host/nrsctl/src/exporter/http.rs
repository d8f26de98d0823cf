// SPDX-License-Identifier: GPL-2.0-only

//! As much of HTTP/1.1 as a page of metrics takes: a request without a body, one answer, the end of
//! the connection.
//!
//! Connections have a thread each, at most [`CONNECTIONS`]; more are refused at once. The threads
//! read requests and write answers; the thread that called [`serve`] makes the pages, one after the
//! other, because only that one reaches the module. A slow connection is closed: its request, its
//! answer and what follows the request may take [`PATIENCE`] each.
//!
//! `tiny_http` makes a thread for each connection, without a bound, and waits for slow ones for ever.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure;

/// Connections at a time.
pub const CONNECTIONS: usize = 16;

/// Time for a request to come in, and for an answer to go out.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a request, at most.
const REQUEST_MAX: usize = 8 << 10;

/// Bytes behind a request that are read, and dropped.
const REST_MAX: u64 = 64 << 10;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only the head of the answer is wanted.
    pub head: bool,
    /// The path, without what follows a question mark.
    pub path: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The media type of its body.
    pub content_type: &'static str,
    /// Its body.
    pub body: String,
}

/// A request, and where its answer goes.
type Task = (Request, SyncSender<Answer>);

impl Answer {
    /// Returns a short text with a status.
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
        }
    }

    /// Writes the answer; without the body if only the head is wanted.
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

/// Parses a request's head; refuses it with an answer.
fn parse(head: &[u8]) -> Result<Request, Answer> {
    let refuse = |status, text| Err(Answer::text(status, text));
    let Ok(head) = std::str::from_utf8(head) else {
        return refuse(400, "the request is not UTF-8");
    };
    let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return refuse(400, "this is no request of HTTP/1.1");
    };
    if !["GET", "HEAD"].contains(&method) {
        return refuse(405, "only GET and HEAD are allowed");
    }
    if !target.starts_with('/') {
        return refuse(400, "the path of a request begins with a slash");
    }
    Ok(Request {
        head: method == "HEAD",
        path: target.split('?').next().unwrap_or_default().into(),
    })
}

/// A stream until a time, however many reads and writes that takes.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    /// Returns the time that is left, if there is any.
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

/// Reads a request; refuses it with an answer, or with none if the other end is gone.
fn read(from: &mut impl Read) -> Result<Request, Option<Answer>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let end = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
        if let Some(end) = end(b"\r\n\r\n").or_else(|| end(b"\n\n")) {
            return Ok(parse(&bytes[..end])?);
        }
        if bytes.len() > REQUEST_MAX {
            return Err(Some(Answer::text(431, "the request has more than 8 KiB")));
        }
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match from.read(&mut chunk) {
            Ok(0) => return Err(None),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == Interrupted => {}
            Err(error) if [TimedOut, WouldBlock].contains(&error.kind()) => {
                return Err(Some(Answer::text(408, "the request took too long")));
            }
            Err(_) => return Err(None),
        }
    }
}

/// Reads a request, has it answered, writes the answer; each within `patience`.
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
            let answer = answer.unwrap_or_else(|| Answer::text(503, "the exporter is ending"));
            (answer, head)
        }
        Err(Some(answer)) => (answer, false),
        Err(None) => return Ok(()),
    };
    answer.write(&mut until(), head)?;
    stream.shutdown(Shutdown::Write)?;
    // The kernel would take the answer back if something was left to read, such as a body.
    let _ = io::copy(&mut until().take(REST_MAX), &mut io::sink());
    Ok(())
}

/// Accepts connections; each has a thread of its own.
fn accept(listener: &TcpListener, sender: &SyncSender<Task>) {
    // Each connection holds one of these.
    let permits = Arc::new(());
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Too many files are open, say; it will pass.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if Arc::strong_count(&permits) > CONNECTIONS {
            let _ = stream.set_nonblocking(true);
            let _ = Answer::text(503, "too many connections").write(&mut stream, false);
            continue;
        }
        let (sender, permit) = (sender.clone(), Arc::clone(&permits));
        let builder = thread::Builder::new().name("connection".into());
        // Without a thread the connection is closed.
        let _ = builder.spawn(move || {
            let _ = converse(&stream, &sender, PATIENCE);
            drop(permit);
        });
    }
}

/// Answers requests that come in on `listener` with what `answer` says, for ever.
///
/// # Errors
///
/// The thread that accepts connections could not be started, or has ended.
pub fn serve(listener: TcpListener, mut answer: impl FnMut(&Request) -> Answer) -> failure::Result {
    let (sender, tasks): (SyncSender<Task>, Receiver<Task>) = mpsc::sync_channel(CONNECTIONS);
    let builder = thread::Builder::new().name("accept".into());
    builder.spawn(move || accept(&listener, &sender))?;
    for (request, reply) in tasks {
        // The other end may be gone.
        let _ = reply.send(answer(&request));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a conversation takes with somebody who does `peer` after the request, step by step.
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
            assert!(steps < 1_000, "nobody ends it");
            steps += 1;
            let _ = peer(&mut client);
            thread::sleep(Duration::from_millis(20));
        }
        talk.join().unwrap()
    }

    /// A step of somebody slow is as quick as can be; all of them together are not.
    #[test]
    fn slow_ones_are_closed() {
        let writes = taken(1, |client| client.write(b"x"));
        let reads = taken(64 << 20, |client| client.read(&mut [0; 1024]));
        for time in [writes, reads] {
            assert!(time >= Duration::from_millis(250), "{time:?}");
        }
    }
}
