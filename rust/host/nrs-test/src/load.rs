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
use nrs_client::{wire::BATCH, Client, Completion, Options, Request, Stats};
use serde_json::{json, Map, Value};

use crate::{check::each, latency::Latency, Outcome};

mod player;

use player::{Pace, Player, Spec};

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
            seen: players.iter().map(|_| Seen::default()).collect(),
            args,
            client,
            players,
            pending: VecDeque::new(),
            promotions: Vec::new(),
            promoting: 0,
            ways: Vec::new(),
            free: Vec::new(),
            serving: BinaryHeap::new(),
            released: 0,
            lost: 0,
            log,
            order_log,
            start,
        })
    }

    /// Creates the requests that are due.
    fn want(&mut self, now: Instant) {
        for (index, player) in self.players.iter_mut().enumerate() {
            // If the device blocks, an open loop drops requests, so that memory is bounded.
            while self.pending.len() < 4 * BATCH && player.due(now) {
                let cookie = self.free.pop().unwrap_or(self.ways.len() as u64);
                let (request, offset) = player.request(cookie);
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

    /// Takes released requests for the idle servers.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let idle = self.args.servers.saturating_sub(self.serving.len());
            if idle == 0 {
                return Ok(());
            }
            let all = match self.client.released(idle) {
                Ok(all) => all,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            let counts = now.duration_since(self.start).as_secs_f64() >= self.args.warmup;
            for released in all {
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
                    player.told(released.credits.max(1).into());
                }
                self.released += 1;
                if self.args.lose != 0 && self.released % self.args.lose == 0 {
                    self.lost += 1;
                    player.ended();
                    continue;
                }
                let end = now + Duration::from_micros(self.args.busy);
                self.serving.push(Reverse((end, released.cookie)));
            }
        }
    }

    /// Completes requests whose service has ended.
    fn complete(&mut self) -> io::Result<()> {
        let now = Instant::now();
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
            self.players[player].ended();
            self.free.push(cookie);
            done.push(Completion::new(cookie, 0, bytes));
        }
        each(&done, |rest| self.client.complete(rest))
    }

    /// Waits until the next event is due.
    fn pause(&self, until: Instant) -> io::Result<()> {
        let ends = self.serving.peek().map(|Reverse((end, _))| *end);
        let dues = self.players.iter().filter_map(Player::next);
        let next = dues.chain(ends).fold(until, Instant::min);
        let timeout = next.saturating_duration_since(Instant::now());
        if self.serving.len() >= self.args.servers {
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
                if left <= self.lost && self.pending.is_empty() {
                    break;
                }
                self.pause(Instant::now() + Duration::from_millis(100))?;
            }
        }
        Ok(counted)
    }

    /// Returns the results of all players.
    fn report(&self, seconds: f64) -> io::Result<Value> {
        let seen = || self.players.iter().zip(&self.seen);
        let served: u64 = self.seen.iter().map(|seen| seen.served).sum();
        let bytes: u64 = self.seen.iter().map(|seen| seen.bytes).sum();
        let part = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let clients: Vec<Value> = seen()
            .map(|(player, seen)| {
                json!({
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
                })
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
