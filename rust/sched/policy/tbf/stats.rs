// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of classes and rules, and the file that shows them.
//!
//! The file is YAML: a mapping with `rules`, ordered by identifier, and `classes`, ordered by key.
//! All strings are double-quoted, with `"` and `\` escaped.

use super::class::ClassCounts;
use crate::sched::{
    bucket::rate::RateUnit,
    count::Count,
    mem::{GrowingList, NoMemory},
    report::Report,
    rules::{Name, Rate, Subject},
    sort::merge_by,
    statistics::{stats, Stats},
};
use core::{
    cmp::Ordering,
    fmt::{self, Write},
};

/// Statistics of one class.
#[derive(Clone, Copy, Debug)]
pub struct TbfRow {
    /// Key of the class.
    pub subject: Subject,
    /// True if the class is on the high-priority head.
    pub high: bool,
    /// True if the class stands in for classes of its rule that could not be created.
    pub default: bool,
    /// Identifier of the rule.
    pub id: u32,
    /// Name of the rule.
    pub rule: Name,
    /// Rate of the rule.
    pub rate: Rate,
    /// Unit that the rate counts.
    pub count: RateUnit,
    /// Counters.
    pub counters: ClassCounts,
    /// Number of queued requests.
    pub queued: u32,
    /// Number of requests in flight.
    pub active: u32,
    /// Time until the debt of the class is repaid, ns.
    pub debt: u64,
}

impl TbfRow {
    fn order(&self, other: &Self) -> Ordering {
        let rule = |row: &Self| row.default.then_some(row.id);
        let key = |row: &Self| (row.high, !row.default, rule(row), row.subject);
        key(self).cmp(&key(other))
    }

    /// Adds the counters of the same class on another partition.
    fn add(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.queued.count(other.queued);
        self.active.count(other.active);
        self.debt = self.debt.max(other.debt);
    }
}

stats! {
    /// Counters of the policy as a whole.
    Counts {
        buckets_full: Counter Plain "nrs_policy_full_total"{table="buckets"}
            "Failed allocations of shared buckets (the rate applies to each CPT separately)";
    }
}

stats! {
    /// Current numbers of a rule.
    RuleCounts {
        classes: Gauge Plain "nrs_rule_classes" "Classes of the rule";
        queued: Gauge Plain "nrs_rule_queued_requests" "Queued requests of the rule";
    }
}

/// Statistics of one rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleSum {
    /// True if the rule is on the high-priority head.
    pub high: bool,
    /// Identifier of the rule.
    pub id: u32,
    /// Name of the rule.
    pub rule: Name,
    /// Rate of the rule.
    pub rate: Rate,
    /// Unit that the rate counts.
    pub count: RateUnit,
    /// Current numbers.
    pub gauges: RuleCounts,
    /// Sums of the counters of the classes.
    pub counters: ClassCounts,
}

/// Rows of many partitions.
///
/// # Context
///
/// Created and used where sleeping is allowed.
pub struct TbfRows {
    rows: GrowingList<TbfRow>,
}

impl TbfRows {
    /// Creates an empty list; does not allocate.
    pub const fn new() -> Self {
        Self {
            rows: GrowingList::new(),
        }
    }

    /// Appends rows of the high-priority head, or of the regular head; may sleep. After an error,
    /// some of the rows may have been appended.
    pub fn extend(&mut self, rows: &[TbfRow], high: bool) -> Result<(), NoMemory> {
        rows.iter()
            .try_for_each(|row| self.rows.push(TbfRow { high, ..*row }))
    }

    /// Sorts the rows by class and merges rows of the same class; O(n log n).
    pub fn merge(&mut self) {
        merge_by(&mut self.rows, TbfRow::order, TbfRow::add);
    }

    /// Returns the rows.
    pub fn as_slice(&self) -> &[TbfRow] {
        self.rows.as_slice()
    }

    /// Returns the sums of merged rows per rule; may sleep.
    pub fn sums(&self) -> Result<GrowingList<RuleSum>, NoMemory> {
        let rows = self.rows.as_slice();
        let mut sums = GrowingList::with_capacity(rows.len())?;
        for row in rows {
            sums.push(RuleSum {
                high: row.high,
                id: row.id,
                rule: row.rule,
                rate: row.rate,
                count: row.count,
                gauges: RuleCounts {
                    classes: 1,
                    queued: row.queued.into(),
                },
                counters: row.counters,
            })?;
        }
        merge_by(
            &mut sums,
            |a, b| (a.high, a.id).cmp(&(b.high, b.id)),
            |to, other| {
                to.gauges.merge(&other.gauges);
                to.counters.merge(&other.counters);
            },
        );
        Ok(sums)
    }
}

/// Writes statistics: a map of `rules` and `classes`.
pub fn report(report: &mut Report<'_>, rows: &[TbfRow], sums: &[RuleSum]) -> fmt::Result {
    report.map(|report| {
        report.entries("rules", |list| {
            sums.iter()
                .try_for_each(|sum| list.entry(|rule| sum.report(rule)))
        })?;
        report.entries("classes", |list| {
            rows.iter()
                .try_for_each(|row| list.entry(|class| row.report(class)))
        })
    })
}

impl RuleSum {
    fn report(&self, rule: &mut Report<'_>) -> fmt::Result {
        rule.text("rule", self.rule)?;
        rule.word("head", head(self.high))?;
        rule.text("rate", self.rate)?;
        rule.word("unit", self.count.name())?;
        rule.stats(&self.gauges, &[])?;
        rule.stats(&self.counters, &[])
    }
}

impl TbfRow {
    fn report(&self, class: &mut Report<'_>) -> fmt::Result {
        match self.default {
            true => class.text("class", "default")?,
            false => class.text("class", EscapedSubject(&self.subject))?,
        }
        class.word("head", head(self.high))?;
        class.text("rule", self.rule)?;
        class.text("rate", self.rate)?;
        class.word("unit", self.count.name())?;
        class.field("queued", self.queued)?;
        class.field("active", self.active)?;
        class.stats(&self.counters, &[])?;
        class.field("debt_ns", self.debt)
    }
}

/// Returns the name of a head, as in commands.
const fn head(high: bool) -> &'static str {
    if high {
        "hp"
    } else {
        "reg"
    }
}

/// Subject as in a double-quoted string.
struct EscapedSubject<'a>(&'a Subject);

impl fmt::Display for EscapedSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// Writer that escapes text for a double-quoted string.
struct Escape<'a, W>(&'a mut W);

impl<W: Write> Write for Escape<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            match char {
                '"' | '\\' => {
                    self.0.write_char('\\')?;
                    self.0.write_char(char)?;
                }
                ' '..='~' => self.0.write_char(char)?,
                _ => self.0.write_char('_')?,
            }
        }
        Ok(())
    }
}
