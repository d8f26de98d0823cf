// SPDX-License-Identifier: GPL-2.0-only

//! What is going to happen, in order.
//!
//! # Vocabulary
//!
//! - *Event*: something that happens at an instant ([`Event`]).
//! - *Slot*: the place of a request or a datagram in a [`Slab`].
//! - *Number*: counts events as they are pushed; of events at one instant the first pushed comes first, so that a
//!   run does not depend on the heap.

use super::item::Record;
use std::{cmp::Reverse, collections::BinaryHeap};

/// What happens. Everything is named by an index of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A process sends its next request.
    Issue(u32),
    /// A bulk-synchronous job has computed.
    Round(u32),
    /// A request comes to its server.
    Arrive(u32),
    /// A device has done a request.
    Done(u32),
    /// An answer comes to its client.
    Reply(u32),
    /// What a part withheld may go.
    Wake(u32),
    /// A server's worker has its time.
    Work(u32),
    /// A server's worker was called.
    Call(u32),
    /// A server's throttle has its time.
    Tick(u32),
    /// A server tells others what it served.
    Tell(u32),
    /// A message comes to its server.
    Hear(u32),
}

/// Events that are going to happen.
pub struct Queue<E = Event> {
    heap: BinaryHeap<Reverse<(u64, u64, E)>>,
    number: u64,
}

impl<E: Ord> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            number: 0,
        }
    }
}

impl<E: Ord> Queue<E> {
    /// Adds `event` at `time`, ns.
    pub fn push(&mut self, time: u64, event: E) {
        self.number += 1;
        self.heap.push(Reverse((time, self.number, event)));
    }

    /// Takes the first event with its time, if it is not after `end`.
    pub fn pop_until(&mut self, end: u64) -> Option<(u64, E)> {
        let Reverse((time, ..)) = self.heap.peek()?;
        if *time > end {
            return None;
        }
        self.heap
            .pop()
            .map(|Reverse((time, _, event))| (time, event))
    }
}

/// Entries at places that are used again.
#[derive(Default)]
pub struct Slab<T> {
    list: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Keeps `entry`; returns its place.
    pub fn insert(&mut self, entry: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.list[slot as usize] = entry;
            return slot;
        }
        self.list.push(entry);
        (self.list.len() - 1) as u32
    }

    /// The entry in `slot`.
    pub fn at(&mut self, slot: u32) -> &mut T {
        &mut self.list[slot as usize]
    }

    /// Takes the entry in `slot` out.
    pub fn remove(&mut self, slot: u32) -> T {
        self.free.push(slot);
        std::mem::take(&mut self.list[slot as usize])
    }

    /// Largest number of entries at a time.
    pub fn most(&self) -> usize {
        self.list.len()
    }
}

/// What every part of the engine needs while it handles an event.
#[derive(Default)]
pub struct Scene {
    /// What happens later.
    pub queue: Queue,
    /// Outstanding requests.
    pub records: Slab<Record>,
    /// The instant, ns.
    pub now: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By time, events of one time in the order in which they were pushed, none after the end.
    #[test]
    fn in_order() {
        let mut queue = Queue::default();
        for (number, time) in (0..).zip([7, 3, 7, 3, 9]) {
            queue.push(time, Event::Done(number));
        }
        let mut next = || queue.pop_until(8);
        let popped: Vec<_> = std::iter::from_fn(&mut next).collect();
        let want = [(3, 1), (3, 3), (7, 0), (7, 2)];
        assert_eq!(
            popped,
            want.map(|(time, number)| (time, Event::Done(number)))
        );
        assert_eq!(queue.pop_until(9), Some((9, Event::Done(4))));
    }
}
