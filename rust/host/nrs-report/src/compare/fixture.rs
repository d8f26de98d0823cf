// SPDX-License-Identifier: GPL-2.0-only

//! Results of a device for tests: two repeats, three peers, and one peer that is not possible.

use std::collections::BTreeMap;

use super::input::{Device, Latency, Run, CLIENTS};

fn run(requests: f64, clients: &[f64]) -> Run {
    let mut all = clients.to_vec();
    all.resize(CLIENTS, 0.0);
    Run {
        seconds: 2.0,
        busy: 0.25,
        requests,
        clients: all,
        latency: Some(Latency {
            p50: 2e6,
            p99: 4e6,
            p999: 5e6,
            requests: 500,
        }),
    }
}

/// Returns the device `slow`. `none` shares by processes, dm-linear does the same and is slightly
/// slower, dm-nrs with fairshare is fair and slower still; kyber is not possible.
pub fn device() -> Device {
    let mut device = Device {
        name: "slow".to_string(),
        not: BTreeMap::from([("kyber".to_string(), "module not available".to_string())]),
        facts: BTreeMap::from([("kernel".to_string(), "7.3".to_string())]),
        ..Device::default()
    };
    for (peer, requests, fair) in [
        ("none", 2000.0, false),
        ("dm-linear", 1800.0, false),
        ("nrs-fairshare", 1600.0, true),
    ] {
        for (measure, clients) in [
            ("one", vec![1.0]),
            ("many", vec![0.25; 4]),
            ("mix", vec![0.1, 0.9]),
            ("equal", if fair { vec![0.5, 0.5] } else { vec![0.2, 0.8] }),
            (
                "four",
                if fair {
                    vec![0.2, 0.8]
                } else {
                    vec![0.75, 0.25]
                },
            ),
            ("eight", vec![0.125; 8]),
            ("lone", vec![1.0]),
        ] {
            let clients: Vec<f64> = clients.iter().map(|share| share * requests).collect();
            let runs = (1..=2)
                .map(|repeat| (repeat, run(requests, &clients)))
                .collect();
            device
                .runs
                .insert((peer.to_string(), measure.to_string()), runs);
        }
    }
    device
}
