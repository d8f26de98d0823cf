// SPDX-License-Identifier: GPL-2.0-only

//! Texts of the module for tests and benches: those that a machine showed (`fixtures`), and those that the module's own
//! writers make here, of as many entities as are wanted and with names that do their worst.

// Not every test takes all of it.
#![allow(dead_code)]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use nrs_sched::units::NSEC_PER_SEC as SECOND;
use nrs_sched::{
    attr::Id,
    class::DEFAULT_ID,
    head::State,
    jobid::JobId,
    key::Key,
    mem::Shared,
    policy::{
        fairshare::{
            ledger::Ledger,
            stats::{self as fairshare, Row},
        },
        qbm::Brief,
        tbf::{
            plan::Count,
            record::ClassCounts,
            stats::{self as tbf, Row as ClassRow},
        },
    },
    qbm::{
        gate::{Gates, NO_SEAT},
        manager::Manager,
        plan::{Party, Plan, Scene, Who},
    },
    rules::{Name, Rate, Subject, Unit},
    text,
};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, Snapshot};

/// Names of jobs that do their worst.
pub const HOSTILE: [&[u8]; 26] = [
    b"a\"b",
    b"b\\c",
    b"c: d",
    b"- e",
    b"{f",
    b"[g]",
    b"# h",
    b"&i *j",
    b"m'n",
    b"%o",
    b"p\nq",
    b"r\tt",
    b"\xff\xfe",
    b"s\x01\x7f",
    b" u",
    b"v ",
    b"null",
    b"true",
    b"0x10",
    b"~",
    b"...",
    "\u{fc}".as_bytes(),
    b"\\",
    b"\"",
    b"w, x",
    b"\\x22\\n\\",
];

/// Where the fixtures are.
pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The texts of a fixture, by parameter.
pub fn fixture(name: &str) -> Vec<(String, String)> {
    let dir = fixtures().join(name);
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut texts: Vec<(String, String)> = files
        .map(|file| {
            let path = file.expect("a file").path();
            let text = fs::read_to_string(&path).expect("a text");
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), text)
        })
        .collect();
    texts.sort();
    texts
}

/// A module with the service `svc`, whose texts these are.
pub fn module(texts: &[(String, String)]) -> Mock {
    let values: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    Mock::with(&[("svc", &values)])
}

/// What is read of a fixture; its time is 0, so that it is the same each time.
pub fn snapshot(name: &str) -> Snapshot {
    let snapshot = stats::read(&module(&fixture(name)), "svc").expect("a snapshot");
    Snapshot {
        at_ns: 0,
        ..snapshot
    }
}

/// The job called by `number`: hostile names in turn, numbered from the second round on.
pub fn job(number: u32) -> JobId {
    let name = HOSTILE[number as usize % HOSTILE.len()];
    match number / HOSTILE.len() as u32 {
        0 => JobId::new(name),
        round => JobId::new(&[round.to_string().as_bytes(), b".", name].concat()),
    }
}

/// The text of `nrs_fairshare_stats` with so many jobs of some users; every tenth is urgent.
pub fn fairshare(entities: u32) -> String {
    let mut rows = fairshare::Rows::new();
    for high in [false, true] {
        let mut users = Vec::new();
        for number in (0..entities).filter(|number| (number % 10 == 0) == high) {
            let user = 1000 + number % 97;
            let group = Row::inner(1 + u64::from(user), 0, "uid", Key::Uid(user), 4096);
            if !users.contains(&user) {
                users.push(user);
                rows.extend(&[group], high).expect("memory");
            }
            let mut ledger = Ledger::new();
            for round in 0..=number % 3 {
                ledger.count(1 + number % 256, 1 + number % 256, round == 0);
                ledger.sample(SECOND);
                ledger.waited(u64::from(number) * 10_000);
                ledger.time(u64::from(number));
            }
            let row = Row {
                active: number % 3 != 0,
                ledger,
                lag_decipages: i64::from(number % 200) - 100,
                queue_depth: number % 20,
                ..Row::new(
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
    let mut text = String::new();
    fairshare::write_yaml(&mut text, &rows, SECOND + 1).expect("a string takes everything");
    text
}

/// The text of `nrs_tbf_stats` with so many classes under three rules.
pub fn tbf(classes: u32) -> String {
    let mut rows = tbf::Rows::new();
    for number in 0..classes {
        let (rule, rate, count) = match number % 3 {
            0 => ("greedy", Rate::new(10_000_000, Unit::Bytes), Count::Bytes),
            1 => ("other", Rate::new(500, Unit::Plain), Count::Pages),
            _ => (
                "default",
                Rate::new(10_000, Unit::Requests),
                Count::Requests,
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
    let mut text = String::new();
    tbf::write_yaml(&mut text, rows.as_slice(), sums.as_slice())
        .expect("a string takes everything");
    text
}

/// Devices without names.
struct Place;

impl Scene for Place {
    fn target_number(&self, target: u32) -> u64 {
        target.into()
    }

    fn device_name(&self, _: u32, _: &mut dyn FnMut(&[u8])) {}
}

/// The texts of `nrs_qbm_status` and `nrs_qbm_stats` with so many clients in a group, and one without.
pub fn qbm(clients: u32) -> [String; 2] {
    let plan = "by jobid\ngroup all capacity=40MB/s reserve_low_share=2MB/s\ngroup moved target=8:16 capacity=10MB/s strategy=mover\n\
        default class=fair_share min=1MB/s max=1MB/s\n";
    let plan = Plan::parse(plan).expect("a plan");
    let plan = Shared::new(plan).expect("memory");
    let gates = Shared::new(Gates::new(1 << 14).expect("memory")).expect("memory");
    let mut manager = Manager::new(plan, gates, 3).expect("memory");
    for number in 0..clients {
        let brief = Brief {
            id: DEFAULT_ID,
            who: Who {
                party: Party::Key(Key::Jobid(job(number))),
                target: 0,
            },
            seat: NO_SEAT,
            busy: true,
        };
        manager.meet(&brief, &Place, SECOND);
    }
    manager.tick(SECOND);
    let (mut status, mut stats) = (String::new(), String::new());
    manager
        .write_status(&mut status, &Place, 2 * SECOND)
        .expect("a string takes everything");
    manager
        .write_stats(&mut stats, &Place)
        .expect("a string takes everything");
    [status, stats]
}

/// The text of `nrs_policies` with this policy on both heads.
pub fn policies(name: &str, argument: &str) -> String {
    let row = |name, argument, fallback| text::Row {
        name,
        argument,
        state: State::Started,
        fallback,
        queued: 3,
        active: 1,
    };
    let rows = [row("fifo", None, true), row(name, Some(&argument), false)];
    let mut text = String::new();
    text::write_policies(&mut text, &rows, Some(&rows)).expect("a string takes everything");
    text
}

/// The texts of a service under `policy` that tells so many entities apart.
pub fn service(policy: &str, entities: u32) -> Vec<(String, String)> {
    let mut texts = fixture("empty");
    texts.retain(|(name, _)| {
        name != "nrs_policies" && !name.contains("stats") || name == "at_stats"
    });
    let mut put = |name: &str, text: String| texts.push((name.into(), text));
    match policy {
        "fairshare" => {
            put("nrs_policies", policies(policy, "uid_then_jobid_fair"));
            put("nrs_fairshare_stats", fairshare(entities));
        }
        "tbf" => {
            put("nrs_policies", policies(policy, "uid+jobid"));
            put("nrs_tbf_stats", tbf(entities));
        }
        _ => {
            let [status, stats] = qbm(entities);
            put("nrs_policies", policies(policy, ""));
            put("nrs_qbm_status", status);
            put("nrs_qbm_stats", stats);
        }
    }
    texts
}

/// `text` as one would have it as a number of lines, for messages.
pub fn numbered(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let _ = writeln!(out, "{number:4} {line}");
    }
    out
}
