// SPDX-License-Identifier: GPL-2.0-only

//! What the runs left in their directory.

use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use nrs_report::stat::Spread;
use serde::{Deserialize, Serialize};

/// Nanoseconds of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// Group of benchmarks.
    pub group: String,
    /// What is measured.
    pub name: String,
    /// Of how many; empty if that makes no difference.
    pub value: String,
    /// Median, and the limits of its 95 % confidence interval.
    pub ns: Spread,
    /// The fastest sample.
    pub least_ns: f64,
}

impl Timing {
    /// What it takes: the median, on a busy machine the fastest sample.
    pub fn figure(&self, busy: bool) -> f64 {
        if busy {
            self.least_ns
        } else {
            self.ns.median
        }
    }
}

/// Bytes that a policy takes, as the bench `memory` writes them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Memory {
    /// The policy, or `order`.
    pub policy: String,
    /// Classes.
    pub classes: u32,
    /// Requests queued in each class; in all for `order`.
    pub depth: u32,
    /// What all parts share.
    pub shared_bytes: u64,
    /// A part without classes.
    pub empty_bytes: u64,
    /// What the classes add.
    pub class_bytes: u64,
    /// What the requests add.
    pub request_bytes: u64,
}

impl Memory {
    /// Bytes per class.
    pub fn per_class(&self) -> f64 {
        self.class_bytes as f64 / f64::from(self.classes.max(1))
    }

    /// Bytes per request.
    pub fn per_request(&self) -> f64 {
        let requests = f64::from(self.classes.max(1)) * f64::from(self.depth.max(1));
        self.request_bytes as f64 / requests
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// In no order that matters.
    pub timings: Vec<Timing>,
    /// By policy, then by classes.
    pub memory: Vec<Memory>,
    /// Bytes of structures of the module, by what they are.
    pub sizes: BTreeMap<String, u64>,
    /// The processor.
    pub processor: String,
    /// Load averages: when the run began and when it ended.
    pub load: Vec<String>,
}

/// A file of Criterion, the fields that matter.
#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    throughput: Option<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct Samples {
    iters: Vec<f64>,
    times: Vec<f64>,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// The text of a file; nothing if there is none.
fn text(path: PathBuf) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

impl Timing {
    /// The one in `dir`; none if nothing was measured there last.
    fn read(dir: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        let (what, found) = (
            text(dir.join("benchmark.json"))?,
            text(dir.join("estimates.json"))?,
        );
        if what.is_empty() || found.is_empty() {
            return Ok(None);
        }
        let what: Benchmark = serde_json::from_str(&what)?;
        let Estimates { median } = serde_json::from_str(&found)?;
        let samples: Samples = serde_json::from_str(&fs::read_to_string(dir.join("sample.json"))?)?;
        let each = samples.times.iter().zip(&samples.iters);
        let least = each
            .map(|(ns, count)| ns / count)
            .fold(f64::INFINITY, f64::min);
        // Of one, where many are measured together.
        let throughput = what.throughput.unwrap_or_default();
        let many = throughput.get("Elements").copied().unwrap_or(1).max(1) as f64;
        let Interval {
            lower_bound,
            upper_bound,
        } = median.confidence_interval;
        let ns = Spread {
            low: lower_bound,
            median: median.point_estimate,
            high: upper_bound,
        };
        Ok(Some(Self {
            group: what.group_id,
            name: what.function_id.unwrap_or_default(),
            value: what.value_str.unwrap_or_default(),
            ns: ns.scaled(many.recip()),
            least_ns: least / many,
        }))
    }
}

/// Timings in `dir` and below.
fn timings(dir: &Path, found: &mut Vec<Timing>) -> Result<(), Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    for path in paths {
        if path.ends_with("new") {
            found.extend(Timing::read(&path)?);
        } else {
            timings(&path, found)?;
        }
    }
    Ok(())
}

impl Measured {
    /// What is in `dir`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not what the runs write.
    pub fn read(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let mut all = Self::default();
        let criterion = dir.join("criterion");
        if criterion.is_dir() {
            timings(&criterion, &mut all.timings)?;
        }
        for line in text(dir.join("memory.jsonl"))?.lines() {
            if line.starts_with('{') {
                all.memory.push(serde_json::from_str(line)?);
            }
        }
        for line in text(dir.join("sizes.txt"))?.lines() {
            let (bytes, what) = line.split_once(' ').ok_or("sizes.txt: not `BYTES WHAT`")?;
            all.sizes.insert(what.to_owned(), bytes.parse()?);
        }
        let cpus = text("/proc/cpuinfo".into())?;
        let model = cpus.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": "));
        all.processor = model.map_or("unknown", |(_, name)| name).to_owned();
        let load = text(dir.join("load.txt"))?;
        all.load = load.lines().map(str::to_owned).collect();
        Ok(all)
    }

    /// Whether others had a share of the machine: more than a task was ready to run on average, beside this one's.
    pub fn busy(&self) -> bool {
        let first = |load: &String| load.split(' ').next().and_then(|word| word.parse().ok());
        self.load
            .iter()
            .filter_map(first)
            .any(|load: f64| load > 2.0)
    }

    /// Classes and what `name` of `group` takes among so many, in rising order.
    pub fn series(&self, group: &str, name: &str) -> Vec<(u32, &Timing)> {
        let all = self.timings.iter();
        let found = all.filter(|one| one.group == group && one.name == name);
        let mut points: Vec<(u32, &Timing)> = found
            .filter_map(|one| Some((one.value.parse().ok()?, one)))
            .collect();
        points.sort_by_key(|(classes, _)| *classes);
        points
    }

    /// What `name` of `group` takes for `value`.
    pub fn one(&self, group: &str, name: &str, value: &str) -> Option<&Timing> {
        let mut all = self.timings.iter();
        all.find(|one| one.group == group && one.name == name && one.value == value)
    }
}
