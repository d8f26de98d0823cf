// SPDX-License-Identifier: GPL-2.0-only

//! What is kept for a class: its queue, its gate, and how far its first request has come.
//!
//! # Vocabulary
//!
//! - *Front*: the class's oldest queued request. Only that one stands at the gate.
//! - *Due*: the time from which the front may go, as far as is known, ns.
//!
//! ```text
//!                   stage                     its time comes            serve
//!  (becomes front) ───────► waits: booked ─────────────────────► ready ───────► (gone)
//!                             ▲      │ the rate has changed
//!                             └──────┘
//! ```

use super::queue::{turn, Keys};
use crate::sched::{
    item::{Cost, Fifo},
    policy::kept::Kept,
    qbm::{
        gate::{Gate, Gates, Seat, Ticket, LATE},
        terms::{LAST, UNREGULATED},
    },
};

/// Bytes that a request counts for at least where it waits for others, so that those that cost nothing are
/// not always overdue.
const LEAST: u64 = 4096;

/// What is kept for a class.
///
/// # Invariants
///
/// - `keys` are those the class has in the queue of its part; it is there exactly if something is queued.
/// - `ticket` is what the front has taken from the gate of `seat`; nothing if there is no front.
/// - With `counted`, the class is one of the users of that gate, which it is while something is queued.
/// - `serving` of the requests in service are noted at that gate.
pub struct Record<F> {
    /// Its requests.
    pub fifo: F,
    /// Where it is in the queue.
    pub keys: Keys,
    /// Requests in service.
    pub active: u32,
    /// Its gate.
    pub seat: Seat,
    /// Which gates `seat` is of.
    pub generation: u32,
    serving: u32,
    /// The plan, by the part's count of plans, in which no line is for the client; 0: none is known.
    pub unlisted: u32,
    counted: bool,
    rank: u8,
    version: u32,
    /// When the front became the front, ns.
    staged: u64,
    due: u64,
    kept: Kept,
    ticket: Ticket,
    /// When the last request left the queue, ns.
    emptied: u64,
}

impl<F: Fifo> Record<F> {
    /// A class without requests and without a gate among those of `generation`.
    pub fn new(generation: u32) -> Self {
        Self {
            fifo: F::new(),
            keys: Keys::Away,
            active: 0,
            seat: Seat::NONE,
            generation,
            serving: 0,
            unlisted: 0,
            counted: false,
            rank: 0,
            version: 0,
            staged: 0,
            due: 0,
            kept: Kept::NEVER,
            ticket: Ticket::FREE,
            emptied: 0,
        }
    }

    /// Whether requests are queued or in service.
    pub fn is_active(&self) -> bool {
        self.active > 0 || !self.fifo.is_empty()
    }

    /// The gate; none: nothing holds the class.
    #[inline]
    fn gate<'a>(&self, gates: Option<&'a Gates>) -> Option<&'a Gate> {
        gates?.get(self.seat.place())
    }

    /// Goes to the gate of `seat`, of `generation`; returns the keys of the front, which costs `front`, if there is
    /// one. A front that stays at its gate keeps what it has taken.
    pub fn sit(
        &mut self,
        gates: Option<&Gates>,
        seat: Seat,
        generation: u32,
        front: Option<Cost>,
        now: u64,
    ) -> Keys {
        let same = self.generation == generation;
        if same && self.seat.is(&seat) {
            self.seat = seat;
            return self.keys;
        }
        if same {
            self.cancel(gates);
            self.uncount(gates);
            let serving = self.serving;
            self.note_end(gates, serving);
        }
        self.serving = 0;
        // What was taken from other gates is gone with them.
        self.counted = false;
        self.ticket = Ticket::FREE;
        (self.seat, self.generation) = (seat, generation);
        match front {
            Some(cost) => {
                self.count(gates);
                let active = self.active;
                self.note_service(gates, active);
                self.book(gates, cost, now)
            }
            None => Keys::Away,
        }
    }

    /// Becomes one of the users of the gate, and tells the manager if that does not know of a client there.
    #[inline]
    fn count(&mut self, gates: Option<&Gates>) {
        if let Some(gate) = self.gate(gates) {
            self.counted = gate.join(&self.seat);
        }
        self.announce(gates);
    }

    /// Notes `count` requests in service at the gate, which cannot be closed while the class uses it.
    #[inline]
    fn note_service(&mut self, gates: Option<&Gates>, count: u32) {
        if let (true, Some(gate)) = (self.counted, self.gate(gates)) {
            gate.begin_service(count);
            self.serving = self.serving.saturating_add(count);
        }
    }

    /// Notes the end of `count` requests at the gate, if the class still has that.
    #[inline]
    fn note_end(&mut self, gates: Option<&Gates>, count: u32) {
        let count = count.min(self.serving);
        self.serving = self.serving.saturating_sub(count);
        if let (Some(gates), Some(gate)) = (gates, self.gate(gates)) {
            if count > 0 && gates.has(&self.seat) {
                gate.end_service(count);
            }
        }
    }

    /// A request in service has ended; `gates` are those of `generation`.
    #[inline]
    pub fn end(&mut self, gates: Option<&Gates>, generation: u32) {
        self.active = self.active.saturating_sub(1);
        if self.generation == generation {
            self.note_end(gates, 1);
        }
    }

    /// Tells the manager of the client at the gate, if it does not know of it; returns whether the worker has to be woken
    /// for that.
    #[inline]
    pub fn announce(&self, gates: Option<&Gates>) -> bool {
        let (Some(gates), Some(gate)) = (gates, self.gate(gates)) else {
            return false;
        };
        !gate.is_known() && gates.announce(self.seat.place())
    }

    /// Whether the manager knows of the client at the gate.
    #[inline]
    pub fn is_known(&self, gates: Option<&Gates>) -> bool {
        self.gate(gates).is_none_or(Gate::is_known)
    }

    /// Is no user any more.
    #[inline]
    fn uncount(&mut self, gates: Option<&Gates>) {
        if let (true, Some(gate)) = (core::mem::take(&mut self.counted), self.gate(gates)) {
            gate.leave(&self.seat);
        }
    }

    /// After a pause, credit beyond the depth is lost.
    #[inline]
    fn wake(&self, gates: Option<&Gates>, now: u64) {
        if now.saturating_sub(self.emptied) > LATE {
            if let Some(gate) = self.gate(gates) {
                gate.wake(now);
            }
        }
    }

    /// A request is queued where none was: to be called before the request is staged.
    #[inline]
    pub fn begin(&mut self, gates: Option<&Gates>, now: u64) {
        self.wake(gates, now);
        self.count(gates);
    }

    /// A request of `cost` has become the front: books for it; returns its keys.
    #[inline]
    pub fn stage(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        self.staged = now;
        self.book(gates, cost, now)
    }

    /// Books for the front, which has taken nothing; returns its keys.
    #[inline]
    fn book(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        match self.gate(gates) {
            Some(gate) => {
                self.bind(gate);
                (self.ticket, self.due) = gate.book(cost, now);
            }
            None => self.pass_by(now),
        }
        self.keys(gates, cost, now)
    }

    /// Takes over version and rank of its gate.
    #[inline]
    fn bind(&mut self, gate: &Gate) {
        self.version = gate.version();
        self.rank = match gate.rank() {
            rank if rank != LAST && gate.rate() == UNREGULATED => 0,
            rank => rank.saturating_add(1),
        };
    }

    /// Without a gate, the front may go.
    fn pass_by(&mut self, now: u64) {
        (self.ticket, self.rank, self.due) = (Ticket::FREE, 0, now);
    }

    /// Looks again when the front, which costs `cost`, may go; returns its keys.
    #[inline]
    pub fn look(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        match self.gate(gates) {
            Some(gate) => {
                self.bind(gate);
                let due = gate.due(&self.ticket, now);
                self.due = if due > now { due } else { self.due.min(now) };
            }
            None => self.pass_by(now),
        }
        self.keys(gates, cost, now)
    }

    /// Whether the gate has another rate or rank than when the front was looked at.
    pub fn is_outdated(&self, gates: Option<&Gates>) -> bool {
        let gate = self.gate(gates);
        gate.is_some_and(|gate| gate.version() != self.version)
    }

    /// Where the front, which costs `cost`, is at `now`.
    #[inline]
    fn keys(&self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        if self.due > now {
            return Keys::Waiting(self.due);
        }
        // Since when it could go: who is never short of tokens is not ahead of those that wait for theirs.
        let since = self.due.max(self.staged);
        let mut patience = gates.map_or(0, |gates| gates.patience(cost.bytes.max(LEAST)));
        if self.seat.is_shared() {
            // All classes at a shared gate have one floor.
            let users = self.gate(gates).map_or(1, Gate::users);
            patience = patience.saturating_mul(users.max(1));
        }
        Keys::Ready {
            turn: turn(self.rank, since),
            overdue: since.saturating_add(patience),
        }
    }

    /// The front, which cost `cost`, goes, whether or not its time has come; the next one, if there is one, costs
    /// `next`. Returns its keys.
    #[inline]
    pub fn serve(
        &mut self,
        gates: Option<&Gates>,
        cost: Cost,
        next: Option<Cost>,
        now: u64,
    ) -> Keys {
        if let Some(gate) = self.gate(gates) {
            gate.count(cost);
            if self.due > self.staged {
                gate.sleep(self.staged, self.due.min(now));
            }
        }
        self.note_service(gates, 1);
        self.advance(gates, next, now)
    }

    /// The front is gone; the next one, if there is one, costs `next`. Returns its keys.
    #[inline]
    fn advance(&mut self, gates: Option<&Gates>, next: Option<Cost>, now: u64) -> Keys {
        self.ticket = Ticket::FREE;
        match next {
            Some(next) => self.stage(gates, next, now),
            None => {
                self.uncount(gates);
                self.emptied = now;
                Keys::Away
            }
        }
    }

    /// For how long the front, which arrived at `arrival` and goes at `now` (both ns), was kept for its rate, ms.
    #[inline]
    pub fn withheld(&mut self, arrival: u64, now: u64) -> u32 {
        self.kept.front_goes(self.staged, self.due, arrival, now)
    }

    /// The front went away without going down; the next one, if there is one, costs `next`. Returns its keys.
    pub fn withdraw(&mut self, gates: Option<&Gates>, next: Option<Cost>, now: u64) -> Keys {
        self.cancel(gates);
        self.advance(gates, next, now)
    }

    /// Gives back what the front has taken, if the gate still is the one it was taken from.
    fn cancel(&mut self, gates: Option<&Gates>) {
        if let (Some(gates), Some(gate)) = (gates, self.gate(gates)) {
            if gates.has(&self.seat) {
                gate.cancel(&self.ticket);
            }
        }
        self.ticket = Ticket::FREE;
    }

    /// A request of `cost` that is not queued goes if there are tokens for it; whether it did.
    #[inline]
    pub fn pass(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> bool {
        if !self.fifo.is_empty() {
            return false;
        }
        self.wake(gates, now);
        let gate = self.gate(gates);
        gate.is_none_or(|gate| gate.take(cost, now).is_ok())
    }

    /// A request of `cost` that is not queued goes without tokens.
    pub fn force(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        if let Some(gate) = self.gate(gates) {
            gate.force(cost, now);
        }
    }

    /// A request has grown by `cost`, without tokens.
    pub fn merge(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        if let Some(gate) = self.gate(gates) {
            gate.merge(cost, now);
        }
    }
}
