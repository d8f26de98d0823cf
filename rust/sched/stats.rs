// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of classes, and the file that shows them.
//!
//! # Vocabulary
//!
//! - *Row*: the counters of one class on one head ([`Row`]).
//! - *Rows*: those of all heads of a service, merged by key ([`Rows`]).
//! - *Debt*: what a class is owed by the scheduler, in pages; negative if it is ahead.
//!
//! The file is YAML: a sequence of mappings, one per class, in the order of the keys. All strings are
//! double-quoted, with `"`, `\` and what is not printable ASCII escaped.

use crate::sched::{
    key::Key,
    mem::{List, NoMemory},
    ranges::Table,
    sort::sort_by,
};
use core::fmt::{self, Write};

/// Counters of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The class.
    pub key: Key,
    /// Its weight, 4096 for a weight of one.
    pub weight: u32,
    /// Whether requests are queued or in service.
    pub active: bool,
    /// Requests handed out.
    pub dispatched: u64,
    /// What they cost, pages.
    pub cost_pages: u64,
    /// Requests among them that were served without a decision.
    pub opportunity: u64,
    /// Requests among them that went down past the queues while others waited, at the charge of the class.
    pub forced: u64,
    /// Debt, tenths of a page.
    pub lag_decipages: i64,
    /// Requests queued.
    pub queue_depth: u32,
    /// Requests in service.
    pub requests: u32,
}

impl Row {
    /// A row of zeros.
    pub const fn new(key: Key, weight: u32) -> Self {
        Self {
            key,
            weight,
            active: false,
            dispatched: 0,
            cost_pages: 0,
            opportunity: 0,
            forced: 0,
            lag_decipages: 0,
            queue_depth: 0,
            requests: 0,
        }
    }

    /// Adds the counters of the same class on another head; the weight is the larger one.
    fn add(&mut self, other: &Self) {
        self.weight = self.weight.max(other.weight);
        self.active |= other.active;
        self.dispatched = self.dispatched.saturating_add(other.dispatched);
        self.cost_pages = self.cost_pages.saturating_add(other.cost_pages);
        self.opportunity = self.opportunity.saturating_add(other.opportunity);
        self.forced = self.forced.saturating_add(other.forced);
        self.lag_decipages = self.lag_decipages.saturating_add(other.lag_decipages);
        self.queue_depth = self.queue_depth.saturating_add(other.queue_depth);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

/// Rows of many heads.
///
/// # Context
///
/// Made and used where sleeping is allowed.
pub struct Rows {
    rows: List<Row>,
}

impl Rows {
    /// No rows; does not allocate.
    pub const fn new() -> Self {
        Self { rows: List::new() }
    }

    /// Appends rows; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; a part of the rows may have been appended.
    pub fn extend(&mut self, rows: &[Row]) -> Result<(), NoMemory> {
        rows.iter().try_for_each(|row| self.rows.push(*row))
    }

    /// Sorts by key and makes one row of those with the same key; O(n log n).
    pub fn merge(&mut self) {
        let rows = self.rows.as_mut_slice();
        sort_by(rows, |a, b| a.key.cmp(&b.key));
        let mut kept = 0usize;
        for from in 0..rows.len() {
            let Some(row) = rows.get(from).copied() else {
                break;
            };
            match kept.checked_sub(1).and_then(|last| rows.get_mut(last)) {
                Some(last) if last.key == row.key => last.add(&row),
                _ => {
                    if let Some(to) = rows.get_mut(kept) {
                        *to = row;
                        kept = kept.wrapping_add(1);
                    }
                }
            }
        }
        self.rows.truncate(kept);
    }

    /// The rows.
    pub fn as_slice(&self) -> &[Row] {
        self.rows.as_slice()
    }
}

/// Writes `rows` as YAML, with their ranges of `table` as fractions of one.
///
/// A class without a range has `[0.000, 0.000)`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_yaml(out: &mut impl Write, rows: &[Row], table: Option<&Table>) -> fmt::Result {
    rows.iter().try_for_each(|row| write_row(out, row, table))
}

fn write_row(out: &mut impl Write, row: &Row, table: Option<&Table>) -> fmt::Result {
    let (lo, hi) = match table.and_then(|table| table.range_of(&row.key)) {
        Some(range) => (u64::from(range.lo), range.end),
        None => (0, 0),
    };
    writeln!(out, "- entity: \"{}\"", row.key)?;
    writeln!(out, "  type: {}", row.key.type_name())?;
    writeln!(out, "  active: {}", row.active)?;
    writeln!(out, "  range: \"[{}, {})\"", Fraction(lo), Fraction(hi))?;
    writeln!(out, "  dispatched: {}", row.dispatched)?;
    writeln!(out, "  cost_pages: {}", row.cost_pages)?;
    writeln!(out, "  opportunity: {}", row.opportunity)?;
    writeln!(out, "  forced: {}", row.forced)?;
    writeln!(out, "  fairness_debt: {}", Tenths(row.lag_decipages))?;
    writeln!(out, "  queue_depth: {}", row.queue_depth)
}

/// A number of 2^-32, shown with three decimals, rounded to the nearest.
struct Fraction(u64);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mille = self.0.saturating_mul(1000).saturating_add(1 << 31) >> 32;
        write!(f, "{}.{:03}", mille / 1000, mille % 1000)
    }
}

/// A number of tenths, shown with one decimal.
struct Tenths(i64);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let tenths = self.0.unsigned_abs();
        write!(f, "{sign}{}.{}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (lo, text) in [
            (0, "0.000"),
            (1 << 32, "1.000"),
            ((1 << 32) / 3, "0.333"),
            ((1 << 33) / 3, "0.667"),
            ((1 << 32) - 1, "1.000"),
        ] {
            assert_eq!(Fraction(lo).to_string(), text);
        }
        for (tenths, text) in [
            (0, "0.0"),
            (-4, "-0.4"),
            (-124, "-12.4"),
            (10, "1.0"),
            (i64::MIN, "-922337203685477580.8"),
        ] {
            assert_eq!(Tenths(tenths).to_string(), text);
        }
    }

    /// The same class on several heads is one row with the sums.
    #[test]
    fn rows_of_one_class_become_one() {
        let row = |uid, n: u32| Row {
            active: n == 3,
            dispatched: n.into(),
            cost_pages: u64::from(n) * 10,
            opportunity: 1,
            lag_decipages: i64::from(n) - 2,
            queue_depth: n,
            requests: 1,
            ..Row::new(Key::Uid(uid), n)
        };
        let mut rows = Rows::new();
        rows.merge();
        assert!(rows.as_slice().is_empty());
        for n in 1..=3 {
            let keys: Vec<Row> = [7, n, 5].iter().map(|&uid| row(uid, n)).collect();
            rows.extend(&keys).unwrap();
        }
        rows.merge();
        let keys: Vec<Key> = rows.as_slice().iter().map(|row| row.key).collect();
        assert_eq!(keys, [1, 2, 3, 5, 7].map(Key::Uid));
        let merged = Row {
            active: true,
            dispatched: 6,
            cost_pages: 60,
            opportunity: 3,
            lag_decipages: 0,
            queue_depth: 6,
            requests: 3,
            ..Row::new(Key::Uid(7), 3)
        };
        assert_eq!(rows.as_slice().last(), Some(&merged));
        rows.merge();
        assert_eq!(rows.as_slice().len(), 5);
    }
}
