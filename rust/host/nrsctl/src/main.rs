// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl`: see `nrsctl help`.

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::live::Live;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let kernel = Live::new();
    match cli.command.run(&kernel, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nrsctl: {failure}");
            ExitCode::from(failure.kind.exit_status())
        }
    }
}
