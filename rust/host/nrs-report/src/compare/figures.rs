// SPDX-License-Identifier: GPL-2.0-only

//! Figures: numbers calculated from runs.
//!
//! - The *error* of shares is the largest deviation of a client from its due share, in percent of
//!   the due share.
//! - *Unused* is the part of the device's rate without a scheduler (`none` in the same boot) that
//!   is lost under the peer, in percent. The rate is of bytes where bandwidth limits the device.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nrs_report::stat::{spread, Spread};
use serde::{Deserialize, Serialize};

use super::input::{Input, Run};

/// How two values of a figure are compared.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Higher is better; compared by ratio.
    Rate,
    /// Lower is better; compared by ratio.
    Cost,
    /// Percentage, lower is better; compared by difference.
    Percent,
}

/// Description of a figure.
#[derive(Deserialize, Serialize)]
pub struct Figure {
    /// Key in JSON, including the unit.
    pub key: String,
    /// Head of the column.
    head: String,
    /// Name and unit in a sentence.
    name: String,
    unit: String,
    pub kind: Kind,
    /// Number of decimals.
    places: usize,
    /// Measure from which the figure is calculated, and what is calculated.
    pub measure: String,
    value: Value,
    /// Minimum and maximum that are plausible on every machine, by peer; any peer if the name is
    /// empty. A lone client of io.max and tbf gets half of 95 % of the device. `none` shares by
    /// processes: if its shares were fair with one process against four, the load would prove
    /// nothing.
    #[serde(default)]
    pub bounds: BTreeMap<String, [f64; 2]>,
}

/// What is calculated from a run.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Value {
    /// Requests per second.
    Rate,
    /// CPU time per request, µs.
    Cpu,
    /// Latency of the small client, ms.
    P50,
    P90,
    P99,
    P999,
    /// Share of client 1, percent.
    Share,
    Unused,
    Error,
}

/// All figures, in the order of the columns.
pub static FIGURES: LazyLock<Vec<Figure>> =
    LazyLock::new(|| serde_json::from_str(include_str!("figures.json")).expect("figures.json"));

/// Results of one device.
#[derive(Serialize)]
pub struct Device {
    pub facts: BTreeMap<String, String>,
    pub not_possible: BTreeMap<String, String>,
    pub peers: BTreeMap<&'static str, Peer>,
}

/// Results of a peer on a device.
#[derive(Default, Serialize)]
pub struct Peer {
    /// Finite values by figure.
    #[serde(flatten)]
    pub figures: BTreeMap<&'static str, Spread>,
    /// Busy time of the CPU by measure, percent.
    pub cpu_busy_percent: BTreeMap<String, Spread>,
    /// Share of each client, a fraction, by measure and boot.
    pub shares_by_boot: BTreeMap<String, Vec<Vec<f64>>>,
    /// Number of requests in the latency of the small client, the minimum of the boots.
    pub small_requests: Option<u64>,
}

/// Returns the weights of the clients in a measure; empty if shares are not evaluated.
fn weights(measure: &str) -> &'static [f64] {
    match measure {
        "equal" => &[1.0, 1.0],
        "four" => &[1.0, 4.0],
        "eight" => &[1.0; 8],
        _ => &[],
    }
}

/// Returns the shares of the clients, fractions of their sum.
fn shares(got: &[f64]) -> Vec<f64> {
    let all: f64 = got.iter().sum();
    got.iter().map(|got| got / all).collect()
}

/// Returns the largest deviation of a client from its due share, percent of the due share.
fn error(shares: &[f64], weights: &[f64]) -> f64 {
    let all: f64 = weights.iter().sum();
    let off = |(share, weight): (&f64, &f64)| (share / (weight / all) - 1.0).abs() * 100.0;
    shares.iter().zip(weights).map(off).fold(0.0, f64::max)
}

impl Input {
    /// Returns what each client got of the device: requests, or bytes if bandwidth limits it.
    fn got<'a>(&self, run: &'a Run) -> &'a [f64] {
        match self.facts.get("device").is_some_and(|name| name == "band") {
            true => &run.bytes,
            false => &run.requests,
        }
    }

    /// Returns the value of a figure in one run.
    fn value(&self, figure: &Figure, run: &Run) -> f64 {
        let requests: f64 = run.requests.iter().sum();
        let rate = |run: &Run| self.got(run).iter().sum::<f64>() / run.seconds;
        let [p50, p90, p99, p999] = run.latency_ms;
        match figure.value {
            Value::Rate => requests / run.seconds,
            Value::Cpu => run.busy * run.seconds * 1e6 / requests,
            Value::P50 => p50,
            Value::P90 => p90,
            Value::P99 => p99,
            Value::P999 => p999,
            Value::Share => shares(self.got(run))[0] * 100.0,
            Value::Unused => {
                let none = self.runs.get(&("none", figure.measure.clone()));
                let none = none.and_then(|runs| runs.iter().find(|none| none.boot == run.boot));
                (1.0 - rate(run) / none.map_or(f64::NAN, rate)) * 100.0
            }
            Value::Error => error(&shares(&run.requests), weights(&figure.measure)),
        }
    }
}

impl Device {
    /// Calculates the figures of a device.
    pub fn new(input: Input) -> Self {
        let mut peers: BTreeMap<_, Peer> = BTreeMap::new();
        for ((name, measure), runs) in &input.runs {
            let peer = peers.entry(*name).or_default();
            let busy: Vec<f64> = runs.iter().map(|run| run.busy * 100.0).collect();
            peer.cpu_busy_percent.insert(measure.clone(), spread(&busy));
            let due = weights(measure);
            if !due.is_empty() {
                let got = runs.iter().map(|run| shares(&run.requests)).collect();
                peer.shares_by_boot.insert(measure.clone(), got);
            }
            if measure == "mix" {
                peer.small_requests = runs.iter().map(|run| run.requests[0] as u64).min();
            }
            for figure in FIGURES.iter().filter(|figure| figure.measure == *measure) {
                let values = runs.iter().map(|run| input.value(figure, run));
                let values = spread(&values.collect::<Vec<f64>>());
                if values.median.is_finite() {
                    peer.figures.insert(&figure.key, values);
                }
            }
        }
        Self {
            facts: input.facts,
            not_possible: input.not_possible,
            peers,
        }
    }

    /// Returns the figure of a peer.
    pub fn value(&self, peer: &str, figure: &Figure) -> Option<Spread> {
        let values = &self.peers.get(peer)?.figures;
        values.get(figure.key.as_str()).copied()
    }
}
