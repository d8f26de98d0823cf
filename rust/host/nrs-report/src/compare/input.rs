// SPDX-License-Identifier: GPL-2.0-only

//! Parser of the results of tests/vm/compare.sh.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{fio, Result};

/// Peers in the order of the page.
#[rustfmt::skip]
pub const PEERS: [&str; 12] = [
    "none", "mq-deadline", "kyber", "bfq", "io.max", "io.cost", "dm-linear", "nrs-fifo", "nrs-tbf",
    "nrs-fairshare", "nrs-qbm", "nrs-iosched",
];

/// Devices in the order of the page.
pub const DEVICES: [&str; 4] = ["fast", "band", "slow", "loop"];

/// Number of clients in a sample.
const CLIENTS: usize = 8;

/// Results of one device.
#[derive(Default)]
pub struct Input {
    /// Properties of the machine, by name.
    pub facts: BTreeMap<String, String>,
    /// Peers that are not possible on the device, and the reasons.
    pub not_possible: BTreeMap<String, String>,
    /// Repeats by peer and measure.
    pub runs: BTreeMap<(&'static str, String), Vec<Run>>,
}

/// One measure of one repeat: the difference of two samples.
#[derive(Clone, Default)]
pub struct Run {
    /// Time between the samples, s.
    pub seconds: f64,
    /// Fraction of the time in which the CPU ran a task, 0 to 1.
    pub busy: f64,
    /// Number of requests that the disk completed.
    pub requests: f64,
    /// Number of requests of each client.
    pub clients: Vec<f64>,
    /// Latency of client 1, ms, by percent, and number of its requests.
    pub latency: Option<([f64; 3], u64)>,
}

/// Returns the lines of a file as names and values.
fn pairs(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fio::text(path)?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect())
}

impl Input {
    /// Reads the results in `dir`.
    ///
    /// # Errors
    ///
    /// With the file's name: a file cannot be read or parsed, or a job of fio failed.
    pub fn read(dir: &Path) -> Result<Self> {
        let (device, not) = (dir.join("device"), dir.join("not"));
        let mut all = Self {
            facts: pairs(&device)?,
            not_possible: pairs(&not)?,
            ..Self::default()
        };
        for peer in PEERS {
            let names = (1..).map(|repeat| dir.join(format!("{peer}.{repeat}.facts")));
            for facts in names.take_while(|facts| facts.is_file()) {
                let named = |path: &Path, error| format!("{}: {error}", path.display());
                let runs = parse_facts(&fio::text(&facts)?);
                let mut runs = runs.map_err(|error| named(&facts, error))?;
                let json = facts.with_extension("json");
                let added = add_latency(&fio::text(&json)?, &mut runs);
                added.map_err(|error| named(&json, error))?;
                for (measure, run) in runs {
                    all.runs.entry((peer, measure)).or_default().push(run);
                }
            }
        }
        Ok(all)
    }
}

/// Parses runs by measure, from two lines `MEASURE TIME_US TASKS_NS REQUESTS CLIENT1 … CLIENT8`
/// each.
fn parse_facts(text: &str) -> Result<BTreeMap<String, Run>> {
    let mut samples: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    for line in text.lines() {
        let (measure, numbers) = line.split_once(' ').unwrap_or_default();
        let numbers = numbers.split_whitespace().map(str::parse);
        match numbers.collect::<std::result::Result<Vec<f64>, _>>() {
            Ok(numbers) if numbers.len() == 3 + CLIENTS => {
                samples.entry(measure).or_default().push(numbers);
            }
            _ => return Err(format!("malformed sample: {line}").into()),
        }
    }
    let run = |(measure, samples): (&str, Vec<Vec<f64>>)| {
        let [before, after] = &samples[..] else {
            let count = samples.len();
            return Err(format!("{measure}: expected 2 samples, found {count}").into());
        };
        let change = Vec::from_iter(after.iter().zip(before).map(|(a, b)| a - b));
        if change[0] <= 0.0 {
            return Err(format!("{measure}: no time between the samples").into());
        }
        let run = Run {
            seconds: change[0] / 1e6,
            busy: (change[1] / 1e3 / change[0]).clamp(0.0, 1.0),
            requests: change[2],
            clients: change[3..].to_vec(),
            latency: None,
        };
        Ok((measure.to_string(), run))
    };
    samples.into_iter().map(run).collect()
}

/// Adds the latency of client 1 to `runs`, from fio's report of jobs named `MEASURE.cN`.
fn add_latency(text: &str, runs: &mut BTreeMap<String, Run>) -> Result {
    for job in fio::jobs(text)? {
        let name = &job.jobname;
        if job.error != 0 {
            return Err(format!("job {name} failed with error {}", job.error).into());
        }
        let measure = name.strip_suffix(".c1");
        if let Some(run) = measure.and_then(|measure| runs.get_mut(measure)) {
            let times = [50.0, 99.0, 99.9].map(|percent| job.read.lat_ns.ms(percent));
            let [Some(p50), Some(p99), Some(p999)] = times else {
                return Err(format!("job {name} has no latency").into());
            };
            run.latency = Some(([p50, p99, p999], job.read.total_ios.unwrap_or(0)));
        }
    }
    Ok(())
}
