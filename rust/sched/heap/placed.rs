// SPDX-License-Identifier: GPL-2.0-only

//! A heap with its own places.

use super::{Entry, Heap, Places, Sort};
use crate::sched::mem::{grow, NoMemory};

/// A heap with its own places.
///
/// There is room for each slot that is known, at any time.
pub struct Placed<K = u64> {
    heap: Heap<K>,
    places: Places,
}

grow!(Placed<K> { heap: Heap<K>, places: Places } [K: Sort]);

impl<K: Sort> Placed<K> {
    /// A heap that can be fed for up to `max` slots; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            heap: Heap::new(max)?,
            places: Places::new(max)?,
        })
    }

    /// The entry that comes out first.
    #[inline]
    pub fn top(&self) -> Option<&Entry<K>> {
        self.heap.top()
    }

    /// Returns the number of slots in the heap.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Puts `slot` at `key`, or takes it out, wherever it was.
    #[inline]
    pub fn place(&mut self, slot: u32, key: Option<K>) {
        match key {
            Some(key) => self.heap.set(&mut self.places, key, slot),
            None => {
                self.heap.remove(&mut self.places, slot);
            }
        }
    }

    /// Puts `slot` at `key`, or takes it out; `was`: it is in the heap.
    #[inline]
    pub fn set(&mut self, slot: u32, key: Option<K>, was: bool) {
        match key {
            Some(key) if was => self.heap.update(&mut self.places, key, slot),
            Some(key) => self.heap.push(&mut self.places, key, slot),
            None if was => bug!(!self.heap.remove(&mut self.places, slot)),
            None => {}
        }
    }
}
