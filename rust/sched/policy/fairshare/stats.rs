// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of entities, and the file that shows these statistics.
//!
//! - *Wanted*: share of an entity among the active entities; its range.
//! - *Entitled*: share of an entity if all known entities were active.
//! - *Received*: part of the head's service, in units of the cost model, that an entity received.
//! - *Borrowed*: received share beyond the entitled share.
//! - *Debt*: service that the scheduler owes an entity, in pages; negative if the entity is ahead.
//!
//! The file is YAML: a sequence of mappings, one for each entity and head, in the order of paths,
//! the regular head first. All strings are double-quoted, with `"`, `\` and everything but
//! printable ASCII escaped. Shares are fractions of the service of one head, so the shares of its
//! entities sum to 1.

use super::{
    entity_stats::{EntityStats, QueueTimeHistogram, ServiceWindows, DEBTS},
    factors::ONE,
};
use crate::sched::{
    count::Count,
    key::Key,
    mem::{GrowingList, NoMemory},
    ranges::{NodeReport, RangeBuilder, RangeTable},
    report::Report,
    sort::{radix, sort_by},
    statistics::stats,
    units::NSEC_PER_USEC,
};
use core::{cmp::Ordering, fmt};

stats! {
    /// Counters of the policy as a whole.
    Counts {
        counters_full: Counter Plain "nrs_policy_full_total"{table="counters"}
            "Entities without a counter shared by all CPTs (scheduled on each CPT separately)";
        limits_full: Counter Plain "nrs_policy_full_total"{table="limits"}
            "Requests of limited entities without a bucket (dispatched without the limit)";
        holds_used: Counter Plain "nrs_policy_holds_total"{result="used"}
            "Slots kept free until the expected request arrived";
        holds_unused: Counter Plain "nrs_policy_holds_total"{result="unused"}
            "Slots kept free for a request that did not arrive in time";
        held_ns: Counter Ns "nrs_policy_held_seconds_total"
            "Time for which slots were kept free, divided by the number of slots";
        held_permille: Maximum Plain "nrs_policy_held_permille"
            "Part of the time of all slots that was kept free in the last second, thousandths";
        latency_within: Counter Plain "nrs_policy_latency_requests_total"{result="within"}
            "Requests of entities that send one at a time within nrs_fairshare_latency_us";
        latency_beyond: Counter Plain "nrs_policy_latency_requests_total"{result="beyond"}
            "Requests of entities that send one at a time beyond nrs_fairshare_latency_us";
        latency_slots: Maximum Plain "nrs_policy_latency_slots"
            "Slots that are kept free for a request to meet nrs_fairshare_latency_us";
        latency_given_up: Maximum Plain "nrs_policy_latency_given_up"
            "1 while nrs_fairshare_latency_us is given up because no number of slots meets it";
        sizes_full: Counter Plain "nrs_policy_full_total"{table="sizes"}
            "Requests of jobs not in the size table (counted with size 1)";
    }
}

/// Statistics of one node in one part.
#[derive(Clone, Copy, Debug)]
pub struct NodeRow {
    /// Hash of the path; not 0.
    pub id: u64,
    /// Hash of the parent's path; 0 for the root.
    pub parent: u64,
    /// Name of the level.
    pub level: &'static str,
    /// Key within the level.
    pub key: Key,
    /// Weight in force; 4096 stands for one.
    pub weight: u32,
    /// Factor in the weight, Q31.
    pub factor: u32,
    /// Size of the job; 0 if the node has no job size.
    pub size: u32,
    /// True if requests are queued or in flight.
    pub active: bool,
    /// True if the node is an entity; only entities are shown.
    pub leaf: bool,
    /// True if the node is on the high-priority head.
    pub high: bool,
    /// Counters.
    pub stats: EntityStats,
    /// Debt, tenths of a page.
    pub lag_decipages: i64,
    /// Number of queued requests.
    pub queue_depth: u32,
    /// Number of requests in flight.
    pub requests: u32,
}

impl NodeRow {
    /// Creates a row of an entity with all counts 0.
    pub fn new(id: u64, parent: u64, level: &'static str, key: Key, weight: u32) -> Self {
        Self {
            id,
            parent,
            level,
            key,
            weight,
            factor: ONE,
            size: 0,
            active: false,
            leaf: true,
            high: false,
            stats: EntityStats::new(),
            lag_decipages: 0,
            queue_depth: 0,
            requests: 0,
        }
    }

    /// Creates a row of a group of entities.
    pub fn inner(id: u64, parent: u64, level: &'static str, key: Key, weight: u32) -> Self {
        Self {
            leaf: false,
            ..Self::new(id, parent, level, key, weight)
        }
    }

    /// Adds the row of the same node in another part.
    fn add(&mut self, other: &Self) {
        self.weight = self.weight.max(other.weight);
        self.factor = self.factor.max(other.factor);
        self.size = self.size.max(other.size);
        self.active |= other.active;
        self.leaf &= other.leaf;
        self.stats.merge(&other.stats);
        self.lag_decipages = self.lag_decipages.saturating_add(other.lag_decipages);
        self.queue_depth.count(other.queue_depth);
        self.requests.count(other.requests);
    }

    /// Returns the input of the shares; `active` overrides the activity.
    const fn report(&self, active: bool) -> NodeReport {
        NodeReport {
            id: self.id,
            parent: self.parent,
            weight: self.weight,
            leaf: self.leaf,
            active,
            part: 0,
        }
    }
}

/// Shares of the entities of one head.
struct Shares {
    wanted: RangeTable,
    entitled: RangeTable,
}

impl Shares {
    /// Computes the shares of `rows`; may sleep.
    fn of(rows: &[NodeRow], builder: &mut RangeBuilder) -> Result<Self, NoMemory> {
        let mut table = |all: bool| {
            builder.clear();
            for row in rows {
                builder.extend(&[row.report(all || row.active)])?;
            }
            Ok(builder.build()?.table)
        };
        Ok(Self {
            wanted: table(false)?,
            entitled: table(true)?,
        })
    }
}

/// Largest number of levels of a path that are shown.
const LEVELS: usize = 8;

/// Rows from a child of the root to a row; the last rows if the path is too deep.
struct RowPath<'a> {
    rows: [Option<&'a NodeRow>; LEVELS],
    start: usize,
}

impl<'a> RowPath<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a NodeRow> + '_ {
        self.rows.iter().skip(self.start).flatten().copied()
    }

    /// Orders groups before their members, siblings by their keys.
    fn compare(&self, other: &Self) -> Ordering {
        let key = |row: &'a NodeRow| (&row.key, row.id);
        self.iter().map(key).cmp(other.iter().map(key))
    }
}

impl fmt::Display for RowPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slash = "";
        for row in self.iter() {
            write!(f, "{slash}{}", row.key)?;
            slash = "/";
        }
        Ok(())
    }
}

/// Rows of one head.
struct HeadRows {
    /// Rows, sorted by id once merged.
    rows: GrowingList<NodeRow>,
    /// Index of each row's group; the row's own index for a child of the root.
    ups: GrowingList<u32>,
    /// Indices of the rows in the order of their paths.
    order: GrowingList<u32>,
    /// Service to all entities, including removed ones.
    total: ServiceWindows,
    shares: Option<Shares>,
}

impl HeadRows {
    fn new() -> Self {
        Self {
            rows: GrowingList::new(),
            ups: GrowingList::new(),
            order: GrowingList::new(),
            total: ServiceWindows::default(),
            shares: None,
        }
    }

    /// Merges the rows of each node, sorts the rows by path and computes the shares.
    fn merge(&mut self, builder: &mut RangeBuilder) -> Result<(), NoMemory> {
        let mut ids = GrowingList::with_capacity(self.rows.as_slice().len())?;
        for (index, row) in self.rows.as_slice().iter().enumerate() {
            ids.push((row.id, index))?;
        }
        radix(&mut ids, &mut GrowingList::new(), |(id, _)| *id)?;
        let mut merged: GrowingList<NodeRow> = GrowingList::with_capacity(ids.as_slice().len())?;
        for &(id, index) in ids.as_slice() {
            let Some(row) = self.rows.as_slice().get(index) else {
                continue;
            };
            match merged.as_mut_slice().last_mut() {
                Some(last) if last.id == id => last.add(row),
                _ => merged.push(*row)?,
            }
        }
        self.rows = merged;
        self.shares = Some(Shares::of(self.rows.as_slice(), builder)?);
        self.arrange()
    }

    /// Sorts the rows by path.
    fn arrange(&mut self) -> Result<(), NoMemory> {
        let rows = self.rows.as_slice();
        let mut order = GrowingList::with_capacity(rows.len())?;
        self.ups = GrowingList::with_capacity(rows.len())?;
        for (index, row) in (0u32..).zip(rows) {
            let up = rows.binary_search_by(|other| other.id.cmp(&row.parent));
            let group = |up: &usize| rows.get(*up).is_some_and(|up| !up.leaf);
            let up = up.ok().filter(group).map_or(index, |up| up as u32);
            self.ups.push(up)?;
            order.push(index)?;
        }
        sort_by(order.as_mut_slice(), |a, b| {
            self.path(*a).compare(&self.path(*b))
        });
        self.order = order;
        Ok(())
    }

    fn row(&self, index: u32) -> Option<&NodeRow> {
        self.rows.as_slice().get(index as usize)
    }

    /// Returns the path of the merged row `index`.
    fn path(&self, mut index: u32) -> RowPath<'_> {
        let mut path = RowPath {
            rows: [None; LEVELS],
            start: LEVELS,
        };
        for (start, place) in path.rows.iter_mut().enumerate().rev() {
            (*place, path.start) = (self.row(index), start);
            let up = self.ups.as_slice().get(index as usize);
            match up.filter(|up| **up != index) {
                Some(up) => index = *up,
                None => break,
            }
        }
        path
    }

    /// Returns the merged rows and their indices, in the order of paths.
    fn iter(&self) -> impl Iterator<Item = (u32, &NodeRow)> {
        let order = self.order.as_slice().iter();
        order.filter_map(|index| Some((*index, self.row(*index)?)))
    }

    /// Writes all entities.
    fn report(&self, list: &mut Report<'_>, now: u64) -> fmt::Result {
        let leaves = || self.iter().filter(|(_, row)| row.leaf);
        let sum = |part: &dyn Fn(&ServiceWindows) -> u64| {
            let rows = leaves().map(|(_, row)| part(&row.stats.windows));
            // Removed entities are in the total only.
            part(&self.total).max(rows.fold(0, u64::saturating_add))
        };
        let second = sum(&|windows| windows.second(now));
        let minute = sum(&|windows| windows.minute(now));
        for (index, row) in leaves() {
            let windows = &row.stats.windows;
            let received = [
                ratio(windows.second(now), second),
                ratio(windows.minute(now), minute),
            ];
            list.entry(|entity| {
                entity.text("entity", self.path(index))?;
                self.report_row(entity, row, received)
            })?;
        }
        Ok(())
    }

    /// Writes all of an entity but its path; the entity `received` these parts of the service.
    fn report_row(
        &self,
        entity: &mut Report<'_>,
        row: &NodeRow,
        received: [u64; 2],
    ) -> fmt::Result {
        let shares = self.shares.as_ref();
        let range = shares.and_then(|shares| shares.wanted.range_of(row.id));
        let (lo, end) = range.map_or((0, 0), |range| (u64::from(range.lo), range.end));
        let entitled = shares.and_then(|shares| shares.entitled.range_of(row.id));
        let entitled = entitled.map_or(0, |range| range.len());
        let stats = &row.stats;
        let counts = &stats.counts;
        let queue = if row.high { "high_priority" } else { "regular" };
        let opportunities = ratio(counts.opportunity, counts.dispatched);
        let [second, minute] = received;
        entity.text("type", row.level)?;
        entity.field("active", row.active)?;
        let (from, to) = (Fraction(lo), Fraction(end));
        entity.text("range", format_args!("[{from}, {to})"))?;
        let later = ["time_us", "forced", "limit_hits", "throttled_ns"];
        entity.stats(counts, &later)?;
        entity.field("fairness_debt", Tenths(row.lag_decipages))?;
        entity.field("queue_depth", row.queue_depth)?;
        entity.text("queue", queue)?;
        entity.field("weight", Fraction(u64::from(row.weight) << 20))?;
        entity.field("factor", Fraction(u64::from(row.factor) << 1))?;
        if row.size > 0 {
            entity.field("size", row.size)?;
        }
        entity.field("time_us", counts.time_us)?;
        entity.field("opportunity_ratio", Fraction(opportunities))?;
        entity.field("forced", counts.forced)?;
        entity.field("limit_hits", counts.limit_hits)?;
        entity.field("throttled_ns", counts.throttled_ns)?;
        entity.field("share_wanted", Fraction(end.saturating_sub(lo)))?;
        entity.field("share_1s", Fraction(second))?;
        entity.field("share_60s", Fraction(minute))?;
        entity.field("borrowed", Fraction(minute.saturating_sub(entitled)))?;
        entity.inline("debt_histogram", |map| report_debts(map, stats))?;
        entity.inline("wait_us", |map| report_waits(map, &stats.waits))
    }
}

/// Rows of many parts.
///
/// # Context
///
/// Created and used in contexts that may sleep.
pub struct NodeRows {
    regular: HeadRows,
    high: HeadRows,
}

impl NodeRows {
    /// Creates an empty set of rows; does not allocate.
    pub fn new() -> Self {
        Self {
            regular: HeadRows::new(),
            high: HeadRows::new(),
        }
    }

    fn sheet(&mut self, high: bool) -> &mut HeadRows {
        if high {
            &mut self.high
        } else {
            &mut self.regular
        }
    }

    /// Appends rows of the high-priority head if `high`, else of the regular head; may sleep. After
    /// an error some of the rows may have been appended.
    pub fn extend(&mut self, rows: &[NodeRow], high: bool) -> Result<(), NoMemory> {
        let to = &mut self.sheet(high).rows;
        rows.iter()
            .try_for_each(|row| to.push(NodeRow { high, ..*row }))
    }

    /// Adds the service of one part of the high-priority head if `high`, else of the regular head.
    pub fn total(&mut self, windows: &ServiceWindows, high: bool) {
        self.sheet(high).total.merge(windows);
    }

    /// Merges the rows of each head and node, sorts the rows by path and computes the shares. O(n
    /// log n); may sleep. After an error the rows must not be used.
    pub fn merge(&mut self) -> Result<(), NoMemory> {
        let mut builder = RangeBuilder::new();
        self.regular.merge(&mut builder)?;
        self.high.merge(&mut builder)
    }

    /// Returns the merged rows: rows of the regular head first, groups before their members.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &NodeRow> {
        let rows = self.regular.iter().chain(self.high.iter());
        rows.map(|(_, row)| row)
    }
}

/// Writes merged rows as a list, with the service received up to `now`, ns.
///
/// An inactive entity has no range and is shown with `[0.000, 0.000)`.
pub fn report(report: &mut Report<'_>, rows: &NodeRows, now: u64) -> fmt::Result {
    report.list(|list| {
        rows.regular.report(list, now)?;
        rows.high.report(list, now)
    })
}

/// Writes the histogram of debt, pages; the first number belongs to a bucket, the second does not.
fn report_debts(map: &mut Report<'_>, stats: &EntityStats) -> fmt::Result {
    let mut start = None;
    let ends = DEBTS.iter().map(Some).chain([None]);
    for (end, count) in ends.zip(&stats.debts) {
        map.quoted(Bucket(start, end), (*count).into())?;
        start = end;
    }
    Ok(())
}

/// Range of a bucket; without a start or an end, it is open there.
struct Bucket<'a>(Option<&'a i64>, Option<&'a i64>);

impl fmt::Display for Bucket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(start, end) = self;
        start.map_or(Ok(()), |start| write!(f, "{start}"))?;
        f.write_str("..")?;
        end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

/// Writes percentiles of the queueing time, us.
fn report_waits(map: &mut Report<'_>, waits: &QueueTimeHistogram) -> fmt::Result {
    for (name, permille) in [("p50", 500), ("p90", 900), ("p99", 990)] {
        map.field(name, waits.percentile(permille) / NSEC_PER_USEC)?;
    }
    map.field("max", waits.max() / NSEC_PER_USEC)
}

/// Returns `part / whole` in units of 2^-32, at most one; 0 if `whole` is 0.
fn ratio(part: u64, whole: u64) -> u64 {
    // 32 bits of the whole are enough.
    let shift = u64::BITS
        .saturating_sub(whole.leading_zeros())
        .saturating_sub(const { u32::BITS - 1 });
    let (part, whole) = (part.min(whole) >> (shift & 63), whole >> (shift & 63));
    (part << 32).checked_div(whole).unwrap_or(0)
}

/// Number in units of 2^-32, shown with three decimals, rounded to the nearest.
struct Fraction(u64);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mille = self.0.saturating_mul(1000).saturating_add(1 << 31) >> 32;
        write!(f, "{}.{:03}", mille / 1000, mille % 1000)
    }
}

/// Number of tenths, shown with one decimal.
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
