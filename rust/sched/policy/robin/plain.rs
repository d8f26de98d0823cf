// SPDX-License-Identifier: GPL-2.0-only

//! Store in which the requests of a class are in the order of arrival, linked through the memory of
//! the requests.
//!
//! # Marks of requests
//!
//! The mark of an item has 64 bits, a tag has 128 bits. So a bin stores the whole tag of its front.
//! A mark has the low bits of a tag, which are enough to derive the tag of the next front:
//!
//! ```text
//!  63          36 35                            0
//! ├──────────────┼───────────────────────────────┤
//!   round, 28 bits      sequence, 36 bits
//! ```
//!
//! Consecutive requests of a bin are of the same batch or of consecutive batches, whose rounds
//! differ by one. Only requests removed from the middle make larger steps. A step of 2^28 rounds
//! would need that many requests queued in one class, for which there is no memory. The sequences
//! of consecutive requests differ by the number of batches that other classes started between the
//! two arrivals, while the first request was queued. A request is dispatched long before 2^36
//! batches start: at 10^6 per second that takes 19 hours.

use super::{
    store::{BinOwner, BinStore},
    BatchTag, Bounds,
};
use crate::sched::{
    item::{Cost, Fifo, Item, ItemHandle},
    mem::{Grow, NoMemory},
};
use core::marker::PhantomData;

/// Number of bits of the sequence in a mark.
const SEQUENCE_BITS: u32 = 36;

/// Mask of the sequence in a mark.
const SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;

/// Mask of the round in a mark, shifted right by [`SEQUENCE_BITS`].
const ROUND: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;

impl BatchTag {
    /// Returns the mark: the low bits of round and sequence.
    const fn mark(self) -> u64 {
        (self.round << SEQUENCE_BITS) | (self.sequence & SEQUENCE)
    }

    /// Returns the first tag from this tag on that has `mark`.
    const fn forward(self, mark: u64) -> Self {
        let rounds = (mark >> SEQUENCE_BITS).wrapping_sub(self.round) & ROUND;
        let sequences = mark.wrapping_sub(self.sequence) & SEQUENCE;
        Self {
            round: self.round.wrapping_add(rounds),
            sequence: self.sequence.wrapping_add(sequences),
        }
    }
}

/// Requests in the order of arrival.
///
/// # Invariants
///
/// If `fifo` is not empty, `front` is the tag of its oldest item. The mark of each item is the mark
/// of its tag.
pub struct PlainBin<F> {
    fifo: F,
    front: BatchTag,
}

impl<F: Fifo> PlainBin<F> {
    /// Updates the tag of the front after the removal of an item.
    fn update_tag(&mut self) {
        if let Some(item) = self.fifo.front() {
            self.front = self.front.forward(item.mark());
        }
    }
}

/// Store without data of its own.
pub struct Plain<I>(PhantomData<fn(I)>);

impl<I> Grow for Plain<I> {
    type Need = ();
    type Spare = ();

    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn create(&mut self, _idx: u32) {}

    fn wants(&self, _entries: usize) {}

    fn feed(&mut self, (): ()) {}
}

impl<I: Item> BinStore<I> for Plain<I> {
    type Setting = ();
    type Bin = PlainBin<I::Fifo>;

    fn new(_bounds: Bounds, _setting: ()) -> Result<Self, NoMemory> {
        Ok(Self(PhantomData))
    }

    fn set(&mut self, _setting: ()) {}

    fn takes(&self, _cost: Cost) -> bool {
        true
    }

    fn bin() -> PlainBin<I::Fifo> {
        PlainBin {
            fifo: I::Fifo::new(),
            front: BatchTag::default(),
        }
    }

    #[inline]
    fn push(&mut self, _at: BinOwner, bin: &mut PlainBin<I::Fifo>, mut item: I, tag: BatchTag) {
        if bin.fifo.is_empty() {
            bin.front = tag;
        }
        item.set_mark(tag.mark());
        bin.fifo.push(item);
    }

    #[inline]
    fn front(&self, bin: &PlainBin<I::Fifo>) -> Option<BatchTag> {
        (!bin.fifo.is_empty()).then_some(bin.front)
    }

    #[inline]
    fn pop(&mut self, _at: BinOwner, bin: &mut PlainBin<I::Fifo>) -> Option<(I, BatchTag)> {
        let item = bin.fifo.pop()?;
        let tag = bin.front;
        bin.update_tag();
        Some((item, tag))
    }

    fn remove(
        &mut self,
        _at: BinOwner,
        bin: &mut PlainBin<I::Fifo>,
        handle: &I::Handle,
    ) -> Option<(I, BatchTag)> {
        let tag = bin.front.forward(handle.mark());
        let item = bin.fifo.remove(handle)?;
        bin.update_tag();
        Some((item, tag))
    }

    fn refill(&self) -> Option<u32> {
        None
    }

    fn draw(&mut self, _at: BinOwner, _bin: &mut PlainBin<I::Fifo>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies that tags are restored from marks, across both wraps, for the longest steps.
    #[test]
    fn marks() {
        let far = BatchTag {
            round: (1 << 28) * 7 - 2,
            sequence: (1 << 36) * 5 - 3,
        };
        for start in [BatchTag::default(), far] {
            for (rounds, sequences) in [
                (0, 0),
                (1, 0),
                (1, 1),
                (2, 5),
                (1, SEQUENCE),
                (ROUND, SEQUENCE),
            ] {
                let tag = BatchTag {
                    round: start.round + rounds,
                    sequence: start.sequence + sequences,
                };
                assert_eq!(start.forward(tag.mark()), tag);
            }
        }
    }
}
