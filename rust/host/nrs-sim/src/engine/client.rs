// SPDX-License-Identifier: GPL-2.0-only

//! Jobs: their nodes and processes, and the choice of the next request.
//!
//! - *Process*: sends one request after another, to the job's servers in turn ([`Process`]). In an
//!   open loop each node has one process, which does not wait for answers.
//! - *Round*: the bytes that a bulk-synchronous job moves before it computes ([`Round`]).
//! - *Left*: bytes of a job's work, or of a round, for which no request has been sent yet.
//!
//! ```text
//!            bytes left, in an active phase              answer
//!   idle ─────────────────────────────────────▶ waits ─────────▶ thinks ─▶ sends again
//!     ▲                                                                    until done or stopped
//!     └──────────────────────────── next round ◀─ computes ◀─ all answered ─┘
//! ```
//!
//! Each process has its own file on each server. A metadata operation counts as [`OPERATION`] bytes
//! of work and moves none.

use super::{
    item::{Op, Record},
    queue::{Event, Queue, START},
};
use crate::{
    outcome::Rounds,
    scenario::{Access, Arrival, Job as Written, Loop, Servers},
};
use nrs_sched::{
    attr::{Attrs, Id, Opcode},
    jobid::JobId,
    nid::{Address, Net, Nid},
    rng::{avalanche, Rng},
};

/// Work of a metadata operation, bytes.
pub const OPERATION: u64 = 4096;

/// Size of a file with random access, bytes.
const FILE: u64 = 1 << 34;

/// Process of a job.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Index of the job.
    pub job: u32,
    /// Index of the node.
    pub node: u32,
    /// Number of requests that were sent.
    sent: u64,
    /// File offset of the next sequential request, bytes.
    offset: u64,
    /// Index of the first server in the job's list of servers.
    first: u32,
}

/// State of a bulk-synchronous job.
#[derive(Clone, Copy, Debug)]
struct Round {
    bytes: u64,
    compute: u64,
    left: u64,
    /// Start of the round, ns.
    since: u64,
    /// Start of the first round, ns.
    first: u64,
    done: Rounds,
}

/// Job: a load of one kind, from many processes.
pub struct RunningJob {
    /// Attributes of the job's requests.
    attrs: Attrs,
    start: u64,
    stop: u64,
    phases: Option<(u64, u64)>,
    open: bool,
    think: u64,
    /// Open loop: mean time between requests of a node, ns.
    gap: f64,
    arrival: Arrival,
    /// Cumulative weights of reads, writes and metadata operations.
    mix: [u64; 3],
    /// Sizes with cumulative weights.
    sizes: Vec<(u64, u64)>,
    access: Access,
    servers: Vec<u32>,
    /// Bytes of work for which no request has been sent yet; `None` for unlimited work.
    left: Option<u64>,
    round: Option<Round>,
    first_process: u32,
    processes: u32,
    /// Closed loop: outstanding requests of each process.
    depth: u32,
    /// Number of requests that were sent.
    pub issued: u64,
    /// Number of requests without an answer.
    pub outstanding: u64,
    /// Completion time of the work, ns.
    pub completed: Option<u64>,
    rng: Rng,
}

impl RunningJob {
    /// Returns the statistics of rounds if the job is bulk-synchronous.
    pub fn rounds(&self) -> Option<Rounds> {
        self.round.map(|round| round.done)
    }

    /// Returns the earliest time from `time` on at which the job may send; `None` if it has
    /// stopped.
    fn admits(&self, time: u64) -> Option<u64> {
        let at = match self.phases {
            Some((on, off)) => {
                let since = time - self.start;
                let within = since % (on + off).max(1);
                if within < on {
                    time
                } else {
                    time - within + on + off
                }
            }
            None => time,
        };
        (at < self.stop).then_some(at)
    }

    /// Returns each process once for each of its outstanding requests.
    fn issuers(&self) -> impl Iterator<Item = u32> {
        let (first, depth) = (self.first_process, self.depth);
        (0..self.processes * depth).map(move |number| first + number / depth)
    }

    /// Draws a number below `sum`; uses no random number if `sum` is at most 1.
    fn draw(&mut self, sum: u64) -> u64 {
        if sum <= 1 {
            return 0;
        }
        self.rng.below(sum)
    }

    /// Chooses the next request: its operation, its bytes and its bytes of work.
    fn next(&mut self) -> Option<(Op, u64, u64)> {
        let budget = match (&self.left, &self.round) {
            (Some(left), Some(round)) => *left.min(&round.left),
            (Some(left), None) => *left,
            (None, Some(round)) => round.left,
            (None, None) => u64::MAX,
        };
        if budget == 0 {
            return None;
        }
        let [read, data, all] = self.mix;
        let op = match self.draw(if read == all { 1 } else { all }) {
            number if number < read => Op::Read,
            number if number < data => Op::Write,
            _ => Op::Metadata,
        };
        let sum = self.sizes.last().map_or(1, |(_, sum)| *sum);
        let number = match self.sizes.len() {
            1 => 0,
            _ => self.draw(sum),
        };
        let size = self.sizes.iter().find(|(_, sum)| number < *sum);
        let size = size.map_or(0, |(size, _)| *size).min(budget);
        let (bytes, counts) = match op {
            Op::Metadata => (0, OPERATION.min(budget)),
            _ => (size, size),
        };
        if let Some(left) = &mut self.left {
            *left -= counts;
        }
        if let Some(round) = &mut self.round {
            round.left -= counts;
        }
        Some((op, bytes, counts))
    }
}

/// All jobs of a run.
pub struct Clients {
    /// Jobs in the order of the scenario.
    pub jobs: Vec<RunningJob>,
    processes: Vec<Process>,
    nodes: u32,
    /// Number of jobs with work left; jobs without a limit of work always count.
    busy: usize,
}

impl Clients {
    /// Creates the jobs `written` on servers with these `names`; `seed` determines random choices.
    ///
    /// # Errors
    ///
    /// A job names a server that does not exist, has no servers, has no size to draw, or is an open
    /// loop without a rate.
    pub fn new(written: &[Written], names: &[String], end: u64, seed: u64) -> Result<Self, String> {
        let mut all = Self {
            jobs: Vec::new(),
            processes: Vec::new(),
            nodes: 0,
            busy: written.len(),
        };
        for (index, job) in written.iter().enumerate() {
            let rng = Rng::new(avalanche(seed ^ avalanche(index as u64 + 1)));
            all.add(job, names, end, rng)?;
        }
        Ok(all)
    }

    fn add(
        &mut self,
        written: &Written,
        names: &[String],
        end: u64,
        mut rng: Rng,
    ) -> Result<(), String> {
        let servers = servers_of(written, names, &mut rng)?;
        let open = written.kind == Loop::Open;
        let per_node = if open { 1 } else { written.procs };
        let index = self.jobs.len() as u32;
        let first_process = self.processes.len() as u32;
        for node in 0..written.nodes {
            for _ in 0..per_node {
                self.processes.push(Process {
                    job: index,
                    node: self.nodes + node,
                    sent: 0,
                    offset: 0,
                    first: rng.below(servers.len() as u64) as u32,
                });
            }
        }
        self.nodes += written.nodes;
        let mut sum = 0;
        let sizes = written.io.iter().map(|io| {
            sum += u64::from(io.weight);
            (io.size.0, sum)
        });
        let sizes: Vec<(u64, u64)> = sizes.collect();
        if sum == 0 {
            return Err(format!("job {}: io has no sizes", written.name));
        }
        let mix = &written.mix;
        let (read, write, metadata) = (mix.read, mix.write, mix.metadata);
        let round = written.burst.map(|burst| Round {
            bytes: burst.bytes.0,
            compute: burst.compute.0,
            left: burst.bytes.0,
            since: START + written.start.0,
            first: START + written.start.0,
            done: Rounds::default(),
        });
        let rate = written.rate.unwrap_or(0);
        if open && rate == 0 {
            return Err(format!(
                "job {}: rate is missing (required by an open loop)",
                written.name
            ));
        }
        self.jobs.push(RunningJob {
            attrs: Attrs {
                jobid: JobId::new(written.jobid().as_bytes()),
                uid: Id::new(written.uid),
                gid: Id::new(written.gid),
                projid: Id::new(written.projid),
                size: written.stated_size(),
                ..Attrs::UNKNOWN
            },
            start: START + written.start.0,
            stop: START + written.stop.map_or(end, |stop| stop.0.min(end)),
            phases: written.phases.map(|phases| (phases.on.0, phases.off.0)),
            open,
            think: written.think.0,
            gap: 1e9 / rate.max(1) as f64,
            arrival: written.arrival,
            mix: [
                u64::from(read),
                u64::from(read) + u64::from(write),
                u64::from(read) + u64::from(write) + u64::from(metadata),
            ],
            sizes,
            access: written.access,
            servers,
            left: written.work.map(|work| work.0),
            round,
            first_process,
            processes: self.processes.len() as u32 - first_process,
            depth: written.depth,
            issued: 0,
            outstanding: 0,
            completed: None,
            rng,
        });
        Ok(())
    }

    /// Returns the number of nodes of all jobs.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns true if all jobs have completed their work.
    pub fn are_done(&self) -> bool {
        self.busy == 0
    }

    /// Schedules the first requests of all jobs.
    pub fn begin(&mut self, queue: &mut Queue) {
        for job in &mut self.jobs {
            if !job.open {
                for process in job.issuers() {
                    queue.push(job.start, Event::Issue(process));
                }
                continue;
            }
            let count = u64::from(job.processes);
            for number in 0..job.processes {
                let process = job.first_process + number;
                // Nodes with evenly spaced requests start at different offsets.
                let offset = match job.arrival {
                    Arrival::Even => job.gap * f64::from(number) / count as f64,
                    Arrival::Poisson => exponential(&mut job.rng, job.gap),
                };
                queue.push(job.start + offset as u64, Event::Issue(process));
            }
        }
    }

    /// Returns the attributes of the request of `record`.
    pub fn attrs(&self, record: &Record) -> Attrs {
        let job = &self.jobs[record.job as usize];
        let opcode = match record.op {
            Op::Read => Opcode::OST_READ,
            Op::Write => Opcode::OST_WRITE,
            Op::Metadata => Opcode::MDS_GETATTR,
        };
        Attrs {
            nid: nid(record.node),
            opcode,
            client: record.node + 1,
            stream: u64::from(record.proc) + 1,
            object: record.object,
            offset: record.offset,
            length: record.bytes,
            ..job.attrs
        }
    }

    /// Creates the next request of process `index`, or schedules the attempt for when its phase
    /// permits.
    pub fn issue(&mut self, queue: &mut Queue, index: u32, now: u64) -> Option<Record> {
        let process = &mut self.processes[index as usize];
        let job = &mut self.jobs[process.job as usize];
        let at = job.admits(now)?;
        if at > now {
            queue.push(at, Event::Issue(index));
            return None;
        }
        if !job.open {
            return Self::send(process, job, index, now);
        }
        // An open loop schedules the next request regardless of answers.
        let gap = match job.arrival {
            Arrival::Even => {
                // The time of each request derives from the first one, so that rounding errors do
                // not add up.
                let sent = process.sent + 1;
                let before = (job.gap * process.sent as f64) as u64;
                (job.gap * sent as f64) as u64 - before
            }
            Arrival::Poisson => exponential(&mut job.rng, job.gap) as u64,
        };
        let record = Self::send(process, job, index, now)?;
        queue.push(now + gap, Event::Issue(index));
        Some(record)
    }

    /// Creates the next request of `process`; `None` if no bytes are left.
    fn send(process: &mut Process, job: &mut RunningJob, index: u32, now: u64) -> Option<Record> {
        let (op, bytes, counts) = job.next()?;
        let count = job.servers.len() as u64;
        let turn = (u64::from(process.first) + process.sent) % count;
        let server = job.servers[turn as usize];
        process.sent += 1;
        let offset = match job.access {
            Access::Sequential => process.offset,
            Access::Random => {
                let places = (FILE / counts.max(4096)).max(1);
                job.rng.below(places) * counts.max(4096)
            }
        };
        // A row of pieces, one on each server, has the same offset on all servers.
        if process.sent % count == 0 {
            process.offset += counts;
        }
        job.issued += 1;
        job.outstanding += 1;
        Some(Record {
            job: process.job,
            node: process.node,
            proc: index,
            server,
            op,
            bytes,
            object: u64::from(index) + 1,
            offset,
            sent: now,
            ..Record::default()
        })
    }

    /// Handles the answer to `record` at `now`, and schedules what follows.
    pub fn answered(&mut self, queue: &mut Queue, record: &Record, now: u64) {
        let job = &mut self.jobs[record.job as usize];
        job.outstanding -= 1;
        if job.left == Some(0) && job.outstanding == 0 {
            job.completed = Some(now);
            self.busy -= 1;
        }
        if job.open {
            return;
        }
        match &mut job.round {
            Some(round) if round.left == 0 || job.left == Some(0) => {
                if job.outstanding == 0 {
                    let took = now - round.since;
                    round.done.done += 1;
                    round.done.io_ns += took;
                    round.done.io_max_ns = round.done.io_max_ns.max(took);
                    round.done.whole_ns = now + round.compute - round.first;
                    queue.push(now + round.compute, Event::Round(record.job));
                }
            }
            _ => queue.push(now + job.think, Event::Issue(record.proc)),
        }
    }

    /// Starts the next round of job `index`, which has finished computing.
    pub fn round(&mut self, queue: &mut Queue, index: u32, now: u64) {
        let job = &mut self.jobs[index as usize];
        if job.left == Some(0) {
            return;
        }
        if let Some(round) = &mut job.round {
            round.left = round.bytes;
            round.since = now;
        }
        for process in job.issuers() {
            queue.push(now, Event::Issue(process));
        }
    }
}

/// Draws an exponentially distributed time with mean `mean`.
fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    // Uniform from 2^-53 to 1.
    let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln() * mean
}

/// Returns the network identifier of a node: an address in 10.0.0.0/8.
pub fn nid(node: u32) -> Option<Nid> {
    let [_, b, c, d] = (node + 1).to_be_bytes();
    Nid::new(Net::Tcp, 0, Address::V4([10, b, c, d])).ok()
}

/// Returns the servers to which a job sends requests.
fn servers_of(job: &Written, names: &[String], rng: &mut Rng) -> Result<Vec<u32>, String> {
    let count = names.len() as u32;
    let all: Vec<u32> = match &job.servers {
        Servers::All => (0..count).collect(),
        Servers::Count(some) => {
            let first = rng.below(u64::from(count)) as u32;
            (0..(*some).min(count))
                .map(|n| (first + n) % count)
                .collect()
        }
        Servers::Names(list) => {
            let find = |name: &String| {
                let found = names.iter().position(|known| known == name);
                found
                    .map(|index| index as u32)
                    .ok_or_else(|| format!("job {}: unknown server `{name}`", job.name))
            };
            list.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    if all.is_empty() {
        return Err(format!("job {}: no servers", job.name));
    }
    Ok(all)
}
