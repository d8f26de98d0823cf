// SPDX-License-Identifier: GPL-2.0-only

//! Plays a server with many clients on `/dev/nrs` and tells, as JSON, how each of them was served.
//!
//! One thread does everything in turn: it submits what its clients want, takes what is released, lets each
//! request take its time, and completes it. Time passes without being worked off, so shares and rates do
//! not depend on the CPU.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use nrs_client::{wire::BATCH, Client, Completion, Options, Request, Stats};
use serde_json::{json, Map, Value};

use crate::{latency::Latency, Outcome};

mod player;

use player::{Pace, Player, Spec};

/// Plays a server with many clients on /dev/nrs; prints how each was served, as JSON.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// The service; it is made if it is not there.
    #[arg(long, default_value = "load")]
    service: String,
    /// Name of this program among the clients of the service.
    #[arg(long, default_value = "")]
    name: String,
    /// A client, as NAME=VALUE pairs with commas: name nid jobid uid gid projid nodemap opcode size
    /// charge object stream target nodes (of the job); offset=N, seq or random; priority=high; depth=N (closed loop,
    /// requests at a time, default 1) or rate=R (open loop, requests per second); requests=N (no more than that);
    /// start=SECONDS (not before); count=N (that many clients, with % in name, jobid, object and stream replaced by
    /// a number and the address counted up). @ in jobid: number of the request.
    #[arg(long = "client", value_name = "SPEC", required = true)]
    clients: Vec<Spec>,
    /// How long to go on, seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// What is served in the first seconds does not count.
    #[arg(long, default_value_t = 0.0)]
    warmup: f64,
    /// How long serving a request takes, microseconds.
    #[arg(long, default_value_t = 0)]
    busy: u64,
    /// Requests that are served at a time, at most; the others wait for a server although they have a slot.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    servers: usize,
    /// Every request queues, even when nobody waits.
    #[arg(long)]
    queue_all: bool,
    /// How long a released request may keep its slot, ms; 0: for ever.
    #[arg(long, default_value_t = 0)]
    lease: u64,
    /// One request in so many is never completed; its slot comes back with the lease.
    #[arg(long, default_value_t = 0)]
    lose: u64,
    /// Clients have no more requests at a time than the module tells them; one until it does.
    #[arg(long)]
    credits: bool,
    /// So many percent of the requests are moved to high priority once they are submitted.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    promote: u64,
    /// At the end, wait until all requests are completed.
    #[arg(long)]
    drain: bool,
    /// Write each release to this file: microseconds since the start, name of the client, microseconds
    /// of waiting.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write each release to this file: microseconds since the start, name of the client, object, offset.
    #[arg(long, value_name = "FILE")]
    order_log: Option<PathBuf>,
    /// The device.
    #[arg(long, default_value = nrs_client::DEVICE)]
    device: PathBuf,
}

/// What became of a player's requests.
#[derive(Default)]
struct Seen {
    submitted: u64,
    served: u64,
    bytes: u64,
    latency: Latency,
    withheld: Latency,
}

/// A request on its way.
#[derive(Clone, Copy)]
struct Way {
    player: usize,
    submitted: Instant,
    offset: u64,
}

struct Load {
    args: Args,
    client: Client,
    players: Vec<Player>,
    seen: Vec<Seen>,
    /// Requests that wait for room.
    pending: VecDeque<Request>,
    /// Requests that are to be moved to high priority, and what is left of a whole one.
    promotions: Vec<u64>,
    promoting: u64,
    /// Requests by cookie, and the cookies that are free.
    ways: Vec<Way>,
    free: Vec<u64>,
    /// Requests being served, by the time at which they end.
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
            .map_err(|error| format!("{}: {error}", args.device.display()))?;
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

    /// Has each player want what is due.
    fn want(&mut self, now: Instant) {
        for (index, player) in self.players.iter_mut().enumerate() {
            // An open loop that the device holds up loses requests rather than memory.
            while self.pending.len() < 4 * BATCH && player.due(now) {
                let cookie = self.free.pop().unwrap_or(self.ways.len() as u64);
                let (request, offset) = player.request(cookie);
                let way = Way {
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

    /// Submits what fits.
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
        let mut rest = &self.promotions[..];
        while !rest.is_empty() {
            rest = &rest[self.client.promote(rest)?..];
        }
        self.promotions.clear();
        Ok(())
    }

    /// Takes what is released, as far as there are servers.
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

    /// Completes what has been served.
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
        let mut rest = &done[..];
        while !rest.is_empty() {
            rest = &rest[self.client.complete(rest)?..];
        }
        Ok(())
    }

    /// Waits until something is due.
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

    /// Plays to the end; returns the seconds that count.
    fn run(&mut self) -> io::Result<f64> {
        let until = self.start + Duration::from_secs_f64(self.args.seconds + self.args.warmup);
        loop {
            let now = Instant::now();
            if now >= until {
                break;
            }
            self.serve()?;
            self.complete()?;
            // What has ended makes room for more.
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

    /// What became of all requests.
    fn report(&self, seconds: f64) -> io::Result<Value> {
        let seen = || self.players.iter().zip(&self.seen);
        let served: u64 = self.seen.iter().map(|seen| seen.served).sum();
        let bytes: u64 = self.seen.iter().map(|seen| seen.bytes).sum();
        let part = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        let clients: Vec<Value> = seen()
            .map(|(player, seen)| {
                json!({
                    "name": player.name,
                    "loop": match player.pace { Pace::Closed { .. } => "closed", Pace::Open { .. } => "open" },
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

/// Plays the clients, and prints the report.
pub fn run(args: Args) -> Outcome {
    let mut load = Load::new(args)?;
    let seconds = load.run()?;
    println!("{:#}", load.report(seconds)?);
    Ok(ExitCode::SUCCESS)
}
