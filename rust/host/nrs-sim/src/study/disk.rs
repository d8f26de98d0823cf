// SPDX-License-Identifier: GPL-2.0-only

//! Effect of the order of requests on a disk with an arm.
//!
//! - *Streams*: eight files are read sequentially, 128 KiB per request, with 32 outstanding
//!   requests.
//! - *Objects*: 64 clients of four users read at random offsets of one file each, 64 KiB per
//!   request, with 16 outstanding requests.
//!
//! Requests are delayed by up to a millisecond. The disk has no queue, so the study compares the
//! order of the policies.

use nrs_report::table::Table;

use super::{all, keep, Failure, Options};
use crate::outcome::Outcome;
use crate::scenario::Scenario;

/// Policies with their parameters.
const POLICIES: &[(&str, &str)] = &[
    ("fifo", ""),
    ("crrn", ""),
    ("fairshare uid_fair", ""),
    ("fairshare uid_fair", "locality = 1"),
    ("orr", ""),
    ("trr", ""),
];

/// Disk with 7,200 revolutions per minute, and a network with jitter.
const DISK: &str = "[network]\nlatency = \"0s\"\njitter = \"1ms\"\n\
    [[device]]\nname = \"disk\"\nkind = \"disk\"\nseek = \"7.6ms\"\nrotation = \"8.333ms\"\n\
    bandwidth = \"200MB/s\"\n";

/// Load of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskLoad {
    /// Files with sequential reads.
    Streams,
    /// Files with random reads.
    Objects,
}

impl DiskLoad {
    /// Returns the jobs; a quick run has a part of the work.
    fn jobs(self, quick: bool) -> String {
        let (count, nodes, rest) = match self {
            Self::Streams => (8, 1, "depth = 32\nio = \"128KiB\""),
            Self::Objects => (4, 16, "depth = 16\nio = \"64KiB\"\naccess = \"random\""),
        };
        let work = match (self, quick) {
            (Self::Streams, false) => 256,
            (Self::Streams, true) => 64,
            (Self::Objects, false) => 512,
            (Self::Objects, true) => 96,
        };
        let job = |uid| {
            format!(
                "[[job]]\nname = \"j{uid}\"\nuid = {uid}\nnodes = {nodes}\nwork = \"{work}MiB\"\n\
                 mix = {{ read = 1 }}\n{rest}\n"
            )
        };
        (1..=count).map(job).collect()
    }

    /// Returns the scenario with a policy and its parameters.
    ///
    /// # Errors
    ///
    /// Faults of the scenario.
    pub fn scenario(self, policy: &str, params: &str, quick: bool) -> Result<Scenario, Failure> {
        let text = format!(
            "name = \"disk\"\nduration = \"1h\"\nsample = \"1min\"\nsettle = \"0s\"\n{DISK}\
             [[server]]\nname = \"s\"\nslots = 1\ndevice = \"disk\"\npolicy = \"{policy}\"\n\
             params = {{ {params} }}\n{}",
            self.jobs(quick)
        );
        Ok(Scenario::parse("disk", &text, &[])?)
    }
}

/// Returns a scenario of 10 s in which `count` users read a stream each, with a policy and its
/// parameters.
///
/// # Errors
///
/// Faults of the scenario.
pub fn users(count: u32, policy: &str, params: &str) -> Result<Scenario, Failure> {
    let job = |uid| {
        format!(
            "[[job]]\nname = \"u{uid}\"\nuid = {uid}\nmix = {{ read = 1 }}\ndepth = 32\n\
             io = \"128KiB\"\n"
        )
    };
    let jobs: String = (1..=count).map(job).collect();
    let text = format!(
        "name = \"disk\"\nduration = \"10s\"\nsample = \"1s\"\nsettle = \"0s\"\n{DISK}\
         [[server]]\nname = \"s\"\nslots = 1\ndevice = \"disk\"\npolicy = \"{policy}\"\n\
         params = {{ {params} }}\n{jobs}"
    );
    Ok(Scenario::parse("disk", &text, &[])?)
}

/// Returns the throughput of all jobs together, MB/s.
pub fn throughput(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome
        .servers
        .iter()
        .map(|server| server.total.bytes)
        .sum();
    bytes as f64 * 1e3 / outcome.ended_ns.max(1) as f64
}

/// Returns the mean time of seek and rotation per request, ms.
pub fn arm(outcome: &Outcome) -> f64 {
    let total = outcome.servers[0].total;
    let transfer = total.bytes as f64 / 200e6 * 1e3;
    (total.device_ns as f64 / 1e6 - transfer) / total.requests.max(1) as f64
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let loads = [DiskLoad::Streams, DiskLoad::Objects];
    let mut scenarios = Vec::new();
    for (policy, params) in POLICIES {
        for load in loads {
            scenarios.push(load.scenario(policy, params, options.quick)?);
        }
    }
    let outcomes = all(&scenarios, options)?;
    let mut table = Table::headed(
        "policy | streams: MB/s | arm, ms | longest wait, s | objects: MB/s | arm, ms | \
         longest wait, s",
    );
    for ((policy, params), outcomes) in POLICIES.iter().zip(outcomes.chunks(loads.len())) {
        let policy = [*policy, *params].join(" ").trim().to_string();
        let mut cells = vec![policy];
        for outcome in outcomes {
            let longest = outcome.jobs.iter().map(|job| job.latency.max_ns).max();
            cells.push(format!("{:.1}", throughput(outcome)));
            cells.push(format!("{:.2}", arm(outcome)));
            cells.push(format!("{:.1}", longest.unwrap_or(0) as f64 / 1e9));
        }
        table.row(&cells);
    }
    let markdown = table.markdown();
    keep("disk", &markdown, &table, options)?;
    Ok(markdown)
}
