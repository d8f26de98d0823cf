// SPDX-License-Identifier: GPL-2.0-only

//! Contents of `nrs_qbm_status` and `nrs_qbm_stats`: valid YAML for all client names.

use nrs_sched::{
    item::{Cost, Direction},
    jobid::JobId,
    key::{Field, Key},
    managed::{user, yaml, Managed},
    qbm::plan::{ClientKey, OverseerContext},
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
    let mut service = Managed::new(text, 64);
    for (party, target) in clients {
        let claim = service.queue(*party, *target, SECOND);
        service.look_in(scene, false, SECOND);
        let cost = Cost::new(Direction::Write, 1_000_000);
        service.gate(&claim).force(cost, SECOND);
    }
    let now = SECOND + SECOND / 2;
    service.look_in(scene, true, now);
    let manager = &service.manager;
    [
        yaml(|report| manager.report_status(report, scene, now)),
        yaml(|report| manager.report_stats(report, scene)),
    ]
}

#[test]
fn groups_and_clients() {
    let text = "by uid; group disks capacity=100MB target=1 reserve_low_share=10MB
        group tapes capacity=50MB strategy=mover
        default class=low_share min=10MB
        client 1 group=disks class=first_come min=30MB max=50MB
        client 8 group=tapes class=mover min=5MB";
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
        let want = want
            .replace("RESERVES", RESERVES)
            .replace("COUNTED", COUNTED);
        let want = want.replace("USED", USED).replace("NONE", NONE);
        let lines = want.lines().map(|line| {
            // The fields of a group are indented by 2, those of a client by 4.
            let indent = line.len() - line.trim_start().len() + 2;
            line.replace("; ", &format!("\n{:indent$}", ""))
        });
        let want = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(parts(shown), parts(&want), "{shown}");
    }
    assert_eq!(self::texts("by uid", &Named(b""), &[]), ["[]\n"; 2]);
    let empty = self::texts("group a capacity=1GB", &Named(b""), &[]);
    assert!(empty.iter().all(|text| text.ends_with("  clients: []\n")));
}

/// Status of the groups, and statistics. The fields of a group or client are separated by
/// semicolons; `RESERVES`, `USED`, `COUNTED` and `NONE` stand for repeated ones.
const STATUS: &str = "\
- group: \"disks\"; strategy: \"classes\"; capacity: 100000000; free: 60000000; \
oversubscribed: 0; RESERVES; registered: 2; clients:
  - client: \"uid:1\"; class: \"first_come\"; min: 30000000; max: 50000000; \
allocated: 30000000; given: 30000000; USED
  - client: \"uid:absent\"; class: \"low_share\"; min: 10000000; max: 100000000; \
allocated: 10000000; given: 10000000; USED
- group: \"tapes\"; strategy: \"mover\"; capacity: 50000000; free: 0; oversubscribed: 0; \
RESERVES; used_by_others: 2000000; left_to_movers: 47000000; registered: 2; clients:
  - client: \"uid:3\"; class: \"unregulated\"; allocated: \"unregulated\"; \
used_fast: 2000000; used_slow: 2000000; sleeps: 0
  - client: \"uid:8\"; class: \"mover\"; min: 5000000; max: 50000000; \
allocated: 47000000; given: 47000000; USED";

/// Bandwidth used by others is taken from the mover.
const STATS: &str = "\
- group: \"disks\"; requests: 2; read_bytes: 0; written_bytes: 2000000; NONE; \
losses: 0; taken_by_others: 0; joins: 2; leaves: 0; without_gate: 0; clients:
  - client: \"uid:1\"; COUNTED; losses: 0; taken_by_others: 0
  - client: \"uid:absent\"; COUNTED; losses: 0; taken_by_others: 0
- group: \"tapes\"; requests: 2; read_bytes: 0; written_bytes: 2000000; NONE; \
losses: 1; taken_by_others: 3000000; joins: 2; leaves: 0; without_gate: 0; clients:
  - client: \"uid:3\"; COUNTED; losses: 0; taken_by_others: 0
  - client: \"uid:8\"; COUNTED; losses: 1; taken_by_others: 3000000";

const RESERVES: &str =
    r#"reserves: { "first_come": 0, "fair_share": 0, "low_share": 0, "mover": 0 }"#;
const USED: &str = "wants: false; unmet: false; used_fast: 2000000; used_slow: 2000000; sleeps: 0";
const COUNTED: &str = "requests: 1; read_bytes: 0; written_bytes: 1000000; NONE";
const NONE: &str = "sleeps: 0; restores: 0; increases_asked: 0; increases_whole: 0; \
increases_partly: 0; increases_refused: 0; decreases: 0";

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
