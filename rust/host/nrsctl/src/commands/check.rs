// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl check`

use std::io::Write;
use std::path::{Path, PathBuf};

use nrs_agent::config;

use crate::configuration::{files, parse};
use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::show;

/// Arguments of `nrsctl check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Prints the errors as a JSON array.
    #[arg(long)]
    pub json: bool,
    /// Files, or directories of *.toml (default /etc/nrs).
    #[arg(value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
}

/// Checks the files and reports each as correct, or its faults with their places, without accessing
/// the module.
///
/// # Errors
///
/// - `Refused`: a file has a fault.
/// - Errors of reading the files.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let paths = args.paths.iter().cloned();
    let (agents, others): (Vec<_>, Vec<_>) = paths.partition(|path| files::is_agent(path));
    let mut files = match others.is_empty() && !agents.is_empty() {
        true => Vec::new(),
        false => files::read(&others)?,
    };
    let (_, mut faults) = parse(&files, kernel.accounts());
    for file in files::agents(&args.paths)? {
        let agent = config::parse(&file.name, &file.text, &config::host());
        faults.extend(match agent {
            Ok(agent) if Path::new(&file.name).starts_with(files::DIRECTORY) => {
                config::check_files(&agent)
            }
            Ok(_) => Vec::new(),
            Err(faults) => faults,
        });
        files.push(file);
    }
    if args.json {
        show::json(out, &faults)?;
    }
    for file in files.iter().filter(|_| !args.json) {
        let mut own = faults
            .iter()
            .filter(|fault| *fault.place.file == file.name)
            .peekable();
        if own.peek().is_none() {
            writeln!(out, "{}: ok", file.name)?;
        }
        for fault in own {
            writeln!(out, "{fault}")?;
        }
    }
    match faults.len() {
        0 => Ok(()),
        1 => Err(failure!(Refused: "the configuration has an error")),
        many => Err(failure!(Refused: "the configuration has {many} errors")),
    }
}
