// SPDX-License-Identifier: GPL-2.0-only

//! Simulates adaptive and fixed timeouts: many clients, a network and one server in simulated time.
//!
//! Both halves of the adaptive timeouts are the code of `rust/sched/timeouts.rs`.
//!
//! - *Client*: has one request outstanding, receives the reply, thinks and sends the next request.
//!   The first clients by number are *active*; the rest sends nothing.
//! - *Slots*: bound the requests in flight; further requests are queued in FIFO order. No request
//!   is refused.
//! - *False timeout*: a client gives up although the server is alive and has the request.
//! - *Loss*: a message does not arrive. A client that gives up because of a loss is right: nothing
//!   else would resend the message. The client resends the request, and the server recognises the
//!   request by its number.
//! - *Detection*: a client gives up on a dead server. The detection time counts from the server's
//!   death, or from the sending of the request if that was later.
//!
//! Messages take network time but no processor time: the only cost of an early reply is its count.
//! Equal seeds give equal results.

mod client;
/// Client half of adaptive timeouts; see `rust/host/nrs-client/src/timeouts/portal.rs`.
#[path = "../../nrs-client/src/timeouts/portal.rs"]
pub mod portal;
mod server;
pub mod story;
mod world;

use client::{Client, State};
use nrs_sched::timeouts::{
    estimator,
    terms::{TimeoutMode, TimeoutTerms},
};
use server::{Fate, TimeoutServer};
pub use world::{Counts, Net, MS, SECOND};
use world::{Message, World, WorldEvent, START};

/// Number of clients whose timeouts are sampled each second.
const SAMPLED_CLIENTS: usize = 50;

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of clients.
    pub clients: u32,
    /// Maximum number of requests in flight at the device.
    pub slots: u32,
    /// Mean service time of a request at the device, us.
    pub service: u64,
    /// Mean think time of a client, us.
    pub think: u64,
    /// Parameters of the network.
    pub net: Net,
    /// Number of clients, the first ones, in a class with a limit of one request per second.
    pub withheld: u32,
    /// Parameters of timeouts; `at_max` 0 selects fixed timeouts.
    pub terms: TimeoutTerms,
}

impl Default for Setup {
    /// Returns a thousand clients with a request every 6 s each, on a server for a thousand
    /// requests/s.
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
            terms: TimeoutTerms::default(),
        }
    }
}

/// Samples of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// End of the second since the start, s.
    pub second: u64,
    /// Service time estimate of the server, ms.
    pub estimate: u32,
    /// Mean timeout of the sampled active clients, without network time, ms.
    pub timeout: u32,
    /// Longest time from a request to its reply among the replies of this second, ms; 0 if none
    /// arrived.
    pub longest: u32,
    /// Totals since the start.
    pub counts: Counts,
}

/// Simulation of clients, a network and a server.
pub struct Sim {
    setup: Setup,
    world: World,
    server: TimeoutServer,
    clients: Vec<Client>,
    active: u32,
    /// Longest time from a request to its reply, ms: in this second, and since the last
    /// `take_longest`.
    longest: (u32, u32),
    /// Detection times of the dead server, ms.
    detections: Vec<u32>,
    trace: Vec<Point>,
    /// Time of each client's first reply since the start, us.
    first: Vec<Option<u64>>,
    /// Number of clients that were waiting when the server restarted and have no reply yet.
    bereft: u32,
    joined: Option<u64>,
    /// True if the server does not restart any more.
    for_good: bool,
}

impl Sim {
    /// Creates a simulation with a server that is alive and no active clients.
    pub fn new(setup: Setup) -> Self {
        let mut world = World::new(setup.seed, setup.net);
        world.schedule(START + SECOND, WorldEvent::Tick);
        Self {
            setup,
            world,
            server: TimeoutServer::new(setup),
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

    /// Returns the time since the start, us.
    pub fn time(&self) -> u64 {
        self.world.now - START
    }

    /// Returns the totals since the start.
    pub fn counts(&self) -> Counts {
        self.world.counts
    }

    /// Returns the samples of each second so far.
    pub fn trace(&self) -> &[Point] {
        &self.trace
    }

    /// Returns the detection times of the dead server, ms, in the order in which they ended.
    pub fn detections(&self) -> &[u32] {
        &self.detections
    }

    /// Returns the time of the last client's first reply, us since the start; `None` if a client
    /// had none.
    pub fn all_served(&self) -> Option<u64> {
        self.first
            .iter()
            .copied()
            .try_fold(0, |last, first| Some(last.max(first?)))
    }

    /// Returns the longest time from a request to its reply since the last call, ms; requests that
    /// were sent more than once do not count.
    pub fn take_longest(&mut self) -> u32 {
        std::mem::take(&mut self.longest.1)
    }

    /// Returns the service time estimate of the server, ms.
    pub fn estimate(&mut self) -> u32 {
        self.server.estimate(&self.world)
    }

    /// Returns the expected end of recovery, ms since the start: 0 before the first client is back,
    /// `None` if there is no recovery or it is over.
    pub fn recovery(&self) -> Option<u64> {
        let until = self.server.recovers_until()?;
        Some(until.saturating_sub(START / MS))
    }

    /// Returns the time of the reply to the last client that waited when the server restarted, us
    /// since the start.
    pub fn joined(&self) -> Option<u64> {
        self.joined
    }

    /// Returns the number of clients that know that the server is dead.
    pub fn away(&self) -> usize {
        self.clients
            .iter()
            .filter(|client| client.state == State::Away)
            .count()
    }

    /// Sets the number of active clients; newly active ones begin within `spread` us.
    pub fn active(&mut self, active: u32, spread: u64) {
        self.active = active.min(self.setup.clients);
        let now = self.world.now;
        for (number, client) in (0..self.active).zip(&mut self.clients) {
            if client.state == State::Parked {
                client.state = State::Thinking;
                let time = now + self.world.rng.below(spread);
                self.world.schedule(time, WorldEvent::Think(number));
            }
        }
    }

    /// Multiplies the service time of requests that are dispatched from now on by `times`.
    pub fn slow(&mut self, times: u64) {
        self.server.slowness = times;
    }

    /// Replaces the parameters of the network.
    pub fn net(&mut self, net: Net) {
        self.world.net = net;
    }

    /// Stops the server; with `for_good`, clients that detect the death do not reconnect.
    pub fn kill(&mut self, for_good: bool) {
        self.for_good = for_good;
        self.server.kill(&self.world);
    }

    /// Returns the detection time of each active client if the server died now, ms.
    ///
    /// It is the time until the deadline for waiting clients, and the next timeout for thinking
    /// clients.
    pub fn predicted_detections_ms(&mut self) -> Vec<u32> {
        let (now, terms) = (self.world.millis(), &self.setup.terms);
        let active = &mut self.clients[..self.active as usize];
        let times = active.iter_mut().filter_map(|client| match client.state {
            State::Waiting => Some(client.deadline.saturating_sub(now) as u32),
            State::Thinking => Some(client.timeout(now, terms)),
            State::Parked | State::Away => None,
        });
        times.collect()
    }

    /// Restarts the server without any state.
    pub fn revive(&mut self) {
        self.server.revive();
        for client in &mut self.clients {
            client.bereft = matches!(client.state, State::Waiting | State::Away);
            self.bereft += u32::from(client.bereft);
        }
    }

    /// Runs the simulation for `time` us; returns the counts of this time.
    pub fn run(&mut self, time: u64) -> Counts {
        let before = self.world.counts;
        let end = self.world.now + time;
        while let Some(event) = self.world.next(end) {
            self.handle(event);
        }
        self.world.now = end;
        self.world.counts.since(&before)
    }

    fn handle(&mut self, event: WorldEvent) {
        let (world, terms) = (&mut self.world, &self.setup.terms);
        match event {
            WorldEvent::ToServer(number, message) => {
                let bereft = self.clients[number as usize].bereft;
                self.server.receive(world, number, message, bereft);
            }
            WorldEvent::ToClient(number, message) => self.receive(number, message),
            WorldEvent::Think(number) => {
                let client = &mut self.clients[number as usize];
                if number < self.active {
                    client.ask(world, terms);
                } else {
                    client.state = State::Parked;
                }
            }
            WorldEvent::Deadline(number) => {
                if self.clients[number as usize].look(world) {
                    self.give_up(number);
                }
            }
            WorldEvent::Retry(number) => self.clients[number as usize].connect(world, terms),
            WorldEvent::Done { client, life } => self.server.done(world, client, life),
            WorldEvent::Margin { client, life } => self.server.margin(world, client, life),
            WorldEvent::Release { life } => self.server.release(world, life),
            WorldEvent::Recovered { life } => self.server.recovered(world, life),
            WorldEvent::Tick => self.tick(),
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

    /// Handles the expiry of a client's deadline.
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
        let step = (self.active as usize / SAMPLED_CLIENTS).max(1);
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
        world.schedule(next, WorldEvent::Tick);
    }
}

/// Returns terms with a fixed timeout of `seconds`.
///
/// # Panics
///
/// Panics if `seconds` is more than an hour.
pub fn fixed(seconds: u32) -> TimeoutTerms {
    use nrs_sched::timeouts::terms::{AtMax, ObdTimeout};
    let terms = TimeoutTerms {
        max: AtMax::new(0).expect("adaptive timeouts are off"),
        fixed: ObdTimeout::new(seconds).expect("an hour at most"),
        ..TimeoutTerms::default()
    };
    debug_assert!(terms.mode() != TimeoutMode::Adaptive);
    terms
}
