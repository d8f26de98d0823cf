// SPDX-License-Identifier: GPL-2.0-only

//! Discrete event simulation of clients, a network, servers and devices.
//!
//! The servers run the scheduling code of the kernel.
//!
//! - *Event*: something that happens at an instant; time advances from event to event ([`queue`]).
//! - *Server*: partitions with a head each ([`partition`]), slots, a device and a worker
//!   ([`server`]).
//! - *Job*: processes on nodes that send requests ([`client`]).
//!
//! ```text
//! Issue ─▶ network ─▶ Arrive ─▶ queued or bypass ─▶ device ─▶ Done ─▶ network ─▶ Reply ─▶ Issue
//!                                ▲        ▲                    │
//!                     Work, Call ┘   Wake ┘◀── throttled       └─▶ next dispatch
//! ```
//!
//! # Differences from the kernel
//!
//! Heads, parts, classes, the pool of slots, turns of partitions, gates, the manager of `qbm` and
//! the table of shares are kernel code. The engine does the rest of `rust/engine/` in the same
//! order and with the same periods:
//!
//! - A request bypasses the queue if no request is queued.
//! - A completion frees a slot and has the next request dispatched.
//! - A part that throttles has one timer.
//! - The worker brings memory, ages classes and publishes shares every `delta_ms`.
//!
//! The engine leaves out the order table, the high-priority head and the stall timeout. No request
//! of a scenario has high priority, so no slot is reserved for high priority. Scheduling takes no
//! simulated time.
//!
//! # Memory
//!
//! The outstanding requests, the bins and the processes bound the memory. Handling an event
//! allocates only at a new maximum of one of these, or for a new class of a policy.

pub mod client;
pub mod device;
pub mod exchange;
pub mod item;
pub mod network;
pub mod partition;
pub mod policy;
pub mod queue;
pub mod record;
pub mod server;

use self::{
    client::Clients,
    device::SimDevice,
    exchange::SimExchange,
    network::SimNetwork,
    queue::{Event, SimState, START},
    record::{Bins, Diary},
    server::{ServerSetup, SimServer},
};
use crate::{
    outcome::{self, Outcome},
    scenario::{self, Scenario},
};
use nrs_sched::{partition::slot_pool::PARTITIONS_MAX, rng::avalanche};
use std::time::Instant;

/// Number of events between two reports of progress.
const LOOK: u64 = 1 << 16;

/// Settings of a run that are not in the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Lateness of the timers of policies, ns.
    pub lateness_ns: u64,
    /// True to record bytes per server, job and bin.
    pub server_bins: bool,
    /// Number of events after which the run ends at the latest; 0 for no limit.
    pub events: u64,
}

/// Simulation of one scenario.
pub struct Engine {
    state: SimState,
    end: u64,
    settings: Settings,
    clients: Clients,
    network: SimNetwork,
    servers: Vec<SimServer>,
    exchange: Option<SimExchange>,
    diaries: Vec<Diary>,
    bins: Bins,
    events: u64,
}

/// Derives the seed for a purpose from the seed of a run.
fn seed_for(seed: u64, purpose: u64) -> u64 {
    avalanche(seed.wrapping_add(avalanche(purpose)))
}

impl Engine {
    /// Creates a run of `scenario`.
    ///
    /// # Errors
    ///
    /// The name of a server and the reason: its policy line, rule, plan, parameter or device is
    /// invalid.
    pub fn new(scenario: &Scenario, settings: Settings) -> Result<Self, String> {
        let seed = scenario.seed;
        let names = scenario.server_names();
        let end = scenario.duration.0;
        let clients = Clients::new(&scenario.jobs, &names, end, seed_for(seed, 1))?;
        let sample = scenario.sample.0.max(1);
        let bins = Bins {
            sample,
            count: end.div_ceil(sample) as usize,
            settle: scenario.settle.0,
        };
        let mut servers = Vec::new();
        for written in &scenario.servers {
            for name in written.names() {
                let index = servers.len() as u32;
                let server = make_server(scenario, written, &name, index, settings);
                let mut server = server.map_err(|reason| format!("server {name}: {reason}"))?;
                if settings.server_bins {
                    server.bins = vec![vec![0; bins.count]; scenario.jobs.len()];
                }
                servers.push(server);
            }
        }
        let policies: Vec<String> = policies_of(scenario).collect();
        let exchange = scenario.exchange.as_ref();
        let exchange =
            exchange.map(|written| SimExchange::new(written, &names, &policies, seed_for(seed, 4)));
        Ok(Self {
            exchange: exchange.transpose()?,
            state: SimState {
                now: START,
                ..SimState::default()
            },
            end: START + end,
            settings,
            network: SimNetwork::new(&scenario.network, clients.nodes(), seed_for(seed, 2)),
            clients,
            servers,
            diaries: scenario.jobs.iter().map(|_| Diary::new(&bins)).collect(),
            bins,
            events: 0,
        })
    }

    /// Runs to the end; reports the simulated time and the duration, ns, to `look` now and then.
    pub fn run(&mut self, mut look: impl FnMut(u64, u64)) {
        for server in &mut self.servers {
            server.begin(&mut self.state);
        }
        self.clients.begin(&mut self.state.queue);
        if let Some(exchange) = &mut self.exchange {
            exchange.begin(&mut self.state.queue);
        }
        let mut over = false;
        while let Some((time, event)) = self.state.queue.pop_until(self.end) {
            self.state.now = time;
            self.events += 1;
            self.handle(event);
            if self.events % LOOK == 0 {
                look(time - START, self.end - START);
            }
            over = self.clients.are_done() || self.events == self.settings.events;
            if over {
                break;
            }
        }
        if !over {
            self.state.now = self.end;
        }
        for server in &mut self.servers {
            server.account_withheld(self.state.now);
        }
    }

    fn handle(&mut self, event: Event) {
        let (now, state) = (self.state.now, &mut self.state);
        let server = |index: u32| index as usize;
        match event {
            Event::Issue(process) => {
                if let Some(record) = self.clients.issue(&mut state.queue, process, now) {
                    let at = self.network.request(&record, now);
                    let idx = state.records.insert(record);
                    state.queue.push(at, Event::Arrive(idx));
                }
            }
            Event::Round(job) => self.clients.round(&mut state.queue, job, now),
            Event::Arrive(idx) => {
                let record = *state.records.at(idx);
                let attrs = || self.clients.attrs(&record);
                self.servers[server(record.server)].arrive(state, idx, attrs);
            }
            Event::Done(idx) => {
                let record = *state.records.at(idx);
                let at = self.network.answer(&record, now);
                state.queue.push(at, Event::Reply(idx));
                let server = &mut self.servers[server(record.server)];
                if let Some(bins) = server.bins.get_mut(record.job as usize) {
                    bins[self.bins.at(now)] += record.bytes;
                }
                server.complete(state, idx);
            }
            Event::Reply(idx) => {
                let record = state.records.remove(idx);
                self.diaries[record.job as usize].add(&record, &self.bins, now);
                self.clients.answered(&mut state.queue, &record, now);
            }
            Event::Wake(timer) => {
                let place = timer as usize % PARTITIONS_MAX;
                self.servers[server(timer) / PARTITIONS_MAX].wake(state, place);
            }
            Event::Work(index) => self.servers[server(index)].work(state),
            Event::Call(index) => self.servers[server(index)].answer(state),
            Event::Exchange(participant) => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.step(participant, &mut self.servers[server(participant)], state);
                }
            }
            Event::Deliver(datagram) => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.deliver(datagram, now);
                }
            }
        }
    }

    /// Returns the results of the run.
    pub fn outcome(&mut self, scenario: &Scenario) -> Outcome {
        let jobs = scenario
            .jobs
            .iter()
            .zip(&self.clients.jobs)
            .zip(&self.diaries);
        let jobs = jobs.map(|((written, job), diary)| outcome::JobOutcome {
            name: written.name.clone(),
            issued: job.issued,
            unfinished: job.outstanding,
            completed_ns: job.completed.map(|at| at - START),
            rounds: job.rounds(),
            ..diary.job()
        });
        let jobs = jobs.collect();
        let servers = self.servers.iter_mut().zip(policies_of(scenario));
        let servers = servers.map(|(server, policy)| server.outcome(policy));
        Outcome {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            seed: scenario.seed,
            duration_ns: scenario.duration.0,
            ended_ns: self.state.now - START,
            sample_ns: self.bins.sample,
            settle_ns: self.bins.settle,
            events: self.events,
            outstanding_most: self.state.records.most() as u64,
            jobs,
            servers: servers.collect(),
            exchange: self.exchange.as_ref().map(SimExchange::counts),
            wall: std::time::Duration::ZERO,
        }
    }
}

/// Returns the policy line of each server.
fn policies_of(scenario: &Scenario) -> impl Iterator<Item = String> + '_ {
    let servers = scenario.servers.iter();
    servers.flat_map(|server| server.names().map(|_| server.policy.clone()))
}

/// Creates the server with number `index` from `written`.
fn make_server(
    scenario: &Scenario,
    written: &scenario::Server,
    name: &str,
    index: u32,
    settings: Settings,
) -> Result<SimServer, String> {
    let seed = seed_for(scenario.seed, 1_000 + u64::from(index));
    let device = scenario.device(&written.device);
    let device = device.ok_or_else(|| format!("unknown device `{}`", written.device))?;
    let device = SimDevice::new(device, seed_for(seed, 1))?;
    let setup = ServerSetup {
        index,
        name: name.to_string(),
        device,
        slots: written.slots,
        jobs: scenario.jobs.len(),
        now: START,
        lateness: settings.lateness_ns,
    };
    // All servers use the same secret, so that an entity has the same name on each.
    let secret = seed_for(scenario.seed, 3);
    let started = policy::start(written, secret, seed_for(seed, 2), START);
    let started = started.map_err(|(key, reason)| format!("{key} {reason}"))?;
    Ok(SimServer::new(setup, started))
}

/// Runs `scenario`.
///
/// # Errors
///
/// See [`Engine::new`].
pub fn run(scenario: &Scenario) -> Result<Outcome, String> {
    run_with(scenario, Settings::default(), |_, _| ())
}

/// Runs `scenario` with `settings`; reports the simulated time and the duration, ns, to `look`.
///
/// # Errors
///
/// See [`Engine::new`].
pub fn run_with(
    scenario: &Scenario,
    settings: Settings,
    look: impl FnMut(u64, u64),
) -> Result<Outcome, String> {
    let begin = Instant::now();
    let mut engine = Engine::new(scenario, settings)?;
    engine.run(look);
    let mut outcome = engine.outcome(scenario);
    outcome.wall = begin.elapsed();
    Ok(outcome)
}

/// Number of jobs in the benchmark.
const SPEED_JOBS: u32 = 64;

/// Runs a benchmark of `events` events: 64 jobs of 4 nodes with 4 processes, one fairshare server.
///
/// # Errors
///
/// None: the built-in scenario is valid.
pub fn speed(events: u64) -> Result<Outcome, String> {
    let mut text = String::from(
        "name = \"events\"\nduration = \"1h\"\nsample = \"60s\"\nsettle = \"0s\"\n\
         [network]\nlatency = \"20us\"\njitter = \"5us\"\n\
         [[device]]\nname = \"nvme\"\nkind = \"pipe\"\nbandwidth = \"20GB/s\"\nlatency = \"80us\"\n\
         [[server]]\nname = \"oss\"\nslots = 64\ndevice = \"nvme\"\npolicy = \"fairshare\"\n",
    );
    for job in 0..SPEED_JOBS {
        text += &format!("[[job]]\nname = \"j{job}\"\nnodes = 4\nprocs = 4\nio = \"64KiB\"\n");
    }
    let scenario = Scenario::parse("events", &text, &[]).map_err(|faults| faults.to_string())?;
    let settings = Settings {
        events,
        ..Settings::default()
    };
    run_with(&scenario, settings, |_, _| ())
}
