// SPDX-License-Identifier: GPL-2.0-only

//! Classes in the order of their turns.

use super::Turn;
use crate::sched::{
    heap::{Entry, Heap, Places},
    mem::{NoMemory, Pile},
};

/// Chunks that a [`Ring`] wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingNeed {
    entries: usize,
    places: usize,
}

/// Memory for a [`Ring`].
pub struct RingSpare {
    entries: Pile<Entry<Turn>>,
    places: Pile<u32>,
}

impl RingNeed {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Allocates what is wanted; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn allocate(&self) -> Result<RingSpare, NoMemory> {
        Ok(RingSpare {
            entries: Pile::allocate(self.entries)?,
            places: Pile::allocate(self.places)?,
        })
    }
}

/// Slots of classes, each with its turn.
pub struct Ring {
    heap: Heap<Turn>,
    places: Places,
}

impl Ring {
    /// A ring that can be fed for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            heap: Heap::new(max)?,
            places: Places::new(max)?,
        })
    }

    /// Number of slots there is memory for.
    pub fn capacity(&self) -> usize {
        self.heap.capacity().min(self.places.capacity())
    }

    /// What is missing for `slots` slots.
    pub fn wants(&self, slots: usize) -> RingNeed {
        let entries = slots.saturating_sub(self.heap.len());
        let places = slots.saturating_sub(self.places.len());
        RingNeed {
            entries: self.heap.wants(entries),
            places: self.places.wants(places),
        }
    }

    /// Takes memory and hands back what there is no use for.
    pub fn feed(&mut self, spare: RingSpare) -> RingSpare {
        RingSpare {
            entries: self.heap.feed(spare.entries),
            places: self.places.feed(spare.places),
        }
    }

    /// There is a slot `slot`, below the capacity; does nothing if it was there.
    pub fn create(&mut self, slot: u32) {
        while self.places.len() <= slot as usize {
            if self.places.push(u32::MAX).is_err() {
                return;
            }
        }
    }

    /// Puts `slot` where `turn` says, wherever it was; out of the ring without one.
    #[inline]
    pub fn set(&mut self, slot: u32, turn: Option<Turn>) {
        match turn {
            // The capacity covers all slots.
            Some(turn) => self.heap.set(&mut self.places, turn, slot),
            None => self.heap.remove(&mut self.places, slot),
        };
    }

    /// The slot whose turn it is, and the turn.
    #[inline]
    pub fn first(&self) -> Option<(u32, &Turn)> {
        let entry = self.heap.top()?;
        Some((entry.slot, &entry.key))
    }

    /// Number of slots in the ring.
    pub fn len(&self) -> u32 {
        self.heap.len() as u32
    }
}
