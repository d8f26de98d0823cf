// SPDX-License-Identifier: GPL-2.0-only

//! The least key of many slots.
//!
//! # How it works
//!
//! As in a knock-out tournament, four slots side by side play for a place in the next round, and so on up to one winner:
//!
//! ```text
//!  round 2              [4 (1)  6 (8)  –  –]
//!                        ╱         ╲
//!  round 1    [4 (1)  5 (7)  …]   [6 (8)  –  –  –]      the least key of each four, and whose it is
//!                ╱       ╲           ╲
//!  keys    [7 4 9 –]  [– – 8 5]    [6 – – –]            by slot; –: it has none
//! ```
//!
//! A slot with another key plays its way up again: one look at four neighbours for each round, whatever the order of
//! keys. Nothing moves, so that nobody has to know where a slot is. Of equal keys that of the lowest slot wins, which
//! makes every order repeatable.

use crate::sched::mem::{Bulk, Chunks, Grow, Need, NoMemory, Pile};

/// How many play for one place.
const FIELD: usize = 4;

/// Rounds: as many as 2^22 slots need.
const ROUNDS: usize = 10;

/// The key of a slot without one.
const NEVER: u64 = u64::MAX;

/// A slot and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is ordered by.
    pub key: u64,
    /// The slot.
    pub slot: u32,
}

impl Entry {
    const NONE: Self = Self {
        key: NEVER,
        slot: u32::MAX,
    };

    /// The one with the lower key; `self` if they are equal.
    #[inline]
    fn or(self, other: Self) -> Self {
        if other.key < self.key {
            other
        } else {
            self
        }
    }
}

/// Who play for a place of the next round; 64 bytes.
type Field = [Entry; FIELD];

/// A priority queue of slots, least key first.
///
/// # Invariants
///
/// - In round 1 there is the winner of each four keys that are known, in each other round in use that of each field of
///   the round before; all others are [`Entry::NONE`].
/// - One round at least is in use, and as many as leave one field. Its winner is `top`.
/// - `fields` has all fields of the rounds from 2 on, then those of round 1 for the keys that are known.
pub struct Tournament {
    keys: Bulk<[u64; FIELD]>,
    fields: Bulk<Field>,
    /// Where each round starts in `fields`.
    starts: [u32; ROUNDS],
    /// How many are in use.
    rounds: usize,
    top: Entry,
}

impl Grow for Tournament {
    type Need = (Chunks<[u64; FIELD]>, Chunks<Field>);
    type Spare = (Pile<[u64; FIELD]>, Pile<Field>);

    fn capacity(&self) -> usize {
        let fields = self.fields.capacity().saturating_sub(self.upper());
        let fours = self.keys.capacity().min(fields.saturating_mul(FIELD));
        fours.saturating_mul(FIELD)
    }

    fn create(&mut self, slot: u32) {
        let four = slot as usize / FIELD;
        while self.keys.len() <= four && self.keys.push([NEVER; FIELD]).is_ok() {}
        let fields = self.upper().saturating_add(four / FIELD);
        while self.fields.len() <= fields && self.fields.push(NO_FIELD).is_ok() {}
        bug!(self.keys.len() <= four || self.fields.len() <= fields);
        while self.is_crowded() {
            // The winner so far, alone in one round more.
            let start = self.starts.get(self.rounds).map(|start| *start as usize);
            match start.and_then(|start| self.fields.get_mut(start)) {
                Some(field) => *field = [self.top, Entry::NONE, Entry::NONE, Entry::NONE],
                None => {
                    bug!();
                    return;
                }
            }
            self.rounds = self.rounds.wrapping_add(1);
        }
    }

    fn wants(&self, slots: usize) -> Self::Need {
        let fours = slots.div_ceil(FIELD);
        let fields = self.upper().saturating_add(fours.div_ceil(FIELD));
        (
            self.keys.wants(fours.saturating_sub(self.keys.len())),
            self.fields.wants(fields.saturating_sub(self.fields.len())),
        )
    }

    fn feed(&mut self, (keys, fields): Self::Spare) -> Self::Spare {
        (self.keys.feed(keys), self.fields.feed(fields))
    }
}

impl Tournament {
    /// A tournament that can be fed for up to `max` slots; sleeps. Not inlined, for the stack's sake.
    /// Fails, too, if these are more than 2^22.
    #[inline(never)]
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        if max > 1 << 22 {
            return Err(NoMemory);
        }
        let fours = max.div_ceil(FIELD);
        let first = fours.div_ceil(FIELD);
        let (mut starts, mut sum, mut count) = ([0; ROUNDS], 0usize, first);
        for start in starts.iter_mut().skip(1) {
            *start = u32::try_from(sum).map_err(|_| NoMemory)?;
            if count > 1 {
                count = count.div_ceil(FIELD);
                sum = sum.saturating_add(count);
            }
        }
        if let Some(start) = starts.first_mut() {
            *start = u32::try_from(sum).map_err(|_| NoMemory)?;
        }
        let mut fields = Bulk::new(sum.saturating_add(first))?;
        fields.feed(fields.wants(sum).allocate()?);
        for _ in 0..sum {
            fields.push(NO_FIELD).map_err(|_| NoMemory)?;
        }
        Ok(Self {
            keys: Bulk::new(fours)?,
            fields,
            starts,
            rounds: 1,
            top: Entry::NONE,
        })
    }

    /// Number of fields of the rounds from 2 on.
    fn upper(&self) -> usize {
        self.starts.first().map_or(0, |start| *start as usize)
    }

    /// Whether the rounds in use leave more than one field.
    fn is_crowded(&self) -> bool {
        let last = self.keys.len().saturating_sub(1);
        last.wrapping_shr((self.rounds as u32).wrapping_mul(2)) > 0
    }

    /// The slot with the least key.
    #[inline]
    pub fn top(&self) -> Option<Entry> {
        (self.top.key != NEVER).then_some(self.top)
    }

    /// Whether no slot has a key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top.key == NEVER
    }

    /// Gives `slot`, which is known, another key, or none. The last key is taken for the last but one.
    pub fn set(&mut self, slot: u32, key: Option<u64>) {
        let mut at = slot as usize / FIELD;
        let Some(keys) = self.keys.get_mut(at) else {
            bug!();
            return;
        };
        if let Some(known) = keys.get_mut(slot as usize % FIELD) {
            *known = key.map_or(NEVER, |key| key.min(const { NEVER - 1 }));
        }
        let mut winner = first_of(*keys, slot);
        for &start in self.starts.iter().take(self.rounds) {
            let child = at % FIELD;
            at /= FIELD;
            let Some(field) = self.fields.get_mut((start as usize).wrapping_add(at)) else {
                bug!();
                return;
            };
            match field.get_mut(child) {
                Some(entry) if *entry != winner => *entry = winner,
                _ => return,
            }
            let [a, b, c, d] = *field;
            winner = a.or(b).or(c.or(d));
        }
        self.top = winner;
    }
}

/// A field in which nobody plays.
const NO_FIELD: Field = [Entry::NONE; FIELD];

/// The winner of the four with these keys, of which `slot` is one.
#[inline]
fn first_of(keys: [u64; FIELD], slot: u32) -> Entry {
    let from = slot & !(FIELD as u32).wrapping_sub(1);
    let [a, b, c, d] = keys;
    let entry = |key, index| Entry {
        key,
        slot: from | index,
    };
    let (low, high) = (entry(a, 0).or(entry(b, 1)), entry(c, 2).or(entry(d, 3)));
    match low.or(high) {
        winner if winner.key == NEVER => Entry::NONE,
        winner => winner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    /// Random keys against an ordered set, while slots become known.
    #[test]
    fn against_model() {
        use std::collections::BTreeSet;
        for (seed, slots) in [(1, 1), (2, 4), (3, 17), (4, 65), (5, 300), (6, 5000)] {
            let mut queue = Tournament::new(slots).unwrap();
            let mut keys = vec![None; slots];
            let mut model = BTreeSet::new();
            let (mut rng, mut known) = (Rng::new(seed), 0);
            for step in 0..20_000u64 {
                if known < slots && step as usize * slots / 10_000 >= known {
                    queue.feed(queue.wants(known + 1).allocate().unwrap());
                    assert!(queue.capacity() > known);
                    queue.create(known as u32);
                    known += 1;
                }
                let slot = rng.below(known as u64) as u32;
                let key = [None, Some(rng.below(200)), Some(step)][rng.below(3) as usize];
                if let Some(old) = std::mem::replace(&mut keys[slot as usize], key) {
                    model.remove(&(old, slot));
                }
                model.extend(key.map(|key| (key, slot)));
                queue.set(slot, key);
                let top = queue.top().map(|entry| (entry.key, entry.slot));
                assert_eq!(top, model.first().copied());
                assert_eq!(queue.is_empty(), model.is_empty());
            }
            while let Some(entry) = queue.top() {
                assert_eq!(model.pop_first(), Some((entry.key, entry.slot)));
                queue.set(entry.slot, None);
            }
            assert!(model.is_empty());
        }
    }

    #[test]
    fn the_last_key_is_a_key() {
        let mut queue = Tournament::new(2).unwrap();
        queue.feed(queue.wants(2).allocate().unwrap());
        queue.create(1);
        queue.set(1, Some(u64::MAX));
        assert_eq!(queue.top().map(|entry| entry.slot), Some(1));
    }
}
