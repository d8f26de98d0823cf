// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report bench`: results of `make bench` as tables and a chart. Criterion prints each
//! benchmark separately.
//!
//! ```text
//!  DIR/criterion/**/new/*.json ─┐
//!  DIR/memory.jsonl, *.txt ─────┴─► bench.md, decisions.svg
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use nrs_report::chart::Diagram;
use nrs_report::stat::Spread;
use nrs_report::table::{commas, Table};
use serde::Deserialize;
use serde_json::Value;

/// Tables and charts of the results.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the results, and of the report.
    dir: PathBuf,
}

/// Result of one benchmark.
#[derive(Clone, Debug)]
struct Timing {
    /// Group of benchmarks.
    group: String,
    /// Name of the benchmark.
    name: String,
    /// Parameter of the benchmark, usually a number of clients or classes; empty without a
    /// parameter.
    value: String,
    /// Median, and limits of its confidence interval, ns.
    ns: Spread,
    /// Minimum of the samples, ns.
    least_ns: f64,
}

/// Memory use of a policy, as written by the bench `memory`.
#[derive(Clone, Debug, Deserialize)]
struct Memory {
    /// Name of the policy, or `order`.
    policy: String,
    classes: u32,
    /// Number of requests queued in each class; total number for `order`.
    depth: u32,
    /// Memory shared by all parts, bytes.
    shared_bytes: u64,
    /// Memory of a part without classes, bytes.
    empty_bytes: u64,
    /// Additional memory of the classes, bytes.
    class_bytes: u64,
    /// Additional memory of the requests, bytes.
    request_bytes: u64,
}

impl Memory {
    fn per_class(&self) -> f64 {
        self.class_bytes as f64 / f64::from(self.classes.max(1))
    }

    fn per_request(&self) -> f64 {
        let requests = f64::from(self.classes.max(1)) * f64::from(self.depth.max(1));
        self.request_bytes as f64 / requests
    }
}

/// All results.
#[derive(Clone, Debug, Default)]
struct Measured {
    timings: Vec<Timing>,
    memory: Vec<Memory>,
    /// Sizes of structures of the module, bytes, by description.
    sizes: BTreeMap<String, String>,
    /// Load averages at the start and at the end.
    load: String,
}

/// Returns the JSON in the file `file` of `dir`; null if the file does not exist.
fn json(dir: &Path, file: &str) -> Result<Value, Box<dyn Error>> {
    match fs::read_to_string(dir.join(file)) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(_) => Ok(Value::Null),
    }
}

impl Timing {
    /// Reads the results in `dir`; returns `None` if the last run did not include this benchmark.
    fn read(dir: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        let what = json(dir, "benchmark.json")?;
        let median = &json(dir, "estimates.json")?["median"];
        let samples = json(dir, "sample.json")?;
        let numbers = |key: &str| {
            let all = samples[key].as_array().into_iter().flatten();
            all.filter_map(Value::as_f64).collect::<Vec<f64>>()
        };
        let each = numbers("times").into_iter().zip(numbers("iters"));
        let least = each
            .map(|(ns, count)| ns / count)
            .fold(f64::INFINITY, f64::min);
        let interval = &median["confidence_interval"];
        let bounds = [
            &interval["lower_bound"],
            &median["point_estimate"],
            &interval["upper_bound"],
        ];
        let [Some(low), Some(median), Some(high)] = bounds.map(Value::as_f64) else {
            return Ok(None);
        };
        // The time of one element, where several are measured together.
        let many = what["throughput"]["Elements"]
            .as_f64()
            .unwrap_or(1.0)
            .max(1.0);
        let word = |key: &str| what[key].as_str().unwrap_or_default().to_owned();
        Ok(Some(Self {
            group: word("group_id"),
            name: word("function_id"),
            value: word("value_str"),
            ns: Spread {
                low: low * many.recip(),
                median: median * many.recip(),
                high: high * many.recip(),
            },
            least_ns: least / many,
        }))
    }
}

/// Appends the results in `dir` and its subdirectories to `found`.
fn timings(dir: &Path, found: &mut Vec<Timing>) -> Result<(), Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths.iter().filter(|path| path.is_dir()) {
        match path.ends_with("new") {
            true => found.extend(Timing::read(path)?),
            false => timings(path, found)?,
        }
    }
    Ok(())
}

impl Measured {
    fn read(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let mut all = Self::default();
        timings(&dir.join("criterion"), &mut all.timings)?;
        let text = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        for line in text("memory.jsonl")
            .lines()
            .filter(|line| line.starts_with('{'))
        {
            all.memory.push(serde_json::from_str(line)?);
        }
        for line in text("sizes.txt").lines() {
            let pair = line.split_once(' ');
            let (bytes, what) = pair.ok_or("sizes.txt: expected `BYTES DESCRIPTION`")?;
            all.sizes.insert(what.to_owned(), bytes.to_owned());
        }
        all.load = text("load.txt").lines().collect::<Vec<_>>().join("; ");
        Ok(all)
    }

    /// Returns policy and number of classes of all measured decisions.
    fn decisions(&self) -> impl Iterator<Item = (&str, u32)> {
        let decisions = self.timings.iter().filter(|one| one.group == "decision");
        decisions.filter_map(|one| Some((one.name.as_str(), one.value.parse().ok()?)))
    }

    /// Returns the policies with measured decisions.
    fn policies(&self) -> BTreeSet<&str> {
        self.decisions().map(|(policy, _)| policy).collect()
    }

    /// Returns the points (classes, median ns) of `policy` with `from` to `to` classes.
    fn points(&self, policy: &str, from: u32, to: u32) -> Vec<(f64, f64)> {
        let of = |one: &Timing| {
            let classes = one.value.parse().ok().filter(|_| one.group == "decision")?;
            let found = one.name == policy && (from..=to).contains(&classes);
            found.then_some((f64::from(classes), one.ns.median))
        };
        let mut points: Vec<(f64, f64)> = self.timings.iter().filter_map(of).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}

/// Returns the increase in ns when the number of classes doubles: the least-squares slope over
/// log2. Returns `None` for fewer than two points.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let logs = points.iter().map(|(classes, ns)| (classes.log2(), ns));
    let (x, y) = logs
        .clone()
        .fold((0.0, 0.0), |(x, y), (log, ns)| (x + log, y + ns));
    let parts = logs.map(|(log, ns)| (log - x / count, ns - y / count));
    let (above, below) = parts.fold((0.0, 0.0), |(above, below), (x, y)| {
        (above + x * y, below + x * x)
    });
    (below > 0.0).then_some(above / below)
}

/// Returns the table of times per decision by number of classes, their growth, and memory; one
/// column per policy.
fn summary(measured: &Measured) -> Table {
    let policies = Vec::from_iter(measured.policies());
    let counts: BTreeSet<u32> = measured.decisions().map(|(_, classes)| classes).collect();
    let mut table = Table::new(&[&["classes"][..], &policies].concat());
    let mut row = |name: String, cell: &dyn Fn(&str) -> Option<f64>, places: usize| {
        let cells = policies.iter().map(|policy| cell(policy));
        let shown =
            |cell: Option<f64>| cell.map_or("–".into(), |cell| format!("{cell:.places$}"));
        let cells = cells.map(shown);
        table.row(&[name].into_iter().chain(cells).collect::<Vec<String>>());
    };
    for classes in counts {
        let decision = |policy: &str| {
            let points = measured.points(policy, classes, classes);
            Some(points.first()?.1)
        };
        row(commas(classes), &decision, 0);
    }
    for (name, from, to) in [("up to 1,000", 2, 1_000), ("above 1,000", 1_000, 100_000)] {
        let slope = |policy: &str| slope(&measured.points(policy, from, to));
        row(format!("ns per doubling {name}"), &slope, 1);
    }
    let memory = |policy: &str, classes: u32| {
        let mut all = measured.memory.iter();
        all.find(|one| one.policy == policy && one.classes == classes)
    };
    for classes in [64, 4_096, 100_000] {
        let per_class = |policy: &str| Some(memory(policy, classes)?.per_class());
        row(
            format!("bytes per class, of {}", commas(classes)),
            &per_class,
            0,
        );
    }
    let per_request = |policy: &str| Some(memory(policy, 100_000)?.per_request());
    row("bytes per queued request".into(), &per_request, 0);
    let part = |policy: &str| Some(memory(policy, 4_096)?.empty_bytes as f64);
    row("bytes of a part without classes".into(), &part, 0);
    let shared = |policy: &str| Some(memory(policy, 4_096)?.shared_bytes as f64);
    row("bytes that the parts share".into(), &shared, 0);
    table
}

/// Returns the sentence about the load of the host.
fn load(measured: &Measured) -> String {
    let load = &measured.load;
    format!("Load averages at the start and at the end: {load}.\n")
}

/// Returns the load averages and the table of decisions, for the manual.
fn decisions(measured: &Measured) -> String {
    format!("{}\n{}", load(measured), summary(measured).markdown())
}

/// Returns the table of all other results.
fn rest(measured: &Measured) -> Table {
    let mut table = Table::new(&["group", "benchmark", "parameter", "ns", "fastest sample"]);
    let is_other = |one: &&Timing| one.group != "decision";
    let mut all: Vec<&Timing> = measured.timings.iter().filter(is_other).collect();
    let number = |one: &Timing| one.value.parse::<u64>().unwrap_or(0);
    all.sort_by_key(|one| (one.group.clone(), one.name.clone(), number(one)));
    for one in all {
        let ns = one.ns.text(usize::from(one.ns.median < 100.0));
        let least = format!("{:.0}", one.least_ns);
        table.row(&[&one.group, &one.name, &one.value, &ns, &least]);
    }
    table
}

/// Returns the whole report.
fn page(measured: &Measured) -> String {
    let mut out = format!("# Cost of scheduling\n\n{}", load(measured));
    let mut sizes = Table::new(&["structure", "bytes"]);
    for (what, bytes) in &measured.sizes {
        sizes.row(&[what, bytes]);
    }
    for (text, table) in [
        (
            "Median nanoseconds of `enqueue`, `get` and `stop` of one request with 8 queued in \
             each class. Bytes are counted at allocation, in chunks of 16 KiB, including a reserve \
             for further classes.",
            summary(measured),
        ),
        (
            "Memory of the front-end per request, independent of the policy.",
            sizes,
        ),
        (
            "Single operations with 4,096 clients that have 16 requests queued each, and all \
             other pieces: median (95 % confidence \
             interval), ns.",
            rest(measured),
        ),
    ] {
        if !table.is_empty() {
            out += &format!("\n{text}\n\n{}", table.markdown());
        }
    }
    out
}

/// Returns the chart of times per decision, by number of classes.
fn picture(measured: &Measured) -> Diagram {
    let lines = Diagram::lines("A decision, by policy", "classes", "ns per decision")
        .log_x()
        .log_y();
    let policies = measured.policies().into_iter();
    policies.fold(lines, |lines, policy| {
        lines.series(policy, measured.points(policy, 0, u32::MAX))
    })
}

/// Writes the report and prints its tables.
///
/// # Errors
///
/// There are no results, or a file cannot be read or written.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let measured = Measured::read(&args.dir)?;
    if measured.timings.is_empty() {
        return Err(format!("{}: no timings", args.dir.display()).into());
    }
    let page = page(&measured);
    fs::write(args.dir.join("bench.md"), &page)?;
    fs::write(args.dir.join("decisions.md"), decisions(&measured))?;
    picture(&measured).save(&args.dir.join("decisions.svg"))?;
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
        let measured = Measured {
            timings: [2, 64, 1_000, 4_096, 100_000].map(timing).into(),
            ..Measured::default()
        };
        let page = page(&measured);
        for row in [
            "| 1,000                           |        80 |",
            "| ns per doubling above 1,000     |       5.0 |",
        ] {
            assert!(page.contains(row), "{page}");
        }
        assert_eq!(slope(&[(2.0, 1.0)]), None);
        assert!(picture(&measured).to_svg().unwrap().contains("fairshare"));
    }
}
