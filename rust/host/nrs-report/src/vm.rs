// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report vm`: results of tests/vm/bench.sh: `count` (instructions per request) and `free-N`
//! (N CPUs, free-running).

use std::collections::BTreeMap;
use std::path::Path;

use nrs_report::stat::{spread, Spread};
use serde::Serialize;

use crate::{fio, page, Result};

/// Time of an instruction, ns: -icount shift=3.
const INSTRUCTION: f64 = 8.0;

/// Devices of tests/vm/bench.sh.
const DEVICES: &str = "linear raw deadline bfq sched-64 sched-64-fair sched-8 sched-8-fair nrs-64 \
                       nrs-64-off nrs-64-fair nrs-8-fifo nrs-8-off nrs-8-fair";

/// Results by device.
#[derive(Default, Serialize)]
struct Results {
    /// Cost of a request in batches of 1 and of 32.
    counts: BTreeMap<&'static str, [Count; 2]>,
    /// IOPS relative to dm-linear by number of CPUs.
    free: BTreeMap<u32, BTreeMap<&'static str, Spread>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Count {
    instructions: f64,
    /// Fraction of the requests that were queued.
    queued: f64,
}

impl Count {
    fn read(dir: &Path, name: &str, batch: u32) -> Result<Self> {
        let path = dir.join(format!("{name}.{batch}.json"));
        let read = fio::reads(&path)?;
        let queued = std::fs::read_to_string(path.with_extension("queued"))?;
        let queued: f64 = queued.trim().parse()?;
        let runtime = read.runtime.ok_or(format!("{name}: no runtime"))?;
        let requests = read.total_ios.ok_or(format!("{name}: no total_ios"))? as f64;
        Ok(Self {
            instructions: runtime * 1e6 / INSTRUCTION / requests,
            queued: queued / requests,
        })
    }
}

/// Returns the IOPS of a device relative to dm-linear, per round.
fn ratios(dir: &Path, name: &str) -> Result<Vec<f64>> {
    let path = |name: &str, round: u32| dir.join(format!("{name}.{round}.json"));
    let iops = |name: &str, round| -> Result<f64> {
        let iops = fio::reads(&path(name, round))?.iops;
        Ok(iops.ok_or("no iops")?)
    };
    let rounds = (1..).take_while(|round| path(name, *round).is_file());
    let ratio = |round| Ok(iops(name, round)? / iops("linear", round)?);
    rounds.map(ratio).collect()
}

/// Prints the tables in Markdown.
pub fn run(dir: &Path) -> Result {
    let mut results = Results::default();
    let count = dir.join("count");
    for name in DEVICES.split(' ') {
        let counts = [
            Count::read(&count, name, 1)?,
            Count::read(&count, name, 32)?,
        ];
        results.counts.insert(name, counts);
    }
    for cpus in [1, 2, 4, 8] {
        let free = dir.join(format!("free-{cpus}"));
        for name in DEVICES.split(' ').skip(1).filter(|_| free.is_dir()) {
            let ratios = spread(&ratios(&free, name)?);
            results.free.entry(cpus).or_default().insert(name, ratios);
        }
    }
    print!(
        "{}",
        page::render(include_str!("templates/vm.md.j2"), results)?
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_a_request() {
        let dir = std::env::temp_dir().join(format!("nrs-report-vm-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let put = |file: &str, text: &str| std::fs::write(dir.join(file), text).unwrap();
        let report = r#"{"jobs":[{"error":0,"read":{"runtime":8,"total_ios":1000,"iops":2}}]}"#;
        put("raw.1.json", report);
        put("raw.1.queued", "250\n");
        put("linear.1.json", &report.replace(":2}", ":4}"));
        let (count, ratios) = (Count::read(&dir, "raw", 1), ratios(&dir, "raw"));
        put("raw.1.json", &report.replace("\"error\":0", "\"error\":5"));
        let error = Count::read(&dir, "raw", 1).unwrap_err().to_string();
        std::fs::remove_dir_all(&dir).unwrap();
        let (instructions, queued) = (1000.0, 0.25);
        assert_eq!(
            count.unwrap(),
            Count {
                instructions,
                queued
            }
        );
        assert_eq!(ratios.unwrap(), [0.5]);
        assert!(error.ends_with("fio failed with error 5"), "{error}");
    }
}
