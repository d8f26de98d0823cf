// SPDX-License-Identifier: GPL-2.0-only

//! Client: one request at a time, and the client half of adaptive timeouts.
//!
//! ```text
//!            think                reply
//! parked -----------> waiting --------------> thinking ---> waiting ...
//!    ^                   |  ^                     | not active
//!    |                   |  | welcome             v
//!    |      the server   |  |                   parked
//!    |      is dead      v  |
//!    |                  away (retries to connect)
//! ```

use super::portal::Portal;
use super::world::{Message, World, WorldEvent, MS, SECOND};
use nrs_sched::timeouts::terms::{TimeoutMode, TimeoutTerms};

/// Interval between two attempts to connect, us.
const RETRY: u64 = 5 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not active.
    Parked,
    Thinking,
    Waiting,
    /// Disconnected: the client knows that the server is dead and tries to connect.
    Away,
}

pub(super) struct Client {
    number: u32,
    pub(super) state: State,
    portal: Portal,
    pub(super) xid: u32,
    /// Time of the last sending of the request, us.
    pub(super) sent: u64,
    /// Deadline of the request, ms.
    pub(super) deadline: u64,
    /// Time of the pending deadline event, us; 0 if there is none.
    armed: u64,
    /// True if the request was sent more than once.
    again: bool,
    /// Incarnation of the server to which the client connected.
    pub(super) life: u32,
    /// True if the client was waiting when the server restarted.
    pub(super) bereft: bool,
}

impl Client {
    pub(super) fn new(number: u32, terms: &TimeoutTerms) -> Self {
        Self {
            number,
            state: State::Parked,
            portal: Portal::new(terms.rule()),
            xid: 0,
            sent: 0,
            deadline: 0,
            armed: 0,
            again: false,
            life: 0,
            bereft: false,
        }
    }

    /// Returns the timeout of a request sent now, without network time, ms.
    pub(super) fn stated(&mut self, world: &World, terms: &TimeoutTerms) -> u32 {
        match terms.mode() {
            TimeoutMode::Adaptive => self.portal.stated(world.millis()),
            TimeoutMode::Fixed | TimeoutMode::Off => terms.timeout(0),
        }
    }

    /// Returns the timeout of a request sent at `now`, ms.
    pub(super) fn timeout(&mut self, now: u64, terms: &TimeoutTerms) -> u32 {
        match terms.mode() {
            TimeoutMode::Adaptive => self.portal.timeout(now),
            TimeoutMode::Fixed | TimeoutMode::Off => terms.timeout(0),
        }
    }

    /// Schedules the next request after an exponential think time with mean `mean`, us.
    pub(super) fn think(&mut self, world: &mut World, mean: u64) {
        self.state = State::Thinking;
        let time = world.now + world.exponential(mean);
        world.schedule(time, WorldEvent::Think(self.number));
    }

    /// Sends the next request.
    pub(super) fn ask(&mut self, world: &mut World, terms: &TimeoutTerms) {
        self.xid += 1;
        self.again = false;
        world.counts.sent += 1;
        self.send(world, terms);
    }

    /// Sends the current request again.
    pub(super) fn repeat(&mut self, world: &mut World, terms: &TimeoutTerms) {
        self.again = true;
        self.send(world, terms);
    }

    fn send(&mut self, world: &mut World, terms: &TimeoutTerms) {
        let now = world.millis();
        let (stated, timeout) = (self.stated(world, terms), self.timeout(now, terms));
        self.state = State::Waiting;
        self.sent = world.now;
        self.deadline = now + u64::from(timeout);
        let message = Message::Request {
            xid: self.xid,
            stated,
        };
        world.send(WorldEvent::ToServer(self.number, message));
        self.arm(world);
    }

    /// Schedules an event for the deadline; a pending event for an earlier time is sufficient.
    fn arm(&mut self, world: &mut World) {
        let time = (self.deadline * MS).max(world.now + 1);
        if self.armed == 0 || time < self.armed {
            self.armed = time;
            world.schedule(time, WorldEvent::Deadline(self.number));
        }
    }

    /// Handles the deadline event; returns true if the deadline has passed.
    pub(super) fn look(&mut self, world: &mut World) -> bool {
        if self.armed == world.now {
            self.armed = 0;
        }
        if self.state != State::Waiting {
            return false;
        }
        let passed = world.millis() >= self.deadline;
        if !passed {
            self.arm(world);
        }
        passed
    }

    /// Handles a reply; returns the time since sending, ms, and true if the request was sent once;
    /// `None` for an earlier request.
    pub(super) fn reply(
        &mut self,
        world: &World,
        (xid, service, estimate): (u32, u32, u32),
    ) -> Option<(u32, bool)> {
        if self.state != State::Waiting || xid != self.xid {
            return None;
        }
        let total = ((world.now - self.sent) / MS) as u32;
        self.portal
            .replied(world.millis(), total, service, estimate);
        Some((total, !self.again))
    }

    /// Handles an early reply.
    pub(super) fn early(&mut self, world: &World, (xid, timeout): (u32, u32)) {
        if self.state == State::Waiting && xid == self.xid {
            let sent = self.sent / MS;
            let later = self
                .portal
                .early(world.millis(), sent, self.deadline, timeout);
            self.deadline = later;
        }
    }

    /// Tries to connect, and schedules the next attempt.
    pub(super) fn connect(&mut self, world: &mut World, terms: &TimeoutTerms) {
        if self.state == State::Away {
            let stated = self.stated(world, terms);
            world.send(WorldEvent::ToServer(
                self.number,
                Message::Connect { stated },
            ));
            let time = world.now + RETRY;
            world.schedule(time, WorldEvent::Retry(self.number));
        }
    }

    /// Disconnects: the server is dead or does not know the client.
    pub(super) fn lose(&mut self, world: &mut World) {
        self.state = State::Away;
        let time = world.now + world.exponential(100 * MS);
        world.schedule(time, WorldEvent::Retry(self.number));
    }
}
