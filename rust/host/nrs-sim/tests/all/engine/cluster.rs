// SPDX-License-Identifier: GPL-2.0-only

//! Tests of several servers: striping and the exchange.

use super::common::{job, near, run, scenario, PIPE};
use nrs_sim::outcome::Outcome;
use std::collections::BTreeMap;

/// Runs four servers; job `a` is on all of them, `b` on one.
fn uneven(duration: &str, exchange: &str) -> Outcome {
    let text = format!(
        "{PIPE}[[server]]\nname = \"s\"\ncount = 4\ndevice = \"d\"\npolicy = \"fairshare\"\n\
         slots = 8\n{}{}{exchange}",
        job("a", "nodes = 16\nprocs = 8\nio = \"1MiB\""),
        job(
            "b",
            "nodes = 16\nprocs = 2\nio = \"1MiB\"\nservers = [\"s0\"]"
        ),
    );
    run(&scenario(duration, &text))
}

/// Compares the shares with and without the exchange.
///
/// Without the exchange each server is fair by itself. Job `a` has half of the first server and,
/// because each process visits all servers in turn, no more of the other servers. With the exchange
/// both jobs have the same total: `a` has a fifth of each server and `b` has four fifths of one.
#[test]
fn fair_together() {
    let apart = uneven("2s", "");
    let on_first = |outcome: &Outcome, job: usize| outcome.servers[0].jobs[job].bytes as f64;
    near(
        on_first(&apart, 0) / on_first(&apart, 1),
        1.0,
        0.01,
        "apart",
    );
    assert!(apart.exchange.is_none());
    let together = uneven("20s", "[exchange]\ndelta = \"100ms\"\n");
    let rate = |job| together.rate(job, 4_000_000_000, 20_000_000_000);
    near(rate(0) / rate(1), 1.0, 0.02, "together");
    near(rate(1), 0.8e9, 0.02, "b");
    let said = together.exchange.unwrap();
    // Four servers send to three others for 20 s; the first step knows no rates.
    assert_eq!(
        (said.messages, said.lost, said.refused),
        (4 * 3 * 199, 0, 0)
    );
    assert!(said.messages - said.heard <= 12 && said.bytes > 0);
    assert_eq!(said.steps, 4 * 200);
}

/// Formats a job of a user of a group on one server.
fn on(server: u32, gid: u32, uid: u32) -> String {
    let rest =
        format!("gid = {gid}\nuid = {uid}\nprocs = 16\nio = \"256KiB\"\nservers = [\"s{server}\"]");
    job(&format!("g{gid}u{uid}s{server}"), &rest)
}

/// Returns the rate of each (group, user), GB/s, with the exchange; `places` has server, group and
/// user.
fn users(
    policy: &str,
    bandwidths: &[f64],
    places: &[(u32, u32, u32)],
) -> BTreeMap<(u32, u32), f64> {
    let mut text = String::from("[exchange]\ndelta = \"100ms\"\n");
    for (n, bandwidth) in bandwidths.iter().enumerate() {
        text += &format!(
            "[[device]]\nname = \"d{n}\"\nkind = \"pipe\"\nbandwidth = \"{bandwidth}GB/s\"\n\
             [[server]]\nname = \"s{n}\"\ndevice = \"d{n}\"\nslots = 8\npolicy = \"{policy}\"\n"
        );
    }
    text.extend(
        places
            .iter()
            .map(|(server, gid, uid)| on(*server, *gid, *uid)),
    );
    let outcome = run(&scenario("12s", &text));
    let mut rates = BTreeMap::new();
    for (index, (_, gid, uid)) in places.iter().enumerate() {
        let rate = outcome.rate(index, 6_000_000_000, 12_000_000_000) / 1e9;
        *rates.entry((*gid, *uid)).or_insert(0.0) += rate;
    }
    rates
}

/// Checks max-min fairness over unequal servers, for users, and for groups with users.
#[test]
fn fair_over_unequal_servers_and_levels() {
    let places = [
        (0, 0, 1),
        (1, 0, 1),
        (1, 0, 2),
        (1, 0, 3),
        (2, 0, 2),
        (2, 0, 3),
        (2, 0, 4),
    ];
    let rates = users("fairshare uid_fair", &[0.6, 0.2, 0.1], &places);
    for (uid, want) in [(1, 0.6), (2, 0.1), (3, 0.1), (4, 0.1)] {
        near(rates[&(0, uid)], want, 0.03, &format!("{rates:?}"));
    }
    let places = [
        (0, 1, 10),
        (0, 1, 11),
        (0, 2, 20),
        (1, 1, 10),
        (1, 2, 20),
        (1, 2, 21),
    ];
    let rates = users("fairshare gid_then_uid_fair", &[0.4, 0.4], &places);
    for rate in rates.values() {
        near(*rate, 0.2, 0.05, &format!("{rates:?}"));
    }
    for gid in [1, 2] {
        let group = rates.range((gid, 0)..(gid + 1, 0));
        let sum: f64 = group.map(|(_, rate)| rate).sum();
        near(sum, 0.4, 0.02, &format!("{rates:?}"));
    }
}

/// Checks the number of messages with losses and with a server that is cut off.
#[test]
fn lost_and_cut() {
    let outcome = uneven("5s", "[exchange]\ndelta = \"50ms\"\nloss = 0.25\n");
    let said = outcome.exchange.unwrap();
    assert_eq!(said.messages, 4 * 3 * 99);
    near(said.lost as f64, 300.0, 0.2, "lost");
    assert!(said.heard + said.refused <= said.messages - said.lost);
    let outcome = uneven(
        "5s",
        "[exchange]\ndelta = \"50ms\"\ncut = [{ server = \"s1\", from = \"2s\", to = \"4s\" }]\n",
    );
    let said = outcome.exchange.unwrap();
    // In 40 deltas the server sends three messages each and receives one from each other server.
    assert!(said.lost.abs_diff(40 * 6) <= 6, "{}", said.lost);
}

/// Checks that the requests of a striped job are spread evenly.
#[test]
fn striped() {
    let text = format!(
        "{PIPE}[[server]]\nname = \"s\"\ncount = 5\ndevice = \"d\"\npolicy = \"fifo\"\n{}{}",
        job("all", "nodes = 4\nio = \"64KiB\"\nstop = \"900ms\""),
        job(
            "two",
            "nodes = 4\nio = \"64KiB\"\nstop = \"900ms\"\nservers = 2"
        ),
    );
    let outcome = run(&scenario("1s", &text));
    let counts = |job: usize| -> Vec<u64> {
        let servers = outcome.servers.iter();
        servers.map(|server| server.jobs[job].requests).collect()
    };
    let all = counts(0);
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(most - least <= 4, "{all:?}");
    let two = counts(1);
    let used: Vec<u64> = two.iter().copied().filter(|count| *count > 0).collect();
    assert!(used.len() == 2 && used[0].abs_diff(used[1]) <= 4, "{two:?}");
}
