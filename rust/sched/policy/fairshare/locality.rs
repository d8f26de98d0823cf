// SPDX-License-Identifier: GPL-2.0-only

//! Queue of one entity, in the order of arrival or, in batches, of offset on the device. In a slice
//! one entity dispatches requests in a row.
//!
//! - *Sweep*: requests dispatched next, with locality at most [`BATCH`], by ascending offset
//!   ([`ByteRange`]).
//! - *Behind*: requests that arrived since the start of the sweep, in the order of arrival.
//! - *Slice*: requests that the chosen entity dispatches in a row ([`LocalitySlice`]), which saves
//!   a disk a seek to another entity after each request.
//!
//! ```text
//!  push ──► behind ── sweep empty: the oldest 32, sorted ──► sweep ──► pop
//!    │                                                          ▲
//!    └────── nothing queued, or locality off and none behind ───┘
//! ```
//!
//! A sweep goes up from the end of the last sweep, and then up again from the lowest offset. This
//! is a circular elevator (Seaman, Lind, Wilson, "On teleprocessing system design", IBM Systems
//! Journal 5(3), 1966). Requests at the same offset, for example at unknown offsets, keep their
//! order.
//!
//! A request that arrives behind `n` queued requests has at most `n + BATCH - 1` requests
//! dispatched before it. Requests of one batch at different offsets are reordered, even if they
//! overlap: a submitter that needs an order waits for completion.

use crate::sched::{
    item::{ByteRange, Fifo, Item},
    slab::NONE,
};
use core::mem;

/// Largest number of requests in a sweep, and in a slice.
pub const BATCH: u32 = 32;

/// Queue of the requests of one entity.
///
/// # Invariants
///
/// If `sweep` is empty, `behind` is empty.
pub struct OffsetQueue<F: Fifo> {
    sweep: F,
    behind: F,
}

impl<F: Fifo> OffsetQueue<F> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self {
            sweep: F::new(),
            behind: F::new(),
        }
    }

    /// Appends `item`, to be sorted with `locality` unless the queue is empty.
    ///
    /// The next request stays the same unless the queue was empty.
    pub fn push(&mut self, item: F::Item, locality: bool) {
        if self.sweep.is_empty() || (!locality && self.behind.is_empty()) {
            self.sweep.push(item);
        } else {
            self.behind.push(item);
        }
    }

    /// Removes the next request. At the end of the sweep, sorts the next batch with `locality`,
    /// else continues in the order of arrival.
    ///
    /// `locality` may change from call to call; a sorted sweep stays sorted.
    #[inline]
    pub fn pop(&mut self, locality: bool) -> Option<F::Item> {
        let item = self.sweep.pop()?;
        self.advance_sweep(item.byte_range(), locality);
        Some(item)
    }

    /// Removes the request at `entry` from the sweep or from behind; the end of the sweep is
    /// handled as in [`OffsetQueue::pop`].
    pub fn remove(&mut self, entry: &<F::Item as Item>::Handle, locality: bool) -> Option<F::Item> {
        let item = match self.sweep.remove(entry) {
            Some(item) => item,
            None => self.behind.remove(entry)?,
        };
        self.advance_sweep(item.byte_range(), locality);
        Some(item)
    }

    /// Starts the next sweep if the request removed, at `last`, was the last one of a sweep.
    #[inline]
    fn advance_sweep(&mut self, last: ByteRange, locality: bool) {
        if self.sweep.is_empty() && !self.behind.is_empty() {
            if locality {
                self.sort(last);
            } else {
                mem::swap(&mut self.sweep, &mut self.behind);
            }
        }
    }

    /// Returns the next request.
    pub fn front(&self) -> Option<&F::Item> {
        self.sweep.front()
    }

    /// Returns the number of requests.
    pub fn len(&self) -> u32 {
        self.sweep.len().wrapping_add(self.behind.len())
    }

    /// Returns true if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.sweep.is_empty()
    }

    /// Moves the oldest batch to the empty sweep, going up from `last`.
    ///
    /// Sorts by insertion, because batches are small, often sorted already, and equal offsets must
    /// keep their order. Not inlined, to save stack in the caller.
    #[inline(never)]
    fn sort(&mut self, last: ByteRange) {
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

/// Leaf that was chosen last, and the service that the leaf gets before the next choice.
///
/// # Invariants
///
/// The leaf at index `idx` has requests, unless `idx` is [`NONE`].
#[derive(Clone, Copy)]
pub struct LocalitySlice {
    idx: u32,
    /// Pages left in the slice.
    pages: u32,
    /// Requests left in the slice.
    requests: u32,
    /// Pages of a slice; 0: each request needs a choice.
    size: u32,
}

impl LocalitySlice {
    /// Creates a slice without a leaf; slices are of `size` pages or [`BATCH`] requests, whichever
    /// ends first.
    pub const fn new(size: u32) -> Self {
        Self {
            idx: NONE,
            pages: 0,
            requests: 0,
            size,
        }
    }

    /// Returns the leaf that is dispatched next without a choice.
    #[inline]
    pub const fn holder(&self) -> Option<u32> {
        if self.idx == NONE {
            None
        } else {
            Some(self.idx)
        }
    }

    /// Charges a request of `pages` to the slice; the leaf at index `idx` has `more` requests or
    /// not.
    #[inline]
    pub fn serve(&mut self, idx: u32, pages: u32, more: bool) {
        if self.size == 0 {
            return;
        }
        if self.idx != idx {
            (self.idx, self.pages, self.requests) = (idx, self.size, BATCH);
        }
        self.pages = self.pages.saturating_sub(pages);
        self.requests = self.requests.saturating_sub(1);
        if self.pages == 0 || self.requests == 0 {
            self.idx = NONE;
        } else {
            self.check(idx, more);
        }
    }

    /// Ends the slice of the leaf at index `idx` if the leaf has no `more` requests.
    #[inline]
    pub fn check(&mut self, idx: u32, more: bool) {
        if self.idx == idx && !more {
            self.idx = NONE;
        }
    }
}

/// Returns the sort key of a request in a sweep that goes up from `last`: offsets from `last` on
/// come first.
fn order<I: Item>(item: &Option<I>, last: ByteRange) -> Option<(bool, ByteRange)> {
    let range = item.as_ref()?.byte_range();
    Some((range < last, range))
}
