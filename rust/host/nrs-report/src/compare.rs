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
//!                          └─> words (sentences about the best peers)
//! ```

mod brief;
mod check;
mod figures;
mod input;
mod page;
mod words;

#[cfg(test)]
mod fixture;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

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

/// Reads the results, writes the report and prints the page.
///
/// # Errors
///
/// Missing or unreadable results, with the name of the file; files that cannot be written; with
/// `--check`, implausible figures.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let devices = input::read_all(&args.dir)?;
    let table = figures::Figures::of(&devices);
    if args.check {
        let (good, bad) = check::plausible(&table);
        for line in &good {
            println!("ok - {line}");
        }
        for line in &bad {
            println!("not ok - {line}");
        }
        return match (bad.is_empty(), good.is_empty()) {
            (true, false) => Ok(()),
            (true, true) => Err("nothing to check".into()),
            _ => Err("implausible figures, see \"not ok\" above".into()),
        };
    }
    fs::create_dir_all(&args.out)?;
    let sentences = words::sentences(&table);
    let page = page::markdown(&devices, &table, &sentences, args.took);
    fs::write(args.out.join("compare.md"), &page)?;
    let json = page::json(&devices, &table, &sentences);
    fs::write(
        args.out.join("compare.json"),
        serde_json::to_string_pretty(&json)? + "\n",
    )?;
    fs::write(
        args.out.join("manual.md"),
        brief::manual(&table, &sentences),
    )?;
    fs::write(args.out.join("readme.md"), brief::readme(&table))?;
    page::pictures(&table, &args.out)?;
    print!("{page}");
    Ok(())
}
