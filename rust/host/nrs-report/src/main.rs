// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report`: results of `make compare`, `bench`, `bench-vm`, `demo` and `cluster`, as tables
//! and charts.

mod bench;
mod cluster;
mod compare;
mod demo;
mod fio;
mod page;
mod profile;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Result of a report; the error is printed.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Tables and charts from measurements of nrs.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// nrs compared with the schedulers of the kernel, from the results of `make compare`.
    Compare(compare::Args),
    /// Time and memory of the scheduling code, from the results of `make bench`.
    Bench {
        /// Directory of the results, and of the report.
        dir: PathBuf,
    },
    /// Cost of a request in virtual machines, from the results of `make bench-vm`.
    Vm {
        /// Directory of the results.
        dir: PathBuf,
    },
    /// Instructions per request by function, from the results of `scripts/bench-vm.sh --profile`.
    Profile {
        /// Directory of the results: files N.blocks and N.symbols for two numbers N of requests.
        dir: PathBuf,
        /// Minimum number of instructions per request; functions with fewer are omitted.
        #[arg(long, default_value_t = 10.0)]
        from: f64,
    },
    /// Two users on one device, from the results of `make demo`.
    Demo(demo::Args),
    /// Shares over two servers, from the results of `make cluster`.
    Cluster(cluster::Args),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Compare(args) => compare::run(args),
        Command::Bench { dir } => bench::run(&dir),
        Command::Vm { dir } => vm::run(&dir),
        Command::Profile { dir, from } => profile::run(&dir, from),
        Command::Demo(args) => demo::run(args),
        Command::Cluster(args) => cluster::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nrs-report: {error}");
            ExitCode::FAILURE
        }
    }
}
