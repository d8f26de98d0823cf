// SPDX-License-Identifier: GPL-2.0-only

//! Bytes per class and per queued request of every policy: a line of JSON for each. Nothing is
//! timed.

#[path = "memory/footprint.rs"]
mod footprint;
#[path = "memory/lean.rs"]
mod lean;

use footprint::{measure, order};
use nrs_sched::{
    backlog::Case,
    policy::{fairshare::params::Select, Kind},
};

/// Number of requests queued in each class.
const DEPTH: u32 = 4;

fn main() {
    // Tests only check that it runs.
    let test = std::env::args().any(|argument| argument == "--test");
    let counts: &[u32] = if test {
        &[64]
    } else {
        &[64, 256, 1_000, 4_096, 16_384, 100_000]
    };
    let fair = Case::select("fairshare", Select::Deadline);
    let cases = [
        Case::new("fifo", Kind::Fifo),
        Case::new("crrn", Kind::Crrn),
        Case::new("orr", Kind::Orr),
        Case::new("trr", Kind::Trr),
        Case::new("tbf", Kind::Tbf),
        Case::new("tbf_rules", Kind::Tbf).rules(256),
        Case::new("delay", Kind::Delay),
        fair,
        fair.levels(2).named("fairshare2"),
        fair.levels(3).named("fairshare3"),
        fair.limited().named("fairshare_limits"),
        Case::new("qbm", Kind::Qbm),
    ];
    for case in cases {
        for &classes in counts {
            let found = measure(&case, classes, DEPTH);
            println!(
                "{{\"policy\":\"{}\",\"classes\":{classes},\"depth\":{DEPTH},\
                 \"shared_bytes\":{},\"empty_bytes\":{},\"class_bytes\":{},\
                 \"request_bytes\":{}}}",
                case.name, found.shared, found.empty, found.classes, found.requests
            );
        }
    }
    for &requests in counts {
        let (bytes, empty) = order(requests);
        println!(
            "{{\"policy\":\"order\",\"classes\":0,\"depth\":{requests},\"shared_bytes\":0,\
             \"empty_bytes\":{empty},\"class_bytes\":0,\"request_bytes\":{bytes}}}"
        );
    }
}
