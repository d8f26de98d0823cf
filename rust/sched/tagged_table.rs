// SPDX-License-Identifier: GPL-2.0-only

//! Lock-free tables of fixed size, whose places are found by tags.
//!
//! - *Place*: entry of a table, with a word that contains a tag. The word of an unused place is 0.
//! - *Tag*: bits of a hash that identify the owner of a place.
//! - *Block*: 8 adjacent places. Other bits of the hash select the blocks that may contain a tag.
//! - *Claim*: compare-and-swap of the word of a free place. If it fails, the search is repeated.
//! - *Reference*: index of a place that has users, or whose tag each use verifies.
//!
//! ```text
//!  words of a block   0   b   0   a   0   a   c   0
//!                     │           │       └ second claim of the tag a
//!                     │           └ search for a: the first place with the tag
//!                     └ search for d: the first unused place, to be claimed
//! ```
//!
//! # Two claims of one tag
//!
//! Two tasks that search for a tag at the same time can claim two places. All later searches find
//! the first place, so each table releases the other place. Claims are totally ordered (`SeqCst`):
//! if each task searches again after its claim, at least one of them finds both places.

use crate::sched::mem::{Bulk, NoMemory};

/// Number of places of a block.
pub const BLOCK: usize = 8;

/// Table of blocks of places, after `FIRST` places that belong to no block.
///
/// # Invariants
///
/// The places of all blocks are a power of two, `mask + 1`, and at least one block. `FIRST` is a
/// multiple of [`BLOCK`].
pub struct TaggedTable<P, const FIRST: usize = 0> {
    places: Bulk<P>,
    mask: usize,
}

impl<P, const FIRST: usize> TaggedTable<P, FIRST> {
    /// Creates blocks of at least `count` places in total, each from `make`; may sleep.
    pub fn new(count: usize, make: impl FnMut() -> P) -> Result<Self, NoMemory> {
        let count = count.max(BLOCK).checked_next_power_of_two();
        let count = count.ok_or(NoMemory)?;
        Ok(Self {
            places: Bulk::filled(count.saturating_add(FIRST), make)?,
            mask: count.wrapping_sub(1),
        })
    }

    /// Returns the number of places.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the place at `index`.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&P> {
        self.places.get(index as usize)
    }

    /// Returns the index of the first place of block `number`, modulo the number of blocks, and the
    /// places of the block.
    #[inline]
    pub fn block(&self, number: u64) -> (usize, &[P]) {
        let base = (number as usize).wrapping_mul(BLOCK) & self.mask;
        let base = base.saturating_add(FIRST);
        (base, self.places.run(base, BLOCK))
    }

    /// Iterates over the places of block `number`, with their indices.
    pub fn places(&self, number: u64) -> impl Iterator<Item = (u32, &P)> {
        let (base, places) = self.block(number);
        (base as u32..).zip(places)
    }
}

/// Index of a place, the place, and its word when it was read.
pub type PlaceWord<'a, P> = (u32, &'a P, u64);

/// Searches `places` for the first word that `is_wanted`; `read` returns the word of a place.
///
/// # Errors
///
/// The place to claim if no word is wanted: the first with word 0, else the first that `is_free`.
pub fn search<'a, P>(
    places: impl Iterator<Item = (u32, &'a P)>,
    read: impl Fn(&P) -> u64,
    is_wanted: impl Fn(u64) -> bool,
    is_free: impl Fn(&P, u64) -> bool,
) -> Result<PlaceWord<'a, P>, Option<PlaceWord<'a, P>>> {
    let mut free: Option<PlaceWord<'_, P>> = None;
    for (index, place) in places {
        gap();
        let word = read(place);
        if is_wanted(word) {
            return Ok((index, place, word));
        }
        let better = match free {
            Some((.., known)) => word == 0 && known != 0,
            None => word == 0 || is_free(place, word),
        };
        if better {
            free = Some((index, place, word));
        }
    }
    gap();
    Err(free)
}

/// Allows tests to run other tasks before a word is read, and before a claim.
#[inline]
pub fn gap() {
    #[cfg(test)]
    tests::between();
}

#[cfg(test)]
pub mod tests;
