// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the policies in the engine.

use super::common::{job, near, run, run_with, scenario, server, PIPE};
use nrs_sim::engine::Settings;

/// Checks the shares by mode and weights within 1 %, with different request sizes, on one and
/// several CPTs.
#[test]
fn fair_shares() {
    for cpts in [1, 4] {
        for (policy, extra, want) in [
            ("fairshare jobid_fair", "", [1.0, 1.0, 1.0]),
            (
                "fairshare jobid_fair",
                "weights = \"jobid:b:2 jobid:c:4\"",
                [1.0, 2.0, 4.0],
            ),
            ("fairshare size_fair", "", [8.0, 8.0, 2.0]),
            ("fairshare uid_then_jobid_fair", "", [1.0, 1.0, 2.0]),
        ] {
            let text = format!(
                "{PIPE}{}{}{}{}",
                server(policy, &format!("slots = 8\ncpts = {cpts}\n{extra}")),
                job("a", "nodes = 8\nprocs = 8\nio = \"64KiB\"\nuid = 1"),
                job("b", "nodes = 8\nprocs = 8\nio = \"256KiB\"\nuid = 1"),
                job(
                    "c",
                    "nodes = 8\nsize = 2\nprocs = 8\nio = \"1MiB\"\nuid = 2"
                ),
            );
            let outcome = run(&scenario("3s", &text));
            let sum: f64 = want.iter().sum();
            for (share, want) in outcome.shares().into_iter().zip(want) {
                near(share, want / sum, 0.01, &format!("{policy} {extra} {cpts}"));
            }
            assert_eq!(outcome.servers[0].withheld_ns, 0);
        }
    }
}

/// Checks that a rule limits its job to the rate within 1 % over all CPTs, and the other job gets
/// the rest.
#[test]
fn rates() {
    for cpts in [1, 4] {
        let text = format!(
            "{PIPE}{}{}{}",
            server(
                "tbf jobid",
                &format!(
                    "cpts = {cpts}\nparams = {{ global_rate = 1, rate = 1000000 }}\n\
                 rules = [\"start a jobid={{a}} rate=1000\"]"
                )
            ),
            job("a", "nodes = 16\nprocs = 4\nio = \"64KiB\""),
            job("b", "nodes = 16\nprocs = 4\nio = \"64KiB\""),
        );
        let outcome = run(&scenario("5s", &text));
        let got = outcome.rate(0, 1_000_000_000, 5_000_000_000) / 65_536.0;
        near(got, 1000.0, 0.01, &format!("{cpts}"));
        near(outcome.servers[0].busy_ns as f64, 5e9, 0.001, "busy");
    }
}

/// Checks that a rule alone leaves the device idle, and that late timers do not lower the rate.
#[test]
fn throttled() {
    let text = format!(
        "{PIPE}{}{}",
        server("tbf jobid", "rules = [\"start a jobid={a} rate=100\"]"),
        job("a", "procs = 4\nio = \"4KiB\""),
    );
    let scenario = scenario("5s", &text);
    let outcome = run(&scenario);
    near(
        outcome.rate(0, 1_000_000_000, 5_000_000_000) / 4096.0,
        100.0,
        0.01,
        "rate",
    );
    assert!(outcome.servers[0].withheld_ns > 4_900_000_000);
    let late = Settings {
        lateness_ns: 5_000_000,
        ..Settings::default()
    };
    // Tokens are not lost in the meantime, so the rate recovers from lateness.
    let outcome = run_with(&scenario, late);
    near(
        outcome.rate(0, 1_000_000_000, 5_000_000_000) / 4096.0,
        100.0,
        0.02,
        "late",
    );
}
