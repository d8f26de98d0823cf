// SPDX-License-Identifier: GPL-2.0-only

//! Pages of metrics: their form, by a strict reader; what they say; how they are had.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::exposition::Page;
use crate::texts;
use nrsctl::commands::exporter::{answer, run, Args};
use nrsctl::exporter::encode::{label, Kind as Type, Number, CONTENT_TYPE};
use nrsctl::exporter::families::FAMILIES;
use nrsctl::exporter::http::{parse, Request};
use nrsctl::exporter::others::Memory;
use nrsctl::exporter::page::{render, Gathered};
use nrsctl::exporter::{reference, serve, textfile};
use nrsctl::failure::{Failure, Kind};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, Client, Entity, Snapshot};

const ALL: [&str; 7] = ["fairshare", "tbf", "qbm", "hung", "fifo", "empty", "quoted"];

fn gathered(snapshots: Vec<Snapshot>) -> Gathered {
    Gathered {
        snapshots,
        ..Gathered::default()
    }
}

/// All fixtures, each a service of its own.
fn everything() -> Vec<Snapshot> {
    let named = |name: &str| Snapshot {
        service: name.into(),
        ..texts::snapshot(name)
    };
    ALL.map(named).into()
}

fn page(snapshots: Vec<Snapshot>, top: usize, memory: Option<&mut Memory>) -> Page {
    let text = render(&gathered(snapshots), top, memory);
    Page::parse(&text).unwrap_or_else(|error| panic!("{error}\n{}", texts::numbered(&text)))
}

#[test]
fn pages_are_well_formed() {
    let all = page(everything(), 100, Some(&mut Memory::new()));
    assert_eq!(all.value("nrs_up", &[]), Some(1.0));
    // Services are there with all their names.
    let services: HashSet<&str> = all
        .samples()
        .filter_map(|sample| sample.label("service"))
        .collect();
    assert_eq!(services.len(), ALL.len());
    for entities in [0, 1, 300] {
        for policy in ["fairshare", "tbf", "qbm"] {
            let kernel = texts::module(&texts::service(policy, entities));
            let snapshot = stats::read(&kernel, "svc").expect("a snapshot");
            for top in [0, 7, 1000] {
                let page = page(vec![snapshot.clone()], top, Some(&mut Memory::new()));
                let shown = page
                    .samples()
                    .filter(|sample| sample.name == "nrs_entity_dispatched_requests_total");
                let crowds: HashSet<&str> = snapshot
                    .entities
                    .iter()
                    .map(|entity| entity.head.as_str())
                    .collect();
                assert!(shown.count() <= (top + 1) * crowds.len(), "{policy} {top}");
            }
        }
    }
    page(Vec::new(), 0, None);
}

/// Every family that the table has is on a page of all fixtures, or is about what none of them has.
#[test]
fn every_family_is_seen() {
    let text = render(&gathered(everything()), 2, Some(&mut Memory::new()));
    let missing: Vec<&str> = FAMILIES
        .iter()
        .filter(|family| {
            !text.contains(&format!("# TYPE {} {}\n", family.name, family.kind.name()))
        })
        .map(|family| family.name)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn what_a_machine_did_is_on_the_page() {
    let page = page(everything(), 100, None);
    let tbf = texts::snapshot("tbf");
    let greedy = tbf
        .rules
        .iter()
        .find(|rule| rule.name == "greedy" && rule.head == "regular")
        .expect("a rule");
    let labels = [("service", "tbf"), ("head", "regular"), ("rule", "greedy")];
    assert_eq!(
        page.value("nrs_rule_limit_bytes_per_second", &labels),
        Some(1e6)
    );
    assert_eq!(
        page.value("nrs_rule_limit_hits_total", &labels),
        Some(greedy.counter("limit_hits") as f64)
    );
    let seconds = page
        .value("nrs_rule_throttled_seconds_total", &labels)
        .expect("a time");
    assert!((seconds - greedy.counter("throttled_ns") as f64 / 1e9).abs() < 1e-9);
    let shares = texts::snapshot("fairshare");
    let entity = shares
        .entities
        .iter()
        .find(|entity| entity.name == "uid:1002/jobid:fio.1002")
        .expect("an entity");
    let labels = [
        ("service", "fairshare"),
        ("head", "regular"),
        ("policy", "fairshare"),
        ("entity", entity.name.as_str()),
    ];
    assert_eq!(
        page.value("nrs_entity_dispatched_requests_total", &labels),
        Some(entity.counter("dispatched") as f64)
    );
    assert_eq!(
        page.value("nrs_entity_served_bytes_total", &labels),
        Some(entity.counter("cost") as f64 * 4096.0)
    );
    assert_eq!(
        page.value("nrs_entity_share_wanted_ratio", &labels),
        entity.share_wanted
    );
    let waits = [&labels[..], &[("quantile", "0.5")]].concat();
    assert_eq!(
        page.value("nrs_entity_wait_seconds", &waits),
        Some(entity.wait_us["p50"] as f64 / 1e6)
    );
    let labels = [
        ("service", "qbm"),
        ("head", "both"),
        ("policy", "qbm"),
        ("group", "all"),
        ("entity", "jobid:job\"1"),
    ];
    assert_eq!(
        page.value("nrs_entity_allocated_bytes_per_second", &labels),
        Some(10e6)
    );
    assert_eq!(
        page.value("nrs_service_healthy", &[("service", "hung")]),
        Some(0.0)
    );
    assert_eq!(
        page.value("nrs_service_healthy", &[("service", "qbm")]),
        Some(1.0)
    );
    let quoted = [("service", "quoted"), ("client", "q\"1\\x22")];
    assert_eq!(page.value("nrs_client_lost", &quoted), Some(0.0));
    let policy = [
        ("service", "tbf"),
        ("head", "high"),
        ("policy", "tbf"),
        ("argument", "jobid+uid"),
        ("state", "started"),
        ("fallback", "no"),
    ];
    assert_eq!(page.value("nrs_policy_info", &policy), Some(1.0));
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
        (Number::Real(f64::NAN), "NaN"),
        (Number::Real(f64::INFINITY), "+Inf"),
        (Number::Real(f64::NEG_INFINITY), "-Inf"),
        (Number::Nanoseconds(1), "0.000000001"),
        (Number::Nanoseconds(2_000_000_000), "2"),
        (Number::Microseconds(1_500_000), "1.500000"),
        (Number::Milliseconds(86_537), "86.537"),
    ] {
        assert_eq!(number.to_string(), want);
    }
}

fn entity(name: &str, dispatched: u64, queued: u64) -> Entity {
    Entity {
        policy: "tbf".into(),
        head: "regular".into(),
        name: name.into(),
        queued,
        counters: [
            ("dispatched".into(), dispatched),
            ("cost".into(), dispatched * 2),
        ]
        .into(),
        unit: "pages".into(),
        ..Entity::default()
    }
}

/// The counters of entity `name` on the page of `entities`: requests and bytes.
fn counted(entities: &[Entity], name: &str, memory: Option<&mut Memory>) -> Option<(f64, f64)> {
    let snapshot = Snapshot {
        service: "s".into(),
        entities: entities.to_vec(),
        ..Snapshot::default()
    };
    let page = page(vec![snapshot], 1, memory);
    let labels = [
        ("service", "s"),
        ("head", "regular"),
        ("policy", "tbf"),
        ("entity", name),
    ];
    let requests = page.value("nrs_entity_dispatched_requests_total", &labels)?;
    Some((
        requests,
        page.value("nrs_entity_served_bytes_total", &labels)?,
    ))
}

/// Whoever is shown, and however entities come, go and start anew: what the others come to only goes up, by what they did.
#[test]
fn others_only_go_up() {
    let memory = &mut Memory::new();
    let mut others = |entities: &[Entity]| {
        counted(entities, "others", Some(&mut *memory))
            .expect("others")
            .0
    };
    assert_eq!(
        others(&[entity("a", 100, 0), entity("b", 10, 0), entity("c", 1, 0)]),
        11.0
    );
    assert_eq!(
        others(&[entity("a", 100, 0), entity("b", 20, 0), entity("c", 1, 0)]),
        21.0
    );
    // b is shown now, a is not; what a did before was never of the others.
    assert_eq!(
        others(&[entity("a", 101, 0), entity("b", 200, 0), entity("c", 1, 0)]),
        22.0
    );
    // c was forgotten and has come back; d is new.
    assert_eq!(others(&[entity("a", 101, 0), entity("b", 200, 0)]), 22.0);
    assert_eq!(
        others(&[
            entity("a", 101, 0),
            entity("b", 200, 0),
            entity("c", 5, 0),
            entity("d", 2, 0)
        ]),
        29.0
    );
    // Somebody has set all counters to zero; they have gone on since.
    assert_eq!(
        others(&[
            entity("a", 3, 0),
            entity("b", 9, 0),
            entity("c", 1, 0),
            entity("d", 0, 0)
        ]),
        33.0
    );
    // Without memory there are no counters of the others, but all else.
    let both = [entity("a", 100, 3), entity("b", 10, 4), entity("c", 9, 5)];
    assert_eq!(counted(&both, "others", None), None);
    assert_eq!(counted(&both, "a", None), Some((100.0, 200.0 * 4096.0)));
    assert_eq!(counted(&both, "b", None), None);
    let snapshot = Snapshot {
        service: "s".into(),
        entities: both.into(),
        ..Snapshot::default()
    };
    let page = page(vec![snapshot], 1, None);
    let labels = [
        ("service", "s"),
        ("head", "regular"),
        ("policy", "tbf"),
        ("entity", "others"),
    ];
    assert_eq!(page.value("nrs_entity_queued_requests", &labels), Some(9.0));
    let labels = [("service", "s"), ("head", "regular"), ("policy", "tbf")];
    assert_eq!(page.value("nrs_service_entities", &labels), Some(3.0));
}

/// That one counter is less than before says nothing of the others.
#[test]
fn counters_of_others_begin_anew_by_themselves() {
    let memory = &mut Memory::new();
    let mut others = |unit: &str, dispatched| {
        let other = Entity {
            unit: unit.into(),
            ..entity("b", dispatched, 0)
        };
        counted(&[entity("a", 1000, 0), other], "others", Some(&mut *memory)).expect("others")
    };
    assert_eq!(others("pages", 100), (100.0, 200.0 * 4096.0));
    // Costs are requests now, and say nothing of bytes.
    assert_eq!(others("requests", 103), (103.0, 200.0 * 4096.0));
}

/// A device with several targets is one client.
#[test]
fn clients_are_counted_by_their_names() {
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
    let labels = [("service", "s")];
    assert_eq!(page.value("nrs_service_clients", &labels), Some(2.0));
    assert_eq!(page.value("nrs_service_clients_lost", &labels), Some(1.0));
}

/// What has one name is told of once, whatever the reason: a page with a sample twice would be refused whole.
#[test]
fn nothing_is_told_of_twice() {
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
    let twice = [entity("a", 100, 3), entity("b", 10, 4), entity("b", 20, 5)];
    assert_eq!(counted(&twice, "a", None), Some((100.0, 200.0 * 4096.0)));
    let others = counted(&twice, "others", Some(&mut Memory::new()));
    assert_eq!(others, Some((30.0, 60.0 * 4096.0)));
    // In two units, such as of classes whose rule was changed meanwhile: what is known of both.
    let requests = Entity {
        unit: "requests".into(),
        ..entity("a", 1, 0)
    };
    let mixed = [entity("a", 100, 3), requests];
    assert_eq!(counted(&mixed, "a", None), Some((101.0, 200.0 * 4096.0)));
    let kernel = texts::module(&texts::fixture("tbf"));
    let args = Args {
        services: vec!["svc".into(), "svc".into()],
        once: true,
        ..Args::default()
    };
    Page::parse(&output(&args, &kernel).expect("a page")).expect("well-formed");
}

/// A page that could not be made forgets nothing.
#[test]
fn a_failure_forgets_nothing() {
    let memory = &mut Memory::new();
    let all = [entity("a", 100, 0), entity("b", 10, 0)];
    assert_eq!(
        counted(&all, "others", Some(memory)).expect("others").0,
        10.0
    );
    let failed = Gathered {
        failure: Some(Failure::new(Kind::Other, "no")),
        ..Gathered::default()
    };
    let text = render(&failed, 1, Some(memory));
    assert_eq!(
        Page::parse(&text).expect("a page").value("nrs_up", &[]),
        Some(0.0)
    );
    assert_eq!(
        counted(&all, "others", Some(memory)).expect("others").0,
        10.0
    );
}

#[test]
fn requests() {
    let request = |path: &str, head| Request {
        head,
        path: path.into(),
    };
    for (text, want) in [
        ("GET / HTTP/1.1", Ok(request("/", false))),
        (
            "HEAD /metrics?x=1 HTTP/1.0\r\nHost: a",
            Ok(request("/metrics", true)),
        ),
        ("POST /metrics HTTP/1.1", Err(405)),
        ("GET metrics HTTP/1.1", Err(400)),
        ("GET /metrics HTTP/2", Err(400)),
        ("GET /metrics", Err(400)),
        ("GET  /metrics HTTP/1.1", Err(400)),
        ("", Err(400)),
    ] {
        assert_eq!(parse(text).map_err(|answer| answer.status), want, "{text}");
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
    let good = ask("/metrics", gathered(vec![texts::snapshot("tbf")]));
    assert_eq!((good.status, good.content_type), (200, CONTENT_TYPE));
    Page::parse(&good.body).expect("a page");
    let failed = Gathered {
        failure: Some(
            Failure::new(Kind::NotLoaded, "the module nrs is not loaded")
                .hint("load it: modprobe nrs"),
        ),
        ..Gathered::default()
    };
    let bad = ask("/metrics", failed);
    assert_eq!((bad.status, bad.content_type), (503, CONTENT_TYPE));
    assert!(
        bad.body
            .starts_with("# the module nrs is not loaded; load it: modprobe nrs\n"),
        "{}",
        bad.body
    );
    assert!(bad.body.contains("\nnrs_up 0\n"));
    // One service could not be read: the others are shown.
    let part = Gathered {
        failure: Some(Failure::new(Kind::Other, "clients of service 'a'")),
        ..gathered(vec![texts::snapshot("tbf")])
    };
    let part = ask("/metrics", part);
    assert_eq!(part.status, 200);
    assert!(part.body.starts_with("# clients of service 'a'\n"));
    assert!(part.body.contains("\nnrs_up 0\n") && part.body.contains("service=\"svc\""));
    assert_eq!(ask("/", Gathered::default()).status, 200);
    assert_eq!(ask("/metrics/", Gathered::default()).status, 404);
}

/// A server of pages of one fixture, for as long as the test runs.
fn server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let mut memory = Memory::new();
        serve::serve(listener, |request| {
            answer(
                request,
                || gathered(vec![texts::snapshot("tbf")]),
                10,
                &mut memory,
            )
        })
    });
    address
}

/// What a server answers to `request`.
fn ask(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    stream.write_all(request).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn over_http() {
    let address = server();
    let page = ask(
        address,
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;q=0.9,*/*;q=0.1\r\n\r\n",
    );
    let (head, body) = page.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n")
            && head.contains(&format!("Content-Type: {CONTENT_TYPE}\r\n"))
            && head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    Page::parse(body).expect("a page");
    // Only the head: as long as the body would be.
    let only = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    let (head, body) = only.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.contains("Content-Length: ") && !head.contains("Content-Length: 0") && body.is_empty(),
        "{only}"
    );
    for (request, want) in [
        (&b"GET /nothing HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 404 "),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"\xff\xfe\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET / HTTP/1.0\n\n", "HTTP/1.1 200 "),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(want), "{answer}");
    }
    let answer = ask(address, b"DELETE / HTTP/1.1\r\n\r\n");
    assert!(answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
    // A head that does not end.
    let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 9 << 10]].concat();
    assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
    // In pieces.
    let mut stream = TcpStream::connect(address).expect("a connection");
    for piece in ["GET /", " HTTP/1.1\r", "\n\r", "\n"] {
        stream.write_all(piece.as_bytes()).expect("a piece");
        stream.flush().expect("sent");
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

/// Those that say nothing are closed after a while; while there are many, others are sent away, and let in when they are gone.
#[test]
fn connections_are_bounded() {
    let address = server();
    let silent: Vec<TcpStream> = (0..serve::CONNECTIONS)
        .map(|_| TcpStream::connect(address).expect("a connection"))
        .collect();
    let refused = ask(address, b"");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.ends_with("too many connections\n"));
    for mut stream in silent {
        stream
            .set_read_timeout(Some(serve::PATIENCE * 12))
            .expect("a timeout");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an end");
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    }
    assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

/// A directory of this test's own.
fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}

#[test]
fn files_are_replaced_whole() {
    let directory = directory("textfile");
    let file = directory.join("nrs.prom");
    for text in ["one\n", "two\n"] {
        textfile::write(&file, text).expect("written");
        assert_eq!(fs::read_to_string(&file).expect("a file"), text);
        assert_eq!(directory.read_dir().expect("a directory").count(), 1);
    }
    let failure =
        textfile::write(&directory.join("missing/nrs.prom"), "x").expect_err("no directory");
    assert!(failure.kind == Kind::NotFound && failure.hint.is_some());
    assert_eq!(
        textfile::write(&PathBuf::from("/"), "x")
            .expect_err("no file")
            .kind,
        Kind::Usage
    );
    // What is in the way of the file itself leaves nothing behind.
    fs::create_dir(directory.join("taken")).expect("a directory");
    fs::write(directory.join("taken/x"), "").expect("a file");
    textfile::write(&directory.join("taken"), "x").expect_err("a directory is in the way");
    assert_eq!(directory.read_dir().expect("a directory").count(), 2);
}

fn output(args: &Args, kernel: &Mock) -> Result<String, Kind> {
    let mut out = Vec::new();
    run(args, kernel, &mut out).map_err(|failure| failure.kind)?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn the_command() {
    let kernel = texts::module(&texts::fixture("tbf"));
    let once = Args {
        once: true,
        top: 100,
        ..Args::default()
    };
    let text = output(&once, &kernel).expect("a page");
    assert!(
        text.contains("\nnrs_up 1\n")
            && text.contains("# TYPE nrs_rule_limit_hits_total counter\n")
    );
    let missing = Args {
        once: true,
        services: vec!["other".into()],
        ..Args::default()
    };
    assert_eq!(output(&missing, &kernel), Err(Kind::NotFound));
    // Others are shown all the same, and the status tells it.
    let some = Args {
        services: vec!["other".into(), "svc".into()],
        top: 100,
        ..once.clone()
    };
    let mut out = Vec::new();
    let failure = run(&some, &kernel, &mut out).expect_err("no service");
    assert_eq!(failure.kind, Kind::NotFound);
    let shown = String::from_utf8(out).expect("UTF-8");
    assert!(shown.contains("\nnrs_up 0\n") && shown.contains("service=\"svc\""));
    let directory = directory("command");
    // From what status --json printed.
    let recorded = directory.join("snapshots.json");
    fs::write(
        &recorded,
        serde_json::to_string(&[texts::snapshot("tbf")]).expect("JSON"),
    )
    .expect("a file");
    let from = Args {
        from: Some(recorded.clone()),
        once: true,
        top: 100,
        ..Args::default()
    };
    assert_eq!(output(&from, &Mock::with(&[])).expect("a page"), text);
    fs::write(&recorded, "{").expect("a file");
    assert_eq!(output(&from, &kernel), Err(Kind::NotFound));
    // A file; where statistics cannot be read it says so, and so does the exit status.
    let file = directory.join("nrs.prom");
    let into = Args {
        textfile: Some(file.clone()),
        top: 100,
        ..Args::default()
    };
    assert_eq!(output(&into, &kernel), Ok(String::new()));
    let page = fs::read_to_string(&file).expect("a page");
    assert!(page.contains("\nnrs_up 1\n") && page.contains("service=\"svc\""));
    let into = Args {
        services: vec!["other".into()],
        ..into
    };
    assert_eq!(output(&into, &kernel), Err(Kind::NotFound));
    assert!(fs::read_to_string(&file)
        .expect("a page")
        .contains("\nnrs_up 0\n"));
    let listen = Args {
        listen: "nowhere".into(),
        ..Args::default()
    };
    assert_eq!(output(&listen, &kernel), Err(Kind::Usage));
}

/// A service whose text cannot be read, or that goes away, takes nothing from the others.
#[test]
fn one_service_keeps_no_other_from_the_page() {
    let texts = texts::fixture("tbf");
    let texts: Vec<(&str, &str)> = texts.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    let bad = [("clients", "nothing\n")];
    let once = Args {
        once: true,
        top: 100,
        ..Args::default()
    };
    let kernel = Mock::with(&[("bad", &bad), ("svc", &texts)]);
    let mut out = Vec::new();
    let failure = run(&once, &kernel, &mut out).expect_err("a text that is wrong");
    assert_eq!(failure.kind, Kind::Other);
    let page = String::from_utf8(out).expect("UTF-8");
    assert!(page.contains("\nnrs_up 0\n") && page.contains("service=\"svc\""));
    let kernel = Mock::with(&[("bad", &[]), ("svc", &texts)]);
    *kernel.leaving.borrow_mut() = Some("bad".into());
    let page = output(&once, &kernel).expect("a page");
    assert!(page.contains("\nnrs_up 1\n") && page.contains("service=\"svc\""));
}

/// The table itself: names and types as the format wants them, so that lint and readers take every page.
#[test]
fn the_table_of_families() {
    let mut names = HashSet::new();
    for family in FAMILIES.iter() {
        let (name, help) = (family.name, family.help);
        assert!(names.insert(name), "{name} twice");
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
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
        for label in &family.more {
            assert!(!family.of.labels().contains(label), "{name} {label}");
        }
        assert_eq!(
            family.more.contains(&"quantile"),
            family.kind == Type::Summary,
            "{name}"
        );
    }
}

/// The labels of samples are those that the table says, and no others.
#[test]
fn samples_have_the_labels_of_the_table() {
    let page = page(everything(), 2, Some(&mut Memory::new()));
    for sample in page.samples() {
        let family = FAMILIES.iter().find(|family| family.name == sample.name);
        let family = family.unwrap_or_else(|| panic!("{} is not in the table", sample.name));
        for (label, _) in &sample.labels {
            let known = family
                .of
                .labels()
                .iter()
                .chain(&family.more)
                .any(|known| known == label);
            assert!(known, "{} has label {label}", sample.name);
        }
        for label in family.more.iter().filter(|label| **label != "argument") {
            assert!(
                sample.label(label).is_some(),
                "{} has no label {label}",
                sample.name
            );
        }
    }
}

/// What tests/exporter.sh makes pages of is what is read of the fixtures; with NRSCTL_WRITE in the environment it is written anew.
#[test]
fn the_recorded_snapshots_are_those_of_the_fixtures() {
    let path = texts::fixtures().join("snapshots.json");
    let want = serde_json::to_string_pretty(&everything()).expect("JSON") + "\n";
    if std::env::var_os("NRSCTL_WRITE").is_some() {
        fs::write(&path, &want).expect("written");
    }
    let text = fs::read_to_string(&path).expect("snapshots");
    assert!(text == want, "run this test with NRSCTL_WRITE=1");
}

/// The page for users lists the families as the table has them; `nrsctl exporter --list` prints the list.
#[test]
fn the_documentation_is_that_of_the_table() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../Documentation/metrics.md");
    let text = fs::read_to_string(&path).expect("Documentation/metrics.md");
    let want = reference::replace(&text).expect("the lines around the list");
    assert!(text == want, "Documentation/metrics.md has another list than `nrsctl exporter --list` prints: put that between its two marks");
    let list = Args {
        list: true,
        ..Args::default()
    };
    assert_eq!(output(&list, &Mock::with(&[])), Ok(reference::list()));
}
