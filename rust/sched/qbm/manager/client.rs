// SPDX-License-Identifier: GPL-2.0-only

//! A registered client.
//!
//! ```text
//!           meet, busy                 tick: not busy for long
//!  (nobody) ──────────► here ◄────────────────────────────────► left ──────► away ──────► (nobody)
//!                              meet, busy again                      tick         tick
//! ```
//!
//! Between two ticks is a whole walk, in which all classes of who left are told to give up the seat; so a
//! seat that a class still knows is never another client's.

use super::usage::{Mark, Recent};
use crate::sched::qbm::{
    allocator::ClientId,
    gate::{Gate, Usage},
    terms::{Terms, UNREGULATED},
};

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

/// Whether a client is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It is.
    Here,
    /// It left since the last tick.
    Left,
    /// It left before, and its seat is vacant after the next tick.
    Away,
}

/// A client: a party in a group.
pub struct Client {
    /// Its group, by its place in the manager's list.
    pub group: u32,
    /// The target that one of its classes is for.
    pub target: u32,
    /// Its name at the allocator; `None`: it is only measured, or has left.
    pub id: Option<ClientId>,
    /// What it is promised; `None`: it is only measured.
    pub terms: Option<Terms>,
    /// Whether it is registered.
    pub stay: Stay,
    /// When a class of it was busy last, monotonic ns.
    pub busy: u64,
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
    /// A client of the group at `group`, met at `now` through a class for `target`.
    pub fn new(group: u32, target: u32, terms: Option<Terms>, now: u64) -> Self {
        Self {
            group,
            target,
            id: None,
            terms,
            stay: Stay::Here,
            busy: now,
            rate: UNREGULATED,
            restored: now,
            recent: Recent::new(now),
            counters: Counters::default(),
            base: Traffic::default(),
        }
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
