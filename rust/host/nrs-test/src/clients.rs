// SPDX-License-Identifier: GPL-2.0-only

//! Loads a block device with clients, and prints what each client got while all of them ran.
//!
//! Client N is one or more processes of user 1000+N in the cgroup `cN`. All processes begin at the
//! same time, count what completes in the same time, and continue until after it. They read at
//! random places, with Linux's asynchronous I/O.

#![allow(unsafe_code, reason = "requests that the kernel fills")]

use std::{
    collections::VecDeque,
    fs,
    io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    str::FromStr,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{bail, ensure, Context as _};
use serde_json::json;

use crate::{
    aio::{self, Context, Event, PREAD},
    direct::{self, Buffer},
    random::Random,
    Outcome,
};

/// Time for which the clients continue after the measured time, ns.
const AFTER: u64 = 50_000_000;

/// Size of a huge page.
const HUGE: usize = 2 << 20;

/// Fractions of the requests whose greatest latency is printed.
const PARTS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Loads a block device with clients; prints as JSON what each got while all of them ran.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Block device.
    device: PathBuf,
    /// Clients 1, 2, …: KIB:DEPTH, and :PROCESSES (default 1), and :PAUSE after each request, ms.
    /// With ~PAUSE, requests arrive at random with this mean distance, whether earlier ones have
    /// completed or not.
    #[arg(required = true)]
    clients: Vec<Spec>,
    /// Time before the measured time, ms.
    #[arg(long, default_value_t = 200)]
    settle: u64,
    /// Measured time, ms.
    #[arg(long, default_value_t = 1000)]
    time: u64,
    /// Be process N of the only client. Standard input has the times of the start and of the
    /// measurement, ns.
    #[arg(long, hide = true)]
    process: Option<u64>,
}

/// Requests of a client.
#[derive(Clone)]
struct Spec {
    text: String,
    bytes: u64,
    depth: usize,
    processes: usize,
    /// Pause, ns, and whether it is the mean distance of arrivals.
    pause: u64,
    arrives: bool,
}

impl FromStr for Spec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Outcome<Self> {
        let mut parts = text.split(':');
        let mut next = |default: &'static str| parts.next().unwrap_or(default);
        let (kib, depth, processes, pause) = (next(""), next(""), next("1"), next("0"));
        let ms: f64 = pause.trim_start_matches('~').parse()?;
        let spec = Self {
            text: text.to_owned(),
            bytes: kib.parse::<u64>()? << 10,
            depth: depth.parse()?,
            processes: processes.parse()?,
            pause: (ms * 1e6) as u64,
            arrives: pause.starts_with('~'),
        };
        let fits = spec.bytes % 4096 == 0 && spec.bytes <= HUGE as u64;
        let is_whole = parts.next().is_none() && fits;
        ensure!(
            is_whole && spec.bytes * spec.depth as u64 > 0,
            "not a client"
        );
        Ok(spec)
    }
}

/// Returns the time, ns; it is the same in all processes.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Sleeps until `time`, ns.
fn sleep_until(time: u64) {
    thread::sleep(Duration::from_nanos(time.saturating_sub(now())));
}

/// Runs one process of a client; prints the number of its requests in the measured time, and their
/// latencies, ns.
///
/// Without a scheduler, `io_submit` waits until the device takes the requests, and many that have
/// completed meanwhile are seen at once: they count as evenly spread over that time.
fn process(args: &Args, number: u64) -> Outcome {
    let spec = &args.clients[0];
    let mut file = direct::open(&args.device)?;
    let places = file.seek(SeekFrom::End(0))? / spec.bytes;
    ensure!(places > 0, "the device is too small");
    // What is read is not used, so all requests may have one buffer: in a huge page, because small
    // ones would have to be found and held one by one.
    let mut buffer = Buffer::new(2 * HUGE);
    let memory = buffer.first(2 * HUGE);
    let (_, memory) = memory.split_at_mut(memory.as_ptr().align_offset(HUGE));
    let mut blank = aio::control();
    blank.aio_lio_opcode = PREAD;
    blank.aio_fildes = file.as_raw_fd() as u32;
    blank.aio_buf = memory.as_mut_ptr() as u64;
    blank.aio_nbytes = spec.bytes;
    let context = Context::new(spec.depth)?;
    let mut random = Random::with_seed(number);
    let (mut free, mut since) = (Vec::from_iter(0..spec.depth), vec![0; spec.depth]);
    let mut events = vec![Event::default(); spec.depth];
    let mut latencies: Vec<u64> = Vec::with_capacity(1 << 16);

    println!();
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let times: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    let &[start, begin, end] = &times[..] else {
        bail!("no times")
    };
    sleep_until(start);
    // Times at which requests are due.
    let mut due = VecDeque::from(vec![start; if spec.arrives { 1 } else { spec.depth }]);
    let (mut time, mut completed) = (now(), 0.0);
    while time < end + AFTER {
        while let (Some(&at), Some(&slot)) = (due.front().filter(|at| **at <= time), free.last()) {
            (_, _) = (due.pop_front(), free.pop());
            if spec.arrives {
                let distance = -random.f64().max(1e-9).ln() * spec.pause as f64;
                due.push_back(at + distance as u64);
            }
            since[slot] = time;
            blank.aio_data = slot as u64;
            blank.aio_offset = (random.u64(..places) * spec.bytes) as i64;
            // One by one, as most programs do.
            // SAFETY: The buffer is dropped after the context; its content is not used.
            unsafe { context.submit(std::slice::from_mut(&mut blank)) }?;
        }
        let next = due.front().filter(|_| !free.is_empty());
        let wait = next.map(|at| Duration::from_nanos(at.saturating_sub(now())));
        let count = context.events(1, &mut events, wait)?;
        let last = std::mem::replace(&mut time, now());
        let inside = time.min(end).saturating_sub(last.max(begin));
        completed += (count as u64 * inside) as f64 / (time - last).max(1) as f64;
        for event in &events[..count] {
            ensure!(event.result == spec.bytes as i64, "read: {}", event.result);
            let slot = event.data as usize;
            free.push(slot);
            if (begin..end).contains(&time) {
                latencies.push(time - since[slot]);
            }
            if !spec.arrives {
                due.push_back(time + spec.pause);
            }
        }
    }
    latencies.sort_unstable();
    let at = |part: f64| (latencies.len() as f64 * part) as usize;
    let latency = |part| latencies.get(at(part)).copied().unwrap_or(0);
    println!(
        "{completed} {}",
        PARTS.map(|part| latency(part).to_string()).join(" ")
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the time in which tasks ran, as the scheduler measures it, ns of all CPUs, and the
/// number of CPUs. Interrupts count for the interrupted task, and for no task on an idle CPU.
fn ran() -> io::Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/schedstat")?;
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    let times = cpus.map(|line| line.split(' ').nth(7).and_then(|ns| ns.parse().ok()));
    Ok(times.fold((0, 0), |(sum, count), ns: Option<u64>| {
        (sum + ns.unwrap_or(0), count + 1)
    }))
}

/// Starts the processes of all clients, and prints what they got.
pub fn run(args: &Args) -> Outcome {
    if let Some(number) = args.process {
        return process(args, number);
    }
    let mut processes = Vec::new();
    for (n, spec) in (1..).zip(&args.clients) {
        for _ in 0..spec.processes {
            let mut child = Command::new("/proc/self/exe")
                .args(["clients", "--process", &processes.len().to_string()])
                .arg(&args.device)
                .arg(&spec.text)
                .uid(1000 + n)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let group = format!("/sys/fs/cgroup/c{n}/cgroup.procs");
            fs::write(&group, child.id().to_string()).context(group)?;
            let input = child.stdin.take().context("standard input")?;
            let output = child.stdout.take().context("standard output")?;
            processes.push((n as usize - 1, spec, input, BufReader::new(output), child));
        }
    }
    let mut line = String::new();
    for (.., output, _) in &mut processes {
        ensure!(output.read_line(&mut line)? > 0, "a client did not start");
    }
    let start = now() + 20_000_000;
    let begin = start + args.settle * 1_000_000;
    let end = begin + args.time * 1_000_000;
    for (_, _, input, ..) in &mut processes {
        writeln!(input, "{start} {begin} {end}")?;
    }
    sleep_until(begin);
    let (before, (first, cpus)) = (now(), ran()?);
    sleep_until(end);
    let (after, (last, _)) = (now(), ran()?);
    let mut requests = vec![0.0; args.clients.len()];
    let mut bytes = requests.clone();
    let mut latency = Vec::new();
    for (client, spec, _, output, child) in &mut processes {
        line.clear();
        output.read_line(&mut line)?;
        ensure!(child.wait()?.success(), "client {} failed", *client + 1);
        let numbers: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        let [count, times @ ..] = &numbers[..] else {
            bail!("client {} printed: {line}", *client + 1)
        };
        requests[*client] += count;
        bytes[*client] += count * spec.bytes as f64;
        if latency.is_empty() {
            latency = times.iter().map(|ns| ns / 1e6).collect();
        }
    }
    let seconds = args.time as f64 / 1e3;
    let report = json!({
        "seconds": seconds,
        "busy": (last - first) as f64 / ((after - before) * cpus) as f64,
        "rate": (requests.iter().sum::<f64>() / seconds) as u64,
        "requests": requests,
        "bytes": bytes,
        "latency_ms": latency,
    });
    println!("{report}");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_clients() {
        let parsed = |text: &str| {
            let spec = text.parse::<Spec>().ok()?;
            let numbers = (spec.bytes, spec.depth, spec.processes);
            Some((numbers, spec.pause, spec.arrives))
        };
        for (text, want) in [
            ("4:1", Some(((4096, 1, 1), 0, false))),
            ("64:32:6", Some(((65_536, 32, 6), 0, false))),
            ("4:1:1:0.5", Some(((4096, 1, 1), 500_000, false))),
            ("4:128:1:~10", Some(((4096, 128, 1), 10_000_000, true))),
            ("", None),
            ("4", None),
            ("4:0", None),
            ("0:1", None),
            ("3:1", None),
            ("4096:1", None),
            ("4:1:1:1:1", None),
            ("4:1:1:~", None),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
    }
}
