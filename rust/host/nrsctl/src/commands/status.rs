// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl status`

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use crate::commands::record;
use crate::failure::{failure, FailureKind, Result};
use crate::kernel::{self, Kernel};
use crate::show;
use crate::stats::{self, words, Snapshot};
use crate::top::term;

/// Arguments of `nrsctl status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Names of services (default: all).
    #[arg(value_name = "SERVICE")]
    pub services: Vec<String>,
    /// Shows users and groups by number.
    #[arg(long, short)]
    pub numeric: bool,
    /// Prints all counters as JSON.
    #[arg(long)]
    pub json: bool,
    /// Repeats the output every 2 s, or every S seconds.
    #[arg(
        long,
        value_name = "S",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        conflicts_with = "json",
        value_parser = record::interval,
    )]
    pub watch: Option<Duration>,
}

/// Control sequence that clears the terminal.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Runs `nrsctl status`.
///
/// # Errors
///
/// - [`FailureKind::Unhealthy`]: a service is not healthy, or has lost clients.
/// - Errors of reading statistics.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let Some(interval) = args.watch else {
        return once(args, kernel, out);
    };
    loop {
        // Writing the screen in one call avoids flicker.
        let mut screen = Vec::new();
        if term::is_usable() {
            screen.extend_from_slice(CLEAR);
        }
        match once(args, kernel, &mut screen) {
            Err(failure) if failure.kind == FailureKind::Unhealthy => {
                writeln!(screen, "{failure}")?
            }
            done => done?,
        }
        out.write_all(&screen)?;
        out.flush()?;
        sleep(interval);
    }
}

/// Shows the services once.
fn once(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let read = |service: &str| stats::read(kernel, service);
    let mut snapshots = match args.services.as_slice() {
        [] => kernel::each(kernel, read)?,
        services => {
            let snapshots = services.iter().map(|service| read(service));
            snapshots.collect::<Result<Vec<_>>>()?
        }
    };
    let sick = |snapshot: &&Snapshot| {
        snapshot.unhealthy.is_some() || snapshot.clients.iter().any(|client| client.lost)
    };
    let sick: Vec<&str> = snapshots
        .iter()
        .filter(sick)
        .map(|one| &*one.service)
        .collect();
    let done = match sick.is_empty() {
        true => Ok(()),
        false => Err(failure!(Unhealthy: "not healthy: {}", sick.join(", "))),
    };
    if args.json {
        show::json(out, &snapshots)?;
    } else if snapshots.is_empty() {
        writeln!(
            out,
            "no services: clients create services, see the user guide"
        )?;
    } else {
        for snapshot in snapshots.iter_mut().filter(|_| !args.numeric) {
            kernel.accounts().name(snapshot.entities.iter_mut());
        }
        let texts: Vec<String> = snapshots.iter().map(words::describe).collect();
        out.write_all(texts.join("\n").as_bytes())?;
    }
    done
}
