// SPDX-License-Identifier: GPL-2.0-only

//! Backlogged classes in the order of dispatch.
//!
//! A class whose front does not have its tokens is ordered by the time at which it will have them
//! (`due`, ns). A class whose front has its tokens is ordered by deadline, ns. Classes whose rule
//! has a guaranteed minimum have an order by deadline of their own, so that the first class without
//! a minimum is known. The floor time of a front, ns, is the time at which it has its tokens and is
//! within the minimum of the rule. Classes with a floor time are also ordered by it.
//!
//! A class without tokens is behind all classes with tokens, and only the first class of each order
//! has to be examined.

use crate::sched::{
    mem::{grow, NoMemory},
    tournament::Tournament,
};

/// Order that contains a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassSet {
    /// No order, because nothing is queued.
    #[default]
    Out,
    /// Classes without tokens, by due.
    Due,
    /// Classes with tokens, by deadline.
    Ready,
}

/// Keys of a class in a [`TbfQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TbfKeys {
    /// Order that contains the class.
    pub place: ClassSet,
    /// True if the rule of the class has a minimum.
    pub minimum: bool,
    /// Due or deadline, according to `place`.
    pub key: u64,
    /// Floor time, if the class has one.
    pub floor: Option<u64>,
}

/// Class to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextClass {
    /// The class has its tokens at this time, ns.
    Due(u32, u64),
    /// The class is next.
    Go(u32),
}

/// Backlogged classes by their keys.
///
/// # Invariants
///
/// A class has a key exactly in the orders that its [`TbfKeys`] name.
pub struct TbfQueue {
    due: Tournament,
    /// By deadline: classes whose rule has no minimum.
    others: Tournament,
    /// By deadline: classes whose rule has a minimum.
    minimums: Tournament,
    floors: Tournament,
    /// Number of choices of classes with a minimum since the last choice of another class.
    streak: u32,
}

grow!(TbfQueue {
    due: Tournament,
    others: Tournament,
    minimums: Tournament,
    floors: Tournament
});

impl TbfQueue {
    /// Creates a queue for which memory for up to `max` classes can be reserved; may sleep.
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

    /// Moves the class at `idx` from the orders in `keys` to those in `to`, and stores `to` in
    /// `keys`.
    #[inline]
    pub fn set(&mut self, idx: u32, keys: &mut TbfKeys, to: TbfKeys) {
        let was = core::mem::replace(keys, to);
        if was.floor.is_some() || to.floor.is_some() {
            self.floors.set(idx, to.floor);
        }
        if (was.place, was.minimum) != (to.place, to.minimum) {
            if let Some(queue) = self.at(&was) {
                queue.set(idx, None);
            }
        }
        if let Some(queue) = self.at(&to) {
            queue.set(idx, Some(to.key));
        }
    }

    /// Returns the order by due or deadline that contains a class with `keys`.
    #[inline]
    fn at(&mut self, keys: &TbfKeys) -> Option<&mut Tournament> {
        match (keys.place, keys.minimum) {
            (ClassSet::Out, _) => None,
            (ClassSet::Due, _) => Some(&mut self.due),
            (ClassSet::Ready, false) => Some(&mut self.others),
            (ClassSet::Ready, true) => Some(&mut self.minimums),
        }
    }

    /// Returns the class to examine. A class that is due comes first, if it precedes the classes
    /// with tokens. Next is the first class whose floor time has come, then the class with the
    /// earliest deadline, then the class that is due earliest. After `ratio` choices of classes
    /// with a minimum, a class without a minimum is returned instead.
    #[inline]
    pub fn first(&self, ratio: u32, now: u64) -> Option<NextClass> {
        if self.has_minimums() {
            return self.with_minimums(ratio, now);
        }
        let (due, other) = (self.due.top(), self.others.top());
        match (due, other) {
            (Some(due), Some(other)) if due.key > now || due.key >= other.key => {
                Some(NextClass::Go(other.idx))
            }
            (Some(due), _) => Some(NextClass::Due(due.idx, due.key)),
            (None, other) => other.map(|other| NextClass::Go(other.idx)),
        }
    }

    /// Returns true if a class with a minimum has its tokens or a floor time.
    #[inline]
    fn has_minimums(&self) -> bool {
        !self.minimums.is_empty() || !self.floors.is_empty()
    }

    #[cold]
    fn with_minimums(&self, ratio: u32, now: u64) -> Option<NextClass> {
        let due = self.due.top().map(|due| NextClass::Due(due.idx, due.key));
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
        go.map(|entry| NextClass::Go(entry.idx)).or(due)
    }

    /// Records the choice of a class, whose rule has a `minimum` or not.
    #[inline]
    pub fn chosen(&mut self, minimum: bool) {
        self.streak = match minimum {
            true => self.streak.saturating_add(1),
            false => 0,
        };
    }

    /// Returns true if a class that is due must be ordered among others by its deadline before a
    /// class is chosen.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        !self.others.is_empty() || self.has_minimums()
    }

    /// Returns true if a class with `keys`, which has its tokens, would be first. Returns false
    /// while a class with a minimum has its tokens or a floor time.
    pub fn is_first(&self, keys: &TbfKeys) -> bool {
        let first = self.others.top();
        !self.has_minimums() && first.is_none_or(|first| keys.key <= first.key)
    }
}

impl NextClass {
    /// Returns true if the class has its tokens.
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

    /// Returns the class that a linear search finds, if none is due.
    fn walk(keys: &[TbfKeys], streak: u32, ratio: u32, now: u64) -> Option<u32> {
        let first = |fits: &dyn Fn(&TbfKeys) -> bool, key: &dyn Fn(&TbfKeys) -> Option<u64>| {
            let all = keys.iter().zip(0u32..).filter(|(keys, _)| fits(keys));
            all.filter_map(|(keys, idx)| Some((key(keys)?, idx))).min()
        };
        let deadline = |keys: &TbfKeys| (keys.place == ClassSet::Ready).then_some(keys.key);
        let any = first(&|_| true, &deadline);
        let other = first(&|keys| !keys.minimum, &deadline);
        let floor = first(&|_| true, &|keys| keys.floor.filter(|floor| *floor <= now));
        let least = floor.or(first(&|keys| keys.minimum, &deadline));
        match other.filter(|_| streak >= ratio && least.is_some()) {
            Some(other) => Some(other.1),
            None => floor.or(any).map(|first| first.1),
        }
    }

    /// Compares the first class with the result of a linear search.
    #[test]
    fn first_is_first() {
        let mut queue = TbfQueue::new(50).unwrap();
        queue.feed(queue.wants(50).allocate().unwrap());
        (0..50).for_each(|idx| queue.create(idx));
        let mut keys = [TbfKeys::default(); 50];
        let (mut rng, mut streak) = (Rng::new(1), 0);
        for step in 0..50_000u64 {
            let idx = rng.below(50) as u32;
            let now = step % 1000 * 50;
            // No two keys are equal; in every other 10,000 steps, no rule has a minimum.
            let mut key = |from: u64, count| (from + rng.below(count)) * 50 + u64::from(idx);
            let minimum = step / 10_000 % 2 == 0 && (idx % 3 == 0 || step % 7 == 0);
            let (deadline, due) = (key(0, 2000), key(0, 1000));
            let floor = minimum.then(|| key(500, 1000));
            let to = match step % 5 {
                0 => TbfKeys::default(),
                1 | 2 => TbfKeys {
                    place: ClassSet::Ready,
                    minimum,
                    key: deadline,
                    floor,
                },
                _ => TbfKeys {
                    place: ClassSet::Due,
                    minimum,
                    key: due,
                    // The class cannot be within the minimum before it has its tokens.
                    floor: floor.map(|floor| floor.max(due)),
                },
            };
            queue.set(idx, &mut keys[idx as usize], to);
            assert_eq!(keys[idx as usize], to);
            // Classes that are due get deadlines.
            let got = loop {
                match queue.first(3, now) {
                    Some(NextClass::Due(idx, due)) if due <= now => {
                        let was = keys[idx as usize];
                        assert_eq!((was.place, was.key), (ClassSet::Due, due));
                        let ripe = TbfKeys {
                            place: ClassSet::Ready,
                            ..was
                        };
                        let before = queue.is_first(&ripe);
                        queue.set(idx, &mut keys[idx as usize], ripe);
                        if before {
                            assert_eq!(queue.first(3, now), Some(NextClass::Go(idx)));
                        }
                    }
                    first => break first,
                }
            };
            match got {
                Some(NextClass::Go(got)) => {
                    assert_eq!(Some(got), walk(&keys, streak, 3, now), "{step}");
                    let minimum = keys[got as usize].minimum;
                    streak = if minimum { streak + 1 } else { 0 };
                    queue.chosen(minimum);
                }
                Some(NextClass::Due(_, due)) => {
                    assert!(keys.iter().all(|keys| keys.place != ClassSet::Ready));
                    let waiting = keys.iter().filter(|keys| keys.place == ClassSet::Due);
                    assert_eq!(waiting.map(|keys| keys.key).min(), Some(due));
                }
                None => assert!(keys.iter().all(|keys| *keys == TbfKeys::default())),
            }
        }
    }
}
