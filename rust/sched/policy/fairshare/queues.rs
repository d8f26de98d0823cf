// SPDX-License-Identifier: GPL-2.0-only

//! Where a scheduler keeps its two queues.
//!
//! The scheduler of the root has array heaps of its own ([`Heaps`]): with one level it has all leaves, and
//! an array of entries is two to three times as fast as a tree of knots when there are thousands. The
//! schedulers of inner nodes come and go with any number of children, so they share a forest
//! ([`crate::sched::leftist`]), where a queue needs no memory of its own.

use crate::sched::{
    heap::{Heap, Places},
    leftist::{Forest, Root},
    mem::{grow, NoMemory},
};

/// Priority queues of slots that share what they know of a slot; a slot is in at most one of them.
pub(super) trait Queues {
    /// Names a queue.
    type Queue: Copy;

    /// The slot that comes out first, and its key.
    fn top(&self, queue: Self::Queue) -> Option<(u32, u64)>;

    /// Adds a slot that is in no queue.
    fn push(&mut self, queue: &mut Self::Queue, key: u64, slot: u32);

    /// Gives a slot in the queue a new key.
    fn update(&mut self, queue: &mut Self::Queue, key: u64, slot: u32);

    /// Takes a slot out of the queue.
    fn remove(&mut self, queue: &mut Self::Queue, slot: u32);
}

impl Queues for Forest {
    type Queue = Root;

    fn top(&self, queue: Root) -> Option<(u32, u64)> {
        Self::top(self, queue)
    }

    fn push(&mut self, queue: &mut Root, key: u64, slot: u32) {
        Self::push(self, queue, key, slot);
    }

    fn update(&mut self, queue: &mut Root, key: u64, slot: u32) {
        Self::update(self, queue, key, slot);
    }

    fn remove(&mut self, queue: &mut Root, slot: u32) {
        Self::remove(self, queue, slot);
    }
}

/// One of the two queues of the root.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    /// Children that are ahead of the clock.
    Wait,
    /// Children that may be served.
    Ready,
}

/// The two queues of the root.
pub struct Heaps {
    wait: Heap,
    ready: Heap,
    places: Places,
}

grow!(Heaps {
    wait: Heap,
    ready: Heap,
    places: Places,
});

impl Heaps {
    /// Queues for up to `max` slots; sleeps.
    pub(super) fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            wait: Heap::new(max)?,
            ready: Heap::new(max)?,
            places: Places::new(max)?,
        })
    }

    fn heap(&mut self, side: Side) -> (&mut Heap, &mut Places) {
        match side {
            Side::Wait => (&mut self.wait, &mut self.places),
            Side::Ready => (&mut self.ready, &mut self.places),
        }
    }
}

impl Queues for Heaps {
    type Queue = Side;

    fn top(&self, side: Side) -> Option<(u32, u64)> {
        let entry = match side {
            Side::Wait => self.wait.top(),
            Side::Ready => self.ready.top(),
        }?;
        Some((entry.slot, entry.key))
    }

    fn push(&mut self, side: &mut Side, key: u64, slot: u32) {
        let (heap, places) = self.heap(*side);
        heap.push(places, key, slot);
    }

    fn update(&mut self, side: &mut Side, key: u64, slot: u32) {
        let (heap, places) = self.heap(*side);
        heap.update(places, key, slot);
    }

    fn remove(&mut self, side: &mut Side, slot: u32) {
        let (heap, places) = self.heap(*side);
        bug!(!heap.remove(places, slot));
    }
}
