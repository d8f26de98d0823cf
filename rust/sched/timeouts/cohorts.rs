// SPDX-License-Identifier: GPL-2.0-only

//! Cohorts: the deadlines of what is at a device, for one client.
//!
//! # Vocabulary
//!
//! - *Cohort*: the requests that were sent in the same [`SPAN`]; they have one deadline, the latest of theirs,
//!   as a rule of those that ended as well.
//! - *Generation*: which of the cohorts that share a place it is.
//! - *Token*: what a request keeps, to leave with; when it was sent ([`Token`]).
//! - *Old* cohorts are 4 s long; *elders* are all that is older.
//!
//! ```text
//!   enter ──► cohort ──────────────────► old cohort ────────────► elders
//!             256 × 256 ms     │ 65 s    256 × 4 s      │ 17 min
//!               │              its place is wanted        │
//!               └──────────────► leave ◄──────────────────┘
//! ```
//!
//! A timer for each request would cost more than the request. A cohort is a word with its generation, its
//! deadline and the number of its requests, so to enter and to leave is a compare-and-swap each; deadlines are
//! late by less than the length of a cohort, and never early. A cohort moves on only when its place is wanted,
//! so what hangs in a device that gets nothing else stays exact.
//!
//! # Concurrency
//!
//! There is no lock: any number of threads, in any context, hard interrupts included. All accesses are
//! sequentially consistent, so whoever enters and then looks whether a timer is armed meets a timer that says
//! that it is not and then looks for requests. Whoever looks, misses no request that entered before and has
//! not left; one that moves on at that moment may be seen twice. If two requests are 2^32 ms apart, one may
//! leave for the other; numbers agree again when both left.

mod batch;
mod elders;
mod ring;

use super::terms::{millis, Terms};
use crate::sched::mem::NoMemory;
use batch::{Batch, LEFT_MAX};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use elders::Elders;
use ring::{Older, Ring};

/// Time that a cohort takes, ms.
pub const SPAN: u64 = 1 << YOUNG;

/// The length of cohorts is two to the power of this, ms.
const YOUNG: u32 = 8;

/// The same of old ones.
const OLD: u32 = 12;

/// Instants that are this much after the latest one known, ms, are no longer told by their 32 bits: 4.6 h.
const RECENT: u32 = 1 << 24;

/// A request's membership: when it was sent, ms modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u32);

impl Token {
    /// That of a request which is not counted.
    pub const NONE: Self = Self(u32::MAX);

    /// That of a request which is sent at `now`.
    const fn at(now: u64) -> Self {
        match now as u32 {
            // Of the same cohort.
            u32::MAX => Self(u32::MAX - 1),
            sent => Self(sent),
        }
    }

    /// Whether the request is not counted.
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// When it was sent, ms modulo 2^32.
    pub const fn sent(self) -> u32 {
        self.0
    }

    /// How long ago that was at `now`, ms; 0 if it is not counted or the clock ran backwards.
    pub const fn elapsed(self, now: u64) -> u32 {
        let elapsed = (now as u32).wrapping_sub(self.0);
        if self.is_none() || elapsed > i32::MAX as u32 {
            0
        } else {
            elapsed
        }
    }
}

/// Requests with one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// None of them was sent before, ms.
    pub sent: u64,
    /// None of them was sent after, ms.
    pub last: u64,
    /// When they expire, ms; `u64::MAX`: they did.
    pub deadline: u64,
    /// Whether the deadline is not the first one.
    pub extended: bool,
    /// Their number, at least 1.
    pub count: u32,
}

impl Cohort {
    /// After which instant something has to be seen of the device for it to be alive, ms: the last of them was
    /// sent, or their deadline last moved.
    pub fn since(&self, terms: &Terms) -> u64 {
        let extra = millis(terms.extra.get());
        let moved = self.deadline.saturating_sub(extra.into());
        if self.extended {
            self.last.max(moved)
        } else {
            self.last
        }
    }
}

/// The requests of one client that are at its device.
pub struct Cohorts {
    /// An instant that was the present not long before the last request was sent, ms.
    latest: AtomicU64,
    young: Ring<YOUNG, Ring<OLD, Elders>>,
}

impl Cohorts {
    /// No requests; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self {
            latest: AtomicU64::new(0),
            young: Ring::new(Ring::new(Elders::new())?)?,
        })
    }

    /// A request is sent at `now`, and its deadline is `timeout` ms later; 0: it has none and is not counted.
    #[inline]
    pub fn enter(&self, now: u64, timeout: u32) -> Token {
        if timeout == 0 {
            return Token::NONE;
        }
        let token = Token::at(now);
        let passed = now.wrapping_sub(self.latest.load(SeqCst));
        if passed >= RECENT.into() || !self.young.join(token.0, timeout) {
            self.begin(now, token, timeout);
        }
        token
    }

    /// The same for the first of a cohort, and wherever it is not simple.
    #[cold]
    fn begin(&self, now: u64, token: Token, timeout: u32) {
        self.latest.fetch_max(now, SeqCst);
        self.young.add(&Batch {
            sent: token.0,
            span: 1,
            left: Some(timeout.min(LEFT_MAX)),
            extended: false,
            count: 1,
        });
    }

    /// The request that has the `token` ended.
    #[inline]
    pub fn leave(&self, token: Token) {
        if !token.is_none() && !self.young.part(token.0) {
            self.remove(token);
        }
    }

    /// The same for one that has become old, and wherever it is not simple.
    #[cold]
    fn remove(&self, token: Token) {
        self.young.remove(token.0, 1);
    }

    /// Number of requests.
    pub fn len(&self) -> u32 {
        let mut len = 0_u32;
        self.young
            .look(&mut |batch: Batch| len = len.saturating_add(batch.count));
        len
    }

    /// The earliest deadline that has not been declared passed, ms.
    pub fn next(&self) -> Option<u64> {
        let mut next = None;
        self.young.look(&mut |batch: Batch| {
            let deadline = self.cohort(&batch).deadline;
            if deadline != u64::MAX {
                next = Some(next.map_or(deadline, |next: u64| next.min(deadline)));
            }
        });
        next
    }

    /// When the oldest request was sent, ms; up to the length of its cohort too early.
    pub fn oldest(&self) -> Option<u64> {
        let mut oldest = None;
        self.young.look(&mut |batch: Batch| {
            let sent = self.absolute(batch.sent);
            oldest = Some(oldest.map_or(sent, |oldest: u64| oldest.min(sent)));
        });
        oldest
    }

    /// Shows `f` each cohort with requests, elders and old ones first, otherwise in any order. If it answers a
    /// deadline, that is theirs from now on; `u64::MAX`: it passed.
    pub fn visit(&self, mut f: impl FnMut(Cohort) -> Option<u64>) {
        self.young.visit(&mut |batch: Batch| {
            let cohort = self.cohort(&batch);
            f(cohort).map(|deadline| match deadline {
                u64::MAX => None,
                _ => {
                    let left = deadline.saturating_sub(cohort.sent);
                    Some(left.min(LEFT_MAX.into()) as u32)
                }
            })
        });
    }

    /// What is shown of `batch`.
    fn cohort(&self, batch: &Batch) -> Cohort {
        let sent = self.absolute(batch.sent);
        let after = |time: u32| sent.saturating_add(time.into());
        Cohort {
            sent,
            last: after(batch.span.saturating_sub(1)),
            deadline: batch.left.map_or(u64::MAX, after),
            extended: batch.extended,
            count: batch.count,
        }
    }

    /// The instant with the lower half `sent` that is near the latest one known, or before.
    fn absolute(&self, sent: u32) -> u64 {
        let latest = self.latest.load(SeqCst);
        let ahead = sent.wrapping_sub(latest as u32);
        if ahead < RECENT {
            latest.saturating_add(ahead.into())
        } else {
            latest.saturating_sub(ahead.wrapping_neg().into())
        }
    }
}

#[cfg(test)]
mod tests;
