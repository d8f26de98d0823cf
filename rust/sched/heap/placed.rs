// SPDX-License-Identifier: GPL-2.0-only

//! Heap with its own array of places.

use super::{Heap, HeapEntry, Places, Sort};
use crate::sched::mem::{grow, NoMemory};

/// Heap with its own array of places; always has memory for each known table index.
pub struct Placed<K = u64> {
    heap: Heap<K>,
    places: Places,
}

grow!(Placed<K> { heap: Heap<K>, places: Places } [K: Sort]);

impl<K: Sort> Placed<K> {
    /// Creates a heap that accepts memory for up to `max` table indices; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            heap: Heap::new(max)?,
            places: Places::new(max)?,
        })
    }

    /// Returns the entry that comes out first.
    #[inline]
    pub fn top(&self) -> Option<&HeapEntry<K>> {
        self.heap.top()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Adds `idx` with `key` or moves it there; removes `idx` if `key` is `None`.
    #[inline]
    pub fn set(&mut self, idx: u32, key: Option<K>) {
        match key {
            Some(key) => self.heap.set(&mut self.places, key, idx),
            None => {
                self.heap.remove(&mut self.places, idx);
            }
        }
    }
}
