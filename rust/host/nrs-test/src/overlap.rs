// SPDX-License-Identifier: GPL-2.0-only

//! Submits requests to overlapping ranges of a block device from one thread without waiting. Checks
//! that the result is as if they had been executed in the order of submission. Data on the device
//! is lost.
//!
//! `storm` reads and writes at random. Each read must return the data of the writes submitted
//! before it. Finally each block must contain the data of its last write. `probe` queues many
//! requests, then submits one of real-time I/O priority that overlaps the last of them. It prints
//! the number of queued requests that completed first.
//!
//! Prints one `NAME: NUMBER` per line. If requests fail, the test is inconclusive.

use std::{
    fs::File, io, os::unix::fs::FileExt, path::PathBuf, process::ExitCode, slice, time::Instant,
};

use anyhow::ensure;
use clap::Subcommand;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::{
    direct::{self, Buffer, ALIGN},
    latency::Latency,
    random::{Draw, Random},
    Outcome,
};

mod record;
mod ring;

use record::{Range, Record, Wrong, BLOCK};
use ring::{Request, Ring};

/// Checks that overlapping requests to a block device keep their order.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Seed of the random numbers; equal seeds give equal requests.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Number of requests in flight.
    #[arg(long, global = true, default_value_t = 64)]
    depth: usize,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Submits random reads and writes.
    Storm(OverlapStorm),
    /// Submits a request of high priority after many others.
    Probe(Probe),
}

#[derive(clap::Args)]
struct OverlapStorm {
    /// Device, or several devices with the same blocks, which are used round robin.
    #[arg(required = true)]
    devices: Vec<PathBuf>,
    /// Total number of requests.
    #[arg(long, default_value_t = 4000)]
    count: u64,
    /// Maximum duration, seconds.
    #[arg(long, default_value_t = 3600.0)]
    seconds: f64,
    /// Size of the used part of the device, KiB.
    #[arg(long, default_value_t = 256)]
    region: usize,
    /// Maximum size of a request, KiB, a multiple of 4.
    #[arg(long, default_value_t = 16)]
    largest: usize,
    /// Percentage of writes.
    #[arg(long, default_value_t = 50)]
    writes: u64,
    /// Percentage of requests with real-time I/O priority.
    #[arg(long, default_value_t = 0)]
    high: u64,
    /// Maximum number of requests submitted at a time.
    #[arg(long, default_value_t = 8)]
    batch: u64,
    /// Users of the requests, one chosen at random for each batch.
    #[arg(long, value_delimiter = ',')]
    users: Vec<u32>,
    /// Submit batches on all CPUs in turn.
    #[arg(long)]
    hop: bool,
}

#[derive(clap::Args)]
struct Probe {
    /// Path of the device.
    device: PathBuf,
    /// Number of rounds.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Number of requests at the end of the queue, each of which overlaps the one before it. The
    /// request of high priority overlaps the last of them. The other requests overlap nothing.
    #[arg(long, default_value_t = 1)]
    chain: usize,
    /// Size of each request, KiB, a multiple of 4.
    #[arg(long, default_value_t = 4)]
    size: usize,
    /// Read with all requests except the one of high priority.
    #[arg(long)]
    reads: bool,
}

/// Number of bytes that are filled or compared at a time.
const PART: usize = 1 << 20;

/// Run of the test.
struct OverlapRun {
    ring: Ring,
    record: Record,
    free: Vec<Buffer>,
    submitted: u64,
    writes: u64,
    failed: u64,
    wrong: Wrong,
    wrong_reads: u64,
    overtaken: u64,
    /// Latencies of regular requests and of those with high priority.
    latency: [Latency; 2],
}

impl OverlapRun {
    /// Opens the devices and writes tag 0 to the blocks of `record`.
    fn new(devices: &[PathBuf], depth: usize, record: Record, bytes: usize) -> Outcome<Self> {
        if bytes % ALIGN != 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let files: io::Result<Vec<File>> = devices.iter().map(direct::open).collect();
        let mut run = Self {
            ring: Ring::new(files?, depth)?,
            record,
            free: (0..depth).map(|_| Buffer::new(bytes)).collect(),
            submitted: 0,
            writes: 0,
            failed: 0,
            wrong: Wrong::default(),
            wrong_reads: 0,
            overtaken: 0,
            latency: Default::default(),
        };
        run.each_part(true)?;
        Ok(run)
    }

    /// Writes tag 0 to all blocks, or reads and compares all blocks.
    fn each_part(&mut self, write: bool) -> Outcome<Wrong> {
        let mut wrong = Wrong::default();
        let mut buffer = Buffer::new(PART);
        for first in (0..self.record.len()).step_by(PART / BLOCK) {
            let count = (PART / BLOCK).min(self.record.len() - first);
            let data = buffer.first(count * BLOCK);
            let offset = (first * BLOCK) as u64;
            if write {
                self.record.clear(data, first);
                self.ring.files()[0].write_all_at(data, offset)?;
                continue;
            }
            self.ring.files()[0].read_exact_at(data, offset)?;
            let expected = self.record.expect(&Range::new(first, count, false));
            wrong.add(self.record.compare(first, data, &expected));
        }
        Ok(wrong)
    }

    /// Submits requests in this order; there must be enough free buffers.
    fn submit(&mut self, wanted: Vec<(Range, bool)>) -> io::Result<()> {
        let mut requests: Vec<Request> = Vec::new();
        let buffers = self.free.split_off(self.free.len() - wanted.len());
        for ((range, high), mut buffer) in wanted.into_iter().zip(buffers) {
            let others = self.ring.requests().values().chain(&requests);
            let before = others.filter(|other| other.range.conflicts(&range));
            let before = before.map(|other| other.number).collect();
            let mut expected = Vec::new();
            match range.writes {
                true => self.record.write(&range, buffer.first(range.bytes())),
                false => expected = self.record.expect(&range),
            }
            self.writes += u64::from(range.writes);
            let device = self.submitted as usize % self.ring.files().len();
            self.submitted += 1;
            requests.push(Request {
                number: self.submitted,
                device,
                range,
                high,
                since: Instant::now(),
                expected,
                before,
                buffer,
                result: None,
            });
        }
        self.ring.submit(requests)
    }

    /// Waits for the completion of at least `least` requests, 0 or 1; returns the number and the
    /// priority of those that completed without an error.
    fn reap(&mut self, least: usize) -> io::Result<Vec<(u64, bool)>> {
        let mut done = Vec::new();
        for number in self.ring.reap(least)? {
            let Some(mut request) = self.ring.take(number) else {
                continue;
            };
            let (range, in_flight) = (&request.range, self.ring.requests());
            let overtakes = request
                .before
                .iter()
                .any(|before| in_flight.contains_key(before));
            self.overtaken += u64::from(overtakes);
            self.latency[usize::from(request.high)].add(request.since.elapsed());
            match request.result {
                Some(Ok(count)) if count == range.bytes() => {
                    // A write has no expected blocks.
                    let data = request.buffer.first(count);
                    let seen = self.record.compare(range.first, data, &request.expected);
                    self.wrong.add(seen);
                    self.wrong_reads += u64::from(seen.sum() > 0);
                    done.push((number, request.high));
                }
                result => {
                    eprintln!("{result:?} of {} bytes: {range:?}", range.bytes());
                    self.failed += 1;
                }
            }
            self.free.push(request.buffer);
        }
        Ok(done)
    }

    /// Waits for all requests in flight, compares the device with the expectation, and prints the
    /// results.
    fn finish(mut self) -> Outcome {
        while !self.ring.requests().is_empty() {
            self.reap(1)?;
        }
        let left = self.each_part(false)?;
        let [regular, high] = &self.latency;
        for (name, value) in [
            ("requests", self.submitted),
            ("writes", self.writes),
            ("failed", self.failed),
            ("wrong_reads", self.wrong_reads),
            ("read_older", self.wrong.older),
            ("read_newer", self.wrong.newer),
            ("read_torn", self.wrong.torn),
            ("left_older", left.older),
            ("left_newer", left.newer),
            ("left_torn", left.torn),
            ("overtaken", self.overtaken),
            ("regular_mean_us", regular.mean_us() as u64),
            ("regular_max_us", regular.max_us() as u64),
            ("high_mean_us", high.mean_us() as u64),
            ("high_max_us", high.max_us() as u64),
        ] {
            println!("{name}: {value}");
        }
        let wrong = self.wrong.sum() + left.sum() > 0;
        Ok(ExitCode::from(match self.failed {
            0 => u8::from(wrong),
            _ => 2,
        }))
    }
}

fn storm(args: &Args, storm: &OverlapStorm) -> Outcome {
    let blocks = storm.region * 1024 / BLOCK;
    let bytes = storm.largest * 1024;
    let most = bytes / BLOCK;
    ensure!(
        most > 0 && blocks >= most && args.depth > 0 && storm.batch > 0,
        "--region must not be smaller than --largest; --depth and --batch must not be 0"
    );
    let mut random = Random::with_seed(args.seed);
    let record = Record::new(args.seed, blocks);
    let mut run = OverlapRun::new(&storm.devices, args.depth, record, bytes)?;
    let start = Instant::now();
    let cpus = std::thread::available_parallelism()?.get();
    let mut batches = 0;
    while run.submitted < storm.count && start.elapsed().as_secs_f64() < storm.seconds {
        let free = run.free.len() as u64;
        let count = random
            .u64(1..=storm.batch)
            .min(free)
            .min(storm.count - run.submitted);
        let wanted: Vec<_> = (0..count)
            .map(|_| {
                let count = 1 + random.usize(..most);
                let first = random.usize(..blocks - count + 1);
                let range = Range::new(first, count, random.u64(..100) < storm.writes);
                (range, random.u64(..100) < storm.high)
            })
            .collect();
        if !storm.users.is_empty() {
            ring::act_as(storm.users[random.usize(..storm.users.len())]);
        }
        if storm.hop {
            let mut cpu = CpuSet::new();
            cpu.set(batches % cpus);
            sched_setaffinity(None, &cpu)?;
        }
        batches += 1;
        run.submit(wanted)?;
        // Sometimes earlier than necessary, so that the number of requests in flight varies.
        if run.free.is_empty() || random.one_in(8) {
            run.reap(1)?;
        }
    }
    ring::act_as(0);
    run.finish()
}

fn probe(args: &Args, probe: &Probe) -> Outcome {
    let bytes = probe.size * 1024;
    let count = bytes / BLOCK;
    ensure!(
        count >= 2 && args.depth > 0 && probe.chain <= args.depth,
        "--size and --depth must not be 0; --chain must not exceed --depth"
    );
    let alone = args.depth - probe.chain;
    // Each request of the chain begins half a request after the one before it.
    let base = alone * count;
    let blocks = base + (probe.chain + 2) * count / 2;
    let (device, record) = (
        slice::from_ref(&probe.device),
        Record::new(args.seed, blocks),
    );
    let mut run = OverlapRun::new(device, args.depth + 1, record, bytes)?;
    for _ in 0..probe.rounds {
        let from = run.submitted;
        let mut wanted: Vec<_> = (0..args.depth)
            .map(|index| {
                let first = match index.checked_sub(alone) {
                    None => index * count,
                    Some(link) => base + link * count / 2,
                };
                (Range::new(first, count, !probe.reads), false)
            })
            .collect();
        let last = base + probe.chain * count / 2;
        wanted.push((Range::new(last, count, true), true));
        run.submit(wanted)?;
        println!("handed_in: {}", args.depth + 1);
        let (mut before, mut links, mut found) = (0, 0, false);
        // Requests that complete while others are still being submitted have overtaken nothing.
        let mut all_in = 0;
        while !run.ring.requests().is_empty() {
            for (number, high) in run.reap(all_in)? {
                if high {
                    found = true;
                    // Printed immediately, because the test script may only then let the device
                    // serve the remaining requests.
                    println!("before: {before}\nlinks_before: {links}");
                }
                if !found {
                    before += all_in;
                    links += u64::from(number - from > alone as u64);
                }
            }
            all_in = 1;
        }
    }
    run.finish()
}

/// Runs the test.
pub fn run(args: &Args) -> Outcome {
    match &args.mode {
        Mode::Storm(options) => storm(args, options),
        Mode::Probe(options) => probe(args, options),
    }
}
