// SPDX-License-Identifier: GPL-2.0-only

//! One head of a partition, and which classes its requests had lately.
//!
//! # Vocabulary
//!
//! - *Ident*: everything of a request that its class may depend on, short enough to compare.
//! - *Cache*: who asked lately and which class that was, so that attributes need not be made anew.

use kernel::prelude::*;

use super::{KernelHead, KernelPart};
use crate::{
    sched::{
        attr::Attrs,
        head::{Head, Ticket},
        item::{Cost, Item},
        mem::Need,
        policy::{AnyShared, Config, Part, Passed, Way},
        units::NSEC_PER_SEC,
    },
    sys::{
        misc,
        node::{Held, Place},
    },
};

/// Places of the cache; a power of two.
const CACHE: usize = 16;

/// Everything that the class of a request may depend on.
pub(crate) type Ident = [u64; 5];

/// Who asked, and which class that was.
#[derive(Clone, Copy)]
struct Cached {
    ident: Ident,
    ticket: Ticket,
}

/// One head and its cache.
pub(super) struct Lane {
    pub(super) head: KernelHead,
    cache: [Option<Cached>; CACHE],
    /// Nothing may be served before this time (ns); 0: whenever.
    pub(super) until: u64,
    /// When everybody was forgotten last (ns).
    forgotten: u64,
}

impl Lane {
    /// Nothing queued, and a fallback made by `config` to serve.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline(never)]
    pub(super) fn with_fallback(config: Config) -> Result<KBox<Self>> {
        let shared = AnyShared::new(&config, 0, 1).map_err(|_| ENOMEM)?;
        let fallback = KernelPart::new(&config, misc::random(), &shared).map_err(|_| ENOMEM)?;
        let lane = Self {
            head: Head::new(fallback, config),
            cache: [None; CACHE],
            until: 0,
            forgotten: 0,
        };
        Ok(KBox::new(lane, GFP_KERNEL)?)
    }

    /// Where the cache has the class of a request. Whoever shares a place with another costs both a
    /// look-up, nothing worse, so the mix is a cheap one.
    fn place([client, ids, low, high, detail]: &Ident) -> usize {
        let sum = client
            .wrapping_add(*ids)
            .wrapping_add(low.wrapping_mul(3))
            .wrapping_add(high.wrapping_mul(5))
            .wrapping_add(*detail);
        (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize & (CACHE - 1)
    }

    /// Forgets which classes there were lately, four times in the time for which a client of a job counts:
    /// whoever is classified anew is seen as a client. Nothing if the sizes of jobs do not count.
    pub(super) fn count_clients(&mut self, now: u64) {
        let primary = self.head.instances().find(|one| one.is_primary());
        let Some(Config::Fairshare(config)) = primary.map(|one| one.tag) else {
            return;
        };
        if !config.mode().has_size() {
            return;
        }
        let window = u64::from(config.tunables().size_window_s.get()).saturating_mul(NSEC_PER_SEC);
        if now.saturating_sub(self.forgotten) >= window / 4 {
            self.forgotten = now;
            self.cache = [None; CACHE];
        }
    }

    /// The class of a request, and whether its part wants memory now.
    pub(super) fn classify(&mut self, ident: Option<&Ident>, attrs: &Attrs) -> (Ticket, bool) {
        let ticket = self.head.classify(attrs, misc::now());
        if let Some(ident) = ident {
            // A class that only stands in for others is asked for again.
            let keep = self.head.is_live(&ticket);
            if let Some(slot) = self.cache.get_mut(Self::place(ident)) {
                *slot = keep.then_some(Cached {
                    ident: *ident,
                    ticket,
                });
            }
        }
        let wants = |part: &mut KernelPart| !part.need().is_empty();
        (ticket, self.head.primary_mut().is_some_and(wants))
    }

    /// Counts a request that goes down without queueing; whether it may, and whether its part wants memory
    /// now. `attrs` is asked only for somebody who did not ask lately.
    #[inline]
    pub(super) fn pass(
        &mut self,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        cost: Cost,
        way: Way,
    ) -> (Passed, bool) {
        if let Some(ticket) = ident.and_then(|ident| cached(&self.cache, ident)) {
            let passed = self.head.pass(ticket, cost, way, misc::now);
            if passed != Passed::Stale {
                return (passed, false);
            }
        }
        self.pass_anew(ident, &attrs(), cost, way)
    }

    /// Like [`Lane::pass`], for somebody who did not ask lately.
    #[cold]
    pub(super) fn pass_anew(
        &mut self,
        ident: Option<&Ident>,
        attrs: &Attrs,
        cost: Cost,
        way: Way,
    ) -> (Passed, bool) {
        let (ticket, hungry) = self.classify(ident, attrs);
        (self.head.pass(&ticket, cost, way, misc::now), hungry)
    }

    /// Queues a request; returns where it went, and whether its part wants memory now. `attrs` is asked only for
    /// somebody who did not ask lately.
    pub(super) fn enqueue(
        &mut self,
        held: Held,
        ident: Option<&Ident>,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<(Ticket, bool), Held> {
        let cached = ident
            .and_then(|ident| cached(&self.cache, ident))
            .filter(|ticket| self.head.is_live(ticket));
        let (ticket, hungry) = match cached {
            Some(ticket) => (*ticket, false),
            None => self.classify(ident, &attrs()),
        };
        Ok((self.enqueue_as(held, ticket, attrs, now)?, hungry))
    }

    /// Queues a request that belongs where `ticket` says; returns where it went.
    pub(super) fn enqueue_as(
        &mut self,
        held: Held,
        ticket: Ticket,
        attrs: &impl Fn() -> Attrs,
        now: u64,
    ) -> Result<Ticket, Held> {
        let ticket = self.head.enqueue(held, ticket, attrs, now)?;
        // It may be allowed what was not allowed to those before it.
        self.until = 0;
        Ok(ticket)
    }

    /// Takes a request out that was queued with `ticket`, to go another way; its class owes for it.
    pub(super) fn dequeue(&mut self, ticket: &Ticket, place: &Place, now: u64) -> Option<Held> {
        let held = self.head.dequeue(ticket, place, now)?;
        // That it goes is not up to its policy; a class that left owes nothing.
        let _ = self.head.pass(ticket, held.cost(), Way::Forced, || now);
        self.until = 0;
        Some(held)
    }

    /// Whether it has requests that may be served at `now`, as far as is known.
    pub(super) fn has_work(&self, now: u64) -> bool {
        self.until <= now && self.head.queued() > 0
    }
}

/// The class that a request had lately.
fn cached<'a>(cache: &'a [Option<Cached>; CACHE], ident: &Ident) -> Option<&'a Ticket> {
    let cached = cache.get(Lane::place(ident))?.as_ref()?;
    let pairs = cached.ident.iter().zip(ident);
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    (differ == 0).then_some(&cached.ticket)
}
