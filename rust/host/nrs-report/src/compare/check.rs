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
            let times = ["p50_ms", "p90_ms", "p99_ms", "p999_ms"];
            let times = times.map(|key| peer.figures.get(key).map(|time| time.median));
            if times[0].is_some() {
                all.push((
                    format!("{device}, {name}: latencies {times:.2?} ms"),
                    times.is_sorted(),
                ));
            }
        }
    }
    for (device, results) in &report.devices {
        for (name, peer) in &results.peers {
            for (measure, boots) in &peer.shares_by_boot {
                for shares in boots {
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
