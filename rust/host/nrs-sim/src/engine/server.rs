// SPDX-License-Identifier: GPL-2.0-only

//! Servers: partitions, the slots that they share, a device, and the worker.
//!
//! - *Lane*: a partition of the server, which is a CPT. A client's NID decides which partition
//!   takes its requests ([`Lane`]).
//! - *Yard*: the device, the slots and the timers of a server: the state that all partitions share.
//! - *Worker*: runs every delta, and on a call because a part needs memory or gates.
//!
//! Partitions, slots and turns are kernel code ([`nrs_sched::partition`]). A baseline has slots
//! only. No request of a scenario has high priority, so no slot is reserved for high priority.

mod worker;

use super::{
    device::SimDevice,
    item::{Item, Record},
    lane::Lane,
    policy::Started,
    queue::{Event, Scene},
    throttle::Throttle,
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
    policy::{control::Parameters, AnyOverseer, AnyPart, Config, Decision, Part as _, Upkeep},
    ranges::{RangeBuilder, RangeTable},
    rng::avalanche,
    slots::SlotLimits,
};

/// Scheduler of a server.
pub enum Order {
    /// A policy of the kernel, with one lane for each partition.
    Lanes(Vec<Lane>),
    /// A baseline; it ignores partitions.
    Throttle(Box<Throttle>),
}

/// State of a server that all its partitions share.
struct Yard {
    /// Index of the server.
    server: u32,
    device: SimDevice,
    line: SlotPool,
    /// Table of the shares that were published last.
    table: Option<RangeTable>,
    /// Number of requests queued in all lanes.
    queued: u64,
    /// Maximum number of requests in the server, queued or in flight.
    held_most: u64,
    /// Lateness of timers, ns.
    lateness: u64,
}

impl Yard {
    /// Returns the limits of the slots at `now`, ns.
    fn limits(&self, now: u64) -> SlotLimits {
        self.line.limits(0, now / MS)
    }

    /// Returns the number of requests in flight.
    fn active(&self) -> u32 {
        self.line.used().active()
    }

    /// Updates the maximum number of requests in the server.
    fn count_held(&mut self) {
        let held = self.queued + u64::from(self.active());
        self.held_most = self.held_most.max(held);
    }

    /// Dispatches the request at index `slot` to the device.
    fn start(&mut self, scene: &mut Scene, slot: u32) {
        let now = scene.now;
        let record: &mut Record = scene.records.at(slot);
        record.started = now;
        let service = self.device.serve(record, now);
        record.device_ns = service.time;
        scene.queue.push(service.done, Event::Done(slot));
        self.count_held();
    }
}

/// Environment of the partition at `index` during an event.
struct Surroundings<'a> {
    yard: &'a mut Yard,
    scene: &'a mut Scene,
    index: u16,
    /// Expiry time of the partition's timer, ns.
    timer: &'a mut u64,
}

impl Env<Item, Config> for Surroundings<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.yard.line
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn now(&self) -> u64 {
        self.scene.now
    }

    fn millis(&self) -> u64 {
        self.scene.now / MS
    }

    fn ratio(&self) -> u32 {
        0
    }

    fn arm(&mut self, at: u64) {
        *self.timer = at;
        let timer = self.yard.server * PARTITIONS_MAX as u32 + u32::from(self.index);
        let at = at + self.yard.lateness;
        self.scene.queue.push(at, Event::Wake(timer));
    }

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        f(self.yard.table.as_ref())
    }

    fn send(&mut self, item: Item) {
        self.yard.queued -= 1;
        self.scene.records.at(item.slot).ticket = item.placement().ticket;
        self.yard.start(self.scene, item.slot);
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

    fn hold(&mut self, _item: &mut Item, _now: u64) {
        self.yard.queued += 1;
    }
}

/// Partitions of a server during an event.
struct Turns<'a> {
    lanes: &'a mut [Lane],
    yard: &'a mut Yard,
    scene: &'a mut Scene,
}

impl Turns<'_> {
    /// Returns the partition at `index` and its environment.
    fn at(
        &mut self,
        index: u16,
    ) -> (
        &mut PartitionMachine<Item, AnyPart<Item>, Config>,
        Surroundings<'_>,
    ) {
        let lane = &mut self.lanes[usize::from(index)];
        let surroundings = Surroundings {
            yard: self.yard,
            scene: self.scene,
            index,
            timer: &mut lane.timer,
        };
        (&mut lane.machine, surroundings)
    }
}

impl round::RoundPartitions for Turns<'_> {
    fn slot_pool(&self) -> &SlotPool {
        &self.yard.line
    }

    fn limits(&self) -> SlotLimits {
        self.yard.limits(self.scene.now)
    }

    fn decide(&mut self, index: u16, most: u32) -> Decided {
        let now = self.scene.now;
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
    /// Scheduler of the server.
    order: Order,
    /// Number of requests dispatched without being queued.
    passed: u64,
    /// Counts of completed requests by job.
    jobs: Vec<Count>,
    /// Bytes by job and bin; empty unless requested by [`Settings`](super::Settings).
    pub bins: Vec<Vec<u64>>,
    /// Parameters of the policy; `None` for a baseline.
    pub parameters: Option<Parameters>,
    yard: Yard,
    /// Time during which requests were queued and none was in flight, ns.
    withheld: u64,
    /// Time of the last update of `withheld`, ns.
    seen: u64,
    overseer: Option<AnyOverseer>,
    upkeep: Upkeep,
    /// Time of the next full run of the worker or, for a baseline, of the timer, ns.
    due: u64,
    /// True if a run of the worker is scheduled after a call.
    called: bool,
    outline: RangeBuilder,
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
    pub fn with_policy(setup: ServerSetup, started: Started) -> Self {
        let config = started.config;
        let lane = |part| Lane::new(config, part, setup.now);
        let lanes: Vec<Lane> = started.parts.into_iter().map(lane).collect();
        let mut server = Self::new(setup, Order::Lanes(lanes));
        server.upkeep = started.parameters.values.policies.upkeep();
        server.parameters = Some(started.parameters);
        server.overseer = started.overseer;
        server
    }

    /// Creates a server with the baseline `throttle`.
    pub fn with_throttle(setup: ServerSetup, throttle: Box<Throttle>) -> Self {
        Self::new(setup, Order::Throttle(throttle))
    }

    fn new(setup: ServerSetup, order: Order) -> Self {
        let partitions = match &order {
            Order::Lanes(lanes) => lanes.len(),
            Order::Throttle(_) => 1,
        };
        Self {
            index: setup.index,
            name: setup.name,
            order,
            passed: 0,
            jobs: vec![Count::default(); setup.jobs],
            bins: Vec::new(),
            parameters: None,
            yard: Yard {
                server: setup.index,
                device: setup.device,
                line: SlotPool::new(partitions as u16, setup.slots.max(1)),
                table: None,
                queued: 0,
                held_most: 0,
                lateness: setup.lateness,
            },
            withheld: 0,
            seen: 0,
            overseer: None,
            upkeep: Upkeep::default(),
            due: 0,
            called: false,
            outline: RangeBuilder::new(),
        }
    }

    /// Starts the worker, or the ticks of a baseline.
    pub fn begin(&mut self, Scene { queue, now, .. }: &mut Scene) {
        let now = *now;
        self.seen = now;
        match &self.order {
            Order::Lanes(_) => queue.push(now, Event::Work(self.index)),
            Order::Throttle(throttle) => {
                if throttle.interval() > 0 {
                    queue.push(now + throttle.interval(), Event::Tick(self.index));
                }
            }
        }
    }

    /// Returns the lanes; none for a baseline.
    pub fn lanes(&mut self) -> &mut [Lane] {
        match &mut self.order {
            Order::Lanes(lanes) => lanes,
            Order::Throttle(_) => &mut [],
        }
    }

    /// Returns the results of the server; `policy` is the policy line.
    pub fn outcome(&mut self, policy: String) -> outcome::ServerOutcome {
        let lanes = self.lanes().iter_mut();
        let overflow = lanes.map(|lane| lane.part().overflow()).sum();
        outcome::ServerOutcome {
            name: self.name.clone(),
            policy,
            total: self
                .jobs
                .iter()
                .fold(Count::default(), |sum, count| sum.and(*count)),
            busy_ns: self.yard.device.busy(),
            withheld_ns: self.withheld,
            passed: self.passed,
            held_most: self.yard.held_most,
            overflow,
            jobs: self.jobs.clone(),
            bins_bytes: self.bins.clone(),
        }
    }

    /// Adds the time since the last call to `withheld` if requests are queued and none is in
    /// flight.
    pub fn look(&mut self, now: u64) {
        if self.yard.active() == 0 && self.yard.queued > 0 {
            self.withheld += now - self.seen;
        }
        self.seen = now;
    }

    /// Returns the partitions for an event; `None` for a baseline.
    fn turns<'a>(&'a mut self, scene: &'a mut Scene) -> Option<Turns<'a>> {
        match &mut self.order {
            Order::Lanes(lanes) => Some(Turns {
                lanes,
                yard: &mut self.yard,
                scene,
            }),
            Order::Throttle(_) => None,
        }
    }

    /// Handles the arrival of the request at index `slot`, which has the attributes `attrs`.
    pub fn arrive(&mut self, scene: &mut Scene, slot: u32, attrs: impl Fn() -> Attrs) {
        self.look(scene.now);
        let record = scene.records.at(slot);
        record.arrived = scene.now;
        let (record, item) = (*record, Item::new(slot, record));
        if let Order::Throttle(throttle) = &mut self.order {
            throttle.enqueue(record.job, item, scene.now);
            self.yard.queued += 1;
            self.yard.count_held();
            return self.dispatch_baseline(scene);
        }
        let Some(mut turns) = self.turns(scene) else {
            return;
        };
        let home = home(record.node, turns.lanes.len());
        let ident = turns.lanes[home].ident(&record);
        let terms = ArrivalTerms {
            ident: Some(&ident),
            forced: Forced::No,
            may_pass: true,
            relation: None,
            may_overflow: true,
        };
        let (machine, mut env) = turns.at(home as u16);
        let arrived = machine.arrive(&mut env, item, &terms, &attrs);
        let passed = matches!(arrived.went, AdmissionOutcome::Passed(_));
        if passed {
            turns.yard.start(turns.scene, slot);
        }
        turns.yard.count_held();
        round::arrived(&mut turns, arrived.others);
        self.passed += u64::from(passed);
        if arrived.needs_memory {
            self.call(scene);
        }
    }

    /// Handles the completion of the request at index `slot`.
    pub fn complete(&mut self, scene: &mut Scene, slot: u32) {
        let now = scene.now;
        self.look(now);
        self.yard.line.put(Priority::Regular);
        let record = scene.records.at(slot);
        self.jobs[record.job as usize].add(record.bytes, record.device_ns);
        let (ticket, record) = (record.ticket.take(), *record);
        if let Order::Throttle(throttle) = &mut self.order {
            throttle.stop(record.job, record.bytes);
            return self.dispatch_baseline(scene);
        }
        let Some(mut turns) = self.turns(scene) else {
            return;
        };
        let placement = Placement {
            ticket,
            admission: Admission::Slot,
            ..Placement::default()
        };
        let home = ticket.map(|_| home(record.node, turns.lanes.len()) as u16);
        if home.is_some() || !turns.yard.line.is_uncontended() {
            round::ended(&mut turns, home, |turns, index, most| {
                let (machine, mut env) = turns.at(index);
                machine.end(&mut env, now, &placement, record.cost(), most);
            });
        }
    }

    /// Handles the expiry of the timer of partition `index`.
    pub fn wake(&mut self, scene: &mut Scene, index: usize) {
        let (now, late) = (scene.now, self.yard.lateness);
        self.look(now);
        let Some(mut turns) = self.turns(scene) else {
            return self.dispatch_baseline(scene);
        };
        let timer = &mut turns.lanes[index].timer;
        // The timer was armed for another time since.
        if timer.wrapping_add(late) != now {
            return;
        }
        *timer = 0;
        let (machine, mut env) = turns.at(index as u16);
        machine.expired(&mut env, now);
        let (line, limits) = (&turns.yard.line, || turns.yard.limits(now));
        if round::is_needed(line, index as u16, limits) {
            round::pass_on(&mut turns, 0);
        }
    }

    /// Dispatches requests while slots are free.
    fn pass_on(&mut self, scene: &mut Scene) {
        match self.turns(scene) {
            Some(mut turns) => round::pass_on(&mut turns, 0),
            None => self.dispatch_baseline(scene),
        }
    }

    /// Dispatches requests after a change of throttles.
    fn run_all(&mut self, scene: &mut Scene) {
        let now = scene.now;
        if let Some(mut turns) = self.turns(scene) {
            for index in 0..turns.lanes.len() {
                let (machine, mut env) = turns.at(index as u16);
                machine.reconsider(&mut env, now);
            }
        }
        self.pass_on(scene);
    }

    fn dispatch_baseline(&mut self, scene: &mut Scene) {
        let (now, index, late) = (scene.now, self.index, self.yard.lateness);
        let Order::Throttle(throttle) = &mut self.order else {
            return;
        };
        let limits = self.yard.limits(now);
        while self.yard.line.take(Priority::Regular, &limits) {
            let found = throttle.get(now);
            if let Decision::Item(item) = found {
                self.yard.queued -= 1;
                self.yard.start(scene, item.slot);
                continue;
            }
            self.yard.line.put(Priority::Regular);
            match found {
                Decision::Item(_) | Decision::Empty | Decision::Throttled { until: u64::MAX } => {
                    break
                }
                Decision::Throttled { until } => {
                    if self.due <= now || until < self.due {
                        self.due = until.max(now + 1);
                        let timer = index * PARTITIONS_MAX as u32;
                        scene.queue.push(self.due + late, Event::Wake(timer));
                    }
                    break;
                }
            }
        }
    }

    /// Handles the tick of a baseline.
    pub fn tick(&mut self, scene: &mut Scene) {
        self.look(scene.now);
        if let Order::Throttle(throttle) = &mut self.order {
            throttle.tick(scene.now);
            let next = scene.now + throttle.interval().max(1);
            scene.queue.push(next, Event::Tick(self.index));
        }
        self.pass_on(scene);
    }
}

/// Returns the partition of a node, of `count`; the hash of the NID decides.
pub fn home(node: u32, count: usize) -> usize {
    match count {
        0 | 1 => 0,
        count => (avalanche(u64::from(node) + 1) % count as u64) as usize,
    }
}
