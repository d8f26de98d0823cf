// SPDX-License-Identifier: GPL-2.0-only

//! Scenarios: the input of a simulation, in TOML.
//!
//! - A *scenario* contains devices, servers, jobs, the network, the duration and the resolution of
//!   results.
//! - A *device* is a device model ([`Model`]).
//! - A *server* has CPTs, slots, a device, and a policy line as in `nrs_policies`.
//! - A *job* has nodes, each a client with its own NID. Each node has processes with a bounded
//!   number of outstanding requests (a closed loop), or an arrival rate (an open loop).
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
pub mod load;
pub mod units;

use std::collections::BTreeMap;

use nrs_sched::units::NSEC_PER_SEC as SECOND;
use serde::Deserialize;

pub use device::{Device, Model, Side};
pub use fault::Faults;
pub use job::{Access, Arrival, Job, Loop, Servers};
pub use units::{Rate, Time};

/// Input of a simulation.
///
/// # Invariants
///
/// A scenario from [`Scenario::parse`] has passed [`check::check`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name: letters, digits, `-`, `_` and `.`; prefix of the names of result files.
    pub name: String,
    /// Title, one line; empty by default.
    #[serde(default)]
    pub title: String,
    /// Seed of random numbers.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Simulated time.
    pub duration: Time,
    /// Length of a bin of results.
    #[serde(default = "defaults::sample")]
    pub sample: Time,
    /// Time at the start that is ignored when shares are judged.
    #[serde(default = "defaults::settle")]
    pub settle: Time,
    /// Network between clients and servers.
    #[serde(default)]
    pub network: Network,
    /// Device models (`[[device]]`).
    #[serde(rename = "device", default)]
    pub devices: Vec<Device>,
    /// Servers (`[[server]]`).
    #[serde(rename = "server", default)]
    pub servers: Vec<Server>,
    /// Jobs (`[[job]]`).
    #[serde(rename = "job", default)]
    pub jobs: Vec<Job>,
    /// Exchange of service accounts between servers; none by default.
    #[serde(default)]
    pub exchange: Option<Exchange>,
}

/// Network between clients and servers, the same for all pairs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// One-way time of a message.
    pub latency: Time,
    /// Maximum of the uniform time added to the latency.
    pub jitter: Time,
    /// Bandwidth of each client's link; without it, links are not modelled.
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

/// Server, or `count` servers of the same kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Name; with a count above 1 the prefix of the names `oss0`, `oss1`, ...
    pub name: String,
    /// Number of servers.
    #[serde(default = "defaults::one")]
    pub count: u32,
    /// Number of CPU partitions; each has its own scheduler, and the NID of a client selects one.
    #[serde(default = "defaults::one")]
    pub cpts: u32,
    /// Maximum number of requests in flight, of all CPTs together.
    #[serde(default = "defaults::slots")]
    pub slots: u32,
    /// Name of the device.
    pub device: String,
    /// Policy line as in `nrs_policies`.
    pub policy: String,
    /// Commands for `nrs_tbf_rule`.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Text for `nrs_qbm_config`.
    #[serde(default)]
    pub plan: Option<String>,
    /// Items of `nrs_fairshare_weights` such as `jobid:a:2`; a string or a list.
    #[serde(default, deserialize_with = "job::one_or_many")]
    pub weights: Vec<String>,
    /// Parameters of the policy by name.
    #[serde(default)]
    pub params: BTreeMap<String, Param>,
}

impl Server {
    /// Returns the names of the servers.
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

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// Number.
    Number(u64),
    /// Other text.
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

/// Exchange of service accounts between servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exchange {
    /// Interval between two summaries of a server.
    pub delta: Time,
    /// Transit time of a summary.
    pub latency: Time,
    /// Maximum of the uniform time added to the latency.
    pub jitter: Time,
    /// Fraction of summaries that are lost, 0 to 1.
    pub loss: f64,
    /// Number of deltas after which the rates of a silent server start to fade.
    pub hold: u32,
    /// Intervals in which a server is cut off from the other servers.
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

/// Interval in which a server neither sends nor receives summaries.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Name of the server.
    pub server: String,
    /// Start of the interval.
    pub from: Time,
    /// End of the interval.
    pub to: Time,
}

impl Scenario {
    /// Returns the names of all servers, in order.
    pub fn server_names(&self) -> Vec<String> {
        self.servers.iter().flat_map(Server::names).collect()
    }

    /// Returns the device with this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// Default values of keys.
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
