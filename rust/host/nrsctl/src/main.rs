// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl`: see `nrsctl help`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::failure::Kind;
use nrsctl::live::Live;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let kernel = Live::new();
    let done = cli.command.run(&kernel, &mut io::stdout());
    match done.and_then(|()| Ok(io::stdout().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed, too; the status tells it all the same.
            if failure.kind != Kind::Closed {
                let _ = writeln!(io::stderr(), "nrsctl: {failure}");
            }
            ExitCode::from(failure.kind.exit_status())
        }
    }
}
