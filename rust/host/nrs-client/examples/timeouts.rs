// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adaptive timeouts between two programs over loopback UDP: the clients' timeouts follow the load
//! of the server, early replies extend them, and a server that dies is noticed soon.
//!
//! ```text
//! timeouts server 100       # 100 ms per request, one at a time
//! timeouts clients 24 10    # 24 clients for 10 s, each with one request at a time
//! ```
//!
//! `/dev/nrs` measures the server, decides when a client must hear from it, and with which timeout.
//! The clients print one line when they end:
//!
//! ```text
//! replies: 95, longest: 2403 ms, early replies: 61, false timeouts: 0, timeout: 4003 ms
//! ```
//!
//! or, if a request has no reply until its deadline, nor in the time after it:
//!
//! ```text
//! lost: noticed after 2251 ms, timeout: 2251 ms
//! ```

use std::{
    collections::HashMap,
    env,
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    process,
    sync::{mpsc, Mutex},
    thread,
    time::{Duration, Instant},
};

use nrs_client::{
    timeouts::{EstimateRule, Portal},
    Completion, Event, Options, Request,
};

const SERVER: &str = "127.0.0.1:7778";

/// Values of the clients; those of the service are its parameters `at_*`.
const RULE: EstimateRule = EstimateRule {
    min_ms: 1000,
    max_ms: 60_000,
    history_ms: 8000,
    initial_ms: 1000,
    deviations: None,
    factor: 125,
    increment_ms: 1000,
};

/// Message of four numbers. To the server: the request, and its stated timeout. To the client: the
/// request, `REPLY` or `EARLY`, the service time or the timeout, and the estimate of the server.
/// Times are ms.
type Message = [u64; 4];
const REPLY: u64 = 0;
const EARLY: u64 = 1;

fn send(socket: &UdpSocket, to: SocketAddr, message: Message) -> io::Result<()> {
    let bytes: Vec<u8> = message.iter().flat_map(|n| n.to_le_bytes()).collect();
    socket.send_to(&bytes, to).map(drop)
}

/// Returns the next message and its sender; `None` after `wait`.
fn receive(
    socket: &UdpSocket,
    wait: Option<Duration>,
) -> io::Result<Option<(Message, SocketAddr)>> {
    socket.set_read_timeout(wait.map(|wait| wait.max(Duration::from_millis(1))))?;
    let mut bytes = [0; 32];
    match socket.recv_from(&mut bytes) {
        Ok((_, from)) => {
            let mut message = Message::default();
            for (number, word) in message.iter_mut().zip(bytes.chunks_exact(8)) {
                *number = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            }
            Ok(Some((message, from)))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// A request at the server, by its cookie.
struct Received {
    client: SocketAddr,
    number: u64,
    arrived: Instant,
}

/// Serves one request at a time, each for `service`.
fn serve(service: Duration) -> io::Result<()> {
    let client = Options::new("timeouts").open()?;
    let socket = UdpSocket::bind(SERVER)?;
    let requests: Mutex<HashMap<u64, Received>> = Mutex::default();
    let (released, all) = mpsc::channel();
    thread::scope(|scope| {
        // This thread serves nothing, so early replies are passed on at once.
        scope.spawn(|| {
            let pass_on = || -> io::Result<()> {
                loop {
                    for event in client.events(16)? {
                        match event {
                            Event::Released(one) => released.send(one).expect("a server"),
                            Event::Early(early) => {
                                let requests = requests.lock().unwrap();
                                // Without the request, its reply is on the way.
                                if let Some(to) = requests.get(&early.cookie) {
                                    let (timeout, estimate) = (early.timeout(), early.estimate());
                                    let message = [to.number, EARLY, ms(timeout), ms(estimate)];
                                    send(&socket, to.client, message)?;
                                }
                            }
                            Event::Recovered(_) => {}
                        }
                    }
                }
            };
            eprintln!("events: {:?}", pass_on());
            process::exit(1);
        });
        scope.spawn(|| {
            let reply = || -> io::Result<()> {
                for one in all {
                    thread::sleep(service);
                    let of = requests.lock().unwrap().remove(&one.cookie);
                    let of = of.expect("submitted");
                    let message = [
                        of.number,
                        REPLY,
                        ms(of.arrived.elapsed()),
                        ms(one.estimate()),
                    ];
                    send(&socket, of.client, message)?;
                    client.complete(&[Completion::new(one.cookie, 0, 0)])?;
                }
                Ok(())
            };
            eprintln!("server: {:?}", reply());
            process::exit(1);
        });
        for cookie in 0.. {
            let Some(([number, stated, ..], from)) = receive(&socket, None)? else {
                continue;
            };
            let received = Received {
                client: from,
                number,
                arrived: Instant::now(),
            };
            requests.lock().unwrap().insert(cookie, received);
            let stated = Duration::from_millis(stated);
            client.submit(&[Request::new(cookie).timeout(stated)])?;
        }
        Ok(())
    })
}

/// A client with one request at a time.
struct OneAtATime {
    socket: UdpSocket,
    server: SocketAddr,
    start: Instant,
    portal: Portal,
    replies: u64,
    longest: u64,
    early_replies: u32,
    false_timeouts: u32,
}

impl OneAtATime {
    fn new() -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::bind("127.0.0.1:0")?,
            server: SERVER.parse().expect("an address"),
            start: Instant::now(),
            portal: Portal::new(RULE),
            replies: 0,
            longest: 0,
            early_replies: 0,
            false_timeouts: 0,
        })
    }

    fn now(&self) -> u64 {
        ms(self.start.elapsed())
    }

    /// Sends a request and waits for its reply. Returns the time when the server was taken for
    /// lost, and the timeout then, ms, if no reply came even in the time of one more timeout.
    fn ask(&mut self) -> io::Result<Option<(u64, u64)>> {
        let (number, sent) = (self.replies, self.now());
        let stated = self.portal.stated(sent).into();
        let mut deadline = sent + u64::from(self.portal.timeout(sent));
        let mut noticed = None;
        send(&self.socket, self.server, [number, stated, 0, 0])?;
        loop {
            let end = deadline + noticed.map_or(0, |(_, timeout)| timeout);
            let wait = end.saturating_sub(self.now());
            if wait == 0 {
                if noticed.is_some() {
                    return Ok(noticed);
                }
                noticed = Some((self.now() - sent, deadline - sent));
                continue;
            }
            let message = receive(&self.socket, Some(Duration::from_millis(wait)))?;
            let now = self.now();
            match message {
                Some(([of, EARLY, timeout, _], _)) if of == number => {
                    self.early_replies += 1;
                    deadline = self.portal.early(now, sent, deadline, timeout as u32);
                }
                Some(([of, REPLY, service, estimate], _)) if of == number => {
                    let took = now - sent;
                    let (service, estimate) = (service as u32, estimate as u32);
                    self.portal.replied(now, took as u32, service, estimate);
                    self.replies += 1;
                    self.longest = self.longest.max(took);
                    self.false_timeouts += u32::from(noticed.is_some());
                    return Ok(None);
                }
                _ => {}
            }
        }
    }

    /// Sends requests for `time`, one after the other, or until the server is lost, as `ask`.
    fn load(&mut self, time: Duration) -> io::Result<Option<(u64, u64)>> {
        while self.start.elapsed() < time {
            let lost = self.ask()?;
            if lost.is_some() {
                return Ok(lost);
            }
        }
        Ok(None)
    }
}

/// Runs `count` clients for `time` and prints the result.
fn ask(count: usize, time: Duration) -> io::Result<()> {
    let mut clients = (0..count)
        .map(|_| OneAtATime::new())
        .collect::<io::Result<Vec<_>>>()?;
    let lost = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || client.load(time)))
            .collect();
        let all = threads.into_iter().map(|one| one.join().expect("no panic"));
        all.collect::<io::Result<Vec<_>>>()
    })?;
    if let Some((noticed, timeout)) = lost.into_iter().flatten().max() {
        println!("lost: noticed after {noticed} ms, timeout: {timeout} ms");
        return Ok(());
    }
    let timeouts = clients.iter_mut().map(|client| {
        let now = client.now();
        client.portal.timeout(now)
    });
    let timeout = timeouts.max().unwrap_or(0);
    println!(
        "replies: {}, longest: {} ms, early replies: {}, false timeouts: {}, timeout: {timeout} ms",
        clients.iter().map(|client| client.replies).sum::<u64>(),
        clients
            .iter()
            .map(|client| client.longest)
            .max()
            .unwrap_or(0),
        clients
            .iter()
            .map(|client| client.early_replies)
            .sum::<u32>(),
        clients
            .iter()
            .map(|client| client.false_timeouts)
            .sum::<u32>(),
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    match (words.first().map(String::as_str), &numbers[..]) {
        (Some("server"), &[service]) => serve(Duration::from_millis(service)),
        (Some("clients"), &[count, seconds]) => ask(count as usize, Duration::from_secs(seconds)),
        _ => Err(io::Error::other(
            "usage: timeouts server MS | timeouts clients COUNT SECONDS",
        )),
    }
}
