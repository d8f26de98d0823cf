// SPDX-License-Identifier: GPL-2.0-only

//! The classes that have requests queued, in the order in which these may go.
//!
//! # Vocabulary
//!
//! - *Time*: when the next request of a class has its tokens, ns; the key of the first heap.
//! - *Floor time*: when it has them and is also within the class's floor, the rate that comes before what
//!   others get beyond theirs; the key of the second heap, which holds only classes with a floor.
//!
//! Since a key is a time at which there will be tokens, a class without tokens stands behind all that have
//! some, and only the first of each heap has to be looked at.

use crate::sched::{
    heap::Placed,
    mem::{grow, NoMemory},
};

/// Where a class is in a [`Queue`]: its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Time, if it has requests.
    pub time: Option<u64>,
    /// Floor time, if it has requests and a floor.
    pub floor: Option<u64>,
}

/// The two heaps.
///
/// # Invariants
///
/// A slot is in a heap exactly if the class's [`Keys`] have a key for it.
pub struct Queue {
    times: Placed,
    floors: Placed,
}

grow!(Queue {
    times: Placed,
    floors: Placed
});

impl Queue {
    /// A queue that can be fed for up to `max` slots; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            times: Placed::new(max)?,
            floors: Placed::new(max)?,
        })
    }

    /// Moves `slot` from where `keys` says to `to`, and notes that in `keys`.
    #[inline]
    pub fn set(&mut self, slot: u32, keys: &mut Keys, to: Keys) {
        self.times.set(slot, to.time, keys.time.is_some());
        self.floors.set(slot, to.floor, keys.floor.is_some());
        *keys = to;
    }

    /// The class to look at: the first whose floor time has come, else the first by time. With its time.
    #[inline]
    pub fn first(&self, now: u64) -> Option<(u32, u64)> {
        let due = self.floors.top().filter(|entry| entry.key <= now);
        let entry = due.or(self.times.top())?;
        Some((entry.slot, entry.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{
        mem::{Grow, Need},
        rng::Rng,
    };

    /// Against a walk over all classes, which says who is first.
    #[test]
    fn first_is_first() {
        let mut queue = Queue::new(50).unwrap();
        queue.feed(queue.wants(50).allocate().unwrap());
        (0..50).for_each(|slot| queue.create(slot));
        let mut keys = [Keys::default(); 50];
        let mut rng = Rng::new(1);
        for step in 0..50_000 {
            let slot = rng.below(50) as u32;
            let time = (rng.below(4) > 0).then(|| rng.below(1000));
            let floor = time
                .filter(|_| slot % 3 == 0)
                .map(|time| time + rng.below(500));
            let to = Keys { time, floor };
            queue.set(slot, &mut keys[slot as usize], to);
            assert_eq!(keys[slot as usize], to);
            let now = step % 1000;
            let by = |key: fn(&Keys) -> Option<u64>| {
                let all = keys.iter().zip(0u32..);
                all.filter_map(|(keys, slot)| Some((key(keys)?, slot)))
                    .min()
            };
            let due = by(|keys| keys.floor).filter(|(key, _)| *key <= now);
            let want = due.or(by(|keys| keys.time)).map(|(key, slot)| (slot, key));
            assert_eq!(queue.first(now), want);
        }
    }
}
