// SPDX-License-Identifier: GPL-2.0-only

//! Cgroups whose text is not known any more.

use super::sim::TbfSim;
use nrs_sched::{
    arena::{feed, Request},
    attr::{
        cgroup::{names_of, REFRESH},
        Attrs, CgroupPath,
    },
    policy::{tbf::Tunables, Part},
};

/// Lets so much time pass that many other cgroups take all places of texts.
fn displace() {
    for (id, now) in [(1, 20 * REFRESH), (2, 40 * REFRESH)] {
        names_of(id, now, |_, _| None, || true);
        for i in 0..16_384 {
            CgroupPath::intern(format!("/other.slice/{id}-{i}").as_bytes());
        }
    }
}

/// Verifies that a class keeps its rule if other rules change while its text is not known.
#[test]
fn a_class_without_text_keeps_its_rule() {
    let mut sim = TbfSim::new("cgroup", 1, &Tunables::default());
    sim.rule("start m cgroup={/machine.slice/*} rate=10");
    feed(&mut sim.parts[0]);
    let attrs = Attrs {
        cgroup: CgroupPath::intern(b"/machine.slice/x").unwrap(),
        ..Attrs::UNKNOWN
    };
    let class = sim.parts[0].classify(&attrs, 0);
    for i in 0..50 {
        let request = Request::new(1, i, 1, 0);
        assert!(sim.parts[0].enqueue(request, class, 0).is_ok());
    }
    displace();
    sim.rule("start other cgroup={/foo} rate=99");
    assert_eq!(sim.parts[0].classify(&attrs, 0), class);
    let rows = sim.rows();
    let row = rows.iter().find(|row| row.queued == 50).unwrap();
    assert!(row.subject.to_string().starts_with("cgroup:#"));
    assert_eq!(row.rule.to_string(), "m");
}
