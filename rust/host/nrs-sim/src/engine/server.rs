// SPDX-License-Identifier: GPL-2.0-only

//! Servers: partitions, the slots that they share, a device, and the worker.
//!
//! # Vocabulary
//!
//! - *Partition*: a CPT of the server; a client's NID decides which one takes its requests ([`Lane`]).
//! - *Slot*: leave to have one request at the device; one pool for all partitions.
//! - *Ready*: a partition with requests that may be served as far as it knows; they take turns
//!   ([`nrs_sched::turns`]) as in the kernel, by the shares that the worker found.
//! - *Worker*: comes every delta, and when it is called because a part wants memory or seats.
//!
//! ```text
//!           nobody waits, a slot is free, the policy agrees
//!   arrive ─┬──────────────────────────────────────────────▶ device ─▶ complete
//!           └─▶ queued in a lane ─▶ a slot is free, its turn ──▲
//! ```

mod worker;

use super::{
    bandwidth::Bandwidth,
    device::Device,
    item::{Record, Records},
    lane::Lane,
    policy::Started,
    queue::{Event, Queue},
    throttle::Throttle,
};
use crate::outcome::Count;
use nrs_sched::units::NSEC_PER_MSEC as MS;
use nrs_sched::{
    attr::{Attrs, Priority},
    item::Item as _,
    mem::Shared,
    policy::{
        fairshare::{params::Select, weights::Weights},
        Config, Get, Part,
    },
    ranges::{Outline, Table, PARTS},
    rng::avalanche,
    slots::{Limits, Pool},
    turns,
};

/// What decides who is next.
pub enum Order {
    /// A policy, one lane for each partition.
    Lanes(Vec<Place>),
    /// A baseline; partitions do not matter to it.
    Throttle(Box<Throttle>),
}

/// A partition and its place in the order of turns.
pub struct Place {
    /// The partition.
    pub lane: Lane,
    tag: u64,
    share: u64,
    ready: bool,
}

impl Place {
    fn new(lane: Lane) -> Self {
        Self {
            lane,
            tag: 0,
            share: 0,
            ready: false,
        }
    }
}

/// What a server needs of the engine while it handles an event.
pub struct Scene<'a> {
    /// What happens later.
    pub queue: &'a mut Queue,
    /// The requests.
    pub records: &'a mut Records,
    /// The instant, ns.
    pub now: u64,
}

/// A server.
pub struct Server {
    /// Its index.
    index: u32,
    /// Its name.
    pub name: String,
    /// Who is next.
    order: Order,
    /// Its device.
    pub device: Device,
    /// Requests that went to the device without being queued.
    pub passed: u64,
    /// Of each job: what ended.
    pub jobs: Vec<Count>,
    /// Bytes of each job and bin, if somebody wants them.
    pub bins: Vec<Vec<u64>>,
    /// Weights of fairshare, to be told with what others served.
    pub weights: Shared<Weights>,
    /// Whether partitions are fair together.
    pub cross_cpt: bool,
    pool: Pool,
    limits: Limits,
    /// Requests that wait in all lanes.
    queued: u64,
    /// Requests here, at most.
    held_most: u64,
    /// Nothing was at the device while requests waited, ns.
    withheld: u64,
    /// When that was looked at last, ns.
    seen: u64,
    clock: u64,
    bandwidth: Option<Bandwidth>,
    delta: u64,
    /// When everything is due again, or a baseline may go on, ns.
    due: u64,
    /// The worker is on its way.
    called: bool,
    /// How late timers expire, ns.
    lateness: u64,
    outline: Option<Outline>,
    table: Option<Table>,
}

/// What a server is made of.
pub struct Setup {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: Device,
    /// Slots.
    pub slots: u32,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of clients.
    pub clients: usize,
    /// How late timers expire, ns.
    pub lateness: u64,
}

impl Server {
    /// A server that serves as `started` says.
    pub fn with_policy(setup: Setup, started: Started) -> Self {
        let config = started.config;
        let lane = |part| Place::new(Lane::new(config, part, setup.clients));
        let places: Vec<Place> = started.parts.into_iter().map(lane).collect();
        let several = places.len() > 1;
        let mut server = Self::new(setup, Order::Lanes(places));
        let tunables = started.tunables;
        server.weights = started.weights;
        server.cross_cpt = tunables.fairshare.cross_cpt.is_on();
        server.delta = u64::from(tunables.fairshare.delta_ms.get()) * MS;
        server.bandwidth = started.manager.map(Bandwidth::new);
        // Nobody looks at shares else.
        let drawn = matches!(&config, Config::Fairshare(config)
            if config.tunables().select == Select::Paper);
        if matches!(config, Config::Fairshare(_)) && (several || drawn) {
            server.outline = Some(Outline::new());
        }
        server
    }

    /// A server that serves as `throttle` says.
    pub fn with_throttle(setup: Setup, throttle: Box<Throttle>) -> Self {
        Self::new(setup, Order::Throttle(throttle))
    }

    fn new(setup: Setup, order: Order) -> Self {
        Self {
            index: setup.index,
            name: setup.name,
            order,
            device: setup.device,
            passed: 0,
            jobs: vec![Count::default(); setup.jobs],
            bins: Vec::new(),
            weights: Shared::new(Weights::new()).expect("memory"),
            cross_cpt: true,
            pool: Pool::EMPTY,
            limits: Limits {
                slots: setup.slots.max(1),
                high_priority: false,
                ratio: 0,
            },
            queued: 0,
            held_most: 0,
            withheld: 0,
            seen: 0,
            clock: 0,
            bandwidth: None,
            delta: 100 * MS,
            due: 0,
            called: false,
            lateness: setup.lateness,
            outline: None,
            table: None,
        }
    }

    /// Starts the worker.
    pub fn begin(&mut self, queue: &mut Queue, now: u64) {
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

    /// The lanes; none with a baseline.
    pub fn places(&mut self) -> &mut [Place] {
        match &mut self.order {
            Order::Lanes(places) => places,
            Order::Throttle(_) => &mut [],
        }
    }

    /// Requests that wait.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Requests at the device.
    pub fn active(&self) -> u32 {
        self.pool.active()
    }

    /// Requests here at a time, at most.
    pub fn held_most(&self) -> u64 {
        self.held_most
    }

    /// For how long requests waited with nothing at the device, ns.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// Requests that a stand-in class took.
    pub fn overflow(&mut self) -> u64 {
        let places = self.places().iter_mut();
        places.map(|place| place.lane.part().overflow()).sum()
    }

    /// Counts the time since the last look.
    pub fn look(&mut self, now: u64) {
        if self.pool.active() == 0 && self.queued > 0 {
            self.withheld += now - self.seen;
        }
        self.seen = now;
    }

    /// The request in `slot` arrives, sent by whoever `attrs` says.
    pub fn arrive(&mut self, scene: &mut Scene<'_>, slot: u32, attrs: impl Fn() -> Attrs) {
        let now = scene.now;
        self.look(now);
        let record = scene.records.at(slot);
        record.arrived = now;
        let calm = self.queued == 0;
        let free = self.pool.take(Priority::Regular, &self.limits);
        let hungry = match &mut self.order {
            Order::Throttle(throttle) => {
                throttle.enqueue(record.job, record.item(slot), now);
                self.queued += 1;
                false
            }
            Order::Lanes(places) => {
                let home = home(record.node, places.len());
                let lane = &mut places[home].lane;
                let mut asked = false;
                if let Some(pool) = free.filter(|_| calm) {
                    let passed;
                    (passed, asked) = lane.pass(record, &attrs, now);
                    if passed {
                        let hungry = asked && lane.is_hungry();
                        self.pool = pool;
                        self.passed += 1;
                        self.start(scene, slot);
                        if hungry {
                            self.call(scene);
                        }
                        return;
                    }
                }
                asked |= lane.enqueue(record.item(slot), record, &attrs, now);
                self.queued += 1;
                self.tell(home, now);
                asked && self.places()[home].lane.is_hungry()
            }
        };
        self.held_most = self
            .held_most
            .max(self.queued + u64::from(self.pool.active()));
        if hungry {
            self.call(scene);
        }
        self.pass_on(scene);
    }

    /// The device has done the request in `slot`.
    pub fn complete(&mut self, scene: &mut Scene<'_>, slot: u32) {
        let now = scene.now;
        self.look(now);
        self.pool = self.pool.put(Priority::Regular);
        let record = scene.records.at(slot);
        self.jobs[record.job as usize].add(record.bytes, record.device_ns);
        match &mut self.order {
            Order::Throttle(throttle) => throttle.stop(record.job, record.bytes, now),
            Order::Lanes(places) => {
                if let Some(ticket) = record.ticket.take() {
                    let home = home(record.node, places.len());
                    places[home].lane.stop(&ticket, record, now);
                }
            }
        }
        self.pass_on(scene);
    }

    /// A timer of partition `place` expires.
    pub fn wake(&mut self, scene: &mut Scene<'_>, place: usize) {
        let (now, late) = (scene.now, self.lateness);
        self.look(now);
        if let Some(place) = self.places().get_mut(place) {
            // An earlier one was set since, or it was a later one.
            if place.lane.armed.wrapping_add(late) != now {
                return;
            }
            place.lane.armed = 0;
        }
        self.pass_on(scene);
    }

    /// The request in `slot` goes to the device.
    fn start(&mut self, scene: &mut Scene<'_>, slot: u32) {
        let now = scene.now;
        let record: &mut Record = scene.records.at(slot);
        record.started = now;
        let service = self.device.serve(record, now);
        record.device_ns = service.time;
        scene.queue.push(service.done, Event::Done(slot));
        self.held_most = self
            .held_most
            .max(self.queued + u64::from(self.pool.active()));
    }

    /// Says whether partition `home` is ready, and where its turn begins.
    fn tell(&mut self, home: usize, now: u64) {
        let clock = self.clock;
        let Some(place) = self.places().get_mut(home) else {
            return;
        };
        let ready = place.lane.has_work(now);
        if ready && !place.ready {
            place.tag = turns::start(place.tag, clock);
        }
        place.ready = ready;
    }

    /// Has requests decided as long as there are slots.
    fn pass_on(&mut self, scene: &mut Scene<'_>) {
        match &self.order {
            Order::Throttle(_) => self.pump_throttle(scene),
            Order::Lanes(places) if places.len() == 1 => {
                while self.pool.allows(Priority::Regular, &self.limits) && self.decide(scene, 0) {}
                self.arm(scene, 0);
            }
            Order::Lanes(places) => {
                let count = places.len();
                for home in 0..count {
                    self.tell(home, scene.now);
                }
                let mut asked = 0u64;
                while self.pool.allows(Priority::Regular, &self.limits) {
                    let Some(home) = self.next(asked) else {
                        break;
                    };
                    if !self.decide(scene, home) {
                        asked |= 1 << home;
                    }
                    self.tell(home, scene.now);
                }
                for home in 0..count {
                    self.arm(scene, home);
                }
            }
        }
    }

    /// The partition whose turn it is, other than `asked`, bits.
    fn next(&mut self, asked: u64) -> Option<usize> {
        let places = self.places().iter().enumerate();
        let ready = places.filter(|(home, place)| place.ready && asked & (1 << home) == 0);
        turns::first(ready.map(|(home, place)| (home as u32, place.tag))).map(|home| home as usize)
    }

    /// Partition `home` decides a request, if it has one that may go; there is a slot.
    fn decide(&mut self, scene: &mut Scene<'_>, home: usize) -> bool {
        let now = scene.now;
        let Order::Lanes(places) = &mut self.order else {
            return false;
        };
        let several = places.len() > 1;
        let place = &mut places[home];
        if !place.lane.has_work(now) {
            return false;
        }
        let Some((item, ticket)) = place.lane.get(self.table.as_ref(), now) else {
            return false;
        };
        if several {
            let charged = match ticket.grant().charged {
                0 => item.cost().pages,
                charged => charged,
            };
            self.charge(home, charged);
        }
        self.pool = self.pool.charge(Priority::Regular);
        self.queued -= 1;
        scene.records.at(item.slot).ticket = Some(ticket);
        self.start(scene, item.slot);
        true
    }

    /// Counts a request that partition `home` decided and that costs `cost`.
    fn charge(&mut self, home: usize, cost: u32) {
        let clock = self.clock;
        let places = self.places();
        let tag = places[home].tag;
        let share = match places[home].share {
            0 => turns::mean(places.iter().filter(|p| p.ready).map(|p| p.share)),
            share => share,
        };
        places[home].tag = turns::advance(tag, turns::pace(share), cost);
        if turns::is_before(clock, tag) {
            self.clock = tag;
        }
    }

    /// Sets the timer of partition `home`, if it withholds what it has.
    fn arm(&mut self, scene: &mut Scene<'_>, home: usize) {
        let (late, server) = (self.lateness, self.index);
        let Some(place) = self.places().get_mut(home) else {
            return;
        };
        let Some(until) = place.lane.expiry(scene.now) else {
            return;
        };
        // When one that is set expires too early it is set again.
        if place.lane.armed == 0 || until < place.lane.armed {
            place.lane.armed = until;
            let timer = server * PARTS as u32 + home as u32;
            scene.queue.push(until + late, Event::Wake(timer));
        }
    }

    fn pump_throttle(&mut self, scene: &mut Scene<'_>) {
        let (now, index, late) = (scene.now, self.index, self.lateness);
        while self.pool.allows(Priority::Regular, &self.limits) {
            let Order::Throttle(throttle) = &mut self.order else {
                return;
            };
            match throttle.get(now) {
                Get::Item(item) => {
                    self.pool = self.pool.charge(Priority::Regular);
                    self.queued -= 1;
                    self.start(scene, item.slot);
                }
                Get::Empty => break,
                Get::Throttled { until: u64::MAX } => break,
                Get::Throttled { until } => {
                    if self.due <= now || until < self.due {
                        self.due = until.max(now + 1);
                        let timer = index * PARTS as u32;
                        scene.queue.push(self.due + late, Event::Wake(timer));
                    }
                    break;
                }
            }
        }
    }

    /// A baseline's time has come.
    pub fn tick(&mut self, scene: &mut Scene<'_>) {
        self.look(scene.now);
        if let Order::Throttle(throttle) = &mut self.order {
            throttle.tick(scene.now);
            let next = scene.now + throttle.interval().max(1);
            scene.queue.push(next, Event::Tick(self.index));
        }
        self.pass_on(scene);
    }
}

/// The partition of a node: decided by its NID, of `count`.
pub fn home(node: u32, count: usize) -> usize {
    match count {
        0 | 1 => 0,
        count => (avalanche(u64::from(node) + 1) % count as u64) as usize,
    }
}
