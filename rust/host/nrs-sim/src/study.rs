// SPDX-License-Identifier: GPL-2.0-only

//! Studies: families of runs with tables of results.
//!
//! A *study* runs scenarios of the crate with several seeds and compares the results with published
//! values or limits. It returns Markdown, and writes NAME.md, NAME.json and charts if a directory
//! is given.
//!
//! A new study is a file in `study/` and a line in [`STUDIES`].

pub mod cluster;
pub mod cut;
pub mod delta;
pub mod disk;
pub mod fluid;
pub mod interference;
pub mod qbm;
pub mod rule;
pub mod scale;
pub mod select;
pub mod solo;
pub mod themis;
pub mod timeouts;

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use nrs_report::chart::Lines;
use nrs_report::table::Table;
use serde::Serialize;

use crate::engine::{self, Settings};
use crate::outcome::Outcome;
use crate::scenario::{Rate, Scenario, Time};
use crate::show::Progress;

/// Failure of a study.
pub type Failure = Box<dyn Error>;

/// Options of a study.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for result files; `None` writes no files.
    pub out: Option<PathBuf>,
    /// Number of seeds of each scenario; the seeds are 1 to this number.
    pub seeds: u64,
    /// True for shorter runs on slower devices ([`shorten`]).
    pub quick: bool,
    /// True to hide the progress.
    pub quiet: bool,
}

/// Function of a study; returns Markdown.
type Study = fn(&Options) -> Result<String, Failure>;

/// All studies by name.
const STUDIES: &[(&str, Study)] = &[
    ("themis", themis::run),
    ("solo", solo::run),
    ("interference", interference::run),
    ("rule", rule::run),
    ("scale", scale::run),
    ("delta", delta::run),
    ("cut", cut::run),
    ("disk", disk::run),
    ("select", select::run),
    ("qbm", qbm::run),
    ("timeouts", timeouts::run),
];

/// Returns the names of all studies.
pub fn names() -> Vec<&'static str> {
    STUDIES.iter().map(|(name, _)| *name).collect()
}

/// Table with a title, for studies with several tables.
#[derive(Debug, Serialize)]
pub struct Titled {
    title: &'static str,
    table: Table,
}

impl Titled {
    /// Creates an empty table; `head` has the columns, separated by `|`.
    pub fn new(title: &'static str, head: &str) -> Self {
        let table = Table::headed(head);
        Self { title, table }
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        self.table.row(cells);
    }

    /// Returns the title and the table in Markdown.
    pub fn markdown(&self) -> String {
        format!("{}:\n\n{}\n", self.title, self.table.markdown())
    }
}

/// Runs the study with this name.
///
/// # Errors
///
/// The study does not exist or fails.
pub fn run(name: &str, options: &Options) -> Result<String, Failure> {
    let (_, study) = STUDIES
        .iter()
        .find(|(other, _)| *other == name)
        .ok_or_else(|| format!("there is no study \"{name}\""))?;
    study(options)
}

/// Returns a scenario of the crate with keys overridden, once for each seed.
///
/// # Errors
///
/// Faults of the scenario or of the keys.
pub fn seeded(
    (file, text): (&str, &str),
    set: &[(&str, &str)],
    options: &Options,
) -> Result<Vec<Scenario>, Failure> {
    let set: Vec<(String, String)> = set
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let mut scenario = Scenario::parse(file, text, &set)?;
    if options.quick {
        shorten(&mut scenario);
    }
    let with_seed = |seed| Scenario {
        seed,
        ..scenario.clone()
    };
    Ok((1..=options.seeds).map(with_seed).collect())
}

/// Reduces a run: divides the times of the run by 6 and bandwidths by 10, so there are a sixtieth
/// of the events. Times of requests, phases and bursts stay.
pub fn shorten(scenario: &mut Scenario) {
    let sixth = |time: &mut Time| time.0 /= 6;
    sixth(&mut scenario.duration);
    sixth(&mut scenario.settle);
    sixth(&mut scenario.sample);
    for job in &mut scenario.jobs {
        sixth(&mut job.start);
        job.stop.iter_mut().for_each(sixth);
    }
    for device in &mut scenario.devices {
        if let Some(Rate(bandwidth)) = &mut device.bandwidth {
            *bandwidth /= 10;
        }
    }
}

/// Runs all scenarios in parallel; returns the outcomes in the same order.
///
/// # Errors
///
/// The error of the first scenario that fails.
pub fn all(scenarios: &[Scenario], options: &Options) -> Result<Vec<Outcome>, Failure> {
    let done = side_by_side(scenarios, options, |scenario| {
        engine::run_with(scenario, Settings::default(), |_, _| ())
    })?;
    let named = scenarios.iter().zip(done);
    named
        .map(|(scenario, outcome)| {
            outcome.map_err(|reason| format!("{}: {reason}", scenario.name).into())
        })
        .collect()
}

/// Runs `run` on all `items` in parallel, one thread per CPU; returns the results in the same
/// order.
///
/// # Errors
///
/// A run panicked.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    options: &Options,
    run: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = Progress::new(options.quiet, items.len() as u64);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else {
                    break;
                };
                let result = run(item);
                if let Ok(mut done) = done.lock() {
                    done.push((index, result));
                    progress.set(done.len() as u64);
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| "a run panicked")?;
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Writes NAME.md, NAME.json and NAME.svg if a directory is given; returns the table in Markdown.
///
/// # Errors
///
/// An error of the file system.
pub fn finish(
    name: &str,
    table: &Table,
    chart: &Lines,
    options: &Options,
) -> Result<String, Failure> {
    let markdown = table.markdown();
    keep(name, &markdown, table, options)?;
    if let Some(out) = &options.out {
        chart.save(&out.join(format!("{name}.svg")))?;
    }
    Ok(markdown)
}

/// Writes NAME.md and NAME.json if a directory is given.
///
/// # Errors
///
/// An error of the file system.
pub fn keep<T: Serialize + ?Sized>(
    name: &str,
    markdown: &str,
    rows: &T,
    options: &Options,
) -> Result<(), Failure> {
    let Some(out) = &options.out else {
        return Ok(());
    };
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join(format!("{name}.md")), markdown)?;
    let mut json = serde_json::to_string_pretty(rows)?;
    json.push('\n');
    std::fs::write(out.join(format!("{name}.json")), json)?;
    Ok(())
}
