// SPDX-License-Identifier: GPL-2.0-only

//! The server: slots, a queue, a class with a rate, and its half of adaptive timeouts.
//!
//! What it knows of a client's request:
//!
//! ```text
//!             arrival                   a slot is free           carried out
//! nothing --------------> queued -----------------------> busy -------------> done (its reply is kept)
//!                |          ^
//!                v          | the rate allows it, or recovery is over
//!             withheld -----+
//! ```

use super::{
    world::{Event, Message, World, MS, SECOND},
    Setup,
};
use nrs_sched::timeouts::{
    early::{self, Answer, Stated},
    estimator::{Estimator, Filter},
    recovery::Recovery,
    terms::{AtCountPolicyDelay, Mode, Terms},
};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Withheld,
    Queued,
    Busy,
    Done,
}

/// The last request of a client.
#[derive(Clone, Copy, Default)]
struct Held {
    xid: u32,
    /// The life of the server in which the client connected.
    life: u32,
    place: Place,
    /// It came in recovery, so that it says nothing about the service.
    recovered: bool,
    /// us.
    arrival: u64,
    /// ms.
    deadline: u64,
    /// Event for the deadline that there is; 0: none, us.
    armed: u64,
    /// How long it was withheld, ms.
    withheld: u32,
    /// Its time at the service, when that is over, ms.
    service: u32,
    /// An early reply for it was lost.
    missed: bool,
}

/// What became of a request that its client does not wait for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is here, or its reply was sent; an early reply was lost, too.
    Here { missed: bool },
    /// It never came, or the reply was lost.
    Lost,
}

pub(super) struct Server {
    setup: Setup,
    pub(super) alive: bool,
    /// How many times it has come back.
    pub(super) life: u32,
    /// Since when it has been dead or, when it is alive, when it died the last time, us.
    pub(super) died: u64,
    /// How many times as long the device takes.
    pub(super) slowness: u64,
    estimator: Estimator,
    filter: Filter,
    recovery: Option<Recovery>,
    held: Vec<Held>,
    queue: VecDeque<u32>,
    busy: u32,
    /// Requests of the class with a rate, and when the next one may go, us.
    gate: (VecDeque<u32>, u64),
    /// Requests that wait for the end of recovery.
    waiting: Vec<u32>,
    /// Replies that were lost, by client.
    lost: Vec<u32>,
}

fn filter() -> Filter {
    Filter { limit: 0, until: 0 }
}

impl Server {
    pub(super) fn new(setup: Setup) -> Self {
        let clients = setup.clients as usize;
        Self {
            setup,
            alive: true,
            life: 0,
            died: 0,
            slowness: 1,
            estimator: Estimator::new(),
            filter: filter(),
            recovery: None,
            held: vec![Held::default(); clients],
            queue: VecDeque::new(),
            busy: 0,
            gate: (VecDeque::new(), 0),
            waiting: Vec::new(),
            lost: vec![0; clients],
        }
    }

    fn terms(&self) -> Terms {
        self.setup.terms
    }

    fn adapts(&self) -> bool {
        self.setup.terms.mode() == Mode::Adaptive
    }

    /// What the worst service time is taken to be, ms; 0: it is not known.
    pub(super) fn estimate(&mut self, world: &World) -> u32 {
        if self.adapts() {
            self.estimator
                .estimate(world.millis(), &self.setup.terms.rule())
        } else {
            0
        }
    }

    /// Feeds the estimator, as the service in the kernel does.
    fn measure(&mut self, world: &World, sample: u32) {
        let (now, terms) = (world.millis(), self.terms());
        if sample > self.filter.limit || now >= self.filter.until {
            self.estimator.measure(sample, now, &terms.rule());
            self.filter = self.estimator.filter(now, &terms.rule());
        }
    }

    /// What became of request `xid` of `client`.
    pub(super) fn fate(&self, client: u32, xid: u32) -> Fate {
        let held = &self.held[client as usize];
        if held.xid != xid || held.life != self.life || self.lost[client as usize] == xid {
            Fate::Lost
        } else {
            Fate::Here {
                missed: held.missed,
            }
        }
    }

    /// Dies, and everything that it knew.
    pub(super) fn kill(&mut self, world: &World) {
        self.alive = false;
        self.died = world.now;
        self.estimator = Estimator::new();
        self.filter = filter();
        self.recovery = None;
        self.queue.clear();
        self.gate = (VecDeque::new(), 0);
        self.waiting.clear();
        self.busy = 0;
    }

    /// Comes back; recovery begins as soon as a client does, too.
    pub(super) fn revive(&mut self) {
        self.alive = true;
        self.life += 1;
        self.recovery = Some(Recovery::new());
    }

    fn expect(&self, world: &mut World, ends: u64) {
        let time = (ends * MS).max(world.now + 1);
        world.schedule(time, Event::Recovered { life: self.life });
    }

    /// When recovery is over, ms; 0 before the first client is back.
    pub(super) fn recovers_until(&self) -> Option<u64> {
        self.recovery.as_ref().map(Recovery::ends)
    }

    /// Looks whether recovery is over.
    pub(super) fn recovered(&mut self, world: &mut World, life: u32) {
        let Some(recovery) = self.recovery.as_ref().filter(|_| life == self.life) else {
            return;
        };
        if !recovery.is_over(world.millis()) {
            // Somebody has moved it; there is an event for that.
            return;
        }
        self.recovery = None;
        for client in std::mem::take(&mut self.waiting) {
            self.admit(world, client);
        }
        self.start(world);
    }

    /// A message of `client`, which was waiting for the server when it died if it is `bereft`.
    pub(super) fn receive(
        &mut self,
        world: &mut World,
        client: u32,
        message: Message,
        bereft: bool,
    ) {
        if !self.alive {
            return;
        }
        match message {
            Message::Request { xid, stated } => self.request(world, client, xid, stated),
            Message::Connect { stated } => self.connect(world, client, stated, bereft),
            _ => {}
        }
    }

    fn connect(&mut self, world: &mut World, client: u32, stated: u32, bereft: bool) {
        let (now, terms) = (world.millis(), self.terms());
        let held = &mut self.held[client as usize];
        if held.life != self.life {
            *held = Held {
                life: self.life,
                armed: held.armed,
                ..Held::default()
            };
            match &mut self.recovery {
                Some(recovery) => {
                    let before = recovery.ends();
                    recovery.join(now, stated, &terms);
                    let ends = recovery.ends();
                    if ends != before {
                        self.expect(world, ends);
                    }
                }
                None => world.counts.missed += u64::from(bereft),
            }
        }
        world.send(Event::ToClient(client, Message::Welcome));
    }

    fn request(&mut self, world: &mut World, client: u32, xid: u32, stated: u32) {
        let (now, terms, estimate) = (world.millis(), self.terms(), self.estimate(world));
        let held = &mut self.held[client as usize];
        if held.life != self.life {
            world.send(Event::ToClient(client, Message::Stranger));
            return;
        }
        if xid < held.xid || (xid == held.xid && held.place == Place::Done) {
            if xid == held.xid {
                self.answer(world, client);
            }
            return;
        }
        let fresh = xid != held.xid;
        if fresh {
            *held = Held {
                xid,
                life: self.life,
                armed: held.armed,
                arrival: world.now,
                ..Held::default()
            };
        }
        held.deadline = now + u64::from(stated);
        held.missed = false;
        let arrival = held.arrival / MS;
        if fresh {
            if self.recovery.is_some() {
                held.place = Place::Withheld;
                held.recovered = true;
                self.waiting.push(client);
            } else {
                self.admit(world, client);
                self.start(world);
            }
        }
        if !self.adapts() || self.held[client as usize].place == Place::Done {
            return;
        }
        if let Some(deadline) = early::on_arrival(&terms, arrival, stated, estimate) {
            let held = &mut self.held[client as usize];
            if deadline > held.deadline {
                held.deadline = deadline;
                world.counts.at_once += 1;
                self.send_early(world, client);
            }
        }
        self.arm(world, client);
    }

    /// Tells a client its request's deadline.
    fn send_early(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        let message = Message::Early {
            xid: held.xid,
            timeout: (held.deadline - held.arrival / MS) as u32,
        };
        if !world.send(Event::ToClient(client, message)) {
            held.missed = true;
        }
    }

    /// Has itself woken for a client's request; an event that is there for an earlier time will do.
    fn arm(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        let time = (early::wake(&self.setup.terms, held.deadline) * MS).max(world.now + 1);
        if held.armed == 0 || time < held.armed {
            held.armed = time;
            let life = self.life;
            world.schedule(time, Event::Margin { client, life });
        }
    }

    /// The event for a client's request.
    pub(super) fn margin(&mut self, world: &mut World, client: u32, life: u32) {
        let (now, terms) = (world.millis(), self.terms());
        let held = &mut self.held[client as usize];
        if held.armed == world.now {
            held.armed = 0;
        }
        if !self.alive
            || life != self.life
            || !matches!(held.place, Place::Withheld | Place::Queued | Place::Busy)
        {
            return;
        }
        if now < early::wake(&terms, held.deadline) {
            self.arm(world, client);
            return;
        }
        if let (Some(recovery), true) = (&self.recovery, held.recovered) {
            let extra = recovery.extra(&terms);
            let stated = Stated {
                arrival: held.arrival / MS,
                deadline: held.deadline,
            };
            match early::in_recovery(&stated, now, extra) {
                Answer::Grant { deadline, .. } => held.deadline = deadline,
                Answer::Refuse(_) => {
                    world.counts.refused += 1;
                    return;
                }
            }
        } else {
            let arrival = held.arrival / MS;
            let withheld = held.place == Place::Withheld;
            let kept = match terms.count_policy_delay {
                AtCountPolicyDelay::Off if withheld => now - arrival,
                AtCountPolicyDelay::Off => held.withheld.into(),
                AtCountPolicyDelay::On => 0,
            };
            let stated = Stated {
                arrival: arrival + kept,
                deadline: held.deadline,
            };
            match early::at_margin(&terms, &stated, now, true, None) {
                Answer::Grant { deadline, feed } => {
                    held.deadline = deadline;
                    if feed > 0 && !held.recovered && (!withheld || kept == 0) {
                        self.measure(world, feed);
                    }
                }
                Answer::Refuse(_) => {
                    world.counts.refused += 1;
                    return;
                }
            }
        }
        world.counts.at_margin += 1;
        self.send_early(world, client);
        self.arm(world, client);
    }

    /// Queues a request, or withholds it for its class.
    fn admit(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        held.withheld = ((world.now - held.arrival) / MS) as u32;
        if client < self.setup.withheld {
            held.place = Place::Withheld;
            self.gate.0.push_back(client);
            if self.gate.0.len() == 1 {
                let time = self.gate.1.max(world.now);
                let life = self.life;
                world.schedule(time, Event::Release { life });
            }
        } else {
            held.place = Place::Queued;
            self.queue.push_back(client);
        }
    }

    /// The rate allows another request of the class.
    pub(super) fn release(&mut self, world: &mut World, life: u32) {
        if life != self.life || !self.alive {
            return;
        }
        let Some(client) = self.gate.0.pop_front() else {
            return;
        };
        let held = &mut self.held[client as usize];
        held.withheld = ((world.now - held.arrival) / MS) as u32;
        held.place = Place::Queued;
        self.queue.push_back(client);
        self.gate.1 = world.now + SECOND;
        if !self.gate.0.is_empty() {
            let time = self.gate.1;
            world.schedule(time, Event::Release { life });
        }
        self.start(world);
    }

    /// Fills the slots.
    fn start(&mut self, world: &mut World) {
        while self.busy < self.setup.slots {
            let Some(client) = self.queue.pop_front() else {
                break;
            };
            self.busy += 1;
            self.held[client as usize].place = Place::Busy;
            let mean = self.setup.service * self.slowness;
            // Half of it is the same for all.
            let time = mean / 2 + world.exponential(mean / 2);
            let life = self.life;
            world.schedule(world.now + time, Event::Done { client, life });
        }
    }

    /// The device has carried out a request.
    pub(super) fn done(&mut self, world: &mut World, client: u32, life: u32) {
        if life != self.life || !self.alive {
            return;
        }
        self.busy -= 1;
        let held = &mut self.held[client as usize];
        held.place = Place::Done;
        held.service = ((world.now - held.arrival) / MS) as u32;
        let recovered = held.recovered;
        let counted = match self.setup.terms.count_policy_delay {
            AtCountPolicyDelay::On => held.service,
            AtCountPolicyDelay::Off => held.service.saturating_sub(held.withheld),
        };
        if !recovered && self.adapts() {
            self.measure(world, counted);
        }
        self.answer(world, client);
        self.start(world);
    }

    /// Sends the reply.
    fn answer(&mut self, world: &mut World, client: u32) {
        let estimate = self.estimate(world);
        let held = &self.held[client as usize];
        let message = Message::Reply {
            xid: held.xid,
            service: held.service,
            estimate,
        };
        let arrives = world.send(Event::ToClient(client, message));
        self.lost[client as usize] = if arrives { 0 } else { held.xid };
    }
}
