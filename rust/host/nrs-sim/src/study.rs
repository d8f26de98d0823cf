// SPDX-License-Identifier: GPL-2.0-only

//! Studies: families of runs with tables of results, described by a file (TOML).
//!
//! - A *table* has a row for each combination of the cases of its axes.
//! - A *case* has a label, keys of scenarios that differ, and limits of results.
//! - A *column* has a measure ([`measure`]) of a run of the row, and how the values of all seeds
//!   become a cell.
//! - A *limit* holds for each seed; a study with a broken limit fails.
//!
//! ```text
//! study (TOML) --load--> rows: runs and limits --run, for each seed--> values --> tables, limits
//! ```

pub mod cluster;
pub mod fluid;
pub mod input;
pub mod measure;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use nrs_report::chart::Diagram;
use nrs_report::stat::{median, spread};
use nrs_report::table::Table;
use serde::{Deserialize, Serialize};

use self::input::Input;
use self::measure::{Column, Measure, Over};
use crate::scenario::{fault, Time};
use crate::show::Progress;

/// Failure of a study.
pub type Failure = Box<dyn Error>;

/// Options of a study.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for result files; `None` writes no files.
    pub out: Option<PathBuf>,
    /// Number of seeds of each row; the seeds are 1 to this number.
    pub seeds: u64,
    /// True to leave out long cases, and to shorten runs if the study allows it.
    pub quick: bool,
    /// True to hide the progress.
    pub quiet: bool,
}

/// Study as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Maximum number of seeds; unlimited by default.
    #[serde(default)]
    pub seeds: Option<u64>,
    /// True if a quick run shortens scenarios ([`input::shorten`]).
    #[serde(default)]
    pub shorten: bool,
    /// Text below the tables; `{seeds}` stands for the number of seeds.
    #[serde(default)]
    pub note: String,
    /// Chart of the first table; none by default.
    #[serde(default)]
    pub chart: Option<Chart>,
    /// Tables (`[[table]]`).
    #[serde(rename = "table")]
    pub tables: Vec<Grid>,
}

/// Table of a study: rows and columns.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Title; empty by default.
    #[serde(default)]
    pub title: String,
    /// What all rows have in common.
    #[serde(default)]
    pub all: Case,
    /// Axes (`[[table.axis]]`); the last one varies fastest.
    #[serde(rename = "axis", default)]
    pub axes: Vec<Axis>,
    /// Columns after the labels.
    pub columns: Vec<Column>,
}

/// Axis of the rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Heads of the labels, separated by `|`.
    pub head: String,
    /// Cases of the axis.
    pub cases: Vec<Case>,
}

/// Case of an axis; merged, what a row has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// Labels, separated by `|`.
    pub label: String,
    /// True if quick runs leave out the case.
    pub long: bool,
    /// Line of the chart; empty for none, whatever the other cases of the row have.
    pub line: Option<String>,
    /// Runs of a row; they replace the runs of earlier axes.
    pub runs: Vec<input::Base>,
    /// Keys that differ from the files of all runs.
    pub set: input::Keys,
    /// Ideal shares of the jobs in any unit.
    pub ideal: Vec<f64>,
    /// Cells of columns with the measure `cell`, by name.
    pub cells: BTreeMap<String, f64>,
    /// Times by name, for columns.
    pub times: BTreeMap<String, Time>,
    /// Upper limits by the name of the column.
    pub most: BTreeMap<String, f64>,
    /// Lower limits by the name of the column.
    pub least: BTreeMap<String, f64>,
}

impl Case {
    /// Returns a time, or the time of the case with this name, ns.
    fn time(&self, written: &Option<String>) -> Result<Option<u64>, String> {
        let time = |text: &String| match self.times.get(text) {
            Some(time) => Ok(time.0),
            None => text.parse().map(|Time(ns)| ns),
        };
        written.as_ref().map(time).transpose()
    }

    /// Merges two cases; `other` overrides.
    fn merged(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.label = match (self.label.as_str(), other.label.as_str()) {
            ("", label) | (label, "") => label.to_string(),
            (one, two) => format!("{one} | {two}"),
        };
        if self.line.as_deref() != Some("") && other.line.is_some() {
            all.line.clone_from(&other.line);
        }
        if !other.runs.is_empty() {
            all.runs.clone_from(&other.runs);
        }
        if !other.ideal.is_empty() {
            all.ideal.clone_from(&other.ideal);
        }
        all.set.extend(other.set.clone());
        all.cells.extend(other.cells.clone());
        all.times.extend(other.times.clone());
        all.most.extend(other.most.clone());
        all.least.extend(other.least.clone());
        all
    }
}

/// Chart of a table: a line for each line of the cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Label of the x axis.
    pub x: String,
    /// Label of the y axis.
    pub y: String,
    /// Column of which each row is a point, by its first label; by default, each row is a line: the
    /// error of the worst job over time.
    #[serde(default)]
    pub column: Option<String>,
    /// Last time of a line over time.
    #[serde(default)]
    pub end: Option<Time>,
    /// Value that a horizontal line marks, %.
    #[serde(default)]
    pub rule: Option<f64>,
}

/// Results of a study.
#[derive(Clone, Debug)]
pub struct Report {
    /// Tables and note, in Markdown.
    pub markdown: String,
    /// Broken limits, one line each.
    pub broken: Vec<String>,
}

/// Row of a table, ready to run.
struct Row {
    case: Case,
    inputs: Vec<Input>,
}

/// Results of a row with one seed.
struct Sample {
    /// Values by column.
    values: Vec<Vec<f64>>,
    /// Points of a line over time.
    curve: Vec<(f64, f64)>,
}

/// Table with its title, as in the JSON.
#[derive(Serialize)]
struct Titled<'a> {
    title: &'a str,
    table: &'a Table,
}

/// Runs the study in `path`; the names of scenarios are relative to its directory.
///
/// # Errors
///
/// Faults of the study or of a scenario, before any run; a column that does not match a row; the
/// error of a run or of the file system.
pub fn run(path: &Path, options: &Options) -> Result<Report, Failure> {
    let (file, text) = fault::load(path)?;
    let study: Study = fault::read(&file, &text)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let seeds = options.seeds.min(study.seeds.unwrap_or(u64::MAX)).max(1);
    let mut prepared = Vec::new();
    for grid in &study.tables {
        prepared.push(prepare(grid, dir, options.quick, study.shorten)?);
    }
    let (mut markdown, mut broken, mut tables) = (String::new(), Vec::new(), Vec::new());
    let mut chart = None;
    for (grid, rows) in study.tables.iter().zip(&prepared) {
        let plots = study
            .chart
            .as_ref()
            .is_some_and(|chart| chart.column.is_none());
        let samples = samples(grid, rows, seeds, plots && options.out.is_some(), options)?;
        let mut table = Table::headed(&heads(grid));
        for (row, samples) in rows.iter().zip(samples.chunks(seeds as usize)) {
            let faults = broken_limits(grid, &row.case, samples);
            table.row(&cells(grid, &row.case, samples, &faults));
            broken.extend(faults.into_iter().map(|(_, fault)| fault));
        }
        if !grid.title.is_empty() {
            markdown += &format!("{}:\n\n", grid.title);
        }
        markdown += &table.markdown();
        if study.tables.len() > 1 {
            markdown.push('\n');
        }
        if let (true, Some(written)) = (tables.is_empty(), &study.chart) {
            chart = Some(draw(written, grid, rows, &samples, seeds as usize));
        }
        tables.push(table);
    }
    if !study.note.is_empty() {
        let note = study.note.replace("{seeds}", &seeds.to_string());
        markdown += &format!("\n{note}\n");
    }
    if let Some(out) = &options.out {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let titled = study.tables.iter().zip(&tables);
        let titled = titled.map(|(Grid { title, .. }, table)| Titled { title, table });
        let json = serde_json::to_string_pretty(&titled.collect::<Vec<_>>())?;
        std::fs::create_dir_all(out)?;
        std::fs::write(out.join(format!("{name}.md")), &markdown)?;
        std::fs::write(out.join(format!("{name}.json")), json + "\n")?;
        if let Some(chart) = chart {
            chart.save(&out.join(format!("{name}.svg")))?;
        }
    }
    Ok(Report { markdown, broken })
}

/// Returns the rows of a table.
fn prepare(grid: &Grid, dir: &Path, quick: bool, shorten: bool) -> Result<Vec<Row>, Failure> {
    let mut cases = vec![grid.all.clone()];
    for axis in &grid.axes {
        let axis = || axis.cases.iter().filter(|case| !(quick && case.long));
        cases = cases
            .iter()
            .flat_map(|one| axis().map(|two| one.merged(two)))
            .collect();
    }
    let row = |case: Case| -> Result<Row, Failure> {
        let limits = case.most.keys().chain(case.least.keys());
        for name in limits {
            let named = |column: &Column| !column.measure.is_text() && column.name == *name;
            if !grid.columns.iter().any(named) {
                return Err(format!("there is no measured column \"{name}\" for a limit").into());
            }
        }
        let labels: Vec<&str> = case.label.split('|').map(str::trim).collect();
        let input = |base| Input::load(dir, base, &case.set, &labels, quick && shorten);
        let inputs = case.runs.iter().map(input).collect::<Result<_, _>>()?;
        Ok(Row { case, inputs })
    };
    cases.into_iter().map(row).collect()
}

/// Runs all rows with all seeds, in parallel; returns the samples of a row after each other, with
/// curves if `plots`.
fn samples(
    grid: &Grid,
    rows: &[Row],
    seeds: u64,
    plots: bool,
    options: &Options,
) -> Result<Vec<Sample>, Failure> {
    let all: Vec<(&Row, u64)> = rows
        .iter()
        .flat_map(|row| (1..=seeds).map(move |seed| (row, seed)))
        .collect();
    let done = side_by_side(&all, options, |(row, seed)| {
        let runs = row.inputs.iter().map(|input| input.run(*seed));
        let runs = runs.collect::<Result<Vec<_>, String>>()?;
        let values = |column: &Column| {
            let values = column.values(&row.case, &runs);
            values.map_err(|reason| format!("{}: {}: {reason}", row.case.label, column.head))
        };
        Ok(Sample {
            values: grid
                .columns
                .iter()
                .map(values)
                .collect::<Result<_, String>>()?,
            curve: match runs.first() {
                Some(run) if plots && *seed == 1 => measure::curve(run),
                _ => Vec::new(),
            },
        })
    })?;
    let done: Result<Vec<Sample>, String> = done.into_iter().collect();
    Ok(done?)
}

/// Runs `run` on all `items` in parallel, one thread per CPU; returns the results in the same
/// order.
///
/// # Errors
///
/// A run panicked.
fn side_by_side<T: Sync, R: Send>(
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

/// Returns the head of a table, separated by `|`.
fn heads(grid: &Grid) -> String {
    let axes = grid.axes.iter().map(|axis| axis.head.as_str());
    let columns = grid.columns.iter().map(|column| column.head.as_str());
    axes.chain(columns).collect::<Vec<_>>().join("|")
}

/// Returns the names of the columns whose limits are broken, and messages.
fn broken_limits<'a>(grid: &'a Grid, case: &Case, samples: &[Sample]) -> Vec<(&'a str, String)> {
    let mut broken = Vec::new();
    for (n, column) in grid.columns.iter().enumerate() {
        if column.measure.is_text() {
            continue;
        }
        let (most, least) = (case.most.get(&column.name), case.least.get(&column.name));
        let values = samples.iter().flat_map(|sample| &sample.values[n]);
        // A value that is not a number breaks a limit.
        let within = |value: f64| {
            most.is_none_or(|most| value <= *most) && least.is_none_or(|least| value >= *least)
        };
        if let Some(value) = values.copied().find(|value| !within(*value)) {
            let bounds = [("most", most), ("least", least)].map(|(word, limit)| {
                limit.map_or(String::new(), |limit| format!(" (at {word} {limit})"))
            });
            let message = format!("{}: {} {value}{}", case.label, column.head, bounds.concat());
            broken.push((column.name.as_str(), message));
        }
    }
    broken
}

/// Returns the cells of a row.
fn cells(grid: &Grid, case: &Case, samples: &[Sample], broken: &[(&str, String)]) -> Vec<String> {
    let labels = case.label.split('|').map(|label| label.trim().to_string());
    let number = |value: Option<&f64>| value.map_or("-".to_string(), f64::to_string);
    let columns = grid.columns.iter().enumerate();
    let columns = columns.map(|(n, column)| match column.measure {
        Measure::Cell => number(case.cells.get(&column.name)),
        Measure::Limit => number(case.most.get(&column.name).or(case.least.get(&column.name))),
        Measure::Limits if broken.is_empty() => "met".to_string(),
        Measure::Limits => {
            let names: Vec<&str> = broken.iter().map(|(name, _)| *name).collect();
            format!("NOT met: {}", names.join(", "))
        }
        _ => {
            let of = |k| -> Vec<f64> {
                let values = samples.iter().filter_map(|sample| sample.values[n].get(k));
                values.copied().collect()
            };
            let length = samples.first().map_or(0, |sample| sample.values[n].len());
            let texts: Vec<String> = (0..length).map(|k| text(column, &of(k))).collect();
            texts.join(&column.join)
        }
    });
    labels.chain(columns).collect()
}

/// Formats the values of all seeds.
fn text(column: &Column, values: &[f64]) -> String {
    let finite = values.iter().filter(|value| value.is_finite()).count();
    let places = column.places;
    let never = format!("— ({finite} of {})", values.len());
    let worst = values.iter().copied().fold(0.0, f64::max);
    match column.over {
        _ if values.iter().all(|value| value.is_nan()) => "-".to_string(),
        Over::Worst if worst.is_infinite() => "—".to_string(),
        Over::Worst => format!("{worst:.places$}"),
        Over::Sum => format!("{:.places$}", values.iter().sum::<f64>()),
        _ if finite < values.len() => never,
        Over::Median => format!("{:.places$}", median(values)),
        Over::Spread => spread(values).text(places),
    }
}

/// Draws the chart of a table.
fn draw(written: &Chart, grid: &Grid, rows: &[Row], samples: &[Sample], seeds: usize) -> Diagram {
    let mut lines: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for (row, samples) in rows.iter().zip(samples.chunks(seeds)) {
        let Some(line) = row.case.line.as_deref().filter(|line| !line.is_empty()) else {
            continue;
        };
        let points = match &written.column {
            Some(name) => {
                let label = row.case.label.split('|').next().unwrap_or_default().trim();
                let column = grid.columns.iter().position(|column| column.name == *name);
                let values = samples
                    .iter()
                    .filter_map(|sample| sample.values[column?].first());
                let values: Vec<f64> = values.copied().collect();
                // A logarithmic axis has no zero.
                vec![(label.parse().unwrap_or(f64::NAN), median(&values).max(0.05))]
            }
            None => {
                let end = written.end.map_or(f64::INFINITY, |end| end.0 as f64 / 1e9);
                let points = samples.first().map_or(&[][..], |sample| &sample.curve);
                let within = points.iter().filter(|point| point.0 <= end);
                within.copied().collect()
            }
        };
        match lines.iter_mut().find(|(name, _)| *name == line) {
            Some((_, before)) => before.extend(points),
            None => lines.push((line, points)),
        }
    }
    let mut chart = Diagram::lines(&written.title, &written.x, &written.y).log_y();
    if written.column.is_some() {
        chart = chart.log_x();
    }
    for (name, points) in lines {
        chart = chart.series(name, points);
    }
    match written.rule {
        Some(rule) => chart.rule_at_y(rule, &format!("{rule} %")),
        None => chart,
    }
}
