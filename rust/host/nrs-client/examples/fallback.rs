// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server that also runs where `/dev/nrs` does not exist: requests are then served in FIFO order.
//!
//! Each line of standard input is a request of the user whose id starts the line. Four threads
//! print the lines. The first line of output names the scheduler.
//!
//! ```text
//! printf '%s\n' '1000 a' '1001 b' | cargo run -p nrs-client --example fallback
//! ```

use std::{
    collections::VecDeque,
    io::{self, BufRead, ErrorKind},
    process,
    sync::{Condvar, Mutex},
    thread,
};

use nrs_client::{wire::ID_ABSENT, Client, Completion, Options, Request};

/// Queue of the requests that are not released.
enum Queue {
    /// Scheduled by a service of nrs.
    Nrs(Client),
    /// Released in the order of submission; contains cookies.
    Fifo(Mutex<VecDeque<u64>>, Condvar),
}

impl Queue {
    /// Attaches to the service; a missing device is not an error.
    fn open(service: &str) -> io::Result<Self> {
        match Options::new(service).open() {
            Ok(client) => Ok(Self::Nrs(client)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self::Fifo(Mutex::default(), Condvar::new()))
            }
            Err(error) => Err(error),
        }
    }

    /// Submits a request.
    fn submit(&self, request: Request) -> io::Result<()> {
        match self {
            Self::Nrs(client) => client.submit(&[request]).map(drop),
            Self::Fifo(queue, changed) => {
                queue.lock().unwrap().push_back(request.cookie());
                changed.notify_one();
                Ok(())
            }
        }
    }

    /// Waits for a released request; returns its cookie.
    fn released(&self) -> io::Result<u64> {
        match self {
            Self::Nrs(client) => loop {
                if let [released] = client.released(1)?[..] {
                    return Ok(released.cookie);
                }
            },
            Self::Fifo(queue, changed) => {
                let queue = queue.lock().unwrap();
                let mut queue = changed.wait_while(queue, |queue| queue.is_empty()).unwrap();
                Ok(queue.pop_front().expect("not empty"))
            }
        }
    }

    /// Completes a released request.
    fn complete(&self, cookie: u64, bytes: u64) -> io::Result<()> {
        match self {
            Self::Nrs(client) => client
                .complete(&[Completion::new(cookie, 0, bytes)])
                .map(drop),
            Self::Fifo(..) => Ok(()),
        }
    }
}

/// Prints lines as their requests are released.
fn serve(queue: &Queue, lines: &[String], left: &Mutex<usize>) -> io::Result<()> {
    loop {
        let cookie = queue.released()?;
        let line = &lines[cookie as usize];
        println!("{line}");
        queue.complete(cookie, line.len() as u64)?;
        let mut left = left.lock().unwrap();
        *left -= 1;
        if *left == 0 {
            process::exit(0);
        }
    }
}

fn main() -> io::Result<()> {
    let queue = Queue::open("lines")?;
    println!(
        "{}",
        if matches!(queue, Queue::Nrs(_)) {
            "nrs"
        } else {
            "fifo"
        }
    );
    let lines = io::stdin().lock().lines().collect::<io::Result<Vec<_>>>()?;
    let left = Mutex::new(lines.len());
    thread::scope(|scope| {
        for _ in 0..4.min(lines.len()) {
            scope.spawn(|| {
                let result = serve(&queue, &lines, &left);
                eprintln!("fallback: {result:?}");
                process::exit(1);
            });
        }
        for (cookie, line) in (0..).zip(&lines) {
            let uid = line.split(' ').next().and_then(|word| word.parse().ok());
            let request = Request::new(cookie).uid(uid.unwrap_or(ID_ABSENT));
            queue.submit(request.length(line.len() as u64))?;
        }
        Ok(())
    })
}
