// SPDX-License-Identifier: GPL-2.0-only

//! What the order of requests is worth on a disk with an arm: `orr` against the others, on the model of
//! `src/disk.rs`.

use nrs_sched::disk::{
    loads::{random, streams, Candidate},
    Outcome, Stream,
};

/// What each policy makes of `streams`, by name.
fn compare(streams: &[Stream]) -> impl Fn(&str) -> Outcome {
    let all: Vec<_> = Candidate::all()
        .iter()
        .map(|candidate| (candidate.name, candidate.serve(streams)))
        .collect();
    for (name, outcome) in &all {
        println!(
            "{name:>20}: {:6.1} MB/s, {:5.2} ms per seek, longest wait {:.1} s",
            outcome.throughput(),
            outcome.mean_seek(),
            outcome.longest as f64 / 1e9
        );
        assert_eq!(outcome.disk.requests, streams.iter().map(|s| s.count).sum());
    }
    move |name| {
        let found = all.iter().find(|(known, _)| *known == name);
        found.expect("a candidate").1.clone()
    }
}

/// Streams that are served in turns of many requests are served at the speed of the disk.
#[test]
fn sequential_streams() {
    let of = compare(&streams(32, 1_500));
    let (orr, fifo) = (of("orr"), of("fifo"));
    assert!(orr.throughput() > 5.0 * fifo.throughput());
    assert!(orr.throughput() > 5.0 * of("fairshare").throughput());
    assert!(orr.throughput() > of("crrn").throughput());
    assert!(orr.mean_seek() < fifo.mean_seek() / 5.0);
}

/// Random reads of objects: the arm stays in an object for a while.
#[test]
fn random_reads() {
    let of = compare(&random(16, 200));
    let (orr, fifo) = (of("orr"), of("fifo"));
    assert!(orr.throughput() > 1.5 * fifo.throughput());
    assert!(orr.throughput() > 1.5 * of("fairshare").throughput());
    assert!(orr.mean_seek() < fifo.mean_seek() / 2.0);
}
