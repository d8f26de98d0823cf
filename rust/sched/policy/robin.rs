// SPDX-License-Identifier: GPL-2.0-only

//! Round robin: classes take turns, a batch of requests at a time.
//!
//! What `crrn`, `orr` and `trr` have in common. Each of them says what its classes are and how the requests
//! of one are ordered; this engine does the rest.
//!
//! # Vocabulary
//!
//! - *Batch*: requests of one class that are served together, at most a *quantum* of them ([`Batch`]).
//! - *Round*: in each round a class has one batch at most ([`Rounds`]).
//! - *Sequence*: counts the batches of a policy in the order in which they began.
//! - *Turn*: what classes are ordered by, made from the tag of the request that the class serves next
//!   ([`Turn`]).
//! - *Dry*: a class without queued requests, whose batch is not full.
//!
//! # States of a batch
//!
//! ```text
//!              a request comes              quantum requests have come
//!   (no batch) ───────────────▶ open ─────────────────────────────────▶ full ─┐ the next request begins
//!       ▲                       │  ▲                                          │ a batch of a later round
//!       │       the last queued │  │ resumes: a request                       │
//!       │       one is served   ▼  │ comes in time                            │
//!       │                       dry                                           │
//!       │                        │ else                                       │
//!       └────────────────────────┴────────────────────────────────────────────┘
//! ```
//!
//! With ties by sequence, a batch never resumes. With ties by key it does within [`PAUSE_NS`]. If others
//! were served meanwhile that costs two changes of class, so a batch that is broken too often ends (one
//! break for each [`BREAK`] requests of a quantum), and so do those after it when they are dry, until the
//! class fills one.
//!
//! # Order
//!
//! Rounds go one after the other. Within a round either the batch that began first goes first (`crrn`, as in
//! Lustre), or the classes go in the order of their keys (`orr`, `trr`). The second is so that two runs of
//! the same work give the same order: which stream came first in a round is chance, what its number is
//! is not. For the same reason such a class may go on with its batch when it was dry for a moment only, and
//! its round is not over as long as no request of a later one was served.
//!
//! # Bounds
//!
//! A request waits for at most one quantum of each other class in every round up to its own, and the rest of
//! one more batch of those that were dry. With ties by key, classes are objects, of which there is no end: a
//! client that goes from file to file would bring a new one into the same round for ever. So a round takes in
//! new batches only until there were [`NEWCOMERS`] more than there are classes with requests; what
//! comes later begins with the next round. All numbers are 64 bits wide and never wrap: at 10^9 requests/s they
//! last for 500 years.

use crate::sched::heap::Sort;
use core::cmp::Ordering;

pub(crate) mod config;
pub mod params;
pub(crate) mod part;
pub(crate) mod plain;
pub(crate) mod sorted;
pub(crate) mod store;

pub use config::{Bounds, Config, Tuned, Update};
pub use part::{Robin, State};

/// For how long a class keeps a batch that is not full, with no request queued, 10 ms in ns.
///
/// Long enough for a client that waits for answers, short enough not to be noticed by people.
pub const PAUSE_NS: u64 = 10_000_000;

/// Requests of a quantum for which its batch may resume once after others were served.
pub const BREAK: u32 = 32;

/// Batches that a round takes in while it is served, with ties by key: so many, and one for each class that
/// has requests queued.
pub const NEWCOMERS: u32 = 64;

/// Which batch goes first of those in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The one that began first.
    Sequence,
    /// The one of the class with the least key.
    Key,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Its round.
    pub round: u64,
    /// Of its batch; always 0 with [`Ties::Key`].
    pub sequence: u64,
}

/// What classes are ordered by: the round, then what breaks the tie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// The round.
    pub round: u64,
    /// Sequence or key.
    pub tie: [u64; 2],
}

impl Sort for Turn {
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// The batch of a class that requests are added to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    round: u64,
    sequence: u64,
    /// Requests that it still has room for.
    left: u32,
    /// Of a class that is dry: since when, ns.
    dry: u64,
    /// And how many requests the policy had served then.
    served: u64,
    /// How often others were served before the class went on with it.
    broken: u32,
    /// That was too often: the class is not waited for until it fills a batch.
    fickle: bool,
}

/// The rounds of a policy.
///
/// # Invariants
///
/// With [`Ties::Sequence`], a class with queued requests has no batch of a round before `round`.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    ties: Ties,
    quantum: u32,
    /// The least round that a batch may begin in.
    round: u64,
    /// Of the batch that began last.
    sequence: u64,
    /// Counts the requests that left.
    served: u64,
    /// Batches that began in `round`.
    begun: u32,
}

impl Rounds {
    /// Before the first request.
    pub const fn new(ties: Ties, quantum: u32) -> Self {
        Self {
            ties,
            quantum,
            round: 0,
            sequence: 1,
            served: 0,
            begun: 0,
        }
    }

    /// How ties are broken.
    pub const fn ties(&self) -> Ties {
        self.ties
    }

    /// Batches that begin from now on have `quantum` requests; returns what they had.
    pub fn set_quantum(&mut self, quantum: u32) -> u32 {
        core::mem::replace(&mut self.quantum, quantum)
    }

    /// Whether a class that was dry until `now` goes on with its batch.
    fn resumes(&self, batch: &mut Batch, now: u64) -> bool {
        if self.ties == Ties::Sequence || batch.fickle || now.saturating_sub(batch.dry) > PAUSE_NS {
            return false;
        }
        if batch.served != self.served {
            batch.broken = batch.broken.saturating_add(1);
            batch.fickle = batch.broken > self.quantum / BREAK;
        }
        !batch.fickle
    }

    /// Adds a request to the batch of its class, or to a new one, at `now`; its tag. `waiting`: the class has
    /// requests queued already. `busy`: how many classes have.
    #[inline]
    pub fn admit(&mut self, batch: &mut Batch, waiting: bool, busy: u32, now: u64) -> Tag {
        if batch.left == 0 || !(waiting || self.resumes(batch, now)) {
            self.begin(batch, busy);
        }
        let tag = Tag {
            round: batch.round,
            sequence: batch.sequence,
        };
        batch.left = batch.left.saturating_sub(1);
        if batch.left == 0 {
            batch.round = batch.round.wrapping_add(1);
        }
        tag
    }

    /// Makes `batch` a new one.
    fn begin(&mut self, batch: &mut Batch, busy: u32) {
        if batch.left > 0 {
            // The rest of the batch is lost; the class has had its turn in that round.
            batch.round = batch.round.wrapping_add(1);
        } else {
            batch.fickle = false;
        }
        batch.round = batch.round.max(self.round);
        match self.ties {
            Ties::Sequence if batch.sequence < self.sequence => {
                // Another class began a batch since this one did.
                self.sequence = self.sequence.wrapping_add(1);
                batch.sequence = self.sequence;
            }
            Ties::Key if batch.round == self.round => {
                if self.begun < busy.saturating_add(NEWCOMERS) {
                    self.begun = self.begun.saturating_add(1);
                } else {
                    batch.round = batch.round.wrapping_add(1);
                }
            }
            _ => {}
        }
        batch.left = self.quantum.max(1);
        batch.broken = 0;
    }

    /// A class has no queued requests any more, from `now` on.
    pub fn dry(&self, batch: &mut Batch, now: u64) {
        batch.dry = now;
        batch.served = self.served;
    }

    /// A request with `tag` has left, and `next` is who is served next.
    pub fn leave(&mut self, tag: Tag, next: Option<&Turn>) {
        self.served = self.served.wrapping_add(1);
        let round = match (self.ties, next) {
            (Ties::Sequence, Some(next)) => next.round,
            (Ties::Sequence, None) => self.round.wrapping_add(1),
            (Ties::Key, _) => tag.round,
        };
        if round > self.round {
            self.round = round;
            self.begun = 0;
        }
    }
}

#[cfg(test)]
mod tests;
