// SPDX-License-Identifier: GPL-2.0-only

//! Gates: leaky buckets that limit clients to their rates.
//!
//! - A *gate* is the bucket of one client in one group, shared by all partitions and heads
//!   ([`Gate`]). Request classes claim gates in the service's table ([`table`]).
//! - The *inflow* counts the bytes credited to a bucket since the gate was created, and only grows.
//!   An [`Inflow`] describes the inflow between two changes of the rate.
//! - The *level* is the part of the inflow that is used up. Inflow beyond the level is credit; a
//!   level ahead of the inflow is debt.
//! - The *depth* is the upper limit of the credit: the inflow of one *period*. Credit above the
//!   depth is discarded.
//! - A *ticket* is the value of the inflow from which a request is eligible ([`GateTicket`]).
//!
//! ```text
//!              depth
//!       ◄────────────────►
//!  ─────┬──────────┬──────┬──────────────┬────────► bytes
//!   discarded    level  inflow        ticket
//!                  ◄──────►
//!                   credit
//!
//!  book:  ticket = level + need,  level = level + bytes        eligible: ticket <= inflow
//! ```
//!
//! A request is dispatched as a whole or not at all. A request larger than the depth needs a full
//! bucket and leaves a debt that later inflow pays off.
//!
//! # Order
//!
//! A throttled request books: its bytes are added to the level at once, and the request is eligible
//! when the inflow has reached its ticket. Throttled requests of all partitions are therefore
//! dispatched in the order in which they booked, and small requests cannot starve a large one.
//! Tickets are bytes, not times: a change of the rate moves all dispatch times and preserves debt
//! and credit.
//!
//! # Late dispatch
//!
//! If a request is dispatched late, credit up to [`LATE`] beyond the depth counts. A client with
//! queued requests therefore gets its full rate despite late timers. A client that pauses for
//! longer keeps only the depth, see [`Gate::wake`].
//!
//! # Concurrency
//!
//! There is no lock. Only the manager sets rates, except for the first rate of a gate, which the
//! claim sets. The manager writes the inflow cell that is not in use and then the version, whose
//! last bit selects the cell. A reader reads the cell again if the version has changed. Readers
//! therefore never wait, wherever the manager is interrupted. The level is changed by
//! compare-and-swap.

use crate::sched::{
    atomic::{AtomicWord, AtomicWord32, Counter, RelaxedWord, RelaxedWord32},
    bucket::{nanoseconds, Pace},
    item::{Cost, Direction},
    key::Hasher,
    mem::{Bulk, NoMemory},
    qbm::{
        plan::{BandwidthParameters, GROUPS_MAX},
        terms::UNREGULATED,
    },
    tagged_table::TaggedTable,
};

pub mod client_key;
mod inflow;
pub mod table;

use inflow::{Inflow, InflowCell};
use table::GroupEntry;

pub use table::{is_shared, GateClaim, GateOwner};

/// Lateness that is compensated, ns (10 ms).
pub const LATE: u64 = 10_000_000;

/// Maximum debt of forced requests: the inflow of this time, ns (10 s).
const DEBT: u64 = 10_000_000_000;

/// Bound of any debt, bytes: a level that is further ahead means that the inflow has wrapped.
const DEBT_LIMIT_BYTES: i64 = 1 << 52;

/// Maximum charge of a request, bytes.
const REQUEST_MAX: u64 = 1 << 40;

/// Traffic of a gate since it was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Dispatched requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Periods in which a request waited for tokens.
    pub sleeps: u64,
}

impl Usage {
    /// Returns the bytes read and written.
    pub const fn bytes(&self) -> u64 {
        self.read.wrapping_add(self.written)
    }
}

/// Table of the gates of a service: [`GROUPS_MAX`] shared gates of groups, followed by the gates of
/// clients.
pub struct Gates {
    gates: TaggedTable<Gate, GROUPS_MAX>,
    /// Limit of claimed client gates.
    max: u32,
    /// Gates reserved for clients that the plan lists, part of `max`.
    kept: RelaxedWord32,
    used: AtomicWord32,
    entries: Bulk<GroupEntry>,
    /// Generation of the set of groups.
    epoch: AtomicWord32,
    /// Last announced gate.
    news: AtomicWord32,
    /// Number of claims so far.
    stamps: RelaxedWord32,
    hasher: Hasher,
    floor: RelaxedWord,
}

impl Gates {
    /// Creates gates for `count` clients, without groups; may sleep. `seed` must be unknown to
    /// anyone who can choose names of clients.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: no memory.
    pub fn new(count: u32, seed: u64) -> Result<Self, NoMemory> {
        let tuning = BandwidthParameters::default();
        // At most half of the gates are claimed, so that few blocks are full.
        let size = (count as usize).saturating_mul(2);
        let gates = Self {
            gates: TaggedTable::new(size, || Gate::new(tuning.period))?,
            max: count,
            kept: RelaxedWord32::new(0),
            used: AtomicWord32::new(0),
            entries: Bulk::filled(GROUPS_MAX, GroupEntry::shut)?,
            epoch: AtomicWord32::new(0),
            news: AtomicWord32::new(table::END),
            stamps: RelaxedWord32::new(0),
            hasher: Hasher::new(seed),
            floor: RelaxedWord::new(0),
        };
        gates.set_floor(tuning.floor);
        Ok(gates)
    }

    /// Returns the gate at index `place`.
    #[inline]
    pub fn get(&self, place: u32) -> Option<&Gate> {
        self.gates.get(place)
    }

    /// Returns the number of gates.
    pub fn len(&self) -> u32 {
        self.gates.len() as u32
    }

    /// Sets the period of all gates, ns; at least 1.
    pub fn set_period(&self, ns: u64) {
        for index in 0..self.len() {
            if let Some(gate) = self.get(index) {
                gate.period.set(ns.max(1));
            }
        }
    }

    /// Sets the floor, the rate that each client gets regardless of ranks, bytes/s.
    pub fn set_floor(&self, rate: u64) {
        self.floor.set(Pace::new(rate).word());
    }

    /// Returns the time in which the floor rate transfers `bytes`, ns.
    pub fn patience(&self, bytes: u64) -> u64 {
        nanoseconds(Pace::from_word(self.floor.get()).span(bytes))
    }
}

/// Booking of a request at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateTicket {
    /// Value of the inflow from which the request is eligible.
    at: u64,
    /// Bytes charged; 0: the request is free and eligible.
    bytes: u64,
}

impl GateTicket {
    /// Ticket of a request that is not charged.
    pub const FREE: Self = Self { at: 0, bytes: 0 };
}

/// Returns the bytes charged for a request.
#[inline]
fn bytes_of(cost: Cost) -> u64 {
    match cost.direction {
        Direction::Read | Direction::Write => cost.bytes.min(REQUEST_MAX),
        Direction::Other => 0,
    }
}

/// Leaky bucket of one client in one group.
///
/// # Invariants
///
/// - The inflow cell selected by the last bit of `version` does not change until the version does.
///   Only the manager writes `rate` and `rank`, except for a claim while the gate is being created.
/// - `state` is 0, or a tag above a number of users; `party`, `target` and `group` do not change
///   while the gate has a tag.
#[repr(align(64))]
pub struct Gate {
    state: AtomicWord,
    /// 1 if the client is registered.
    known: AtomicWord32,
    /// Index of the gate announced before this one.
    news: AtomicWord32,
    group: RelaxedWord32,
    target: RelaxedWord32,
    /// Dispatched requests in service, of the request classes that use the gate.
    in_service: RelaxedWord32,
    party: [RelaxedWord; client_key::WORDS],
    even: InflowCell,
    odd: InflowCell,
    version: AtomicWord32,
    rank: AtomicWord32,
    rate: AtomicWord,
    /// Period, ns.
    period: RelaxedWord,
    level: AtomicWord,
    requests: Counter,
    read: Counter,
    written: Counter,
    sleeps: Counter,
    /// End of the last period that counts as slept, ns.
    slept: AtomicWord,
}

impl Gate {
    fn new(period: u64) -> Self {
        let course = Inflow::new(UNREGULATED, 0, 0);
        Self {
            state: AtomicWord::new(0),
            known: AtomicWord32::new(0),
            news: AtomicWord32::new(table::UNLISTED),
            group: RelaxedWord32::new(0),
            target: RelaxedWord32::new(0),
            in_service: RelaxedWord32::new(0),
            party: [const { RelaxedWord::new(0) }; client_key::WORDS],
            even: InflowCell::new(&course),
            odd: InflowCell::new(&course),
            version: AtomicWord32::new(0),
            rank: AtomicWord32::new(0),
            rate: AtomicWord::new(UNREGULATED),
            period: RelaxedWord::new(period.max(1)),
            level: AtomicWord::new(0),
            requests: Counter::new(),
            read: Counter::new(),
            written: Counter::new(),
            sleeps: Counter::new(),
            slept: AtomicWord::new(0),
        }
    }

    fn track(&self, version: u32) -> &InflowCell {
        if version & 1 == 0 {
            &self.even
        } else {
            &self.odd
        }
    }

    /// Returns the inflow in effect.
    #[inline]
    fn course(&self) -> Inflow {
        loop {
            let version = self.version.get();
            let course = self.track(version).load();
            if self.version.get() == version {
                return course;
            }
        }
    }

    /// Sets rate, bytes/s or [`UNREGULATED`], and rank. Only the manager, or a claim that creates
    /// the gate, may call this.
    ///
    /// Credit and debt are preserved. A bucket that was unregulated becomes full.
    pub fn set(&self, rate: u64, rank: u8, now: u64) {
        if self.rate() == rate && self.rank() == rank {
            return;
        }
        let was = self.course();
        let mut course = was;
        if self.rate() != rate {
            course = Inflow::new(rate, was.inflow(now), now);
        }
        if !was.is_regulated() {
            self.level
                .set(course.base.wrapping_sub(self.depth(&course)));
        }
        // INVARIANT: the cell that is written is not the cell in effect.
        let next = self.version().wrapping_add(1);
        self.track(next).store(&course);
        self.rate.set(rate);
        self.rank.set(u32::from(rank));
        self.version.set(next);
    }

    /// Resets the gate for the next client: full bucket, all counters 0.
    pub fn clear(&self, now: u64) {
        let course = self.course();
        let full = course.inflow(now).wrapping_sub(self.depth(&course));
        self.level.set(full);
        for counter in [&self.requests, &self.read, &self.written, &self.sleeps] {
            counter.reset();
        }
        self.slept.set_relaxed(now);
        self.in_service.set(0);
    }

    /// Returns the version, which changes whenever rate or rank do.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.get()
    }

    /// Returns the rate, bytes/s.
    #[inline]
    pub fn rate(&self) -> u64 {
        self.rate.get()
    }

    /// Returns the rank of the client's class.
    #[inline]
    pub fn rank(&self) -> u8 {
        self.rank.get() as u8
    }

    /// Returns the capacity of the bucket, bytes.
    #[inline]
    fn depth(&self, course: &Inflow) -> u64 {
        course.bytes(self.period.get()).max(1)
    }

    /// Returns the effective level: credit beyond `room` is discarded.
    #[inline]
    fn counts(level: u64, inflow: u64, room: u64) -> u64 {
        let credit = inflow.wrapping_sub(level) as i64;
        if credit < -DEBT_LIMIT_BYTES || credit > i64::try_from(room).unwrap_or(i64::MAX) {
            inflow.wrapping_sub(room)
        } else {
            level
        }
    }

    /// Replaces the level by the result of `change` for the effective level; returns the effective
    /// level. If `change` fails, the level stays and the error is returned.
    #[inline]
    fn change<E>(
        &self,
        inflow: u64,
        room: u64,
        change: impl Fn(u64) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let mut there = self.level.get();
        loop {
            let level = Self::counts(there, inflow, room);
            let after = change(level)?;
            match self.level.replace_weak(there, after) {
                Ok(_) => return Ok(level),
                Err(other) => there = other,
            }
        }
    }

    /// Charges a queued request, even beyond the credit. Returns the ticket and the time from which
    /// the request is eligible, ns; `now` if immediately. [`Gate::count`] counts the request when
    /// it is dispatched.
    #[inline]
    pub fn reserve(&self, cost: Cost, now: u64) -> (GateTicket, u64) {
        let bytes = bytes_of(cost);
        let course = self.course();
        if bytes == 0 || !course.is_regulated() {
            return (GateTicket::FREE, now);
        }
        let (inflow, depth) = (course.inflow(now), self.depth(&course));
        let room = depth.saturating_add(course.bytes(LATE));
        let level = self.change(inflow, room, |level| {
            Ok::<u64, u64>(level.wrapping_add(bytes))
        });
        let (Ok(level) | Err(level)) = level;
        let at = level.wrapping_add(bytes.min(depth));
        (GateTicket { at, bytes }, course.reaches(at, now))
    }

    /// Returns the time from which a request with `ticket` is eligible, ns; `now` if it is
    /// eligible.
    #[inline]
    pub fn due(&self, ticket: &GateTicket, now: u64) -> u64 {
        let course = self.course();
        if ticket.bytes == 0 || !course.is_regulated() {
            return now;
        }
        course.reaches(ticket.at, now)
    }

    /// Cancels the charge of `ticket`.
    pub fn cancel(&self, ticket: &GateTicket) {
        self.level.sub(ticket.bytes);
    }

    /// Returns the charge of a dispatched request of `cost`.
    pub fn refund(&self, cost: Cost) {
        if self.course().is_regulated() {
            self.level.sub(bytes_of(cost));
        }
    }

    /// Charges and counts a request if the credit suffices.
    ///
    /// # Errors
    ///
    /// The time from which the credit may suffice, ns.
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

    /// Charges and counts a request that is dispatched unconditionally; the resulting debt is
    /// bounded.
    pub fn force(&self, cost: Cost, now: u64) {
        self.owe(cost, now);
        self.count(cost);
    }

    /// Charges the bytes that a merge added to a request; the resulting debt is bounded.
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
                // Debt from bookings is not reduced.
                let owed = level.wrapping_sub(inflow) as i64;
                let most = i64::try_from(most).unwrap_or(i64::MAX).max(owed);
                let owes = owed.saturating_add_unsigned(bytes).min(most);
                Ok::<u64, u64>(inflow.wrapping_add_signed(owes))
            });
            let (Ok(_) | Err(_)) = done;
        }
    }

    /// Discards credit beyond the depth, after the client has paused.
    pub fn wake(&self, now: u64) {
        let course = self.course();
        if !course.is_regulated() {
            return;
        }
        let (inflow, depth) = (course.inflow(now), self.depth(&course));
        let brim = depth.saturating_add(course.bytes(LATE));
        let level = self.level.get();
        if Self::counts(level, inflow, brim) == inflow.wrapping_sub(brim) {
            let full = inflow.wrapping_sub(depth);
            // If the exchange fails, another CPU is using the gate, and the client has not paused.
            self.level.replace(level, full);
        }
    }

    /// Counts a dispatched request.
    #[inline]
    pub fn count(&self, cost: Cost) {
        self.requests.count(1);
        self.count_bytes(cost);
    }

    #[inline]
    fn count_bytes(&self, cost: Cost) {
        match cost.direction {
            Direction::Read => self.read.count(cost.bytes),
            Direction::Write => self.written.count(cost.bytes),
            Direction::Other => {}
        }
    }

    /// Adds `count` requests in service, of a class that uses the gate.
    #[inline]
    pub fn begin_service(&self, count: u32) {
        self.in_service.add(count);
    }

    /// Subtracts `count` requests that have completed or are counted at another gate.
    #[inline]
    pub fn end_service(&self, count: u32) {
        let end = |now: u32| Some(now.saturating_sub(count));
        self.in_service.change(end);
    }

    /// Returns true if the client has requests queued or in service.
    pub fn is_busy(&self) -> bool {
        self.users() > 0 || self.in_service.get() > 0
    }

    /// Counts the periods from `since` until `now`, during which a request waited for tokens. Each
    /// period counts once.
    pub fn sleep(&self, since: u64, now: u64) {
        let period = self.period.get();
        let mut slept = self.slept.get();
        while slept <= now {
            let since = since.clamp(slept, now);
            let ends = now.checked_div(period).unwrap_or(0).saturating_add(1);
            let count = ends.saturating_sub(since.checked_div(period).unwrap_or(0));
            let end = ends.saturating_mul(period);
            match self.slept.replace_weak(slept, end) {
                Ok(_) => {
                    self.sleeps.count(count);
                    return;
                }
                Err(other) => slept = other,
            }
        }
    }

    /// Returns the credit, bytes; negative for debt, including booked requests.
    pub fn balance(&self, now: u64) -> i64 {
        let course = self.course();
        if !course.is_regulated() {
            return 0;
        }
        let inflow = course.inflow(now);
        let level = self.level.get();
        let level = Self::counts(level, inflow, self.depth(&course));
        inflow.wrapping_sub(level) as i64
    }

    /// Returns the traffic since the gate was cleared.
    pub fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.get(),
            read: self.read.get(),
            written: self.written.get(),
            sleeps: self.sleeps.get(),
        }
    }
}

#[cfg(test)]
mod tests;
