// SPDX-License-Identifier: GPL-2.0-only

//! The classes that have requests queued, in the order in which these may go.
//!
//! # Vocabulary
//!
//! - *Waiting*: the front of a class has no tokens yet; the key is the time at which it may have them, ns.
//! - *Ready*: it has them; the key is the rank of the class and the time since when, a [`turn`].
//! - *Overdue*: it has had them for so long that rank does not count any more; the key is the time from which
//!   that is so. All ready classes are in this order, too.
//!
//! ```text
//!            time comes            goes first: overdue, else the lowest turn
//!   waiting ───────────► ready ─────────────────────────────────────────────► (served)
//! ```

use crate::sched::{
    mem::{grow, NoMemory},
    tournament::Tournament,
};

/// Bits of a turn that are time.
const TIME_BITS: u32 = 60;

/// The last rank.
pub const RANK_MAX: u8 = 7;

/// The key of a class of `rank` that has had its tokens since `since`, ns: by rank, then by time.
///
/// All keys are below 2^63.
#[inline]
pub fn turn(rank: u8, since: u64) -> u64 {
    let rank = u64::from(rank.min(RANK_MAX));
    (rank << TIME_BITS) | since.min((1 << TIME_BITS) - 1)
}

/// Where a class is in a [`Queue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Nowhere: nothing is queued.
    #[default]
    Away,
    /// Waiting until then, ns.
    Waiting(u64),
    /// Ready.
    Ready {
        /// Its [`turn`].
        turn: u64,
        /// When it becomes overdue, ns.
        overdue: u64,
    },
}

impl Keys {
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

/// The three orders.
///
/// # Invariants
///
/// A slot is where the class's [`Keys`] say.
pub struct Queue {
    waiting: Tournament,
    ready: Tournament,
    overdue: Tournament,
}

grow!(Queue {
    waiting: Tournament,
    ready: Tournament,
    overdue: Tournament
});

impl Queue {
    /// A queue that can be fed for up to `max` slots; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    #[inline(never)]
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            waiting: Tournament::new(max)?,
            ready: Tournament::new(max)?,
            overdue: Tournament::new(max)?,
        })
    }

    /// Moves `slot` from where `keys` says to `to`, and notes that in `keys`.
    #[inline]
    pub fn set(&mut self, slot: u32, keys: &mut Keys, to: Keys) {
        let was = core::mem::replace(keys, to);
        for (queue, was, to) in [
            (&mut self.waiting, was.waiting(), to.waiting()),
            (&mut self.ready, was.turn(), to.turn()),
            (&mut self.overdue, was.overdue(), to.overdue()),
        ] {
            if was != to {
                queue.set(slot, to);
            }
        }
    }

    /// The class that waits for the least time, and until when.
    #[inline]
    pub fn waiting(&self) -> Option<(u32, u64)> {
        let entry = self.waiting.top()?;
        Some((entry.slot, entry.key))
    }

    /// The ready class that goes first at `now`.
    #[inline]
    pub fn ready(&self, now: u64) -> Option<u32> {
        let overdue = self.overdue.top().filter(|entry| entry.key <= now);
        let entry = overdue.or(self.ready.top())?;
        Some(entry.slot)
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

    /// Against a walk over all classes.
    #[test]
    fn first_is_first() {
        const SLOTS: usize = 50;
        let mut queue = Queue::new(SLOTS).unwrap();
        queue.feed(queue.wants(SLOTS).allocate().unwrap());
        (0..SLOTS as u32).for_each(|slot| queue.create(slot));
        let mut keys = [Keys::Away; SLOTS];
        let mut rng = Rng::new(1);
        for step in 0..50_000 {
            let slot = rng.below(SLOTS as u64) as u32;
            let time = rng.below(1000);
            let to = match rng.below(3) {
                0 => Keys::Away,
                1 => Keys::Waiting(time),
                _ => Keys::Ready {
                    turn: turn(rng.below(5) as u8, time),
                    overdue: time + rng.below(500),
                },
            };
            queue.set(slot, &mut keys[slot as usize], to);
            assert_eq!(keys[slot as usize], to);
            let now = step % 1500;
            let by = |key: fn(Keys) -> Option<u64>| {
                let all = keys.iter().zip(0u32..);
                all.filter_map(|(keys, slot)| Some((key(*keys)?, slot)))
                    .min()
            };
            let due = by(Keys::overdue).filter(|(key, _)| *key <= now);
            let want = due.or(by(Keys::turn)).map(|(_, slot)| slot);
            assert_eq!(queue.ready(now), want);
            let want = by(Keys::waiting).map(|(key, slot)| (slot, key));
            assert_eq!(queue.waiting(), want);
        }
    }
}
