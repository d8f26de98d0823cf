// SPDX-License-Identifier: GPL-2.0-only

//! Reports of fio.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Result;

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    jobs: Vec<Job>,
}

/// Job of a report.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Job {
    pub jobname: String,
    pub error: i64,
    pub read: Reads,
}

/// Completed reads.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Reads {
    pub total_ios: Option<u64>,
    /// Duration, ms.
    pub runtime: Option<f64>,
    pub iops: Option<f64>,
    /// Latency with and without the time of the submission.
    pub lat_ns: Latency,
    pub clat_ns: Latency,
}

/// Percentiles, ns.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    percentile: BTreeMap<String, f64>,
}

impl Latency {
    /// Returns a percentile in ms.
    pub fn ms(&self, percent: f64) -> Option<f64> {
        let found = self.percentile.get(&format!("{percent:.6}"));
        found.map(|ns| ns / 1e6)
    }
}

/// Returns the text of a file; an error names the file.
pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns the jobs of a report; fio may print text before it.
pub fn jobs(text: &str) -> serde_json::Result<Vec<Job>> {
    let start = text.find('{').unwrap_or(0);
    Ok(serde_json::from_str::<Report>(&text[start..])?.jobs)
}

/// Returns the reads of the only job of the report in a file.
///
/// # Errors
///
/// The report cannot be read, the job failed, or there is not exactly one job.
pub fn reads(path: &Path) -> Result<Reads> {
    let shown = path.display();
    match jobs(&text(path)?)?.as_mut_slice() {
        [job] if job.error == 0 => Ok(std::mem::take(&mut job.read)),
        [job] => Err(format!("{shown}: fio failed with error {}", job.error).into()),
        _ => Err(format!("{shown}: expected one job").into()),
    }
}
