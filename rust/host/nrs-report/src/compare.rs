// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report compare`: results of `make compare`, nrs compared with the schedulers of the kernel.
//!
//! - A *device* is shared, a *peer* is the scheduler that shares it, a *client* receives a share.
//! - A *measure* is one run of clients on a device under a peer: `one`, `many`, `mix`, `equal`,
//!   `four`, `eight`, `lone`.
//! - A *figure* is a number calculated from one or two measures, such as the error of shares, with
//!   a value per repeat.
//!
//! ```text
//! DIR/DEVICE/{device,not,PEER.REPEAT.json,PEER.REPEAT.facts}
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

/// Busy time of the CPU, percent, above which the CPU determines the shares and not the device.
const BUSY: f64 = 60.0;

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
            if place.join("device").is_file() {
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
        let results = context! {
            figures => Serde(&*FIGURES),
            device_names => ordered(&self.devices).map(|(name, _)| name).collect::<Vec<_>>(),
            peer_names => PEERS.to_vec(),
            busy_limit => BUSY,
            took,
            is_readme,
            ..Value::from(Serde(self))
        };
        page::render(template, results)
    }

    /// Writes a chart for each figure that has one: peers side by side, a bar for each device.
    fn draw(&self, out: &Path) -> Result {
        for figure in FIGURES.iter() {
            let Some([file, title, label, scale]) = &figure.chart else {
                continue;
            };
            let value = |device: &Device, peer: &str| device.value(peer, figure);
            let all = self.devices.values();
            let measured = |peer: &&str| all.clone().any(|device| value(device, peer).is_some());
            let peers: Vec<&str> = PEERS.into_iter().filter(measured).collect();
            if peers.is_empty() {
                continue;
            }
            let mut chart = Diagram::bars(title, label).groups(peers.clone());
            if scale == "log" {
                chart = chart.log_y();
            }
            for (name, device) in ordered(&self.devices) {
                let bar = |peer: &&str| value(device, peer).unwrap_or(f64::NAN.into());
                chart = chart.bar::<Spread>(name, peers.iter().map(bar).collect());
            }
            chart.save(&out.join(file))?;
        }
        Ok(())
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
