// SPDX-License-Identifier: GPL-2.0-only

//! Round robin: classes take turns, a batch of requests at a time.
//!
//! This engine is common to `crrn`, `orr` and `trr`. Each of these policies defines its classes and
//! the order of the requests of a class.
//!
//! - *Batch*: requests of one class that are dispatched together, at most a *quantum* of them
//!   ([`Batch`]).
//! - *Round*: in each round a class has at most one batch ([`Rounds`]).
//! - *Sequence*: number of a batch, in the order in which the batches of a policy started.
//! - *Turn*: sort key of classes, derived from the tag of the class's next request ([`BatchTurn`]).
//! - *Dry*: state of a class without queued requests whose batch is not full.
//!
//! # States of a batch
//!
//! ```text
//!              a request arrives        quantum requests arrived
//!   (no batch) ───────────────▶ open ───────────────────────────▶ full ─┐ the next request starts
//!       ▲                       │  ▲                                    │ a batch of a later round
//!       │      the last queued  │  │ resumes: a request                 │
//!       │      request leaves   ▼  │ arrives in time                    │
//!       │                       dry                                     │
//!       │                        │ else                                 │
//!       └────────────────────────┴──────────────────────────────────────┘
//! ```
//!
//! With ties by sequence, a batch never resumes. With ties by key, a batch resumes within
//! [`RESUME_MAX_NS`]. If other classes were served in the meantime, resuming costs two changes of
//! class. So a batch that resumes too often (more than once for each [`REQUESTS_PER_RESUME`]
//! requests of a quantum) ends. Later batches of the class end as soon as they are dry, until the
//! class fills a batch.
//!
//! # Order
//!
//! Rounds are served in sequence. Within a round either the batch that started first precedes
//! (`crrn`, as in Lustre), or classes are ordered by key (`orr`, `trr`). The order by key is the
//! same in two runs of the same work. Keys are fixed, but which stream arrives first in a round is
//! random. For the same reason a class with ties by key can resume its batch after a short pause. A
//! round lasts until a request of a later round is dispatched.
//!
//! # Bounds
//!
//! A request is delayed by at most one quantum of each other class in every round up to the
//! request's own. In addition, each class that was dry may dispatch the rest of one more batch.
//! With ties by key, classes are objects, whose number is unbounded. A client that reads file after
//! file would add new classes to the same round without end. So a round accepts new batches only
//! until their number exceeds the number of backlogged classes by [`NEWCOMERS`]; later batches
//! start in the next round. All numbers are 64 bits wide and never wrap: at 10^9 requests/s they
//! last for 500 years.

use crate::sched::{count::Count, heap::Sort};
use core::cmp::Ordering;

pub(crate) mod config;
pub mod params;
pub(crate) mod part;
pub(crate) mod plain;
pub(crate) mod sorted;
pub(crate) mod store;

pub use config::{Bounds, Config, Tuned, Update};
pub use part::{Robin, State};

/// Time for which a class without queued requests keeps a batch that is not full: 10 ms, in ns.
///
/// The time is long enough for a client that waits for replies, and too short for people to notice.
pub const RESUME_MAX_NS: u64 = 10_000_000;

/// Number of requests of a quantum for each of which its batch may resume once after other classes
/// were served.
pub const REQUESTS_PER_RESUME: u32 = 32;

/// Number of batches, beside one for each backlogged class, that a round accepts while it is
/// served, with ties by key.
pub const NEWCOMERS: u32 = 64;

/// Order of the batches of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TieBreak {
    /// Batch that started first.
    Sequence,
    /// Batch of the class with the least key.
    Key,
}

/// Round and batch of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchTag {
    /// Round of the request.
    pub round: u64,
    /// Sequence of the batch; always 0 with [`TieBreak::Key`].
    pub sequence: u64,
}

/// Sort key of classes: the round, then the tie-break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchTurn {
    /// Round of the next request.
    pub round: u64,
    /// Sequence or key, by which ties are broken.
    pub tie: [u64; 2],
}

impl Sort for BatchTurn {
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Batch of a class to which requests are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    round: u64,
    sequence: u64,
    /// Number of requests for which the batch has room.
    left: u32,
    /// Time at which the class became dry, ns.
    dry: u64,
    /// Value of [`Rounds`]'s `served` at that time.
    served: u64,
    /// Number of times that other classes were served before the batch resumed.
    broken: u32,
    /// True if `broken` was too large: batches of the class do not resume until the class fills
    /// one.
    fickle: bool,
}

/// Rounds of a policy.
///
/// # Invariants
///
/// With [`TieBreak::Sequence`], a class with queued requests has no batch of a round before
/// `round`.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    ties: TieBreak,
    quantum: u32,
    /// Lowest round in which a batch may start.
    round: u64,
    /// Sequence of the batch that started last.
    sequence: u64,
    /// Number of requests that left.
    served: u64,
    /// Number of batches that started in `round`.
    begun: u32,
}

impl Rounds {
    /// Creates the state before the first request.
    pub const fn new(ties: TieBreak, quantum: u32) -> Self {
        Self {
            ties,
            quantum,
            round: 0,
            sequence: 1,
            served: 0,
            begun: 0,
        }
    }

    /// Returns the order of the batches of a round.
    pub const fn ties(&self) -> TieBreak {
        self.ties
    }

    /// Sets the quantum of later batches; returns the previous one.
    pub fn set_quantum(&mut self, quantum: u32) -> u32 {
        core::mem::replace(&mut self.quantum, quantum)
    }

    /// Returns true if a class that was dry until `now` resumes its batch.
    fn resumes(&self, batch: &mut Batch, now: u64) -> bool {
        if self.ties == TieBreak::Sequence
            || batch.fickle
            || now.saturating_sub(batch.dry) > RESUME_MAX_NS
        {
            return false;
        }
        if batch.served != self.served {
            batch.broken.count(1);
            batch.fickle = batch.broken > self.quantum / REQUESTS_PER_RESUME;
        }
        !batch.fickle
    }

    /// Adds a request to the batch of its class, or to a new batch, at `now`; returns its tag.
    /// `waiting` is true if the class has queued requests, `busy` is the number of classes with
    /// queued requests.
    #[inline]
    pub fn admit(&mut self, batch: &mut Batch, waiting: bool, busy: u32, now: u64) -> BatchTag {
        if batch.left == 0 || !(waiting || self.resumes(batch, now)) {
            self.begin(batch, busy);
        }
        let tag = BatchTag {
            round: batch.round,
            sequence: batch.sequence,
        };
        batch.left = batch.left.saturating_sub(1);
        if batch.left == 0 {
            batch.round = batch.round.wrapping_add(1);
        }
        tag
    }

    /// Starts a new batch in `batch`.
    fn begin(&mut self, batch: &mut Batch, busy: u32) {
        if batch.left > 0 {
            // The rest of the batch is dropped, because the class has had its turn in that round.
            batch.round = batch.round.wrapping_add(1);
        } else {
            batch.fickle = false;
        }
        batch.round = batch.round.max(self.round);
        match self.ties {
            TieBreak::Sequence if batch.sequence < self.sequence => {
                // Another class has started a batch since this batch started.
                self.sequence = self.sequence.wrapping_add(1);
                batch.sequence = self.sequence;
            }
            TieBreak::Key if batch.round == self.round => {
                if self.begun < busy.saturating_add(NEWCOMERS) {
                    self.begun.count(1);
                } else {
                    batch.round = batch.round.wrapping_add(1);
                }
            }
            _ => {}
        }
        batch.left = self.quantum.max(1);
        batch.broken = 0;
    }

    /// Notes that a class has no queued requests from `now` on.
    pub fn dry(&self, batch: &mut Batch, now: u64) {
        batch.dry = now;
        batch.served = self.served;
    }

    /// Notes that a request with `tag` left; `next` is the turn of the class that is served next.
    pub fn leave(&mut self, tag: BatchTag, next: Option<&BatchTurn>) {
        self.served = self.served.wrapping_add(1);
        let round = match (self.ties, next) {
            (TieBreak::Sequence, Some(next)) => next.round,
            (TieBreak::Sequence, None) => self.round.wrapping_add(1),
            (TieBreak::Key, _) => tag.round,
        };
        if round > self.round {
            self.round = round;
            self.begun = 0;
        }
    }
}

#[cfg(test)]
mod tests;
