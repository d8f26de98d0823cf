// SPDX-License-Identifier: GPL-2.0-only

//! A heap with its own places, and the memory for both.

use super::{Entry, Heap, Places, Sort};
use crate::sched::mem::{Bulk, NoMemory, Pile};

/// Chunks that a [`Placed`] wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacedNeed {
    entries: usize,
    places: usize,
}

/// Memory for a [`Placed`].
pub struct PlacedSpare<K = u64> {
    entries: Pile<Entry<K>>,
    places: Pile<u32>,
}

impl PlacedNeed {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Allocates what is wanted; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn allocate<K>(&self) -> Result<PlacedSpare<K>, NoMemory> {
        Ok(PlacedSpare {
            entries: Pile::allocate(self.entries)?,
            places: Pile::allocate(self.places)?,
        })
    }
}

/// A heap with its own places.
///
/// Slots become known one after the other ([`Placed::create`]), below the capacity; there is room for each of
/// them at any time.
pub struct Placed<K = u64> {
    heap: Heap<K>,
    places: Places,
}

impl<K: Sort> Placed<K> {
    /// A heap that can be fed for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            heap: Heap::new(max)?,
            places: Bulk::new(max)?,
        })
    }

    /// Number of slots there is memory for.
    pub fn capacity(&self) -> usize {
        self.heap.capacity().min(self.places.capacity())
    }

    /// What is missing for `slots` slots.
    pub fn wants(&self, slots: usize) -> PlacedNeed {
        let places = slots.saturating_sub(self.places.len());
        PlacedNeed {
            entries: self.heap.wants(slots.saturating_sub(self.heap.len())),
            places: self.places.wants(places),
        }
    }

    /// Takes memory and hands back what there is no use for.
    pub fn feed(&mut self, spare: PlacedSpare<K>) -> PlacedSpare<K> {
        PlacedSpare {
            entries: self.heap.feed(spare.entries),
            places: self.places.feed(spare.places),
        }
    }

    /// Makes `slot` known.
    pub fn create(&mut self, slot: u32) {
        if self.places.len() <= slot as usize {
            // Below the capacity, so there is room.
            let _ = self.places.push(u32::MAX);
        }
    }

    /// The entry that comes out first.
    #[inline]
    pub fn top(&self) -> Option<&Entry<K>> {
        self.heap.top()
    }

    /// Puts `slot` at `key`, or takes it out; `was`: it is in the heap.
    #[inline]
    pub fn set(&mut self, slot: u32, key: Option<K>, was: bool) {
        match key {
            Some(key) if was => self.heap.update(&mut self.places, key, slot),
            Some(key) => {
                // The capacity covers all slots.
                self.heap.push(&mut self.places, key, slot);
            }
            None if was => {
                self.heap.remove(&mut self.places, slot);
            }
            None => {}
        }
    }
}
