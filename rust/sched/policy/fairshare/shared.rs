// SPDX-License-Identifier: GPL-2.0-only

//! Counters of service that the parts of one head share, without a lock.
//!
//! - *Total*: units of cost that all parts served to one entity; only differences of it mean something.
//! - *Place*: a tag with a number of users in one word, and a total, in a table of fixed size. A *tag* is 48
//!   bits of the id of an entity, never 0.
//! - *Block*: 8 places side by side; an id can be in the block that its low bits name.
//! - *Seat*: one user's right to a place ([`Seat`]).
//!
//! ```text
//!              claim (CAS 0 to tag, 1 user)                claim: users + 1
//!   nobody's ────────────────────────────────► somebody's ──────────────────► shared
//!       ▲                                         │    ▲                        │
//!       └──────── release by the last user ───────┘    └── release: users - 1 ──┘
//! ```
//!
//! A total is never set back: who claims a place starts from what it reads, so that it does not matter
//! whose the place was. While a place has users nobody else can have it, so what they add is theirs.
//!
//! # Two claims of one id
//!
//! Two parts that look for an id at a time can claim two places of its block. Whoever then sees its tag in
//! a lower place goes there: at once if the lower claim came first, else when it looks again
//! ([`Counters::recheck`]). Nobody who is in the lowest place leaves it for another, so that after all have
//! looked again there is one place. What they served before, each in a place of its own, stays unknown to
//! the others.
//!
//! # What is not exact
//!
//! - Two ids with the same tag and the same block share a total; ids are keyed hashes, of which that takes
//!   more than 48 equal bits.
//! - An entity whose block is full has no total: its parts share it as if it were one entity in each. With as
//!   many entities as the table was made for that is one of 100.

use crate::sched::mem::{Bulk, NoMemory};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Places of a block.
const BLOCK: usize = 8;

/// Bits of a state that count users; the tag is above.
const USERS_BITS: u32 = 16;

/// Most users of a place.
const USERS_MAX: u64 = (1 << USERS_BITS) - 1;

/// How often a claim starts again because others were faster.
const TRIES: u32 = 64;

/// One user's right to a place; to be released exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat(u32);

/// A total and who uses it.
///
/// # Invariants
///
/// `state` is 0, or a tag above a number of users; neither is 0 then.
struct Place {
    state: AtomicU64,
    total: AtomicU64,
}

/// How an attempt to become a user ended.
#[derive(PartialEq, Eq)]
enum Joined {
    /// One user more.
    In,
    /// There are as many users as can be.
    Full,
    /// The place is another tag's, or nobody's.
    Gone,
}

impl Place {
    /// Adds a user if the place is that of `tag`.
    fn join(&self, tag: u64) -> Joined {
        let more = |state: u64| {
            let fits = tag_of(state) == tag && state & USERS_MAX < USERS_MAX;
            fits.then_some(state.wrapping_add(1))
        };
        match self.state.fetch_update(SeqCst, SeqCst, more) {
            Ok(_) => Joined::In,
            Err(state) if tag_of(state) == tag => Joined::Full,
            Err(_) => Joined::Gone,
        }
    }

    /// Removes a user; after the last one the place is nobody's.
    fn leave(&self) {
        let less = |state: u64| match state & USERS_MAX {
            0 => None,
            1 => Some(0),
            _ => Some(state.wrapping_sub(1)),
        };
        // INVARIANT: With the last user goes the tag.
        let _ = self.state.fetch_update(SeqCst, SeqCst, less);
    }
}

/// Between two looks, or a look and what follows from it; tests let others come between.
#[inline]
fn gap() {
    #[cfg(test)]
    tests::between();
}

/// The tag that a state holds.
const fn tag_of(state: u64) -> u64 {
    state >> USERS_BITS
}

/// The tag of `id`.
const fn tag(id: u64) -> u64 {
    let tag = tag_of(id);
    if tag == 0 {
        1
    } else {
        tag
    }
}

/// A table of totals.
///
/// # Invariants
///
/// There are a power of two places, at least one block, and as many as `mask` says.
pub struct Counters {
    places: Bulk<Place>,
    mask: usize,
}

impl Counters {
    /// A table for `count` entities at a time, half empty then; sleeps.
    pub fn new(count: usize) -> Result<Self, NoMemory> {
        let size = count.saturating_mul(2).max(BLOCK);
        let size = size.checked_next_power_of_two().ok_or(NoMemory)?;
        let places = Bulk::filled(size, || Place {
            state: AtomicU64::new(0),
            total: AtomicU64::new(0),
        })?;
        Ok(Self {
            places,
            mask: size.wrapping_sub(1),
        })
    }

    /// A user's right to the total of `id`; none if its block is full, or if it has too many users.
    ///
    /// Takes a bounded number of steps.
    pub fn claim(&self, id: u64) -> Option<Seat> {
        self.find(id)
    }

    /// Gives a seat back; the last user leaves the place to whoever wants it.
    pub fn release(&self, seat: Seat) {
        if let Some(place) = self.places.get(seat.0 as usize) {
            place.leave();
        }
    }

    /// Moves to a lower place that `id`, whose seat this is, has too; returns the new seat if it did, and
    /// the old one is released then. For upkeep, now and then.
    pub fn recheck(&self, seat: &Seat, id: u64) -> Option<Seat> {
        let base = self.base(id);
        let index = (seat.0 as usize).checked_sub(base)?;
        let lower = self.settle(base, index, tag(id));
        (lower != index).then(|| Self::seat(base, lower))
    }

    /// Adds `cost`, which may be negative, to a total, wrapping: one atomic operation.
    pub fn add(&self, seat: &Seat, cost: i64) {
        if let Some(place) = self.places.get(seat.0 as usize) {
            place.total.fetch_add(cost as u64, Relaxed);
        }
    }

    /// A total: one atomic operation.
    pub fn total(&self, seat: &Seat) -> u64 {
        let place = self.places.get(seat.0 as usize);
        place.map_or(0, |place| place.total.load(Relaxed))
    }

    /// Where the block of `id` starts: named by its low bits, which in tables of up to 2^19 places are not
    /// in the tag.
    const fn base(&self, id: u64) -> usize {
        (id as usize).wrapping_mul(BLOCK) & self.mask
    }

    /// The seat at `index` of the block at `base`.
    const fn seat(base: usize, index: usize) -> Seat {
        Seat(base.wrapping_add(index) as u32)
    }

    /// Becomes a user of the place of `id`, or of one that is nobody's.
    fn find(&self, id: u64) -> Option<Seat> {
        let tag = tag(id);
        let base = self.base(id);
        let block = self.places.run(base, BLOCK);
        for _ in 0..TRIES {
            let mut free = None;
            let mut known = None;
            for (index, place) in block.iter().enumerate() {
                gap();
                let state = place.state.load(SeqCst);
                if tag_of(state) == tag {
                    known = Some((index, place));
                    break;
                }
                if state == 0 && free.is_none() {
                    free = Some((index, place));
                }
            }
            if let Some((index, place)) = known {
                match place.join(tag) {
                    Joined::In => return Some(Self::seat(base, index)),
                    Joined::Full => return None,
                    Joined::Gone => continue,
                }
            }
            let (index, place) = free?;
            gap();
            let state = (tag << USERS_BITS) | 1;
            // INVARIANT: A tag with one user.
            let taken = place.state.compare_exchange(0, state, SeqCst, SeqCst);
            if taken.is_ok() {
                return Some(Self::seat(base, self.settle(base, index, tag)));
            }
        }
        None
    }

    /// Moves a user of `tag` from place `index` of the block at `base` to the lowest one with this tag;
    /// returns which.
    fn settle(&self, base: usize, index: usize, tag: u64) -> usize {
        let block = self.places.run(base, BLOCK);
        for (lower, place) in block.iter().enumerate().take(index) {
            gap();
            if tag_of(place.state.load(SeqCst)) == tag && place.join(tag) == Joined::In {
                if let Some(own) = block.get(index) {
                    own.leave();
                }
                return lower;
            }
        }
        index
    }
}

/// What one part knows of the total of one entity.
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
/// With a seat, `total - mine - seen` is what others served that was not told yet, or what they took back
/// if that is negative, and `mine` is what this part added since it claimed the seat.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    seat: Option<Seat>,
    mine: u64,
    seen: u64,
}

impl Tally {
    /// Claims the total of `id`, from now on: what others served before does not count.
    ///
    /// Stays closed if there is no place ([`Tally::upkeep`] tries again); does nothing if it is open. Returns whether it
    /// is open.
    pub fn open(&mut self, counters: &Counters, id: u64) -> bool {
        if self.seat.is_none() {
            self.start(counters, counters.claim(id));
        }
        self.seat.is_some()
    }

    /// Releases the total; does nothing if it is closed.
    pub fn close(&mut self, counters: &Counters) {
        if let Some(seat) = self.seat.take() {
            counters.release(seat);
        }
    }

    /// Meets others that claimed the total of `id` at the same time, and opens what is closed for lack of
    /// a place.
    pub fn upkeep(&mut self, counters: &Counters, id: u64) {
        match self.seat {
            Some(seat) => {
                let moved = counters.recheck(&seat, id);
                if moved.is_some() {
                    self.start(counters, moved);
                }
            }
            None => {
                self.open(counters, id);
            }
        }
    }

    /// Units of cost that others served since the last call; 0 without a seat.
    ///
    /// What others took back since makes the next answers smaller, never negative.
    pub fn elsewhere(&mut self, counters: &Counters) -> u64 {
        let Some(seat) = self.seat else {
            return 0;
        };
        let total = counters.total(&seat);
        let news = total.wrapping_sub(self.mine).wrapping_sub(self.seen);
        if (news as i64) <= 0 {
            return 0;
        }
        self.seen = self.seen.wrapping_add(news);
        news
    }

    /// Adds what this part served, units of cost; negative if it was less than was said before.
    pub fn note(&mut self, counters: &Counters, cost: i64) {
        if let Some(seat) = self.seat {
            counters.add(&seat, cost);
            self.mine = self.mine.wrapping_add(cost as u64);
        }
    }

    /// Starts with `seat`, from what its total is now.
    fn start(&mut self, counters: &Counters, seat: Option<Seat>) {
        *self = Self {
            seat,
            mine: 0,
            seen: seat.map_or(0, |seat| counters.total(&seat)),
        };
    }
}

#[cfg(test)]
mod tests;
