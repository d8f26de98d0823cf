// SPDX-License-Identifier: GPL-2.0-only

//! What `nrsctl status` says, word by word.

use crate::texts;
use nrsctl::commands::status::{run, Args};
use nrsctl::failure::Kind;
use nrsctl::mock::Mock;
use nrsctl::stats::words::{describe, duration, rate, safe};
use nrsctl::stats::{Bandwidth, Client, Counters, Entity, Group, Head, Policy, Rule, Snapshot};

fn policy(name: &str, argument: &str, queued: u64) -> Policy {
    Policy {
        name: name.into(),
        argument: Some(argument.into()).filter(|argument: &String| !argument.is_empty()),
        state: "started".into(),
        fallback: name == "fifo",
        queued,
        active: 1,
        counters: Counters::new(),
    }
}

fn head(name: &str, policies: &[Policy]) -> Head {
    let mut all = vec![policy("fifo", "", 0)];
    all.extend_from_slice(policies);
    Head {
        name: name.into(),
        policies: all,
    }
}

fn map(pairs: &[(&str, u64)]) -> Counters {
    pairs
        .iter()
        .map(|(name, number)| (name.to_string().into(), *number))
        .collect()
}

fn client(name: &str, held: u64) -> Client {
    Client {
        name: name.into(),
        counters: map(&[("held", held)]),
        lost: false,
    }
}

/// A service with this policy on both heads.
fn service(one: Policy) -> Snapshot {
    let high = Policy {
        queued: 0,
        ..one.clone()
    };
    Snapshot {
        service: "ost_io".into(),
        counters: map(&[("slots", 16), ("limit", 16), ("active", 16)]),
        clients: vec![client("files", 0)],
        heads: vec![head("regular", &[one]), head("high", &[high])],
        ..Snapshot::default()
    }
}

fn entity(name: &str, queued: u64) -> Entity {
    Entity {
        policy: "fairshare".into(),
        head: "regular".into(),
        name: name.into(),
        queued,
        busy: true,
        share_1s: Some(0.215),
        share_wanted: Some(0.2),
        wait_us: map(&[
            ("p50", 117_440),
            ("p90", 167_772),
            ("p99", 167_772),
            ("max", 268_435),
        ]),
        ..Entity::default()
    }
}

#[track_caller]
fn says(snapshot: &Snapshot, want: &str) {
    let said = describe(snapshot);
    assert_eq!(said, want, "\n{said}");
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
}

#[test]
fn nothing_to_do() {
    let idle = Snapshot {
        counters: map(&[("slots", 16), ("limit", 16), ("active", 0)]),
        clients: Vec::new(),
        heads: vec![head("regular", &[]), head("high", &[])],
        ..service(policy("fifo", "", 0))
    };
    says(
        &idle,
        "\
ost_io: 0 of 16 slots in use, 0 clients, nothing waits
  regular   in the order of arrival (fifo)
  urgent    the same
",
    );
}

#[test]
fn who_waits_under_fairshare() {
    let mut snapshot = service(policy("fairshare", "uid_then_jobid_fair", 59));
    snapshot.counters.insert("slots".into(), 64);
    for (name, queued) in [
        ("uid:1002/jobid:b", 7),
        ("uid:1001/jobid:a", 14),
        ("uid:9/jobid:idle", 0),
        ("uid:1/jobid:d", 2),
        ("uid:1/jobid:c", 2),
    ] {
        snapshot.entities.push(entity(name, queued));
    }
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 1 client, 59 requests wait
  slots     64 are set, the devices below take 16
  regular   users share equally, jobs within them (fairshare
            uid_then_jobid_fair)
  urgent    the same
  waiting   uid:1001/jobid:a: 14 wait, median 117 ms, longest 268 ms
            uid:1002/jobid:b: 7 wait, median 117 ms, longest 268 ms
            uid:1/jobid:c: 2 wait, median 117 ms, longest 268 ms
            and 1 more
",
    );
}

#[test]
fn policies_in_words() {
    for (name, argument, weighted, want) in [
        ("fairshare", "uid_fair", false, "users share equally (fairshare uid_fair)"),
        ("fairshare", "gid_then_uid_then_size_fair", true, "groups share by weight, users within them, jobs by their sizes\n            within them (fairshare gid_then_uid_then_size_fair)"),
        ("fairshare", "nid_then_projid_fair", false, "clients share equally, projects within them (fairshare\n            nid_then_projid_fair)"),
        ("fairshare", "nodemap_fair", false, "node maps share equally (fairshare nodemap_fair)"),
        ("tbf", "uid", false, "each user is limited by rules (tbf uid)"),
        ("tbf", "nid+jobid+opcode", false, "each client, job and operation is limited by rules (tbf\n            nid+jobid+opcode)"),
        ("tbf", "generic", false, "each kind of request is limited by rules (tbf generic)"),
        ("tbf", "", false, "each kind of request is limited by rules (tbf)"),
        ("qbm", "", false, "clients have the bandwidth that they are promised (qbm)"),
        ("crrn", "", false, "clients take turns (crrn)"),
        ("orr", "", false, "files take turns, each in the order of places (orr)"),
        ("trr", "", false, "devices take turns, each in the order of places (trr)"),
        ("delay", "", false, "held back at random, for tests (delay)"),
        ("later", "x", false, "as later says (later x)"),
    ] {
        let snapshot = Snapshot {
            weighted,
            ..service(policy(name, argument, 1))
        };
        says(&snapshot, &format!("\
ost_io: 16 of 16 slots in use, 1 client, 1 request waits
  regular   {want}
  urgent    the same
"));
    }
}

#[test]
fn heads_that_differ_and_policies_that_stop() {
    let mut snapshot = service(policy("tbf", "uid", 3));
    snapshot.heads[1] = head("high", &[]);
    let old = Policy {
        state: "stopping".into(),
        ..policy("crrn", "", 12)
    };
    snapshot.heads[0].policies.push(old);
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 1 client, 15 requests wait
  regular   each user is limited by rules (tbf uid); crrn is stopping, 13
            requests left
  urgent    in the order of arrival (fifo)
",
    );
}

#[test]
fn who_is_limited_by_rules() {
    let mut snapshot = service(policy("tbf", "uid", 9));
    let rule = |name: &str, head: &str, rate: &str, hits: u64, throttled: u64| Rule {
        name: name.into(),
        head: head.into(),
        rate: rate.into(),
        unit: "requests".into(),
        counters: map(&[
            ("limit_hits", hits),
            ("throttled_ns", throttled),
            ("classes", hits % 3),
            ("queued", 4),
        ]),
    };
    snapshot.rules = vec![
        rule("default", "regular", "10000", 0, 0),
        rule("few", "regular", "50", 1, 5_000),
        rule("greedy", "high", "1MB/s", 338, 94_472_116_400),
    ];
    snapshot.entities = vec![Entity {
        policy: "tbf".into(),
        head: "high".into(),
        name: "uid:1002".into(),
        within: Some("greedy".into()),
        queued: 6,
        counters: map(&[("throttled_ns", 944_721_164), ("limit_hits", 338)]),
        ..Entity::default()
    }];
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 1 client, 9 requests wait
  regular   each user is limited by rules (tbf uid)
  urgent    the same
  limited   greedy (1MB/s, urgent requests): 338 hits, 1 min in all, 2 classes,
            4 waiting
            few (50 requests/s): 1 hit, 5 us in all, 1 class, 4 waiting
  waiting   uid:1002, urgent: 6 wait, 2.7 ms at a time for rule greedy
",
    );
}

#[test]
fn who_has_less_than_promised() {
    let mut snapshot = service(policy("qbm", "", 34));
    snapshot.groups = vec![Group {
        name: "all".into(),
        strategy: "classes".into(),
        counters: map(&[
            ("capacity", 40_000_000),
            ("free", 500_000),
            ("reserve_low_share", 2_000_000),
            ("registered", 2),
        ]),
    }];
    for (name, has, unmet) in [
        ("jobid:a", 10_000_000, false),
        ("jobid:b", 14_250_000, true),
    ] {
        snapshot.entities.push(Entity {
            policy: "qbm".into(),
            head: "both".into(),
            name: name.into(),
            within: Some("all".into()),
            bandwidth: Some(Bandwidth {
                min: 20_000_000,
                allocated: Some(has),
                unmet,
                ..Bandwidth::default()
            }),
            ..Entity::default()
        });
    }
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 1 client, 34 requests wait
  regular   clients have the bandwidth that they are promised (qbm)
  urgent    the same
  limited   group all: 37.5 MB/s of 40 MB/s given, 2 clients, 1 have less than
            promised
  waiting   jobid:b: has 14.2 MB/s of 20 MB/s promised
",
    );
}

/// Without entities clients are told apart.
#[test]
fn which_clients_wait() {
    let mut snapshot = service(policy("crrn", "", 25));
    snapshot.clients = vec![client("a", 0), client("b", 1), client("c\u{1b}[2J", 24)];
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 3 clients, 25 requests wait
  regular   clients take turns (crrn)
  urgent    the same
  waiting   client c\\x1b[2J: 24 wait
            client b: 1 wait
",
    );
}

#[test]
fn what_is_wrong_and_what_to_do() {
    let mut snapshot = service(policy("crrn", "", 2));
    snapshot.unhealthy =
        Some("2 queued, the first one ready for 2000 s, last decision 2000 s ago".into());
    let counters = map(&[("stalls", 1), ("overflow", 7), ("no_memory", 2)]);
    snapshot.counters.extend(counters);
    snapshot.clients = ["a", "b", "c", "d", "e"]
        .map(|name| Client {
            lost: true,
            ..client(name, 0)
        })
        .into();
    snapshot.timeouts = map(&[("timeouts", 3), ("lost", 5)]);
    snapshot.concurrency = map(&[("overflowed", 4)]);
    says(
        &snapshot,
        "\
ost_io: 16 of 16 slots in use, 5 clients, 2 requests wait
  regular   clients take turns (crrn)
  urgent    the same
  warning   not healthy: 2 queued, the first one ready for 2000 s, last decision
            2000 s ago
            a device below may hang: see dmesg, and which has requests in
            service in 'clients'
  warning   lost: a, b, c and 2 more: nothing ended before a deadline
            look at the devices below; the first request that ends makes it
            found again
  warning   3 deadlines passed, clients were lost 5 times
            if the devices are just slow, raise at_min; counters start anew with
            at_stats_reset
  warning   nothing was decided for stall_ms once
            a device below held all slots: see dmesg; more slots, or a service
            for each device
  warning   7 requests found no class and share one
            raise the module parameter classes_max, and make the service anew
  warning   there was no memory for new classes 2 times
            free memory on this machine
  warning   4 requests wait for a record
            raise buffer_max
",
    );
}

#[test]
fn numbers_and_names() {
    for (ns, want) in [
        (0, "0 us"),
        (999_999, "999 us"),
        (1_000_000, "1.0 ms"),
        (12_345_678, "12 ms"),
        (1_234_567_890, "1.2 s"),
        (61_000_000_000, "1 min"),
        (7_200_000_000_000, "2 h"),
    ] {
        assert_eq!(duration(ns), want);
    }
    for (bytes, want) in [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (1_000, "1 kB/s"),
        (1_250_000, "1.2 MB/s"),
        (40_000_000, "40 MB/s"),
        (3_000_000_000, "3 GB/s"),
    ] {
        assert_eq!(rate(bytes), want);
    }
    assert_eq!(safe("a\tb\u{9b}c"), "a\\x09b\\x9bc");
    let long = safe(&"x".repeat(100));
    assert_eq!((long.len(), long.ends_with("..")), (40, true));
}

fn output(args: &Args, kernel: &Mock) -> Result<String, Kind> {
    let mut out = Vec::new();
    run(args, kernel, &mut out).map_err(|failure| failure.kind)?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn the_command() {
    let kernel = texts::module(&texts::service("tbf", 14));
    let all = output(&Args::default(), &kernel).expect("a text");
    assert!(all.starts_with("svc: "), "{all}");
    let named = Args {
        services: vec!["svc".into(), "svc".into()],
        ..Args::default()
    };
    assert_eq!(output(&named, &kernel), Ok(format!("{all}\n{all}")));
    let json = Args {
        json: true,
        ..Args::default()
    };
    let snapshots: Vec<Snapshot> =
        serde_json::from_str(&output(&json, &kernel).expect("JSON")).expect("snapshots");
    assert_eq!(snapshots.len(), 1);
    assert_eq!(
        Snapshot {
            at_ns: 0,
            ..snapshots[0].clone()
        },
        texts::snapshot("tbf")
    );
    let wrong = Args {
        services: vec!["other".into()],
        ..Args::default()
    };
    assert_eq!(output(&wrong, &kernel), Err(Kind::NotFound));
    let none = output(&Args::default(), &Mock::with(&[])).expect("a text");
    assert!(none.starts_with("no services"), "{none}");
}
