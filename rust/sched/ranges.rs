// SPDX-License-Identifier: GPL-2.0-only

//! Shares as ranges of 32-bit numbers (ThemisIO, SC'23: the segments of statistical tokens).
//!
//! # Vocabulary
//!
//! - *Range*: the numbers from `lo` to just below `end` that draw one class ([`Range`]).
//! - *Table*: ranges that cover all 2^32 numbers, in the order of their keys ([`Table`]).
//! - *Generation*: counts the tables that a service has published.
//!
//! A table stores the starts only; an end is the next start, or 2^32.

use crate::sched::{
    key::Key,
    mem::{List, NoMemory},
    sort::sort_by,
    stats::Row,
};

/// The numbers that draw one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First number.
    pub lo: u32,
    /// One above the last number, at most 2^32.
    pub end: u64,
}

struct Entry {
    key: Key,
    lo: u32,
}

/// Ranges of classes; immutable once built.
///
/// # Invariants
///
/// Keys and starts both rise strictly, and the first start is 0: every class has a range of its own
/// that is not empty, and together they are 2^32 numbers.
pub struct Table {
    entries: List<Entry>,
    generation: u64,
}

/// All numbers of 32 bits.
const WHOLE: u64 = 1 << 32;

impl Table {
    /// The shares of the active rows by their weights, rounded by largest remainder; sleeps.
    ///
    /// `rows` are in the order of their keys, each key once ([`crate::sched::stats::Rows::merge`]). A
    /// class with weight 0 counts as one with weight 1; every class gets one number at least.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn build(rows: &[Row], generation: u64) -> Result<Self, NoMemory> {
        let active = || rows.iter().filter(|row| row.active);
        let weight = |row: &Row| u64::from(row.weight.max(1));
        let total = active().fold(0u64, |sum, row| sum.saturating_add(weight(row)));
        let count = active().count();
        let mut entries = List::with_capacity(count)?;
        let mut rests = List::with_capacity(count)?;
        // A second round with one number for everybody first, if a share of the first was none.
        for base in 0..2u64 {
            let whole = WHOLE.saturating_sub(base.saturating_mul(count as u64));
            let mut left = whole;
            let mut empty = false;
            entries.truncate(0);
            rests.truncate(0);
            for (index, row) in active().enumerate() {
                let (share, rest) = divide(weight(row), whole, total);
                left = left.saturating_sub(share);
                empty |= share.saturating_add(base) == 0;
                entries.push((row.key, share.saturating_add(base)))?;
                rests.push((rest, index))?;
            }
            // The largest remainders get one more each; equal ones in the order of their keys.
            sort_by(rests.as_mut_slice(), |a, b| {
                b.0.cmp(&a.0).then(a.1.cmp(&b.1))
            });
            for &(_, index) in rests.as_slice() {
                if left == 0 {
                    break;
                }
                if let Some(entry) = entries.as_mut_slice().get_mut(index) {
                    entry.1 = entry.1.saturating_add(1);
                    left = left.saturating_sub(1);
                }
            }
            if !empty {
                break;
            }
        }
        let mut table = Self {
            entries: List::with_capacity(count)?,
            generation,
        };
        let mut lo = 0u64;
        for &(key, share) in entries.as_slice() {
            // INVARIANT: shares are at least 1 and sum to 2^32, so each start is below that.
            table.entries.push(Entry { key, lo: lo as u32 })?;
            lo = lo.saturating_add(share);
        }
        Ok(table)
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the tables that a service has published.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The class whose range holds `draw`; none if the table is empty.
    pub fn find(&self, draw: u32) -> Option<&Key> {
        let entries = self.entries.as_slice();
        let above = entries.partition_point(|entry| entry.lo <= draw);
        Some(&entries.get(above.checked_sub(1)?)?.key)
    }

    /// The range of `key`.
    pub fn range_of(&self, key: &Key) -> Option<Range> {
        let entries = self.entries.as_slice();
        let index = entries.binary_search_by(|entry| entry.key.cmp(key)).ok()?;
        let lo = entries.get(index)?.lo;
        let next = entries.get(index.saturating_add(1));
        let end = next.map_or(WHOLE, |next| u64::from(next.lo));
        Some(Range { lo, end })
    }
}

/// `weight * whole / total` and the remainder; 0 if `total` is.
///
/// `whole` is at most 2^32, so it takes weights of 32 bits.
fn divide(weight: u64, whole: u64, total: u64) -> (u64, u64) {
    let product = weight.saturating_mul(whole);
    (
        product.checked_div(total).unwrap_or(0),
        product.checked_rem(total).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    fn rows(weights: &[u32]) -> Vec<Row> {
        let row = |(uid, &weight)| Row {
            active: weight != u32::MAX,
            ..Row::new(Key::Uid(uid), weight)
        };
        (0..).zip(weights).map(row).collect()
    }

    /// Ranges follow each other, cover everything, and are found at both of their ends.
    fn check(weights: &[u32]) -> Vec<u64> {
        let table = Table::build(&rows(weights), 7).unwrap();
        assert_eq!(table.generation(), 7);
        let mut shares = Vec::new();
        let mut from = 0;
        for (uid, &weight) in (0..).zip(weights) {
            let key = Key::Uid(uid);
            let Some(range) = table.range_of(&key) else {
                assert_eq!(weight, u32::MAX, "only those that are not active have none");
                continue;
            };
            assert_eq!(u64::from(range.lo), from);
            assert!(range.end > from);
            assert_eq!(table.find(range.lo), Some(&key));
            assert_eq!(table.find((range.end - 1) as u32), Some(&key));
            shares.push(range.end - from);
            from = range.end;
        }
        assert_eq!(table.len(), shares.len());
        assert_eq!(from, if table.is_empty() { 0 } else { WHOLE });
        shares
    }

    #[test]
    fn known_shares() {
        const THIRD: u64 = WHOLE / 3;
        for (weights, want) in [
            (&[][..], &[][..]),
            (&[5], &[WHOLE]),
            (&[1, 1], &[WHOLE / 2, WHOLE / 2]),
            (&[1, 3], &[WHOLE / 4, WHOLE / 4 * 3]),
            // The number that is left goes to the first of equals.
            (&[1, 1, 1], &[THIRD + 1, THIRD, THIRD]),
            // Not active: no range.
            (&[4096, u32::MAX, 4096], &[WHOLE / 2, WHOLE / 2]),
            // Weight 0 counts as 1.
            (&[0, 1], &[WHOLE / 2, WHOLE / 2]),
            // A share below one number: one for everybody, then the rest by weight.
            (
                &[1, u32::MAX - 1, u32::MAX - 1],
                &[2, WHOLE / 2 - 1, WHOLE / 2 - 1],
            ),
        ] {
            assert_eq!(check(weights), want, "{weights:?}");
        }
    }

    #[test]
    fn ends_of_the_numbers() {
        let table = Table::build(&rows(&[1, 1, 1]), 0).unwrap();
        assert_eq!(table.find(0), Some(&Key::Uid(0)));
        assert_eq!(table.find(u32::MAX), Some(&Key::Uid(2)));
        assert_eq!(
            table.range_of(&Key::Uid(2)).map(|range| range.end),
            Some(WHOLE)
        );
        assert_eq!(table.range_of(&Key::Uid(3)), None);
        let empty = Table::build(&[], 0).unwrap();
        assert!(empty.find(0).is_none() && empty.find(u32::MAX).is_none());
    }

    /// Largest remainder: every share is the exact one rounded up or down.
    #[test]
    fn rounding_is_below_one_number() {
        let mut rng = Rng::new(11);
        for count in [2, 3, 10, 1000] {
            let weights: Vec<u32> = (0..count).map(|_| 64 + rng.below(10_000) as u32).collect();
            let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
            for (share, &weight) in check(&weights).iter().zip(&weights) {
                let floor = u64::from(weight) * WHOLE / total;
                assert!((floor..=floor + 1).contains(share));
            }
        }
        // Many tiny shares beside huge ones: still one number each.
        let weights: Vec<u32> = (0..20_000)
            .map(|i| if i % 2 == 0 { 1 } else { 1 << 20 })
            .collect();
        check(&weights);
    }
}
