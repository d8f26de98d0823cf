// SPDX-License-Identifier: GPL-2.0-only

//! Figures: numbers calculated from runs.
//!
//! - The *error* of shares is the largest deviation of a client from its due share, in percent of
//!   the due share.
//! - *Unused* is the part of the device's rate without the peer that is lost under the peer, in
//!   percent. The reference without the peer is dm-linear for dm-nrs, and `none` for the others.

use std::collections::BTreeMap;

use nrs_report::stat::{spread, Spread};

use super::input::{Device, Run, PEERS};

/// Fraction of busy time above which the CPU determines the shares and not the device.
pub const BUSY: f64 = 0.6;

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Higher is better; compared by ratio.
    Rate,
    /// Lower is better; compared by ratio.
    Cost,
    /// Percentage, lower is better; compared by difference.
    Percent,
}

/// Description of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Key in JSON, including the unit.
    pub key: &'static str,
    /// Head of the column.
    pub head: &'static str,
    /// Name in a sentence.
    pub name: &'static str,
    /// Unit in a sentence.
    pub unit: &'static str,
    /// Kind of the figure.
    pub kind: Kind,
    /// Number of decimals.
    pub places: usize,
    /// Measure from which the figure is calculated.
    pub measure: &'static str,
}

/// Defines figures by key, head, name, unit, kind, places and measure.
macro_rules! figures {
    ($(
        $key:literal $head:literal $name:literal $unit:literal $kind:ident $places:literal
        $measure:literal;
    )+) => {
        /// All figures, in the order of the columns.
        pub const FIGURES: &[Figure] = &[$(Figure {
            key: $key,
            head: $head,
            name: $name,
            unit: $unit,
            kind: Kind::$kind,
            places: $places,
            measure: $measure,
        }),+];
    };
}

figures! {
    "iops_1" "IOPS, 1 job" "IOPS of one job" "/s" Rate 0 "one";
    "iops_4" "IOPS, 4 jobs" "IOPS of four jobs" "/s" Rate 0 "many";
    "cpu_us_1" "CPU µs/IO, 1 job" "CPU per request, one job" " µs" Cost 1 "one";
    "cpu_us_4" "CPU µs/IO, 4 jobs" "CPU per request, four jobs" " µs" Cost 1 "many";
    "p50_ms" "p50 ms" "p50 of the small client" " ms" Cost 2 "mix";
    "p99_ms" "p99 ms" "p99 of the small client" " ms" Cost 2 "mix";
    "p999_ms" "p99.9 ms" "p99.9 of the small client" " ms" Cost 2 "mix";
    "error_equal_percent" "error 1:1 %" "error of shares at 1:1" " %" Percent 1 "equal";
    "error_four_percent" "error 1:4 %" "error of shares at 1:4" " %" Percent 1 "four";
    "error_eight_percent" "error 8 %" "error of shares of 8 clients" " %" Percent 1 "eight";
    "unused_all_percent" "unused, all %" "unused with both clients active" " %" Percent 1 "equal";
    "unused_lone_percent" "unused, one %" "unused with one client active" " %" Percent 1 "lone";
}

/// Figures of all devices and peers.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Devices in order.
    pub devices: Vec<String>,
    /// Values by device, peer and key of the figure.
    pub values: BTreeMap<(String, String, &'static str), Spread>,
    /// Busy time of the CPU by device, peer and measure, percent.
    pub busy: BTreeMap<(String, String, String), Spread>,
    /// Share of each client, a fraction, by device, peer and measure; a list per repeat.
    pub shares: BTreeMap<(String, String, String), Vec<Vec<f64>>>,
    /// Number of requests in the latency of the small client, the minimum of the repeats.
    pub samples: BTreeMap<(String, String), u64>,
}

/// Returns the weights of the clients in a measure; empty if shares are not evaluated.
pub fn weights(measure: &str) -> &'static [f64] {
    match measure {
        "equal" => &[1.0, 1.0],
        "four" => &[1.0, 4.0],
        "eight" => &[1.0; 8],
        _ => &[],
    }
}

/// Returns the shares of the clients with these weights, fractions of their sum.
pub fn shares(run: &Run, weights: &[f64]) -> Vec<f64> {
    let got: Vec<f64> = run.clients.iter().copied().take(weights.len()).collect();
    let all: f64 = got.iter().sum();
    got.iter().map(|got| got / all).collect()
}

/// Returns the largest deviation of a client from its due share, percent of the due share.
pub fn error(shares: &[f64], weights: &[f64]) -> f64 {
    let all: f64 = weights.iter().sum();
    let off = |(share, weight): (&f64, &f64)| (share / (weight / all) - 1.0).abs() * 100.0;
    shares.iter().zip(weights).map(off).fold(0.0, f64::max)
}

/// Returns the rate, requests per second.
fn rate(run: &Run) -> f64 {
    run.requests / run.seconds
}

/// Returns the peer whose rate is the reference for the unused part of `peer`.
pub fn reference(peer: &str) -> &'static str {
    if peer.starts_with("nrs-") && peer != "nrs-iosched" {
        "dm-linear"
    } else {
        "none"
    }
}

/// Returns the value of a figure in one run.
fn value(figure: &Figure, run: &Run, device: &Device, peer: &str) -> f64 {
    let latency = |pick: fn(&super::input::Latency) -> f64| {
        run.latency.as_ref().map_or(f64::NAN, |l| pick(l) / 1e6)
    };
    match figure.key {
        "iops_1" | "iops_4" => rate(run),
        "cpu_us_1" | "cpu_us_4" => run.busy * run.seconds * 1e6 / run.requests,
        "p50_ms" => latency(|l| l.p50),
        "p99_ms" => latency(|l| l.p99),
        "p999_ms" => latency(|l| l.p999),
        "unused_all_percent" | "unused_lone_percent" => {
            let key = (reference(peer).to_string(), figure.measure.to_string());
            let runs = device.runs.get(&key).into_iter().flatten();
            let rates: Vec<f64> = runs.map(|(_, run)| rate(run)).collect();
            (1.0 - rate(run) / spread(&rates).median) * 100.0
        }
        _ => {
            let weights = weights(figure.measure);
            error(&shares(run, weights), weights)
        }
    }
}

impl Figures {
    /// Calculates the figures of these devices.
    pub fn of(devices: &[Device]) -> Self {
        let mut all = Self::default();
        for device in devices {
            let name = &device.name;
            all.devices.push(name.clone());
            for ((peer, measure), runs) in &device.runs {
                let runs: Vec<&Run> = runs.values().collect();
                let key = (name.clone(), peer.clone(), measure.clone());
                let busy: Vec<f64> = runs.iter().map(|run| run.busy * 100.0).collect();
                all.busy.insert(key.clone(), spread(&busy));
                let due = weights(measure);
                if !due.is_empty() {
                    let got = runs.iter().map(|run| shares(run, due)).collect();
                    all.shares.insert(key, got);
                }
                if measure == "mix" {
                    let latencies = runs.iter().filter_map(|run| run.latency);
                    let least = latencies.map(|l| l.requests).min().unwrap_or(0);
                    all.samples.insert((name.clone(), peer.clone()), least);
                }
                for figure in FIGURES.iter().filter(|figure| figure.measure == measure) {
                    let values = runs.iter().map(|run| value(figure, run, device, peer));
                    let key = (name.clone(), peer.clone(), figure.key);
                    all.values
                        .insert(key, spread(&values.collect::<Vec<f64>>()));
                }
            }
        }
        all
    }

    /// Returns a figure, if it was measured and is finite.
    pub fn get(&self, device: &str, peer: &str, key: &'static str) -> Option<Spread> {
        let found = self
            .values
            .get(&(device.to_string(), peer.to_string(), key))
            .copied();
        found.filter(|value| value.median.is_finite())
    }

    /// Returns the busy time of the CPU in a measure, percent.
    pub fn busy(&self, device: &str, peer: &str, measure: &str) -> Option<f64> {
        let key = (device.to_string(), peer.to_string(), measure.to_string());
        self.busy.get(&key).map(|busy| busy.median)
    }

    /// Returns the peers that were measured on the device, in order.
    pub fn peers(&self, device: &str) -> Vec<&'static str> {
        let measured = |peer: &&str| {
            let mut keys = self.values.keys();
            keys.any(|key| key.0 == device && key.1 == *peer)
        };
        PEERS.into_iter().filter(measured).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn errors() {
        for (clients, weights, want) in [
            (&[50.0, 50.0][..], &[1.0, 1.0][..], 0.0),
            (&[80.0, 20.0], &[1.0, 1.0], 60.0),
            (&[20.0, 80.0], &[1.0, 4.0], 0.0),
            (&[50.0, 50.0], &[1.0, 4.0], 150.0),
            (&[0.0, 10.0, 99.0], &[1.0, 1.0], 100.0),
        ] {
            let run = Run {
                clients: clients.to_vec(),
                ..Run::default()
            };
            let got = error(&shares(&run, weights), weights);
            assert!((got - want).abs() < 1e-9, "{clients:?}: {got}");
        }
    }

    #[test]
    fn of_runs() {
        let figures = Figures::of(&[fixture::device()]);
        let get = |peer, key| figures.get("slow", peer, key).unwrap();
        assert_eq!(get("none", "iops_1").median, 1000.0);
        assert_eq!(get("none", "cpu_us_1").median, 250.0);
        assert_eq!(get("none", "unused_all_percent").median, 0.0);
        assert!((get("none", "error_equal_percent").median - 60.0).abs() < 1e-9);
        assert_eq!(get("nrs-fairshare", "error_equal_percent").median, 0.0);
        // Compared with dm-linear, which does 900 requests/s.
        let unused = get("nrs-fairshare", "unused_lone_percent").median;
        assert!((unused - 100.0 / 9.0).abs() < 1e-9, "{unused}");
        assert_eq!(get("nrs-fairshare", "p99_ms").median, 4.0);
        assert!(figures.get("slow", "bfq", "iops_1").is_none());
        assert_eq!(
            figures.peers("slow"),
            ["none", "dm-linear", "nrs-fairshare"]
        );
    }
}
