// SPDX-License-Identifier: GPL-2.0-only

//! Tests of shortened studies: the published experiments keep their limits, and files are written.

use std::path::PathBuf;

use nrs_sim::scenario::Scenario;
use nrs_sim::study::{self, disk, themis, Options};
use nrs_sim::{engine, show};

fn file(name: &str) -> PathBuf {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"));
    dir.join(name)
}

/// Scenario with jobs of 4 nodes and of 1, shares by size.
const SIZES: &str = "size-fair-4v1.toml";

/// Keys of a scenario with their values.
type Set<'a> = &'a [(&'a str, &'a str)];

/// Loads a scenario with keys overridden, and shortens it.
fn short(name: &str, set: Set<'_>) -> Scenario {
    let set: Vec<_> = set
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let mut scenario = Scenario::load(&file(name), &set).unwrap();
    study::shorten(&mut scenario);
    scenario
}

/// Checks the shares of the published experiments, and that `fifo` misses the shares by far.
#[test]
fn shares_of_the_published_experiments() {
    let (nodes, policy) = ("job.a.nodes", "server.0.policy");
    let job_fair = (policy, "fairshare jobid_fair");
    let composite = [1260.0, 120.0, 180.0, 120.0, 252.0, 168.0, 140.0, 280.0];
    type Case<'a> = (&'a str, Set<'a>, &'a [f64], Option<f64>);
    let cases: [Case<'_>; 7] = [
        (SIZES, &[job_fair, (nodes, "1")], &[1.0, 1.0], Some(1.2)),
        (SIZES, &[job_fair], &[1.0, 1.0], Some(1.2)),
        (SIZES, &[], &[4.0, 1.0], Some(1.2)),
        (SIZES, &[(nodes, "8")], &[8.0, 1.0], Some(1.2)),
        ("user-fair-2v1.toml", &[], &[1.0, 2.0, 1.0], Some(1.2)),
        ("composite-8jobs.toml", &[], &composite, Some(7.8)),
        // Four nodes have four times as many processes, and as much service.
        (SIZES, &[(policy, "fifo")], &[1.0, 1.0], None),
    ];
    for (name, set, ideal, bar) in cases {
        let scenario = short(name, set);
        let outcome = engine::run(&scenario).unwrap();
        let judged = themis::judge(&scenario, &outcome, ideal);
        match bar {
            Some(bar) => {
                assert!(judged.error_percent <= bar, "{name} {set:?}: {judged:?}");
                assert!(judged.settles_s.is_finite(), "{name} {set:?}: {judged:?}");
                assert!(judged.total_percent >= 96.0, "{name} {set:?}: {judged:?}");
            }
            None => assert!(judged.error_percent > 100.0, "{name} {set:?}: {judged:?}"),
        }
    }
}

/// Checks that `orr` keeps the arm of a disk in a file, and so raises throughput.
#[test]
fn order_on_a_disk() {
    for (load, over_fifo) in [
        (disk::DiskLoad::Streams, 5.0),
        (disk::DiskLoad::Objects, 1.5),
    ] {
        let run = |policy| {
            let scenario = load.scenario(policy, "", true).unwrap();
            let outcome = engine::run(&scenario).unwrap();
            assert!(outcome.jobs.iter().all(|job| job.completed_ns.is_some()));
            (disk::throughput(&outcome), disk::arm(&outcome))
        };
        let (orr, fifo, fairshare) = (run("orr"), run("fifo"), run("fairshare uid_fair"));
        assert!(orr.0 > over_fifo * fifo.0, "{load:?}: {orr:?} {fifo:?}");
        assert!(
            orr.0 > over_fifo * fairshare.0,
            "{load:?}: {orr:?} {fairshare:?}"
        );
        assert!(orr.1 < fifo.1 / 2.0, "{load:?}: {orr:?} {fifo:?}");
    }
}

/// Checks that `locality` keeps the arm at an entity for a slice.
///
/// 32 users with a stream each get more than three times the throughput of FIFO, in equal shares.
#[test]
fn slices_on_a_disk() {
    let run = |policy, params| {
        let scenario = disk::users(32, policy, params).unwrap();
        let outcome = engine::run(&scenario).unwrap();
        let jobs = outcome.jobs.iter();
        let had: Vec<u64> = jobs.map(|job| job.total.bytes).collect();
        let waits = outcome.jobs.iter().map(|job| job.latency.max_ns).max();
        println!(
            "{policy} {params}: {:.1} MB/s, longest wait {:.1} s, {had:?}",
            disk::throughput(&outcome),
            waits.unwrap_or(0) as f64 / 1e9
        );
        (disk::throughput(&outcome), had)
    };
    let (fifo, _) = run("fifo", "");
    let (plain, _) = run("fairshare uid_fair", "");
    let (sliced, had) = run("fairshare uid_fair", "locality = 1");
    assert!(sliced > 3.0 * fifo, "{sliced} {fifo}");
    assert!(sliced > 3.0 * plain, "{sliced} {plain}");
    let mean = had.iter().sum::<u64>() as f64 / had.len() as f64;
    for had in had {
        assert!((had as f64 / mean - 1.0).abs() < 0.05, "{had} {mean}");
    }
}

/// Checks the table, JSON and charts of a run, and the files of a study.
#[test]
fn files_and_tables() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("studies");
    let outcome = engine::run(&short("user-fair-2v1.toml", &[])).unwrap();
    let paths = show::write(&outcome, &out).unwrap();
    assert_eq!(paths.len(), 4);
    for path in &paths {
        assert!(std::fs::metadata(path).unwrap().len() > 1000);
    }
    let tables = show::tables(&outcome);
    for name in ["a1", "a2", "b", "oss"] {
        assert!(tables.contains(&format!("| {name} ")), "{tables}");
    }
    let options = Options {
        out: Some(out.clone()),
        seeds: 1,
        quick: true,
        quiet: true,
    };
    let text = study::run("solo", &options).unwrap();
    assert!(text.contains("| a model of GIFT"), "{text}");
    for name in ["solo.md", "solo.json", "solo.svg"] {
        assert!(out.join(name).exists(), "{name}");
    }
    assert!(study::run("none", &options).is_err());
}
