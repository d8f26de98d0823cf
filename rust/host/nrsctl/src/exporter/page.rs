// SPDX-License-Identifier: GPL-2.0-only

//! Page of metrics: the text of snapshots and of the agent's status.

use std::borrow::Cow;
use std::collections::BTreeSet;

use nrs_agent::status::PeerStatus;
use serde::Serialize;
use serde_json::{json, Value};

use super::encode::label;
use super::families::FAMILIES;
use super::family::{Gathered, Of, Subject};
use super::others::{self, crowds, unite, Memory, ShownEntities};
use crate::stats::{merge, Client, Rule, Snapshot};

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

/// Returns the data of a service; its numbers of clients are numbers of names, because a device
/// with several targets is several clients with one name.
fn of_service(service: &Snapshot) -> Value {
    let names = |such: fn(&&Client) -> bool| {
        let such = service.clients.iter().filter(such);
        such.map(|client| &client.name[..])
            .collect::<BTreeSet<_>>()
            .len()
    };
    json!({
        "healthy": service.unhealthy.is_none(),
        "clients": names(|_| true),
        "lost": names(|client| client.lost),
        "counters": service.counters,
        "timeouts": service.timeouts,
        "concurrency": service.concurrency,
    })
}

/// Returns the data of a rule; its limit is in bytes or in requests.
fn of_rule(rule: &Rule) -> Value {
    let limit = rule.limit().map(|(limit, bytes)| match bytes {
        true => json!({ "bytes": limit }),
        false => json!({ "requests": limit }),
    });
    json!({ "counters": rule.counters, "unit": rule.unit, "limit": limit })
}

/// Returns the data of another server; the age of its last datagram is known if there is one.
fn of_peer(peer: &PeerStatus) -> Value {
    let mut data = of(peer);
    if peer.numbers.datagrams == 0 {
        data["age_us"] = Value::Null;
    }
    data
}

/// Returns the data of a subject without derived numbers.
fn of(subject: &impl Serialize) -> Value {
    serde_json::to_value(subject).unwrap_or_default()
}

/// Returns all subjects: those of each service, then those of the agent.
fn subjects(gathered: &Gathered, shown: &[ShownEntities<'_>], top: usize) -> Vec<Subject> {
    let mut all = Vec::new();
    let mut add = |of: Of, values: &[&str], data| {
        let mut labels = String::new();
        for (name, value) in of.labels().iter().zip(values) {
            label(&mut labels, name, value);
        }
        all.push(Subject {
            of,
            data,
            labels,
            policy: match of {
                Of::Policy | Of::Entity => values[2].into(),
                _ => String::new(),
            },
        });
    };
    let exporter = json!({
        "up": gathered.failure.is_none(),
        "seconds": gathered.seconds,
        "version": env!("CARGO_PKG_VERSION"),
    });
    add(Of::Exporter, &[], exporter);
    for (snapshot, shown) in gathered.snapshots.iter().zip(shown) {
        let service = &*snapshot.service;
        add(Of::Service, &[service], of_service(snapshot));
        for crowd in crowds(&snapshot.entities) {
            let (head, policy, entities) = (&crowd[0].head, &crowd[0].policy, crowd.len());
            let data = json!({ "head": head, "policy": policy, "entities": entities });
            add(Of::Service, &[service], data);
        }
        for head in &snapshot.heads {
            let policies = head.policies.iter();
            let queued: u64 = policies.clone().map(|policy| policy.queued).sum();
            let active: u64 = policies.clone().map(|policy| policy.active).sum();
            let data = json!({ "queued": queued, "active": active });
            add(Of::Head, &[service, &head.name], data);
            for policy in policies.filter(|policy| policy.state != "stopped") {
                let values = [service, &head.name, &policy.name];
                add(Of::Policy, &values, of(policy));
            }
        }
        for rule in rules(&snapshot.rules) {
            add(Of::Rule, &[service, &rule.head, &rule.name], of_rule(&rule));
        }
        for group in &snapshot.groups {
            add(Of::Group, &[service, &group.name], of(group));
        }
        for client in clients(&snapshot.clients, top) {
            add(Of::Client, &[service, &client.name], of(&client));
        }
        for target in &snapshot.targets {
            add(Of::Target, &[service, &target.name], of(target));
        }
        let entities = shown.entities.iter().map(|entity| &**entity);
        for entity in entities.chain(&shown.others) {
            let within = entity.within.as_deref().unwrap_or_default();
            let (rule, group) = match entity.policy.as_str() {
                "tbf" => (within, ""),
                _ => ("", within),
            };
            let (head, policy, name) = (&entity.head, &entity.policy, &entity.name);
            let values: [&str; 6] = [service, head, policy, rule, group, name];
            add(Of::Entity, &values, of(entity));
        }
    }
    for one in gathered.agent.iter().flat_map(|status| &status.services) {
        add(Of::Agent, &[&one.service], of(one));
        for peer in &one.peers {
            add(Of::Peer, &[&one.service, &peer.server], of_peer(peer));
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
        let mut is_begun = false;
        for subject in subjects.iter().filter(|one| one.of == family.of) {
            family.write(subject, &mut out, &mut is_begun);
        }
    }
    out
}
