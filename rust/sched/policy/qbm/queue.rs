// SPDX-License-Identifier: GPL-2.0-only

//! Backlogged classes in the order of dispatch.
//!
//! A class is *waiting* while its front has no tokens; the key is the time at which it may have
//! them, ns. A class is *ready* once its front has tokens; the key is its [`turn`]: the rank, and
//! the time since when the front has them. A ready class becomes *overdue* when its front has had
//! tokens for so long that the rank no longer counts. All ready classes are also ordered by the
//! time at which they become overdue, ns.
//!
//! ```text
//!            time comes            first: overdue, else the lowest turn
//!   waiting ───────────► ready ─────────────────────────────────────────► (dispatched)
//! ```

use crate::sched::{
    mem::{grow, NoMemory},
    tournament::Tournament,
};

/// Number of bits of a turn for the time.
const TIME_BITS: u32 = 60;

/// Maximum rank.
pub const RANK_MAX: u8 = 7;

/// Returns the key of a class of `rank` that has had its tokens since `since`, ns: ordered by rank,
/// then by time.
#[inline]
pub fn turn(rank: u8, since: u64) -> u64 {
    let rank = u64::from(rank.min(RANK_MAX));
    (rank << TIME_BITS) | since.min((1 << TIME_BITS) - 1)
}

/// Position of a class in a [`QbmQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QbmKeys {
    /// Not in the queue, because nothing is queued.
    #[default]
    Away,
    /// Waiting until this time, ns.
    Waiting(u64),
    /// Ready.
    Ready {
        /// Key of the class, a [`turn`].
        turn: u64,
        /// Time at which the class becomes overdue, ns.
        overdue: u64,
    },
}

impl QbmKeys {
    const fn waiting(self) -> Option<u64> {
        match self {
            Self::Waiting(until) => Some(until),
            _ => None,
        }
    }

    const fn turn(self) -> Option<u64> {
        match self {
            Self::Ready { turn, .. } => Some(turn),
            _ => None,
        }
    }

    const fn overdue(self) -> Option<u64> {
        match self {
            Self::Ready { overdue, .. } => Some(overdue),
            _ => None,
        }
    }
}

/// Backlogged classes in three orders.
///
/// # Invariants
///
/// A class is in the orders that its [`QbmKeys`] name, and in no other.
pub struct QbmQueue {
    waiting: Tournament,
    ready: Tournament,
    overdue: Tournament,
}

grow!(QbmQueue {
    waiting: Tournament,
    ready: Tournament,
    overdue: Tournament
});

impl QbmQueue {
    /// Creates a queue for which memory for up to `max` classes can be reserved; may sleep.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: out of memory.
    #[inline(never)]
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            waiting: Tournament::new(max)?,
            ready: Tournament::new(max)?,
            overdue: Tournament::new(max)?,
        })
    }

    /// Moves the class at `idx` from the orders in `keys` to those in `to`, and stores `to` in
    /// `keys`.
    #[inline]
    pub fn set(&mut self, idx: u32, keys: &mut QbmKeys, to: QbmKeys) {
        let was = core::mem::replace(keys, to);
        for (queue, was, to) in [
            (&mut self.waiting, was.waiting(), to.waiting()),
            (&mut self.ready, was.turn(), to.turn()),
            (&mut self.overdue, was.overdue(), to.overdue()),
        ] {
            if was != to {
                queue.set(idx, to);
            }
        }
    }

    /// Returns the class with the earliest end of waiting, and that time, ns.
    #[inline]
    pub fn waiting(&self) -> Option<(u32, u64)> {
        let entry = self.waiting.top()?;
        Some((entry.idx, entry.key))
    }

    /// Returns the ready class that is first at `now`.
    #[inline]
    pub fn ready(&self, now: u64) -> Option<u32> {
        let overdue = self.overdue.top().filter(|entry| entry.key <= now);
        let entry = overdue.or(self.ready.top())?;
        Some(entry.idx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{
        mem::{Grow, Need},
        rng::Rng,
    };

    #[test]
    fn turns_are_in_order() {
        let mut before = None;
        for rank in 0..=RANK_MAX {
            for since in [0, 1, 1 << 40, u64::MAX] {
                let turn = turn(rank, since);
                assert!(before < Some(turn) && turn < 1 << 63);
                before = Some(turn);
            }
        }
        assert_eq!(turn(u8::MAX, 5), turn(RANK_MAX, 5));
    }

    /// Compares the first class with the result of a linear search.
    #[test]
    fn first_is_first() {
        const ENTRIES: usize = 50;
        let mut queue = QbmQueue::new(ENTRIES).unwrap();
        queue.feed(queue.wants(ENTRIES).allocate().unwrap());
        (0..ENTRIES as u32).for_each(|idx| queue.create(idx));
        let mut keys = [QbmKeys::Away; ENTRIES];
        let mut rng = Rng::new(1);
        for step in 0..50_000 {
            let idx = rng.below(ENTRIES as u64) as u32;
            let time = rng.below(1000);
            let to = match rng.below(3) {
                0 => QbmKeys::Away,
                1 => QbmKeys::Waiting(time),
                _ => QbmKeys::Ready {
                    turn: turn(rng.below(5) as u8, time),
                    overdue: time + rng.below(500),
                },
            };
            queue.set(idx, &mut keys[idx as usize], to);
            assert_eq!(keys[idx as usize], to);
            let now = step % 1500;
            let by = |key: fn(QbmKeys) -> Option<u64>| {
                let all = keys.iter().zip(0u32..);
                all.filter_map(|(keys, idx)| Some((key(*keys)?, idx))).min()
            };
            let due = by(QbmKeys::overdue).filter(|(key, _)| *key <= now);
            let want = due.or(by(QbmKeys::turn)).map(|(_, idx)| idx);
            assert_eq!(queue.ready(now), want);
            let want = by(QbmKeys::waiting).map(|(key, idx)| (idx, key));
            assert_eq!(queue.waiting(), want);
        }
    }
}
