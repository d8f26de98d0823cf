// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report demo`: results of tests/vm/demo.sh as the table and the chart of the demo.
//!
//! A small user and a greedy user with two jobs share one device under fifo, fairshare and tbf. All
//! figures, and the texts about them, are generated from the results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{fio, page, Result};

/// Runs in order.
const RUNS: [&str; 4] = ["alone", "fifo", "fairshare", "tbf"];

/// Users and their jobs.
const JOBS: [(&str, &str); 3] = [
    ("small", "small"),
    ("greedy", "large"),
    ("greedy", "medium"),
];

/// Busy time of the CPU, percent, above which the CPU determines the results and not the device.
const BUSY_LIMIT: f64 = 60.0;

/// Maximum relative deviation of a client from half, or from its limit.
const TOLERANCE: f64 = 0.05;

/// Sentences about the results, for the texts and the chart.
const WORDS: &str = include_str!("templates/demo-words.j2");

/// Directory of the results, and file of the chart.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the results.
    dir: PathBuf,
    /// Output file of the chart, SVG.
    picture: PathBuf,
    /// Output file of the table for the README.
    readme: PathBuf,
}

/// Job of a run: service from the counters of nrs, latency from fio.
#[derive(Serialize)]
struct DemoJob {
    user: &'static str,
    name: &'static str,
    mb_per_s: f64,
    iops: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Run: its jobs in order, throughput of each user, and busy time of the CPU in percent.
#[derive(Serialize)]
struct DemoRun {
    name: &'static str,
    jobs: Vec<DemoJob>,
    users: BTreeMap<&'static str, f64>,
    busy: f64,
}

/// All results.
#[derive(Serialize)]
struct Demo {
    runs: [DemoRun; 4],
    /// Rule of tbf, and its rate.
    rule: String,
    rate: String,
    /// Each user got half under fairshare, and each job of the greedy user half of that.
    is_fair: bool,
    /// The greedy user got the rate of its rule under tbf.
    is_limited: bool,
    /// The device was the bottleneck.
    is_valid: bool,
    busy_limit: f64,
}

/// Returns the counters in a file of the run, by name.
fn counters(path: PathBuf) -> Result<BTreeMap<String, f64>> {
    let text = fs::read_to_string(path)?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    let numbers = pairs.map(|(name, value)| Ok((name.to_owned(), value.trim().parse()?)));
    numbers.collect()
}

impl DemoRun {
    fn read(dir: &Path, name: &'static str) -> Result<Self> {
        let before = counters(dir.join(format!("{name}.before")))?;
        let after = counters(dir.join(format!("{name}.after")))?;
        let change = |fact: &str| Some(after.get(fact)? - before.get(fact)?);
        let seconds = change("seconds").ok_or("no time")?;
        let idle = change("idle_seconds").ok_or("no idle time")?;
        let mut jobs = Vec::new();
        for (user, job) in JOBS {
            let got = change(&format!("{job}_bytes")).zip(change(&format!("{job}_requests")));
            let Some((bytes, requests)) = got else {
                continue;
            };
            let latency = fio::reads(&dir.join(format!("{name}-{job}.json")))?.clat_ns;
            jobs.push(DemoJob {
                user,
                name: job,
                mb_per_s: bytes / seconds / 1e6,
                iops: requests / seconds,
                p50_ms: latency.ms(50.0).ok_or("no latency")?,
                p99_ms: latency.ms(99.0).ok_or("no latency")?,
            });
        }
        let busy = 100.0 - 100.0 * idle / seconds;
        Ok(Self::new(name, jobs, busy))
    }

    fn new(name: &'static str, jobs: Vec<DemoJob>, busy: f64) -> Self {
        let mut users = BTreeMap::new();
        for job in &jobs {
            *users.entry(job.user).or_default() += job.mb_per_s;
        }
        Self {
            name,
            jobs,
            users,
            busy,
        }
    }
}

impl Demo {
    fn new(runs: [DemoRun; 4], rule: String) -> Result<Self> {
        let rate = rule.split(' ').find_map(|word| word.strip_prefix("rate="));
        let rate = rate.ok_or("the rule has no rate")?.to_owned();
        let limit: f64 = rate.trim_end_matches("MB/s").parse().unwrap_or(f64::NAN);
        let is_half = |part: f64, all: f64| (100.0 * part / all - 50.0).abs() < 50.0 * TOLERANCE;
        let [_, _, fair, limited] = &runs;
        let (small, greedy) = (fair.users["small"], fair.users["greedy"]);
        let is_fair = is_half(small, small + greedy) && is_half(fair.jobs[1].mb_per_s, greedy);
        Ok(Self {
            is_fair,
            is_limited: (limited.users["greedy"] / limit - 1.0).abs() < TOLERANCE,
            is_valid: runs.iter().all(|run| run.busy < BUSY_LIMIT),
            busy_limit: BUSY_LIMIT,
            runs,
            rule,
            rate,
        })
    }

    fn page(&self, template: &str) -> Result<String> {
        page::render(&(WORDS.to_owned() + template), self)
    }
}

/// Prints the table, and draws the chart.
///
/// # Errors
///
/// Missing or unreadable results; a run with unexpected results.
pub fn run(args: Args) -> Result {
    let rule = fs::read_to_string(args.dir.join("rule"))?.trim().to_owned();
    let [alone, fifo, fair, limited] = RUNS.map(|name| DemoRun::read(&args.dir, name));
    let demo = Demo::new([alone?, fifo?, fair?, limited?], rule)?;
    print!("{}", demo.page(include_str!("templates/demo.txt.j2"))?);
    let picture = demo.page(include_str!("templates/demo.svg.j2"))?;
    fs::write(&args.picture, picture)?;
    let readme = demo.page(include_str!("templates/demo.md.j2"))?;
    fs::write(&args.readme, readme)?;
    match demo.is_valid && demo.is_fair && demo.is_limited {
        true => Ok(()),
        false => Err("unexpected results, see NOT above".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_picture() {
        let run = |name, rates: [f64; 3]| {
            let jobs = JOBS.iter().zip(rates).filter(|(_, rate)| *rate > 0.0);
            let jobs = jobs.map(|((user, name), mb_per_s)| DemoJob {
                user,
                name,
                mb_per_s,
                iops: mb_per_s * 16.0,
                p50_ms: 9.0,
                p99_ms: 1000.0 / mb_per_s,
            });
            DemoRun::new(name, jobs.collect(), 30.0)
        };
        let demo = |rule: &str| {
            let runs = [
                run("alone", [50.0, 0.0, 0.0]),
                run("fifo", [2.0, 36.0, 12.0]),
                run("fairshare", [25.0, 12.5, 12.5]),
                run("tbf", [40.0, 5.0, 5.0]),
            ];
            Demo::new(runs, rule.into()).unwrap()
        };
        let good = demo("start greedy uid={1002} rate=10MB/s");
        assert!(good.is_fair && good.is_limited && good.is_valid);
        let text = good.page(include_str!("templates/demo.txt.j2")).unwrap();
        let readme = good.page(include_str!("templates/demo.md.j2")).unwrap();
        let svg = good.page(include_str!("templates/demo.svg.j2")).unwrap();
        for (page, want) in [
            (&text, "500       4.0%             25.0 times slower"),
            (&text, "(under fifo it got 75 % of its user's part)"),
            (&readme, "| throughput, MB/s |  50.0 |"),
            (&readme, "both users together get 100 % of the throughput"),
            (&svg, "small 50.0 %"),
            (&svg, "greedy 72.0 %"),
            (&svg, "500 ms"),
        ] {
            assert!(page.contains(want), "{want}: {page}");
        }
        let bad = demo("start greedy uid={1002} rate=20MB/s");
        assert!(!bad.is_limited);
        let text = bad.page(include_str!("templates/demo.txt.j2")).unwrap();
        assert!(text.contains("which is NOT the rate of the rule"), "{text}");
    }
}
