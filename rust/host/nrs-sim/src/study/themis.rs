// SPDX-License-Identifier: GPL-2.0-only

//! The published contention experiments of ThemisIO (SC 2023), with the scheduler of nrs.
//!
//! - *Ideal*: the share of each job according to the policy.
//! - *Error*: the largest `|share / ideal - 1|` of all jobs; with two jobs also the error of their
//!   ratio.
//! - *Variation*: the standard deviation of a job's throughput in bins of one second over its mean;
//!   the largest of all jobs.
//! - *Settles*: the time from the last arrival of a job until all shares stay within 5 % of the
//!   ideal, or within three requests if that is more. The time is in whole bins of the scenario
//!   (0.1 s).
//! - *Total over solo*: the throughput of all jobs while they compete, over the throughput of the
//!   first job alone.
//!
//! The overlap is judged: from the settle time after the last arrival to the first departure. The
//! time to settle counts from the arrival itself.
//!
//! The published variation is from a testbed with a network and real disks. The simulated variation
//! has only the part of the scheduler and the jitter of the model. It is printed beside the
//! published one because a scheduler that adds variation would show; it does not measure a disk.

use nrs_report::stat::{median, spread, variation};
use nrs_report::table::Table;

use super::{all, keep, seeded, Failure, Options};
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::show;

/// Experiment with its published results.
struct Experiment {
    /// Policy and jobs.
    what: &'static str,
    file: (&'static str, &'static str),
    /// Keys that differ from the file.
    set: &'static [(&'static str, &'static str)],
    /// Ideal shares in any unit.
    ideal: &'static [f64],
    /// Error, variation and time to settle, computed from the published raw data.
    published: [Option<f64>; 3],
    /// Limits of error, variation and time to settle: the worst published values of this kind.
    bars: [f64; 3],
}

/// Minimum of the total over solo, %.
const TOTAL: f64 = 96.0;

/// Limits with two jobs.
const TWO: [f64; 3] = [1.2, 4.9, 1.0];

/// Experiment with size-fair shares, 4 nodes and 1.
const SIZES: Experiment = Experiment {
    what: "size-fair, 4 nodes and 1",
    file: (
        "size-fair-4v1.toml",
        include_str!("../../scenarios/size-fair-4v1.toml"),
    ),
    set: &[],
    ideal: &[4.0, 1.0],
    published: [Some(1.1), Some(3.4), Some(1.0)],
    bars: TWO,
};

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        what: "job-fair, 1 node and 1",
        set: &[
            ("name", "job-fair-1v1"),
            ("title", "Two jobs of a node each, equal shares"),
            ("server.0.policy", "fairshare jobid_fair"),
            ("job.a.nodes", "1"),
        ],
        ideal: &[1.0, 1.0],
        published: [Some(0.1), Some(4.5), Some(1.0)],
        ..SIZES
    },
    Experiment {
        what: "job-fair, 4 nodes and 1",
        set: &[
            ("name", "job-fair-4v1"),
            ("title", "Jobs of 4 nodes and of 1, equal shares"),
            ("server.0.policy", "fairshare jobid_fair"),
        ],
        ideal: &[1.0, 1.0],
        published: [Some(1.2), Some(4.2), Some(1.0)],
        ..SIZES
    },
    Experiment {
        what: "size-fair, 2 nodes and 1",
        set: &[
            ("name", "size-fair-2v1"),
            ("title", "Jobs of 2 nodes and of 1, shares by size"),
            ("job.a.nodes", "2"),
        ],
        ideal: &[2.0, 1.0],
        published: [Some(0.3), Some(4.9), Some(1.0)],
        ..SIZES
    },
    SIZES,
    Experiment {
        what: "size-fair, 8 nodes and 1",
        set: &[
            ("name", "size-fair-8v1"),
            ("title", "Jobs of 8 nodes and of 1, shares by size"),
            ("job.a.nodes", "8"),
        ],
        ideal: &[8.0, 1.0],
        published: [Some(0.4), None, None],
        ..SIZES
    },
    Experiment {
        what: "user-fair, 2 jobs of one user and 1",
        file: (
            "user-fair-2v1.toml",
            include_str!("../../scenarios/user-fair-2v1.toml"),
        ),
        ideal: &[1.0, 2.0, 1.0],
        published: [Some(0.5), Some(1.1), Some(2.0)],
        bars: [1.2, 1.1, 1.0],
        ..SIZES
    },
    Experiment {
        what: "group, user, size: 8 jobs",
        file: (
            "composite-8jobs.toml",
            include_str!("../../scenarios/composite-8jobs.toml"),
        ),
        ideal: &[1260.0, 120.0, 180.0, 120.0, 252.0, 168.0, 140.0, 280.0],
        published: [Some(7.8), Some(9.3), Some(7.0)],
        bars: [7.8, 9.3, 7.0],
        ..SIZES
    },
    Experiment {
        what: "size-fair, 4 nodes and 1, on 4 CPTs",
        set: &[("server.0.cpts", "4")],
        published: [None; 3],
        ..SIZES
    },
    Experiment {
        what: "size-fair, 4 nodes and 1, 1 MiB and 256 KiB",
        set: &[("job.b.io", "\"256KiB\"")],
        published: [None; 3],
        ..SIZES
    },
    Experiment {
        what: "size-fair, 4 nodes and 1, 64 KiB to 4 MiB mixed",
        set: &[("job.a.io", MIXED), ("job.b.io", MIXED)],
        published: [None; 3],
        ..SIZES
    },
];

/// Mixed request sizes.
const MIXED: &str = "[{ size = \"64KiB\", weight = 4 }, { size = \"1MiB\" }, { size = \"4MiB\" }]";

/// Results of the overlap of one run.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Share of each job in the bytes moved, 0 to 1.
    pub shares: Vec<f64>,
    /// Largest error, %.
    pub error_percent: f64,
    /// Largest variation of a job over bins of a second, %.
    pub variation_percent: f64,
    /// Time until shares stay within 5 %, s; infinite if they do not.
    pub settles_s: f64,
    /// Throughput of all jobs over the first job alone, %.
    pub total_percent: f64,
}

/// Evaluates the overlap of all jobs of a run by ideal shares.
pub fn judge(scenario: &Scenario, outcome: &Outcome, ideal: &[f64]) -> Judged {
    let jobs = &scenario.jobs;
    let sample = outcome.sample_ns.max(1);
    let came = jobs.iter().map(|job| job.start.0).max().unwrap_or(0);
    let ends = jobs.iter().filter_map(|job| job.stop).map(|stop| stop.0);
    let ends = ends.min().unwrap_or(scenario.duration.0);
    let bytes = |job: usize, bin: u64| {
        let bin = outcome.jobs[job].bins.get(bin as usize);
        bin.map_or(0.0, |bin| bin.bytes as f64)
    };
    let sum = ideal.iter().sum::<f64>();
    let first = (came + scenario.settle.0).div_ceil(sample);
    let last = ends / sample;
    let moved: Vec<f64> = (0..jobs.len())
        .map(|job| (first..last).map(|bin| bytes(job, bin)).sum())
        .collect();
    let total: f64 = moved.iter().sum();
    let shares: Vec<f64> = moved.iter().map(|moved| moved / total).collect();
    let errors = shares.iter().zip(ideal);
    let mut error = errors
        .map(|(share, ideal)| (share * sum / ideal - 1.0).abs())
        .fold(0.0, f64::max);
    if let ([a, b], [x, y]) = (&shares[..], ideal) {
        error = error.max((a / b * y / x - 1.0).abs());
    }
    // Groups of ten bins: a second, or less in a shortened scenario.
    let ten = (first..last).collect::<Vec<u64>>();
    let ten = ten.chunks_exact(10);
    let variation = (0..jobs.len())
        .map(|job| {
            let bins = ten
                .clone()
                .map(|bins| bins.iter().map(|bin| bytes(job, *bin)).sum());
            variation(&bins.collect::<Vec<f64>>())
        })
        .fold(0.0, f64::max);
    let request = jobs.iter().flat_map(|job| &job.io).map(|io| io.size.0);
    let request = request.max().unwrap_or(0) as f64;
    let fair = |bin: u64| {
        let all: f64 = (0..jobs.len()).map(|job| bytes(job, bin)).sum();
        let mut jobs = ideal.iter().enumerate();
        jobs.all(|(job, ideal)| {
            let due = all * ideal / sum;
            all > 0.0 && (bytes(job, bin) - due).abs() <= (due * 0.05).max(3.0 * request)
        })
    };
    let start = came / sample;
    // First bin from which all bins are fair.
    let unfair = (start..last).rev().find(|bin| !fair(*bin));
    let settled = unfair.map_or(start, |bin| bin + 1);
    let settles = match settled >= last {
        true => f64::INFINITY,
        false => (settled - start) as f64 * sample as f64 / 1e9,
    };
    let second = jobs
        .iter()
        .map(|job| job.start.0)
        .filter(|start| *start > 0);
    let second = second.min().unwrap_or(came);
    let alone = outcome.rate(0, scenario.settle.0, second);
    let rate: f64 = (0..jobs.len())
        .map(|job| outcome.rate(job, first * sample, last * sample))
        .sum();
    Judged {
        shares,
        error_percent: error * 100.0,
        variation_percent: variation * 100.0,
        settles_s: settles,
        total_percent: rate / alone * 100.0,
    }
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let mut table = Table::headed(
        "experiment | shares, % | error, % | published | limit | variation, % | published | \
         settles, s | published | total over solo, % | limits met",
    );
    let optional = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value}"));
    for experiment in EXPERIMENTS {
        let scenarios = seeded(experiment.file, experiment.set, options)?;
        let outcomes = all(&scenarios, options)?;
        let first = outcomes
            .first()
            .filter(|_| experiment.published[0].is_some());
        if let (Some(out), Some(first)) = (&options.out, first) {
            show::write(first, out)?;
        }
        let judged: Vec<Judged> = scenarios
            .iter()
            .zip(&outcomes)
            .map(|(scenario, outcome)| judge(scenario, outcome, experiment.ideal))
            .collect();
        let over =
            |pick: fn(&Judged) -> f64| spread(&judged.iter().map(pick).collect::<Vec<f64>>());
        let shares: Vec<String> = (0..experiment.ideal.len())
            .map(|job| {
                let shares = judged.iter().map(|judged| judged.shares[job] * 100.0);
                format!("{:.2}", median(&shares.collect::<Vec<f64>>()))
            })
            .collect();
        let (published, bars) = (experiment.published, experiment.bars);
        let error = over(|j| j.error_percent);
        let changes = over(|j| j.variation_percent);
        let total = over(|j| j.total_percent);
        // One run that does not settle is enough.
        let worst = judged.iter().map(|j| j.settles_s).fold(0.0, f64::max);
        let settles = over(|j| j.settles_s);
        let missed: Vec<&str> = [
            ("error", error.high <= bars[0]),
            ("variation", changes.high <= bars[1]),
            ("settling", worst <= bars[2]),
            ("total", total.low >= TOTAL),
        ]
        .into_iter()
        .filter_map(|(what, met)| (!met).then_some(what))
        .collect();
        table.row(&[
            experiment.what.to_string(),
            shares.join(" : "),
            error.text(2),
            optional(published[0]),
            bars[0].to_string(),
            changes.text(2),
            optional(published[1]),
            match worst.is_finite() {
                true => settles.text(1),
                false => "never".to_string(),
            },
            optional(published[2]),
            total.text(1),
            match missed.is_empty() {
                true => "met".to_string(),
                false => format!("NOT met: {}", missed.join(", ")),
            },
        ]);
    }
    let mut text = table.markdown();
    text += &format!(
        "\nMedian (least–greatest) of {} seeds; the limits apply to the worst seed: error and \
         variation as in the table and as published, settled within {} s (7 s with 8 jobs), total \
         at least {TOTAL} % of solo. The last three were not published; the limits of two jobs \
         apply to them. Published figures are of a testbed; the figures of nrs are simulated, so \
         variation includes no network and no disk.\n",
        options.seeds, TWO[2]
    );
    keep("themis", &text, &table, options)?;
    Ok(text)
}
