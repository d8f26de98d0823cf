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
    direct::{self, Buffer},
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

/// Request in flight.
struct OverlapRequest {
    number: u64,
    range: Range,
    high: bool,
    since: Instant,
    /// Expected tags of a read; empty for a write.
    expected: Vec<u64>,
    /// Indices and numbers of the requests in flight that this request must not overtake.
    before: Vec<(usize, u64)>,
}

/// Request that completed without an error.
struct EndedRequest {
    number: u64,
    high: bool,
}

/// Run of the test.
struct OverlapRun {
    ring: Ring,
    devices: usize,
    record: Record,
    ways: Vec<Option<OverlapRequest>>,
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
    fn new(devices: &[PathBuf], ways: usize, record: Record, bytes: usize) -> Outcome<Self> {
        let files: Vec<File> = devices
            .iter()
            .map(direct::open)
            .collect::<io::Result<_>>()?;
        let mut run = Self {
            ring: Ring::new(files, ways, bytes)?,
            devices: devices.len(),
            record,
            ways: (0..ways).map(|_| None).collect(),
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
                self.ring.file().write_all_at(data, offset)?;
                continue;
            }
            self.ring.file().read_exact_at(data, offset)?;
            let expected = self.record.expect(&Range::new(first, count, false));
            wrong.add(self.record.compare(first, data, &expected));
        }
        Ok(wrong)
    }

    /// Submits requests in this order; there must be enough free entries of the ring.
    fn submit(&mut self, wanted: &[(Range, bool)]) -> io::Result<()> {
        let free: Vec<usize> = self.ring.free().take(wanted.len()).collect();
        let mut requests = Vec::new();
        for ((range, high), &idx) in wanted.iter().zip(&free) {
            let before = self.conflicts(range);
            let expected = if range.writes {
                self.record.write(range, self.ring.buffer(idx));
                self.writes += 1;
                Vec::new()
            } else {
                self.record.expect(range)
            };
            requests.push(Request {
                device: self.submitted as usize % self.devices,
                idx,
                writes: range.writes,
                high: *high,
                offset: (range.first * BLOCK) as u64,
                bytes: range.count * BLOCK,
            });
            self.submitted += 1;
            self.ways[idx] = Some(OverlapRequest {
                number: self.submitted,
                range: range.clone(),
                high: *high,
                since: Instant::now(),
                expected,
                before,
            });
        }
        self.ring.submit(&requests)
    }

    /// Returns the requests in flight that a request to `range` must not overtake.
    fn conflicts(&self, range: &Range) -> Vec<(usize, u64)> {
        let ways = self.ways.iter().enumerate();
        ways.filter_map(|(idx, way)| {
            let way = way.as_ref().filter(|way| way.range.conflicts(range))?;
            Some((idx, way.number))
        })
        .collect()
    }

    /// Waits for the completion of at least `least` requests, 0 or 1; returns the completed
    /// requests.
    fn reap(&mut self, least: usize) -> io::Result<Vec<EndedRequest>> {
        let mut done = Vec::new();
        for ended in self.ring.reap(least)? {
            let Some(way) = self.ways[ended.idx].take() else {
                continue;
            };
            let on_way = |(idx, number): &&(usize, u64)| {
                let way = self.ways[*idx].as_ref();
                way.is_some_and(|way| way.number == *number)
            };
            if way.before.iter().any(|before| on_way(&before)) {
                self.overtaken += 1;
            }
            self.latency[usize::from(way.high)].add(way.since.elapsed());
            let bytes = way.range.count * BLOCK;
            if !matches!(ended.result, Ok(count) if count == bytes) {
                eprintln!("{:?} of {bytes} bytes: {:?}", ended.result, way.range);
                self.failed += 1;
                continue;
            }
            if !way.range.writes {
                let data = &self.ring.buffer(ended.idx)[..bytes];
                let seen = self.record.compare(way.range.first, data, &way.expected);
                self.wrong.add(seen);
                self.wrong_reads += u64::from(seen.sum() > 0);
            }
            done.push(EndedRequest {
                number: way.number,
                high: way.high,
            });
        }
        Ok(done)
    }

    /// Waits for all requests in flight, compares the device with the expectation, and prints the
    /// results.
    fn finish(mut self) -> Outcome {
        while self.ring.in_flight() > 0 {
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
        let free = run.ring.free().count() as u64;
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
        run.submit(&wanted)?;
        // Sometimes earlier than necessary, so that the number of requests in flight varies.
        if run.ring.in_flight() == args.depth || random.one_in(8) {
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
        run.submit(&wanted)?;
        println!("handed_in: {}", wanted.len());
        let (mut before, mut links, mut found) = (0, 0, false);
        // Requests that complete while others are still being submitted have overtaken nothing.
        let mut all_in = 0;
        while run.ring.in_flight() > 0 {
            for done in run.reap(all_in)? {
                if done.high {
                    found = true;
                    // Printed immediately, because the test script may only then let the device
                    // serve the remaining requests.
                    println!("before: {before}\nlinks_before: {links}");
                }
                if !found {
                    before += all_in;
                    links += u64::from(done.number - from > alone as u64);
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
