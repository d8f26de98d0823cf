// SPDX-License-Identifier: GPL-2.0-only

//! Contents of `nrs_qbm_status` and `nrs_qbm_stats`: valid YAML for all client names.

use super::sim::plan;
use nrs_sched::{
    item::{Cost, Direction},
    jobid::JobId,
    key::{Field, Key},
    mem::Shared,
    qbm::{
        gate::{GateClaim, Gates},
        manager::BandwidthManager,
        plan::{ClientKey, OverseerContext, RequestOwner},
    },
    units::NSEC_PER_SEC as SECOND,
};
use serde_yaml_ng::Value;

/// A context in which device 1 has this name.
struct Named<'a>(&'a [u8]);

impl OverseerContext for Named<'_> {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        if device == 1 {
            f(self.0);
        }
    }
}

/// Returns the status and the statistics of a service with clients that arrive in this order and
/// write 1 MB each.
fn texts(text: &str, scene: &impl OverseerContext, clients: &[(ClientKey, u32)]) -> [String; 2] {
    let gates = Shared::new(Gates::new(64, 3).expect("memory")).expect("memory");
    let mut manager = BandwidthManager::new(plan(text), gates.clone()).expect("memory");
    for (party, target) in clients {
        let who = RequestOwner {
            party: *party,
            target: *target,
        };
        let claim = gates.claim(&who, &GateClaim::NONE, || false, SECOND);
        manager.look(scene, false, SECOND).expect("memory");
        let gate = gates.get(claim.place()).expect("a gate");
        gate.force(Cost::new(Direction::Write, 1_000_000), SECOND);
    }
    let now = SECOND + SECOND / 2;
    manager.look(scene, true, now).expect("memory");
    let (mut status, mut stats) = (String::new(), String::new());
    manager
        .report_status(
            &mut nrs_sched::report::Report::yaml(&mut status),
            scene,
            now,
        )
        .expect("room");
    manager
        .report_stats(&mut nrs_sched::report::Report::yaml(&mut stats), scene)
        .expect("room");
    [status, stats]
}

#[test]
fn groups_and_clients() {
    let text = "by uid; group disks capacity=100MB target=1 reserve_low_share=10MB
        group tapes capacity=50MB strategy=mover
        default class=low_share min=10MB
        client 1 group=disks class=first_come min=30MB max=50MB
        client 8 group=tapes class=mover min=5MB";
    let user = |uid| ClientKey::Key(Key::Uid(uid));
    let absent = ClientKey::Key(Key::Absent(Field::Uid));
    let clients = [(user(1), 1), (absent, 1), (user(8), 2), (user(3), 2)];
    let texts = texts(text, &Named(b""), &clients);
    for (shown, want) in texts.iter().zip([STATUS, STATS]) {
        // Clients are in the order of their gates.
        let parts = |text: &str| {
            let mut parts: Vec<String> = text.split("- ").map(|part| part.trim().into()).collect();
            parts.sort();
            parts
        };
        let want = want.replace("COUNTED", COUNTED);
        let want = want.replace("    NONE", &format!("    {}", NONE.join("\n    ")));
        let want = want.replace("  NONE", &format!("  {}", NONE.join("\n  ")));
        assert_eq!(parts(shown), parts(&want), "{shown}");
    }
    assert_eq!(self::texts("by uid", &Named(b""), &[]), ["[]\n"; 2]);
    let empty = self::texts("group a capacity=1GB", &Named(b""), &[]);
    assert!(empty.iter().all(|text| text.ends_with("  clients: []\n")));
}

const STATUS: &str = r#"- group: "disks"
  strategy: "classes"
  capacity: 100000000
  free: 60000000
  oversubscribed: 0
  reserves: { "first_come": 0, "fair_share": 0, "low_share": 0, "mover": 0 }
  registered: 2
  clients:
  - client: "uid:1"
    class: "first_come"
    min: 30000000
    max: 50000000
    allocated: 30000000
    given: 30000000
    wants: false
    unmet: false
    used_fast: 2000000
    used_slow: 2000000
    sleeps: 0
  - client: "uid:absent"
    class: "low_share"
    min: 10000000
    max: 100000000
    allocated: 10000000
    given: 10000000
    wants: false
    unmet: false
    used_fast: 2000000
    used_slow: 2000000
    sleeps: 0
- group: "tapes"
  strategy: "mover"
  capacity: 50000000
  free: 0
  oversubscribed: 0
  reserves: { "first_come": 0, "fair_share": 0, "low_share": 0, "mover": 0 }
  used_by_others: 2000000
  left_to_movers: 47000000
  registered: 2
  clients:
  - client: "uid:3"
    class: "unregulated"
    allocated: "unregulated"
    used_fast: 2000000
    used_slow: 2000000
    sleeps: 0
  - client: "uid:8"
    class: "mover"
    min: 5000000
    max: 50000000
    allocated: 47000000
    given: 47000000
    wants: false
    unmet: false
    used_fast: 2000000
    used_slow: 2000000
    sleeps: 0
"#;
/// `COUNTED` stands for most counters of a client. Bandwidth used by others is taken from the
/// mover.
const STATS: &str = r#"- group: "disks"
  requests: 2
  read_bytes: 0
  written_bytes: 2000000
  NONE
  losses: 0
  taken_by_others: 0
  joins: 2
  leaves: 0
  without_gate: 0
  clients:
  - client: "uid:1"
    COUNTED
    losses: 0
    taken_by_others: 0
  - client: "uid:absent"
    COUNTED
    losses: 0
    taken_by_others: 0
- group: "tapes"
  requests: 2
  read_bytes: 0
  written_bytes: 2000000
  NONE
  losses: 1
  taken_by_others: 3000000
  joins: 2
  leaves: 0
  without_gate: 0
  clients:
  - client: "uid:3"
    COUNTED
    losses: 0
    taken_by_others: 0
  - client: "uid:8"
    COUNTED
    losses: 1
    taken_by_others: 3000000
"#;

const COUNTED: &str = "requests: 1
    read_bytes: 0
    written_bytes: 1000000
    NONE";

/// `NONE` stands for counters that are 0.
const NONE: [&str; 7] = [
    "sleeps: 0",
    "restores: 0",
    "increases_asked: 0",
    "increases_whole: 0",
    "increases_partly: 0",
    "increases_refused: 0",
    "decreases: 0",
];

/// Checks that names of jobs and devices are shown unchanged, with any bytes.
#[test]
fn names_survive() {
    let shown = |texts: [String; 2]| {
        texts.map(|text| {
            let shown: Value = serde_yaml_ng::from_str(&text).expect("YAML");
            let name = shown[0]["clients"][0]["client"].as_str();
            name.expect("a name").to_owned()
        })
    };
    let name = b"a: \"b\\ #[{'%&*!\n\x01\xff";
    let latin: String = name.iter().map(|b| char::from(*b)).collect();
    for (by, party, want) in [
        (
            "jobid",
            ClientKey::Key(Key::Jobid(JobId::new(name))),
            format!("jobid:{latin}"),
        ),
        ("device", ClientKey::Device(1), format!("device:{latin}")),
        ("device", ClientKey::Device(7), "device:7".into()),
    ] {
        let text = format!("by {by}; group a capacity=1GB");
        let got = shown(texts(&text, &Named(name), &[(party, 0)]));
        assert_eq!(got, [&*want; 2]);
    }
}
