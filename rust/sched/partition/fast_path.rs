// SPDX-License-Identifier: GPL-2.0-only

//! Per-CPU fast path: dispatch without the lock of the partition.
//!
//! # Terms
//!
//! - *Row* of the fast path: the ident of a submitter on one CPU, and a tally.
//! - *Tally*: number and pages of requests that passed by the row and are not yet counted in their
//!   class.
//! - *Open* row: the class of its requests is known, and its policy lets requests pass freely
//!   ([`Part::passes_freely`](crate::sched::policy::Part::passes_freely)).
//!
//! ```text
//!             a request passes with the lock
//!   closed ──────────────────────────────────▶ open ──┐ a request passes without it:
//!     ▲                                         │ ▲   │ the tally grows
//!     └── the head is read or changed: ─────────┘ └───┘
//!         the tally is counted
//! ```
//!
//! Rows are opened and closed under the lock of the partition. Closing a row takes its tally
//! atomically, so each request is counted once: with the row, or alone under the lock. A row has a
//! new number each time it is opened. So a request that compared the ident of a row detects that
//! the row was reused. An ident is written after the tally was taken, and read before the tally is
//! increased ([`Hint`]). The same comparison detects a request that another CPU counted meanwhile.
//!
//! Requests without an ident share a row ([`UNKNOWN`]), which is open only while their policy has
//! one class.
//!
//! A passing request first takes its slot and then checks that its row is still open. So no wake-up
//! is lost, by the argument for a request of another partition ([`super::slot_pool`]).

use super::{
    ident::{row_of, Ident},
    slot_pool::{SlotPool, SlotSearch},
};
use crate::sched::{
    atomic::{AtomicWord, Hint},
    attr::Priority,
    head::HeadTicket,
    mem::{GrowingList, NoMemory, Shared},
    slots::SlotLimits,
};

/// Rows per CPU; a power of two.
const ROWS: usize = 4;

/// Ident of requests without an ident: no user and no group has this number.
const UNKNOWN: Ident = [u64::MAX; 5];

/// Maximum CPUs with their own rows; further CPUs share rows.
const CPUS_MAX: u32 = 512;

/// Maximum open rows per partition, because one lock hold may close all of them.
const OPEN_MAX: usize = 128;

/// Bit fields of a tally, from bit 0: pages, requests, number of the row. A tally of 0 is a closed
/// row.
const PAGES: u32 = 36;
const REQUESTS: u32 = 14;
const REQUESTS_MAX: u64 = (1 << REQUESTS) - 1;
const NUMBER: u32 = PAGES + REQUESTS;
const NUMBER_MAX: u64 = (1 << (64 - NUMBER)) - 1;

/// Binary logarithm of the page limit of a counted request: the maximum number of requests in a
/// tally cannot overflow its pages.
const LARGE: u32 = PAGES - REQUESTS;

/// Requests that passed without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTally {
    /// Number of requests.
    pub requests: u32,
    /// Pages of the requests.
    pub pages: u64,
}

impl PassTally {
    const fn of(bits: u64) -> Self {
        Self {
            requests: ((bits >> PAGES) & REQUESTS_MAX) as u32,
            pages: bits & ((1 << PAGES) - 1),
        }
    }
}

/// Row, in its own cache line.
#[repr(align(64))]
struct PassRow {
    ident: [Hint; 5],
    tally: AtomicWord,
}

impl PassRow {
    const fn new() -> Self {
        Self {
            ident: [const { Hint::new(0) }; 5],
            tally: AtomicWord::new(0),
        }
    }

    #[inline]
    fn has(&self, ident: &Ident) -> bool {
        let pairs = self.ident.iter().zip(ident);
        pairs.fold(0, |differ, (a, b)| differ | (a.get() ^ b)) == 0
    }

    /// Adds a request of `pages` to the tally, if it still equals `tally` and has room; returns
    /// true if so.
    #[inline]
    fn count(&self, tally: u64, pages: u32) -> bool {
        let sum = tally.wrapping_add((1 << PAGES) | u64::from(pages));
        (tally ^ sum) >> NUMBER == 0 && pages >> LARGE == 0 && self.tally.replace(tally, sum)
    }
}

/// Rows of all CPUs for one partition.
pub struct FastPath {
    rows: GrowingList<PassRow>,
}

impl FastPath {
    /// Creates closed rows for `cpus` CPUs; sleeps.
    pub fn new(cpus: u32) -> Result<Shared<Self>, NoMemory> {
        let count = (cpus.clamp(1, CPUS_MAX) as usize).wrapping_mul(ROWS);
        let mut rows = GrowingList::with_capacity(count)?;
        for _ in 0..count {
            rows.push(PassRow::new())?;
        }
        Shared::new(Self { rows })
    }

    /// Returns the index of the row of `ident` on `cpu`.
    #[inline]
    fn index(&self, cpu: u32, ident: &Ident) -> usize {
        let row = row_of(ident) & (ROWS - 1);
        let index = (cpu as usize).wrapping_mul(ROWS) | row;
        let rows = self.rows.as_slice().len();
        if index < rows {
            index
        } else {
            index.checked_rem(rows).unwrap_or(0)
        }
    }

    /// Passes a regular request of `pages` on `cpu` with a slot of `slot_pool`, if the row of
    /// `ident` is open and a slot is available. A result with `others` means that slots were
    /// returned, which other CPUs may have missed.
    #[inline]
    pub fn pass(
        &self,
        slot_pool: &SlotPool,
        cpu: u32,
        ident: Option<&Ident>,
        pages: u32,
        limits: impl FnOnce() -> SlotLimits,
    ) -> SlotSearch {
        if !slot_pool.is_uncontended() {
            return SlotSearch::default();
        }
        let ident = ident.unwrap_or(&UNKNOWN);
        let row = self.rows.as_slice().get(self.index(cpu, ident));
        let Some(row) = row else {
            return SlotSearch::default();
        };
        let tally = row.tally.get();
        if tally == 0 || !row.has(ident) {
            return SlotSearch::default();
        }
        let found = slot_pool.take_on(cpu, Priority::Regular, &limits());
        if found.slot && !row.count(tally, pages) {
            slot_pool.put(Priority::Regular);
            return SlotSearch {
                slot: false,
                others: true,
            };
        }
        found
    }
}

/// State of an open row, protected by the lock of the partition.
#[derive(Clone, Copy)]
struct OpenRow {
    /// Class of the requests of the row.
    ticket: HeadTicket,
    /// Index of the row.
    index: usize,
    /// Tally at the last attempt to use the row for another ident.
    seen: u64,
}

/// Open rows; requires the lock of the partition.
pub struct OpenRows {
    fast_path: Shared<FastPath>,
    /// Open rows; capacity [`OPEN_MAX`] is preallocated.
    open: GrowingList<OpenRow>,
    /// Number of the row opened last.
    number: u64,
}

impl OpenRows {
    /// Creates the state of the rows of `fast_path`, none open; sleeps.
    pub fn new(fast_path: Shared<FastPath>) -> Result<Self, NoMemory> {
        Ok(Self {
            fast_path,
            open: GrowingList::with_capacity(OPEN_MAX)?,
            number: 0,
        })
    }

    /// Opens the row of `ident` on `cpu` for requests of the class of `ticket`. If the row was open
    /// for another ident, closes it first and returns its class and tally. A row that counted
    /// requests since the last such attempt stays open for the other ident.
    pub fn open(
        &mut self,
        cpu: u32,
        ident: Option<&Ident>,
        ticket: &HeadTicket,
    ) -> Option<(HeadTicket, PassTally)> {
        let ident = ident.unwrap_or(&UNKNOWN);
        let index = self.fast_path.index(cpu, ident);
        let row = self.fast_path.rows.as_slice().get(index)?;
        let full = self.open.as_slice().len() >= OPEN_MAX;
        let mut opened = self.open.as_mut_slice().iter_mut();
        let before = match opened.find(|opened| opened.index == index) {
            Some(opened) => {
                let tally = row.tally.get();
                if !row.has(ident) && opened.seen != tally {
                    opened.seen = tally;
                    return None;
                }
                let ticket = core::mem::replace(&mut opened.ticket, *ticket);
                Some((ticket, PassTally::of(row.tally.swap(0))))
            }
            None if !full => {
                let opened = OpenRow {
                    ticket: *ticket,
                    index,
                    seen: 0,
                };
                // The capacity suffices.
                self.open.push(opened).ok()?;
                None
            }
            None => return None,
        };
        for (old, new) in row.ident.iter().zip(ident) {
            old.set(*new);
        }
        self.number = match self.number {
            NUMBER_MAX => 1,
            number => number.wrapping_add(1),
        };
        row.tally.set(self.number << NUMBER);
        before
    }

    /// Returns true if no row is open.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.as_slice().is_empty()
    }

    /// Closes an open row, if any; returns the class and the tally.
    pub fn close(&mut self) -> Option<(HeadTicket, PassTally)> {
        let opened = *self.open.as_slice().last()?;
        let left = self.open.as_slice().len().wrapping_sub(1);
        self.open.truncate(left);
        let row = self.fast_path.rows.as_slice().get(opened.index)?;
        Some((opened.ticket, PassTally::of(row.tally.swap(0))))
    }
}
