// SPDX-License-Identifier: GPL-2.0-only

//! One head of a partition, with a cache of the classes of recent requests.
//!
//! # Vocabulary
//!
//! - *Ident*: everything of a request that its class may depend on, short enough to compare.
//! - *Cache*: idents of recent requests and their classes, so that attributes need not be gathered
//!   again.

use super::tab::{Folder, Tabs};
use crate::sched::{
    attr::Attrs,
    head::{Head, Ticket},
    item::{Cost, Item},
    mem::{Need, NoMemory, Owned, Shared},
    policy::{Part, Passed, Way},
};

/// Places of the cache; a power of two.
const CACHE: usize = 16;

/// Everything of a request that its class may depend on.
pub type Ident = [u64; 5];

/// The ident of a recent request, and its class.
#[derive(Clone, Copy)]
struct Cached {
    ident: Ident,
    ticket: Ticket,
}

/// One head and its cache.
pub struct Lane<I, P, T> {
    /// Policies of the lane.
    pub head: Head<I, P, T>,
    cache: [Option<Cached>; CACHE],
    /// Time before which nothing is eligible, ns; 0: unknown.
    pub(super) until: u64,
    /// When the cache was cleared last, ns.
    cleared: u64,
    /// Rows by which requests pass without the lock.
    folder: Option<Folder>,
}

impl<I: Item, P: Part<I>, T> Lane<I, P, T> {
    /// Creates a lane with nothing queued, and `fallback` to serve; `tag` is that of the fallback.
    #[inline(never)]
    pub fn new(fallback: P, tag: T) -> Result<Owned<Self>, NoMemory> {
        Owned::new(Self {
            head: Head::new(fallback, tag),
            cache: [None; CACHE],
            until: 0,
            cleared: 0,
            folder: None,
        })
    }

    /// Has requests pass by `tabs` without the lock; sleeps.
    pub fn set_tabs(&mut self, tabs: Shared<Tabs>) -> Result<(), NoMemory> {
        self.folder = Some(Folder::new(tabs)?);
        Ok(())
    }

    /// Has the next requests with `ident` on `cpu` pass without the lock, if the policy lets them
    /// pass freely; one has passed.
    pub(super) fn open(&mut self, cpu: u32, ident: Option<&Ident>) {
        let Some(folder) = &mut self.folder else {
            return;
        };
        if !self.head.passes_freely() {
            return;
        }
        let ticket = match ident {
            Some(ident) => cached(&self.cache, ident).copied(),
            None => self.head.only_ticket(),
        };
        let opened = ticket.and_then(|ticket| folder.open(cpu, ident, &ticket));
        if let Some((ticket, tally)) = opened {
            self.head.count_passed(&ticket, tally.requests, tally.pages);
        }
    }

    /// Counts what passed without the lock; what comes next passes with it.
    #[inline]
    pub(super) fn fold(&mut self) {
        if let Some(folder) = self.folder.as_mut().filter(|folder| !folder.is_empty()) {
            while let Some((ticket, tally)) = folder.close() {
                self.head.count_passed(&ticket, tally.requests, tally.pages);
            }
        }
    }

    /// Classifies a request; returns its class, and whether the part needs memory now.
    pub(super) fn classify(
        &mut self,
        ident: Option<&Ident>,
        attrs: &Attrs,
        now: u64,
    ) -> (Ticket, bool) {
        // A class may be made in place of another one.
        self.fold();
        let ticket = self.head.classify(attrs, now);
        self.head.note(&ticket, attrs, now);
        if let Some(ident) = ident {
            // A default class that stands in for lack of memory is not cached.
            let keep = self.head.is_live(&ticket);
            if let Some(slot) = self.cache.get_mut(place(ident)) {
                *slot = keep.then_some(Cached {
                    ident: *ident,
                    ticket,
                });
            }
        }
        let wants = |part: &mut P| !part.need().is_empty();
        (ticket, self.head.primary_mut().is_some_and(wants))
    }

    /// Counts a request that is dispatched without queueing; returns whether it may be, and whether
    /// the part needs memory now. `attrs` is called only if the cache does not have the class, and
    /// the part more than one.
    #[inline]
    pub(super) fn pass(
        &mut self,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        cost: Cost,
        way: Way,
        now: impl Fn() -> u64,
    ) -> (Passed, bool) {
        let passed = match ident {
            Some(ident) => {
                cached(&self.cache, ident).map(|ticket| self.head.pass(ticket, cost, way, &now))
            }
            None => self.head.pass_only(cost, way, &now),
        };
        if let Some(passed) = passed.filter(|passed| *passed != Passed::Stale) {
            return (passed, false);
        }
        self.pass_anew(ident, &attrs(), cost, way, now)
    }

    /// Does the same for a request whose class is not in the cache.
    #[cold]
    pub(super) fn pass_anew(
        &mut self,
        ident: Option<&Ident>,
        attrs: &Attrs,
        cost: Cost,
        way: Way,
        now: impl Fn() -> u64,
    ) -> (Passed, bool) {
        let (ticket, hungry) = self.classify(ident, attrs, now());
        (self.head.pass(&ticket, cost, way, now), hungry)
    }

    /// Queues a request; returns its ticket, and whether the part needs memory now. `attrs` is
    /// called like in [`Self::pass`].
    pub(super) fn enqueue(
        &mut self,
        item: I,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<(Ticket, bool), I> {
        let known = match ident {
            Some(ident) => cached(&self.cache, ident)
                .filter(|ticket| self.head.is_live(ticket))
                .copied(),
            None => self.head.only_ticket(),
        };
        let (ticket, hungry) = match known {
            Some(ticket) => (ticket, false),
            None => self.classify(ident, &attrs(), now),
        };
        Ok((self.enqueue_as(item, ticket, attrs, now)?, hungry))
    }

    /// Queues a request in the class of `ticket`; returns the ticket of the class that took it.
    pub(super) fn enqueue_as(
        &mut self,
        item: I,
        ticket: Ticket,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<Ticket, I> {
        let ticket = self.head.enqueue(item, ticket, attrs, now)?;
        // It may be eligible though the requests before it are throttled.
        self.until = 0;
        Ok(ticket)
    }

    /// Takes a request out that was queued with `ticket`, to go another way; its class is charged.
    pub(super) fn dequeue(&mut self, ticket: &Ticket, place: &I::Place, now: u64) -> Option<I> {
        let item = self.head.dequeue(ticket, place, now)?;
        // The policy cannot refuse; a class that was removed is not charged.
        let _ = self
            .head
            .pass(ticket, item.cost(), Way::Forced { contended: true }, || now);
        self.until = 0;
        Some(item)
    }

    /// Returns whether requests are eligible at `now`, as far as is known.
    pub(super) fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }

    /// Clears the cache as often as the primary says, so that requests are noted again
    /// ([`Part::note_interval`]).
    pub fn refresh_cache(&mut self, now: u64) {
        let interval = self
            .head
            .primary_mut()
            .and_then(|part| part.note_interval());
        if interval.is_some_and(|interval| now.saturating_sub(self.cleared) >= interval) {
            self.cleared = now;
            self.fold();
            self.cache = [None; CACHE];
        }
    }
}

/// Returns where the cache has the class of a request. Idents that share a place cost each other a
/// look-up, nothing worse, so the mix is a cheap one.
pub(super) fn place([client, ids, low, high, detail]: &Ident) -> usize {
    let sum = client
        .wrapping_add(*ids)
        .wrapping_add(low.wrapping_mul(3))
        .wrapping_add(high.wrapping_mul(5))
        .wrapping_add(*detail);
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize & (CACHE - 1)
}

/// Returns the class of recent requests with `ident`.
fn cached<'a>(cache: &'a [Option<Cached>; CACHE], ident: &Ident) -> Option<&'a Ticket> {
    let cached = cache.get(place(ident))?.as_ref()?;
    let pairs = cached.ident.iter().zip(ident);
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    (differ == 0).then_some(&cached.ticket)
}
