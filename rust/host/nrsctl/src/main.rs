// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl`, the command line tool of nrs; see `nrsctl help`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::FromArgMatches as _;
use nrsctl::cli::Cli;
use nrsctl::examples;
use nrsctl::failure::FailureKind;
use nrsctl::live::Live;

fn main() -> ExitCode {
    let matches = examples::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let kernel = Live::new();
    let done = cli.command.run(&kernel, &mut io::stdout());
    match done.and_then(|()| Ok(io::stdout().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed as well; the exit status reports the failure in any
            // case.
            if failure.kind != FailureKind::Closed {
                let _ = writeln!(io::stderr(), "nrsctl: {failure}");
            }
            ExitCode::from(failure.kind.exit_status())
        }
    }
}
