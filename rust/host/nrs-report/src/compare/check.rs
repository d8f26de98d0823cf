// SPDX-License-Identifier: GPL-2.0-only

//! Plausibility checks that hold on every machine, as a test of `make compare` itself.

use super::figures::FIGURES;
use super::input::PEERS;
use super::{ordered, Report};

/// Returns the checks, and whether they hold. Bounds of shares apply to devices that are the
/// bottleneck.
pub fn checks(report: &Report) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    for (device, results) in ordered(&report.devices) {
        let peers = PEERS
            .iter()
            .filter_map(|name| Some((*name, results.peers.get(name)?)));
        for (name, peer) in peers {
            for figure in FIGURES.iter() {
                let named = figure.bounds.get(name).filter(|_| device != "fast");
                let bounds = figure.bounds.get("").into_iter().chain(named);
                let Some(value) = peer.figures.get(figure.key.as_str()) else {
                    continue;
                };
                for [low, high] in bounds {
                    let (key, value) = (&figure.key, value.median);
                    all.push((
                        format!("{device}, {name}: {key} {value:.2} is from {low} to {high}"),
                        (*low..=*high).contains(&value),
                    ));
                }
            }
            let times = ["p50_ms", "p99_ms", "p999_ms"].map(|key| peer.figures.get(key));
            if let [Some(p50), Some(p99), Some(p999)] = times {
                let [p50, p99, p999] = [p50, p99, p999].map(|time| time.median);
                all.push((
                    format!("{device}, {name}: latency {p50:.2} <= {p99:.2} <= {p999:.2} ms"),
                    p50 <= p99 && p99 <= p999,
                ));
            }
        }
    }
    for (device, results) in &report.devices {
        for (name, peer) in &results.peers {
            for (measure, repeats) in &peer.shares_by_repeat {
                for shares in repeats {
                    let sum: f64 = shares.iter().sum();
                    let is_whole = (sum - 1.0).abs() < 1e-6;
                    all.push((
                        format!("{device}, {name}, {measure}: {shares:.3?} are shares of a whole"),
                        is_whole && shares.iter().all(|share| *share > 0.0),
                    ));
                }
            }
        }
    }
    all
}
