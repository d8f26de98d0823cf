// SPDX-License-Identifier: GPL-2.0-only

//! Errors of the selectors of `fairshare` under typical loads.
//!
//! A closed loop keeps 8 requests queued per entity on one part, which dispatches one request at a
//! time. The *error* is the error of the worst entity in % after a number of dispatches. The
//! reference is ideal fluid sharing of the backlogged entities at each level. *On and off*: each
//! source has requests for 30 to 70 % of a cycle of a number of dispatches.

use nrs_report::stat::percentile;
use nrs_report::table::Table;
use nrs_sched::{
    arena::attrs,
    attr::{Attrs, Id},
    jobid::JobId,
    policy::fairshare::params::Select,
    rng::Rng,
    sim::{Setup, Sim, Source},
};

use super::{keep, Failure, Options};

/// Seeds per seed of the option.
const SEEDS: u64 = 4;

/// Load: name, mode, weights, sources, dispatches of a cycle (0: always on), and numbers of
/// dispatches after which errors are measured.
type SelectLoad = (
    &'static str,
    &'static str,
    &'static str,
    fn() -> Vec<Source>,
    u64,
    &'static [u64],
);

const COMPOSITE: &str = "gid_then_uid_then_size_fair";

const LOADS: &[SelectLoad] = &[
    ("1:1", "uid_fair", "", || users(2), 0, &[1_000]),
    ("1:4", "uid_fair", "uid:1:4", || users(2), 0, &[1_000]),
    ("1:100", "uid_fair", "uid:1:100", || users(2), 0, &[1_000]),
    ("8 equal", "uid_fair", "", || users(8), 0, &[1_000, 10_000]),
    (
        "composite",
        COMPOSITE,
        "",
        composite,
        0,
        &[1_000, 10_000, 100_000],
    ),
    (
        "8 equal, mixed sizes",
        "uid_fair",
        "",
        || mixed(users(8)),
        0,
        &[1_000, 10_000],
    ),
    (
        "composite, mixed sizes",
        COMPOSITE,
        "",
        || mixed(composite()),
        0,
        &[1_000, 10_000],
    ),
    (
        "8 equal, on and off every 400",
        "uid_fair",
        "",
        || users(8),
        400,
        &[100_000],
    ),
    (
        "composite, on and off every 400",
        COMPOSITE,
        "",
        composite,
        400,
        &[100_000],
    ),
    (
        "composite, on and off every 4,000",
        COMPOSITE,
        "",
        composite,
        4_000,
        &[100_000],
    ),
];

fn users(count: u32) -> Vec<Source> {
    (0..count).map(|uid| Source::new(attrs(uid))).collect()
}

/// Returns eight jobs of four users in two groups, with 1 to 3 nodes: the composite of ThemisIO.
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

/// Assigns request sizes of 1, 16 and 256 pages to the sources, in three different mixes.
fn mixed(sources: Vec<Source>) -> Vec<Source> {
    let mixes: [&[u32]; 3] = [&[1, 16, 256], &[1, 16, 16, 256], &[1, 16, 256, 256]];
    let sources = sources.into_iter().zip(mixes.into_iter().cycle());
    sources.map(|(source, mix)| source.of(mix)).collect()
}

/// Returns the errors after each number of dispatches, and the longest wait in fair periods.
fn measure(load: &SelectLoad, select: Select, seed: u64) -> (Vec<f64>, f64) {
    let (_, mode, weights, sources, cycle, counts) = *load;
    let mut sim = Sim::new(&Setup::new(mode).select(select).seed(seed), sources());
    if !weights.is_empty() {
        sim.weigh(weights);
    }
    let mut rng = Rng::new(seed);
    let duty: Vec<(u64, u64)> = (0..sim.sources.len())
        .map(|_| (rng.below(cycle.max(1)), cycle * (30 + rng.below(41)) / 100))
        .collect();
    let mut done = 0;
    let mut errors = Vec::new();
    for count in counts {
        sim.run_with(count - done, |sim, turn| {
            if cycle > 0 {
                for (source, (phase, on)) in duty.iter().enumerate() {
                    sim.switch(source, (done + turn + phase) % cycle < *on);
                }
            }
        });
        done = *count;
        errors.push(sim.outcome().error);
    }
    (errors, sim.outcome().wait)
}

/// Runs the study.
///
/// # Errors
///
/// An error of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let seeds = if options.quick {
        1
    } else {
        options.seeds * SEEDS
    };
    let names = Select::ALL.iter().map(ToString::to_string);
    let names: Vec<String> = names.collect();
    let head = std::iter::once("worst entity's error, %").chain(names.iter().map(String::as_str));
    let mut table = Table::new(&head.collect::<Vec<_>>());
    let mut longest = vec![0f64; names.len()];
    for load in LOADS {
        let mut cells: Vec<Vec<String>> = load
            .5
            .iter()
            .map(|count| vec![format!("{}, {count}", load.0)])
            .collect();
        for (select, longest) in Select::ALL.iter().zip(&mut longest) {
            let runs: Vec<_> = (1..=seeds)
                .map(|seed| measure(load, *select, seed))
                .collect();
            *longest = runs.iter().map(|(_, wait)| *wait).fold(*longest, f64::max);
            for (index, cells) in cells.iter_mut().enumerate() {
                let errors: Vec<f64> = runs.iter().map(|(errors, _)| errors[index]).collect();
                let (median, high) = (percentile(&errors, 500), percentile(&errors, 950));
                cells.push(format!("{median:.2} / {high:.2}"));
            }
        }
        for cells in &cells {
            table.row(cells);
        }
    }
    let waits = longest.iter().map(|wait| format!("{wait:.1}"));
    let last = std::iter::once("longest wait, fair periods".to_string()).chain(waits);
    table.row(&last.collect::<Vec<_>>());
    let markdown = table.markdown();
    keep("select", &markdown, &table, options)?;
    Ok(markdown)
}
