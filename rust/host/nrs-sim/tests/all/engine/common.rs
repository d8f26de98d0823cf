// SPDX-License-Identifier: GPL-2.0-only

//! Helpers for scenarios of a few lines.

use nrs_sim::{
    engine::{self, Settings},
    outcome::Outcome,
    scenario::Scenario,
};

/// Pipe of 1 GB/s: 4 KiB take 4.096 us, 1 MiB takes 1.048576 ms.
pub const PIPE: &str = "[[device]]\nname = \"d\"\nkind = \"pipe\"\nbandwidth = \"1GB/s\"\n";

/// Parses a scenario that runs for `duration`; `rest` is appended.
pub fn scenario(duration: &str, rest: &str) -> Scenario {
    let text = format!(
        "name = \"test\"\nduration = \"{duration}\"\nsample = \"100ms\"\nsettle = \"100ms\"\n{rest}"
    );
    Scenario::parse("test", &text, &[]).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// Formats a server named `s` with device `d` and a policy.
pub fn server(policy: &str, rest: &str) -> String {
    format!("[[server]]\nname = \"s\"\ndevice = \"d\"\npolicy = \"{policy}\"\n{rest}\n")
}

/// Formats a job.
pub fn job(name: &str, rest: &str) -> String {
    format!("[[job]]\nname = \"{name}\"\n{rest}\n")
}

/// Runs a scenario and checks the invariants of every run.
pub fn run(scenario: &Scenario) -> Outcome {
    run_with(scenario, Settings::default())
}

/// Runs a scenario with settings, like [`run`].
pub fn run_with(scenario: &Scenario, settings: Settings) -> Outcome {
    let outcome = engine::run_with(scenario, settings, |_, _| ());
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    conserved(&outcome);
    outcome
}

/// Checks that each request is answered once or outstanding, and that all sums match.
fn conserved(outcome: &Outcome) {
    let mut at_servers = vec![0; outcome.jobs.len()];
    for server in &outcome.servers {
        for (sum, count) in at_servers.iter_mut().zip(&server.jobs) {
            *sum += count.requests;
        }
        let sum: u64 = server.jobs.iter().map(|job| job.requests).sum();
        assert_eq!(sum, server.total.requests, "{}", server.name);
        assert!(server.held_most <= outcome.outstanding_most);
        for (bins, count) in server.bins_bytes.iter().zip(&server.jobs) {
            assert_eq!(bins.iter().sum::<u64>(), count.bytes);
        }
    }
    for (job, at_servers) in outcome.jobs.iter().zip(at_servers) {
        assert_eq!(
            job.issued,
            job.total.requests + job.unfinished,
            "{}",
            job.name
        );
        assert_eq!(job.reads + job.writes + job.metadata, job.total.requests);
        assert!((job.total.requests..=job.issued).contains(&at_servers));
        let bins = job
            .bins
            .iter()
            .fold(Default::default(), |sum: nrs_sim::outcome::Count, bin| {
                sum.and(*bin)
            });
        assert_eq!(bins, job.total, "{}", job.name);
        assert_eq!(job.latency.requests, job.settled.requests);
        assert!(job.unfinished <= outcome.outstanding_most);
    }
}

/// Asserts that `got` is within the fraction `within` of `want`.
pub fn near(got: f64, want: f64, within: f64, what: &str) {
    assert!(
        (got - want).abs() <= want.abs() * within,
        "{what}: {got} instead of {want}, off by {:.3} %",
        (got / want - 1.0) * 100.0
    );
}
