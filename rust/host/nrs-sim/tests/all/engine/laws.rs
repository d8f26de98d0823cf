// SPDX-License-Identifier: GPL-2.0-only

//! Invariants of every run: no request is lost, equal seeds give equal bytes, memory is bounded.

use super::common::{job, run, run_with, scenario, server, PIPE};
use nrs_sim::engine::Settings;

/// Formats a scenario with every kind of server and job.
fn everything(policy: &str, extra: &str) -> String {
    let mut text = String::from(
        "[exchange]\njitter = \"1ms\"\nloss = 0.2\n\
         [network]\nlatency = \"20us\"\njitter = \"30us\"\nbandwidth = \"10GB/s\"\n\
         [[device]]\nname = \"f\"\nkind = \"flash\"\nchannels = 4\njitter = 0.5\n\
         read = { base = \"50us\", bandwidth = \"1GB/s\" }\n\
         write = { base = \"80us\", bandwidth = \"500MB/s\" }\nmetadata = \"30us\"\n\
         [[device]]\nname = \"h\"\nkind = \"disk\"\nseek = \"8ms\"\nrotation = \"8ms\"\n\
         bandwidth = \"200MB/s\"\n",
    );
    for (name, device, cpts) in [("a", "f", 1), ("b", "f", 3), ("c", "h", 2)] {
        text += &format!(
            "[[server]]\nname = \"{name}\"\ndevice = \"{device}\"\ncpts = {cpts}\nslots = 8\n\
             policy = \"{policy}\"\n{extra}\n"
        );
    }
    text += &job(
        "closed",
        "nodes = 3\nprocs = 2\nmix = { read = 60, write = 30, metadata = 10 }",
    );
    text += &job(
        "open",
        "nodes = 2\nloop = \"open\"\nrate = 300\nio = \"16KiB\"\naccess = \"random\"\nuid = 7",
    );
    text += &job(
        "burst",
        "nodes = 2\nprocs = 4\nio = \"256KiB\"\nservers = [\"a\", \"b\"]\n\
         burst = { bytes = \"2MiB\", compute = \"50ms\" }",
    );
    text += &job(
        "phases",
        "phases = { on = \"200ms\", off = \"100ms\" }\nstart = \"250ms\"\nstop = \"1500ms\"\n\
         io = [{ size = \"4KiB\", weight = 9 }, { size = \"1MiB\" }]\nprocs = 4\nthink = \"1ms\"",
    );
    text += &job(
        "work",
        "work = \"8MiB\"\nservers = [\"a\", \"b\"]\nmix = { read = 1 }\nprocs = 2",
    );
    text
}

/// Checks all policies with all features of jobs: sums match (checked in `run`), every job makes
/// progress, and runs with equal seeds give equal bytes, with different seeds different bytes.
#[test]
fn conserved_and_repeated() {
    let rule = "rules = [\"start r jobid={closed} rate=500\"]";
    let plan = "plan = '''\nby jobid\ngroup g capacity=100MB class=fs\n'''";
    for (policy, extra) in [
        ("fifo", ""),
        ("crrn", ""),
        ("orr", ""),
        ("trr", ""),
        ("tbf", rule),
        ("delay", "params = { min = 0, max = 1, pct = 10 }"),
        ("fairshare", ""),
        (
            "fairshare uid_then_jobid_fair",
            "params = { select = \"paper\" }",
        ),
        ("fairshare size_fair", ""),
        ("qbm", plan),
    ] {
        let mut scenario = scenario("1700ms", &everything(policy, extra));
        let settings = Settings {
            server_bins: true,
            ..Settings::default()
        };
        let outcome = run_with(&scenario, settings);
        for job in &outcome.jobs {
            assert!(job.total.requests > 0, "{policy}: {}", job.name);
        }
        let done = outcome.job("work").unwrap();
        assert!(done.completed_ns.is_some(), "{policy}");
        assert_eq!((done.total.bytes, done.unfinished), (8 << 20, 0));
        let phases = outcome.job("phases").unwrap();
        for (bin, count) in phases.bins.iter().enumerate() {
            // On from 250 to 450 ms, from 550 to 750, ...
            let off = !(2..=16).contains(&bin);
            assert!(!off || count.requests == 0, "{policy}: bin {bin}");
        }
        assert!(outcome.job("burst").unwrap().rounds.unwrap().done >= 3);
        let bytes = serde_json::to_vec(&outcome).unwrap();
        let again = serde_json::to_vec(&run_with(&scenario, settings)).unwrap();
        assert!(bytes == again, "{policy}");
        if policy == "fifo" {
            scenario.seed += 1;
            let other = serde_json::to_vec(&run_with(&scenario, settings)).unwrap();
            assert!(bytes != other);
        }
    }
}

/// Checks that `fifo` with one CPT dispatches in the order of arrival: every request waits equally
/// long.
#[test]
fn first_come_first_served() {
    let text = format!(
        "[network]\nlatency = \"10us\"\n{PIPE}{}{}{}",
        server("fifo", "slots = 1"),
        job("many", "nodes = 50\nio = \"64KiB\""),
        job("one", "io = \"64KiB\""),
    );
    let outcome = run(&scenario("2s", &text));
    // 51 processes in a cycle of 51 services of 65.536 us: each process waits for all other
    // processes once.
    let [many, one] = &outcome.jobs[..] else {
        panic!()
    };
    let cycle = 51.0 * 65_536.0;
    for job in [many, one] {
        assert!(
            (job.latency.mean_ns - cycle).abs() < 1.0,
            "{:?}",
            job.latency
        );
        assert!((job.latency.max_ns as f64 - cycle).abs() < 1.0);
    }
    assert!(many.total.requests.abs_diff(50 * one.total.requests) <= 50);
}

/// Checks that a closed loop has no more outstanding requests than processes, which bounds the
/// memory.
#[test]
fn bounded() {
    let text = format!(
        "{PIPE}{}{}",
        server("fairshare", ""),
        job("a", "nodes = 10\nprocs = 3\nio = \"4KiB\"")
    );
    for duration in ["200ms", "1s"] {
        let outcome = run(&scenario(duration, &text));
        assert_eq!(outcome.outstanding_most, 30);
        assert!(outcome.servers[0].held_most <= 30);
        assert!(outcome.jobs[0].unfinished <= 30);
    }
}

/// Checks that the device is never idle while a request is queued that no policy throttles.
#[test]
fn work_conserving() {
    for policy in ["fifo", "crrn", "orr", "trr", "fairshare", "tbf"] {
        for cpts in [1, 4] {
            let text = format!(
                "{PIPE}{}{}{}",
                server(policy, &format!("slots = 4\ncpts = {cpts}")),
                job("a", "nodes = 8\nprocs = 2\nio = \"64KiB\""),
                job("b", "nodes = 8\nprocs = 2\nio = \"1MiB\""),
            );
            let outcome = run(&scenario("1s", &text));
            let server = &outcome.servers[0];
            assert_eq!(server.withheld_ns, 0, "{policy} {cpts}");
            // All except the transit time of the first requests.
            assert!(
                server.busy_ns + 100_000 >= 1_000_000_000,
                "{policy} {cpts}: {}",
                server.busy_ns
            );
        }
    }
}
