// SPDX-License-Identifier: GPL-2.0-only

//! All families of metrics: the table that pages and their description are made from.

use std::collections::BTreeSet;

use super::encode::{Kind, Number};
use super::page::{Gathered, Samples};
use crate::stats::{Client, Entity, Group, Head, Policy, Rate, Rule, Snapshot, Target};

/// What a family tells about, and how it does.
#[derive(Clone, Copy)]
pub enum Of {
    /// The exporter itself.
    Exporter(fn(&Gathered, &mut Samples<'_>)),
    /// A service.
    Service(fn(&Snapshot, &mut Samples<'_>)),
    /// A head of a service.
    Head(fn(&Head, &mut Samples<'_>)),
    /// A policy of a head that is not stopped.
    Policy(fn(&Policy, &mut Samples<'_>)),
    /// A rule of tbf that has classes.
    Rule(fn(&Rule, &mut Samples<'_>)),
    /// A group of qbm.
    Group(fn(&Group, &mut Samples<'_>)),
    /// A client.
    Client(fn(&Client, &mut Samples<'_>)),
    /// A device below.
    Target(fn(&Target, &mut Samples<'_>)),
    /// An entity.
    Entity(fn(&Entity, &mut Samples<'_>)),
}

impl Of {
    /// What it is about, as a title.
    pub const fn title(&self) -> &'static str {
        match self {
            Self::Exporter(_) => "The exporter",
            Self::Service(_) => "Services",
            Self::Head(_) => "Heads",
            Self::Policy(_) => "Policies",
            Self::Rule(_) => "Rules of tbf",
            Self::Group(_) => "Groups of qbm",
            Self::Client(_) => "Clients",
            Self::Target(_) => "Devices below",
            Self::Entity(_) => "Entities",
        }
    }

    /// The labels that all samples about it have.
    pub const fn labels(&self) -> &'static [&'static str] {
        match self {
            Self::Exporter(_) => &[],
            Self::Service(_) => &["service"],
            Self::Head(_) => &["service", "head"],
            Self::Policy(_) => &["service", "head", "policy"],
            Self::Rule(_) => &["service", "head", "rule"],
            Self::Group(_) => &["service", "group"],
            Self::Client(_) => &["service", "client"],
            Self::Target(_) => &["service", "target"],
            Self::Entity(_) => &["service", "head", "policy", "rule", "group", "entity"],
        }
    }
}

/// A family.
pub struct Family {
    /// The name of its samples.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// What it is, in one sentence without a full stop at its end.
    pub help: &'static str,
    /// Labels that its samples have beyond those of what it tells about.
    pub more: &'static [&'static str],
    /// What it tells about.
    pub of: Of,
}

/// A family without labels of its own.
const fn family(kind: Kind, name: &'static str, help: &'static str, of: Of) -> Family {
    labelled(kind, name, &[], help, of)
}

/// A family with labels of its own.
const fn labelled(
    kind: Kind,
    name: &'static str,
    more: &'static [&'static str],
    help: &'static str,
    of: Of,
) -> Family {
    Family {
        name,
        kind,
        help,
        more,
        of,
    }
}

/// One of the numbers that a map keeps by name, if it is there.
macro_rules! counter {
    ($of:ident, $map:ident, $name:literal) => {
        Of::$of(|of, samples| samples.maybe(of.$map.get($name).copied()))
    };
}

/// One of the fields.
macro_rules! field {
    ($of:ident, $field:ident) => {
        Of::$of(|of, samples| samples.one(of.$field))
    };
}

use Kind::{Counter, Gauge, Summary};

/// How many clients of `service` are such; a device with several targets is several of one name.
fn names(service: &Snapshot, such: impl Fn(&Client) -> bool) -> u64 {
    let such = service.clients.iter().filter(|client| such(client));
    let names: BTreeSet<&str> = such.map(|client| client.name.as_str()).collect();
    names.len() as u64
}

/// All families, in the order in which pages have them.
pub static FAMILIES: [Family; 86] = [
    family(Gauge, "nrs_up", "Whether all that was asked for could be read", Of::Exporter(|page, samples| {
        samples.one(page.failure.is_none());
    })),
    family(Gauge, "nrs_scrape_duration_seconds", "How long it took to read what the module shows", Of::Exporter(|page, samples| {
        samples.one(page.seconds);
    })),
    labelled(Gauge, "nrs_exporter_info", &["version"], "The exporter; always 1", Of::Exporter(|_, samples| {
        samples.info(&[("version", env!("CARGO_PKG_VERSION"))]);
    })),
    // Services.
    family(Gauge, "nrs_service_slots", "Requests that may be in service, as set", field!(Service, slots)),
    family(Gauge, "nrs_service_slots_limit", "Requests that may be in service now; less than set while the devices below take less", field!(Service, limit)),
    family(Gauge, "nrs_service_slots_used", "Slots that are in use", field!(Service, active)),
    family(Gauge, "nrs_service_healthy", "Whether the service makes progress or has nothing to do", Of::Service(|service, samples| {
        samples.one(service.unhealthy.is_none());
    })),
    family(Gauge, "nrs_service_clients", "Clients of the service", Of::Service(|service, samples| {
        samples.one(names(service, |_| true));
    })),
    family(Gauge, "nrs_service_clients_lost", "Clients that are lost: its device gave no sign of life for the timeout, and nothing has ended since", Of::Service(|service, samples| {
        samples.one(names(service, |client| client.lost));
    })),
    labelled(Gauge, "nrs_service_entities", &["head", "policy"], "Entities that the policy tells apart, shown one by one or not", Of::Service(entities)),
    family(Counter, "nrs_service_overflow_requests_total", "Requests that found no class of their own, because classes_max was reached", field!(Service, overflow)),
    family(Counter, "nrs_service_allocation_failures_total", "How often memory for new classes was not to be had", field!(Service, no_memory)),
    family(Counter, "nrs_service_stalls_total", "How often nothing was decided for stall_ms, so that requests were sent down without slots", field!(Service, stalls)),
    family(Counter, "nrs_timeout_requests_total", "Requests whose deadline passed, and those that were in flight when a client was lost", counter!(Service, timeouts, "timeouts")),
    labelled(Counter, "nrs_timeout_early_replies_total", &["result"], "Deadlines that were moved in time (sent), not moved as it would not have helped (refused), moved after they passed (late)", Of::Service(|service, samples| {
        samples.each("result", &service.timeouts, &[("early_sent", "sent"), ("early_refused", "refused"), ("early_late", "late")], u64::into);
    })),
    family(Counter, "nrs_timeout_clients_lost_total", "Times that a client was lost", counter!(Service, timeouts, "lost")),
    family(Counter, "nrs_timeout_clients_found_total", "Times that a lost client was found again", counter!(Service, timeouts, "found")),
    family(Counter, "nrs_timeout_withheld_seconds_total", "Time for which policies kept requests on purpose, which is no part of service times", Of::Service(|service, samples| {
        samples.maybe(service.timeouts.get("withheld_ms").copied().map(Number::Milliseconds));
    })),
    family(Gauge, "nrs_concurrency_clients", "Clients that have requests queued or in service", counter!(Service, concurrency, "fan_out")),
    labelled(Gauge, "nrs_concurrency_credits", &["priority"], "Requests that a client is told to have in the service at most, normally and if it is urgent", Of::Service(|service, samples| {
        samples.each("priority", &service.concurrency, &[("credits", "normal"), ("credits_high", "urgent")], u64::into);
    })),
    family(Gauge, "nrs_concurrency_pool_requests", "Requests that are shared out as credits", counter!(Service, concurrency, "pool")),
    family(Gauge, "nrs_buffer_limit_requests", "Requests of programs that may be in the service, buffer_max", counter!(Service, concurrency, "buffer_max")),
    family(Gauge, "nrs_buffer_requests", "Requests of programs that are in the service", counter!(Service, concurrency, "requests")),
    family(Counter, "nrs_buffer_waits_total", "Requests of programs that found no room at first", counter!(Service, concurrency, "waits")),
    family(Counter, "nrs_buffer_over_total", "Requests of programs beyond what their clients were told", counter!(Service, concurrency, "over")),
    family(Gauge, "nrs_order_records", "Requests of which the service keeps records for their order or their policy", counter!(Service, concurrency, "records")),
    family(Gauge, "nrs_order_blocked_requests", "Requests that wait for the end of earlier ones", counter!(Service, concurrency, "blocked")),
    family(Gauge, "nrs_order_overflowed_requests", "Requests that wait for a record", counter!(Service, concurrency, "overflowed")),
    family(Counter, "nrs_order_overflows_total", "Requests that ever had to wait for a record", counter!(Service, concurrency, "overflows")),
    // Heads and policies.
    family(Gauge, "nrs_head_queued_requests", "Requests that wait on the head", Of::Head(|head, samples| {
        samples.one(head.policies.iter().map(|policy| policy.queued).sum::<u64>());
    })),
    family(Gauge, "nrs_head_active_requests", "Requests of the head in service", Of::Head(|head, samples| {
        samples.one(head.policies.iter().map(|policy| policy.active).sum::<u64>());
    })),
    labelled(Gauge, "nrs_policy_info", &["argument", "state", "fallback"], "A policy that is not stopped, with its argument and state; always 1", Of::Policy(|policy, samples| {
        samples.info(&[
            ("argument", policy.argument.as_deref().unwrap_or_default()),
            ("state", &policy.state),
            ("fallback", if policy.fallback { "yes" } else { "no" }),
        ]);
    })),
    family(Gauge, "nrs_policy_queued_requests", "Requests that wait in the policy", field!(Policy, queued)),
    family(Gauge, "nrs_policy_active_requests", "Requests of the policy in service", field!(Policy, active)),
    // Rules.
    family(Gauge, "nrs_rule_limit_bytes_per_second", "What the rule allows each of its classes, if it counts bytes or pages", Of::Rule(|rule, samples| {
        if let Some(Rate::Bytes(rate)) = Rate::of(&rule.rate, &rule.unit) {
            samples.one(rate);
        }
    })),
    family(Gauge, "nrs_rule_limit_requests_per_second", "What the rule allows each of its classes, if it counts requests", Of::Rule(|rule, samples| {
        if let Some(Rate::Requests(rate)) = Rate::of(&rule.rate, &rule.unit) {
            samples.one(rate);
        }
    })),
    family(Gauge, "nrs_rule_classes", "Classes that are under the rule", counter!(Rule, counters, "classes")),
    family(Gauge, "nrs_rule_queued_requests", "Requests under the rule that wait", counter!(Rule, counters, "queued")),
    family(Counter, "nrs_rule_dispatched_requests_total", "Requests under the rule that went down", counter!(Rule, counters, "dispatched")),
    family(Counter, "nrs_rule_served_bytes_total", "Bytes of them, if the rule counts bytes or pages", Of::Rule(|rule, samples| {
        samples.maybe(crate::stats::in_bytes(&rule.unit, rule.counter("cost")));
    })),
    family(Counter, "nrs_rule_throttled_seconds_total", "Time that the first requests of classes waited for tokens", Of::Rule(|rule, samples| {
        samples.maybe(rule.counters.get("throttled_ns").copied().map(Number::Nanoseconds));
    })),
    family(Counter, "nrs_rule_limit_hits_total", "How often the first request of a class had to wait for tokens", counter!(Rule, counters, "limit_hits")),
    family(Counter, "nrs_rule_forced_requests_total", "Requests that went down without tokens, as debt, because they must not wait", counter!(Rule, counters, "forced")),
    family(Counter, "nrs_rule_borrowed_requests_total", "Requests that what other rules leave unused paid for", counter!(Rule, counters, "borrowed")),
    // Groups.
    family(Gauge, "nrs_group_capacity_bytes_per_second", "The bandwidth that the group shares out", counter!(Group, counters, "capacity")),
    family(Gauge, "nrs_group_free_bytes_per_second", "What of it nobody has", counter!(Group, counters, "free")),
    family(Gauge, "nrs_group_oversubscribed_bytes_per_second", "What was given beyond the capacity", counter!(Group, counters, "oversubscribed")),
    labelled(Gauge, "nrs_group_reserve_bytes_per_second", &["class"], "What is still in reserve for the class", Of::Group(|group, samples| {
        for (name, value) in &group.counters {
            if let Some(class) = name.strip_prefix("reserve_") {
                samples.more("class", class, *value);
            }
        }
    })),
    family(Gauge, "nrs_group_clients", "Clients that are registered in the group", counter!(Group, counters, "registered")),
    family(Counter, "nrs_group_dispatched_requests_total", "Requests of the group's clients that went down", counter!(Group, counters, "requests")),
    family(Counter, "nrs_group_read_bytes_total", "Bytes that they read", counter!(Group, counters, "read_bytes")),
    family(Counter, "nrs_group_written_bytes_total", "Bytes that they wrote", counter!(Group, counters, "written_bytes")),
    family(Counter, "nrs_group_limit_hits_total", "How often clients had to wait for their allocation", counter!(Group, counters, "sleeps")),
    family(Counter, "nrs_group_losses_total", "How often clients lost bandwidth to others", counter!(Group, counters, "losses")),
    // Clients.
    family(Gauge, "nrs_client_lost", "Whether the client is lost: its device gave no sign of life for the timeout, and nothing has ended since", field!(Client, lost)),
    family(Gauge, "nrs_client_held_requests", "Requests of the client that wait", counter!(Client, counters, "held")),
    family(Counter, "nrs_client_passed_requests_total", "Requests that did not wait", counter!(Client, counters, "passed")),
    family(Counter, "nrs_client_queued_requests_total", "Requests that had to wait", counter!(Client, counters, "queued")),
    family(Counter, "nrs_client_ended_requests_total", "Requests that have ended", counter!(Client, counters, "ended")),
    family(Counter, "nrs_client_failed_requests_total", "Requests that ended with an error", counter!(Client, counters, "failed")),
    family(Counter, "nrs_client_served_bytes_total", "Bytes of requests that have ended", counter!(Client, counters, "bytes")),
    family(Counter, "nrs_client_forced_requests_total", "Requests that went down at once because they must not wait", counter!(Client, counters, "forced")),
    family(Counter, "nrs_client_anonymous_requests_total", "Requests of which it is not known whose they are", counter!(Client, counters, "anonymous")),
    labelled(Counter, "nrs_client_operations_total", &["operation"], "Requests by operation", Of::Client(|client, samples| {
        samples.each("operation", &client.counters, &[("ost_read", "read"), ("ost_write", "write"), ("ost_punch", "punch"), ("ost_sync", "sync"), ("other", "other")], u64::into);
    })),
    family(Counter, "nrs_client_timeouts_total", "Requests of the client that were in flight when it was lost", counter!(Client, counters, "timeouts")),
    family(Counter, "nrs_client_losses_total", "Times that the client was lost", counter!(Client, counters, "lost")),
    // Targets.
    family(Gauge, "nrs_target_clients", "Clients on the device", counter!(Target, counters, "users")),
    family(Gauge, "nrs_target_limit_requests", "Requests that the device may have in service", counter!(Target, counters, "limit")),
    family(Gauge, "nrs_target_active_requests", "Requests that it has", counter!(Target, counters, "active")),
    // Entities.
    family(Gauge, "nrs_entity_weight_ratio", "The weight of the entity (fairshare)", Of::Entity(|entity, samples| samples.maybe(entity.weight))),
    family(Gauge, "nrs_entity_share_wanted_ratio", "The part of the service of its head that it is to have now (fairshare)", Of::Entity(|entity, samples| samples.maybe(entity.share_wanted))),
    labelled(Gauge, "nrs_entity_share_ratio", &["window"], "The part of the service of its head that it had of the last second or minute (fairshare)", Of::Entity(|entity, samples| {
        for (window, share) in [("1s", entity.share_1s), ("60s", entity.share_60s)] {
            if let Some(share) = share {
                samples.more("window", window, share);
            }
        }
    })),
    family(Gauge, "nrs_entity_queued_requests", "Requests that wait (not for qbm)", Of::Entity(|entity, samples| {
        if entity.policy != "qbm" {
            samples.one(entity.queued);
        }
    })),
    family(Gauge, "nrs_entity_active_requests", "Requests in service (tbf)", Of::Entity(|entity, samples| {
        if entity.policy == "tbf" {
            samples.one(entity.active);
        }
    })),
    labelled(Summary, "nrs_entity_wait_seconds", &["quantile"], "How long requests were queued, since the entity is known; quantile 1 is the longest wait (fairshare)", Of::Entity(|entity, samples| {
        samples.each("quantile", &entity.wait_us, &[("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99"), ("max", "1")], Number::Microseconds);
    })),
    family(Counter, "nrs_entity_dispatched_requests_total", "Requests that went down", Of::Entity(|entity, samples| samples.one(entity.dispatched))),
    family(Counter, "nrs_entity_served_bytes_total", "Bytes of them, in whole pages for fairshare; not for rules of tbf that count requests", Of::Entity(|entity, samples| samples.maybe(entity.bytes()))),
    family(Counter, "nrs_entity_limit_hits_total", "How often it had to wait for its limit (tbf, qbm)", Of::Entity(|entity, samples| {
        if entity.policy != "fairshare" {
            samples.one(entity.limit_hits);
        }
    })),
    family(Counter, "nrs_entity_throttled_seconds_total", "Time that its first request waited for tokens (tbf)", Of::Entity(|entity, samples| {
        if entity.policy == "tbf" {
            samples.one(Number::Nanoseconds(entity.throttled_ns));
        }
    })),
    family(Counter, "nrs_entity_forced_requests_total", "Requests that went down at once because they must not wait (not for qbm)", Of::Entity(|entity, samples| {
        if entity.policy != "qbm" {
            samples.one(entity.forced);
        }
    })),
    family(Counter, "nrs_entity_borrowed_requests_total", "Requests that what other rules leave unused paid for (tbf)", Of::Entity(|entity, samples| {
        if entity.policy == "tbf" {
            samples.one(entity.borrowed);
        }
    })),
    family(Counter, "nrs_entity_opportunity_requests_total", "Requests that went in the order of arrival because few waited (fairshare)", Of::Entity(|entity, samples| {
        if entity.policy == "fairshare" {
            samples.one(entity.opportunity);
        }
    })),
    family(Counter, "nrs_entity_device_seconds_total", "Time of the device that its requests took (fairshare, with the cost model time)", Of::Entity(|entity, samples| {
        if entity.policy == "fairshare" {
            samples.one(Number::Microseconds(entity.time_us));
        }
    })),
    labelled(Gauge, "nrs_entity_promised_bytes_per_second", &["bound"], "What its class promises it at least (min) and allows it at most (max) (qbm)", Of::Entity(|entity, samples| {
        if let Some(given) = &entity.bandwidth {
            samples.more("bound", "min", given.min);
            samples.more("bound", "max", given.max);
        }
    })),
    family(Gauge, "nrs_entity_allocated_bytes_per_second", "What it is given now (qbm)", Of::Entity(|entity, samples| {
        samples.maybe(entity.bandwidth.as_ref().and_then(|given| given.allocated));
    })),
    family(Gauge, "nrs_entity_used_bytes_per_second", "What it used of late (qbm)", Of::Entity(|entity, samples| {
        samples.maybe(entity.bandwidth.as_ref().map(|given| given.used_fast));
    })),
];

/// How many entities there are of each policy and head.
fn entities(service: &Snapshot, samples: &mut Samples<'_>) {
    let mut counts: Vec<(&str, &str, u64)> = Vec::new();
    for entity in &service.entities {
        let alike = |(head, policy, _): &&mut (&str, &str, u64)| {
            *head == entity.head && *policy == entity.policy
        };
        match counts.iter_mut().find(alike) {
            Some((_, _, count)) => *count += 1,
            None => counts.push((&entity.head, &entity.policy, 1)),
        }
    }
    for (head, policy, count) in counts {
        samples.pair(("head", head), ("policy", policy), count);
    }
}
