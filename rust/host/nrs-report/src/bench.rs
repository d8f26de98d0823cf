// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report bench`: what `make bench` measured, as one table per question, JSON and pictures.
//!
//! # Vocabulary
//!
//! - *Timing*: nanoseconds of one benchmark: Criterion's median and its 95 % confidence interval.
//! - *Growth*: how much a decision takes longer when there are twice as many classes.
//! - *Anchor*: what somebody else's scheduler takes for the same, measured elsewhere; its source is named.
//!
//! ```text
//!  DIR/criterion/**/new/{benchmark,estimates}.json ─┐
//!  DIR/memory.jsonl, sizes.txt, load.txt ───────────┴─► bench.md, bench.json, decisions.svg …
//! ```

mod anchors;
mod growth;
mod measured;
mod pages;
mod pictures;

use std::{error::Error, fs, path::PathBuf};

use measured::Measured;

/// Tables and pictures of what was measured.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where the measurements are, and where the report goes.
    dir: PathBuf,
}

/// Writes the report and prints its tables.
///
/// # Errors
///
/// There is nothing to report, or it cannot be read or written.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let measured = Measured::read(&args.dir)?;
    if measured.timings.is_empty() {
        return Err(format!("{}: no timings", args.dir.display()).into());
    }
    let page = pages::page(&measured);
    fs::write(args.dir.join("bench.md"), &page)?;
    let json = serde_json::to_string_pretty(&pages::json(&measured))?;
    fs::write(args.dir.join("bench.json"), json + "\n")?;
    pictures::save(&measured, &args.dir)?;
    print!("{page}");
    Ok(())
}
