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

/// Declares the subjects in the order of pages, each with its data, its title, and the labels of
/// all its samples.
macro_rules! subjects {
    ($($(#[$doc:meta])* $name:ident($data:ty): $title:literal $labels:expr;)+) => {
        /// Subject of a family, with the function that adds its samples.
        #[derive(Clone, Copy)]
        pub enum Of {
            $($(#[$doc])* $name(fn(&$data, &mut Samples<'_>)),)+
        }

        /// Subject of samples.
        pub enum Subject<'a> {
            $($(#[$doc])* $name(Cow<'a, $data>),)+
        }

        $(impl<'a> From<&'a $data> for Subject<'a> {
            fn from(data: &'a $data) -> Self {
                Self::$name(Cow::Borrowed(data))
            }
        })+

        enum Rank {
            $($name,)+
        }

        /// Titles and labels of the subjects, by rank.
        const SUBJECTS: &[(&str, &[&str])] = &[$(($title, $labels),)+];

        impl Of {
            /// Returns the subject's rank in pages.
            pub(super) const fn rank(&self) -> usize {
                match self {
                    $(Self::$name(_) => Rank::$name as usize,)+
                }
            }

            /// Adds the samples of `subject` if it is of this kind.
            pub(super) fn add_samples(&self, subject: &Subject<'_>, samples: &mut Samples<'_>) {
                match (self, subject) {
                    $((Self::$name(tell), Subject::$name(data)) => tell(data, samples),)+
                    _ => {}
                }
            }
        }

        impl Subject<'_> {
            /// Returns the labels common to all samples of the subject.
            pub(super) const fn labels(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$name(_) => SUBJECTS[Rank::$name as usize].1,)+
                }
            }
        }
    };
}

subjects! {
    /// The exporter itself.
    Exporter(Gathered): "The exporter" &[];
    /// A service.
    Service(Snapshot): "Services" &["service"];
    /// A head of a service.
    Head(Head): "Heads" &["service", "head"];
    /// A policy of a head, unless the policy is stopped.
    Policy(Policy): "Policies" &["service", "head", "policy"];
    /// A rule of tbf that has classes.
    Rule(Rule): "Rules of tbf" &["service", "head", "rule"];
    /// A group of qbm.
    Group(Group): "Groups of qbm" &["service", "group"];
    /// A client.
    Client(Client): "Clients" &["service", "client"];
    /// A target device of a client.
    Target(Target): "Devices below" &["service", "target"];
    /// An entity.
    Entity(Entity): "Entities" &["service", "head", "policy", "rule", "group", "entity"];
    /// A service of the agent.
    Agent(ServiceStatus): "The agent" &["service"];
    /// Another server from which the agent receives datagrams.
    Peer(PeerStatus): "Other servers" &["service", "peer"];
}

impl Of {
    /// Returns the title of the subject.
    pub const fn title(&self) -> &'static str {
        SUBJECTS[self.rank()].0
    }

    /// Returns the labels common to all samples of the subject.
    pub const fn labels(&self) -> &'static [&'static str] {
        SUBJECTS[self.rank()].1
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
