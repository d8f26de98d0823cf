// SPDX-License-Identifier: GPL-2.0-only

//! What `nrs_qbm_status` and `nrs_qbm_stats` show is YAML, whatever clients are called.

use nrs_sched::{
    bandwidth::{Load, Setup, Sim, MB, SECOND},
    jobid::JobId,
    key::{Field, Key},
    mem::Shared,
    qbm::{
        gate::{Gates, Seat},
        manager::Manager,
        plan::{Party, Plan, Scene, Who},
    },
};
use proptest::prelude::*;
use yaml_rust2::{Yaml, YamlLoader};

/// Devices with a name.
struct Named<'a>(&'a [u8]);

impl Scene for Named<'_> {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        if device < 2 {
            f(self.0);
        }
    }
}

fn parse(text: &str) -> Vec<Yaml> {
    let mut documents = YamlLoader::load_from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    match documents.pop() {
        Some(Yaml::Array(groups)) => groups,
        other => panic!("{other:?}: {text}"),
    }
}

fn number(yaml: &Yaml, field: &str) -> i64 {
    let value = yaml[field].as_i64();
    value.unwrap_or_else(|| panic!("{field} in {yaml:?}"))
}

/// Status and statistics of a service with these clients.
fn texts(text: &str, scene: &impl Scene, parties: &[Party]) -> [Vec<Yaml>; 2] {
    let plan = Shared::new(Plan::parse(text).expect("a plan")).expect("memory");
    let gates = Shared::new(Gates::new(64, 3).expect("memory")).expect("memory");
    let mut manager = Manager::new(plan, gates.clone()).expect("memory");
    for party in parties {
        let who = Who {
            party: *party,
            target: 0,
        };
        gates.claim(&who, &Seat::NONE, SECOND);
        // In their order.
        manager.look(scene, false, SECOND).expect("memory");
    }
    manager.look(scene, true, SECOND).expect("memory");
    let (mut status, mut stats) = (String::new(), String::new());
    let now = 2 * SECOND;
    manager.write_status(&mut status, scene, now).expect("room");
    manager.write_stats(&mut stats, scene).expect("room");
    [parse(&status), parse(&stats)]
}

#[test]
fn status_of_classes() {
    let text = "by uid; group \"disks\" capacity=100MB reserve_first_come=10MB
        client 1 class=first_come min=30MB max=50MB
        default class=low_share min=10MB";
    let text = text.replace('"', "");
    let mut sim = Sim::new(&text, Setup::default());
    sim.load(1, Load::Greedy(8));
    sim.load(2, Load::Rate(2 * MB));
    sim.run(40 * SECOND);
    let groups = parse(&sim.status());
    assert_eq!(groups.len(), 1);
    let group = &groups[0];
    assert_eq!(group["group"].as_str(), Some("disks"));
    assert_eq!(group["strategy"].as_str(), Some("classes"));
    assert_eq!(number(group, "capacity"), 100_000_000);
    assert_eq!(number(group, "oversubscribed"), 0);
    assert_eq!(number(group, "registered"), 2);
    for class in ["first_come", "fair_share", "low_share", "mover"] {
        assert_eq!(number(&group["reserves"], class), 0, "{class}");
    }
    let clients = group["clients"].as_vec().expect("a sequence");
    let find = |name: &str| {
        let found = clients.iter().find(|c| c["client"].as_str() == Some(name));
        found.unwrap_or_else(|| panic!("{name}: {clients:?}"))
    };
    let (one, two) = (find("uid:1"), find("uid:2"));
    assert_eq!(one["class"].as_str(), Some("first_come"));
    assert_eq!(two["class"].as_str(), Some("low_share"));
    for (client, field, want) in [
        (one, "min", 30_000_000),
        (one, "max", 50_000_000),
        (one, "allocated", 39_000_000),
        (one, "given", 39_000_000),
        (two, "min", 10_000_000),
        (two, "max", 100_000_000),
        (two, "allocated", 9_000_000),
        (two, "given", 10_000_000),
    ] {
        assert_eq!(number(client, field), want, "{field}: {client:?}");
    }
    assert_eq!(number(group, "free"), 52_000_000);
    let used = number(one, "used_fast");
    assert!((38_000_000..40_000_000).contains(&used), "{used}");
    let used = number(two, "used_slow");
    assert!((1_900_000..2_200_000).contains(&used), "{used}");
    assert!(number(one, "sleeps") > 500);
    assert_eq!(one["wants"].as_bool(), Some(false));
    assert_eq!(one["unmet"].as_bool(), Some(false));
}

#[test]
fn stats_count_and_reset() {
    let text = "by uid; group all capacity=100MB
        client 1 class=first_come min=60MB max=60MB
        default class=fair_share min=60MB max=90MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(2, Load::Greedy(8));
    sim.run(35 * SECOND);
    sim.load(1, Load::Greedy(8));
    sim.run(10 * SECOND);
    sim.load(2, Load::Off);
    sim.run(3 * SECOND);
    let groups = parse(&sim.stats());
    let group = &groups[0];
    for (field, want) in [
        ("joins", 2),
        ("leaves", 1),
        ("seatless", 0),
        ("increases_asked", 1),
        ("increases_whole", 1),
        ("increases_refused", 0),
        ("losses", 1),
        ("taken_by_others", 38_000_000),
        ("decreases", 0),
        ("written_bytes", 0),
    ] {
        assert_eq!(number(group, field), want, "{field}: {group:?}");
    }
    let bytes = number(group, "read_bytes");
    assert!(bytes > 2_900_000_000, "{bytes}");
    assert_eq!(number(group, "requests") * 262_144, bytes);
    let clients = group["clients"].as_vec().expect("a sequence");
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0]["client"].as_str(), Some("uid:1"));
    assert!(number(&clients[0], "read_bytes") > 500_000_000);
    sim.manager.reset_stats();
    let groups = parse(&sim.stats());
    for yaml in [&groups[0], &groups[0]["clients"][0]] {
        for field in [
            "requests",
            "read_bytes",
            "sleeps",
            "losses",
            "taken_by_others",
        ] {
            assert_eq!(number(yaml, field), 0, "{field}");
        }
    }
}

#[test]
fn status_of_movers() {
    let text = "by uid; group all capacity=100MB strategy=mover; client 8 class=mover min=10MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.load(1, Load::Rate(30 * MB));
    sim.load(8, Load::Greedy(8));
    sim.run(10 * SECOND);
    let groups = parse(&sim.status());
    let group = &groups[0];
    assert_eq!(group["strategy"].as_str(), Some("mover"));
    let outside = number(group, "used_by_others");
    assert!((29_000_000..34_000_000).contains(&outside), "{outside}");
    let left = number(group, "left_to_movers");
    assert!((left + outside - 98_000_000).abs() < 1_500_000, "{left}");
    let clients = group["clients"].as_vec().expect("a sequence");
    let regular = clients
        .iter()
        .find(|c| c["client"].as_str() == Some("uid:1"));
    let regular = regular.expect("it is shown");
    assert_eq!(regular["class"].as_str(), Some("unregulated"));
    assert_eq!(regular["allocated"].as_str(), Some("unregulated"));
}

#[test]
fn nothing_and_nobody() {
    let nobody: &[Party] = &[];
    let scene = Named(b"disk");
    assert!(texts("by uid", &scene, nobody).iter().all(Vec::is_empty));
    for text in texts(
        "group a capacity=1GB; group b capacity=2GB target=1",
        &scene,
        nobody,
    ) {
        assert_eq!(text.len(), 2);
        assert_eq!(text[1]["clients"].as_vec().map(Vec::len), Some(0));
    }
    let unknown = [Party::Key(Key::Absent(Field::Uid))];
    let [status, _] = texts("by uid; group a capacity=1GB", &scene, &unknown);
    assert_eq!(
        status[0]["clients"][0]["client"].as_str(),
        Some("uid:absent")
    );
}

#[test]
fn devices_by_name() {
    let parties = [Party::Device(1), Party::Device(7)];
    let text = "by device; group a capacity=1GB; client disk class=fs min=1MB";
    let [status, stats] = texts(text, &Named(b"disk"), &parties);
    for text in [&status, &stats] {
        let clients = text[0]["clients"].as_vec().expect("a sequence");
        let mut names: Vec<_> = clients.iter().map(|c| c["client"].as_str()).collect();
        names.sort();
        assert_eq!(names, [Some("device:7"), Some("device:disk")]);
    }
    for client in status[0]["clients"].as_vec().expect("a sequence") {
        let listed = client["client"].as_str() == Some("device:disk");
        let min = if listed { 1_000_000 } else { 1_000_000_000 };
        assert_eq!(number(client, "min"), min);
    }
}

proptest! {
    /// Names of jobs and devices are shown as they are, whatever is in them.
    #[test]
    fn names_survive(name in proptest::collection::vec(any::<u8>(), 1..31)) {
        let shown = |bytes: &[u8]| -> String { bytes.iter().map(|b| char::from(*b)).collect() };
        let job = JobId::new(&name);
        if !job.is_empty() {
            let parties = [Party::Key(Key::Jobid(job))];
            for text in texts("by jobid; group a capacity=1GB", &Named(b""), &parties) {
                let want = format!("jobid:{}", shown(job.as_bytes()));
                prop_assert_eq!(text[0]["clients"][0]["client"].as_str(), Some(&want[..]));
            }
        }
        for text in texts("by device; group a capacity=1GB", &Named(&name), &[Party::Device(1)]) {
            let want = format!("device:{}", shown(&name));
            prop_assert_eq!(text[0]["clients"][0]["client"].as_str(), Some(&want[..]));
        }
    }
}
