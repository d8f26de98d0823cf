// SPDX-License-Identifier: GPL-2.0-only

//! A client that gives each of its requests another name, and its effect on clients listed in the
//! plan.

use super::sim::{Load, QbmSim, GREEDY, MB, WALK};
use nrs_sched::units::NSEC_PER_SEC as SECOND;

/// User id of the client with many names.
const STORM: u32 = 1;

/// Measures listed clients beside 1,000 queued requests of the storm, which have `names` names.
/// Returns the rate of a greedy client, MB/s, and the latency of a modest one, ns.
fn listed(text: &str, mb: u64, names: u32) -> (f64, u64) {
    let mut sim = QbmSim::new(text, mb, 64);
    sim.shape(STORM, 16, 0);
    sim.rename(STORM, names);
    sim.load(STORM, Load::Greedy(1_000));
    sim.run(2 * SECOND);
    sim.load(7, GREEDY);
    sim.load(8, Load::Rate(10 * MB));
    sim.run(WALK);
    for user in [7, 8] {
        assert!(sim.allocated(user) >= Some(20 * MB), "{text}: {user}");
    }
    sim.run(2 * SECOND);
    sim.p99(8);
    let [greedy, _] = sim.rates(10 * SECOND, [7, 8]);
    (greedy, sim.p99(8))
}

/// Checks a listed client that arrives when a storm has filled all tables. Its rate is the minimum
/// within 5 %, and its latency at most twice that beside a few equally greedy clients.
#[test]
fn listed_clients_do_not_notice_a_storm() {
    for (by, seven, eight) in [
        ("uid", "7", "8"),
        ("jobid", "j7", "j8"),
        ("jobid", "j7*", "?8"),
    ] {
        for (default, class, mb) in [
            ("low_share min=60MB", "fair_share", 100),
            ("low_share min=60MB", "first_come", 90),
            ("mover min=60MB", "low_share", 90),
            ("fair_share min=60MB", "first_come", 90),
        ] {
            let text = format!(
                "by {by}; default class={default}; group all capacity=100MB
                client {seven} class={class} min=20MB max=20MB
                client {eight} class={class} min=20MB"
            );
            let (_, few_names) = listed(&text, mb, 32);
            let (greedy, p99) = listed(&text, mb, u32::MAX);
            assert!(greedy >= 19.0, "{text}: {greedy} MB/s");
            println!("{greedy} MB/s, {p99} ns, few names {few_names} ns: {text}");
            assert!(
                p99 <= 2 * few_names,
                "{text}: {p99} ns, few names {few_names} ns"
            );
        }
    }
}

/// Checks that clients without a gate are charged to the group of their target: a storm on a slow
/// disk leaves a fast disk unaffected.
#[test]
fn a_storm_is_charged_to_its_target() {
    let text = "by uid; default class=fair_share min=50%
        group fast capacity=100MB target=1; group slow capacity=2MB target=2";
    let mut sim = QbmSim::new(text, 1_000, 64);
    sim.shape(STORM, 16, 2);
    sim.rename(STORM, u32::MAX);
    sim.load(STORM, Load::Greedy(1_000));
    sim.shape(7, 64, 1);
    sim.load(7, GREEDY);
    sim.run(5 * SECOND);
    let [storm, other] = sim.rates(10 * SECOND, [STORM, 7]);
    // The capacity, and the minimum rates beyond it.
    assert!(storm <= 2.0 + 64.0 * 0.032768, "{storm}");
    assert!(other >= 47.5, "{other}");
}
