// SPDX-License-Identifier: GPL-2.0-only

//! What is kept for a class: its queue, its gate, and how far its first request has come.
//!
//! # Vocabulary
//!
//! - *Front*: the class's oldest queued request. Only that one stands at the gate.
//! - *Hold*: what may keep the front ([`Hold`]): its gate, the lack of one, or nothing.
//! - *Due*: the time from which the front may go, as far as is known, ns.
//!
//! ```text
//!                   stage                     its time comes            serve
//!  (becomes front) ───────► waits: booked ─────────────────────► ready ───────► (gone)
//!                             ▲      │ the rate has changed
//!                             └──────┘
//! ```

use super::queue::{turn, Keys, RANK_MAX};
use crate::sched::{
    item::{Cost, Direction, Fifo},
    policy::kept::Kept,
    qbm::{
        gate::{Gate, Gates, Ticket, LATE, NO_SEAT},
        terms::UNREGULATED,
    },
    units::NSEC_PER_SEC,
};

/// How long a class waits for a seat, ns. Should nobody give it one, its requests go all the same.
pub const SEAT_WAIT: u64 = NSEC_PER_SEC;

/// Bytes that a request counts for at least where it waits for others, so that those that cost nothing are
/// not always overdue.
const LEAST: u64 = 4096;

/// What a class owes to the gate that it will get.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    read: u64,
    written: u64,
}

/// What may keep a front.
#[derive(Clone, Copy)]
pub enum Hold<'a> {
    /// Nothing.
    Nobody,
    /// There are gates, and the class has none yet.
    Unseated,
    /// Its gate.
    Gate(&'a Gate),
}

impl<'a> Hold<'a> {
    /// What holds a class with `seat`; without `gates`, nothing does.
    #[inline]
    pub fn of(gates: Option<&'a Gates>, seat: u32) -> Self {
        match gates {
            None => Self::Nobody,
            Some(_) if seat == NO_SEAT => Self::Unseated,
            Some(gates) => gates.get(seat).map_or(Self::Nobody, Self::Gate),
        }
    }
}

/// What is kept for a class.
///
/// # Invariants
///
/// - `keys` are those the class has in the queue of its part; it is there exactly if something is queued.
/// - `ticket` is what the front has taken from the gate of `seat`; nothing if there is no front.
pub struct Record<F> {
    /// Its requests.
    pub fifo: F,
    /// Where it is in the queue.
    pub keys: Keys,
    /// Requests in service.
    pub active: u32,
    /// Its gate, or [`NO_SEAT`].
    pub seat: u32,
    /// Which gates `seat` is of.
    pub epoch: u32,
    /// Requests went since the last walk.
    pub used: bool,
    rank: u8,
    version: u32,
    /// When the front became the front, ns.
    staged: u64,
    due: u64,
    kept: Kept,
    ticket: Ticket,
    /// When the last request left the queue, ns.
    emptied: u64,
    /// When it began to wait for a seat, ns.
    unseated: u64,
    owed: Owed,
}

impl<F: Fifo> Record<F> {
    /// A class without requests, and without a gate among those of `epoch`.
    pub fn new(epoch: u32) -> Self {
        Self {
            fifo: F::new(),
            keys: Keys::Away,
            active: 0,
            seat: NO_SEAT,
            epoch,
            used: false,
            rank: 0,
            version: 0,
            staged: 0,
            due: 0,
            kept: Kept::NEVER,
            ticket: Ticket::FREE,
            emptied: 0,
            unseated: 0,
            owed: Owed::default(),
        }
    }

    /// Whether requests are queued or in service.
    pub fn is_active(&self) -> bool {
        self.active > 0 || !self.fifo.is_empty()
    }

    /// After a pause, credit beyond the depth is lost.
    #[inline]
    fn wake(&self, hold: Hold<'_>, now: u64) {
        if let (Hold::Gate(gate), true) = (hold, now.saturating_sub(self.emptied) > LATE) {
            gate.wake(now);
        }
    }

    /// Becomes active: to be called before the first request is staged.
    pub fn begin(&mut self, hold: Hold<'_>, now: u64) {
        self.wake(hold, now);
        self.unseated = now;
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
        match Hold::of(gates, self.seat) {
            Hold::Gate(gate) => {
                self.bind(gate);
                (self.ticket, self.due) = gate.book(cost, now);
            }
            hold => self.wait(hold, now),
        }
        self.keys(gates, cost, now)
    }

    /// Takes over version and rank of its gate.
    #[inline]
    fn bind(&mut self, gate: &Gate) {
        self.version = gate.version();
        self.rank = if gate.rate() == UNREGULATED {
            0
        } else {
            gate.rank().saturating_add(1)
        };
    }

    /// Without a gate: the front waits for one, or for nothing.
    fn wait(&mut self, hold: Hold<'_>, now: u64) {
        self.ticket = Ticket::FREE;
        (self.rank, self.due) = match hold {
            Hold::Unseated => (RANK_MAX, self.unseated.saturating_add(SEAT_WAIT)),
            _ => (0, now),
        };
    }

    /// Looks again when the front, which costs `cost`, may go; returns its keys.
    #[inline]
    pub fn look(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        match Hold::of(gates, self.seat) {
            Hold::Gate(gate) => {
                self.bind(gate);
                let due = gate.due(&self.ticket, now);
                self.due = if due > now { due } else { self.due.min(now) };
            }
            hold => self.wait(hold, now),
        }
        self.keys(gates, cost, now)
    }

    /// Whether the gate has another rate or rank than when the front was looked at.
    pub fn is_outdated(&self, gates: Option<&Gates>) -> bool {
        match Hold::of(gates, self.seat) {
            Hold::Gate(gate) => gate.version() != self.version,
            _ => false,
        }
    }

    /// Where the front, which costs `cost`, is at `now`.
    #[inline]
    fn keys(&self, gates: Option<&Gates>, cost: Cost, now: u64) -> Keys {
        if self.due > now {
            return Keys::Waiting(self.due);
        }
        // Since when it could go: who is never short of tokens is not ahead of those that wait for theirs.
        let since = self.due.max(self.staged);
        let patience = gates.map_or(0, |gates| gates.patience(cost.bytes.max(LEAST)));
        Keys::Ready {
            turn: turn(self.rank, since),
            overdue: since.saturating_add(patience),
        }
    }

    /// Tells the gate that the front waits for tokens, if it does.
    pub fn sleep(&self, gates: Option<&Gates>, now: u64) {
        if let (Keys::Waiting(_), Hold::Gate(gate)) = (self.keys, Hold::of(gates, self.seat)) {
            gate.sleep(self.staged, now);
        }
    }

    /// The front, which cost `cost`, goes, whether or not its time has come.
    #[inline]
    pub fn serve(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        self.used = true;
        match Hold::of(gates, self.seat) {
            Hold::Gate(gate) => {
                gate.count(cost);
                if self.due > self.staged {
                    gate.sleep(self.staged, self.due.min(now));
                }
            }
            Hold::Unseated => self.owe(cost),
            Hold::Nobody => {}
        }
        self.ticket = Ticket::FREE;
        if self.fifo.is_empty() {
            self.emptied = now;
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
        match next {
            Some(next) => self.stage(gates, next, now),
            None => {
                self.emptied = now;
                Keys::Away
            }
        }
    }

    /// Gives back what the front has taken.
    fn cancel(&mut self, gates: Option<&Gates>) {
        if let Hold::Gate(gate) = Hold::of(gates, self.seat) {
            gate.cancel(&self.ticket);
        }
        self.ticket = Ticket::FREE;
    }

    /// Goes to another gate, or to none; returns the keys of its front, which costs `front`, if there is one.
    pub fn sit(&mut self, gates: Option<&Gates>, seat: u32, front: Option<Cost>, now: u64) -> Keys {
        if front.is_some() {
            self.cancel(gates);
        }
        self.seat = seat;
        self.unseated = now;
        self.settle(gates, now);
        front.map_or(Keys::Away, |cost| self.book(gates, cost, now))
    }

    /// The gates are others, those of `epoch`; what it had taken is gone with its seat. Returns the keys of its
    /// front, which costs `front`, if there is one.
    pub fn renew(
        &mut self,
        gates: Option<&Gates>,
        epoch: u32,
        front: Option<Cost>,
        now: u64,
    ) -> Keys {
        self.epoch = epoch;
        self.seat = NO_SEAT;
        self.ticket = Ticket::FREE;
        self.unseated = now;
        front.map_or(Keys::Away, |cost| self.book(gates, cost, now))
    }

    /// A request of `cost` that is not queued goes if there are tokens for it; whether it did.
    #[inline]
    pub fn pass(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) -> bool {
        if !self.fifo.is_empty() {
            return false;
        }
        let hold = Hold::of(gates, self.seat);
        self.wake(hold, now);
        let goes = match hold {
            Hold::Gate(gate) => gate.take(cost, now).is_ok(),
            Hold::Unseated => false,
            Hold::Nobody => true,
        };
        self.used |= goes;
        goes
    }

    /// A request of `cost` that is not queued goes without tokens.
    pub fn force(&mut self, gates: Option<&Gates>, cost: Cost, now: u64) {
        self.used = true;
        match Hold::of(gates, self.seat) {
            Hold::Gate(gate) => gate.force(cost, now),
            Hold::Unseated => self.owe(cost),
            Hold::Nobody => {}
        }
    }

    /// Notes what the gate is to be charged once there is one.
    fn owe(&mut self, cost: Cost) {
        let owed = &mut self.owed;
        match cost.direction {
            Direction::Read => owed.read = owed.read.saturating_add(cost.bytes),
            Direction::Write => owed.written = owed.written.saturating_add(cost.bytes),
            Direction::Other => {}
        }
    }

    /// Pays what it owes, if it has a gate.
    fn settle(&mut self, gates: Option<&Gates>, now: u64) {
        let Hold::Gate(gate) = Hold::of(gates, self.seat) else {
            return;
        };
        let Owed { read, written } = core::mem::take(&mut self.owed);
        for (direction, bytes) in [(Direction::Read, read), (Direction::Write, written)] {
            if bytes > 0 {
                gate.force(Cost::new(direction, bytes), now);
            }
        }
    }
}
