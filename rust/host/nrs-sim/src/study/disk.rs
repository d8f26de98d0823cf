// SPDX-License-Identifier: GPL-2.0-only

//! What the order of requests is worth on a disk with an arm.
//!
//! *Streams*: eight files are read from front to end, 128 KiB at a time, 32 requests ahead. *Objects*: 64 clients of
//! four users read anywhere in a file each, 64 KiB at a time, 16 requests ahead. Requests are up to a millisecond
//! late; the disk has no queue, so what is compared is the order that the policy decides.

use nrs_report::table::Table;

use super::{all, keep, Failure, Options};
use crate::outcome::Outcome;
use crate::scenario::Scenario;

/// Policies, and parameters beside.
const POLICIES: &[(&str, &str)] = &[
    ("fifo", ""),
    ("crrn", ""),
    ("fairshare uid_fair", ""),
    ("fairshare uid_fair", "locality = 1"),
    ("orr", ""),
    ("trr", ""),
];

/// A disk of 7,200 revolutions a minute, and requests that are late.
const DISK: &str = "[network]\nlatency = \"0s\"\njitter = \"1ms\"\n\
    [[device]]\nname = \"disk\"\nkind = \"disk\"\nseek = \"7.6ms\"\nrotation = \"8.333ms\"\n\
    bandwidth = \"200MB/s\"\n";

/// A load of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Files read from front to end.
    Streams,
    /// Files read anywhere.
    Objects,
}

impl Load {
    /// The jobs, with a part of the work for a quick run.
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

    /// The scenario with a policy and its parameters.
    ///
    /// # Errors
    ///
    /// Faults of it.
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

/// Ten seconds in which `count` users read a stream each, with a policy and its parameters.
///
/// # Errors
///
/// Faults of it.
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

/// Bytes per second of all jobs together, in millions.
pub fn throughput(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome
        .servers
        .iter()
        .map(|server| server.total.bytes)
        .sum();
    bytes as f64 * 1e3 / outcome.ended_ns.max(1) as f64
}

/// Mean time of the arm and the platter for a request, ms.
pub fn arm(outcome: &Outcome) -> f64 {
    let total = outcome.servers[0].total;
    let transfer = total.bytes as f64 / 200e6 * 1e3;
    (total.device_ns as f64 / 1e6 - transfer) / total.requests.max(1) as f64
}

/// Runs it.
///
/// # Errors
///
/// What a run says.
pub fn run(options: &Options) -> Result<String, Failure> {
    let loads = [Load::Streams, Load::Objects];
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
