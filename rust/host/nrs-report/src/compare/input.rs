// SPDX-License-Identifier: GPL-2.0-only

//! Parser of the results of tests/vm/compare.sh.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::{fio::text, Result};

/// Peers in the order of the page.
#[rustfmt::skip]
pub const PEERS: [&str; 25] = [
    "none", "mq-deadline", "kyber", "bfq", "bfq-idle0", "io.max", "io.cost", "dm-tbf",
    "dm-fairshare", "dm-qbm", "nrs", "nrs-nohold", "nrs-latency", "nrs-latency-125",
    "nrs-latency-150", "nrs-all", "nrs-all-2", "nrs-all-3", "nrs-all-4", "nrs-1", "nrs-2", "nrs-4",
    "nrs-8", "nrs-16", "nrs-auto",
];

/// Devices in the order of the page.
pub const DEVICES: [&str; 5] = ["fast", "band", "slow", "slow8", "loop"];

/// Results of one device.
#[derive(Default)]
pub struct Input {
    /// Properties of the machine, by name.
    pub facts: BTreeMap<String, String>,
    /// Peers that are not possible on the device, and the reasons.
    pub not_possible: BTreeMap<String, String>,
    /// Runs by peer and measure, one of each boot.
    pub runs: BTreeMap<(&'static str, String), Vec<Run>>,
}

/// One measure of one boot.
#[derive(Clone, Default, Deserialize)]
pub struct Run {
    /// Number of the boot.
    #[serde(skip)]
    pub boot: usize,
    /// Measured time, s.
    pub seconds: f64,
    /// Fraction of the time in which the CPU ran a task, 0 to 1.
    pub busy: f64,
    /// Number of completed requests of each client, and their bytes.
    pub requests: Vec<f64>,
    pub bytes: Vec<f64>,
    /// p50, p90, p99 and p99.9 of the latency of client 1, ms.
    pub latency_ms: [f64; 4],
}

/// Returns the lines of a file as names and values.
fn pairs(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = text(path)?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect())
}

/// Parses a line `PEER MEASURE JSON`.
fn parse(line: &str) -> Result<(&'static str, String, Run)> {
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    let [peer, measure, json] = words[..] else {
        return Err(format!("malformed run: {line}").into());
    };
    let known = PEERS.into_iter().find(|known| *known == peer);
    let run: Run = serde_json::from_str(json)?;
    if run.requests.is_empty() || run.requests.len() != run.bytes.len() || run.seconds <= 0.0 {
        return Err(format!("no requests or no time: {line}").into());
    }
    let peer = known.ok_or_else(|| format!("unknown peer: {line}"))?;
    Ok((peer, measure.to_owned(), run))
}

impl Input {
    /// Reads the results of all boots in `dir`.
    ///
    /// # Errors
    ///
    /// With the file's name: a file cannot be read or parsed.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut all = Self::default();
        let boots = (1..).map(|boot| (boot, dir.join(format!("{boot}"))));
        for (boot, dir) in boots.take_while(|(_, dir)| dir.is_dir()) {
            all.facts = pairs(&dir.join("device"))?;
            all.facts.insert("boots".into(), boot.to_string());
            all.not_possible.extend(pairs(&dir.join("not"))?);
            let file = dir.join("runs");
            for line in text(&file)?.lines() {
                let parsed = parse(line).map_err(|error| format!("{}: {error}", file.display()));
                let (peer, measure, run) = parsed?;
                let runs = all.runs.entry((peer, measure)).or_default();
                runs.push(Run { boot, ..run });
            }
        }
        Ok(all)
    }
}
