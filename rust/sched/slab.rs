// SPDX-License-Identifier: GPL-2.0-only

//! Records named by handles instead of pointers, and lists of records.
//!
//! # Terms
//!
//! - *Index*: position of an entry in the slab.
//! - *Generation*: number of changes between vacant and taken; odd while the entry is taken.
//!
//! ```text
//!            insert                    remove
//!  vacant (even) ──► taken (odd) ──► vacant (even) ──► …
//! ```
//!
//! The entry vacated last is reused first, because it is likely still cached.

use crate::sched::mem::{Bulk, ChunkPile, Chunks, NoMemory};

/// Index that names no entry.
pub const NONE: u32 = u32::MAX;

/// Name of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    idx: u32,
    generation: u32,
}

impl Handle {
    /// Creates the handle of the record at `idx` with `generation`.
    pub const fn new(idx: u32, generation: u32) -> Self {
        Self { idx, generation }
    }

    /// Returns the index.
    pub const fn idx(self) -> u32 {
        self.idx
    }

    /// Returns the handle as a number, which is odd: the generation of a live record is odd.
    pub const fn bits(self) -> u64 {
        ((self.idx as u64) << 32) | self.generation as u64
    }

    /// Creates a handle from the result of [`Handle::bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self::new((bits >> 32) as u32, bits as u32)
    }
}

/// Entry of a [`Slab`].
pub struct SlabEntry<T> {
    generation: u32,
    next: u32,
    value: Option<T>,
}

/// Records with an index each. [`Slab::insert`] uses preallocated memory and never allocates.
///
/// # Invariants
///
/// An entry has a value if and only if its generation is odd. The entries without a value form a
/// list from `free` through `next`.
pub struct Slab<T> {
    entries: Bulk<SlabEntry<T>>,
    free: u32,
    live: u32,
}

/// Memory needed by a [`Slab`].
pub type SlabNeed<T> = Chunks<SlabEntry<T>>;

/// Chunks for a [`Slab`].
pub type SlabPile<T> = ChunkPile<SlabEntry<T>>;

impl<T> Slab<T> {
    /// Creates a slab that can grow to `max` entries; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            entries: Bulk::new(max)?,
            free: NONE,
            live: 0,
        })
    }

    /// Returns the number of entries, vacant or taken.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of records that can be inserted without more memory.
    pub fn room(&self) -> usize {
        self.capacity().saturating_sub(self.live as usize)
    }

    /// Returns the number of entries with allocated memory.
    pub fn capacity(&self) -> usize {
        self.entries.capacity().min(NONE as usize)
    }

    /// Returns the number of records.
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Returns the number of vacant entries.
    pub fn vacant(&self) -> usize {
        self.entries.len().saturating_sub(self.live as usize)
    }

    /// Returns the chunks needed for `extra` more entries.
    pub fn wants(&self, extra: usize) -> SlabNeed<T> {
        self.entries.wants(extra)
    }

    /// Takes chunks and returns unneeded ones.
    pub fn feed(&mut self, pile: SlabPile<T>) -> SlabPile<T> {
        self.entries.feed(pile)
    }

    /// Inserts a record into a vacant entry, else into a new one. Returns the value as the error if
    /// there is no memory for another entry.
    pub fn insert(&mut self, value: T) -> Result<Handle, T> {
        // `NONE` is not an index.
        let (idx, generation) = match self.entries.get_mut(self.free as usize) {
            Some(entry) => {
                let idx = self.free;
                self.free = entry.next;
                entry.generation = entry.generation.wrapping_add(1);
                entry.value = Some(value);
                (idx, entry.generation)
            }
            None => {
                let idx = self.entries.len();
                if idx >= self.capacity() {
                    return Err(value);
                }
                let entry = SlabEntry {
                    generation: 1,
                    next: NONE,
                    value: Some(value),
                };
                bug!(self.entries.push(entry).is_err());
                (idx as u32, 1)
            }
        };
        self.live = self.live.wrapping_add(1);
        Ok(Handle { idx, generation })
    }

    /// Removes the record at `idx`.
    pub fn remove(&mut self, idx: u32) -> Option<T> {
        let entry = self.entries.get_mut(idx as usize)?;
        let value = entry.value.take()?;
        // INVARIANT: the value is removed, the generation becomes even, the entry joins the list.
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = idx;
        self.live = self.live.wrapping_sub(1);
        Some(value)
    }

    /// Returns the handle of the record at `idx`.
    pub fn handle(&self, idx: u32) -> Option<Handle> {
        let entry = self.entries.get(idx as usize)?;
        entry.value.as_ref()?;
        Some(Handle {
            idx,
            generation: entry.generation,
        })
    }

    /// Returns the record of `handle`, if the record still exists.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let entry = self.entries.get(handle.idx as usize)?;
        if entry.generation != handle.generation {
            return None;
        }
        entry.value.as_ref()
    }

    /// Returns the record of `handle` for writing, if the record still exists.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.idx as usize)?;
        if entry.generation != handle.generation {
            return None;
        }
        entry.value.as_mut()
    }

    /// Returns the record at `idx` for writing, and its handle.
    #[inline]
    pub fn named_mut(&mut self, idx: u32) -> Option<(Handle, &mut T)> {
        let entry = self.entries.get_mut(idx as usize)?;
        let handle = Handle::new(idx, entry.generation);
        Some((handle, entry.value.as_mut()?))
    }

    /// Returns the record at `idx`.
    #[inline]
    pub fn at(&self, idx: u32) -> Option<&T> {
        self.entries.get(idx as usize)?.value.as_ref()
    }

    /// Returns the record at `idx` for writing.
    #[inline]
    pub fn at_mut(&mut self, idx: u32) -> Option<&mut T> {
        self.entries.get_mut(idx as usize)?.value.as_mut()
    }
}

/// Neighbours of a record in a [`SlabList`].
#[derive(Clone, Copy, Debug)]
pub struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// Creates links without neighbours.
    pub const fn new() -> Self {
        Self {
            before: NONE,
            after: NONE,
        }
    }

    /// Returns the next index of the list.
    pub fn after(&self) -> Option<u32> {
        (self.after != NONE).then_some(self.after)
    }
}

/// Record that a [`SlabList`] can contain.
pub trait Linked {
    /// Returns the links, which only the list changes.
    fn links(&mut self) -> &mut Links;
}

/// First-in first-out list of indices, linked through the records.
///
/// # Invariants
///
/// `first` and `last` are both [`NONE`], or are the ends of one chain. A record is in at most one
/// list.
#[derive(Debug)]
pub struct SlabList {
    first: u32,
    last: u32,
}

impl SlabList {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }

    /// Returns the oldest index.
    pub const fn first(&self) -> Option<u32> {
        if self.first == NONE {
            None
        } else {
            Some(self.first)
        }
    }

    /// Returns the newest index.
    pub const fn last(&self) -> Option<u32> {
        if self.last == NONE {
            None
        } else {
            Some(self.last)
        }
    }

    /// Appends `idx`, which is in no list.
    pub fn push<T: Linked>(&mut self, slab: &mut Slab<T>, idx: u32) {
        let Some(record) = slab.at_mut(idx) else {
            bug!();
            return;
        };
        *record.links() = Links {
            before: self.last,
            after: NONE,
        };
        match slab.at_mut(self.last) {
            Some(last) => last.links().after = idx,
            None => self.first = idx,
        }
        self.last = idx;
    }

    /// Removes `idx`, which is in this list.
    pub fn remove<T: Linked>(&mut self, slab: &mut Slab<T>, idx: u32) {
        let Some(record) = slab.at_mut(idx) else {
            bug!();
            return;
        };
        let links = core::mem::replace(record.links(), Links::new());
        match slab.at_mut(links.before) {
            Some(before) => before.links().after = links.after,
            None => self.first = links.after,
        }
        match slab.at_mut(links.after) {
            Some(after) => after.links().before = links.before,
            None => self.last = links.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::mem::Need;

    struct SlabNode {
        value: u32,
        links: Links,
    }

    impl Linked for SlabNode {
        fn links(&mut self) -> &mut Links {
            &mut self.links
        }
    }

    fn slab(max: usize) -> Slab<SlabNode> {
        let mut slab = Slab::new(max).unwrap();
        slab.feed(slab.wants(max).allocate().unwrap());
        slab
    }

    fn node(value: u32) -> SlabNode {
        SlabNode {
            value,
            links: Links::new(),
        }
    }

    #[test]
    fn stale_handles_find_nothing() {
        let mut slab = slab(10);
        let a = slab.insert(node(1)).ok().unwrap();
        assert_eq!(slab.get(a).map(|n| n.value), Some(1));
        assert_eq!(slab.remove(a.idx()).map(|n| n.value), Some(1));
        assert!(slab.get(a).is_none() && slab.at(a.idx()).is_none());
        assert!(slab.remove(a.idx()).is_none() && slab.handle(a.idx()).is_none());
        let b = slab.insert(node(2)).ok().unwrap();
        assert_eq!(b, Handle::new(a.idx(), 3));
        assert!(slab.get(a).is_none());
        assert_eq!(slab.handle(b.idx()), Some(b));
        assert_eq!((slab.live(), slab.entry_count(), slab.vacant()), (1, 1, 0));
    }

    #[test]
    fn without_memory_the_value_comes_back() {
        let mut slab = Slab::new(1 << 20).unwrap();
        assert_eq!(slab.insert(node(5)).err().map(|n| n.value), Some(5));
        slab.feed(SlabPile::allocate(1).unwrap());
        let mut count = 0;
        while slab.insert(node(count)).is_ok() {
            count += 1;
        }
        assert_eq!(count as usize, slab.entry_count());
        slab.remove(3);
        assert!(slab.insert(node(9)).is_ok() && slab.insert(node(9)).is_err());
    }

    #[test]
    fn list_against_model() {
        use crate::sched::rng::Rng;
        let mut slab = slab(64);
        let mut list = SlabList::new();
        let mut model: Vec<u32> = Vec::new();
        let mut rng = Rng::new(5);
        for i in 0..10_000 {
            if model.is_empty() || (rng.below(2) == 0 && model.len() < 64) {
                let idx = slab.insert(node(i)).ok().unwrap().idx();
                list.push(&mut slab, idx);
                model.push(idx);
            } else {
                let at = match rng.below(2) {
                    0 => 0,
                    _ => rng.below(model.len() as u64) as usize,
                };
                let idx = model.remove(at);
                list.remove(&mut slab, idx);
                slab.remove(idx);
            }
            assert_eq!(list.first(), model.first().copied());
        }
        while let Some(idx) = list.first() {
            assert_eq!(model.remove(0), idx);
            list.remove(&mut slab, idx);
        }
        assert!(model.is_empty());
    }
}
