// SPDX-License-Identifier: GPL-2.0-only

//! A client: a party in a group, which a class claimed a gate for.
//!
//! ```text
//!  a class claims a gate          not busy for the idle time          nor for [`KEEP`], or gates are scarce
//!  ─────────────────────► here ◄────────────────────────────────► left ────────────────────────────► (gone)
//!                                        busy again
//! ```
//!
//! A client that left has its gate, and what newcomers of its group start with.

use super::usage::{Mark, Recent};
use crate::sched::{
    qbm::{
        allocator::ClientId,
        gate::{Gate, Usage},
        plan::Party,
        terms::{Terms, UNREGULATED},
    },
    units::NSEC_PER_SEC,
};

/// How long a client that left keeps its gate while these are not scarce, ns.
pub const KEEP: u64 = 10 * NSEC_PER_SEC;

/// What was counted of a client, or of all of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients that registered.
    pub joins: u64,
    /// Clients that left.
    pub leaves: u64,
    /// Clients that found no seat.
    pub seatless: u64,
    /// Times that bandwidth which had been given up was asked for again.
    pub restores: u64,
    /// Times that more was asked for, and what was answered: all of it,
    pub whole: u64,
    /// a part of it,
    pub partly: u64,
    /// or nothing.
    pub refused: u64,
    /// Times that some was given up.
    pub decreases: u64,
    /// Times that others took some.
    pub losses: u64,
    /// How much they took in all, bytes/s.
    pub taken: u64,
}

impl Counters {
    /// Times that more was asked for.
    pub const fn asked(&self) -> u64 {
        let given = self.whole.saturating_add(self.partly);
        given.saturating_add(self.refused)
    }
}

/// Adds one to a counter.
pub fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// Requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Bytes to clients.
    pub read: u64,
    /// Bytes from clients.
    pub written: u64,
    /// Periods slept in.
    pub sleeps: u64,
}

impl Traffic {
    /// What went through a gate.
    pub const fn of(usage: &Usage) -> Self {
        Self {
            requests: usage.requests,
            read: usage.read,
            written: usage.written,
            sleeps: usage.sleeps,
        }
    }

    /// What was added since `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.sleeps = self.sleeps.saturating_add(other.sleeps);
    }

    /// What statistics of use are made from.
    pub const fn mark(&self) -> Mark {
        Mark {
            bytes: self.read.saturating_add(self.written),
            sleeps: self.sleeps,
        }
    }
}

/// A client.
pub struct Client {
    /// Who it is; [`crate::sched::key::Key::Default`]: those that share the gate of the group.
    pub party: Party,
    /// The target of the class that claimed its gate.
    pub target: u32,
    /// The number of its group.
    pub number: u32,
    /// Its group, by its place in the manager's list.
    pub group: u32,
    /// Its name at the allocator; `None`: it is only measured, or has left.
    pub id: Option<ClientId>,
    /// What it is promised; `None`: it is only measured.
    pub terms: Option<Terms>,
    /// Whether it is registered.
    pub here: bool,
    /// When it had requests last, monotonic ns.
    pub busy: u64,
    /// Requests that had gone through its gate at the last tick.
    requests: u64,
    /// It waited for tokens at the last tick.
    asleep: bool,
    /// It gave up bandwidth in this tick.
    pub lowered: bool,
    /// What its gate was set to, bytes/s.
    pub rate: u64,
    /// Before this nothing is restored again, monotonic ns.
    pub restored: u64,
    /// What it used of late.
    pub recent: Recent,
    /// What was counted since the last reset.
    pub counters: Counters,
    /// What had gone through its gate at the last reset.
    pub base: Traffic,
}

impl Client {
    /// The client `party` of group `number`, which is at `group`, met at `now`; its gate was claimed for `target`.
    pub fn new(party: Party, target: u32, number: u32, group: u32, now: u64) -> Self {
        Self {
            party,
            target,
            number,
            group,
            id: None,
            terms: None,
            here: false,
            busy: now,
            requests: 0,
            asleep: false,
            lowered: false,
            rate: UNREGULATED,
            restored: now,
            recent: Recent::new(now),
            counters: Counters::default(),
            base: Traffic::default(),
        }
    }

    /// Sees at `now` whether the client was busy since the last tick, at `last`; counts periods that it has waited
    /// for tokens in that whole time, which the gate is told of when the request goes.
    pub fn see(&mut self, gate: &Gate, last: u64, now: u64) {
        let requests = gate.usage().requests;
        let went = core::mem::replace(&mut self.requests, requests) != requests;
        let queued = gate.users() > 0;
        if went || queued {
            self.busy = now;
        }
        let asleep = queued && gate.balance(now) < 0;
        if asleep && core::mem::replace(&mut self.asleep, asleep) && !went {
            gate.sleep(last, now);
        }
        self.asleep = asleep;
    }

    /// Whether requests went through `gate` since the last tick.
    pub fn has_moved(&self, gate: &Gate) -> bool {
        gate.usage().requests != self.requests
    }

    /// The rank of its class; that of the highest one for a client that is only measured.
    pub fn rank(&self) -> u8 {
        self.terms.map_or(0, |terms| terms.class.rank())
    }

    /// Sets its gate to `rate`; whether the gate changed.
    pub fn set(&mut self, gate: &Gate, rate: u64, now: u64) -> bool {
        self.recent.slow.allow(self.rate, now);
        self.rate = rate;
        let before = gate.version();
        gate.set(rate, self.rank(), now);
        gate.version() != before
    }
}
