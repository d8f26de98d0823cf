// SPDX-License-Identifier: GPL-2.0-only

//! Gates: the leaky buckets that hold clients to their rates.
//!
//! # Vocabulary
//!
//! - *Gate*: the bucket of one client in one group, which all partitions and heads share ([`Gate`]). Classes claim
//!   it in the table of the service's gates ([`table`]).
//! - *Inflow*: the bytes that came into a bucket since its gate was made, a number that only grows. Where the
//!   rate changes, it bends ([`Course`]).
//! - *Level*: the bytes of the inflow that are used up. What came in beyond it is the credit; a level ahead
//!   of the inflow is debt.
//! - *Depth*: how much credit counts, the bytes that come in a *period*; older credit has run over.
//! - *Ticket*: the place in the inflow from which a request may go ([`Ticket`]).
//!
//! ```text
//!              depth
//!       ◄────────────────►
//!  ─────┬──────────┬──────┬──────────────┬────────► bytes
//!    run over    level  inflow        ticket
//!                  ◄──────►
//!                   credit
//!
//!  book:  ticket = level + need,  level = level + bytes        may go: ticket <= inflow
//! ```
//!
//! A request goes as a whole or not at all. One that is larger than the depth needs a full bucket, goes into
//! debt and pays it off.
//!
//! # Order
//!
//! Whoever has to wait books: its bytes are taken from the level at once, and it goes when the inflow has
//! reached its ticket. So the waiting requests of all partitions go in the order in which they came to the
//! gate, and small ones cannot keep a large one waiting. Tickets are bytes, not times: a change of the rate
//! moves the times of all of them and loses nothing, neither debt nor credit.
//!
//! # Lateness
//!
//! What is served late finds the inflow ahead, up to [`LATE`] beyond the depth, so that a client with requests
//! queued gets its rate however late timers are. A client that pauses for longer has the depth and no more,
//! see [`Gate::wake`].
//!
//! # Concurrency
//!
//! There is no lock. The manager alone sets rates, but for the first one of a gate that is being claimed. It writes the course that is not in use and then the
//! version, whose last bit says which one is; who reads a course looks whether the version has stayed. So
//! nobody waits for anybody, wherever the manager is interrupted. The level is changed by compare-and-swap.

use crate::sched::{
    bucket::{nanoseconds, Pace},
    item::{Cost, Direction},
    key::Hasher,
    mem::{Bulk, NoMemory},
    qbm::{
        plan::{Tuning, GROUPS_MAX},
        terms::UNREGULATED,
    },
};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

mod course;
pub mod party;
pub mod table;

use course::{Course, Track};
use table::{Door, BLOCK};

pub use table::{is_shared, Owner, Seat};

/// Lateness that is made up for, 10 ms in ns.
pub const LATE: u64 = 10_000_000;

/// Debt of requests that must go, at most: what comes in in 10 s, ns.
const DEBT: u64 = 10_000_000_000;

/// No debt is as large as this, bytes: a level that is farther ahead is one that the inflow went around.
const AROUND: i64 = 1 << 52;

/// What a request takes at most, bytes.
const REQUEST_MAX: u64 = 1 << 40;

/// What went through a gate since it was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Periods in which somebody waited for tokens.
    pub sleeps: u64,
}

impl Usage {
    /// Bytes both ways.
    pub const fn bytes(&self) -> u64 {
        self.read.wrapping_add(self.written)
    }
}

/// The gates of a service.
///
/// # Invariants
///
/// There are [`GROUPS_MAX`] gates of groups, and then a power of two of others, of which `mask` is one less.
pub struct Gates {
    gates: Bulk<Gate>,
    mask: usize,
    /// Gates that may be claimed at a time, without those of groups.
    max: u32,
    /// Of these, gates for clients that the plan lists only.
    kept: AtomicU32,
    used: AtomicU32,
    doors: Bulk<Door>,
    /// Which groups there are.
    epoch: AtomicU32,
    /// The last gate that was announced to the manager.
    news: AtomicU32,
    /// Claims so far.
    stamps: AtomicU32,
    hasher: Hasher,
    floor: AtomicU64,
}

impl Gates {
    /// Gates for `count` clients, with no group; sleeps. `seed` must not be known to those who name clients.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(count: u32, seed: u64) -> Result<Self, NoMemory> {
        let tuning = Tuning::default();
        // Half empty, so that few blocks are full.
        let size = (count as usize).saturating_mul(2).max(BLOCK);
        let size = size.checked_next_power_of_two().ok_or(NoMemory)?;
        let all = size.saturating_add(GROUPS_MAX);
        let gates = Self {
            gates: Bulk::filled(all, || Gate::new(tuning.period))?,
            mask: size.wrapping_sub(1),
            max: count,
            kept: AtomicU32::new(0),
            used: AtomicU32::new(0),
            doors: Bulk::filled(GROUPS_MAX, Door::shut)?,
            epoch: AtomicU32::new(0),
            news: AtomicU32::new(table::END),
            stamps: AtomicU32::new(0),
            hasher: Hasher::new(seed),
            floor: AtomicU64::new(0),
        };
        gates.set_floor(tuning.floor);
        Ok(gates)
    }

    /// The gate at `place`.
    #[inline]
    pub fn get(&self, place: u32) -> Option<&Gate> {
        self.gates.get(place as usize)
    }

    /// Number of gates.
    pub fn len(&self) -> u32 {
        self.gates.len() as u32
    }

    /// Sets the period of all gates, ns.
    pub fn set_period(&self, ns: u64) {
        for index in 0..self.gates.len() {
            if let Some(gate) = self.gates.get(index) {
                gate.period.store(ns.max(1), Relaxed);
            }
        }
    }

    /// Sets the rate that everybody has whatever goes before it, bytes/s.
    pub fn set_floor(&self, rate: u64) {
        self.floor.store(Pace::new(rate).word(), Relaxed);
    }

    /// How long `bytes` take at the floor, ns.
    pub fn patience(&self, bytes: u64) -> u64 {
        nanoseconds(Pace::from_word(self.floor.load(Relaxed)).span(bytes))
    }
}

/// Where a request stands at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The place in the inflow.
    at: u64,
    /// What was taken; 0: it costs nothing, and may go.
    bytes: u64,
}

impl Ticket {
    /// Of a request that nothing is taken for.
    pub const FREE: Self = Self { at: 0, bytes: 0 };
}

/// Bytes that a request takes.
#[inline]
fn bytes_of(cost: Cost) -> u64 {
    match cost.direction {
        Direction::Read | Direction::Write => cost.bytes.min(REQUEST_MAX),
        Direction::Other => 0,
    }
}

/// The leaky bucket of one client in one group.
///
/// # Invariants
///
/// - The track that the last bit of `version` names does not change until the version does. `rate` and `rank` are
///   written by the manager, and by a claim while the gate is being made.
/// - `state` is 0, or a tag above a number of users; `party`, `target` and `group` do not change while it has a tag.
#[repr(align(64))]
pub struct Gate {
    state: AtomicU64,
    /// 1: its client is registered.
    known: AtomicU32,
    /// The gate that was announced before this one.
    news: AtomicU32,
    group: AtomicU32,
    target: AtomicU32,
    /// Requests in service of the classes that use it.
    in_service: AtomicU32,
    party: [AtomicU64; party::WORDS],
    even: Track,
    odd: Track,
    version: AtomicU32,
    rank: AtomicU32,
    rate: AtomicU64,
    /// Ns.
    period: AtomicU64,
    level: AtomicU64,
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    sleeps: AtomicU64,
    /// The end of the last period that counts as slept, ns.
    slept: AtomicU64,
}

impl Gate {
    fn new(period: u64) -> Self {
        let course = Course::new(UNREGULATED, 0, 0);
        Self {
            state: AtomicU64::new(0),
            known: AtomicU32::new(0),
            news: AtomicU32::new(table::UNLISTED),
            group: AtomicU32::new(0),
            target: AtomicU32::new(0),
            in_service: AtomicU32::new(0),
            party: [const { AtomicU64::new(0) }; party::WORDS],
            even: Track::new(&course),
            odd: Track::new(&course),
            version: AtomicU32::new(0),
            rank: AtomicU32::new(0),
            rate: AtomicU64::new(UNREGULATED),
            period: AtomicU64::new(period.max(1)),
            level: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            slept: AtomicU64::new(0),
        }
    }

    fn track(&self, version: u32) -> &Track {
        if version & 1 == 0 {
            &self.even
        } else {
            &self.odd
        }
    }

    /// The course in effect.
    #[inline]
    fn course(&self) -> Course {
        loop {
            let version = self.version.load(SeqCst);
            let course = self.track(version).load();
            if self.version.load(SeqCst) == version {
                return course;
            }
        }
    }

    /// Sets rate, bytes/s or [`UNREGULATED`], and rank; for the manager only.
    ///
    /// What is in the bucket stays, and so does debt. A bucket that was unregulated is full.
    pub fn set(&self, rate: u64, rank: u8, now: u64) {
        if self.rate() == rate && self.rank() == rank {
            return;
        }
        let was = self.course();
        let mut course = was;
        if self.rate() != rate {
            course = Course::new(rate, was.inflow(now), now);
        }
        if !was.is_regulated() {
            self.level
                .store(course.base.wrapping_sub(self.depth(&course)), SeqCst);
        }
        // INVARIANT: the track that is written is not the one in effect.
        let next = self.version().wrapping_add(1);
        self.track(next).store(&course);
        self.rate.store(rate, SeqCst);
        self.rank.store(u32::from(rank), SeqCst);
        self.version.store(next, SeqCst);
    }

    /// Makes it ready for its next client: full, with all counters 0.
    pub fn clear(&self, now: u64) {
        let course = self.course();
        let full = course.inflow(now).wrapping_sub(self.depth(&course));
        self.level.store(full, SeqCst);
        for counter in [&self.requests, &self.read, &self.written, &self.sleeps] {
            counter.store(0, Relaxed);
        }
        self.slept.store(now, Relaxed);
        self.in_service.store(0, Relaxed);
    }

    /// Changes whenever rate or rank do.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(SeqCst)
    }

    /// Bytes per second.
    #[inline]
    pub fn rate(&self) -> u64 {
        self.rate.load(SeqCst)
    }

    /// The rank of its class.
    #[inline]
    pub fn rank(&self) -> u8 {
        self.rank.load(SeqCst) as u8
    }

    /// Bytes that the bucket holds.
    #[inline]
    fn depth(&self, course: &Course) -> u64 {
        course.bytes(self.period.load(Relaxed)).max(1)
    }

    /// The level as far as it counts: what has run over does not.
    #[inline]
    fn counts(level: u64, inflow: u64, room: u64) -> u64 {
        let credit = inflow.wrapping_sub(level) as i64;
        if credit < -AROUND || credit > i64::try_from(room).unwrap_or(i64::MAX) {
            inflow.wrapping_sub(room)
        } else {
            level
        }
    }

    /// Replaces the level by what `change` makes of what counts of it; returns that. Nothing if `change` says
    /// so.
    #[inline]
    fn change<E>(
        &self,
        inflow: u64,
        room: u64,
        change: impl Fn(u64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let mut there = self.level.load(SeqCst);
        loop {
            let level = Self::counts(there, inflow, room);
            let after = change(level)?;
            match self
                .level
                .compare_exchange_weak(there, after, SeqCst, SeqCst)
            {
                Ok(_) => return Ok(level),
                Err(other) => there = other,
            }
        }
    }

    /// Takes for a request that has to wait for its turn, and for what is missing; says when it may go, ns,
    /// `now` if it need not wait. It is counted when it goes ([`Gate::count`]).
    #[inline]
    pub fn book(&self, cost: Cost, now: u64) -> (Ticket, u64) {
        let bytes = bytes_of(cost);
        let course = self.course();
        if bytes == 0 || !course.is_regulated() {
            return (Ticket::FREE, now);
        }
        let (inflow, depth) = (course.inflow(now), self.depth(&course));
        let room = depth.saturating_add(course.bytes(LATE));
        let level = self.change(inflow, room, |level| {
            Ok::<u64, u64>(level.wrapping_add(bytes))
        });
        let (Ok(level) | Err(level)) = level;
        let at = level.wrapping_add(bytes.min(depth));
        (Ticket { at, bytes }, course.reaches(at, now))
    }

    /// When a request with `ticket` may go, ns; `now` if it may.
    #[inline]
    pub fn due(&self, ticket: &Ticket, now: u64) -> u64 {
        let course = self.course();
        if ticket.bytes == 0 || !course.is_regulated() {
            return now;
        }
        course.reaches(ticket.at, now)
    }

    /// Gives back what was taken for `ticket`.
    pub fn cancel(&self, ticket: &Ticket) {
        self.level.fetch_sub(ticket.bytes, SeqCst);
    }

    /// Takes for a request and counts it, if all is there that it needs.
    ///
    /// # Errors
    ///
    /// The time from which there may be enough, ns.
    #[inline]
    pub fn take(&self, cost: Cost, now: u64) -> Result<(), u64> {
        let bytes = bytes_of(cost);
        let course = self.course();
        if bytes > 0 && course.is_regulated() {
            let (inflow, depth) = (course.inflow(now), self.depth(&course));
            let room = depth.saturating_add(course.bytes(LATE));
            self.change(inflow, room, |level| {
                let at = level.wrapping_add(bytes.min(depth));
                if at.wrapping_sub(inflow) as i64 > 0 {
                    return Err(course.reaches(at, now));
                }
                Ok(level.wrapping_add(bytes))
            })?;
        }
        self.count(cost);
        Ok(())
    }

    /// Takes for a request that must go, and counts it; the debt that this makes is bounded.
    pub fn force(&self, cost: Cost, now: u64) {
        self.owe(cost, now);
        self.count(cost);
    }

    /// Does the same for what a request has grown by.
    pub fn merge(&self, cost: Cost, now: u64) {
        self.owe(cost, now);
        self.count_bytes(cost);
    }

    fn owe(&self, cost: Cost, now: u64) {
        let bytes = bytes_of(cost);
        let course = self.course();
        if bytes > 0 && course.is_regulated() {
            let (inflow, depth) = (course.inflow(now), self.depth(&course));
            let room = depth.saturating_add(course.bytes(LATE));
            let most = course.bytes(DEBT).max(depth);
            let done = self.change(inflow, room, |level| {
                // Debt from elsewhere is not forgiven.
                let owed = level.wrapping_sub(inflow) as i64;
                let most = i64::try_from(most).unwrap_or(i64::MAX).max(owed);
                let owes = owed.saturating_add_unsigned(bytes).min(most);
                Ok::<u64, u64>(inflow.wrapping_add_signed(owes))
            });
            let (Ok(_) | Err(_)) = done;
        }
    }

    /// After a pause of its client, credit beyond the depth is lost.
    pub fn wake(&self, now: u64) {
        let course = self.course();
        if !course.is_regulated() {
            return;
        }
        let (inflow, depth) = (course.inflow(now), self.depth(&course));
        let brim = depth.saturating_add(course.bytes(LATE));
        let level = self.level.load(SeqCst);
        if Self::counts(level, inflow, brim) == inflow.wrapping_sub(brim) {
            let full = inflow.wrapping_sub(depth);
            // Who fails here finds that somebody uses it.
            let _ = self.level.compare_exchange(level, full, SeqCst, SeqCst);
        }
    }

    /// Counts a request that goes.
    #[inline]
    pub fn count(&self, cost: Cost) {
        self.requests.fetch_add(1, Relaxed);
        self.count_bytes(cost);
    }

    #[inline]
    fn count_bytes(&self, cost: Cost) {
        match cost.direction {
            Direction::Read => self.read.fetch_add(cost.bytes, Relaxed),
            Direction::Write => self.written.fetch_add(cost.bytes, Relaxed),
            Direction::Other => 0,
        };
    }

    /// Notes that `count` requests of a class that uses the gate are in service.
    #[inline]
    pub fn begin_service(&self, count: u32) {
        self.in_service.fetch_add(count, Relaxed);
    }

    /// Notes that `count` of them have ended, or are noted at another gate.
    #[inline]
    pub fn end_service(&self, count: u32) {
        let end = |now: u32| Some(now.saturating_sub(count));
        let _ = self.in_service.fetch_update(Relaxed, Relaxed, end);
    }

    /// Returns whether its client has requests queued or in service.
    pub fn is_busy(&self) -> bool {
        self.users() > 0 || self.in_service.load(Relaxed) > 0
    }

    /// Somebody waited for tokens from `since` until `now`: counts the periods that this touches and that were
    /// not counted yet.
    pub fn sleep(&self, since: u64, now: u64) {
        let period = self.period.load(Relaxed);
        let mut slept = self.slept.load(SeqCst);
        while slept <= now {
            let since = since.clamp(slept, now);
            let ends = now.checked_div(period).unwrap_or(0).saturating_add(1);
            let count = ends.saturating_sub(since.checked_div(period).unwrap_or(0));
            let end = ends.saturating_mul(period);
            match self.slept.compare_exchange(slept, end, SeqCst, SeqCst) {
                Ok(_) => {
                    self.sleeps.fetch_add(count, Relaxed);
                    return;
                }
                Err(other) => slept = other,
            }
        }
    }

    /// What is in the bucket, bytes; below 0: debt, and what was booked.
    pub fn balance(&self, now: u64) -> i64 {
        let course = self.course();
        if !course.is_regulated() {
            return 0;
        }
        let inflow = course.inflow(now);
        let level = self.level.load(SeqCst);
        let level = Self::counts(level, inflow, self.depth(&course));
        inflow.wrapping_sub(level) as i64
    }

    /// What went through since it was cleared.
    pub fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.load(Relaxed),
            read: self.read.load(Relaxed),
            written: self.written.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
