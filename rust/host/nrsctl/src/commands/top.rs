// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl top`

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::commands::record;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::names::no_service;
use crate::top::row::Column;
use crate::top::source::{Live, Named, Replay, Source};
use crate::top::state::State;
use crate::top::{plain, term};

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The service (default: the first).
    pub service: Option<String>,
    /// Seconds between updates.
    #[arg(long, value_name = "S", default_value = "2", value_parser = record::interval)]
    pub interval: Duration,
    /// Sort column.
    #[arg(long, value_name = "KEY", value_enum, default_value = "got")]
    pub sort: Column,
    /// Shows rows with this text in the name, policy or rule.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Prints this many tables as text, one per interval, without a terminal.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Shows users and groups by number.
    #[arg(long, short)]
    pub numeric: bool,
    /// Shows a recording instead of the module.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// Carries it out.
///
/// # Errors
///
/// [`Kind::Usage`] without a terminal or `--batch`; of `--batch` also what the first and the last snapshot return;
/// [`Kind::NotFound`] and [`Kind::Refused`] for a recording that is not there or not as expected.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let mut state = State::new(args.service.clone(), args.interval, args.sort, &args.filter);
    let mut live = Live(kernel);
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
            named = Named { source, accounts };
            &mut named
        }
    };
    if let Some(tables) = args.batch {
        return batch(state, source, tables, out);
    }
    if !term::is_there() {
        let none = Failure::new(Kind::Usage, "top needs a terminal");
        return Err(none.hint("without one, tables as text: nrsctl top --batch 1"));
    }
    // What is wrong from the start is said as any other command says it.
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

/// Prints so many tables.
fn batch(mut state: State, source: &mut dyn Source, tables: u64, out: &mut dyn Write) -> Result {
    // Rates need something to compare with.
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
