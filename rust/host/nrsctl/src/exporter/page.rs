// SPDX-License-Identifier: GPL-2.0-only

//! Page of metrics: the text of snapshots and of the agent's status.

use std::borrow::Cow;

use nrs_agent::status::{PeerStatus, ServiceStatus, Status};

use super::encode::{label, MetricKind};
use super::families::FAMILIES;
use super::family::{Family, Gathered, Of, Samples};
use super::others::{self, unite, Memory, ShownEntities};
use crate::stats::{merge, Client, Entity, Group, Head, Policy, Rule, Snapshot, Target};

/// Subject of samples with its labels, formatted once for all families.
struct Labels<'a, T: Clone> {
    labels: String,
    of: Cow<'a, T>,
}

/// A service and its subjects, with labels.
struct Labelled<'a> {
    service: Labels<'a, Snapshot>,
    heads: Vec<Labels<'a, Head>>,
    policies: Vec<Labels<'a, Policy>>,
    rules: Vec<Labels<'a, Rule>>,
    groups: Vec<Labels<'a, Group>>,
    clients: Vec<Labels<'a, Client>>,
    targets: Vec<Labels<'a, Target>>,
    entities: Vec<Labels<'a, Entity>>,
    others: Vec<Labels<'a, Entity>>,
    /// True if counters of `others` are shown.
    counted: bool,
}

/// Formats `pairs` as labels.
fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        label(&mut text, name, value);
    }
    text
}

fn name<'a, T: Clone>(of: &'a T, pairs: &[(&str, &str)]) -> Labels<'a, T> {
    Labels {
        labels: labels(pairs),
        of: Cow::Borrowed(of),
    }
}

fn name_entity<'a>(service: &str, entity: &'a Entity) -> Labels<'a, Entity> {
    let within = entity.within.as_deref().unwrap_or_default();
    let (rule, group) = match entity.policy.as_str() {
        "tbf" => (within, ""),
        _ => ("", within),
    };
    let pairs = [
        ("service", service),
        ("head", &entity.head),
        ("policy", &entity.policy),
        ("rule", rule),
        ("group", group),
        ("entity", &entity.name),
    ];
    name(entity, &pairs)
}

/// Returns at most `top` clients of a service, sorted by completed requests if some are left out. A
/// device with several targets is several clients with one name; they are merged.
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

/// Returns the rules of a service. A rule that was stopped and started again while it had classes
/// is listed twice; the two are merged.
fn rules(all: &[Rule]) -> Vec<Cow<'_, Rule>> {
    let both = |to: &mut Rule, other: &Rule| merge(&mut to.counters, &other.counters);
    unite(all, |rule| format!("{} {}", rule.head, rule.name), both)
}

impl<'a> Labelled<'a> {
    fn new(snapshot: &'a Snapshot, shown: &'a ShownEntities<'a>, top: usize) -> Self {
        let service = ("service", snapshot.service.as_str());
        let heads = || snapshot.heads.iter();
        let policies = heads().flat_map(|head| head.policies.iter().map(move |of| (head, of)));
        let policies = policies.filter(|(_, policy)| policy.state != "stopped");
        let borrowed = |entity: &'a Entity| name_entity(service.1, entity);
        let rule = |of: Cow<'a, Rule>| Labels {
            labels: labels(&[service, ("head", &of.head), ("rule", &of.name)]),
            of,
        };
        let client = |of: Cow<'a, Client>| Labels {
            labels: labels(&[service, ("client", &of.name)]),
            of,
        };
        let group = |of: &'a Group| name(of, &[service, ("group", &of.name)]);
        let target = |of: &'a Target| name(of, &[service, ("target", &of.name)]);
        Self {
            service: name(snapshot, &[service]),
            heads: heads()
                .map(|head| name(head, &[service, ("head", &head.name)]))
                .collect(),
            policies: policies
                .map(|(head, of)| name(of, &[service, ("head", &head.name), ("policy", &of.name)]))
                .collect(),
            rules: rules(&snapshot.rules).into_iter().map(rule).collect(),
            groups: snapshot.groups.iter().map(group).collect(),
            clients: clients(&snapshot.clients, top)
                .into_iter()
                .map(client)
                .collect(),
            targets: snapshot.targets.iter().map(target).collect(),
            entities: shown.entities.iter().map(|of| borrowed(of)).collect(),
            others: shown.others.iter().map(borrowed).collect(),
            counted: shown.counted,
        }
    }
}

/// Subjects of the agent, with labels.
struct Agent<'a> {
    services: Vec<Labels<'a, ServiceStatus>>,
    peers: Vec<Labels<'a, PeerStatus>>,
}

impl<'a> Agent<'a> {
    fn new(status: Option<&'a Status>) -> Self {
        let all = || status.iter().flat_map(|status| &status.services);
        let peers = all().flat_map(|one| one.peers.iter().map(move |peer| (one, peer)));
        let peer = |(one, peer): (&'a ServiceStatus, &'a PeerStatus)| {
            name(peer, &[("service", &one.service), ("peer", &peer.server)])
        };
        Self {
            services: all()
                .map(|one| name(one, &[("service", &one.service)]))
                .collect(),
            peers: peers.map(peer).collect(),
        }
    }
}

/// Renders a page with at most `top` entities of each policy and head. `memory` holds the counts of
/// earlier pages; without it counters of the others are left out.
pub fn render(gathered: &Gathered, top: usize, memory: Option<&mut Memory>) -> String {
    let mut memory = memory;
    if let Some(memory) = memory.as_deref_mut() {
        memory.begin();
    }
    let snapshots = gathered.snapshots.iter();
    let shown: Vec<ShownEntities<'_>> = snapshots
        .map(|snapshot| others::choose(snapshot, top, memory.as_deref_mut()))
        .collect();
    // If reading failed, entries of services that could not be read are kept.
    if let (Some(memory), None) = (memory, &gathered.failure) {
        memory.end();
    }
    let services: Vec<Labelled<'_>> = gathered
        .snapshots
        .iter()
        .zip(&shown)
        .map(|(snapshot, shown)| Labelled::new(snapshot, shown, top))
        .collect();
    let agent = Agent::new(gathered.agent.as_ref());
    let mut out = String::with_capacity(1 << 16);
    for family in FAMILIES.iter() {
        let mut samples = Samples {
            out: &mut out,
            family,
            begun: false,
            labels: "",
        };
        write(family, gathered, &services, &agent, &mut samples);
    }
    out
}

/// Calls `tell` for each of `all`.
fn each<'a, T: Clone + 'a>(
    all: impl IntoIterator<Item = &'a Labels<'a, T>>,
    tell: fn(&T, &mut Samples<'_>),
    samples: &mut Samples<'a>,
) {
    for named in all {
        samples.labels = &named.labels;
        tell(&named.of, samples);
    }
}

/// Writes the samples of `family`.
fn write<'a>(
    family: &Family,
    gathered: &Gathered,
    services: &'a [Labelled<'a>],
    agent: &'a Agent<'a>,
    samples: &mut Samples<'a>,
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
        Of::Agent(tell) => each(&agent.services, tell, samples),
        Of::Peer(tell) => each(&agent.peers, tell, samples),
        Of::Entity(tell) => {
            let counter = family.kind == MetricKind::Counter;
            for service in services {
                each(&service.entities, tell, samples);
                if service.counted || !counter {
                    each(&service.others, tell, samples);
                }
            }
        }
    }
}
