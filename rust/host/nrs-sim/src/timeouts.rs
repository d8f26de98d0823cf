// SPDX-License-Identifier: GPL-2.0-only

//! Many clients, a network and one server in simulated time, to see what timeouts do: adaptive ones
//! (`rust/sched/timeouts.rs`, both halves) and fixed ones.
//!
//! # Vocabulary
//!
//! - *Client*: has one request under way at a time, waits for its reply, thinks for a while and sends the
//!   next one. The first so many of them are *active*.
//! - *Slots*: requests that are at the server's device at a time; the others wait in a queue, first come, first
//!   served. Nobody is refused.
//! - *False timeout*: a client gives up while the server is alive and has its request.
//! - *Loss*: a message does not arrive. A client that gives up for that is right: nobody else would have
//!   sent the message again. It sends its request again, and the server knows it by its number.
//! - *Detection*: a client gives up on a server that is dead. It has *waited in vain* since the server died, or
//!   since it sent its request if that was later.
//!
//! Messages take a while, but never the processor's time: an early reply costs nothing here but its place in
//! the counters. Equal seeds give equal results.

mod client;
/// See `rust/host/nrs-client/src/timeouts/portal.rs`.
#[path = "../../nrs-client/src/timeouts/portal.rs"]
pub mod portal;
mod server;
pub mod story;
mod world;

use client::{Client, State};
use nrs_sched::timeouts::{
    estimator,
    terms::{Mode, Terms},
};
use server::{Fate, Server};
pub use world::{Counts, Net, MS, SECOND};
use world::{Event, Message, World, START};

/// Clients whose timeouts are looked at each second.
const LOOKED_AT: usize = 50;

/// How a simulation is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Seed of the numbers that are random.
    pub seed: u64,
    /// Clients.
    pub clients: u32,
    /// Requests at the device at a time.
    pub slots: u32,
    /// Mean time that the device takes for a request, us.
    pub service: u64,
    /// Mean time that a client thinks, us.
    pub think: u64,
    /// The network.
    pub net: Net,
    /// So many clients, the first ones, are of a class that has one request a second.
    pub withheld: u32,
    /// How timeouts are made; `at_max` 0: fixed ones.
    pub terms: Terms,
}

impl Default for Setup {
    /// A thousand clients, each of which wants something every six seconds, of a server that can do a thousand
    /// requests a second.
    fn default() -> Self {
        Self {
            seed: 1,
            clients: 1_000,
            slots: 64,
            service: 64 * MS,
            think: 6 * SECOND,
            net: Net {
                latency: 100,
                jitter: 400,
                loss: 0,
            },
            withheld: 0,
            terms: Terms::default(),
        }
    }
}

/// What a second was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// End of the second, since the start, s.
    pub second: u64,
    /// The server's estimate, ms.
    pub estimate: u32,
    /// Mean of what some active clients would wait for now, without the network, ms.
    pub timeout: u32,
    /// The longest that a client waited for a reply that came in this second, ms; 0: none came.
    pub longest: u32,
    /// What has happened since the start.
    pub counts: Counts,
}

/// A simulation.
pub struct Sim {
    setup: Setup,
    world: World,
    server: Server,
    clients: Vec<Client>,
    active: u32,
    /// The longest that a client waited for a reply in this second, and since it was asked for, ms.
    longest: (u32, u32),
    /// Times waited in vain for a dead server, ms.
    detections: Vec<u32>,
    trace: Vec<Point>,
    /// When each client had its first reply, since the start, us.
    first: Vec<Option<u64>>,
    /// Clients that waited for the server when it came back and had no reply yet.
    bereft: u32,
    joined: Option<u64>,
    /// The server will not come back.
    for_good: bool,
}

impl Sim {
    /// A server that is alive, and no active clients.
    pub fn new(setup: Setup) -> Self {
        let mut world = World::new(setup.seed, setup.net);
        world.schedule(START + SECOND, Event::Tick);
        Self {
            setup,
            world,
            server: Server::new(setup),
            clients: (0..setup.clients)
                .map(|number| Client::new(number, &setup.terms))
                .collect(),
            active: 0,
            longest: (0, 0),
            detections: Vec::new(),
            trace: Vec::new(),
            first: vec![None; setup.clients as usize],
            bereft: 0,
            joined: None,
            for_good: false,
        }
    }

    /// Time since the start, us.
    pub fn time(&self) -> u64 {
        self.world.now - START
    }

    /// What has happened since the start.
    pub fn counts(&self) -> Counts {
        self.world.counts
    }

    /// What each second was like, so far.
    pub fn trace(&self) -> &[Point] {
        &self.trace
    }

    /// Times waited in vain for a dead server, ms, by when they ended.
    pub fn detections(&self) -> &[u32] {
        &self.detections
    }

    /// When the last of all clients had its first reply, since the start, us; `None`: not all had one.
    pub fn all_served(&self) -> Option<u64> {
        self.first
            .iter()
            .copied()
            .try_fold(0, |last, first| Some(last.max(first?)))
    }

    /// The longest that a client waited for a reply since this was asked for the last time, ms; of requests that
    /// were sent once.
    pub fn take_longest(&mut self) -> u32 {
        std::mem::take(&mut self.longest.1)
    }

    /// The server's estimate, ms.
    pub fn estimate(&mut self) -> u32 {
        self.server.estimate(&self.world)
    }

    /// When recovery ends, as known now, since the start, ms; 0 before the first client is back, `None`: it is
    /// over, or there is none.
    pub fn recovery(&self) -> Option<u64> {
        let until = self.server.recovers_until()?;
        Some(until.saturating_sub(START / MS))
    }

    /// When the last client that waited for the server when it came back had a reply, since the start, us.
    pub fn joined(&self) -> Option<u64> {
        self.joined
    }

    /// Clients that know that the server is not there.
    pub fn away(&self) -> usize {
        self.clients
            .iter()
            .filter(|client| client.state == State::Away)
            .count()
    }

    /// From now on so many clients are active; those that were not begin within `spread` us.
    pub fn active(&mut self, active: u32, spread: u64) {
        self.active = active.min(self.setup.clients);
        let now = self.world.now;
        for (number, client) in (0..self.active).zip(&mut self.clients) {
            if client.state == State::Parked {
                client.state = State::Thinking;
                let time = now + self.world.rng.below(spread);
                self.world.schedule(time, Event::Think(number));
            }
        }
    }

    /// From now on the device takes so many times as long for what reaches it.
    pub fn slow(&mut self, times: u64) {
        self.server.slowness = times;
    }

    /// From now on the network is like this.
    pub fn net(&mut self, net: Net) {
        self.world.net = net;
    }

    /// The server dies. If it is for good, clients that know it do not try to connect again.
    pub fn kill(&mut self, for_good: bool) {
        self.for_good = for_good;
        self.server.kill(&self.world);
    }

    /// How long each active client would wait in vain if the server died now, ms: those that wait until their
    /// deadline, those that think for the timeout that they would state.
    pub fn if_dead(&mut self) -> Vec<u32> {
        let (now, terms) = (self.world.millis(), &self.setup.terms);
        let active = &mut self.clients[..self.active as usize];
        let times = active.iter_mut().filter_map(|client| match client.state {
            State::Waiting => Some(client.deadline.saturating_sub(now) as u32),
            State::Thinking => Some(client.timeout(now, terms)),
            State::Parked | State::Away => None,
        });
        times.collect()
    }

    /// The server comes back, and knows nothing.
    pub fn revive(&mut self) {
        self.server.revive();
        for client in &mut self.clients {
            client.bereft = matches!(client.state, State::Waiting | State::Away);
            self.bereft += u32::from(client.bereft);
        }
    }

    /// Goes on for so many us; returns what happened.
    pub fn run(&mut self, time: u64) -> Counts {
        let before = self.world.counts;
        let end = self.world.now + time;
        while let Some(event) = self.world.next(end) {
            self.handle(event);
        }
        self.world.now = end;
        self.world.counts.since(&before)
    }

    fn handle(&mut self, event: Event) {
        let (world, terms) = (&mut self.world, &self.setup.terms);
        match event {
            Event::ToServer(number, message) => {
                let bereft = self.clients[number as usize].bereft;
                self.server.receive(world, number, message, bereft);
            }
            Event::ToClient(number, message) => self.receive(number, message),
            Event::Think(number) => {
                let client = &mut self.clients[number as usize];
                if number < self.active {
                    client.ask(world, terms);
                } else {
                    client.state = State::Parked;
                }
            }
            Event::Deadline(number) => {
                if self.clients[number as usize].look(world) {
                    self.give_up(number);
                }
            }
            Event::Retry(number) => self.clients[number as usize].connect(world, terms),
            Event::Done { client, life } => self.server.done(world, client, life),
            Event::Margin { client, life } => self.server.margin(world, client, life),
            Event::Release { life } => self.server.release(world, life),
            Event::Recovered { life } => self.server.recovered(world, life),
            Event::Tick => self.tick(),
        }
    }

    fn receive(&mut self, number: u32, message: Message) {
        let (world, terms) = (&mut self.world, &self.setup.terms);
        let client = &mut self.clients[number as usize];
        match message {
            Message::Reply {
                xid,
                service,
                estimate,
            } => {
                if let Some((total, once)) = client.reply(world, (xid, service, estimate)) {
                    world.counts.replied += 1;
                    if std::mem::take(&mut client.bereft) {
                        self.bereft -= 1;
                        self.joined = (self.bereft == 0).then_some(world.now - START);
                    }
                    self.first[number as usize].get_or_insert(world.now - START);
                    if once {
                        self.longest = (self.longest.0.max(total), self.longest.1.max(total));
                    }
                    client.think(world, self.setup.think);
                }
            }
            Message::Early { xid, timeout } => client.early(world, (xid, timeout)),
            Message::Welcome if client.state == State::Away => {
                client.life = self.server.life;
                client.repeat(world, terms);
            }
            Message::Stranger if client.state == State::Waiting => client.lose(world),
            _ => {}
        }
    }

    /// A client's deadline has passed.
    fn give_up(&mut self, number: u32) {
        let (world, terms) = (&mut self.world, &self.setup.terms);
        let client = &mut self.clients[number as usize];
        let server = &self.server;
        if !server.alive || client.life != server.life {
            let vain = (world.now - client.sent.max(server.died)) / MS;
            self.detections.push(vain as u32);
            if self.for_good {
                client.state = State::Away;
            } else {
                client.lose(world);
            }
            return;
        }
        match server.fate(number, client.xid) {
            Fate::Here { missed } => {
                world.counts.false_timeouts += 1;
                world.counts.after_lost_early += u64::from(missed);
            }
            Fate::Lost => world.counts.lost += 1,
        }
        client.repeat(world, terms);
    }

    fn tick(&mut self) {
        let world = &mut self.world;
        let step = (self.active as usize / LOOKED_AT).max(1);
        let active = &mut self.clients[..self.active as usize];
        let timeouts = active.iter_mut().step_by(step);
        let timeouts: Vec<u64> = timeouts
            .map(|client| client.stated(world, &self.setup.terms).into())
            .collect();
        let mean = timeouts.iter().sum::<u64>() / (timeouts.len() as u64).max(1);
        self.trace.push(Point {
            second: (world.now - START) / SECOND,
            estimate: self.server.estimate(world),
            timeout: mean as u32,
            longest: std::mem::take(&mut self.longest.0),
            counts: world.counts,
        });
        let next = world.now + SECOND;
        world.schedule(next, Event::Tick);
    }
}

/// Terms with which everybody waits for so many seconds.
///
/// # Panics
///
/// More than an hour.
pub fn fixed(seconds: u32) -> Terms {
    use nrs_sched::timeouts::terms::{AtMax, ObdTimeout};
    let terms = Terms {
        max: AtMax::new(0).expect("adaptive timeouts are off"),
        fixed: ObdTimeout::new(seconds).expect("an hour at most"),
        ..Terms::default()
    };
    debug_assert!(terms.mode() != Mode::Adaptive);
    terms
}
