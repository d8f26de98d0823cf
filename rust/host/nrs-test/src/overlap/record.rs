// SPDX-License-Identifier: GPL-2.0-only

//! Expected content of the device: blocks, writes and reads.
//!
//! - *Block*: 512 bytes of the device.
//! - *Tag*: number of the write that filled a block, from 1; 0 for the initial content.
//! - *Conflict*: two requests share a block, and at least one of them writes.

use nrs_sched::rng::avalanche;

/// Size of a block, bytes.
pub const BLOCK: usize = 512;

/// Returns the content of the block `number` when written with `tag`: the tag, then words derived
/// from seed, tag and number.
fn words(seed: u64, tag: u64, number: usize) -> impl Iterator<Item = u64> {
    let key = avalanche(seed ^ avalanche(tag ^ avalanche(number as u64)));
    let rest = (1..BLOCK / 8).map(move |index| key.wrapping_add(index as u64));
    std::iter::once(tag).chain(rest)
}

/// Fills `data`, the blocks starting with `first`, with `tag`.
pub fn fill(data: &mut [u8], seed: u64, tag: u64, first: usize) {
    for (number, block) in data.chunks_exact_mut(BLOCK).enumerate() {
        for (bytes, word) in block
            .chunks_exact_mut(8)
            .zip(words(seed, tag, first + number))
        {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Returns the tag of a block; `None` if any part of the block differs from the content for this
/// tag.
pub fn tag(block: &[u8], seed: u64, number: usize) -> Option<u64> {
    let tag = u64::from_le_bytes(*block.first_chunk()?);
    let seen = block.chunks_exact(8);
    let same = seen
        .zip(words(seed, tag, number))
        .all(|(bytes, word)| bytes == word.to_le_bytes());
    same.then_some(tag)
}

/// Range of blocks, and whether they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: usize,
    pub count: usize,
    pub writes: bool,
}

impl Range {
    /// Creates the range of `count` blocks starting with `first`.
    pub fn new(first: usize, count: usize, writes: bool) -> Self {
        Self {
            first,
            count,
            writes,
        }
    }

    /// Returns the offset of the first block, bytes.
    pub fn offset(&self) -> u64 {
        (self.first * BLOCK) as u64
    }

    /// Returns the length, bytes.
    pub fn bytes(&self) -> usize {
        self.count * BLOCK
    }

    /// Returns true if the two ranges conflict.
    pub fn conflicts(&self, other: &Range) -> bool {
        (self.writes || other.writes)
            && self.first < other.first + other.count
            && other.first < self.first + self.count
    }
}

/// Numbers of wrong blocks, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Number of blocks with the tag of a request before the expected one.
    pub older: u64,
    /// Number of blocks with the tag of a request after the expected one.
    pub newer: u64,
    /// Number of blocks with invalid or mixed content.
    pub torn: u64,
}

impl Wrong {
    /// Adds the numbers of `other`.
    pub fn add(&mut self, other: Wrong) {
        self.older += other.older;
        self.newer += other.newer;
        self.torn += other.torn;
    }

    /// Returns the sum of all kinds.
    pub fn sum(&self) -> u64 {
        self.older + self.newer + self.torn
    }
}

/// Expected tag of each block after all submitted requests have completed.
pub struct Record {
    seed: u64,
    last: Vec<u64>,
    next: u64,
}

impl Record {
    /// Creates `count` blocks with tag 0.
    pub fn new(seed: u64, count: usize) -> Self {
        Self {
            seed,
            last: vec![0; count],
            next: 1,
        }
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Records a write; fills `data` with its tag.
    pub fn write(&mut self, range: &Range, data: &mut [u8]) {
        let tag = self.next;
        self.next += 1;
        let data = &mut data[..range.count * BLOCK];
        fill(data, self.seed, tag, range.first);
        self.last[range.first..range.first + range.count].fill(tag);
    }

    /// Fills `data`, the blocks starting with `first`, with the initial content.
    pub fn clear(&self, data: &mut [u8], first: usize) {
        fill(data, self.seed, 0, first);
    }

    /// Returns the tags that a read submitted now must find.
    pub fn expect(&self, range: &Range) -> Vec<u64> {
        self.last[range.first..range.first + range.count].to_vec()
    }

    /// Compares the blocks read, starting with `first`, with the expected tags.
    pub fn compare(&self, first: usize, data: &[u8], expected: &[u64]) -> Wrong {
        let mut wrong = Wrong::default();
        for (number, (block, &want)) in data.chunks_exact(BLOCK).zip(expected).enumerate() {
            match tag(block, self.seed, first + number) {
                Some(tag) if tag == want => {}
                Some(tag) if tag < want => wrong.older += 1,
                Some(_) => wrong.newer += 1,
                None => wrong.torn += 1,
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        let mut data = [0; 3 * BLOCK];
        fill(&mut data, 7, 5, 10);
        for number in 0..3 {
            let block = &data[number * BLOCK..(number + 1) * BLOCK];
            assert_eq!(tag(block, 7, 10 + number), Some(5));
            // Another block number, another seed.
            assert_eq!(tag(block, 7, 11 + number), None);
            assert_eq!(tag(block, 8, 10 + number), None);
        }
        data[BLOCK - 1] ^= 1;
        assert_eq!(tag(&data[..BLOCK], 7, 10), None);
        assert_eq!(tag(&data[..4], 7, 10), None);
    }

    #[test]
    fn conflicts() {
        let range = Range::new;
        for (a, b, want) in [
            (range(0, 2, true), range(1, 1, false), true),
            (range(0, 2, false), range(1, 1, false), false),
            (range(0, 2, true), range(2, 1, true), false),
            (range(5, 1, false), range(0, 9, true), true),
        ] {
            assert_eq!(a.conflicts(&b), want, "{a:?} {b:?}");
            assert_eq!(b.conflicts(&a), want, "{b:?} {a:?}");
        }
    }

    #[test]
    fn comparison() {
        let mut record = Record::new(1, 8);
        let mut disk = [0; 8 * BLOCK];
        fill(&mut disk, 1, 0, 0);
        let all = Range::new(0, 8, false);
        let before = record.expect(&all);
        assert_eq!(record.compare(0, &disk, &before), Wrong::default());
        let write = Range::new(2, 3, true);
        record.write(&write, &mut disk[2 * BLOCK..]);
        let after = record.expect(&all);
        assert_eq!(record.compare(0, &disk, &after), Wrong::default());
        assert_eq!(record.compare(0, &disk, &before).newer, 3);
        // A lost write, and a partial one.
        let mut nowhere = [0; 2 * BLOCK];
        record.write(&Range::new(2, 2, true), &mut nowhere);
        disk[7 * BLOCK + 9] = 0;
        let wrong = record.compare(0, &disk, &record.expect(&all));
        assert_eq!((wrong.older, wrong.newer, wrong.torn), (2, 0, 1));
        assert_eq!(wrong.sum(), 3);
    }
}
