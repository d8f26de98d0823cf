// SPDX-License-Identifier: GPL-2.0-only

//! What is to be simulated: a scenario, written in TOML.
//!
//! * A *scenario* names devices, servers, jobs and the network between them, how long to run and how to
//!   show it.
//! * A *device* is a model of a disk ([`Model`]); a *server* has CPTs, slots, one device and a
//!   policy line as `nrs_policies` takes it, or a *baseline* of the simulator.
//! * A *job* has nodes, each a client with its own NID; each node has processes, each of which has at
//!   most one request outstanding (a closed loop), or an arrival rate (an open loop).
//!
//! ```text
//! text --TOML, types--> Scenario --check--> Scenario
//!   |                                 |
//!   +-- Fault {line, column, key, reason} of either
//! ```
//!
//! Times are integers in nanoseconds, sizes in bytes, rates in bytes per second ([`units`]).

pub mod check;
pub mod device;
pub mod fault;
pub mod job;
pub mod units;

use std::collections::BTreeMap;
use std::path::Path;

use nrs_sched::units::NSEC_PER_SEC as SECOND;
use serde::Deserialize;

pub use device::{Device, Kind, Model, Side};
pub use fault::{Fault, Faults};
pub use job::{Access, Arrival, Burst, Io, Job, Loop, Mix, Phases, Servers};
pub use units::{Rate, Size, Time};

/// What is to be simulated.
///
/// # Invariants
///
/// One that [`Scenario::parse`] returned has passed [`check::check`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name: letters, digits, `-` and `_`; begins the names of result files.
    pub name: String,
    /// One line about it; empty unless given.
    #[serde(default)]
    pub title: String,
    /// The seed of everything random.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Simulated time.
    pub duration: Time,
    /// The length of the bins of results.
    #[serde(default = "defaults::sample")]
    pub sample: Time,
    /// How much of the start is ignored when shares are judged.
    #[serde(default = "defaults::settle")]
    pub settle: Time,
    /// Between clients and servers.
    #[serde(default)]
    pub network: Network,
    /// Models of disks (`[[device]]`).
    #[serde(rename = "device", default)]
    pub devices: Vec<Device>,
    /// Servers (`[[server]]`).
    #[serde(rename = "server", default)]
    pub servers: Vec<Server>,
    /// Jobs (`[[job]]`).
    #[serde(rename = "job", default)]
    pub jobs: Vec<Job>,
    /// How servers tell each other of the service they gave; none unless given.
    #[serde(default)]
    pub exchange: Option<Exchange>,
}

/// Between clients and servers, the same for all of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Time of a message, one way.
    pub latency: Time,
    /// Uniform, on top of the latency: 0 to this.
    pub jitter: Time,
    /// Of each client's link; without it, links are not modelled.
    pub bandwidth: Option<Rate>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            latency: Time(20_000),
            jitter: Time(0),
            bandwidth: None,
        }
    }
}

/// A server, or `count` of the same kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name; with a count above 1, that and a number from 0: `oss0`, `oss1`, ...
    pub name: String,
    /// How many of them.
    #[serde(default = "defaults::one")]
    pub count: u32,
    /// CPU partitions: each has a scheduler of its own, and clients spread over them by NID.
    #[serde(default = "defaults::one")]
    pub cpts: u32,
    /// Requests that all CPTs together have at the device at most.
    #[serde(default = "defaults::slots")]
    pub slots: u32,
    /// The name of its device.
    pub device: String,
    /// A line of `nrs_policies`, `throttle-gift`, or `throttle-static RATE`.
    pub policy: String,
    /// Commands of `nrs_tbf_rule`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// The text of `nrs_qbm_config`.
    #[serde(default)]
    pub plan: Option<String>,
    /// Items of `nrs_fairshare_weights` such as `jobid:a:2`; one of them, or a list.
    #[serde(default, deserialize_with = "job::one_or_many")]
    pub weights: Vec<String>,
    /// Tunables by name.
    #[serde(default)]
    pub params: BTreeMap<String, Param>,
}

impl Server {
    /// The names of the servers that it stands for.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.count).map(|n| {
            if self.count == 1 {
                self.name.clone()
            } else {
                format!("{}{n}", self.name)
            }
        })
    }
}

/// The value of a tunable.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// A number.
    Number(u64),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for Param {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(to),
            Self::Text(text) => text.fmt(to),
        }
    }
}

/// How servers tell each other of the service they gave.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exchange {
    /// The time between two summaries of a server.
    pub delta: Time,
    /// Time of a summary on its way.
    pub latency: Time,
    /// Uniform, on top of the latency: 0 to this.
    pub jitter: Time,
    /// The fraction of summaries that are lost, 0 to 1.
    pub loss: f64,
    /// Deltas after which the rates of a silent server start to fade.
    pub hold: u32,
    /// Servers that are cut off from the others for a while.
    pub cut: Vec<Cut>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            delta: Time(SECOND / 10),
            latency: Time(SECOND / 1000),
            jitter: Time(0),
            loss: 0.0,
            hold: 16,
            cut: Vec::new(),
        }
    }
}

/// A server that neither sends nor hears summaries for a while.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Its name.
    pub server: String,
    /// When it begins.
    pub from: Time,
    /// When it ends.
    pub to: Time,
}

impl Scenario {
    /// The scenario that is written in a file, with keys overridden by `set`: pairs of a key path such as
    /// `job.a.procs` or `server.0.policy` (an entry of a list by its name or its number) and a TOML value,
    /// or a word that is taken as a string.
    ///
    /// # Errors
    ///
    /// What cannot be read, or does not hold: all faults that were found, each with its place.
    pub fn load(path: &Path, set: &[(String, String)]) -> Result<Self, Faults> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Faults::of(&file, "", error))?;
        Self::parse(&file, &text, set)
    }

    /// The scenario of `text`; `file` is for messages only.
    ///
    /// # Errors
    ///
    /// As for [`Scenario::load`].
    pub fn parse(file: &str, text: &str, set: &[(String, String)]) -> Result<Self, Faults> {
        let scenario = Self::read(file, text)?;
        if set.is_empty() {
            return Ok(scenario);
        }
        let text = fault::overridden(text, set)
            .map_err(|(key, reason)| Faults::of("--set", &key, reason))?;
        Self::read(&format!("{file} with --set"), &text)
    }

    fn read(file: &str, text: &str) -> Result<Self, Faults> {
        let scenario: Self = fault::read(file, text)?;
        let found = check::check(&scenario);
        if found.is_empty() {
            return Ok(scenario);
        }
        Err(Faults::located(file, text, found))
    }

    /// The names of all servers, in order.
    pub fn server_names(&self) -> Vec<String> {
        self.servers.iter().flat_map(Server::names).collect()
    }

    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// Values of keys that are left out.
mod defaults {
    use super::{Time, SECOND};

    pub(super) fn seed() -> u64 {
        1
    }

    pub(super) fn sample() -> Time {
        Time(SECOND)
    }

    pub(super) fn settle() -> Time {
        Time(2 * SECOND)
    }

    pub(super) fn one() -> u32 {
        1
    }

    pub(super) fn slots() -> u32 {
        64
    }
}
