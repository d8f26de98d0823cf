// SPDX-License-Identifier: GPL-2.0-only

//! Plausibility checks that hold on every machine, as a test of `make compare` itself.

use super::figures::Figures;

/// Minimum and maximum of a measured figure of a peer; any peer if the name is empty. A lone client
/// of io.max and tbf gets half of 95 % of the device. `none` shares by processes: if its shares
/// were fair with one process against four, the load would prove nothing.
const BOUNDS: [(&str, &str, f64, f64); 12] = [
    ("", "iops_1", 1.0, 1e9),
    ("", "iops_4", 1.0, 1e9),
    ("", "cpu_us_1", 1.0, 1e6),
    ("", "cpu_us_4", 1.0, 1e6),
    ("", "p50_ms", 0.001, 1e5),
    ("none", "error_equal_percent", 20.0, 100.0),
    ("none", "unused_lone_percent", -1.0, 1.0),
    ("io.max", "unused_lone_percent", 45.0, 60.0),
    ("nrs-tbf", "unused_lone_percent", 45.0, 70.0),
    ("nrs-fairshare", "error_equal_percent", 0.0, 10.0),
    ("nrs-fairshare", "error_four_percent", 0.0, 10.0),
    ("nrs-fairshare", "error_eight_percent", 0.0, 10.0),
];

/// Returns the checks that hold, and those that do not. Bounds of shares apply to devices that are
/// the bottleneck.
pub fn plausible(figures: &Figures) -> (Vec<String>, Vec<String>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut judge = |what: String, holds: bool| match holds {
        true => good.push(what),
        false => bad.push(what),
    };
    for device in &figures.devices {
        for peer in figures.peers(device) {
            for (whose, key, low, high) in BOUNDS {
                let named = whose == peer && device != "fast";
                let value = figures.get(device, peer, key);
                if let (true, Some(value)) = (named || whose.is_empty(), value) {
                    let value = value.median;
                    judge(
                        format!("{device}, {peer}: {key} {value:.2} is from {low} to {high}"),
                        (low..=high).contains(&value),
                    );
                }
            }
            let get = |key| figures.get(device, peer, key).map(|value| value.median);
            if let (Some(p50), Some(p99), Some(p999)) =
                (get("p50_ms"), get("p99_ms"), get("p999_ms"))
            {
                judge(
                    format!("{device}, {peer}: latency {p50:.2} <= {p99:.2} <= {p999:.2} ms"),
                    p50 <= p99 && p99 <= p999,
                );
            }
        }
    }
    for ((device, peer, measure), repeats) in &figures.shares {
        for shares in repeats {
            let all: f64 = shares.iter().sum();
            judge(
                format!("{device}, {peer}, {measure}: {shares:.3?} are shares of a whole"),
                (all - 1.0).abs() < 1e-6 && shares.iter().all(|share| *share > 0.0),
            );
        }
    }
    (good, bad)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn what_cannot_be() {
        let (good, bad) = plausible(&Figures::of(&[fixture::device()]));
        assert!(bad.is_empty() && good.len() > 20, "{bad:?}");
        let mut wrong = fixture::device();
        let key = ("nrs-fairshare".to_string(), "four".to_string());
        for run in wrong.runs.get_mut(&key).unwrap().values_mut() {
            run.clients[0] = 0.0;
        }
        // The error of the shares, and in both repeats a client without service.
        let (_, bad) = plausible(&Figures::of(&[wrong]));
        assert_eq!(bad.len(), 3, "{bad:?}");
    }
}
