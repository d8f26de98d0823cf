// SPDX-License-Identifier: GPL-2.0-only

//! Hash table of records that are also addressed by index.
//!
//! A bucket is the list of the rows whose hashes have the same low bits.
//!
//! The table uses linear hashing (Litwin, VLDB'80). It has one bucket per entry ever created and
//! splits one bucket for each new entry, so no insertion rehashes all rows. The hash function has a
//! secret seed, see [`crate::sched::key`]. Several rows may have the same key.

use crate::sched::{
    key::{Hashed, Hasher},
    mem::{Bulk, Chunks, Need, NoMemory},
    slab::{Handle, Linked, Links, Slab, SlabList, SlabNeed, NONE},
};

/// Record with its key and its link in the bucket.
pub struct TableRow<K, V> {
    key: K,
    hash: u32,
    next: u32,
    value: V,
}

impl<K, V: Linked> Linked for TableRow<K, V> {
    fn links(&mut self) -> &mut Links {
        self.value.links()
    }
}

/// Memory needed by a [`Table`].
pub type TableNeed<K, V> = (SlabNeed<TableRow<K, V>>, Chunks<u32>);

/// Allocated memory for a [`Table`].
pub type TableSpare<K, V> = <TableNeed<K, V> as Need>::Spare;

/// Table of rows, addressed by key and by index.
///
/// # Invariants
///
/// Each row is in the bucket of its hash. There are at most as many buckets as entries.
pub struct Table<K, V> {
    rows: Slab<TableRow<K, V>>,
    buckets: Bulk<u32>,
    hasher: Hasher,
}

impl<K: Eq + Hashed, V> Table<K, V> {
    /// Creates an empty table that can grow to `max` rows; sleeps.
    pub fn new(max: usize, seed: u64) -> Result<Self, NoMemory> {
        Ok(Self {
            rows: Slab::new(max)?,
            buckets: Bulk::new(max)?,
            hasher: Hasher::new(seed),
        })
    }

    /// Returns the memory needed for one more row.
    pub fn need(&self) -> TableNeed<K, V> {
        match self.rows.vacant() {
            0 => self.wants(self.rows.entry_count().saturating_add(1)),
            _ => self.wants(0),
        }
    }

    /// Returns the memory needed for `entries` in all.
    pub fn wants(&self, entries: usize) -> TableNeed<K, V> {
        let missing = |len: usize| entries.saturating_sub(len);
        let rows = self.rows.wants(missing(self.rows.entry_count()));
        (rows, self.buckets.wants(missing(self.buckets.len())))
    }

    /// Takes memory and returns unneeded memory.
    pub fn grow(&mut self, (rows, buckets): TableSpare<K, V>) -> TableSpare<K, V> {
        (self.rows.feed(rows), self.buckets.feed(buckets))
    }

    /// Returns the number of rows.
    pub fn len(&self) -> u32 {
        self.rows.live()
    }

    /// Returns the number of vacant entries.
    pub fn vacant(&self) -> usize {
        self.rows.vacant()
    }

    /// Returns the number of entries with allocated memory.
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// Returns the number of entries, vacant or taken.
    pub fn entry_count(&self) -> u32 {
        self.rows.entry_count() as u32
    }

    /// Returns the handle of the row at `idx`.
    pub fn handle(&self, idx: u32) -> Option<Handle> {
        self.rows.handle(idx)
    }

    /// Returns the row of `handle`, if the row still exists.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&V> {
        self.rows.get(handle).map(|row| &row.value)
    }

    /// Returns the row of `handle` for writing, if the row still exists.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut V> {
        self.rows.get_mut(handle).map(|row| &mut row.value)
    }

    /// Returns the row at `idx`.
    #[inline]
    pub fn at(&self, idx: u32) -> Option<&V> {
        self.rows.at(idx).map(|row| &row.value)
    }

    /// Returns the row at `idx` for writing.
    #[inline]
    pub fn at_mut(&mut self, idx: u32) -> Option<&mut V> {
        self.rows.at_mut(idx).map(|row| &mut row.value)
    }

    /// Returns the row at `idx` for writing, and its handle.
    #[inline]
    pub fn named_mut(&mut self, idx: u32) -> Option<(Handle, &mut V)> {
        let (handle, row) = self.rows.named_mut(idx)?;
        Some((handle, &mut row.value))
    }

    /// Returns the key of the row at `idx`.
    pub fn key(&self, idx: u32) -> Option<&K> {
        self.rows.at(idx).map(|row| &row.key)
    }

    /// Returns the hash of `key` under the secret of the table.
    pub fn hash(&self, key: &K) -> u64 {
        self.hasher.wide(key)
    }

    /// Returns the index of a row with `key` for which `fits` is true.
    pub fn find(&self, key: &K, fits: impl Fn(&V) -> bool) -> Option<u32> {
        let hash = self.hasher.hash(key);
        let mut idx = *self.buckets.get(self.bucket(hash))?;
        while let Some(row) = self.rows.at(idx) {
            if row.hash == hash && row.key == *key && fits(&row.value) {
                return Some(idx);
            }
            idx = row.next;
        }
        None
    }

    /// Inserts a row. Returns the value as the error if there is no memory for another entry.
    pub fn insert(&mut self, key: K, value: V) -> Result<Handle, V> {
        let hash = self.hasher.hash(&key);
        if self.buckets.len() == 0 && self.buckets.push(NONE).is_err() {
            return Err(value);
        }
        let row = TableRow {
            key,
            hash,
            next: NONE,
            value,
        };
        let handle = self.rows.insert(row).map_err(|row| row.value)?;
        self.split();
        self.link(handle.idx(), hash);
        Ok(handle)
    }

    /// Removes the row at `idx`, which must not be in a list.
    pub fn remove(&mut self, idx: u32) -> Option<V> {
        let row = self.rows.at(idx)?;
        let (hash, after) = (row.hash, row.next);
        let bucket = self.bucket(hash);
        let head = self.buckets.get_mut(bucket)?;
        if *head == idx {
            *head = after;
        } else {
            let mut at = *head;
            while let Some(row) = self.rows.at_mut(at) {
                if row.next == idx {
                    row.next = after;
                    break;
                }
                at = row.next;
            }
        }
        self.rows.remove(idx).map(|row| row.value)
    }

    /// Returns the index of the bucket of `hash`.
    fn bucket(&self, hash: u32) -> usize {
        let len = self.buckets.len().max(1);
        let mask = len
            .checked_next_power_of_two()
            .map_or(0, |n| n.wrapping_sub(1));
        let index = hash as usize & mask;
        if index < len {
            index
        } else {
            index & (mask >> 1)
        }
    }

    /// Inserts the row at `idx` at the front of its bucket.
    fn link(&mut self, idx: u32, hash: u32) {
        let bucket = self.bucket(hash);
        if let Some(head) = self.buckets.get_mut(bucket) {
            let after = core::mem::replace(head, idx);
            if let Some(row) = self.rows.at_mut(idx) {
                row.next = after;
            }
        }
    }

    /// Adds a bucket, if there are fewer buckets than entries, and moves its rows there.
    fn split(&mut self) {
        let len = self.buckets.len();
        if len >= self.rows.entry_count() || self.buckets.push(NONE).is_err() {
            return;
        }
        // The rows of the new bucket come from the bucket with the same bits except the highest.
        let Some(high) = len.checked_ilog2() else {
            return;
        };
        let from = len ^ (1 << high);
        let Some(head) = self.buckets.get_mut(from) else {
            return;
        };
        let mut idx = core::mem::replace(head, NONE);
        while let Some(row) = self.rows.at(idx) {
            let (hash, after) = (row.hash, row.next);
            self.link(idx, hash);
            idx = after;
        }
    }
}

impl<K, V: Linked> Table<K, V> {
    /// Appends the row at `idx`, which must not be in a list, to `list`.
    pub fn push(&mut self, list: &mut SlabList, idx: u32) {
        list.push(&mut self.rows, idx);
    }

    /// Removes the row at `idx` from `list`, which must contain the row.
    pub fn unlist(&mut self, list: &mut SlabList, idx: u32) {
        list.remove(&mut self.rows, idx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    fn grow(table: &mut Table<u64, u32>) {
        let need = table.need();
        if !need.is_empty() {
            table.grow(need.allocate().unwrap());
        }
    }

    /// Compares random insertions, searches and removals with a list of pairs; keys occur several
    /// times.
    #[test]
    fn against_model() {
        let mut table = Table::new(5000, 7).unwrap();
        assert_eq!(table.insert(1, 1), Err(1));
        let mut model: Vec<(u64, u32, Handle)> = Vec::new();
        let mut rng = Rng::new(3);
        for step in 0..20_000u32 {
            let key = rng.below(3000);
            if rng.below(5) < 3 && model.len() < 5000 {
                grow(&mut table);
                let handle = table.insert(key, step).unwrap();
                model.push((key, step, handle));
            } else if !model.is_empty() {
                let (key, value, handle) =
                    model.swap_remove(rng.below(model.len() as u64) as usize);
                let idx = table.find(&key, |found| *found == value).unwrap();
                assert_eq!((idx, table.key(idx)), (handle.idx(), Some(&key)));
                assert_eq!(table.get_mut(handle), Some(&mut value.clone()));
                assert_eq!(table.remove(idx), Some(value));
                assert_eq!(table.get_mut(handle), None);
            }
            let found = table.find(&key, |_| true).is_some();
            assert_eq!(found, model.iter().any(|(known, ..)| *known == key));
            assert_eq!(table.len() as usize, model.len());
        }
        assert!(table.entry_count() > 2000);
    }
}
