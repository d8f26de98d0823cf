// SPDX-License-Identifier: GPL-2.0-only

//! The classes that have requests queued, in the order in which these may go.
//!
//! # Vocabulary
//!
//! - *Due*: when the next request of a class has its tokens, ns. Until then the class is in a heap by that time.
//! - *Deadline*: by what classes whose requests have their tokens are ordered, ns. There are two heaps by deadline, so
//!   that the first class is known whose rule has no guaranteed minimum.
//! - *Floor time*: when a request has its tokens and is within the minimum of its rule, ns; the key of the heap of
//!   floors.
//!
//! A class without tokens stands behind all that have some, and only the first of each heap has to be looked at.

use crate::sched::{
    heap::{Heap, Placed, Places},
    mem::{grow, NoMemory},
};

/// Where a class is in a [`Queue`]: its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Due, if it has to wait for that.
    pub due: Option<u64>,
    /// Deadline, if its next request has its tokens.
    pub deadline: Option<u64>,
    /// Floor time, if it has one.
    pub floor: Option<u64>,
    /// Whether its rule has a minimum.
    pub minimum: bool,
}

/// A class to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It has its tokens at that time, ns.
    Due(u32, u64),
    /// It goes first.
    Go(u32),
}

/// The classes by their keys.
///
/// # Invariants
///
/// - A slot is in a heap exactly if the class's [`Keys`] have a key for it.
/// - A class is due or has a deadline, never both, so that these heaps share their places.
pub struct Queue {
    due: Heap,
    /// By deadline: those whose rule has no minimum.
    others: Heap,
    /// By deadline: those whose rule has one.
    minimums: Heap,
    places: Places,
    floors: Placed,
    /// Choices of classes with a minimum since the last one of another class.
    streak: u32,
}

grow!(Queue {
    due: Heap,
    others: Heap,
    minimums: Heap,
    places: Places,
    floors: Placed
});

impl Queue {
    /// A queue that can be fed for up to `max` slots; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            due: Heap::new(max)?,
            others: Heap::new(max)?,
            minimums: Heap::new(max)?,
            places: Places::new(max)?,
            floors: Placed::new(max)?,
            streak: 0,
        })
    }

    /// Moves `slot` from where `keys` says to `to`, and notes that in `keys`. There is room in each heap.
    #[inline]
    pub fn set(&mut self, slot: u32, keys: &mut Keys, to: Keys) {
        let places = &mut self.places;
        match (keys.due, to.due) {
            (Some(_), Some(due)) => self.due.update(places, due, slot),
            (Some(_), None) => {
                self.due.remove(places, slot);
            }
            _ => {}
        }
        if keys.deadline.is_some() && (to.deadline.is_none() || keys.minimum != to.minimum) {
            let heap = match keys.minimum {
                true => &mut self.minimums,
                false => &mut self.others,
            };
            heap.remove(places, slot);
        }
        if let (None, Some(due)) = (keys.due, to.due) {
            self.due.push(places, due, slot);
        }
        if let Some(deadline) = to.deadline {
            let heap = match to.minimum {
                true => &mut self.minimums,
                false => &mut self.others,
            };
            heap.set(places, deadline, slot);
        }
        if keys.floor.is_some() || to.floor.is_some() {
            self.floors.set(slot, to.floor, keys.floor.is_some());
        }
        *keys = to;
    }

    /// The class to look at: one that is due, as long as it comes before the others; the first whose floor time has
    /// come, but after `ratio` choices of classes with a minimum another one; else that with the earliest deadline.
    #[inline]
    pub fn first(&self, ratio: u32, now: u64) -> Option<First> {
        let due = self.due.top();
        let other = self.others.top();
        if self.floors.top().is_some() || self.minimums.top().is_some() {
            return self.with_minimums(ratio, now);
        }
        match (due, other) {
            (Some(due), Some(other)) if due.key > now || due.key >= other.key => {
                Some(First::Go(other.slot))
            }
            (Some(due), _) => Some(First::Due(due.slot, due.key)),
            (None, other) => other.map(|other| First::Go(other.slot)),
        }
    }

    #[cold]
    fn with_minimums(&self, ratio: u32, now: u64) -> Option<First> {
        let due = self.due.top().map(|due| First::Due(due.slot, due.key));
        if due.is_some_and(|due| due.may_go(now)) {
            return due;
        }
        let (other, minimum) = (self.others.top(), self.minimums.top());
        let floor = self.floors.top().filter(|floor| floor.key <= now);
        let go = match (other, floor.or(minimum)) {
            (Some(other), Some(_)) if self.streak >= ratio => Some(other),
            (Some(other), Some(first)) if floor.is_none() && other.key <= first.key => Some(other),
            (other, first) => first.or(other),
        };
        go.map(|entry| First::Go(entry.slot)).or(due)
    }

    /// Notes that a class is served, whose rule has a `minimum` or not.
    #[inline]
    pub fn chosen(&mut self, minimum: bool) {
        self.streak = match minimum {
            true => self.streak.saturating_add(1),
            false => 0,
        };
    }

    /// Whether a class that is due is to be put among others by its deadline before one is chosen.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.others.top().is_some() || self.minimums.top().is_some() || self.floors.top().is_some()
    }

    /// Whether a class with `keys` would go first, without any that has a minimum.
    pub fn is_first(&self, keys: &Keys) -> bool {
        let first = self.others.top().map(|top| top.key);
        self.minimums.top().is_none()
            && self.floors.top().is_none()
            && keys
                .deadline
                .is_some_and(|own| first.is_none_or(|first| own <= first))
    }
}

impl First {
    /// Whether it has its tokens.
    #[inline]
    pub fn may_go(&self, now: u64) -> bool {
        match self {
            Self::Due(_, due) => *due <= now,
            Self::Go(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{
        mem::{Grow, Need},
        rng::Rng,
    };

    /// The class that a walk finds, if none is due.
    fn walk(keys: &[Keys], streak: u32, ratio: u32, now: u64) -> Option<u32> {
        let first = |fits: &dyn Fn(&Keys) -> bool, key: &dyn Fn(&Keys) -> Option<u64>| {
            let all = keys.iter().zip(0u32..).filter(|(keys, _)| fits(keys));
            all.filter_map(|(keys, slot)| Some((key(keys)?, slot)))
                .min()
        };
        let deadline = |keys: &Keys| keys.deadline;
        let any = first(&|_| true, &deadline);
        let other = first(&|keys| !keys.minimum, &deadline);
        let floor = first(&|_| true, &|keys| keys.floor.filter(|floor| *floor <= now));
        let least = floor.or(first(&|keys| keys.minimum, &deadline));
        match other.filter(|_| streak >= ratio && least.is_some()) {
            Some(other) => Some(other.1),
            None => floor.or(any).map(|first| first.1),
        }
    }

    /// Against a walk over all classes, which says who is first.
    #[test]
    fn first_is_first() {
        let mut queue = Queue::new(50).unwrap();
        queue.feed(queue.wants(50).allocate().unwrap());
        (0..50).for_each(|slot| queue.create(slot));
        let mut keys = [Keys::default(); 50];
        let (mut rng, mut streak) = (Rng::new(1), 0);
        for step in 0..50_000u64 {
            let slot = rng.below(50) as u32;
            let now = step % 1000 * 50;
            // No two keys are the same; every tenth thousand of steps no rule has a minimum.
            let mut key = |from: u64, count| (from + rng.below(count)) * 50 + u64::from(slot);
            let minimum = step / 10_000 % 2 == 0 && (slot % 3 == 0 || step % 7 == 0);
            let (deadline, due) = (key(0, 2000), key(0, 1000));
            let floor = minimum.then(|| key(500, 1000));
            let to = match step % 5 {
                0 => Keys::default(),
                1 | 2 => Keys {
                    deadline: Some(deadline),
                    floor,
                    minimum,
                    ..Keys::default()
                },
                _ => Keys {
                    due: Some(due),
                    // Its tokens are there first.
                    floor: floor.map(|floor| floor.max(due)),
                    minimum,
                    ..Keys::default()
                },
            };
            queue.set(slot, &mut keys[slot as usize], to);
            assert_eq!(keys[slot as usize], to);
            // Those that are due get deadlines.
            let got = loop {
                match queue.first(3, now) {
                    Some(First::Due(slot, due)) if due <= now => {
                        assert_eq!(keys[slot as usize].due, Some(due));
                        let ripe = Keys {
                            due: None,
                            deadline: Some(due),
                            ..keys[slot as usize]
                        };
                        let before = queue.is_first(&ripe);
                        queue.set(slot, &mut keys[slot as usize], ripe);
                        if before {
                            assert_eq!(queue.first(3, now), Some(First::Go(slot)));
                        }
                    }
                    first => break first,
                }
            };
            match got {
                Some(First::Go(got)) => {
                    assert_eq!(Some(got), walk(&keys, streak, 3, now), "{step}");
                    let minimum = keys[got as usize].minimum;
                    streak = if minimum { streak + 1 } else { 0 };
                    queue.chosen(minimum);
                }
                Some(First::Due(_, due)) => {
                    assert!(keys.iter().all(|keys| keys.deadline.is_none()));
                    assert_eq!(keys.iter().filter_map(|keys| keys.due).min(), Some(due));
                }
                None => assert!(keys.iter().all(|keys| *keys == Keys::default())),
            }
        }
    }
}
