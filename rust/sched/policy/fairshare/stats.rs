// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of entities, and the file that shows them.
//!
//! # Vocabulary
//!
//! - *Row*: what one part tells about one node, an entity or a group of them ([`Row`]).
//! - *Rows*: those of all parts of a service, merged by head and node ([`Rows`]).
//! - *Path*: the keys from the root down to a node, with slashes between them.
//! - *Wanted*: the share that an entity has among those that are active; its range.
//! - *Entitled*: the share that it would have if all that are known were active.
//! - *Received*: its part of the service of its head, in units of the cost model.
//! - *Borrowed*: what it received beyond what it is entitled to: shares of others that did not use them.
//! - *Debt*: what an entity is owed by the scheduler, in pages; negative if it is ahead.
//!
//! The file is YAML: a sequence of mappings, one for each entity and head, in the order of their paths, the
//! regular head first. All strings are double-quoted, with `"`, `\` and what is not printable ASCII escaped.
//! Shares are fractions of the service of one head, so those of its entities sum to 1.

use super::ledger::{Ledger, Waits, Windows, DEBT_BUCKETS};
use crate::sched::{
    key::Key,
    mem::{List, NoMemory},
    ranges::{
        forest::{Forest, ROOT},
        Brief, Outline, Table,
    },
    sort::{merge_sorted, radix, sort_by},
    statistics::Stats,
    units::NSEC_PER_USEC,
};
use core::fmt::{self, Write};

/// What one part tells about one node.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its path, hashed; not 0.
    pub id: u64,
    /// The path of the node above it; 0 for the root.
    pub parent: u64,
    /// The name of its level.
    pub level: &'static str,
    /// Its key within that level.
    pub key: Key,
    /// Its weight, 4096 for a weight of one.
    pub weight: u32,
    /// Size of the job; 0 if sizes do not count.
    pub size: u32,
    /// Whether requests are queued or in service.
    pub active: bool,
    /// Whether it is an entity; only those are shown.
    pub leaf: bool,
    /// Whether it is on the high-priority head.
    pub high: bool,
    /// What was counted.
    pub ledger: Ledger,
    /// Debt, tenths of a page.
    pub lag_decipages: i64,
    /// Requests queued.
    pub queue_depth: u32,
    /// Requests in service.
    pub requests: u32,
}

impl Row {
    /// An entity for which nothing was counted.
    pub const fn new(id: u64, parent: u64, level: &'static str, key: Key, weight: u32) -> Self {
        Self {
            id,
            parent,
            level,
            key,
            weight,
            size: 0,
            active: false,
            leaf: true,
            high: false,
            ledger: Ledger::new(),
            lag_decipages: 0,
            queue_depth: 0,
            requests: 0,
        }
    }

    /// A group of entities.
    pub const fn inner(id: u64, parent: u64, level: &'static str, key: Key, weight: u32) -> Self {
        Self {
            leaf: false,
            ..Self::new(id, parent, level, key, weight)
        }
    }

    /// Adds what another part tells about the same node.
    fn add(&mut self, other: &Self) {
        self.weight = self.weight.max(other.weight);
        self.size = self.size.max(other.size);
        self.active |= other.active;
        self.leaf &= other.leaf;
        self.ledger.merge(&other.ledger);
        self.lag_decipages = self.lag_decipages.saturating_add(other.lag_decipages);
        self.queue_depth = self.queue_depth.saturating_add(other.queue_depth);
        self.requests = self.requests.saturating_add(other.requests);
    }

    /// What its ranges depend on; `active` stands for its own.
    const fn brief(&self, active: bool) -> Brief {
        Brief {
            id: self.id,
            parent: self.parent,
            weight: self.weight,
            leaf: self.leaf,
            active,
            part: 0,
        }
    }
}

/// The shares of the entities of one head.
struct Shares {
    wanted: Table,
    entitled: Table,
}

impl Shares {
    /// The shares of `rows`; sleeps.
    fn of(rows: &[Row], outline: &mut Outline) -> Result<Self, NoMemory> {
        let mut table = |all: bool| {
            outline.clear();
            for row in rows {
                outline.extend(&[row.brief(all || row.active)])?;
            }
            Ok(outline.build()?.table)
        };
        Ok(Self {
            wanted: table(false)?,
            entitled: table(true)?,
        })
    }
}

/// The rows of one head.
struct Sheet {
    /// In the order of paths; groups come before their members.
    rows: List<Row>,
    /// For each row the index of that above it; itself if that is the root.
    ups: List<u32>,
    /// Service of all that were ever known.
    total: Windows,
    shares: Option<Shares>,
}

impl Sheet {
    const fn new() -> Self {
        Self {
            rows: List::new(),
            ups: List::new(),
            total: Windows::new(),
            shares: None,
        }
    }

    /// Sorts by node and makes one row of those of the same node, then brings them into the order of paths.
    fn merge(&mut self, outline: &mut Outline) -> Result<(), NoMemory> {
        let mut order = List::new();
        let mut spare = List::new();
        for (index, row) in (0u32..).zip(self.rows.as_slice()) {
            order.push((row.id, index))?;
        }
        radix(&mut order, &mut spare, |(id, _)| *id)?;
        self.rows = gather(&self.rows, order.as_slice().iter().map(|(_, index)| *index))?;
        merge_sorted(&mut self.rows, |a, b| a.id == b.id, Row::add);
        self.shares = Some(Shares::of(self.rows.as_slice(), outline)?);
        self.arrange()
    }

    /// Brings rows that are in the order of their ids into that of their paths.
    fn arrange(&mut self) -> Result<(), NoMemory> {
        let rows = self.rows.as_slice();
        let mut inner = List::new();
        for (number, row) in (1u32..).zip(rows) {
            if !row.leaf {
                inner.push((row.id, number))?;
            }
        }
        let inner = inner.as_slice();
        let number_of = |id: &u64| {
            let place = inner.binary_search_by(|pair| pair.0.cmp(id)).ok()?;
            inner.get(place).map(|pair| pair.1)
        };
        let mut above = List::with_capacity(rows.len())?;
        for row in rows {
            above.push(number_of(&row.parent).unwrap_or(ROOT))?;
        }
        let mut forest = Forest::new();
        forest.plant(rows.len() as u32, |number| {
            at(&above, number.checked_sub(1)?)
        })?;
        let row_of = |number: u32| rows.get(number.checked_sub(1)? as usize);
        let key_of = |number: &u32| (row_of(*number).map(|row| &row.key), *number);
        // How many rows there are from each down, from the bottom up; then where each is, from the top down.
        let mut sizes = List::with_capacity(rows.len().saturating_add(1))?;
        let mut places = List::with_capacity(rows.len().saturating_add(1))?;
        for _ in 0..=rows.len() {
            sizes.push(1u32)?;
            places.push(0u32)?;
        }
        for parent in (0..forest.parents().len()).rev() {
            let Some(&parent) = forest.parents().get(parent) else {
                break;
            };
            let kids = forest.kids_mut(parent);
            sort_by(kids, |a, b| key_of(a).cmp(&key_of(b)));
            let sum = kids.iter().fold(1u32, |sum, kid| {
                sum.saturating_add(at(&sizes, *kid).unwrap_or(0))
            });
            set(&mut sizes, parent, sum);
        }
        let mut order = List::with_capacity(rows.len())?;
        let mut ups = List::with_capacity(rows.len())?;
        for _ in 0..at(&sizes, ROOT).unwrap_or(1).saturating_sub(1) {
            order.push(0u32)?;
            ups.push(0u32)?;
        }
        for &parent in forest.parents() {
            let up = at(&places, parent).unwrap_or(0);
            // The root has no row of its own.
            let mut next = if parent == ROOT {
                0
            } else {
                up.saturating_add(1)
            };
            for &kid in forest.kids(parent) {
                set(&mut places, kid, next);
                set(&mut order, next, kid.saturating_sub(1));
                set(&mut ups, next, if parent == ROOT { next } else { up });
                next = next.saturating_add(at(&sizes, kid).unwrap_or(0));
            }
        }
        self.rows = gather(&self.rows, order.as_slice().iter().copied())?;
        self.ups = ups;
        Ok(())
    }

    /// Writes the path of row `index`.
    fn write_path(&self, out: &mut impl Write, index: u32) -> fmt::Result {
        let mut path = [0; LEVELS];
        let mut node = index;
        // From the end of the array; what is too deep starts in the middle.
        let mut start = LEVELS;
        while let Some(place) = start.checked_sub(1).and_then(|last| path.get_mut(last)) {
            *place = node;
            start = start.wrapping_sub(1);
            match at(&self.ups, node) {
                Some(up) if up != node => node = up,
                _ => break,
            }
        }
        let mut slash = "";
        for node in path.get(start..).unwrap_or_default() {
            if let Some(row) = self.rows.as_slice().get(*node as usize) {
                write!(out, "{slash}{}", row.key)?;
                slash = "/";
            }
        }
        Ok(())
    }

    /// Writes all entities.
    fn write(&self, out: &mut impl Write, now: u64) -> fmt::Result {
        let rows = self.rows.as_slice();
        let leaves = || rows.iter().filter(|row| row.leaf);
        let sum = |part: &dyn Fn(&Windows) -> u64| {
            let rows = leaves().map(|row| part(row.ledger.windows()));
            // Entities that were forgotten are in the total only.
            part(&self.total).max(rows.fold(0, u64::saturating_add))
        };
        let second = sum(&|windows| windows.second(now));
        let minute = sum(&|windows| windows.minute(now));
        for (index, row) in (0u32..).zip(rows) {
            if !row.leaf {
                continue;
            }
            out.write_str("- entity: \"")?;
            self.write_path(out, index)?;
            out.write_str("\"\n")?;
            let windows = row.ledger.windows();
            let received = [
                ratio(windows.second(now), second),
                ratio(windows.minute(now), minute),
            ];
            self.write_row(out, row, received)?;
        }
        Ok(())
    }

    /// Writes what follows the path of an entity that `received` these parts of the service.
    fn write_row(&self, out: &mut impl Write, row: &Row, received: [u64; 2]) -> fmt::Result {
        let shares = self.shares.as_ref();
        let range = shares.and_then(|shares| shares.wanted.range_of(row.id));
        let (lo, end) = range.map_or((0, 0), |range| (u64::from(range.lo), range.end));
        let entitled = shares.and_then(|shares| shares.entitled.range_of(row.id));
        let entitled = entitled.map_or(0, |range| range.len());
        let ledger = &row.ledger;
        let counts = ledger.counts();
        let queue = if row.high { "high_priority" } else { "regular" };
        let opportunities = ratio(counts.opportunity, counts.dispatched);
        let [second, minute] = received;
        writeln!(out, "  type: \"{}\"", row.level)?;
        writeln!(out, "  active: {}", row.active)?;
        writeln!(out, "  range: \"[{}, {})\"", Fraction(lo), Fraction(end))?;
        counts.write_lines(out, "  ", &["time_us", "forced"])?;
        writeln!(out, "  fairness_debt: {}", Tenths(row.lag_decipages))?;
        writeln!(out, "  queue_depth: {}", row.queue_depth)?;
        writeln!(out, "  queue: \"{queue}\"")?;
        writeln!(out, "  weight: {}", Fraction(u64::from(row.weight) << 20))?;
        if row.size > 0 {
            writeln!(out, "  size: {}", row.size)?;
        }
        writeln!(out, "  time_us: {}", counts.time_us)?;
        writeln!(out, "  opportunity_ratio: {}", Fraction(opportunities))?;
        writeln!(out, "  forced: {}", counts.forced)?;
        let wanted = Fraction(end.saturating_sub(lo));
        writeln!(out, "  share_wanted: {wanted}")?;
        writeln!(out, "  share_1s: {}", Fraction(second))?;
        writeln!(out, "  share_60s: {}", Fraction(minute))?;
        let borrowed = Fraction(minute.saturating_sub(entitled));
        writeln!(out, "  borrowed: {borrowed}")?;
        write_debts(out, ledger)?;
        write_waits(out, ledger.waits())
    }
}

/// Levels of a path that are shown.
const LEVELS: usize = 8;

/// Element `index` of `list`.
fn at(list: &List<u32>, index: u32) -> Option<u32> {
    list.as_slice().get(index as usize).copied()
}

/// Sets element `index` of `list`.
fn set(list: &mut List<u32>, index: u32, value: u32) {
    if let Some(element) = list.as_mut_slice().get_mut(index as usize) {
        *element = value;
    }
}

/// Copies the elements `indices` of `list`, in that order; sleeps.
fn gather<T: Copy>(
    list: &List<T>,
    indices: impl ExactSizeIterator<Item = u32>,
) -> Result<List<T>, NoMemory> {
    let mut copy = List::with_capacity(indices.len())?;
    for index in indices {
        if let Some(element) = list.as_slice().get(index as usize) {
            copy.push(*element)?;
        }
    }
    Ok(copy)
}

/// Rows of many parts.
///
/// # Context
///
/// Made and used where sleeping is allowed.
pub struct Rows {
    regular: Sheet,
    high: Sheet,
}

impl Rows {
    /// No rows; does not allocate.
    pub const fn new() -> Self {
        Self {
            regular: Sheet::new(),
            high: Sheet::new(),
        }
    }

    fn sheet(&mut self, high: bool) -> &mut Sheet {
        if high {
            &mut self.high
        } else {
            &mut self.regular
        }
    }

    /// Appends rows of the high-priority head, or of the regular one; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; a part of the rows may have been appended.
    pub fn extend(&mut self, rows: &[Row], high: bool) -> Result<(), NoMemory> {
        let to = &mut self.sheet(high).rows;
        rows.iter()
            .try_for_each(|row| to.push(Row { high, ..*row }))
    }

    /// Adds the service of one part of the high-priority head, or of the regular one.
    pub fn total(&mut self, windows: &Windows, high: bool) {
        self.sheet(high).total.merge(windows);
    }

    /// Makes one row of those of the same head and node, orders them by path, and computes the shares;
    /// O(n log n), sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; to be dropped then.
    pub fn merge(&mut self) -> Result<(), NoMemory> {
        let mut outline = Outline::new();
        self.regular.merge(&mut outline)?;
        self.high.merge(&mut outline)
    }

    /// The rows, those of the regular head first; once merged, groups come before their members.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        let rows = self.regular.rows.as_slice().iter();
        rows.chain(self.high.rows.as_slice())
    }
}

/// Writes rows that are merged as YAML, with the service received up to `now`, ns.
///
/// An entity without a range, which is not active, has `[0.000, 0.000)`.
///
/// # Errors
///
/// Those of `out`.
pub fn write_yaml(out: &mut impl Write, rows: &Rows, now: u64) -> fmt::Result {
    rows.regular.write(out, now)?;
    rows.high.write(out, now)
}

/// Names of the buckets of debt: pages, of which the first number is in it and the second is not.
const DEBT_NAMES: [&str; DEBT_BUCKETS] = [
    "..-4096",
    "-4096..-256",
    "-256..-16",
    "-16..0",
    "0..16",
    "16..256",
    "256..4096",
    "4096..",
];

/// Writes how often an entity was owed how much when it was served.
fn write_debts(out: &mut impl Write, ledger: &Ledger) -> fmt::Result {
    out.write_str("  debt_histogram: {")?;
    let mut comma = "";
    for (name, count) in DEBT_NAMES.iter().zip(ledger.debts()) {
        write!(out, "{comma} \"{name}\": {count}")?;
        comma = ",";
    }
    out.write_str(" }\n")
}

/// Writes how long requests were queued, us.
fn write_waits(out: &mut impl Write, waits: &Waits) -> fmt::Result {
    writeln!(
        out,
        "  wait_us: {{ p50: {}, p90: {}, p99: {}, max: {} }}",
        waits.percentile(500) / NSEC_PER_USEC,
        waits.percentile(900) / NSEC_PER_USEC,
        waits.percentile(990) / NSEC_PER_USEC,
        waits.max() / NSEC_PER_USEC,
    )
}

/// `part / whole` of 2^-32; at most one, and 0 if `whole` is.
fn ratio(part: u64, whole: u64) -> u64 {
    // 32 bits of the whole are enough.
    let shift = u64::BITS
        .saturating_sub(whole.leading_zeros())
        .saturating_sub(const { u32::BITS - 1 });
    let (part, whole) = (part.min(whole) >> (shift & 63), whole >> (shift & 63));
    (part << 32).checked_div(whole).unwrap_or(0)
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
mod tests;
