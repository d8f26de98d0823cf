// SPDX-License-Identifier: GPL-2.0-only

//! Tests of pages of metrics: contents and delivery.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::exposition::Page;
use crate::texts;
use crate::verbs::output;
use nrsctl::commands::exporter::answer;
use nrsctl::exporter::encode::{label, MetricKind as Type, Number, CONTENT_TYPE};
use nrsctl::exporter::families::FAMILIES;
use nrsctl::exporter::family::Gathered;
use nrsctl::exporter::http::{self, Request};
use nrsctl::exporter::others::Memory;
use nrsctl::exporter::page::render;
use nrsctl::failure::{Failure, FailureKind};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, Client, Entity, Snapshot};

fn gathered(snapshots: Vec<Snapshot>) -> Gathered {
    Gathered {
        snapshots,
        agent: Some(texts::agent()),
        ..Gathered::default()
    }
}

/// Returns the result of gathering that failed completely.
fn failed(failure: Failure) -> Gathered {
    Gathered {
        failure: Some(failure),
        ..Gathered::default()
    }
}

/// Returns a service for each policy that has entities.
fn everything() -> Vec<Snapshot> {
    let named = |name: &str| Snapshot {
        service: name.into(),
        ..texts::snapshot(name)
    };
    ["fairshare", "tbf", "qbm"].map(named).into()
}

fn page(snapshots: Vec<Snapshot>, top: usize, memory: Option<&mut Memory>) -> Page {
    let text = render(&gathered(snapshots), top, memory);
    Page::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Verifies that the number of shown entities is bounded, whatever their number and names.
#[test]
fn pages_are_bounded() {
    for policy in ["fairshare", "tbf", "qbm"] {
        let kernel = texts::module(&texts::service(policy, 300));
        let snapshot = stats::read(&kernel, "svc").expect("a snapshot");
        for top in [0, 7, 1000] {
            let page = page(vec![snapshot.clone()], top, Some(&mut Memory::new()));
            let all = page
                .samples()
                .filter(|(name, _)| name == "nrs_entity_dispatched_requests_total");
            assert!(all.count() <= (top + 1) * 2, "{policy} {top}");
        }
    }
    page(Vec::new(), 0, None);
}

/// Verifies names and types of all families, and that each is on the page with the labels in the
/// table.
#[test]
fn families() {
    let page = page(everything(), 2, Some(&mut Memory::new()));
    let mut seen = HashSet::new();
    for (name, labels) in page.samples() {
        let family = FAMILIES.iter().find(|family| family.name == name);
        let family = family.unwrap_or_else(|| panic!("{name} is not in the table"));
        for label in labels.keys() {
            let mut known = family.of.labels().iter().copied().chain(family.more());
            assert!(
                known.any(|known| known == label),
                "{name} has label {label}"
            );
        }
        for label in family.more().filter(|label| *label != "argument") {
            assert!(labels.contains_key(label), "{name} has no label {label}");
        }
        seen.insert(name.as_str());
    }
    let mut names = HashSet::new();
    for family in FAMILIES.iter() {
        let (name, help) = (family.name, &family.help);
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let shown = seen.contains(name) || family.is_for_tests();
        assert!(names.insert(name) && shown, "{name}");
        assert!(
            name.starts_with("nrs_") && name.bytes().all(letters),
            "{name}"
        );
        assert_eq!(
            name.ends_with("_total"),
            family.kind == Type::Counter,
            "{name}"
        );
        assert!(
            !help.is_empty() && !help.ends_with('.') && help.is_ascii(),
            "{name}"
        );
        assert!(!help.contains(['\n', '\\', '|']), "{name}");
        assert_eq!(
            family.more().any(|label| label == "quantile"),
            family.kind == Type::Summary,
            "{name}"
        );
    }
}

/// Some lines of a page; ENTITY and POLICY stand for labels.
const LINES: &str = r#"
nrs_up 1
nrs_service_healthy{service="qbm"} 1
nrs_policy_info{service="tbf",head="high",POLICY} 1
nrs_rule_limit_bytes_per_second{service="tbf",head="regular",rule="greedy"} 10000000
nrs_client_lost{service="tbf",client="q\"1\\x22"} 0
nrs_entity_share_wanted_ratio{ENTITY} 0.125
nrs_entity_wait_seconds{ENTITY,quantile="0.5"} 0.000020
nrs_entity_served_bytes_total{ENTITY} 36864
nrs_agent_bound{service="ost_io"} 0
nrs_agent_received_datagrams_total{service="svc",result="accepted"} 18000
nrs_agent_peer_age_seconds{service="svc",peer="oss2"} 0.042000
nrs_agent_peer_lost_datagrams_total{service="svc",peer="oss2"} 1
nrs_agent_peer_connected{service="svc",peer="oss4"} 1
"#;

#[test]
fn values() {
    let page = render(&gathered(everything()), 100, None);
    let entity = r#"service="fairshare",head="regular",policy="fairshare""#;
    let entity = format!("{entity},entity=\"uid:1002/jobid:c: d\"");
    let policy = r#"policy="tbf",argument="uid+jobid",state="started",fallback="no""#;
    let lines = LINES.replace("ENTITY", &entity).replace("POLICY", policy);
    for line in lines.trim().lines() {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert!(!page.contains("nrs_agent_peer_age_seconds{service=\"svc\",peer=\"oss4\"}"));
    let groups = &texts::snapshot("qbm").groups;
    let classes = groups[0]
        .counters
        .keys()
        .filter_map(|key| key.strip_prefix("reserve_"));
    for class in classes {
        assert!(
            page.contains(&format!(",group=\"all\",class=\"{class}\"}}")),
            "{class}"
        );
    }
}

#[test]
fn labels_and_numbers() {
    let mut text = String::new();
    label(&mut text, "a", "b\"c\\d\ne\u{e9}{},=");
    label(&mut text, "empty", "");
    label(&mut text, "z", "1");
    assert_eq!(text, "a=\"b\\\"c\\\\d\\ne\u{e9}{},=\",z=\"1\"");
    for (number, want) in [
        (Number::Whole(u64::MAX), "18446744073709551615"),
        (Number::Real(0.25), "0.25"),
        (Number::Parts(1, 9), "0.000000001"),
        (Number::Parts(2_000_000_000, 9), "2"),
        (Number::Parts(1_500_000, 6), "1.500000"),
    ] {
        assert_eq!(number.to_string(), want);
    }
}

/// Creates a class that has dispatched `dispatched` requests of two pages each.
fn entity((name, dispatched): (&str, u64)) -> Entity {
    let counters = [("dispatched", dispatched), ("cost", dispatched * 2)];
    Entity {
        policy: "tbf".into(),
        head: "regular".into(),
        name: name.into(),
        queued: dispatched % 10,
        counters: counters.map(|(name, number)| (name.into(), number)).into(),
        unit: "pages".into(),
        ..Entity::default()
    }
}

/// Returns requests and bytes of entity `name` on a page of `entities` that shows one entity.
fn counted(entities: &[Entity], name: &str, memory: Option<&mut Memory>) -> Option<(f64, f64)> {
    let snapshot = Snapshot {
        service: "s".into(),
        entities: entities.to_vec(),
        ..Snapshot::default()
    };
    let page = page(vec![snapshot], 1, memory);
    let names = ["service", "head", "policy", "entity"].into_iter();
    let labels: Vec<_> = names.zip(["s", "regular", "tbf", name]).collect();
    let value = |metric: &str| page.value(&format!("nrs_entity_{metric}"), &labels);
    assert!(value("queued_requests").is_some() || name != "others");
    value("dispatched_requests_total").zip(value("served_bytes_total"))
}

/// Verifies that the sum of the others grows by the requests of its entities, whichever entities
/// are shown, added, removed or restarted.
#[test]
fn sum_of_unlisted_entities_never_decreases() {
    let memory = &mut Memory::new();
    for (entities, want) in [
        (&[("a", 100), ("b", 10), ("c", 1)][..], 11.0),
        (&[("a", 100), ("b", 20), ("c", 1)], 21.0),
        // b is now shown, a is not; earlier requests of a never belonged to the others.
        (&[("a", 101), ("b", 200), ("c", 1)], 22.0),
        // c was evicted and is created again; d is new.
        (&[("a", 101), ("b", 200)], 22.0),
        (&[("a", 101), ("b", 200), ("c", 5), ("d", 2)], 29.0),
        // Statistics were reset.
        (&[("a", 3), ("b", 9), ("c", 1), ("d", 0)], 33.0),
    ] {
        let entities: Vec<Entity> = entities.iter().copied().map(entity).collect();
        let found = counted(&entities, "others", Some(&mut *memory));
        assert_eq!(found.expect("others").0, want);
    }
    // A page that could not be gathered evicts nothing.
    let nothing = failed(Failure::new(FailureKind::Other, "no"));
    assert!(render(&nothing, 1, Some(memory)).contains("\nnrs_up 0\n"));
    let same = [("a", 3), ("b", 9), ("c", 1), ("d", 0)].map(entity);
    let found = counted(&same, "others", Some(memory));
    assert_eq!(found.expect("others").0, 33.0);
    // Without memory the others have all families except counters.
    let all = [("a", 100), ("b", 10), ("c", 9)].map(entity);
    assert_eq!(counted(&all, "others", None), None);
    assert_eq!(counted(&all, "a", None), Some((100.0, 200.0 * 4096.0)));
    assert_eq!(counted(&all, "b", None), None);
    // A decrease of one counter does not affect other counters.
    let memory = &mut Memory::new();
    for (unit, dispatched) in [("pages", 100), ("requests", 103)] {
        let other = Entity {
            unit: unit.into(),
            ..entity(("b", dispatched))
        };
        let found = counted(&[entity(("a", 1000)), other], "others", Some(&mut *memory));
        assert_eq!(found, Some((dispatched as f64, 200.0 * 4096.0)));
    }
}

/// Verifies that subjects with the same labels are merged: Prometheus rejects a whole page with a
/// duplicate sample.
#[test]
fn failures_are_reported_once() {
    let double = |mut snapshot: Snapshot| {
        snapshot.entities.extend(snapshot.entities.clone());
        snapshot.clients.extend(snapshot.clients.clone());
        snapshot.rules.extend(snapshot.rules.clone());
        snapshot
    };
    for top in [0, 2, 100] {
        let all: Vec<Snapshot> = everything().into_iter().map(double).collect();
        page(all, top, Some(&mut Memory::new()));
    }
    let twice = [("a", 100), ("b", 10), ("b", 20)].map(entity);
    assert_eq!(counted(&twice, "a", None), Some((100.0, 200.0 * 4096.0)));
    let others = counted(&twice, "others", Some(&mut Memory::new()));
    assert_eq!(others, Some((30.0, 60.0 * 4096.0)));
    // Two units, for example of classes whose rule was changed in the meantime: the known bytes are
    // summed.
    let requests = Entity {
        unit: "requests".into(),
        ..entity(("a", 1))
    };
    let mixed = [entity(("a", 100)), requests];
    assert_eq!(counted(&mixed, "a", None), Some((101.0, 200.0 * 4096.0)));
    // A device with several targets is one client.
    let client = |name: &str, lost| Client {
        name: name.into(),
        lost,
        ..Client::default()
    };
    let snapshot = Snapshot {
        service: "s".into(),
        clients: vec![client("a", true), client("a", true), client("b", false)],
        ..Snapshot::default()
    };
    let page = page(vec![snapshot], 10, None);
    for (metric, count) in [
        ("nrs_service_clients", 2.0),
        ("nrs_service_clients_lost", 1.0),
    ] {
        assert_eq!(page.value(metric, &[("service", "s")]), Some(count));
    }
}

#[test]
fn answers() {
    let mut memory = Memory::new();
    let mut ask = |path: &str, gathered: Gathered| {
        let request = Request {
            head: false,
            path: path.into(),
        };
        answer(&request, || gathered, 10, &mut memory)
    };
    let good = ask("/metrics", gathered(everything()));
    assert_eq!((good.status, good.content_type), (200, CONTENT_TYPE));
    Page::parse(&good.body).expect("a page");
    let failure = Failure::new(FailureKind::NotLoaded, "the module nrs is not loaded");
    let bad = ask("/metrics", failed(failure.hint("load it: modprobe nrs")));
    assert_eq!((bad.status, bad.content_type), (503, CONTENT_TYPE));
    let first = "# the module nrs is not loaded; load it: modprobe nrs\n";
    assert!(bad.body.starts_with(first) && bad.body.contains("\nnrs_up 0\n"));
    // One service could not be read: the other services are shown.
    let part = Gathered {
        failure: Some(Failure::new(FailureKind::Other, "clients of service 'a'")),
        ..gathered(everything())
    };
    let part = ask("/metrics", part);
    assert_eq!(part.status, 200);
    assert!(part.body.starts_with("# clients of service 'a'\n"));
    assert!(part.body.contains("\nnrs_up 0\n") && part.body.contains("service=\"tbf\""));
    assert_eq!(ask("/", Gathered::default()).status, 200);
    assert_eq!(ask("/metrics/", Gathered::default()).status, 404);
}

/// Starts a server of pages that runs until the test process ends.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let mut memory = Memory::new();
        http::serve(listener, |request| {
            answer(request, || gathered(everything()), 10, &mut memory)
        })
    });
    address
}

/// Returns the server's answer to a request that is sent in pieces.
fn ask(address: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    for piece in pieces {
        // A refused connection may already be closed.
        let _ = stream.write_all(piece);
    }
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn over_http() {
    let address = server();
    let page = ask(
        address,
        &[b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"],
    );
    let (head, body) = page.split_once("\r\n\r\n").expect("a head");
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&format!("Content-Type: {CONTENT_TYPE}\r\n")) && head.contains(&length));
    Page::parse(body).expect("a page");
    // HEAD: the length is the body's length.
    let only = ask(address, &[b"HEAD /metrics HTTP/1.1\r\n\r\n"]);
    assert!(
        only.ends_with("\r\n\r\n") && !only.contains("Content-Length: 0"),
        "{only}"
    );
    let long = vec![b'x'; 9 << 10];
    for (pieces, want) in [
        (
            &[&b"GET /nothing HTTP/1.1\r\n\r\n"[..]][..],
            "404 Not Found\r\n",
        ),
        (
            &[b"DELETE / HTTP/1.1\r\n\r\n"],
            "405 Method Not Allowed\r\n",
        ),
        (&[b"GET metrics HTTP/1.1\r\n\r\n"], "400 "),
        (&[b"GET /metrics HTTP/2\r\n\r\n"], "400 "),
        (&[b"GET /metrics\r\n\r\n"], "400 "),
        (&[b"GET  /metrics HTTP/1.1\r\n\r\n"], "400 "),
        (&[b"\r\n\r\n"], "400 "),
        (&[b"\xff\xfe\r\n\r\n"], "400 "),
        (&[b"GET / HTTP/1.0\n\n"], "200 OK\r\n"),
        (&[b"GET /", b" HTTP/1.1\r", b"\n\r", b"\n"], "200 OK\r\n"),
        (&[b"GET / HTTP/1.1\r\nX: ", &long], "431 "),
    ] {
        let answer = ask(address, pieces);
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{answer}");
        assert_eq!(
            answer.contains("\r\nAllow: GET, HEAD\r\n"),
            want.starts_with("405")
        );
    }
}

/// Verifies that idle connections time out, and that a connection beyond the limit closes the
/// oldest one.
#[test]
fn connections_are_bounded() {
    let address = server();
    let connect = |_| TcpStream::connect(address).expect("a connection");
    let silent: Vec<TcpStream> = (0..=http::CONNECTIONS_MAX).map(connect).collect();
    for (index, mut stream) in silent.into_iter().enumerate() {
        let mut text = String::new();
        let patience = Some(http::PATIENCE * 12);
        stream.set_read_timeout(patience).expect("a timeout");
        stream.read_to_string(&mut text).expect("an end");
        let wanted = ["503 Service Unavailable", "408 Request Timeout"][usize::from(index > 0)];
        assert!(
            text.starts_with(&format!("HTTP/1.1 {wanted}\r\n")),
            "{text}"
        );
    }
}

/// Verifies that a scraper is answered beside connections that are renewed and send half of a
/// request, or do not close.
#[test]
fn other_connections_deny_no_answer() {
    for pieces in ["GET /", "GET /metrics HTTP/1.1\r\n\r\n"] {
        let address = server();
        let mut others = VecDeque::new();
        for _ in 0..20 {
            for _ in 0..64 {
                let mut other = TcpStream::connect(address).expect("a connection");
                other
                    .write_all(pieces.as_bytes())
                    .expect("half of a request");
                others.push_back(other);
            }
            // A request that arrives later than its connection may be refused.
            let mut answers = (0..5).map(|_| ask(address, &[b"GET /metrics HTTP/1.1\r\n\r\n"]));
            let answered = answers.any(|answer| answer.starts_with("HTTP/1.1 200 "));
            assert!(answered, "{pieces}");
            others.drain(..others.len() - 64);
        }
    }
}

#[test]
fn the_command() {
    let kernel = texts::module(&texts::service("tbf", 14));
    let (text, failure) = output("exporter --once", &kernel);
    assert!(text.contains("\nnrs_up 1\n") && failure.is_none());
    for (services, has_page, failure) in [
        ("--service svc --service svc", true, None),
        ("--service other", false, Some(FailureKind::NotFound)),
        // The other service is shown nevertheless.
        (
            "--service other --service svc",
            true,
            Some(FailureKind::NotFound),
        ),
    ] {
        let (page, found) = output(&format!("exporter --once {services}"), &kernel);
        Page::parse(&page).expect("well-formed");
        let shows = page.contains("service=\"svc\"");
        assert_eq!((shows, found), (has_page, failure));
    }
    let directory = tempfile::tempdir().expect("a directory");
    // Input from `status --json`.
    let recorded = directory.path().join("snapshots.json");
    let snapshots = serde_json::to_string(&[texts::snapshot("tbf")]).expect("JSON");
    fs::write(&recorded, snapshots).expect("a file");
    let from = format!("exporter --once --from {}", recorded.display());
    assert_eq!(output(&from, &Mock::with(&[])), (text, None));
    fs::write(&recorded, "{").expect("a file");
    assert_eq!(output(&from, &kernel).1, Some(FailureKind::NotFound));
    // Output to a file. If statistics cannot be read, both the file and the exit status report
    // this.
    let file = directory.path().join("nrs.prom");
    for (services, up, failure) in [
        ("", "1", None),
        (" --service other", "0", Some(FailureKind::NotFound)),
    ] {
        let into = format!("exporter --textfile {}{services}", file.display());
        assert_eq!(output(&into, &kernel), (String::new(), failure));
        let page = fs::read_to_string(&file).expect("a page");
        assert!(page.contains(&format!("\nnrs_up {up}\n")));
    }
    let missing = format!(
        "exporter --textfile {}/missing/nrs.prom",
        directory.path().display()
    );
    assert_eq!(output(&missing, &kernel).1, Some(FailureKind::NotFound));
    assert_eq!(
        output("exporter --listen nowhere", &kernel).1,
        Some(FailureKind::Usage)
    );
}

/// Verifies that a service that cannot be read, or is removed, does not affect other services.
#[test]
fn one_service_keeps_no_other_from_the_page() {
    let texts = texts::service("tbf", 14);
    for (leaves, up, failure) in [(false, "0", Some(FailureKind::Other)), (true, "1", None)] {
        let kernel = Mock::with(&[
            ("bad", &[("snapshot", "nothing\n")]),
            ("svc", &[("snapshot", &texts)]),
        ]);
        *kernel.leaving.borrow_mut() = leaves.then(|| "bad".into());
        let (page, found) = output("exporter --once", &kernel);
        assert!(page.contains(&format!("\nnrs_up {up}\n")) && page.contains("service=\"svc\""));
        assert_eq!(found, failure);
    }
}
