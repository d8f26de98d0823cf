// SPDX-License-Identifier: GPL-2.0-only

//! Priority queues of table indices (`slot`).
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

    /// Returns true if `slot` with this key comes out before `other` with the key `than`.
    #[inline]
    fn before(&self, slot: u32, than: &Self, other: u32) -> bool {
        match self.compare(than) {
            Ordering::Less => true,
            Ordering::Equal => slot < other,
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
    fn before(&self, slot: u32, than: &Self, other: u32) -> bool {
        let ahead = self.wrapping_sub(*than) as i64;
        ahead < 0 || (ahead == 0 && slot < other)
    }
}

/// Table index in a heap with its key; 16 bytes with a key of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct HeapEntry<K = u64> {
    /// Sort key.
    pub key: K,
    /// Table index.
    pub slot: u32,
}

impl<K: Sort> HeapEntry<K> {
    /// Returns true if this entry comes out before `other`.
    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.key.before(self.slot, &other.key, other.slot)
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

    fn create(&mut self, slot: u32) {
        while self.len() <= slot as usize && self.push(u32::MAX).is_ok() {}
        bug!(self.len() <= slot as usize);
    }

    fn wants(&self, slots: usize) -> Chunks<u32> {
        Self::wants(self, slots.saturating_sub(self.len()))
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

    fn create(&mut self, _slot: u32) {}

    fn wants(&self, slots: usize) -> Self::Need {
        let slots = slots.saturating_add(ROOT);
        self.entries.wants(slots.saturating_sub(self.entries.len()))
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

    /// Returns true if the heap has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry that comes out first.
    pub fn top(&self) -> Option<&HeapEntry<K>> {
        self.entries.get(ROOT)
    }

    /// Returns the entry at `index` in unspecified order.
    pub fn nth(&self, index: usize) -> Option<&HeapEntry<K>> {
        self.entries.get(index.saturating_add(ROOT))
    }

    /// Adds `slot`, which must not be in the heap; the heap must have memory.
    pub fn push(&mut self, places: &mut Places, key: K, slot: u32) {
        while self.entries.len() < ROOT {
            let unused = HeapEntry {
                key: K::default(),
                slot: u32::MAX,
            };
            if self.entries.push(unused).is_err() {
                bug!();
                return;
            }
        }
        let entry = HeapEntry { key, slot };
        let index = self.entries.len();
        if self.entries.push(entry).is_err() {
            bug!();
            return;
        }
        self.rise(places, index, entry);
    }

    /// Sets the key of `slot`, which must be in the heap.
    pub fn update(&mut self, places: &mut Places, key: K, slot: u32) {
        let Some(index) = self.index(places, slot) else {
            bug!();
            return;
        };
        self.settle(places, index, HeapEntry { key, slot });
    }

    /// Sets the key of `slot`, or adds `slot`; the heap must have memory.
    pub fn set(&mut self, places: &mut Places, key: K, slot: u32) {
        match self.index(places, slot) {
            Some(index) => self.settle(places, index, HeapEntry { key, slot }),
            None => self.push(places, key, slot),
        }
    }

    /// Removes `slot`; returns true if it was in the heap.
    pub fn remove(&mut self, places: &mut Places, slot: u32) -> bool {
        let Some(index) = self.index(places, slot) else {
            return false;
        };
        let Some(last) = self.entries.pop() else {
            return false;
        };
        if index < self.entries.len() {
            self.settle(places, index, last);
        }
        true
    }

    /// Returns the position of the entry of `slot`.
    fn index(&self, places: &Places, slot: u32) -> Option<usize> {
        let index = *places.get(slot as usize)? as usize;
        let entry = self.entries.get(index)?;
        (entry.slot == slot && index >= ROOT).then_some(index)
    }

    /// Writes `entry` at position `index`.
    #[inline]
    fn put(&mut self, places: &mut Places, index: usize, entry: HeapEntry<K>) {
        if let Some(at) = self.entries.get_mut(index) {
            *at = entry;
        }
        if let Some(place) = places.get_mut(entry.slot as usize) {
            *place = index as u32;
        }
    }

    /// Moves the hole at position `index` to the final position of `entry`, and fills it.
    fn settle(&mut self, places: &mut Places, index: usize, entry: HeapEntry<K>) {
        let index = self.sink(places, index, entry);
        self.rise(places, index, entry);
    }

    /// Moves the hole at position `index` down past children that come before `entry`; returns its
    /// position.
    fn sink(&mut self, places: &mut Places, mut index: usize, entry: HeapEntry<K>) -> usize {
        loop {
            let first = index.wrapping_sub(2).wrapping_mul(ARITY);
            let children = self.entries.run(first, ARITY);
            let mut best = entry;
            let mut to = index;
            for (i, child) in children.iter().enumerate() {
                if child.before(&best) {
                    best = *child;
                    to = first.wrapping_add(i);
                }
            }
            if to == index {
                return index;
            }
            self.put(places, index, best);
            index = to;
        }
    }

    /// Moves the hole at position `index` up past parents that `entry` comes before, and fills it.
    fn rise(&mut self, places: &mut Places, mut index: usize, entry: HeapEntry<K>) {
        while index > ROOT {
            let parent = (index / ARITY).wrapping_add(2);
            match self.entries.get(parent) {
                Some(&above) if entry.before(&above) => {
                    self.put(places, index, above);
                    index = parent;
                }
                _ => break,
            }
        }
        self.put(places, index, entry);
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
            let entry = heap.nth(i).unwrap();
            assert_eq!(places.get(entry.slot as usize), Some(&((i + ROOT) as u32)));
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
        for (seed, slots) in [(1, 5), (2, 100), (3, 2500)] {
            let (mut heap, mut places) = heap(slots);
            let base = u64::MAX - 50;
            let mut keys = vec![None; slots];
            let mut model = BTreeSet::new();
            let mut rng = Rng::new(seed);
            for step in 0..20_000 {
                let slot = rng.below(slots as u64) as u32;
                let key = rng.below(200);
                match (keys[slot as usize], rng.below(3)) {
                    (None, _) => {
                        assert!(!heap.remove(&mut places, slot));
                        heap.push(&mut places, base.wrapping_add(key), slot);
                        model.insert((key, slot));
                        keys[slot as usize] = Some(key);
                    }
                    (Some(old), 0) => {
                        assert!(heap.remove(&mut places, slot));
                        model.remove(&(old, slot));
                        keys[slot as usize] = None;
                    }
                    (Some(old), _) => {
                        heap.update(&mut places, base.wrapping_add(key), slot);
                        model.remove(&(old, slot));
                        model.insert((key, slot));
                        keys[slot as usize] = Some(key);
                    }
                }
                let top = heap.top().map(|e| (e.key.wrapping_sub(base), e.slot));
                assert_eq!(top, model.first().copied());
                assert_eq!(heap.len(), model.len());
                if step % 512 == 0 {
                    check(&heap, &places);
                }
            }
            while let Some(entry) = heap.top().copied() {
                assert_eq!(
                    model.pop_first(),
                    Some((entry.key.wrapping_sub(base), entry.slot))
                );
                heap.remove(&mut places, entry.slot);
            }
            assert!(model.is_empty() && heap.is_empty());
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
