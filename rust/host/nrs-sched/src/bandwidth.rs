// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth management as a whole in simulated time: parts of policy `qbm`, gates, a manager, clients that
//! ask for something, and a device that has so much bandwidth and no more.
//!
//! # Vocabulary
//!
//! - *Load*: what a client asks for ([`Load`]).
//! - *Worker*: has the manager look every 200 ms, and at once when there is a client to meet, as the kernel's
//!   does.
//! - *Slots*: requests that are at the device at a time; it serves one after the other.
//!
//! Clients are users: client `n` of the simulation is user `n`.

use crate::{
    arena::{reserve, view, Request},
    attr::{Attrs, Id},
    item::{Direction, Item},
    key::Key,
    mem::{Need, Shared},
    policy::{
        qbm::{Config, State, Tunables, Update},
        Configuration, Get, Grant, Nothing, Part,
    },
    qbm::{
        gate::Gates,
        manager::Manager,
        plan::{Party, Plan, Scene},
    },
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

pub use crate::units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND};

/// A million bytes.
pub const MB: u64 = 1_000_000;

/// How often the worker walks, ns.
pub const WALK: u64 = 200 * MS;

/// How long it takes the worker to come when it is called, ns.
const CALL: u64 = 50_000;

/// Resolution of what was served, ns.
const BIN: u64 = 100 * MS;

/// When simulations begin, monotonic ns.
const START: u64 = 86_400 * SECOND;

/// Requests of a client with a rate that wait at most; beyond that it waits itself.
const PATIENCE: u32 = 64;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing.
    Off,
    /// As much as it gets, with so many requests at a time.
    Greedy(u32),
    /// So many bytes/s.
    Rate(u64),
}

/// Devices have no names.
pub struct Place;

impl Scene for Place {
    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {}
}

/// How a simulation is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What the device can do, bytes/s.
    pub bandwidth: u64,
    /// Requests at the device at a time.
    pub slots: usize,
    /// Partitions.
    pub parts: usize,
    /// Gates.
    pub seats: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            bandwidth: 100 * MB,
            slots: 4,
            parts: 1,
            seats: 64,
        }
    }
}

/// A client.
struct User {
    load: Load,
    /// Raised with each change of load, so that arrivals of the old one are known.
    epoch: u32,
    target: u32,
    pages: u32,
    queued: u32,
    /// Bytes served in each [`BIN`].
    bins: Vec<u64>,
    /// What it had at the last walk, bytes/s; `None`: it is not registered.
    allocated: Option<u64>,
    /// Walks at which it had something else than before.
    changes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(u64),
    Arrival { user: u32, epoch: u32 },
    Wake,
    Worker,
}

/// A simulation.
pub struct Sim {
    /// Monotonic ns.
    pub now: u64,
    /// The manager.
    pub manager: Manager,
    /// The gates.
    pub gates: Shared<Gates>,
    setup: Setup,
    parts: Vec<State<Request>>,
    users: HashMap<u32, User>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    /// Requests at the device, by number, with the part they came from.
    device: HashMap<u64, (Request, Grant, usize)>,
    device_until: u64,
    wake: u64,
    called: bool,
    next_walk: u64,
    turn: usize,
}

fn plan(text: &str) -> Shared<Plan> {
    let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Shared::new(plan).expect("memory")
}

impl Sim {
    /// A service whose plan is `text`, which has to say `by uid`.
    ///
    /// # Panics
    ///
    /// There is no memory, or the plan is refused.
    pub fn new(text: &str, setup: Setup) -> Self {
        let plan = plan(text);
        let gates = Shared::new(Gates::new(setup.seats, 7).expect("memory")).expect("memory");
        let manager = Manager::new(plan.clone(), gates.clone()).expect("memory");
        let tunables = Tunables {
            by: plan.by(),
            ..Tunables::default()
        };
        let config = Config::parse(None, &tunables).expect("no argument");
        let shared = Shared::new(Nothing).expect("memory");
        let parts = (0..setup.parts).map(|part| {
            let mut state = State::new(&config, part as u64, &shared).expect("memory");
            state.update(Update::new(gates.clone()), START);
            state
        });
        let parts = parts.collect();
        reserve(1 << 12).expect("memory");
        let mut sim = Self {
            now: START,
            manager,
            gates,
            setup,
            parts,
            users: HashMap::new(),
            events: BinaryHeap::new(),
            number: 0,
            device: HashMap::new(),
            device_until: START,
            wake: u64::MAX,
            called: false,
            next_walk: START,
            turn: 0,
        };
        sim.schedule(START, Event::Worker);
        sim
    }

    /// Goes on with another plan.
    ///
    /// # Panics
    ///
    /// There is no memory, or the plan is refused.
    pub fn configure(&mut self, text: &str) {
        let configured = self.manager.configure(plan(text), &Place, self.now);
        configured.expect("memory");
        self.call();
    }

    /// Time since the start, ns.
    pub fn time(&self) -> u64 {
        self.now - START
    }

    /// `user` asks for `load` from now on.
    pub fn load(&mut self, user: u32, load: Load) {
        let now = self.now;
        let known = self.user(user);
        known.load = load;
        known.epoch += 1;
        let (epoch, queued) = (known.epoch, known.queued);
        match load {
            Load::Off => {}
            Load::Greedy(depth) => (queued..depth).for_each(|_| self.submit(user)),
            Load::Rate(_) => self.schedule(now, Event::Arrival { user, epoch }),
        }
        self.dispatch();
    }

    /// Sets the size of the requests of `user`, 4096-byte pages, and its target.
    pub fn shape(&mut self, user: u32, pages: u32, target: u32) {
        let user = self.user(user);
        (user.pages, user.target) = (pages, target);
    }

    fn user(&mut self, user: u32) -> &mut User {
        self.users.entry(user).or_insert(User {
            load: Load::Off,
            epoch: 0,
            target: 0,
            pages: 64,
            queued: 0,
            bins: Vec::new(),
            allocated: None,
            changes: 0,
        })
    }

    /// What `user` has, bytes/s; `None`: it is not registered.
    pub fn allocated(&self, user: u32) -> Option<u64> {
        self.users.get(&user)?.allocated
    }

    /// At how many walks `user` had something else than before.
    pub fn changes(&self, user: u32) -> u64 {
        self.users.get(&user).map_or(0, |user| user.changes)
    }

    /// What was served to `user` between two times since the start, bytes/s; to a tenth of a second.
    pub fn served(&self, user: u32, from: u64, to: u64) -> u64 {
        let Some(user) = self.users.get(&user) else {
            return 0;
        };
        let bins = user.bins.iter().enumerate();
        let within = bins.filter(|(bin, _)| ((from / BIN)..(to / BIN)).contains(&(*bin as u64)));
        let bytes: u64 = within.map(|(_, bytes)| bytes).sum();
        (u128::from(bytes) * u128::from(SECOND) / u128::from((to - from).max(1))) as u64
    }

    /// Goes on for `ns`; returns from when to when that was, since the start.
    pub fn run(&mut self, ns: u64) -> (u64, u64) {
        let from = self.time();
        let end = self.now + ns;
        while let Some(Reverse((time, _, event))) = self.events.peek().copied() {
            if time > end {
                break;
            }
            self.events.pop();
            self.now = time;
            self.handle(event);
        }
        self.now = end;
        (from, self.time())
    }

    fn schedule(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Done(number) => self.done(number),
            Event::Arrival { user, epoch } => self.arrive(user, epoch),
            Event::Wake => {
                if self.wake <= self.now {
                    self.wake = u64::MAX;
                }
            }
            Event::Worker => self.worker(),
        }
        self.dispatch();
    }

    /// The next request of a client with a rate.
    fn arrive(&mut self, user: u32, epoch: u32) {
        let known = self.user(user);
        let (Load::Rate(rate), true) = (known.load, known.epoch == epoch) else {
            return;
        };
        let bytes = u64::from(known.pages) * 4096;
        let patient = known.queued < PATIENCE;
        let next = self.now + bytes * SECOND / rate.max(1);
        if patient {
            self.submit(user);
        }
        self.schedule(next, Event::Arrival { user, epoch });
    }

    fn submit(&mut self, user: u32) {
        let now = self.now;
        let known = self.user(user);
        known.queued += 1;
        let attrs = Attrs {
            uid: Id::new(user),
            target: known.target,
            ..Attrs::UNKNOWN
        };
        let pages = known.pages;
        self.number += 1;
        let request = Request {
            owner: user,
            id: self.number,
            pages,
            arrival: now,
            direction: Direction::Read,
            ..Request::default()
        };
        self.turn = (self.turn + 1) % self.parts.len();
        let part = &mut self.parts[self.turn];
        let class = part.classify(&attrs, now);
        if part.enqueue(request, class, now).is_err() {
            panic!("declined");
        }
        if !part.need().is_empty() {
            self.call();
        }
    }

    /// Has the worker come.
    fn call(&mut self) {
        if !std::mem::replace(&mut self.called, true) {
            self.schedule(self.now + CALL, Event::Worker);
        }
    }

    fn done(&mut self, number: u64) {
        let now = self.now;
        let bin = (self.time() / BIN) as usize;
        let (request, grant, part) = self.device.remove(&number).expect("it is at the device");
        self.parts[part].stop(&grant, request.cost(), now);
        let user = self.user(request.owner);
        user.queued -= 1;
        if user.bins.len() <= bin {
            user.bins.resize(bin + 1, 0);
        }
        user.bins[bin] += request.cost().bytes;
        if matches!(user.load, Load::Greedy(depth) if user.queued < depth) {
            self.submit(request.owner);
        }
    }

    /// Fills the device.
    fn dispatch(&mut self) {
        let mut until = u64::MAX;
        let mut dry = 0;
        while dry < self.parts.len() && self.device.len() < self.setup.slots {
            self.turn = (self.turn + 1) % self.parts.len();
            let part = self.turn;
            match self.parts[part].get(&view(self.now, false)) {
                Get::Item((request, grant)) => {
                    dry = 0;
                    let bytes = request.cost().bytes;
                    let begin = self.device_until.max(self.now);
                    let nanoseconds = u128::from(bytes) * u128::from(SECOND);
                    let time = (nanoseconds / u128::from(self.setup.bandwidth)) as u64;
                    self.device_until = begin + time;
                    self.device.insert(request.id, (request, grant, part));
                    self.schedule(self.device_until, Event::Done(request.id));
                }
                Get::Throttled { until: time } => {
                    dry += 1;
                    until = until.min(time);
                }
                Get::Empty => dry += 1,
            }
        }
        if until < self.wake {
            self.wake = until.max(self.now + 1);
            self.schedule(self.wake, Event::Wake);
        }
    }

    fn worker(&mut self) {
        self.called = false;
        for part in &mut self.parts {
            let need = part.need();
            if !need.is_empty() {
                drop(part.grow(need.allocate().expect("memory")));
            }
        }
        let due = self.now >= self.next_walk;
        if due {
            self.next_walk = self.now + WALK;
            self.schedule(self.next_walk, Event::Worker);
        }
        for due in [due, false] {
            let looked = self.manager.look(&Place, due, self.now);
            looked.expect("memory");
            if !self.manager.has_changed() {
                break;
            }
            for part in &mut self.parts {
                let mut from = Some(0);
                while let Some(slot) = from {
                    from = part.refresh(slot, 64, self.now);
                }
            }
        }
        self.note();
        for part in &mut self.parts {
            part.age(self.now, 64);
        }
    }

    /// Notes what users have.
    fn note(&mut self) {
        let mut rates: HashMap<u32, u64> = HashMap::new();
        let users = &self.users;
        self.manager.each(|party, target, rate| {
            if let Party::Key(Key::Uid(uid)) = party {
                if users.get(uid).is_some_and(|user| user.target == target) {
                    rates.insert(*uid, rate);
                }
            }
        });
        for (uid, user) in &mut self.users {
            let rate = rates.get(uid).copied();
            user.changes += u64::from(rate != user.allocated);
            user.allocated = rate;
        }
    }

    /// What `nrs_qbm_status` shows.
    pub fn status(&self) -> String {
        let mut text = String::new();
        let written = self.manager.write_status(&mut text, &Place, self.now);
        written.expect("a string takes everything");
        text
    }

    /// What `nrs_qbm_stats` shows.
    pub fn stats(&self) -> String {
        let mut text = String::new();
        let written = self.manager.write_stats(&mut text, &Place);
        written.expect("a string takes everything");
        text
    }
}
