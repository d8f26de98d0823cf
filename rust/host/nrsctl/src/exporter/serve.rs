// SPDX-License-Identifier: GPL-2.0-only

//! Pages over HTTP.
//!
//! Connections have a thread each, so many as [`CONNECTIONS`]; whoever comes beyond that is sent away at once. They
//! read the request and write the answer; the pages are made by the thread that called [`serve`], one after the
//! other, because only that one reaches the module. A connection that is slow is closed: its request, its answer and what
//! still comes behind the request may take [`PATIENCE`] each.
//!
//! The server is one of our own: that of `tiny_http` makes a thread for each connection, without a bound, and waits
//! for slow ones for ever.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::http::{self, Answer, Request};
use crate::failure::Result;

/// Connections at a time.
pub const CONNECTIONS: usize = 16;

/// How long a request may take to come in, and an answer to go out.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a read or write blocks at most.
const STEP: Duration = Duration::from_secs(1);

/// Bytes behind a request that are read, and dropped.
const REST_MAX: u64 = 64 << 10;

/// What connections ask for, and where the answer goes.
type Task = (Request, SyncSender<Answer>);

/// Answers requests that come in on `listener` with what `answer` says, for ever.
///
/// # Errors
///
/// The thread that accepts connections could not be started, or has ended.
pub fn serve(listener: TcpListener, mut answer: impl FnMut(&Request) -> Answer) -> Result {
    let (sender, tasks): (SyncSender<Task>, Receiver<Task>) = mpsc::sync_channel(CONNECTIONS);
    thread::Builder::new()
        .name("accept".into())
        .spawn(move || accept(&listener, &sender))?;
    for (request, reply) in tasks {
        // Who asked may be gone.
        let _ = reply.send(answer(&request));
    }
    Ok(())
}

/// Accepts connections, and has each answered by a thread of its own.
fn accept(listener: &TcpListener, sender: &SyncSender<Task>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Too many files are open, say; it will pass.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            refuse(stream);
            continue;
        }
        let (sender, count) = (sender.clone(), Arc::clone(&open));
        let started = thread::Builder::new()
            .name("connection".into())
            .spawn(move || {
                let _ = converse(stream, &sender, PATIENCE);
                count.fetch_sub(1, Ordering::Relaxed);
            });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Sends somebody away without reading what they want.
fn refuse(mut stream: TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = Answer::text(503, "too many connections").write(&mut stream, false);
}

/// A stream until a time has come, however many reads and writes that takes.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    /// What is left of the time.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`]: nothing.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.checked_duration_since(Instant::now());
        let left = left.filter(|left| !left.is_zero());
        left.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a request, has it answered, writes the answer; each for `patience` at most.
fn converse(
    mut stream: TcpStream,
    sender: &SyncSender<Task>,
    patience: Duration,
) -> io::Result<()> {
    stream.set_read_timeout(Some(STEP.min(patience)))?;
    let (answer, head) = match http::read(&mut stream, patience) {
        Ok(request) => {
            let (reply, result) = mpsc::sync_channel(1);
            let head = request.head;
            let sent = sender.send((request, reply)).ok();
            let answer = sent.and_then(|()| result.recv().ok());
            (
                answer.unwrap_or_else(|| Answer::text(503, "the exporter is ending")),
                head,
            )
        }
        Err(Some(answer)) => (answer, false),
        Err(None) => return Ok(()),
    };
    let until = || Until {
        stream: &stream,
        end: Instant::now() + patience,
    };
    answer.write(&mut until(), head)?;
    stream.shutdown(Shutdown::Write)?;
    // What is still to be read, such as a body, would have the kernel take the answer back.
    let _ = io::copy(&mut until().take(REST_MAX), &mut io::sink());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a conversation takes with somebody who does `peer` after the request, step by step.
    ///
    /// # Panics
    ///
    /// It goes on after a thousand steps of 20 ms or more.
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
            let _ = converse(stream, &sender, Duration::from_millis(300));
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
