// SPDX-License-Identifier: GPL-2.0-only

//! The queue of one entity, in the order of arrival or, in batches, in that of places on the device; and for how long
//! one entity keeps the device.
//!
//! - *Sweep*: the requests that are served next, at most [`BATCH`] with locality, in ascending order of
//!   their places ([`Spot`]).
//! - *Behind*: the requests that arrived since, in the order of arrival.
//! - *Slice*: requests that the chosen entity has dispatched in a row ([`Slice`]), so that the arm of a disk
//!   is not moved to another entity after each.
//!
//! ```text
//!  push ──► behind ── sweep empty: the oldest 32, sorted ──► sweep ──► pop
//!    │                                                          ▲
//!    └────── nothing queued, or locality off and none behind ───┘
//! ```
//!
//! A sweep goes up from where the last one ended and then once more up from the lowest spot (a circular
//! elevator: Seaman, Lind, Wilson, "On teleprocessing system design", IBM Systems Journal 5(3), 1966).
//! Requests at the same spot, such as those of unknown spots, keep their order.
//!
//! A request that finds `n` queued when it comes has at most `n + BATCH - 1` served before it. Requests of one batch
//! at different spots change places, even if they overlap: who needs an order waits for completion.

use crate::sched::{
    item::{Fifo, Item, Spot},
    slab::NONE,
};
use core::mem;

/// Most requests of a sweep, and of a slice.
pub const BATCH: u32 = 32;

/// A queue of the requests of one entity.
///
/// # Invariants
///
/// If `sweep` is empty, so is `behind`.
pub struct Batches<F: Fifo> {
    sweep: F,
    behind: F,
}

impl<F: Fifo> Batches<F> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            sweep: F::new(),
            behind: F::new(),
        }
    }

    /// Appends `item`; with `locality` it will be sorted, unless it is the only one.
    ///
    /// What is served next stays the same unless the queue was empty.
    pub fn push(&mut self, item: F::Item, locality: bool) {
        if self.sweep.is_empty() || (!locality && self.behind.is_empty()) {
            self.sweep.push(item);
        } else {
            self.behind.push(item);
        }
    }

    /// Takes what is served next; with `locality` sorts the next batch if the sweep ends, else goes on in
    /// the order of arrival.
    ///
    /// `locality` may be another from call to call: what was sorted is served as it is.
    #[inline]
    pub fn pop(&mut self, locality: bool) -> Option<F::Item> {
        let item = self.sweep.pop()?;
        self.go_on(item.spot(), locality);
        Some(item)
    }

    /// Takes the request at `place` out, wherever it is; like [`Batches::pop`] if the sweep ends with it.
    pub fn remove(&mut self, place: &<F::Item as Item>::Place, locality: bool) -> Option<F::Item> {
        let item = match self.sweep.remove(place) {
            Some(item) => item,
            None => self.behind.remove(place)?,
        };
        self.go_on(item.spot(), locality);
        Some(item)
    }

    /// A request at `last` was taken out: another sweep begins if it was the end of one.
    #[inline]
    fn go_on(&mut self, last: Spot, locality: bool) {
        if self.sweep.is_empty() && !self.behind.is_empty() {
            if locality {
                self.sort(last);
            } else {
                mem::swap(&mut self.sweep, &mut self.behind);
            }
        }
    }

    /// What is served next.
    pub fn front(&self) -> Option<&F::Item> {
        self.sweep.front()
    }

    /// Number of requests.
    pub fn len(&self) -> u32 {
        self.sweep.len().wrapping_add(self.behind.len())
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.sweep.is_empty()
    }

    /// Moves the oldest batch to the empty sweep, going up from `last`.
    ///
    /// By insertion: few, often in order already, and equal ones keep their order. Not inlined, for the stack's sake.
    #[inline(never)]
    fn sort(&mut self, last: Spot) {
        let mut batch = [const { None }; BATCH as usize];
        for filled in 0..batch.len() {
            let item = self.behind.pop();
            if item.is_none() {
                break;
            }
            if let Some(place) = batch.get_mut(filled) {
                *place = item;
            }
            for at in (0..filled).rev() {
                let Some([lower, upper]) = batch.get_mut(at..=at.wrapping_add(1)) else {
                    break;
                };
                if order(lower, last) <= order(upper, last) {
                    break;
                }
                mem::swap(lower, upper);
            }
        }
        // INVARIANT: `behind` was not empty, so `sweep` is not empty now.
        for place in &mut batch {
            if let Some(item) = place.take() {
                self.sweep.push(item);
            }
        }
    }
}

/// The leaf that was chosen last, and how much it is served before the next choice.
///
/// # Invariants
///
/// The leaf in `slot` has requests, unless `slot` is [`NONE`].
#[derive(Clone, Copy)]
pub struct Slice {
    slot: u32,
    /// Pages left.
    pages: u32,
    /// Requests left.
    requests: u32,
    /// Pages of a slice; 0: each request is a choice of its own.
    size: u32,
}

impl Slice {
    /// No leaf was chosen; slices are of `size` pages, or [`BATCH`] requests if these are less.
    pub const fn new(size: u32) -> Self {
        Self {
            slot: NONE,
            pages: 0,
            requests: 0,
            size,
        }
    }

    /// The leaf that is served next without a choice.
    #[inline]
    pub const fn holder(&self) -> Option<u32> {
        if self.slot == NONE {
            None
        } else {
            Some(self.slot)
        }
    }

    /// The leaf in `slot` was served a request of `pages`, and has `more`.
    #[inline]
    pub fn serve(&mut self, slot: u32, pages: u32, more: bool) {
        if self.size == 0 {
            return;
        }
        if self.slot != slot {
            (self.slot, self.pages, self.requests) = (slot, self.size, BATCH);
        }
        self.pages = self.pages.saturating_sub(pages);
        self.requests = self.requests.saturating_sub(1);
        if self.pages == 0 || self.requests == 0 {
            self.slot = NONE;
        } else {
            self.check(slot, more);
        }
    }

    /// The leaf in `slot` has `more` requests; without, its slice ends.
    #[inline]
    pub fn check(&mut self, slot: u32, more: bool) {
        if self.slot == slot && !more {
            self.slot = NONE;
        }
    }
}

/// The place of a request in a sweep that goes up from `last`: first what is not below it.
fn order<I: Item>(item: &Option<I>, last: Spot) -> Option<(bool, Spot)> {
    let spot = item.as_ref()?.spot();
    Some((spot < last, spot))
}
