// SPDX-License-Identifier: GPL-2.0-only

//! Queue of future events.
//!
//! Events are ordered by time; events of one instant in the order in which they were pushed. A run
//! therefore does not depend on the heap.

use super::item::Record;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Start of a run, monotonic ns: one day after the epoch of the clock.
pub const START: u64 = 86_400_000_000_000;

/// Event of the engine; the number is an index of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A process sends its next request.
    Issue(u32),
    /// A bulk-synchronous job has finished computing.
    Round(u32),
    /// A request arrives at its server.
    Arrive(u32),
    /// A device completes a request.
    Done(u32),
    /// An answer arrives at its client.
    Reply(u32),
    /// The timer of a throttled part expires.
    Wake(u32),
    /// The periodic run of a server's worker is due.
    Work(u32),
    /// A called worker runs.
    Call(u32),
    /// A server sends accounts of the service to the other servers.
    Exchange(u32),
    /// A datagram arrives at a server.
    Deliver(u32),
}

/// Queue of future events.
#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
}

impl Queue {
    /// Adds `event` at `time`, ns.
    pub fn push(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.heap.push(Reverse((time, self.number, event)));
    }

    /// Removes the first event if it is not after `end`; returns it with its time, ns.
    pub fn pop_until(&mut self, end: u64) -> Option<(u64, Event)> {
        let Reverse((time, ..)) = self.heap.peek()?;
        if *time > end {
            return None;
        }
        self.heap
            .pop()
            .map(|Reverse((time, _, event))| (time, event))
    }
}

/// Table of entries whose indices are reused.
#[derive(Default)]
pub struct Slab<T> {
    list: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Stores `entry`; returns its index.
    pub fn insert(&mut self, entry: T) -> u32 {
        if let Some(idx) = self.free.pop() {
            self.list[idx as usize] = entry;
            return idx;
        }
        self.list.push(entry);
        (self.list.len() - 1) as u32
    }

    /// Returns the entry at index `idx`.
    pub fn at(&mut self, idx: u32) -> &mut T {
        &mut self.list[idx as usize]
    }

    /// Removes and returns the entry at index `idx`.
    pub fn remove(&mut self, idx: u32) -> T {
        self.free.push(idx);
        std::mem::take(&mut self.list[idx as usize])
    }

    /// Returns the maximum number of entries so far.
    pub fn most(&self) -> usize {
        self.list.len()
    }
}

/// State that all parts of the engine need while they handle an event.
#[derive(Default)]
pub struct SimState {
    /// Future events.
    pub queue: Queue,
    /// Outstanding requests.
    pub records: Slab<Record>,
    /// Current time, ns.
    pub now: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies the order by time, the order of pushes within one instant, and the end.
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
