// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adaptive timeouts between a client and a server over loopback UDP: the client's timeout follows
//! the load of the server, early replies extend it, and a failed server is detected quickly.
//!
//! ```text
//! cargo run -p nrs-client --example timeouts
//! ```
//!
//! The server serves one request at a time. It measures service times and sends early replies
//! itself; for a server that uses `/dev/nrs`, the module determines when and with which timeout.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use nrs_client::timeouts::{estimator::Estimator, EstimateRule, Portal};

/// Small values, so that the example ends soon.
const RULE: EstimateRule = EstimateRule {
    min_ms: 100,
    max_ms: 10_000,
    history_ms: 2_000,
    initial_ms: 200,
    deviations: None,
    factor: 125,
    increment_ms: 100,
};

/// Time before a deadline at which an early reply is sent, and extension that it requests, ms.
const MARGIN: u64 = 60;
const EXTRA: u64 = 300;

/// Service time of a request, ms.
const DEVICE: u64 = 30;

/// Message of four numbers. To the server: the request, and its stated timeout. To the client: the
/// request, `REPLY` or `EARLY`, the service time or the timeout, and the estimate of the server.
type Message = [u64; 4];
const REPLY: u64 = 0;
const EARLY: u64 = 1;

/// Request that ends the server.
const STOP: u64 = u64::MAX;

fn send(socket: &UdpSocket, to: SocketAddr, message: Message) -> io::Result<()> {
    let bytes: Vec<u8> = message.iter().flat_map(|n| n.to_le_bytes()).collect();
    socket.send_to(&bytes, to).map(drop)
}

/// Returns a message received within `wait` ms, if any, and its sender.
fn receive(socket: &UdpSocket, wait: u64) -> io::Result<Option<(Message, SocketAddr)>> {
    socket.set_read_timeout(Some(Duration::from_millis(wait.max(1))))?;
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

/// A request at the server.
struct Queued {
    client: SocketAddr,
    number: u64,
    arrived: u64,
    deadline: u64,
}

/// Serves requests in FIFO order until it receives `STOP`.
fn serve(socket: &UdpSocket) -> io::Result<()> {
    let start = Instant::now();
    let mut estimator = Estimator::new();
    let mut queue: VecDeque<Queued> = VecDeque::new();
    let mut done_at = 0;
    loop {
        let message = receive(socket, 2)?;
        let now = start.elapsed().as_millis() as u64;
        let estimate = estimator.estimate(now, &RULE);
        if let Some(([number, stated, ..], client)) = message {
            if number == STOP {
                return Ok(());
            }
            let mut timeout = stated;
            if stated < estimate.into() {
                timeout = RULE.timeout(estimate).into();
                send(socket, client, [number, EARLY, timeout, estimate.into()])?;
            }
            if queue.is_empty() {
                done_at = now + DEVICE;
            }
            queue.push_back(Queued {
                client,
                number,
                arrived: now,
                deadline: now + timeout,
            });
        }
        for request in &mut queue {
            if (request.deadline.saturating_sub(MARGIN)..request.deadline).contains(&now) {
                request.deadline = now + EXTRA;
                let timeout = request.deadline - request.arrived;
                let early = [request.number, EARLY, timeout, estimate.into()];
                send(socket, request.client, early)?;
            }
        }
        let served = if now >= done_at {
            queue.pop_front()
        } else {
            None
        };
        if let Some(request) = served {
            done_at = now + DEVICE;
            let service = now - request.arrived;
            estimator.measure(service as u32, now, &RULE);
            let estimate = estimator.estimate(now, &RULE).into();
            send(
                socket,
                request.client,
                [request.number, REPLY, service, estimate],
            )?;
        }
    }
}

/// A client with one request at a time.
struct OneAtATime {
    socket: UdpSocket,
    server: SocketAddr,
    start: Instant,
    portal: Portal,
    number: u64,
    early_replies: u32,
    false_timeouts: u32,
}

impl OneAtATime {
    fn new(server: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::bind("127.0.0.1:0")?,
            server,
            start: Instant::now(),
            portal: Portal::new(RULE),
            number: 0,
            early_replies: 0,
            false_timeouts: 0,
        })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Sends a request and waits for its reply; returns true if the reply was in time, and the
    /// waiting time, ms.
    fn ask(&mut self) -> io::Result<(bool, u64)> {
        self.number += 1;
        let sent = self.now();
        let stated = self.portal.stated(sent).into();
        let mut deadline = sent + u64::from(self.portal.timeout(sent));
        send(&self.socket, self.server, [self.number, stated, 0, 0])?;
        loop {
            let wait = deadline.saturating_sub(self.now());
            if wait == 0 {
                return Ok((false, self.now() - sent));
            }
            let message = receive(&self.socket, wait)?;
            let now = self.now();
            match message {
                Some(([number, EARLY, timeout, _], _)) if number == self.number => {
                    self.early_replies += 1;
                    deadline = self.portal.early(now, sent, deadline, timeout as u32);
                }
                Some(([number, REPLY, service, estimate], _)) if number == self.number => {
                    let took = now - sent;
                    let (service, estimate) = (service as u32, estimate as u32);
                    self.portal.replied(now, took as u32, service, estimate);
                    return Ok((true, took));
                }
                _ => {}
            }
        }
    }

    /// Sends `requests` requests, one after the other; returns the longest waiting time, ms.
    fn load(&mut self, requests: u32) -> io::Result<u64> {
        let mut longest = 0;
        for _ in 0..requests {
            let (replied, took) = self.ask()?;
            self.false_timeouts += u32::from(!replied);
            longest = longest.max(took);
        }
        Ok(longest)
    }
}

fn main() -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let server = socket.local_addr()?;
    let server_thread = thread::spawn(move || serve(&socket));
    let mut clients = (0..12)
        .map(|_| OneAtATime::new(server))
        .collect::<io::Result<Vec<_>>>()?;
    println!("clients  longest reply  early replies  false timeouts  timeout  latency (worst)");
    for (active, requests) in [(1, 20), (12, 8), (1, 10), (1, 80)] {
        let longest = thread::scope(|scope| {
            let active = clients.iter_mut().take(active);
            let threads: Vec<_> = active
                .map(|client| scope.spawn(move || client.load(requests)))
                .collect();
            let times = threads.into_iter().map(|one| one.join().expect("no panic"));
            times.collect::<io::Result<Vec<_>>>()
        })?;
        let early: u32 = clients.iter().map(|client| client.early_replies).sum();
        let wrong: u32 = clients.iter().map(|client| client.false_timeouts).sum();
        let first = &mut clients[0];
        let (now, worst) = (first.now(), longest.into_iter().max().unwrap_or(0));
        let network = first.portal.network(now);
        println!(
            "{active:>7} {worst:>11} ms {early:>14} {wrong:>15} {:>5} ms {:>5} ms ({} ms)",
            first.portal.timeout(now),
            network.current,
            network.worst.map_or(0, |(worst, _)| worst),
        );
    }
    let first = &mut clients[0];
    send(&first.socket, server, [STOP, 0, 0, 0])?;
    server_thread.join().expect("no panic")?;
    let (replied, waited) = first.ask()?;
    assert!(!replied);
    println!("the server died: noticed after {waited} ms");
    Ok(())
}
