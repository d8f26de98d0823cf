// SPDX-License-Identifier: GPL-2.0-only

//! What policies make of a disk: `cargo run --release --example disk`.

use nrs_sched::disk::{
    loads::{random, scattered, streams, Candidate},
    Stream,
};

fn table(title: &str, streams: &[Stream]) {
    println!("{title}:\n");
    println!("| policy | MB/s | mean seek, ms | sequential | longest wait, s |");
    println!("|---|---|---|---|---|");
    for candidate in Candidate::all() {
        let outcome = candidate.serve(streams);
        println!(
            "| {} | {:.1} | {:.2} | {:.0} % | {:.1} |",
            candidate.name,
            outcome.throughput(),
            outcome.mean_seek(),
            outcome.disk.sequential as f64 * 100.0 / outcome.disk.requests as f64,
            outcome.longest as f64 / 1e9,
        );
    }
    println!();
}

fn main() {
    for depth in [8, 32] {
        let title = format!("Eight sequential streams of 128 KiB requests, {depth} ahead each");
        table(&title, &streams(depth, 4_000));
    }
    for depth in [4, 16] {
        let title = format!("Random reads of 64 KiB in 64 objects, {depth} ahead each");
        table(&title, &random(depth, 1_000));
    }
    let title = "Random reads of 64 KiB anywhere on the disk, one client, 64 ahead";
    table(title, &scattered(64, 20_000));
}
