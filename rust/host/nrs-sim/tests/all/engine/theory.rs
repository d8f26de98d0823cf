// SPDX-License-Identifier: GPL-2.0-only

//! Comparisons of simple runs with queueing theory.

use super::common::{job, near, run, run_with, scenario, server, PIPE};
use nrs_sim::engine::Settings;

/// Compares a closed loop with Little's law: the throughput is the number of processes by the cycle
/// time, up to the capacity of the device.
#[test]
fn closed_loop() {
    // A cycle is 2 * 200 us of network, 65.536 us of service and 100 us of think time.
    for processes in [1u64, 2, 4, 8, 16, 32] {
        let text = format!(
            "[network]\nlatency = \"200us\"\n{PIPE}{}{}",
            server("fifo", ""),
            job(
                "a",
                &format!("procs = {processes}\nio = \"64KiB\"\nthink = \"100us\"")
            ),
        );
        let outcome = run(&scenario("1s", &text));
        let service = 65_536.0;
        let cycle = 400_000.0 + 100_000.0 + service;
        let want = (processes as f64 / cycle).min(1.0 / service) * 1e9 * 65_536.0;
        let got = outcome.rate(0, 500_000_000, 1_000_000_000);
        near(got, want, 0.01, &format!("{processes} processes"));
        let mean = outcome.jobs[0].latency.mean_ns;
        let rate = got / 65_536.0 / 1e9;
        near(rate * (mean + 100_000.0), processes as f64, 0.01, "Little");
    }
}

/// Compares the mean wait with M/D/1 (Pollaczek and Khinchine): rho s / (2 (1 - rho)) for load rho
/// and service time s.
#[test]
fn open_loop() {
    for (load, rate) in [(0.3, 4_578), (0.5, 7_629), (0.8, 12_207)] {
        let text = format!(
            "{PIPE}{}{}",
            server("fifo", "slots = 1"),
            job(
                "a",
                &format!("io = \"64KiB\"\nloop = \"open\"\nrate = {rate}")
            ),
        );
        let outcome = run(&scenario("8s", &text));
        let want = load * 65_536.0 / (2.0 * (1.0 - load));
        near(
            outcome.jobs[0].wait_mean_ns,
            want,
            0.05,
            &format!("load {load}"),
        );
        near(outcome.servers[0].busy_ns as f64, load * 8e9, 0.02, "load");
    }
}

/// Checks that evenly spaced requests do not wait below full load.
#[test]
fn even_arrivals() {
    let text = format!(
        "{PIPE}{}{}",
        server("fifo", "slots = 1"),
        job(
            "a",
            "nodes = 4\nio = \"64KiB\"\nloop = \"open\"\nrate = 3000\narrival = \"even\""
        ),
    );
    let outcome = run(&scenario("1s", &text));
    let job = &outcome.jobs[0];
    assert!(job.issued.abs_diff(12_000) <= 4, "{}", job.issued);
    assert_eq!(job.wait_mean_ns, 0.0);
    assert_eq!(job.latency.p99_ns, 2 * 20_000 + 65_536);
}

/// Checks that flash serves as many requests in parallel as it has channels.
#[test]
fn channels() {
    for (processes, want) in [(1, 1.0), (4, 4.0), (8, 8.0), (32, 8.0)] {
        let text = format!(
            "[network]\nlatency = \"0ns\"\n[[device]]\nname = \"d\"\nkind = \"flash\"\n\
             channels = 8\n\
             read = {{ base = \"100us\", bandwidth = \"1GB/s\" }}\n{}{}",
            server("fifo", ""),
            job(
                "a",
                &format!("procs = {processes}\nio = \"4KiB\"\nmix = {{ read = 1 }}")
            ),
        );
        let outcome = run(&scenario("1s", &text));
        let got = outcome.jobs[0].total.requests as f64;
        near(
            got,
            want * 1e9 / 104_096.0,
            0.01,
            &format!("{processes} processes"),
        );
    }
}

/// Checks that a client's link limits the throughput of each direction separately.
#[test]
fn links() {
    for (mix, want) in [
        ("{ read = 1 }", 100e6),
        ("{ write = 1 }", 100e6),
        ("{ read = 1, write = 1 }", 200e6),
    ] {
        let text = format!(
            "[network]\nbandwidth = \"100MB/s\"\n{PIPE}{}{}",
            server("fifo", ""),
            job("a", &format!("procs = 64\nio = \"64KiB\"\nmix = {mix}")),
        );
        let outcome = run(&scenario("2s", &text));
        let got = outcome.rate(0, 500_000_000, 2_000_000_000);
        near(got, want, 0.03, mix);
    }
}

/// Checks that a round of a bulk-synchronous application without competition takes the time of its
/// data and its computing.
#[test]
fn rounds() {
    let text = format!(
        "[network]\nlatency = \"0ns\"\n{PIPE}{}{}",
        server("fifo", ""),
        job(
            "a",
            "nodes = 2\nprocs = 4\nburst = { bytes = \"64MiB\", compute = \"100ms\" }"
        ),
    );
    let outcome = run(&scenario("3s", &text));
    let rounds = outcome.jobs[0].rounds.unwrap();
    let data = (64u64 << 20) as f64;
    assert_eq!(rounds.done, 18);
    near(rounds.io_ns as f64, 18.0 * data, 0.001, "data");
    near(
        rounds.whole_ns as f64,
        18.0 * (data + 100e6),
        0.001,
        "whole",
    );
}

/// Checks that a run ends after the given number of events, or when all jobs are done.
#[test]
fn ends() {
    let text = format!(
        "{PIPE}{}{}",
        server("fifo", ""),
        job("a", "work = \"10MiB\"")
    );
    let outcome = run(&scenario("1h", &text));
    assert_eq!(outcome.ended_ns, outcome.jobs[0].completed_ns.unwrap());
    near(
        outcome.ended_ns as f64,
        10.0 * (1_048_576.0 + 40_000.0),
        0.001,
        "end",
    );
    let settings = Settings {
        events: 17,
        ..Settings::default()
    };
    let outcome = run_with(&scenario("1h", &text), settings);
    assert_eq!(outcome.events, 17);
}
