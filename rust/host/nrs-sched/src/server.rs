// SPDX-License-Identifier: GPL-2.0-only

//! A partition with its target, device and timer in simulated time.

use crate::{
    arena::{config_of, feed, lone_part, refresh, walk, Request},
    attr::{Attrs, Priority},
    item::Item,
    mem::{Need, NoMemory, Owned},
    order::{Forced, Order, RecordId, Relation},
    parameters::service::Ratio,
    partition::{
        admit::{AdmissionOutcome, ArrivalTerms},
        decide::Decided,
        head_cache::HeadCache,
        pull::PullGate,
        round,
        slot_pool::SlotPool,
        Admission, Env, PartitionMachine, BATCH,
    },
    policy::{AnyPart, AnyUpdate, Config, Kind, Part},
    ranges::RangeTable,
    slots::SlotLimits,
    units::NSEC_PER_MSEC,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

/// Relation of a request to earlier requests, as the front-end declares it.
#[derive(Clone, Copy, Debug)]
pub enum Relate {
    /// Unordered, without a record.
    Not,
    /// Ordered by the request's range in a domain.
    Range(u64),
    /// Ordered by an explicit relation; the front-end can retry if no record is free.
    As(Relation),
}

/// Phase of a request between arrival and completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Blocked by other requests.
    Blocked,
    /// Not in the order table, because no record is free.
    Overflowed,
    /// Queued in the head of this priority.
    Queued(Priority),
    /// Dispatched to the device.
    Started,
}

/// Environment of the partition.
struct ServerEnv {
    slot_pool: SlotPool,
    now: u64,
    /// Expiry of the timer, ns; 0 if it is not armed.
    timer: u64,
    started: Vec<u64>,
    /// Phase and record of each request from arrival to completion.
    here: BTreeMap<u64, (RequestPhase, Option<RecordId>)>,
    /// Requests in flight.
    device: HashMap<u64, Request>,
    /// The gate of a device that pulls.
    gate: Option<Rc<PullGate>>,
}

impl Env<Request, Config> for ServerEnv {
    fn slot_pool(&self) -> &SlotPool {
        &self.slot_pool
    }

    fn index(&self) -> u16 {
        0
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn millis(&self) -> u64 {
        self.now / NSEC_PER_MSEC
    }

    fn ratio(&self) -> u32 {
        Ratio::default().get()
    }

    fn arm(&mut self, at: u64) {
        self.timer = at;
    }

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&RangeTable>) -> R) -> R {
        f(None)
    }

    fn send(&mut self, request: Request) {
        assert_eq!(request.registered, 0, "found in a queue though it started");
        self.started.push(request.id);
        let at = (RequestPhase::Started, request.placement.record);
        self.here.insert(request.id, at);
        self.device.insert(request.id, request);
    }

    fn batch(&self) -> Option<u32> {
        match &self.gate {
            Some(gate) => gate.batch(),
            None => Some(BATCH),
        }
    }

    fn record_more(&mut self) {
        let _ = self.gate.as_ref().map(|gate| gate.open());
    }

    fn admit_over(&mut self) -> Admission {
        Admission::Over
    }

    fn admit(&mut self) -> Option<Admission> {
        Some(Admission::Over)
    }

    fn bypass(&mut self, mut request: Request) {
        request.placement.admission = Admission::Over;
        self.send(request);
    }

    fn begin_queueing(&mut self, _request: &mut Request, _now: u64) {}

    fn note_queued(&mut self, request: &Request) {
        let placement = &request.placement;
        let at = (RequestPhase::Queued(placement.priority), placement.record);
        self.here.insert(request.id, at);
    }
}

/// A partition with its front-end and its device.
pub struct Server {
    /// Monotonic time, ns.
    pub now: u64,
    /// Requests in the order of their dispatch since the list was last taken.
    pub started: Vec<u64>,
    /// Number of times that the attributes of a request were gathered.
    pub gathered: u64,
    machine: PartitionMachine<Request, AnyPart<Request>, Config>,
    env: ServerEnv,
}

impl round::RoundPartitions for Server {
    fn slot_pool(&self) -> &SlotPool {
        &self.env.slot_pool
    }

    fn limits(&self) -> SlotLimits {
        self.env.limits()
    }

    fn decide(&mut self, _index: u16, most: u32) -> Decided {
        self.machine.decide_more(&mut self.env, self.now, most)
    }

    fn batch(&self) -> Option<u32> {
        self.env.batch()
    }
}

impl Server {
    /// Creates a server with `slots` slots, heads with a policy started with `config`, and an order
    /// table of at most `records` records.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocation failed.
    pub fn new(config: &Config, slots: u32, records: u32, seed: u64) -> Result<Self, NoMemory> {
        let fifo = config_of("fifo");
        let head_cache = || HeadCache::new(lone_part(&fifo, seed)?, fifo);
        let order = Owned::new(Order::new(records, seed)?)?;
        let now = 86_400_000_000_000;
        let mut server = Self {
            now,
            started: Vec::new(),
            gathered: 0,
            machine: PartitionMachine::new(head_cache()?, head_cache()?, order, records, now),
            env: ServerEnv {
                slot_pool: SlotPool::new(1, slots),
                now,
                timer: 0,
                started: Vec::new(),
                here: BTreeMap::new(),
                device: HashMap::new(),
                gate: None,
            },
        };
        server.install(config, seed)?;
        Ok(server)
    }

    /// Submits a request; returns `false` if no record is free and the front-end can retry.
    pub fn arrive(
        &mut self,
        mut request: Request,
        attrs: &Attrs,
        relate: Relate,
        forced: bool,
    ) -> bool {
        let relation = match relate {
            Relate::Not => None,
            Relate::Range(domain) => {
                let (range, direction) = (request.byte_range(), request.direction);
                Some(Relation::overlap(domain, &range, direction))
            }
            Relate::As(relation) => Some(relation),
        };
        let terms = ArrivalTerms {
            ident: None,
            forced: match forced {
                true => Forced::InTurn,
                false => Forced::No,
            },
            may_pass: true,
            relation: relation.as_ref(),
            may_overflow: matches!(relate, Relate::Range(_)),
        };
        let id = request.id;
        request.placement.priority = attrs.priority;
        self.env.now = self.now;
        let gathered = Cell::new(self.gathered);
        let gather = || {
            gathered.set(gathered.get() + 1);
            *attrs
        };
        let arrived = self.machine.arrive(&mut self.env, request, &terms, &gather);
        self.gathered = gathered.get();
        match arrived.went {
            AdmissionOutcome::Passed(request) => self.env.send(request),
            AdmissionOutcome::Queued => {}
            AdmissionOutcome::Blocked => {
                let phase = match arrived.record {
                    Some(_) => RequestPhase::Blocked,
                    None => RequestPhase::Overflowed,
                };
                self.env.here.entry(id).or_insert((phase, arrived.record));
            }
            AdmissionOutcome::Refused(_) => return false,
        }
        round::arrived(self, arrived.others);
        if arrived.needs_memory && self.feed_parts() {
            self.run_all();
        }
        self.apply_pending();
        true
    }

    /// Makes the device pull requests.
    pub fn set_pulls(&mut self) {
        self.env.gate = Some(Rc::default());
    }

    /// Lets the device pull a request; returns false if there is none to pull.
    pub fn pull(&mut self) -> bool {
        let Some(gate) = self.env.gate.clone().filter(|gate| gate.is_open()) else {
            return false;
        };
        self.env.now = self.now;
        gate.pull(self);
        self.apply_pending();
        true
    }

    /// Completes a request in flight; returns it.
    pub fn complete(&mut self, id: u64) -> Option<Request> {
        self.end(id, false)
    }

    /// Ends a request in flight, which the device refuses; returns it.
    pub fn refuse(&mut self, id: u64) -> Option<Request> {
        self.end(id, true)
    }

    fn end(&mut self, id: u64, refused: bool) -> Option<Request> {
        let request = self.env.device.remove(&id)?;
        self.env.here.remove(&id)?;
        self.env.now = self.now;
        let (mut placement, cost) = (request.placement, request.cost());
        placement.refused = refused;
        if placement.admission == Admission::Slot {
            self.env.slot_pool.put(placement.priority);
        }
        let home = placement.ticket.is_some() || placement.record.is_some();
        if home || !self.env.slot_pool.is_uncontended() {
            round::ended(self, home.then_some(0), |server, _, most| {
                let (machine, now) = (&mut server.machine, server.now);
                machine.end(&mut server.env, now, &placement, cost, most);
            });
        }
        self.apply_pending();
        Some(request)
    }

    /// Promotes a request to high priority; returns `false` if the request has no record.
    pub fn promote(&mut self, id: u64) -> bool {
        let Some(record) = self.record(id) else {
            return false;
        };
        self.reorder(|order| order.promote(record));
        true
    }

    /// Forces the dispatch of all requests in the order table.
    pub fn force_all(&mut self) {
        self.reorder(Order::force_all);
    }

    /// Allocates the memory that the order table needs, as the service's worker does.
    ///
    /// # Panics
    ///
    /// The allocation failed.
    pub fn feed(&mut self) {
        while !self.machine.order().need().is_empty() {
            let spare = self.machine.order().need().allocate().expect("memory");
            self.machine.order().grow(spare);
        }
        self.apply_pending();
    }

    /// Installs another policy on both heads. The previous policy is drained if there is an
    /// instance left for both.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocation failed.
    pub fn install(&mut self, config: &Config, seed: u64) -> Result<(), NoMemory> {
        for priority in Priority::ALL {
            let (config, head) = (config.on(priority), self.machine.head(priority));
            drop(head.reap());
            if config.kind() == Kind::Fifo {
                head.drop_primary();
            } else {
                // If no instance is left, the previous policy continues.
                drop(head.install(lone_part(&config, seed)?, config));
            }
        }
        self.run_all();
        Ok(())
    }

    /// Applies `update` to the parts of its policy, as the service's worker does.
    pub fn update(&mut self, update: &AnyUpdate) {
        for priority in Priority::ALL {
            for (_, part) in self.machine.head(priority).parts_mut() {
                drop(part.update(update.clone(), self.now));
                refresh(part, 64, self.now);
            }
        }
        self.run_all();
    }

    /// Advances the time by `ns`.
    pub fn wait(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
        for priority in Priority::ALL {
            for (_, part) in self.machine.head(priority).parts_mut() {
                part.age(self.now, 64);
            }
        }
        if self.feed_parts() {
            self.run_all();
        }
        self.env.now = self.now;
        if (1..=self.now).contains(&self.env.timer) {
            self.env.timer = 0;
            self.machine.expired(&mut self.env, self.now);
        }
        self.apply_pending();
    }

    /// Sets the number of slots.
    pub fn set_slots(&mut self, slots: u32) {
        self.env.slot_pool.set_slots(slots);
        self.run_all();
    }

    /// Returns the slots in use.
    pub fn used(&self) -> u32 {
        self.env.slot_pool.used().active()
    }

    /// Adds the counters of the policies of the regular head to `sums`, in the order of their rows.
    pub fn add_counts(&mut self, sums: &mut [u64]) {
        for (_, part) in self.machine.head(Priority::Regular).parts_mut() {
            part.add_counts(sums);
        }
    }

    /// Takes a slot, as another partition does; returns false if none is free.
    pub fn occupy_slot(&mut self) -> bool {
        let limits = self.env.limits();
        self.env.slot_pool.take(Priority::Regular, &limits)
    }

    /// Dispatches requests that have been eligible for `stall` ns without slots, as the service's
    /// progress guard does; returns true if there were any.
    pub fn unstall(&mut self, stall: u64) -> bool {
        self.env.now = self.now;
        let stalled = self.machine.unstall(&mut self.env, self.now, stall);
        self.apply_pending();
        stalled
    }

    /// Returns the expiry of the timer, ns, if it is armed.
    pub fn next_expiry(&self) -> Option<u64> {
        Some(self.env.timer).filter(|at| *at > 0)
    }

    /// Returns the number of requests that have arrived and not ended.
    pub fn len(&self) -> usize {
        self.env.here.len()
    }

    /// Returns the phase of a request.
    pub fn phase(&self, id: u64) -> Option<RequestPhase> {
        Some(self.env.here.get(&id)?.0)
    }

    /// Returns the record of a request, if it has one.
    pub fn record(&self, id: u64) -> Option<RecordId> {
        self.env.here.get(&id)?.1
    }

    /// Returns the order table.
    pub fn order(&mut self) -> &mut Order<Request> {
        self.machine.order()
    }

    /// Applies `change` to the order table.
    fn reorder(&mut self, change: impl FnOnce(&mut Order<Request>)) {
        self.env.now = self.now;
        self.machine.reorder(&mut self.env, self.now, change);
        self.apply_pending();
    }

    /// Does the deferred work of the order table, as the service's progress guard does, and uses
    /// free slots.
    fn apply_pending(&mut self) {
        self.env.now = self.now;
        while self.machine.run_some_actions(&mut self.env, self.now) {}
        round::pass_on(self, 0);
        self.started.append(&mut self.env.started);
    }

    /// Polls throttled heads again, because policies or rates have changed.
    fn run_all(&mut self) {
        self.env.now = self.now;
        self.machine.reconsider(&mut self.env, self.now);
        self.apply_pending();
    }

    /// Allocates the memory that parts need and sets up new gates, as the service's worker does.
    /// Returns true if a part has gates.
    fn feed_parts(&mut self) -> bool {
        let mut has_gates = false;
        for priority in Priority::ALL {
            for (_, part) in self.machine.head(priority).parts_mut() {
                feed(part);
                walk(part, self.now);
                has_gates |= part.qbm().is_some();
            }
        }
        has_gates
    }
}
