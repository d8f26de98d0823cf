// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl status`

use std::io::Write;

use crate::failure::Result;
use crate::kernel::{self, Kernel};
use crate::show;
use crate::stats::{self, words};

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The services (default: all).
    #[arg(value_name = "SERVICE")]
    pub services: Vec<String>,
    /// Shows users and groups by number.
    #[arg(long, short)]
    pub numeric: bool,
    /// Prints all counters as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Carries it out.
///
/// # Errors
///
/// What reading statistics returns.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let read = |service: &str| stats::read(kernel, service);
    let mut snapshots = match args.services.as_slice() {
        [] => kernel::each(kernel, read)?,
        services => {
            let snapshots = services.iter().map(|service| read(service));
            snapshots.collect::<Result<Vec<_>>>()?
        }
    };
    if args.json {
        return show::json(out, &snapshots);
    }
    if snapshots.is_empty() {
        return Ok(writeln!(
            out,
            "no services: a client makes one, see the user guide"
        )?);
    }
    for snapshot in snapshots.iter_mut().filter(|_| !args.numeric) {
        kernel.accounts().name(snapshot);
    }
    let texts: Vec<String> = snapshots.iter().map(words::describe).collect();
    Ok(out.write_all(texts.join("\n").as_bytes())?)
}
