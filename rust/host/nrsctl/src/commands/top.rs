// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl top`

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::commands::record;
use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::names::no_service;
use crate::top::row::Column;
use crate::top::source::{LiveSource, NamedSource, Replay, Source};
use crate::top::state::TopState;
use crate::top::{plain, term};

/// Arguments of `nrsctl top`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the service (default: the first).
    pub service: Option<String>,
    /// Interval between updates, in seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = record::interval)]
    pub interval: Duration,
    /// Column to sort by.
    #[arg(long, value_name = "KEY", value_enum, default_value = "got")]
    pub sort: Column,
    /// Text in the name, policy or rule of the rows to show.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Number of tables to print as text, one per interval; needs no terminal.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Shows users and groups by number.
    #[arg(long, short)]
    pub numeric: bool,
    /// Recording to show instead of the module.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// Runs `nrsctl top`.
///
/// # Errors
///
/// - `Usage`: there is neither a terminal nor `--batch`.
/// - With `--batch`: errors of the first and the last snapshot.
/// - `NotFound`, `Refused`: the recording does not exist, or is
///   malformed.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let mut state = TopState::new(args.service.clone(), args.interval, args.sort, &args.filter);
    let mut live = LiveSource(kernel);
    let mut replay;
    let source: &mut dyn Source = match &args.from {
        Some(path) => {
            replay = Replay::new(record::open(path)?);
            &mut replay
        }
        None => &mut live,
    };
    let accounts = kernel.accounts();
    let mut named;
    let source = match args.numeric {
        true => source,
        false => {
            named = NamedSource { source, accounts };
            &mut named
        }
    };
    if let Some(tables) = args.batch {
        return batch(state, source, tables, out);
    }
    if !term::is_usable() {
        let none = failure!(Usage: "top requires a terminal");
        return Err(none.hint("to print tables as text: nrsctl top --batch 1"));
    }
    // Errors at the start are reported as by any other command, before the screen is taken.
    let services = source.services()?;
    if let Some(name) = args
        .service
        .as_ref()
        .filter(|name| !services.contains(name))
    {
        return Err(no_service(name, &services));
    }
    state.colours = term::wants_colours();
    term::run(&mut state, source)
}

/// Prints `tables` tables.
fn batch(mut state: TopState, source: &mut dyn Source, tables: u64, out: &mut dyn Write) -> Result {
    // Rates need a previous snapshot.
    state.refresh(source);
    if let Some(failure) = state.failure.as_ref() {
        return Err(failure.clone());
    }
    for _ in 0..tables {
        if source.is_live() {
            std::thread::sleep(state.interval);
        }
        state.refresh(source);
        if state.ended {
            break;
        }
        plain::write(&state, out)?;
        out.flush()?;
    }
    match state.failure.as_ref() {
        Some(failure) => Err(failure.clone()),
        None => Ok(()),
    }
}
