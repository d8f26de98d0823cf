// SPDX-License-Identifier: GPL-2.0-only

//! Table of all metric families, from which pages and the reference are generated.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use nrs_agent::status::{PeerNumbers, ServiceNumbers};
use nrs_sched::policy::tbf::stats::RuleCounts;
use nrs_sched::policy::{self, tbf::class::ClassCounts};
use nrs_sched::qbm::manager::GroupCounts;
use nrs_sched::statistics::{
    ClientCounts, ConcurrencyCounts, DeadlineCounts, OrderCounts, ServiceCounts, Stat, StatKind,
    StatUnit, Stats, TargetCounts, TimeoutCounts,
};

use super::encode::{MetricKind, Number};
use super::family::{Family, FamilyRow, Of};
use super::others::crowds;
use crate::stats::{in_bytes, Client, Counters, Rule, Snapshot, POLICIES};

/// Creates a family without labels of its own.
fn family(kind: MetricKind, name: &'static str, help: &'static str, of: Of) -> Family {
    labelled(kind, name, &[], help, of)
}

/// Creates a family with the labels `more`.
fn labelled(
    kind: MetricKind,
    name: &'static str,
    more: &'static [&'static str],
    help: &'static str,
    of: Of,
) -> Family {
    Family {
        name,
        kind,
        help,
        more: more.to_vec(),
        rows: Vec::new(),
        of,
    }
}

/// Adds the families of `stats` to `all`, gauges first; `subject` replaces `*` in metric names.
fn add_rows(
    all: &mut Vec<Family>,
    (subject, policy, stats, of): (&str, &'static str, &'static [Stat], Of),
) {
    for (stat_kind, kind) in [(StatKind::Gauge, Gauge), (StatKind::Counter, Counter)] {
        let exported = |stat: &&Stat| stat.kind == stat_kind && !stat.metric.is_empty();
        for stat in stats.iter().filter(exported) {
            let name = stat.metric.replace('*', subject);
            let row = FamilyRow { stat, policy };
            match all.iter_mut().find(|family| family.name == name) {
                Some(family) => family.rows.push(row),
                None => all.push(Family {
                    more: stat.labels.iter().map(|(name, _)| *name).collect(),
                    rows: vec![row],
                    ..family(kind, name.leak(), "", of)
                }),
            }
        }
    }
}

/// Returns the help texts of `rows`, each followed by its labels or policies, if it has any.
fn help(rows: &[FamilyRow]) -> String {
    let alike = rows.chunk_by(|a, b| a.stat.help == b.stat.help);
    let parts = alike.map(|alike| {
        let about = |row: &FamilyRow| row.stat.labels.first().map_or(row.policy, |label| label.1);
        let about: Vec<&str> = alike.iter().map(about).collect();
        match about.join(", ") {
            about if about.is_empty() => alike[0].stat.help.into(),
            about => format!("{} ({about})", alike[0].stat.help),
        }
    });
    parts.collect::<Vec<String>>().join("; ")
}

/// Subject with one sample per row, from a map of counters by name.
macro_rules! mapped {
    ($of:ident, $map:ident) => {
        Of::$of(|of, samples| samples.rows(|row| of.$map.get(row.stat.name).copied()))
    };
}

/// Returns the value of `row` for a rule or an entity with these counters; costs become bytes.
fn number(row: &FamilyRow, counters: &Counters, unit: &str) -> Option<u64> {
    let number = counters.get(row.stat.key()).copied().unwrap_or(0);
    match row.stat.unit {
        StatUnit::Cost => in_bytes(unit, number),
        _ => Some(number),
    }
}

/// Subject with one sample, a counter of a group, if the group has it.
macro_rules! counter {
    ($name:literal) => {
        Of::Group(|group, samples| samples.maybe(group.counters.get($name).copied()))
    };
}

/// Subject with one sample, a field.
macro_rules! field {
    ($of:ident, $field:ident) => {
        Of::$of(|of, samples| samples.one(of.$field))
    };
}

use MetricKind::{Counter, Gauge, Summary};

/// Returns the number of names of clients of `service` that satisfy `such`. A device with several
/// targets is several clients with one name.
fn names(service: &Snapshot, such: impl Fn(&Client) -> bool) -> u64 {
    let such = service.clients.iter().filter(|client| such(client));
    let names: BTreeSet<&str> = such.map(|client| client.name.as_str()).collect();
    names.len() as u64
}

/// All families, grouped by subject; families of `declared` precede families of rows.
pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut all = Vec::from(declared());
    tables()
        .into_iter()
        .for_each(|table| add_rows(&mut all, table));
    for family in all.iter_mut().filter(|family| !family.rows.is_empty()) {
        family.help = help(&family.rows).leak();
    }
    all.sort_by_key(|family| family.of.rank());
    all
});

/// Returns the tables of statistics: replacement of `*` in metric names, policy of the entities,
/// rows, and subject.
fn tables() -> Vec<(&'static str, &'static str, &'static [Stat], Of)> {
    let of_rule = Of::Rule(|rule, samples| {
        samples.rows(|row| number(row, &rule.counters, &rule.unit));
    });
    let of_entity = Of::Entity(|entity, samples| {
        samples.rows(|row| match row.policy == entity.policy {
            true => number(row, &entity.counters, &entity.unit),
            false => None,
        });
    });
    let mut all = vec![
        ("", "", ServiceCounts::ROWS, mapped!(Service, counters)),
        ("", "", TimeoutCounts::ROWS, mapped!(Service, timeouts)),
        (
            "",
            "",
            ConcurrencyCounts::ROWS,
            mapped!(Service, concurrency),
        ),
        ("", "", OrderCounts::ROWS, mapped!(Service, concurrency)),
        ("rule", "", RuleCounts::ROWS, of_rule),
        ("rule", "", ClassCounts::ROWS, of_rule),
        ("", "", ClientCounts::ROWS, mapped!(Client, counters)),
        ("", "", DeadlineCounts::ROWS, mapped!(Client, counters)),
        ("", "", TargetCounts::ROWS, mapped!(Target, counters)),
        ("", "", GroupCounts::ROWS, mapped!(Group, counters)),
    ];
    let of_policy = Of::Policy(|policy, samples| {
        samples.rows(|row| match row.policy == policy.name {
            true => policy.counters.get(row.stat.name).copied(),
            false => None,
        });
    });
    let of_peer = Of::Peer(|peer, samples| {
        let heard = peer.numbers.datagrams > 0;
        let numbers = &peer.numbers;
        samples.rows(|row| {
            numbers
                .get(row.stat.name)
                .filter(|_| heard || row.stat.name != "age_us")
        });
    });
    let of_agent = Of::Agent(|agent, samples| samples.rows(|row| agent.numbers.get(row.stat.name)));
    all.push(("", "", ServiceNumbers::ROWS, of_agent));
    all.push(("", "", PeerNumbers::ROWS, of_peer));
    let kinds = policy::Kind::ALL.iter();
    all.extend(kinds.map(|kind| ("", kind.name(), kind.counts(), of_policy)));
    all.extend(POLICIES.map(|(policy, stats)| ("entity", policy, stats, of_entity)));
    all
}

/// Returns the families that are not generated from rows.
#[rustfmt::skip]
fn declared() -> [Family; 31] {
    [
        family(Gauge, "nrs_up",
            "1 if all requested services were read", Of::Exporter(|page, samples| {
            samples.one(page.failure.is_none());
        })),
        family(Gauge, "nrs_scrape_duration_seconds",
            "Time to read the statistics of all services", Of::Exporter(|page, samples| {
            samples.one(page.seconds);
        })),
        labelled(Gauge, "nrs_exporter_info", &["version"],
            "Exporter; always 1", Of::Exporter(|_, samples| {
            samples.more(&[("version", env!("CARGO_PKG_VERSION"))], true);
        })),
        // Services.
        family(Gauge, "nrs_service_healthy",
            "1 if the service makes progress or is idle", Of::Service(|service, samples| {
            samples.one(service.unhealthy.is_none());
        })),
        family(Gauge, "nrs_service_clients",
            "Clients of the service", Of::Service(|service, samples| {
            samples.one(names(service, |_| true));
        })),
        family(Gauge, "nrs_service_clients_lost",
            "Lost clients; the device completed no request within the timeout",
            Of::Service(|service, samples| {
            samples.one(names(service, |client| client.lost));
        })),
        labelled(Gauge, "nrs_service_entities", &["head", "policy"],
            "All entities of the policy", Of::Service(|service, samples| {
            for crowd in crowds(&service.entities) {
                let labels = [("head", &*crowd[0].head), ("policy", &crowd[0].policy)];
                samples.more(&labels, crowd.len() as u64);
            }
        })),
        // Heads and policies.
        family(Gauge, "nrs_head_queued_requests", "Queued requests", Of::Head(|head, samples| {
            samples.one(head.policies.iter().map(|policy| policy.queued).sum::<u64>());
        })),
        family(Gauge, "nrs_head_active_requests", "Requests in flight", Of::Head(|head, samples| {
            samples.one(head.policies.iter().map(|policy| policy.active).sum::<u64>());
        })),
        labelled(Gauge, "nrs_policy_info", &["argument", "state", "fallback"],
            "Running policy; always 1", Of::Policy(|policy, samples| {
            let argument = policy.argument.as_deref().unwrap_or_default();
            let fallback = if policy.fallback { "yes" } else { "no" };
            let labels = [("argument", argument), ("state", &policy.state), ("fallback", fallback)];
            samples.more(&labels, true);
        })),
        family(Gauge, "nrs_policy_queued_requests", "Queued requests", field!(Policy, queued)),
        family(Gauge, "nrs_policy_active_requests", "Requests in flight", field!(Policy, active)),
        // Rules.
        family(Gauge, "nrs_rule_limit_bytes_per_second",
            "Limit of each class, for rules in bytes or pages", Of::Rule(|rule, samples| {
            samples.maybe(limit(rule, true));
        })),
        family(Gauge, "nrs_rule_limit_requests_per_second",
            "Limit of each class, for rules in requests", Of::Rule(|rule, samples| {
            samples.maybe(limit(rule, false));
        })),
        // Groups.
        family(Gauge, "nrs_group_capacity_bytes_per_second",
            "Capacity of the group", counter!("capacity")),
        family(Gauge, "nrs_group_free_bytes_per_second", "Free capacity", counter!("free")),
        family(Gauge, "nrs_group_oversubscribed_bytes_per_second",
            "Allocations beyond the capacity", counter!("oversubscribed")),
        labelled(Gauge, "nrs_group_reserve_bytes_per_second", &["class"],
            "Remaining reserve of the class", Of::Group(|group, samples| {
            for (name, value) in &group.counters {
                if let Some(class) = name.strip_prefix("reserve_") {
                    samples.more(&[("class", class)], *value);
                }
            }
        })),
        family(Gauge, "nrs_group_clients", "Registered clients", counter!("registered")),
        // Clients.
        family(Gauge, "nrs_client_lost", "1 if the client is lost", field!(Client, lost)),
        // Entities.
        family(Gauge, "nrs_entity_weight_ratio",
            "Weight (fairshare)", Of::Entity(|entity, samples| samples.maybe(entity.weight))),
        family(Gauge, "nrs_entity_factor_ratio",
            "Factor in the weight, set by an agent (fairshare)",
            Of::Entity(|entity, samples| samples.maybe(entity.factor))),
        family(Gauge, "nrs_entity_share_wanted_ratio",
            "Target share of the head (fairshare)",
            Of::Entity(|entity, samples| samples.maybe(entity.share_wanted))),
        labelled(Gauge, "nrs_entity_share_ratio", &["window"],
            "Share of the head in the last second or minute (fairshare)",
            Of::Entity(|entity, samples| {
            for (window, share) in [("1s", entity.share_1s), ("60s", entity.share_60s)] {
                if let Some(share) = share {
                    samples.more(&[("window", window)], share);
                }
            }
        })),
        family(Gauge, "nrs_entity_queued_requests",
            "Queued requests (not qbm)", Of::Entity(|entity, samples| {
            if entity.policy != "qbm" {
                samples.one(entity.queued);
            }
        })),
        family(Gauge, "nrs_entity_active_requests",
            "Requests in flight (tbf)", Of::Entity(|entity, samples| {
            if entity.policy == "tbf" {
                samples.one(entity.active);
            }
        })),
        labelled(Summary, "nrs_entity_wait_seconds", &["quantile"],
            "Queueing time; quantile 1 is the longest (fairshare)", Of::Entity(|entity, samples| {
            for (key, quantile) in [("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99"), ("max", "1")] {
                if let Some(us) = entity.wait_us.get(key) {
                    samples.more(&[("quantile", quantile)], Number::of(StatUnit::Us, *us));
                }
            }
        })),
        labelled(Gauge, "nrs_entity_promised_bytes_per_second", &["bound"],
            "Guaranteed (min) and maximum (max) bandwidth (qbm)", Of::Entity(|entity, samples| {
            if let Some(given) = &entity.bandwidth {
                samples.more(&[("bound", "min")], given.min);
                samples.more(&[("bound", "max")], given.max);
            }
        })),
        family(Gauge, "nrs_entity_allocated_bytes_per_second",
            "Current allocation (qbm)", Of::Entity(|entity, samples| {
            samples.maybe(entity.bandwidth.as_ref().and_then(|given| given.allocated));
        })),
        family(Gauge, "nrs_entity_used_bytes_per_second",
            "Recent use (qbm)", Of::Entity(|entity, samples| {
            samples.maybe(entity.bandwidth.as_ref().map(|given| given.used_fast));
        })),
        // The agent.
        labelled(Gauge, "nrs_agent_info", &["group"],
            "Service of the agent and its sharing group; always 1", Of::Agent(|agent, samples| {
            samples.more(&[("group", &agent.group)], true);
        })),
    ]
}

/// Returns the limit of a rule if its unit is bytes (`of_bytes`) or requests (not `of_bytes`).
fn limit(rule: &Rule, of_bytes: bool) -> Option<u64> {
    let (limit, bytes) = rule.limit()?;
    (bytes == of_bytes).then_some(limit)
}
