// SPDX-License-Identifier: GPL-2.0-only

//! Snapshots of the module for tests and benches, created by the module's own writers: with any
//! number of entities and with difficult names.

// No test uses all functions.
#![allow(dead_code)]

use nrs_agent::status::{
    EntityStatus, PeerNumbers, PeerStatus, ServiceNumbers, ServiceStatus, Status,
};
use nrs_sched::units::NSEC_PER_SEC as SECOND;
use nrs_sched::{
    attr::Id,
    bucket::rate::RateUnit,
    jobid::JobId,
    key::Key,
    mem::Shared,
    policy::{
        fairshare::{
            entity_stats::EntityStats,
            stats::{self as fairshare, NodeRow},
        },
        tbf::{
            class::ClassCounts,
            stats::{self as tbf, TbfRow as ClassRow},
        },
        Kind, COUNTS_MAX,
    },
    qbm::{
        gate::{GateClaim, Gates},
        manager::BandwidthManager,
        plan::{ClientKey, OverseerContext, Plan, RequestOwner},
    },
    report::Report,
    rules::{Name, Rate, Subject, Unit},
    statistics::{
        ClientCounts, ConcurrencyCounts, DeadlineCounts, OrderCounts, ServiceCounts, Stats,
        TargetCounts, TimeoutCounts,
    },
    text::{self, PolicyState},
};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, Snapshot};
use std::fmt::Display;

/// Job names that are difficult to quote or parse.
#[rustfmt::skip]
pub const DIFFICULT_NAMES: [&[u8]; 26] = [
    b"a\"b", b"b\\c", b"c: d", b"- e", b"{f", b"[g]", b"# h", b"&i *j", b"m'n", b"%o", b"p\nq",
    b"r\tt", b"\xff\xfe", b"s\x01\x7f", b" u", b"v ", b"null", b"true", b"0x10", b"~", b"...",
    "\u{fc}".as_bytes(), b"\\", b"\"", b"w, x", b"\\x22\\n\\",
];

/// Creates a module with the service `svc`, which has this snapshot.
pub fn module(snapshot: &str) -> Mock {
    let texts = [
        ("snapshot", snapshot),
        ("nrs_fairshare_weights", "uid:1002:2\n"),
    ];
    Mock::with(&[("svc", &texts)])
}

/// Returns the snapshot of a service under `policy`; the time is 0, so that snapshots are
/// reproducible.
pub fn snapshot(policy: &str) -> Snapshot {
    let mut snapshot = stats::read(&module(&service(policy, 14)), "svc").expect("a snapshot");
    if policy == "qbm" {
        // The order of qbm's clients is arbitrary.
        snapshot
            .entities
            .sort_by(|a, b| (&a.head, &a.name).cmp(&(&b.head, &b.name)));
    }
    Snapshot {
        at_ns: 0,
        ..snapshot
    }
}

/// Returns the status of an agent with the services `svc` and `ost_io`.
pub fn agent() -> Status {
    let peer = |server: &str, connected, datagrams| PeerStatus {
        server: server.into(),
        left: server == "oss3",
        numbers: PeerNumbers {
            connected,
            age_us: 42_000,
            records: 3,
            capacity: 250_000,
            datagrams,
            lost: datagrams / 999,
        },
    };
    let entity = |entity: &str, factor| EntityStatus {
        entity: entity.into(),
        factor,
        level: 1000.0,
        here: 250,
        elsewhere: 750,
        waiting: factor == 1.0,
    };
    let shared = ServiceStatus {
        service: "svc".into(),
        group: "all".into(),
        failure: None,
        numbers: ServiceNumbers {
            bound: 1,
            known: 12,
            lowered: 2,
            servers: 2,
            steps: 9000,
            missed: 3,
            heard: 18_000,
            ..ServiceNumbers::default()
        },
        peers: vec![
            peer("oss2", 1, 999),
            peer("oss3", 0, 99_900),
            peer("oss4", 1, 0),
            peer("oss5", 0, 0),
        ],
        entities: vec![entity("gid:5/uid:1000", 0.25), entity("gid:6/uid:1", 1.0)],
    };
    let failed = ServiceStatus {
        service: "ost_io".into(),
        group: "ost_io".into(),
        failure: Some("No such device: no service ost_io".into()),
        ..ServiceStatus::default()
    };
    Status {
        realm: "scratch".into(),
        server: "oss1".into(),
        transport: "tls".into(),
        delta_ms: 100,
        dropped: 7,
        strangers: 0,
        own: 0,
        services: vec![failed, shared],
    }
}

/// Returns a table with the numbers `first`, `first + 1`, …
pub fn numbered<T: Stats + Default>(first: u64) -> T {
    let mut table = T::default();
    for (number, value) in table.values_mut().zip(first..) {
        *number = value;
    }
    table
}

/// Returns the JSON that `f` reports.
pub fn json(f: impl FnOnce(&mut Report<'_>) -> std::fmt::Result) -> String {
    let mut out = String::new();
    f(&mut Report::json(&mut out)).expect("a string takes everything");
    out
}

/// Reports `clients` with the numbers of [`numbered`] tables.
pub fn clients(report: &mut Report<'_>, name: &str, service: &ServiceCounts) -> std::fmt::Result {
    report.map(|map| {
        map.inline("service", |map| map.stats(service, &[]))?;
        map.entries("clients", |list| {
            list.entry(|entry| {
                entry.name("client", name.as_bytes())?;
                entry.inline("counters", |map| {
                    map.stats(&numbered::<ClientCounts>(200), &[])?;
                    map.stats(&numbered::<DeadlineCounts>(300), &[])?;
                    map.word("state", "live")
                })
            })
        })?;
        map.entries("targets", |list| {
            list.entry(|entry| {
                entry.text("target", "8:0")?;
                entry.inline("counters", |map| {
                    map.stats(&numbered::<TargetCounts>(400), &[])
                })
            })
        })
    })
}

/// Returns the job for `number`: the names of [`DIFFICULT_NAMES`] in turn, with a number from the
/// second round on.
pub fn job(number: u32) -> JobId {
    let name = DIFFICULT_NAMES[number as usize % DIFFICULT_NAMES.len()];
    match number / DIFFICULT_NAMES.len() as u32 {
        0 => JobId::new(name),
        round => JobId::new(&[round.to_string().as_bytes(), b".", name].concat()),
    }
}

/// Reports `nrs_fairshare_stats` with `entities` jobs of some users; every tenth job is urgent.
pub fn fairshare(report: &mut Report<'_>, entities: u32) -> std::fmt::Result {
    let mut rows = fairshare::NodeRows::new();
    for high in [false, true] {
        let mut users = Vec::new();
        for number in (0..entities).filter(|number| (number % 10 == 0) == high) {
            let user = 1000 + number % 97;
            let group = NodeRow::inner(1 + u64::from(user), 0, "uid", Key::Uid(user), 4096);
            if !users.contains(&user) {
                users.push(user);
                rows.extend(&[group], high).expect("memory");
            }
            let mut stats = EntityStats::new();
            for round in 0..=number % 3 {
                stats.count(1 + number % 256, 1 + number % 256, round == 0);
                stats.sample(SECOND);
                stats.waited(u64::from(number) * 10_000);
                stats.time(u64::from(number));
            }
            let row = NodeRow {
                active: number % 3 != 0,
                stats,
                lag_decipages: i64::from(number % 200) - 100,
                queue_depth: number % 20,
                ..NodeRow::new(
                    (1 << 32) | u64::from(number),
                    group.id,
                    "jobid",
                    Key::Jobid(job(number)),
                    4096 * (1 + number % 3),
                )
            };
            rows.extend(&[row], high).expect("memory");
        }
    }
    rows.merge().expect("memory");
    fairshare::report(report, &rows, SECOND + 1)
}

/// Reports `nrs_tbf_stats` with `classes` classes of three rules.
pub fn tbf(report: &mut Report<'_>, classes: u32) -> std::fmt::Result {
    let mut rows = tbf::TbfRows::new();
    for number in 0..classes {
        let (rule, rate, count) = match number % 3 {
            0 => (
                "greedy",
                Rate::new(10_000_000, Unit::Bytes),
                RateUnit::Bytes,
            ),
            1 => ("other", Rate::new(500, Unit::Plain), RateUnit::Pages),
            _ => (
                "default",
                Rate::new(10_000, Unit::Requests),
                RateUnit::Requests,
            ),
        };
        let counters = ClassCounts {
            dispatched: u64::from(number),
            cost: u64::from(number) * 4096,
            throttled_ns: u64::from(number) * 1_000_001,
            limit_hits: u64::from(number % 7),
            forced: u64::from(number % 5),
            ..ClassCounts::ZERO
        };
        let row = ClassRow {
            subject: Subject {
                jobid: job(number),
                uid: Id::new(1000 + number),
                ..Subject::NONE
            },
            high: false,
            default: number == 5,
            id: 1 + number % 3,
            rule: Name::new(rule).expect("a name"),
            rate: rate.expect("a rate"),
            count,
            counters,
            queued: number % 9,
            active: number % 2,
            debt: u64::from(number),
        };
        rows.extend(&[row], number % 10 == 0).expect("memory");
    }
    rows.merge();
    let sums = rows.sums().expect("memory");
    tbf::report(report, rows.as_slice(), sums.as_slice())
}

/// Context in which devices have no names.
struct UnnamedDevices;

impl OverseerContext for UnnamedDevices {
    fn device_name(&self, _: u32, _: &mut dyn FnMut(&[u8])) {}
}

/// Reports `nrs_qbm_status` and `nrs_qbm_stats` with `clients` clients in one group, and a group
/// without clients.
pub fn qbm(report: &mut Report<'_>, clients: u32) -> std::fmt::Result {
    let plan = "by jobid\ngroup all capacity=40MB/s reserve_low_share=2MB/s\n\
        group moved target=8:16 capacity=10MB/s strategy=mover\n\
        default class=fair_share min=1MB/s max=1MB/s\n";
    let plan = Plan::parse(plan).expect("a plan");
    let plan = Shared::new(plan).expect("memory");
    let gates = Shared::new(Gates::new(1 << 14, 3).expect("memory")).expect("memory");
    let mut manager = BandwidthManager::new(plan, gates.clone()).expect("memory");
    for number in 0..clients {
        let who = RequestOwner {
            party: ClientKey::Key(Key::Jobid(job(number))),
            target: 0,
        };
        gates.claim(&who, &GateClaim::NONE, || false, SECOND);
    }
    manager.poll(&UnnamedDevices, true, SECOND).expect("memory");
    report.part("nrs_qbm_status", |report| {
        manager.report_status(report, &UnnamedDevices, 2 * SECOND)
    })?;
    report.part("nrs_qbm_stats", |report| {
        manager.report_stats(report, &UnnamedDevices)
    })
}

/// Reports `nrs_policies` with this policy on both heads, and its counters.
pub fn policies(
    report: &mut Report<'_>,
    name: &str,
    argument: &str,
    counts: &[u64],
) -> std::fmt::Result {
    let row = |name, argument, fallback| text::PolicyRow {
        name,
        argument,
        state: PolicyState::Started,
        fallback,
        queued: 3,
        active: 1,
        stats: Kind::from_name(name).map_or(&[], Kind::counts),
        counts,
    };
    let argument = Some(&argument as &dyn Display).filter(|_| !argument.is_empty());
    let rows = [row("fifo", None, true), row(name, argument, false)];
    report.list(|list| {
        ["regular", "high"].into_iter().try_for_each(|head| {
            list.entry(|entry| {
                entry.word("name", head)?;
                entry.entries("policies", |list| {
                    rows.iter().try_for_each(|row| row.report(list))
                })
            })
        })
    })
}

/// Reports the snapshot of a service under `policy` with `entities` entities.
pub fn service(policy: &str, entities: u32) -> String {
    let slots = ServiceCounts {
        slots: 64,
        limit: 64,
        ..ServiceCounts::ZERO
    };
    let argument = match policy {
        "fairshare" => "uid_then_jobid_fair",
        "tbf" => "uid+jobid",
        _ => "",
    };
    json(|report| {
        report.map(|map| {
            map.part("clients", |report| clients(report, "q\"1\\x22", &slots))?;
            map.part("health", |report| {
                report.map(|map| {
                    map.field("healthy", true)?;
                    map.text("progress", "3 queued, the first one ready for 0 s")
                })
            })?;
            map.part("at_stats", |report| {
                report.map(|map| map.stats(&TimeoutCounts::ZERO, &[]))
            })?;
            map.part("nrs_concurrency", |report| {
                report.map(|map| {
                    map.stats(&ConcurrencyCounts::ZERO, &[])?;
                    map.stats(&OrderCounts::ZERO, &[])
                })
            })?;
            map.part("nrs_policies", |report| {
                policies(report, policy, argument, &[0; COUNTS_MAX])
            })?;
            match policy {
                "fairshare" => map.part("nrs_fairshare_stats", |map| fairshare(map, entities)),
                "tbf" => map.part("nrs_tbf_stats", |map| tbf(map, entities)),
                "qbm" => qbm(map, entities),
                _ => Ok(()),
            }
        })
    })
}
