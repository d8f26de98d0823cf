// SPDX-License-Identifier: GPL-2.0-only

//! What is going to happen, in order.
//!
//! # Vocabulary
//!
//! - *Event*: something that happens at an instant ([`Event`]).
//! - *Number*: counts the events as they are made; of those at one instant the first made comes first, so that
//!   a run does not depend on how the heap is built.
//!
//! A heap with four children to a node: half the levels of a binary one, and the children of a node lie side
//! by side.

/// What happens. Everything is named by an index of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process sends its next request.
    Issue(u32),
    /// A node of an open loop sends a request.
    Send(u32),
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

#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    number: u64,
    event: Event,
}

impl Entry {
    /// Whether it is before `other`.
    fn is_before(&self, other: &Self) -> bool {
        (self.time, self.number) < (other.time, other.number)
    }
}

/// Children of a node.
const WIDTH: usize = 4;

/// Events that are going to happen.
///
/// # Invariants
///
/// No entry is before the one at its parent's place.
pub struct Queue {
    heap: Vec<Entry>,
    number: u64,
}

impl Queue {
    /// No events.
    pub fn new() -> Self {
        Self {
            heap: Vec::new(),
            number: 0,
        }
    }

    /// Adds `event` at `time`, ns.
    pub fn push(&mut self, time: u64, event: Event) {
        self.number += 1;
        let entry = Entry {
            time,
            number: self.number,
            event,
        };
        let mut at = self.heap.len();
        self.heap.push(entry);
        while at > 0 {
            let up = (at - 1) / WIDTH;
            if !entry.is_before(&self.heap[up]) {
                break;
            }
            self.heap[at] = self.heap[up];
            at = up;
        }
        self.heap[at] = entry;
    }

    /// Takes the first event, if it is not after `end`; with its time.
    pub fn pop_until(&mut self, end: u64) -> Option<(u64, Event)> {
        let first = *self.heap.first()?;
        if first.time > end {
            return None;
        }
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sink(last);
        }
        Some((first.time, first.event))
    }

    /// Puts `entry` where the first one was.
    fn sink(&mut self, entry: Entry) {
        let len = self.heap.len();
        let mut at = 0;
        loop {
            let child = at * WIDTH + 1;
            if child >= len {
                break;
            }
            let end = (child + WIDTH).min(len);
            let mut best = child;
            for other in child + 1..end {
                if self.heap[other].is_before(&self.heap[best]) {
                    best = other;
                }
            }
            if !self.heap[best].is_before(&entry) {
                break;
            }
            self.heap[at] = self.heap[best];
            at = best;
        }
        self.heap[at] = entry;
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nrs_sched::rng::Rng;

    /// By time, and in the order in which they were made.
    #[test]
    fn in_order() {
        let mut rng = Rng::new(3);
        let mut queue = Queue::new();
        let mut want = Vec::new();
        for number in 0..5_000u32 {
            let time = rng.below(700);
            queue.push(time, Event::Done(number));
            want.push((time, Event::Done(number)));
            if number % 3 == 0 {
                want.sort_by_key(|(time, _)| *time);
                assert_eq!(queue.pop_until(u64::MAX), Some(want.remove(0)));
            }
        }
        want.sort_by_key(|(time, _)| *time);
        assert_eq!(queue.len(), want.len());
        for (time, event) in want {
            assert_eq!(
                queue.pop_until(time.wrapping_sub(1)).filter(|_| time > 0),
                None
            );
            assert_eq!(queue.pop_until(time), Some((time, event)));
        }
        assert!(queue.is_empty() && queue.pop_until(u64::MAX).is_none());
    }
}
