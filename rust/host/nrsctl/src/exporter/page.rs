// SPDX-License-Identifier: GPL-2.0-only

//! A page: snapshots, with what is shown of each, and its text.

use std::borrow::Cow;
use std::fmt::Write;

use super::encode::{label, Kind, Number};
use super::families::{Family, FamilyRow, Of, FAMILIES};
use super::others::{self, unite, Memory, Shown};
use crate::failure::Failure;
use crate::stats::{merge, Client, Counters, Entity, Group, Head, Policy, Rule, Snapshot, Target};

/// What was gathered at one time.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The services.
    pub snapshots: Vec<Snapshot>,
    /// Why not all of them could be read, if they could not.
    pub failure: Option<Failure>,
    /// How long that took, s.
    pub seconds: f64,
}

/// Labels of what a sample is about, written once for all families.
struct Named<'a, T: Clone> {
    labels: String,
    of: Cow<'a, T>,
}

/// A service with the labels of all that is told of it.
struct Labelled<'a> {
    service: Named<'a, Snapshot>,
    heads: Vec<Named<'a, Head>>,
    policies: Vec<Named<'a, Policy>>,
    rules: Vec<Named<'a, Rule>>,
    groups: Vec<Named<'a, Group>>,
    clients: Vec<Named<'a, Client>>,
    targets: Vec<Named<'a, Target>>,
    entities: Vec<Named<'a, Entity>>,
    others: Vec<Named<'a, Entity>>,
    /// Whether counters of `others` are shown.
    counted: bool,
}

fn name<'a, T: Clone>(of: Cow<'a, T>, labels: &[(&str, &str)]) -> Named<'a, T> {
    let mut text = String::new();
    for (name, value) in labels {
        label(&mut text, name, value);
    }
    Named { labels: text, of }
}

fn name_entity<'a>(service: &str, entity: &'a Entity) -> Named<'a, Entity> {
    let within = entity.within.as_deref().unwrap_or_default();
    let (rule, group) = match entity.policy.as_str() {
        "tbf" => (within, ""),
        _ => ("", within),
    };
    let labels = [
        ("service", service),
        ("head", &entity.head),
        ("policy", &entity.policy),
        ("rule", rule),
        ("group", group),
        ("entity", &entity.name),
    ];
    name(Cow::Borrowed(entity), &labels)
}

/// The clients of a service, at most `top`, those first that were served most; a device with several targets is several
/// clients of one name, and shown as one.
fn clients(all: &[Client], top: usize) -> Vec<Cow<'_, Client>> {
    let both = |to: &mut Client, other: &Client| {
        merge(&mut to.counters, &other.counters);
        to.lost |= other.lost;
    };
    let mut clients = unite(all, |client| client.name.clone(), both);
    if clients.len() > top {
        let ended = |client: &Client| client.counters.get("ended").copied();
        clients.sort_by(|a, b| ended(b).cmp(&ended(a)).then_with(|| a.name.cmp(&b.name)));
        clients.truncate(top);
    }
    clients
}

/// The rules of a service; one that was stopped and started anew while it had classes is shown as one.
fn rules(all: &[Rule]) -> Vec<Cow<'_, Rule>> {
    let both = |to: &mut Rule, other: &Rule| merge(&mut to.counters, &other.counters);
    unite(all, |rule| format!("{} {}", rule.head, rule.name), both)
}

impl<'a> Labelled<'a> {
    fn new(snapshot: &'a Snapshot, shown: &'a Shown<'a>, top: usize) -> Self {
        let service = ("service", snapshot.service.as_str());
        let heads = || snapshot.heads.iter();
        let policies = heads().flat_map(|head| head.policies.iter().map(move |of| (head, of)));
        let policies = policies.filter(|(_, policy)| policy.state != "stopped");
        let borrowed = |entity: &'a Entity| name_entity(service.1, entity);
        Self {
            service: name(Cow::Borrowed(snapshot), &[service]),
            heads: heads()
                .map(|head| name(Cow::Borrowed(head), &[service, ("head", &head.name)]))
                .collect(),
            policies: policies
                .map(|(head, of)| {
                    let labels = [service, ("head", &head.name), ("policy", &of.name)];
                    name(Cow::Borrowed(of), &labels)
                })
                .collect(),
            rules: rules(&snapshot.rules)
                .into_iter()
                .map(|of| {
                    let (head, rule) = (of.head.clone(), of.name.clone());
                    name(of, &[service, ("head", &head), ("rule", &rule)])
                })
                .collect(),
            groups: (snapshot.groups.iter())
                .map(|of| name(Cow::Borrowed(of), &[service, ("group", &of.name)]))
                .collect(),
            clients: clients(&snapshot.clients, top)
                .into_iter()
                .map(|of| {
                    let client = of.name.clone();
                    name(of, &[service, ("client", &client)])
                })
                .collect(),
            targets: (snapshot.targets.iter())
                .map(|of| name(Cow::Borrowed(of), &[service, ("target", &of.name)]))
                .collect(),
            entities: shown.entities.iter().map(|of| borrowed(of)).collect(),
            others: shown.others.iter().map(borrowed).collect(),
            counted: shown.counted,
        }
    }
}

/// Takes the samples of a family.
pub struct Samples<'a> {
    out: &'a mut String,
    family: &'a Family,
    /// Whether the family's header is written.
    begun: bool,
    /// Labels of what is told about now.
    labels: &'a str,
}

impl Samples<'_> {
    /// Takes a sample without more labels.
    pub fn one(&mut self, value: impl Into<Number>) {
        self.write(self.labels, value.into());
    }

    /// Takes a sample, if there is one.
    pub fn maybe(&mut self, value: Option<impl Into<Number>>) {
        if let Some(value) = value {
            self.one(value);
        }
    }

    /// Takes a sample with the label `name` as well.
    pub fn more(&mut self, name: &str, label_value: &str, value: impl Into<Number>) {
        let mut labels = self.labels.to_string();
        label(&mut labels, name, label_value);
        self.write(&labels, value.into());
    }

    /// Takes a sample of each row of the family whose `number` is known.
    pub fn rows(&mut self, number: impl Fn(&FamilyRow) -> Option<u64>) {
        for row in &self.family.rows {
            let Some(number) = number(row) else { continue };
            let number = Number::of(row.stat.unit, number);
            match row.stat.labels {
                [(name, value), ..] => self.more(name, value, number),
                [] => self.one(number),
            }
        }
    }

    /// Takes a sample of each of `numbers` that `parts` names, with what is behind its name there as the label `name`.
    pub fn each(
        &mut self,
        name: &str,
        numbers: &Counters,
        parts: &[(&str, &str)],
        unit: impl Fn(u64) -> Number,
    ) {
        for (key, label_value) in parts {
            if let Some(number) = numbers.get(*key) {
                self.more(name, label_value, unit(*number));
            }
        }
    }

    /// Takes a sample with two more labels.
    pub fn pair(&mut self, one: (&str, &str), two: (&str, &str), value: impl Into<Number>) {
        let mut labels = self.labels.to_string();
        label(&mut labels, one.0, one.1);
        label(&mut labels, two.0, two.1);
        self.write(&labels, value.into());
    }

    /// Takes the sample of an information that says `more`.
    pub fn info(&mut self, more: &[(&str, &str)]) {
        let mut labels = self.labels.to_string();
        for (name, value) in more {
            label(&mut labels, name, value);
        }
        self.write(&labels, Number::Whole(1));
    }

    fn write(&mut self, labels: &str, value: Number) {
        let Family {
            name, kind, help, ..
        } = self.family;
        // A string takes everything.
        if !self.begun {
            self.begun = true;
            let _ = writeln!(self.out, "# HELP {name} {help}.");
            let _ = writeln!(self.out, "# TYPE {name} {}", kind.name());
        }
        self.out.push_str(name);
        if !labels.is_empty() {
            self.out.push('{');
            self.out.push_str(labels);
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// The text of what was gathered, with at most `top` entities of each policy and head; `memory`, if there is one, is of
/// earlier pages.
pub fn render(gathered: &Gathered, top: usize, memory: Option<&mut Memory>) -> String {
    let mut memory = memory;
    if let Some(memory) = memory.as_deref_mut() {
        memory.begin();
    }
    let snapshots = gathered.snapshots.iter();
    let shown: Vec<Shown<'_>> = snapshots
        .map(|snapshot| others::choose(snapshot, top, memory.as_deref_mut()))
        .collect();
    // Where not all could be read, nothing is forgotten.
    if let (Some(memory), None) = (memory, &gathered.failure) {
        memory.end();
    }
    let services: Vec<Labelled<'_>> = gathered
        .snapshots
        .iter()
        .zip(&shown)
        .map(|(snapshot, shown)| Labelled::new(snapshot, shown, top))
        .collect();
    let mut out = String::with_capacity(1 << 16);
    for family in FAMILIES.iter() {
        let mut samples = Samples {
            out: &mut out,
            family,
            begun: false,
            labels: "",
        };
        write(family, gathered, &services, &mut samples);
    }
    out
}

/// Has each of `all` tell its samples.
fn each<'a, T>(
    all: impl IntoIterator<Item = &'a Named<'a, T>>,
    tell: fn(&T, &mut Samples<'_>),
    samples: &mut Samples<'_>,
) where
    T: Clone + 'a,
{
    for named in all {
        // What remains to be written after it has no labels of it.
        let mut of = Samples {
            out: samples.out,
            family: samples.family,
            begun: samples.begun,
            labels: &named.labels,
        };
        tell(&named.of, &mut of);
        samples.begun = of.begun;
    }
}

/// Writes the samples of `family`.
fn write(
    family: &Family,
    gathered: &Gathered,
    services: &[Labelled<'_>],
    samples: &mut Samples<'_>,
) {
    let all = services.iter();
    match family.of {
        Of::Exporter(tell) => tell(gathered, samples),
        Of::Service(tell) => each(all.map(|of| &of.service), tell, samples),
        Of::Head(tell) => each(all.flat_map(|of| &of.heads), tell, samples),
        Of::Policy(tell) => each(all.flat_map(|of| &of.policies), tell, samples),
        Of::Rule(tell) => each(all.flat_map(|of| &of.rules), tell, samples),
        Of::Group(tell) => each(all.flat_map(|of| &of.groups), tell, samples),
        Of::Client(tell) => each(all.flat_map(|of| &of.clients), tell, samples),
        Of::Target(tell) => each(all.flat_map(|of| &of.targets), tell, samples),
        Of::Entity(tell) => {
            let counter = family.kind == Kind::Counter;
            for service in services {
                each(&service.entities, tell, samples);
                if service.counted || !counter {
                    each(&service.others, tell, samples);
                }
            }
        }
    }
}
