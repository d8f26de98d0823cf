// SPDX-License-Identifier: GPL-2.0-only

//! Class of requests: its queue, its gate, and the state of its front.
//!
//! Only the front, the oldest queued request of the class, books at the gate. `due` is the earliest
//! known time at which the front is eligible, ns.
//!
//! ```text
//!                    begin, advance            its time comes            serve
//!   (becomes front) ───────► waits: booked ─────────────────────► ready ───────► (dispatched)
//!                              ▲      │ the rate has changed
//!                              └──────┘
//! ```

use super::queue::{turn, QbmKeys};
use crate::sched::{
    count::Count,
    item::{Cost, Fifo, Item},
    policy::withheld_time::WithheldUntil,
    qbm::{
        gate::{Gate, GateClaim, GateTicket, Gates, LATE},
        terms::{LAST, UNREGULATED},
    },
};

/// Minimum number of bytes of a request for the overdue time, so that requests without cost are not
/// always overdue.
const LEAST: u64 = 4096;

/// State of a class.
///
/// # Invariants
///
/// - `keys` are the keys of the class in the queue of its part; the class is there exactly if
///   something is queued.
/// - `ticket` is the booking of the front at the gate of `claim`; free if there is no front.
/// - If `counted` is true, the class is counted as a user of that gate, which it is while something
///   is queued.
/// - `serving` of the requests in flight are recorded at that gate.
pub struct QbmClass<F> {
    /// Queued requests.
    pub fifo: F,
    /// Keys in the queue of the part.
    pub keys: QbmKeys,
    /// Claim of the gate of the class.
    pub claim: GateClaim,
    /// Generation of the gates to which `claim` belongs.
    pub generation: u32,
    serving: u32,
    /// Last plan, by the part's count of plans, without a line for the client; 0 if unknown.
    pub unlisted: u32,
    counted: bool,
    rank: u8,
    version: u32,
    /// Time at which the front became the front, ns.
    staged: u64,
    due: u64,
    kept: WithheldUntil,
    ticket: GateTicket,
    /// Time at which the last request left the queue, ns.
    emptied: u64,
}

impl<F: Fifo> QbmClass<F> {
    /// Creates a class without requests and without a gate among the gates of `generation`.
    pub fn new(generation: u32) -> Self {
        Self {
            fifo: F::new(),
            keys: QbmKeys::Away,
            claim: GateClaim::NONE,
            generation,
            serving: 0,
            unlisted: 0,
            counted: false,
            rank: 0,
            version: 0,
            staged: 0,
            due: 0,
            kept: WithheldUntil::NEVER,
            ticket: GateTicket::FREE,
            emptied: 0,
        }
    }

    /// Returns the cost of the front, if there is one.
    pub fn front(&self) -> Option<Cost> {
        self.fifo.front().map(Item::cost)
    }

    /// Returns the gate; `None` if the class is not limited.
    #[inline]
    fn gate<'a>(&self, gates: Option<&'a Gates>) -> Option<&'a Gate> {
        gates?.get(self.claim.idx())
    }

    /// Moves the class, which has `active` requests in flight, to the gate of `claim`, of
    /// `generation`. Returns the keys of the class. A front that stays at its gate keeps its
    /// booking.
    pub fn claim_gate(
        &mut self,
        gates: Option<&Gates>,
        claim: GateClaim,
        generation: u32,
        active: u32,
        now: u64,
    ) -> QbmKeys {
        let same = self.generation == generation;
        if same && self.claim.is(&claim) {
            self.claim = claim;
            return self.keys;
        }
        if same {
            self.cancel(gates);
            self.uncount(gates);
            let serving = self.serving;
            self.note_end(gates, serving);
        }
        self.serving = 0;
        // Bookings at previous gates are dropped together with the gates.
        self.counted = false;
        self.ticket = GateTicket::FREE;
        (self.claim, self.generation) = (claim, generation);
        match self.front() {
            Some(cost) => {
                self.count(gates);
                self.note_service(gates, active);
                self.reserve(gates, cost, now)
            }
            None => QbmKeys::Away,
        }
    }

    /// Counts the class as a user of the gate, and announces the client if the manager does not
    /// know it.
    #[inline]
    fn count(&mut self, gates: Option<&Gates>) {
        if let Some(gate) = self.gate(gates) {
            self.counted = gate.join(&self.claim);
        }
        self.announce(gates);
    }

    /// Records `count` requests in flight at the gate, which cannot be closed while the class uses
    /// it.
    #[inline]
    fn note_service(&mut self, gates: Option<&Gates>, count: u32) {
        if let (true, Some(gate)) = (self.counted, self.gate(gates)) {
            gate.begin_service(count);
            self.serving.count(count);
        }
    }

    /// Records the end of `count` requests at the gate, if the class still has that gate.
    #[inline]
    fn note_end(&mut self, gates: Option<&Gates>, count: u32) {
        let count = count.min(self.serving);
        self.serving = self.serving.saturating_sub(count);
        if let (Some(gates), Some(gate)) = (gates, self.gate(gates)) {
            if count > 0 && gates.has(&self.claim) {
                gate.end_service(count);
            }
        }
    }

    /// Records the end of a request in flight; `gates` are those of `generation`.
    #[inline]
    pub fn end(&mut self, gates: Option<&Gates>, generation: u32) {
        if self.generation == generation {
            self.note_end(gates, 1);
        }
    }

    /// Reports the client at the gate to the manager, if the manager does not know it. Returns
    /// true if the caller has to wake the worker.
    #[inline]
    pub fn announce(&self, gates: Option<&Gates>) -> bool {
        let (Some(gates), Some(gate)) = (gates, self.gate(gates)) else {
            return false;
        };
        !gate.is_known() && gates.announce(self.claim.idx())
    }

    /// Returns true if the manager knows the client at the gate.
    #[inline]
    pub fn is_known(&self, gates: Option<&Gates>) -> bool {
        self.gate(gates).is_none_or(Gate::is_known)
    }

    /// Stops counting the class as a user of the gate.
    #[inline]
    fn uncount(&mut self, gates: Option<&Gates>) {
        if let (true, Some(gate)) = (core::mem::take(&mut self.counted), self.gate(gates)) {
            gate.leave(&self.claim);
        }
    }

    /// Removes credit beyond the depth after a pause.
    #[inline]
    fn wake(&self, gates: Option<&Gates>, now: u64) {
        if now.saturating_sub(self.emptied) > LATE {
            if let Some(gate) = self.gate(gates) {
                gate.wake(now);
            }
        }
    }

    /// Prepares the class, whose first request was queued; returns the keys of the class.
    #[inline]
    pub fn begin(&mut self, gates: Option<&Gates>, now: u64) -> QbmKeys {
        self.wake(gates, now);
        self.count(gates);
        self.advance(gates, now)
    }

    /// Places a booking for the next front, if there is one; returns the keys of the class.
    #[inline]
    fn advance(&mut self, gates: Option<&Gates>, now: u64) -> QbmKeys {
        self.ticket = GateTicket::FREE;
        match self.front() {
            Some(cost) => {
                self.staged = now;
                self.reserve(gates, cost, now)
            }
            None => {
                self.uncount(gates);
                self.emptied = now;
                QbmKeys::Away
            }
        }
    }

    /// Places a booking for the front, which has none; returns the keys of the class.
    #[inline]
    fn reserve(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> QbmKeys {
        match self.gate(gates) {
            Some(gate) => {
                self.bind(gate);
                (self.ticket, self.due) = gate.reserve(cost, now);
            }
            None => self.make_eligible(now),
        }
        self.keys(gates, cost, now)
    }

    /// Copies version and rank from the gate.
    #[inline]
    fn bind(&mut self, gate: &Gate) {
        self.version = gate.version();
        self.rank = match gate.rank() {
            rank if rank != LAST && gate.rate() == UNREGULATED => 0,
            rank => rank.saturating_add(1),
        };
    }

    /// Makes the front eligible without a gate.
    fn make_eligible(&mut self, now: u64) {
        (self.ticket, self.rank, self.due) = (GateTicket::FREE, 0, now);
    }

    /// Updates the time at which the front is eligible; returns the keys of the class.
    #[inline]
    pub fn refresh(&mut self, gates: Option<&Gates>, now: u64) -> QbmKeys {
        let Some(cost) = self.front() else {
            return self.keys;
        };
        match self.gate(gates) {
            Some(gate) => {
                self.bind(gate);
                let due = gate.due(&self.ticket, now);
                self.due = if due > now { due } else { self.due.min(now) };
            }
            None => self.make_eligible(now),
        }
        self.keys(gates, cost, now)
    }

    /// Returns true if the gate has changed its rate or rank since the last check of the front.
    pub fn is_outdated(&self, gates: Option<&Gates>) -> bool {
        let gate = self.gate(gates);
        gate.is_some_and(|gate| gate.version() != self.version)
    }

    /// Returns the keys of the class at `now`; the front costs `cost`.
    #[inline]
    fn keys(&self, gates: Option<&Gates>, cost: Cost, now: u64) -> QbmKeys {
        if self.due > now {
            return QbmKeys::Waiting(self.due);
        }
        // The time of eligibility counts: a client that is never short of tokens does not precede
        // clients that wait for tokens.
        let since = self.due.max(self.staged);
        let mut patience = gates.map_or(0, |gates| gates.patience(cost.bytes.max(LEAST)));
        if self.claim.is_shared() {
            // All classes at a shared gate have one floor together.
            let users = self.gate(gates).map_or(1, Gate::users);
            patience = patience.saturating_mul(users.max(1));
        }
        QbmKeys::Ready {
            turn: turn(self.rank, since),
            overdue: since.saturating_add(patience),
        }
    }

    /// Charges a front that has left the FIFO, which cost `cost` and is dispatched even if it is
    /// not eligible; returns the keys of the class.
    #[inline]
    pub fn serve(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> QbmKeys {
        if let Some(gate) = self.gate(gates) {
            gate.count(cost);
            if self.due > self.staged {
                gate.sleep(self.staged, self.due.min(now));
            }
        }
        self.note_service(gates, 1);
        self.advance(gates, now)
    }

    /// Returns the time, ms, for which the front was throttled. The front arrived at `arrival` and
    /// is dispatched at `now`, both ns.
    #[inline]
    pub fn withheld(&mut self, arrival: u64, now: u64) -> u32 {
        self.kept.front_goes(self.staged, self.due, arrival, now)
    }

    /// Cancels the booking of a front that has left the FIFO and is not dispatched. Returns the
    /// keys of the class.
    pub fn withdraw(&mut self, gates: Option<&Gates>, now: u64) -> QbmKeys {
        self.cancel(gates);
        self.advance(gates, now)
    }

    /// Cancels the booking of the front, if the class still has the gate.
    fn cancel(&mut self, gates: Option<&Gates>) {
        if let (Some(gates), Some(gate)) = (gates, self.gate(gates)) {
            if gates.has(&self.claim) {
                gate.cancel(&self.ticket);
            }
        }
        self.ticket = GateTicket::FREE;
    }

    /// Returns the tokens of a dispatched request of `cost`; returns the keys of the class.
    pub fn refund(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> QbmKeys {
        match (gates, self.gate(gates)) {
            (Some(all), Some(gate)) if all.has(&self.claim) => gate.refund(cost),
            _ => return self.keys,
        }
        let Some(front) = self.front() else {
            return self.keys;
        };
        self.cancel(gates);
        self.reserve(gates, front, now)
    }

    /// Charges a request of `cost` that is not queued, if there are tokens for it; returns true if
    /// there were.
    #[inline]
    pub fn pass(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> bool {
        if !self.fifo.is_empty() {
            return false;
        }
        self.wake(gates, now);
        let gate = self.gate(gates);
        gate.is_none_or(|gate| gate.take(cost, now).is_ok())
    }

    /// Charges a request of `cost` that is dispatched without queueing and without tokens.
    pub fn force(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        if let Some(gate) = self.gate(gates) {
            gate.force(cost, now);
        }
    }

    /// Charges the growth of a request by `cost`, without tokens.
    pub fn merge(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        if let Some(gate) = self.gate(gates) {
            gate.merge(cost, now);
        }
    }
}
