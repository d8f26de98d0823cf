// SPDX-License-Identifier: GPL-2.0-only

//! Head of a partition with a cache of the classes of recent requests.
//!
//! An [`Ident`] has all inputs of classification and is short enough to compare. The cache maps
//! idents of recent requests to classes, so that attributes need not be gathered again.

use super::{
    fast_path::{FastPath, OpenRows},
    ident::{row_of, Ident, PLACES},
};
use crate::sched::{
    attr::Attrs,
    head::{Head, HeadTicket},
    item::{Cost, Item},
    mem::{Need, NoMemory, Owned, Shared},
    policy::{BypassOutcome, BypassReason, Part},
};

/// Ident of a recent request, and its class.
#[derive(Clone, Copy)]
struct Cached {
    ident: Ident,
    ticket: HeadTicket,
}

/// Head of a partition, and its cache.
pub struct HeadCache<I, P, T> {
    /// Policies of the head.
    pub head: Head<I, P, T>,
    cache: [Option<Cached>; PLACES],
    /// Time until which all requests are throttled, ns; 0 if unknown.
    pub(super) until: u64,
    /// Time at which the last throttle ended, or an arrival or a change made it unknown, ns.
    since: u64,
    /// Time at which the cache was last cleared, ns.
    cleared: u64,
    /// Rows for dispatch without the lock; `None` if not set up.
    folder: Option<OpenRows>,
}

impl<I: Item, P: Part<I>, T> HeadCache<I, P, T> {
    /// Creates a head cache without requests and with the policy `fallback`; `tag` is the tag of
    /// the fallback.
    #[inline(never)]
    pub fn new(fallback: P, tag: T) -> Result<Owned<Self>, NoMemory> {
        Owned::new(Self {
            head: Head::new(fallback, tag),
            cache: [None; PLACES],
            until: 0,
            since: 0,
            cleared: 0,
            folder: None,
        })
    }

    /// Enables `fast_path`; sleeps.
    pub fn set_fast_path(&mut self, fast_path: Shared<FastPath>) -> Result<(), NoMemory> {
        self.folder = Some(OpenRows::new(fast_path)?);
        Ok(())
    }

    /// Opens a row, so that further requests with `ident` on `cpu` pass without the lock, if the
    /// policy lets them pass freely. A request with `ident` has passed with the lock.
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

    /// Counts the requests that passed without the lock and closes all rows.
    #[inline]
    pub(super) fn fold(&mut self) {
        if let Some(folder) = self.folder.as_mut().filter(|folder| !folder.is_empty()) {
            while let Some((ticket, tally)) = folder.close() {
                self.head.count_passed(&ticket, tally.requests, tally.pages);
            }
        }
    }

    /// Classifies a request; returns its class, and true if the part needs memory.
    pub(super) fn classify(
        &mut self,
        ident: Option<&Ident>,
        attrs: &Attrs,
        now: u64,
    ) -> (HeadTicket, bool) {
        // A new class may replace another one.
        self.fold();
        let ticket = self.head.classify(attrs, now);
        self.head.record_attrs(&ticket, attrs, now);
        if let Some(ident) = ident {
            // The default class that is used for lack of memory is not cached.
            let keep = self.head.is_live(&ticket);
            if let Some(entry) = self.cache.get_mut(row_of(ident)) {
                *entry = keep.then_some(Cached {
                    ident: *ident,
                    ticket,
                });
            }
        }
        let wants = |part: &mut P| !part.need().is_empty();
        (ticket, self.head.primary_mut().is_some_and(wants))
    }

    /// Counts a request that is dispatched without queueing. Returns the policy's outcome, and true
    /// if the part needs memory. Calls `attrs` only if the cache does not have the class and the
    /// part has several classes.
    #[inline]
    pub(super) fn pass(
        &mut self,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        cost: Cost,
        way: BypassReason,
        now: impl Fn() -> u64,
    ) -> (BypassOutcome, bool) {
        let passed = match ident {
            Some(ident) => {
                cached(&self.cache, ident).map(|ticket| self.head.pass(ticket, cost, way, &now))
            }
            None => self.head.pass_only(cost, way, &now),
        };
        if let Some(passed) = passed.filter(|passed| *passed != BypassOutcome::Stale) {
            return (passed, false);
        }
        self.classify_and_pass(ident, &attrs(), cost, way, now)
    }

    /// Counts a request as [`Self::pass`] does, if its class is not in the cache.
    #[cold]
    pub(super) fn classify_and_pass(
        &mut self,
        ident: Option<&Ident>,
        attrs: &Attrs,
        cost: Cost,
        way: BypassReason,
        now: impl Fn() -> u64,
    ) -> (BypassOutcome, bool) {
        let (ticket, needs_memory) = self.classify(ident, attrs, now());
        (self.head.pass(&ticket, cost, way, now), needs_memory)
    }

    /// Queues a request; returns its ticket, and true if the part needs memory. Calls `attrs` under
    /// the same condition as [`Self::pass`].
    pub(super) fn enqueue(
        &mut self,
        item: I,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<(HeadTicket, bool), I> {
        let known = match ident {
            Some(ident) => cached(&self.cache, ident)
                .filter(|ticket| self.head.is_live(ticket))
                .copied(),
            None => self.head.only_ticket(),
        };
        let (ticket, needs_memory) = match known {
            Some(ticket) => (ticket, false),
            None => self.classify(ident, &attrs(), now),
        };
        Ok((self.enqueue_as(item, ticket, attrs, now)?, needs_memory))
    }

    /// Queues a request in the class of `ticket`; returns the ticket of the class that accepted it.
    pub(super) fn enqueue_as(
        &mut self,
        item: I,
        ticket: HeadTicket,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<HeadTicket, I> {
        let ticket = self.head.enqueue(item, ticket, attrs, now)?;
        // The request may be eligible although earlier requests are throttled.
        self.end_throttle(now);
        Ok(ticket)
    }

    /// Removes a request that was queued with `ticket` and charges its class.
    pub(super) fn dequeue(
        &mut self,
        ticket: &HeadTicket,
        handle: &I::Handle,
        now: u64,
    ) -> Option<I> {
        let item = self.head.dequeue(ticket, handle, now)?;
        // The policy cannot refuse; a removed class is not charged.
        let _ = self.head.pass(
            ticket,
            item.cost(),
            BypassReason::Forced { contended: true },
            || now,
        );
        self.end_throttle(now);
        Some(item)
    }

    /// Returns what the class of `ticket` was charged for a dispatched request of `cost`.
    #[cold]
    pub(super) fn refund(&mut self, ticket: &HeadTicket, cost: Cost, now: u64) {
        self.head.refund(ticket, cost, now);
        self.end_throttle(now);
    }

    /// Records that requests may be eligible from `now`, ns.
    pub(super) fn end_throttle(&mut self, now: u64) {
        if self.until > 0 {
            self.since = self.until.min(now);
            self.until = 0;
        }
    }

    /// Returns the time since which requests are eligible if [`Self::has_work`], ns; the time of
    /// the last dispatch if that is later.
    pub(super) fn eligible_since(&self) -> u64 {
        self.since.max(self.until)
    }

    /// Returns true if requests are eligible at `now`, as far as is known.
    pub(super) fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }

    /// Clears the cache at the interval of the primary policy, so that it sees attributes again
    /// ([`Part::record_interval`]).
    pub fn refresh_cache(&mut self, now: u64) {
        let interval = self
            .head
            .primary_mut()
            .and_then(|part| part.record_interval());
        if interval.is_some_and(|interval| now.saturating_sub(self.cleared) >= interval) {
            self.cleared = now;
            self.clear();
        }
    }

    /// Forgets the classes of recent requests, after counting those that passed without the lock.
    pub(super) fn clear(&mut self) {
        self.fold();
        for entry in &mut self.cache {
            *entry = None;
        }
    }
}

/// Returns the cached class of `ident`.
fn cached<'a>(cache: &'a [Option<Cached>; PLACES], ident: &Ident) -> Option<&'a HeadTicket> {
    let cached = cache.get(row_of(ident))?.as_ref()?;
    let pairs = cached.ident.iter().zip(ident);
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    (differ == 0).then_some(&cached.ticket)
}
