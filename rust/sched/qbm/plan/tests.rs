// SPDX-License-Identifier: GPL-2.0-only

mod wrong;

use super::*;
use crate::sched::{attr::Id, jobid::JobId, nid::Nid};

/// Service with devices `d1` to `d9`.
pub(super) struct Nine;

impl OverseerContext for Nine {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        if (1..=9).contains(&device) {
            f(format!("d{device}").as_bytes());
        }
    }
}

fn plan(text: &str) -> Plan {
    Plan::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn text(plan: &Plan) -> String {
    let mut out = String::new();
    plan.write(&mut out).unwrap();
    out
}

fn refused(text: &str) -> Error {
    match Plan::parse(text) {
        Ok(_) => panic!("{text:?} was taken"),
        Err(error) => error,
    }
}

/// Parses a client, such as `jobid:dd`, `uid:7`, `absent:uid`, `device:3`, `default` or `0@lo`.
fn client(text: &str) -> ClientKey {
    let number = |text: &str| text.parse().unwrap();
    ClientKey::Key(match text.split_once(':') {
        Some(("jobid", name)) => Key::Jobid(JobId::new(name.as_bytes())),
        Some(("uid", uid)) => Key::Uid(number(uid)),
        Some(("gid", gid)) => Key::Gid(number(gid)),
        Some(("absent", field)) => match field {
            "nid" => Key::Absent(Field::Nid),
            "jobid" => Key::Absent(Field::Jobid),
            _ => Key::Absent(Field::Uid),
        },
        Some(("device", device)) => return ClientKey::Device(number(device)),
        None if text == "default" => Key::Default,
        _ => Key::Nid(Nid::parse(text).unwrap()),
    })
}

/// Cases of lines of a plan, followed by what is in effect: `group TARGET=INDEX…`, `line
/// CLIENT=INDEX…` in group 0, `of CLIENT/GROUP=CLASS:MIN:MAX…`, `terms` and `default
/// INDEX=CLASS:MIN:MAX…` of clients without a line, and `reserves INDEX=RATES…`, in bytes/s.
const LOOKUPS: &str = "
# groups of targets
group a capacity=1MB target=8:16; group b capacity=1MB target=7
group c capacity=2MB
| group 8388624=0 7=1 8=2 0=2 4294967295=2

# a target without a group
group a capacity=1MB target=0
| group 0=0 1=none

# terms of unlisted clients without settings
group a capacity=100MB
| terms 0=fair_share:100000000:100000000 1=none
| default 0=fair_share:100000000:100000000 1=none

# terms of unlisted clients [LINE TERMS: class=ls low_share:100000000:100000000, \
min=5% fair_share:5000000:100000000, \
max=5% fair_share:5000000:5000000]
default LINE
group a capacity=100MB
| terms 0=TERMS 1=none
| default 0=TERMS 1=none

# terms of unlisted clients of a group [LINE TERMS: # first_come:1000000:2000000, \
max=50% first_come:1000000:50000000]
default class=fc min=1MB max=2MB
group a capacity=100MB LINE
| terms 0=TERMS 1=none
| default 0=TERMS 1=none

# terms of a group replace the defaults
default class=fc min=1MB max=2MB
group a capacity=100MB class=mover min=2MB
| terms 0=mover:2000000:2000000 1=none

# defaults may exceed the capacity of a group of movers, because they are not used there
default min=5MB
group a capacity=1MB strategy=mover
| terms 0=none
| default 0=fair_share:1000000:1000000

# reserves
group a capacity=10MB reserve_first_come=10% reserve_mover=1MB reserve_low_share=0
group b capacity=10MB target=1 reserve_first_come=25% reserve_fair_share=25% \
reserve_low_share=25% reserve_mover=2500KB
| reserves 0=1000000,0,0,1000000 1=2500000,2500000,2500000,2500000

# a line matches clients of the kind of by
group a capacity=100MB
client *@tcp class=fc min=1MB
| line 10.0.0.1@tcp=0 absent:nid=none default=none uid:10=none device:1=none jobid:10.0.0.1@tcp=none

# a line has its terms in its group, or in each group
by uid; group a capacity=100MB; group b capacity=10MB target=1
client 1 class=ls min=10% max=50% group=b; client 1 class=fc min=5%; client 2 class=mover min=2MB
| of uid:1/0=first_come:5000000:100000000 uid:1/1=low_share:1000000:5000000
| of uid:2/0=mover:2000000:100000000 uid:2/1=mover:2000000:10000000
| line uid:1=1 uid:2=2

# lines of jobs
by jobid; group a capacity=9MB
client d1 class=fs min=1MB; client d? class=fs min=2MB
client *.* class=fs min=3MB; client * class=fs min=4MB
| line jobid:d1=0 jobid:d2=1 jobid:d=3 jobid:d.1=2 jobid:x=3 absent:jobid=3

# lines of devices
by device; group a capacity=9MB
client d1 class=fs min=1MB; client d? class=fs min=2MB
client *.* class=fs min=3MB; client * class=fs min=4MB
| line device:1=0 device:2=1 device:9=1 device:0=none device:10=none

# lines of users
by uid; group a capacity=9MB; client 0 class=fc min=1MB
client 4294967295 class=fc min=2MB; client 1000 class=fc min=3MB
| line uid:0=0 absent:uid=1 uid:1000=2 uid:1=none gid:0=none 0@lo=none
";

fn shown_terms(terms: Entitlement) -> String {
    format!("{}:{}:{}", terms.class.name(), terms.min, terms.max)
}

#[test]
fn lookups() {
    crate::script::play(LOOKUPS, String::new, |text, line| {
        let Some(checks) = line.strip_prefix("| ") else {
            *text += &format!("{line}\n");
            return;
        };
        let plan = plan(text);
        let (kind, checks) = checks.split_once(' ').unwrap();
        for check in checks.split_whitespace() {
            let (of, want) = check.split_once('=').unwrap();
            let number = || of.parse().unwrap();
            let shown = |index: Option<u32>| index.map(|index| index.to_string());
            let have = match kind {
                "group" => shown(plan.group_of(number())),
                "line" => shown(plan.line_for(0, &client(of), &Nine)),
                "of" => {
                    let (of, group) = of.split_once('/').unwrap();
                    let terms = plan.terms(group.parse().unwrap(), &client(of), &Nine);
                    terms.map(shown_terms)
                }
                "reserves" => {
                    let reserves = plan.groups()[number() as usize].reserves();
                    Some(reserves.map(|reserve| reserve.to_string()).join(","))
                }
                "default" => plan.default_terms(number()).map(shown_terms),
                _ => {
                    let terms =
                        ["0@lo", "default"].map(|name| plan.terms(number(), &client(name), &Nine));
                    assert_eq!(terms[0], terms[1]);
                    terms[0].map(shown_terms)
                }
            };
            assert_eq!(have.as_deref().unwrap_or("none"), want, "{check}");
        }
    });
}

/// Plans and the texts in which they are written; the line ends there are shown as `;`.
const WRITTEN: &str = "
# as it is read
by nid; tune period=40ms floor=32KiB raise=30% |
by device | by device;
tune slow=10s floor=64Ki; tune headroom=0% | tune slow=10s floor=64KiB/s headroom=0%;
default max=100% class=fs min=1000000 | default class=fair_share min=1MB/s max=100%;
group x reserve_mover=5% capacity=1000MB strategy=classes target=253:7 max=1GB class=ls \
| group x capacity=1GB/s target=253:7 class=low_share max=1GB/s reserve_mover=5%;
group a-b.c:d@e_1 capacity=1073741825 strategy=mover \
| group a-b.c:d@e_1 capacity=1073741825B/s strategy=mover;
by nid;client 10.0.0.0/8@tcp0 class=fc min=5%; group b capacity=1MiB; \
client 0@lo group=b class=mover min=40KB max=1MiB/s \
| group b capacity=1MiB/s;client 10.0.0.0/8@tcp0 class=first_come min=5%;\
client 0@lo class=mover min=40KB/s max=1MiB/s group=b;
";

#[test]
fn written_as_it_is_read() {
    crate::script::play(
        WRITTEN,
        || (),
        |(), line| {
            let (read, want) = line.split_once('|').unwrap();
            let written = text(&plan(read));
            assert_eq!(written.replace('\n', ";"), want.trim());
            assert_eq!(text(&plan(&written)), written);
        },
    );
}

/// Plan of two groups, a prefix for the texts below.
const TWO: &str = "group a capacity=100MB/s target=8:0\ngroup b capacity=10MB/s\n";

#[test]
fn nothing_is_regulated_without_a_plan() {
    for plan in [Plan::none(), plan(""), plan(" \n# a comment\n;;\r\n")] {
        assert_eq!(
            (plan.by(), *plan.tuning()),
            (By::Nid, BandwidthParameters::default())
        );
        assert!(plan.groups().is_empty() && plan.clients.as_slice().is_empty());
        assert_eq!(plan.group_of(0), None);
        assert_eq!(plan.terms(0, &client("0@lo"), &Nine), None);
        assert_eq!(text(&plan), "");
    }
}

#[test]
fn comments_blanks_and_semicolons() {
    let want = text(&plan(
        "by jobid\ngroup a capacity=1MB\nclient x#1 class=fs min=100KB\n",
    ));
    for other in [
        "by jobid;group a capacity=1MB;client x#1 class=fs min=100KB",
        "  by\tjobid ; group a capacity=1MB;; client x#1 min=100KB class=fs;",
        "# by nid; by uid\nby jobid # nid\n\n\tgroup a capacity=1MB;#;\r\n\
         client x#1 class=fs min=100KB\r\n",
        "by jobid\ngroup a capacity=1MB\n client x#1 class=fair_share min=100KB #\u{e9}",
    ] {
        assert_eq!(text(&plan(other)), want, "{other}");
    }
}

/// Compares lookups by binary search and by patterns: the first line decides in both cases.
#[test]
fn many_lines() {
    let line = |uid: u32| {
        let (name, group) = (uid * 7_919 % 4_001, ["a", "b"][uid as usize % 2]);
        (
            name,
            group,
            format!("client {name} class=fc min=1MB group={group}\n"),
        )
    };
    let lines: String = (1..4_000).map(|uid| line(uid).2).collect();
    let groups = "group a capacity=100MB\ngroup b capacity=100MB target=1\n";
    let users = plan(&format!(
        "by uid\n{groups}{lines}client 4294967295 class=fc min=1MB"
    ));
    assert!(users.patterns.as_slice().is_empty() && users.listed_max() == 4_001);
    for (at, uid) in (0..).zip(1..4_000) {
        let (name, group, _) = line(uid);
        let party = ClientKey::Key(Key::Uid(name));
        let found = [0, 1].map(|group| users.line_for(group, &party, &Nine));
        let want = [
            Some(at).filter(|_| group == "a"),
            Some(at).filter(|_| group == "b"),
        ];
        assert_eq!(found, want, "{name}");
        let who = RequestOwner { party, target: 1 };
        assert_eq!(users.lists(&who), group == "b", "{name}");
    }
    let unknown = ClientKey::Key(Key::Absent(Field::Uid));
    assert_eq!(users.line_for(1, &unknown, &Nine), Some(3_999));
    let names =
        ["dd.1", "dd.*", "a*", "a1"].map(|name| format!("client {name} class=fc min=1MB\n"));
    let jobs = plan(&format!("by jobid\n{groups}{}", names.concat()));
    for (name, want) in [
        ("dd.1", Some(0)),
        ("dd.2", Some(1)),
        ("a1", Some(2)),
        ("b", None),
    ] {
        assert_eq!(
            jobs.line_for(0, &client(&format!("jobid:{name}")), &Nine),
            want,
            "{name}"
        );
    }
    assert_eq!(
        (jobs.patterns.as_slice().len(), jobs.listed_max()),
        (2, u32::MAX)
    );
}

#[test]
fn who_asks() {
    let attrs = Attrs {
        nid: Nid::parse("0@lo").ok(),
        jobid: JobId::new(b"j"),
        uid: Id::new(7),
        client: 3,
        target: 5,
        ..Attrs::UNKNOWN
    };
    let hasher = Hasher::new(1);
    let mut hashes = Vec::new();
    for (by, party) in [
        (By::Nid, client("0@lo")),
        (By::Jobid, client("jobid:j")),
        (By::Uid, ClientKey::Key(Key::Uid(7))),
        (By::Device, ClientKey::Device(3)),
    ] {
        let who = RequestOwner::of(by, &attrs);
        assert_eq!(who, RequestOwner { party, target: 5 });
        hashes.push(hasher.wide(&who));
        hashes.push(hasher.wide(&RequestOwner { target: 6, ..who }));
        hashes.push(hasher.wide(&RequestOwner::of(by, &Attrs::UNKNOWN)));
    }
    hashes.push(hasher.wide(&RequestOwner::SHARED));
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 13);
}

#[test]
fn a_full_buffer_is_reported() {
    let plan = plan(&format!(
        "tune low=50%\ndefault class=fc\n{TWO}client 0@lo class=fs min=1MB group=a"
    ));
    let len = text(&plan).len();
    for room in 0..=len {
        assert_eq!(
            plan.write(&mut entries::TextRoom(room)).is_ok(),
            room == len,
            "{room}"
        );
    }
}
