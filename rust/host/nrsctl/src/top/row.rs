// SPDX-License-Identifier: GPL-2.0-only

//! Rows and columns of the table.

use std::cmp::Ordering;

use clap::ValueEnum;
use nrs_sched::rules::Rate;

use super::numbers::{self, UNKNOWN};
use super::rates::Rates;
use crate::stats::{self, Entity};

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Name of the entity.
    Name,
    /// Policy, and the rule or group of the entity.
    Policy,
    /// Target share.
    Wanted,
    /// Actual share.
    #[default]
    Got,
    /// Requests per second.
    Requests,
    /// Bytes per second.
    Bytes,
    /// Number of queued requests.
    Queued,
    /// Median of the queueing time.
    P50,
    /// 99th percentile of the queueing time.
    P99,
    /// Rate limit.
    Limit,
    /// Times per second that requests were throttled by the rate limit.
    Hits,
}

/// Column, heading, meaning for the help, and width; for names and policies the minimum width.
type Known = (Column, &'static str, &'static str, usize);

#[rustfmt::skip]
const COLUMNS: [Known; 11] = [
    (Column::Name, "NAME", "entity of the policy", 12),
    (Column::Policy, "POLICY", "policy, and rule or group", 9),
    (Column::Wanted, "WANT", "target share", 4),
    (Column::Got, "GOT", "actual share", 4),
    (Column::Requests, "REQ/S", "requests served per second", 5),
    (Column::Bytes, "B/S", "bytes served per second", 5),
    (Column::Queued, "QUEUE", "queued requests", 5),
    (Column::P50, "P50", "median queueing time", 5),
    (Column::P99, "P99", "99th percentile queueing time", 5),
    (Column::Limit, "LIMIT", "rate limit", 8),
    (Column::Hits, "HIT/S", "throttled, times per second", 5),
];

impl Column {
    /// Returns all columns from left to right.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Columns omitted on a narrow screen, in the order of omission.
    pub const OMIT_ORDER: [Column; 9] = [
        Column::P50,
        Column::Wanted,
        Column::Policy,
        Column::Hits,
        Column::Limit,
        Column::P99,
        Column::Requests,
        Column::Bytes,
        Column::Queued,
    ];

    /// Returns the heading of the column.
    pub const fn heading(self) -> &'static str {
        COLUMNS[self as usize].1
    }

    /// Returns the meaning of the column for the help.
    pub const fn meaning(self) -> &'static str {
        COLUMNS[self as usize].2
    }

    /// Returns the width of the column; for names and policies the minimum width.
    pub const fn width(self, precise: bool) -> usize {
        match self {
            Column::Wanted | Column::Got if precise => 6,
            _ => COLUMNS[self as usize].3,
        }
    }

    /// Returns true for text columns, which are left-aligned and sorted from A to Z.
    pub const fn is_text(self) -> bool {
        matches!(self, Column::Name | Column::Policy)
    }

    /// Returns the name of the column on the command line.
    pub fn key(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns the next or the previous column; the first column follows the last.
    pub fn beside(self, forwards: bool) -> Self {
        let step = if forwards { 1 } else { COLUMNS.len() - 1 };
        COLUMNS[(self as usize + step) % COLUMNS.len()].0
    }
}

/// An entity with its rates.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The entity.
    pub entity: &'a Entity,
    /// Rates of the entity.
    pub rates: &'a Rates,
}

impl Row<'_> {
    /// Returns the policy with the rule or group, as `tbf:greedy`, preceded by `hp` for the
    /// high-priority head.
    pub fn policy(&self) -> String {
        let head = if self.is_high() { "hp " } else { "" };
        match &self.entity.within {
            Some(within) => format!("{head}{}:{within}", self.entity.policy),
            None => format!("{head}{}", self.entity.policy),
        }
    }

    fn is_high(&self) -> bool {
        self.entity.head == stats::HIGH
    }

    /// Returns a percentile of the queueing time, us.
    fn wait(&self, name: &str) -> Option<u64> {
        self.entity.wait_us.get(name).copied()
    }

    /// Returns the rate limit as written in the rule, or the allocation of qbm in short form.
    fn limit(&self) -> Option<String> {
        let limit = self.entity.limit.as_deref()?;
        match limit.parse::<u64>() {
            Ok(number) if self.entity.policy == "qbm" => {
                Some(format!("{}B/s", numbers::bytes(number as f64)))
            }
            _ => Some(numbers::printable(limit)),
        }
    }

    /// Returns true if the entity has queued requests and a share below nine tenths of its target
    /// share.
    pub fn is_short(&self) -> bool {
        let part = self.entity.share_wanted.zip(self.rates.share);
        self.entity.queued > 0 && part.is_some_and(|(wanted, got)| got < wanted * 0.9)
    }

    /// Returns true if requests of the entity are throttled by the rate limit.
    pub fn is_limited(&self) -> bool {
        self.rates.hits.is_some_and(|hits| hits > 0.0)
    }

    /// Returns true if the name or the policy contains `text`, which is in lower case.
    pub fn has(&self, text: &str) -> bool {
        let has = |name: &str| name.to_lowercase().contains(text);
        has(&self.entity.name) || has(&self.policy())
    }

    /// Returns the text of a cell.
    pub fn cell(&self, column: Column, precise: bool) -> String {
        let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.into());
        let percent = |part: Option<f64>| known(part.map(|p| numbers::percent(p, precise)));
        match column {
            Column::Name => numbers::printable(&self.entity.name),
            Column::Policy => numbers::printable(&self.policy()),
            Column::Wanted => percent(self.entity.share_wanted),
            Column::Got => percent(self.rates.share),
            Column::Requests => known(self.rates.requests.map(numbers::count)),
            Column::Bytes => known(self.rates.bytes.map(numbers::bytes)),
            Column::Queued => numbers::count(self.entity.queued as f64),
            Column::P50 => known(self.wait("p50").map(numbers::time)),
            Column::P99 => known(self.wait("p99").map(numbers::time)),
            Column::Limit => known(self.limit()),
            Column::Hits => known(self.rates.hits.map(numbers::count)),
        }
    }

    /// Returns the number of a cell; `None` if it is unknown or the column is text.
    fn number(&self, column: Column) -> Option<f64> {
        match column {
            Column::Name | Column::Policy => None,
            Column::Wanted => self.entity.share_wanted,
            Column::Got => self.rates.share,
            Column::Requests => self.rates.requests,
            Column::Bytes => self.rates.bytes,
            Column::Queued => Some(self.entity.queued as f64),
            Column::P50 => self.wait("p50").map(|us| us as f64),
            Column::P99 => self.wait("p99").map(|us| us as f64),
            Column::Limit => self.entity.limit.as_deref().and_then(limit),
            Column::Hits => self.rates.hits,
        }
    }

    /// Compares two rows: names and policies from A to Z, numbers in descending order, unknown
    /// numbers last, equal rows by name.
    ///
    /// `reverse` reverses the order, but unknown numbers stay last.
    pub fn order(&self, other: &Row<'_>, column: Column, reverse: bool) -> Ordering {
        let turned = |order: Ordering| if reverse { order.reverse() } else { order };
        let first = match column {
            Column::Name => turned(self.entity.name.cmp(&other.entity.name)),
            Column::Policy => turned(self.policy().cmp(&other.policy())),
            _ => match (self.number(column), other.number(column)) {
                (Some(mine), Some(its)) => turned(its.total_cmp(&mine)),
                (mine, its) => its.is_some().cmp(&mine.is_some()),
            },
        };
        let names = || self.entity.name.cmp(&other.entity.name);
        first
            .then_with(names)
            .then_with(|| self.policy().cmp(&other.policy()))
    }
}

/// Returns the number of a rate limit, in its own unit.
fn limit(text: &str) -> Option<f64> {
    let number = match Rate::parse(text) {
        Some(rate) => rate.per_second(),
        None => text.parse().ok()?,
    };
    Some(number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{rates::rates, samples};

    #[test]
    fn cells() {
        let now = samples::tbf(2);
        let all = rates(Some(&samples::tbf(1)), &now);
        let row = |n: usize| Row {
            entity: &now.entities[n],
            rates: &all[n],
        };
        let cells = |n: usize, precise| COLUMNS.map(|(c, ..)| row(n).cell(c, precise)).join(" ");
        assert_eq!(
            cells(0, false),
            "uid:1001 tbf:default - 50% 650 - 0 - - 10000 0"
        );
        assert_eq!(
            cells(1, true),
            "uid:1002 tbf:greedy - 50.0% 650 10.0M 75 - - 10MB/s 150"
        );
        assert!(row(1).is_limited() && !row(0).is_limited());
        assert!(row(1).has("greedy") && row(1).has("1002") && !row(0).has("greedy"));
        let mut entity = now.entities[1].clone();
        for (policy, head, limit, want, number) in [
            ("tbf", "regular", "200", "200", Some(200.0)),
            (
                "tbf",
                "regular",
                "123456789B/s",
                "123456789B/s",
                Some(123_456_789.0),
            ),
            ("tbf", "regular", "1MiB", "1MiB", Some(1_048_576.0)),
            ("qbm", "high", "42845000", "42.8MB/s", Some(42_845_000.0)),
            ("qbm", "high", "unregulated", "unregulated", None),
        ] {
            (entity.policy, entity.head) = (policy.into(), head.into());
            entity.limit = Some(limit.into());
            let row = Row {
                entity: &entity,
                rates: &Rates::default(),
            };
            assert_eq!(row.cell(Column::Limit, false), want);
            assert_eq!(row.number(Column::Limit), number);
        }
    }

    #[test]
    fn short_of_its_share() {
        let mut entity = samples::fairshare(0).entities[0].clone();
        for (queued, share, want) in [(8, 0.4, true), (8, 0.46, false), (0, 0.4, false)] {
            entity.queued = queued;
            let rates = Rates {
                share: Some(share),
                ..Rates::default()
            };
            let row = Row {
                entity: &entity,
                rates: &rates,
            };
            assert_eq!(row.is_short(), want);
        }
    }

    #[test]
    fn columns_follow_each_other() {
        for (n, column) in Column::all().iter().copied().enumerate() {
            assert_eq!((COLUMNS[n].0, column as usize), (column, n));
            assert_eq!(column.beside(true).beside(false), column);
            assert_eq!(Column::from_str(&column.key(), false), Ok(column));
        }
        assert_eq!(Column::Hits.beside(true), Column::Name);
    }
}
