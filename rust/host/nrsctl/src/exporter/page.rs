// SPDX-License-Identifier: GPL-2.0-only

//! Page of metrics: the text of snapshots and of the agent's status.

use std::borrow::Cow;

use super::encode::{label, MetricKind};
use super::families::FAMILIES;
use super::family::{Gathered, Samples, Subject};
use super::others::{self, unite, Memory, ShownEntities};
use crate::stats::{merge, Client, Rule};

/// Subject of samples with its labels, formatted once for all families.
struct Labelled<'a> {
    labels: String,
    of: Subject<'a>,
    /// True if counters are shown.
    counted: bool,
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

/// Returns all subjects: those of each service, then those of the agent.
fn subjects<'a>(
    gathered: &'a Gathered,
    shown: &'a [ShownEntities<'a>],
    top: usize,
) -> Vec<Labelled<'a>> {
    let mut all = Vec::new();
    let mut add = |counted, of: Subject<'a>, values: &[&str]| {
        let mut labels = String::new();
        for (name, value) in of.labels().iter().zip(values) {
            label(&mut labels, name, value);
        }
        let labelled = Labelled {
            labels,
            of,
            counted,
        };
        all.push(labelled);
    };
    add(true, gathered.into(), &[]);
    for (snapshot, shown) in gathered.snapshots.iter().zip(shown) {
        let service = &*snapshot.service;
        add(true, snapshot.into(), &[service]);
        for head in &snapshot.heads {
            add(true, head.into(), &[service, &head.name]);
            let policies = head.policies.iter();
            for policy in policies.filter(|policy| policy.state != "stopped") {
                add(true, policy.into(), &[service, &head.name, &policy.name]);
            }
        }
        for rule in rules(&snapshot.rules) {
            let (head, name) = (rule.head.clone(), rule.name.clone());
            add(true, Subject::Rule(rule), &[service, &head, &name]);
        }
        for group in &snapshot.groups {
            add(true, group.into(), &[service, &group.name]);
        }
        for client in clients(&snapshot.clients, top) {
            let name = client.name.clone();
            add(true, Subject::Client(client), &[service, &name]);
        }
        for target in &snapshot.targets {
            add(true, target.into(), &[service, &target.name]);
        }
        let own = shown.entities.iter().map(|entity| (true, &**entity));
        let others = shown.others.iter().map(|entity| (shown.counted, entity));
        for (counted, entity) in own.chain(others) {
            let within = entity.within.as_deref().unwrap_or_default();
            let (rule, group) = match entity.policy.as_str() {
                "tbf" => (within, ""),
                _ => ("", within),
            };
            let (head, policy, name) = (&entity.head, &entity.policy, &entity.name);
            let values: [&str; 6] = [service, head, policy, rule, group, name];
            add(counted, entity.into(), &values);
        }
    }
    for one in gathered.agent.iter().flat_map(|status| &status.services) {
        add(true, one.into(), &[&one.service]);
        for peer in &one.peers {
            add(true, peer.into(), &[&one.service, &peer.server]);
        }
    }
    all
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
    let subjects = subjects(gathered, &shown, top);
    let mut out = String::with_capacity(1 << 16);
    for family in FAMILIES.iter() {
        let mut samples = Samples {
            out: &mut out,
            family,
            begun: false,
            labels: "",
        };
        let is_counter = family.kind == MetricKind::Counter;
        for one in subjects.iter().filter(|one| one.counted || !is_counter) {
            samples.labels = &one.labels;
            family.of.add_samples(&one.of, &mut samples);
        }
    }
    out
}
