// SPDX-License-Identifier: GPL-2.0-only

//! What `make compare` measured: nrs beside the schedulers of the kernel.
//!
//! * A *device* is what is shared, a *peer* what shares it, a *client* who has a part in it.
//! * A *measure* is one run of clients on a device under a peer: `one`, `many`, `mix`, `equal`, `four`, `eight`, `lone`.
//! * A *figure* is a number made from one or two measures, such as the error of shares; it has a value for each repeat.
//!
//! ```text
//! DIR/DEVICE/{device,not,PEER.REPEAT.json,PEER.REPEAT.facts} -> input -> figures -> page (Markdown), JSON, SVG
//!                                                                              \-> words (who is best)
//! ```

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

/// Where the results are, and where the report goes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory with a directory of results for each device.
    dir: PathBuf,
    /// Directory for compare.md, compare.json and the pictures.
    #[arg(long)]
    out: PathBuf,
    /// Print no table: only check that the figures are plausible, as a test.
    #[arg(long)]
    check: bool,
    /// How long the whole command took, seconds, for the page.
    #[arg(long)]
    took: Option<u64>,
}

/// Reads the results, writes the report and prints the page.
///
/// # Errors
///
/// Results that are missing or cannot be read, with the name of the file; files that cannot be written; with
/// `--check`, figures that cannot be.
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
            (true, true) => Err("there was nothing to check".into()),
            _ => Err("figures that cannot be".into()),
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
    page::pictures(&table, &args.out)?;
    print!("{page}");
    Ok(())
}
