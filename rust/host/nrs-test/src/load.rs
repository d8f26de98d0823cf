// SPDX-License-Identifier: GPL-2.0-only

//! Simulates a server with many clients on `/dev/nrs` and reports the service of each client as
//! JSON.
//!
//! One thread submits the requests of the clients, takes released requests, holds each for its
//! service time, and completes it. Service time passes without CPU use, so shares and rates do not
//! depend on the CPU.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nrs_client::{wire::BATCH, Client, Completion, Event, Options, Released, Request, Stats};
use serde_json::{json, Map, Value};

use crate::{check::each, latency::Latency, Outcome};

mod player;
mod timeouts;

use player::{Pace, Player, Spec};
use timeouts::Timeouts;

/// Simulates a server with many clients on /dev/nrs; prints the service of each client as JSON.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Name of the service; a missing service is created.
    #[arg(long, default_value = "load")]
    service: String,
    /// Name of this program in the list of clients of the service.
    #[arg(long, default_value = "")]
    name: String,
    /// Client, as NAME=VALUE pairs separated by commas. Identity: name nid jobid uid gid projid
    /// nodemap nodes (number of nodes of the job). Request: opcode size charge object stream
    /// target; offset=N, seq or random; priority=high or regular. Load: depth=N (closed loop with N
    /// requests in flight, default 1) or rate=R (open loop, requests per second); requests=N
    /// (maximum number); start=SECONDS (delay). count=N is the number of such clients. % in name,
    /// jobid, object and stream is replaced by the index, which is also added to the address of
    /// nid. @ in jobid is replaced by the number of the request.
    #[arg(long = "client", value_name = "SPEC", required = true)]
    clients: Vec<Spec>,
    /// Duration of the measurement, seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Duration of the warm-up before the measurement, seconds.
    #[arg(long, default_value_t = 0.0)]
    warmup: f64,
    /// Service time of a request, microseconds.
    #[arg(long, default_value_t = 0)]
    busy: u64,
    /// Maximum number of requests served in parallel; further released requests keep their slots
    /// and wait for a server.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    servers: usize,
    /// Queue every request, even if a slot is free.
    #[arg(long)]
    queue_all: bool,
    /// Lease: maximum time for which a released request may keep its slot, ms; 0: unlimited.
    #[arg(long, default_value_t = 0)]
    lease: u64,
    /// Never complete one of this many requests; its slot is freed when the lease expires. 0:
    /// complete all.
    #[arg(long, default_value_t = 0)]
    lose: u64,
    /// Limit the requests of each client to the credits that the module reports; initially 1.
    #[arg(long)]
    credits: bool,
    /// Give each client adaptive timeouts, and report early replies, false timeouts and lost
    /// requests. SECONDS is the minimum and initial estimate and the increment of a timeout;
    /// default: 5.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u32).range(1..=600),
    )]
    timeouts: Option<u32>,
    /// Percentage of the requests that are promoted to high priority after submission.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=100),
    )]
    promote: u64,
    /// Wait at the end until all requests are completed.
    #[arg(long)]
    drain: bool,
    /// Write each release to this file: time since the start (us), name of the client, queueing
    /// time (us).
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write each release to this file: time since the start (us), name of the client, object,
    /// offset.
    #[arg(long, value_name = "FILE")]
    order_log: Option<PathBuf>,
    /// Path of the device.
    #[arg(long, default_value = nrs_client::DEVICE)]
    device: PathBuf,
}

/// Results of a player.
#[derive(Default)]
struct Seen {
    submitted: u64,
    served: u64,
    bytes: u64,
    latency: Latency,
    withheld: Latency,
}

/// Submitted request.
#[derive(Clone, Copy)]
struct LoadRequest {
    player: usize,
    submitted: Instant,
    offset: u64,
}

struct Load {
    args: Args,
    client: Client,
    players: Vec<Player>,
    /// Adaptive timeouts; `None` if the clients wait for ever.
    timeouts: Option<Timeouts>,
    seen: Vec<Seen>,
    /// Requests that are not submitted yet.
    pending: VecDeque<Request>,
    /// Cookies to be promoted to high priority, and the sum of percentages since the last
    /// promotion.
    promotions: Vec<u64>,
    promoting: u64,
    /// Submitted requests by cookie, and the free cookies.
    ways: Vec<LoadRequest>,
    free: Vec<u64>,
    /// Released requests that wait for a server.
    ready: VecDeque<Released>,
    /// Requests being served, by end of service.
    serving: BinaryHeap<Reverse<(Instant, u64)>>,
    released: u64,
    lost: u64,
    log: Option<BufWriter<File>>,
    order_log: Option<BufWriter<File>>,
    start: Instant,
}

impl Load {
    fn new(args: Args) -> Outcome<Self> {
        let client = Options::new(args.service.as_str())
            .name(args.name.as_str())
            .device(&args.device)
            .nonblocking(true)
            .queue_all(args.queue_all)
            .lease(Duration::from_millis(args.lease))
            .open()
            .with_context(|| args.device.display().to_string())?;
        let start = Instant::now();
        let mut players: Vec<Player> = args.clients.iter().flat_map(Spec::players).collect();
        for player in &mut players {
            player.begin(start, args.credits);
        }
        let create = |path: &Option<PathBuf>| match path {
            Some(path) => File::create(path).map(BufWriter::new).map(Some),
            None => Ok(None),
        };
        let (log, order_log) = (create(&args.log)?, create(&args.order_log)?);
        Ok(Self {
            timeouts: args.timeouts.map(|s| Timeouts::new(players.len(), s)),
            seen: players.iter().map(|_| Seen::default()).collect(),
            args,
            client,
            players,
            pending: VecDeque::new(),
            promotions: Vec::new(),
            promoting: 0,
            ways: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            serving: BinaryHeap::new(),
            released: 0,
            lost: 0,
            log,
            order_log,
            start,
        })
    }

    /// Returns `now` in ms since the start.
    fn ms(&self, now: Instant) -> u64 {
        now.duration_since(self.start).as_millis() as u64
    }

    /// Creates the requests that are due.
    fn want(&mut self, now: Instant) {
        let ms = self.ms(now);
        for (index, player) in self.players.iter_mut().enumerate() {
            // If the device blocks, an open loop drops requests, so that memory is bounded.
            while self.pending.len() < 4 * BATCH && player.due(now) {
                let cookie = self.free.pop().unwrap_or(self.ways.len() as u64);
                let (mut request, offset) = player.request(cookie);
                if let Some(timeouts) = &mut self.timeouts {
                    request = request.timeout(timeouts.sent(ms, cookie, index));
                }
                let way = LoadRequest {
                    player: index,
                    submitted: now,
                    offset,
                };
                match self.ways.get_mut(cookie as usize) {
                    Some(place) => *place = way,
                    None => self.ways.push(way),
                }
                self.pending.push_back(request);
                self.seen[index].submitted += 1;
            }
        }
    }

    /// Submits and promotes pending requests, until the device would block.
    fn submit(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            self.pending.make_contiguous();
            match self.client.submit(self.pending.as_slices().0) {
                Ok(taken) => {
                    for request in self.pending.drain(..taken) {
                        self.promoting += self.args.promote;
                        if self.promoting >= 100 {
                            self.promoting -= 100;
                            self.promotions.push(request.cookie());
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        each(&self.promotions, |rest| self.client.promote(rest))?;
        self.promotions.clear();
        Ok(())
    }

    /// Takes released requests for the idle servers; with timeouts, all events, because early
    /// replies are urgent. Returns false if there are no more.
    fn take(&mut self) -> io::Result<bool> {
        let idle = self.args.servers.saturating_sub(self.serving.len());
        let max = self.timeouts.as_ref().map_or(idle, |_| BATCH);
        if max == 0 {
            return Ok(false);
        }
        let events = match self.client.events(max) {
            Ok(events) => events,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let now = self.ms(Instant::now());
        for event in events {
            if let Some(timeouts) = &mut self.timeouts {
                timeouts.event(now, &event);
            }
            if let Event::Released(released) = event {
                self.ready.push_back(released);
            }
        }
        Ok(true)
    }

    /// Takes events, and serves released requests by the idle servers.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let more = self.take()?;
            let now = Instant::now();
            let counts = now.duration_since(self.start).as_secs_f64() >= self.args.warmup;
            while self.serving.len() < self.args.servers {
                let Some(released) = self.ready.pop_front() else {
                    break;
                };
                let way = self.ways[released.cookie as usize];
                if counts {
                    let seen = &mut self.seen[way.player];
                    seen.latency.add(now.duration_since(way.submitted));
                    seen.withheld.add(Duration::from_nanos(released.wait_ns));
                }
                let player = &mut self.players[way.player];
                let us = now.duration_since(self.start).as_micros();
                if let Some(log) = &mut self.log {
                    writeln!(log, "{us} {} {}", player.name, released.wait_ns / 1000)?;
                }
                if let Some(log) = &mut self.order_log {
                    let (name, object) = (&player.name, player.object);
                    writeln!(log, "{us} {name} {object} {}", way.offset)?;
                }
                if self.args.credits {
                    player.set_credits(released.credits.max(1).into());
                }
                self.released += 1;
                if self.args.lose != 0 && self.released % self.args.lose == 0 {
                    self.lost += 1;
                    // With timeouts, the client does not know before the deadline.
                    if self.timeouts.is_none() {
                        player.ended();
                    }
                    continue;
                }
                let end = now + Duration::from_micros(self.args.busy);
                self.serving.push(Reverse((end, released.cookie)));
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Completes requests whose service has ended, then gives up those whose deadline has passed.
    fn complete(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let ms = self.ms(now);
        let counts = now.duration_since(self.start).as_secs_f64() >= self.args.warmup;
        let mut done = Vec::new();
        while done.len() < BATCH {
            match self.serving.peek() {
                Some(Reverse((end, _))) if *end <= now => {}
                _ => break,
            }
            let Some(Reverse((_, cookie))) = self.serving.pop() else {
                break;
            };
            let player = self.ways[cookie as usize].player;
            let bytes = self.players[player].bytes();
            if counts {
                self.seen[player].served += 1;
                self.seen[player].bytes += bytes;
            }
            let timeouts = self.timeouts.as_mut();
            if timeouts.is_none_or(|timeouts| timeouts.replied(ms, cookie)) {
                self.players[player].ended();
            }
            self.free.push(cookie);
            done.push(Completion::new(cookie, 0, bytes));
        }
        if let Some(timeouts) = &mut self.timeouts {
            for player in timeouts.expire(ms) {
                self.players[player].ended();
            }
        }
        each(&done, |rest| self.client.complete(rest))
    }

    /// Waits until the next event is due.
    fn pause(&self, until: Instant) -> io::Result<()> {
        let ends = self.serving.peek().map(|Reverse((end, _))| *end);
        let dues = self.players.iter().filter_map(Player::next);
        let deadline = self.timeouts.as_ref().and_then(Timeouts::next);
        let deadline = deadline.map(|ms| self.start + Duration::from_millis(ms));
        let next = dues.chain(ends).chain(deadline).fold(until, Instant::min);
        let timeout = next.saturating_duration_since(Instant::now());
        if self.timeouts.is_none() && self.serving.len() >= self.args.servers {
            std::thread::sleep(timeout);
            return Ok(());
        }
        let result = self.client.wait(!self.pending.is_empty(), Some(timeout));
        match result {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs the simulation; returns the duration of the measurement, seconds.
    fn run(&mut self) -> io::Result<f64> {
        let until = self.start + Duration::from_secs_f64(self.args.seconds + self.args.warmup);
        loop {
            let now = Instant::now();
            if now >= until {
                break;
            }
            self.serve()?;
            self.complete()?;
            // Completed requests make room for new ones.
            self.want(now);
            self.submit()?;
            if self.players.iter().all(Player::is_over) && self.pending.is_empty() {
                break;
            }
            self.pause(until)?;
        }
        let counted = self.start.elapsed().as_secs_f64() - self.args.warmup;
        if self.args.drain {
            loop {
                self.submit()?;
                self.serve()?;
                self.complete()?;
                let stats = self.client.stats()?;
                let left = stats.queued + stats.ready + stats.running;
                let noticed = self.players.iter().all(Player::is_idle);
                if left <= self.lost && self.pending.is_empty() && noticed {
                    break;
                }
                self.pause(Instant::now() + Duration::from_millis(100))?;
            }
        }
        Ok(counted)
    }

    /// Returns the results of all players.
    fn report(&mut self, seconds: f64) -> io::Result<Value> {
        let now = self.ms(Instant::now());
        let served: u64 = self.seen.iter().map(|seen| seen.served).sum();
        let bytes: u64 = self.seen.iter().map(|seen| seen.bytes).sum();
        let part = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let seen = self.players.iter().zip(&self.seen).enumerate();
        let clients: Vec<Value> = seen
            .map(|(index, (player, seen))| {
                let mut report = json!({
                    "name": player.name,
                    "loop": match player.pace {
                        Pace::Closed { .. } => "closed",
                        Pace::Open { .. } => "open",
                    },
                    "submitted": seen.submitted,
                    "served": seen.served,
                    "bytes": seen.bytes,
                    "rate": seen.served as f64 / seconds,
                    "share": part(seen.served, served),
                    "byte_share": part(seen.bytes, bytes),
                    "latency_us": seen.latency.report(),
                    "withheld_us": seen.withheld.report(),
                });
                if let Some(timeouts) = &mut self.timeouts {
                    report["timeouts"] = timeouts.report(now, index);
                }
                report
            })
            .collect();
        let bytes_of_stats = self.client.stats()?.encode();
        let fields = Stats::FIELDS.iter().filter(|(.., size)| *size <= 8);
        let device: Map<String, Value> = fields
            .map(|(name, offset, size)| {
                let mut value = [0; 8];
                value[..*size].copy_from_slice(&bytes_of_stats[*offset..offset + size]);
                ((*name).to_owned(), u64::from_le_bytes(value).into())
            })
            .collect();
        Ok(json!({
            "service": self.args.service,
            "seconds": seconds,
            "served": served,
            "bytes": bytes,
            "rate": served as f64 / seconds,
            "clients": clients,
            "device": device,
        }))
    }
}

/// Simulates the clients, and prints the report.
pub fn run(args: Args) -> Outcome {
    let mut load = Load::new(args)?;
    let seconds = load.run()?;
    println!("{:#}", load.report(seconds)?);
    Ok(ExitCode::SUCCESS)
}
