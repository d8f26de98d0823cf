// SPDX-License-Identifier: GPL-2.0-only

//! Types of metric families, and the writer of their samples.

use std::borrow::Cow;
use std::fmt::Write;

use nrs_agent::status::{PeerStatus, ServiceStatus, Status};
use nrs_sched::policy;
use nrs_sched::statistics::Stat;

use super::encode::{label, MetricKind, Number};
use crate::failure::Failure;
use crate::stats::{Client, Entity, Group, Head, Policy, Rule, Snapshot, Target};

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

/// Subject of a family, with the function that adds its samples.
#[derive(Clone, Copy)]
pub enum Of {
    /// The exporter itself.
    Exporter(fn(&Gathered, &mut Samples<'_>)),
    /// A service.
    Service(fn(&Snapshot, &mut Samples<'_>)),
    /// A head of a service.
    Head(fn(&Head, &mut Samples<'_>)),
    /// A policy of a head, unless the policy is stopped.
    Policy(fn(&Policy, &mut Samples<'_>)),
    /// A rule of tbf that has classes.
    Rule(fn(&Rule, &mut Samples<'_>)),
    /// A group of qbm.
    Group(fn(&Group, &mut Samples<'_>)),
    /// A client.
    Client(fn(&Client, &mut Samples<'_>)),
    /// A target device of a client.
    Target(fn(&Target, &mut Samples<'_>)),
    /// An entity.
    Entity(fn(&Entity, &mut Samples<'_>)),
    /// A service of the agent.
    Agent(fn(&ServiceStatus, &mut Samples<'_>)),
    /// Another server from which the agent receives datagrams.
    Peer(fn(&PeerStatus, &mut Samples<'_>)),
}

impl Of {
    /// Returns the subject's rank in pages, its title, and the labels common to all its samples.
    pub(super) const fn about(&self) -> (u8, &'static str, &'static [&'static str]) {
        match self {
            Self::Exporter(_) => (0, "The exporter", &[]),
            Self::Service(_) => (1, "Services", &["service"]),
            Self::Head(_) => (2, "Heads", &["service", "head"]),
            Self::Policy(_) => (3, "Policies", &["service", "head", "policy"]),
            Self::Rule(_) => (4, "Rules of tbf", &["service", "head", "rule"]),
            Self::Group(_) => (5, "Groups of qbm", &["service", "group"]),
            Self::Client(_) => (6, "Clients", &["service", "client"]),
            Self::Target(_) => (7, "Devices below", &["service", "target"]),
            Self::Entity(_) => {
                let labels = &["service", "head", "policy", "rule", "group", "entity"];
                (8, "Entities", labels)
            }
            Self::Agent(_) => (9, "The agent", &["service"]),
            Self::Peer(_) => (10, "Other servers", &["service", "peer"]),
        }
    }

    /// Returns the title of the subject.
    pub const fn title(&self) -> &'static str {
        self.about().1
    }

    /// Returns the labels common to all samples of the subject.
    pub const fn labels(&self) -> &'static [&'static str] {
        self.about().2
    }
}

/// A metric family.
pub struct Family {
    /// Name of the family's samples.
    pub name: &'static str,
    /// Type of the family.
    pub kind: MetricKind,
    /// Description: one sentence without a full stop.
    pub help: &'static str,
    /// Labels of the samples in addition to the subject's labels.
    pub more: Vec<&'static str>,
    /// Rows of statistics of the family; empty if the family is in `declared`.
    pub rows: Vec<FamilyRow>,
    /// Subject of the family.
    pub of: Of,
}

impl Family {
    /// Returns true if all rows of the family belong to policies for tests; such families are on no
    /// page.
    pub fn is_for_tests(&self) -> bool {
        let of_test = |row: &FamilyRow| policy::Kind::from_name(row.policy);
        let kinds = self.rows.iter().map(of_test);
        !self.rows.is_empty()
            && kinds
                .into_iter()
                .all(|kind| kind.is_ok_and(policy::Kind::is_for_tests))
    }
}

/// A row of statistics in a family.
pub struct FamilyRow {
    /// Row of statistics.
    pub stat: &'static Stat,
    /// Policy of the row, or the policy of the entities that have the row; empty if there is none.
    pub policy: &'static str,
}

/// Writer of the samples of a family.
pub struct Samples<'a> {
    pub(super) out: &'a mut String,
    pub(super) family: &'a Family,
    /// True if the family's header is written.
    pub(super) begun: bool,
    /// Labels of the current subject.
    pub(super) labels: &'a str,
}

impl Samples<'_> {
    /// Writes a sample without additional labels.
    pub fn one(&mut self, value: impl Into<Number>) {
        self.more(&[], value);
    }

    /// Writes a sample if there is a value.
    pub fn maybe(&mut self, value: Option<impl Into<Number>>) {
        if let Some(value) = value {
            self.one(value);
        }
    }

    /// Writes a sample for each row of the family for which `number` returns a value.
    pub fn rows(&mut self, number: impl Fn(&FamilyRow) -> Option<u64>) {
        for row in &self.family.rows {
            let Some(number) = number(row) else { continue };
            let number = Number::of(row.stat.unit, number);
            self.more(row.stat.labels, number);
        }
    }

    /// Writes a sample with the additional labels `more`.
    pub fn more(&mut self, more: &[(&str, &str)], value: impl Into<Number>) {
        let mut labels = Cow::Borrowed(self.labels);
        for (name, value) in more {
            label(labels.to_mut(), name, value);
        }
        let Family {
            name, kind, help, ..
        } = self.family;
        // Writing to a `String` cannot fail.
        if !self.begun {
            self.begun = true;
            let _ = writeln!(self.out, "# HELP {name} {help}.");
            let _ = writeln!(self.out, "# TYPE {name} {}", kind.name());
        }
        self.out.push_str(name);
        if !labels.is_empty() {
            let _ = write!(self.out, "{{{labels}}}");
        }
        let _ = writeln!(self.out, " {}", value.into());
    }
}
