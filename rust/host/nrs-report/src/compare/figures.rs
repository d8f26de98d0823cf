// SPDX-License-Identifier: GPL-2.0-only

//! Figures: numbers calculated from runs.
//!
//! - The *error* of shares is the largest deviation of a client from its due share, in percent of
//!   the due share.
//! - *Unused* is the part of the device's rate without the peer that is lost under the peer, in
//!   percent. The reference without the peer is dm-linear for dm-nrs, and `none` for the others.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nrs_report::stat::{median, spread, Spread};
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
    /// Measure from which the figure is calculated.
    pub measure: String,
    /// Minimum and maximum that are plausible on every machine, by peer; any peer if the name is
    /// empty. A lone client of io.max and tbf gets half of 95 % of the device. `none` shares by
    /// processes: if its shares were fair with one process against four, the load would prove
    /// nothing.
    #[serde(default)]
    pub bounds: BTreeMap<String, [f64; 2]>,
    /// File, title and label of the chart; `log` for a logarithmic axis.
    pub chart: Option<[String; 4]>,
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
    /// Share of each client, a fraction, by measure and repeat.
    pub shares_by_repeat: BTreeMap<String, Vec<Vec<f64>>>,
    /// Number of requests in the latency of the small client, the minimum of the repeats.
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

/// Returns the shares of the clients with these weights, fractions of their sum.
fn shares(run: &Run, weights: &[f64]) -> Vec<f64> {
    let got = &run.clients[..weights.len()];
    let all: f64 = got.iter().sum();
    got.iter().map(|got| got / all).collect()
}

/// Returns the largest deviation of a client from its due share, percent of the due share.
fn error(shares: &[f64], weights: &[f64]) -> f64 {
    let all: f64 = weights.iter().sum();
    let off = |(share, weight): (&f64, &f64)| (share / (weight / all) - 1.0).abs() * 100.0;
    shares.iter().zip(weights).map(off).fold(0.0, f64::max)
}

/// Returns the value of a figure in one run.
fn value(figure: &Figure, run: &Run, input: &Input, peer: &str) -> f64 {
    let rate = |run: &Run| run.requests / run.seconds;
    let latency = |n: usize| run.latency.map_or(f64::NAN, |(times, _)| times[n]);
    match figure.key.as_str() {
        "iops_1" | "iops_4" => rate(run),
        "cpu_us_1" | "cpu_us_4" => run.busy * run.seconds * 1e6 / run.requests,
        "p50_ms" => latency(0),
        "p99_ms" => latency(1),
        "p999_ms" => latency(2),
        "unused_all_percent" | "unused_lone_percent" => {
            let reference = match peer.starts_with("nrs-") && peer != "nrs-iosched" {
                true => "dm-linear",
                false => "none",
            };
            let runs = input.runs.get(&(reference, figure.measure.clone()));
            let rates: Vec<f64> = runs.into_iter().flatten().map(rate).collect();
            (1.0 - rate(run) / median(&rates)) * 100.0
        }
        _ => {
            let weights = weights(&figure.measure);
            error(&shares(run, weights), weights)
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
                let got = runs.iter().map(|run| shares(run, due)).collect();
                peer.shares_by_repeat.insert(measure.clone(), got);
            }
            if measure == "mix" {
                let counts = runs.iter().filter_map(|run| run.latency);
                let least = counts.map(|(_, requests)| requests).min();
                peer.small_requests = Some(least.unwrap_or(0));
            }
            for figure in FIGURES.iter().filter(|figure| figure.measure == *measure) {
                let values = runs.iter().map(|run| value(figure, run, &input, name));
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
