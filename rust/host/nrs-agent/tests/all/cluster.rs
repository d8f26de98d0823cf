// SPDX-License-Identifier: GPL-2.0-only

//! A cluster of ideal servers: each divides its capacity by effective weights, and tells the others.
//!
//! # Vocabulary
//!
//! - *Fluid*: service is divided at will, so that only the rule and the messages make errors.
//! - *Reference*: what weighted [`max_min`] fairness gives each job.
//! - *Error*: how far a job's rate is from the reference, as a part of it.

use std::collections::BTreeMap;

use nrs_agent::{Account, Exchange, Terms};
use nrs_sched::{
    max_min::{level, max_min, Member},
    policy::fairshare::factors::ONE,
    rng::Rng,
};

/// Nanoseconds of a delta.
pub const DELTA: u64 = 100_000_000;

/// A job, on some servers.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its weight.
    pub weight: u32,
    /// Servers where it has requests.
    pub servers: Vec<usize>,
    /// What it wants on each server, units per second.
    pub demand: f64,
    /// Whether it is there.
    pub on: bool,
}

impl Job {
    /// Servers where it has requests now.
    fn at(&self) -> &[usize] {
        match self.on {
            true => &self.servers,
            false => &[],
        }
    }
}

/// Who is where.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Capacities, units per second.
    pub capacity: Vec<f64>,
    /// Jobs.
    pub jobs: Vec<Job>,
}

impl Layout {
    /// `jobs` jobs of `weights` in turn, each striped over a random number of `servers` servers.
    pub fn random(servers: usize, jobs: usize, weights: &[u32], seed: u64) -> Self {
        Self::striped(servers, jobs, servers, weights, seed)
    }

    /// The same, over at most `most` servers.
    pub fn striped(servers: usize, jobs: usize, most: usize, weights: &[u32], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let capacity = |_| (15_000 + rng.below(20_001)) as f64;
        let capacity = (0..servers).map(capacity).collect();
        let jobs = (0..jobs)
            .map(|job| {
                let mut all: Vec<usize> = (0..servers).collect();
                let count = 1 + rng.below(most as u64) as usize;
                for at in 0..count {
                    let other = at + rng.below((servers - at) as u64) as usize;
                    all.swap(at, other);
                }
                all.truncate(count);
                Job {
                    weight: weights[job % weights.len()],
                    servers: all,
                    demand: f64::INFINITY,
                    on: true,
                }
            })
            .collect();
        Self { capacity, jobs }
    }

    /// Jobs that have requests at `server`.
    fn at(&self, server: usize) -> Vec<usize> {
        let here = |job: &usize| self.jobs[*job].at().contains(&server);
        (0..self.jobs.len()).filter(here).collect()
    }

    /// What each job gets under weighted max-min fairness, units per second.
    pub fn reference(&self) -> Vec<f64> {
        let jobs = self.jobs.iter();
        let jobs: Vec<_> = jobs
            .map(|job| (job.weight.into(), job.at(), job.demand))
            .collect();
        max_min(&self.capacity, &jobs)
    }
}

/// How messages travel, and what happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Datagrams lost, of a thousand.
    pub loss: u64,
    /// Deltas that a datagram travels, of a thousand.
    pub delay: u64,
    /// The delta at which the second server starts again.
    pub restart: u64,
    /// Deltas after which jobs go or come; 0: never.
    pub toggle: u64,
    /// Largest part of a delta's service of a job by which it varies, of a thousand.
    pub noise: u64,
}

impl Path {
    /// Nothing happens.
    pub const QUIET: Self = Self {
        loss: 0,
        delay: 500,
        restart: 0,
        toggle: 0,
        noise: 0,
    };
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Largest error of a job in each delta.
    pub worst: Vec<f64>,
    /// Mean error of all jobs in each delta.
    pub mean: Vec<f64>,
}

impl Run {
    /// The delta after which no job was off by more than `limit`.
    pub fn settled(&self, limit: f64) -> Option<usize> {
        let last = self.worst.iter().rposition(|worst| *worst > limit);
        let settled = last.map_or(0, |last| last + 1);
        (settled < self.worst.len()).then_some(settled)
    }

    /// Mean of the mean errors of the last `count` deltas.
    pub fn late(&self, count: usize) -> f64 {
        let late = &self.mean[self.mean.len() - count..];
        late.iter().sum::<f64>() / count as f64
    }

    /// Largest error of the last `count` deltas.
    pub fn late_worst(&self, count: usize) -> f64 {
        let late = &self.worst[self.worst.len() - count..];
        late.iter().copied().fold(0.0, f64::max)
    }
}

struct Server {
    exchange: Exchange,
    factors: Vec<f64>,
    total: Vec<u64>,
    epoch: u64,
}

/// Id of `job`.
fn id(job: usize) -> u64 {
    1 + job as u64 * 0x0123_4567_89ab
}

/// Runs `layout` for `deltas`.
pub fn run(layout: &Layout, terms: Terms, path: Path, deltas: u64, seed: u64) -> Run {
    let mut layout = layout.clone();
    let mut rng = Rng::new(seed);
    let count = layout.capacity.len();
    let jobs = layout.jobs.len();
    let mut servers: Vec<Server> = (0..count)
        .map(|server| Server {
            exchange: Exchange::new(server as u64 + 1, 1, terms),
            factors: vec![1.0; jobs],
            total: vec![0; jobs],
            epoch: 1,
        })
        .collect();
    // Arrival (thousandths of a delta), to, datagram.
    let mut flying: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let mut out = Run::default();
    let mut reference = layout.reference();
    let mut all: Vec<Vec<usize>> = (0..count).map(|server| layout.at(server)).collect();
    for delta in 1..=deltas {
        let now = delta * DELTA;
        if path.toggle > 0 && delta % path.toggle == 0 {
            for job in &mut layout.jobs {
                if rng.below(8) == 0 {
                    job.on = !job.on;
                }
            }
            reference = layout.reference();
            all = (0..count).map(|server| layout.at(server)).collect();
        }
        // What arrives within the delta.
        let (arrived, later): (Vec<_>, Vec<_>) = flying
            .into_iter()
            .partition(|(at, _, _)| *at < delta * 1000);
        flying = later;
        for (at, to, bytes) in arrived {
            let _ = servers[to].exchange.hear(&bytes, at * (DELTA / 1000));
        }
        // Service of the delta.
        let mut rates = vec![0f64; jobs];
        for (index, server) in servers.iter_mut().enumerate() {
            let here = all[index].clone();
            let mut got = vec![0f64; jobs];
            // Who wants less than its share gets what it wants.
            let member = |&job: &usize| Member {
                weight: f64::from(layout.jobs[job].weight) * server.factors[job],
                floor: 0.0,
                limit: layout.jobs[job].demand,
            };
            let members: Vec<Member> = here.iter().map(member).collect();
            let level = level(&members, layout.capacity[index]);
            for (&job, member) in here.iter().zip(members) {
                got[job] = member.at(level);
            }
            for job in 0..jobs {
                rates[job] += got[job];
                let noise = if path.noise > 0 {
                    1.0 + (rng.below(2 * path.noise + 1) as f64 - path.noise as f64) / 1000.0
                } else {
                    1.0
                };
                // Sixteenths of units, rounded at random.
                let units = got[job] * noise * DELTA as f64 / 1e9;
                let dice = rng.below(1000) as f64 / 1000.0;
                server.total[job] += (units + dice) as u64;
            }
            if path.restart > 0 && delta == path.restart && index == 1 {
                server.epoch += 1;
                server.exchange = Exchange::new(index as u64 + 1, server.epoch, terms);
                server.factors = vec![1.0; jobs];
                server.total = vec![0; jobs];
            }
            let exchange = &mut server.exchange;
            for &job in &here {
                let limited = got[job] >= layout.jobs[job].demand;
                let account = Account {
                    id: id(job),
                    parent: 0,
                    weight: layout.jobs[job].weight * 4096,
                    leaf: true,
                    service: server.total[job],
                    active: true,
                    // Who gets what it wants has something queued now and then.
                    waiting: !limited || rng.below(10) == 0,
                };
                exchange.note(&account);
            }
            exchange.step(now);
            let factors: BTreeMap<u64, u32> = exchange.factors().into_iter().collect();
            for job in 0..jobs {
                let factor = factors.get(&id(job)).copied().unwrap_or(ONE);
                server.factors[job] = f64::from(factor) / f64::from(ONE);
            }
            for bytes in exchange.say(now) {
                for to in (0..count).filter(|&other| other != index) {
                    if rng.below(1000) >= path.loss {
                        flying.push((delta * 1000 + path.delay, to, bytes.clone()));
                    }
                }
            }
        }
        let errors: Vec<f64> = (0..jobs)
            .filter(|&job| layout.jobs[job].on)
            .map(|job| (rates[job] / reference[job].max(1e-9) - 1.0).abs())
            .collect();
        out.worst.push(errors.iter().copied().fold(0.0, f64::max));
        out.mean
            .push(errors.iter().sum::<f64>() / errors.len().max(1) as f64);
    }
    out
}
