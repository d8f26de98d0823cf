// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report compare`: results of `make compare`, nrs compared with the schedulers of the kernel.
//!
//! - A *device* is shared, a *peer* is the scheduler that shares it, a *client* receives a share.
//! - A *measure* is one run of clients on a device under a peer, such as `mix` or `equal`.
//! - A *figure* is a number calculated from a measure, such as the error of shares, with a value
//!   per boot of the machine.
//!
//! ```text
//! DIR/DEVICE/BOOT/{device,not,runs}
//!   └─> input ──> figures ─┬─> page (Markdown), JSON, SVG
//!                          └─> sentences about the best peers
//! ```

mod check;
mod figures;
mod input;
mod sentence;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use minijinja::value::Serde;
use minijinja::{context, Value};
use nrs_report::chart::Diagram;
use nrs_report::stat::Spread;
use serde::Serialize;

use self::figures::{Device, FIGURES};
use self::input::{Input, DEVICES, PEERS};
use self::sentence::Sentence;
use crate::{page, Result};

/// Busy time of the CPU, percent, above which the CPU is the limit and not the device.
const BUSY: f64 = 95.0;

/// Lines of the pictures of latency and throughput, and the peers on each.
const LINES: [(&str, &[&str]); 9] = [
    (
        "nrs by slots",
        &["nrs-1", "nrs-2", "nrs-4", "nrs-8", "nrs-16"],
    ),
    (
        "nrs, all slots held",
        &["nrs-all-2", "nrs-all-3", "nrs-all-4", "nrs-all"],
    ),
    (
        "nrs by latency to aim for",
        &["nrs-latency", "nrs-latency-125", "nrs-latency-150", "nrs"],
    ),
    ("BFQ", &["bfq", "bfq-idle0"]),
    ("none", &["none"]),
    ("mq-deadline", &["mq-deadline"]),
    ("kyber", &["kyber"]),
    ("io.max", &["io.max"]),
    ("io.cost", &["io.cost"]),
];

/// Compares nrs with the schedulers of the kernel, from the results of `make compare`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory with a directory of results for each device.
    dir: PathBuf,
    /// Directory for compare.md, compare.json, tables for the manual and the README, and charts.
    #[arg(long)]
    out: PathBuf,
    /// Check only that the figures are plausible, as a test; print no table.
    #[arg(long)]
    check: bool,
    /// Duration of the whole command, seconds, for the page.
    #[arg(long)]
    took: Option<u64>,
}

/// Devices by name.
type Devices = BTreeMap<&'static str, Device>;

/// All results, as in compare.json.
#[derive(Serialize)]
struct Report {
    devices: Devices,
    sentences: Vec<Sentence>,
}

/// Returns the devices in the order of the page.
fn ordered(devices: &Devices) -> impl Iterator<Item = (&'static str, &Device)> {
    let found = |name| Some((name, devices.get(name)?));
    DEVICES.into_iter().filter_map(found)
}

impl Report {
    /// Reads all devices with results in `dir`.
    fn read(dir: &Path) -> Result<Self> {
        let mut devices = BTreeMap::new();
        for name in DEVICES {
            let place = dir.join(name);
            if place.is_dir() {
                devices.insert(name, Device::new(Input::read(&place)?));
            }
        }
        if devices.is_empty() {
            return Err(format!("no results in {}", dir.display()).into());
        }
        let mut sentences = Vec::new();
        for (name, device) in ordered(&devices) {
            for figure in FIGURES.iter() {
                sentences.extend(Sentence::new(name, device, figure)?);
            }
        }
        Ok(Self { devices, sentences })
    }

    /// Returns a page.
    fn page(&self, template: &str, took: Option<u64>, is_readme: bool) -> Result<String> {
        // Of other settings only the latency is measured.
        let shares = |peer: &&str| {
            let measures = self
                .devices
                .values()
                .filter_map(|device| device.peers.get(peer));
            measures
                .flat_map(|peer| peer.cpu_busy_percent.keys())
                .any(|name| name == "four")
        };
        let shared: Vec<&str> = PEERS.into_iter().filter(shares).collect();
        let results = context! {
            figures => Serde(&*FIGURES),
            device_names => ordered(&self.devices).map(|(name, _)| name).collect::<Vec<_>>(),
            peer_names => PEERS.to_vec(),
            shared,
            busy_limit => BUSY,
            took,
            is_readme,
            ..Value::from(Serde(self))
        };
        page::render(template, results)
    }

    /// Writes a chart of the shares, with a bar for each device, and one for each device of the
    /// latency of the small client and the throughput then.
    fn draw(&self, out: &Path) -> Result {
        let value = |device: &Device, peer: &str, key: &str| {
            let figure = FIGURES.iter().find(|figure| figure.key == key)?;
            device.value(peer, figure)
        };
        let errors = |device: &Device, peer: &str| value(device, peer, "error_four_percent");
        let all = self.devices.values();
        let measured = |peer: &&str| all.clone().any(|device| errors(device, peer).is_some());
        let peers: Vec<&str> = PEERS.into_iter().filter(measured).collect();
        let title = "Error of shares, weights 1 and 4";
        let mut chart = Diagram::bars(title, "% of the due share").groups(peers.clone());
        for (name, device) in ordered(&self.devices) {
            let bar = |peer: &&str| errors(device, peer).unwrap_or(f64::NAN.into());
            chart = chart.bar::<Spread>(name, peers.iter().map(bar).collect());
            let title = format!("A small client beside a greedy one on {name}");
            let mut plot =
                Diagram::lines(&title, "throughput of both, % of none", "p99, ms").log_y();
            for (name, peers) in LINES {
                let mut points = Vec::new();
                for peer in peers {
                    let unused = value(device, peer, "unused_mix_percent");
                    let (Some(unused), Some(p99)) = (unused, value(device, peer, "p99_ms")) else {
                        continue;
                    };
                    let point = (100.0 - unused.median, p99.median);
                    points.push(point);
                    let setting = peer.rsplit_once('-').filter(|_| !peer.starts_with("mq"));
                    if let Some((_, setting)) = setting {
                        plot = plot.label(point, setting);
                    }
                }
                plot = plot.series(name, points);
            }
            plot.save(&out.join(format!("mix-{name}.svg")))?;
        }
        Ok(chart.save(&out.join("error-1-4.svg"))?)
    }
}

/// Reads the results, writes the report and prints the page.
///
/// # Errors
///
/// Missing or unreadable results, with the name of the file; files that cannot be written; with
/// `--check`, implausible figures.
pub fn run(args: Args) -> Result {
    let report = Report::read(&args.dir)?;
    if args.check {
        let mut checks = check::checks(&report);
        checks.sort_by_key(|(_, holds)| !holds);
        for (text, holds) in &checks {
            println!("{} - {text}", if *holds { "ok" } else { "not ok" });
        }
        return match (checks.is_empty(), checks.iter().all(|(_, holds)| *holds)) {
            (true, _) => Err("nothing to check".into()),
            (_, true) => Ok(()),
            (_, false) => Err("implausible figures, see \"not ok\" above".into()),
        };
    }
    fs::create_dir_all(&args.out)?;
    let page = report.page(include_str!("templates/compare.md.j2"), args.took, false)?;
    fs::write(args.out.join("compare.md"), &page)?;
    let json = serde_json::to_string_pretty(&serde_json::to_value(&report)?)?;
    fs::write(args.out.join("compare.json"), json + "\n")?;
    for (file, is_readme) in [("manual.md", false), ("readme.md", true)] {
        let brief = report.page(include_str!("templates/brief.md.j2"), None, is_readme)?;
        fs::write(args.out.join(file), brief)?;
    }
    report.draw(&args.out)?;
    print!("{page}");
    Ok(())
}
