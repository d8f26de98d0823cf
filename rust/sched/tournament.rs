// SPDX-License-Identifier: GPL-2.0-only

//! Priority queue of table indices (`idx`), implemented as a tournament tree.
//!
//! # Algorithm
//!
//! As in a knock-out tournament, the least key of four adjacent indices advances to the next round,
//! up to one winner:
//!
//! ```text
//!  round 2              [4 (1)  6 (8)  –  –]
//!                        ╱         ╲
//!  round 1    [4 (1)  5 (7)  …]   [6 (8)  –  –  –]      least key of each four, and its index
//!                ╱       ╲           ╲
//!  keys    [7 4 9 –]  [– – 8 5]    [6 – – –]            by index; –: no key
//! ```
//!
//! An index whose key changes repeats its rounds: one comparison of four neighbours per round, for
//! any order of keys. No entry moves, so the position of an index is never searched. Of equal keys
//! the lowest index wins, so every order is repeatable.

use crate::sched::{
    count::Count,
    mem::{Bulk, ChunkPile, Chunks, Grow, Need, NoMemory},
};

/// Number of entries compared for one place of the next round.
const FIELD: usize = 4;

/// Number of rounds, sufficient for 2^22 indices.
const ROUNDS: usize = 10;

/// Key of an index without a key.
const NEVER: u64 = u64::MAX;

/// Index and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TournamentEntry {
    /// Key that orders the entries.
    pub key: u64,
    /// Index in the table.
    pub idx: u32,
}

impl TournamentEntry {
    const NONE: Self = Self {
        key: NEVER,
        idx: u32::MAX,
    };

    /// Returns the entry with the lower key; `self` if the keys are equal.
    #[inline]
    fn or(self, other: Self) -> Self {
        if other.key < self.key {
            other
        } else {
            self
        }
    }
}

/// Entries compared for one place of the next round; 64 bytes.
type Pairing = [TournamentEntry; FIELD];

/// Priority queue of indices, least key first.
///
/// # Invariants
///
/// - Round 1 has the winner of each four known keys. Each further round in use has the winner of
///   each field of the previous round. All other entries are [`TournamentEntry::NONE`].
/// - At least one round is in use, and as many as reduce the keys to one field. The winner of this
///   field is `top`.
/// - `fields` has all fields of rounds 2 and above, then those of round 1 for the known keys.
pub struct Tournament {
    keys: Bulk<[u64; FIELD]>,
    fields: Bulk<Pairing>,
    /// Index in `fields` of the first field of each round.
    starts: [u32; ROUNDS],
    /// Number of rounds in use.
    rounds: usize,
    top: TournamentEntry,
}

impl Grow for Tournament {
    type Need = (Chunks<[u64; FIELD]>, Chunks<Pairing>);
    type Spare = (ChunkPile<[u64; FIELD]>, ChunkPile<Pairing>);

    fn capacity(&self) -> usize {
        let fields = self.fields.capacity().saturating_sub(self.upper());
        let fours = self.keys.capacity().min(fields.saturating_mul(FIELD));
        fours.saturating_mul(FIELD)
    }

    fn create(&mut self, idx: u32) {
        let four = idx as usize / FIELD;
        while self.keys.len() <= four && self.keys.push([NEVER; FIELD]).is_ok() {}
        let fields = self.upper().saturating_add(four / FIELD);
        while self.fields.len() <= fields && self.fields.push(NO_FIELD).is_ok() {}
        bug!(self.keys.len() <= four || self.fields.len() <= fields);
        while self.is_crowded() {
            // The present winner is the only entry of the added round.
            let start = self.starts.get(self.rounds).map(|start| *start as usize);
            match start.and_then(|start| self.fields.get_mut(start)) {
                Some(field) => {
                    *field = [
                        self.top,
                        TournamentEntry::NONE,
                        TournamentEntry::NONE,
                        TournamentEntry::NONE,
                    ]
                }
                None => {
                    bug!();
                    return;
                }
            }
            self.rounds = self.rounds.wrapping_add(1);
        }
    }

    fn wants(&self, entries: usize) -> Self::Need {
        let fours = entries.div_ceil(FIELD);
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
    /// Creates a tournament that can grow to `max` indices; sleeps. Not inlined, to save stack.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: also if `max` exceeds 2^22.
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
                sum.count(count);
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
            top: TournamentEntry::NONE,
        })
    }

    /// Returns the number of fields of rounds 2 and above.
    fn upper(&self) -> usize {
        self.starts.first().map_or(0, |start| *start as usize)
    }

    /// Returns true if the rounds in use leave more than one field.
    fn is_crowded(&self) -> bool {
        let last = self.keys.len().saturating_sub(1);
        last.wrapping_shr((self.rounds as u32).wrapping_mul(2)) > 0
    }

    /// Returns the index with the least key.
    #[inline]
    pub fn top(&self) -> Option<TournamentEntry> {
        (self.top.key != NEVER).then_some(self.top)
    }

    /// Returns true if no index has a key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top.key == NEVER
    }

    /// Sets or removes the key of `idx`, which must be known. The largest `u64` counts as one
    /// less.
    pub fn set(&mut self, idx: u32, key: Option<u64>) {
        let mut at = idx as usize / FIELD;
        let Some(keys) = self.keys.get_mut(at) else {
            bug!();
            return;
        };
        if let Some(known) = keys.get_mut(idx as usize % FIELD) {
            *known = key.map_or(NEVER, |key| key.min(const { NEVER - 1 }));
        }
        let mut winner = first_of(*keys, idx);
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

/// Field without keys.
const NO_FIELD: Pairing = [TournamentEntry::NONE; FIELD];

/// Returns the winner of the four indices around `idx` with these keys.
#[inline]
fn first_of(keys: [u64; FIELD], idx: u32) -> TournamentEntry {
    let from = idx & !(FIELD as u32).wrapping_sub(1);
    let [a, b, c, d] = keys;
    let entry = |key, index| TournamentEntry {
        key,
        idx: from | index,
    };
    let (low, high) = (entry(a, 0).or(entry(b, 1)), entry(c, 2).or(entry(d, 3)));
    match low.or(high) {
        winner if winner.key == NEVER => TournamentEntry::NONE,
        winner => winner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    /// Compares random keys with an ordered set, while indices become known.
    #[test]
    fn against_model() {
        use std::collections::BTreeSet;
        for (seed, entries) in [(1, 1), (2, 4), (3, 17), (4, 65), (5, 300), (6, 5000)] {
            let mut queue = Tournament::new(entries).unwrap();
            let mut keys = vec![None; entries];
            let mut model = BTreeSet::new();
            let (mut rng, mut known) = (Rng::new(seed), 0);
            for step in 0..20_000u64 {
                if known < entries && step as usize * entries / 10_000 >= known {
                    queue.feed(queue.wants(known + 1).allocate().unwrap());
                    assert!(queue.capacity() > known);
                    queue.create(known as u32);
                    known += 1;
                }
                let idx = rng.below(known as u64) as u32;
                let key = [None, Some(rng.below(200)), Some(step)][rng.below(3) as usize];
                if let Some(old) = std::mem::replace(&mut keys[idx as usize], key) {
                    model.remove(&(old, idx));
                }
                model.extend(key.map(|key| (key, idx)));
                queue.set(idx, key);
                let top = queue.top().map(|entry| (entry.key, entry.idx));
                assert_eq!(top, model.first().copied());
                assert_eq!(queue.is_empty(), model.is_empty());
            }
            while let Some(entry) = queue.top() {
                assert_eq!(model.pop_first(), Some((entry.key, entry.idx)));
                queue.set(entry.idx, None);
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
        assert_eq!(queue.top().map(|entry| entry.idx), Some(1));
    }
}
