// SPDX-License-Identifier: GPL-2.0-only

//! A partition with its target, device and timer in simulated time.
//!
//! # Vocabulary
//!
//! - *Relate*: what the front-end says of a request's predecessors ([`Relate`]).
//! - *Stage*: where a request is, for tests ([`Stage`]).
//! - *Started*: dispatched to the device.

use crate::{
    arena::{feed, lone_part, walk, Request},
    attr::{Attrs, Priority},
    item::Item,
    mem::{Need, NoMemory, Owned},
    order::{Forced, Order, RecordId, Relation},
    parameters::service::Ratio,
    partition::{
        arrive::{Terms, Went},
        decide::Decided,
        lane::Lane,
        line::Line,
        round, Admission, Env, Machine,
    },
    policy::{AnyPart, Config, Kind, Part, Tunables},
    ranges::Table,
    slots::Limits,
    units::NSEC_PER_MSEC,
};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

/// How a request is related to earlier ones, as its front-end sees it.
#[derive(Clone, Copy, Debug)]
pub enum Relate {
    /// Unordered, without a record.
    Not,
    /// By its own range in a domain.
    Range(u64),
    /// As said; whoever brings it can come back if there is no record.
    As(Relation),
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for others.
    Blocked,
    /// It waits for a record.
    Overflowed,
    /// It is in the head of this priority.
    Queued(Priority),
    /// It is at the device.
    Started,
}

/// The surroundings of the partition.
struct Yard {
    line: Line,
    now: u64,
    /// When the timer expires, ns; 0: it is not armed.
    timer: u64,
    started: Vec<u64>,
    /// Stage and record of each request that is here.
    here: BTreeMap<u64, (Stage, Option<RecordId>)>,
    /// Requests at the device.
    device: HashMap<u64, Request>,
}

impl Env<Request, Config> for Yard {
    fn line(&self) -> &Line {
        &self.line
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

    fn with_table<R>(&self, _priority: Priority, f: impl FnOnce(Option<&Table>) -> R) -> R {
        f(None)
    }

    fn send(&mut self, request: Request) {
        assert_eq!(request.registered, 0, "found in a queue though it started");
        self.started.push(request.id);
        let at = (Stage::Started, request.placement.record);
        self.here.insert(request.id, at);
        self.device.insert(request.id, request);
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

    fn hold(&mut self, _request: &mut Request, _now: u64) {}

    fn note_queued(&mut self, request: &Request) {
        let placement = &request.placement;
        let at = (Stage::Queued(placement.priority), placement.record);
        self.here.insert(request.id, at);
    }
}

/// A partition with its front-end and its device.
pub struct Server {
    /// Monotonic ns.
    pub now: u64,
    /// Requests that started, in this order, since the list was taken.
    pub started: Vec<u64>,
    /// Times that a request's attributes were gathered.
    pub gathered: u64,
    machine: Machine<Request, AnyPart<Request>, Config>,
    yard: Yard,
}

impl round::Partitions for Server {
    fn line(&self) -> &Line {
        &self.yard.line
    }

    fn limits(&self) -> Limits {
        self.yard.limits()
    }

    fn decide(&mut self, _index: u16, most: u32) -> Decided {
        self.machine.decide_more(&mut self.yard, self.now, most)
    }
}

impl Server {
    /// Creates a server with `slots` slots, heads with a policy started with `config`, and an order
    /// table of at most `records` records.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(config: &Config, slots: u32, records: u32, seed: u64) -> Result<Self, NoMemory> {
        let fifo = Config::parse(Kind::Fifo, None, &Tunables::default()).map_err(|_| NoMemory)?;
        let lane = || Lane::new(lone_part(&fifo, seed)?, fifo);
        let order = Owned::new(Order::new(records, seed)?)?;
        let now = 86_400_000_000_000;
        let mut server = Self {
            now,
            started: Vec::new(),
            gathered: 0,
            machine: Machine::new(lane()?, lane()?, order, records, now),
            yard: Yard {
                line: Line::new(1, slots),
                now,
                timer: 0,
                started: Vec::new(),
                here: BTreeMap::new(),
                device: HashMap::new(),
            },
        };
        server.install(config, seed)?;
        Ok(server)
    }

    /// Takes a request; `false` if there is no record for it and its front-end can come back.
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
                let (spot, direction) = (request.spot(), request.direction);
                Some(Relation::overlap(domain, &spot, direction))
            }
            Relate::As(relation) => Some(relation),
        };
        let terms = Terms {
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
        self.yard.now = self.now;
        let gathered = Cell::new(self.gathered);
        let gather = || {
            gathered.set(gathered.get() + 1);
            *attrs
        };
        let arrived = self
            .machine
            .arrive(&mut self.yard, request, &terms, &gather);
        self.gathered = gathered.get();
        match arrived.went {
            Went::Passed(request) => self.yard.send(request),
            Went::Queued => {}
            Went::Blocked => {
                let stage = match arrived.record {
                    Some(_) => Stage::Blocked,
                    None => Stage::Overflowed,
                };
                self.yard.here.entry(id).or_insert((stage, arrived.record));
            }
            Went::Refused(_) => return false,
        }
        round::arrived(self, arrived.others);
        if arrived.hungry && self.furnish() {
            self.run_all();
        }
        self.settle();
        true
    }

    /// Ends a request that the device has done; returns it.
    pub fn complete(&mut self, id: u64) -> Option<Request> {
        let request = self.yard.device.remove(&id)?;
        self.yard.here.remove(&id)?;
        self.yard.now = self.now;
        let (placement, cost) = (request.placement, request.cost());
        if placement.admission == Admission::Slot {
            self.yard.line.put(placement.priority);
        }
        let home = placement.ticket.is_some() || placement.record.is_some();
        if home || !self.yard.line.is_calm() {
            round::ended(self, home.then_some(0), |server, _, most| {
                let (machine, now) = (&mut server.machine, server.now);
                machine.end(&mut server.yard, now, &placement, cost, most);
            });
        }
        self.settle();
        Some(request)
    }

    /// Asks for high priority for a request; `false` if it is not here any more, or was not
    /// promised.
    pub fn promote(&mut self, id: u64) -> bool {
        let Some(record) = self.record(id) else {
            return false;
        };
        self.reorder(|order| order.promote(record));
        true
    }

    /// Has everything dispatched that the order table knows.
    pub fn force_all(&mut self) {
        self.reorder(Order::force_all);
    }

    /// Gives the order table the memory that it wants, as the service's worker does.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn feed(&mut self) {
        while !self.machine.order().need().is_empty() {
            let spare = self.machine.order().need().allocate().expect("memory");
            self.machine.order().grow(spare);
        }
        self.settle();
    }

    /// Starts another policy on both heads; the one before it is drained, if there is a place for
    /// both.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn install(&mut self, config: &Config, seed: u64) -> Result<(), NoMemory> {
        for priority in Priority::ALL {
            let (config, head) = (config.on(priority), self.machine.head(priority));
            drop(head.reap());
            if config.kind() == Kind::Fifo {
                head.drop_primary();
            } else {
                // Without a place, the one before it goes on.
                drop(head.install(lone_part(&config, seed)?, config));
            }
        }
        self.run_all();
        Ok(())
    }

    /// Lets time go on by `ns`.
    pub fn wait(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
        for priority in Priority::ALL {
            for (_, part) in self.machine.head(priority).parts_mut() {
                part.age(self.now, 64);
            }
        }
        if self.furnish() {
            self.run_all();
        }
        self.yard.now = self.now;
        if (1..=self.now).contains(&self.yard.timer) {
            self.yard.timer = 0;
            self.machine.expired(&mut self.yard, self.now);
        }
        self.settle();
    }

    /// Dispatches without slots what is eligible, if nothing was dispatched for `stall` ns, as the service's keeper does.
    pub fn unstall(&mut self, stall: u64) {
        self.yard.now = self.now;
        self.machine.unstall(&mut self.yard, self.now, stall);
        self.settle();
    }

    /// When the timer expires, if it is armed.
    pub fn next_expiry(&self) -> Option<u64> {
        Some(self.yard.timer).filter(|at| *at > 0)
    }

    /// Requests that are here.
    pub fn len(&self) -> usize {
        self.yard.here.len()
    }

    /// Where a request is.
    pub fn stage(&self, id: u64) -> Option<Stage> {
        Some(self.yard.here.get(&id)?.0)
    }

    /// Its record, if it has one.
    pub fn record(&self, id: u64) -> Option<RecordId> {
        self.yard.here.get(&id)?.1
    }

    /// The order table.
    pub fn order(&mut self) -> &mut Order<Request> {
        self.machine.order()
    }

    /// Makes a change in the order table.
    fn reorder(&mut self, change: impl FnOnce(&mut Order<Request>)) {
        self.yard.now = self.now;
        self.machine.reorder(&mut self.yard, self.now, change);
        self.settle();
    }

    /// Does what is left for the order table, as the service's keeper does, and uses what slots are
    /// free.
    fn settle(&mut self) {
        self.yard.now = self.now;
        while self.machine.settle_some(&mut self.yard, self.now) {}
        round::pass_on(self, 0);
        self.started.append(&mut self.yard.started);
    }

    /// Has heads asked again that are throttled, as policies or rates are others now.
    fn run_all(&mut self) {
        self.yard.now = self.now;
        self.machine.reconsider(&mut self.yard, self.now);
        self.settle();
    }

    /// Gives parts the memory and the seats that they want, as the service's worker does; whether
    /// there are seats.
    fn furnish(&mut self) -> bool {
        let mut seats = false;
        for priority in Priority::ALL {
            for (_, part) in self.machine.head(priority).parts_mut() {
                feed(part);
                walk(part, self.now);
                seats |= part.qbm().is_some();
            }
        }
        seats
    }
}
