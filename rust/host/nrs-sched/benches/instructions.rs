// SPDX-License-Identifier: GPL-2.0-only

//! Decisions for a tool that counts instructions: `instructions CASE CLASSES DECISIONS`.
//!
//! `scripts/bench.sh --instructions` runs it; the tool counts [`decide`] only.

use nrs_sched::{
    backlog::{Backlog, Case},
    policy::{fairshare::params::Select, Kind},
};

/// Makes `count` decisions.
#[inline(never)]
fn decide(backlog: &mut Backlog, count: u32) {
    for _ in 0..count {
        backlog.step();
    }
}

fn main() {
    let fair = Case::select("fairshare", Select::Deadline);
    let cases = [
        Case::new("fifo", Kind::Fifo),
        fair,
        fair.pages(16).named("fairshare_mixed"),
        fair.limited().named("fairshare_limits"),
        fair.levels(2).named("fairshare2"),
        fair.levels(3).named("fairshare3"),
        Case::new("tbf", Kind::Tbf),
        Case::new("qbm", Kind::Qbm),
    ];
    let arguments = std::env::args().skip(1);
    let arguments: Vec<_> = arguments.filter(|text| !text.starts_with('-')).collect();
    // Without arguments, as in tests, nothing is counted.
    let [name, classes, count] = arguments.as_slice() else {
        return;
    };
    let case = cases.iter().find(|case| case.name == name);
    let classes = classes.parse().expect("a number of classes");
    let mut backlog = Backlog::new(case.expect("a case"), classes);
    decide(&mut backlog, count.parse().expect("a number of decisions"));
}
