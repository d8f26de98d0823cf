// SPDX-License-Identifier: GPL-2.0-only

//! Counters of service that the parts of one head share, without a lock.
//!
//! - *Total*: units of cost that all parts served to one entity; only differences of a total are
//!   meaningful.
//! - *Place* of the table ([`crate::sched::tagged_table`]): a tag and a number of users in one
//!   word, and a total. A *tag* is 48 bits of the id of an entity, never 0.
//! - *Claim*: right of one user to a place ([`TotalClaim`]).
//!
//! ```text
//!              claim (CAS 0 to tag, 1 user)             claim: users + 1
//!  free ────────────────────────────────► one user ───────────────────► shared
//!    ▲                                     │     ▲                        │
//!    └─────── release by the last user ────┘     └─ release: users - 1 ───┘
//! ```
//!
//! A total is never reset. A user of a place counts from the total at the claim, so earlier
//! entities of the place do not matter. A place with users belongs to their tag, so only these
//! users add to the total.
//!
//! # Concurrent claims of one id
//!
//! A part that finds its tag in a lower place moves there: at once if the lower claim came first,
//! else at the next [`SharedTotals::recheck`]. No part leaves the lowest place, so after all parts
//! have rechecked there is one place. Service added before the move, each part in its own place,
//! stays unknown to the other parts.
//!
//! # Inaccuracies
//!
//! - Two ids with the same tag and block share a total. Ids are keyed hashes, and this takes more
//!   than 48 equal bits.
//! - An entity whose block is full has no total, and each part schedules the entity as an entity of
//!   its own. This affects one entity of 100 when the table has as many entities as it was made
//!   for.

use crate::sched::{
    atomic::{AtomicWord, RelaxedWord},
    mem::NoMemory,
    tagged_table::{gap, search, TaggedTable},
};

/// Number of bits of a state that count users; the tag is above.
const USERS_BITS: u32 = 16;

/// Largest number of users of a place.
const USERS_MAX: u64 = (1 << USERS_BITS) - 1;

/// Number of attempts to claim a place when other parts change the block at the same time.
const TRIES: u32 = 64;

/// Right of one user to a place, released exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalClaim(u32);

/// Total and its users.
///
/// # Invariants
///
/// `state` is 0, or a tag and a number of users, neither of which is 0.
struct SharedTotal {
    state: AtomicWord,
    total: RelaxedWord,
}

/// Result of joining a place.
#[derive(PartialEq, Eq)]
enum ClaimOutcome {
    /// Place to which a user was added.
    In,
    /// Place with the largest number of users.
    Full,
    /// Free place, or place of another tag.
    Gone,
}

impl SharedTotal {
    /// Adds a user if the place has `tag`.
    fn join(&self, tag: u64) -> ClaimOutcome {
        let more = |state: u64| {
            let fits = tag_of(state) == tag && state & USERS_MAX < USERS_MAX;
            fits.then_some(state.wrapping_add(1))
        };
        match self.state.update(more) {
            Ok(_) => ClaimOutcome::In,
            Err(state) if tag_of(state) == tag => ClaimOutcome::Full,
            Err(_) => ClaimOutcome::Gone,
        }
    }

    /// Removes a user; without users the place is free.
    fn leave(&self) {
        let less = |state: u64| match state & USERS_MAX {
            0 => None,
            1 => Some(0),
            _ => Some(state.wrapping_sub(1)),
        };
        // INVARIANT: the last user clears the tag, too.
        self.state.change(less);
    }
}

/// Returns the tag of a state.
const fn tag_of(state: u64) -> u64 {
    state >> USERS_BITS
}

/// Returns the tag of `id`.
const fn tag(id: u64) -> u64 {
    let tag = tag_of(id);
    if tag == 0 {
        1
    } else {
        tag
    }
}

/// Table of totals. The low bits of an id select the block; in tables of up to 2^19 places these
/// bits are not in the tag.
pub struct SharedTotals {
    places: TaggedTable<SharedTotal>,
}

impl SharedTotals {
    /// Creates a table for `count` entities at a time, which fill half of the table; may sleep.
    pub fn new(count: usize) -> Result<Self, NoMemory> {
        let places = TaggedTable::new(count.saturating_mul(2), || SharedTotal {
            state: AtomicWord::new(0),
            total: RelaxedWord::new(0),
        })?;
        Ok(Self { places })
    }

    /// Claims the total of `id`; `None` if its block is full or the place has too many users.
    ///
    /// Takes a bounded number of steps.
    pub fn claim(&self, id: u64) -> Option<TotalClaim> {
        let tag = tag(id);
        let has_tag = |state| tag_of(state) == tag;
        for _ in 0..TRIES {
            let places = self.places.places(id);
            match search(places, |place| place.state.get(), has_tag, |_, _| false) {
                Ok((index, place, _)) => match place.join(tag) {
                    ClaimOutcome::In => return Some(TotalClaim(index)),
                    ClaimOutcome::Full => return None,
                    ClaimOutcome::Gone => {}
                },
                Err(free) => {
                    let (index, place, _) = free?;
                    // INVARIANT: a tag with one user.
                    if place.state.replace(0, (tag << USERS_BITS) | 1) {
                        return Some(self.keep_lowest(TotalClaim(index), id));
                    }
                }
            }
        }
        None
    }

    /// Releases a claim; a place without users can be claimed for any id.
    pub fn release(&self, claim: TotalClaim) {
        if let Some(place) = self.places.get(claim.0) {
            place.leave();
        }
    }

    /// Moves the user of `claim` to a lower place with the tag of `id`, if there is one. Returns
    /// the new claim after a move, which released the old claim. Called at upkeep.
    pub fn recheck(&self, claim: &TotalClaim, id: u64) -> Option<TotalClaim> {
        let lowest = self.keep_lowest(*claim, id);
        (lowest != *claim).then_some(lowest)
    }

    /// Adds `cost`, which may be negative, to a total, wrapping; one atomic operation.
    pub fn add(&self, claim: &TotalClaim, cost: i64) {
        if let Some(place) = self.places.get(claim.0) {
            place.total.add(cost as u64);
        }
    }

    /// Returns a total; one atomic operation.
    pub fn total(&self, claim: &TotalClaim) -> u64 {
        let place = self.places.get(claim.0);
        place.map_or(0, |place| place.total.get())
    }

    /// Moves a user of `id` from its place to the lowest place with the tag of `id`; returns the
    /// claim of that place.
    fn keep_lowest(&self, own: TotalClaim, id: u64) -> TotalClaim {
        let tag = tag(id);
        let lower = self.places.places(id).take_while(|&(at, _)| at < own.0);
        for (index, place) in lower {
            gap();
            if tag_of(place.state.get()) == tag && place.join(tag) == ClaimOutcome::In {
                self.release(own);
                return TotalClaim(index);
            }
        }
        own
    }
}

/// State of one part for the total of one entity.
///
/// ```text
///            open                      note, elsewhere, upkeep
///  closed ──────────► open ◄──────────────────────────────────┐
///     ▲                │  └───────────────────────────────────┘
///     └── close ───────┘
/// ```
///
/// # Invariants
///
/// With a claim, `total - mine - seen` is the service of other parts that [`TotalView::elsewhere`]
/// has not returned yet. It is negative if these parts took service back. `mine` is the sum of the
/// additions of this part since its claim.
#[derive(Clone, Copy, Debug, Default)]
pub struct TotalView {
    claim: Option<TotalClaim>,
    mine: u64,
    seen: u64,
}

impl TotalView {
    /// Claims the total of `id`; service of other parts before the claim does not count. Returns
    /// true if the view is open.
    ///
    /// Without a free place the view stays closed, and [`TotalView::upkeep`] retries. Does nothing
    /// if the view is open.
    pub fn open(&mut self, counters: &SharedTotals, id: u64) -> bool {
        if self.claim.is_none() {
            self.start(counters, counters.claim(id));
        }
        self.claim.is_some()
    }

    /// Releases the total; does nothing if the view is closed.
    pub fn close(&mut self, counters: &SharedTotals) {
        if let Some(claim) = self.claim.take() {
            counters.release(claim);
        }
    }

    /// Moves to the place of other parts that claimed the total of `id` at the same time, and
    /// retries the claim of a closed view.
    pub fn upkeep(&mut self, counters: &SharedTotals, id: u64) {
        match self.claim {
            Some(claim) => {
                let moved = counters.recheck(&claim, id);
                if moved.is_some() {
                    self.start(counters, moved);
                }
            }
            None => {
                self.open(counters, id);
            }
        }
    }

    /// Returns the units of cost that other parts served since the last call; 0 without a claim.
    ///
    /// Service that other parts took back since then reduces the next results, which are never
    /// negative.
    pub fn elsewhere(&mut self, counters: &SharedTotals) -> u64 {
        let Some(claim) = self.claim else {
            return 0;
        };
        let total = counters.total(&claim);
        let news = total.wrapping_sub(self.mine).wrapping_sub(self.seen);
        if (news as i64) <= 0 {
            return 0;
        }
        self.seen = self.seen.wrapping_add(news);
        news
    }

    /// Adds `cost`, the units that this part served; negative to correct earlier additions.
    pub fn add(&mut self, counters: &SharedTotals, cost: i64) {
        if let Some(claim) = self.claim {
            counters.add(&claim, cost);
            self.mine = self.mine.wrapping_add(cost as u64);
        }
    }

    /// Starts with `claim`, counting from its current total.
    fn start(&mut self, counters: &SharedTotals, claim: Option<TotalClaim>) {
        *self = Self {
            claim,
            mine: 0,
            seen: claim.map_or(0, |claim| counters.total(&claim)),
        };
    }
}

#[cfg(test)]
mod tests;
