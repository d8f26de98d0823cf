// SPDX-License-Identifier: GPL-2.0-only

//! Tabs: requests that pass without the lock of their partition.
//!
//! # Vocabulary
//!
//! - *Row*: the ident of a submitter on one CPU, and a tally.
//! - *Tally*: requests that passed by the row and are not yet counted in their class, and their
//!   pages.
//! - *Open* row: the class of its requests is known, and its policy lets requests pass freely
//!   ([`Part::passes_freely`](crate::sched::policy::Part::passes_freely)).
//!
//! ```text
//!             a request passes with the lock
//!   closed ──────────────────────────────────▶ open ──┐ a request passes without:
//!     ▲                                         │ ▲   │ the tally grows
//!     └── the head is looked at or changed: ────┘ └───┘
//!         the tally is counted
//! ```
//!
//! Rows are opened and closed with the lock of the partition held. Closing a row takes its tally in
//! the same step, so each request is counted once: with the row, or by itself with the lock. A row
//! has a new number each time it is opened, so a request that has compared the ident of a row finds
//! out if that is not its row any more: an ident is written after the tally was taken, and read
//! before the tally grows ([`Hint`]). It finds out, too, if another one was counted meanwhile.
//!
//! Requests that say nothing of their submitter have a row of their own ([`UNKNOWN`]), which is open
//! only while their policy has one class.
//!
//! What passes takes its slot first and then looks whether its row is open still, so the wake-up
//! argument is that of a request that passes at another partition ([`super::line`]).

use super::{
    lane::{place, Ident},
    line::{Found, Line},
};
use crate::sched::{
    atomic::{Hint, Word},
    attr::Priority,
    head::Ticket,
    mem::{List, NoMemory, Shared},
    slots::Limits,
};

/// Rows of one CPU; a power of two.
const ROWS: usize = 4;

/// The ident of requests that have none: no user and no group has the number.
const UNKNOWN: Ident = [u64::MAX; 5];

/// CPUs with rows of their own, at most; others share them.
const CPUS_MAX: u32 = 512;

/// Rows of a partition that are open, at most: a lock hold may close all.
const OPEN_MAX: usize = 128;

/// Bits of a tally: pages, then requests, then the number of the row; 0: the row is closed.
const PAGES: u32 = 36;
const REQUESTS: u32 = 14;
const REQUESTS_MAX: u64 = (1 << REQUESTS) - 1;
const NUMBER: u32 = PAGES + REQUESTS;
const NUMBER_MAX: u64 = (1 << (64 - NUMBER)) - 1;

/// Logarithm of the pages that a request has fewer of: as many requests as fit into a tally do not fill the bits of pages.
const LARGE: u32 = PAGES - REQUESTS;

/// Requests that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of requests.
    pub requests: u32,
    /// Pages of all of them.
    pub pages: u64,
}

impl Tally {
    const fn of(bits: u64) -> Self {
        Self {
            requests: ((bits >> PAGES) & REQUESTS_MAX) as u32,
            pages: bits & ((1 << PAGES) - 1),
        }
    }
}

/// A row, in a cache line of its own.
#[repr(align(64))]
struct Row {
    ident: [Hint; 5],
    tally: Word,
}

impl Row {
    const fn new() -> Self {
        Self {
            ident: [const { Hint::new(0) }; 5],
            tally: Word::new(0),
        }
    }

    #[inline]
    fn has(&self, ident: &Ident) -> bool {
        let pairs = self.ident.iter().zip(ident);
        pairs.fold(0, |differ, (a, b)| differ | (a.get() ^ b)) == 0
    }

    /// Adds a request of `pages` to `tally`, if the row has that tally still, and there is room.
    #[inline]
    fn count(&self, tally: u64, pages: u32) -> bool {
        let sum = tally.wrapping_add((1 << PAGES) | u64::from(pages));
        (tally ^ sum) >> NUMBER == 0 && pages >> LARGE == 0 && self.tally.replace(tally, sum)
    }
}

/// The rows of all CPUs, of one partition.
pub struct Tabs {
    rows: List<Row>,
}

impl Tabs {
    /// Creates closed rows for `cpus` CPUs; sleeps.
    pub fn new(cpus: u32) -> Result<Shared<Self>, NoMemory> {
        let count = (cpus.clamp(1, CPUS_MAX) as usize).wrapping_mul(ROWS);
        let mut rows = List::with_capacity(count)?;
        for _ in 0..count {
            rows.push(Row::new())?;
        }
        Shared::new(Self { rows })
    }

    /// Returns where the row of `ident` on `cpu` is.
    #[inline]
    fn index(&self, cpu: u32, ident: &Ident) -> usize {
        let row = place(ident) & (ROWS - 1);
        let index = (cpu as usize).wrapping_mul(ROWS) | row;
        let rows = self.rows.as_slice().len();
        if index < rows {
            index
        } else {
            index.checked_rem(rows).unwrap_or(0)
        }
    }

    /// Has a regular request with `ident`, if it has one, and `pages` pass on `cpu` with a slot of `line`, if its row
    /// is open and it may have one. If slots were given back, others may have missed them.
    #[inline]
    pub fn pass(
        &self,
        line: &Line,
        cpu: u32,
        ident: Option<&Ident>,
        pages: u32,
        limits: impl FnOnce() -> Limits,
    ) -> Found {
        if !line.is_calm() {
            return Found::default();
        }
        let ident = ident.unwrap_or(&UNKNOWN);
        let row = self.rows.as_slice().get(self.index(cpu, ident));
        let Some(row) = row else {
            return Found::default();
        };
        let tally = row.tally.get();
        if tally == 0 || !row.has(ident) {
            return Found::default();
        }
        let found = line.take_on(cpu, Priority::Regular, &limits());
        if found.slot && !row.count(tally, pages) {
            line.put(Priority::Regular);
            return Found {
                slot: false,
                others: true,
            };
        }
        found
    }
}

/// What the lock of the partition protects of a row.
#[derive(Clone, Copy)]
struct Opened {
    /// The class of its requests.
    ticket: Ticket,
    /// Index of the row.
    index: usize,
    /// The tally when another ident was in need of the row last.
    seen: u64,
}

/// The rows that are open, for those who have the lock.
pub struct Folder {
    tabs: Shared<Tabs>,
    /// There is room for [`OPEN_MAX`], so nothing allocates.
    open: List<Opened>,
    /// The number that a row had last.
    number: u64,
}

impl Folder {
    /// Creates a folder of `tabs`, of which no row is open; sleeps.
    pub fn new(tabs: Shared<Tabs>) -> Result<Self, NoMemory> {
        Ok(Self {
            tabs,
            open: List::with_capacity(OPEN_MAX)?,
            number: 0,
        })
    }

    /// Opens the row of `ident` on `cpu` for requests of the class of `ticket`. Returns the class and
    /// the tally of the row if it was open for another ident, which has to make room: unless
    /// requests have passed by it since another ident was in need of it last.
    pub fn open(
        &mut self,
        cpu: u32,
        ident: Option<&Ident>,
        ticket: &Ticket,
    ) -> Option<(Ticket, Tally)> {
        let ident = ident.unwrap_or(&UNKNOWN);
        let index = self.tabs.index(cpu, ident);
        let row = self.tabs.rows.as_slice().get(index)?;
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
                Some((ticket, Tally::of(row.tally.swap(0))))
            }
            None if !full => {
                let opened = Opened {
                    ticket: *ticket,
                    index,
                    seen: 0,
                };
                // There is room.
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

    /// Returns whether no row is open.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.as_slice().is_empty()
    }

    /// Closes a row, if one is open; returns the class of its requests and the tally.
    pub fn close(&mut self) -> Option<(Ticket, Tally)> {
        let opened = *self.open.as_slice().last()?;
        let left = self.open.as_slice().len().wrapping_sub(1);
        self.open.truncate(left);
        let row = self.tabs.rows.as_slice().get(opened.index)?;
        Some((opened.ticket, Tally::of(row.tally.swap(0))))
    }
}
