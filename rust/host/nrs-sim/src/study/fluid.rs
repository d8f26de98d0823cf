// SPDX-License-Identifier: GPL-2.0-only

//! Cluster of ideal servers. Each server divides its capacity by effective weights and sends
//! accounts to the other servers.
//!
//! - *Fluid*: service is divisible without limit, so only the rule and the messages cause errors.
//! - *Reference*: the service of each job under weighted [`max_min`] fairness.
//! - *Error*: relative difference of a job's rate from the reference.
//! - *Phase*: deltas between two changes of the set of active jobs.
//!
//! Counters and weights are integers, as in the module.

use std::rc::Rc;

use nrs_agent::{Account, Exchange, Terms};
use nrs_sched::{
    agent::FactorPairs,
    max_min::{level, max_min, Member},
    policy::fairshare::factors::Factors,
    rng::Rng,
};
use serde::Deserialize;

/// Length of a delta, ns.
pub const DELTA: u64 = 100_000_000;

/// Job on some servers.
#[derive(Clone, Debug)]
pub struct FluidJob {
    /// Weight of the job.
    pub weight: u32,
    /// Servers where the job has requests.
    pub servers: Vec<usize>,
    /// Demand on each server, units/s.
    pub demand: f64,
    /// True if the job is active.
    pub on: bool,
}

impl FluidJob {
    /// Returns the servers where the job has requests now.
    fn at(&self) -> &[usize] {
        match self.on {
            true => &self.servers,
            false => &[],
        }
    }
}

/// Placement of jobs on servers.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Capacity of each server, units/s.
    pub capacity: Vec<f64>,
    /// All jobs.
    pub jobs: Vec<FluidJob>,
}

impl Layout {
    /// Creates `jobs` jobs with `weights` in turn, each striped over a random number of `servers`
    /// servers.
    pub fn random(servers: usize, jobs: usize, weights: &[u32], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let capacity = |_| (15_000 + rng.below(20_001)) as f64;
        let capacity = (0..servers).map(capacity).collect();
        let jobs = (0..jobs)
            .map(|job| {
                let mut all: Vec<usize> = (0..servers).collect();
                let count = 1 + rng.below(servers as u64) as usize;
                for at in 0..count {
                    let other = at + rng.below((servers - at) as u64) as usize;
                    all.swap(at, other);
                }
                all.truncate(count);
                FluidJob {
                    weight: weights[job % weights.len()],
                    servers: all,
                    demand: f64::INFINITY,
                    on: true,
                }
            })
            .collect();
        Self { capacity, jobs }
    }

    /// Returns the jobs that have requests at `server`.
    fn at(&self, server: usize) -> Vec<usize> {
        let here = |job: &usize| self.jobs[*job].at().contains(&server);
        (0..self.jobs.len()).filter(here).collect()
    }

    /// Returns the rate of each job under weighted max-min fairness, units/s.
    pub fn reference(&self) -> Vec<f64> {
        let jobs = self.jobs.iter();
        let jobs: Vec<_> = jobs
            .map(|job| (job.weight.into(), job.at(), job.demand))
            .collect();
        max_min(&self.capacity, &jobs)
    }
}

/// Properties of the transport, and disturbances of a run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Path {
    /// Datagrams lost per thousand.
    pub loss: u64,
    /// Transit time of a datagram, thousandths of a delta.
    pub delay: u64,
    /// Delta at which the second server restarts; 0 for never.
    pub restart: u64,
    /// True if the restarted server restores its saved state.
    pub saved: bool,
    /// Number of deltas between changes of the active jobs; 0 for no changes.
    pub toggle: u64,
    /// Maximum relative variation of a job's accounted service in a delta, thousandths.
    pub noise: u64,
}

impl Default for Path {
    fn default() -> Self {
        Self::UNDISTURBED
    }
}

impl Path {
    /// Transport without loss or disturbances.
    pub const UNDISTURBED: Self = Self {
        loss: 0,
        delay: 500,
        restart: 0,
        saved: false,
        toggle: 0,
        noise: 0,
    };
}

/// Errors of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Largest error of a job in each delta.
    pub worst: Vec<f64>,
    /// Mean error of all jobs in each delta.
    pub mean: Vec<f64>,
    /// First delta of each phase.
    pub phases: Vec<usize>,
}

impl Run {
    /// Returns the range of deltas of each phase.
    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let ends = self.phases.iter().skip(1).copied();
        let ends = ends.chain([self.worst.len()]);
        self.phases.iter().zip(ends).map(|(&from, to)| from..to)
    }

    /// Returns the number of deltas after which no job's error exceeds `limit`, in the slowest
    /// phase; `None` if a phase ends before.
    pub fn settled(&self, limit: f64) -> Option<usize> {
        let each = self.ranges().map(|phase| {
            let mut last = self.worst[phase.clone()].iter();
            let last = last.rposition(|worst| *worst > limit);
            let after = last.map_or(0, |last| last + 1);
            (after < phase.len()).then_some(after)
        });
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the last `count` values of each phase of a series.
    fn ends<'a>(&'a self, series: &'a [f64], count: usize) -> impl Iterator<Item = f64> + 'a {
        self.ranges()
            .flat_map(move |phase| {
                &series[phase.start.max(phase.end.saturating_sub(count))..phase.end]
            })
            .copied()
    }

    /// Returns the mean of the mean errors in the last `count` deltas of all phases.
    pub fn late(&self, count: usize) -> f64 {
        let late: Vec<f64> = self.ends(&self.mean, count).collect();
        late.iter().sum::<f64>() / late.len().max(1) as f64
    }

    /// Returns the largest error in the last `count` deltas of all phases.
    pub fn end_max_error(&self, count: usize) -> f64 {
        self.ends(&self.worst, count).fold(0.0, f64::max)
    }
}

struct FluidServer {
    exchange: Exchange,
    factors: Factors,
    /// Total service of each job, units.
    total: Vec<f64>,
    epoch: u64,
}

impl FluidServer {
    /// Creates the server with number `index` at the start of `epoch`.
    fn new(index: usize, epoch: u64, terms: Terms, jobs: usize) -> Self {
        Self {
            exchange: Exchange::new(index as u64 + 1, epoch, terms),
            factors: factors(Vec::new()),
            total: vec![0.0; jobs],
            epoch,
        }
    }
}

/// Stores factors as the module does.
fn factors(list: Vec<(u64, u32)>) -> Factors {
    let pairs = FactorPairs::of(list).expect("valid factors");
    Factors::new(pairs, None).expect("memory")
}

/// Returns the identifier of `job`.
fn id(job: usize) -> u64 {
    1 + job as u64 * 0x0123_4567_89ab
}

/// Runs `layout` for `deltas`.
///
/// # Panics
///
/// Panics if memory is exhausted.
pub fn run(layout: &Layout, terms: Terms, path: Path, deltas: u64, seed: u64) -> Run {
    let mut layout = layout.clone();
    let mut rng = Rng::new(seed);
    let count = layout.capacity.len();
    let jobs = layout.jobs.len();
    let new = |server| FluidServer::new(server, 1, terms, jobs);
    let mut servers: Vec<FluidServer> = (0..count).map(new).collect();
    // Time of arrival in thousandths of a delta, sender, receiver, datagram.
    let mut flying: Vec<(u64, usize, usize, Rc<[u8]>)> = Vec::new();
    let mut out = Run {
        phases: vec![0],
        ..Run::default()
    };
    let mut reference = layout.reference();
    let mut all: Vec<Vec<usize>> = (0..count).map(|server| layout.at(server)).collect();
    for delta in 1..=deltas {
        let now = delta * DELTA;
        if path.toggle > 0 && delta % path.toggle == 0 {
            for job in &mut layout.jobs {
                job.on ^= rng.below(8) == 0;
            }
            reference = layout.reference();
            all = (0..count).map(|server| layout.at(server)).collect();
            out.phases.push(delta as usize - 1);
        }
        // Delivery of the datagrams that arrive in this delta.
        let (arrived, later): (Vec<_>, Vec<_>) =
            flying.into_iter().partition(|mail| mail.0 < delta * 1000);
        flying = later;
        for (at, from, to, bytes) in arrived {
            let (from, now) = (from as u64 + 1, at * (DELTA / 1000));
            let _ = servers[to].exchange.receive(from, &bytes, now);
        }
        // Service of this delta.
        let mut rates = vec![0f64; jobs];
        for (index, server) in servers.iter_mut().enumerate() {
            if path.restart > 0 && delta == path.restart && index == 1 {
                let saved = server.exchange.save();
                *server = FluidServer::new(index, server.epoch + 1, terms, jobs);
                if path.saved {
                    assert!(server.exchange.restore(&saved, DELTA));
                }
            }
            let here = &all[index];
            // A job with a demand below its share gets its demand.
            let member = |&job: &usize| {
                let weight = layout.jobs[job].weight * 4096;
                Member {
                    weight: server.factors.scale(id(job), weight).into(),
                    floor: 0.0,
                    limit: layout.jobs[job].demand,
                }
            };
            let members: Vec<Member> = here.iter().map(member).collect();
            let level = level(&members, layout.capacity[index]);
            for (&job, member) in here.iter().zip(members) {
                let got = member.at(level);
                rates[job] += got;
                let noise = match path.noise {
                    0 => 1.0,
                    noise => 1.0 + (rng.below(2 * noise + 1) as f64 - noise as f64) / 1000.0,
                };
                server.total[job] += got * noise * DELTA as f64 / 1e9;
                let limited = got >= layout.jobs[job].demand;
                let account = Account {
                    id: id(job),
                    parent: 0,
                    weight: layout.jobs[job].weight * 4096,
                    leaf: true,
                    service: server.total[job] as u64,
                    active: true,
                    // A job that gets its demand is backlogged only now and then.
                    waiting: !limited || rng.below(10) == 0,
                };
                server.exchange.record(&account);
            }
            server.exchange.step(now);
            server.factors = factors(server.exchange.factors());
            for bytes in server.exchange.encode(now) {
                let bytes: Rc<[u8]> = bytes.into();
                for to in (0..count).filter(|&other| other != index) {
                    if rng.below(1000) >= path.loss {
                        flying.push((delta * 1000 + path.delay, index, to, Rc::clone(&bytes)));
                    }
                }
            }
        }
        let errors: Vec<f64> = (0..jobs)
            .filter(|&job| layout.jobs[job].on)
            .map(|job| (rates[job] / reference[job].max(1e-9) - 1.0).abs())
            .collect();
        out.worst.push(errors.iter().copied().fold(0.0, f64::max));
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        out.mean.push(mean);
    }
    out
}
