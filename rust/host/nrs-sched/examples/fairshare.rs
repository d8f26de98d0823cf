// SPDX-License-Identifier: GPL-2.0-only

//! Prints the figures of Documentation/fairshare.md: what each selection makes of typical loads, and what a
//! decision of it costs on this host.
//!
//! ```text
//! cargo run --release --example fairshare
//! ```

use nrs_sched::{
    arena::attrs,
    attr::{Attrs, Id},
    crowd::{Case, Crowd},
    jobid::JobId,
    policy::fairshare::params::Select,
    rng::Rng,
    sim::{Setup, Sim, Source},
};
use std::time::Instant;

const SEEDS: u64 = 20;
const COMPOSITE: &str = "gid_then_uid_then_size_fair";

/// A load: its mode, its weights, its sources, and how many dispatches it is looked at for.
struct Load {
    name: &'static str,
    mode: &'static str,
    weights: &'static str,
    sources: fn() -> Vec<Source>,
    /// Dispatches from one time that an entity comes to the next; it stays for 30 to 70 % of them. 0: all
    /// stay.
    cycle: u64,
    counts: &'static [u64],
}

fn users(count: u32) -> Vec<Source> {
    (0..count).map(|uid| Source::new(attrs(uid))).collect()
}

/// Eight jobs of four users in two groups, with 1 to 3 nodes.
fn composite() -> Vec<Source> {
    let jobs = [
        (1, 11, 2),
        (2, 21, 2),
        (2, 21, 3),
        (2, 21, 2),
        (2, 22, 3),
        (2, 22, 2),
        (2, 23, 1),
        (2, 23, 2),
    ];
    let job = |(i, (gid, uid, size)): (usize, (u32, u32, u32))| {
        Source::new(Attrs {
            gid: Id::new(gid),
            uid: Id::new(uid),
            jobid: JobId::new(format!("job{i}").as_bytes()),
            size,
            ..Attrs::UNKNOWN
        })
    };
    jobs.into_iter().enumerate().map(job).collect()
}

/// Requests of 1, 16 and 256 pages, of some more often than of others.
fn mixed(sources: Vec<Source>) -> Vec<Source> {
    let mixes: [&[u32]; 3] = [&[1, 16, 256], &[1, 16, 16, 256], &[1, 16, 256, 256]];
    let sources = sources.into_iter().enumerate();
    sources.map(|(i, source)| source.of(mixes[i % 3])).collect()
}

const LOADS: [Load; 10] = [
    Load {
        name: "1:1",
        mode: "uid_fair",
        weights: "",
        sources: || users(2),
        cycle: 0,
        counts: &[1_000],
    },
    Load {
        name: "1:4",
        mode: "uid_fair",
        weights: "uid:1:4",
        sources: || users(2),
        cycle: 0,
        counts: &[1_000],
    },
    Load {
        name: "1:100",
        mode: "uid_fair",
        weights: "uid:1:100",
        sources: || users(2),
        cycle: 0,
        counts: &[1_000],
    },
    Load {
        name: "8 equal",
        mode: "uid_fair",
        weights: "",
        sources: || users(8),
        cycle: 0,
        counts: &[1_000, 10_000],
    },
    Load {
        name: "composite",
        mode: COMPOSITE,
        weights: "",
        sources: composite,
        cycle: 0,
        counts: &[1_000, 10_000, 100_000],
    },
    Load {
        name: "8 equal, mixed sizes",
        mode: "uid_fair",
        weights: "",
        sources: || mixed(users(8)),
        cycle: 0,
        counts: &[1_000, 10_000],
    },
    Load {
        name: "composite, mixed sizes",
        mode: COMPOSITE,
        weights: "",
        sources: || mixed(composite()),
        cycle: 0,
        counts: &[1_000, 10_000],
    },
    Load {
        name: "8 equal, on and off every 400",
        mode: "uid_fair",
        weights: "",
        sources: || users(8),
        cycle: 400,
        counts: &[100_000],
    },
    Load {
        name: "composite, on and off every 400",
        mode: COMPOSITE,
        weights: "",
        sources: composite,
        cycle: 400,
        counts: &[100_000],
    },
    Load {
        name: "composite, on and off every 4,000",
        mode: COMPOSITE,
        weights: "",
        sources: composite,
        cycle: 4_000,
        counts: &[100_000],
    },
];

/// Median and 95th percentile.
fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    (at(50), at(95))
}

fn shown((median, high): (f64, f64)) -> String {
    let digits = |value: f64| match value {
        v if v < 0.005 => "0".to_owned(),
        v if v < 9.95 => format!("{v:.2}"),
        v => format!("{v:.0}"),
    };
    format!("{} / {}", digits(median), digits(high))
}

/// Errors after each count of dispatches, and longest waits in fair periods, of each seed.
fn run(load: &Load, select: Select) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut errors = vec![Vec::new(); load.counts.len()];
    let mut waits = Vec::new();
    for seed in 1..=SEEDS {
        let setup = Setup::new(load.mode).select(select).seed(seed);
        let mut sim = Sim::new(&setup, (load.sources)());
        if !load.weights.is_empty() {
            sim.weigh(load.weights);
        }
        let mut rng = Rng::new(seed);
        let cycle = load.cycle.max(1);
        let duty: Vec<(u64, u64)> = (0..sim.sources.len())
            .map(|_| (rng.below(cycle), cycle * (30 + rng.below(41)) / 100))
            .collect();
        let mut done = 0;
        for (count, errors) in load.counts.iter().zip(&mut errors) {
            sim.run_with(count - done, |sim, turn| {
                if load.cycle > 0 {
                    for (source, (phase, on)) in duty.iter().enumerate() {
                        sim.switch(source, (done + turn + phase) % cycle < *on);
                    }
                }
            });
            done = *count;
            errors.push(sim.outcome().error);
        }
        waits.push(sim.outcome().wait);
    }
    (errors, waits)
}

/// Dispatches that a source waits which brings one request per hundred, beside eight that always have some:
/// the 99th percentile.
fn guest(select: Select) -> u64 {
    let mut waits = Vec::new();
    for seed in 1..=SEEDS {
        let mut sources = users(9);
        sources[8].on = false;
        let mut sim = Sim::new(&Setup::new("uid_fair").select(select).seed(seed), sources);
        let mut arrived = 0;
        for turn in 0..20_000u64 {
            if turn % 100 == 0 && sim.sources[8].queued == 0 {
                sim.bring(8);
                arrived = turn;
            }
            if sim.serve(0) == Some(8) {
                waits.push(turn - arrived);
            }
        }
    }
    waits.sort_unstable();
    waits[(waits.len() - 1) * 99 / 100]
}

/// Nanoseconds of a decision among `count`, the best of several runs.
fn cost(select: Select, depth: u32, count: u32, pages: u32) -> f64 {
    const STEPS: u32 = 20_000;
    let case = Case::select("fairshare", select).levels(depth).pages(pages);
    let mut crowd = Crowd::new(&case, count);
    let run = |_| {
        let start = Instant::now();
        (0..STEPS).for_each(|_| crowd.step());
        start.elapsed().as_nanos() as f64 / f64::from(STEPS)
    };
    (0..10).map(run).fold(f64::INFINITY, f64::min)
}

fn main() {
    let names = Select::ALL.iter().map(|select| format!("`{select}`"));
    let names: Vec<String> = names.collect();
    let head = |what: &str| {
        println!("| {what} | {} |", names.join(" | "));
        println!("|---|{}", "---|".repeat(names.len()));
    };
    head("worst entity's error, %");
    let mut waits = vec![Vec::new(); Select::ALL.len()];
    for load in &LOADS {
        let mut cells = vec![Vec::new(); load.counts.len()];
        for (select, waits) in Select::ALL.iter().zip(&mut waits) {
            let (errors, waited) = run(load, *select);
            waits.extend(waited);
            for (cells, errors) in cells.iter_mut().zip(errors) {
                cells.push(shown(percentiles(errors)));
            }
        }
        for (count, cells) in load.counts.iter().zip(cells) {
            println!("| {}, {count} | {} |", load.name, cells.join(" | "));
        }
    }
    let longest = |waits: &Vec<f64>| waits.iter().copied().fold(0.0, f64::max);
    let cells: Vec<String> = waits.iter().map(|w| format!("{:.1}", longest(w))).collect();
    println!("| longest wait, fair periods | {} |", cells.join(" | "));
    let cells = Select::ALL.iter().map(|select| guest(*select).to_string());
    let cells: Vec<String> = cells.collect();
    println!(
        "| rare guest's wait, dispatches, p99 | {} |",
        cells.join(" | ")
    );
    println!();
    head("ns per decision");
    for (depth, levels) in [(1, "1 level"), (3, "3 levels")] {
        for (count, pages, sizes) in [
            (64, 1, ""),
            (1_000, 1, ""),
            (100_000, 1, ""),
            (100_000, 16, ", mixed sizes"),
        ] {
            let cost = |select: &Select| format!("{:.0}", cost(*select, depth, count, pages));
            let cells: Vec<String> = Select::ALL.iter().map(cost).collect();
            println!(
                "| {count} entities, {levels}{sizes} | {} |",
                cells.join(" | ")
            );
        }
    }
}
