// SPDX-License-Identifier: GPL-2.0-only

//! Pages over HTTP.
//!
//! Connections have a thread each, so many as [`CONNECTIONS`]; whoever comes beyond that is sent away at once. They
//! read the request and write the answer; the pages are made by the thread that called [`serve`], one after the
//! other, because only that one reaches the module. A connection that is slow is closed after [`PATIENCE`].
//!
//! The server is one of our own: that of `tiny_http` makes a thread for each connection, without a bound, and waits
//! for slow ones for ever.

use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

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
                let _ = converse(stream, &sender);
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

/// Reads a request, has it answered, writes the answer.
fn converse(mut stream: TcpStream, sender: &SyncSender<Task>) -> io::Result<()> {
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (answer, head) = match http::read(&mut stream, PATIENCE) {
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
    answer.write(&mut stream, head)?;
    stream.shutdown(Shutdown::Write)?;
    // What is still to be read, such as a body, would have the kernel take the answer back.
    let _ = io::copy(&mut stream.take(REST_MAX), &mut io::sink());
    Ok(())
}
