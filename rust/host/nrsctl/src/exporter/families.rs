// SPDX-License-Identifier: GPL-2.0-only

//! Table of all metric families, from which pages and the reference are generated.
//!
//! A family needs no code: it consists of rows of statistics, whose numbers have paths in the data
//! of the subjects ([`page`](super::page)).

use std::sync::LazyLock;

use nrs_agent::status::{PeerNumbers, ServiceNumbers};
use nrs_sched::policy::tbf::stats::RuleCounts;
use nrs_sched::policy::{self, tbf::class::ClassCounts};
use nrs_sched::qbm::manager::GroupCounts;
use nrs_sched::statistics::{
    ClientCounts, ConcurrencyCounts, DeadlineCounts, OrderCounts, ServiceCounts, Stat, StatKind,
    StatUnit, Stats, TargetCounts, TimeoutCounts,
};

use super::encode::MetricKind::{Counter, Gauge, Summary};
use super::family::{Family, FamilyRow, Of};
use crate::stats::POLICIES;

/// Table of statistics: kind of the subjects, path of the numbers before their names, policy of the
/// subjects that have the rows (empty: all have them), and rows.
type FamilyTable = (Of, &'static str, &'static str, &'static [Stat]);

/// All families, grouped by subject; families of [`DECLARED`] precede families of other tables.
pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut all: Vec<Family> = Vec::new();
    for (of, policy, stats) in DECLARED {
        add_rows(&mut all, (of, "", policy, stats), |stat| stat.help);
    }
    for table in tables() {
        add_rows(&mut all, table, |_| "");
    }
    for family in all.iter_mut().filter(|family| family.help.is_empty()) {
        family.help = help(&family.rows);
    }
    all.sort_by_key(|family| family.of);
    all
});

/// Adds the families of a table to `all`, gauges first, with the help texts that `help` returns.
fn add_rows(
    all: &mut Vec<Family>,
    (of, path, policy, stats): FamilyTable,
    help: fn(&Stat) -> &'static str,
) {
    let subject = match of {
        Of::Rule => "rule",
        _ => "entity",
    };
    for (stat_kind, kind) in [
        (StatKind::Gauge, Gauge),
        (StatKind::Maximum, Gauge),
        (StatKind::Counter, Counter),
    ] {
        let exported = |stat: &&Stat| stat.kind == stat_kind && !stat.metric.is_empty();
        for stat in stats.iter().filter(exported) {
            let name = stat.metric.replace('*', subject);
            let keys = [path, stat.key()]
                .into_iter()
                .flat_map(|keys| keys.split('/'));
            let path = keys.filter(|key| !key.is_empty()).collect();
            let row = FamilyRow { stat, path, policy };
            match all.iter_mut().find(|family| family.name == name) {
                Some(family) => family.rows.push(row),
                None => all.push(Family {
                    name: name.leak(),
                    kind: match stat.labels {
                        [("quantile", _)] => Summary,
                        _ => kind,
                    },
                    help: help(stat).into(),
                    rows: vec![row],
                    of,
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

/// Returns the tables of the module and of the agent.
fn tables() -> Vec<FamilyTable> {
    let mut all = vec![
        (Of::Service, "counters/", "", ServiceCounts::ROWS),
        (Of::Service, "timeouts/", "", TimeoutCounts::ROWS),
        (Of::Service, "concurrency/", "", ConcurrencyCounts::ROWS),
        (Of::Service, "concurrency/", "", OrderCounts::ROWS),
        (Of::Rule, "counters/", "", RuleCounts::ROWS),
        (Of::Rule, "counters/", "", ClassCounts::ROWS),
        (Of::Client, "counters/", "", ClientCounts::ROWS),
        (Of::Client, "counters/", "", DeadlineCounts::ROWS),
        (Of::Target, "counters/", "", TargetCounts::ROWS),
        (Of::Group, "counters/", "", GroupCounts::ROWS),
        (Of::Agent, "", "", ServiceNumbers::ROWS),
        (Of::Peer, "", "", PeerNumbers::ROWS),
    ];
    let kinds = policy::Kind::ALL.iter();
    all.extend(kinds.map(|kind| (Of::Policy, "", kind.name(), kind.counts())));
    all.extend(POLICIES.map(|(policy, stats)| (Of::Entity, "", policy, stats)));
    all
}

/// Creates a row of the gauge `metric`, the number at `name`.
const fn gauge(name: &'static str, metric: &'static str, help: &'static str) -> Stat {
    labelled(name, metric, &[], help)
}

/// Creates a row of the gauge `metric` with `labels`.
const fn labelled(
    name: &'static str,
    metric: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Stat {
    Stat {
        name,
        kind: StatKind::Gauge,
        unit: StatUnit::Plain,
        metric,
        labels,
        help,
    }
}

/// Creates the row of a percentile of the queueing time.
const fn wait(name: &'static str, quantile: &'static [(&'static str, &'static str)]) -> Stat {
    let help = "Queueing time; quantile 1 is the longest (fairshare)";
    Stat {
        unit: StatUnit::Us,
        ..labelled(name, "nrs_entity_wait_seconds", quantile, help)
    }
}

/// Creates the row of the remaining reserve of a class.
const fn reserve(name: &'static str, class: &'static [(&'static str, &'static str)]) -> Stat {
    let help = "Remaining reserve of the class";
    labelled(name, "nrs_group_reserve_bytes_per_second", class, help)
}

/// Rows besides the tables of the module and of the agent, with their subjects and policies.
#[rustfmt::skip]
static DECLARED: [(Of, &str, &[Stat]); 12] = [
    (Of::Exporter, "", &[
        gauge("up", "nrs_up", "1 if all requested services were read"),
        gauge("seconds", "nrs_scrape_duration_seconds",
            "Time to read the statistics of all services"),
        labelled("", "nrs_exporter_info", &[("version", "/version")], "Exporter; always 1"),
    ]),
    (Of::Service, "", &[
        gauge("healthy", "nrs_service_healthy", "1 if the service makes progress or is idle"),
        gauge("clients", "nrs_service_clients", "Clients of the service"),
        gauge("lost", "nrs_service_clients_lost",
            "Lost clients; the device completed no request within the timeout"),
        labelled("entities", "nrs_service_entities", &[("head", "/head"), ("policy", "/policy")],
            "All entities of the policy"),
    ]),
    (Of::Head, "", &[
        gauge("queued", "nrs_head_queued_requests", "Queued requests"),
        gauge("active", "nrs_head_active_requests", "Requests in flight"),
    ]),
    (Of::Policy, "", &[
        labelled("", "nrs_policy_info",
            &[("argument", "/argument"), ("state", "/state"), ("fallback", "/fallback")],
            "Running policy; always 1"),
        gauge("queued", "nrs_policy_queued_requests", "Queued requests"),
        gauge("active", "nrs_policy_active_requests", "Requests in flight"),
    ]),
    (Of::Rule, "", &[
        gauge("limit/bytes", "nrs_rule_limit_bytes_per_second",
            "Limit of each class, for rules in bytes or pages"),
        gauge("limit/requests", "nrs_rule_limit_requests_per_second",
            "Limit of each class, for rules in requests"),
    ]),
    (Of::Group, "", &[
        gauge("counters/capacity", "nrs_group_capacity_bytes_per_second", "Capacity of the group"),
        gauge("counters/free", "nrs_group_free_bytes_per_second", "Free capacity"),
        gauge("counters/oversubscribed", "nrs_group_oversubscribed_bytes_per_second",
            "Allocations beyond the capacity"),
        reserve("counters/reserve_fair_share", &[("class", "fair_share")]),
        reserve("counters/reserve_first_come", &[("class", "first_come")]),
        reserve("counters/reserve_low_share", &[("class", "low_share")]),
        reserve("counters/reserve_mover", &[("class", "mover")]),
        gauge("counters/registered", "nrs_group_clients", "Registered clients"),
    ]),
    (Of::Client, "", &[gauge("lost", "nrs_client_lost", "1 if the client is lost")]),
    (Of::Entity, "", &[
        gauge("weight", "nrs_entity_weight_ratio", "Weight (fairshare)"),
        gauge("factor", "nrs_entity_factor_ratio",
            "Factor in the weight, set by an agent (fairshare)"),
        gauge("share_wanted", "nrs_entity_share_wanted_ratio",
            "Target share of the head (fairshare)"),
        labelled("share_1s", "nrs_entity_share_ratio", &[("window", "1s")],
            "Share of the head in the last second or minute (fairshare)"),
        labelled("share_60s", "nrs_entity_share_ratio", &[("window", "60s")], ""),
    ]),
    (Of::Entity, "tbf", &[
        gauge("queued", "nrs_entity_queued_requests", "Queued requests (not qbm)"),
        gauge("active", "nrs_entity_active_requests", "Requests in flight (tbf)"),
    ]),
    (Of::Entity, "fairshare", &[gauge("queued", "nrs_entity_queued_requests", "")]),
    (Of::Entity, "", &[
        wait("wait_us/p50", &[("quantile", "0.5")]),
        wait("wait_us/p90", &[("quantile", "0.9")]),
        wait("wait_us/p99", &[("quantile", "0.99")]),
        wait("wait_us/max", &[("quantile", "1")]),
        labelled("bandwidth/min", "nrs_entity_promised_bytes_per_second", &[("bound", "min")],
            "Guaranteed (min) and maximum (max) bandwidth (qbm)"),
        labelled("bandwidth/max", "nrs_entity_promised_bytes_per_second", &[("bound", "max")], ""),
        gauge("bandwidth/allocated", "nrs_entity_allocated_bytes_per_second",
            "Current allocation (qbm)"),
        gauge("bandwidth/used_fast", "nrs_entity_used_bytes_per_second", "Recent use (qbm)"),
    ]),
    (Of::Agent, "", &[
        labelled("", "nrs_agent_info", &[("group", "/group")],
            "Service of the agent and its sharing group; always 1"),
    ]),
];
