// SPDX-License-Identifier: GPL-2.0-only

//! Types of metric families and of their subjects, and the writer of samples.

use std::borrow::Cow;
use std::fmt::Write;

use nrs_agent::status::Status;
use nrs_sched::policy;
use nrs_sched::statistics::{Stat, StatUnit};
use serde_json::Value;

use super::encode::{label, MetricKind, Number};
use crate::failure::Failure;
use crate::stats::{in_bytes, Snapshot};

/// Data for one page.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Snapshots of the services.
    pub snapshots: Vec<Snapshot>,
    /// Status of the agent; `None` if no agent runs.
    pub agent: Option<Status>,
    /// Failure if not everything could be read.
    pub failure: Option<Failure>,
    /// Time of gathering the data, s.
    pub seconds: f64,
}

/// Kind of subject of a family, in the order of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// The exporter itself.
    Exporter,
    /// A service.
    Service,
    /// A head of a service.
    Head,
    /// A policy of a head, unless the policy is stopped.
    Policy,
    /// A rule of tbf that has classes.
    Rule,
    /// A group of qbm.
    Group,
    /// A client.
    Client,
    /// A target device of a client.
    Target,
    /// An entity.
    Entity,
    /// A service of the agent.
    Agent,
    /// Another server from which the agent receives datagrams.
    Peer,
}

/// Titles of the kinds of subjects, and the labels common to all samples of a subject.
const KINDS: [(&str, &[&str]); 11] = [
    ("The exporter", &[]),
    ("Services", &["service"]),
    ("Heads", &["service", "head"]),
    ("Policies", &["service", "head", "policy"]),
    ("Rules of tbf", &["service", "head", "rule"]),
    ("Groups of qbm", &["service", "group"]),
    ("Clients", &["service", "client"]),
    ("Devices below", &["service", "target"]),
    (
        "Entities",
        &["service", "head", "policy", "rule", "group", "entity"],
    ),
    ("The agent", &["service"]),
    ("Other servers", &["service", "peer"]),
];

impl Of {
    /// Returns the title of the subjects.
    pub const fn title(self) -> &'static str {
        KINDS[self as usize].0
    }

    /// Returns the labels common to all samples of a subject.
    pub const fn labels(self) -> &'static [&'static str] {
        KINDS[self as usize].1
    }
}

/// A metric family.
pub struct Family {
    /// Name of the family's samples.
    pub name: &'static str,
    /// Type of the family.
    pub kind: MetricKind,
    /// Description: one sentence without a full stop.
    pub help: String,
    /// Rows of the family, one for each sample of a subject.
    pub rows: Vec<FamilyRow>,
    /// Subjects of the family.
    pub of: Of,
}

impl Family {
    /// Returns the labels of the samples in addition to the subject's labels.
    pub fn more(&self) -> impl Iterator<Item = &'static str> {
        let first = self.rows.first().map_or(&[][..], |row| row.stat.labels);
        first.iter().map(|(name, _)| *name)
    }

    /// Returns true if all rows of the family belong to policies for tests; such families are on no
    /// page.
    pub fn is_for_tests(&self) -> bool {
        let mut kinds = self.rows.iter();
        kinds.all(|row| policy::Kind::from_name(row.policy).is_ok_and(policy::Kind::is_for_tests))
    }

    /// Writes the samples of `subject` to `out`, after the header unless it `is_begun`.
    pub(super) fn write(&self, subject: &Subject, out: &mut String, is_begun: &mut bool) {
        let Self {
            name, kind, help, ..
        } = self;
        let own = |row: &&FamilyRow| row.policy.is_empty() || row.policy == subject.policy;
        for row in self.rows.iter().filter(own) {
            let Some(number) = subject.number(row) else {
                continue;
            };
            // Writing to a `String` cannot fail.
            if !*is_begun {
                *is_begun = true;
                let _ = writeln!(out, "# HELP {name} {help}.");
                let _ = writeln!(out, "# TYPE {name} {}", kind.name());
            }
            out.push_str(name);
            let labels = subject.all_labels(row.stat.labels);
            if !labels.is_empty() {
                let _ = write!(out, "{{{labels}}}");
            }
            let _ = writeln!(out, " {number}");
        }
    }
}

/// A row of statistics in a family.
pub struct FamilyRow {
    /// Row of statistics. A label whose value begins with `/` has the text at this key.
    pub stat: &'static Stat,
    /// Path of the number in the subject: its keys; empty for a whole subject.
    pub path: Vec<&'static str>,
    /// Policy of the subjects that have the row; empty if all have it.
    pub policy: &'static str,
}

/// Subject of samples.
pub(super) struct Subject {
    /// Kind of the subject.
    pub of: Of,
    /// Data of the subject, in which the rows of families have paths.
    pub data: Value,
    /// Common labels of the samples, formatted once for all families.
    pub labels: String,
    /// Policy of the subject; empty if the subject has none.
    pub policy: String,
}

impl Subject {
    /// Returns the data at the path `keys`.
    fn get(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(&self.data, |data, key| data.get(key))
    }

    /// Returns the number of a row: 1 or 0 for true and false, 1 for a whole subject; costs become
    /// bytes.
    fn number(&self, row: &FamilyRow) -> Option<Number> {
        Some(match self.get(&row.path)? {
            Value::Object(_) => Number::Whole(1),
            Value::Bool(truth) => Number::Whole((*truth).into()),
            Value::Number(number) => match (number.as_u64(), row.stat.unit) {
                (None, _) => Number::Real(number.as_f64()?),
                (Some(cost), StatUnit::Cost) => {
                    Number::Whole(in_bytes(self.get(&["unit"])?.as_str()?, cost)?)
                }
                (Some(number), unit) => Number::of(unit, number),
            },
            _ => return None,
        })
    }

    /// Returns the labels of a sample with the additional labels `more`.
    fn all_labels(&self, more: &[(&str, &str)]) -> Cow<'_, str> {
        let mut labels = Cow::Borrowed(&*self.labels);
        for (name, value) in more {
            let value = match value.strip_prefix('/').map(|key| self.get(&[key])) {
                None => value,
                Some(Some(Value::Bool(true))) => "yes",
                Some(Some(Value::Bool(false))) => "no",
                Some(text) => text.and_then(Value::as_str).unwrap_or_default(),
            };
            label(labels.to_mut(), name, value);
        }
        labels
    }
}
