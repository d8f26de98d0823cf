// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report bench`: results of `make bench` as tables and a chart. Criterion prints each
//! benchmark separately.
//!
//! ```text
//!  DIR/criterion/**/new/*.json ─┐
//!  DIR/memory.jsonl, *.txt ─────┴─► bench.md, decisions.md, decisions.svg
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use nrs_report::chart::Diagram;
use nrs_report::stat::Spread;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{page, Result};

/// Result of one benchmark.
#[derive(Serialize)]
struct Timing {
    group: String,
    name: String,
    /// Parameter of the benchmark, usually a number of clients or classes; empty without a
    /// parameter.
    value: String,
    /// Median, and limits of its confidence interval, ns.
    ns: Spread,
    /// Minimum of the samples, ns.
    least_ns: f64,
}

/// Memory of a policy, as written by the bench `memory`.
#[derive(Deserialize, Serialize)]
struct Memory {
    policy: String,
    classes: u32,
    /// Number of requests queued in each class.
    depth: u32,
    /// Memory shared by all parts, and memory of a part without classes.
    shared_bytes: u64,
    empty_bytes: u64,
    /// Additional memory of all classes, and of all requests.
    class_bytes: u64,
    request_bytes: u64,
}

/// Times and memory of a policy, by number of classes.
#[derive(Default, Serialize)]
struct Policy {
    /// Median time of a decision, ns.
    decisions: BTreeMap<u32, f64>,
    memory: BTreeMap<u32, Memory>,
    /// Increase in ns when the number of classes doubles: up to 1,000, and above.
    slopes: [Option<f64>; 2],
}

/// All results.
#[derive(Default, Serialize)]
struct Results {
    /// Load averages at the start and at the end.
    load: String,
    /// Numbers of classes.
    counts: BTreeSet<u32>,
    policies: BTreeMap<String, Policy>,
    /// Sizes of structures of the module, bytes, by description.
    sizes: BTreeMap<String, String>,
    /// Timings that are not decisions.
    rest: Vec<Timing>,
    /// The page has all results, not only those of decisions.
    is_whole: bool,
}

/// Returns the JSON in the file `file` of `dir`; null if the file does not exist.
fn json(dir: &Path, file: &str) -> Result<Value> {
    let text = fs::read_to_string(dir.join(file));
    Ok(text.map_or(Ok(Value::Null), |text| serde_json::from_str(&text))?)
}

impl Timing {
    /// Reads the results in `dir`; returns `None` if the last run did not include this benchmark.
    fn read(dir: &Path) -> Result<Option<Self>> {
        let what = json(dir, "benchmark.json")?;
        let samples = json(dir, "sample.json")?;
        let median = &json(dir, "estimates.json")?["median"];
        let interval = &median["confidence_interval"];
        let (low, high) = (&interval["lower_bound"], &interval["upper_bound"]);
        let bounds = [low, &median["point_estimate"], high].map(Value::as_f64);
        let [Some(low), Some(middle), Some(high)] = bounds else {
            return Ok(None);
        };
        // The time of one element, where several are measured together.
        let many = what["throughput"]["Elements"]
            .as_f64()
            .unwrap_or(1.0)
            .max(1.0);
        let [low, median, high] = [low, middle, high].map(|ns| ns * many.recip());
        let word = |key: &str| what[key].as_str().unwrap_or_default().to_owned();
        let numbers = |key: &str| samples[key].as_array().into_iter().flatten();
        let numbers = |key: &str| numbers(key).filter_map(Value::as_f64);
        let each = numbers("times").zip(numbers("iters"));
        let each = each.map(|(ns, count)| ns / count);
        Ok(Some(Self {
            group: word("group_id"),
            name: word("function_id"),
            value: word("value_str"),
            ns: Spread { low, median, high },
            least_ns: each.fold(f64::INFINITY, f64::min) / many,
        }))
    }
}

/// Appends the results in `dir` and its subdirectories to `found`.
fn timings(dir: &Path, found: &mut Vec<Timing>) -> Result {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths = Vec::from_iter(entries.iter().map(fs::DirEntry::path));
    paths.sort();
    for path in paths.iter().filter(|path| path.is_dir()) {
        match path.ends_with("new") {
            true => found.extend(Timing::read(path)?),
            false => timings(path, found)?,
        }
    }
    Ok(())
}

impl Results {
    fn new(timings: Vec<Timing>) -> Self {
        let mut all = Self::default();
        for one in timings {
            let classes = one.value.parse();
            match (one.group == "decision", classes) {
                (true, Ok(classes)) => {
                    let policy = all.policies.entry(one.name).or_default();
                    policy.decisions.insert(classes, one.ns.median);
                    all.counts.insert(classes);
                }
                (true, Err(_)) => {}
                (false, _) => all.rest.push(one),
            }
        }
        for policy in all.policies.values_mut() {
            let ranges = [2..=1_000, 1_000..=100_000];
            policy.slopes = ranges.map(|range| slope(policy.decisions.range(range)));
        }
        let number = |one: &Timing| one.value.parse::<u64>().unwrap_or(0);
        let key = |one: &Timing| (one.group.clone(), one.name.clone(), number(one));
        all.rest.sort_by_key(key);
        all
    }

    fn read(dir: &Path) -> Result<Self> {
        let mut found = Vec::new();
        timings(&dir.join("criterion"), &mut found)?;
        let is_empty = found.is_empty();
        let mut all = Self::new(found);
        let text = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        for line in text("memory.jsonl")
            .lines()
            .filter(|line| line.starts_with('{'))
        {
            let memory: Memory = serde_json::from_str(line)?;
            if let Some(policy) = all.policies.get_mut(&memory.policy) {
                policy.memory.entry(memory.classes).or_insert(memory);
            }
        }
        for line in text("sizes.txt").lines() {
            let pair = line.split_once(' ');
            let (bytes, what) = pair.ok_or("sizes.txt: expected `BYTES DESCRIPTION`")?;
            all.sizes.insert(what.to_owned(), bytes.to_owned());
        }
        all.load = text("load.txt").lines().collect::<Vec<_>>().join("; ");
        match is_empty {
            true => Err(format!("{}: no timings", dir.display()).into()),
            false => Ok(all),
        }
    }

    fn page(&self) -> Result<String> {
        page::render(include_str!("templates/bench.md.j2"), self)
    }

    /// Returns the chart of times per decision, by number of classes.
    fn picture(&self) -> Diagram {
        let chart = Diagram::lines("A decision, by policy", "classes", "ns per decision");
        let chart = chart.log_x().log_y();
        self.policies.iter().fold(chart, |chart, (name, policy)| {
            let points = policy.decisions.iter();
            let points = points.map(|(classes, ns)| (f64::from(*classes), *ns));
            chart.series(name, points.collect())
        })
    }
}

/// Returns the increase in ns when the number of classes doubles: the least-squares slope over
/// log2. Returns `None` for fewer than two points.
fn slope<'a>(decisions: impl Iterator<Item = (&'a u32, &'a f64)>) -> Option<f64> {
    let points = decisions.map(|(classes, ns)| (f64::from(*classes).log2(), *ns));
    let points: Vec<(f64, f64)> = points.collect();
    let count = points.len() as f64;
    let sum = |(x, y), (a, b)| (x + a, y + b);
    let (x, y) = points.iter().copied().fold((0.0, 0.0), sum);
    let parts = points
        .iter()
        .map(|(log, ns)| (log - x / count, ns - y / count));
    let (above, below) = parts.map(|(x, y)| (x * y, x * x)).fold((0.0, 0.0), sum);
    (below > 0.0).then_some(above / below)
}

/// Writes the report and prints its tables.
pub fn run(dir: &Path) -> Result {
    let mut results = Results::read(dir)?;
    fs::write(dir.join("decisions.md"), results.page()?)?;
    results.is_whole = true;
    let page = results.page()?;
    fs::write(dir.join("bench.md"), &page)?;
    results.picture().save(&dir.join("decisions.svg"))?;
    print!("{page}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the tables for decisions that take 5 ns more when the number of classes doubles.
    #[test]
    fn tables() {
        let timing = |classes: u32| Timing {
            group: "decision".into(),
            name: "fairshare".into(),
            value: classes.to_string(),
            ns: (30.0 + 5.0 * f64::from(classes).log2()).into(),
            least_ns: 30.0,
        };
        let results = Results::new([2, 64, 1_000, 4_096, 100_000].map(timing).into());
        let page = results.page().unwrap();
        for row in [
            "| 1,000                           |        80 |",
            "| ns per doubling above 1,000     |       5.0 |",
        ] {
            assert!(page.contains(row), "{page}");
        }
        assert_eq!(slope([(&2, &1.0)].into_iter()), None);
        assert!(results.picture().to_svg().unwrap().contains("fairshare"));
    }
}
