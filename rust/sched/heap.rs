// SPDX-License-Identifier: GPL-2.0-only

//! Priority queues of table indices (`idx`).
//!
//! The place of a table index is its position in the heap. Heaps that never contain the same table
//! index at the same time share one array of places ([`Places`]). A [`Placed`] is a heap with its
//! own array.
//!
//! Keys implement [`Sort`]. Most keys are wrapping 64-bit numbers, compared by their difference, so
//! the keys of one heap must lie within 2^63 of each other. Equal keys are ordered by table index,
//! which makes the order repeatable.
//!
//! The heap is an array in which every entry has four adjacent children (one 64-byte cache line).
//! Thus its depth is half that of a binary heap. The root is at position 3; the first three entries
//! are unused:
//!
//! ```text
//!  position   0 1 2   3      4 5 6 7          8 9 10 11   12 … 15   16 … 19   20 … 23
//!             unused  root   its children     of 4        of 5      of 6      of 7
//! ```

use crate::sched::mem::{Bulk, ChunkPile, Chunks, Grow, NoMemory};
use core::cmp::Ordering;

mod placed;

pub use placed::Placed;

/// Position of the root.
const ROOT: usize = 3;
/// Number of children of an entry.
const ARITY: usize = 4;

/// Sort key of a priority queue.
pub trait Sort: Copy + Default {
    /// Compares keys; `Less`: the entry with this key comes out before the entry with `other`.
    fn compare(&self, other: &Self) -> Ordering;

    /// Returns true if `idx` with this key comes out before `other` with the key `than`.
    #[inline]
    fn before(&self, idx: u32, than: &Self, other: u32) -> bool {
        match self.compare(than) {
            Ordering::Less => true,
            Ordering::Equal => idx < other,
            Ordering::Greater => false,
        }
    }
}

/// Wrapping numbers, compared by their difference.
impl Sort for u64 {
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        (self.wrapping_sub(*other) as i64).cmp(&0)
    }

    /// Returns the same result in fewer instructions.
    #[inline]
    fn before(&self, idx: u32, than: &Self, other: u32) -> bool {
        let ahead = self.wrapping_sub(*than) as i64;
        ahead < 0 || (ahead == 0 && idx < other)
    }
}

/// Table index in a heap with its key; 16 bytes with a key of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct HeapEntry<K = u64> {
    /// Sort key.
    pub key: K,
    /// Table index.
    pub idx: u32,
}

impl<K: Sort> HeapEntry<K> {
    /// Returns true if this entry comes out before `other`.
    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.key.before(self.idx, &other.key, other.idx)
    }
}

/// Position in the heap of each table index.
pub type Places = Bulk<u32>;

impl Grow for Places {
    type Need = Chunks<u32>;
    type Spare = ChunkPile<u32>;

    fn capacity(&self) -> usize {
        Self::capacity(self)
    }

    fn create(&mut self, idx: u32) {
        while self.len() <= idx as usize && self.push(u32::MAX).is_ok() {}
        bug!(self.len() <= idx as usize);
    }

    fn wants(&self, entries: usize) -> Chunks<u32> {
        Self::wants(self, entries.saturating_sub(self.len()))
    }

    fn feed(&mut self, spare: ChunkPile<u32>) -> ChunkPile<u32> {
        Self::feed(self, spare)
    }
}

/// Priority queue of table indices, smallest key first.
///
/// # Invariants
///
/// No entry comes out before its parent. The place of every table index in the heap is the position
/// of its entry.
pub struct Heap<K = u64> {
    entries: Bulk<HeapEntry<K>>,
}

impl<K: Sort> Grow for Heap<K> {
    type Need = Chunks<HeapEntry<K>>;
    type Spare = ChunkPile<HeapEntry<K>>;

    fn capacity(&self) -> usize {
        self.entries.capacity().saturating_sub(ROOT)
    }

    fn create(&mut self, _idx: u32) {}

    fn wants(&self, entries: usize) -> Self::Need {
        let entries = entries.saturating_add(ROOT);
        self.entries
            .wants(entries.saturating_sub(self.entries.len()))
    }

    fn feed(&mut self, spare: Self::Spare) -> Self::Spare {
        self.entries.feed(spare)
    }
}

impl<K: Sort> Heap<K> {
    /// Creates a heap that accepts memory for up to `max` entries; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            entries: Bulk::new(max.saturating_add(ROOT))?,
        })
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len().saturating_sub(ROOT)
    }

    /// Returns the entry that comes out first.
    pub fn top(&self) -> Option<&HeapEntry<K>> {
        self.entries.get(ROOT)
    }

    /// Adds `idx`, which must not be in the heap; the heap must have memory.
    pub fn push(&mut self, places: &mut Places, key: K, idx: u32) {
        while self.entries.len() < ROOT {
            let unused = HeapEntry {
                key: K::default(),
                idx: u32::MAX,
            };
            if self.entries.push(unused).is_err() {
                bug!();
                return;
            }
        }
        let entry = HeapEntry { key, idx };
        let position = self.entries.len();
        if self.entries.push(entry).is_err() {
            bug!();
            return;
        }
        self.rise(places, position, entry);
    }

    /// Sets the key of `idx`, or adds `idx`; the heap must have memory.
    pub fn set(&mut self, places: &mut Places, key: K, idx: u32) {
        match self.position(places, idx) {
            Some(position) => self.sift(places, position, HeapEntry { key, idx }),
            None => self.push(places, key, idx),
        }
    }

    /// Removes `idx`; returns true if it was in the heap.
    pub fn remove(&mut self, places: &mut Places, idx: u32) -> bool {
        let Some(position) = self.position(places, idx) else {
            return false;
        };
        let Some(last) = self.entries.pop() else {
            return false;
        };
        if position < self.entries.len() {
            self.sift(places, position, last);
        }
        true
    }

    /// Returns the position of the entry of `idx`.
    fn position(&self, places: &Places, idx: u32) -> Option<usize> {
        let position = *places.get(idx as usize)? as usize;
        let entry = self.entries.get(position)?;
        (entry.idx == idx && position >= ROOT).then_some(position)
    }

    /// Writes `entry` at `position`.
    #[inline]
    fn put(&mut self, places: &mut Places, position: usize, entry: HeapEntry<K>) {
        if let Some(at) = self.entries.get_mut(position) {
            *at = entry;
        }
        if let Some(place) = places.get_mut(entry.idx as usize) {
            *place = position as u32;
        }
    }

    /// Moves the hole at `position` to the final position of `entry`, and fills it.
    fn sift(&mut self, places: &mut Places, position: usize, entry: HeapEntry<K>) {
        let position = self.sink(places, position, entry);
        self.rise(places, position, entry);
    }

    /// Moves the hole at `position` down past children that come before `entry`; returns its
    /// position.
    fn sink(&mut self, places: &mut Places, mut position: usize, entry: HeapEntry<K>) -> usize {
        loop {
            let first = position.wrapping_sub(2).wrapping_mul(ARITY);
            let children = self.entries.run(first, ARITY);
            let mut best = entry;
            let mut to = position;
            for (i, child) in children.iter().enumerate() {
                if child.before(&best) {
                    best = *child;
                    to = first.wrapping_add(i);
                }
            }
            if to == position {
                return position;
            }
            self.put(places, position, best);
            position = to;
        }
    }

    /// Moves the hole at `position` up past parents that `entry` comes before, and fills it.
    fn rise(&mut self, places: &mut Places, mut position: usize, entry: HeapEntry<K>) {
        while position > ROOT {
            let parent = (position / ARITY).wrapping_add(2);
            match self.entries.get(parent) {
                Some(&above) if entry.before(&above) => {
                    self.put(places, position, above);
                    position = parent;
                }
                _ => break,
            }
        }
        self.put(places, position, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{mem::Need, rng::Rng};

    fn heap(max: usize) -> (Heap, Places) {
        let mut heap = Heap::new(max).unwrap();
        heap.feed(heap.wants(max).allocate().unwrap());
        (heap, Places::filled(max, || u32::MAX).unwrap())
    }

    fn check(heap: &Heap, places: &Places) {
        for i in 0..heap.len() {
            let entry = heap.entries.get(i + ROOT).unwrap();
            assert_eq!(places.get(entry.idx as usize), Some(&((i + ROOT) as u32)));
            if i > 0 {
                let parent = (i + ROOT) / ARITY + 2;
                assert!(!entry.before(heap.entries.get(parent).unwrap()));
            }
        }
    }

    /// Compares random pushes, updates and removals with an ordered set, with keys around the wrap.
    #[test]
    fn against_model() {
        use std::collections::BTreeSet;
        for (seed, entries) in [(1, 5), (2, 100), (3, 2500)] {
            let (mut heap, mut places) = heap(entries);
            let base = u64::MAX - 50;
            let mut keys = vec![None; entries];
            let mut model = BTreeSet::new();
            let mut rng = Rng::new(seed);
            for step in 0..20_000 {
                let idx = rng.below(entries as u64) as u32;
                let key = rng.below(200);
                match (keys[idx as usize], rng.below(3)) {
                    (None, _) => {
                        assert!(!heap.remove(&mut places, idx));
                        heap.push(&mut places, base.wrapping_add(key), idx);
                        model.insert((key, idx));
                        keys[idx as usize] = Some(key);
                    }
                    (Some(old), 0) => {
                        assert!(heap.remove(&mut places, idx));
                        model.remove(&(old, idx));
                        keys[idx as usize] = None;
                    }
                    (Some(old), _) => {
                        heap.set(&mut places, base.wrapping_add(key), idx);
                        model.remove(&(old, idx));
                        model.insert((key, idx));
                        keys[idx as usize] = Some(key);
                    }
                }
                let top = heap.top().map(|e| (e.key.wrapping_sub(base), e.idx));
                assert_eq!(top, model.first().copied());
                assert_eq!(heap.len(), model.len());
                if step % 512 == 0 {
                    check(&heap, &places);
                }
            }
            while let Some(entry) = heap.top().copied() {
                assert_eq!(
                    model.pop_first(),
                    Some((entry.key.wrapping_sub(base), entry.idx))
                );
                heap.remove(&mut places, entry.idx);
            }
            assert!(model.is_empty() && heap.len() == 0);
        }
    }

    /// Checks that a push without memory is reported, because a lost table index is a request that
    /// hangs.
    #[test]
    #[should_panic = "impossible state"]
    fn a_push_without_memory_is_reported() {
        let mut heap = Heap::new(100).unwrap();
        let (_, mut places) = self::heap(1);
        assert_eq!((heap.wants(1).count(), heap.capacity()), (1, 0));
        heap.push(&mut places, 0, 0);
    }
}
