// SPDX-License-Identifier: GPL-2.0-only

//! Sample snapshots for tests: statistics of a service at second `n`.

use nrs_sched::units::NSEC_PER_SEC as SECOND;

use crate::stats::{Counters, Entity, Head, Policy, Snapshot};

/// Returns percentiles of the queueing time, us.
fn waits(p50: u64, p99: u64) -> Counters {
    let values = [("p50", p50), ("p90", p99), ("p99", p99), ("max", p99 * 2)];
    counters(values)
}

fn counters<const N: usize>(values: [(&'static str, u64); N]) -> Counters {
    values.map(|(name, value)| (name.into(), value)).into()
}

fn policy(name: &str, argument: Option<&str>, queued: u64) -> Policy {
    Policy {
        name: name.into(),
        argument: argument.map(Into::into),
        state: "started".into(),
        fallback: name == "fifo",
        queued,
        active: 0,
        counters: Counters::new(),
    }
}

fn service(n: u64, name: &str, argument: &str, queued: u64) -> Snapshot {
    let head = |name: &str, policies| Head {
        name: name.into(),
        policies,
    };
    Snapshot {
        service: "ost_io".into(),
        at_ns: 5 * SECOND + n * SECOND,
        counters: counters([("slots", 8), ("limit", 8), ("active", 7)]),
        heads: vec![
            head(
                "regular",
                vec![
                    policy("fifo", None, 0),
                    policy(name, Some(argument), queued),
                ],
            ),
            head("high", vec![policy("fifo", None, 0)]),
        ],
        ..Snapshot::default()
    }
}

/// Returns a snapshot with two users, one of them with two jobs. They do 400, 200 and 200 requests
/// of 64 KiB per second.
pub fn fairshare(n: u64) -> Snapshot {
    let entity = |name: &str, share: f64, requests: u64, queued: u64| Entity {
        policy: "fairshare".into(),
        head: "regular".into(),
        name: name.into(),
        weight: Some(1.0),
        share_wanted: Some(share),
        share_1s: Some(share + 0.004),
        queued,
        active: 2,
        counters: counters([
            ("dispatched", 1000 + requests * n),
            ("cost", (1000 + requests * n) * 16),
        ]),
        unit: "pages".into(),
        wait_us: waits(41_000 + queued * 10, 83_886),
        ..Entity::default()
    };
    let mut snapshot = service(n, "fairshare", "uid_then_jobid_fair", 374);
    snapshot.entities = vec![
        entity("uid:1001/jobid:small", 0.5, 400, 8),
        entity("uid:1002/jobid:large", 0.25, 200, 300),
        entity("uid:1002/jobid:medium", 0.25, 200, 66),
    ];
    snapshot
}

/// Returns a snapshot with two users. One user has a limit of 10 MB/s and is throttled 150 times
/// per second.
pub fn tbf(n: u64) -> Snapshot {
    let entity = |name: &str, rule: &str, limit: &str, unit: &str, cost: u64, hits: u64| Entity {
        policy: "tbf".into(),
        head: "regular".into(),
        name: name.into(),
        within: Some(rule.into()),
        limit: Some(limit.into()),
        queued: hits / 2,
        unit: unit.into(),
        counters: counters([
            ("dispatched", 650 * n),
            ("cost", cost * n),
            ("limit_hits", hits * n),
            ("throttled_ns", hits * n * 1_000_000),
        ]),
        ..Entity::default()
    };
    let mut snapshot = service(n, "tbf", "uid", 75);
    snapshot.entities = vec![
        entity("uid:1001", "default", "10000", "requests", 650, 0),
        entity("uid:1002", "greedy", "10MB/s", "bytes", 9_999_360, 150),
    ];
    snapshot
}

/// Returns a snapshot with `users` users; user `i` does `i` requests of 4 KiB per second.
pub fn many(n: u64, users: u64) -> Snapshot {
    let mut snapshot = service(n, "fairshare", "uid_fair", users);
    snapshot.entities = (0..users)
        .map(|i| Entity {
            policy: "fairshare".into(),
            head: "regular".into(),
            name: format!("uid:{i}"),
            share_wanted: Some(1.0 / users as f64),
            share_1s: Some(i as f64 / (users * users / 2) as f64),
            queued: i % 7,
            counters: counters([("dispatched", i * n), ("cost", i * n)]),
            unit: "pages".into(),
            wait_us: waits(i, i * 3),
            ..Entity::default()
        })
        .collect();
    snapshot
}
