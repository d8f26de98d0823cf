// SPDX-License-Identifier: GPL-2.0-only

mod wrong;

use super::*;
use crate::sched::{attr::Id, jobid::JobId, nid::Nid, qbm::terms::BandwidthClass};

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

fn nid(text: &str) -> ClientKey {
    ClientKey::Key(Key::Nid(Nid::parse(text).unwrap()))
}

fn job(text: &str) -> ClientKey {
    ClientKey::Key(Key::Jobid(JobId::new(text.as_bytes())))
}

fn terms(class: BandwidthClass, min: u64, max: u64) -> Option<Entitlement> {
    Some(Entitlement { class, min, max })
}

const MB: u64 = 1_000_000;

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
        assert_eq!(plan.terms(0, &nid("0@lo"), &Nine), None);
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

#[test]
fn groups_of_targets() {
    let plan = plan(
        "group a capacity=1MB target=8:16; group b capacity=1MB target=7\ngroup c capacity=2MB",
    );
    for (number, group) in [((8 << 20) | 16, 0), (7, 1), (8, 2), (0, 2), (u32::MAX, 2)] {
        assert_eq!(plan.group_of(number), Some(group), "{number}");
    }
    assert_eq!(plan.groups()[0].target(), Some((8 << 20) | 16));
    assert_eq!(
        (plan.groups()[2].target(), plan.groups()[2].name()),
        (None, "c")
    );
    assert_eq!(
        super::tests::plan("group a capacity=1MB target=0").group_of(1),
        None
    );
}

#[test]
fn terms_of_unlisted_clients() {
    for (class, min, max, lines) in [
        (BandwidthClass::FairShare, 100, 100, ""),
        (BandwidthClass::LowShare, 100, 100, "default class=ls"),
        (BandwidthClass::FairShare, 5, 100, "default min=5%"),
        (BandwidthClass::FairShare, 5, 5, "default max=5%"),
        (
            BandwidthClass::FirstCome,
            1,
            2,
            "default class=fc min=1MB max=2MB",
        ),
        (
            BandwidthClass::FirstCome,
            1,
            50,
            "default class=fc min=1MB max=2MB;max=50%",
        ),
        (
            BandwidthClass::Mover,
            2,
            2,
            "default class=fc min=1MB max=2MB;class=mover min=2MB",
        ),
    ] {
        let (default, group) = lines.split_once(';').unwrap_or((lines, ""));
        let plan = plan(&format!("{default}\ngroup a capacity=100MB {group}"));
        let want = terms(class, min * MB, max * MB);
        assert_eq!(plan.terms(0, &nid("0@lo"), &Nine), want, "{lines}");
        assert_eq!(plan.terms(0, &ClientKey::Key(Key::Default), &Nine), want);
        assert_eq!(plan.terms(1, &nid("0@lo"), &Nine), None);
        assert!(plan.default_terms(0) == want && plan.default_terms(1).is_none());
    }
    // Defaults of all groups may exceed the capacity of a group of movers, because they are not
    // used there.
    let plan = plan("default min=5MB\ngroup a capacity=1MB strategy=mover");
    assert_eq!(plan.terms(0, &nid("0@lo"), &Nine), None);
    assert_eq!(
        plan.default_terms(0),
        terms(BandwidthClass::FairShare, MB, MB)
    );
}

#[test]
fn reserves() {
    let plan =
        plan("group a capacity=10MB reserve_first_come=10% reserve_mover=1MB reserve_low_share=0");
    assert_eq!(plan.groups()[0].reserves(), [MB, 0, 0, MB]);
    let all = super::tests::plan(
        "group a capacity=10MB reserve_first_come=25% reserve_fair_share=25% \
         reserve_low_share=25% reserve_mover=2500KB",
    );
    assert_eq!(all.groups()[0].reserves().iter().sum::<u64>(), 10 * MB);
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
        assert_eq!(jobs.line_for(0, &job(name), &Nine), want, "{name}");
    }
    assert_eq!(
        (jobs.patterns.as_slice().len(), jobs.listed_max()),
        (2, u32::MAX)
    );
}

/// Verifies that a line matches only clients of the kind given by `by`. A model on the host tests
/// the choice between lines.
#[test]
fn other_kinds_of_clients_have_no_line() {
    let plan = plan(&format!("{TWO}client *@tcp class=fc min=1MB"));
    assert_eq!(plan.line_for(0, &nid("10.0.0.1@tcp"), &Nine), Some(0));
    for party in [
        ClientKey::Key(Key::Absent(Field::Nid)),
        ClientKey::Key(Key::Default),
        ClientKey::Key(Key::Uid(10)),
        ClientKey::Device(1),
        job("10.0.0.1@tcp"),
    ] {
        assert_eq!(plan.line_for(0, &party, &Nine), None, "{party:?}");
    }
}

#[test]
fn jobs_users_and_devices() {
    let lines = "group a capacity=9MB\n\
                 client d1 class=fs min=1MB\n\
                 client d? class=fs min=2MB\n\
                 client *.* class=fs min=3MB\n\
                 client * class=fs min=4MB";
    let jobs = plan(&format!("by jobid\n{lines}"));
    for (name, line) in [
        ("d1", 0),
        ("d2", 1),
        ("d", 3),
        ("d.1", 2),
        ("x", 3),
        ("", 3),
    ] {
        let party = match name {
            "" => ClientKey::Key(Key::Absent(Field::Jobid)),
            name => job(name),
        };
        assert_eq!(jobs.line_for(0, &party, &Nine), Some(line), "{name}");
    }
    let devices = plan(&format!("by device\n{lines}"));
    for (device, line) in [
        (1, Some(0)),
        (2, Some(1)),
        (9, Some(1)),
        (0, None),
        (10, None),
    ] {
        assert_eq!(
            devices.line_for(0, &ClientKey::Device(device), &Nine),
            line,
            "{device}"
        );
    }
    let users = plan(
        "by uid\ngroup a capacity=9MB\nclient 0 class=fc min=1MB\n\
         client 4294967295 class=fc min=2MB\nclient 1000 class=fc min=3MB",
    );
    for (party, line) in [
        (Key::Uid(0), Some(0)),
        (Key::Absent(Field::Uid), Some(1)),
        (Key::Uid(1000), Some(2)),
        (Key::Uid(1), None),
        (Key::Gid(0), None),
        (Key::Nid(Nid::parse("0@lo").unwrap()), None),
    ] {
        assert_eq!(
            users.line_for(0, &ClientKey::Key(party), &Nine),
            line,
            "{party}"
        );
    }
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
        (By::Nid, nid("0@lo")),
        (By::Jobid, job("j")),
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
fn written_as_it_is_read() {
    for (written, again) in [
        ("by nid\n", ""),
        ("tune period=40ms floor=32KiB raise=30%\n", ""),
        ("by device\n", "by device\n"),
        (
            "tune slow=10s floor=64Ki\ntune headroom=0%",
            "tune slow=10s floor=64KiB/s headroom=0%\n",
        ),
        (
            "default max=100% class=fs min=1000000",
            "default class=fair_share min=1MB/s max=100%\n",
        ),
        (
            "group x reserve_mover=5% capacity=1000MB strategy=classes target=253:7 \
             max=1GB class=ls",
            "group x capacity=1GB/s target=253:7 class=low_share max=1GB/s reserve_mover=5%\n",
        ),
        (
            "group a-b.c:d@e_1 capacity=1073741825 strategy=mover",
            "group a-b.c:d@e_1 capacity=1073741825B/s strategy=mover\n",
        ),
        (
            "by nid;client 10.0.0.0/8@tcp0 class=fc min=5%\n\
             group b capacity=1MiB; client 0@lo group=b class=mover min=40KB max=1MiB/s",
            "group b capacity=1MiB/s\nclient 10.0.0.0/8@tcp0 class=first_come min=5%\n\
             client 0@lo class=mover min=40KB/s max=1MiB/s group=b\n",
        ),
    ] {
        let plan = plan(written);
        assert_eq!(text(&plan), again, "{written}");
        assert_eq!(text(&super::tests::plan(again)), again);
    }
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
