// SPDX-License-Identifier: GPL-2.0-only

//! Servers: partitions, the slots that they share, a device, and the worker.
//!
//! - *Partition*: one for each CPT. A client's NID decides which partition takes its requests
//!   ([`SimPartition`]).
//! - *Target*: the device and the slots of a server: the state that all its partitions share.
//! - *Worker*: runs every delta, and on a call because a part needs memory or gates.
//!
//! Partitions, slots and rounds are kernel code ([`nrs_sched::partition`]). No request of a
//! scenario has high priority, so no slot is reserved for high priority.

mod worker;

use super::{
    device::SimDevice,
    item::{Item, Record},
    partition::SimPartition,
    policy::Started,
    queue::{Event, SimState},
};
use crate::outcome::{self, Count};
use nrs_sched::units::NSEC_PER_MSEC as MS;
use nrs_sched::{
    attr::{Attrs, Priority},
    order::Forced,
    partition::{
        admit::{AdmissionOutcome, ArrivalTerms},
        decide::Decided,
        round,
        slot_pool::{SlotPool, PARTITIONS_MAX},
        Admission, Env, PartitionMachine, Placement, Scheduled as _,
    },
    policy::{control::Parameters, AnyOverseer, AnyPart, Config, Part as _, Upkeep},
    ranges::{RangeBuilder, RangeTable},
    rng::avalanche,
    slots::SlotLimits,
};

/// State of a server that all its partitions share.
struct SimTarget {
    /// Index of the server.
    server: u32,
    device: SimDevice,
    slot_pool: SlotPool,
    /// Table of the shares that were published last.
    table: Option<RangeTable>,
    /// Number of requests queued in all partitions.
    queued: u64,
    /// Maximum number of requests in the server, queued or in flight.
    held_most: u64,
    /// Lateness of timers, ns.
    lateness: u64,
}

impl SimTarget {
    /// Returns the limits of the slots at `now`, ns.
    fn limits(&self, now: u64) -> SlotLimits {
        self.slot_pool.limits(0, now / MS)
    }

    /// Returns the number of requests in flight.
    fn active(&self) -> u32 {
        self.slot_pool.used().active()
    }

    /// Updates the maximum number of requests in the server.
    fn count_held(&mut self) {
        let held = self.queued + u64::from(self.active());
        self.held_most = self.held_most.max(held);
    }

    /// Dispatches the request at index `idx` to the device.
    fn start(&mut self, state: &mut SimState, idx: u32) {
        let now = state.now;
        let record: &mut Record = state.records.at(idx);
        record.started = now;
        let service = self.device.serve(record, now);
        record.device_ns = service.time;
        state.queue.push(service.done, Event::Done(idx));
        self.count_held();
    }
}

/// Environment of the partition at `index` during an event.
struct SimEnv<'a> {
    target: &'a mut SimTarget,
    state: &'a mut SimState,
    index: u16,
    /// Expiry time of the partition's timer, ns.
    timer: &'a mut u64,
}

impl Env<Item, Config> for SimEnv<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.target.slot_pool
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn now(&self) -> u64 {
        self.state.now
    }

    fn millis(&self) -> u64 {
        self.state.now / MS
    }

    fn ratio(&self) -> u32 {
        0
    }

    fn arm(&mut self, at: u64) {
        *self.timer = at;
        let timer = self.target.server * PARTITIONS_MAX as u32 + u32::from(self.index);
        let at = at + self.target.lateness;
        self.state.queue.push(at, Event::Wake(timer));
    }

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        f(self.target.table.as_ref())
    }

    fn send(&mut self, item: Item) {
        self.target.queued -= 1;
        self.state.records.at(item.idx).ticket = item.placement().ticket;
        self.target.start(self.state, item.idx);
    }

    fn admit_over(&mut self) -> Admission {
        Admission::Over
    }

    fn admit(&mut self) -> Option<Admission> {
        Some(Admission::Over)
    }

    fn bypass(&mut self, item: Item) {
        self.send(item);
    }

    fn begin_queueing(&mut self, _item: &mut Item, _now: u64) {
        self.target.queued += 1;
    }
}

/// Partitions of a server during an event.
struct RoundState<'a> {
    partitions: &'a mut [SimPartition],
    target: &'a mut SimTarget,
    state: &'a mut SimState,
}

impl RoundState<'_> {
    /// Returns the partition at `index` and its environment.
    fn at(
        &mut self,
        index: u16,
    ) -> (
        &mut PartitionMachine<Item, AnyPart<Item>, Config>,
        SimEnv<'_>,
    ) {
        let partition = &mut self.partitions[usize::from(index)];
        let env = SimEnv {
            target: self.target,
            state: self.state,
            index,
            timer: &mut partition.timer,
        };
        (&mut partition.machine, env)
    }
}

impl round::RoundPartitions for RoundState<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.target.slot_pool
    }

    fn limits(&self) -> SlotLimits {
        self.target.limits(self.state.now)
    }

    fn decide(&mut self, index: u16, most: u32) -> Decided {
        let now = self.state.now;
        let (machine, mut env) = self.at(index);
        machine.decide_more(&mut env, now, most)
    }
}

/// Server of a scenario.
pub struct SimServer {
    /// Index of the server.
    index: u32,
    /// Name of the server.
    name: String,
    /// Partitions of the server.
    pub partitions: Vec<SimPartition>,
    /// Number of requests dispatched without being queued.
    passed: u64,
    /// Counts of completed requests by job.
    jobs: Vec<Count>,
    /// Bytes by job and bin; empty unless requested by [`Settings`](super::Settings).
    pub bins: Vec<Vec<u64>>,
    /// Parameters of the policy.
    pub parameters: Parameters,
    target: SimTarget,
    /// Time during which requests were queued and none was in flight, ns.
    withheld: u64,
    /// Time of the last update of `withheld`, ns.
    seen: u64,
    overseer: Option<AnyOverseer>,
    upkeep: Upkeep,
    /// Time of the next full run of the worker, ns.
    due: u64,
    /// True if a run of the worker is scheduled after a call.
    called: bool,
    builder: RangeBuilder,
}

/// Parameters of a new server.
pub struct ServerSetup {
    /// Index of the server.
    pub index: u32,
    /// Name of the server.
    pub name: String,
    /// Device of the server.
    pub device: SimDevice,
    /// Number of slots.
    pub slots: u32,
    /// Number of jobs.
    pub jobs: usize,
    /// Start time, ns.
    pub now: u64,
    /// Lateness of timers, ns.
    pub lateness: u64,
}

impl SimServer {
    /// Creates a server with the policy `started`.
    pub fn new(setup: ServerSetup, started: Started) -> Self {
        let config = started.config;
        let partition = |part| SimPartition::new(config, part, setup.now);
        let partitions: Vec<SimPartition> = started.parts.into_iter().map(partition).collect();
        Self {
            index: setup.index,
            name: setup.name,
            passed: 0,
            jobs: vec![Count::default(); setup.jobs],
            bins: Vec::new(),
            target: SimTarget {
                server: setup.index,
                device: setup.device,
                slot_pool: SlotPool::new(partitions.len() as u16, setup.slots.max(1)),
                table: None,
                queued: 0,
                held_most: 0,
                lateness: setup.lateness,
            },
            withheld: 0,
            seen: 0,
            overseer: started.overseer,
            upkeep: started.parameters.values.policies.upkeep(),
            parameters: started.parameters,
            partitions,
            due: 0,
            called: false,
            builder: RangeBuilder::new(),
        }
    }

    /// Starts the worker.
    pub fn begin(&mut self, state: &mut SimState) {
        self.seen = state.now;
        state.queue.push(state.now, Event::Work(self.index));
    }

    /// Returns the results of the server; `policy` is the policy line.
    pub fn outcome(&mut self, policy: String) -> outcome::ServerOutcome {
        let partitions = self.partitions.iter_mut();
        let overflow = partitions
            .map(|partition| partition.part().overflow())
            .sum();
        outcome::ServerOutcome {
            name: self.name.clone(),
            policy,
            total: self
                .jobs
                .iter()
                .fold(Count::default(), |sum, count| sum.and(*count)),
            busy_ns: self.target.device.busy(),
            withheld_ns: self.withheld,
            passed: self.passed,
            held_most: self.target.held_most,
            overflow,
            jobs: self.jobs.clone(),
            bins_bytes: self.bins.clone(),
        }
    }

    /// Adds the time since the last call to `withheld` if requests are queued and none is in
    /// flight.
    pub fn account_withheld(&mut self, now: u64) {
        if self.target.active() == 0 && self.target.queued > 0 {
            self.withheld += now - self.seen;
        }
        self.seen = now;
    }

    /// Returns the partitions for an event.
    fn round<'a>(&'a mut self, state: &'a mut SimState) -> RoundState<'a> {
        RoundState {
            partitions: &mut self.partitions,
            target: &mut self.target,
            state,
        }
    }

    /// Handles the arrival of the request at index `idx`, which has the attributes `attrs`.
    pub fn arrive(&mut self, state: &mut SimState, idx: u32, attrs: impl Fn() -> Attrs) {
        self.account_withheld(state.now);
        let record = state.records.at(idx);
        record.arrived = state.now;
        let (record, item) = (*record, Item::new(idx, record));
        let mut round = self.round(state);
        let home = home(record.node, round.partitions.len());
        let ident = round.partitions[home].ident(&record);
        let terms = ArrivalTerms {
            ident: Some(&ident),
            forced: Forced::No,
            may_pass: true,
            relation: None,
            may_overflow: true,
        };
        let (machine, mut env) = round.at(home as u16);
        let arrived = machine.arrive(&mut env, item, &terms, &attrs);
        let passed = matches!(arrived.went, AdmissionOutcome::Passed(_));
        if passed {
            round.target.start(round.state, idx);
        }
        round.target.count_held();
        round::arrived(&mut round, arrived.others);
        self.passed += u64::from(passed);
        if arrived.needs_memory {
            self.call(state);
        }
    }

    /// Handles the completion of the request at index `idx`.
    pub fn complete(&mut self, state: &mut SimState, idx: u32) {
        let now = state.now;
        self.account_withheld(now);
        self.target.slot_pool.put(Priority::Regular);
        let record = state.records.at(idx);
        self.jobs[record.job as usize].add(record.bytes, record.device_ns);
        let (ticket, record) = (record.ticket.take(), *record);
        let mut round = self.round(state);
        let placement = Placement {
            ticket,
            admission: Admission::Slot,
            ..Placement::default()
        };
        let home = ticket.map(|_| home(record.node, round.partitions.len()) as u16);
        if home.is_some() || !round.target.slot_pool.is_uncontended() {
            round::ended(&mut round, home, |round, index, most| {
                let (machine, mut env) = round.at(index);
                machine.end(&mut env, now, &placement, record.cost(), most);
            });
        }
    }

    /// Handles the expiry of the timer of partition `index`.
    pub fn wake(&mut self, state: &mut SimState, index: usize) {
        let (now, late) = (state.now, self.target.lateness);
        self.account_withheld(now);
        let mut round = self.round(state);
        let timer = &mut round.partitions[index].timer;
        // The timer was armed for another time since.
        if timer.wrapping_add(late) != now {
            return;
        }
        *timer = 0;
        let (machine, mut env) = round.at(index as u16);
        machine.expired(&mut env, now);
        let (pool, limits) = (&round.target.slot_pool, || round.target.limits(now));
        if round::is_needed(pool, index as u16, limits) {
            round::pass_on(&mut round, 0);
        }
    }

    /// Dispatches requests while slots are free.
    fn pass_on(&mut self, state: &mut SimState) {
        round::pass_on(&mut self.round(state), 0);
    }

    /// Dispatches requests after a change of throttles.
    fn run_all(&mut self, state: &mut SimState) {
        let now = state.now;
        let mut round = self.round(state);
        for index in 0..round.partitions.len() {
            let (machine, mut env) = round.at(index as u16);
            machine.reconsider(&mut env, now);
        }
        self.pass_on(state);
    }
}

/// Returns the partition of a node, of `count`; the hash of the NID decides.
pub fn home(node: u32, count: usize) -> usize {
    match count {
        0 | 1 => 0,
        count => (avalanche(u64::from(node) + 1) % count as u64) as usize,
    }
}
