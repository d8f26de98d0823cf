// SPDX-License-Identifier: GPL-2.0-only

//! The classes that have requests queued, in the order in which these may go.
//!
//! # Vocabulary
//!
//! - *Due*: when the next request of a class has its tokens, ns. Until then the class is ordered by that time.
//! - *Deadline*: by what classes whose requests have their tokens are ordered, ns. There are two orders by deadline, so
//!   that the first class is known whose rule has no guaranteed minimum.
//! - *Floor time*: when a request has its tokens and is within the minimum of its rule, ns; classes that have one are
//!   ordered by that, too.
//!
//! A class without tokens stands behind all that have some, and only the first of each order has to be looked at.

use crate::sched::{
    mem::{grow, NoMemory},
    tournament::Tournament,
};

/// Among which classes a class is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// None: nothing is queued.
    #[default]
    Out,
    /// Those that wait for tokens, by due.
    Due,
    /// Those that have them, by deadline.
    Ready,
}

/// Where a class is in a [`Queue`]: its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Among which classes it is.
    pub place: Place,
    /// Whether its rule has a minimum.
    pub minimum: bool,
    /// Due or deadline, as `place` says.
    pub key: u64,
    /// Floor time, if it has one.
    pub floor: Option<u64>,
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
/// A slot has a key where the class's [`Keys`] say, and nowhere else.
pub struct Queue {
    due: Tournament,
    /// By deadline: those whose rule has no minimum.
    others: Tournament,
    /// By deadline: those whose rule has one.
    minimums: Tournament,
    floors: Tournament,
    /// Choices of classes with a minimum since the last one of another class.
    streak: u32,
}

grow!(Queue {
    due: Tournament,
    others: Tournament,
    minimums: Tournament,
    floors: Tournament
});

impl Queue {
    /// A queue that can be fed for up to `max` slots; sleeps.
    #[inline(never)]
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            due: Tournament::new(max)?,
            others: Tournament::new(max)?,
            minimums: Tournament::new(max)?,
            floors: Tournament::new(max)?,
            streak: 0,
        })
    }

    /// Moves `slot` from where `keys` says to `to`, and notes that in `keys`.
    #[inline]
    pub fn set(&mut self, slot: u32, keys: &mut Keys, to: Keys) {
        let was = core::mem::replace(keys, to);
        if was.floor.is_some() || to.floor.is_some() {
            self.floors.set(slot, to.floor);
        }
        if (was.place, was.minimum) != (to.place, to.minimum) {
            if let Some(queue) = self.at(&was) {
                queue.set(slot, None);
            }
        }
        if let Some(queue) = self.at(&to) {
            queue.set(slot, Some(to.key));
        }
    }

    /// Where a class with `keys` is, beside that of floors.
    #[inline]
    fn at(&mut self, keys: &Keys) -> Option<&mut Tournament> {
        match (keys.place, keys.minimum) {
            (Place::Out, _) => None,
            (Place::Due, _) => Some(&mut self.due),
            (Place::Ready, false) => Some(&mut self.others),
            (Place::Ready, true) => Some(&mut self.minimums),
        }
    }

    /// The class to look at: one that is due, as long as it comes before the others; the first whose floor time has
    /// come, but after `ratio` choices of classes with a minimum another one; else that with the earliest deadline.
    #[inline]
    pub fn first(&self, ratio: u32, now: u64) -> Option<First> {
        if self.has_minimums() {
            return self.with_minimums(ratio, now);
        }
        let (due, other) = (self.due.top(), self.others.top());
        match (due, other) {
            (Some(due), Some(other)) if due.key > now || due.key >= other.key => {
                Some(First::Go(other.slot))
            }
            (Some(due), _) => Some(First::Due(due.slot, due.key)),
            (None, other) => other.map(|other| First::Go(other.slot)),
        }
    }

    /// Whether there is a class with a minimum that has its tokens or a floor time.
    #[inline]
    fn has_minimums(&self) -> bool {
        !self.minimums.is_empty() || !self.floors.is_empty()
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
        !self.others.is_empty() || self.has_minimums()
    }

    /// Whether a class with `keys`, which has its tokens, would go first, without any that has a minimum.
    pub fn is_first(&self, keys: &Keys) -> bool {
        let first = self.others.top();
        !self.has_minimums() && first.is_none_or(|first| keys.key <= first.key)
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
        let deadline = |keys: &Keys| (keys.place == Place::Ready).then_some(keys.key);
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
                    place: Place::Ready,
                    minimum,
                    key: deadline,
                    floor,
                },
                _ => Keys {
                    place: Place::Due,
                    minimum,
                    key: due,
                    // Its tokens are there first.
                    floor: floor.map(|floor| floor.max(due)),
                },
            };
            queue.set(slot, &mut keys[slot as usize], to);
            assert_eq!(keys[slot as usize], to);
            // Those that are due get deadlines.
            let got = loop {
                match queue.first(3, now) {
                    Some(First::Due(slot, due)) if due <= now => {
                        let was = keys[slot as usize];
                        assert_eq!((was.place, was.key), (Place::Due, due));
                        let ripe = Keys {
                            place: Place::Ready,
                            ..was
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
                    assert!(keys.iter().all(|keys| keys.place != Place::Ready));
                    let waiting = keys.iter().filter(|keys| keys.place == Place::Due);
                    assert_eq!(waiting.map(|keys| keys.key).min(), Some(due));
                }
                None => assert!(keys.iter().all(|keys| *keys == Keys::default())),
            }
        }
    }
}
