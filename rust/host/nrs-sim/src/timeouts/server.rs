// SPDX-License-Identifier: GPL-2.0-only

//! Server: slots, a queue, a rate-limited class, and the server half of adaptive timeouts.
//!
//! States of a client's request:
//!
//! ```text
//!             arrival                   a slot is free           completed
//! nothing --------------> queued -----------------------> busy -------------> done (reply is kept)
//!                |          ^
//!                v          | the rate permits it, or recovery is over
//!             withheld -----+
//! ```

use super::{
    world::{Message, World, WorldEvent, MS, SECOND},
    Setup,
};
use nrs_sched::timeouts::{
    early::{self, EarlyReply, RequestTimes},
    estimator::{Estimator, SampleFilter},
    recovery::Recovery,
    terms::{AtCountPolicyDelay, TimeoutMode, TimeoutTerms},
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

/// Last request of a client.
#[derive(Clone, Copy, Default)]
struct Held {
    xid: u32,
    /// Incarnation of the server to which the client connected.
    life: u32,
    place: Place,
    /// True if the request arrived in recovery, so its time says nothing about the service.
    recovered: bool,
    /// Arrival time, us.
    arrival: u64,
    /// Deadline, ms.
    deadline: u64,
    /// Time of the pending deadline event, us; 0 if there is none.
    armed: u64,
    /// Time from arrival until the request was queued for a slot, ms.
    withheld: u32,
    /// Time from arrival to completion, ms.
    service: u32,
    /// True if an early reply for the request was lost.
    missed: bool,
}

/// State of a request whose client has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The server has the request or sent the reply; `missed` if an early reply was lost.
    Here { missed: bool },
    /// The request or the reply was lost.
    Lost,
}

pub(super) struct TimeoutServer {
    setup: Setup,
    pub(super) alive: bool,
    /// Number of restarts.
    pub(super) life: u32,
    /// Time of the last death, us.
    pub(super) died: u64,
    /// Factor by which the device is slower.
    pub(super) slowness: u64,
    estimator: Estimator,
    filter: SampleFilter,
    recovery: Option<Recovery>,
    held: Vec<Held>,
    queue: VecDeque<u32>,
    busy: u32,
    /// Queue of the rate-limited class, and the time from which the next request is eligible, us.
    gate: (VecDeque<u32>, u64),
    /// Clients whose requests are queued until the end of recovery.
    waiting: Vec<u32>,
    /// Request number (`xid`) of the lost reply by client; 0 if none is lost.
    lost: Vec<u32>,
}

fn filter() -> SampleFilter {
    SampleFilter { limit: 0, until: 0 }
}

impl TimeoutServer {
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

    fn terms(&self) -> TimeoutTerms {
        self.setup.terms
    }

    fn adapts(&self) -> bool {
        self.setup.terms.mode() == TimeoutMode::Adaptive
    }

    /// Returns the estimate of the worst service time, ms; 0 if it is unknown.
    pub(super) fn estimate(&mut self, world: &World) -> u32 {
        if self.adapts() {
            self.estimator
                .estimate(world.millis(), &self.setup.terms.rule())
        } else {
            0
        }
    }

    /// Adds a sample to the estimator, as the service in the kernel does.
    fn measure(&mut self, world: &World, sample: u32) {
        let (now, terms) = (world.millis(), self.terms());
        if sample > self.filter.limit || now >= self.filter.until {
            self.estimator.measure(sample, now, &terms.rule());
            self.filter = self.estimator.filter(now, &terms.rule());
        }
    }

    /// Returns the state of request `xid` of `client`.
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

    /// Stops the server and discards its state.
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

    /// Restarts the server; recovery begins when the first client connects.
    pub(super) fn revive(&mut self) {
        self.alive = true;
        self.life += 1;
        self.recovery = Some(Recovery::new());
    }

    fn expect(&self, world: &mut World, ends: u64) {
        let time = (ends * MS).max(world.now + 1);
        world.schedule(time, WorldEvent::Recovered { life: self.life });
    }

    /// Returns the end of recovery, ms; 0 before the first client is back.
    pub(super) fn recovers_until(&self) -> Option<u64> {
        self.recovery.as_ref().map(Recovery::ends)
    }

    /// Ends recovery if its time is over.
    pub(super) fn recovered(&mut self, world: &mut World, life: u32) {
        let Some(recovery) = self.recovery.as_ref().filter(|_| life == self.life) else {
            return;
        };
        if !recovery.is_over(world.millis()) {
            // The end has moved; another event is scheduled for it.
            return;
        }
        self.recovery = None;
        for client in std::mem::take(&mut self.waiting) {
            self.admit(world, client);
        }
        self.start(world);
    }

    /// Handles a message of `client`; `bereft` is true if the client was waiting at the restart.
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
        world.send(WorldEvent::ToClient(client, Message::Welcome));
    }

    fn request(&mut self, world: &mut World, client: u32, xid: u32, stated: u32) {
        let (now, terms, estimate) = (world.millis(), self.terms(), self.estimate(world));
        let held = &mut self.held[client as usize];
        if held.life != self.life {
            world.send(WorldEvent::ToClient(client, Message::Stranger));
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

    /// Sends the deadline of its request to a client.
    fn send_early(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        let message = Message::Early {
            xid: held.xid,
            timeout: (held.deadline - held.arrival / MS) as u32,
        };
        if !world.send(WorldEvent::ToClient(client, message)) {
            held.missed = true;
        }
    }

    /// Schedules an event for a client's request; a pending event for an earlier time is
    /// sufficient.
    fn arm(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        let time = (early::wake(&self.setup.terms, held.deadline) * MS).max(world.now + 1);
        if held.armed == 0 || time < held.armed {
            held.armed = time;
            let life = self.life;
            world.schedule(time, WorldEvent::Margin { client, life });
        }
    }

    /// Handles the event for a client's request: grants or refuses an early reply.
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
            let stated = RequestTimes {
                arrival: held.arrival / MS,
                deadline: held.deadline,
            };
            match early::in_recovery(&stated, now, extra) {
                EarlyReply::Grant { deadline, .. } => held.deadline = deadline,
                EarlyReply::Refuse(_) => {
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
            let stated = RequestTimes {
                arrival: arrival + kept,
                deadline: held.deadline,
            };
            match early::at_margin(&terms, &stated, now, true, None) {
                EarlyReply::Grant { deadline, sample } => {
                    held.deadline = deadline;
                    if sample > 0 && !held.recovered && (!withheld || kept == 0) {
                        self.measure(world, sample);
                    }
                }
                EarlyReply::Refuse(_) => {
                    world.counts.refused += 1;
                    return;
                }
            }
        }
        world.counts.at_margin += 1;
        self.send_early(world, client);
        self.arm(world, client);
    }

    /// Queues a request; the rate-limited class has a queue of its own.
    fn admit(&mut self, world: &mut World, client: u32) {
        let held = &mut self.held[client as usize];
        held.withheld = ((world.now - held.arrival) / MS) as u32;
        if client < self.setup.withheld {
            held.place = Place::Withheld;
            self.gate.0.push_back(client);
            if self.gate.0.len() == 1 {
                let time = self.gate.1.max(world.now);
                let life = self.life;
                world.schedule(time, WorldEvent::Release { life });
            }
        } else {
            held.place = Place::Queued;
            self.queue.push_back(client);
        }
    }

    /// Queues the next request of the rate-limited class for a slot.
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
            world.schedule(time, WorldEvent::Release { life });
        }
        self.start(world);
    }

    /// Dispatches requests while slots are free.
    fn start(&mut self, world: &mut World) {
        while self.busy < self.setup.slots {
            let Some(client) = self.queue.pop_front() else {
                break;
            };
            self.busy += 1;
            self.held[client as usize].place = Place::Busy;
            let mean = self.setup.service * self.slowness;
            // Half of the mean is constant.
            let time = mean / 2 + world.exponential(mean / 2);
            let life = self.life;
            world.schedule(world.now + time, WorldEvent::Done { client, life });
        }
    }

    /// Handles the completion of a request by the device.
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
        let arrives = world.send(WorldEvent::ToClient(client, message));
        self.lost[client as usize] = if arrives { 0 } else { held.xid };
    }
}
