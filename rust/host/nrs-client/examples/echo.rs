// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server whose requests come from standard input and are scheduled by nrs: each line is a request of
//! the user it starts with, as in `1000 hello`, and is echoed when its turn has come.
//!
//! ```text
//! seq 20 | sed 's/^/1000 line /' | cargo run --example echo -- files
//! cat /sys/kernel/debug/nrs/files/clients        # meanwhile
//! ```
//!
//! One thread receives; a few serve. That is how servers use nrs: who receives a request only submits it,
//! and the threads that used to take it from a queue take what the policy releases.

use std::{
    collections::HashMap,
    io::{self, BufRead},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use nrs_client::{opcode, Client, Completion, Options, Request};

/// Lines that wait for their turn, by cookie.
type Lines = Mutex<HashMap<u64, String>>;

fn serve(client: &Client, lines: &Lines) -> io::Result<()> {
    loop {
        for released in client.released(1)? {
            let line = lines
                .lock()
                .expect("no thread panics")
                .remove(&released.cookie);
            let line = line.unwrap_or_default();
            // What a server would do with its disk.
            thread::sleep(Duration::from_millis(20));
            println!("{:>6} us  {line}", released.wait_ns / 1000);
            client.complete(&[Completion::new(released.cookie, 0, line.len() as u64)])?;
        }
    }
}

fn main() -> io::Result<()> {
    let service = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "echo".to_string());
    let client = Options::new(service)
        .name("echo")
        // A thread that dies with a request in hand keeps its slot for five seconds, not for ever.
        .lease(Duration::from_secs(5))
        .open()?;
    let (client, lines) = (Arc::new(client), Arc::new(Lines::default()));
    for _ in 0..4 {
        let (client, lines) = (client.clone(), lines.clone());
        thread::spawn(move || serve(&client, &lines));
    }
    for (cookie, line) in (0..).zip(io::stdin().lock().lines()) {
        let line = line?;
        let uid = line.split(' ').next().and_then(|word| word.parse().ok());
        let request = Request::new(cookie)
            .opcode(opcode::OST_WRITE)
            .uid(uid.unwrap_or(nrs_client::wire::ID_ABSENT))
            .length(line.len() as u64);
        // Entered first: the request may be served before `submit` returns.
        lines.lock().expect("no thread panics").insert(cookie, line);
        client.submit(&[request])?;
    }
    while !lines.lock().expect("no thread panics").is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    while client.stats()?.running != 0 {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
