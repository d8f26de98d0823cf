// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl status`

use std::io::Write;

use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::stats::{self, words};

/// Its arguments.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// The services; all, if there is none.
    #[arg(value_name = "SERVICE")]
    pub services: Vec<String>,
    /// Prints all that was counted, JSON.
    #[arg(long)]
    pub json: bool,
}

/// Carries it out.
///
/// # Errors
///
/// What reading statistics returns.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let services = match args.services.as_slice() {
        [] => kernel.services()?,
        services => services.to_vec(),
    };
    let snapshots = services.iter().map(|service| stats::read(kernel, service));
    let snapshots = snapshots.collect::<Result<Vec<_>>>()?;
    if args.json {
        let text = serde_json::to_string_pretty(&snapshots);
        let text = text.map_err(|error| Failure::new(Kind::Other, error.to_string()))?;
        return Ok(writeln!(out, "{text}")?);
    }
    if snapshots.is_empty() {
        return Ok(writeln!(
            out,
            "no services: a device of type nrs makes one, see the user guide"
        )?);
    }
    let texts: Vec<String> = snapshots.iter().map(words::describe).collect();
    Ok(out.write_all(texts.join("\n").as_bytes())?)
}
