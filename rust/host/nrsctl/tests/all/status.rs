// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the output of `nrsctl status`; `status.txt` holds the screens of sample services.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use crate::verbs::output;
use crate::{pages, texts};
use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::failure::FailureKind;
use nrsctl::mock::Mock;
use nrsctl::stats::words::{describe, duration, rate, safe};
use nrsctl::stats::{Client, Counters, Head, Policy, Snapshot, Target};

fn policy(name: &str, argument: &str) -> Policy {
    Policy {
        name: name.into(),
        argument: Some(argument.into()).filter(|argument: &String| !argument.is_empty()),
        state: "started".into(),
        fallback: name == "fifo",
        queued: 1,
        active: 1,
        counters: Counters::new(),
    }
}

fn map(pairs: &[(&str, u64)]) -> Counters {
    let pairs = pairs.iter().map(|(name, n)| (name.to_string().into(), *n));
    pairs.collect()
}

/// Returns a service with this policy on the regular head and fifo on the high-priority head.
fn service(name: &str, argument: &str) -> Snapshot {
    let head = |name: &str, policies: &[Policy]| Head {
        name: name.into(),
        policies: policies.to_vec(),
    };
    let fifo = policy("fifo", "");
    Snapshot {
        service: "ost_io".into(),
        counters: map(&[("slots", 64), ("limit", 16), ("active", 16)]),
        heads: vec![
            head("regular", &[fifo.clone(), policy(name, argument)]),
            head("high", &[fifo]),
        ],
        ..Snapshot::default()
    }
}

/// Returns the snapshots for the screens: services from the module's writers, and services with
/// problems.
fn screens() -> Vec<Snapshot> {
    let mut all = ["fairshare", "tbf", "qbm", "crrn"]
        .map(texts::snapshot)
        .to_vec();
    for client in &mut all[2].entities[..2] {
        client.bandwidth.as_mut().expect("bandwidth").unmet = true;
    }
    let mut stopping = service("tbf", "uid");
    let old = Policy {
        state: "stopping".into(),
        queued: 12,
        ..policy("crrn", "")
    };
    stopping.heads[0].policies.push(old);
    all.push(stopping);
    let mut wrong = service("crrn", "");
    wrong.unhealthy =
        Some("2 queued, the first one ready for 2000 s, last decision 2000 s ago".into());
    wrong
        .counters
        .extend(map(&[("stalls", 1), ("overflow", 7), ("no_memory", 2)]));
    let client = |name: &str| Client {
        name: name.into(),
        lost: true,
        counters: map(&[("held", name.len() as u64)]),
    };
    wrong.clients = ["a", "bb", "c\u{1b}[2J", "dddd", "e"].map(client).into();
    wrong.timeouts = map(&[("timeouts", 3), ("lost", 5)]);
    wrong.concurrency = map(&[("overflowed", 4)]);
    all.push(wrong);
    let idle = Snapshot {
        heads: Vec::new(),
        ..service("fifo", "")
    };
    all.push(idle);
    let target = |name: &str, [knee, searching, rate]: [u64; 3]| Target {
        name: name.into(),
        counters: map(&[
            ("knee", knee),
            ("searching", searching),
            ("knee_rate", rate),
            ("knee_bytes", rate * 4096),
        ]),
    };
    let mut auto = service("fifo", "");
    auto.counters.extend(map(&[("slots", 16)]));
    auto.targets = vec![
        target("8:0", [16, 0, 15_900]),
        target("8:16", [1, 1, 0]),
        target("8:32", [8, 0, 0]),
        target("8:48", [4, 0, 90]),
        target("8:64", [0, 0, 0]),
    ];
    all.push(auto);
    for (name, argument) in [
        ("fairshare", "gid_then_uid_then_size_fair"),
        ("fairshare", "nid_then_projid_fair"),
        ("fairshare", "nodemap_fair"),
        ("tbf", "nid+jobid+opcode"),
        ("tbf", "generic"),
        ("orr", ""),
        ("trr", ""),
        ("delay", ""),
        ("later", "x"),
    ] {
        all.push(Snapshot {
            weighted: argument.starts_with("gid"),
            ..service(name, argument)
        });
    }
    all
}

#[test]
fn screens_of_services() {
    let said: Vec<String> = screens().iter().map(describe).collect();
    let said = said.join("\n");
    assert!(said.lines().all(|line| line.chars().count() <= 80));
    pages::compare("rust/host/nrsctl/tests/all/status.txt", &said);
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
    assert_eq!(safe("a\tb\u{9b}c"), "a\\tb\\u{9b}c");
    assert_eq!(safe("a\u{202e}b\u{200b}c"), "a\\u{202e}b\\u{200b}c");
    let long = safe(&"x".repeat(100));
    assert_eq!((long.len(), long.ends_with("..")), (40, true));
}

#[test]
fn the_command() {
    let kernel = texts::module(&texts::service("tbf", 14));
    let all = output("status", &kernel).0;
    assert!(all.starts_with("svc: "), "{all}");
    let twice = output("status svc svc", &kernel);
    assert_eq!(twice, (format!("{all}\n{all}"), None));
    let (json, _) = output("status --json", &kernel);
    let mut snapshots: Vec<Snapshot> = serde_json::from_str(&json).expect("snapshots");
    snapshots[0].at_ns = 0;
    assert_eq!(snapshots, [texts::snapshot("tbf")]);
    assert_eq!(
        output("status other", &kernel).1,
        Some(FailureKind::NotFound)
    );
    // Unhealthy services and lost clients also change the exit status.
    for (from, to, with) in [
        (
            r#""healthy":true"#,
            r#""healthy":false"#,
            "warning   not healthy",
        ),
        (r#""state":"live""#, r#""state":"lost""#, "warning   lost: "),
    ] {
        let text = texts::service("fairshare", 14).replace(from, to);
        let kernel = texts::module(&text);
        for line in ["status", "status --json svc"] {
            let (said, kind) = output(line, &kernel);
            assert_eq!(kind, Some(FailureKind::Unhealthy), "{said}");
            assert!(line.contains("json") || said.contains(with), "{said}");
        }
    }
    // With `--watch` the output is repeated until the reader closes it.
    let cli = Cli::parse_from(["nrsctl", "status", "--watch=0.1"]);
    let (mut writer, mut reader) = UnixStream::pair().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = vec![0; 2 * all.len()];
        reader
            .read_exact(&mut text)
            .map(|()| text == format!("{all}{all}").as_bytes())
    });
    let failure = cli.command.run(&kernel, &mut writer).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Closed);
    assert!(reader.join().unwrap().unwrap());
    let none = output("status", &Mock::with(&[])).0;
    assert!(none.starts_with("no services"), "{none}");
}
